//! What a server says before anybody logs in: one TCP connection, one SMB2 NEGOTIATE, closed again.
//!
//! libsmbclient neither tells which dialect and sizes it negotiated nor why a connection failed. A server answers
//! the same offer the same way, so asking it ourselves tells both, and a refused or silent port is told from a
//! missing share. Must not know: shares, users, libsmbclient. Units: bytes.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Phase, Result};

/// The dialects that libsmbclient offers.
const DIALECTS: [u16; 5] = [0x0202, 0x0210, 0x0300, 0x0302, 0x0311];
/// Its ciphers in its order: AES-128-GCM, AES-128-CCM, AES-256-GCM, AES-256-CCM.
const CIPHERS: [u16; 4] = [2, 1, 4, 3];
/// Length of an SMB2 header.
pub(super) const HEADER: usize = 64;
/// No NEGOTIATE answer is nearly as long.
const ANSWER_MAX: usize = 64 * 1024;
const CONTEXT_PREAUTH: u16 = 1;
const CONTEXT_ENCRYPTION: u16 = 2;
const CAPABILITY_MULTICHANNEL: u32 = 0x08;
const CAPABILITY_ENCRYPTION: u32 = 0x40;

/// What the server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    dialect: u16,
    /// Unsigned messages are refused.
    pub signing_required: bool,
    /// It would take more connections for one session.
    pub multichannel: bool,
    /// The largest READ.
    pub max_read: u32,
    /// The largest WRITE.
    pub max_write: u32,
    encryption: Option<u16>,
}

impl Server {
    /// Asks the server. Each step has until `timeout` is over.
    pub fn ask(host: &str, port: u16, address: &str, timeout: Duration) -> Result<Self> {
        let end = Instant::now() + timeout;
        let mut stream = reach(host, port, address, timeout)?;
        let answer = exchange(&mut stream, &request(), end)
            .map_err(|error| unanswered(Kind::of_io(&error), address, timeout))?;
        parse(&answer).ok_or_else(|| not_smb(address))
    }

    /// The dialect as in `3.1.1`.
    pub fn dialect(&self) -> String {
        dialect_name(self.dialect)
    }

    /// The cipher that an encrypted session gets; None when the server can't encrypt.
    pub fn cipher(&self) -> Option<&'static str> {
        match self.encryption {
            Some(1) => Some("AES-128-CCM"),
            Some(2) => Some("AES-128-GCM"),
            Some(3) => Some("AES-256-CCM"),
            Some(4) => Some("AES-256-GCM"),
            _ => None,
        }
    }
}

/// A dialect's number as people write it: `3.1.1`.
pub(super) fn dialect_name(dialect: u16) -> String {
    let (major, minor, patch) = (dialect >> 8, (dialect >> 4) & 0xf, dialect & 0xf);
    if patch == 0 {
        format!("{major}.{minor}")
    } else {
        format!("{major}.{minor}.{patch}")
    }
}

