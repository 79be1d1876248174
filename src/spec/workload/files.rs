//! Phases on small files: how many, how large, and which keys mean nothing to them.
//!
//! Pure. Sizes are bytes.

use serde::{Deserialize, Serialize};

use crate::op::{Durability, FileOp};
use crate::spec::workload::{Distribution, Phase, PhaseFile, Rw};
use crate::units::{Bytes, Nanos, SECOND};

/// The words of `rw` that mean small files, for messages.
pub(super) const FILE_WORDS: &str = "create, open, stat, list, rename, remove";
/// Most files: what eight digits can number with room to spare, and more than any directory bears well.
const COUNT_MAX: u32 = 10_000_000;
/// Largest file: each lane holds one in memory.
const SIZE_MAX: u64 = 256 << 20;
/// As many as show a steady figure within seconds on a slow server.
const COUNT_DEFAULT: u32 = 1000;
/// A small picture, an office document.
const SIZE_DEFAULT: Bytes = Bytes(100 << 10);

/// Small files, all alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// How many, over all lanes.
    pub nrfiles: u32,
    /// Bytes in each.
    pub filesize: Bytes,
}

impl Files {
    /// Bytes in all of them.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.filesize.0.saturating_mul(self.nrfiles as u64)
    }

    /// Bytes that they take on a medium of 4 KiB blocks, for the check of free space.
    #[must_use]
    pub const fn room(self) -> u64 {
        const BLOCK: u64 = 4096;
        // An empty file has a name and an inode at least.
        let blocks = self.filesize.0.div_ceil(BLOCK);
        let each = if blocks == 0 { 1 } else { blocks };
        (each * BLOCK).saturating_mul(self.nrfiles as u64)
    }
}

impl std::fmt::Display for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.filesize.0 == 0 {
            return write!(f, "{} empty files", self.nrfiles);
        }
        write!(f, "{} files of {}", self.nrfiles, self.filesize)
    }
}

impl PhaseFile {
    /// The complete phase on small files, or what is impossible about it.
    pub(super) fn resolve_files(self, rw: Rw, op: FileOp) -> Result<Phase, String> {
        self.refuse_block_keys()?;
        if self.durability.is_some() && (self.fsync.is_some() || self.end_fsync.is_some()) {
            return Err(
                "'durability', 'fsync' and 'end_fsync' mean the same for small files; give one"
                    .into(),
            );
        }
        let each = self.fsync.is_some_and(|writes| writes > 0);
        let wanted = self.durability.unwrap_or(if each {
            Durability::Sync
        } else {
            Durability::None
        });
        if matches!(wanted, Durability::Flush | Durability::Datasync)
            || self.end_fsync == Some(true)
            || self.fsync > Some(1)
        {
            return Err(
                "small files are made durable one by one (fsync = 1) or not at all (fsync = 0): they have no common flush"
                    .into(),
            );
        }
        let files = Files {
            nrfiles: self.nrfiles.unwrap_or(COUNT_DEFAULT),
            filesize: self.filesize.unwrap_or(SIZE_DEFAULT),
        };
        let ramp = self.runtime.is_some() && !op.finite();
        let phase = Phase {
            rw,
            rwmixread: 50,
            blocks: vec![(files.filesize, 100)],
            iodepth: 1,
            lanes: self.lane_count()?,
            size: Bytes(files.bytes()),
            runtime: self.runtime,
            bytes: None,
            ramp_time: self
                .ramp_time
                .unwrap_or(Nanos(if ramp { SECOND } else { 0 })),
            rate_iops: None,
            fsync: 0,
            // Only a file's content can be made durable; a flag for all phases of a workload means its creating ones.
            durability: if op == FileOp::Create {
                wanted
            } else {
                Durability::None
            },
            direct: false,
            random_distribution: Distribution::Uniform,
            payload: self.payload.unwrap_or_default(),
            compress_percent: self.compress_percent.unwrap_or(0),
            dedupe_percent: self.dedupe_percent.unwrap_or(0),
            verify: self.verify.unwrap_or(false),
            in_turns: false,
            files: Some(files),
            name: self.name.unwrap_or_default(),
        };
        phase.validate()?;
        Ok(phase)
    }

    /// Keys that mean something for blocks of one file only.
    fn refuse_block_keys(&self) -> Result<(), String> {
        let given = [
            ("bs", self.bs.is_some()),
            ("bssplit", self.bssplit.is_some()),
            ("size", self.size.is_some()),
            ("bytes", self.bytes.is_some()),
            ("rwmixread", self.rwmixread.is_some()),
            ("rate_iops", self.rate_iops.is_some()),
            ("random_distribution", self.random_distribution.is_some()),
            ("iodepth", self.iodepth.is_some_and(|depth| depth != 1)),
            ("direct", self.direct == Some(true)),
        ];
        match given.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((key, _)) => Err(format!(
                "'{key}' is for blocks of one file; small files ({FILE_WORDS}) have nrfiles, filesize, lanes, runtime and fsync"
            )),
        }
    }
}

