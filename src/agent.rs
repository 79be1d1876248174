//! The agent: what `nasgauge agent` does on the server's side, for the one who holds its standard input and output.
//!
//! Read first. [`serve`] is one thread that reads requests (`fleet::agent::wire`), runs each in a process of its own
//! (`errand`) and hands its words on; so nothing that a peer or a disk does can keep it from closing a port at its
//! deadline. It opens nothing by itself, resolves no names, reaches only the paths that it was allowed
//! (`Allowed`), and ends when its input closes. Must not know: what started it, or what becomes of the answers.

mod allowed;
mod errand;
mod proof;
mod storage;

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use crate::error::{Error, Kind, Phase, Result};
use crate::fleet::agent::wire::{self, Answer, Ask, Hello, Lines, Port, Request, Service, Tell};
use crate::probe::sockets::{self, Filter};
use crate::probe::{Counters, Snapshot, cgroup};
use crate::servers::{iperf3, one_peer, round_trip};

use allowed::Allowed;
use errand::{Errand, Voice};

/// With this begins the directory of a program that was sent.
const SENT: &str = "nasgauge-agent-";
/// Requests that may be under way at one time.
const ERRANDS_MAX: usize = 16;
/// The longest that a port may stay open or a request take: a day.
const SECONDS_MAX: u64 = 86_400;
/// How long a look at the computer may take: at a mount whose server is away it would hang.
const LOOK_SECONDS: u64 = 30;
/// How long the dropping of caches may take, which brings all that is dirty to the disks first.
const DROP_SECONDS: u64 = 300;
/// Written at once: what a pipe takes without waiting, once it takes anything (`PIPE_BUF`, pipe(7)).
const CHUNK: usize = 4096;
/// Answers that may wait for a peer that does not read.
const WAITING_MAX: usize = 16 << 20;

/// What the agent may do on its computer.
#[derive(Debug, Clone, Default)]
pub struct Permissions {
    /// Paths that it may use, to read; none by default.
    pub paths: Vec<PathBuf>,
    /// It may lay test files of its own in them.
    pub write: bool,
    /// It may make the computer forget its caches.
    pub drop_caches: bool,
}

/// Serves standard input and output until the input closes.
pub fn serve(permissions: &Permissions) -> Result<()> {
    let allowed = Allowed::open(&permissions.paths)?;
    let failed = |error: std::io::Error| Error::io(Phase::Prepare, &error, "set up the agent");
    // Libraries print to standard output; from here on that goes to standard error, and the words go by a copy.
    let output = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3)
        .map_err(|errno| failed(errno.into()))?;
    rustix::stdio::dup2_stdout(std::io::stderr()).map_err(|errno| failed(errno.into()))?;
    let input = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)
        .map_err(|errno| failed(errno.into()))?;
    Agent {
        input: input.into(),
        output: output.into(),
        waiting: Vec::new(),
        lines: Lines::default(),
        errands: Vec::new(),
        dead: Vec::new(),
        greeted: false,
        rights: Rights {
            allowed,
            write: permissions.write,
            drop_caches: permissions.drop_caches,
        },
    }
    .run()
}

/// Unlinks this program and its directory, when it was sent for this run; anything else is left alone.
pub fn remove_itself() {
    let Some(program) = std::env::args_os().next().map(PathBuf::from) else {
        return;
    };
    let Some(directory) = program.parent() else {
        return;
    };
    let ours = directory
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(SENT));
    if ours && program.is_absolute() {
        // The script that sent it tries again when this fails.
        let _ = std::fs::remove_file(&program);
        let _ = std::fs::remove_dir(directory);
    }
}

struct Agent {
    input: File,
    output: File,
    /// Bytes that the peer has not taken yet.
    waiting: Vec<u8>,
    lines: Lines,
    errands: Vec<Errand>,
    /// Processes that are ended, to be taken leave of.
    dead: Vec<Pid>,
    greeted: bool,
    rights: Rights,
}

/// The permissions, with their paths open.
#[derive(Debug, Clone)]
struct Rights {
    allowed: Allowed,
    write: bool,
    drop_caches: bool,
}

/// What a turn of the loop found ready.
struct Ready {
    input: bool,
    output: bool,
    errands: Vec<bool>,
}

impl Agent {
    fn run(mut self) -> Result<()> {
        self.waiting = wire::line(&Hello::own())?;
        loop {
            let ready = self.wait()?;
            if ready.output && !self.write() {
                return Ok(());
            }
            if ready.input && !self.read()? {
                return Ok(());
            }
            for (index, ready) in ready.errands.iter().enumerate() {
                if *ready {
                    self.hear(index)?;
                }
            }
            self.end_late()?;
            self.leave();
            if self.waiting.len() > WAITING_MAX {
                let message = "the program that started this agent reads no answers";
                return Err(Error::new(Phase::Io, Kind::Gone, message));
            }
        }
    }

