//! Runs on the server's own storage: the engine of every other run, on a file without a name or on an existing file.
//!
//! What is written goes to a file of our own that has no name (`O_TMPFILE`, else unlinked at once), so that nothing is
//! left however this ends. What exists already is only read. Must not know: what the client measures beside it. Times
//! are nanoseconds, sizes bytes.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::fs::{Advice, Mode, OFlags, fadvise, fstatvfs, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::allowed::{Allowed, Place};
use super::errand::Voice;
use crate::clock::monotonic_ns;
use crate::engine::{self, Job, Live, Report};
use crate::error::{Error, Kind, Phase as Step, Result};
use crate::fleet::agent::wire::{Answer, Storage, StorageReport, WORKING_PERIOD};
use crate::op::Durability;
use crate::payload::{Content, mix};
use crate::probe::process;
use crate::spec::workload::{Phase, PhaseFile};
use crate::target::Attach;
use crate::target::local::{Opened, direct};
use crate::units::Bytes;

/// Memory that all buffers together may take.
const BUFFERS_MAX: u64 = 4 << 30;
/// Of the free space, this part stays free.
const SPARE_PERCENT: u64 = 5;
/// Longest wait for one operation.
const IO_TIMEOUT: Duration = Duration::from_secs(30);
/// The blocks in which a test file is laid.
const LAYING_BLOCK: u64 = 1 << 20;
/// Time between "all are ready" and the common start.
const START_DELAY_NS: u64 = 20_000_000;

/// Runs a plan and gives what it found.
pub(super) fn run(
    allowed: &Allowed,
    writes: bool,
    plan: &Storage,
    voice: &mut Voice,
) -> Result<StorageReport> {
    let phase = &plan.phase;
    check(phase)?;
    let place = allowed.place(&plan.path)?;
    let scratch = place.is_directory()?;
    if phase.rw.writes() && !scratch {
        return Err(Error::safety(format!(
            "{} exists already, so the agent only reads it; to measure writes name a directory",
            place.name()
        )));
    }
    if scratch && !writes {
        return Err(Error::safety(format!(
            "the agent was started without --allow-write, so it lays no test file in {}; allow that, or name an \
             existing file to read",
            place.name()
        )));
    }
    let opened = if scratch {
        lay(&place, plan, voice)?
    } else {
        existing(&place, phase)?
    };
    let before = process::read(Path::new("/"));
    let merged = lanes(&opened, plan, phase, Some(1), voice)?;
    let after = process::read(Path::new("/"));
    let moved = before
        .zip(after)
        .and_then(|(before, after)| after.since(&before));
    Ok(StorageReport {
        elapsed_ns: merged.ended_ns.saturating_sub(merged.started_ns),
        flush_ns: merged
            .flushed_ns
            .map(|flushed| flushed.saturating_sub(merged.ended_ns)),
        cpu_ns: merged.cpu_ns,
        negotiated: merged.negotiated,
        device_read_bytes: moved.map(|io| io.read_bytes),
        device_write_bytes: moved.map(|io| io.write_bytes),
        read: merged.read,
        write: merged.write,
    })
}

fn check(phase: &Phase) -> Result<()> {
    let wrong = |what: String| Error::usage(format!("the storage run can't be: {what}"));
    phase.validate().map_err(wrong)?;
    if phase.files.is_some() || phase.rw.file_op().is_some() {
        return Err(wrong("the agent runs blocks, not small files".to_owned()));
    }
    let operations = u64::from(phase.iodepth) * u64::from(phase.lanes);
    let buffers = operations.saturating_mul(phase.block_max().into());
    if buffers > BUFFERS_MAX {
        return Err(wrong(format!(
            "its buffers would take {}, more than {}",
            Bytes(buffers),
            Bytes(BUFFERS_MAX)
        )));
    }
    Ok(())
}

fn flags(phase: &Phase) -> OFlags {
    let mut flags = OFlags::empty();
    flags.set(OFlags::DIRECT, phase.direct);
    if phase.rw.writes() {
        match phase.durability {
            Durability::Datasync => flags |= OFlags::DSYNC,
            Durability::Sync => flags |= OFlags::SYNC,
            Durability::None | Durability::Flush => {}
        }
    }
    flags
}

fn opened(file: File, name: &str, phase: &Phase, write: bool) -> Result<Opened> {
    let direct = if phase.direct {
        Some(direct::alignment(&file, name)?)
    } else {
        None
    };
    Ok(Opened {
        file,
        name: name.to_owned(),
        write,
        direct,
        durability: phase.durability,
        io_timeout: IO_TIMEOUT,
        companion: None,
    })
}

