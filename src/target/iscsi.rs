//! `iscsi://[user@]host[:port]/iqn/lun`: a LUN through libiscsi, a client in user space.
//!
//! Read first: `unit` opens a LUN (`login` finds the portal and logs in, over `context` and `command`, the
//! safe wrapper of libiscsi), `device` is the control side; `session` is the data side, one session a lane with
//! a true queue depth, which `spread` multiplies; `discover` lists targets and LUNs.
//! `address`, `scsi` and `fault` are pure. The kernel's initiator is not involved: no device node appears,
//! nothing is cached on this computer. Must not know: other protocols, workloads.

use crate::error::{Error, Result};
use crate::target::{Caps, Ceiling, Control, Protocol, Threads};

mod address;
mod command;
mod context;
mod device;
pub mod discover;
mod fault;
mod login;
mod part;
mod portal;
mod reply;
mod scsi;
mod session;
mod spread;
mod unit;

use address::Address;
use session::{IODEPTH_MAX, Lane};
use spread::Spread;
use unit::Unit;

/// The registry line.
pub const PROTOCOL: Protocol = Protocol {
    name: "iscsi",
    example: "iscsi://nas/iqn.2001-05.com.example:disk/1",
    options: &[
        (
            "initiator",
            "name to log in under (default: iqn.2026-11.org.nasgauge:<this host>)",
        ),
        (
            "header_digest",
            "none or crc32c (default: as the target likes)",
        ),
        (
            "sessions",
            "sessions over which each lane spreads its operations, 1 to 16 (default: 1)",
        ),
        (
            "immediate_data",
            "1 or 0: whether a write command carries its first data itself (default: 1 where the target agrees)",
        ),
        (
            "initial_r2t",
            "1 or 0: whether a write's further data waits to be asked for (default: 0 where the target agrees)",
        ),
    ],
    check: |spec| Address::of(spec).map(drop),
    caps: |spec| Caps {
        iodepth_max: IODEPTH_MAX,
        threads: Threads::Shared,
        control: Threads::Shared,
        flush: true,
        sync: true,
        stores: true,
        engine: "libiscsi",
        // A URI that can't be read was refused by `check`.
        connections: Address::of(spec).map_or(1, |address| address.sessions),
        ceiling: Some(Ceiling::new(1024, 1, 4)),
    },
    control: |login| -> Result<Control> {
        let unit = Unit::open(login).map_err(|error| error.at(&login.spec.uri))?;
        Ok(Control::Device(Box::new(unit)))
    },
    connect: |login, attach| {
        let named = |error: Error| error.at(&login.spec.uri);
        let sessions = Address::of(&login.spec).map_err(named)?.sessions;
        if sessions > 1 {
            let spread = Spread::open(login, attach, sessions);
            return Ok(Box::new(spread.map_err(named)?));
        }
        let lane = Unit::open(login).and_then(|unit| Lane::new(unit, attach));
        Ok(Box::new(lane.map_err(named)?))
    },
    folder: None,
};
