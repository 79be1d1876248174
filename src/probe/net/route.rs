//! Which way to a destination: the interface, our address there, and the largest packet.
//!
//! Asked of the kernel over netlink, as `ip route get` does, so it holds for the network namespace of the caller and
//! with policy routing. Must not know: protocols. Sizes are in bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use rustix::net::netdevice::index_to_name;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Phase, Result};
use crate::probe::net::links::{self, Link, ROUTE};
use crate::probe::net::netlink::{self, Request, ask, find, told};

const RTM_GETROUTE: u16 = 26;
/// Length of `struct rtmsg`, bytes.
const HEADER: usize = 12;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTAX_MTU: u16 = 2;
/// The type of a route to this computer itself.
const RTN_LOCAL: u8 = 2;

/// The way to a destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The interface that packets leave through; `lo` when the destination is this computer.
    pub interface: String,
    /// Our address on it, which the destination sees.
    pub source: Option<IpAddr>,
    /// The router on the way; None when the destination is on the same network.
    pub gateway: Option<IpAddr>,
    /// The largest packet on the way as far as known: the path's where the kernel has learnt or been told it, else the
    /// interface's.
    pub mtu_bytes: Option<u32>,
    /// Whether that came from the path and not from the interface.
    pub path_mtu_known: bool,
    /// Whether the destination is this computer.
    pub local: bool,
}

/// What the kernel's answer says, before the interface has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    interface_index: u32,
    source: Option<IpAddr>,
    gateway: Option<IpAddr>,
    path_mtu_bytes: Option<u32>,
    local: bool,
}

/// The way from here to `destination`. Errors: no route leads there, or the kernel does not tell.
pub fn route_to(destination: IpAddr) -> Result<Route> {
    let doing = || format!("find the route to {destination}");
    // An IPv4 address in IPv6 clothes goes by IPv4.
    let address = destination.to_canonical();
    let answer = ask(ROUTE, request(address))
        .map_err(|error| Error::io(Phase::Connect, &error, &doing()))?;
    let answer = parse(&answer).ok_or_else(|| {
        Error::new(
            Phase::Connect,
            Kind::Unsupported,
            format!("the kernel names no interface on the way to {destination}"),
        )
    })?;
    let list = links::links().unwrap_or_default();
    let link = list
        .iter()
        .find(|link| link.index == answer.interface_index);
    let interface = match link {
        Some(link) => link.name.clone(),
        None => name_of(answer.interface_index)
            .map_err(|error| Error::io(Phase::Connect, &error, &doing()))?,
    };
    Ok(finish(&answer, interface, link, address))
}

fn finish(answer: &Answer, interface: String, link: Option<&Link>, address: IpAddr) -> Route {
    let interface_mtu = link.and_then(|link| link.mtu_bytes);
    Route {
        interface,
        source: answer.source.or_else(|| source_by_connecting(address)),
        gateway: answer.gateway,
        mtu_bytes: answer.path_mtu_bytes.or(interface_mtu),
        path_mtu_known: answer.path_mtu_bytes.is_some(),
        local: answer.local,
    }
}

fn request(address: IpAddr) -> Request {
    let (family, octets) = match address {
        IpAddr::V4(address) => (AddressFamily::INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::INET6, address.octets().to_vec()),
    };
    let mut header = [0; HEADER];
    header[0] = family.as_raw() as u8;
    header[1] = (octets.len() * 8) as u8;
    Request::one(RTM_GETROUTE)
        .header(&header)
        .attribute(RTA_DST, &octets)
}

