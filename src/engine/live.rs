//! Counters of a running worker that others may read: for progress, interval samples and the watchdog.
//!
//! One writer (the worker), many readers; relaxed atomics, no lock. Must not know: who reads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::op::Direction;

/// Counters of one direction, measured time only.
#[derive(Debug, Default)]
pub struct Counter {
    ops: AtomicU64,
    bytes: AtomicU64,
    latency_sum_ns: AtomicU64,
    latency_max_ns: AtomicU64,
}

/// What one worker has done so far.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Live {
    read: Counter,
    write: Counter,
    /// Operations since the start, ramp and laying included: any change means progress.
    activity: AtomicU64,
    activity_bytes: AtomicU64,
    flushing: AtomicBool,
}

/// A reading of one [`Counter`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Reading {
    /// Operations.
    pub ops: u64,
    /// Bytes.
    pub bytes: u64,
    /// Sum of latencies in nanoseconds.
    pub latency_sum_ns: u64,
    /// Longest latency since the last reading, in nanoseconds.
    pub latency_max_ns: u64,
}

/// A reading of one [`Live`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Snapshot {
    /// Reads in the measured time.
    pub read: Reading,
    /// Writes in the measured time.
    pub write: Reading,
    /// Operations since the start.
    pub activity: u64,
    /// Bytes since the start.
    pub activity_bytes: u64,
    /// A flush is under way: nothing moves until it ends.
    pub flushing: bool,
}

fn add(counter: &AtomicU64, value: u64) {
    // A single writer needs no read-modify-write instruction.
    counter.store(counter.load(Relaxed).wrapping_add(value), Relaxed);
}

impl Counter {
    fn read(&self) -> Reading {
        Reading {
            ops: self.ops.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            latency_sum_ns: self.latency_sum_ns.load(Relaxed),
            latency_max_ns: self.latency_max_ns.swap(0, Relaxed),
        }
    }

    fn set(&self, reading: Reading) {
        self.ops.store(reading.ops, Relaxed);
        self.bytes.store(reading.bytes, Relaxed);
        self.latency_sum_ns.store(reading.latency_sum_ns, Relaxed);
        self.latency_max_ns
            .fetch_max(reading.latency_max_ns, Relaxed);
    }
}

impl Live {
    /// Counts an operation of the measured time.
    #[inline]
    pub fn count(&self, direction: Direction, bytes: u32, latency_ns: u64) {
        let counter = match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        };
        add(&counter.ops, 1);
        add(&counter.bytes, u64::from(bytes));
        add(&counter.latency_sum_ns, latency_ns);
        if latency_ns > counter.latency_max_ns.load(Relaxed) {
            counter.latency_max_ns.store(latency_ns, Relaxed);
        }
    }

    /// Notes that something happened, measured or not.
    #[inline]
    pub fn tick(&self, bytes: u32) {
        add(&self.activity, 1);
        add(&self.activity_bytes, u64::from(bytes));
    }

    /// Notes that a flush begins or has ended.
    pub fn flushing(&self, on: bool) {
        self.tick(0);
        self.flushing.store(on, Relaxed);
    }

    /// Reads all counters; the longest latencies start anew.
    pub fn read(&self) -> Snapshot {
        // Bytes are stored after operations, so a torn reading errs by one operation, never in the total.
        Snapshot {
            read: self.read.read(),
            write: self.write.read(),
            activity: self.activity.load(Relaxed),
            activity_bytes: self.activity_bytes.load(Relaxed),
            flushing: self.flushing.load(Relaxed),
        }
    }

    /// Takes over another process's reading.
    pub fn set(&self, snapshot: &Snapshot) {
        self.read.set(snapshot.read);
        self.write.set(snapshot.write);
        self.activity.store(snapshot.activity, Relaxed);
        self.activity_bytes.store(snapshot.activity_bytes, Relaxed);
    }
}
