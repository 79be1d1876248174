//! A worker's way to the data, open: blocks of one file, or whole small files.

use std::sync::atomic::AtomicBool;

use crate::engine::{self, Job, Live, Report};
use crate::error::{Error, Kind, Phase, Result};
use crate::target::{Folder, Login, Protocol, Session};

/// What a worker of a job works on.
pub(super) enum Opened {
    Blocks(Box<dyn Session>),
    Files(Box<dyn Folder>),
}

impl Opened {
    /// Opens what a job needs.
    pub(super) fn open(protocol: &Protocol, login: &Login, job: &Job) -> Result<Self> {
        if job.files.is_none() {
            return (protocol.connect)(login, &job.attach).map(Self::Blocks);
        }
        let Some(folder) = protocol.folder else {
            let message = format!("{} has no files", protocol.name);
            return Err(Error::new(Phase::Open, Kind::Unsupported, message));
        };
        folder(login, &job.attach).map(Self::Files)
    }

    /// Runs the job to its end.
    pub(super) fn run(
        self,
        job: &Job,
        live: &Live,
        stop: &AtomicBool,
        gate: impl FnOnce() -> Option<u64>,
    ) -> Report {
        match self {
            Self::Blocks(session) => engine::run(session, job, live, stop, gate),
            Self::Files(folder) => engine::files::run(folder, job, live, stop, gate),
        }
    }
}
