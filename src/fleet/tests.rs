//! Fleets of threads on a protocol of the tests' own: what becomes of panics, stops and workers given up.

use super::*;
use crate::engine::Tally;
use crate::op::{Completion, Durability, Op, Submit};
use crate::payload::Content;
use crate::slots::Slots;
use crate::spec::uri::TargetSpec;
use crate::spec::workload::PhaseFile;
use crate::target::{Attach, Caps, Secret, Session};

/// A target whose sessions do as their object's name says.
static ODD: Protocol = Protocol {
    name: "odd",
    example: "odd:",
    options: &[],
    check: |_| Ok(()),
    caps: |_| Caps {
        iodepth_max: 1,
        threads: Threads::Shared,
        control: Threads::Shared,
        flush: true,
        sync: false,
        stores: false,
        engine: "odd",
        connections: 0,
        ceiling: None,
    },
    control: |_| Err(Error::usage("nothing to control")),
    connect: |_, attach| match attach.object.as_str() {
        "panics-at-connect" => panic!("as ordered"),
        "fails" => Err(Error::new(Phase::Connect, Kind::Refused, "as ordered")),
        object => Ok(Box::new(Odd {
            object: object.to_owned(),
            operations: 0,
        })),
    },
    folder: None,
};

struct Odd {
    object: String,
    operations: u64,
}

impl Session for Odd {
    fn submit(&mut self, op: Op, _slots: &mut Slots) -> Result<Submit> {
        self.operations += 1;
        assert!(
            self.object != "panics-later" || self.operations < 10,
            "as ordered"
        );
        if self.object == "slow" {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Submit::Done(Completion {
            slot: op.slot,
            bytes: op.len,
        }))
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

fn job(object: &str, lane: u16, keys: &str) -> Job {
    let phase = toml::from_str::<PhaseFile>(keys)
        .expect(keys)
        .resolve("test")
        .expect(keys);
    Job {
        attach: Attach {
            object: object.into(),
            write: false,
            direct: false,
            durability: Durability::None,
            iodepth: 1,
            block_max: phase.block_max(),
            lane,
            round: 1,
        },
        content: Content {
            key: 1,
            ..phase.content(0)
        },
        phase,
        lane: 0,
        lanes: 1,
        base: 0,
        seed: 1,
        generation: None,
        flush: false,
        files: None,
    }
}

fn launch(jobs: Vec<Job>, stop: &Arc<AtomicBool>) -> Fleet {
    let login = Login {
        spec: TargetSpec::parse("null:").expect("a URI"),
        secret: Secret::default(),
        connect_timeout_ms: 1_000,
        io_timeout_ms: 1_000,
    };
    Fleet::launch(&ODD, &login, jobs, stop).expect("threads")
}

const PASS: &str = "rw='read'\nbs='4k'\nsize='1M'";
const ENDLESS: &str = "rw='read'\nbs='4k'\nsize='1M'\nruntime=3600\nramp_time=0";
const PATIENCE: Duration = Duration::from_secs(20);

fn report(fleet: &Fleet) -> Report {
    match fleet.next(PATIENCE) {
        Some((_, Event::Report(report))) => *report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn workers_start_together_and_report() {
    let stop = Arc::new(AtomicBool::new(false));
    let mut fleet = launch((0..4).map(|lane| job("", lane, PASS)).collect(), &stop);
    fleet.ready(PATIENCE, &AtomicBool::new(false)).expect("up");
    let start = fleet.go();
    for _ in 0..4 {
        let report = report(&fleet);
        assert_eq!((report.error, report.started_ns), (None, start));
        assert_eq!(report.read.bytes, 1 << 20);
    }
    let seen: u64 = fleet.live().iter().map(|live| live.read().read.ops).sum();
    assert_eq!(seen, 4 * 256);
}

#[test]
fn a_worker_that_panics_or_fails_before_the_start_ends_the_wait() {
    for (object, word) in [("panics-at-connect", "panicked"), ("fails", "as ordered")] {
        let stop = Arc::new(AtomicBool::new(false));
        let fleet = launch(vec![job("", 0, PASS), job(object, 1, PASS)], &stop);
        let asked = Instant::now();
        let error = fleet
            .ready(Duration::from_mins(10), &AtomicBool::new(false))
            .expect_err(object);
        assert!(error.message.contains(word), "{error}");
        assert!(asked.elapsed() < PATIENCE);
    }
}

#[test]
fn a_panic_under_way_is_a_report_too() {
    let stop = Arc::new(AtomicBool::new(false));
    let mut fleet = launch(vec![job("panics-later", 0, PASS)], &stop);
    fleet.ready(PATIENCE, &AtomicBool::new(false)).expect("up");
    fleet.go();
    let error = report(&fleet).error.expect("a panic");
    assert!(error.message.contains("panicked"), "{error}");
}

#[test]
fn a_fleet_that_is_dropped_stops_its_threads() {
    let stop = Arc::new(AtomicBool::new(false));
    let mut fleet = launch(vec![job("slow", 0, ENDLESS)], &stop);
    fleet.ready(PATIENCE, &AtomicBool::new(false)).expect("up");
    fleet.go();
    let live = Arc::clone(&fleet.live()[0]);
    while live.read().activity == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(fleet);
    // The thread holds the only other reference, and lets go of it when it ends.
    let deadline = Instant::now() + PATIENCE;
    while Arc::strong_count(&live) > 1 {
        assert!(Instant::now() < deadline, "it still runs");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_interruption_ends_the_wait() {
    let stop = Arc::new(AtomicBool::new(false));
    let fleet = launch(vec![job("", 0, PASS), job("", 1, PASS)], &stop);
    let error = fleet.ready(PATIENCE, &AtomicBool::new(true));
    assert_eq!(error.expect_err("stopped").kind, Kind::Interrupted);
}

#[test]
fn words_cross_a_pipe_unchanged() {
    let mut latency = crate::stats::latency_histogram();
    for value in [1, 999, 1_000_000, 60_000_000_000, 90_000_000_000] {
        latency.record(value).expect("in range");
    }
    let report = Report {
        read: Tally {
            ops: 5,
            bytes: u64::MAX,
            latency,
        },
        negotiated: "vers=3 \u{e9}\n\"".into(),
        error: Some(Error::new(Phase::Io, Kind::Gone, "line one\nline two")),
        ..Report::default()
    };
    let mut pipe = Vec::new();
    wire::send(&mut pipe, &wire::Word::Report(Box::new(report.clone()))).expect("sent");
    wire::send(&mut pipe, &wire::Word::Ready).expect("sent");
    pipe.extend_from_slice(b"not a word\n");
    let mut reader = pipe.as_slice();
    match wire::receive::<wire::Word>(&mut reader) {
        Ok(Some(wire::Word::Report(got))) => assert_eq!(*got, report),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        wire::receive(&mut reader),
        Ok(Some(wire::Word::Ready))
    ));
    let nonsense = wire::receive::<wire::Word>(&mut reader).expect_err("nonsense");
    assert_eq!(nonsense.kind, Kind::Protocol);
    assert!(matches!(wire::receive::<wire::Word>(&mut reader), Ok(None)));
}
