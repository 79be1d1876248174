//! A command whose standard input and output reach an agent, and all that can go wrong with one.
//!
//! Whatever it prints on standard error is kept, the end of it, and stands in every error: only the command itself knows
//! that a host is unknown or a password wrong. Every wait has an end. Must not know: what is asked of the agent.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::wire::{Lines, Piece};
use crate::error::{Error, Kind, Phase, Result};

/// The end of standard error that is kept, in bytes.
const TAIL: usize = 4096;
/// Of that, the lines that stand in an error.
const TAIL_LINES: usize = 4;
/// Lines that may wait for us before the command has to.
const AHEAD: usize = 64;
/// How long a command may take to end by itself once its input is closed, and to say why it ended.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long the rest of standard error may take once the command has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Of what a stranger printed, this much is shown.
const SHOWN: usize = 120;

/// What the reader of standard output found.
pub(super) enum Heard {
    Line(Vec<u8>),
    TooLong,
    End(Vec<u8>),
}

/// The running command.
pub(super) struct Channel {
    /// As the user would write it, for messages.
    pub(super) name: String,
    program: String,
    process: Child,
    input: Option<ChildStdin>,
    heard: Receiver<Heard>,
    tail: Arc<Mutex<Vec<u8>>>,
    /// Standard error has ended.
    silent: Arc<AtomicBool>,
    status: Option<ExitStatus>,
}

