//! Interval samples of a running cell, appended to intervals.csv as they come; they add up to the cell's rows.

use crate::engine::live::{Reading, Snapshot};
use crate::error::Result;
use crate::op::Direction;
use crate::record::{Interval, Row};
use crate::run::drive::Driven;
use crate::run::results::Results;
use crate::run::row::Rows;
use crate::units::Nanos;

/// Interval samples of a running cell, appended as they come.
pub(super) struct Intervals {
    every: Nanos,
    next: u64,
    from: Nanos,
    /// The row of each direction that gives the samples their place, and the counters at the last sample.
    rows: Vec<(Direction, Row, Reading)>,
    /// All samples so far.
    kept: Vec<(Direction, Interval)>,
}

impl Intervals {
    pub(super) fn new(every: Nanos, rows: &Rows) -> Self {
        let rows = rows
            .directions()
            .map(|direction| (direction, rows.blank(direction), Reading::default()));
        Self {
            every,
            next: every.0,
            from: Nanos(0),
            rows: rows.collect(),
            kept: Vec::new(),
        }
    }

    pub(super) fn sample(
        &mut self,
        at: Nanos,
        sum: &Snapshot,
        results: &mut Results,
    ) -> Result<()> {
        // The longest latency starts anew with each reading, so it is gathered in between.
        for (direction, _, before) in &mut self.rows {
            before.latency_max_ns = before
                .latency_max_ns
                .max(reading(sum, *direction).latency_max_ns);
        }
        if at.0 < self.next {
            return Ok(());
        }
        self.next = (at.0 / self.every.0 + 1) * self.every.0;
        let (from, to) = (self.from, at);
        self.from = at;
        for (direction, row, before) in &mut self.rows {
            let now = reading(sum, *direction);
            let sample = interval(from, to, *before, now);
            results.interval(row, &sample)?;
            self.kept.push((*direction, sample));
            *before = Reading {
                latency_max_ns: 0,
                ..now
            };
        }
        Ok(())
    }

    /// The last, shorter interval, so that the samples add up to the row; gives all of them.
    pub(super) fn finish(
        mut self,
        driven: &Driven,
        results: &mut Results,
    ) -> Result<Vec<(Direction, Interval)>> {
        let to = Nanos(driven.span().unwrap_or(0).max(self.from.0));
        for (direction, row, before) in &self.rows {
            let tally = driven.tally(*direction);
            let latency_sum_ns = (tally.latency.mean() * tally.latency.len() as f64) as u64;
            let now = Reading {
                ops: tally.ops,
                bytes: tally.bytes,
                latency_sum_ns,
                latency_max_ns: 0,
            };
            // A reading may have caught the last operation with its bytes still to come.
            if now.ops > before.ops || now.bytes > before.bytes {
                let sample = interval(self.from, to, *before, now);
                results.interval(row, &sample)?;
                self.kept.push((*direction, sample));
            }
        }
        Ok(self.kept)
    }
}

const fn reading(sum: &Snapshot, direction: Direction) -> Reading {
    match direction {
        Direction::Read => sum.read,
        Direction::Write => sum.write,
    }
}

fn interval(from: Nanos, to: Nanos, before: Reading, now: Reading) -> Interval {
    let ops = now.ops.saturating_sub(before.ops);
    let some = |value: u64| (ops > 0 && value > 0).then_some(value);
    Interval {
        from,
        to,
        ops,
        bytes: now.bytes.saturating_sub(before.bytes),
        latency_mean_ns: some(now.latency_sum_ns.saturating_sub(before.latency_sum_ns))
            .map(|sum| sum as f64 / ops as f64),
        latency_max_ns: some(before.latency_max_ns.max(now.latency_max_ns)),
    }
}
