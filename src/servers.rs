//! Servers that this program starts by itself: for the demo and for every end-to-end test.
//!
//! Read first. Two kinds, one face ([`Server`]): what to connect to, and the password that is not in the URI.
//! Dropping a server stops it and removes whatever it had.
//!
//! - [`embedded`] (cargo feature `embedded`): NFS, SMB and iSCSI inside this process, over RAM, on ephemeral ports of
//!   127.0.0.1. No root, no installed program, nothing on disk. Good for a first run and for tests; their figures say
//!   nothing about real servers.
//! - [`real`]: nfs-ganesha, smbd and tgtd as child processes, each with a private state directory. They run only
//!   inside a [`sandbox`], where the network, the mounts, the users and the process numbers are not the machine's.
//! - [`sandbox`] runs a program again in namespaces of its own, and says whether this process is in such a one.
//! - [`round_trip`]: the other end of the round-trip probe, for one peer and until a deadline; it needs no file system.
//! - [`iperf3`]: one test on a port that [`one_peer`] alone sees; what the agent serves.
//! - [`packages`]: which Debian packages the real servers need, and which programs are missing.
//!
//! Must not know: workloads, targets' clients, stages. Ports are TCP; sizes are in bytes.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Phase, Result};

#[cfg(feature = "embedded")]
pub mod embedded;
pub mod iperf3;
pub mod one_peer;
pub mod packages;
pub mod processes;
pub mod real;
pub mod round_trip;
pub mod sandbox;
#[cfg(test)]
mod testing;

/// A running server, whatever kind it is.
pub trait Server: Send {
    /// The protocol's URI scheme: `nfs`, `smb` or `iscsi`.
    fn protocol(&self) -> &'static str;
    /// The program and its version, as it says itself.
    fn version(&self) -> &str;
    /// A target URI with explicit ports.
    fn uri(&self) -> String;
    /// The password that belongs to the URI's user.
    fn password(&self) -> Option<&str>;
}

/// How long any server may take until it listens; it takes a few tenths of a second.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits until something listens on `address`; `alive` ends the wait early with an error of its own.
fn wait_for(address: SocketAddr, mut alive: impl FnMut() -> Result<()>) -> Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        alive()?;
        match TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
            Ok(_) => return Ok(()),
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => {
                return Err(Error::new(
                    Phase::Prepare,
                    Kind::TimedOut,
                    format!(
                        "a server that was just started does not listen on {address} after {} s: {error}",
                        START_TIMEOUT.as_secs()
                    ),
                ));
            }
        }
    }
}

/// A path as it stands in a URI: what would be read as something else is percent-encoded.
fn encode(path: &str) -> String {
    use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
    const SPECIAL: &AsciiSet = &CONTROLS
        .add(b' ')
        .add(b'%')
        .add(b'?')
        .add(b'#')
        .add(b'@')
        .add(b':')
        .add(b';');
    utf8_percent_encode(path, SPECIAL).to_string()
}
