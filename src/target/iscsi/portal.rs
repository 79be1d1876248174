//! The portal's TCP address: name resolution and a probe of the port, both bounded.
//!
//! libiscsi resolves names without a bound and words a refused port misleadingly, so it is handed a numeric
//! address that has just accepted a connection. Must not know: iSCSI.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Phase, Result};

/// The first address of `host` that accepts a connection to `port` in time.
pub fn reach(host: &str, port: u16, timeout: Duration) -> Result<SocketAddr> {
    let end = Instant::now() + timeout;
    let addresses = resolve(host, port, timeout)?;
    let mut last = None;
    for address in &addresses {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(address, left) {
            Ok(_) => return Ok(*address),
            Err(error) => last = Some(error),
        }
    }
    Err(match last {
        Some(error) if error.kind() != std::io::ErrorKind::TimedOut => {
            let advice = if error.kind() == std::io::ErrorKind::ConnectionRefused {
                "; is the iSCSI target running there, on that port?"
            } else {
                ""
            };
            let mut failure =
                Error::io(Phase::Connect, &error, &format!("reach {host} port {port}"));
            failure.message.push_str(advice);
            failure
        }
        _ => Error::new(
            Phase::Connect,
            Kind::TimedOut,
            format!(
                "{host} port {port} did not answer within {:.1} s; check address, port and firewall",
                timeout.as_secs_f64()
            ),
        ),
    })
}

/// Addresses of a host. The system's resolver can't be interrupted, so a name is looked up on a thread of its own,
/// which is left behind when it takes too long.
fn resolve(host: &str, port: u16, timeout: Duration) -> Result<Vec<SocketAddr>> {
    let name = host.to_owned();
    let (sender, receiver) = mpsc::channel();
    let spawned = std::thread::Builder::new()
        .name("resolve".into())
        .spawn(move || {
            let found = (name.as_str(), port)
                .to_socket_addrs()
                .map(Iterator::collect::<Vec<_>>);
            // Nobody listens any more when the time is up.
            let _ = sender.send(found);
        });
    if let Err(error) = spawned {
        return Err(Error::io(
            Phase::Resolve,
            &error,
            "start a thread to look up a host name",
        ));
    }
    match receiver.recv_timeout(timeout) {
        Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
        Ok(Ok(_)) => Err(Error::new(
            Phase::Resolve,
            Kind::NotFound,
            format!("the name {host} has no address"),
        )),
        Ok(Err(error)) => Err(Error::new(
            Phase::Resolve,
            Kind::NotFound,
            format!(
                "the name {host} could not be resolved ({}); check its spelling, or give the IP address",
                error
                    .to_string()
                    .trim_start_matches("failed to lookup address information: ")
            ),
        )),
        Err(_) => Err(Error::new(
            Phase::Resolve,
            Kind::TimedOut,
            format!(
                "the name {host} was not resolved within {:.1} s; check the name server, or give the IP address",
                timeout.as_secs_f64()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_port_is_reached_and_a_closed_one_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let second = Duration::from_secs(1);
        assert_eq!(
            reach("127.0.0.1", port, second).expect("reached").port(),
            port
        );
        drop(listener);
        let error = reach("127.0.0.1", port, second).expect_err("closed");
        assert_eq!((error.phase, error.kind), (Phase::Connect, Kind::Refused));
        assert!(error.message.contains(&port.to_string()), "{error}");
    }

    #[test]
    fn an_unknown_name_is_not_found() {
        let error = reach("no-such-host.invalid", 3260, Duration::from_secs(20)).expect_err("none");
        assert_eq!(error.phase, Phase::Resolve);
        assert!(error.message.contains("no-such-host.invalid"), "{error}");
    }
}
