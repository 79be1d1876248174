//! One iperf3 test on a port of its own: one address, one peer, a deadline.
//!
//! The library makes its listener itself, so the filter of [`one_peer`] follows at once, before anybody is told the
//! port; if somebody came in between, that port is given up for another. UDP tests are refused: the library would open
//! unfiltered sockets for them, so their port is taken here. The library prints to standard output, which the caller must
//! have pointed elsewhere. Must not know: who asked for it.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::{Duration, Instant};

use riperf3::ServerBuilder;

use super::one_peer;
use crate::error::{Error, Kind, Phase, Result};

/// Ports that are tried when strangers come or a number is taken in between.
const TRIES: u32 = 16;

/// Serves one TCP test of `peer` and returns when it is over; `listening` is told the address once it is safe to use. An
/// error is the client's fault or the network's, in a sentence; at `deadline` the wait ends with one. The library may
/// ignore the deadline inside a call: the caller ends the process then.
pub fn serve(
    address: SocketAddr,
    peer: IpAddr,
    deadline: Instant,
    listening: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::io(Phase::Prepare, &error, "start the iperf3 server"))?;
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    let test = || runtime.block_on(one_test(address, peer, deadline, listening));
    // The library computes with what a client asks for, and numbers of a hostile one overflow.
    let outcome = catch_unwind(AssertUnwindSafe(test)).unwrap_or_else(|_| {
        Err(failed(
            address,
            "what the client asked for can't be worked with",
        ))
    });
    // A task that hangs must not keep us.
    runtime.shutdown_background();
    outcome
}

async fn one_test(
    wanted: SocketAddr,
    peer: IpAddr,
    deadline: Instant,
    listening: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    let mut reason = String::new();
    for _ in 0..TRIES {
        let held =
            one_peer::hold_udp(wanted).map_err(|error| one_peer::cannot_bind(wanted, &error))?;
        let address = held
            .local_addr()
            .map_err(|error| one_peer::cannot_bind(wanted, &error))?;
        let server = ServerBuilder::new()
            .port(Some(address.port()))
            .bind_address(&address.ip().to_string())
            .build()
            .map_err(|error| failed(address, &error.to_string()))?;
        let mut test = Box::pin(server.run_once());
        // Up to its first wait, which is for a client.
        let first = std::future::poll_fn(|context| Poll::Ready(test.as_mut().poll(context))).await;
        if let Poll::Ready(ended) = first {
            reason = ended.map_or_else(|error| error.to_string(), |_| "no listener".to_owned());
        } else {
            match guard(address, peer) {
                Ok(()) => {
                    listening(address)?;
                    return finish(test, address, peer, deadline).await;
                }
                Err(why) => why.clone_into(&mut reason),
            }
        }
        if wanted.port() != 0 {
            break;
        }
    }
    let port = wanted.port();
    let what = if port == 0 {
        "no TCP port for the iperf3 test is free".to_owned()
    } else {
        format!("port {port} can't be used for the iperf3 test")
    };
    Err(Error::new(
        Phase::Prepare,
        Kind::Other,
        format!("{what} on {}: {reason}", wanted.ip()),
    ))
}

/// Closes the port to everybody but the peer; fails with the reason when somebody was there before.
fn guard(address: SocketAddr, peer: IpAddr) -> std::result::Result<(), &'static str> {
    let Some(listener) = one_peer::find(address.port()).listener else {
        return Err("its listener was not found");
    };
    one_peer::restrict(&listener, peer)
        .map_err(|_| "the kernel takes no filter for it, and without one anybody could connect")?;
    if one_peer::queued(&listener) || one_peer::find(address.port()).connections > 0 {
        return Err("somebody connected before it was restricted to one peer");
    }
    Ok(())
}

async fn finish<T>(
    test: impl Future<Output = riperf3::Result<T>>,
    address: SocketAddr,
    peer: IpAddr,
    deadline: Instant,
) -> Result<()> {
    match tokio::time::timeout_at(deadline.into(), test).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(failed(address, &error.to_string())),
        Err(_) => Err(late(address, peer)),
    }
}

fn failed(address: SocketAddr, why: &str) -> Error {
    // What a client sent may stand in the library's words.
    let why: String = why.chars().take(200).collect();
    let message = format!(
        "the iperf3 test on {address} ended early: {}",
        why.escape_default()
    );
    Error::new(Phase::Io, Kind::Protocol, message)
}

fn late(address: SocketAddr, peer: IpAddr) -> Error {
    let message = match one_peer::find(address.port()).connections {
        0 => format!(
            "{peer} did not connect to the iperf3 port {address} in time, which is closed now: is there a firewall \
             on the server, or does {peer} reach it from another address?"
        ),
        _ => format!(
            "{peer} connected to the iperf3 port {address} but did not finish its test in time"
        ),
    };
    Error::new(Phase::Io, Kind::TimedOut, message)
}

/// A little before `seconds` from now: who waits for the process as a whole ends it then.
#[must_use]
pub fn own_deadline(time: Duration) -> Instant {
    Instant::now() + time.saturating_sub((time / 20).min(Duration::from_millis(200)))
}
