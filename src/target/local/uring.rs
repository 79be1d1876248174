//! Many operations under way through `io_uring`, without help from the page cache or from threads of our own.
//!
//! `submit` queues and hands over whole batches; `reap` hands over the rest and waits, in one system call.
//! The kernel fills and empties slots on its own while operations are under way: the session holds the slots'
//! memory, and its end waits for every operation. Must not know: what file it is. Times are in nanoseconds.

#![expect(
    unsafe_code,
    reason = "the kernel is given pointers into slots that stay valid until it is done"
)]

mod registered;

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, squeue};
use rustix::io::Errno;

use crate::clock::{Clock, monotonic_ns};
use crate::error::{Error, Kind, Phase, Result};
use crate::op::{Completion, Direction, Op, Submit};
use crate::slots::{Hold, Slots};
use crate::target::Session;
use crate::target::local::{Engine, Opened};
use registered::{Registered, Rest};

/// Operations that go to the kernel together. More would leave the device idle while they gather: 4 KiB reads at depth
/// 32 on a loop device ran 1.28 times as fast in fours as when all went together, and took no more CPU time.
const BATCH: usize = 4;

/// Whether this kernel lets us use `io_uring` with waits that end; asked once.
#[must_use]
pub fn permitted() -> bool {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    *PERMITTED.get_or_init(|| {
        IoUring::new(2).is_ok_and(|ring| {
            let parameters = ring.params();
            parameters.is_feature_ext_arg() && parameters.is_feature_nodrop()
        })
    })
}

/// A ring of the cheapest kind that this kernel has. One thread submits and reaps, and only in reap do completions
/// matter: newer kernels (6.1) then hand them over there alone, and those from 5.19 on need no interrupt of ours for it.
fn ring(entries: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(entries)
        .or_else(|_| IoUring::builder().setup_coop_taskrun().build(entries))
        .or_else(|_| IoUring::new(entries))
}

/// The operation that a slot is busy with.
#[derive(Debug, Clone, Copy)]
struct Flight {
    offset: u64,
    len: u32,
    done: u32,
    direction: Direction,
}

/// A session that keeps up to its depth of operations under way.
pub struct Uring {
    ring: IoUring,
    registered: Registered,
    opened: Opened,
    flights: Vec<Flight>,
    /// Operations started and not yet completed, those still in our queue included.
    under_way: u32,
    /// Operations that the kernel has and we have not: it may touch their slots.
    in_kernel: u32,
    /// Since when nothing has completed, although we waited.
    waiting_since: Option<u64>,
    hold: Option<Hold>,
}

impl Uring {
    /// Makes a ring for `iodepth` operations on an open file.
    pub fn new(opened: Opened, iodepth: u16) -> Result<Self> {
        let entries = u32::from(iodepth.max(1));
        let ring = ring(entries).map_err(|error| {
            let doing = format!("set up io_uring for {entries} operations");
            let mut error = Error::io(Phase::Open, &error, &doing);
            error
                .message
                .push_str("; use engine=psync with more lanes, or a smaller iodepth");
            error
        })?;
        let idle = Flight {
            offset: 0,
            len: 0,
            done: 0,
            direction: Direction::Read,
        };
        Ok(Self {
            registered: Registered::file(&ring, &opened.file),
            ring,
            opened,
            flights: vec![idle; usize::from(iodepth.max(1))],
            under_way: 0,
            in_kernel: 0,
            waiting_since: None,
            hold: None,
        })
    }

    /// Queues what is left of a slot's operation.
    fn queue(&mut self, slot: u16, slots: &mut Slots) -> Result<()> {
        let flight = self.flights[usize::from(slot)];
        let memory = slots.get_mut(slot, flight.len)[flight.done as usize..].as_mut_ptr();
        let entry = self.registered.entry(Rest {
            direction: flight.direction,
            offset: flight.offset + u64::from(flight.done),
            memory,
            len: flight.len - flight.done,
            slot,
        });
        self.push(&entry)
    }

