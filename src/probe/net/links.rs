//! Interfaces as the kernel lists them over netlink: kind, MTU, counters. Works without /sys, and in any network
//! namespace, where a /sys mounted elsewhere would tell of other interfaces.
//!
//! Layout after rtnetlink(7) and `linux/if_link.h`. Must not know: speeds and hardware. Sizes are in bytes.

use rustix::net::Protocol;

use crate::error::{Error, Phase, Result};
use crate::probe::net::netlink::{self, Request, ask, find, told, u16_at, u32_at, u64_at};
use crate::probe::net::statistics::Statistics;

const RTM_GETLINK: u16 = 18;
/// Length of `struct ifinfomsg`, bytes.
const HEADER: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_CARRIER: u16 = 33;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VLAN_ID: u16 = 1;
/// `ARPHRD_LOOPBACK`.
const LOOPBACK: u16 = 772;
/// Routing has protocol number zero, which rustix spells None.
pub(super) const ROUTE: Option<Protocol> = None;

/// One interface of the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number for it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The software that makes it: `veth`, `bridge`, `bond`, `vlan`, `tun`, ..; None for a card.
    pub kind: Option<String>,
    /// Whether it is this computer's way to itself.
    pub loopback: bool,
    /// The largest packet.
    pub mtu_bytes: Option<u32>,
    /// Whether it can carry packets, where its driver says.
    pub up: Option<bool>,
    /// Whether the cable, or what stands for it, is connected.
    pub carrier: Option<bool>,
    /// The number of the interface below, or of a veth's other end, which may be in another namespace.
    pub lower_index: Option<u32>,
    /// The number of the bond or bridge that it is part of.
    pub master_index: Option<u32>,
    /// The VLAN's number.
    pub vlan_id: Option<u16>,
    /// What went through it since it was made.
    pub statistics: Statistics,
}

/// The interfaces of this network namespace. Errors: the kernel does not tell (no netlink here).
pub fn links() -> Result<Vec<Link>> {
    let answer = ask(ROUTE, Request::list(RTM_GETLINK).header(&[0; HEADER]))
        .map_err(|error| Error::io(Phase::Io, &error, "list the network interfaces"))?;
    Ok(parse(&answer))
}

/// Reads the kernel's answer; what is damaged is left out.
#[must_use]
pub fn parse(answer: &[u8]) -> Vec<Link> {
    told(answer)
        .filter_map(|message| {
            let attributes = message.payload.get(HEADER..)?;
            let number = |kind| u32::try_from(netlink::number(attributes, kind)?).ok();
            let info = find(attributes, IFLA_LINKINFO);
            let kind = info.and_then(|info| netlink::text(info, IFLA_INFO_KIND));
            let vlan_id = info
                .filter(|_| kind.as_deref() == Some("vlan"))
                .and_then(|info| find(info, IFLA_INFO_DATA))
                .and_then(|data| netlink::number(data, IFLA_VLAN_ID));
            Some(Link {
                index: u32_at(message.payload, 4)?,
                name: netlink::text(attributes, IFLA_IFNAME)?,
                kind,
                loopback: u16_at(message.payload, 2) == Some(LOOPBACK),
                mtu_bytes: number(IFLA_MTU),
                // RFC 2863: 1 not present, 2 down, 3 lower layer down, 6 up; 0 is a driver that does not say.
                up: match number(IFLA_OPERSTATE).unwrap_or(0) {
                    6 => Some(true),
                    1..=3 => Some(false),
                    _ => None,
                },
                carrier: number(IFLA_CARRIER).map(|carrier| carrier == 1),
                lower_index: number(IFLA_LINK),
                master_index: number(IFLA_MASTER),
                vlan_id: vlan_id.and_then(|id| u16::try_from(id).ok()),
                statistics: find(attributes, IFLA_STATS64)
                    .map(statistics)
                    .unwrap_or_default(),
            })
        })
        .collect()
}

/// `struct rtnl_link_stats64`: eight-byte numbers in a fixed order; a shorter one is an older kernel's.
fn statistics(bytes: &[u8]) -> Statistics {
    let field = |index: usize| u64_at(bytes, index * 8);
    Statistics {
        receive_packets: field(0),
        transmit_packets: field(1),
        receive_bytes: field(2),
        transmit_bytes: field(3),
        receive_errors: field(4),
        transmit_errors: field(5),
        receive_dropped: field(6),
        transmit_dropped: field(7),
        receive_crc_errors: field(12),
        receive_fifo_errors: field(14),
        receive_missed: field(15),
    }
}
