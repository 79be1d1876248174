//! The network rung: flows over TCP, their ceilings, and what limits them. Read first: [`Flows`] is one test, [`Sweep`]
//! decides which number of flows comes next, `limits` says what a result shows.
//!
//! Pure. Rates are in bits per second of TCP payload at the receiver; times in seconds, sizes in bytes. Must not know: how
//! a test is run or shown.

use serde::{Deserialize, Serialize};

pub mod limits;
pub mod samples;

/// Which way data goes, seen from this computer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From this computer to the server, as writes go.
    Send,
    /// From the server to this computer, as reads go.
    Receive,
}

impl Way {
    /// In words for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Send => "this PC -> NAS",
            Self::Receive => "NAS -> this PC",
        }
    }

    /// The direction of storage that it carries; the key in CSV.
    #[must_use]
    pub const fn direction(self) -> crate::op::Direction {
        match self {
            Self::Send => crate::op::Direction::Write,
            Self::Receive => crate::op::Direction::Read,
        }
    }
}

/// Bytes that reached the receiver in a part of a test, or left the sender where the receiver does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// From the start of the measured time; below 0 in the warm-up.
    pub from: f64,
    /// Its end.
    pub to: f64,
    /// Bytes in it.
    pub bytes: u64,
}

impl Sample {
    /// Bits per second; None when no time passed.
    #[must_use]
    pub fn bits_per_s(&self) -> Option<f64> {
        let seconds = self.to - self.from;
        (seconds > 0.0).then(|| self.bytes as f64 * 8.0 / seconds)
    }
}

/// What the sender's kernel says of a test's connections, together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sender {
    /// Segments sent again.
    pub retransmits: Option<u64>,
    /// Mean round-trip time while data flowed.
    pub rtt_s: Option<f64>,
    /// Least round-trip time.
    pub rtt_min_s: Option<f64>,
    /// Largest congestion window of a connection.
    pub cwnd_bytes: Option<u64>,
    /// Largest payload of a segment.
    pub mss: Option<u32>,
    /// Share of its busy time in which the receiver's window held the connection back, 0 to 1.
    pub receiver_limited: Option<f64>,
    /// Share of its busy time in which the send buffer held the connection back, 0 to 1.
    pub buffer_limited: Option<f64>,
}

/// One way of one test with some number of flows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Flows {
    /// TCP connections that carried data this way.
    pub flows: u32,
    /// Data went the other way at the same time.
    pub both: bool,
    /// Bytes that the receiver got in the measured time.
    pub bytes: u64,
    /// The measured time by the receiver's clock.
    pub seconds: f64,
    /// Samples by this end.
    pub samples: Vec<Sample>,
    /// From the sender's kernel, as far as known here.
    pub sender: Sender,
    /// Congestion control of the sender.
    pub congestion_control: Option<String>,
    /// Processor time of the testing process here, in percent of one core.
    pub cpu_here_percent: Option<f64>,
    /// Processor time of the testing process there, in percent of one core.
    pub cpu_there_percent: Option<f64>,
    /// The busiest core of this computer, 0 to 100.
    pub busiest_core_percent: Option<f64>,
    /// The busiest core of the server, 0 to 100; only an agent tells it.
    pub busiest_core_there_percent: Option<f64>,
}

impl Flows {
    /// Bits per second at the receiver; None when nothing was measured.
    #[must_use]
    pub fn bits_per_s(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.bytes as f64 * 8.0 / self.seconds)
    }
}

/// Two steps in which more flows carry less than this much more end a sweep.
pub const FLAT: f64 = 0.05;
/// A sweep goes at least this far.
pub const LEAST: u32 = 8;
/// iperf3 takes no more flows.
pub const MOST: u32 = 128;

/// Which numbers of flows are tried: 1, 2, 4, 8 and on until two steps in a row were flat.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sweep {
    done: Vec<(u32, f64)>,
}

impl Sweep {
    /// A test with that many flows carried that much, in any unit.
    pub fn carried(&mut self, flows: u32, rate: f64) {
        self.done.push((flows, rate));
    }

    /// The next number of flows; None when enough is known.
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        let Some((last, _)) = self.done.last() else {
            return Some(1);
        };
        let flat = self
            .done
            .windows(2)
            .rev()
            .take_while(|pair| pair[1].1 < pair[0].1 * (1.0 + FLAT))
            .count();
        let more = last.checked_mul(2).filter(|more| *more <= MOST)?;
        (*last < LEAST || flat < 2).then_some(more)
    }
}

