//! The loop of a copy: a reader and a writer over one ring of slots.
//!
//! Overlapped ([`overlapped`]) they are two threads that pass filled and empty slots to one another; how long each stood still for
//! want of a slot is counted, and names the slower side. One after the other ([`in_turn`]) the ring is filled, written, made
//! durable and filled again, as a program does that stores what it forwards. Each block's digest is taken where it was read, so
//! that what was written can be compared with it afterwards ([`compare`]).
//!
//! Sessions are opened by the thread that uses them. Must not know: protocols, where anything lies, what becomes of the report.
//! Times are nanoseconds of `CLOCK_MONOTONIC`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::clock::monotonic_ns;
use crate::engine::Live;
use crate::error::{Error, Kind, Phase, Result};
use crate::slots::Slots;
use crate::target::Session;

mod lane;
mod sides;

use lane::{Lane, Piece};
use sides::{End, Reader, Writer};

/// Opens one side; called by the thread that will use it.
pub type Open<'a> = &'a (dyn Fn() -> Result<Box<dyn Session>> + Sync);

/// What is copied, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// Bytes to copy.
    pub bytes: u64,
    /// Bytes of a request; the last one may be shorter.
    pub block: u32,
    /// Slots of the ring, together as large as what may wait between reader and writer. Sessions are attached with so many
    /// operations, since they keep a place for each slot, whatever is under way on them.
    pub slots: u16,
    /// Where the source's bytes begin.
    pub source_base: u64,
    /// Where the destination's begin.
    pub destination_base: u64,
    /// Requests under way at the source.
    pub source_depth: u16,
    /// Requests under way at the destination.
    pub destination_depth: u16,
}

impl Task {
    /// How many blocks there are.
    fn blocks(&self) -> usize {
        self.bytes.div_ceil(u64::from(self.block.max(1))) as usize
    }

    fn at(&self, block: usize) -> Piece {
        let offset = block as u64 * u64::from(self.block);
        Piece {
            block,
            offset,
            len: u64::from(self.block).min(self.bytes - offset) as u32,
        }
    }
}

/// One side of a copy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Side {
    /// Bytes moved.
    pub bytes: u64,
    /// How long it stood still because the other one had all slots: nothing was under way, and nothing could start.
    pub waited_ns: u64,
    /// CPU time of its thread; one after the other, of both together.
    pub cpu_ns: u64,
    /// What the peers agreed on.
    pub negotiated: String,
}

/// What a copy came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// The reader.
    pub source: Side,
    /// The writer.
    pub destination: Side,
    /// Both sides were open.
    pub started_ns: u64,
    /// The last write was accepted.
    pub accepted_ns: u64,
    /// The last flush ended; None where the destination has none.
    pub stored_ns: Option<u64>,
    /// The digest of each block, where all were read.
    pub digests: Vec<u64>,
    /// Why it ended early; the destination's own error before one of the source's that followed from it.
    pub error: Option<Error>,
    /// It was told to stop.
    pub stopped: bool,
}

/// Copies with reader and writer at the same time.
pub fn overlapped(
    task: &Task,
    source: Open<'_>,
    destination: Open<'_>,
    live: [&Live; 2],
    stop: &AtomicBool,
) -> Report {
    let (reading, writing) = match Slots::pair(task.slots, task.block as usize) {
        Ok(pair) => pair,
        Err(error) => return failed(memory(&error)),
    };
    let (filled, to_write) = sync_channel(usize::from(task.slots));
    let (emptied, to_fill) = all_empty(task);
    // Nobody starts before both are open, so that opening is nobody's waiting.
    let both_open = std::sync::Barrier::new(2);
    let broken = AtomicBool::new(false);
    // A lane, where both sides have one; else the error of one's own.
    let met = &|opened: Result<Lane>| {
        broken.fetch_or(opened.is_err(), Relaxed);
        both_open.wait();
        match opened {
            Err(error) => Err(Some(error)),
            Ok(_) if broken.load(Relaxed) => Err(None),
            Ok(lane) => Ok(lane),
        }
    };
    let ends = std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut slots = reading;
            match met(Lane::reading(task, source, &mut slots)) {
                Err(error) => End::without_a_start(error),
                Ok(lane) => {
                    let mut reader = Reader::new(task, lane, slots, live[0]);
                    let result = reader.run(&to_fill, &filled, stop);
                    reader.end(result)
                }
            }
        });
        let mut slots = writing;
        let writer = match met(Lane::writing(task, destination, &mut slots)) {
            Err(error) => End::without_a_start(error),
            Ok(lane) => {
                let mut writer = Writer::new(task, lane, slots, live[1]);
                let result = writer.run(&to_write, &emptied, stop);
                // A reader that waits for slots sees that nobody gives any back.
                drop(emptied);
                writer.end(result)
            }
        };
        (reader.join().unwrap_or_default(), writer)
    });
    together(ends)
}