/// An existing file or device, to be read.
fn existing(place: &Place<'_>, phase: &Phase) -> Result<Opened> {
    if phase.verify {
        let message = "verify needs the agent's own test file: what an existing one should hold is not known there";
        return Err(Error::usage(message));
    }
    let file = place.read(flags(phase)).map_err(|error| {
        if phase.direct && error.kind == Kind::Other {
            direct::refused(place.name(), "its file system does not offer it")
        } else {
            error
        }
    })?;
    let failed =
        |error: std::io::Error| Error::io(Step::Open, &error, &format!("inspect {}", place.name()));
    let status = file.metadata().map_err(failed)?;
    let size = if status.file_type().is_block_device() {
        rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
            .map_err(|errno| failed(errno.into()))?
    } else {
        status.size()
    };
    if size < phase.size.0 {
        return Err(Error::usage(format!(
            "{} has {}, less than the {} that are to be read",
            place.name(),
            Bytes(size),
            phase.size
        )));
    }
    opened(file, place.name(), phase, false)
}

/// A file without a name in the directory, filled where its content will be read or its blocks rewritten.
fn lay(place: &Place<'_>, plan: &Storage, voice: &mut Voice) -> Result<Opened> {
    let phase = &plan.phase;
    let directory = place.directory()?;
    let failed = |errno: Errno, doing: &str| {
        Error::io(
            Step::Prepare,
            &errno.into(),
            &format!("{doing} {}", place.name()),
        )
    };
    let space = fstatvfs(&directory).map_err(|errno| failed(errno, "ask for the free space of"))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if phase.size.0 > free - free / 100 * SPARE_PERCENT {
        return Err(Error::new(
            Step::Prepare,
            Kind::NoSpace,
            format!(
                "the test file of {} does not fit into {}, where {} are free",
                phase.size,
                place.name(),
                Bytes(free)
            ),
        ));
    }
    let file = nameless(&directory, flags(phase)).map_err(|errno| match errno {
        Errno::INVAL if phase.direct => {
            direct::refused(place.name(), "its file system does not offer it")
        }
        errno => failed(errno, "make a test file in"),
    })?;
    let name = format!("the test file in {}", place.name());
    let opened = opened(file.into(), &name, phase, true)?;
    if phase.rw.reads() || phase.rw.random() {
        let laying = PhaseFile {
            rw: Some(crate::spec::workload::Rw::Write),
            bs: Some(Bytes(LAYING_BLOCK)),
            size: Some(Bytes(phase.size.0.next_multiple_of(LAYING_BLOCK))),
            direct: Some(phase.direct),
            payload: Some(phase.payload),
            compress_percent: Some(phase.compress_percent),
            dedupe_percent: Some(phase.dedupe_percent),
            ..PhaseFile::default()
        };
        let laying = laying.resolve("laying")?;
        lanes(&opened, plan, &laying, None, voice).map_err(|error| Error {
            phase: Step::Prepare,
            ..error
        })?;
        // Reads are to come from the disks; where the file system can't forget, the device's bytes tell.
        let _ = fadvise(&opened.file, 0, None, Advice::DontNeed);
    }
    Ok(opened)
}

/// Makes a file that has no name, or loses it before anything else happens.
fn nameless(directory: &OwnedFd, extra: OFlags) -> rustix::io::Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | extra;
    match openat(directory, ".", flags | OFlags::TMPFILE, mode) {
        // What file systems and kernels say that have no such thing.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOSYS) => {}
        file => return file,
    }
    // The agent's end would end this process between the two calls; for their length it does not.
    let agent = rustix::process::getppid();
    rustix::process::set_parent_process_death_signal(None)?;
    let file = named(directory, flags, mode);
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if agent == rustix::process::getppid() {
        file
    } else {
        Err(Errno::CANCELED)
    }
}

fn named(directory: &OwnedFd, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let own = u64::from(Pid::as_raw(Some(rustix::process::getpid())).unsigned_abs());
    let mut last = Errno::EXIST;
    for turn in 0..16 {
        let name = format!(
            ".nasgauge-agent-{:016x}",
            mix(monotonic_ns() ^ mix(own) ^ turn)
        );
        match openat(
            directory,
            &name,
            flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW,
            mode,
        ) {
            Ok(file) => {
                unlinkat(directory.as_fd(), &name, rustix::fs::AtFlags::empty())?;
                return Ok(file);
            }
            Err(Errno::EXIST) => last = Errno::EXIST,
            Err(errno) => return Err(errno),
        }
    }
    Err(last)
}

/// What a lane says.
enum Word {
    Ready(Sender<u64>),
    Report(Box<Report>),
}

