//! The engine against targets whose behaviour is known: what it reports must be what was simulated.

#[path = "support/engine.rs"]
mod support;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use nasgauge::clock::{Clock, monotonic_ns};
use nasgauge::engine::{self, Live, Report};
use nasgauge::error::{Kind, Result};
use nasgauge::op::{Completion, Direction, Op, Submit};
use nasgauge::payload::{LAID, Payload};
use nasgauge::slots::Slots;
use nasgauge::stats::percentile_ns;
use nasgauge::target::Session;
use support::{job, lane_job, login, run, session};

const MILLI: u64 = 1_000_000;

/// Runs workload keys on a `sim:` with these options, on the virtual clock.
fn sim(options: &str, keys: &str) -> Report {
    let job = job(keys);
    run(
        session(&login(&format!("sim:?clock=virtual&{options}")), &job),
        &job,
    )
}

fn good(report: Report) -> Report {
    assert_eq!(report.error, None);
    report
}

/// Bytes per second over the measured time.
fn rate(report: &Report) -> f64 {
    let bytes = report.read.bytes + report.write.bytes;
    bytes as f64 * 1e9 / (report.ended_ns - report.started_ns) as f64
}

fn close(got: f64, want: f64, within: f64, what: &str) {
    assert!(
        (got / want - 1.0).abs() <= within,
        "{what}: {got} is not within {within} of {want}"
    );
}

/// What a pipe of `bandwidth` bytes/s and then `latency` seconds carry: min(B, depth x bs / (bs / B + latency)).
fn model(bandwidth: f64, latency: f64, depth: f64, block: f64) -> f64 {
    bandwidth.min(depth * block / (block / bandwidth + latency))
}

#[test]
fn the_rate_is_the_models_within_a_thousandth_on_the_virtual_clock() {
    for depth in [1u32, 2, 8, 32] {
        for (block, bytes) in [("4k", 4096u32), ("64k", 65_536), ("1M", 1 << 20)] {
            for (latency, seconds) in [
                ("0us", 0.0),
                ("50us", 50e-6),
                ("200us", 200e-6),
                ("1ms", 1e-3),
            ] {
                let total = u64::from(depth * bytes) * 3_000;
                let report = good(sim(
                    &format!("latency={latency}&bandwidth=1GB/s"),
                    &format!(
                        "rw='randread'\nbs='{block}'\niodepth={depth}\nsize='64M'\nbytes={total}"
                    ),
                ));
                let want = model(1e9, seconds, f64::from(depth), f64::from(bytes));
                let what = format!("{depth} x {block} at {latency}");
                close(rate(&report), want, 0.001, &what);
                assert_eq!(report.read.bytes, total, "{what}");
            }
        }
    }
    let writes = good(sim(
        "latency=50us&bandwidth=1GB/s",
        "rw='write'\nbs='4k'\niodepth=8\nsize='64M'\nbytes='64M'",
    ));
    close(
        rate(&writes),
        model(1e9, 50e-6, 8.0, 4096.0),
        0.001,
        "writes",
    );
}

/// On the real clock a busy machine delays every sleeper, so the judge is an operation among the quickest tenth: those
/// were not delayed. What the engine itself got wrong would show in all. And none may be faster than the model.
#[test]
fn the_latency_is_the_models_within_3_percent_on_the_real_clock() {
    let cell = |depth: u32, block: &str, bytes: u32, latency_ms: u32| {
        let job = job(&format!(
            "rw='randread'\nbs='{block}'\niodepth={depth}\nsize='64M'\nbytes={}",
            u64::from(depth * bytes) * 40
        ));
        let uri = format!("sim:?latency={latency_ms}ms&bandwidth=1GB/s");
        let report = good(run(session(&login(&uri), &job), &job));
        let want = model(
            1e9,
            f64::from(latency_ms) / 1e3,
            f64::from(depth),
            f64::from(bytes),
        );
        let what = format!("{depth} x {block} at {latency_ms} ms");
        assert!(
            rate(&report) <= want * 1.001,
            "{what}: {} > {want}",
            rate(&report)
        );
        let quick = report.read.latency.value_at_percentile(10.0) as f64;
        close(f64::from(depth * bytes) * 1e9 / quick, want, 0.03, &what);
    };
    std::thread::scope(|scope| {
        for depth in [1, 8, 32] {
            for (block, bytes) in [("4k", 4096), ("1M", 1 << 20)] {
                for latency_ms in [30, 60] {
                    scope.spawn(move || cell(depth, block, bytes, latency_ms));
                }
            }
        }
    });
}