    fn push(&mut self, entry: &squeue::Entry) -> Result<()> {
        if self.ring.submission().is_full() {
            self.enter(0, Duration::ZERO)?;
        }
        // SAFETY: the entry's file is open as long as self; its buffer is a slot whose mapping `self.hold` keeps,
        // and the engine leaves a slot alone until its operation completes (the contract of `Session::submit`).
        // Drop waits for all that the kernel has.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| {
            Error::new(
                Phase::Io,
                Kind::Other,
                "io_uring's queue stayed full; this is a fault of nasgauge",
            )
        })
    }

    /// Hands the queue to the kernel and waits for `want` completions, at most `longest`. An interruption and the
    /// end of the wait are not failures: the caller looks at the clock.
    fn enter(&mut self, want: usize, longest: Duration) -> Result<()> {
        let queued = self.ring.submission().len() as u32;
        let limit = Timespec::from(longest);
        let arguments = SubmitArgs::new().timespec(&limit);
        let result = self.ring.submitter().submit_with_args(want, &arguments);
        // The kernel may take entries and then report an interrupted wait: what left the queue is what counts.
        let left = self.ring.submission().len() as u32;
        self.in_kernel += queued - left;
        match result {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
                _ => Err(Error::io(
                    Phase::Io,
                    &error,
                    &format!("hand operations on {} to io_uring", self.opened.name),
                )),
            },
        }
    }

    /// Takes every completion that is there.
    fn collect(&mut self, slots: &mut Slots, done: &mut Vec<Completion>) -> Result<usize> {
        let before = done.len();
        while let Some((slot, result)) = self.next() {
            if let Some(bytes) = self.judge(slot, result, slots)? {
                self.under_way -= 1;
                done.push(Completion { slot, bytes });
            }
        }
        Ok(done.len() - before)
    }

    /// The next completion of an operation: its slot and the kernel's result.
    fn next(&mut self) -> Option<(u16, i32)> {
        let entry = self.ring.completion().next()?;
        self.in_kernel -= 1;
        Some((entry.user_data() as u16, entry.result()))
    }

    /// What a result means: Some(bytes) when the operation has ended, None when the rest was queued again.
    fn judge(&mut self, slot: u16, result: i32, slots: &mut Slots) -> Result<Option<u32>> {
        let flight = &mut self.flights[usize::from(slot)];
        let moved = match u32::try_from(result) {
            Ok(moved) => moved,
            Err(_) if [Errno::AGAIN, Errno::INTR].contains(&Errno::from_raw_os_error(-result)) => {
                self.queue(slot, slots)?;
                return Ok(None);
            }
            Err(_) => return Err(self.fail(slot, &io::Error::from_raw_os_error(-result))),
        };
        flight.done += moved;
        let flight = *flight;
        if flight.done == flight.len {
            return Ok(Some(flight.done));
        }
        match flight.direction {
            Direction::Read
                if moved == 0 || self.opened.stopped_unaligned(flight.done as usize) =>
            {
                return Ok(Some(flight.done));
            }
            Direction::Write if moved == 0 => {
                return Err(self.fail(slot, &io::Error::from(io::ErrorKind::WriteZero)));
            }
            _ => {}
        }
        self.queue(slot, slots)?;
        Ok(None)
    }

    /// Takes slots that were not announced: their operations name their memory themselves.
    #[cold]
    fn exchange(&mut self, slots: &Slots) -> Result<()> {
        if self.under_way > 0 {
            return Err(Error::usage(
                "the slots were exchanged while operations were under way",
            ));
        }
        self.registered.forget_buffers(&self.ring);
        self.hold = Some(slots.hold());
        Ok(())
    }

    #[cold]
    fn fail(&mut self, slot: u16, error: &io::Error) -> Error {
        self.under_way -= 1;
        let flight = self.flights[usize::from(slot)];
        self.opened.failed(
            flight.direction,
            (flight.len - flight.done) as usize,
            flight.offset + u64::from(flight.done),
            error,
        )
    }

    /// Waits for all that the kernel has, after cancelling what can be cancelled.
    fn settle(&mut self) {
        if self.in_kernel == 0 {
            return;
        }
        let deadline = monotonic_ns().saturating_add(self.opened.io_timeout.as_nanos() as u64);
        // Kernels before 6.0 don't know it, and transfers that a disk works on can't be cancelled: then we wait.
        let none = Timespec::from(Duration::ZERO);
        let _ = self
            .ring
            .submitter()
            .register_sync_cancel(Some(none), CancelBuilder::any());
        loop {
            while self.next().is_some() {}
            let now = monotonic_ns();
            if self.in_kernel == 0 || now >= deadline {
                break;
            }
            let wait = Timespec::from(Duration::from_nanos(deadline - now));
            let arguments = SubmitArgs::new().timespec(&wait);
            let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
            // SAFETY: nothing is submitted; the flags say that the argument is a `SubmitArgs`, which it is.
            let result = unsafe {
                self.ring
                    .submitter()
                    .enter(0, 1, flags.bits(), Some(&arguments))
            };
            let waits_on = |error: &io::Error| {
                let errno = error.raw_os_error().map(Errno::from_raw_os_error);
                matches!(
                    errno,
                    Some(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY)
                )
            };
            if result.is_err_and(|error| !waits_on(&error)) {
                break;
            }
        }
    }

    #[cold]
    fn silent(&self) -> Error {
        Error::new(
            Phase::Io,
            Kind::TimedOut,
            format!(
                "{} operations on {} got no answer within {} s; is its disk or server still there?",
                self.under_way,
                self.opened.name,
                self.opened.io_timeout.as_secs_f64()
            ),
        )
    }
}

