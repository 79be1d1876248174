//! The engine on small files against a target whose behaviour is known: what it reports must be what was simulated.

#[path = "support/engine.rs"]
#[expect(dead_code, reason = "shared with the tests on blocks")]
mod support;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use nasgauge::clock::{Clock, monotonic_ns};
use nasgauge::engine::{self, FileJob, Job, Live, Report};
use nasgauge::error::{Kind, Result};
use nasgauge::stats::percentile_ns;
use nasgauge::target::{self, Folder};
use support::{lane_job, login};

const MILLI: u64 = 1_000_000;

/// The job of one lane of `lanes` on files of these keys.
fn job(keys: &str, lane: u16, lanes: u16) -> Job {
    let files = FileJob {
        run: "run".into(),
        renamed: false,
        entries: None,
    };
    Job {
        files: Some(files),
        ..lane_job(keys, lane, lanes, "")
    }
}

fn run(folder: Box<dyn Folder>, job: &Job) -> Report {
    let live = Live::default();
    let stop = AtomicBool::new(false);
    let report = engine::files::run(folder, job, &live, &stop, || Some(monotonic_ns()));
    let seen = live.read();
    for (seen, tally) in [(seen.read, &report.read), (seen.write, &report.write)] {
        assert_eq!((seen.ops, seen.bytes), (tally.ops, tally.bytes));
        assert_eq!(
            tally.latency.len(),
            tally.ops,
            "a latency for each operation"
        );
    }
    report
}

/// Runs keys on a `sim:` with these options, on the virtual clock.
fn sim(options: &str, job: &Job) -> Report {
    let login = login(&format!("sim:?clock=virtual&{options}"));
    let protocol = target::check(&login.spec).expect(options);
    let open = protocol.folder.expect("sim has files");
    run(open(&login, &job.attach).expect("opens"), job)
}

fn good(report: Report) -> Report {
    assert_eq!(report.error, None);
    report
}

#[test]
fn each_operation_takes_the_models_time_and_moves_what_it_should() {
    // 100,000 bytes pass 1 GB/s in 100 us; everything takes 1 ms more.
    for (op, each, bytes) in [
        ("create", 1_100_000, 100_000),
        ("open", 1_100_000, 100_000),
        ("stat", MILLI, 0),
        ("rename", MILLI, 0),
        ("remove", MILLI, 0),
    ] {
        let keys = format!("rw='{op}'\nnrfiles=200\nfilesize=100000");
        let report = good(sim("latency=1ms&bandwidth=1GB/s", &job(&keys, 0, 1)));
        let (done, other) = match op {
            "open" | "stat" => (&report.read, &report.write),
            _ => (&report.write, &report.read),
        };
        assert_eq!(
            (done.ops, done.bytes, other.ops),
            (200, 200 * bytes, 0),
            "{op}"
        );
        assert_eq!(report.ended_ns - report.started_ns, 200 * each, "{op}");
        let median = percentile_ns(&done.latency, 50.0).expect("enough") as f64;
        assert!((median / each as f64 - 1.0).abs() < 0.001, "{op}: {median}");
        assert_eq!(report.flushed_ns, None);
    }
    let durable = job("rw='create'\nnrfiles=10\nfilesize=0\nfsync=1", 0, 1);
    let report = good(sim("latency=1ms&flush=2ms", &durable));
    assert_eq!(
        report.ended_ns - report.started_ns,
        10 * 3 * MILLI,
        "a flush each"
    );
}

#[test]
fn a_listing_is_one_operation_of_many_entries() {
    let keys = "rw='list'\nnrfiles=70\nruntime='50ms'\nramp_time=0\nlanes=3";
    for lane in 0..3 {
        let report = good(sim("latency=1ms&entries=71", &job(keys, lane, 3)));
        assert_eq!((report.read.ops, report.read.bytes), (50, 0));
        assert_eq!(report.entries, Some(71));
    }
    let once = good(sim("latency=1ms&entries=71", &job("rw='list'", 0, 1)));
    assert_eq!(once.read.ops, 1, "without a runtime");
    let mut strict = job("rw='list'", 0, 1);
    if let Some(files) = &mut strict.files {
        files.entries = Some(72);
    }
    let error = sim("entries=71", &strict).error.expect("one is missing");
    assert_eq!(error.kind, Kind::Corrupt);
    assert!(error.message.contains("71 entries of 72"), "{error}");
}

#[test]
fn lanes_have_disjoint_parts_and_time_starts_them_over_or_ends_them() {
    let ops = |keys: &str, lanes: u16| -> Vec<u64> {
        let report = |lane| good(sim("latency=1ms", &job(keys, lane, lanes)));
        let done = (0..lanes).map(report);
        done.map(|report| report.read.ops + report.write.ops)
            .collect()
    };
    assert_eq!(ops("rw='stat'\nnrfiles=10\nlanes=3", 3), [3, 3, 4]);
    assert_eq!(
        ops("rw='stat'\nnrfiles=10\nruntime='25ms'\nramp_time=0", 1),
        [25]
    );
    assert_eq!(ops("rw='create'\nnrfiles=10\nruntime='25ms'", 1), [10]);
    assert_eq!(ops("rw='create'\nnrfiles=100\nruntime='25ms'", 1), [25]);
    assert_eq!(ops("rw='remove'\nnrfiles=100\nruntime='25ms'", 1), [25]);
}