#[test]
fn percentiles_of_known_distributions_are_within_1_percent() {
    for depth in [1, 16] {
        let keys = format!("rw='randread'\nbs='4k'\niodepth={depth}\nsize='64M'\nbytes='2000M'");
        let uniform = good(sim("latency=uniform:100us-300us", &keys)).read.latency;
        let exponential = good(sim("latency=exponential:200us", &keys)).read.latency;
        for percentile in [50.0, 90.0, 99.0, 99.9] {
            let share = percentile / 100.0;
            let what = format!("p{percentile} at depth {depth}");
            let got = |of| percentile_ns(of, percentile).expect("512000 samples") as f64;
            close(got(&uniform), 100e3 + 200e3 * share, 0.01, &what);
            close(
                got(&exponential),
                -200e3 * (1.0f64 - share).ln(),
                0.01,
                &what,
            );
        }
        close(uniform.mean(), 200e3, 0.01, "uniform mean");
        close(exponential.mean(), 200e3, 0.01, "exponential mean");
    }
}

#[test]
fn the_ramp_is_excluded_exactly_at_any_depth() {
    for depth in [1u64, 4, 32] {
        // Completions come each millisecond, `depth` at once. The ramp ends with those of 11 ms; 12 to 31 ms count, the
        // last of them begun before 30.5 ms.
        let report = good(sim(
            "latency=1ms",
            &format!(
                "rw='randread'\nbs='4k'\niodepth={depth}\nsize='1M'\nramp_time='10500us'\nruntime='20ms'"
            ),
        ));
        assert_eq!(
            report.ended_ns - report.started_ns,
            20 * MILLI,
            "depth {depth}"
        );
        assert_eq!(report.read.ops, 20 * depth);
        assert_eq!(report.read.bytes, 20 * depth * 4096);
        assert_eq!(report.read.latency.len(), 20 * depth);
    }
}

#[test]
fn without_a_ramp_the_time_runs_from_the_start_signal() {
    let report = good(sim("latency=1ms", "rw='read'\nbs='4k'\nsize='40k'"));
    assert_eq!(report.read.ops, 10);
    assert_eq!(report.ended_ns - report.started_ns, 10 * MILLI);
}

#[test]
fn lanes_in_turns_write_a_whole_file_whatever_does_not_divide() {
    // 13 blocks, the last one short: one lane has four of them.
    let size = 12 * 4096 + 100;
    let reports = (0..4).map(|lane| {
        let keys = format!("rw='write'\nbs='4k'\nsize={size}\nbytes={size}\nlanes=4");
        let mut job = lane_job(&keys, lane, 4, "");
        job.phase.in_turns = true;
        let uri = "sim:?clock=virtual&latency=1us";
        good(run(session(&login(uri), &job), &job))
    });
    let found: Vec<(u64, u64)> = reports.map(|one| (one.written, one.high_water)).collect();
    let (three, block) = (3 * 4096, 4096);
    let whole = [
        (three + 100, size),
        (three, 10 * block),
        (three, 11 * block),
        (three, 12 * block),
    ];
    assert_eq!(found, whole);
}

#[test]
fn a_pass_counts_every_byte_and_its_last_block_is_short() {
    for (rw, lanes) in [("read", 1), ("write", 3), ("rw", 7)] {
        let mut bytes = 0;
        let mut ops = 0;
        for lane in 0..lanes {
            let job = lane_job(
                &format!("rw='{rw}'\nbs='4k'\nsize=410001\nlanes={lanes}\niodepth=4"),
                lane,
                lanes,
                "",
            );
            let report = good(run(
                session(&login("sim:?clock=virtual&latency=1us"), &job),
                &job,
            ));
            bytes += report.read.bytes + report.write.bytes;
            ops += report.read.ops + report.write.ops;
        }
        assert_eq!((bytes, ops), (410_001, 101), "{rw} over {lanes} lanes");
    }
}