    /// Forgets what is over, whose process ends with it.
    fn leave(&mut self) {
        let (over, left) = std::mem::take(&mut self.errands)
            .into_iter()
            .partition(|errand| errand.over);
        self.errands = left;
        let over: Vec<Errand> = over;
        self.dead.extend(over.iter().map(|errand| errand.pid));
        drop(over);
        errand::bury(&mut self.dead);
    }

    /// Waits for something to do, no longer than to the next deadline.
    fn wait(&self) -> Result<Ready> {
        let next = self.errands.iter().map(|errand| errand.deadline).min();
        let timeout = next.map(|next| {
            let left = next.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let wanted = if self.waiting.is_empty() {
            PollFlags::empty()
        } else {
            PollFlags::OUT
        };
        let mut sources = vec![
            PollFd::new(&self.input, PollFlags::IN),
            // Without a flag it still tells that nobody reads any more.
            PollFd::new(&self.output, wanted),
        ];
        let errands = self.errands.iter().map(AsFd::as_fd);
        sources.extend(errands.map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN)));
        match poll(&mut sources, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                return Err(Error::io(Phase::Io, &errno.into(), "wait for requests"));
            }
        }
        let ready: Vec<bool> = sources
            .iter()
            .map(|source| !source.revents().is_empty())
            .collect();
        Ok(Ready {
            input: ready[0],
            output: ready[1],
            errands: ready[2..].to_vec(),
        })
    }

    /// Writes what fits; false when nobody reads any more.
    fn write(&mut self) -> bool {
        let chunk = &self.waiting[..self.waiting.len().min(CHUNK)];
        match self.output.write(chunk) {
            Ok(count) if count > 0 => {
                self.waiting.drain(..count);
                true
            }
            _ => false,
        }
    }

    fn tell(&mut self, id: u64, answer: Answer) -> Result<()> {
        self.waiting.extend(wire::line(&Tell { id, answer })?);
        Ok(())
    }

    /// Reads requests; false at the end of the input.
    fn read(&mut self) -> Result<bool> {
        let mut bytes = [0; 16 << 10];
        let count = match self.input.read(&mut bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(Error::io(Phase::Io, &error, "read requests")),
        };
        if count == 0 {
            return Ok(false);
        }
        self.lines.push(&bytes[..count]);
        loop {
            match self.lines.pop() {
                Ok(Some(line)) => self.line(&line)?,
                Ok(None) => return Ok(true),
                Err(wire::TooLong) => return Err(nonsense("a line without an end")),
            }
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<()> {
        if !self.greeted {
            let hello: Hello = wire::message(line).ok_or_else(|| nonsense("no greeting"))?;
            hello.check("the program that started this agent")?;
            self.greeted = true;
            return Ok(());
        }
        let Ask { id, request } = wire::message(line).ok_or_else(|| nonsense("no request"))?;
        match request {
            Request::Cancel(number) => {
                // One that has ended meanwhile has said its last word.
                if let Some(errand) = self.errands.iter_mut().find(|errand| errand.id == number) {
                    errand.kill();
                    errand.over = true;
                    let message = "the request was ended on demand";
                    let error = Error::new(Phase::Io, Kind::Interrupted, message);
                    self.tell(number, Answer::Failed(error))?;
                }
                self.tell(id, Answer::Done)
            }
            request => match self.start(id, request) {
                Ok(()) => Ok(()),
                Err(error) => self.tell(id, Answer::Failed(error)),
            },
        }
    }

    fn start(&mut self, id: u64, request: Request) -> Result<()> {
        if self.errands.iter().any(|errand| errand.id == id) {
            return Err(nonsense("a number that is in use"));
        }
        if self.errands.len() >= ERRANDS_MAX {
            return Err(Error::new(
                Phase::Prepare,
                Kind::Other,
                format!("the agent does {ERRANDS_MAX} things at a time, and they are under way"),
            ));
        }
        let time = patience(&request)?;
        let rights = self.rights.clone();
        let deadline = Instant::now() + time;
        let private = self.private();
        let errand = Errand::start(id, deadline, &private, move |voice| {
            work(request, &rights, time, voice)
        })?;
        self.errands.push(errand);
        Ok(())
    }

    /// Descriptors that are the agent's alone.
    fn private(&self) -> Vec<RawFd> {
        let channel = [self.input.as_fd(), self.output.as_fd()];
        let errands = self.errands.iter().map(AsFd::as_fd);
        let all = channel.into_iter().chain(errands);
        all.map(|descriptor: BorrowedFd<'_>| descriptor.as_raw_fd())
            .collect()
    }

    /// Hands on what an errand says.
    fn hear(&mut self, index: usize) -> Result<()> {
        let errand = &mut self.errands[index];
        match errand.hear() {
            Some(lines) => {
                for line in lines {
                    self.waiting.extend(line);
                    self.waiting.push(b'\n');
                }
                Ok(())
            }
            None if errand.over => Ok(()),
            None => {
                let (id, why) = (errand.id, errand.how_it_ended());
                errand.over = true;
                self.tell(id, Answer::Failed(why))
            }
        }
    }

    /// Ends what is over its time.
    fn end_late(&mut self) -> Result<()> {
        let now = Instant::now();
        for index in 0..self.errands.len() {
            let errand = &mut self.errands[index];
            if errand.over || errand.deadline > now {
                continue;
            }
            errand.over = true;
            errand.kill();
            let id = errand.id;
            let message = "the request was not done in its time, and was ended";
            let error = Error::new(Phase::Io, Kind::TimedOut, message);
            self.tell(id, Answer::Failed(error))?;
        }
        Ok(())
    }
}

/// The one error of a peer that breaks the protocol: it ends the agent.
fn nonsense(what: &str) -> Error {
    let message = format!(
        "what came on standard input is not what nasgauge says to its agent ({what}); 'nasgauge agent' is started by \
         'nasgauge … --agent', not by hand"
    );
    Error::new(Phase::Io, Kind::Protocol, message)
}

/// How long a request may take.
fn patience(request: &Request) -> Result<Duration> {
    let seconds = match request {
        Request::Facts
        | Request::Counters
        | Request::Throttle
        | Request::Connections(_)
        | Request::Find(_)
        | Request::Compare(_)
        | Request::Cancel(_) => LOOK_SECONDS,
        Request::DropCaches | Request::Forget(_) => DROP_SECONDS,
        Request::Port(port) => port.seconds,
        Request::Storage(plan) => plan.seconds,
    };
    if (1..=SECONDS_MAX).contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    Err(Error::usage(format!(
        "a request of {seconds} s; the agent takes 1 to {SECONDS_MAX}"
    )))
}

/// Does what is asked, in the errand's process.
fn work(request: Request, rights: &Rights, time: Duration, voice: &mut Voice) -> Result<Answer> {
    match request {
        Request::Facts => Ok(Answer::Facts(Box::new(Snapshot::now()))),
        Request::Counters => Ok(Answer::Counters(Box::new(Counters::now()))),
        Request::Throttle => Ok(Answer::Throttle(cgroup::groups(Path::new("/")))),
        Request::Connections(port) => {
            let filter = Filter {
                local_port: Some(port),
                ..Filter::default()
            };
            sockets::connections(&filter).map(Answer::Connections)
        }
        Request::Port(port) => one_test(&port, time, voice).map(|()| Answer::Done),
        Request::Storage(plan) => storage::run(&rights.allowed, rights.write, &plan, voice)
            .map(|report| Answer::Storage(Box::new(report))),
        Request::Find(marker) => proof::find(&rights.allowed, &marker).map(Answer::Found),
        Request::Compare(sample) => proof::same(&rights.allowed, &sample).map(Answer::Same),
        Request::DropCaches => proof::drop_caches(rights.drop_caches).map(|()| Answer::Done),
        Request::Forget(path) => proof::forget(&rights.allowed, &path).map(|()| Answer::Done),
        Request::Cancel(_) => Ok(Answer::Done),
    }
}

fn one_test(port: &Port, time: Duration, voice: &mut Voice) -> Result<()> {
    if port.address.is_unspecified() || port.peer.is_unspecified() {
        return Err(Error::usage(
            "a test port has one address and one peer, not all of them",
        ));
    }
    if port.address.is_ipv4() != port.peer.is_ipv4() {
        return Err(Error::usage(format!(
            "{} can't be reached from {}: one is IPv4, the other IPv6",
            port.address, port.peer
        )));
    }
    let address = SocketAddr::new(port.address, port.port.unwrap_or(0));
    let deadline = iperf3::own_deadline(time);
    let mut listening = |address: SocketAddr| voice.say(Answer::Listening(address.port()));
    match port.service {
        Service::Iperf3 => iperf3::serve(address, port.peer, deadline, listening),
        Service::RoundTrip => {
            let failed = |error: std::io::Error| one_peer::cannot_bind(address, &error);
            let listener = one_peer::listen(address, port.peer).map_err(failed)?;
            listening(listener.local_addr().map_err(failed)?)?;
            let never = AtomicBool::new(false);
            let served = round_trip::serve(listener, port.peer, deadline, &never)?;
            if served.connections > 0 {
                return Ok(());
            }
            Err(Error::new(
                Phase::Io,
                Kind::TimedOut,
                format!(
                    "{} did not connect to the round-trip port in time",
                    port.peer
                ),
            ))
        }
    }
}
