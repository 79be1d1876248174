//! What the agent does on its own storage, and what it refuses to.

use std::path::Path;

use nasgauge::error::{Kind, Result};
use nasgauge::fleet::agent::Agent;
use nasgauge::fleet::agent::wire::{Marker, Sample, Storage, StorageReport};
use nasgauge::spec::workload::{Phase, PhaseFile};

use crate::harness::{agent, names};

/// A phase by its keys.
pub fn phase(keys: &str) -> Phase {
    let file = toml::from_str::<PhaseFile>(&keys.replace(' ', "\n")).expect(keys);
    file.resolve("test").expect(keys)
}

/// A plan on a path.
pub fn plan(path: &Path, keys: &str) -> Storage {
    Storage {
        path: path.display().to_string(),
        phase: phase(keys),
        seed: 7,
        seconds: 60,
    }
}

fn run(agent: &mut Agent, path: &Path, keys: &str) -> Result<StorageReport> {
    agent.storage(plan(path, keys))
}

#[test]
fn runs_move_what_their_plans_say_and_leave_nothing() {
    let base = tempfile::tempdir().expect("a directory");
    let mut agent = agent(&format!("--allow {} --allow-write", base.path().display()));
    let report = run(
        &mut agent,
        base.path(),
        "rw='read' bs='64k' size='8M' lanes=2 iodepth=4",
    )
    .expect("read");
    assert_eq!((report.read.ops, report.read.bytes), (128, 8 << 20));
    assert_eq!(report.read.latency.len(), 128);
    assert_eq!(report.write.ops, 0);
    assert!(report.elapsed_ns > 0 && report.flush_ns.is_none());
    assert!(
        report.negotiated.contains("engine="),
        "{}",
        report.negotiated
    );
    let report = run(
        &mut agent,
        base.path(),
        "rw='randwrite' bs='4k' size='4M' bytes='4M' direct=true",
    )
    .or_else(|error| match error.kind {
        // tmpfs of older kernels has no direct I/O.
        Kind::Unsupported => run(
            &mut agent,
            base.path(),
            "rw='randwrite' bs='4k' size='4M' bytes='4M'",
        ),
        _ => Err(error),
    })
    .expect("written");
    assert_eq!((report.write.ops, report.write.bytes), (1024, 4 << 20));
    assert!(report.flush_ns.is_some());
    let report = run(
        &mut agent,
        base.path(),
        "rw='randrw' bs='16k' size='4M' runtime='1s' verify=true",
    )
    .expect("verified");
    assert!(report.read.ops > 0 && report.write.ops > 0);
    let seconds = report.elapsed_ns as f64 / 1e9;
    assert!((0.9..10.0).contains(&seconds), "{seconds}");
    assert_eq!(names(base.path()), [""; 0]);
}

#[test]
fn an_existing_file_is_read_and_never_written() {
    let base = tempfile::tempdir().expect("a directory");
    let file = base.path().join("data");
    let content = vec![3; 2 << 20];
    std::fs::write(&file, &content).expect("written");
    let mut agent = agent(&format!("--allow {} --allow-write", base.path().display()));
    let report = run(
        &mut agent,
        &file,
        "rw='randread' bs='4k' size='2M' bytes='1M'",
    );
    assert_eq!(report.expect("read").read.bytes, 1 << 20);
    for (keys, kind, words) in [
        (
            "rw='write' bs='4k' size='1M'",
            Kind::Safety,
            "only reads it",
        ),
        (
            "rw='randrw' bs='4k' size='1M'",
            Kind::Safety,
            "only reads it",
        ),
        ("rw='read' bs='4k' size='4M'", Kind::Usage, "less than"),
        (
            "rw='read' bs='4k' size='1M' verify=true",
            Kind::Usage,
            "verify",
        ),
    ] {
        let error = run(&mut agent, &file, keys).expect_err(keys);
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(words), "{error}");
    }
    assert_eq!(std::fs::read(&file).expect("read"), content);
}

