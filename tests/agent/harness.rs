//! What the agent's tests share: the program as an agent, and a raw one to say anything to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nasgauge::fleet::agent::Agent;
use nasgauge::fleet::agent::wire::{self, Ask, Hello, Request, Tell};

/// The program that cargo built.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_nasgauge");
/// Longer than anything here takes when it works.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// What comes within a moment comes within this time on a machine whose processors are away for a while.
pub const MOMENT: Duration = Duration::from_secs(5);
/// The loopback address, which is the peer too.
pub const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// An agent on this computer with these options.
pub fn agent(options: &str) -> Agent {
    Agent::connect(&format!("{PROGRAM} agent {options}")).expect("an agent")
}

/// An agent whose words are read and written as they are.
pub struct Raw {
    pub process: Child,
    pub input: Option<ChildStdin>,
    pub output: BufReader<ChildStdout>,
    next: u64,
}

impl Raw {
    /// Starts one, without a greeting.
    pub fn start(options: &[&str]) -> Self {
        let mut process = Command::new(PROGRAM)
            .arg("agent")
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program");
        Self {
            input: process.stdin.take(),
            output: BufReader::new(process.stdout.take().expect("a pipe")),
            process,
            next: 0,
        }
    }

    /// Starts one and greets it.
    pub fn greeted(options: &[&str]) -> Self {
        let mut raw = Self::start(options);
        let hello: Hello = wire::message(raw.line().as_bytes()).expect("a greeting");
        assert_eq!(hello, Hello::own());
        raw.say(&wire::line(&Hello::own()).expect("a line"));
        raw
    }

    /// Says bytes; an agent that has ended meanwhile does not listen.
    pub fn say(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("open");
        let _ = input.write_all(bytes).and_then(|()| input.flush());
    }

    /// Asks for something and gives its number.
    pub fn ask(&mut self, request: Request) -> u64 {
        self.next += 1;
        let id = self.next;
        self.say(&wire::line(&Ask { id, request }).expect("a line"));
        id
    }

    /// The next line, without its break; empty at the end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// The next answer.
    pub fn hear(&mut self) -> Tell {
        let line = self.line();
        wire::message(line.as_bytes()).unwrap_or_else(|| panic!("no answer: '{line}'"))
    }

    /// Its exit code and standard error, once it has ended by itself.
    pub fn ended(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.process.try_wait().expect("a status") {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "the agent still runs"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut errors = String::new();
        let pipe = self.process.stderr.as_mut().expect("a pipe");
        pipe.read_to_string(&mut errors).expect("text");
        (status.code(), errors)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether anything listens there.
pub fn listens(address: SocketAddr) -> bool {
    // Not by connecting: a one-test port takes its first connection for its client.
    let text = std::fs::read_to_string("/proc/net/tcp").expect("proc");
    let port = format!(":{:04X}", address.port());
    text.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|own| own.ends_with(&port)) && fields.get(3) == Some(&"0A")
    })
}

/// Waits until nothing listens there, no longer than `patience`.
pub fn closes(address: SocketAddr, patience: Duration) {
    let deadline = Instant::now() + patience;
    while listens(address) {
        assert!(Instant::now() < deadline, "{address} still listens");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A connection, with an end to every wait.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// Names in a directory.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("listed");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