/// The ceilings of one way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceilings<'a> {
    /// One flow; None when a single one was not tried.
    pub single: Option<&'a Flows>,
    /// The number of flows that carried the most.
    pub most: &'a Flows,
}

/// The ceilings among tests of one way; None without any.
#[must_use]
pub fn ceilings(tests: &[Flows]) -> Option<Ceilings<'_>> {
    let rated = |test: &&Flows| test.bits_per_s().unwrap_or(0.0);
    let best = |tests: &mut dyn Iterator<Item = &'_ Flows>| -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for (index, test) in tests.enumerate() {
            let rate = rated(&test);
            if best.is_none_or(|(_, top)| rate > top) {
                best = Some((index, rate));
            }
        }
        best.map(|(index, _)| index)
    };
    let alone: Vec<&Flows> = tests.iter().filter(|test| !test.both).collect();
    let most = alone[best(&mut alone.iter().copied())?];
    let single: Vec<&Flows> = alone
        .iter()
        .copied()
        .filter(|test| test.flows == 1)
        .collect();
    Some(Ceilings {
        single: best(&mut single.iter().copied()).map(|index| single[index]),
        most,
    })
}

/// Time for a connection to reach its full rate, in seconds: slow start doubles the window of 10 segments (RFC 6928)
/// each round trip up to the bandwidth-delay product.
#[must_use]
pub fn slow_start_s(bits_per_s: f64, rtt_s: f64, mss: u32) -> f64 {
    let window = bits_per_s / 8.0 * rtt_s;
    let first = 10.0 * f64::from(mss.max(1));
    (window / first).log2().max(0.0) * rtt_s
}

/// Least warm-up, in seconds: iperf3 cuts whole ones.
pub const WARM_UP_LEAST_S: u32 = 1;
/// Longest warm-up that the rule gives.
pub const WARM_UP_MOST_S: u32 = 10;

/// Whole seconds at the start of a test that are left out: twice the slow start, at least one second. The window is
/// reckoned for a line of `bits_per_s`, or 100 Gbit/s where that is not known.
#[must_use]
pub fn warm_up_s(bits_per_s: Option<f64>, rtt_s: f64, mss: u32) -> u32 {
    let start = slow_start_s(bits_per_s.unwrap_or(100e9), rtt_s, mss);
    ((2.0 * start).ceil() as u32).clamp(WARM_UP_LEAST_S, WARM_UP_MOST_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rates: impl Fn(u32) -> f64) -> Vec<u32> {
        let mut sweep = Sweep::default();
        let mut counts = Vec::new();
        while let Some(flows) = sweep.next() {
            counts.push(flows);
            sweep.carried(flows, rates(flows));
        }
        counts
    }

    #[test]
    fn a_sweep_ends_after_two_flat_steps_but_not_before_eight_flows() {
        assert_eq!(counts(|_| 1.0), [1, 2, 4, 8]);
        assert_eq!(counts(|flows| f64::from(flows.min(4))), [1, 2, 4, 8, 16]);
        assert_eq!(
            counts(|flows| f64::from(flows.min(16))),
            [1, 2, 4, 8, 16, 32, 64]
        );
        assert_eq!(counts(f64::from).last(), Some(&128));
        assert_eq!(counts(|flows| 1.0 / f64::from(flows)), [1, 2, 4, 8]);
    }

    fn flows(flows: u32, bytes: u64, both: bool) -> Flows {
        Flows {
            flows,
            bytes,
            both,
            seconds: 1.0,
            ..Flows::default()
        }
    }

    #[test]
    fn single_and_many_flow_ceilings_are_kept_apart() {
        let tests = [
            flows(1, 30, false),
            flows(1, 32, false),
            flows(4, 90, false),
            flows(8, 80, false),
            flows(8, 95, true),
        ];
        let found = ceilings(&tests).expect("tests");
        assert_eq!(found.single.map(|test| test.bytes), Some(32));
        assert_eq!((found.most.flows, found.most.bytes), (4, 90));
        assert_eq!(ceilings(&tests[2..]).and_then(|found| found.single), None);
        assert_eq!(ceilings(&[]), None);
    }

    #[test]
    fn the_warm_up_follows_slow_start() {
        assert_eq!(warm_up_s(Some(1e9), 0.000_2, 1448), 1);
        assert_eq!(warm_up_s(Some(10e9), 0.010, 1448), 1);
        // 125 MB in flight take 13 doublings of 100 ms.
        assert_eq!(warm_up_s(Some(10e9), 0.100, 1448), 3);
        assert_eq!(warm_up_s(None, 2.0, 1448), 10);
        assert_eq!(warm_up_s(None, 0.0, 0), 1);
    }
}