impl Session for Uring {
    /// Registers the slots as buffers, where the kernel permits it.
    fn prepare(&mut self, slots: &mut Slots) -> Result<()> {
        if self.under_way == 0 {
            self.registered.buffers(&self.ring, slots);
            self.hold = Some(slots.hold());
        }
        Ok(())
    }

    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        if !self.hold.as_ref().is_some_and(|hold| slots.held_by(hold)) {
            self.exchange(slots)?;
        }
        let slot = usize::from(op.slot);
        if slot >= self.flights.len() {
            // More slots than the depth that was announced: slower once, not wrong.
            let idle = self.flights[0];
            self.flights.resize(slot + 1, idle);
        }
        self.flights[slot] = Flight {
            offset: op.offset,
            len: op.len,
            done: 0,
            direction: op.direction,
        };
        self.queue(op.slot, slots)?;
        self.under_way += 1;
        if self.ring.submission().len() >= BATCH {
            self.enter(0, Duration::ZERO)?;
        }
        Ok(Submit::Queued)
    }

    fn reap(
        &mut self,
        until: Option<u64>,
        slots: &mut Slots,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        if self.under_way == 0 {
            if let Some(until) = until {
                Clock::Monotonic.sleep_until(until);
            }
            return Ok(());
        }
        loop {
            if self.ring.completion().is_empty() {
                let now = monotonic_ns();
                let since = *self.waiting_since.get_or_insert(now);
                let lost_at = since.saturating_add(self.opened.io_timeout.as_nanos() as u64);
                let wake_at = until.map_or(lost_at, |until| until.min(lost_at));
                self.enter(1, Duration::from_nanos(wake_at.saturating_sub(now)))?;
            } else if !self.ring.submission().is_empty() {
                self.enter(0, Duration::ZERO)?;
            }
            if self.collect(slots, done)? > 0 {
                self.waiting_since = None;
                return Ok(());
            }
            let now = monotonic_ns();
            if until.is_some_and(|until| now >= until) {
                return Ok(());
            }
            let since = self.waiting_since.unwrap_or(now);
            if u128::from(now - since) >= self.opened.io_timeout.as_nanos() {
                return Err(self.silent());
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.opened.sync()
    }

    fn negotiated(&self) -> String {
        format!(
            "{} {}",
            self.opened.words(Engine::IoUring),
            self.registered.word()
        )
    }
}

impl Drop for Uring {
    /// Cancels what can be cancelled and waits for the rest; entries that were never handed over are dropped.
    fn drop(&mut self) {
        self.settle();
        if self.in_kernel == 0 {
            self.registered.forget(&self.ring);
        } else {
            // The device hangs. Its transfers may still arrive one day: better lose this memory than have it
            // used anew under them.
            std::mem::forget(self.hold.take());
        }
    }
}
