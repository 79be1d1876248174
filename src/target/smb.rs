//! `smb:` reaches a share through Samba's libsmbclient (the `pavao` crate): blocking, one operation at a time.
//!
//! Read first: [`place`] takes the URI apart and spells it as libsmbclient wants it; [`server`] asks the server
//! for its dialect and limits before anything logs in, and [`identity`] for its name; [`share`] logs in and holds
//! the one client; [`files`] is the control side, [`session`] the data side over it and [`folder`] that of small files. libsmbclient holds one lock
//! and one configuration for a whole process, so each session belongs into a child process of its own ([`home`]
//! says what its `HOME` must be), and it writes remarks to standard output, which that process must not use for
//! anything else.
//!
//! Must not know: other protocols. Units: bytes.

mod fault;
mod files;
mod folder;
mod home;
mod identity;
mod place;
mod server;
mod session;
mod share;

use crate::error::Result;
use crate::spec::uri::TargetSpec;
use crate::target::{Attach, Caps, Control, Login, Protocol, Threads};

/// The registry line.
pub const PROTOCOL: Protocol = Protocol {
    name: "smb",
    example: "smb://user@nas/share/dir",
    options: &[
        (
            "engine",
            "the client that moves the bytes: pavao (Samba's libsmbclient)",
        ),
        (
            "encrypt",
            "1 refuses to run unencrypted; 0 encrypts only where the server demands it",
        ),
        (
            "sign",
            "1 signs every message; 0 signs only where the server demands it",
        ),
    ],
    check: |spec| place::Place::of(spec).map(drop),
    caps,
    control: |login| {
        let share = share::Share::open(login, 0, login.connect_timeout())?;
        Ok(Control::Files(Box::new(files::ShareFiles::open(share)?)))
    },
    connect: |login: &Login, attach: &Attach| connect(login, attach),
    folder: Some(folder::open),
};

/// No flush: libsmbclient exports nothing that sends SMB2 FLUSH, so what it wrote is accepted, not durable.
fn caps(_spec: &TargetSpec) -> Caps {
    Caps {
        iodepth_max: 1,
        threads: Threads::PerProcess,
        flush: false,
        sync: false,
        stores: true,
        engine: "pavao",
        connections: 1,
    }
}

fn connect(login: &Login, attach: &Attach) -> Result<Box<dyn crate::target::Session>> {
    Ok(Box::new(session::FileSession::open(login, attach)?))
}
