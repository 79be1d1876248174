//! Whether an iperf3 server listens at a port: the first words of its protocol, and a polite end before any test.
//!
//! A client sends a cookie of 37 bytes, and the server answers with a state: 9 asks for the parameters of a test, -1 says
//! that another test runs (`iperf_api.h`). The connection then ends with parameters of no length, which every version
//! takes for a client that gave up, and is free again at once. To a server that was started for one test (`-1`) any
//! connection is that test, this one too. Must not know: what a test measures.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Phase, Result};
use crate::probe::names;

/// iperf3's port.
pub const PORT: u16 = 5201;
/// Its characters, of which the last is the end of the string.
const COOKIE: usize = 37;
/// `PARAM_EXCHANGE`.
const ASKS_FOR_PARAMETERS: u8 = 9;
/// `ACCESS_DENIED`, -1.
const BUSY: u8 = 0xff;
/// How long the server may take to let the connection go.
const FAREWELL: Duration = Duration::from_millis(500);

/// An iperf3 server's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It waits for a test.
    Ready,
    /// It runs one for somebody else.
    Busy,
}

/// Asks the server at `host` (without brackets), in about `timeout`.
pub fn ask(host: &str, port: u16, timeout: Duration) -> Result<Answer> {
    let end = Instant::now() + timeout;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for mut address in names::resolve(host, timeout)? {
        address.set_port(port);
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            last = io::ErrorKind::TimedOut.into();
            break;
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return talk(stream, end).map_err(|error| unlike(&error, host, port)),
            Err(error) => last = error,
        }
    }
    Err(Error::io(
        Phase::Connect,
        &last,
        &format!("reach {host} port {port}"),
    ))
}

fn unlike(error: &io::Error, host: &str, port: u16) -> Error {
    let (kind, what) = match Kind::of_io(error) {
        // What listens and is silent is no iperf3 server; "no answer" would hide that something is there.
        Kind::TimedOut => (Kind::Protocol, "takes the connection and says nothing"),
        _ => (Kind::Protocol, "answers, but not as an iperf3 server"),
    };
    Error::new(Phase::Open, kind, format!("{host} port {port} {what}"))
}

fn talk(mut stream: TcpStream, end: Instant) -> io::Result<Answer> {
    let left = end
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1));
    stream.set_read_timeout(Some(left))?;
    stream.set_write_timeout(Some(left))?;
    let mut cookie = [b'n'; COOKIE];
    cookie[COOKIE - 1] = 0;
    stream.write_all(&cookie)?;
    let mut state = [0];
    stream.read_exact(&mut state)?;
    match state[0] {
        BUSY => Ok(Answer::Busy),
        ASKS_FOR_PARAMETERS => {
            leave(stream);
            Ok(Answer::Ready)
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Gives up the test and waits until the server has seen it, so that it is free for the next client.
fn leave(mut stream: TcpStream) {
    let _ = stream.write_all(&[0; 4]);
    let _ = stream.shutdown(Shutdown::Write);
    let end = Instant::now() + FAREWELL;
    let mut rest = [0; 64];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return;
        }
        if !matches!(stream.read(&mut rest), Ok(1..)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that reads a cookie, answers with `answer` and then reads to the end: what it heard after the cookie.
    fn server(answer: &'static [u8]) -> (u16, thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("free");
        let port = listener.local_addr().expect("bound").port();
        let heard = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut cookie = [0; COOKIE];
            stream.read_exact(&mut cookie).expect("a cookie");
            assert_eq!(cookie[COOKIE - 1], 0);
            stream.write_all(answer).expect("listens");
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            rest
        });
        (port, heard)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_server_that_waits_is_left_politely() {
        let (port, heard) = server(&[9]);
        assert_eq!(ask("127.0.0.1", port, SECOND), Ok(Answer::Ready));
        assert_eq!(heard.join().expect("served"), [0; 4]);
    }

    #[test]
    fn a_busy_server_is_one() {
        let (port, heard) = server(&[0xff]);
        assert_eq!(ask("127.0.0.1", port, SECOND), Ok(Answer::Busy));
        assert!(heard.join().expect("served").is_empty());
    }

    #[test]
    fn others_are_none() {
        let (port, _) = server(b"SSH-2.0");
        let error = ask("127.0.0.1", port, SECOND).expect_err("no iperf3");
        assert_eq!(error.kind, Kind::Protocol);
        let silent = TcpListener::bind("127.0.0.1:0").expect("free");
        let port = silent.local_addr().expect("bound").port();
        let begun = Instant::now();
        let error = ask("127.0.0.1", port, SECOND / 5).expect_err("silence");
        assert!(error.message.contains("says nothing"), "{error}");
        assert!(begun.elapsed() < SECOND * 10);
        drop(silent);
        let error = ask("127.0.0.1", port, SECOND).expect_err("nobody");
        assert_eq!(error.kind, Kind::Refused);
    }
}
