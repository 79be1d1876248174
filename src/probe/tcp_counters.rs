//! What TCP of this network namespace did, from /proc/net/snmp and /proc/net/netstat (RFC 4022;
//! `Documentation/networking/snmp_counter.rst`).
//!
//! All connections of the namespace together. Must not know: whose they are. Everything is a count of segments or events.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::line;

/// Counts since the namespace was made, or between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tcp {
    /// Segments received.
    pub in_segments: u64,
    /// Segments sent, those sent again left out.
    pub out_segments: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Retransmission timers that ran out: the path stood still.
    pub timeouts: Option<u64>,
    /// Segments sent again that were lost again.
    pub lost_retransmits: Option<u64>,
    /// Segments received that were damaged.
    pub in_errors: Option<u64>,
}

/// A value by the name that stands above it: lines come in pairs, names and values, each begun by the same word.
fn value(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| {
        line.strip_prefix(group)
            .is_some_and(|rest| rest.starts_with(':'))
    });
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|one| one == name)?;
    values.split_ascii_whitespace().nth(at)?.parse().ok()
}

impl Tcp {
    /// Reads the texts of `snmp` and, where there is one, `netstat`.
    #[must_use]
    pub fn parse(snmp: &str, netstat: Option<&str>) -> Option<Self> {
        let more = |name| value(netstat?, "TcpExt", name);
        Some(Self {
            in_segments: value(snmp, "Tcp", "InSegs")?,
            out_segments: value(snmp, "Tcp", "OutSegs")?,
            retransmits: value(snmp, "Tcp", "RetransSegs")?,
            timeouts: more("TCPTimeouts"),
            lost_retransmits: more("TCPLostRetransmit"),
            in_errors: value(snmp, "Tcp", "InErrs"),
        })
    }

    /// What happened since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        let take = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        Some(Self {
            in_segments: self.in_segments.checked_sub(earlier.in_segments)?,
            out_segments: self.out_segments.checked_sub(earlier.out_segments)?,
            retransmits: self.retransmits.checked_sub(earlier.retransmits)?,
            timeouts: take(self.timeouts, earlier.timeouts),
            lost_retransmits: take(self.lost_retransmits, earlier.lost_retransmits),
            in_errors: take(self.in_errors, earlier.in_errors),
        })
    }
}

/// The counts of this process's network namespace.
#[must_use]
pub fn read(root: &Path) -> Option<Tcp> {
    // /proc/net is a link to self/net; in a saved tree it is a directory of its own.
    let text = |name: &str| line(&root.join("proc/net").join(name));
    Tcp::parse(&text("snmp")?, text("netstat").as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    #[test]
    fn values_are_found_by_name_whatever_their_place() {
        let snmp =
            "Tcp: InSegs RetransSegs OutSegs\nTcp: 10 2 30\nTcpExtra: InSegs\nTcpExtra: 99\n";
        let netstat = "TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 0 4\n";
        let tcp = Tcp::parse(snmp, Some(netstat)).expect("three names");
        assert_eq!(
            (tcp.in_segments, tcp.out_segments, tcp.retransmits),
            (10, 30, 2)
        );
        assert_eq!(
            (tcp.timeouts, tcp.lost_retransmits, tcp.in_errors),
            (Some(4), None, None)
        );
        assert_eq!(Tcp::parse("Tcp: InSegs\n", None), None);
        assert_eq!(Tcp::parse("Tcp: InSegs\nTcp: x\n", None), None);
    }

    #[test]
    fn each_machine_tells_its_retransmits() {
        let found = |name: &str| read(machines::tree(name).path()).map(|tcp| tcp.retransmits);
        assert_eq!(found("vm"), Some(0));
        assert_eq!(found("bare-metal"), Some(48_213));
        assert_eq!(found("zfs-nas"), Some(911));
        assert_eq!(found("empty"), None);
    }
}