#[test]
fn lanes_share_the_bytes_exactly() {
    for lanes in [1u16, 2, 3, 7, 64] {
        for total in [1_000_003u64, 4096, 1, 1 << 20] {
            let mut bytes = 0;
            let mut odd = 0;
            for lane in 0..lanes {
                let keys = format!(
                    "rw='randwrite'\nbs='4k'\nsize='1M'\nlanes={lanes}\niodepth=8\nbytes={total}"
                );
                let job = lane_job(&keys, lane, lanes, "");
                let report = good(run(
                    session(&login("sim:?clock=virtual&latency=1us"), &job),
                    &job,
                ));
                assert_eq!(report.written, report.write.bytes);
                bytes += report.write.bytes;
                odd += report.write.bytes % 4096;
            }
            assert_eq!(bytes, total, "over {lanes} lanes");
            assert_eq!(odd, total % 4096, "a single short block at most");
        }
    }
}

#[test]
fn flushes_come_after_every_nth_write_and_last_as_long_as_they_do() {
    let keys = |durability: &str| {
        format!("rw='write'\nbs='4k'\nsize='400k'\niodepth=4\nfsync=10\ndurability='{durability}'")
    };
    let report = good(sim("latency=1ms&flush=7ms", &keys("flush")));
    // 100 writes: nine flushes in between, the tenth ends the phase and is timed apart.
    assert_eq!((report.write.ops, report.flushes), (100, 9));
    // Each ten are drained before their flush: 4 + 4 + 2, so 3 ms.
    assert_eq!(
        report.ended_ns - report.started_ns,
        (10 * 3 + 9 * 7) * MILLI
    );
    assert_eq!(report.flushed_ns, Some(report.ended_ns + 7 * MILLI));
    let report = good(sim("latency=1ms&flush=7ms", &keys("none")));
    assert_eq!(report.flushed_ns, None);
    let reading = good(sim(
        "flush=7ms&latency=1ms",
        "rw='read'\nbs='4k'\nsize='400k'\nfsync=10",
    ));
    assert_eq!(
        (reading.flushes, reading.flushed_ns),
        (0, None),
        "nothing to flush"
    );
}

#[test]
fn a_stall_is_felt_by_all_that_it_delays_in_rate_mode_and_by_one_in_a_closed_loop() {
    let stalled = "latency=100us&stall_at=1000&stall=2s";
    let keys = "rw='randread'\nbs='4k'\nsize='1M'\nruntime=10\nramp_time=0";
    let open = good(sim(stalled, &format!("{keys}\nrate_iops=1000")));
    close(
        open.read.ops as f64,
        10_000.0,
        0.001,
        "operations at 1000/s",
    );
    // 2 s at 1000/s come due during the stall; the queue then drains at 10000/s while 1000/s still arrive.
    close(open.late as f64, 2_000.0 / 0.9, 0.01, "late operations");
    let at = |report: &Report, percentile| {
        percentile_ns(&report.read.latency, percentile).expect("many") as f64
    };
    // The k-th delayed operation waited 2 s - k x 1 ms + k x 0.1 ms; 100 of 10000 lie above p99.
    close(at(&open, 99.0), 2e9 - 100.0 * 0.9e6, 0.01, "p99");
    close(open.read.latency.max() as f64, 2e9 + 1e5, 0.01, "max");
    close(at(&open, 50.0), 1e5, 0.01, "median");

    let closed = good(sim(stalled, keys));
    assert_eq!(closed.late, 0);
    close(at(&closed, 99.9), 1e5, 0.01, "p99.9 of a closed loop");
    close(
        closed.read.latency.max() as f64,
        2e9 + 1e5,
        0.01,
        "its one slow operation",
    );
    let slow = closed.read.latency.count_between(1_000_000, u64::MAX);
    assert_eq!(slow, 1);
}

