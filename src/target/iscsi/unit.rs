//! One LUN, opened and known: who it is, how big, what it can do.
//!
//! Offsets and lengths are bytes, turned into blocks here. Must not know: queue depth, workloads.

use super::address::Address;
use super::command::Payload;
use super::context::Context;
use super::fault::{Fault, Sense};
use super::login::{Connected, Heard, log_in};
use super::scsi::{self, Capacity, Cdb, Inquiry, Mode};
use crate::clock::monotonic_ns;
use crate::error::{Error, Kind, Phase, Result};
use crate::target::{Attach, Login};
use crate::units::Bytes;

/// Events that a target may report before it runs a command; Linux gives up after 5 as well.
pub const ATTENTIONS_MAX: u8 = 8;
/// The most that one command moves where the target names no limit: a length any target can count.
const TRANSFER_MAX: u32 = 16 << 20;
/// How long to wait between two questions whether the unit is ready, in milliseconds.
const READY_WAIT_MS: u64 = 100;

/// A LUN on a session of its own.
pub struct Unit {
    /// Where it is.
    pub address: Address,
    /// The session.
    pub context: Context,
    /// What the login agreed on.
    pub heard: Heard,
    /// Its size.
    pub capacity: Capacity,
    /// What it allows.
    pub mode: Mode,
    /// The most bytes that one command moves: a multiple of the block.
    pub transfer_max: u32,
    /// Longest wait for one command, in nanoseconds.
    pub io_timeout_ns: u64,
    /// Longest wait for a flush.
    flush_timeout_ns: u64,
    /// Its maker's words.
    pub inquiry: Inquiry,
    /// Its serial number, or another name that stays.
    pub serial: Option<String>,
    login: Login,
    /// The most bytes that one command moves, where the LUN names a limit.
    pub limit: Option<u32>,
}

/// The longest wait in nanoseconds for the answer to a logout.
const LOGOUT_NS: u64 = 500_000_000;

