//! `iscsi://[user@]host[:port]/iqn/lun`: a LUN through libiscsi, a client in user space.
//!
//! Read first: `unit` opens a LUN (`login` finds the portal and logs in, over `context` and `command`, the
//! safe wrapper of libiscsi), `device` is the control side; `session` is the data side, one session a lane with
//! a true queue depth.
//! `address`, `scsi` and `fault` are pure. The kernel's initiator is not involved: no device node appears,
//! nothing is cached on this computer. Must not know: other protocols, workloads.

use crate::error::Result;
use crate::target::{Caps, Control, Protocol, Threads};

mod address;
mod command;
mod context;
mod device;
mod fault;
mod login;
mod part;
mod portal;
mod reply;
mod scsi;
mod session;
mod unit;

use address::Address;
use session::{IODEPTH_MAX, Lane};
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
    ],
    check: |spec| Address::of(spec).map(drop),
    caps: |_| Caps {
        iodepth_max: IODEPTH_MAX,
        threads: Threads::Shared,
        control: Threads::Shared,
        flush: true,
        sync: true,
        stores: true,
        engine: "libiscsi",
        connections: 1,
    },
    control: |login| -> Result<Control> {
        let unit = Unit::open(login).map_err(|error| error.at(&login.spec.uri))?;
        Ok(Control::Device(Box::new(unit)))
    },
    connect: |login, attach| {
        let lane = Unit::open(login).and_then(|unit| Lane::new(unit, attach));
        Ok(Box::new(lane.map_err(|error| error.at(&login.spec.uri))?))
    },
};
