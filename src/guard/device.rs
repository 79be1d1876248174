//! Devices and LUNs: written only when blank or ours, never when anything needs them.
//!
//! Layout: a manifest in the first 4 KiB, nothing up to [`DATA_BASE`], then test data. The manifest is written before
//! any data and zeroed after all of it, so that a crash at any point leaves a device that is recognised as ours.

use crate::error::{Error, Phase, Result};
use crate::guard::{Claim, Leftover, Manifest, Object, same_kind};
use crate::payload::{Payload, mix};
use crate::target::{Device, Identity};
use crate::units::Bytes;

/// First byte of test data.
pub const DATA_BASE: u64 = 64 << 10;
const HEADER: usize = 4096;
const EDGE: u64 = 1 << 20;
const SAMPLES: u64 = 64;

/// What a run has on a device.
pub(super) struct Extent {
    identity: Identity,
    /// None when the device is only read.
    manifest: Option<Manifest>,
    /// The manifest of an earlier run that was found; None on a blank device.
    old: Option<Manifest>,
    /// Whatever is there may be destroyed: the user named the serial.
    destroyed: bool,
    entered: bool,
    /// Bytes from [`DATA_BASE`] that may hold test data.
    pub(super) high_water: u64,
}

/// Decides whether the device may be used; nothing is written.
pub(super) fn examine(
    device: &mut dyn Device,
    claim: &Claim,
    notes: &mut Vec<String>,
) -> Result<(Extent, Object)> {
    let identity = device.identity()?;
    let read_only = claim.read_existing.is_some();
    if read_only && claim.writes {
        return Err(Error::safety(
            "the device will only be read; the workload writes",
        ));
    }
    let base = if read_only { 0 } else { DATA_BASE };
    if identity.capacity < claim.size.saturating_add(base) {
        return Err(Error::usage(format!(
            "the medium holds {}, too little for a size of {}; give a smaller --size",
            Bytes(identity.capacity),
            Bytes(claim.size)
        )));
    }
    if read_only {
        notes.push("reading what is on the device; nothing is written".into());
        let object = Object {
            name: String::new(),
            base,
            content: claim.content.clone(),
            laid: true,
            foreign: true,
        };
        return Ok((
            Extent {
                identity,
                manifest: None,
                old: None,
                destroyed: false,
                entered: false,
                high_water: 0,
            },
            object,
        ));
    }
    if identity.write_protected {
        return Err(Error::safety(
            "the device is write-protected; '--read-existing device' only reads it",
        ));
    }
    refuse_holders(device)?;
    let old = header(device, &identity)?;
    let destroyed = match &claim.destroy {
        None => false,
        Some(serial) if !serial.is_empty() && *serial == identity.serial => true,
        Some(serial) => {
            return Err(Error::safety(format!(
                "--destroy names serial '{serial}', but this device's is '{}'; nothing is written",
                identity.serial
            )));
        }
    };
    if destroyed {
        notes.push(format!(
            "the content of the device with serial {} will be destroyed, as asked",
            identity.serial
        ));
    } else {
        refuse_content(device, &identity, old.as_ref(), claim.size)?;
    }
    // With the old key, what an interrupted run left stays recognisable as ours.
    let mut content = claim.content.clone();
    let mut high_water = 0;
    if let Some(old) = old.as_ref().filter(|_| !destroyed) {
        if !same_kind(&old.content, &content) {
            return Err(Error::usage(
                "an earlier run left test data with another payload on the device; 'nasgauge clean URI' zeroes it",
            ));
        }
        content.key = old.content.key;
        high_water = old.size;
    }
    let manifest = Manifest::of(claim, &content, claim.size.max(high_water));
    let object = Object {
        name: String::new(),
        base,
        content,
        laid: false,
        foreign: false,
    };
    Ok((
        Extent {
            identity,
            manifest: Some(manifest),
            old,
            destroyed,
            entered: false,
            high_water,
        },
        object,
    ))
}

fn refuse_holders(device: &mut dyn Device) -> Result<()> {
    match device.holders()?.into_iter().next() {
        None => Ok(()),
        Some(holder) => Err(Error::safety(format!(
            "the device is in use: {holder}; nothing is written to it"
        ))),
    }
}

fn header(device: &mut dyn Device, identity: &Identity) -> Result<Option<Manifest>> {
    let mut block = vec![0; block_multiple(HEADER as u64, identity) as usize];
    device.read(0, &mut block)?;
    Ok(Manifest::read(&block))
}

/// `bytes` rounded up to whole logical blocks.
fn block_multiple(bytes: u64, identity: &Identity) -> u64 {
    bytes.next_multiple_of(u64::from(identity.block.max(1)))
}

