//! A worker in a child process: this program again, with the hidden argument [`ARGUMENT`].
//!
//! The child's HOME is a private empty directory, so that no configuration of the user's changes what is measured. It
//! dies with its parent. It stands in a process group of its own: Ctrl-C reaches the parent, which ends it in order.

use std::io::{BufReader, stdin, stdout};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use crate::engine::{Job, Live, Report};
use crate::error::{Error, Kind, Phase, Result};
use crate::fleet::opened::Opened;
use crate::fleet::wire::{Errand, Order, Word, receive, send};
use crate::fleet::{Event, Member, Post, files, flows};
use crate::target::{self, Login};

/// The hidden first argument of a child.
pub const ARGUMENT: &str = "__worker";
/// How often a child tells its counters.
const LIVE_PERIOD: Duration = Duration::from_millis(100);

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Names the nasgauge executable that children run; the running one unless told. For tests, whose executable is another.
pub fn set_program(path: &Path) {
    let _ = PROGRAM.set(path.to_owned());
}

/// A private HOME, removed with its owner; its name is nobody else's, also not that of one that a killed program left.
fn home() -> std::io::Result<TempDir> {
    let home = tempfile::Builder::new()
        .prefix("nasgauge-home-")
        .permissions(PermissionsExt::from_mode(0o700))
        .tempdir()?;
    std::fs::write(home.path().join(target::HOME_MARKER), "")?;
    Ok(home)
}

/// A started child with its two pipes.
pub(super) struct Spawned {
    process: Process,
    pub(super) input: ChildStdin,
    pub(super) output: Option<BufReader<ChildStdout>>,
    home: Option<TempDir>,
}

