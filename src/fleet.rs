//! Where workers run: threads of this process, or child processes where a client library holds one lock for all.
//!
//! Read first: [`Fleet`] launches one member a job, waits until all are ready, gives one start time, and hands on
//! their events. Both kinds speak the same words (`wire`): a child gets them over pipes. The control side of a
//! target whose library needs a process of its own is reached the same way ([`control`]). What runs on the server is
//! an [`agent`]'s.
//!
//! Must not know: what is measured, or what becomes of the reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::clock::monotonic_ns;
use crate::engine::{Job, Live, Report};
use crate::error::{Error, Kind, Phase, Result};
use crate::target::{self, Control, Login, Protocol, Threads};

pub mod agent;
pub mod child;
pub mod files;
pub mod flows;
mod opened;
mod thread;
pub mod wire;

/// What a member tells.
#[derive(Debug)]
pub enum Event {
    /// Connected, everything laid out, waiting for the start.
    Ready,
    /// Done, well or not.
    Report(Box<Report>),
}

/// One running worker.
trait Member {
    /// Gives the start time, in nanoseconds of the monotonic clock.
    fn go(&mut self, start_ns: u64);
    /// Ends it at once, if that is possible.
    fn kill(&mut self);
}

/// The workers of one phase.
pub struct Fleet {
    members: Vec<Box<dyn Member>>,
    events: Receiver<(usize, Event)>,
    live: Vec<Arc<Live>>,
    stop: Arc<AtomicBool>,
}

/// Time between "all are ready" and the common start: enough for a message to reach each worker.
const START_DELAY_NS: u64 = 20_000_000;

impl Fleet {
    /// Starts one worker for each job; each connects at once. `stop` asks all of them to end early.
    pub fn launch(
        protocol: &'static Protocol,
        login: &Login,
        jobs: Vec<Job>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let (sender, events) = channel();
        let mut fleet = Self {
            members: Vec::new(),
            events,
            live: Vec::new(),
            stop: Arc::clone(stop),
        };
        let caps = (protocol.caps)(&login.spec);
        for (index, job) in jobs.into_iter().enumerate() {
            let live = Arc::new(Live::default());
            fleet.live.push(Arc::clone(&live));
            // Small files are the control side's library's business.
            let place = if job.files.is_some() {
                caps.control
            } else {
                caps.threads
            };
            let apart = place == Threads::PerProcess;
            let post = Post {
                index,
                sender: sender.clone(),
            };
            let member: Box<dyn Member> = if apart {
                Box::new(child::Child::start(
                    login,
                    job,
                    live,
                    Arc::clone(stop),
                    post,
                )?)
            } else {
                Box::new(thread::Thread::start(
                    protocol,
                    login,
                    job,
                    live,
                    Arc::clone(stop),
                    post,
                )?)
            };
            fleet.members.push(member);
        }
        Ok(fleet)
    }

    /// Waits until every worker is ready. A worker that failed meanwhile ends the wait with its error.
    pub fn ready(&self, patience: Duration, interrupted: &AtomicBool) -> Result<()> {
        let deadline = Instant::now() + patience;
        let mut waiting = self.members.len();
        while waiting > 0 {
            if interrupted.load(Relaxed) {
                return Err(Error::new(
                    Phase::Connect,
                    Kind::Interrupted,
                    "stopped on request",
                ));
            }
            match self.events.recv_timeout(Duration::from_millis(50)) {
                Ok((_, Event::Ready)) => waiting -= 1,
                Ok((_, Event::Report(report))) => {
                    let gone = || {
                        Error::new(
                            Phase::Connect,
                            Kind::Other,
                            "a worker ended before its start",
                        )
                    };
                    return Err(report.error.unwrap_or_else(gone));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(_) => {
                    let message = format!("no session came up within {} s", patience.as_secs());
                    return Err(Error::new(Phase::Connect, Kind::TimedOut, message));
                }
            }
        }
        Ok(())
    }

    /// Starts all workers at one time, which is returned.
    pub fn go(&mut self) -> u64 {
        let start = monotonic_ns() + START_DELAY_NS;
        for member in &mut self.members {
            member.go(start);
        }
        start
    }

    /// The next event within `patience`; None when there is none.
    #[must_use]
    pub fn next(&self, patience: Duration) -> Option<(usize, Event)> {
        self.events.recv_timeout(patience).ok()
    }

    /// The counters of each worker.
    #[must_use]
    pub fn live(&self) -> &[Arc<Live>] {
        &self.live
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // A thread can't be killed; one that was given up must at least write nothing more once it wakes.
        self.stop.store(true, Relaxed);
        for member in &mut self.members {
            member.kill();
        }
    }
}

/// A worker's way to tell the fleet something.
struct Post {
    index: usize,
    sender: Sender<(usize, Event)>,
}

impl Post {
    fn send(&self, event: Event) {
        // A fleet that no longer listens has given the worker up.
        let _ = self.sender.send((self.index, event));
    }
}

/// Opens the control side of a target, in a process or thread of its own where it needs that.
pub fn control(login: &Login) -> Result<Control> {
    let protocol = target::find(&login.spec)?;
    let caps = (protocol.caps)(&login.spec);
    let remote = |remote| Control::Files(Box::new(remote));
    let control = if caps.control == Threads::PerProcess {
        files::Remote::start(login).map(remote)
    } else {
        match (protocol.control)(login) {
            // Calls over a connection of ours are bounded; the kernel's on a directory are not.
            Ok(Control::Files(_)) if caps.connections == 0 => {
                files::Remote::start_thread(protocol, login).map(remote)
            }
            control => control,
        }
    };
    control.map_err(|error| error.at(&login.spec.uri))
}

#[cfg(test)]
mod tests;
