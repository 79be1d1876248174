//! The line: what an Ethernet link carries as TCP payload, its rate less the framing of each packet.
//!
//! Pure. Rates are in bits per second, sizes in bytes. Must not know: any host or interface.

use serde::{Deserialize, Serialize};

/// Bytes around each packet on the wire: preamble and start delimiter 8, header 14, checksum 4, gap 12 (IEEE 802.3).
const FRAMING: f64 = 38.0;
/// A VLAN tag (IEEE 802.1Q).
const VLAN: f64 = 4.0;
/// IPv4 header 20 and TCP header 20, without options.
const HEADERS: f64 = 40.0;
/// How much longer an IPv6 header is.
const IPV6: f64 = 20.0;
/// The timestamp option of TCP, padded (RFC 7323, appendix A), which Linux sends in each segment.
const TIMESTAMPS: f64 = 12.0;
/// Two rates nearer to one another than this are taken as the same.
const NEAR: f64 = 0.01;
/// The largest packets that networks of today are set to.
const COMMON_MTUS: &[u32] = &[1500, 9000];

/// How packets of a path look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Framing {
    /// The largest IP packet.
    pub mtu: u32,
    /// IPv6, whose header is longer.
    pub ipv6: bool,
    /// A VLAN tag in each frame.
    pub vlan: bool,
}

impl Framing {
    /// Share of the line's bits that can be TCP payload: (MTU - 40 - 12) / (MTU + 38) for IPv4 without a tag, which is
    /// 0.9415 at 1500 and 0.9900 at 9000. None where a packet has no room for any.
    #[must_use]
    pub fn payload_share(self) -> Option<f64> {
        let mtu = f64::from(self.mtu);
        let longer = if self.ipv6 { IPV6 } else { 0.0 };
        let tag = if self.vlan { VLAN } else { 0.0 };
        let payload = mtu - HEADERS - TIMESTAMPS - longer;
        (payload > 0.0).then(|| payload / (mtu + FRAMING + tag))
    }

    /// The most TCP payload that a link of this rate carries each way, in bits per second.
    #[must_use]
    pub fn limit_bits_per_s(self, link_bits_per_s: f64) -> Option<f64> {
        Some(self.payload_share()? * link_bits_per_s)
    }

    /// The payload of a full segment: what a connection's MSS is, less the timestamps that each segment carries.
    #[must_use]
    pub fn segment(self) -> Option<u32> {
        let ip = if self.ipv6 { 60 } else { 40 };
        self.mtu.checked_sub(ip + 12)
    }
}

/// The MTU of which a measured payload rate would be the limit on that link; None where none of the common ones fits.
/// Only a hint: the MSS of the connection decides.
#[must_use]
pub fn consistent_with(
    payload_bits_per_s: f64,
    link_bits_per_s: f64,
    ipv6: bool,
) -> Option<Framing> {
    COMMON_MTUS.iter().find_map(|mtu| {
        let framing = Framing {
            mtu: *mtu,
            ipv6,
            vlan: false,
        };
        let limit = framing.limit_bits_per_s(link_bits_per_s)?;
        ((payload_bits_per_s / limit - 1.0).abs() <= NEAR).then_some(framing)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(mtu: u32, ipv6: bool, vlan: bool) -> f64 {
        let framing = Framing { mtu, ipv6, vlan };
        framing.payload_share().expect("room for payload")
    }

    #[test]
    fn the_known_shares_come_out() {
        assert!((share(1500, false, false) - 0.941_48).abs() < 5e-6);
        assert!((share(9000, false, false) - 0.990_04).abs() < 5e-6);
        assert!((share(1500, true, false) - 1428.0 / 1538.0).abs() < 1e-12);
        assert!((share(1500, false, true) - 1448.0 / 1542.0).abs() < 1e-12);
    }

    #[test]
    fn a_packet_without_room_has_no_share() {
        let tiny = Framing {
            mtu: 52,
            ipv6: false,
            vlan: false,
        };
        assert_eq!(tiny.payload_share(), None);
        assert_eq!(tiny.segment(), Some(0));
    }

    #[test]
    fn a_rate_hints_at_an_mtu_only_when_it_is_near() {
        let mtu = |bits: f64| consistent_with(bits, 10e9, false).map(|framing| framing.mtu);
        assert_eq!(mtu(9.4148e9), Some(1500));
        assert_eq!(mtu(9.39e9), Some(1500));
        assert_eq!(mtu(9.90e9), Some(9000));
        assert_eq!(mtu(9.6e9), None);
        assert_eq!(mtu(1.1e9), None);
    }
}
