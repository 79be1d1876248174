//! What a closed loop of requests can carry, from the line's rate and the time of a round trip.
//!
//! Rates are bytes per second, times nanoseconds.

/// How far two bounds must lie apart for the lower one alone to decide: between them a queue forms at times, and neither
/// is reached quite.
const APART: f64 = 1.5;

/// What a number of requests under way can carry at a block size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// What the line carries.
    pub line: f64,
    /// What waiting for answers lets through.
    pub waiting: f64,
}

impl Expected {
    /// `min(B, depth * bs / (bs / B + RTT + service))`, the two sides kept apart.
    ///
    /// `B` (`line`, bytes per second) is what that many connections carry of a plain stream; the depth (`in_flight`) is
    /// the number of requests under way on all of them together; `RTT` is that of an idle path, and `service` the
    /// time that the peer itself needs, both in nanoseconds. It is the asymptotic bound of a closed network with one
    /// queue (the line, `bs / B` a visit) and a delay (`RTT + service`): Denning and Buzen, "The Operational
    /// Analysis of Queueing Network Models", ACM Computing Surveys 10(3), 1978, section 8.
    ///
    /// None where the rate or the block is nothing, since then nothing moves.
    #[must_use]
    pub fn new(
        line: f64,
        in_flight: u32,
        block_size: u32,
        rtt_ns: u64,
        service_ns: u64,
    ) -> Option<Self> {
        if !(line.is_finite() && line > 0.0) || block_size == 0 || in_flight == 0 {
            return None;
        }
        let block = f64::from(block_size);
        let each = block / line + (rtt_ns as f64 + service_ns as f64) / 1e9;
        Some(Self {
            line,
            waiting: f64::from(in_flight) * block / each,
        })
    }

    /// The lower of the two.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.line.min(self.waiting)
    }

    /// Whether one of the two is so much lower that it alone decides.
    #[must_use]
    pub fn clear(&self) -> bool {
        self.line.max(self.waiting) / self.rate() >= APART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1 << 20;
    /// 1 Gbit/s of payload.
    const LINE: f64 = 125e6;

    #[test]
    fn small_blocks_wait_and_large_ones_fill_the_line() {
        // 4096 B / 125 MB/s = 32.768 us; with 1 ms: 1.032768 ms each.
        let one = Expected::new(LINE, 1, 4096, 1_000_000, 0).expect("something moves");
        assert!((one.rate() - 4096.0 / 1.032_768e-3).abs() < 1.0);
        assert!(one.clear());
        let eight = Expected::new(LINE, 8, 4096, 1_000_000, 0).expect("something moves");
        assert!((eight.rate() / one.rate() - 8.0).abs() < 1e-9);
        let full = Expected::new(LINE, 32, MIB, 1_000_000, 0).expect("something moves");
        assert!((full.rate() - LINE).abs() < f64::EPSILON && full.clear());
    }

    #[test]
    fn a_slow_server_counts_as_a_longer_way() {
        let rate = |rtt, service| {
            let expected = Expected::new(LINE, 2, 16_384, rtt, service);
            expected.expect("something moves").rate()
        };
        assert!((rate(1_000_000, 500_000) - rate(1_500_000, 0)).abs() < 1e-6);
        assert!(rate(1_000_000, 500_000) < rate(1_000_000, 0));
    }

    #[test]
    fn without_a_round_trip_one_request_fills_the_line_and_near_it_nothing_is_clear() {
        let still = Expected::new(LINE, 1, 4096, 0, 0).expect("something moves");
        assert!((still.rate() - LINE).abs() < 1.0 && !still.clear());
        // A MiB takes 8.4 ms on the line, so 1 ms of waiting costs little.
        let near = Expected::new(LINE, 1, MIB, 1_000_000, 0).expect("something moves");
        assert!(near.rate() < LINE && !near.clear());
    }

    #[test]
    fn nothing_known_is_nothing_expected() {
        assert_eq!(Expected::new(0.0, 1, 4096, 1, 0), None);
        assert_eq!(Expected::new(f64::NAN, 1, 4096, 1, 0), None);
        assert_eq!(Expected::new(LINE, 1, 0, 1, 0), None);
        assert_eq!(Expected::new(LINE, 0, 4096, 1, 0), None);
    }
}