/// Resolves the name and opens a TCP connection to the first address that takes one.
pub(super) fn reach(host: &str, port: u16, address: &str, timeout: Duration) -> Result<TcpStream> {
    let end = Instant::now() + timeout;
    let found = resolve(host, port, timeout)?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (tried, to) in found.iter().enumerate() {
        let left = end.saturating_duration_since(Instant::now()) / (found.len() - tried) as u32;
        if left.is_zero() {
            last = io::ErrorKind::TimedOut.into();
            break;
        }
        match TcpStream::connect_timeout(to, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(match Kind::of_io(&last) {
        Kind::Refused => Error::new(
            Phase::Connect,
            Kind::Refused,
            format!("nobody listens at {address}; is the SMB server running, and on that port?"),
        ),
        Kind::TimedOut => Error::new(
            Phase::Connect,
            Kind::TimedOut,
            format!(
                "{address} did not answer within {timeout:?}; is the host up, and does a firewall drop the port?"
            ),
        ),
        _ => Error::io(Phase::Connect, &last, &format!("reach {address}")),
    })
}

/// The system's resolver has no time limit of its own, so it runs aside.
fn resolve(host: &str, port: u16, timeout: Duration) -> Result<Vec<SocketAddr>> {
    let (tell, told) = mpsc::channel();
    let name = host.to_owned();
    std::thread::spawn(move || {
        let found = (name.as_str(), port).to_socket_addrs();
        let _ = tell.send(found.map(Iterator::collect::<Vec<_>>));
    });
    match told.recv_timeout(timeout) {
        Ok(Ok(found)) if !found.is_empty() => Ok(found),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(Error::new(
            Phase::Resolve,
            Kind::TimedOut,
            format!(
                "the name server did not say within {timeout:?} who '{host}' is; use its address"
            ),
        )),
        _ => Err(Error::new(
            Phase::Resolve,
            Kind::NotFound,
            format!("there is no host '{host}'; check the name, or use its address"),
        )),
    }
}

/// Sends one message and reads one, both framed by their length.
pub(super) fn exchange(
    stream: &mut TcpStream,
    message: &[u8],
    end: Instant,
) -> io::Result<Vec<u8>> {
    let limit = |stream: &TcpStream| {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        stream.set_read_timeout(Some(left))?;
        stream.set_write_timeout(Some(left))
    };
    limit(stream)?;
    let mut framed = (message.len() as u32).to_be_bytes().to_vec();
    framed.extend_from_slice(message);
    stream.write_all(&framed)?;
    let mut length = [0; 4];
    fill(stream, &mut length, &limit)?;
    let length = u32::from_be_bytes(length) as usize;
    if !(HEADER..=ANSWER_MAX).contains(&length) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut answer = vec![0; length];
    fill(stream, &mut answer, &limit)?;
    Ok(answer)
}

/// `read_exact` whose time limit holds for all of it: a server may answer byte by byte.
fn fill(
    stream: &mut TcpStream,
    mut rest: &mut [u8],
    limit: &dyn Fn(&TcpStream) -> io::Result<()>,
) -> io::Result<()> {
    while !rest.is_empty() {
        limit(stream)?;
        match stream.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => rest = &mut rest[read..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// No answer to the first message, or none in the protocol.
pub(super) fn unanswered(kind: Kind, address: &str, timeout: Duration) -> Error {
    match kind {
        Kind::TimedOut => Error::new(
            Phase::Connect,
            Kind::TimedOut,
            format!(
                "{address} took the connection but did not answer within {timeout:?}; \
                 the SMB server hangs, or something else listens there"
            ),
        ),
        Kind::Gone => Error::new(
            Phase::Connect,
            Kind::Gone,
            format!(
                "{address} closed the connection at once; it speaks no SMB 2 or 3, or shuts this computer out"
            ),
        ),
        _ => not_smb(address),
    }
}

fn not_smb(address: &str) -> Error {
    Error::new(
        Phase::Connect,
        Kind::Protocol,
        format!("{address} answers, but not in SMB 2 or 3; check the port, or enable SMB 2 there"),
    )
}

/// A NEGOTIATE request as libsmbclient makes it. The identifiers are random: a server may hand a connection with
/// a known client's identifier to that client's process.
pub(super) fn request() -> Vec<u8> {
    let mut message = vec![0xfe, b'S', b'M', b'B', HEADER as u8, 0];
    message.resize(HEADER, 0);
    message[14] = 1; // credits asked for
    let put16 = |message: &mut Vec<u8>, value: u16| message.extend_from_slice(&value.to_le_bytes());
    let put32 = |message: &mut Vec<u8>, value: u32| message.extend_from_slice(&value.to_le_bytes());
    put16(&mut message, 36); // length of the fixed part
    put16(&mut message, DIALECTS.len() as u16);
    put16(&mut message, 1); // signing enabled
    put16(&mut message, 0);
    put32(&mut message, 0x7f); // all capabilities
    message.extend_from_slice(&random());
    let contexts = (message.len() + 8 + 2 * DIALECTS.len()).next_multiple_of(8);
    put32(&mut message, contexts as u32);
    put16(&mut message, 2); // contexts
    put16(&mut message, 0);
    for dialect in DIALECTS {
        put16(&mut message, dialect);
    }
    message.resize(contexts, 0);
    put16(&mut message, CONTEXT_PREAUTH);
    put16(&mut message, 38);
    put32(&mut message, 0);
    for value in [1, 32, 1] {
        put16(&mut message, value); // one hash, 32 bytes of salt, SHA-512
    }
    message.extend_from_slice(&random());
    message.extend_from_slice(&random());
    message.resize(message.len().next_multiple_of(8), 0);
    put16(&mut message, CONTEXT_ENCRYPTION);
    put16(&mut message, 2 + 2 * CIPHERS.len() as u16);
    put32(&mut message, 0);
    put16(&mut message, CIPHERS.len() as u16);
    for cipher in CIPHERS {
        put16(&mut message, cipher);
    }
    message
}

fn random() -> [u8; 16] {
    let number = || RandomState::new().hash_one(Instant::now()).to_le_bytes();
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number());
    bytes[8..].copy_from_slice(&number());
    bytes
}

/// Reads a NEGOTIATE response; None when it is none.
fn parse(answer: &[u8]) -> Option<Server> {
    let is_negotiate = answer.get(..4)? == [0xfe, b'S', b'M', b'B'] && u16_at(answer, 12)? == 0;
    if !is_negotiate || u32_at(answer, 8)? != 0 {
        return None;
    }
    let capabilities = u32_at(answer, HEADER + 24)?;
    let dialect = u16_at(answer, HEADER + 4)?;
    let encryption = match dialect {
        0x0311 => encryption_context(answer),
        // Before 3.1.1 a capability stands for the one cipher there was.
        0x0300.. if capabilities & CAPABILITY_ENCRYPTION != 0 => Some(1),
        _ => None,
    };
    DIALECTS.contains(&dialect).then_some(Server {
        dialect,
        signing_required: u16_at(answer, HEADER + 2)? & 2 != 0,
        multichannel: capabilities & CAPABILITY_MULTICHANNEL != 0,
        max_read: u32_at(answer, HEADER + 32)?,
        max_write: u32_at(answer, HEADER + 36)?,
        encryption,
    })
}

/// The cipher in the response's list of contexts.
fn encryption_context(answer: &[u8]) -> Option<u16> {
    let mut at = u32_at(answer, HEADER + 60)? as usize;
    for _ in 0..u16_at(answer, HEADER + 6)? {
        let length = usize::from(u16_at(answer, at + 2)?);
        if u16_at(answer, at)? == CONTEXT_ENCRYPTION {
            return u16_at(answer, at + 10).filter(|cipher| *cipher != 0);
        }
        at = (at + 8 + length).next_multiple_of(8);
    }
    None
}

/// A little-endian number in a message; None past its end.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let part = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(part.try_into().ok()?))
}

/// As [`u16_at`].
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let part = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(part.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with one other context before the cipher.
    fn answer(dialect: u16, cipher: u16) -> Vec<u8> {
        let mut bytes = vec![0xfe, b'S', b'M', b'B', 64, 0];
        bytes.resize(HEADER + 64, 0);
        bytes[HEADER + 2] = 3;
        bytes[HEADER + 4..HEADER + 6].copy_from_slice(&dialect.to_le_bytes());
        bytes[HEADER + 6] = 2;
        bytes[HEADER + 24] = 0x48;
        bytes[HEADER + 32..HEADER + 36].copy_from_slice(&0x0080_0000_u32.to_le_bytes());
        bytes[HEADER + 36..HEADER + 40].copy_from_slice(&0x0010_0000_u32.to_le_bytes());
        bytes[HEADER + 60] = 128;
        bytes.extend_from_slice(&[1, 0, 3, 0, 0, 0, 0, 0, 9, 9, 9, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&[2, 0, 4, 0, 0, 0, 0, 0, 1, 0]);
        bytes.extend_from_slice(&cipher.to_le_bytes());
        bytes
    }

    #[test]
    fn an_answer_is_read() {
        let server = parse(&answer(0x0311, 2)).expect("an answer");
        assert_eq!(server.dialect(), "3.1.1");
        assert_eq!(server.cipher(), Some("AES-128-GCM"));
        assert_eq!((server.max_read, server.max_write), (8 << 20, 1 << 20));
        assert!(server.signing_required && server.multichannel);
        let old = parse(&answer(0x0302, 2)).expect("an answer");
        assert_eq!(
            (old.dialect().as_str(), old.cipher()),
            ("3.0.2", Some("AES-128-CCM"))
        );
        let older = parse(&answer(0x0210, 2)).expect("an answer");
        assert_eq!((older.dialect().as_str(), older.cipher()), ("2.1", None));
    }

    #[test]
    fn rubbish_is_no_answer() {
        let good = answer(0x0311, 2);
        for length in 0..HEADER + 40 {
            assert_eq!(parse(&good[..length]), None, "{length}");
        }
        let mut cut = good.clone();
        cut.truncate(HEADER + 70);
        assert_eq!(parse(&cut).expect("without contexts").cipher(), None);
        let mut failed = good.clone();
        failed[8] = 1;
        assert_eq!(parse(&failed), None);
        let mut wild = good;
        wild[HEADER + 60..HEADER + 64].fill(0xff);
        assert_eq!(parse(&wild).expect("a wild offset").cipher(), None);
        assert_eq!(parse(&answer(0x02ff, 2)), None);
    }

    #[test]
    fn the_request_is_laid_out_as_the_protocol_says() {
        let request = request();
        assert_eq!(request.len(), 112 + 48 + 8 + 10);
        assert_eq!(
            (
                u32_at(&request, HEADER + 28),
                u16_at(&request, HEADER + 32),
                u16_at(&request, 112)
            ),
            (Some(112), Some(2), Some(CONTEXT_PREAUTH))
        );
        assert_eq!(u16_at(&request, 160), Some(CONTEXT_ENCRYPTION));
    }

    #[test]
    fn refused_and_silent_ports_have_their_sentences() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = silent.local_addr().expect("an address").port();
        let begin = Instant::now();
        let error = Server::ask("127.0.0.1", port, "nas:1", Duration::from_millis(200))
            .expect_err("silence");
        assert_eq!((error.phase, error.kind), (Phase::Connect, Kind::TimedOut));
        assert!(begin.elapsed() < Duration::from_secs(10));
        drop(silent);
        let error =
            Server::ask("127.0.0.1", port, "nas:1", Duration::from_secs(5)).expect_err("nobody");
        assert_eq!((error.phase, error.kind), (Phase::Connect, Kind::Refused));
        assert!(error.message.contains("nas:1"));
    }
}