/// Runs a phase on all its lanes, and merges their reports.
fn lanes(
    opened: &Opened,
    plan: &Storage,
    phase: &Phase,
    generation: Option<u64>,
    voice: &mut Voice,
) -> Result<Report> {
    let stop = AtomicBool::new(false);
    let (sender, words) = channel();
    std::thread::scope(|scope| {
        for lane in 0..phase.lanes {
            let job = Job {
                generation,
                ..job(plan, phase, lane)
            };
            let file = opened.file.try_clone();
            let (sender, stop) = (sender.clone(), &stop);
            let body = move || {
                let work = || one_lane(file, opened, &job, stop, &sender);
                let report = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                    let message = "a worker of the agent panicked: a bug";
                    failed(Error::new(Step::Io, Kind::Other, message))
                });
                // The other end waits until every lane has reported.
                let _ = sender.send(Word::Report(Box::new(report)));
            };
            let started = std::thread::Builder::new().spawn_scoped(scope, body);
            started.map_err(|error| Error::io(Step::Prepare, &error, "start a worker thread"))?;
        }
        drop(sender);
        gather(&words, phase.lanes, voice)
    })
}

fn job(plan: &Storage, phase: &Phase, lane: u16) -> Job {
    Job {
        attach: Attach {
            object: String::new(),
            write: phase.rw.writes(),
            direct: phase.direct,
            durability: phase.durability,
            iodepth: phase.iodepth,
            block_max: phase.block_max(),
            lane,
            round: 1,
        },
        phase: phase.clone(),
        lane,
        lanes: phase.lanes,
        base: 0,
        seed: plan.seed,
        content: Content {
            key: mix(plan.seed),
            ..phase.content(0)
        },
        generation: None,
        flush: phase.rw.writes(),
        files: None,
    }
}

fn failed(error: Error) -> Report {
    Report {
        error: Some(error),
        ..Report::default()
    }
}

fn one_lane(
    file: std::io::Result<File>,
    opened: &Opened,
    job: &Job,
    stop: &AtomicBool,
    sender: &Sender<Word>,
) -> Report {
    let session = file
        .map_err(|error| Error::io(Step::Open, &error, "copy a file's descriptor"))
        .and_then(|file| {
            Opened {
                file,
                name: opened.name.clone(),
                companion: None,
                ..*opened
            }
            .start(None, &job.attach)
        });
    let session = match session {
        Ok(session) => session,
        Err(error) => return failed(error),
    };
    engine::run(session, job, &Live::default(), stop, || {
        let (go, wait) = channel();
        sender.send(Word::Ready(go)).ok()?;
        wait.recv().ok()
    })
}

/// Starts the lanes together once all are ready, says meanwhile that there is work, and merges the reports.
fn gather(words: &Receiver<Word>, lanes: u16, voice: &mut Voice) -> Result<Report> {
    let mut waiting = Vec::new();
    let mut broken = false;
    let mut merged: Option<Report> = None;
    let mut left = lanes;
    while left > 0 {
        match words.recv_timeout(Duration::from_secs(WORKING_PERIOD)) {
            // A lane whose start never comes ends at once.
            Ok(Word::Ready(_)) if broken => {}
            Ok(Word::Ready(go)) => {
                waiting.push(go);
                if waiting.len() == usize::from(lanes) {
                    let start = monotonic_ns() + START_DELAY_NS;
                    // A lane that is gone has reported.
                    for go in waiting.drain(..) {
                        let _ = go.send(start);
                    }
                }
            }
            Ok(Word::Report(report)) => {
                left -= 1;
                if report.error.is_some() {
                    broken = true;
                    waiting.clear();
                }
                merge(&mut merged, *report);
            }
            Err(RecvTimeoutError::Timeout) => voice.say(Answer::Working)?,
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let merged = merged.unwrap_or_default();
    match merged.error {
        Some(error) => Err(error),
        None => Ok(merged),
    }
}

/// Adds a lane's report: from the first start to the last end, the CPU time of all.
fn merge(merged: &mut Option<Report>, report: Report) {
    let Some(all) = merged else {
        *merged = Some(report);
        return;
    };
    all.read.merge(&report.read);
    all.write.merge(&report.write);
    all.started_ns = all.started_ns.min(report.started_ns);
    all.ended_ns = all.ended_ns.max(report.ended_ns);
    all.flushed_ns = all.flushed_ns.max(report.flushed_ns);
    all.cpu_ns += report.cpu_ns;
    if all.negotiated.is_empty() {
        all.negotiated = report.negotiated;
    }
    if all.error.is_none() {
        all.error = report.error;
    }
}
