//! What an iSCSI portal offers: the names of its targets (`SendTargets`), and the LUNs of each that lets us in.
//!
//! Nothing is written. Must not know: other protocols. Sizes are in bytes.

use super::address::{Address, DEFAULT_PORT, Wishes};
use super::command::Payload;
use super::fault::Fault;
use super::login::{self, Connected, discover, log_in};
use super::scsi::{self, Capacity, Cdb, Inquiry, Mode};
use super::unit::attentive;
use crate::clock::monotonic_ns;
use crate::error::{Error, Kind, Result};
use crate::target::{Discovery, Offer, Search};

/// How a host is asked.
pub const DISCOVERY: Discovery = Discovery {
    name: "iscsi",
    server: "iSCSI target",
    port: DEFAULT_PORT,
    find,
};

const LUN: &str = "iSCSI LUN";
const TARGET: &str = "iSCSI target";

fn find(search: &Search) -> Result<Vec<Offer>> {
    let spec = &search.login.spec;
    let mut portal = Address {
        host: spec.host().to_owned(),
        port: spec.port.unwrap_or(DEFAULT_PORT),
        target: String::new(),
        lun: 0,
        user: None,
        initiator: None,
        wishes: Wishes::default(),
        sessions: 1,
    };
    let names = match in_turn(search, &mut portal, |portal, deadline| {
        discover(portal, &search.login, deadline)
    }) {
        Ok(names) => names,
        Err(error) if error.kind == Kind::Denied => {
            let mut offer = Offer::bare(TARGET, denied(&portal, "targets"));
            offer.accessible = Some(false);
            return Ok(vec![offer]);
        }
        Err(error) => return Err(error),
    };
    if names.is_empty() {
        let note = format!(
            "it answers, and shows no targets to this computer (initiator {})",
            login::initiator_of(&portal)
        );
        return Ok(vec![Offer::bare(TARGET, note)]);
    }
    Ok(names
        .iter()
        .flat_map(|name| target(search, name, &portal))
        .collect())
}

/// Asks without a user first, then as the user where that is wanted: few targets want one, and a secret goes only where
/// it is asked for. Leaves in `address` as whom it was asked last.
fn in_turn<T>(
    search: &Search,
    address: &mut Address,
    ask: impl Fn(&Address, u64) -> Result<T>,
) -> Result<T> {
    let timeout = u64::try_from(search.login.connect_timeout().as_nanos()).unwrap_or(u64::MAX);
    let deadline = || monotonic_ns().saturating_add(timeout);
    address.user = None;
    let user = search.login.spec.user.clone();
    let user = user.filter(|user| !user.is_empty() && search.login.secret.0.is_some());
    match ask(address, deadline()) {
        Err(error) if error.kind == Kind::Denied && user.is_some() && search.has_time() => {
            address.user = user;
            ask(address, deadline())
        }
        other => other,
    }
}

fn denied(address: &Address, what: &str) -> String {
    let way = match &address.user {
        None => "give --user NAME".to_owned(),
        Some(user) => format!("check user {user} and the secret"),
    };
    format!(
        "needs a user (CHAP), or does not know this computer: {what} unknown; {way}, or allow initiator {} there",
        login::initiator_of(address)
    )
}

/// The LUNs of a target, or the target alone where they are not to be had.
fn target(search: &Search, name: &str, portal: &Address) -> Vec<Offer> {
    let alone = |note: String, accessible| {
        vec![Offer {
            name: name.to_owned(),
            accessible,
            ..Offer::bare(TARGET, note)
        }]
    };
    if !search.has_time() {
        return alone(
            "LUNs not asked for: there are too many targets".to_owned(),
            None,
        );
    }
    let mut address = Address {
        target: name.to_lowercase(),
        ..portal.clone()
    };
    let connected = in_turn(search, &mut address, |address, deadline| {
        log_in(address, &search.login, deadline).map(|connected| (connected, deadline))
    });
    match connected {
        Ok((connected, deadline)) => match luns(search, &address, connected, deadline) {
            Ok(offers) if offers.is_empty() => {
                let initiator = login::initiator_of(&address);
                alone(
                    format!("no disk for this computer (initiator {initiator})"),
                    Some(true),
                )
            }
            Ok(offers) => offers,
            Err(error) => alone(format!("LUNs unknown: {}", error.message), None),
        },
        Err(error) if error.kind == Kind::Denied => alone(denied(&address, "LUNs"), Some(false)),
        Err(error) => alone(format!("LUNs unknown: {}", error.message), Some(false)),
    }
}

