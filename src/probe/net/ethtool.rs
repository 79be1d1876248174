//! How a network card is set: offloads, rings, coalescing, channels, receive-side scaling, pause frames, link modes and
//! forward error correction. Over generic netlink, as ethtool(8) asks since 5.6.
//!
//! Layout after the kernel's Documentation/networking/ethtool-netlink.rst. A card, driver or kernel that has no answer
//! to one question leaves that answer None. Must not know: what settings are good. Times are in microseconds.

use std::collections::BTreeMap;
use std::io;

use rustix::net::netlink::GENERIC;
use serde::{Deserialize, Serialize};

use crate::probe::net::netlink::{self, Request, ask, attributes, find, told, u32_at};

/// The family that tells the others' numbers.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// Length of `struct genlmsghdr`, bytes.
const HEADER: usize = 4;
/// In every question: which interface.
const A_HEADER: u16 = 1;
const A_HEADER_DEV_NAME: u16 = 2;
const A_HEADER_FLAGS: u16 = 3;
/// Asks for counters beside settings.
const FLAG_STATS: u32 = 4;

/// The questions, by their number in `linux/ethtool_netlink.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Speeds, duplex, what both ends offer.
    LinkModes = 4,
    /// Offloads.
    Features = 11,
    /// Room for packets in the card.
    Rings = 15,
    /// Queues.
    Channels = 17,
    /// How long packets wait for one interrupt.
    Coalesce = 19,
    /// Pause frames.
    Pause = 21,
    /// Forward error correction.
    Fec = 29,
    /// Receive-side scaling; Linux 6.2 and later.
    Rss = 38,
}

/// Everything that was told of one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ethtool {
    /// Offloads.
    pub features: Option<Features>,
    /// Room for packets in the card.
    pub rings: Option<Rings>,
    /// Queues.
    pub channels: Option<Channels>,
    /// How long packets wait for one interrupt.
    pub coalesce: Option<Coalesce>,
    /// Receive-side scaling.
    pub rss: Option<Rss>,
    /// Pause frames.
    pub pause: Option<Pause>,
    /// Speeds, duplex, what both ends offer.
    pub link_modes: Option<LinkModes>,
    /// Forward error correction.
    pub fec: Option<Fec>,
}

/// Offloads, by the kernel's names: `tx-tcp-segmentation`, `rx-gro`, `tx-generic-segmentation`, ..
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Those that are on.
    pub active: Vec<String>,
    /// Those that can be switched.
    pub changeable: Vec<String>,
}

impl Features {
    /// Whether `name` is on.
    #[must_use]
    pub fn on(&self, name: &str) -> bool {
        self.active.iter().any(|active| active == name)
    }

    /// Reads an answer to [`Question::Features`].
    #[must_use]
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let body = body(answer)?;
        Some(Self {
            active: set_bits(find(body, 4)?),
            changeable: find(body, 2).map(set_bits).unwrap_or_default(),
        })
    }
}

/// Packets that the card can hold, now and at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    /// Received packets.
    pub receive: Option<u32>,
    /// Received packets at most.
    pub receive_max: Option<u32>,
    /// Packets to be sent.
    pub transmit: Option<u32>,
    /// Packets to be sent at most.
    pub transmit_max: Option<u32>,
}

impl Rings {
    /// Reads an answer to [`Question::Rings`].
    #[must_use]
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let body = body(answer)?;
        Some(Self {
            receive: number(body, 6),
            receive_max: number(body, 2),
            transmit: number(body, 9),
            transmit_max: number(body, 5),
        })
    }
}

/// Queues, now and at most. Combined ones serve both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channels {
    /// Queues for both directions.
    pub combined: Option<u32>,
    /// The same at most.
    pub combined_max: Option<u32>,
    /// Queues for receiving alone.
    pub receive: Option<u32>,
    /// The same at most.
    pub receive_max: Option<u32>,
    /// Queues for sending alone.
    pub transmit: Option<u32>,
    /// The same at most.
    pub transmit_max: Option<u32>,
}

impl Channels {
    /// Reads an answer to [`Question::Channels`].
    #[must_use]
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let body = body(answer)?;
        Some(Self {
            combined: number(body, 9),
            combined_max: number(body, 5),
            receive: number(body, 6),
            receive_max: number(body, 2),
            transmit: number(body, 7),
            transmit_max: number(body, 3),
        })
    }

    /// Queues that packets arrive in.
    #[must_use]
    pub fn receiving(&self) -> Option<u32> {
        let sum = self
            .combined
            .unwrap_or(0)
            .saturating_add(self.receive.unwrap_or(0));
        (sum > 0).then_some(sum)
    }
}