/// Refuses a device with any sampled block that is neither zero nor ours. `size` bytes of test data are to be written:
/// samples of the whole could all miss what lies just there on a large device.
fn refuse_content(
    device: &mut dyn Device,
    identity: &Identity,
    manifest: Option<&Manifest>,
    size: u64,
) -> Result<()> {
    // The edges count in logical blocks: the last one holds the copy of a GPT.
    let block = u64::from(identity.block.max(1));
    let whole = identity.capacity / block * block;
    let edge = block_multiple(EDGE, identity).min(whole);
    let unit = block_multiple(4096, identity);
    let seed = mix(identity.capacity ^ crate::clock::monotonic_ns());
    let units = whole / unit;
    let mut places: Vec<(u64, u64)> = vec![(0, edge), (whole - edge, edge)];
    let touched = (DATA_BASE.saturating_add(size) / unit).min(units);
    for (salt, units) in [(0, units), (SAMPLES, touched)] {
        let samples = (salt..salt + SAMPLES).filter(|_| units > 0);
        places.extend(samples.map(|sample| (mix(seed ^ sample) % units * unit, unit)));
    }
    let payload = manifest.map(|manifest| Payload::new(manifest.content.clone()));
    for (offset, len) in places {
        let mut block = vec![0; len as usize];
        device.read(offset, &mut block)?;
        if let Some(what) = signature(&block, offset) {
            return Err(occupied(identity, &format!("it holds {what}")));
        }
        let start = if offset == 0 && manifest.is_some() {
            let header = HEADER.min(block.len());
            // After the manifest itself, its block is ours only as far as it is empty.
            let text = block[..header].iter().take_while(|byte| **byte != 0);
            let end = text.count();
            if let Some(at) = block[end..header].iter().position(|byte| *byte != 0) {
                let why = format!("there is data at offset {}", end + at);
                return Err(occupied(identity, &why));
            }
            header
        } else {
            0
        };
        let sectors = block[start..].chunks(crate::payload::SECTOR).enumerate();
        for (index, sector) in sectors {
            let at = offset + (start + index * crate::payload::SECTOR) as u64;
            let zero = sector.iter().all(|byte| *byte == 0);
            let ours = || {
                payload
                    .as_ref()
                    .is_some_and(|ours| at >= DATA_BASE && ours.is_ours(sector, at - DATA_BASE))
            };
            if !zero && !ours() {
                return Err(occupied(identity, &format!("there is data at offset {at}")));
            }
        }
    }
    Ok(())
}

fn occupied(identity: &Identity, why: &str) -> Error {
    let way = if identity.serial.is_empty() {
        "the device tells no serial number, so it can't be named for destruction; zero it first if that is meant".into()
    } else {
        format!("to destroy its content, add --destroy {}", identity.serial)
    };
    Error::safety(format!(
        "this {} of {} is not blank: {why}; nothing was written; {way}",
        identity.model,
        Bytes(identity.capacity)
    ))
}