fn luns(
    search: &Search,
    address: &Address,
    connected: Connected,
    deadline: u64,
) -> Result<Vec<Offer>> {
    let mut asked = Asked {
        connected,
        deadline,
    };
    let timeout = search.login.connect_timeout().as_secs_f64();
    // LUN 0 answers for the whole target, whether there is a disk or not.
    let list = asked
        .ask(address, &scsi::report_luns(), scsi::REPORT_LUNS_BYTES)
        .map_err(|fault| -> Error {
            let phase = crate::error::Phase::Open;
            fault.error(
                phase,
                "list the LUNs (REPORT LUNS)",
                &address.portal(),
                timeout,
            )
        })?;
    let mut offers = Vec::new();
    for lun in scsi::luns(&list) {
        let address = Address {
            lun,
            ..address.clone()
        };
        match asked.describe(&address) {
            Ok(Some(disk)) => offers.push(disk.offer(search, &address)),
            Ok(None) => {}
            Err(fault) if fault.ends_session() => break,
            // A LUN that is there and tells nothing of itself.
            Err(_) => offers.push(Disk::default().offer(search, &address)),
        }
        if !search.has_time() {
            break;
        }
    }
    asked.connected.context.logout(deadline);
    Ok(offers)
}

/// What a LUN tells of itself.
#[derive(Default)]
struct Disk {
    inquiry: Inquiry,
    capacity: Option<Capacity>,
    read_only: bool,
}

impl Disk {
    fn offer(self, search: &Search, address: &Address) -> Offer {
        let mut spec = search.login.spec.clone();
        spec.domain = None;
        spec.user.clone_from(&address.user);
        spec.path = format!("/{}/{}", address.target, address.lun);
        let name = format!("{} LUN {}", address.target, address.lun);
        let mut offer = Offer::new(LUN, name, spec.compose());
        offer.size_bytes = self.capacity.map(|capacity| capacity.bytes());
        offer.accessible = Some(self.capacity.is_some());
        if self.capacity.is_none() {
            offer.note("it does not tell its size: no medium, or not ready");
        }
        if self.read_only {
            offer.note("read-only");
        }
        let maker = format!("{} {}", self.inquiry.vendor, self.inquiry.product);
        if !maker.trim().is_empty() {
            offer.note(maker.trim());
        }
        offer
    }
}

/// A session with a target, until the deadline.
struct Asked {
    connected: Connected,
    deadline: u64,
}

impl Asked {
    fn ask(
        &mut self,
        address: &Address,
        cdb: &Cdb,
        most: u32,
    ) -> std::result::Result<Vec<u8>, Fault> {
        let (context, deadline) = (&mut self.connected.context, self.deadline);
        let lun = address.wire_lun();
        attentive(|| context.command(lun, cdb, Payload::Answer(most), deadline))
            .map(|(data, _)| data)
    }

    /// What a LUN is; None when it is no disk.
    fn describe(&mut self, address: &Address) -> std::result::Result<Option<Disk>, Fault> {
        let small = u32::from(scsi::SMALL);
        let data = self.ask(address, &scsi::inquiry_command(None), small)?;
        let inquiry = Inquiry::read(&data).unwrap_or_default();
        if inquiry.qualifier != 0 || !matches!(inquiry.device_type, 0x00 | 0x0e) {
            return Ok(None);
        }
        let mut disk = Disk {
            inquiry,
            ..Disk::default()
        };
        disk.capacity = match self.ask(address, &scsi::read_capacity_16(), 32) {
            Ok(data) => Capacity::read_16(&data),
            Err(fault) if fault.ends_session() => return Err(fault),
            // Old targets know the 10-byte command only.
            Err(_) => match self.ask(address, &scsi::read_capacity_10(), 8) {
                Ok(data) => Capacity::read_10(&data),
                Err(fault) if fault.ends_session() => return Err(fault),
                Err(_) => None,
            },
        };
        if let Ok(data) = self.ask(address, &scsi::mode_sense_6(), small) {
            disk.read_only = Mode::read_6(&data).is_some_and(|mode| mode.write_protected);
        }
        Ok(Some(disk))
    }
}
