//! A worker in a thread of this process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};

use crate::engine::{Job, Live, Report};
use crate::error::{Error, Kind, Phase, Result};
use crate::fleet::opened::Opened;
use crate::fleet::{Event, Member, Post};
use crate::target::{Login, Protocol};

/// The running thread, by its start signal. A thread that hangs in a system call can't be ended, so it is
/// left behind; it ends with the process.
pub(super) struct Thread {
    start: Sender<u64>,
}

impl Thread {
    pub(super) fn start(
        protocol: &'static Protocol,
        login: &Login,
        job: Job,
        live: Arc<Live>,
        stop: Arc<AtomicBool>,
        post: Post,
    ) -> Result<Self> {
        let (start, wait) = channel();
        let login = login.clone();
        let body = move || {
            let work = || match Opened::open(protocol, &login, &job) {
                Ok(opened) => opened.run(&job, &live, &stop, || {
                    post.send(Event::Ready);
                    wait.recv().ok()
                }),
                Err(error) => failed(error),
            };
            // A client library that panics must not leave the others waiting for this worker.
            let report = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                let message = "a worker thread panicked: a bug; its message is on standard error";
                failed(Error::new(Phase::Io, Kind::Other, message))
            });
            post.send(Event::Report(Box::new(report)));
        };
        std::thread::Builder::new()
            .name("lane".into())
            .spawn(body)
            .map_err(|error| Error::io(Phase::Prepare, &error, "start a worker thread"))?;
        Ok(Self { start })
    }
}

fn failed(error: Error) -> Report {
    Report {
        error: Some(error),
        ..Report::default()
    }
}

impl Member for Thread {
    fn go(&mut self, start_ns: u64) {
        // A thread that is gone has posted its report already.
        let _ = self.start.send(start_ns);
    }

    fn kill(&mut self) {}
}