#[test]
fn the_ramp_is_excluded_exactly() {
    // Completions come each millisecond. The ramp ends with that of 11 ms; 12 to 31 ms count.
    let keys = "rw='stat'\nnrfiles=10\nramp_time='10500us'\nruntime='20ms'";
    let report = good(sim("latency=1ms", &job(keys, 0, 1)));
    assert_eq!(report.read.ops, 20);
    assert_eq!(report.ended_ns - report.started_ns, 20 * MILLI);
}

#[test]
fn a_fault_ends_the_run_with_what_was_counted() {
    for (options, kind) in [
        ("fail_at=8", Kind::Other),
        ("gone_at=8", Kind::Gone),
        ("full_at=8", Kind::NoSpace),
    ] {
        let report = sim(
            &format!("latency=1ms&{options}"),
            &job("rw='create'\nnrfiles=20", 0, 1),
        );
        assert_eq!(report.error.expect(options).kind, kind);
        assert_eq!(report.write.ops, 7, "{options}");
    }
    let short = sim(
        "short_at=3",
        &job("rw='open'\nnrfiles=20\nfilesize=1000", 0, 1),
    );
    let message = short.error.expect("half a file").message;
    assert!(
        message.contains("'run.00000002' holds 500 bytes, and 1000 were written"),
        "{message}"
    );
}

/// What was called, on a clock that moves with the calls alone.
#[derive(Default)]
struct Notes {
    time: Rc<Cell<u64>>,
    calls: Rc<RefCell<Vec<String>>>,
    kept: Rc<RefCell<Vec<u8>>>,
}

impl Notes {
    fn note(&self, call: String) {
        self.time.set(self.time.get() + MILLI);
        self.calls.borrow_mut().push(call);
    }
}

impl Folder for Notes {
    fn create(&mut self, name: &str, content: &[u8], durable: bool) -> Result<()> {
        self.note(format!("create {name} {durable}"));
        self.kept.borrow_mut().extend(content);
        Ok(())
    }
    fn read(&mut self, name: &str, buffer: &mut [u8]) -> Result<usize> {
        self.note(format!("read {name}"));
        buffer.copy_from_slice(&self.kept.borrow()[..buffer.len()]);
        self.kept.borrow_mut().drain(..buffer.len());
        Ok(buffer.len())
    }
    fn size(&mut self, name: &str) -> Result<Option<u64>> {
        self.note(format!("size {name}"));
        Ok(Some(999))
    }
    fn list(&mut self) -> Result<u64> {
        Ok(0)
    }
    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        self.note(format!("{from} to {to}"));
        Ok(())
    }
    fn remove(&mut self, name: &str) -> Result<()> {
        self.note(format!("remove {name}"));
        Ok(())
    }
    fn clock(&self) -> Clock {
        Clock::Virtual(Rc::clone(&self.time))
    }
}

/// A folder that notes, and what it will have noted.
fn notes(kept: &Rc<RefCell<Vec<u8>>>) -> (Box<dyn Folder>, Rc<RefCell<Vec<String>>>) {
    let notes = Notes {
        kept: Rc::clone(kept),
        ..Notes::default()
    };
    let calls = Rc::clone(&notes.calls);
    (Box::new(notes), calls)
}

#[test]
fn names_go_there_and_back() {
    let (folder, calls) = notes(&Rc::default());
    let keys = "rw='rename'\nnrfiles=2\nruntime='3ms'\nramp_time=0";
    good(run(folder, &job(keys, 0, 1)));
    let want = [
        "run.00000000 to run.00000000.renamed",
        "run.00000001 to run.00000001.renamed",
        "run.00000000.renamed to run.00000000",
    ];
    assert_eq!(*calls.borrow(), want);
}

#[test]
fn what_is_written_verifies_and_a_wrong_byte_or_size_is_found() {
    for size in [0usize, 1, 511, 512, 1000, 5000] {
        let kept = Rc::default();
        let keys = |op: &str| format!("rw='{op}'\nnrfiles=5\nfilesize={size}\nverify=true");
        good(run(notes(&kept).0, &job(&keys("create"), 0, 1)));
        let whole = kept.borrow().clone();
        assert_eq!(whole.len(), 5 * size);
        good(run(notes(&kept).0, &job(&keys("open"), 0, 1)));
        if size > 8 {
            kept.borrow_mut().extend(&whole);
            kept.borrow_mut()[3 * size + 8] ^= 1;
            let error = run(notes(&kept).0, &job(&keys("open"), 0, 1)).error;
            let error = error.expect("a wrong byte");
            assert_eq!(error.kind, Kind::Corrupt);
            assert!(error.message.contains("of 'run.00000003'"), "{error}");
        }
    }
    let other = job("rw='stat'\nnrfiles=5\nfilesize=1000", 0, 1);
    let error = run(notes(&Rc::default()).0, &other).error;
    let message = error.expect("another size").message;
    assert!(
        message.contains("has 999 bytes, and 1000 were written"),
        "{message}"
    );
}
