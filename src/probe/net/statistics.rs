//! What went through each interface, and what it lost. Counts of packets and bytes since the interface was made.
//!
//! Bytes are those of Ethernet frames without preamble and check sum, so a little more than what TCP carried. Must
//! not know: whose traffic it was.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::disk::entries;
use crate::probe::net::links;
use crate::probe::number;

/// Counters of one interface; None where its driver or the kernel does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statistics {
    /// Bytes received.
    pub receive_bytes: Option<u64>,
    /// Bytes sent.
    pub transmit_bytes: Option<u64>,
    /// Packets received; several segments that the card merged count as the driver likes.
    pub receive_packets: Option<u64>,
    /// Packets sent.
    pub transmit_packets: Option<u64>,
    /// Packets received damaged, all kinds.
    pub receive_errors: Option<u64>,
    /// Packets that could not be sent.
    pub transmit_errors: Option<u64>,
    /// Packets received well and thrown away, for want of room in the kernel or of a taker.
    pub receive_dropped: Option<u64>,
    /// Packets thrown away before they were sent.
    pub transmit_dropped: Option<u64>,
    /// Packets that the card had no room for: its ring was full.
    pub receive_missed: Option<u64>,
    /// Packets with a wrong check sum: a bad cable, plug or transceiver.
    pub receive_crc_errors: Option<u64>,
    /// Packets lost in the card's own memory: the bus or the processor was too slow.
    pub receive_fifo_errors: Option<u64>,
}

impl Statistics {
    /// The files below `/sys/class/net/X/statistics`.
    #[must_use]
    pub fn under(directory: &Path) -> Self {
        let count = |name: &str| number(&directory.join(name));
        Self {
            receive_bytes: count("rx_bytes"),
            transmit_bytes: count("tx_bytes"),
            receive_packets: count("rx_packets"),
            transmit_packets: count("tx_packets"),
            receive_errors: count("rx_errors"),
            transmit_errors: count("tx_errors"),
            receive_dropped: count("rx_dropped"),
            transmit_dropped: count("tx_dropped"),
            receive_missed: count("rx_missed_errors"),
            receive_crc_errors: count("rx_crc_errors"),
            receive_fifo_errors: count("rx_fifo_errors"),
        }
    }

    /// What was counted after `before`; None where either is unknown or the count ran backwards (the interface is
    /// another one of the same name).
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let grown = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        Self {
            receive_bytes: grown(self.receive_bytes, before.receive_bytes),
            transmit_bytes: grown(self.transmit_bytes, before.transmit_bytes),
            receive_packets: grown(self.receive_packets, before.receive_packets),
            transmit_packets: grown(self.transmit_packets, before.transmit_packets),
            receive_errors: grown(self.receive_errors, before.receive_errors),
            transmit_errors: grown(self.transmit_errors, before.transmit_errors),
            receive_dropped: grown(self.receive_dropped, before.receive_dropped),
            transmit_dropped: grown(self.transmit_dropped, before.transmit_dropped),
            receive_missed: grown(self.receive_missed, before.receive_missed),
            receive_crc_errors: grown(self.receive_crc_errors, before.receive_crc_errors),
            receive_fifo_errors: grown(self.receive_fifo_errors, before.receive_fifo_errors),
        }
    }

    /// Packets received and lost on the way to a program, all kinds; None when no kind is known.
    #[must_use]
    pub fn receive_lost(&self) -> Option<u64> {
        // Some drivers count the missed among the dropped: the larger is the truth, the sum may be twice it.
        let lost = self.receive_dropped.max(self.receive_missed);
        lost.max(self.receive_fifo_errors)
    }
}

/// Counters of every interface, by name.
pub type PerInterface = BTreeMap<String, Statistics>;

/// The counters now, the loopback's included: by netlink, else from `/sys`; empty where neither is there.
#[must_use]
pub fn now() -> PerInterface {
    match links::links() {
        Ok(links) => links
            .into_iter()
            .map(|link| (link.name, link.statistics))
            .collect(),
        Err(_) => under(Path::new("/")),
    }
}

/// The counters that the tree below `root` holds.
#[must_use]
pub fn under(root: &Path) -> PerInterface {
    entries(&root.join("sys/class/net"))
        .iter()
        .filter_map(|path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            let directory = path.join("statistics");
            directory
                .is_dir()
                .then(|| (name, Statistics::under(&directory)))
        })
        .collect()
}

/// The counters below `root`, this computer's from the kernel where `root` is `/`; None where there is none.
#[must_use]
pub fn read(root: &Path) -> Option<PerInterface> {
    let found = if root == Path::new("/") {
        now()
    } else {
        under(root)
    };
    (!found.is_empty()).then_some(found)
}

/// What each interface counted after `before`; those that were not there then are left out.
#[must_use]
pub fn since(now: &PerInterface, before: &PerInterface) -> PerInterface {
    now.iter()
        .filter_map(|(name, now)| Some((name.clone(), now.since(before.get(name)?))))
        .collect()
}
