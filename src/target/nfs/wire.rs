//! One TCP connection as the client library wants it: `nfs3_client`'s own reader takes an end of stream for
//! "nothing yet" and spins for ever; here it is an error. Bytes only; must not know RPC or NFS.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use nfs3_client::io::{AsyncRead, AsyncWrite};
use rustix::net::RecvFlags;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::clock::monotonic_ns;

/// Replies up to this size come in with one system call; the library alone takes a second for the length.
const AHEAD: usize = 8 << 10;

/// The source ports that servers take for a sign of root; beneath lie those of well-known services.
const PRIVILEGED: Range<u16> = 512..1024;

/// A connection with a small read-ahead.
pub(super) struct Io {
    stream: TcpStream,
    buffer: Box<[u8]>,
    filled: Range<usize>,
    /// Whether it leaves from a port below 1024.
    pub(super) privileged: bool,
}

/// Which source port a connection leaves from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// Below 1024 where this process may, else any.
    Privileged,
    /// Whatever the system gives.
    Any,
}

impl Io {
    /// Connects; the caller bounds the wait.
    pub(super) async fn connect(address: SocketAddr, from: From) -> io::Result<Self> {
        let stream = match from {
            From::Privileged => privileged(address).await?,
            From::Any => None,
        };
        let privileged = stream.is_some();
        let stream = match stream {
            Some(stream) => stream,
            None => TcpStream::connect(address).await?,
        };
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: vec![0; AHEAD].into_boxed_slice(),
            filled: 0..0,
            privileged,
        })
    }

    /// The socket alone, blocking; for who speaks the protocol by itself.
    pub(super) fn into_socket(self) -> io::Result<std::net::TcpStream> {
        let socket = self.stream.into_std()?;
        socket.set_nonblocking(false)?;
        Ok(socket)
    }

    /// A second handle on the same socket, to look whether the peer is still there.
    pub(super) fn watch(&self) -> io::Result<OwnedFd> {
        self.stream.as_fd().try_clone_to_owned()
    }
}

/// Whether an idle connection still stands: neither closed nor holding a stray reply.
pub(super) fn idle_and_open(watch: &OwnedFd) -> bool {
    let mut byte = [0_u8; 1];
    let looked = rustix::net::recv(watch, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    looked == Err(rustix::io::Errno::AGAIN)
}

/// A connection from a free privileged port; None where this process may not have one or all are taken.
async fn privileged(address: SocketAddr) -> io::Result<Option<TcpStream>> {
    let local: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let count = PRIVILEGED.end - PRIVILEGED.start;
    // Sessions that start together begin at different ports and seldom meet.
    let first = (monotonic_ns() / 1000 % u64::from(count)) as u16;
    for step in 0..count {
        let port = PRIVILEGED.start + (first + step) % count;
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // A port that waits out an old connection to another service is free for this one.
        socket.set_reuseaddr(true)?;
        match socket.bind(SocketAddr::new(local, port)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AddrInUse => continue,
            // The first refusal tells all: no port of the range will do.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(None),
            Err(error) => return Err(error),
        }
        match socket.connect(address).await {
            Ok(stream) => return Ok(Some(stream)),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn not_the_end(read: usize) -> io::Result<usize> {
    if read == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(read)
}

impl AsyncRead for Io {
    async fn async_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.filled.is_empty() {
            if into.len() >= AHEAD {
                return not_the_end(self.stream.read(into).await?);
            }
            let read = not_the_end(self.stream.read(&mut self.buffer).await?)?;
            self.filled = 0..read;
        }
        let count = into.len().min(self.filled.len());
        let start = self.filled.start;
        into[..count].copy_from_slice(&self.buffer[start..start + count]);
        self.filled.start += count;
        Ok(count)
    }
}

impl AsyncWrite for Io {
    async fn async_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.stream.write(bytes).await?;
        if written == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WriteZero.into());
        }
        Ok(written)
    }
}
