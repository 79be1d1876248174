//! How fast each interface goes: current, average, least, largest, total, as ifstat and nload show them.
//!
//! Pure over samples: whoever samples brings counters and their time. Must not know: clocks, where counters come
//! from. Rates are in bytes a second, times in nanoseconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::probe::net::statistics::PerInterface;

/// One direction of one interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// In the last interval; None when that one could not be counted.
    pub current_bytes_per_s: Option<f64>,
    /// Over all intervals that could be counted.
    pub average_bytes_per_s: Option<f64>,
    /// In the slowest interval.
    pub minimum_bytes_per_s: Option<f64>,
    /// In the fastest interval.
    pub maximum_bytes_per_s: Option<f64>,
    /// Bytes in all intervals that could be counted.
    pub total_bytes: u64,
    /// The time that they took.
    counted_ns: u64,
}

impl Rate {
    /// Counts one interval of `elapsed_ns`; `bytes` is None when the counter was missing or ran backwards.
    fn add(&mut self, bytes: Option<u64>, elapsed_ns: u64) {
        self.current_bytes_per_s = None;
        let Some(bytes) = bytes else { return };
        let rate = |bytes: u64, ns: u64| bytes as f64 * 1e9 / ns as f64;
        let current = rate(bytes, elapsed_ns);
        self.current_bytes_per_s = Some(current);
        self.total_bytes = self.total_bytes.saturating_add(bytes);
        self.counted_ns = self.counted_ns.saturating_add(elapsed_ns);
        self.average_bytes_per_s = Some(rate(self.total_bytes, self.counted_ns));
        let least = self.minimum_bytes_per_s.unwrap_or(current);
        self.minimum_bytes_per_s = Some(least.min(current));
        let largest = self.maximum_bytes_per_s.unwrap_or(current);
        self.maximum_bytes_per_s = Some(largest.max(current));
    }
}

/// Both directions of one interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Towards this computer.
    pub receive: Rate,
    /// From this computer.
    pub transmit: Rate,
}

/// Turns counters, read now and then, into rates.
#[derive(Debug, Clone, Default)]
pub struct Sampler {
    before: Option<(u64, PerInterface)>,
    rates: BTreeMap<String, Rates>,
}

impl Sampler {
    /// Takes the counters as they stood at `at_ns` of a clock that never goes back. The first sample is the start; one
    /// that is no later than the last is left out.
    pub fn sample(&mut self, at_ns: u64, counters: PerInterface) {
        let Some((before_ns, before)) = &self.before else {
            self.before = Some((at_ns, counters));
            return;
        };
        let Some(elapsed_ns) = at_ns.checked_sub(*before_ns).filter(|ns| *ns > 0) else {
            return;
        };
        for name in before.keys().chain(counters.keys()) {
            if !self.rates.contains_key(name) {
                self.rates.insert(name.clone(), Rates::default());
            }
        }
        for (name, rates) in &mut self.rates {
            let grown = match (counters.get(name), before.get(name)) {
                (Some(now), Some(before)) => now.since(before),
                // It came or went: nothing is known of this interval.
                _ => crate::probe::net::statistics::Statistics::default(),
            };
            rates.receive.add(grown.receive_bytes, elapsed_ns);
            rates.transmit.add(grown.transmit_bytes, elapsed_ns);
        }
        self.before = Some((at_ns, counters));
    }

    /// The rates of every interface seen, by name; empty before the second sample.
    #[must_use]
    pub const fn rates(&self) -> &BTreeMap<String, Rates> {
        &self.rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::net::statistics::Statistics;

    const SECOND: u64 = 1_000_000_000;

    fn counters(list: &[(&str, u64, u64)]) -> PerInterface {
        list.iter()
            .map(|(name, receive, transmit)| {
                let statistics = Statistics {
                    receive_bytes: Some(*receive),
                    transmit_bytes: Some(*transmit),
                    ..Statistics::default()
                };
                ((*name).to_owned(), statistics)
            })
            .collect()
    }

    #[test]
    fn rates_follow_from_samples() {
        let mut sampler = Sampler::default();
        sampler.sample(5 * SECOND, counters(&[("eth0", 1000, 0)]));
        assert!(sampler.rates().is_empty(), "one sample is no rate");
        sampler.sample(6 * SECOND, counters(&[("eth0", 1100, 7)]));
        sampler.sample(8 * SECOND, counters(&[("eth0", 1900, 7)]));
        let rates = sampler.rates()["eth0"];
        assert_eq!(rates.receive.current_bytes_per_s, Some(400.0));
        assert_eq!(rates.receive.average_bytes_per_s, Some(300.0));
        assert_eq!(rates.receive.minimum_bytes_per_s, Some(100.0));
        assert_eq!(rates.receive.maximum_bytes_per_s, Some(400.0));
        assert_eq!(rates.receive.total_bytes, 900);
        assert_eq!(rates.transmit.minimum_bytes_per_s, Some(0.0));
        assert_eq!(rates.transmit.total_bytes, 7);
    }

    #[test]
    fn counters_that_restart_or_vanish_are_unknown_not_zero() {
        let mut sampler = Sampler::default();
        sampler.sample(SECOND, counters(&[("a", 1000, 0), ("b", 0, 0)]));
        sampler.sample(2 * SECOND, counters(&[("a", 10, 0), ("c", 5, 5)]));
        let rates = sampler.rates().clone();
        for name in ["a", "b", "c"] {
            assert_eq!(rates[name].receive.current_bytes_per_s, None, "{name}");
            assert_eq!(rates[name].receive.average_bytes_per_s, None, "{name}");
        }
        assert_eq!(rates["a"].transmit.average_bytes_per_s, Some(0.0));
        sampler.sample(3 * SECOND, counters(&[("a", 30, 0), ("c", 5, 5)]));
        assert_eq!(sampler.rates()["a"].receive.average_bytes_per_s, Some(20.0));
        assert_eq!(sampler.rates()["a"].receive.total_bytes, 20);
        // The same time twice is no interval.
        sampler.sample(3 * SECOND, counters(&[("a", 99, 0)]));
        assert_eq!(sampler.rates()["a"].receive.total_bytes, 20);
    }
}
