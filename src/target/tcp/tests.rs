//! What a connection says of peers that answer well, badly or not at all.

use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::*;
use crate::op::Durability;
use crate::round_trip::wire::Answer;
use crate::target::Secret;

const LEN: u32 = 1000;
const DEPTH: u16 = 4;

fn attach() -> Attach {
    Attach {
        object: String::new(),
        write: true,
        direct: false,
        durability: Durability::None,
        iodepth: DEPTH,
        block_max: LEN,
        lane: 0,
        round: 0,
    }
}

/// A peer that does `work` with its one connection.
fn peer(work: impl FnOnce(&TcpStream) + Send + 'static) -> (Login, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let thread = std::thread::spawn(move || {
        let (socket, _) = listener.accept().expect("a connection");
        work(&socket);
    });
    let login = Login {
        spec: TargetSpec {
            uri: format!("tcp://127.0.0.1:{port}"),
            protocol: "tcp".into(),
            hosts: vec!["127.0.0.1".into()],
            port: Some(port),
            ..TargetSpec::default()
        },
        secret: Secret::default(),
        // Whoever is asked to answer does so at once, unless this machine is busy.
        connect_timeout_ms: 1500,
        io_timeout_ms: 1500,
    };
    (login, thread)
}

/// Reads a greeting and answers with this one.
fn greets(mut socket: &TcpStream, greeting: Greeting) {
    let mut bytes = [0; GREETING];
    socket.read_exact(&mut bytes).expect("a greeting");
    Greeting::decode(&bytes).expect("a good greeting");
    socket.write_all(&greeting.encode()).expect("sent");
}

const WELCOME: Greeting = Greeting::new(Welcome::Yes, LEN);

/// Reads a request with its payload.
fn hears(mut socket: &TcpStream) -> (Request, Vec<u8>) {
    let mut head = [0; REQUEST];
    socket.read_exact(&mut head).expect("a request");
    let request = Request::decode(&head, LEN).expect("a good request");
    let len = match request.direction {
        Direction::Write => request.len as usize,
        Direction::Read => 0,
    };
    let mut payload = vec![0; len];
    socket.read_exact(&mut payload).expect("its payload");
    (request, payload)
}

/// Waits until the other side has closed.
fn until_the_end(mut socket: &TcpStream) {
    let _ = std::io::copy(&mut socket, &mut std::io::sink());
}

fn op(direction: Direction, slot: u16) -> Op {
    Op {
        direction,
        offset: 0,
        len: LEN,
        slot,
    }
}

#[test]
fn blocks_go_to_and_from_their_slots() {
    let (login, thread) = peer(|mut socket| {
        greets(socket, WELCOME);
        for _ in 0..2 * DEPTH {
            let (request, payload) = hears(socket);
            let len = match request.direction {
                Direction::Read => LEN,
                Direction::Write => 0,
            };
            let answer = Answer {
                tag: request.tag,
                len,
            };
            socket.write_all(&answer.encode()).expect("sent");
            socket
                .write_all(&vec![request.tag as u8 + 100; len as usize])
                .expect("sent");
            assert!(payload.iter().all(|byte| *byte == request.tag as u8));
        }
        until_the_end(socket);
    });
    let mut session = (PROTOCOL.connect)(&login, &attach()).expect("welcome");
    let mut slots = Slots::new(DEPTH, LEN as usize).expect("slots");
    for (direction, first) in [(Direction::Write, 0), (Direction::Read, DEPTH)] {
        for slot in 0..DEPTH {
            slots.get_mut(slot, LEN).fill((first + slot) as u8);
            session
                .submit(op(direction, slot), &mut slots)
                .expect("queued");
        }
        let mut done = Vec::new();
        while done.len() < usize::from(DEPTH) {
            session.reap(None, &mut slots, &mut done).expect("answers");
        }
        assert!(done.iter().all(|completion| completion.bytes == LEN));
    }
    for slot in 0..DEPTH {
        let wanted = (DEPTH + slot) as u8 + 100;
        assert!(slots.get(slot, LEN).iter().all(|byte| *byte == wanted));
    }
    assert_eq!(session.wire_ops(), Some(2 * u64::from(DEPTH)));
    drop(session);
    thread.join().expect("a good peer");
}