#[test]
fn lanes_take_turns_in_rate_mode() {
    for lanes in [1u16, 4] {
        let mut ops = 0;
        for lane in 0..lanes {
            let keys = format!(
                "rw='randread'\nbs='4k'\nsize='1M'\nlanes={lanes}\nrate_iops=2000\nruntime=5\nramp_time=0"
            );
            let job = lane_job(&keys, lane, lanes, "");
            let report = good(run(
                session(&login("sim:?clock=virtual&latency=50us"), &job),
                &job,
            ));
            assert_eq!(report.late, 0);
            close(
                report.read.latency.mean(),
                50e3,
                0.001,
                "latency from the intended start",
            );
            ops += report.read.ops;
        }
        close(ops as f64, 10_000.0, 0.001, "over all lanes");
    }
}

#[test]
fn a_fault_ends_the_run_with_what_was_counted() {
    let keys = "rw='write'\nbs='4k'\nsize='1M'\niodepth=4";
    for (options, kind, ops, word) in [
        ("fail_at=50", Kind::Other, 46..=49, "operation 50"),
        ("gone_at=50", Kind::Gone, 46..=49, "operation 50"),
        ("full_at=50", Kind::NoSpace, 46..=49, "operation 50"),
        (
            "short_at=50",
            Kind::Other,
            48..=51,
            "only 2048 of 4096 bytes were taken at offset 200704",
        ),
    ] {
        let report = sim(&format!("latency=1ms&{options}"), keys);
        let error = report.error.expect(options);
        assert_eq!(error.kind, kind, "{options}");
        assert!(error.message.contains(word), "{options}: {error}");
        assert!(
            ops.contains(&report.write.ops),
            "{options}: {}",
            report.write.ops
        );
        assert_eq!(report.flushed_ns, None, "nothing is flushed after an error");
    }
    let reading = sim("latency=1ms&full_at=1", "rw='read'\nbs='4k'\nsize='1M'");
    assert_eq!(good(reading).read.ops, 256, "a full medium can be read");
    let short = sim("latency=1ms&short_at=3", "rw='read'\nbs='4k'\nsize='1M'");
    let message = short.error.expect("short").message;
    assert!(
        message.contains("only 2048 of 4096 bytes came back at offset 8192"),
        "{message}"
    );
}

#[test]
fn silence_ends_with_a_timeout_on_the_sessions_clock() {
    let report = sim(
        "latency=1us&stall_at=10&stall=1000s",
        "rw='read'\nbs='4k'\nsize='1M'",
    );
    assert_eq!(report.error.expect("silent").kind, Kind::TimedOut);
    assert_eq!(report.read.ops, 9);
}

/// A session of the tests' own: memory behind a closure that may meddle.
struct Memory<F> {
    bytes: Rc<RefCell<Vec<u8>>>,
    meddle: F,
    queue: Vec<Completion>,
    queued: bool,
}

impl<F: FnMut(&Op, &mut [u8])> Memory<F> {
    fn boxed(bytes: &Rc<RefCell<Vec<u8>>>, queued: bool, meddle: F) -> Box<Self> {
        Box::new(Self {
            bytes: Rc::clone(bytes),
            meddle,
            queue: Vec::new(),
            queued,
        })
    }
}

