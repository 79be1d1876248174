//! What a phase can't be, in words.

use crate::payload::SECTOR;
use crate::spec::workload::Phase;
use crate::units::{Bytes, Nanos};

/// Largest block: bounded so that a slot stays reasonable.
const BLOCK_LIMIT: u64 = 256 << 20;
/// Most operations under way in one phase.
const INFLIGHT_LIMIT: u32 = 65_536;

impl Phase {
    /// What is impossible, in words; Ok when nothing is.
    pub fn validate(&self) -> std::result::Result<(), String> {
        match (self.rw.file_op(), self.files) {
            (Some(op), Some(files)) => self.validate_files(op, files)?,
            (None, None) => self.validate_blocks()?,
            _ => {
                return Err(format!(
                    "rw {} and 'files' don't go together",
                    self.rw.key()
                ));
            }
        }
        self.validate_all()
    }

    /// What is impossible about block sizes.
    fn validate_blocks(&self) -> std::result::Result<(), String> {
        let check = |ok: bool, message: String| if ok { Ok(()) } else { Err(message) };
        check(!self.blocks.is_empty(), "no block size".into())?;
        let shares: u32 = self.blocks.iter().map(|(_, share)| u32::from(*share)).sum();
        check(
            shares == 100,
            format!("the shares of the block sizes add up to {shares} %"),
        )?;
        for (size, _) in &self.blocks {
            check(size.0 > 0, "a block size of 0".into())?;
            check(
                size.0 <= BLOCK_LIMIT,
                format!("a block of {size} is larger than {}", Bytes(BLOCK_LIMIT)),
            )?;
            check(
                size.0 <= self.size.0,
                format!("size {} is smaller than one block of {size}", self.size),
            )?;
        }
        if self.blocks.len() > 1 {
            let max = u64::from(self.block_max());
            let odd = self.blocks.iter().find(|(size, _)| max % size.0 != 0);
            if let Some((size, _)) = odd {
                return Err(format!(
                    "bssplit needs sizes that divide the largest, and {size} does not divide {}",
                    Bytes(max)
                ));
            }
        }
        let blocks = self.size.0 / u64::from(self.block_max());
        check(
            blocks >= u64::from(self.lanes),
            format!(
                "size {} holds {blocks} blocks of {}, too few for {} lanes",
                self.size,
                Bytes(u64::from(self.block_max())),
                self.lanes
            ),
        )
    }

    /// What is impossible whatever it works on.
    fn validate_all(&self) -> std::result::Result<(), String> {
        let check = |ok: bool, message: String| if ok { Ok(()) } else { Err(message) };
        check(
            (1..=4096).contains(&self.iodepth),
            format!("iodepth {} is not between 1 and 4096", self.iodepth),
        )?;
        check(
            (1..=1024).contains(&self.lanes),
            format!("lanes {} is not between 1 and 1024", self.lanes),
        )?;
        let inflight = u32::from(self.lanes) * u32::from(self.iodepth);
        check(
            inflight <= INFLIGHT_LIMIT,
            format!(
                "lanes x iodepth is {inflight}; at most {INFLIGHT_LIMIT} operations can be under way"
            ),
        )?;
        check(
            self.rwmixread <= 100,
            format!("rwmixread {} is over 100 %", self.rwmixread),
        )?;
        check(
            self.compress_percent < 100,
            format!(
                "compress_percent {} is not below 100",
                self.compress_percent
            ),
        )?;
        check(
            self.dedupe_percent <= 100,
            format!("dedupe_percent {} is over 100", self.dedupe_percent),
        )?;
        check(
            self.rate_iops != Some(0),
            "rate_iops of 0 would never start".into(),
        )?;
        check(self.runtime != Some(Nanos(0)), "a runtime of 0".into())?;
        check(self.bytes != Some(Bytes(0)), "bytes of 0".into())?;
        check(
            self.runtime.is_some() || self.ramp_time.0 == 0,
            "ramp_time needs a runtime: a run bounded by bytes counts all of them".into(),
        )
    }

    /// Whether some operation may begin or end inside of a 512-byte sector that goes on: such a sector holds two
    /// generations once rewritten, and a part of it can't say which is its own.
    #[must_use]
    pub fn splits_sectors(&self) -> bool {
        let lengths = self.blocks.iter().map(|(size, _)| size).chain(&self.bytes);
        lengths
            .into_iter()
            .any(|length| length.0 % SECTOR as u64 != 0)
    }
}
