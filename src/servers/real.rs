//! Real servers as child processes: nfs-ganesha, smbd and tgtd.
//!
//! Each has a private state directory under the caller's work directory, ports of its own on the sandbox's `lo`, and a
//! process group of its own, by which it is stopped, resumed and killed together with the processes that it forks.
//! Dropping it kills the group and removes the state directory (not what was exported). They start only inside a
//! [`Sandbox`], whose end is theirs too, also when this process is killed.
//!
//! Must not know: the embedded servers.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::packages::program;
use super::processes::{self, Process};
use super::sandbox::Sandbox;
use super::wait_for;
use crate::error::{Error, Kind, Phase, Result};

pub mod iscsi;
pub mod nfs;
pub mod smb;

pub use iscsi::{Iscsi, IscsiOptions};
pub use nfs::{Nfs, NfsOptions};
pub use smb::{Smb, SmbOptions};

/// The longest that a helper program (`tgtadm`, `smbpasswd`, `--version`) may take.
const HELPER_TIMEOUT: Duration = Duration::from_secs(10);

/// A server process with all that it forked, killed on drop.
struct Daemon {
    name: &'static str,
    child: Child,
    group: Pid,
    state: State,
    ended: bool,
}

impl Daemon {
    /// Starts `command` in a process group of its own; its output goes to `log` in `state`.
    fn spawn(name: &'static str, state: State, command: &mut Command) -> Result<Self> {
        let failed =
            |error: &std::io::Error| Error::io(Phase::Prepare, error, &format!("start {name}"));
        let log = File::create(state.0.join("log")).map_err(|error| failed(&error))?;
        let copy = log.try_clone().map_err(|error| failed(&error))?;
        let child = command
            .current_dir(&state.0)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(copy)
            .process_group(0)
            .spawn()
            .map_err(|error| failed(&error))?;
        let group = Pid::from_raw(child.id().cast_signed())
            .ok_or_else(|| Error::new(Phase::Prepare, Kind::Other, "a process without a number"))?;
        Ok(Self {
            name,
            child,
            group,
            state,
            ended: false,
        })
    }