/// Nanoseconds of a duration, without overflow.
fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Unit {
    /// Logs in, and asks the LUN everything that reading and writing need; bounded by the connect timeout.
    pub fn open(login: &Login) -> Result<Self> {
        let address = Address::of(&login.spec)?;
        let deadline = monotonic_ns().saturating_add(nanos(login.connect_timeout()));
        let Connected { context, heard } = log_in(&address, login, deadline)?;
        let mut unit = Self {
            address,
            context,
            heard,
            capacity: Capacity::default(),
            mode: Mode::default(),
            transfer_max: 0,
            io_timeout_ns: nanos(login.io_timeout()),
            flush_timeout_ns: nanos(login.flush_timeout()),
            inquiry: Inquiry::default(),
            serial: None,
            login: login.clone(),
            limit: None,
        };
        unit.identify(deadline, login)?;
        unit.measure(deadline, login)?;
        Ok(unit)
    }

    /// Makes sure of a live session before a control call. Between two of them minutes may pass, and targets end
    /// sessions that leave their questions (NOP-In) unanswered: then a new one is opened, to the same LUN or none.
    pub fn awake(&mut self) -> Result<()> {
        if self.context.catch_up().is_ok() {
            return Ok(());
        }
        let fresh = Self::open(&self.login)?;
        if (&fresh.serial, fresh.capacity) != (&self.serial, self.capacity) {
            return Err(Error::safety(format!(
                "{} is no longer the one that was inspected: its serial or size has changed",
                self.place()
            )));
        }
        *self = fresh;
        Ok(())
    }

    /// Makes sure that a disk is there, ready, and learns its names.
    fn identify(&mut self, deadline: u64, login: &Login) -> Result<()> {
        let waited = login.connect_timeout().as_secs_f64();
        let data = match self.ask(&scsi::inquiry_command(None), deadline) {
            Ok(data) => data,
            Err(fault) => return Err(self.opening(&fault, "inquire", deadline, waited)),
        };
        self.inquiry = Inquiry::read(&data).unwrap_or_default();
        if self.inquiry.qualifier != 0 {
            return Err(self.missing("is not there", deadline));
        }
        if !matches!(self.inquiry.device_type, 0x00 | 0x0e) {
            let what = format!("is not a disk but {}", self.inquiry.kind());
            return Err(self.missing(&what, deadline));
        }
        loop {
            match self.ask(&scsi::test_unit_ready(), deadline) {
                Ok(_) => break,
                Err(Fault::Sense(sense)) if sense.becoming_ready() && monotonic_ns() < deadline => {
                    std::thread::sleep(std::time::Duration::from_millis(READY_WAIT_MS));
                }
                Err(fault) => return Err(self.opening(&fault, "test", deadline, waited)),
            }
        }
        self.serial = match self.page(0x80, deadline).as_deref().and_then(scsi::serial) {
            Some(serial) => Some(serial),
            None => self
                .page(0x83, deadline)
                .as_deref()
                .and_then(scsi::designator),
        };
        Ok(())
    }

    /// Learns size, write protection and limits.
    fn measure(&mut self, deadline: u64, login: &Login) -> Result<()> {
        let waited = login.connect_timeout().as_secs_f64();
        let known = match self.ask(&scsi::read_capacity_16(), deadline) {
            Ok(data) => Capacity::read_16(&data),
            Err(fault) if fault.ends_session() => {
                return Err(self.opening(&fault, "read the capacity of", deadline, waited));
            }
            // Old targets know the 10-byte command only.
            Err(_) => match self.ask(&scsi::read_capacity_10(), deadline) {
                Ok(data) => Capacity::read_10(&data),
                Err(fault) => {
                    return Err(self.opening(&fault, "read the capacity of", deadline, waited));
                }
            },
        };
        self.capacity = known.ok_or_else(|| {
            Error::new(
                Phase::Open,
                Kind::Protocol,
                format!("{} reports a capacity that makes no sense", self.place()),
            )
        })?;
        self.mode = self.modes(deadline);
        let block = self.capacity.block;
        self.limit = self
            .page(0xb0, deadline)
            .as_deref()
            .and_then(scsi::transfer_max_blocks)
            .map(|blocks| blocks.saturating_mul(block));
        let most = self.limit.unwrap_or(TRANSFER_MAX).min(TRANSFER_MAX);
        self.transfer_max = (most / block).max(1) * block;
        Ok(())
    }

    fn modes(&mut self, deadline: u64) -> Mode {
        let six = self.ask(&scsi::mode_sense_6(), deadline).ok();
        if let Some(mode) = six.as_deref().and_then(Mode::read_6) {
            return mode;
        }
        let ten = self.ask(&scsi::mode_sense_10(), deadline).ok();
        ten.as_deref().and_then(Mode::read_10).unwrap_or_default()
    }

    /// A page of vital product data, where the LUN has it.
    fn page(&mut self, page: u8, deadline: u64) -> Option<Vec<u8>> {
        self.ask(&scsi::inquiry_command(Some(page)), deadline)
            .ok()
            .filter(|data| data.get(1) == Some(&page))
    }

    /// A command with a short answer.
    fn ask(&mut self, cdb: &Cdb, deadline: u64) -> std::result::Result<Vec<u8>, Fault> {
        let lun = self.address.wire_lun();
        let payload = || match cdb[0] {
            0x00 | 0x35 | 0x91 => Payload::None,
            0x25 => Payload::Answer(8),
            0x9e => Payload::Answer(32),
            _ => Payload::Answer(u32::from(scsi::SMALL)),
        };
        attentive(|| self.context.command(lun, cdb, payload(), deadline)).map(|(data, _)| data)
    }

    /// Refuses what the LUN can't do.
    pub fn allows(&self, attach: &Attach) -> Result<()> {
        if attach.write && self.mode.write_protected {
            return Err(Error::new(
                Phase::Open,
                Kind::Denied,
                format!(
                    "{} is write protected; allow writing at the target, or run reads only",
                    self.place()
                ),
            ));
        }
        if attach.write && attach.durability.each_write() && !self.mode.fua {
            return Err(Error::new(
                Phase::Open,
                Kind::Unsupported,
                format!(
                    "{} can't make single writes durable (it offers no FUA); use durability=flush",
                    self.place()
                ),
            ));
        }
        Ok(())
    }

    /// `LUN 1 of iqn.…`.
    pub fn place(&self) -> String {
        format!("LUN {} of {}", self.address.lun, self.address.target)
    }

    fn opening(&mut self, fault: &Fault, verb: &str, deadline: u64, waited_s: f64) -> Error {
        if matches!(fault, Fault::Sense(sense) if sense.no_such_unit()) {
            return self.missing("is not there", deadline);
        }
        let doing = format!("{verb} {}", self.place());
        fault.error(Phase::Open, &doing, &self.address.portal(), waited_s)
    }

    /// Names the LUNs that are there, in place of the one that is not.
    fn missing(&mut self, what: &str, deadline: u64) -> Error {
        let answer = Payload::Answer(scsi::REPORT_LUNS_BYTES);
        // LUN 0 answers for the whole target.
        let luns = self
            .context
            .command(0, &scsi::report_luns(), answer, deadline)
            .map(|(data, _)| scsi::luns(&data))
            .unwrap_or_default();
        let mut message = format!("{} {what}", self.place());
        if !luns.is_empty() {
            let numbers: Vec<String> = luns.iter().map(ToString::to_string).collect();
            message.push_str("; the target has LUN ");
            message.push_str(&numbers.join(", "));
        }
        Error::new(Phase::Open, Kind::NotFound, message)
    }

    /// Offset and length as blocks; a usage error unless both are whole blocks inside the LUN.
    pub fn blocks(&self, offset: u64, len: u64) -> Result<(u64, u64)> {
        let block = u64::from(self.capacity.block);
        if !offset.is_multiple_of(block) || !len.is_multiple_of(block) || len == 0 {
            return Err(Error::usage(format!(
                "{len} bytes at offset {offset} are not whole blocks: {} has blocks of {block} bytes; choose a block size that is a multiple",
                self.place()
            )));
        }
        let end = offset.checked_add(len);
        if end.is_none_or(|end| end > self.capacity.bytes()) {
            return Err(Error::usage(format!(
                "{len} bytes at offset {offset} reach beyond the end of {} ({})",
                self.place(),
                Bytes(self.capacity.bytes())
            )));
        }
        Ok((offset / block, len / block))
    }

    /// A data command's failure as an error.
    #[must_use]
    pub fn moving(&self, fault: &Fault, phase: Phase, doing: &str) -> Error {
        let limit = if phase == Phase::Flush {
            self.flush_timeout_ns
        } else {
            self.io_timeout_ns
        };
        let waited = limit as f64 / 1e9;
        let doing = format!("{doing} of {}", self.place());
        fault.error(phase, &doing, &self.address.portal(), waited)
    }

    /// SYNCHRONIZE CACHE of the whole LUN.
    pub fn synchronize(&mut self) -> Result<()> {
        let deadline = monotonic_ns().saturating_add(self.flush_timeout_ns);
        let ten = self.ask(&scsi::synchronize_cache_10(), deadline);
        let result = match ten {
            Err(Fault::Sense(Sense { code: 0x2000, .. })) => {
                self.ask(&scsi::synchronize_cache_16(), deadline)
            }
            other => other,
        };
        result
            .map(drop)
            .map_err(|fault| self.moving(&fault, Phase::Flush, "flush the cache"))
    }
}

/// Runs a command again while the target reports an event (a unit attention) in its place.
pub fn attentive<T>(
    mut run: impl FnMut() -> std::result::Result<T, Fault>,
) -> std::result::Result<T, Fault> {
    let mut attentions = 0;
    loop {
        match run() {
            Err(Fault::Sense(sense)) if sense.unit_attention() && attentions < ATTENTIONS_MAX => {
                attentions += 1;
            }
            other => return other,
        }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // Said or not, the session ends here; a target that hears it frees its side at once.
        self.context
            .logout(monotonic_ns().saturating_add(LOGOUT_NS));
    }
}
