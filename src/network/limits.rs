//! What the tests of one way show: which ceiling is which, and what holds it down, with the numbers that say so.
//!
//! Pure. A finding is data with a sentence; nothing is named without its evidence.

use crate::line::{Framing, consistent_with};
use crate::network::{Flows, Sample, Way, ceilings};

/// A second connection must add this much for one connection to be the limit.
const MORE: f64 = 1.25;
/// A core this busy is full.
const FULL_PERCENT: f64 = 95.0;
/// A test that takes less of a core itself did not fill it.
const OWN_PERCENT: f64 = 50.0;
/// Of its busy time, a connection that is held back by a buffer waits at least this share for it.
const HELD_BACK: f64 = 0.5;
/// Bytes in flight this near to the largest buffer are as many as it lets through.
const OF_BUFFER: f64 = 0.6;
/// More than this share of the segments sent again is no accident of one queue.
const LOSS: f64 = 0.000_1;
/// A rate above the line's limit by more than this can't have crossed it.
const ABOVE: f64 = 1.02;
/// An interval below this share of the median is a drop-off.
const DROP: f64 = 0.8;

mod words;

pub use words::bits;

/// What is known of this computer and of the way to the server.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Path {
    /// Rate of the link here, where it can be believed.
    pub link_bits_per_s: Option<f64>,
    /// MTU of the interface here.
    pub mtu: Option<u32>,
    /// The addresses are IPv6.
    pub ipv6: bool,
    /// The interface is one of software: no line limits it, and retransmits on it are no fault of a network.
    pub software: bool,
    /// Largest send buffer here (`net.ipv4.tcp_wmem`).
    pub send_buffer_max: Option<u64>,
    /// Largest receive buffer here (`net.ipv4.tcp_rmem`).
    pub receive_buffer_max: Option<u64>,
    /// Round-trip time of the idle path.
    pub rtt_s: Option<f64>,
}

/// One thing that the tests show.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// How near the best rate is to what the line carries.
    Line {
        /// Of the line's limit.
        share: f64,
        /// The line's rate.
        link_bits_per_s: f64,
        /// The packets that the limit is for.
        framing: Framing,
    },
    /// The link's speed is not known, or is not believable.
    NoLine {
        /// An interface of software tells any speed.
        software: bool,
    },
    /// Faster than the line can be.
    AboveLine {
        /// The line's limit.
        limit_bits_per_s: f64,
    },
    /// Segments are shorter than the MTU here allows, or packets of this MTU would not give this rate.
    MtuMismatch {
        /// The MTU of the interface here.
        mtu: u32,
        /// The payload of a segment on the connection.
        mss: u32,
    },
    /// A near miss of another MTU's limit, where the connection's segments are not known.
    ConsistentWith {
        /// The MTU that would fit.
        mtu: u32,
    },
    /// One connection can't carry what several can, since a buffer is too small for the round-trip time.
    Window {
        /// What one connection carried.
        single_bits_per_s: f64,
        /// Bytes under way on it: rate x round-trip time.
        in_flight_bytes: f64,
        /// The round-trip time.
        rtt_s: f64,
        /// Which buffer it is.
        buffer: Buffer,
        /// The size of that buffer where it is known.
        buffer_bytes: Option<u64>,
        /// Connections that carried more.
        flows: u32,
        /// What these carried together.
        many_bits_per_s: f64,
    },
    /// One connection can't carry what several can; no buffer is known to be the reason.
    SingleFlow {
        /// What one connection carried.
        single_bits_per_s: f64,
        /// Connections that carried more.
        flows: u32,
        /// What these carried together.
        many_bits_per_s: f64,
        /// How busy the busiest core here was with one connection.
        core_percent: Option<f64>,
    },
    /// One connection carries about what several do.
    OneIsEnough {
        /// What one connection carried.
        single_bits_per_s: f64,
        /// Connections that carried most.
        flows: u32,
        /// What these carried together.
        many_bits_per_s: f64,
    },
    /// A core of this computer was full at the highest rate.
    Core {
        /// How busy.
        percent: f64,
        /// With how many connections.
        flows: u32,
    },
    /// A core of this computer was full, but not with the test.
    Disturbed {
        /// How busy.
        percent: f64,
    },
    /// Segments were lost or late.
    Loss {
        /// Segments sent again.
        retransmits: u64,
        /// Of all segments.
        share: f64,
    },
    /// Parts of a test that were far below the rest.
    DropOffs {
        /// How many samples of how many.
        count: usize,
        /// Samples in all.
        of: usize,
        /// The slowest of them.
        least_bits_per_s: f64,
        /// When it was, from the start of the measured time.
        at_s: f64,
        /// The median of all.
        median_bits_per_s: f64,
    },
}

