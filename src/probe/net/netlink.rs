//! Questions to the kernel over netlink: framing, attributes, and one way to ask.
//!
//! An own reader of a few pages: rust-netlink's `ethtool` and `genetlink` crates are well kept but asynchronous, and bring
//! `tokio`, `futures` and eight crates of their own for what is two headers here; rustix has the socket. Layout after
//! netlink(7): every length is checked, since a saved answer may be cut or damaged. Must not know: what an answer means.

use std::io;
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto,
    socket_with, sockopt,
};

/// Length of `struct nlmsghdr`, bytes.
const MESSAGE_HEADER: usize = 16;
/// Length of `struct nlattr`, bytes.
const ATTRIBUTE_HEADER: usize = 4;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
/// An attribute that holds attributes; the kernel wants it set in questions, and sets it in some answers only.
const NLA_F_NESTED: u16 = 0x8000;
/// The bits of an attribute's type that are its type: without "nested" and "in network byte order".
const NLA_TYPE: u16 = 0x3fff;
/// The kernel answers while it is asked: longer means that it won't.
const PATIENCE: Duration = Duration::from_secs(3);
/// The kernel fills what the reader offers, 32 KiB at most: nothing is cut.
const BUFFER: usize = 64 * 1024;

/// One message of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// What kind of message: a family's own number.
    pub kind: u16,
    /// Whose question it answers.
    pub sequence: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// One attribute: a type and its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// The attribute's type without flags.
    pub kind: u16,
    /// Its value.
    pub payload: &'a [u8],
}

const fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

/// `N` bytes at `at`.
#[must_use]
pub fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// A number in this machine's byte order at `at`.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_ne_bytes)
}

/// A number in this machine's byte order at `at`.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_ne_bytes)
}

/// A number in this machine's byte order at `at`.
#[must_use]
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_ne_bytes)
}

/// The messages of an answer, up to the first that is cut or whose length is nonsense.
pub fn messages(mut rest: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(rest, 0)? as usize;
        let payload = rest.get(MESSAGE_HEADER..length)?;
        let message = Message {
            kind: u16_at(rest, 4)?,
            sequence: u32_at(rest, 8)?,
            payload,
        };
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes in `rest`, up to the first that is cut or whose length is nonsense.
pub fn attributes(mut rest: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let attribute = Attribute {
            kind: u16_at(rest, 2)? & NLA_TYPE,
            payload: rest.get(ATTRIBUTE_HEADER..length)?,
        };
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some(attribute)
    })
}

/// The value of the first attribute of type `kind`.
#[must_use]
pub fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes)
        .find(|attribute| attribute.kind == kind)
        .map(|attribute| attribute.payload)
}

/// The text of the first attribute of type `kind`, without the zero at its end; None when it is empty.
#[must_use]
pub fn text(bytes: &[u8], kind: u16) -> Option<String> {
    let value = find(bytes, kind)?;
    let end = value.iter().position(|byte| *byte == 0);
    let text = String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned();
    (!text.is_empty()).then_some(text)
}

/// The number in the first attribute of type `kind`: an unsigned one of one, two, four or eight bytes.
#[must_use]
pub fn number(bytes: &[u8], kind: u16) -> Option<u64> {
    let value = find(bytes, kind)?;
    match value.len() {
        1 => Some(u64::from(value[0])),
        2 => u16_at(value, 0).map(u64::from),
        4 => u32_at(value, 0).map(u64::from),
        8 => u64_at(value, 0),
        _ => None,
    }
}

/// A question, grown part by part.
#[derive(Debug, Clone)]
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A question of type `kind` that one message answers.
    #[must_use]
    pub fn one(kind: u16) -> Self {
        Self::new(kind, NLM_F_ACK)
    }

    /// A question of type `kind` whose answer is a list.
    #[must_use]
    pub fn list(kind: u16) -> Self {
        Self::new(kind, NLM_F_DUMP)
    }

    fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; MESSAGE_HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        // One question a socket: any number tells its answer from none.
        bytes[8..12].copy_from_slice(&1_u32.to_ne_bytes());
        Self { bytes }
    }

    /// Adds a family's own header.
    #[must_use]
    pub fn header(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(aligned(self.bytes.len()), 0);
        self
    }

    /// Adds an attribute.
    #[must_use]
    pub fn attribute(mut self, kind: u16, payload: &[u8]) -> Self {
        push_attribute(&mut self.bytes, kind, payload);
        self
    }

    /// Adds an attribute that holds attributes.
    #[must_use]
    pub fn nested(self, kind: u16, attributes: &[(u16, &[u8])]) -> Self {
        let mut inner = Vec::new();
        for (kind, payload) in attributes {
            push_attribute(&mut inner, *kind, payload);
        }
        self.attribute(kind | NLA_F_NESTED, &inner)
    }

    /// The question as it goes to the kernel.
    fn finish(mut self) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}

