//! iSCSI over RAM: the `iscsi-target` crate with one sparse LUN 0.
//!
//! The crate answers in two sends and leaves Nagle's algorithm on, so that each small answer waits for a delayed
//! acknowledgement: 44 ms an operation. It binds its port by itself; but on Linux an accepted connection inherits
//! `TCP_NODELAY` from the listening socket, and a process may copy its own descriptors. So the listener is found among
//! this process's descriptors and the option is set there. Where copying is forbidden (some container rules), it
//! stays slow and works. The crate also takes only two commands at a time and polls for connections every 100 ms.
//!
//! Must not know: the other servers. Sizes are in bytes.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iscsi_target::{AuthConfig, ChapCredentials, IscsiError, IscsiTarget, ScsiBlockDevice};
use rustix::net::sockopt::{set_tcp_nodelay, socket_acceptconn};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::pages::{Budget, Pages};
use crate::error::{Error, Kind, Phase, Result};
use crate::servers::{Server, wait_for};

/// The target's name.
pub const TARGET: &str = "iqn.2026-11.dev.nasgauge:embedded";
/// Bytes in a block.
const BLOCK: u32 = 512;

/// A running iSCSI target; dropping it stops it.
pub struct Iscsi {
    port: u16,
    user: Option<(String, String)>,
    target: Arc<IscsiTarget<Lun>>,
    thread: Option<JoinHandle<()>>,
    answers_at_once: bool,
}

impl Iscsi {
    /// Starts one with a LUN of `size` bytes (whole blocks of 512), of which memory is taken as it is written.
    pub fn start(size: u64) -> Result<Self> {
        Self::launch(size, None)
    }

    /// The same, behind a CHAP login.
    pub fn with_chap(size: u64, user: &str, secret: &str) -> Result<Self> {
        Self::launch(size, Some(&(user.to_owned(), secret.to_owned())))
    }

    fn launch(size: u64, user: Option<&(String, String)>) -> Result<Self> {
        // The crate takes a port number rather than a bound socket; another program may be faster.
        let mut last = None;
        for _ in 0..5 {
            match Self::listen(size, user.cloned(), free_port()?) {
                Err(error) if error.kind == Kind::Other => last = Some(error),
                done => return done,
            }
        }
        Err(last.unwrap_or_else(|| Error::new(Phase::Prepare, Kind::Other, "no port was free")))
    }

    fn listen(size: u64, user: Option<(String, String)>, port: u16) -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| {
            let message = format!("could not start the embedded iscsi server: {error}");
            Error::new(Phase::Prepare, Kind::Other, message)
        };
        let auth = user
            .as_ref()
            .map_or(AuthConfig::None, |(name, secret)| AuthConfig::Chap {
                credentials: ChapCredentials::new(name, secret),
            });
        let target = IscsiTarget::builder()
            .bind_addr(&format!("127.0.0.1:{port}"))
            .target_name(TARGET)
            .max_connections(256)
            .with_auth(auth)
            .build(Lun::new(size))
            .map_err(|error| failed(&error))?;
        let target = Arc::new(target);
        let serving = Arc::clone(&target);
        let thread = std::thread::Builder::new()
            .name("embedded-iscsi".to_owned())
            .spawn(move || {
                let _ = serving.run();
            })
            .map_err(|error| failed(&error))?;
        let mut iscsi = Self {
            port,
            user,
            target,
            thread: Some(thread),
            answers_at_once: false,
        };
        iscsi.answers_at_once = iscsi.hurry()?;
        wait_for(([127, 0, 0, 1], port).into(), || iscsi.alive())?;
        Ok(iscsi)
    }

    /// Whether small operations are answered at once rather than after 44 ms.
    #[must_use]
    pub const fn answers_at_once(&self) -> bool {
        self.answers_at_once
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    fn alive(&self) -> Result<()> {
        match &self.thread {
            Some(thread) if !thread.is_finished() => Ok(()),
            _ => Err(Error::new(
                Phase::Prepare,
                Kind::Other,
                format!(
                    "the embedded iscsi server could not listen on port {}",
                    self.port
                ),
            )),
        }
    }

    /// Sets `TCP_NODELAY` on the listener as soon as it is there; false where descriptors can't be copied.
    fn hurry(&self) -> Result<bool> {
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            self.alive()?;
            let Some(sockets) = sockets_on(self.port) else {
                return Ok(false);
            };
            for socket in sockets {
                if socket_acceptconn(&socket).unwrap_or(false) {
                    return Ok(set_tcp_nodelay(&socket, true).is_ok());
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(false)
    }
}

impl Drop for Iscsi {
    fn drop(&mut self) {
        self.target.stop();
        if let Some(thread) = self.thread.take() {
            // Up to 100 ms: the crate looks at its flag between two polls; then the port is closed.
            let _ = thread.join();
        }
        // Its connection threads wait for the initiator for minutes; without a connection they end.
        for socket in sockets_on(self.port).unwrap_or_default() {
            let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
        }
    }
}

impl Server for Iscsi {
    fn protocol(&self) -> &'static str {
        "iscsi"
    }

    fn version(&self) -> &'static str {
        "iscsi-target 1.0 (embedded)"
    }

    fn uri(&self) -> String {
        let user = self.user.as_ref().map(|(user, _)| format!("{user}@"));
        let (user, port) = (user.unwrap_or_default(), self.port);
        format!("iscsi://{user}127.0.0.1:{port}/{TARGET}/0")
    }

    fn password(&self) -> Option<&str> {
        self.user.as_ref().map(|(_, secret)| secret.as_str())
    }
}

