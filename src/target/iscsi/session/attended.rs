//! A session that somebody else waits for, together with others.
//!
//! Must not know: how many there are. Times are nanoseconds of `CLOCK_MONOTONIC`.

use rustix::event::{PollFd, PollFlags};

use super::Lane;
use crate::error::{Error, Result};
use crate::op::Completion;
use crate::target::iscsi::fault::Fault;

impl Lane {
    /// Whether nothing is under way.
    pub(in crate::target::iscsi) const fn idle(&self) -> bool {
        self.flying == 0
    }

    /// When the next operation could be overdue; None while nothing is under way.
    pub(in crate::target::iscsi) const fn overdue_at(&self) -> Option<u64> {
        if self.idle() {
            None
        } else {
            Some(self.check_at)
        }
    }

    /// Whether commands wait to be sent.
    pub(in crate::target::iscsi) const fn fresh(&self) -> bool {
        self.unit.context.fresh
    }

    /// What to wait for, to be polled at once.
    pub(in crate::target::iscsi) fn waiting(&mut self) -> Result<PollFd<'static>> {
        let waiting = self.unit.context.waiting();
        waiting.map_err(|fault| self.lost(&fault))
    }

    /// Ends the session; the operation that waits longest names the failure.
    pub(in crate::target::iscsi) fn lost(&mut self, fault: &Fault) -> Error {
        let op = self.oldest().map_or(self.flights[0].op, |flight| flight.op);
        self.fail(fault, op)
    }

    /// Does what a wait said can be done, and takes what ended.
    pub(in crate::target::iscsi) fn attend(
        &mut self,
        came: PollFlags,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        let served = self.unit.context.serve(came);
        self.turned(served, done)
    }

    /// Fails when an operation is overdue.
    pub(in crate::target::iscsi) fn look_at_time(&mut self, now: u64) -> Result<()> {
        if now >= self.check_at && !self.idle() {
            self.check_overdue(now)?;
        }
        Ok(())
    }

    /// Answers what the target asked while nobody listened.
    pub(in crate::target::iscsi) fn stay_awake(&mut self) -> Result<()> {
        let caught_up = self.unit.context.catch_up();
        caught_up.map_err(|fault| self.lost(&fault))
    }

    /// Whether both reach the same LUN.
    pub(in crate::target::iscsi) fn same_unit(&self, other: &Self) -> bool {
        (&self.unit.serial, self.unit.capacity) == (&other.unit.serial, other.unit.capacity)
    }
}