impl Phase {
    /// What is impossible about a phase on small files.
    pub(super) fn validate_files(&self, op: FileOp, files: Files) -> Result<(), String> {
        let check = |ok: bool, message: String| if ok { Ok(()) } else { Err(message) };
        check(
            (1..=COUNT_MAX).contains(&files.nrfiles),
            format!("nrfiles {} is not between 1 and {COUNT_MAX}", files.nrfiles),
        )?;
        check(
            files.filesize.0 <= SIZE_MAX,
            format!(
                "filesize {} is larger than {}: for large files use rw = read or write with 'size'",
                files.filesize,
                Bytes(SIZE_MAX)
            ),
        )?;
        check(
            u32::from(self.lanes) <= files.nrfiles,
            format!(
                "{} files are too few for {} lanes",
                files.nrfiles, self.lanes
            ),
        )?;
        check(
            self.iodepth == 1,
            format!(
                "iodepth {}: small files have one operation under way on each lane; give more lanes",
                self.iodepth
            ),
        )?;
        check(
            self.size.0 == files.bytes() && self.blocks == [(files.filesize, 100)],
            "size and blocks of a phase on small files are those of its files".into(),
        )?;
        check(
            self.durability == Durability::None
                || (self.durability == Durability::Sync && op == FileOp::Create),
            format!(
                "durability {} has no meaning for {}",
                self.durability.key(),
                op.key()
            ),
        )?;
        check(
            self.ramp_time.0 == 0 || !op.finite(),
            format!(
                "ramp_time has no meaning for {}: every file counts, and each is there once",
                op.key()
            ),
        )
    }

    /// Whether all of its files are there, under one kind of name, once it has ended.
    #[must_use]
    pub fn leaves_all_files(&self) -> bool {
        match self.rw.file_op() {
            Some(FileOp::Open | FileOp::Stat | FileOp::List) => true,
            // Time may end these before the last file.
            Some(FileOp::Create | FileOp::Rename) => self.runtime.is_none(),
            Some(FileOp::Remove) | None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(keys: &str) -> Result<Phase, String> {
        toml::from_str::<PhaseFile>(keys)
            .map_err(|error| error.to_string())?
            .resolve("w")
            .map_err(|error| error.to_string())
    }

    #[test]
    fn files_have_counts_and_sizes_of_their_own() {
        let phase =
            resolve("rw='create'\nnrfiles=10\nfilesize='100k'\nlanes=4\nfsync=1").expect("a phase");
        assert_eq!(phase.size, Bytes(10 * 102_400));
        assert_eq!(
            (phase.durability, phase.lanes, phase.iodepth),
            (Durability::Sync, 4, 1)
        );
        let asking = resolve("rw='stat'\nfsync=1\nruntime=3").expect("fsync of a whole workload");
        assert_eq!(asking.durability, Durability::None);
        assert_eq!(asking.ramp_time, Nanos(SECOND));
        assert_eq!(
            asking.files,
            Some(Files {
                nrfiles: COUNT_DEFAULT,
                filesize: SIZE_DEFAULT
            })
        );
        let boxed = resolve("rw='create'\nruntime=3").expect("a phase");
        assert_eq!(boxed.ramp_time, Nanos(0), "every file counts");
        assert!(!boxed.leaves_all_files() && asking.leaves_all_files());
    }

    #[test]
    fn an_empty_file_takes_room_too() {
        let files = |filesize| Files {
            nrfiles: 3,
            filesize: Bytes(filesize),
        };
        assert_eq!(files(0).room(), 3 * 4096);
        assert_eq!(files(4097).room(), 3 * 8192);
        assert_eq!(files(0).to_string(), "3 empty files");
        assert_eq!(files(102_400).to_string(), "3 files of 100 KiB");
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_a_sentence() {
        for (keys, word) in [
            ("rw='create'\nbs='4k'", "'bs' is for blocks"),
            ("rw='open'\nsize='1G'", "'size' is for blocks"),
            ("rw='stat'\nbytes='1G'", "'bytes' is for blocks"),
            ("rw='list'\niodepth=4", "'iodepth' is for blocks"),
            ("rw='open'\ndirect=true", "'direct' is for blocks"),
            ("rw='create'\nrate_iops=5", "'rate_iops' is for blocks"),
            ("rw='create'\nfsync=2", "one by one"),
            ("rw='create'\nend_fsync=true", "one by one"),
            ("rw='create'\ndurability='flush'", "one by one"),
            ("rw='create'\ndurability='datasync'", "one by one"),
            ("rw='create'\ndurability='sync'\nfsync=0", "give one"),
            ("rw='create'\nruntime=5\nramp_time=1", "every file counts"),
            ("rw='list'\nramp_time=1", "ramp_time needs a runtime"),
            ("rw='create'\nnrfiles=0", "nrfiles 0"),
            ("rw='create'\nnrfiles=10000001", "nrfiles 10000001"),
            ("rw='create'\nfilesize='1G'", "larger than"),
            ("rw='create'\nnrfiles=3\nlanes=4", "too few for 4 lanes"),
            ("rw='read'\nnrfiles=3", "'nrfiles' is for small files"),
            ("rw='write'\nfilesize='1k'", "'filesize' is for small files"),
        ] {
            let error = resolve(keys).expect_err(keys);
            assert!(error.contains(word), "{keys}\n{error}");
        }
    }
}
