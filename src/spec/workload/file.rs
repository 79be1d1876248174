//! Workload files and flags: every key optional, read into complete phases or refused with line, key and reason.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::op::Durability;
use crate::payload::Fill;
use crate::spec::repeats::Repeats;
use crate::spec::workload::files::FILE_WORDS;
use crate::spec::workload::{Distribution, Phase, Rw, Workload};
use crate::units::{Bytes, Nanos, SECOND};

/// A phase as written in a file or in flags: every key optional.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseFile {
    /// Name within the workload.
    pub name: Option<String>,
    /// read, write, randread, randwrite, rw or randrw; or create, open, stat, list, rename, remove for small files.
    pub rw: Option<Rw>,
    /// Share of reads in percent.
    pub rwmixread: Option<u8>,
    /// Block size.
    pub bs: Option<Bytes>,
    /// Block sizes with shares, as fio writes them: `4k/70:64k/30`.
    pub bssplit: Option<String>,
    /// Operations under way on each lane.
    pub iodepth: Option<u16>,
    /// Parallel workers.
    pub lanes: Option<u16>,
    /// The same, in fio's word.
    pub numjobs: Option<u16>,
    /// Bytes of the file that are used.
    pub size: Option<Bytes>,
    /// Time to measure.
    pub runtime: Option<Nanos>,
    /// Bytes to move.
    pub bytes: Option<Bytes>,
    /// Time before measuring starts.
    pub ramp_time: Option<Nanos>,
    /// Operations per second.
    pub rate_iops: Option<u32>,
    /// Flush after this many writes.
    pub fsync: Option<u32>,
    /// Flush at the end.
    pub end_fsync: Option<bool>,
    /// none, flush or sync.
    pub durability: Option<Durability>,
    /// Bypass the page cache.
    pub direct: Option<bool>,
    /// uniform, zipf:1.1 or pareto:0.2.
    pub random_distribution: Option<String>,
    /// incompressible or zero.
    pub payload: Option<Fill>,
    /// Share that compresses away.
    pub compress_percent: Option<u8>,
    /// Share that deduplicates.
    pub dedupe_percent: Option<u8>,
    /// Check each byte read.
    pub verify: Option<bool>,
    /// How many small files.
    pub nrfiles: Option<u32>,
    /// Bytes in each small file.
    pub filesize: Option<Bytes>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadFile {
    description: String,
    repeats: Option<Repeats>,
    #[serde(default)]
    defaults: PhaseFile,
    #[serde(default)]
    phase: Vec<toml::Spanned<PhaseFile>>,
}

impl PhaseFile {
    /// These keys, and those of `fallback` where this has none.
    #[must_use]
    pub fn or(self, fallback: &Self) -> Self {
        let fallback = fallback.clone();
        // A block size set here replaces a split set there, and so for each pair of rivals.
        let own_block = self.bs.is_some() || self.bssplit.is_some();
        let own_end = self.runtime.is_some() || self.bytes.is_some();
        let own_lanes = self.lanes.is_some() || self.numjobs.is_some();
        let own_durability = self.durability.is_some() || self.end_fsync.is_some();
        Self {
            name: self.name.or(fallback.name),
            rw: self.rw.or(fallback.rw),
            rwmixread: self.rwmixread.or(fallback.rwmixread),
            bs: if own_block { self.bs } else { fallback.bs },
            bssplit: if own_block {
                self.bssplit
            } else {
                fallback.bssplit
            },
            iodepth: self.iodepth.or(fallback.iodepth),
            lanes: if own_lanes {
                self.lanes
            } else {
                fallback.lanes
            },
            numjobs: if own_lanes {
                self.numjobs
            } else {
                fallback.numjobs
            },
            size: self.size.or(fallback.size),
            runtime: if own_end {
                self.runtime
            } else {
                fallback.runtime
            },
            bytes: if own_end { self.bytes } else { fallback.bytes },
            ramp_time: self.ramp_time.or(fallback.ramp_time),
            rate_iops: self.rate_iops.or(fallback.rate_iops),
            fsync: self.fsync.or(fallback.fsync),
            end_fsync: if own_durability {
                self.end_fsync
            } else {
                fallback.end_fsync
            },
            durability: if own_durability {
                self.durability
            } else {
                fallback.durability
            },
            direct: self.direct.or(fallback.direct),
            random_distribution: self.random_distribution.or(fallback.random_distribution),
            payload: self.payload.or(fallback.payload),
            compress_percent: self.compress_percent.or(fallback.compress_percent),
            dedupe_percent: self.dedupe_percent.or(fallback.dedupe_percent),
            verify: self.verify.or(fallback.verify),
            nrfiles: self.nrfiles.or(fallback.nrfiles),
            filesize: self.filesize.or(fallback.filesize),
        }
    }