/// A TCP port of 127.0.0.1 that is free now. Someone else may take it before it is used, so who uses it tries again.
fn free_port() -> Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Error::io(Phase::Prepare, &error, "find a free port on 127.0.0.1"))
}

/// Copies of this process's sockets whose own port is `port`; None where copying is not allowed.
fn sockets_on(port: u16) -> Option<Vec<OwnedFd>> {
    let this = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").ok()?.flatten() {
        let is_socket = std::fs::read_link(entry.path())
            .is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
        let number = entry.file_name().to_string_lossy().parse::<RawFd>();
        let (true, Ok(number)) = (is_socket, number) else {
            continue;
        };
        match pidfd_getfd(&this, number, PidfdGetfdFlags::empty()) {
            Ok(socket) if port_of(&socket) == Some(port) => found.push(socket),
            // Another thread closed it between the listing and now.
            Ok(_) | Err(rustix::io::Errno::BADF) => {}
            Err(_) => return None,
        }
    }
    Some(found)
}

fn port_of(socket: &OwnedFd) -> Option<u16> {
    let address = rustix::net::getsockname(socket).ok()?;
    SocketAddr::try_from(address)
        .ok()
        .map(|address| address.port())
}

/// A sparse disk in RAM.
struct Lun {
    pages: Pages,
}

impl Lun {
    fn new(size: u64) -> Self {
        let size = size - size % u64::from(BLOCK);
        Self {
            pages: Pages::new(size, Budget::new(size)),
        }
    }
}

impl ScsiBlockDevice for Lun {
    fn read(&self, lba: u64, blocks: u32, block_size: u32) -> iscsi_target::ScsiResult<Vec<u8>> {
        let block = u64::from(block_size);
        Ok(self.pages.read(lba * block, u64::from(blocks) * block))
    }

    fn write(&mut self, lba: u64, data: &[u8], block_size: u32) -> iscsi_target::ScsiResult<()> {
        let offset = lba * u64::from(block_size);
        if offset + data.len() as u64 > self.pages.len() {
            return Err(IscsiError::Scsi("beyond the end of the LUN".to_owned()));
        }
        self.pages
            .write(offset, data)
            .map_err(|fault| IscsiError::Scsi(format!("{fault:?}")))
    }

    fn capacity(&self) -> u64 {
        self.pages.len() / u64::from(BLOCK)
    }

    fn block_size(&self) -> u32 {
        BLOCK
    }

    fn vendor_id(&self) -> &'static str {
        "NASGAUGE"
    }

    fn product_id(&self) -> &'static str {
        "embedded"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::testing;

    #[cfg(feature = "iscsi")]
    #[test]
    fn blocks_come_back_and_small_ones_without_a_stall() {
        let server = Iscsi::start(6 << 30).expect("starts");
        testing::iscsi::round_trip(&server);
        assert!(server.answers_at_once());
        let uri = server.uri();
        let mut client = testing::iscsi::Client::try_login(&uri, None).expect("logs in");
        let mut each: Vec<Duration> = (0..50)
            .map(|block| {
                let start = Instant::now();
                client.read(block * 8, 4096);
                start.elapsed()
            })
            .collect();
        each.sort();
        // A stall is 40 ms, and all would have it.
        assert!(each[25] < Duration::from_millis(20), "{each:?}");
    }

    #[cfg(feature = "iscsi")]
    #[test]
    fn chap_lets_only_the_right_secret_in() {
        let secret = "a-secret-of-16-ch";
        let server = Iscsi::with_chap(1 << 20, "tester", secret).expect("starts");
        let login = |secret| testing::iscsi::Client::try_login(&server.uri(), Some(secret));
        assert!(login(secret).is_ok());
        assert!(login("another-secret-16").is_err());
    }

    #[test]
    fn a_stopped_server_is_gone_with_its_connections() {
        let server = Iscsi::start(1 << 20).expect("starts");
        let port = server.port();
        testing::assert_loopback_only(port);
        let mut idle = std::net::TcpStream::connect(("127.0.0.1", port)).expect("listens");
        idle.set_read_timeout(Some(Duration::from_secs(5)))
            .expect("set");
        drop(server);
        testing::assert_closed(port);
        let end = std::io::Read::read(&mut idle, &mut [0]);
        assert!(
            matches!(&end, Ok(0))
                || end.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
        );
    }
}
