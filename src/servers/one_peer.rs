//! Ports that one peer sees, and nobody else.
//!
//! A classic BPF filter on the listening socket drops every packet of another source before TCP looks at it, so to a
//! third computer the port does not even refuse: it is not there. Accepted connections inherit the filter. It needs no
//! privilege and works without `/proc`. Must not know: what is served.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with, sockopt};

use crate::error::{Error, Kind, Phase};

/// Offset from which a socket filter sees the network header (`SKF_NET_OFF` of `linux/filter.h`, as unsigned).
const NETWORK_HEADER: u32 = 0xfff0_0000;
/// Where the source address stands in the headers: RFC 791 and RFC 8200.
const SOURCE_V4: u32 = 12;
const SOURCE_V6: u32 = 8;
/// Load a word of the packet, compare with a constant, return: `linux/bpf_common.h`.
const LOAD: u16 = 0x20;
const COMPARE: u16 = 0x15;
const RETURN: u16 = 0x06;
const ALL: u32 = u32::MAX;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// File descriptors are searched up to this number: a process of one errand has a handful.
const DESCRIPTORS: i32 = 1024;

const fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// The filter that lets packets of one source pass.
fn only(peer: IpAddr) -> Vec<libc::sock_filter> {
    let (first, words): (u32, Vec<u32>) = match peer {
        IpAddr::V4(address) => (SOURCE_V4, vec![address.to_bits()]),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            let words = [bits >> 96, bits >> 64, bits >> 32, bits].map(|word| word as u32);
            (SOURCE_V6, words.to_vec())
        }
    };
    let mut steps = Vec::new();
    for (index, word) in words.iter().enumerate() {
        // To the last step, over the comparisons that are left and the return before it.
        let left = words.len() - 1 - index;
        steps.push(step(LOAD, 0, 0, NETWORK_HEADER + first + 4 * index as u32));
        steps.push(step(COMPARE, 0, (2 * left + 1) as u8, *word));
    }
    steps.push(step(RETURN, 0, 0, ALL));
    steps.push(step(RETURN, 0, 0, 0));
    steps
}

fn attach(socket: BorrowedFd<'_>, steps: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the kernel reads `len` steps at `filter` during the call, and both outlive it; the length given is that
    // of the structure.
    #[expect(unsafe_code, reason = "rustix has no SO_ATTACH_FILTER")]
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes a socket deaf to all packets but those of `peer`.
pub fn restrict(socket: impl AsFd, peer: IpAddr) -> io::Result<()> {
    attach(socket.as_fd(), &mut only(peer.to_canonical()))
}

const fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    }
}

/// Listens on one address for one peer; port 0 takes a free one. The filter is there before the socket listens.
pub fn listen(address: SocketAddr, peer: IpAddr) -> io::Result<TcpListener> {
    let socket = socket_with(
        family(address.ip()),
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        Some(ipproto::TCP),
    )?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    restrict(&socket, peer)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// Why nothing listens there, in words.
#[must_use]
pub fn cannot_bind(address: SocketAddr, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::AddrNotAvailable {
        let message = format!(
            "{} is not an address of this computer, so nothing can listen on it",
            address.ip()
        );
        return Error::new(Phase::Prepare, Kind::NotFound, message);
    }
    Error::io(Phase::Prepare, error, &format!("take the port {address}"))
}

/// Takes a UDP port and hears nothing on it: whatever else wants the port is refused.
pub fn hold_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket_with(
        family(address.ip()),
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(ipproto::UDP),
    )?;
    attach(socket.as_fd(), &mut [step(RETURN, 0, 0, 0)])?;
    rustix::net::bind(&socket, &address)?;
    Ok(UdpSocket::from(socket))
}

/// A copy of a descriptor of this process, if that number is one.
fn copy(number: i32) -> Option<OwnedFd> {
    // SAFETY: the descriptor is only duplicated; when the number is none, the call fails. The copy is our own.
    #[expect(
        unsafe_code,
        reason = "the library that owns the descriptor does not give it"
    )]
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_dupfd_cloexec(borrowed, 0).ok()
}

/// TCP sockets of this process on a local port, as copies: the one that listens, and the connections.
#[derive(Debug, Default)]
pub struct Sockets {
    /// The socket that listens.
    pub listener: Option<OwnedFd>,
    /// How many connections are open.
    pub connections: usize,
}

