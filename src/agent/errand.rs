//! One request in a process of its own.
//!
//! A forked copy of the agent, since there may be nothing to execute: in an empty chroot there is no `/proc/self/exe`,
//! and the agent's own file is removed once it runs. A copy can be ended at any moment with all its sockets, files and
//! threads, whatever a library does with a hostile peer; and the kernel ends it when the agent goes. Forking is sound
//! because the agent has a single thread. Must not know: what the errands do.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, WaitOptions};

use crate::error::{Error, Kind, Phase, Result};
use crate::fleet::agent::wire::{self, Answer, Lines, Tell};

/// How long an errand whose words have ended may take to end itself.
const ENDING: Duration = Duration::from_millis(200);

/// The way of an errand's words to the agent.
pub(super) struct Voice {
    id: u64,
    pipe: File,
}

impl Voice {
    /// Says one thing.
    pub(super) fn say(&mut self, answer: Answer) -> Result<()> {
        let line = wire::line(&Tell {
            id: self.id,
            answer,
        })?;
        self.pipe
            .write_all(&line)
            .map_err(|error| Error::io(Phase::Io, &error, "report to the agent"))
    }
}

/// A running errand, ended when dropped.
pub(super) struct Errand {
    /// The request's number.
    pub(super) id: u64,
    /// When it is ended at the latest.
    pub(super) deadline: Instant,
    /// The last word was heard.
    pub(super) over: bool,
    /// Its process.
    pub(super) pid: Pid,
    waited_for: bool,
    pipe: File,
    lines: Lines,
}

impl AsFd for Errand {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Errand {
    /// Starts one; `private` are descriptors that it must not have. `work` gives the last word.
    pub(super) fn start(
        id: u64,
        deadline: Instant,
        private: &[RawFd],
        work: impl FnOnce(&mut Voice) -> Result<Answer>,
    ) -> Result<Self> {
        let failed = |error: std::io::Error| Error::io(Phase::Prepare, &error, "start a process");
        let (reader, writer) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let agent = rustix::process::getpid();
        // SAFETY: this process has one thread, so no lock is held by another one that the copy would miss; the copy
        // never returns into the agent's loop, and no destructor of the agent's runs in it.
        #[expect(
            unsafe_code,
            reason = "there is no other way to run code of ours in a new process"
        )]
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(failed(std::io::Error::last_os_error())),
            0 => {
                close(private);
                close(&[reader.as_raw_fd()]);
                std::mem::forget(reader);
                errand(id, agent, writer, work)
            }
            pid => Ok(Self {
                id,
                deadline,
                over: false,
                pid: Pid::from_raw(pid).unwrap_or(agent),
                waited_for: false,
                pipe: reader.into(),
                lines: Lines::default(),
            }),
        }
    }

    /// Its lines since the last call, whole ones as they are to be handed on; None when it has ended.
    pub(super) fn hear(&mut self) -> Option<Vec<Vec<u8>>> {
        let mut bytes = [0; 16 << 10];
        let count = self.pipe.read(&mut bytes).unwrap_or(0);
        if count == 0 {
            return None;
        }
        self.lines.push(&bytes[..count]);
        let mut heard = Vec::new();
        while let Ok(Some(line)) = self.lines.pop() {
            if let Some(tell) = wire::message::<Tell>(&line) {
                self.over |= tell.answer.last();
                heard.push(line);
            }
        }
        Some(heard)
    }

    /// Ends it.
    pub(super) fn kill(&self) {
        // Once it was waited for, its number may be another's.
        if self.waited_for {
            return;
        }
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
    }

    /// How it ended, once its words have: a sentence for one that said no last word.
    pub(super) fn how_it_ended(&mut self) -> Error {
        let deadline = Instant::now() + ENDING;
        let status = loop {
            // Its descriptors close a moment before it can be waited for.
            match rustix::process::waitpid(Some(self.pid), WaitOptions::NOHANG) {
                Ok(Some((_, status))) => break Some(status),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => break None,
            }
        };
        self.waited_for = status.is_some();
        let how = match status.map(|status| (status.terminating_signal(), status.exit_status())) {
            Some((Some(signal), _)) => {
                format!("was ended by signal {signal}; is the server short of memory?")
            }
            Some((None, Some(code))) => format!("ended with code {code} and without a word"),
            _ => "stopped talking".to_owned(),
        };
        let message = format!("the agent's process for this request {how}");
        Error::new(Phase::Io, Kind::Gone, message)
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Takes leave of those that have ended; one that hangs in the kernel ends when that lets it go, and is not waited for.
pub(super) fn bury(dead: &mut Vec<Pid>) {
    dead.retain(|pid| {
        let left = rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG);
        matches!(left, Ok(None))
    });
}

/// Closes descriptors in the copy, whose owners there are never dropped.
fn close(descriptors: &[RawFd]) {
    for descriptor in descriptors {
        // SAFETY: only the copy calls this, on descriptors that nothing in it uses afterwards: it leaves by `_exit`.
        #[expect(
            unsafe_code,
            reason = "their owners are on the agent's side of the fork"
        )]
        let _ = unsafe { libc::close(*descriptor) };
    }
}

/// The copy's life.
fn errand(
    id: u64,
    agent: Pid,
    pipe: OwnedFd,
    work: impl FnOnce(&mut Voice) -> Result<Answer>,
) -> ! {
    let mut voice = Voice {
        id,
        pipe: pipe.into(),
    };
    let last = detach()
        .and_then(|()| {
            // The agent may have gone before the kernel was told to end this with it.
            if rustix::process::getppid() == Some(agent) {
                return Ok(());
            }
            Err(Error::new(Phase::Prepare, Kind::Gone, "the agent has ended"))
        })
        .and_then(|()| {
            catch_unwind(AssertUnwindSafe(|| work(&mut voice))).unwrap_or_else(|_| {
                let message = "the agent's process for this request panicked: a bug; its message is on the agent's \
                               standard error";
                Err(Error::new(Phase::Io, Kind::Other, message))
            })
        });
    // An agent that no longer listens has given the request up.
    let _ = voice.say(last.unwrap_or_else(Answer::Failed));
    // SAFETY: ends the process; what the agent registered to happen at its exit must not happen in a copy.
    #[expect(unsafe_code, reason = "the copy must not return into the agent")]
    unsafe {
        libc::_exit(0)
    }
}

/// Ties the copy to the agent's life and cuts it off from its input and output.
fn detach() -> Result<()> {
    let failed = |errno: rustix::io::Errno| {
        Error::io(
            Phase::Prepare,
            &errno.into(),
            "set up a process of the agent",
        )
    };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    // An empty chroot has no /dev/null, and what libraries print has to go somewhere.
    let nowhere =
        rustix::fs::memfd_create("nowhere", rustix::fs::MemfdFlags::CLOEXEC).map_err(failed)?;
    rustix::stdio::dup2_stdin(&nowhere).map_err(failed)?;
    rustix::stdio::dup2_stdout(&nowhere).map_err(failed)
}
