//! A test of TCP flows against an iperf3 server, in a child process.
//!
//! A process of its own, since the library writes its events to standard output, and since its processor time, its
//! cores and its end are then its own. Must not know: what the figures mean.

use std::io::{BufRead, Read, Write};
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Phase, Result};
use crate::fleet::child::Spawned;
use crate::fleet::wire::Errand;
use crate::iperf3::Event;
use crate::network::Way;

/// Longest line of an event: 128 connections' samples have a tenth of it.
const LINE_MAX: u64 = 4 << 20;

/// What to test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowOrder {
    /// The server: a name or an address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// TCP connections each way.
    pub flows: u32,
    /// Which way data goes; None: both at once.
    pub way: Option<Way>,
    /// Seconds of the measured time.
    pub seconds: u32,
    /// Seconds before it.
    pub warm_up_s: u32,
    /// Seconds between samples.
    pub interval_s: f64,
    /// Bytes of each call to the kernel.
    pub block: usize,
    /// Cores that the child may use; empty: any.
    pub cores: Vec<usize>,
    /// Congestion control of what is sent from here; None: the kernel's.
    pub congestion_control: Option<String>,
    /// Buffer of each socket, in bytes; None: the kernel sizes it.
    pub window: Option<i32>,
    /// Local address to send from.
    pub bind: Option<String>,
    /// Longest wait for a connection, in milliseconds.
    pub connect_timeout_ms: u64,
}

/// A running test.
pub struct FlowTest {
    child: Spawned,
    events: Receiver<(Instant, Result<Event>)>,
}

impl FlowTest {
    /// Starts it.
    pub fn start(order: &FlowOrder) -> Result<Self> {
        let mut child = Spawned::start(&Errand::Flows(order.clone()))?;
        let output = child.output.take();
        let (sender, events) = channel();
        let listen = move || {
            let Some(mut output) = output else { return };
            while let Some(line) = line(&mut output) {
                let event = line.and_then(|line| {
                    Event::parse(&line).map_err(|why| {
                        let message = format!("the testing process said nonsense: {why}");
                        Error::new(Phase::Io, Kind::Protocol, message)
                    })
                });
                if sender.send((Instant::now(), event)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("flows".into())
            .spawn(listen)
            .map_err(|error| {
                Error::io(Phase::Prepare, &error, "start a thread for a network test")
            })?;
        Ok(Self { child, events })
    }

    /// The child's process number, for counters of its threads.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The next event with the time at which it came; None when `patience` ran out first.
    pub fn next(&mut self, patience: Duration) -> Result<Option<(Instant, Event)>> {
        match self.events.recv_timeout(patience) {
            Ok((at, event)) => event.map(|event| Some((at, event))),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                let how = self.child.ended().map_or_else(String::new, ending);
                let message = format!("the testing process ended early{how}");
                Err(Error::new(Phase::Io, Kind::Gone, message))
            }
        }
    }
}

fn ending(status: ExitStatus) -> String {
    format!(" ({status})")
}

/// One line without its end; None at the end of the stream.
fn line(reader: &mut impl BufRead) -> Option<Result<String>> {
    let mut bytes = Vec::new();
    match reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut bytes) {
        Ok(0) => None,
        Ok(_) => Some(Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())),
        Err(error) => Some(Err(Error::io(
            Phase::Io,
            &error,
            "hear the testing process",
        ))),
    }
}

/// The child's side: runs the test; its events go to standard output as the library writes them.
pub(super) fn serve(order: &FlowOrder) -> Result<()> {
    if !order.cores.is_empty() {
        pin(&order.cores)?;
    }
    let wrong =
        |error: riperf3::ConfigError| Error::usage(format!("no such network test: {error}"));
    let mut builder = riperf3::ClientBuilder::new(&order.host)
        .port(Some(order.port))
        .num_streams(order.flows)
        .duration(order.seconds)
        .omit(order.warm_up_s)
        .interval(order.interval_s)
        .blksize(order.block)
        .reverse(order.way == Some(Way::Receive))
        .bidir(order.way.is_none())
        .connect_timeout(Duration::from_millis(order.connect_timeout_ms))
        .json_stream(true);
    if let Some(algorithm) = &order.congestion_control {
        builder = builder.congestion(algorithm);
    }
    if let Some(window) = order.window {
        builder = builder.window(window);
    }
    if let Some(address) = &order.bind {
        builder = builder.bind_address(address);
    }
    let client = builder.build().map_err(wrong)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::io(Phase::Prepare, &error, "start a network test"))?;
    let outcome = runtime.block_on(client.run());
    // A receiver that still waits for its last bytes must not hold the process.
    runtime.shutdown_background();
    if let Err(error) = outcome {
        let event = serde_json::json!({ "event": "error", "data": key(&error) });
        let mut output = std::io::stdout().lock();
        // A parent that no longer listens has given this test up.
        let _ = writeln!(output, "{event}").and_then(|()| output.flush());
    }
    Ok(())
}

