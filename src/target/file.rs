//! `file:/dir` or a plain path: files of the kernel, on a disk or on whatever is mounted there.
//!
//! The URI names a directory; objects lie in it. Read first: [`tree`] walks below it without following links,
//! [`directory`] is the control side, [`extents`] finds what was never written, [`folder`] moves small files. The data
//! side of blocks is `local`'s.
//! Must not know: block devices, markers, or what a run is made of.

pub mod directory;
pub mod extents;
mod folder;
pub mod tree;

use rustix::fs::OFlags;

use crate::error::{Error, Result};
use crate::op::Durability;
use crate::spec::uri::TargetSpec;
use crate::target::local::{Engine, Opened, direct};
use crate::target::{Attach, Caps, Control, Login, Protocol, Session, Threads};

use tree::Tree;

/// The registry line.
pub const PROTOCOL: Protocol = Protocol {
    name: "file",
    example: "file:/mnt/nas/dir?direct=1",
    options: &[
        (
            "engine",
            "psync, io_uring or mmap; by default psync at iodepth 1 and io_uring above",
        ),
        (
            "direct",
            "1 bypasses the page cache (O_DIRECT), 0 does not, whatever the workload says",
        ),
    ],
    check,
    caps,
    control: |login| {
        Ok(Control::Files(Box::new(directory::Directory::new(
            Tree::open(login)?,
        ))))
    },
    connect,
    folder: Some(folder::open),
};

const ENGINES: &[Engine] = &[Engine::Psync, Engine::IoUring, Engine::Mmap];

fn check(spec: &TargetSpec) -> Result<()> {
    if spec.path.is_empty() {
        return Err(Error::usage(
            "a file target without a directory; write file:/mnt/nas/dir or just the path",
        )
        .at(&spec.uri));
    }
    let engine = Engine::of(spec, ENGINES)?;
    if engine == Some(Engine::Mmap) && spec.switch("direct")? == Some(true) {
        return Err(Error::usage(
            "engine=mmap and direct=1 exclude each other: a mapping is the page cache",
        )
        .at(&spec.uri));
    }
    spec.switch("direct").map(drop)
}

/// With no engine in the URI, the session decides by its depth and tells it in `negotiated`; the word here is that
/// of depth 1.
fn caps(spec: &TargetSpec) -> Caps {
    // An engine that does not exist was refused by `check`.
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
    let bypass = spec.switch("direct")?.unwrap_or(attach.direct);
    let mut flags = OFlags::empty();
    flags.set(OFlags::DIRECT, bypass);
    match attach.durability {
        Durability::Datasync if attach.write => flags |= OFlags::DSYNC,
        Durability::Sync if attach.write => flags |= OFlags::SYNC,
        _ => {}
    }
    let tree = Tree::open(login)?;
    let name = tree.name(&attach.object);
    let file = tree.open_file(&attach.object, attach.write, flags)?;
    let direct = if bypass {
        Some(direct::alignment(&file, &name)?)
    } else {
        None
    };
    Opened {
        file,
        name,
        write: attach.write,
        direct,
        durability: attach.durability,
        io_timeout: login.io_timeout(),
        companion: None,
    }
    .start(choice, attach)
}

#[cfg(test)]
mod tests;
