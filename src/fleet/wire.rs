//! The words between this program and its child processes: JSON, one message a line.
//!
//! Must not know: what carries them. Secrets travel here and nowhere else: never in argv or the environment.

use std::io::{BufRead, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::live::Snapshot;
use crate::engine::{Job, Report};
use crate::error::{Error, Kind, Phase, Result};
use crate::fleet::flows::FlowOrder;
use crate::target::{Entry, Facts, Login};

/// What a child is for; its first message.
#[derive(Debug, Serialize, Deserialize)]
pub enum Errand {
    /// Run one worker.
    Work {
        /// How to reach the target.
        login: Login,
        /// What to do there.
        job: Box<Job>,
    },
    /// Serve the control side until standard input closes.
    Files {
        /// How to reach the target.
        login: Login,
    },
    /// Test TCP flows against an iperf3 server.
    Flows(FlowOrder),
}

/// To a working child, after its errand.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Start at this time of the monotonic clock.
    Go(u64),
    /// End early.
    Stop,
}

/// From a working child.
#[derive(Debug, Serialize, Deserialize)]
pub enum Word {
    /// Waiting for the start.
    Ready,
    /// Counters so far.
    Live(Snapshot),
    /// The end.
    Report(Box<Report>),
}

/// A call to the control side.
#[derive(Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "one variant for each method of target::Files")]
pub enum Call {
    Facts,
    List(String),
    MakeDirectory(String),
    Create(String),
    Put(String, Vec<u8>),
    Get(String, usize),
    Size(String),
    Unwritten(String),
    Remove(String),
    RemoveDirectory(String),
    DirectAlignment(String),
    DropCache(String),
}

/// The answer to a call.
#[derive(Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "one variant for each kind of result")]
pub enum Answer {
    Done,
    Facts(Facts),
    Entries(Vec<Entry>),
    Bytes(Vec<u8>),
    Size(u64),
    Perhaps(Option<u64>),
    Failed(Error),
}

/// Sends one message.
pub fn send(writer: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let broken = |text: String| {
        Error::new(
            Phase::Io,
            Kind::Gone,
            format!("a worker process does not listen: {text}"),
        )
    };
    let mut line = serde_json::to_vec(message).map_err(|error| broken(error.to_string()))?;
    line.push(b'\n');
    writer
        .write_all(&line)
        .and_then(|()| writer.flush())
        .map_err(|error| broken(error.to_string()))
}

/// Receives one message; None at the end of the stream.
pub fn receive<M: DeserializeOwned>(reader: &mut impl BufRead) -> Result<Option<M>> {
    let mut line = String::new();
    let broken = |text: String| {
        Error::new(
            Phase::Io,
            Kind::Protocol,
            format!("a worker process said nonsense: {text}"),
        )
    };
    match reader.read_line(&mut line) {
        Ok(0) => Ok(None),
        Ok(_) => serde_json::from_str(&line)
            .map(Some)
            .map_err(|error| broken(error.to_string())),
        Err(error) => Err(broken(error.to_string())),
    }
}