/// Finds what a library opened on a port. The numbers are tried one by one: there may be no `/proc`.
#[must_use]
pub fn find(port: u16) -> Sockets {
    let mut sockets = Sockets::default();
    let mut number = 3;
    while number < DESCRIPTORS {
        let found = copy(number).filter(|socket| {
            let stream = sockopt::socket_type(socket).is_ok_and(|kind| kind == SocketType::STREAM);
            let own = rustix::net::getsockname(socket).ok();
            let own = own.and_then(|own| SocketAddr::try_from(own).ok());
            stream && own.is_some_and(|own| own.port() == port)
        });
        if let Some(socket) = found {
            if sockopt::socket_acceptconn(&socket) == Ok(true) {
                sockets.listener = Some(socket);
            } else if rustix::net::getpeername(&socket).is_ok() {
                sockets.connections += 1;
            }
        }
        number += 1;
    }
    sockets
}

/// Whether connections wait to be accepted; true when the kernel does not tell.
#[must_use]
pub fn queued(listener: impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut waiting = [PollFd::new(&listener, PollFlags::IN)];
    poll(&mut waiting, Some(&now)).map_or(true, |count| count > 0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);

    fn from(source: &str, to: SocketAddr) -> io::Result<TcpStream> {
        let address: SocketAddr = format!("{source}:0").parse().expect("an address");
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            Some(ipproto::TCP),
        )?;
        rustix::net::bind(&socket, &address)?;
        match rustix::net::connect(&socket, &to) {
            Err(rustix::io::Errno::INPROGRESS) | Ok(()) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut ready = [rustix::event::PollFd::new(
            &socket,
            rustix::event::PollFlags::OUT,
        )];
        let wait = rustix::event::Timespec {
            tv_sec: PATIENCE.as_secs().cast_signed(),
            tv_nsec: 0,
        };
        if rustix::event::poll(&mut ready, Some(&wait))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(false)?;
        match stream.take_error()? {
            Some(error) => Err(error),
            None => Ok(stream),
        }
    }

    #[test]
    fn only_the_peer_sees_the_port() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let peer = "127.0.0.2".parse().expect("an address");
        let listener = listen(any, peer).expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut friend = from("127.0.0.2", address).expect("the peer connects");
        // Not refused: nothing answers at all.
        let stranger = from("127.0.0.3", address).expect_err("a stranger");
        assert_eq!(stranger.kind(), io::ErrorKind::TimedOut);
        let (mut accepted, source) = listener.accept().expect("the peer");
        assert_eq!(source.ip(), peer);
        friend.write_all(b"x").expect("written");
        accepted.read_exact(&mut [0]).expect("read");
        assert!(!queued(&listener), "nobody else waits");
    }

    #[test]
    fn a_peer_of_ipv6_is_compared_as_a_whole() {
        let any = "[::1]:0".parse().expect("an address");
        let other = listen(any, "::2".parse().expect("an address")).expect("a port");
        let address = other.local_addr().expect("an address");
        assert!(TcpStream::connect_timeout(&address, PATIENCE).is_err());
        let own = listen(any, "::1".parse().expect("an address")).expect("a port");
        let address = own.local_addr().expect("an address");
        TcpStream::connect_timeout(&address, PATIENCE).expect("the peer connects");
    }

    #[test]
    fn a_librarys_sockets_are_found_by_their_port() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let found = find(address.port());
        assert!(found.listener.is_some() && found.connections == 0);
        let _waiting = TcpStream::connect(address).expect("connected");
        let found = find(address.port());
        let found = found.listener.expect("a listener");
        assert!(queued(&found));
        let _accepted = listener.accept().expect("accepted");
        assert_eq!(find(address.port()).connections, 1);
        assert!(!queued(&found));
    }

    #[test]
    fn a_held_udp_port_is_taken_and_deaf() {
        let held = hold_udp("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let address = held.local_addr().expect("an address");
        assert!(UdpSocket::bind(address).is_err());
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
        // The kernel may tell the sender that its packet was dropped; what counts is that it never arrives.
        let _ = sender.send_to(b"x", address);
        held.set_nonblocking(true).expect("set");
        assert!(held.recv(&mut [0]).is_err());
    }
}