/// How long, and for how many packets, an interrupt waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coalesce {
    /// Longest wait after a packet was received.
    pub receive_us: Option<u32>,
    /// Most packets received before an interrupt.
    pub receive_frames: Option<u32>,
    /// Longest wait after a packet was sent.
    pub transmit_us: Option<u32>,
    /// Most packets sent before an interrupt.
    pub transmit_frames: Option<u32>,
    /// Whether the driver fits the wait to the traffic received.
    pub adaptive_receive: Option<bool>,
    /// Whether the driver fits the wait to the traffic sent.
    pub adaptive_transmit: Option<bool>,
}

impl Coalesce {
    /// Reads an answer to [`Question::Coalesce`].
    #[must_use]
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let body = body(answer)?;
        Some(Self {
            receive_us: number(body, 2),
            receive_frames: number(body, 3),
            transmit_us: number(body, 6),
            transmit_frames: number(body, 7),
            adaptive_receive: truth(body, 11),
            adaptive_transmit: truth(body, 12),
        })
    }
}

/// Over which queues the card spreads what arrives, by a hash of addresses and ports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rss {
    /// Entries of the indirection table that lead to each queue. One queue alone: one core takes all packets.
    pub entries_per_queue: BTreeMap<u32, u32>,
}

impl Rss {
    /// Reads an answer to [`Question::Rss`]; None when there is no table. Its entries are four bytes each.
    #[must_use]
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let table = find(body(answer)?, 4).filter(|table| !table.is_empty())?;
        let mut entries_per_queue = BTreeMap::new();
        for queue in table.chunks_exact(4).filter_map(|entry| u32_at(entry, 0)) {
            *entries_per_queue.entry(queue).or_insert(0) += 1;
        }
        Some(Self { entries_per_queue })
    }
}

/// Pause frames (IEEE 802.3x), by which one end stops the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Whether both ends agree on it by themselves.
    pub autoneg: Option<bool>,
    /// Whether we obey.
    pub receive: Option<bool>,
    /// Whether we ask.
    pub transmit: Option<bool>,
    /// Pause frames received, where the card counts them.
    pub frames_received: Option<u64>,
    /// Pause frames sent, where the card counts them.
    pub frames_sent: Option<u64>,
}

impl Pause {
    /// Reads an answer to [`Question::Pause`].
    #[must_use]
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let body = body(answer)?;
        // A card that does not count leaves all ones.
        let frames = |kind| {
            let counted = netlink::number(find(body, 5)?, kind)?;
            (counted != u64::MAX).then_some(counted)
        };
        Some(Self {
            autoneg: truth(body, 2),
            receive: truth(body, 3),
            transmit: truth(body, 4),
            frames_sent: frames(2),
            frames_received: frames(3),
        })
    }
}

/// What the link runs at, and what both ends offer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkModes {
    /// Whether both ends agree by themselves.
    pub autoneg: Option<bool>,
    /// The speed; a veth claims 10000.
    pub speed_mbit_per_s: Option<u32>,
    /// Whether both ends may send at once.
    pub full_duplex: Option<bool>,
    /// Lanes of the cable in use.
    pub lanes: Option<u32>,
    /// Modes that our card can do: `10000baseT/Full`, ..
    pub supported: Vec<String>,
    /// Modes that we offer.
    pub advertised: Vec<String>,
    /// Modes that the other end offers.
    pub peer: Vec<String>,
}

impl LinkModes {
    /// Reads an answer to [`Question::LinkModes`].
    #[must_use]
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let body = body(answer)?;
        let ours = find(body, 3);
        Some(Self {
            autoneg: truth(body, 2),
            speed_mbit_per_s: number(body, 5).filter(|speed| (1..u32::MAX).contains(speed)),
            full_duplex: match number(body, 6) {
                Some(0) => Some(false),
                Some(1) => Some(true),
                _ => None,
            },
            lanes: number(body, 9).filter(|lanes| *lanes > 0),
            supported: ours
                .map(|bits| bits_named(bits, |_| true))
                .unwrap_or_default(),
            advertised: ours.map(set_bits).unwrap_or_default(),
            peer: find(body, 4).map(set_bits).unwrap_or_default(),
        })
    }
}

/// Forward error correction, which 25 Gbit/s and faster links need at both ends alike.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fec {
    /// Codes that are allowed.
    pub configured: Vec<String>,
    /// Whether the card chooses.
    pub automatic: Option<bool>,
    /// The code in use: `none`, `RS`, `BaseR`, `LLRS`.
    pub active: Option<String>,
}

