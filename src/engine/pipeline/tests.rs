//! Copies between two pieces of memory whose sessions can be slow, fail, or end too early.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::op::{Completion, Direction, Op, Submit};

/// Bytes that sessions read and write, and how they behave.
#[derive(Clone)]
struct Medium {
    data: Arc<Mutex<Vec<u8>>>,
    /// How long each request takes.
    pause: Duration,
    /// Requests that go well before one fails.
    good: u64,
    flushed: Arc<AtomicBool>,
}

impl Medium {
    fn of(data: Vec<u8>) -> Self {
        Self {
            data: Arc::new(Mutex::new(data)),
            pause: Duration::ZERO,
            good: u64::MAX,
            flushed: Arc::default(),
        }
    }

    fn slow(self, ms: u64) -> Self {
        Self {
            pause: Duration::from_millis(ms),
            ..self
        }
    }

    fn failing_after(self, good: u64) -> Self {
        Self { good, ..self }
    }

    fn content(&self) -> Vec<u8> {
        self.data.lock().expect("no panic").clone()
    }

    /// Opens it; what is queued ends in the reverse of its order.
    fn open(&self, queues: bool) -> impl Fn() -> Result<Box<dyn Session>> + Sync + use<> {
        let medium = self.clone();
        move || {
            Ok(Box::new(Fake {
                medium: medium.clone(),
                queues,
                requests: 0,
                queue: Vec::new(),
            }))
        }
    }
}

struct Fake {
    medium: Medium,
    queues: bool,
    requests: u64,
    queue: Vec<Op>,
}

impl Fake {
    fn carry_out(&mut self, op: Op, slots: &mut Slots) -> Result<Completion> {
        std::thread::sleep(self.medium.pause);
        if self.requests == self.medium.good {
            return Err(Error::new(Phase::Io, Kind::Other, "no space is left"));
        }
        self.requests += 1;
        let mut data = self.medium.data.lock().expect("no panic");
        let start = op.offset as usize;
        let bytes = match op.direction {
            Direction::Read => {
                let there = &data[start.min(data.len())..];
                let bytes = there.len().min(op.len as usize);
                slots
                    .get_mut(op.slot, bytes as u32)
                    .copy_from_slice(&there[..bytes]);
                bytes
            }
            Direction::Write => {
                let end = start + op.len as usize;
                if data.len() < end {
                    data.resize(end, 0);
                }
                data[start..end].copy_from_slice(slots.get(op.slot, op.len));
                op.len as usize
            }
        };
        Ok(Completion {
            slot: op.slot,
            bytes: bytes as u32,
        })
    }
}