impl Spawned {
    pub(super) fn start(errand: &Errand) -> Result<Self> {
        let failed =
            |error: &std::io::Error| Error::io(Phase::Prepare, error, "start a worker process");
        let program = match PROGRAM.get() {
            Some(path) => path.clone(),
            None => std::env::current_exe().map_err(|error| failed(&error))?,
        };
        let home = home().map_err(|error| failed(&error))?;
        let mut process =
            std::os::unix::process::CommandExt::process_group(&mut Command::new(program), 0)
                .arg(ARGUMENT)
                .env("HOME", home.path())
                .env_remove("NASGAUGE_PASSWORD")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|error| failed(&error))?;
        let (Some(mut input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Error::new(
                Phase::Prepare,
                Kind::Other,
                "a worker process has no pipes",
            ));
        };
        send(&mut input, errand)?;
        Ok(Self {
            process,
            input,
            output: Some(BufReader::new(output)),
            home: Some(home),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// How it ended, once it has.
    pub(super) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    pub(super) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Now: the thread that listens may hold on for a moment longer, and the program may end before it does.
        self.home = None;
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A worker in a child process.
pub(super) struct Child {
    spawned: Arc<Mutex<Spawned>>,
}

impl Child {
    pub(super) fn start(
        login: &Login,
        job: Job,
        live: Arc<Live>,
        stop: Arc<AtomicBool>,
        post: Post,
    ) -> Result<Self> {
        let mut spawned = Spawned::start(&Errand::Work {
            login: login.clone(),
            job: Box::new(job),
        })?;
        let output = spawned.output.take();
        let spawned = Arc::new(Mutex::new(spawned));
        let orders = Arc::clone(&spawned);
        let listen = move || {
            let mut told = false;
            let gone = || Error::new(Phase::Io, Kind::Gone, "a worker process died");
            let mut output = output;
            let report = loop {
                let word = output.as_mut().map_or(Ok(None), receive);
                match word {
                    Ok(Some(Word::Ready)) => post.send(Event::Ready),
                    Ok(Some(Word::Live(snapshot))) => live.set(&snapshot),
                    Ok(Some(Word::Report(report))) => break report,
                    Ok(None) => {
                        break Box::new(Report {
                            error: Some(gone()),
                            ..Report::default()
                        });
                    }
                    Err(error) => {
                        break Box::new(Report {
                            error: Some(error),
                            ..Report::default()
                        });
                    }
                }
                if stop.load(Relaxed) && !told {
                    told = true;
                    let mut spawned = orders.lock().unwrap_or_else(PoisonError::into_inner);
                    // A child that does not listen has ended or will be killed.
                    let _ = send(&mut spawned.input, &Order::Stop);
                }
            };
            post.send(Event::Report(report));
        };
        std::thread::Builder::new()
            .name("child".into())
            .spawn(listen)
            .map_err(|error| {
                Error::io(
                    Phase::Prepare,
                    &error,
                    "start a thread for a worker process",
                )
            })?;
        Ok(Self { spawned })
    }
}

impl Member for Child {
    fn go(&mut self, start_ns: u64) {
        let mut spawned = self.spawned.lock().unwrap_or_else(PoisonError::into_inner);
        // A child that is gone closes its pipe, which its listener reports.
        let _ = send(&mut spawned.input, &Order::Go(start_ns));
    }

    fn kill(&mut self) {
        self.spawned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .kill();
    }
}

/// The child's way to its parent. Not standard output: libraries print there, so that goes to standard error.
pub(super) type Voice = Mutex<std::fs::File>;

fn take_voice() -> std::io::Result<Voice> {
    let voice = rustix::io::fcntl_dupfd_cloexec(stdout(), 3)?;
    rustix::stdio::dup2_stdout(std::io::stderr())?;
    Ok(Mutex::new(voice.into()))
}

/// Says one message to the parent.
pub(super) fn say(voice: &Voice, message: &impl serde::Serialize) -> Result<()> {
    send(
        &mut *voice.lock().unwrap_or_else(PoisonError::into_inner),
        message,
    )
}

/// The child's side: serves one errand from standard input and ends.
pub fn serve() -> Result<()> {
    // The kernel ends this process when its parent is gone, however that ended.
    let signal = rustix::process::Signal::KILL;
    rustix::process::set_parent_process_death_signal(Some(signal)).map_err(|error| {
        Error::io(
            Phase::Prepare,
            &error.into(),
            "tie a worker process to its parent",
        )
    })?;
    let mut input = BufReader::new(stdin());
    let voice = || {
        take_voice()
            .map_err(|error| Error::io(Phase::Prepare, &error, "set up a worker process's pipes"))
    };
    match receive::<Errand>(&mut input)? {
        Some(Errand::Files { login }) => files::serve(&login, &mut input, &voice()?),
        Some(Errand::Work { login, job }) => work(&login, &job, input, &Arc::new(voice()?)),
        // Its library's way to the parent is standard output itself.
        Some(Errand::Flows(order)) => flows::serve(&order),
        None => Ok(()),
    }
}

fn work(
    login: &Login,
    job: &Job,
    input: BufReader<std::io::Stdin>,
    voice: &Arc<Voice>,
) -> Result<()> {
    let protocol = target::find(&login.spec)?;
    let live = Arc::new(Live::default());
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(AtomicBool::new(false));
    let (start, wait) = channel();
    spawn("orders", {
        let stop = Arc::clone(&stop);
        move || follow(input, &start, &stop)
    })?;
    let report = match Opened::open(protocol, login, job) {
        Ok(opened) => {
            let teller = spawn("live", {
                let (live, ended, voice) =
                    (Arc::clone(&live), Arc::clone(&ended), Arc::clone(voice));
                move || tell(&live, &ended, &voice)
            });
            let report = opened.run(job, &live, &stop, || {
                say(voice, &Word::Ready).ok()?;
                wait.recv().ok()
            });
            ended.store(true, Relaxed);
            let _ = teller.map(std::thread::JoinHandle::join);
            report
        }
        Err(error) => Report {
            error: Some(error),
            ..Report::default()
        },
    };
    say(voice, &Word::Report(Box::new(report)))
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(body)
        .map_err(|error| Error::io(Phase::Prepare, &error, "start a thread"))
}

/// Follows orders until the parent closes the pipe.
fn follow(mut input: BufReader<std::io::Stdin>, start: &Sender<u64>, stop: &AtomicBool) {
    while let Ok(Some(order)) = receive::<Order>(&mut input) {
        match order {
            Order::Go(start_ns) => {
                let _ = start.send(start_ns);
            }
            Order::Stop => stop.store(true, Relaxed),
        }
    }
    stop.store(true, Relaxed);
}

/// Tells the counters until the work has ended.
fn tell(live: &Live, ended: &AtomicBool, voice: &Voice) {
    while !ended.load(Relaxed) {
        std::thread::sleep(LIVE_PERIOD);
        if ended.load(Relaxed) || say(voice, &Word::Live(live.read())).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_home_is_private_and_nobody_elses() {
        let (one, other) = (super::home().expect("new"), super::home().expect("new"));
        assert_ne!(one.path(), other.path());
        assert!(one.path().join(crate::target::HOME_MARKER).exists());
        let mode = std::fs::metadata(one.path()).expect("there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o700);
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists());
    }
}
