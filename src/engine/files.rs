//! The loop of one worker on small files: one whole operation at a time, the clock around the call and nothing else.
//!
//! Names and content are made before the clock starts, content is checked after it has stopped. The files are numbered;
//! lanes have disjoint, contiguous parts of them and go through theirs in order. With a runtime, what may be done again
//! (open, stat, list, rename) starts over at the end of the part; making and removing end there. Measured time is that
//! of `worker`.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::clock::Clock;
use crate::engine::worker::thread_cpu_ns;
use crate::engine::{FileJob, Job, Live, Report};
use crate::error::{Error, Kind, Phase, Result};
use crate::guard::names;
use crate::op::{Direction, Durability, FileOp};
use crate::payload::{GENERATION_MAX, LAID, Payload, SECTOR};
use crate::target::Folder;

/// Runs one phase on an open directory; as [`crate::engine::worker::run`] does on an open session.
pub fn run(
    folder: Box<dyn Folder>,
    job: &Job,
    live: &Live,
    stop: &AtomicBool,
    gate: impl FnOnce() -> Option<u64>,
) -> Report {
    let (Some(op), Some(files), Some(shared)) =
        (job.phase.rw.file_op(), job.phase.files, &job.files)
    else {
        let message = "a worker on small files got a phase on blocks: a bug";
        return Report {
            error: Some(Error::new(Phase::Prepare, Kind::Other, message)),
            ..Report::default()
        };
    };
    let part = match op {
        // Every lane lists the whole directory.
        FileOp::List => 0..1,
        _ => part(files.nrfiles, job.lane, job.lanes),
    };
    let mut walk = Walk {
        clock: folder.clock(),
        folder,
        job,
        op,
        shared,
        live,
        stop,
        next: part.start,
        part,
        renamed: shared.renamed,
        again: job.phase.runtime.is_some() && !op.finite(),
        content: vec![
            0;
            if op.moves_content() {
                files.filesize.0 as usize
            } else {
                0
            }
        ],
        filesize: files.filesize.0,
        payload: Payload::new(job.content.clone()),
        generation: job.generation.unwrap_or(LAID),
        name: String::new(),
        other_name: String::new(),
        ramp_end: 0,
        end: u64::MAX,
        measuring: false,
        cpu_start: 0,
        wire_start: 0,
        result: Report::default(),
    };
    let Some(start) = gate() else {
        return Report {
            stopped: true,
            ..Report::default()
        };
    };
    walk.begin(start);
    let result = walk.measure();
    walk.report(result.err())
}

/// The files of one lane.
fn part(nrfiles: u32, lane: u16, lanes: u16) -> Range<u32> {
    let upto = |lane: u64| (u64::from(nrfiles) * lane / u64::from(lanes.max(1))) as u32;
    upto(u64::from(lane))..upto(u64::from(lane) + 1)
}

struct Walk<'a> {
    folder: Box<dyn Folder>,
    clock: Clock,
    job: &'a Job,
    op: FileOp,
    shared: &'a FileJob,
    live: &'a Live,
    stop: &'a AtomicBool,
    part: Range<u32>,
    next: u32,
    renamed: bool,
    /// Starts over at the end of the part.
    again: bool,
    /// One file's content.
    content: Vec<u8>,
    filesize: u64,
    payload: Payload,
    generation: u64,
    name: String,
    other_name: String,
    ramp_end: u64,
    end: u64,
    measuring: bool,
    cpu_start: u64,
    wire_start: u64,
    result: Report,
}