impl Session for Fake {
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        if self.queues {
            self.queue.push(op);
            return Ok(Submit::Queued);
        }
        self.carry_out(op, slots).map(Submit::Done)
    }

    fn reap(
        &mut self,
        _until: Option<u64>,
        slots: &mut Slots,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        if let Some(op) = self.queue.pop() {
            let completion = self.carry_out(op, slots)?;
            done.push(completion);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.medium.flushed.store(true, Relaxed);
        Ok(())
    }
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn task(bytes: usize) -> Task {
    Task {
        bytes: bytes as u64,
        block: 4096,
        slots: 8,
        source_base: 0,
        destination_base: 0,
        source_depth: 4,
        destination_depth: 2,
    }
}

type Way = fn(&Task, Open<'_>, Open<'_>, [&Live; 2], &AtomicBool) -> Report;

/// Both ways to copy, with their names.
const WAYS: [(&str, Way); 2] = [("overlapped", overlapped), ("in turn", in_turn)];

fn copy(way: Way, task: &Task, from: &Medium, to: &Medium, queues: bool) -> Report {
    let lives = [Live::default(), Live::default()];
    let stop = AtomicBool::new(false);
    let (source, destination) = (from.open(queues), to.open(queues));
    way(task, &source, &destination, [&lives[0], &lives[1]], &stop)
}

#[test]
fn what_arrives_is_what_was_read_whatever_the_size() {
    for (name, way) in WAYS {
        for size in [1, 4095, 4096, 4097, 8 * 4096, 100_000, 1_000_003] {
            for queues in [false, true] {
                let what = format!("{name}, {size} bytes, queues {queues}");
                let (from, to) = (Medium::of(bytes(size)), Medium::of(Vec::new()));
                let task = task(size);
                let report = copy(way, &task, &from, &to, queues);
                assert_eq!(report.error, None, "{what}");
                assert_eq!(to.content(), from.content(), "{what}");
                assert!(to.flushed.load(Relaxed) && !from.flushed.load(Relaxed));
                assert_eq!(report.source.bytes, size as u64, "{what}");
                assert_eq!(report.destination.bytes, size as u64, "{what}");
                let stored = report.stored_ns.expect("stored");
                assert!(report.started_ns <= report.accepted_ns, "{what}");
                assert!(report.accepted_ns <= stored, "{what}");
                let (live, stop) = (Live::default(), AtomicBool::new(false));
                let same = compare(&task, &to.open(queues), &report.digests, &live, &stop);
                assert_eq!(same, Ok(()), "{what}");
            }
        }
    }
}

#[test]
fn parts_are_copied_to_other_places() {
    let (from, to) = (Medium::of(bytes(40_000)), Medium::of(vec![1; 60_000]));
    let task = Task {
        source_base: 8192,
        destination_base: 20_480,
        ..task(10_000)
    };
    let report = copy(overlapped, &task, &from, &to, true);
    assert_eq!(report.error, None);
    let (read, written) = (from.content(), to.content());
    assert_eq!(written[20_480..30_480], read[8192..18_192]);
    assert!(written[..20_480].iter().all(|byte| *byte == 1));
    assert!(written[30_480..].iter().all(|byte| *byte == 1));
}

#[test]
fn a_changed_byte_is_found_and_named() {
    let (from, to) = (Medium::of(bytes(100_000)), Medium::of(Vec::new()));
    let task = task(100_000);
    let report = copy(overlapped, &task, &from, &to, true);
    to.data.lock().expect("no panic")[50_000] ^= 1;
    let (live, stop) = (Live::default(), AtomicBool::new(false));
    let error = compare(&task, &to.open(true), &report.digests, &live, &stop)
        .expect_err("one byte differs");
    assert_eq!(error.kind, Kind::Corrupt);
    assert!(
        error
            .message
            .contains("at offset 49152 or in the 4096 bytes"),
        "{error}"
    );
    // What has become shorter is no match either.
    to.data.lock().expect("no panic").truncate(90_000);
    let error = compare(&task, &to.open(true), &report.digests, &live, &stop);
    assert!(error.expect_err("too short").message.contains("ends there"));
}

#[test]
fn the_side_that_is_waited_for_is_the_slow_one() {
    let size = 60 * 4096;
    for (slow_source, slow_destination) in [(4, 0), (0, 4)] {
        let from = Medium::of(bytes(size)).slow(slow_source);
        let to = Medium::of(Vec::new()).slow(slow_destination);
        let report = copy(overlapped, &task(size), &from, &to, false);
        assert_eq!(report.error, None);
        let (waited, other) = if slow_source > 0 {
            (report.destination.waited_ns, report.source.waited_ns)
        } else {
            (report.source.waited_ns, report.destination.waited_ns)
        };
        // 60 requests of at least 4 ms each, of which the other side's ring covers 8.
        assert!(waited >= 150_000_000, "{report:?}");
        assert!(waited > 2 * other, "{report:?}");
        let whole = report.accepted_ns - report.started_ns;
        assert!(waited <= whole, "{report:?}");
    }
}

#[test]
fn in_turn_nothing_is_read_while_anything_is_written() {
    let size = 24 * 4096;
    let from = Medium::of(bytes(size)).slow(2);
    let to = Medium::of(Vec::new()).slow(2);
    let began = Instant::now();
    let report = copy(in_turn, &task(size), &from, &to, false);
    assert_eq!(report.error, None);
    // 24 requests of at least 2 ms on each side, one after the other.
    assert!(began.elapsed() >= Duration::from_millis(96));
    for side in [&report.source, &report.destination] {
        assert!(side.waited_ns >= 48_000_000, "{report:?}");
    }
}

#[test]
fn a_side_that_fails_ends_both_and_is_told() {
    let size = 50 * 4096;
    for (name, way) in WAYS {
        for queues in [false, true] {
            let good = Medium::of(bytes(size));
            let full = Medium::of(Vec::new()).failing_after(45);
            let report = copy(way, &task(size), &good, &full, queues);
            let error = report.error.expect("no space");
            assert!(error.message.contains("no space"), "{name}: {error}");
            assert_eq!(report.stored_ns, None, "{name}");
            let broken = Medium::of(bytes(size)).failing_after(20);
            let to = Medium::of(Vec::new());
            let report = copy(way, &task(size), &broken, &to, queues);
            assert!(
                report.error.is_some() && report.digests.is_empty(),
                "{name}"
            );
            // A file that has become shorter in the meantime.
            let short = Medium::of(bytes(size - 5000));
            let report = copy(way, &task(size), &short, &to, queues);
            let error = report.error.expect("too short");
            assert!(error.message.contains("ends there"), "{name}: {error}");
        }
    }
}

#[test]
fn what_can_not_be_opened_is_told_and_the_other_side_ends() {
    let refuse = || -> Result<Box<dyn Session>> {
        Err(Error::new(Phase::Connect, Kind::Refused, "nobody listens"))
    };
    let medium = Medium::of(bytes(100_000));
    let good = medium.open(true);
    let lives = [Live::default(), Live::default()];
    let both = [&lives[0], &lives[1]];
    let stop = AtomicBool::new(false);
    for (_, way) in WAYS {
        for (source, destination) in [(&refuse as Open<'_>, &good as Open<'_>), (&good, &refuse)] {
            let report = way(&task(100_000), source, destination, both, &stop);
            assert_eq!(report.error.expect("refused").kind, Kind::Refused);
            assert_eq!(report.destination.bytes, 0);
        }
    }
}

#[test]
fn a_copy_that_is_stopped_says_so() {
    for (_, way) in WAYS {
        let from = Medium::of(bytes(4096 * 1000)).slow(1);
        let to = Medium::of(Vec::new());
        let (source, destination) = (from.open(false), to.open(false));
        let lives = [Live::default(), Live::default()];
        let stop = AtomicBool::new(false);
        let report = std::thread::scope(|scope| {
            scope.spawn(|| {
                while lives[1].read().activity == 0 {
                    std::thread::yield_now();
                }
                stop.store(true, Relaxed);
            });
            way(
                &task(4096 * 1000),
                &source,
                &destination,
                [&lives[0], &lives[1]],
                &stop,
            )
        });
        assert!(report.stopped && report.error.is_none(), "{report:?}");
        assert!(report.destination.bytes < 4096 * 1000);
        assert!(report.digests.is_empty());
    }
}