    /// Fails when it has ended, with the last lines that it said.
    fn alive(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(Error::new(
                Phase::Prepare,
                Kind::Gone,
                format!(
                    "{} ended while it started; it said: {}",
                    self.name,
                    self.last_words()
                ),
            )),
        }
    }

    fn log(&self) -> String {
        let log = std::fs::read(self.state.0.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn last_words(&self) -> String {
        let text = self.log();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let last = &lines[lines.len().saturating_sub(4)..];
        if last.is_empty() {
            "nothing".to_owned()
        } else {
            last.join(" / ")
        }
    }

    /// Waits until it listens on a port of 127.0.0.1.
    fn listens(&mut self, port: u16) -> Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_for(address, || self.alive())
    }

    /// Waits until it has written `words` to its log.
    fn says(&mut self, words: &str) -> Result<()> {
        let deadline = Instant::now() + HELPER_TIMEOUT;
        while !self.log().contains(words) {
            self.alive()?;
            if Instant::now() > deadline {
                let message = format!(
                    "{} did not come up; it said: {}",
                    self.name,
                    self.last_words()
                );
                return Err(Error::new(Phase::Prepare, Kind::TimedOut, message));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn signal(&self, signal: Signal, doing: &str) -> Result<()> {
        if self.ended {
            let message = format!("could not {doing} {}: it was killed", self.name);
            return Err(Error::new(Phase::Prepare, Kind::Gone, message));
        }
        kill_process_group(self.group, signal).map_err(|error| {
            Error::io(
                Phase::Prepare,
                &error.into(),
                &format!("{doing} {}", self.name),
            )
        })
    }

    /// The living processes of its group: itself and what it forked.
    fn processes(&self) -> Vec<Process> {
        processes::in_group(self.group.as_raw_nonzero().get())
    }

    /// Stops all of the group, and waits until the kernel has done so.
    fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP, "pause")?;
        self.wait_until(|processes| processes.iter().all(|process| process.state == 'T'));
        Ok(())
    }

    /// Kills it and what it forked, and waits for the end.
    fn kill(&mut self) {
        // Once it is waited for and its group is empty, both numbers may become another's.
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let _ = kill_process_group(self.group, Signal::KILL);
        self.wait_until(<[Process]>::is_empty);
        let _ = self.child.wait();
    }

    fn wait_until(&self, reached: impl Fn(&[Process]) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(2);
        while !reached(&self.processes()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The same handful of methods for every real server.
macro_rules! daemon_methods {
    ($server:ty) => {
        impl $server {
            /// The number of its main process.
            #[must_use]
            pub fn pid(&self) -> u32 {
                self.daemon.child.id()
            }

            /// Stops it and what it forked (SIGSTOP): connections stay open and silent.
            pub fn pause(&self) -> Result<()> {
                self.daemon.pause()
            }

            /// Lets it go on (SIGCONT).
            pub fn resume(&self) -> Result<()> {
                self.daemon.signal(rustix::process::Signal::CONT, "resume")
            }

            /// Kills it and what it forked (SIGKILL), as a crash would; dropping does the same.
            pub fn kill(&mut self) {
                self.daemon.kill();
            }

            /// Its living processes: the main one and what it forked.
            #[must_use]
            pub fn processes(&self) -> Vec<crate::servers::processes::Process> {
                self.daemon.processes()
            }

            /// The last lines of its own output, for a failed test.
            #[must_use]
            pub fn last_words(&self) -> String {
                self.daemon.last_words()
            }
        }
    };
}
use daemon_methods;

/// A server's private directory, removed with all that is in it on drop.
struct State(PathBuf);

impl Drop for State {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A new private directory for one server's state.
fn state_dir(work: &Path, name: &str) -> Result<State> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    Sandbox::require()?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let state = work.join(format!("{name}-{}-{number}", std::process::id()));
    std::fs::create_dir_all(work)
        .and_then(|()| std::fs::create_dir(&state))
        .map_err(|error| {
            let doing = format!("create the server's directory {}", state.display());
            Error::io(Phase::Prepare, &error, &doing)
        })?;
    Ok(State(state))
}

/// A free port of 127.0.0.1 from a range that the kernel does not hand out to clients, each once.
fn server_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 10_000;
    for _ in 0..COUNT {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::new(
        Phase::Prepare,
        Kind::Other,
        "no port between 20000 and 29999 is free for a server",
    ))
}

/// Runs a helper program to its end, for at most [`HELPER_TIMEOUT`]; `input` goes to its standard input.
fn helper(command: &mut Command, input: &str) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: &std::io::Error| Error::io(Phase::Prepare, error, &format!("run {name}"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    if let Some(mut stdin) = child.stdin.take() {
        use std::io::Write;
        let _ = stdin.write_all(input.as_bytes());
    }
    // What these programs say fits into a pipe, so they can't be stuck on it.
    let deadline = Instant::now() + HELPER_TIMEOUT;
    while child.try_wait().map_err(|error| failed(&error))?.is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            let message = format!("{name} did not end within {} s", HELPER_TIMEOUT.as_secs());
            return Err(Error::new(Phase::Prepare, Kind::TimedOut, message));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.wait_with_output().map_err(|error| failed(&error))
}

/// The same, failing with what the program said unless it succeeds.
fn helper_ok(command: &mut Command, input: &str) -> Result<()> {
    let output = helper(command, input)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let message = format!(
        "{} failed: {}",
        command.get_program().to_string_lossy(),
        said.trim()
    );
    Err(Error::new(Phase::Prepare, Kind::Other, message))
}

/// The first line that `program flag` says; "unknown version" when it says nothing.
fn version(name: &str, flag: &str) -> Result<String> {
    let output = helper(Command::new(program(name)?).arg(flag), "")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    Ok(line.unwrap_or("unknown version").to_owned())
}

/// Writes a configuration file.
fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)
        .map_err(|error| Error::io(Phase::Prepare, &error, &format!("write {}", path.display())))
}

/// A path for a configuration file; characters that would end a value are refused.
fn plain_path(path: &Path) -> Result<&str> {
    path.to_str()
        .filter(|text| text.starts_with('/') && !text.contains(['"', '\n', ';', '#', '{', '}']))
        .ok_or_else(|| {
            Error::usage(format!(
                "the directory {} can't be served: give an absolute path without quotes, semicolons and line ends",
                path.display()
            ))
        })
}
