//! Shares of Ethernet links: of what they signal, and of what TCP carries on them at the common packet sizes.
//!
//! Pure. Rates are in bytes per second. Must not know: readings. What TCP carries is [`Framing`]'s, with its sources.

use serde::Serialize;

use crate::line::{Framing, consistent_with};

/// The links: Gbit/s, and their names.
pub const LINKS: [(f64, &str); 7] = [
    (1.0, "1"),
    (2.5, "2.5"),
    (5.0, "5"),
    (10.0, "10"),
    (25.0, "25"),
    (40.0, "40"),
    (100.0, "100"),
];

/// A rate as shares of one link; above 1 it is more than the link carries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// What the link signals, in Gbit/s.
    pub link_gbits_per_s: f64,
    /// Of that.
    pub of_line: f64,
    /// Of what TCP carries there with packets of 1500 bytes.
    pub of_tcp_mtu_1500: Option<f64>,
    /// Of what TCP carries there with packets of 9000 bytes.
    pub of_tcp_mtu_9000: Option<f64>,
}

const fn framing(mtu: u32) -> Framing {
    Framing {
        mtu,
        ipv6: false,
        vlan: false,
    }
}

/// A rate as shares of all links.
#[must_use]
pub fn shares(bytes_per_s: f64) -> Vec<Share> {
    let share = |link: f64| {
        let of_line = bytes_per_s * 8.0 / (link * 1e9);
        let of_tcp = |mtu| {
            framing(mtu)
                .payload_share()
                .map(|payload| of_line / payload)
        };
        Share {
            link_gbits_per_s: link,
            of_line,
            of_tcp_mtu_1500: of_tcp(1500),
            of_tcp_mtu_9000: of_tcp(9000),
        }
    };
    LINKS.iter().map(|(link, _)| share(*link)).collect()
}

/// What a TCP rate says of jumbo frames where they are set: one that is just what packets of 1500 bytes carry is a hint that they
/// are not in effect.
#[must_use]
pub fn no_jumbo(bytes_per_s: f64, mtu: u32) -> Option<String> {
    let bits = bytes_per_s * 8.0;
    if mtu < 8000 {
        return None;
    }
    LINKS.iter().find_map(|(link, name)| {
        let found = consistent_with(bits, link * 1e9, false)?;
        let of = |mtu| Some(bits / framing(mtu).limit_bits_per_s(link * 1e9)? * 100.0);
        let (small, jumbo) = (of(1500)?, of(mtu)?);
        (found.mtu == 1500).then(|| {
            format!(
                "{:.2} Gbit/s is {small:.1} % of what TCP carries on {name} GbE at MTU 1500, but {jumbo:.1} % at MTU {mtu}: jumbo frames \
                 may not be in effect",
                bits / 1e9
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_share_of_each_link() {
        let shares = shares(125e6 * 8.64);
        assert!((shares[3].of_line - 0.864).abs() < 1e-9);
        let of_1500 = shares[3].of_tcp_mtu_1500.expect("known");
        assert!((of_1500 - 0.864 / (1448.0 / 1538.0)).abs() < 1e-9);
        assert!(shares[0].of_line > 1.0 && shares.len() == 7);
    }

    #[test]
    fn a_rate_of_small_packets_on_a_jumbo_link_is_noticed() {
        let hint = no_jumbo(9.39e9 / 8.0, 9000).expect("a hint");
        assert!(hint.contains("99.7 %") && hint.contains("94.8 %"), "{hint}");
        assert_eq!(no_jumbo(9.39e9 / 8.0, 1500), None);
        assert_eq!(no_jumbo(9.9e9 / 8.0, 9000), None);
    }
}
