//! Jobs and runs of the engine for the tests beside: a phase from workload keys, a session from a URI.

use std::sync::atomic::AtomicBool;

use nasgauge::clock::monotonic_ns;
use nasgauge::engine::{self, Job, Live, Report};
use nasgauge::payload::Content;
use nasgauge::spec::uri::TargetSpec;
use nasgauge::spec::workload::{Phase, PhaseFile};
use nasgauge::target::{self, Attach, Login, Secret, Session};

/// A phase from the keys of a workload file.
pub fn phase(keys: &str) -> Phase {
    toml::from_str::<PhaseFile>(keys)
        .expect(keys)
        .resolve("test")
        .expect(keys)
}

/// The job of one lane of `lanes` on `object`.
pub fn lane_job(keys: &str, lane: u16, lanes: u16, object: &str) -> Job {
    let phase = phase(keys);
    Job {
        attach: Attach {
            object: object.into(),
            write: phase.rw.writes(),
            direct: phase.direct,
            durability: phase.durability,
            iodepth: phase.iodepth,
            block_max: phase.block_max(),
            lane,
            round: 1,
        },
        content: Content {
            key: 7,
            ..phase.content(0)
        },
        phase,
        lane,
        lanes,
        base: 0,
        seed: 1,
        generation: Some(1_000),
        flush: true,
        files: None,
    }
}

/// The job of a single lane.
pub fn job(keys: &str) -> Job {
    lane_job(keys, 0, 1, "")
}

/// A login without a password.
pub fn login(uri: &str) -> Login {
    Login {
        spec: TargetSpec::parse(uri).expect(uri),
        secret: Secret::default(),
        connect_timeout_ms: 10_000,
        io_timeout_ms: 60_000,
    }
}

/// An open session of a registered protocol.
pub fn session(login: &Login, job: &Job) -> Box<dyn Session> {
    let uri = &login.spec.uri;
    let protocol = target::check(&login.spec).expect(uri);
    (protocol.connect)(login, &job.attach).expect(uri)
}

/// Runs a job on a session at once, to its end.
pub fn run(session: Box<dyn Session>, job: &Job) -> Report {
    let live = Live::default();
    let report = engine::run(session, job, &live, &AtomicBool::new(false), || {
        Some(monotonic_ns())
    });
    let seen = live.read();
    assert_eq!(
        (seen.read.ops, seen.read.bytes),
        (report.read.ops, report.read.bytes)
    );
    assert_eq!(
        (seen.write.ops, seen.write.bytes),
        (report.write.ops, report.write.bytes)
    );
    report
}