impl Fec {
    /// Reads an answer to [`Question::Fec`].
    #[must_use]
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let body = body(answer)?;
        // The bit's number among the link modes, linux/ethtool.h.
        let active = match number(body, 4) {
            Some(49) => Some("none"),
            Some(50) => Some("RS"),
            Some(51) => Some("BaseR"),
            Some(74) => Some("LLRS"),
            _ => None,
        };
        Some(Self {
            configured: find(body, 2).map(set_bits).unwrap_or_default(),
            automatic: truth(body, 3),
            active: active.map(str::to_owned),
        })
    }
}

/// The attributes of the first message that an answer holds.
fn body(answer: &[u8]) -> Option<&[u8]> {
    told(answer).next()?.payload.get(HEADER..)
}

fn number(body: &[u8], kind: u16) -> Option<u32> {
    u32::try_from(netlink::number(body, kind)?).ok()
}

fn truth(body: &[u8], kind: u16) -> Option<bool> {
    netlink::number(body, kind).map(|value| value != 0)
}

/// The names of the bits that are set. A set with a mask lists all that it speaks of and marks those that are set; one
/// without lists only these.
fn set_bits(bitset: &[u8]) -> Vec<String> {
    let listed_are_set = find(bitset, 1).is_some();
    bits_named(bitset, |bit| listed_are_set || find(bit, 3).is_some())
}

fn bits_named(bitset: &[u8], wanted: impl Fn(&[u8]) -> bool) -> Vec<String> {
    let bits = find(bitset, 3).unwrap_or_default();
    attributes(bits)
        .filter(|bit| bit.kind == 1 && wanted(bit.payload))
        .filter_map(|bit| netlink::text(bit.payload, 2))
        .collect()
}

/// The way to ask, found once.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    family: u16,
}

impl Asker {
    /// Finds the kernel's ethtool family. Errors: it has none (before 5.6), or no netlink.
    pub fn new() -> io::Result<Self> {
        let request = Request::one(GENL_ID_CTRL)
            .header(&[CTRL_CMD_GETFAMILY, 1, 0, 0])
            .attribute(CTRL_ATTR_FAMILY_NAME, b"ethtool\0");
        let answer = ask(Some(GENERIC), request)?;
        let family = body(&answer)
            .and_then(|body| netlink::number(body, CTRL_ATTR_FAMILY_ID))
            .and_then(|family| u16::try_from(family).ok());
        family
            .map(|family| Self { family })
            .ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// The kernel's answer to one question about one interface. Errors: the card has no answer.
    pub fn ask(self, interface: &str, question: Question) -> io::Result<Vec<u8>> {
        let mut name = interface.as_bytes().to_vec();
        name.push(0);
        let flags = FLAG_STATS.to_ne_bytes();
        let with_counters = question == Question::Pause;
        let put = |counters: bool| {
            let header: &[(u16, &[u8])] = &[(A_HEADER_DEV_NAME, &name), (A_HEADER_FLAGS, &flags)];
            let header = if counters { header } else { &header[..1] };
            let request = Request::one(self.family)
                .header(&[question as u8, 1, 0, 0])
                .nested(A_HEADER, header);
            ask(Some(GENERIC), request)
        };
        // Kernels before 5.9 refuse to be asked for counters.
        put(with_counters).or_else(|error| {
            if with_counters {
                put(false)
            } else {
                Err(error)
            }
        })
    }

    /// Everything that can be told of an interface.
    #[must_use]
    pub fn read(self, interface: &str) -> Ethtool {
        let ask = |question| self.ask(interface, question).ok();
        Ethtool {
            features: ask(Question::Features).and_then(|answer| Features::parse(&answer)),
            rings: ask(Question::Rings).and_then(|answer| Rings::parse(&answer)),
            channels: ask(Question::Channels).and_then(|answer| Channels::parse(&answer)),
            coalesce: ask(Question::Coalesce).and_then(|answer| Coalesce::parse(&answer)),
            rss: ask(Question::Rss).and_then(|answer| Rss::parse(&answer)),
            pause: ask(Question::Pause).and_then(|answer| Pause::parse(&answer)),
            link_modes: ask(Question::LinkModes).and_then(|answer| LinkModes::parse(&answer)),
            fec: ask(Question::Fec).and_then(|answer| Fec::parse(&answer)),
        }
    }
}

#[cfg(test)]
mod tests;
