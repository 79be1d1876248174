//! What a host offers: every kind of server is asked at once, and all of it ends in bounded time.
//!
//! Read first: [`SOURCES`], one line a kind; [`ask`]. What an answer names is checked here as a target's URI is, since it came
//! from a peer. Must not know: how it is shown. Sizes are in bytes.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Phase, Result};
use crate::spec::uri::TargetSpec;
use crate::target::{self, Discovery, Login, Offer, Search, Secret};

pub mod iperf3;

/// Every kind of server that this build can ask.
const SOURCES: &[&Discovery] = &[
    &target::nfs::discover::DISCOVERY,
    #[cfg(feature = "smb")]
    &target::smb::discover::DISCOVERY,
    #[cfg(feature = "iscsi")]
    &target::iscsi::discover::DISCOVERY,
    &IPERF3,
];

/// No target, but what `nasgauge net` measures against.
const IPERF3: Discovery = Discovery {
    name: "iperf3",
    server: "iperf3 server",
    port: iperf3::PORT,
    find: iperf3_at,
};

/// The longest wait for a connection or an answer.
pub const WAIT: Duration = Duration::from_secs(4);
/// Then no more details are asked for: one wait more fits into the patience.
const ENOUGH: Duration = Duration::from_secs(4);
/// Whoever has not answered by then is given up.
const PATIENCE: Duration = Duration::from_secs(9);
/// More of one kind are not shown.
const OFFERS_MAX: usize = 512;

/// What to ask a host for.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Name or IP literal, without brackets.
    pub host: String,
    /// Ports other than the usual ones, by the name of the protocol.
    pub ports: BTreeMap<&'static str, u16>,
    /// The port of NFS's MOUNT service; None asks the portmapper.
    pub mount_port: Option<u16>,
    /// The Windows domain of the user.
    pub domain: Option<String>,
    /// The user for shares and targets that want one.
    pub user: Option<String>,
    /// The user's password.
    pub secret: Secret,
    /// Also what servers hide or keep for themselves.
    pub hidden: bool,
}

/// What became of one kind of server.
#[derive(Debug)]
pub struct Answer {
    /// The protocol: the URI scheme and the CSV key.
    pub protocol: &'static str,
    /// What people call the server.
    pub server: &'static str,
    /// The port that was asked.
    pub port: u16,
    /// What it offers, at least one thing; or why there is none.
    pub found: Result<Vec<Offer>>,
}

impl Answer {
    /// Why nothing was found, in one sentence.
    #[must_use]
    pub fn why_not(&self) -> Option<String> {
        let error = self.found.as_ref().err()?;
        let Self { server, port, .. } = self;
        Some(match (error.phase, error.kind) {
            (Phase::Resolve, _) => error.message.clone(),
            (_, Kind::Refused) => format!("no {server} answers on port {port} (refused)"),
            (_, Kind::TimedOut) => format!(
                "no {server} answers on port {port} (no answer within {} s: host down, or a firewall drops it)",
                WAIT.as_secs()
            ),
            _ => format!("no {server} found on port {port}: {}", error.message),
        })
    }
}

/// Asks a host for all that it offers; the answers stand in the order of the sources. Ends within 10 seconds.
#[must_use]
pub fn ask(request: &Request) -> Vec<Answer> {
    let end = Instant::now() + PATIENCE;
    let asked: Vec<(Answer, Receiver<Result<Vec<Offer>>>)> = SOURCES
        .iter()
        .map(|source| start(source, request))
        .collect();
    let answer = |(mut answer, receiver): (Answer, Receiver<Result<Vec<Offer>>>)| {
        let left = end.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left) {
            Ok(Ok(offers)) => answer.found = Ok(sound(answer.protocol, offers)),
            Ok(Err(error)) => answer.found = Err(error),
            // It keeps its thread, which ends with the program.
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let message = "its answer made the client give up";
                answer.found = Err(Error::new(Phase::Open, Kind::Protocol, message));
            }
        }
        answer
    };
    asked.into_iter().map(answer).collect()
}

/// Starts to ask; until told otherwise the answer is that there was none.
fn start(source: &'static Discovery, request: &Request) -> (Answer, Receiver<Result<Vec<Offer>>>) {
    let (sender, receiver) = channel();
    let search = search(source, request);
    let spawned = std::thread::Builder::new()
        .name(source.name.to_owned())
        .spawn(move || {
            // Whoever gave up listens no more.
            let _ = sender.send((source.find)(&search));
        });
    let late = || {
        let message = format!("no answer within {} s", PATIENCE.as_secs());
        Error::new(Phase::Open, Kind::Other, message)
    };
    let failed = spawned
        .err()
        .map(|error| Error::io(Phase::Prepare, &error, "start a thread"));
    let answer = Answer {
        protocol: source.name,
        server: source.server,
        port: request
            .ports
            .get(source.name)
            .copied()
            .unwrap_or(source.port),
        found: Err(failed.unwrap_or_else(late)),
    };
    (answer, receiver)
}