/// A TCP buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// The sender's.
    Send,
    /// The receiver's.
    Receive,
    /// One of both; which is not known here.
    Unknown,
}

/// What the tests of one way show, the most telling first.
#[must_use]
pub fn findings(way: Way, tests: &[Flows], path: &Path) -> Vec<Finding> {
    let Some(found) = ceilings(tests) else {
        return Vec::new();
    };
    let Some(best) = found.most.bits_per_s() else {
        return Vec::new();
    };
    let mut findings = line(best, found.most, path);
    if let Some(single) = found.single
        && let Some(rate) = single.bits_per_s()
        && tests.iter().any(|test| test.flows > 1)
    {
        findings.push(if best < rate * MORE {
            Finding::OneIsEnough {
                single_bits_per_s: rate,
                flows: found.most.flows,
                many_bits_per_s: best,
            }
        } else {
            one_flow(way, single, rate, found.most, best, path)
        });
    }
    if let Some(percent) = found.most.busiest_core_percent
        && percent >= FULL_PERCENT
    {
        let ours = found.most.cpu_here_percent;
        findings.push(if ours.is_none_or(|ours| ours >= OWN_PERCENT) {
            Finding::Core {
                percent,
                flows: found.most.flows,
            }
        } else {
            Finding::Disturbed { percent }
        });
    }
    findings.extend(loss(found.most, path));
    findings.extend(drop_offs(&found.most.samples));
    findings
}

fn line(best: f64, most: &Flows, path: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let (Some(mtu), Some(mss)) = (path.mtu, most.sender.mss) {
        let framing = Framing {
            mtu,
            ipv6: path.ipv6,
            vlan: false,
        };
        // The kernel may keep a few bytes more for options; a whole MTU class is another thing.
        if framing.segment().is_some_and(|whole| mss < whole / 10 * 9) {
            findings.push(Finding::MtuMismatch { mtu, mss });
        }
    }
    let Some(link) = path.link_bits_per_s.filter(|_| !path.software) else {
        findings.push(Finding::NoLine {
            software: path.software,
        });
        return findings;
    };
    // Segments tell the packets' size; the interface only what it would allow.
    let headers = if path.ipv6 { 72 } else { 52 };
    let mtu = most.sender.mss.map(|mss| mss + headers).or(path.mtu);
    let Some(framing) = mtu.map(|mtu| Framing {
        mtu,
        ipv6: path.ipv6,
        vlan: false,
    }) else {
        findings.push(Finding::NoLine { software: false });
        return findings;
    };
    let Some(limit) = framing.limit_bits_per_s(link) else {
        return findings;
    };
    if best > limit * ABOVE {
        findings.insert(
            0,
            Finding::AboveLine {
                limit_bits_per_s: limit,
            },
        );
        return findings;
    }
    findings.insert(
        0,
        Finding::Line {
            share: best / limit,
            link_bits_per_s: link,
            framing,
        },
    );
    if most.sender.mss.is_none()
        && let Some(other) = consistent_with(best, link, path.ipv6)
        && other.mtu != framing.mtu
    {
        findings.push(Finding::ConsistentWith { mtu: other.mtu });
    }
    findings
}