/// Fills the ring, writes it, makes it durable, and again: nothing is read while anything is written.
pub fn in_turn(
    task: &Task,
    source: Open<'_>,
    destination: Open<'_>,
    live: [&Live; 2],
    stop: &AtomicBool,
) -> Report {
    let opened = Slots::pair(task.slots, task.block as usize)
        .map_err(|error| memory(&error))
        .and_then(|(mut reading, mut writing)| {
            let from = Lane::reading(task, source, &mut reading)?;
            let to = Lane::writing(task, destination, &mut writing)?;
            Ok((
                Reader::new(task, from, reading, live[0]),
                Writer::new(task, to, writing, live[1]),
            ))
        });
    let (mut reader, mut writer) = match opened {
        Ok(both) => both,
        Err(error) => return failed(error),
    };
    let started_ns = monotonic_ns();
    let (mut read, mut written) = (Ok(()), Ok(()));
    let (filled, to_write) = sync_channel(usize::from(task.slots));
    let (emptied, to_fill) = all_empty(task);
    while read.is_ok() && written.is_ok() && !reader.is_done() && !stop.load(Relaxed) {
        let began = monotonic_ns();
        read = reader.fill(&to_fill, &filled, stop);
        let turned = monotonic_ns();
        writer.side.waited_ns += turned - began;
        if read.is_ok() {
            written = writer
                .empty(&to_write, &emptied, stop)
                .and_then(|()| writer.store());
        }
        reader.side.waited_ns += monotonic_ns() - turned;
    }
    let mut report = together((reader.end(read), writer.end(written)));
    report.started_ns = started_ns;
    report.stopped |= stop.load(Relaxed);
    report
}

/// Reads what was written and compares it with what was read before; the offset of the first block that differs is in the error.
pub fn compare(
    task: &Task,
    written: Open<'_>,
    digests: &[u64],
    live: &Live,
    stop: &AtomicBool,
) -> Result<()> {
    let reading = Task {
        source_base: task.destination_base,
        source_depth: task.destination_depth,
        ..*task
    };
    let mut slots = Slots::new(task.slots, task.block as usize).map_err(|error| memory(&error))?;
    let lane = Lane::reading(&reading, written, &mut slots)?;
    let mut reader = Reader::new(&reading, lane, slots, live);
    let (filled, done) = sync_channel(usize::from(task.slots));
    let (emptied, to_fill) = all_empty(task);
    while !reader.is_done() && !stop.load(Relaxed) {
        reader.fill(&to_fill, &filled, stop)?;
        for (slot, _) in done.try_iter() {
            let _ = emptied.send(slot);
        }
    }
    if stop.load(Relaxed) {
        return Err(Error::new(
            Phase::Io,
            Kind::Interrupted,
            "stopped on request",
        ));
    }
    let mut pairs = reader.digests.iter().zip(digests).enumerate();
    let Some((block, _)) = pairs.find(|(_, (is, was))| is != was) else {
        return Ok(());
    };
    let piece = task.at(block);
    let message = format!(
        "the copy differs from what was read, at offset {} or in the {} bytes after it",
        piece.offset, piece.len
    );
    Err(Error::new(Phase::Io, Kind::Corrupt, message))
}

/// The way back of slots, with all of them on it; like the way there it has room for all, so that nothing is allocated and nobody
/// waits for room.
fn all_empty(task: &Task) -> (SyncSender<u16>, Receiver<u16>) {
    let (emptied, to_fill) = sync_channel(usize::from(task.slots));
    for slot in 0..task.slots {
        // Its receiver is here.
        let _ = emptied.send(slot);
    }
    (emptied, to_fill)
}

fn memory(error: &std::io::Error) -> Error {
    Error::io(Phase::Prepare, error, "reserve memory for the buffers")
}

fn failed(error: Error) -> Report {
    Report {
        error: Some(error),
        ..Report::default()
    }
}

fn together((reader, writer): (End, End)) -> Report {
    Report {
        started_ns: reader.started_ns.max(writer.started_ns),
        accepted_ns: writer.ended_ns,
        stored_ns: writer.stored_ns,
        digests: reader.digests,
        error: writer.error.or(reader.error),
        stopped: reader.stopped || writer.stopped,
        source: reader.side,
        destination: writer.side,
    }
}

#[cfg(test)]
mod tests;
