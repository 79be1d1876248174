//! The control side of a LUN: what `inspect` shows, and the few reads and writes of the guard.
//!
//! Must not know: libiscsi, queue depth, workloads.

use super::command::Payload;
use super::scsi::{self, Inquiry};
use super::unit::{Unit, attentive};
use crate::clock::monotonic_ns;
use crate::error::{Error, Kind, Phase, Result};
use crate::target::{Device, Facts, Identity};
use crate::units::Bytes;

impl Device for Unit {
    fn facts(&mut self) -> Result<Facts> {
        let Inquiry {
            vendor,
            product,
            revision,
            ..
        } = &self.inquiry;
        let capacity = self.capacity;
        let yes = |flag| if flag { "yes" } else { "no" }.to_owned();
        let mut lines = vec![
            ("target".into(), self.address.target.clone()),
            ("portal".into(), self.address.portal()),
            ("LUN".into(), self.address.lun.to_string()),
            ("device".into(), format!("{vendor} {product} {revision}")),
        ];
        let mut line = |label: &str, value: Option<String>| {
            if let Some(value) = value {
                lines.push((label.to_owned(), value));
            }
        };
        line("serial", self.serial.clone());
        line("capacity", Some(Bytes(capacity.bytes()).to_string()));
        line("logical block", Some(format!("{} bytes", capacity.block)));
        line(
            "physical block",
            capacity.physical.map(|bytes| format!("{bytes} bytes")),
        );
        line("thin provisioned", capacity.thin.map(yes));
        line("write protected", Some(yes(self.mode.write_protected)));
        line("volatile write cache", self.mode.write_cache.map(yes));
        line("single durable writes (FUA)", Some(yes(self.mode.fua)));
        line(
            "largest transfer",
            self.limit.map(|bytes| Bytes(u64::from(bytes)).to_string()),
        );
        let agreed = self.heard.words();
        line("negotiated", Some(agreed).filter(|words| !words.is_empty()));
        Ok(Facts {
            lines,
            free_bytes: None,
            free_files: None,
            server: Some(format!("{vendor} {product} {revision}")),
        })
    }

    fn identity(&mut self) -> Result<Identity> {
        Ok(Identity {
            serial: self.serial.clone().unwrap_or_default(),
            model: format!("{} {}", self.inquiry.vendor, self.inquiry.product)
                .trim()
                .to_owned(),
            capacity: self.capacity.bytes(),
            block: self.capacity.block,
            write_protected: self.mode.write_protected,
        })
    }

    fn holders(&mut self) -> Result<Vec<String>> {
        // libiscsi runs in this process: the kernel does not know the LUN through it.
        Ok(Vec::new())
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.blocks(offset, buffer.len() as u64)?;
        self.awake()?;
        let lun = self.address.wire_lun();
        let mut at = offset;
        for piece in buffer.chunks_mut(self.transfer_max as usize) {
            let (first, count) = self.blocks(at, piece.len() as u64)?;
            let doing = format!("read {} bytes at offset {at}", piece.len());
            let cdb = scsi::read_16(first, count as u32);
            let deadline = monotonic_ns().saturating_add(self.io_timeout_ns);
            let (_, moved) = attentive(|| {
                self.context
                    .command(lun, &cdb, Payload::Into(piece), deadline)
            })
            .map_err(|fault| self.moving(&fault, Phase::Io, &doing))?;
            self.whole(moved, piece.len(), &doing)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.blocks(offset, data.len() as u64)?;
        self.awake()?;
        let lun = self.address.wire_lun();
        let mut at = offset;
        for piece in data.chunks(self.transfer_max as usize) {
            let (first, count) = self.blocks(at, piece.len() as u64)?;
            let doing = format!("write {} bytes at offset {at}", piece.len());
            let cdb = scsi::write_16(first, count as u32, false);
            let deadline = monotonic_ns().saturating_add(self.io_timeout_ns);
            let (_, moved) = attentive(|| {
                self.context
                    .command(lun, &cdb, Payload::From(piece), deadline)
            })
            .map_err(|fault| self.moving(&fault, Phase::Io, &doing))?;
            self.whole(moved, piece.len(), &doing)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.awake()?;
        self.synchronize()
    }
}

impl Unit {
    fn whole(&self, moved: usize, wanted: usize, doing: &str) -> Result<()> {
        if moved == wanted {
            return Ok(());
        }
        Err(Error::new(
            Phase::Io,
            Kind::Protocol,
            format!(
                "could not {doing}: {} moved only {moved} bytes",
                self.place()
            ),
        ))
    }
}
