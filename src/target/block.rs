//! `block:/dev/sdX`: a block device of this computer, below every file system.
//!
//! Read first: [`node`] opens and claims the device, [`identity`] says who it is, [`holders`] who needs it. The data
//! side is `local`'s, direct by default: what the page cache gives is not what a device does. Must not know: files,
//! markers, signatures of what may lie on the device. Sizes are in bytes.

pub mod holders;
pub mod identity;
pub mod node;

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, SeekFrom, fadvise, ioctl_blksszget};

use crate::error::{Error, Kind, Phase, Result};
use crate::probe::disk::Disk;
use crate::spec::uri::TargetSpec;
use crate::target::local::{Engine, Opened, direct, fault};
use crate::target::{
    Attach, Caps, Control, Device, Facts, Identity, Login, Protocol, Session, Threads,
};
use crate::units::Bytes;

use holders::Evidence;
use node::{Claim, Node};

/// The registry line.
pub const PROTOCOL: Protocol = Protocol {
    name: "block",
    example: "block:/dev/sdb",
    options: &[
        (
            "engine",
            "psync or io_uring; by default psync at iodepth 1 and io_uring above",
        ),
        (
            "direct",
            "0 goes through the page cache; 1 (O_DIRECT) is the default",
        ),
    ],
    check,
    caps,
    control: |login| Ok(Control::Device(Box::new(Raw::new(&login.spec)?))),
    connect,
    folder: None,
};

const ENGINES: &[Engine] = &[Engine::Psync, Engine::IoUring];

fn check(spec: &TargetSpec) -> Result<()> {
    if !spec.path.starts_with('/') {
        return Err(Error::usage(format!(
            "'{}' is not the full path of a block device; write block:/dev/sdb",
            spec.path
        ))
        .at(&spec.uri));
    }
    Engine::of(spec, ENGINES)?;
    spec.switch("direct").map(drop)
}

/// As for files, the word for the engine is that of depth 1 when the URI names none.
fn caps(spec: &TargetSpec) -> Caps {
    let engine = Engine::of(spec, ENGINES).unwrap_or_default();
    Caps {
        iodepth_max: Engine::depth_max(engine),
        threads: Threads::Shared,
        control: Threads::Shared,
        flush: true,
        sync: true,
        stores: true,
        engine: engine.unwrap_or(Engine::Psync).key(),
        connections: 0,
        ceiling: None,
    }
}

fn connect(login: &Login, attach: &Attach) -> Result<Box<dyn Session>> {
    let spec = &login.spec;
    let choice = Engine::of(spec, ENGINES)?;
    let node = Node::find(spec)?;
    let claim = if attach.write {
        Some(node.claim()?)
    } else {
        None
    };
    let bypass = spec.switch("direct")?.unwrap_or(true);
    let file = node.open(
        attach.write,
        bypass,
        attach.write && attach.durability.each_write(),
    )?;
    let direct = if bypass {
        Some(match ioctl_blksszget(&file) {
            Ok(block) => u64::from(block),
            Err(_) => direct::alignment(&file, node.name())?,
        })
    } else {
        None
    };
    Opened {
        file,
        name: node.name().to_owned(),
        write: attach.write,
        direct,
        durability: attach.durability,
        io_timeout: login.io_timeout(),
        companion: claim,
    }
    .start(choice, attach)
}

/// The control side of one device.
struct Raw {
    node: Node,
    reader: File,
    /// Opened with the first write, and kept: from then on nobody else may claim the device.
    writer: Option<(File, Claim)>,
}

impl Raw {
    fn new(spec: &TargetSpec) -> Result<Self> {
        let node = Node::find(spec)?;
        let reader = node.open(false, false, false)?;
        let raw = Self {
            node,
            reader,
            writer: None,
        };
        if raw.capacity()? == 0 {
            let message = format!("{} holds no medium: its size is 0", raw.node.name());
            return Err(Error::new(Phase::Open, Kind::NotFound, message).at(&spec.uri));
        }
        Ok(raw)
    }

    fn error(&self, phase: Phase, error: &std::io::Error, doing: &str) -> Error {
        fault(phase, error, &format!("{doing} {}", self.node.name()), "")
    }

    fn capacity(&self) -> Result<u64> {
        // The end of a block device is its size; the descriptor's position is used for nothing else.
        rustix::fs::seek(&self.reader, SeekFrom::End(0))
            .map_err(|errno| self.error(Phase::Open, &errno.into(), "read the size of"))
    }

    /// Lets go of clean pages, so that the next read sees the device and not what was read before.
    fn forget(&self) {
        // Only advice: where it fails, the pages are as new as this computer's last write.
        let _ = fadvise(&self.reader, 0, None, Advice::DontNeed);
    }
}

impl Device for Raw {
    fn facts(&mut self) -> Result<Facts> {
        let identity = self.identity()?;
        let or = |text: &str, other: &str| if text.is_empty() { other } else { text }.to_owned();
        let mut lines = vec![
            ("device".to_owned(), self.node.name().to_owned()),
            ("model".to_owned(), or(&identity.model, "unknown")),
            ("serial".to_owned(), or(&identity.serial, "none")),
            ("size".to_owned(), Bytes(identity.capacity).both()),
            (
                "logical block".to_owned(),
                Bytes(identity.block.into()).to_string(),
            ),
        ];
        if identity.write_protected {
            lines.push(("write-protected".to_owned(), "yes".to_owned()));
        }
        for reason in self.holders()? {
            lines.push(("in use".to_owned(), reason));
        }
        Ok(Facts {
            lines,
            free_bytes: Some(identity.capacity),
            free_files: None,
            server: None,
        })
    }

    fn identity(&mut self) -> Result<Identity> {
        let disk = self.node.disk();
        let block = ioctl_blksszget(&self.reader).ok();
        let block = block.or_else(|| disk.and_then(Disk::logical_block));
        Ok(Identity {
            serial: disk.map(identity::serial).unwrap_or_default(),
            model: disk.map(identity::model).unwrap_or_default(),
            capacity: self.capacity()?,
            block: block.ok_or_else(|| {
                let message = format!("{} does not tell its block length", self.node.name());
                Error::new(Phase::Open, Kind::Unsupported, message)
            })?,
            write_protected: disk.is_some_and(identity::write_protected),
        })
    }

    fn holders(&mut self) -> Result<Vec<String>> {
        let Some(disk) = self.node.disk() else {
            let message = format!(
                "{} is not in /sys, so nothing tells who uses it",
                self.node.name()
            );
            return Err(Error::safety(message));
        };
        let mut reasons = holders::reasons(disk, &Evidence::gather());
        // Pools, arrays and other programs leave no trace in /sys, but the kernel knows them.
        if reasons.is_empty()
            && let Err(error) = self.node.claim()
        {
            reasons.push(error.message);
        }
        Ok(reasons)
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.forget();
        let doing = format!("read {} bytes at offset {offset} of", buffer.len());
        self.reader
            .read_exact_at(buffer, offset)
            .map_err(|error| self.error(Phase::Open, &error, &doing))
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        if self.writer.is_none() {
            let claim = self.node.claim()?;
            self.writer = Some((self.node.open(true, false, false)?, claim));
        }
        let doing = format!("write {} bytes at offset {offset} of", data.len());
        match &self.writer {
            Some((file, _)) => file
                .write_all_at(data, offset)
                .map_err(|error| self.error(Phase::Prepare, &error, &doing)),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        if let Some((file, _)) = &self.writer {
            file.sync_data()
                .map_err(|error| self.error(Phase::Flush, &error, "flush"))?;
            self.forget();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
