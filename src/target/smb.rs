//! `smb:` reaches a share through Samba's libsmbclient (the `pavao` crate), one operation at a time, or at depth.
//!
//! Read first: [`place`] takes the URI apart and spells it as libsmbclient wants it; [`server`] asks the server
//! for its dialect and limits before anything logs in, and [`identity`] for its name; [`share`] logs in and holds
//! the one client; [`files`] is the control side, [`session`] the data side over it and [`folder`] that of small files.
//! libsmbclient holds one lock and one configuration for a whole process, so each of its sessions belongs into a child process of its own ([`home`]
//! says what its `HOME` must be), and it writes remarks to standard output, which that process must not use for
//! anything else. [`discover`] asks for the shares of a server, whose list [`shares`] reads. [`pipe`] is the data side of `engine=smb2`, which needs none of that.
//!
//! Must not know: other protocols. Units: bytes.

pub mod discover;
mod fault;
mod files;
mod folder;
mod home;
mod identity;
mod pipe;
mod place;
mod refusal;
mod server;
mod session;
mod share;
mod shares;

use crate::error::Result;
use crate::spec::uri::TargetSpec;
use crate::target::{Attach, Caps, Ceiling, Control, Login, Protocol, Session, Threads};

use place::Engine;

/// The registry line.
pub const PROTOCOL: Protocol = Protocol {
    name: "smb",
    example: "smb://user@nas/share/dir",
    options: &[
        (
            "engine",
            "pavao: one request under way, through Samba's libsmbclient (the default); smb2: many, always signed",
        ),
        (
            "encrypt",
            "1 refuses to run unencrypted; 0 encrypts only where the server demands it",
        ),
        (
            "sign",
            "1 signs every message; 0 (with pavao) signs only where the server demands it",
        ),
    ],
    check: |spec| place::Place::of(spec).map(drop),
    caps,
    control: |login| {
        let share = share::Share::open(login, 0, login.connect_timeout())?;
        share.others_answer(login.connect_timeout())?;
        Ok(Control::Files(Box::new(files::ShareFiles::open(share)?)))
    },
    connect,
    folder: Some(folder::open),
};

fn caps(spec: &TargetSpec) -> Caps {
    // An engine that can't be read is refused by `check`, before anything is planned.
    match Engine::of(spec).unwrap_or_default() {
        Engine::Pavao => Caps {
            iodepth_max: 1,
            threads: Threads::PerProcess,
            control: Threads::PerProcess,
            flush: true,
            sync: false,
            stores: true,
            engine: "pavao",
            connections: 1,
            ceiling: Some(Ceiling::new(1024, 2, 1)),
        },
        Engine::Smb2 => Caps {
            iodepth_max: pipe::DEPTH_MAX,
            threads: Threads::Shared,
            // Directories and small files stay libsmbclient's business.
            control: Threads::PerProcess,
            flush: true,
            sync: true,
            stores: true,
            engine: "smb2",
            connections: 1,
            ceiling: Some(Ceiling::new(1024, 2, 1)),
        },
    }
}

fn connect(login: &Login, attach: &Attach) -> Result<Box<dyn Session>> {
    match Engine::of(&login.spec).unwrap_or_default() {
        Engine::Pavao => Ok(Box::new(session::FileSession::open(login, attach)?)),
        Engine::Smb2 => Ok(Box::new(pipe::Pipe::open(login, attach)?)),
    }
}