/// What a block at this offset shows to be on the device, by the signatures that blkid(8) looks for.
fn signature(block: &[u8], offset: u64) -> Option<&'static str> {
    const SIGNATURES: &[(u64, &[u8], &str)] = &[
        (512, b"EFI PART", "a GPT partition table"),
        (4096, b"EFI PART", "a GPT partition table"),
        (510, &[0x55, 0xaa], "a partition table or boot sector"),
        (1080, &[0x53, 0xef], "an ext2/3/4 filesystem"),
        (0, b"XFSB", "an XFS filesystem"),
        (65600, b"_BHRfS_M", "a btrfs filesystem"),
        (512, b"LABELONE", "an LVM physical volume"),
        (0, b"LABELONE", "an LVM physical volume"),
        (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a Linux RAID member"),
        (0, &[0xfc, 0x4e, 0x2b, 0xa9], "a Linux RAID member"),
        (0, b"LUKS\xba\xbe", "a LUKS volume"),
        (4086, b"SWAPSPACE2", "swap space"),
        (3, b"NTFS    ", "an NTFS filesystem"),
        (3, b"EXFAT   ", "an exFAT filesystem"),
        (1024, b"H+\0\x04", "an HFS+ filesystem"),
        (32, b"NXSB", "an APFS container"),
        (1024, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS filesystem"),
        (3, b"-FVE-FS-", "a BitLocker volume"),
    ];
    if offset != 0 {
        return None;
    }
    SIGNATURES.iter().find_map(|(at, magic, what)| {
        let at = *at as usize;
        (block.get(at..at + magic.len()) == Some(*magic)).then_some(*what)
    })
}

impl Extent {
    /// Bytes of ours at the device's first one, which nobody else's device has; None before they were written.
    pub(super) fn proof(&self) -> Result<Option<Vec<u8>>> {
        let manifest = self.manifest.as_ref().filter(|_| self.entered);
        manifest.map(Manifest::bytes).transpose()
    }

    /// Writes the manifest, after a last look that the device is still the one examined.
    pub(super) fn enter(
        &mut self,
        device: &mut dyn Device,
        _claim: &Claim,
        _object: &Object,
    ) -> Result<()> {
        let Some(manifest) = &self.manifest else {
            return Ok(());
        };
        let now = device.identity()?;
        if now != self.identity {
            return Err(Error::safety(
                "the device changed between inspection and writing; nothing was written",
            ));
        }
        refuse_holders(device)?;
        if !self.destroyed {
            refuse_content(device, &self.identity, self.old.as_ref(), manifest.size)?;
        }
        let mut block = manifest.bytes()?;
        if block.len() > HEADER {
            return Err(Error::safety("the manifest is too long for its block"));
        }
        block.resize(block_multiple(HEADER as u64, &self.identity) as usize, 0);
        self.entered = true;
        device.write(0, &block)?;
        device.flush()
    }

    /// Zeroes the test data, then the manifest.
    pub(super) fn leave(
        &mut self,
        device: &mut dyn Device,
        claim: &Claim,
    ) -> Result<Option<String>> {
        if !self.entered {
            return Ok(None);
        }
        if claim.keep {
            let size = Bytes(self.high_water);
            return Ok(Some(format!(
                "{size} of test data stay on the device; 'nasgauge clean URI' zeroes them"
            )));
        }
        if device.identity()? != self.identity {
            return Err(stuck(&Error::safety(
                "the device is not the one that was written to",
            )));
        }
        zero(device, &self.identity, self.high_water).map_err(|error| stuck(&error))?;
        self.entered = false;
        Ok(None)
    }
}

fn stuck(error: &Error) -> Error {
    let message = format!(
        "{}; test data stay on the device, and 'nasgauge clean URI' zeroes them later",
        error.message
    );
    Error::new(Phase::Cleanup, error.kind, message)
}

fn zero(device: &mut dyn Device, identity: &Identity, high_water: u64) -> Result<()> {
    let step = block_multiple(EDGE, identity);
    let zeros = vec![0; step as usize];
    // A manifest may claim any size.
    let end = DATA_BASE.saturating_add(high_water).min(identity.capacity);
    let end = block_multiple(end, identity).min(identity.capacity);
    let mut offset = DATA_BASE;
    while offset < end {
        let len = step.min(end - offset);
        if let Err(error) = device.write(offset, &zeros[..len as usize]) {
            if error.server_lost() {
                return Err(error);
            }
            zero_piecewise(device, identity, offset, len)?;
        }
        offset += len;
    }
    device.flush()?;
    device.write(
        0,
        &zeros[..block_multiple(HEADER as u64, identity) as usize],
    )?;
    device.flush()
}

/// Zeroes block by block what could not be zeroed at once, leaving out what is zero: a thin device without space left
/// refuses to write where nothing was ever written.
fn zero_piecewise(
    device: &mut dyn Device,
    identity: &Identity,
    offset: u64,
    len: u64,
) -> Result<()> {
    let step = block_multiple(HEADER as u64, identity);
    let mut block = vec![0; step as usize];
    let mut at = offset;
    while at < offset + len {
        let piece = &mut block[..step.min(offset + len - at) as usize];
        device.read(at, piece)?;
        if piece.iter().any(|byte| *byte != 0) {
            piece.fill(0);
            device.write(at, piece)?;
        }
        at += step;
    }
    Ok(())
}

/// Our manifest on the device, if there is one.
pub(super) fn leftovers(device: &mut dyn Device) -> Result<Vec<Leftover>> {
    let identity = device.identity()?;
    Ok(header(device, &identity)?
        .map(|manifest| Leftover {
            name: "device".into(),
            manifest,
        })
        .into_iter()
        .collect())
}

/// Zeroes what a manifest of ours covers, after the same examination as before a run.
pub(super) fn clean(device: &mut dyn Device, manifest: &Manifest) -> Result<()> {
    let identity = device.identity()?;
    refuse_holders(device)?;
    if header(device, &identity)?.as_ref() != Some(manifest) {
        return Err(Error::safety(
            "the device changed since its test data was found; nothing was written",
        ));
    }
    refuse_content(device, &identity, Some(manifest), manifest.size)?;
    zero(device, &identity, manifest.size)
}

#[cfg(test)]
mod tests;
