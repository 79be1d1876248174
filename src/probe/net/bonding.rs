//! Bonds, from /proc/net/bonding: their mode, their members, and whether the switch really takes part (LACP).
//!
//! Format after the kernel's Documentation/networking/bonding.rst. Must not know: what a bond is used for. Speeds are in
//! Mbit/s.

use serde::{Deserialize, Serialize};

/// A bond.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bond {
    /// The mode as the kernel names it: `IEEE 802.3ad Dynamic link aggregation`, `fault-tolerance (active-backup)`, ..
    pub mode: Option<String>,
    /// What chooses the member that a packet leaves by: `layer2 (0)` keeps all traffic to one host on one member,
    /// `layer3+4 (1)` spreads connections.
    pub transmit_hash: Option<String>,
    /// The member that carries all traffic in active-backup mode.
    pub active_member: Option<String>,
    /// How often LACP speaks: `slow` or `fast`.
    pub lacp_rate: Option<String>,
    /// The number of the aggregator in use (802.3ad).
    pub active_aggregator: Option<u32>,
    /// How many members are in it.
    pub active_ports: Option<u32>,
    /// The switch's address in LACP; None when it never answered (all zeros).
    pub partner_known: Option<bool>,
    /// The members.
    pub members: Vec<Member>,
}

/// A member of a bond.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    /// The interface.
    pub interface: String,
    /// Whether its link is up.
    pub up: Option<bool>,
    /// Its speed.
    pub speed_mbit_per_s: Option<u32>,
    /// How often its link failed.
    pub link_failures: Option<u64>,
    /// The aggregator that it is in (802.3ad).
    pub aggregator: Option<u32>,
    /// Whether the switch takes part: `none` is settled, `monitoring` is not yet, `churned` is refused.
    pub partner_churn: Option<String>,
}

impl Bond {
    /// Reads the text of `/proc/net/bonding/X`; None when it is no such text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bond = Self::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let (key, value) = (key.trim(), value.trim());
            if key == "Slave Interface" {
                bond.members.push(Member {
                    interface: value.to_owned(),
                    ..Member::default()
                });
            } else if let Some(member) = bond.members.last_mut() {
                member.line(key, value);
            } else {
                bond.line(key, value);
            }
        }
        (bond.mode.is_some() || !bond.members.is_empty()).then_some(bond)
    }

    fn line(&mut self, key: &str, value: &str) {
        let text = || known(value);
        match key {
            "Bonding Mode" => self.mode = text(),
            "Transmit Hash Policy" => self.transmit_hash = text(),
            "Currently Active Slave" => self.active_member = text(),
            "LACP rate" => self.lacp_rate = text(),
            "Aggregator ID" => self.active_aggregator = value.parse().ok(),
            "Number of ports" => self.active_ports = value.parse().ok(),
            "Partner Mac Address" => {
                let digits = value.bytes().filter(u8::is_ascii_hexdigit).count();
                self.partner_known =
                    (digits == 12).then(|| value.bytes().any(|byte| !matches!(byte, b'0' | b':')));
            }
            _ => {}
        }
    }

    /// Members that carry nothing although their link is up: they are in another aggregator than the one in use, so the
    /// switch does not bundle them. None when this is no LACP bond or the kernel does not tell (it tells root alone).
    #[must_use]
    pub fn left_out(&self) -> Option<Vec<&str>> {
        let active = self.active_aggregator?;
        let left_out = self.members.iter().filter(|member| {
            member.up == Some(true) && member.aggregator.is_some_and(|own| own != active)
        });
        Some(left_out.map(|member| member.interface.as_str()).collect())
    }
}

impl Member {
    fn line(&mut self, key: &str, value: &str) {
        match key {
            "MII Status" => self.up = known(value).map(|status| status == "up"),
            "Speed" => {
                let number = value.strip_suffix("Mbps").unwrap_or("").trim();
                self.speed_mbit_per_s = number.parse().ok();
            }
            "Link Failure Count" => self.link_failures = value.parse().ok(),
            "Aggregator ID" => self.aggregator = value.parse().ok(),
            "Partner Churn State" => self.partner_churn = known(value),
            _ => {}
        }
    }
}

/// A value that says something.
fn known(value: &str) -> Option<String> {
    (!matches!(value, "" | "None" | "Unknown" | "N/A")).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two members, of which the switch bundles one: composed after bonding.rst.
    const LACP: &str = "Ethernet Channel Bonding Driver: v6.1.0

Bonding Mode: IEEE 802.3ad Dynamic link aggregation
Transmit Hash Policy: layer3+4 (1)
MII Status: up
MII Polling Interval (ms): 100

802.3ad info
LACP active: on
LACP rate: fast
Min links: 0
Active Aggregator Info:
\tAggregator ID: 1
\tNumber of ports: 1
\tActor Key: 15
\tPartner Key: 1
\tPartner Mac Address: 02:00:00:00:00:09

Slave Interface: eth2
MII Status: up
Speed: 10000 Mbps
Duplex: full
Link Failure Count: 1
Aggregator ID: 1
Actor Churn State: none
Partner Churn State: none
details partner lacp pdu:
    system priority: 127
    port state: 61

Slave Interface: eth3
MII Status: up
Speed: Unknown
Link Failure Count: 0
Aggregator ID: 2
Partner Churn State: churned
";

    #[test]
    fn a_member_that_the_switch_does_not_bundle_is_named() {
        let bond = Bond::parse(LACP).expect("a bond");
        assert_eq!(bond.transmit_hash.as_deref(), Some("layer3+4 (1)"));
        assert_eq!(bond.lacp_rate.as_deref(), Some("fast"));
        assert_eq!(
            (bond.active_aggregator, bond.active_ports),
            (Some(1), Some(1))
        );
        assert_eq!(bond.partner_known, Some(true));
        assert_eq!(bond.members.len(), 2);
        assert_eq!(bond.members[0].speed_mbit_per_s, Some(10_000));
        assert_eq!(bond.members[1].speed_mbit_per_s, None);
        assert_eq!(bond.members[1].partner_churn.as_deref(), Some("churned"));
        assert_eq!(bond.left_out(), Some(vec!["eth3"]));
        let silent = LACP.replace("02:00:00:00:00:09", "00:00:00:00:00:00");
        let silent = Bond::parse(&silent).expect("a bond");
        assert_eq!(
            silent.partner_known,
            Some(false),
            "the switch never answered"
        );
        assert_eq!(Bond::parse("nothing of the kind"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "(Slave Interface|Speed|Aggregator ID)?:?.{0,80}\n.{0,80}") {
            let _ = Bond::parse(&text).map(|bond| bond.left_out().is_some());
        }
    }
}