fn one_flow(way: Way, single: &Flows, rate: f64, most: &Flows, best: f64, path: &Path) -> Finding {
    let apart = Finding::SingleFlow {
        single_bits_per_s: rate,
        flows: most.flows,
        many_bits_per_s: best,
        core_percent: single.busiest_core_percent,
    };
    let Some(rtt) = single.sender.rtt_s.or(path.rtt_s).filter(|rtt| *rtt > 0.0) else {
        return apart;
    };
    let in_flight = rate / 8.0 * rtt;
    let held = |share: Option<f64>| share.is_some_and(|share| share >= HELD_BACK);
    // What this computer's own limit lets through in that way; the other's is not known.
    let own = match way {
        Way::Send => path.send_buffer_max,
        Way::Receive => path.receive_buffer_max,
    };
    let fills = own.is_some_and(|buffer| in_flight >= OF_BUFFER * buffer as f64);
    let (buffer, buffer_bytes) = match (
        held(single.sender.receiver_limited),
        held(single.sender.buffer_limited),
        way,
    ) {
        (true, false, Way::Send) => (Buffer::Receive, None),
        (true, false, Way::Receive) => (Buffer::Receive, own),
        (false, true, Way::Send) => (Buffer::Send, own),
        (false, true, Way::Receive) => (Buffer::Send, None),
        (true, true, _) => (Buffer::Unknown, None),
        (false, false, Way::Send) if fills => (Buffer::Send, own),
        (false, false, Way::Receive) if fills => (Buffer::Receive, own),
        (false, false, _) => return apart,
    };
    Finding::Window {
        single_bits_per_s: rate,
        in_flight_bytes: in_flight,
        rtt_s: rtt,
        buffer,
        buffer_bytes,
        flows: most.flows,
        many_bits_per_s: best,
    }
}

fn loss(most: &Flows, path: &Path) -> Option<Finding> {
    let retransmits = most.sender.retransmits.filter(|count| *count > 0)?;
    let mss = most.sender.mss.or(path.mtu).filter(|mss| *mss > 0)?;
    let segments = most.bytes as f64 / f64::from(mss);
    let share = retransmits as f64 / segments.max(1.0);
    (share >= LOSS && !path.software).then_some(Finding::Loss { retransmits, share })
}

/// The samples that were far below the rest; None where none was, or too few to say.
#[must_use]
pub fn drop_offs(samples: &[Sample]) -> Option<Finding> {
    let measured: Vec<(f64, f64)> = samples
        .iter()
        .filter(|sample| sample.from >= 0.0)
        .filter_map(|sample| Some((sample.from, sample.bits_per_s()?)))
        .collect();
    if measured.len() < 5 {
        return None;
    }
    let mut rates: Vec<f64> = measured.iter().map(|(_, rate)| *rate).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    let low = measured
        .iter()
        .filter(|(_, rate)| is_drop_off(*rate, median));
    let count = low.clone().count();
    let (at, least) = low.min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Finding::DropOffs {
        count,
        of: measured.len(),
        least_bits_per_s: *least,
        at_s: *at,
        median_bits_per_s: median,
    })
}

