//! The server met by clients that behave, and by those that don't.

use std::net::Ipv4Addr;
use std::thread::JoinHandle;

use super::*;
use crate::op::Direction;
use crate::round_trip::wire::{ANSWER, Answer, Request};

const LEN: u32 = 5000;
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A server for `peer` that ends after `time`; its address, its flag to end it, and what it did.
struct Running {
    address: std::net::SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Served>>,
    begun: Instant,
}

fn start(peer: IpAddr, time: Duration) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let begun = Instant::now();
    let thread = std::thread::spawn(move || serve(listener, peer, begun + time, &told));
    Running {
        address,
        stop,
        thread,
        begun,
    }
}

impl Running {
    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).expect("it listens");
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a time above zero");
        socket
    }

    fn greeted(&self) -> TcpStream {
        let mut socket = self.connect();
        let own = Greeting::new(Welcome::Yes, LEN);
        socket.write_all(&own.encode()).expect("sent");
        let mut bytes = [0; GREETING];
        socket.read_exact(&mut bytes).expect("a greeting");
        let greeting = Greeting::decode(&bytes).expect("a good one");
        assert_eq!(greeting, Greeting::new(Welcome::Yes, BLOCK_MAX));
        socket
    }

    fn end(self) -> Served {
        self.stop.store(true, Relaxed);
        let done = self.thread.join().expect("no panic").expect("served");
        let late = TcpStream::connect(self.address).expect_err("closed");
        assert_eq!(late.kind(), ErrorKind::ConnectionRefused);
        done
    }
}

/// What the peer still says, until it closes.
fn rest(mut socket: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match socket.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        // Bytes of ours that nobody reads any more.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => bytes,
        Err(error) => panic!("it does not close: {error}"),
    }
}

const LONG: Duration = Duration::from_mins(1);

#[test]
fn reads_and_writes_are_answered_in_their_order() {
    let server = start(HERE, LONG);
    let mut sockets = [server.greeted(), server.greeted()];
    for socket in &mut sockets {
        let requests: Vec<Request> = (0..300u32)
            .map(|tag| Request {
                direction: if tag % 3 == 1 {
                    Direction::Write
                } else {
                    Direction::Read
                },
                tag,
                len: 1 + tag * 7 % LEN,
            })
            .collect();
        let mut sent = Vec::new();
        for request in &requests {
            sent.extend(request.encode());
            if request.direction == Direction::Write {
                sent.extend(vec![9; request.len as usize]);
            }
        }
        // All at once, and in odd pieces.
        let mut own = socket.try_clone().expect("a socket");
        let sender = std::thread::spawn(move || {
            for piece in sent.chunks(1237) {
                own.write_all(piece).expect("sent");
            }
        });
        let mut blocks = Vec::new();
        for request in &requests {
            let mut head = [0; ANSWER];
            socket.read_exact(&mut head).expect("an answer");
            let answer = Answer::decode(&head, request).expect("the next one");
            let mut payload = vec![0; answer.len as usize];
            socket.read_exact(&mut payload).expect("its payload");
            blocks.extend(payload);
        }
        sender.join().expect("sent");
        // Random bytes: each value about as often as any other.
        let mut counts = [0u32; 256];
        for byte in &blocks {
            counts[usize::from(*byte)] += 1;
        }
        let mean = blocks.len() as f64 / 256.0;
        assert!(
            counts
                .iter()
                .all(|count| (f64::from(*count) / mean - 1.0).abs() < 0.3)
        );
    }
    drop(sockets);
    // The ends are noticed before the server is stopped, or it would be the one who closes.
    std::thread::sleep(Duration::from_secs(1));
    let done = server.end();
    assert_eq!((done.connections, done.requests), (2, 600));
    assert_eq!((done.strangers, done.broken), (0, 0));
}

#[test]
fn strangers_are_shown_the_door() {
    let server = start(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), LONG);
    assert!(rest(&server.connect()).is_empty());
    let done = server.end();
    assert_eq!((done.strangers, done.connections), (1, 0));
}

#[test]
fn who_breaks_the_protocol_is_closed_and_others_go_on() {
    let server = start(HERE, LONG);
    let good = server.greeted();
    let welcome = Greeting::new(Welcome::Yes, LEN).encode();
    let garbage: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\n\r\n",
        &[0; 64],
        &[welcome.as_slice(), &[0xff; REQUEST_LEN]].concat(),
        &[
            welcome.as_slice(),
            &Request {
                direction: Direction::Write,
                tag: 0,
                len: u32::MAX,
            }
            .encode(),
        ]
        .concat(),
        &[
            welcome.as_slice(),
            &Request {
                direction: Direction::Read,
                tag: 0,
                len: LEN + 1,
            }
            .encode(),
        ]
        .concat(),
    ];
    for bytes in garbage {
        let mut socket = server.connect();
        socket.write_all(bytes).expect("sent");
        let said = rest(&socket);
        assert!(said.is_empty() || said.len() == GREETING, "{said:?}");
    }
    // Half a greeting, half a request, half a payload.
    for cut in [5, GREETING + 5, GREETING + REQUEST_LEN + 5] {
        let request = Request {
            direction: Direction::Write,
            tag: 0,
            len: LEN,
        };
        let bytes = [welcome.as_slice(), &request.encode(), &[1; LEN as usize]].concat();
        let mut socket = server.connect();
        socket.write_all(&bytes[..cut]).expect("sent");
        socket.shutdown(Shutdown::Write).expect("open");
        rest(&socket);
    }
    let (mut good, request) = (
        &good,
        Request {
            direction: Direction::Read,
            tag: 5,
            len: 1,
        },
    );
    good.write_all(&request.encode()).expect("sent");
    let mut answer = [0; ANSWER + 1];
    good.read_exact(&mut answer).expect("an answer");
    std::thread::sleep(Duration::from_secs(1));
    let done = server.end();
    assert_eq!(done.broken, 8);
    assert_eq!(done.requests, 1);
}

const REQUEST_LEN: usize = crate::round_trip::wire::REQUEST;

#[test]
fn other_versions_and_too_large_blocks_are_told() {
    let server = start(HERE, LONG);
    let cases = [
        (
            Greeting {
                version: 77,
                ..Greeting::new(Welcome::Yes, LEN)
            },
            Welcome::OtherVersion,
        ),
        (
            Greeting::new(Welcome::Yes, BLOCK_MAX + 1),
            Welcome::TooLarge,
        ),
    ];
    for (greeting, welcome) in cases {
        let mut socket = server.connect();
        socket.write_all(&greeting.encode()).expect("sent");
        let said = rest(&socket);
        let said = said.first_chunk().expect("a greeting");
        assert_eq!(
            Greeting::decode(said).expect("a good one"),
            Greeting::new(welcome, BLOCK_MAX)
        );
    }
    server.end();
}

#[test]
fn whoever_is_silent_or_does_not_read_ends_with_the_deadline() {
    let time = Duration::from_millis(700);
    let server = start(HERE, time);
    let silent = server.connect();
    let idle = server.greeted();
    let mut deaf = server.greeted();
    let read = Request {
        direction: Direction::Read,
        tag: 0,
        len: LEN,
    };
    // 20 MB of answers, which no socket holds.
    deaf.write_all(&read.encode().repeat(4000)).expect("sent");
    let begun = server.begun;
    let done = server.thread.join().expect("no panic").expect("served");
    let took = begun.elapsed();
    assert!(
        took >= time && took < time + Duration::from_secs(10),
        "{took:?}"
    );
    assert_eq!((done.connections, done.broken), (3, 2));
    for socket in [silent, idle] {
        assert!(rest(&socket).is_empty());
    }
}
