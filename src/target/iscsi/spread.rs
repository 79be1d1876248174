//! One lane over several sessions: each a login, a connection and a command window of its own, all served by one thread.
//!
//! An operation goes to the session of its slot, so that each has an equal share of the depth under way; with more
//! sessions than depth, some stay idle. All log in under one initiator name and differ in their session identifier. A
//! failure of one ends the lane. Must not know: libiscsi, workloads. Times are nanoseconds of `CLOCK_MONOTONIC`.

use rustix::event::{PollFd, PollFlags};

use super::context::wait;
use super::session::Lane;
use super::unit::Unit;
use crate::clock::monotonic_ns;
use crate::error::{Error, Result};
use crate::op::{Completion, Op, Submit};
use crate::slots::Slots;
use crate::target::{Attach, Login, Session};

/// Sessions that share a lane's operations.
pub struct Spread {
    lanes: Box<[Lane]>,
    /// Room for one wait: what is waited for, and what came.
    polled: Vec<PollFd<'static>>,
    came: Box<[PollFlags]>,
    /// To be told by the next call: completions came before it.
    failure: Option<Error>,
}

impl Spread {
    /// Opens `count` sessions to the LUN of `login`.
    pub fn open(login: &Login, attach: &Attach, count: u16) -> Result<Self> {
        let lanes = (0..count)
            .map(|_| Unit::open(login).and_then(|unit| Lane::new(unit, attach)))
            .collect::<Result<Box<[Lane]>>>()?;
        if lanes.iter().any(|lane| !lane.same_unit(&lanes[0])) {
            return Err(Error::safety(
                "its sessions reached LUNs of different serial or size; use sessions=1",
            ));
        }
        Ok(Self {
            polled: Vec::with_capacity(lanes.len()),
            came: vec![PollFlags::empty(); lanes.len()].into(),
            lanes,
            failure: None,
        })
    }

    /// Calls `f` on each session. A failure that comes with completions waits for the next call.
    fn each(
        &mut self,
        done: &mut Vec<Completion>,
        mut f: impl FnMut(usize, &mut Lane, &mut Vec<Completion>) -> Result<()>,
    ) -> Result<()> {
        let before = done.len();
        for (place, lane) in self.lanes.iter_mut().enumerate() {
            let Err(error) = f(place, lane, done) else {
                continue;
            };
            if done.len() == before {
                return Err(error);
            }
            self.failure = Some(error);
            return Ok(());
        }
        Ok(())
    }

    /// Sends what waits to be sent; where nothing does, waits for any connection and serves those that are ready.
    fn turn(&mut self, until: u64, done: &mut Vec<Completion>) -> Result<()> {
        if self.lanes.iter().any(Lane::fresh) {
            let both = PollFlags::IN | PollFlags::OUT;
            return self.each(done, |_, lane, done| {
                if lane.fresh() {
                    lane.attend(both, done)
                } else {
                    Ok(())
                }
            });
        }
        self.polled.clear();
        for lane in &mut self.lanes {
            self.polled.push(lane.waiting()?);
        }
        let waited = wait(&mut self.polled, until);
        for (came, polled) in self.came.iter_mut().zip(&self.polled) {
            *came = polled.revents();
        }
        self.polled.clear();
        if let Err(fault) = waited {
            return Err(self.lanes[0].lost(&fault));
        }
        let came = std::mem::take(&mut self.came);
        let served = self.each(done, |place, lane, done| {
            if came[place].is_empty() {
                Ok(())
            } else {
                lane.attend(came[place], done)
            }
        });
        self.came = came;
        served
    }

    /// A failure that is still to be told.
    fn earlier_failure(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn idle(&self) -> bool {
        self.lanes.iter().all(Lane::idle)
    }
}

impl Session for Spread {
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        self.earlier_failure()?;
        let place = usize::from(op.slot) % self.lanes.len();
        self.lanes[place].submit(op, slots)
    }

    fn reap(
        &mut self,
        until: Option<u64>,
        slots: &mut Slots,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        self.earlier_failure()?;
        let before = done.len();
        self.each(done, |_, lane, done| {
            lane.earlier_failure()?;
            lane.at_home(slots)?;
            lane.collect(done)
        })?;
        loop {
            if done.len() > before || (self.idle() && until.is_none()) {
                return Ok(());
            }
            let overdue = self.lanes.iter().filter_map(Lane::overdue_at).min();
            let Some(wake) = overdue.into_iter().chain(until).min() else {
                return Ok(());
            };
            self.turn(wake, done)?;
            if done.len() > before {
                return Ok(());
            }
            self.earlier_failure()?;
            let now = monotonic_ns();
            self.each(done, |_, lane, _| lane.look_at_time(now))?;
            if until.is_some_and(|until| now >= until) {
                return Ok(());
            }
        }
    }

    /// One session flushes the cache of the whole LUN; the others then answer what the target asked meanwhile.
    fn flush(&mut self) -> Result<()> {
        self.earlier_failure()?;
        let (first, others) = self.lanes.split_at_mut(1);
        first[0].flush()?;
        others.iter_mut().try_for_each(Lane::stay_awake)
    }

    fn wire_ops(&self) -> Option<u64> {
        self.lanes.iter().map(Session::wire_ops).sum()
    }

    fn negotiated(&self) -> String {
        format!(
            "sessions={} {}",
            self.lanes.len(),
            self.lanes[0].negotiated()
        )
    }
}