#[test]
fn a_peer_that_is_none_is_said() {
    type Work = fn(&TcpStream);
    let cases: &[(Work, Kind, &str)] = &[
        (|_| (), Kind::Gone, "closes the connection at once"),
        (until_the_end, Kind::TimedOut, "does not answer"),
        (
            |mut socket| {
                let _ = socket.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian");
                until_the_end(socket);
            },
            Kind::Protocol,
            "is not nasgauge's agent",
        ),
        (
            |socket| {
                let other = Greeting {
                    version: 99,
                    ..WELCOME
                };
                greets(socket, other);
            },
            Kind::Unsupported,
            "version 99",
        ),
        (
            |socket| greets(socket, Greeting::new(Welcome::Yes, LEN - 1)),
            Kind::Unsupported,
            "999 bytes at most, not 1000",
        ),
        (
            |socket| greets(socket, Greeting::new(Welcome::Full, LEN)),
            Kind::Refused,
            "fewer lanes",
        ),
    ];
    for (work, kind, words) in cases {
        let (login, thread) = peer(*work);
        let begun = Instant::now();
        let error = (PROTOCOL.connect)(&login, &attach()).err().expect(words);
        assert!(begun.elapsed() < Duration::from_secs(10), "{words}");
        assert_eq!((error.phase, error.kind), (Phase::Open, *kind), "{error}");
        assert!(error.message.contains(words), "{error}");
        thread.join().expect("the peer ends");
    }
}

#[test]
fn an_answer_that_is_none_is_said() {
    type Work = fn(&TcpStream, Request);
    let cases: &[(Work, Kind, &str)] = &[
        (|_, _| (), Kind::Gone, "in the middle of the test"),
        (
            |socket, _| until_the_end(socket),
            Kind::TimedOut,
            "within 1.5 s",
        ),
        (
            |mut socket, _| {
                let _ = socket.write_all(&[0xee; 100]);
                until_the_end(socket);
            },
            Kind::Protocol,
            "where 0 is next",
        ),
        (
            |mut socket, request| {
                let head = Answer {
                    tag: request.tag,
                    len: u32::MAX,
                };
                let _ = socket.write_all(&head.encode());
                until_the_end(socket);
            },
            Kind::Protocol,
            "4294967295 bytes",
        ),
        (
            // Half of an answer, then silence.
            |mut socket, request| {
                let head = Answer {
                    tag: request.tag,
                    len: LEN,
                };
                let _ = socket.write_all(&head.encode());
                let _ = socket.write_all(&[1; 500]);
                until_the_end(socket);
            },
            Kind::TimedOut,
            "within 1.5 s",
        ),
        (
            // Everything that was asked for, and one head more.
            |mut socket, request| {
                let mut bytes = Vec::new();
                for tag in request.tag..=request.tag + u32::from(DEPTH) {
                    bytes.extend(Answer { tag, len: LEN }.encode());
                    bytes.extend([1; LEN as usize]);
                }
                let _ = socket.write_all(&bytes);
                until_the_end(socket);
            },
            Kind::Protocol,
            "not asked",
        ),
    ];
    for (work, kind, words) in cases {
        let work = *work;
        let (login, thread) = peer(move |socket| {
            greets(socket, WELCOME);
            let (request, _) = hears(socket);
            // All requests are out before anything is answered.
            for _ in 1..DEPTH {
                hears(socket);
            }
            work(socket, request);
        });
        let error = loop_until_error(&login);
        assert_eq!((error.phase, error.kind), (Phase::Io, *kind), "{error}");
        assert!(error.message.contains(words), "{error}");
        thread.join().expect("the peer ends");
    }
}

/// Reads until something is wrong.
fn loop_until_error(login: &Login) -> Error {
    let mut session = (PROTOCOL.connect)(login, &attach()).expect("welcome");
    let mut slots = Slots::new(DEPTH, LEN as usize).expect("slots");
    for slot in 0..DEPTH {
        session
            .submit(op(Direction::Read, slot), &mut slots)
            .expect("queued");
    }
    let mut done = Vec::new();
    loop {
        let before = done.len();
        if let Err(error) = session.reap(None, &mut slots, &mut done) {
            return error;
        }
        assert!(done.len() > before, "no progress and no error");
    }
}

#[test]
fn an_answer_before_its_request_is_no_answer() {
    const LARGE: u32 = 64 << 20;
    let (login, thread) = peer(|mut socket| {
        greets(socket, Greeting::new(Welcome::Yes, LARGE));
        let answer = Answer { tag: 0, len: 0 };
        socket.write_all(&answer.encode()).expect("sent");
        // Nothing more is read, so the request can't be out; what has come is thrown away at the end.
        socket.peek(&mut [0; REQUEST]).expect("a request");
        std::thread::sleep(Duration::from_secs(1));
    });
    let attach = Attach {
        block_max: LARGE,
        iodepth: 1,
        ..attach()
    };
    let mut session = (PROTOCOL.connect)(&login, &attach).expect("welcome");
    let mut slots = Slots::new(1, LARGE as usize).expect("slots");
    let op = Op {
        len: LARGE,
        ..op(Direction::Write, 0)
    };
    session.submit(op, &mut slots).expect("queued");
    let error = session
        .reap(None, &mut slots, &mut Vec::new())
        .expect_err("an early answer");
    assert_eq!(error.kind, Kind::Protocol, "{error}");
    assert!(error.message.contains("not asked"), "{error}");
    thread.join().expect("the peer ends");
}
