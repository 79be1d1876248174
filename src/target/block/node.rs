//! The device node: found, opened, and claimed so that nothing else may use the device meanwhile.
//!
//! Must not know: what is read or written.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Kind, Phase, Result};
use crate::probe::disk::{Disk, numbers};
use crate::spec::uri::TargetSpec;
use crate::target::block::identity;
use crate::target::local::{direct, fault};

/// The exclusive use of a device, until the last copy is dropped.
pub type Claim = Arc<OwnedFd>;

/// The kernel grants a device to one exclusive opener, not to one process; the sessions of this process share what
/// it grants, and so does the control side.
static CLAIMS: Mutex<Vec<(u64, Weak<OwnedFd>)>> = Mutex::new(Vec::new());

/// A block device that exists.
#[derive(Debug)]
pub struct Node {
    name: String,
    device: u64,
    disk: Option<Disk>,
}

impl Node {
    /// Looks at the URI's path, which must be a block device.
    pub fn find(spec: &TargetSpec) -> Result<Self> {
        let name = spec.path.clone();
        let metadata = std::fs::metadata(&name).map_err(|error| {
            let advice = if error.kind() == io::ErrorKind::NotFound {
                "; lsblk lists the block devices of this computer"
            } else {
                ""
            };
            fault(Phase::Open, &error, &format!("find {name}"), advice).at(&spec.uri)
        })?;
        if !metadata.file_type().is_block_device() {
            return Err(Error::usage(format!(
                "{name} is not a block device; a directory or file is tested by its plain path"
            ))
            .at(&spec.uri));
        }
        let device = metadata.rdev();
        Ok(Self {
            name,
            device,
            disk: Disk::of_device(numbers(device)),
        })
    }

    /// The path as given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What `/sys` has of it; None where `/sys` is not there.
    #[must_use]
    pub const fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// Opens the device. `sync` makes each write durable.
    pub fn open(&self, write: bool, bypass: bool, sync: bool) -> Result<File> {
        if write && self.disk.as_ref().is_some_and(identity::write_protected) {
            return Err(Error::new(
                Phase::Open,
                Kind::Denied,
                format!("{} is write-protected; only reading works", self.name),
            ));
        }
        let mut flags = OFlags::CLOEXEC;
        flags |= if write { OFlags::RDWR } else { OFlags::RDONLY };
        flags.set(OFlags::DIRECT, bypass);
        flags.set(OFlags::DSYNC, sync);
        let file = rustix::fs::open(&self.name, flags, Mode::empty())
            .map(File::from)
            .map_err(|errno| match errno {
                Errno::INVAL if bypass => direct::refused(&self.name, "its driver refuses it"),
                errno => self.open_error(errno),
            })?;
        // The name could have been given to another device since we looked.
        let same = file
            .metadata()
            .is_ok_and(|metadata| metadata.rdev() == self.device);
        if !same {
            return Err(Error::safety(format!(
                "{} became another device while it was looked at",
                self.name
            )));
        }
        Ok(file)
    }

    fn open_error(&self, errno: Errno) -> Error {
        let advice = match errno {
            Errno::ACCESS | Errno::PERM => {
                "; run as root, or as a member of the group that owns it"
            }
            Errno::NOMEDIUM | Errno::NXIO => "; is there a medium in it?",
            _ => "",
        };
        let doing = format!("open {}", self.name);
        let mut error = fault(Phase::Open, &errno.into(), &doing, advice);
        if matches!(errno, Errno::NOMEDIUM | Errno::NXIO | Errno::NODEV) {
            error.kind = Kind::NotFound;
        }
        error
    }

    /// Claims the device, or shares this process's claim. Fails when a mount, an array, a pool or another program
    /// has it: the kernel's own word, behind whatever `/sys` tells.
    pub fn claim(&self) -> Result<Claim> {
        let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
        claims.retain(|(_, claim)| claim.strong_count() > 0);
        let present = claims
            .iter()
            .find(|(device, _)| *device == self.device)
            .and_then(|(_, claim)| claim.upgrade());
        if let Some(claim) = present {
            return Ok(claim);
        }
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        let handle = rustix::fs::open(&self.name, flags, Mode::empty()).map_err(|errno| {
            if errno == Errno::BUSY {
                Error::safety(format!(
                    "the kernel says that {} is in use (a mount, an array, a pool or another program has it)",
                    self.name
                ))
            } else {
                self.open_error(errno)
            }
        })?;
        let claim = Arc::new(handle);
        claims.push((self.device, Arc::downgrade(&claim)));
        Ok(claim)
    }
}
