//! A host as the user wrote it, turned into addresses in bounded time. Must not know: who asks.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, netdevice};

use crate::error::{Error, Kind, Phase, Result};

/// More addresses than this are not tried.
const TRIED: usize = 4;

/// The addresses of a name or literal, each with port 0.
pub fn resolve(host: &str, limit: Duration) -> Result<Vec<SocketAddr>> {
    if let Some(address) = literal(host)? {
        return Ok(vec![address]);
    }
    let (answer, answered) = mpsc::channel();
    let name = host.to_owned();
    // The system's resolver has no time limit of its own; a late thread ends by itself.
    let started = thread::Builder::new().spawn(move || {
        let found = (name.as_str(), 0).to_socket_addrs();
        drop(answer.send(found.map(Iterator::collect::<Vec<_>>)));
    });
    if let Err(error) = started {
        return Err(Error::io(Phase::Resolve, &error, "start the name resolver"));
    }
    match answered.recv_timeout(limit) {
        Ok(Ok(mut found)) if !found.is_empty() => {
            found.dedup();
            found.truncate(TRIED);
            Ok(found)
        }
        Ok(Ok(_)) => Err(unknown(host, "it has no address")),
        Ok(Err(error)) => Err(unknown(host, &plain(&error))),
        Err(_) => Err(Error::new(
            Phase::Resolve,
            Kind::TimedOut,
            format!(
                "the name server did not answer for '{host}' within {} s; give the IP address instead",
                limit.as_secs_f64()
            ),
        )),
    }
}

fn unknown(host: &str, why: &str) -> Error {
    let build = if cfg!(target_feature = "crt-static") {
        " (this is a static build, which resolves no names on most systems)"
    } else {
        ""
    };
    Error::new(
        Phase::Resolve,
        Kind::NotFound,
        format!(
            "could not resolve the host name '{host}': {why}; check it or give the IP address{build}"
        ),
    )
}

fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.strip_prefix("failed to lookup address information: ") {
        Some(reason) => reason.to_owned(),
        None => text,
    }
}

/// An IP literal, with its scope after `%` where it has one; None when it is a name.
fn literal(host: &str) -> Result<Option<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        // An IPv4 address in IPv6 clothes is asked for as what it is.
        return Ok(Some(SocketAddr::new(ip.to_canonical(), 0)));
    }
    let Some((ip, scope)) = host.split_once('%') else {
        return Ok(None);
    };
    let Ok(ip) = ip.parse::<Ipv6Addr>() else {
        return Ok(None);
    };
    let index = match scope.parse::<u32>() {
        Ok(index) => index,
        Err(_) => interface(scope).map_err(|error| {
            Error::io(
                Phase::Resolve,
                &error,
                &format!("find the network interface '{scope}' of {host}"),
            )
        })?,
    };
    Ok(Some(SocketAddrV6::new(ip, 0, 0, index).into()))
}

fn interface(name: &str) -> io::Result<u32> {
    let socket = rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None)?;
    Ok(netdevice::name_to_index(&socket, name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn one(host: &str) -> SocketAddr {
        resolve(host, LIMIT).expect(host)[0]
    }

    #[test]
    fn literals_need_no_resolver() {
        assert_eq!(one("10.0.0.7").to_string(), "10.0.0.7:0");
        assert_eq!(one("::1").to_string(), "[::1]:0");
        assert_eq!(one("::ffff:10.0.0.7").to_string(), "10.0.0.7:0");
        assert_eq!(one("fe80::1%7").to_string(), "[fe80::1%7]:0");
    }

    #[test]
    fn a_scope_may_be_an_interface_name() {
        assert!(one("fe80::1%lo").to_string().starts_with("[fe80::1%"));
        let error = resolve("fe80::1%nosuchif0", LIMIT).expect_err("no such interface");
        assert_eq!(error.phase, Phase::Resolve);
        assert!(error.message.contains("nosuchif0"), "{error}");
    }

    #[test]
    fn an_unknown_name_points_to_the_address() {
        let cause =
            io::Error::other("failed to lookup address information: Name or service not known");
        let error = unknown("nas", &plain(&cause));
        assert_eq!((error.phase, error.kind), (Phase::Resolve, Kind::NotFound));
        assert!(
            error
                .message
                .starts_with("could not resolve the host name 'nas': Name or service not known; "),
            "{error}"
        );
    }
}