impl Channel {
    /// Starts the command.
    pub(super) fn start(words: &[String], name: &str) -> Result<Self> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(Error::usage(
                "it is empty; it takes ssh:[user@]host, or a command that starts 'nasgauge agent' there",
            )
            .at(name));
        };
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| cannot_start(program, &error).at(name))?;
        let pipes = (
            process.stdin.take(),
            process.stdout.take(),
            process.stderr.take(),
        );
        let (Some(input), Some(mut output), Some(errors)) = pipes else {
            let message = "the command has no pipes";
            return Err(Error::new(Phase::Connect, Kind::Other, message).at(name));
        };
        let (sender, heard) = sync_channel(AHEAD);
        let tail = Arc::new(Mutex::new(Vec::new()));
        spawn("agent", move || listen(&mut output, &sender))?;
        let kept = Arc::clone(&tail);
        let silent = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&silent);
        spawn("agent errors", move || {
            keep_tail(errors, &kept);
            ended.store(true, Relaxed);
        })?;
        Ok(Self {
            name: name.to_owned(),
            program: program.clone(),
            process,
            input: Some(input),
            heard,
            tail,
            silent,
            status: None,
        })
    }

    /// Sends bytes, within `patience`.
    pub(super) fn send(&mut self, bytes: Vec<u8>, patience: Duration) -> Result<()> {
        let Some(mut input) = self.input.take() else {
            return Err(self.ended(&[]));
        };
        let (sender, receiver) = sync_channel(1);
        // A command that does not read would hold us for ever: its pipe takes 64 KiB and no more.
        spawn("agent input", move || {
            let written = input.write_all(&bytes).and_then(|()| input.flush());
            let _ = sender.send((input, written));
        })?;
        match receiver.recv_timeout(patience) {
            Ok((input, Ok(()))) => {
                self.input = Some(input);
                Ok(())
            }
            // It has ended, and tells more by how than the broken pipe does.
            Ok((_, Err(_))) => Err(self.ended(&[])),
            Err(_) => Err(self.too_late(patience, "take what was sent to it")),
        }
    }

    /// The next line within `patience`; `what` is waited for.
    pub(super) fn line(&mut self, patience: Duration, what: &str) -> Result<Vec<u8>> {
        match self.heard.recv_timeout(patience) {
            Ok(Heard::Line(line)) => Ok(line),
            Ok(Heard::TooLong) => {
                let message = format!(
                    "a line of more than {} bytes came where {what} was expected; whatever runs there is no agent",
                    super::wire::LINE_MAX
                );
                Err(self.error(Kind::Protocol, &message))
            }
            Ok(Heard::End(rest)) => Err(self.ended(&rest)),
            Err(RecvTimeoutError::Timeout) => Err(self.too_late(patience, &format!("send {what}"))),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended(&[])),
        }
    }

    /// A line came that is not what it should be.
    pub(super) fn nonsense(&self, line: &[u8], what: &str) -> Error {
        let message = format!(
            "it printed \"{}\" where {what} was expected; if that is a greeting of the other computer's, make its shell \
             silent for commands (look into ~/.bashrc and ~/.profile there), since standard output belongs to the agent",
            shown(line)
        );
        self.error(Kind::Protocol, &message)
    }

    fn too_late(&self, patience: Duration, what: &str) -> Error {
        let message = format!("it did not {what} within {} s", patience.as_secs_f64());
        self.error(Kind::TimedOut, &message)
    }

    /// Why the command ended, in the words that its exit code stands for.
    fn ended(&mut self, rest: &[u8]) -> Error {
        self.input = None;
        let status = self.wait(FAREWELL);
        self.hear_out();
        let cut = match rest {
            [] => String::new(),
            rest => format!(" in the middle of a line (\"{}\")", shown(rest)),
        };
        let (kind, message) = match status {
            None => (
                Kind::Gone,
                format!("it closed its output{cut} but goes on running"),
            ),
            Some(status) => match (status.code(), status.signal()) {
                (Some(127), _) => (
                    Kind::NotFound,
                    "it found no such program there (exit code 127); give the full path of nasgauge on that computer, \
                     or let --agent ssh:[user@]host send it"
                        .to_owned(),
                ),
                (Some(126), _) => (
                    Kind::Denied,
                    "what it found there can't be executed (exit code 126): is it built for another kind of machine, or \
                     on a file system mounted noexec?"
                        .to_owned(),
                ),
                (Some(255), _) if is_ssh(&self.program) => (
                    Kind::Gone,
                    format!("ssh itself failed (exit code 255){cut}; try the same ssh command by hand"),
                ),
                (Some(code), _) => (Kind::Gone, format!("it ended with exit code {code}{cut}")),
                (None, Some(signal)) => (Kind::Gone, format!("it was ended by signal {signal}{cut}")),
                (None, None) => (Kind::Gone, format!("it ended{cut}")),
            },
        };
        self.error(kind, &message)
    }

    /// An error of this command, with what it printed on standard error.
    pub(super) fn error(&self, kind: Kind, message: &str) -> Error {
        let printed = match self.printed() {
            printed if printed.is_empty() => "; it printed nothing on standard error".to_owned(),
            printed => format!("; it printed on standard error: {printed}"),
        };
        let message = format!("{message}{printed}");
        Error::new(Phase::Connect, kind, message).at(&self.name)
    }

    /// The last lines of standard error, on one line.
    pub(super) fn printed(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&tail);
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.trim().chars().filter(|c| !c.is_control()).collect())
            .filter(|line: &String| !line.is_empty())
            .collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join(" / ")
    }

    /// Waits until all that it printed on standard error was read; a process that it left behind may keep that open.
    fn hear_out(&self) {
        let deadline = Instant::now() + LAST_WORDS;
        while !self.silent.load(Relaxed) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Its exit status, if it ends within `patience`.
    fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        while self.status.is_none() {
            match self.process.try_wait() {
                Ok(Some(status)) => self.status = Some(status),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                _ => break,
            }
        }
        self.status
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // An agent ends when its input closes, and so does ssh.
        self.input = None;
        if self.wait(FAREWELL).is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

fn is_ssh(program: &str) -> bool {
    program.rsplit('/').next() == Some("ssh")
}

fn cannot_start(program: &str, error: &std::io::Error) -> Error {
    if error.kind() == ErrorKind::NotFound {
        let message = format!("there is no program '{program}' on this computer");
        return Error::new(Phase::Connect, Kind::NotFound, message);
    }
    Error::io(Phase::Connect, error, &format!("start '{program}'"))
}

/// What a stranger printed, fit for a terminal.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown: String = text
        .chars()
        .filter(|c| !c.is_control())
        .take(SHOWN)
        .collect();
    if text.chars().count() > SHOWN {
        shown.push('…');
    }
    shown
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(body)
        .map(drop)
        .map_err(|error| Error::io(Phase::Connect, &error, "start a thread for the agent"))
}

fn listen(output: &mut impl Read, sender: &SyncSender<Heard>) {
    let mut lines = Lines::default();
    loop {
        let (heard, last) = match lines.next(output) {
            Piece::Line(line) => (Heard::Line(line), false),
            Piece::TooLong => (Heard::TooLong, true),
            Piece::End(rest) => (Heard::End(rest), true),
        };
        // Nobody waits for a command that was given up.
        if sender.send(heard).is_err() || last {
            return;
        }
    }
}

fn keep_tail(mut errors: impl Read, tail: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 1024];
    loop {
        match errors.read(&mut bytes) {
            Ok(0) => return,
            Ok(count) => {
                let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
                tail.extend_from_slice(&bytes[..count]);
                let over = tail.len().saturating_sub(TAIL);
                tail.drain(..over);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