    /// The complete phase, or what is impossible about it.
    pub fn resolve(self, place: &str) -> Result<Phase> {
        let wrong = |message: String| Error::usage(format!("{place}: {message}"));
        let rw = self.rw.ok_or_else(|| {
            wrong(format!(
                "key 'rw' is missing; one of read, write, randread, randwrite, rw, randrw, or {FILE_WORDS} for small files"
            ))
        })?;
        if let Some(op) = rw.file_op() {
            return self.resolve_files(rw, op).map_err(wrong);
        }
        if let Some((key, _)) = [
            ("nrfiles", self.nrfiles.is_some()),
            ("filesize", self.filesize.is_some()),
        ]
        .iter()
        .find(|(_, given)| *given)
        {
            return Err(wrong(format!(
                "'{key}' is for small files (rw = {FILE_WORDS}); this phase works on blocks of one file, see 'size'"
            )));
        }
        let blocks = self.block_sizes(rw).map_err(wrong)?;
        let distribution = self
            .random_distribution
            .as_deref()
            .map_or(Ok(Distribution::Uniform), str::parse);
        let random_distribution = distribution.map_err(wrong)?;
        let lanes = self.lane_count().map_err(wrong)?;
        let durability = match (self.durability, self.end_fsync) {
            (Some(_), Some(_)) => {
                return Err(wrong(
                    "'durability' and 'end_fsync' mean the same; give one".into(),
                ));
            }
            (Some(durability), None) => durability,
            (None, Some(false)) => Durability::None,
            (None, Some(true) | None) => Durability::Flush,
        };
        let timed = self.runtime.is_some();
        let phase = Phase {
            name: self.name.unwrap_or_default(),
            rw,
            rwmixread: self.rwmixread.unwrap_or(50),
            blocks,
            iodepth: self.iodepth.unwrap_or(1),
            lanes,
            size: self.size.unwrap_or(Bytes(1 << 30)),
            runtime: self.runtime,
            bytes: self.bytes,
            ramp_time: self
                .ramp_time
                .unwrap_or(Nanos(if timed { SECOND } else { 0 })),
            rate_iops: self.rate_iops,
            fsync: self.fsync.unwrap_or(0),
            durability,
            direct: self.direct.unwrap_or(false),
            random_distribution,
            payload: self.payload.unwrap_or_default(),
            compress_percent: self.compress_percent.unwrap_or(0),
            dedupe_percent: self.dedupe_percent.unwrap_or(0),
            verify: self.verify.unwrap_or(false),
            in_turns: false,
            files: None,
        };
        phase.validate().map_err(wrong)?;
        Ok(phase)
    }

    /// Workers, by either of their names.
    pub(super) fn lane_count(&self) -> std::result::Result<u16, String> {
        match (self.lanes, self.numjobs) {
            (Some(_), Some(_)) => Err("'lanes' and 'numjobs' mean the same; give one".into()),
            (lanes, numjobs) => Ok(lanes.or(numjobs).unwrap_or(1)),
        }
    }

    fn block_sizes(&self, rw: Rw) -> std::result::Result<Vec<(Bytes, u8)>, String> {
        match (&self.bs, &self.bssplit) {
            (Some(_), Some(_)) => Err("'bs' and 'bssplit' exclude each other; give one".into()),
            (Some(bs), None) => Ok(vec![(*bs, 100)]),
            (None, Some(split)) => read_split(split),
            (None, None) => Ok(vec![(
                Bytes(if rw.random() { 4 << 10 } else { 1 << 20 }),
                100,
            )]),
        }
    }
}