impl<F: FnMut(&Op, &mut [u8])> Session for Memory<F> {
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        let range = op.offset as usize..op.offset as usize + op.len as usize;
        let mut bytes = self.bytes.borrow_mut();
        (self.meddle)(&op, slots.get_mut(op.slot, op.len));
        match op.direction {
            Direction::Read => slots
                .get_mut(op.slot, op.len)
                .copy_from_slice(&bytes[range]),
            Direction::Write => bytes[range].copy_from_slice(slots.get(op.slot, op.len)),
        }
        let completion = Completion {
            slot: op.slot,
            bytes: op.len,
        };
        if self.queued {
            self.queue.push(completion);
            return Ok(Submit::Queued);
        }
        Ok(Submit::Done(completion))
    }

    fn reap(&mut self, _: Option<u64>, _: &mut Slots, done: &mut Vec<Completion>) -> Result<()> {
        done.append(&mut self.queue);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

fn memory(bytes: usize) -> Rc<RefCell<Vec<u8>>> {
    Rc::new(RefCell::new(vec![0; bytes]))
}

#[test]
fn a_stop_ends_it_early_with_what_was_counted() {
    let stop = Rc::new(AtomicBool::new(false));
    for queued in [false, true] {
        stop.store(false, Relaxed);
        let flag = Rc::clone(&stop);
        let mut seen = 0;
        let store = memory(1 << 20);
        let session = Memory::boxed(&store, queued, move |_, _| {
            seen += 1;
            if seen == 1_000 {
                flag.store(true, Relaxed);
            }
        });
        let job = job("rw='randwrite'\nbs='4k'\nsize='1M'\niodepth=4\nruntime=3600\nramp_time=0");
        let live = Live::default();
        let report = engine::run(session, &job, &live, &stop, || Some(monotonic_ns()));
        assert!(report.stopped && report.error.is_none());
        assert_eq!(
            report.write.ops, 1_000,
            "what had begun is finished and counted"
        );
        assert!(report.flushed_ns.is_some(), "what was written is flushed");
    }
}

#[test]
fn a_run_called_off_before_its_start_does_nothing() {
    let store = memory(1 << 20);
    let session = Memory::boxed(&store, false, |_, _| panic!("an operation"));
    let job = job("rw='write'\nbs='4k'\nsize='1M'");
    let report = engine::run(
        session,
        &job,
        &Live::default(),
        &AtomicBool::new(false),
        || None,
    );
    assert!(report.stopped && report.write.ops == 0);
}

#[test]
fn no_block_is_ever_written_twice_and_all_verify() {
    let store = memory(1 << 20);
    let seen: Rc<RefCell<HashSet<Vec<u8>>>> = Rc::default();
    let mut writes = 0;
    let mut generation = 1_000;
    for keys in [
        "rw='write'\nbs='4k'\nsize='1M'",
        "rw='randwrite'\nbs='4k'\nsize='1M'\niodepth=8\nbytes='8M'",
        "rw='randrw'\nbs='8k'\nsize='1M'\niodepth=8\nbytes='8M'\nverify=true",
        "rw='randwrite'\nbssplit='512/50:4k/50'\nsize='1M'\niodepth=3\nbytes='1M'",
    ] {
        let known = Rc::clone(&seen);
        let session = Memory::boxed(&store, true, move |op, block| {
            if op.direction == Direction::Write {
                let sectors = block.chunks(512).map(<[u8]>::to_vec);
                for sector in sectors {
                    assert!(
                        known.borrow_mut().insert(sector),
                        "a sector repeats at {op:?}"
                    );
                }
            }
        });
        let mut job = job(keys);
        job.generation = Some(generation);
        let report = good(run(session, &job));
        assert_eq!(
            report.generations, report.write.ops,
            "one a block, ramp included"
        );
        generation += report.generations;
        writes += report.write.ops;
    }
    assert!(writes > 3_000, "{writes}");
    let session = Memory::boxed(&store, false, |_, _| ());
    let checked = good(run(
        session,
        &job("rw='read'\nbs=2560\nsize='1M'\nverify=true"),
    ));
    assert_eq!(checked.read.bytes, 1 << 20);
}

#[test]
fn a_laid_file_verifies_at_any_block_size() {
    let store = memory(1_000_003);
    let mut laying = job("rw='write'\nbs='64k'\nsize=1000003\niodepth=4");
    laying.generation = None;
    good(run(Memory::boxed(&store, true, |_, _| ()), &laying));
    for block in [1, 512, 4095, 4096, 100_001] {
        let reading = job(&format!(
            "rw='read'\nbs={block}\nsize=1000003\nverify=true\niodepth=4"
        ));
        let report = good(run(Memory::boxed(&store, true, |_, _| ()), &reading));
        assert_eq!(report.read.bytes, 1_000_003, "blocks of {block}");
    }
}

#[test]
fn a_ramps_writes_use_generations_too() {
    let report = good(sim(
        "latency=1ms",
        "rw='randwrite'\nbs='4k'\nsize='1M'\nramp_time='99500us'\nruntime='100ms'",
    ));
    // 99 in the ramp, the one that ends it, and the measured ones.
    assert_eq!(report.generations, report.write.ops + 100);
    assert_eq!(report.written, (report.write.ops + 100) * 4096);
}

#[test]
fn a_single_wrong_bit_is_found_and_named() {
    let store = memory(1 << 20);
    good(run(
        Memory::boxed(&store, false, |_, _| ()),
        &job("rw='write'\nbs='64k'\nsize='1M'"),
    ));
    for at in [0, 4095, 77_777, (1 << 20) - 1] {
        store.borrow_mut()[at] ^= 0x10;
        for queued in [false, true] {
            let report = run(
                Memory::boxed(&store, queued, |_, _| ()),
                &job("rw='read'\nbs='64k'\nsize='1M'\nverify=true\niodepth=4"),
            );
            let error = report.error.expect("corrupt");
            assert_eq!(error.kind, Kind::Corrupt);
            let sector = at / 512 * 512;
            let named: usize = error
                .message
                .split_once("at offset ")
                .and_then(|(_, rest)| rest.split(':').next()?.parse().ok())
                .expect("an offset");
            assert!((sector..sector + 512).contains(&named), "{at}: {error}");
        }
        store.borrow_mut()[at] ^= 0x10;
    }
}

/// Its one block comes at once, since it stays in the slot from the first time on.
struct Still {
    payload: Payload,
    read: u32,
}

impl Session for Still {
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        if self.read == 0 {
            self.payload
                .fill(slots.get_mut(op.slot, op.len), op.offset, LAID);
        }
        self.read += 1;
        Ok(Submit::Queued)
    }

    fn reap(&mut self, _: Option<u64>, _: &mut Slots, done: &mut Vec<Completion>) -> Result<()> {
        done.push(Completion {
            slot: 0,
            bytes: 16 << 20,
        });
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn checking_is_not_the_targets_time() {
    let job = job("rw='read'\nbs='16M'\nsize='16M'\nbytes='512M'\nverify=true");
    let session = Still {
        payload: Payload::new(job.content.clone()),
        read: 0,
    };
    let report = good(run(Box::new(session), &job));
    let after_the_first = report.read.latency.mean() * 32.0 - report.read.latency.max() as f64;
    let wall = (report.ended_ns - report.started_ns) as f64;
    assert!(
        after_the_first < 0.1 * wall,
        "31 reads took {after_the_first} of {wall} ns, which only the checks did"
    );
}

/// A session on a clock of its own, that counts requests on the wire and lets time pass with each.
struct Wire {
    time: Rc<Cell<u64>>,
    requests: u64,
}

impl Session for Wire {
    fn submit(&mut self, op: Op, _: &mut Slots) -> Result<Submit> {
        self.time.set(self.time.get() + MILLI);
        self.requests += 2;
        Ok(Submit::Done(Completion {
            slot: op.slot,
            bytes: op.len,
        }))
    }

    fn flush(&mut self) -> Result<()> {
        self.requests += 1;
        Ok(())
    }

    fn wire_ops(&self) -> Option<u64> {
        Some(self.requests)
    }

    fn clock(&self) -> Clock {
        Clock::Virtual(Rc::clone(&self.time))
    }
}

#[test]
fn requests_on_the_wire_are_those_of_the_measured_time() {
    for (keys, ops) in [
        ("rw='write'\nbs='4k'\nsize='400k'", 100),
        (
            "rw='write'\nbs='4k'\nsize='400k'\nramp_time='10ms'\nruntime='50ms'",
            50,
        ),
    ] {
        let session = Box::new(Wire {
            time: Rc::new(Cell::new(5)),
            requests: 17,
        });
        let report = good(run(session, &job(keys)));
        assert_eq!(report.write.ops, ops);
        assert_eq!(
            report.wire_ops,
            Some(2 * ops),
            "neither the login's nor the flush's"
        );
    }
}
