//! The agent on the server, as this program sees it: started by a command, asked one thing at a time or several.
//!
//! Read first. `--agent` is a command in shell words whose input and output reach a `nasgauge agent` (ssh, `ip netns
//! exec`, kubectl exec), as rsync's `-e` is one; or a host to which `push` sends the program by ssh. `channel` is the
//! command, `wire` the words. Every wait has an end, and
//! every error names the command and what it printed. Must not know: what the answers are good for. Clocks of the two
//! computers are never compared.

mod binary;
mod channel;
mod push;
pub mod wire;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::error::{Error, Kind, Phase, Result};
use crate::probe::cgroup::Throttle;
use crate::probe::sockets::Connection;
use crate::probe::{Counters, Snapshot};

use channel::Channel;
use wire::{Answer, Ask, Hello, Marker, Request, Sample, Service, Storage, StorageReport, Tell};

/// How long a greeting may take: ssh may ask for a password first.
const GREETING: Duration = Duration::from_mins(1);
/// How long an answer may take that needs no work.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a look at the agent's computer may take; the agent gives up before.
const LOOK: Duration = Duration::from_secs(35);
/// How long the dropping of caches may take; the agent gives up before.
const DROP: Duration = Duration::from_secs(305);
/// How much later than a port's deadline its last word may come.
const LATE: Duration = Duration::from_secs(5);

/// A connected agent, ended when dropped.
pub struct Agent {
    channel: Channel,
    next: u64,
    /// Answers to requests that were not asked for yet.
    kept: HashMap<u64, VecDeque<Answer>>,
}

/// A port that an agent opened for one test.
#[derive(Debug)]
pub struct TestPort {
    /// Where to connect.
    pub address: SocketAddr,
    id: u64,
    time: Duration,
}

impl Agent {
    /// Starts the agent that `--agent` names, and checks that both are the same build.
    pub fn connect(text: &str) -> Result<Self> {
        Self::connect_within(text, GREETING)
    }

    /// The same, with another limit for the agent's greeting.
    pub fn connect_within(text: &str, patience: Duration) -> Result<Self> {
        let name = format!("--agent \"{text}\"");
        let words = shlex::split(text).ok_or_else(|| {
            let message = "a quotation mark or backslash has no partner";
            Error::usage(message).at(&name)
        })?;
        let channel = match push::parse(&words)? {
            Some(place) => push::start(&place, &name)?,
            None => Channel::start(&words, &name)?,
        };
        Self::greet(channel, patience)
    }

    fn greet(mut channel: Channel, patience: Duration) -> Result<Self> {
        let what = "the agent's greeting";
        let line = channel.line(patience, what)?;
        let hello: Hello = wire::message(&line).ok_or_else(|| channel.nonsense(&line, what))?;
        hello
            .check("the agent")
            .map_err(|error| error.at(&channel.name))?;
        channel.send(wire::line(&Hello::own())?, ANSWER)?;
        Ok(Self {
            channel,
            next: 1,
            kept: HashMap::new(),
        })
    }