fn pin(cores: &[usize]) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for core in cores {
        if *core >= rustix::thread::CpuSet::MAX_CPU {
            return Err(Error::usage(format!("there is no core {core}")));
        }
        set.set(*core);
    }
    rustix::thread::sched_setaffinity(None, &set).map_err(|error| {
        let error = std::io::Error::from(error);
        Error::usage(format!("cores {cores:?} can't be used: {error}"))
    })
}

/// How a test failed, as one word for [`failure`] and the library's own sentence.
fn key(error: &riperf3::RiperfError) -> String {
    use riperf3::RiperfError as E;
    let word = match error {
        E::Io(io) => match io.kind() {
            std::io::ErrorKind::ConnectionRefused => "refused",
            std::io::ErrorKind::TimedOut => "timeout",
            std::io::ErrorKind::UnexpectedEof
            | std::io::ErrorKind::ConnectionReset
            | std::io::ErrorKind::BrokenPipe => "closed",
            _ => "io",
        },
        E::AccessDenied => "busy",
        E::ConnectionTimeout => "timeout",
        E::ControlSocketClosed | E::PeerDisconnected => "closed",
        E::ServerTerminated => "terminated",
        E::ServerErrorRelayed(_) => "server",
        E::Json(_) | E::Protocol(_) | E::CookieMismatch => "protocol",
        _ => "other",
    };
    format!("{word}|{error}")
}

/// The sentence for a failure that [`key`] described; `place` is the server as the user named it.
#[must_use]
pub fn failure(data: &str, place: &str) -> Error {
    let (word, detail) = data.split_once('|').unwrap_or(("other", data));
    let (phase, kind, message) = match word {
        "refused" => (
            Phase::Connect,
            Kind::Refused,
            format!(
                "nobody listens on {place}: start 'iperf3 -s' on the server (its package is called iperf3), or name another port as HOST:PORT"
            ),
        ),
        "timeout" => (
            Phase::Connect,
            Kind::TimedOut,
            format!(
                "{place} does not answer at all: a firewall drops the packets, or the address is wrong; open the port, or name another as HOST:PORT"
            ),
        ),
        "busy" => (
            Phase::Connect,
            Kind::Denied,
            format!(
                "the iperf3 server on {place} is busy with someone else's test, or wants a password: try again when it is done (a server that stays busy keeps a broken test: start it anew)"
            ),
        ),
        "closed" => (
            Phase::Io,
            Kind::Gone,
            format!(
                "{place} closed the connection in the middle of the test: is it an iperf3 server, and was it stopped?"
            ),
        ),
        "terminated" => (
            Phase::Io,
            Kind::Gone,
            format!("the iperf3 server on {place} was stopped during the test"),
        ),
        "server" => (
            Phase::Io,
            Kind::Denied,
            format!("the iperf3 server on {place} refuses the test: {detail}"),
        ),
        "protocol" => (
            Phase::Connect,
            Kind::Protocol,
            format!("what listens on {place} is no iperf3 server ({detail})"),
        ),
        _ => (
            Phase::Io,
            Kind::Other,
            format!("the network test with {place} failed: {detail}"),
        ),
    };
    Error::new(phase, kind, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_failure_has_its_own_sentence() {
        let words = [
            "refused",
            "timeout",
            "busy",
            "closed",
            "terminated",
            "server",
            "protocol",
            "other",
        ];
        let mut seen = std::collections::HashSet::new();
        for word in words {
            let error = failure(&format!("{word}|detail"), "nas:5201");
            assert!(error.message.contains("nas:5201"), "{error}");
            assert!(seen.insert(error.message.clone()), "{error}");
        }
    }

    #[test]
    fn what_a_library_error_means_is_kept() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(key(&riperf3::RiperfError::Io(refused)).starts_with("refused|"));
        assert!(key(&riperf3::RiperfError::AccessDenied).starts_with("busy|"));
        let garbage = riperf3::RiperfError::Protocol("bad state 71".into());
        let told = failure(&key(&garbage), "x:1");
        assert_eq!(told.kind, Kind::Protocol);
    }
}