#[test]
fn without_permission_every_path_is_refused() {
    let base = tempfile::tempdir().expect("a directory");
    std::fs::write(base.path().join("data"), vec![0; 1 << 20]).expect("written");
    let path = base.path().display().to_string();
    let mut agent = agent("");
    let marker = || Marker {
        path: path.clone(),
        name: "nasgauge-0123456789abcdef".into(),
        content: String::new(),
    };
    let sample = Sample {
        path: format!("{path}/data"),
        offset: 0,
        content: vec![0; 512],
    };
    let errors = [
        run(&mut agent, base.path(), "rw='read' bs='4k' size='1M'").expect_err("a directory"),
        run(
            &mut agent,
            &base.path().join("data"),
            "rw='read' bs='4k' size='1M'",
        )
        .expect_err("a file"),
        run(
            &mut agent,
            Path::new("/dev/null"),
            "rw='read' bs='4k' size='1M'",
        )
        .expect_err("a device"),
        agent.find(marker()).expect_err("a marker"),
        agent.same(sample).expect_err("a sample"),
        agent.drop_caches().expect_err("a cache"),
    ];
    for error in errors {
        assert_eq!(error.kind, Kind::Safety, "{error}");
        assert!(error.message.contains("started without --allow"), "{error}");
    }
    // Read-only: laying is refused too, and says what would allow it.
    let mut agent = crate::harness::agent(&format!("--allow {path}"));
    let error = run(&mut agent, base.path(), "rw='read' bs='4k' size='1M'").expect_err("laying");
    assert!(error.message.contains("--allow-write"), "{error}");
    assert_eq!(agent.find(marker()), Ok(None));
    assert_eq!(names(base.path()), ["data"]);
}

#[test]
fn proofs_hold_over_the_wire() {
    let base = tempfile::tempdir().expect("a directory");
    let name = "nasgauge-00ff00ff00ff00ff";
    std::fs::create_dir(base.path().join("share")).expect("made");
    std::fs::write(base.path().join("share").join(name), "token").expect("written");
    let mut agent = agent(&format!("--allow {}", base.path().display()));
    let mut find = |content: &str| {
        agent.find(Marker {
            path: base.path().display().to_string(),
            name: name.into(),
            content: content.into(),
        })
    };
    assert_eq!(find("token"), Ok(Some(format!("share/{name}"))));
    assert_eq!(find("other"), Ok(None));
    let path = base.path().join("share").join(name);
    std::fs::write(&path, [9; 1024]).expect("written");
    let mut same = |byte| {
        agent.same(Sample {
            path: path.display().to_string(),
            offset: 512,
            content: vec![byte; 512],
        })
    };
    assert_eq!((same(9), same(8)), (Ok(true), Ok(false)));
}

#[test]
fn a_plan_that_can_t_be_is_refused_before_anything_is_made() {
    let base = tempfile::tempdir().expect("a directory");
    let mut agent = agent(&format!("--allow {} --allow-write", base.path().display()));
    let mut plan = plan(base.path(), "rw='write' bs='1M' size='4M'");
    plan.phase.size = nasgauge::units::Bytes(1 << 60);
    let error = agent.storage(plan.clone()).expect_err("too large");
    assert_eq!(error.kind, Kind::NoSpace, "{error}");
    plan.phase.iodepth = 0;
    let error = agent.storage(plan.clone()).expect_err("no depth");
    assert_eq!(error.kind, Kind::Usage, "{error}");
    plan.phase.iodepth = 4096;
    plan.phase.lanes = 16;
    plan.phase.blocks = vec![(nasgauge::units::Bytes(1 << 20), 100)];
    let error = agent.storage(plan).expect_err("too much memory");
    assert!(error.message.contains("buffers"), "{error}");
    assert_eq!(names(base.path()), [""; 0]);
}

#[test]
fn an_allowed_path_that_is_not_there_is_an_error_at_once() {
    let error = Agent::connect(&format!(
        "{} agent --allow /nonexistent/tank",
        crate::harness::PROGRAM
    ));
    let error = error.err().expect("refused").to_string();
    assert!(
        error.contains("exit code 2") && error.contains("/nonexistent/tank"),
        "{error}"
    );
}