fn search(source: &Discovery, request: &Request) -> Search {
    let mut spec = TargetSpec {
        protocol: source.name.to_owned(),
        hosts: vec![request.host.clone()],
        port: request.ports.get(source.name).copied(),
        ..TargetSpec::default()
    };
    // NFS knows user ids only.
    if source.name == "nfs" {
        let port = request.mount_port.map(|port| port.to_string());
        spec.options
            .extend(port.map(|port| ("mountport".to_owned(), port)));
    } else {
        spec.user.clone_from(&request.user);
        spec.domain.clone_from(&request.domain);
    }
    spec.uri = spec.compose();
    let wait = WAIT.as_millis() as u64;
    Search {
        login: Login {
            spec,
            secret: request.secret.clone(),
            connect_timeout_ms: wait,
            io_timeout_ms: wait,
        },
        hidden: request.hidden,
        enough: Instant::now() + ENOUGH,
    }
}

/// Takes URIs back that would not be taken as targets, and bounds what a peer can make us show.
fn sound(protocol: &str, mut offers: Vec<Offer>) -> Vec<Offer> {
    let more = offers.len().saturating_sub(OFFERS_MAX);
    offers.truncate(OFFERS_MAX);
    for offer in &mut offers {
        let checked = match &offer.uri {
            // No target, but what `nasgauge net` takes.
            Some(_) if protocol == IPERF3.name => Ok(()),
            Some(uri) => TargetSpec::parse(uri).and_then(|spec| target::check(&spec).map(drop)),
            None => Ok(()),
        };
        if let Err(error) = checked {
            offer.uri = None;
            offer.note(format!("its name makes no target: {}", error.message));
        }
    }
    if more > 0 {
        offers.push(Offer::bare(
            "",
            format!("and {more} more, which are not shown"),
        ));
    }
    offers
}

fn iperf3_at(search: &Search) -> Result<Vec<Offer>> {
    let login = &search.login;
    let (host, port) = (login.spec.host(), login.spec.port.unwrap_or(iperf3::PORT));
    let answer = iperf3::ask(host, port, login.connect_timeout())?;
    let place = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    let mut offer = Offer::new("iperf3 server", place.clone(), place.clone());
    offer.accessible = Some(answer == iperf3::Answer::Ready);
    offer.note(match answer {
        iperf3::Answer::Ready => format!("for: nasgauge net {place}"),
        iperf3::Answer::Busy => "busy with another test; try again when it has ended".to_owned(),
    });
    Ok(vec![offer])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(uri: &str) -> Offer {
        Offer::new("x", "x", uri.to_owned())
    }

    #[test]
    fn what_is_no_target_loses_its_uri() {
        let offers = sound(
            "nfs",
            vec![
                offer("nfs://h/a%20b"),
                offer("nfs://h/a/%2e%2e/b"),
                offer("nfs://h/%00"),
            ],
        );
        assert_eq!(offers[0].uri.as_deref(), Some("nfs://h/a%20b"));
        for bad in &offers[1..] {
            assert_eq!(bad.uri, None);
            assert!(
                bad.notes[0].starts_with("its name makes no target"),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn a_list_without_end_is_cut_and_says_so() {
        let offers = sound("nfs", vec![offer("nfs://h/a"); OFFERS_MAX + 3]);
        assert_eq!(offers.len(), OFFERS_MAX + 1);
        assert!(offers[OFFERS_MAX].notes[0].contains("3 more"));
    }

    #[test]
    fn each_source_is_asked_with_what_it_takes() {
        let request = Request {
            host: "fe80::1%eth0".to_owned(),
            ports: BTreeMap::from([("nfs", 1234)]),
            mount_port: Some(99),
            domain: Some("WORK".to_owned()),
            user: Some("me".to_owned()),
            ..Request::default()
        };
        let uris: Vec<String> = SOURCES
            .iter()
            .map(|source| search(source, &request).uri("/a b/ü"))
            .collect();
        assert_eq!(
            uris[0],
            "nfs://[fe80::1%25eth0]:1234/a%20b/%C3%BC?mountport=99"
        );
        #[cfg(feature = "smb")]
        assert_eq!(uris[1], "smb://WORK;me@[fe80::1%25eth0]/a%20b/%C3%BC");
    }

    #[test]
    fn nobody_there_is_one_sentence_each() {
        let free = || {
            std::net::TcpListener::bind("127.0.0.1:0")
                .and_then(|one| one.local_addr())
                .expect("free")
                .port()
        };
        let request = Request {
            host: "127.0.0.1".to_owned(),
            ports: SOURCES.iter().map(|source| (source.name, free())).collect(),
            mount_port: Some(free()),
            ..Request::default()
        };
        let answers = ask(&request);
        assert_eq!(answers.len(), SOURCES.len());
        for answer in answers {
            let why = answer.why_not().expect("nobody listens");
            let port = request.ports[answer.protocol];
            assert_eq!(
                why,
                format!("no {} answers on port {port} (refused)", answer.server)
            );
        }
    }
}
