//! Servers inside this process: NFS, SMB and iSCSI over RAM, on ephemeral ports of 127.0.0.1.
//!
//! Each of them returns from `start` when it listens, and stops for good on drop: the port is closed, open
//! connections are cut, the memory is given back. NFS and SMB run on a thread with an async runtime each, which ends
//! with its runtime; iSCSI has threads of its own, whose connections are cut from under them.
//!
//! Must not know: the real servers. Sizes are in bytes.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{Error, Kind, Phase, Result};

pub mod iscsi;
pub mod nfs;
mod pages;
pub mod smb;
mod tree;

pub use iscsi::Iscsi;
pub use nfs::Nfs;
pub use smb::Smb;

/// A thread that serves until this is dropped.
struct Serving {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Runs `bind`, then what it returned to serve, on a thread of its own; returns when `bind` has given the address.
    fn start<B, S>(name: &'static str, bind: B) -> Result<(Self, SocketAddr)>
    where
        B: Future<Output = io::Result<(SocketAddr, S)>> + Send + 'static,
        S: Future<Output = io::Result<()>> + Send + 'static,
    {
        let failed = |error: &io::Error| {
            Error::io(
                Phase::Prepare,
                error,
                &format!("start the embedded {name} server"),
            )
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let (bound, address) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("embedded-{name}"))
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let runtime = match runtime {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        let _ = bound.send(Err(error));
                        return;
                    }
                };
                match runtime.block_on(bind) {
                    Ok((address, serve)) => {
                        runtime.spawn(serve);
                        let _ = bound.send(Ok(address));
                        let _ = runtime.block_on(stopped);
                        // Dropping the runtime ends every task, which closes the port and the connections.
                    }
                    Err(error) => {
                        let _ = bound.send(Err(error));
                    }
                }
            })
            .map_err(|error| failed(&error))?;
        let serving = Self {
            stop: Some(stop),
            thread: Some(thread),
        };
        let address = address
            .recv_timeout(Duration::from_secs(10))
            .map_err(|_| {
                Error::new(
                    Phase::Prepare,
                    Kind::TimedOut,
                    format!("the embedded {name} server did not start"),
                )
            })?
            .map_err(|error| failed(&error))?;
        Ok((serving, address))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A tree that several connections share; a panic elsewhere does not spoil it, since no operation leaves it half done.
type Shared = std::sync::Arc<std::sync::Mutex<tree::Tree>>;

fn lock(tree: &Shared) -> std::sync::MutexGuard<'_, tree::Tree> {
    tree.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