impl Walk<'_> {
    fn begin(&mut self, start: u64) {
        let start = if matches!(self.clock, Clock::Virtual(_)) {
            self.clock.now()
        } else {
            start
        };
        self.clock.sleep_until(start);
        self.ramp_end = start.saturating_add(self.job.phase.ramp_time.0);
        if let Some(runtime) = self.job.phase.runtime {
            self.end = self.ramp_end.saturating_add(runtime.0);
        }
        self.measuring = self.job.phase.ramp_time.0 == 0;
        self.measure_from(start);
    }

    fn measure_from(&mut self, now: u64) {
        self.result.started_ns = now;
        self.result.ended_ns = now;
        self.cpu_start = thread_cpu_ns();
        self.wire_start = self.folder.wire_ops().unwrap_or(0);
    }

    fn measure(&mut self) -> Result<()> {
        while !self.over() {
            self.lay_out();
            let begun = self.clock.now();
            let bytes = self.perform()?;
            let ended = self.clock.now();
            self.count(bytes, ended, ended.saturating_sub(begun));
            self.check()?;
            self.next += 1;
            if self.next == self.part.end && self.again {
                self.next = self.part.start;
                self.renamed ^= self.op == FileOp::Rename;
            }
        }
        Ok(())
    }

    /// Whether nothing more may start.
    fn over(&mut self) -> bool {
        let stopped = self.stop.load(Relaxed);
        self.result.stopped |= stopped;
        stopped || self.next >= self.part.end || self.clock.now() >= self.end
    }

    /// Makes names and content of the next operation.
    fn lay_out(&mut self) {
        let (run, number) = (&self.shared.run, self.next);
        names::make(&mut self.name, run, number, self.renamed);
        if self.op == FileOp::Rename {
            names::make(&mut self.other_name, run, number, !self.renamed);
        }
        if self.op == FileOp::Create {
            let place = self.place();
            self.payload.fill(&mut self.content, place, self.generation);
            self.generation += u64::from(self.job.generation.is_some());
        }
    }

    /// Where in the content of all files this one's begins: no two files are alike.
    fn place(&self) -> u64 {
        u64::from(self.next) * self.filesize.next_multiple_of(SECTOR as u64)
    }

    /// The operation; gives the bytes of content that it moved.
    fn perform(&mut self) -> Result<u64> {
        let wrong = |message: String| Err(Error::new(Phase::Io, Kind::Corrupt, message));
        let name = &self.name;
        match self.op {
            FileOp::Create => {
                let durable = self.job.phase.durability == Durability::Sync;
                self.folder.create(name, &self.content, durable)?;
                self.result.written += self.filesize;
                return Ok(self.filesize);
            }
            FileOp::Open => {
                let read = self.folder.read(name, &mut self.content)?;
                if read as u64 != self.filesize {
                    return wrong(format!(
                        "'{name}' holds {read} bytes, and {} were written",
                        self.filesize
                    ));
                }
                return Ok(self.filesize);
            }
            FileOp::Stat => {
                if let Some(size) = self
                    .folder
                    .size(name)?
                    .filter(|size| *size != self.filesize)
                {
                    return wrong(format!(
                        "'{name}' has {size} bytes, and {} were written",
                        self.filesize
                    ));
                }
            }
            FileOp::List => {
                let found = self.folder.list()?;
                if let Some(there) = self.shared.entries.filter(|there| *there != found) {
                    return wrong(format!("a listing showed {found} entries of {there}"));
                }
                self.result.entries = Some(found);
            }
            FileOp::Rename => self.folder.rename(name, &self.other_name)?,
            FileOp::Remove => self.folder.remove(name)?,
        }
        Ok(0)
    }

    /// Counts an operation, unless it ended within the ramp or begins the measured time.
    fn count(&mut self, bytes: u64, ended: u64, latency: u64) {
        self.live.tick(bytes as u32);
        if self.measuring {
            let direction = self.op.direction();
            self.live.count(direction, bytes as u32, latency);
            let tally = match direction {
                Direction::Read => &mut self.result.read,
                Direction::Write => &mut self.result.write,
            };
            tally.ops += 1;
            tally.bytes += bytes;
            tally.latency.saturating_record(latency.max(1));
            self.result.ended_ns = ended;
        } else if ended >= self.ramp_end {
            self.measuring = true;
            self.measure_from(ended);
        }
    }

    /// Checks content that was read.
    fn check(&self) -> Result<()> {
        if self.op != FileOp::Open || !self.job.phase.verify {
            return Ok(());
        }
        let place = self.place();
        let checked = self.payload.check(&self.content, place, GENERATION_MAX);
        checked.map_err(|wrong| {
            let message = format!(
                "wrong data at offset {} of '{}': {}",
                wrong.offset - place,
                self.name,
                wrong.what
            );
            Error::new(Phase::Io, Kind::Corrupt, message)
        })
    }

    fn report(mut self, error: Option<Error>) -> Report {
        self.result.cpu_ns = thread_cpu_ns().saturating_sub(self.cpu_start);
        let sent = self.folder.wire_ops();
        self.result.wire_ops = sent.map(|sent| sent.saturating_sub(self.wire_start));
        self.result.generations = self.generation - self.job.generation.unwrap_or(LAID);
        self.result.negotiated = self.folder.negotiated();
        self.result.error = error;
        self.result
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_are_disjoint_and_cover_all_files() {
        for (nrfiles, lanes) in [(10, 3), (1, 1), (4, 4), (10_000_000, 1024)] {
            let parts: Vec<_> = (0..lanes).map(|lane| part(nrfiles, lane, lanes)).collect();
            assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, nrfiles));
            assert!(
                parts
                    .array_windows()
                    .all(|[one, next]| one.end == next.start)
            );
            assert!(parts.iter().all(|part| !part.is_empty()));
        }
    }
}