/// Reads the kernel's answer; None when it names no interface.
fn parse(answer: &[u8]) -> Option<Answer> {
    told(answer).find_map(|message| {
        let attributes = message.payload.get(HEADER..)?;
        let mtu = find(attributes, RTA_METRICS)
            .and_then(|metrics| netlink::number(metrics, RTAX_MTU))
            .filter(|mtu| *mtu > 0);
        Some(Answer {
            interface_index: u32::try_from(netlink::number(attributes, RTA_OIF)?).ok()?,
            source: find(attributes, RTA_PREFSRC).and_then(address_of),
            gateway: find(attributes, RTA_GATEWAY).and_then(address_of),
            path_mtu_bytes: mtu.and_then(|mtu| u32::try_from(mtu).ok()),
            local: message.payload.get(7) == Some(&RTN_LOCAL),
        })
    })
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(octets).into());
    }
    let octets = <[u8; 16]>::try_from(bytes).ok()?;
    Some(Ipv6Addr::from(octets).into())
}

fn name_of(index: u32) -> std::io::Result<String> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok(index_to_name(&socket, index)?)
}

/// Our address towards `destination`, where the route does not name it: connecting a UDP socket sends nothing.
fn source_by_connecting(destination: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match destination {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((destination, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::probe::net::machines::answer as saved;
    use crate::probe::net::netlink::testing::{attributes, message};

    #[test]
    fn a_saved_answer_names_the_way() {
        let answer = parse(&saved("veth", "route")).expect("an interface");
        let links = links::parse(&saved("veth", "links"));
        let link = links
            .iter()
            .find(|link| link.index == answer.interface_index);
        assert_eq!(link.map(|link| link.name.as_str()), Some("va"));
        assert_eq!(answer.source, Some(IpAddr::from([10, 77, 0, 1])));
        assert_eq!(answer.gateway, Some(IpAddr::from([10, 77, 0, 9])));
        assert_eq!(answer.path_mtu_bytes, Some(1400), "not the veth's 1500");
        assert!(!answer.local);
    }

    fn answer(kind: u8, list: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut payload = vec![0; HEADER];
        payload[7] = kind;
        payload.extend(attributes(list));
        message(24, &payload)
    }

    #[test]
    fn a_learnt_path_mtu_goes_before_the_interface() {
        let metrics = attributes(&[(RTAX_MTU, 1400_u32.to_ne_bytes().to_vec())]);
        let bytes = answer(
            1,
            &[
                (RTA_OIF, 3_u32.to_ne_bytes().to_vec()),
                (RTA_PREFSRC, vec![10, 0, 0, 2]),
                (RTA_GATEWAY, vec![10, 0, 0, 1]),
                (RTA_METRICS, metrics),
            ],
        );
        let link = Link {
            index: 3,
            name: "eth1".into(),
            mtu_bytes: Some(9000),
            ..Link::default()
        };
        let there = IpAddr::from([10, 9, 9, 9]);
        let parsed = parse(&bytes).expect("an answer");
        let route = finish(&parsed, "eth1".into(), Some(&link), there);
        assert_eq!((route.mtu_bytes, route.path_mtu_known), (Some(1400), true));
        assert_eq!(route.source, Some(IpAddr::from([10, 0, 0, 2])));
        assert_eq!(route.gateway, Some(IpAddr::from([10, 0, 0, 1])));
        assert!(!route.local);
        let untold = Answer {
            path_mtu_bytes: None,
            ..parsed
        };
        let route = finish(&untold, "eth1".into(), Some(&link), there);
        assert_eq!((route.mtu_bytes, route.path_mtu_known), (Some(9000), false));
    }

    #[test]
    fn an_answer_without_an_interface_is_none() {
        assert_eq!(parse(&answer(7, &[])), None);
        assert_eq!(parse(&[]), None);
    }

    #[test]
    fn this_computer_is_reached_through_its_loopback() {
        let route = route_to(IpAddr::from([127, 0, 0, 1])).expect("the loopback is there");
        assert_eq!(route.interface, "lo");
        assert!(route.local);
        assert_eq!(route.source, Some(IpAddr::from([127, 0, 0, 1])));
        assert_eq!(route.mtu_bytes, Some(65536));
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().expect("an address");
        assert_eq!(route_to(mapped).expect("the same").interface, "lo");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let _ = parse(&message(24, &bytes));
            let _ = links::parse(&message(16, &bytes));
        }
    }
}