    /// The command, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.channel.name
    }

    /// Facts about the agent's computer.
    pub fn facts(&mut self) -> Result<Snapshot> {
        let id = self.ask(Request::Facts)?;
        match self.answer(id, LOOK)? {
            Answer::Facts(facts) => Ok(*facts),
            other => Err(self.unexpected(&other)),
        }
    }

    /// What moved on the agent's computer up to now; its clock is its own.
    pub fn counters(&mut self) -> Result<Counters> {
        let id = self.ask(Request::Counters)?;
        match self.answer(id, LOOK)? {
            Answer::Counters(counters) => Ok(*counters),
            other => Err(self.unexpected(&other)),
        }
    }

    /// How often groups of processes of the agent's computer were stopped up to now; None where no group is limited.
    pub fn throttle(&mut self) -> Result<Option<Throttle>> {
        let id = self.ask(Request::Throttle)?;
        match self.answer(id, LOOK)? {
            Answer::Throttle(throttle) => Ok(throttle),
            other => Err(self.unexpected(&other)),
        }
    }

    /// The TCP connections of this port of the server, as its kernel sees them.
    pub fn connections(&mut self, port: u16) -> Result<Vec<Connection>> {
        let id = self.ask(Request::Connections(port))?;
        match self.answer(id, LOOK)? {
            Answer::Connections(found) => Ok(found),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Opens a port for one test of `service` on one address of the agent's computer, that only `peer` sees, and that
    /// closes after `time` whatever happens.
    pub fn open_port(
        &mut self,
        service: Service,
        address: IpAddr,
        peer: IpAddr,
        time: Duration,
    ) -> Result<TestPort> {
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        let id = self.ask(Request::Port(wire::Port {
            service,
            address,
            port: None,
            peer,
            seconds,
        }))?;
        match self.answer(id, ANSWER)? {
            Answer::Listening(port) => Ok(TestPort {
                address: SocketAddr::new(address, port),
                id,
                time: Duration::from_secs(seconds),
            }),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Waits until the test of a port is over, and gives its error, if it had one.
    pub fn finish(&mut self, port: &TestPort) -> Result<()> {
        match self.answer(port.id, port.time + LATE)? {
            Answer::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Closes a port before its test is over.
    pub fn close(&mut self, port: &TestPort) -> Result<()> {
        let id = self.ask(Request::Cancel(port.id))?;
        self.kept.remove(&port.id);
        match self.answer(id, ANSWER)? {
            Answer::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Runs a plan on the agent's own storage.
    pub fn storage(&mut self, plan: Storage) -> Result<StorageReport> {
        let id = self.ask(Request::Storage(Box::new(plan)))?;
        // It says every second that it is at work, so only silence ends the wait.
        match self.answer(id, ANSWER)? {
            Answer::Storage(report) => Ok(*report),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Where below its path a marker is that this program made on the target; None when it is not there, so that path
    /// and target are not the same storage.
    pub fn find(&mut self, marker: Marker) -> Result<Option<String>> {
        let id = self.ask(Request::Find(marker))?;
        match self.answer(id, LOOK)? {
            Answer::Found(place) => Ok(place),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Whether bytes that this program wrote to a LUN stand in that file or device of the agent's computer.
    pub fn same(&mut self, sample: Sample) -> Result<bool> {
        let id = self.ask(Request::Compare(sample))?;
        match self.answer(id, LOOK)? {
            Answer::Same(same) => Ok(same),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Makes the agent's computer forget what it caches of this file or device of its.
    pub fn forget(&mut self, path: &str) -> Result<()> {
        let id = self.ask(Request::Forget(path.to_owned()))?;
        match self.answer(id, DROP)? {
            Answer::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Makes the agent's computer forget what it caches of its disks.
    pub fn drop_caches(&mut self) -> Result<()> {
        let id = self.ask(Request::DropCaches)?;
        match self.answer(id, DROP)? {
            Answer::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    fn ask(&mut self, request: Request) -> Result<u64> {
        let id = self.next;
        self.next += 1;
        let line = wire::line(&Ask { id, request })?;
        self.channel.send(line, ANSWER)?;
        self.kept.insert(id, VecDeque::new());
        Ok(id)
    }

    /// The next answer to a request that says something; a failure is the error that it tells.
    fn answer(&mut self, id: u64, patience: Duration) -> Result<Answer> {
        loop {
            let answer = self.next_answer(id, patience)?;
            if answer.last() {
                self.kept.remove(&id);
            }
            match answer {
                Answer::Working => {}
                Answer::Failed(error) => return Err(error.at(&self.channel.name)),
                answer => return Ok(answer),
            }
        }
    }

    fn next_answer(&mut self, id: u64, patience: Duration) -> Result<Answer> {
        let what = "an answer";
        let deadline = std::time::Instant::now() + patience;
        loop {
            if let Some(answer) = self.kept.get_mut(&id).and_then(VecDeque::pop_front) {
                return Ok(answer);
            }
            // Words about other requests must not prolong the wait for this one.
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                let message = format!("it gave no answer within {} s", patience.as_secs_f64());
                return Err(self.channel.error(Kind::TimedOut, &message));
            }
            let line = self.channel.line(left, what)?;
            let Tell { id, answer } =
                wire::message(&line).ok_or_else(|| self.channel.nonsense(&line, what))?;
            // Of a request that was given up, nothing is kept.
            if let Some(kept) = self.kept.get_mut(&id) {
                kept.push_back(answer);
            }
        }
    }

    fn unexpected(&self, answer: &Answer) -> Error {
        let mut text = format!("{answer:?}");
        text.truncate(text.floor_char_boundary(80));
        let message = format!("it gave an answer to another question: {text}");
        self.channel.error(Kind::Protocol, &message)
    }
}

/// The address of this computer from which it reaches `target`: the peer that a test port is opened for. Nothing is
/// sent. Behind address translation the server sees another one.
pub fn own_address(target: IpAddr) -> Result<IpAddr> {
    let failed = |error: std::io::Error| {
        Error::io(Phase::Connect, &error, &format!("find a route to {target}"))
    };
    let any: SocketAddr = match target {
        IpAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).map_err(failed)?;
    // Connecting a UDP socket chooses its address and sends nothing; the port does not matter.
    socket.connect((target, 9)).map_err(failed)?;
    socket.local_addr().map(|own| own.ip()).map_err(failed)
}