/// Appends an attribute, filled up to four bytes.
pub(crate) fn push_attribute(bytes: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    let length = (ATTRIBUTE_HEADER + payload.len()) as u16;
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(payload);
    bytes.resize(aligned(bytes.len()), 0);
}

/// Asks the kernel and hands every datagram of the answer to `take`, so that a long list needs no memory.
///
/// `protocol` is one of rustix's netlink protocols; None is routing. Errors: the kernel's own (`ENODEV`, `EOPNOTSUPP`, ..),
/// and `TimedOut` when it does not answer.
pub fn ask_each(
    protocol: Option<Protocol>,
    request: Request,
    mut take: impl FnMut(&[u8]),
) -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol,
    )?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(&socket, &request.finish(), SendFlags::empty(), &kernel)?;
    let mut buffer = vec![0_u8; BUFFER];
    loop {
        let received = recv(&socket, buffer.as_mut_slice(), RecvFlags::TRUNC);
        let (_, length) = match received {
            Err(rustix::io::Errno::INTR) => continue,
            Err(rustix::io::Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            other => other?,
        };
        let Some(datagram) = buffer.get(..length) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if let Some(end) = end_of(datagram) {
            take(datagram);
            return end;
        }
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        take(datagram);
    }
}

/// Asks the kernel and gives the whole answer, its closing message included.
pub fn ask(protocol: Option<Protocol>, request: Request) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    ask_each(protocol, request, |datagram| {
        answer.extend_from_slice(datagram);
    })?;
    Ok(answer)
}

/// How the answer ends, if this datagram ends it: `NLMSG_DONE` after a list, an error or its absence after one message.
fn end_of(datagram: &[u8]) -> Option<io::Result<()>> {
    messages(datagram).find_map(|message| match message.kind {
        NLMSG_DONE | NLMSG_ERROR => {
            let errno = bytes_at(message.payload, 0).map_or(0, i32::from_ne_bytes);
            Some(if errno < 0 {
                Err(io::Error::from_raw_os_error(errno.saturating_neg()))
            } else {
                Ok(())
            })
        }
        _ => None,
    })
}

/// The messages of an answer that say something: not those that close it.
pub fn told(answer: &[u8]) -> impl Iterator<Item = Message<'_>> {
    messages(answer).filter(|message| message.kind > NLMSG_DONE)
}

#[cfg(test)]
pub(crate) mod testing {
    //! Answers made by hand, as the kernel would send them.

    use super::{MESSAGE_HEADER, aligned, push_attribute};

    /// Attributes one after another.
    pub fn attributes(list: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, payload) in list {
            push_attribute(&mut bytes, *kind, payload);
        }
        bytes
    }

    /// A whole message.
    pub fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; MESSAGE_HEADER];
        bytes[..4].copy_from_slice(&((MESSAGE_HEADER + payload.len()) as u32).to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(payload);
        bytes.resize(aligned(bytes.len()), 0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_question_reads_back_as_it_was_put() {
        let request = Request::one(20)
            .header(&[1, 1, 0])
            .attribute(3, b"eth0\0")
            .nested(1, &[(2, b"x\0"), (3, &7_u32.to_ne_bytes())])
            .finish();
        let all: Vec<_> = messages(&request).collect();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].kind, all[0].sequence), (20, 1));
        let body = &all[0].payload[4..];
        assert_eq!(text(body, 3).as_deref(), Some("eth0"));
        let inner = find(body, 1).expect("the nested one");
        assert_eq!(text(inner, 2).as_deref(), Some("x"));
        assert_eq!(number(inner, 3), Some(7));
        assert_eq!(number(inner, 4), None);
    }

    #[test]
    fn lengths_that_lie_end_the_list() {
        // Longer than what is there, shorter than its own header, and zero.
        for length in [200_u16, 3, 0] {
            let mut bytes = Vec::new();
            push_attribute(&mut bytes, 1, &[1, 2, 3, 4]);
            let good = bytes.len();
            push_attribute(&mut bytes, 2, &[1, 2, 3, 4]);
            bytes[good..good + 2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(attributes(&bytes).count(), 1, "length {length}");
        }
        let mut message = testing::message(20, &[0; 8]);
        message.truncate(20);
        assert_eq!(messages(&message).count(), 0);
    }

    #[test]
    fn an_error_ends_an_answer_with_its_number() {
        let refused = testing::message(NLMSG_ERROR, &(-95_i32).to_ne_bytes());
        let end = end_of(&refused).expect("the end");
        assert_eq!(end.expect_err("an error").raw_os_error(), Some(95));
        let fine = testing::message(NLMSG_ERROR, &0_i32.to_ne_bytes());
        assert!(end_of(&fine).expect("the end").is_ok());
        assert!(end_of(&testing::message(20, &[])).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = end_of(&bytes);
            for message in messages(&bytes) {
                for attribute in attributes(message.payload) {
                    let _ = (text(attribute.payload, 1), number(attribute.payload, 2));
                }
            }
        }
    }
}