/// `4k/70:64k/30`; a share left out gets an equal part of what is left.
fn read_split(text: &str) -> std::result::Result<Vec<(Bytes, u8)>, String> {
    let wrong = || format!("bssplit '{text}' is not like 4k/70:64k/30");
    let mut shares = Vec::new();
    for part in text.split(':') {
        let (size, share) = part.split_once('/').unwrap_or((part, ""));
        let size = size.parse::<Bytes>().map_err(|error| error.to_string())?;
        let share = if share.is_empty() {
            None
        } else {
            Some(share.parse::<u8>().map_err(|_| wrong())?)
        };
        shares.push((size, share));
    }
    let given: u32 = shares
        .iter()
        .filter_map(|(_, share)| share.map(u32::from))
        .sum();
    let open = shares.iter().filter(|(_, share)| share.is_none()).count() as u32;
    let left = 100u32
        .checked_sub(given)
        .ok_or_else(|| format!("the shares of bssplit '{text}' exceed 100 %"))?;
    if (open == 0 && left != 0) || (open > 0 && left % open != 0) {
        return Err(format!(
            "the shares of bssplit '{text}' do not add up to 100 %"
        ));
    }
    let each = left.checked_div(open).unwrap_or(0) as u8;
    Ok(shares
        .into_iter()
        .map(|(size, share)| (size, share.unwrap_or(each)))
        .collect())
}

impl Workload {
    /// Reads a workload file. `place` names it in messages.
    pub fn parse(name: &str, text: &str, place: &str, overrides: &PhaseFile) -> Result<Self> {
        let file: WorkloadFile = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| line_of(text, span.start));
            let at = line.map_or_else(|| place.to_owned(), |line| format!("{place} line {line}"));
            Error::usage(format!(
                "{at}: {}",
                error.message().trim().replace('\n', " ")
            ))
        })?;
        if file.phase.is_empty() {
            return Err(Error::usage(format!("{place}: no [[phase]] in it")));
        }
        let repeats = file.repeats.unwrap_or(Repeats::ONCE);
        if repeats == Repeats::Fixed(0) {
            return Err(Error::usage(format!("{place}: repeats of 0")));
        }
        let several = file.phase.len() > 1;
        let mut phases = Vec::new();
        for (index, phase) in file.phase.into_iter().enumerate() {
            let line = line_of(text, phase.span().start);
            let phase = phase.into_inner();
            let named = phase.name.clone();
            let here = named
                .clone()
                .unwrap_or_else(|| format!("phase {}", index + 1));
            let mut phase = overrides.clone().or(&phase).or(&file.defaults);
            phase.name = Some(if several {
                here.clone()
            } else {
                named.unwrap_or_default()
            });
            let place = format!("{place} line {line}");
            phases.push(phase.resolve(&if several {
                format!("{place}, {here}")
            } else {
                place
            })?);
        }
        let mut names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
        names.sort_unstable();
        if let Some([twice, _]) = names
            .array_windows()
            .find(|[first, second]| first == second)
        {
            return Err(Error::usage(format!(
                "{place}: two phases are named '{twice}'"
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            description: file.description,
            repeats,
            phases,
        })
    }
}