/// Whether a sample's rate is a drop-off against the median.
#[must_use]
pub fn is_drop_off(bits_per_s: f64, median_bits_per_s: f64) -> bool {
    bits_per_s < DROP * median_bits_per_s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Sender;

    fn test(flows: u32, bits: f64) -> Flows {
        Flows {
            flows,
            bytes: (bits / 8.0 * 5.0) as u64,
            seconds: 5.0,
            sender: Sender {
                mss: Some(1448),
                ..Sender::default()
            },
            ..Flows::default()
        }
    }

    fn path() -> Path {
        Path {
            link_bits_per_s: Some(10e9),
            mtu: Some(1500),
            send_buffer_max: Some(4 << 20),
            receive_buffer_max: Some(6 << 20),
            ..Path::default()
        }
    }

    /// The figures of a relay of 5 ms each way: one flow 2.85 Gbit/s, four 9.77.
    #[test]
    fn a_small_buffer_on_a_long_way_is_named_with_its_numbers() {
        let mut one = test(1, 2.85e9);
        one.sender.rtt_s = Some(0.0107);
        one.sender.buffer_limited = Some(0.97);
        let path = Path {
            link_bits_per_s: None,
            software: true,
            ..path()
        };
        let found = findings(Way::Send, &[one.clone(), test(4, 9.77e9)], &path);
        let Some(window @ Finding::Window { buffer, .. }) = found.get(1) else {
            panic!("{found:?}");
        };
        assert_eq!(*buffer, Buffer::Send);
        let text = window.to_string();
        assert!(
            text.contains("3.8 MB in flight at 10.7 ms round trip is 2.85 Gbit/s")
                && text.contains("4 connections carry 9.77 Gbit/s")
                && text.contains("at most 4.2 MB here"),
            "{text}"
        );
        // Without the kernel's word, a buffer that is nearly full says the same; one that is not says nothing.
        one.sender.buffer_limited = None;
        assert!(matches!(
            findings(Way::Send, &[one.clone(), test(4, 9.77e9)], &path)[1],
            Finding::Window { .. }
        ));
        one.sender.rtt_s = Some(0.001);
        assert!(matches!(
            findings(Way::Send, &[one, test(4, 9.77e9)], &path)[1],
            Finding::SingleFlow { .. }
        ));
    }

    #[test]
    fn the_line_is_named_by_the_segments_not_by_the_interface() {
        let found = findings(Way::Receive, &[test(1, 9.40e9)], &path());
        assert!(
            matches!(&found[..], [Finding::Line { share, .. }] if (*share - 0.998).abs() < 0.001),
            "{found:?}"
        );
        let jumbo = Path {
            mtu: Some(9000),
            ..path()
        };
        let found = findings(Way::Receive, &[test(1, 9.40e9)], &jumbo);
        assert!(
            matches!(&found[..], [Finding::Line { framing, .. }, Finding::MtuMismatch { mtu: 9000, mss: 1448 }] if framing.mtu == 1500),
            "{found:?}"
        );
        let mut unknown = test(1, 9.40e9);
        unknown.sender.mss = None;
        let found = findings(Way::Receive, &[unknown], &jumbo);
        assert!(
            matches!(
                &found[..],
                [Finding::Line { .. }, Finding::ConsistentWith { mtu: 1500 }]
            ),
            "{found:?}"
        );
    }

    #[test]
    fn faster_than_the_line_is_never_taken_for_the_line() {
        let found = findings(Way::Send, &[test(1, 12e9)], &path());
        assert!(
            matches!(found[..], [Finding::AboveLine { .. }]),
            "{found:?}"
        );
    }

    #[test]
    fn retransmits_are_loss_on_a_line_but_not_on_software() {
        let mut lossy = test(1, 4.3e9);
        lossy.sender.retransmits = Some(15_060);
        let found = findings(Way::Send, &[lossy.clone()], &path());
        assert!(
            matches!(
                found[1],
                Finding::Loss {
                    retransmits: 15_060,
                    ..
                }
            ),
            "{found:?}"
        );
        let software = Path {
            software: true,
            ..path()
        };
        let found = findings(Way::Send, &[lossy], &software);
        assert!(
            matches!(found[..], [Finding::NoLine { software: true }]),
            "{found:?}"
        );
    }

    #[test]
    fn a_full_core_is_named() {
        let mut full = test(8, 8.2e9);
        full.busiest_core_percent = Some(98.0);
        full.cpu_here_percent = Some(97.0);
        let found = findings(Way::Send, &[full.clone()], &path());
        assert!(
            matches!(found[1], Finding::Core { flows: 8, .. }),
            "{found:?}"
        );
        full.cpu_here_percent = Some(5.0);
        let found = findings(Way::Send, &[full], &path());
        assert!(matches!(found[1], Finding::Disturbed { .. }), "{found:?}");
    }

    #[test]
    fn a_drop_off_is_found_but_not_in_the_warm_up() {
        let sample = |from: i32, bits: f64| Sample {
            from: f64::from(from),
            to: f64::from(from + 1),
            bytes: (bits / 8.0) as u64,
        };
        let steady: Vec<Sample> = (0..10).map(|second| sample(second, 1e9)).collect();
        assert_eq!(drop_offs(&steady), None);
        let mut warm = steady.clone();
        warm.insert(0, sample(-1, 1e8));
        assert_eq!(drop_offs(&warm), None);
        let mut drops = steady;
        drops[6] = sample(6, 2e8);
        let found = drop_offs(&drops).expect("a drop-off");
        assert!(
            found.to_string().contains("1 of 10 samples")
                && found.to_string().contains("after 6 s"),
            "{found}"
        );
    }
}
