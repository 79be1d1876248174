//! Bytes through each interface of this network namespace, from /proc/net/dev (`proc_pid_net(5)`).
//!
//! They include headers, answers and whatever else is on the wire. Must not know: whose traffic it is. Sizes are in
//! bytes.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::{line, names};

/// The interface that never leaves the machine.
pub const LOOPBACK: &str = "lo";

/// Bytes through one interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// Received.
    pub received: u64,
    /// Sent.
    pub sent: u64,
    /// It stands on others, as a bond or VLAN does, whose counters hold the same bytes again.
    #[serde(default)]
    pub stacked: bool,
}

/// Bytes through all interfaces, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Traffic {
    /// Each interface's.
    pub by_name: BTreeMap<String, Bytes>,
}

impl Bytes {
    fn add(self, other: Self) -> Self {
        Self {
            received: self.received.saturating_add(other.received),
            sent: self.sent.saturating_add(other.sent),
            stacked: self.stacked,
        }
    }
}

impl Traffic {
    /// Reads the text of `/proc/net/dev`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let interface = |line: &str| {
            // Two lines of headings have no colon; an alias such as eth0:1 has one within its name.
            let (name, counts) = line.rsplit_once(':')?;
            let counts: Vec<u64> = counts
                .split_ascii_whitespace()
                .map(|count| count.parse().ok())
                .collect::<Option<_>>()?;
            let bytes = Bytes {
                received: *counts.first()?,
                sent: *counts.get(8)?,
                stacked: false,
            };
            Some((name.trim().to_owned(), bytes))
        };
        let by_name: BTreeMap<_, _> = text.lines().filter_map(interface).collect();
        (!by_name.is_empty()).then_some(Self { by_name })
    }

    /// What passed since an earlier reading; interfaces that were not there at both times are left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        let passed = |now: &Bytes, then: &Bytes| {
            Some(Bytes {
                received: now.received.checked_sub(then.received)?,
                sent: now.sent.checked_sub(then.sent)?,
                stacked: now.stacked,
            })
        };
        let by_name: BTreeMap<_, _> = self
            .by_name
            .iter()
            .filter_map(|(name, now)| {
                Some((name.clone(), passed(now, earlier.by_name.get(name)?)?))
            })
            .collect();
        (!by_name.is_empty()).then_some(Self { by_name })
    }

    /// The sum of the interfaces with these names; None when one of them is not there.
    #[must_use]
    pub fn of<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<Bytes> {
        let mut sum = None;
        for name in names {
            let one = *self.by_name.get(name)?;
            sum = Some(sum.map_or(one, |sum: Bytes| sum.add(one)));
        }
        sum
    }

    /// The sum of all interfaces that stand on no other, the loopback left out; None when there is none.
    #[must_use]
    pub fn wires(&self) -> Option<Bytes> {
        self.by_name
            .iter()
            .filter(|(name, bytes)| *name != LOOPBACK && !bytes.stacked)
            .map(|(_, bytes)| *bytes)
            .reduce(Bytes::add)
    }
}

/// The counters of this process's network namespace.
#[must_use]
pub fn read(root: &Path) -> Option<Traffic> {
    let mut traffic = Traffic::parse(&line(&root.join("proc/net/dev"))?)?;
    for (name, bytes) in &mut traffic.by_name {
        let links = names(&root.join("sys/class/net").join(name));
        bytes.stacked = links.iter().any(|link| link.starts_with("lower_"));
    }
    Some(traffic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    const HEAD: &str = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n";

    #[test]
    fn names_may_touch_their_numbers() {
        let text = format!(
            "{HEAD}    lo:3193 29 0 0 0 0 0 0 3193 29 0 0 0 0 0 0\neth0:1:7 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n"
        );
        let traffic = Traffic::parse(&text).expect("two interfaces");
        assert_eq!(traffic.of(["lo"]).map(|bytes| bytes.sent), Some(3193));
        assert_eq!(traffic.of(["eth0:1"]).map(|bytes| bytes.sent), Some(9));
        assert_eq!(traffic.of(["eth9"]), None);
        assert_eq!(traffic.of([]), None);
        assert_eq!(Traffic::parse(HEAD), None);
    }

    #[test]
    fn a_bond_is_not_counted_beside_its_members() {
        let server = read(machines::tree("bare-metal").path()).expect("composed");
        assert!(server.by_name["bond0"].stacked && !server.by_name["eth0"].stacked);
        let (eth0, eth1) = (server.by_name["eth0"], server.by_name["eth1"]);
        assert_eq!(
            server.wires().map(|bytes| bytes.received),
            Some(eth0.received + eth1.received)
        );
        assert_eq!(
            server.of(["bond0"]).map(|bytes| bytes.sent),
            Some(eth0.sent + eth1.sent)
        );
    }

    #[test]
    fn each_machine_has_its_interfaces() {
        let count = |name: &str| read(machines::tree(name).path()).map(|all| all.by_name.len());
        assert_eq!(count("vm"), Some(4));
        assert_eq!(count("bare-metal"), Some(4));
        assert_eq!(count("zfs-nas"), Some(2));
        assert_eq!(count("empty"), None);
    }

    #[test]
    fn a_counter_that_began_anew_is_left_out() {
        let vm = read(machines::tree("vm").path()).expect("captured");
        let mut later = vm.clone();
        later
            .by_name
            .entry("eth0".into())
            .and_modify(|eth| eth.sent = 0);
        later
            .by_name
            .entry("lo".into())
            .and_modify(|lo| lo.sent += 5);
        let passed = later.since(&vm).expect("the others");
        assert!(!passed.by_name.contains_key("eth0"));
        assert_eq!(passed.by_name["lo"].sent, 5);
    }
}