/// The line, from 1, of a byte of a text.
fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()
        .iter()
        .take(at)
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Workload> {
        Workload::parse("w", text, "w.toml", &PhaseFile::default())
    }

    #[test]
    fn defaults_and_overrides_fill_what_a_phase_leaves_out() {
        let text = "description='x'\n[defaults]\nbs='8k'\nruntime=5\n[[phase]]\nname='a'\nrw='read'\n[[phase]]\nname='b'\nrw='randwrite'\nbs='4k'\nbytes='1M'";
        let workload = parse(text).expect("a workload");
        assert_eq!(workload.phases[0].blocks, [(Bytes(8192), 100)]);
        assert_eq!(workload.phases[0].ramp_time, Nanos(SECOND));
        assert_eq!(workload.phases[1].blocks, [(Bytes(4096), 100)]);
        assert_eq!(
            workload.phases[1].runtime, None,
            "its own end replaces the default's"
        );
        let overrides = PhaseFile {
            bssplit: Some("4k/50:8k".into()),
            ..PhaseFile::default()
        };
        let workload = Workload::parse("w", text, "w.toml", &overrides).expect("a workload");
        assert_eq!(
            workload.phases[1].blocks,
            [(Bytes(4096), 50), (Bytes(8192), 50)]
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let phase = |keys: &str| format!("description='x'\n[[phase]]\n{keys}");
        let cases = [
            (phase("rw='read'\nblocksize='4k'"), "line 4", "blocksize"),
            (phase("rw='reed'"), "line 3", "reed"),
            (phase("bs='4k'"), "w.toml", "'rw' is missing"),
            (phase("rw='read'\nbs='4q'"), "line 4", "unknown unit"),
            (
                phase("rw='read'\nbs='4k'\nbssplit='4k/100'"),
                "w.toml",
                "exclude",
            ),
            (phase("rw='read'\nbssplit='4k/60:8k/60'"), "w.toml", "100 %"),
            (
                phase("rw='read'\nbs='4k'\nsize='3k'"),
                "w.toml",
                "smaller than one block",
            ),
            (phase("rw='read'\niodepth=0"), "w.toml line 2", "iodepth"),
            (phase("rw='read'\nlanes=4\nnumjobs=4"), "w.toml", "same"),
            (
                phase("rw='read'\nbs='1M'\nsize='2M'\nlanes=3"),
                "w.toml",
                "too few",
            ),
            (
                phase("rw='read'\nramp_time=5\nbytes='1M'"),
                "w.toml",
                "ramp_time",
            ),
            (
                phase("rw='randread'\nrandom_distribution='normal'"),
                "w.toml",
                "zipf",
            ),
            (
                phase("rw='read'\nsize='20000000TiB'"),
                "line 4",
                "larger than any",
            ),
            ("description='x'".to_owned(), "w.toml", "no [[phase]]"),
            ("nonsense".to_owned(), "line 1", ""),
        ];
        for (text, place, word) in cases {
            let error = parse(&text).expect_err(&text).to_string();
            assert!(
                error.contains(place) && error.contains(word),
                "{text}\n{error}"
            );
        }
    }

    #[test]
    fn an_unknown_key_lists_what_is_allowed() {
        let error = parse("description='x'\n[[phase]]\nrw='read'\nblock='4k'")
            .expect_err("unknown")
            .to_string();
        assert!(
            error.contains("`bs`") && error.contains("`iodepth`"),
            "{error}"
        );
    }
}

#[cfg(test)]
mod properties {
    use proptest::prelude::*;

    use super::*;

    const KEYS: &str = "rw|bs|bssplit|iodepth|lanes|numjobs|size|runtime|bytes|ramp_time|rate_iops|fsync|end_fsync|durability|direct|random_distribution|payload|compress_percent|dedupe_percent|verify|rwmixread|name|nrfiles|filesize|what";
    const VALUES: &str = r"-?[0-9]{1,20}|'[0-9]{0,20}[kMGT]?i?B?'|'(read|write|randread|rw|randrw)'|true|'[0-9]{0,3}k?/[0-9]{0,3}:[0-9]{0,3}k?(/[0-9]{0,4})?'|'(zipf|pareto|uniform):?-?[0-9.e]{0,6}'|'[0-9.]{0,6}(s|ms|h)?'|[0-9]{0,3}\.[0-9]{0,3}|\[\]|'(none|flush|sync|zero)'";

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>()) {
            let _ = Workload::parse("w", &text, "w.toml", &PhaseFile::default());
        }

        #[test]
        fn what_is_accepted_can_be_run(
            keys in proptest::collection::btree_map(KEYS, VALUES, 0..6), rw in "read|randwrite|randrw|create|list"
        ) {
            let mut text = String::from("description = 'x'\n[[phase]]\n");
            for (key, value) in keys.iter().filter(|(key, _)| *key != "rw") {
                text.push_str(&format!("{key} = {value}\n"));
            }
            text.push_str(&format!("rw = '{rw}'\n"));
            if let Ok(workload) = Workload::parse("w", &text, "w.toml", &PhaseFile::default()) {
                let phase = &workload.phases[0];
                prop_assert!(phase.iodepth > 0 && phase.lanes > 0);
                if phase.files.is_none() {
                    prop_assert!(phase.block_max() > 0);
                    let mut pattern = crate::pattern::Pattern::new(phase, phase.lanes - 1, phase.lanes, 1);
                    for _ in 0..20 {
                        let step = pattern.advance();
                        prop_assert!(step.len > 0 && step.offset + u64::from(step.len) <= phase.size.0, "{text}");
                    }
                }
                let saved = toml::to_string(&workload).expect("TOML");
                prop_assert_eq!(&toml::from_str::<Workload>(&saved).expect("the same"), &workload);
            }
        }
    }
}
