//! Workload files: TOML in fio's words, read into a complete [`Workload`] or refused with line, key and reason.
//!
//! Must not know: targets, the engine, where a file came from.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::op::Durability;
use crate::payload::{Content, Fill, SECTOR};
use crate::units::{Bytes, Nanos, SECOND};

/// A named list of phases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The stable name that stands in results.
    pub name: String,
    /// One line for `nasgauge workloads`.
    pub description: String,
    /// How often the whole workload runs, unless the command line says otherwise.
    pub repeats: u32,
    /// The phases in their order.
    pub phases: Vec<Phase>,
}

/// The access pattern, in fio's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// Sequential reads and writes, mixed.
    Rw,
    /// Random reads and writes, mixed.
    RandRw,
}

/// How random offsets spread over the file.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Distribution {
    /// Each block alike.
    #[default]
    Uniform,
    /// Zipf with this exponent: few blocks get most accesses.
    Zipf(f64),
    /// Self-similar with this share: `0.2` sends 80 % of accesses to 20 % of the blocks.
    Pareto(f64),
}

/// One measured phase, complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Name within the workload; empty when it is the only phase.
    pub name: String,
    /// The access pattern.
    pub rw: Rw,
    /// Share of reads in percent, for mixed patterns.
    pub rwmixread: u8,
    /// Block sizes in bytes, each with its share of operations in percent.
    pub blocks: Vec<(Bytes, u8)>,
    /// Operations kept under way on each lane.
    pub iodepth: u16,
    /// Parallel workers, fio's `numjobs`.
    pub lanes: u16,
    /// Bytes of the file that are used, over all lanes.
    pub size: Bytes,
    /// Ends after this time.
    pub runtime: Option<Nanos>,
    /// Ends after this many bytes over all lanes; without both, one pass over `size`.
    pub bytes: Option<Bytes>,
    /// Time before measuring starts.
    pub ramp_time: Nanos,
    /// Operations per second over all lanes; latency then counts from the intended start.
    pub rate_iops: Option<u32>,
    /// Flush after this many writes of a lane; 0 never.
    pub fsync: u32,
    /// When a write counts as written.
    pub durability: Durability,
    /// Bypass this computer's page cache.
    pub direct: bool,
    /// How random offsets spread.
    #[serde(with = "distribution_text")]
    pub random_distribution: Distribution,
    /// What kind of bytes.
    pub payload: Fill,
    /// Share of each sector that compresses away.
    pub compress_percent: u8,
    /// Share of 4 KiB blocks that deduplicate.
    pub dedupe_percent: u8,
    /// Check each byte read.
    pub verify: bool,
}

/// A phase as written in a file or in flags: every key optional.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseFile {
    /// Name within the workload.
    pub name: Option<String>,
    /// read, write, randread, randwrite, rw or randrw.
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
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadFile {
    description: String,
    repeats: Option<u32>,
    #[serde(default)]
    defaults: PhaseFile,
    #[serde(default)]
    phase: Vec<PhaseFile>,
}

impl Rw {
    /// Whether offsets jump.
    #[must_use]
    pub const fn random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw)
    }

    /// Whether anything is read.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Write | Self::RandWrite)
    }

    /// Whether anything is written.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }

    /// The CSV key, fio's word.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::Rw => "rw",
            Self::RandRw => "randrw",
        }
    }
}

impl std::fmt::Display for Distribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(theta) => write!(f, "zipf:{theta}"),
            Self::Pareto(share) => write!(f, "pareto:{share}"),
        }
    }
}

impl std::str::FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let number = |default: f64| {
            if value.is_empty() {
                Ok(default)
            } else {
                value.parse::<f64>()
            }
        };
        match name {
            "uniform" | "random" if value.is_empty() => Some(Self::Uniform),
            "zipf" => number(1.1).ok().filter(|theta| (0.01..=5.0).contains(theta)).map(Self::Zipf),
            "pareto" => number(0.2).ok().filter(|share| *share > 0.0 && *share < 1.0).map(Self::Pareto),
            _ => None,
        }
        .ok_or_else(|| {
            format!("random_distribution '{text}' is not uniform, zipf:THETA (0.01 to 5) or pareto:SHARE (between 0 and 1)")
        })
    }
}

mod distribution_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(
        value: &super::Distribution,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<super::Distribution, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl Phase {
    /// The largest block in bytes.
    #[must_use]
    pub fn block_max(&self) -> u32 {
        self.blocks
            .iter()
            .map(|(size, _)| size.0)
            .max()
            .unwrap_or(0) as u32
    }

    /// The block size for the CSV: None when several are mixed.
    #[must_use]
    pub fn block_size(&self) -> Option<u64> {
        match self.blocks.as_slice() {
            [(size, _)] => Some(size.0),
            _ => None,
        }
    }

    /// What its blocks hold, under the run's key.
    #[must_use]
    pub const fn content(&self, key: u64) -> Content {
        Content {
            key,
            fill: self.payload,
            compress_percent: self.compress_percent,
            dedupe_percent: self.dedupe_percent,
        }
    }
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
        }
    }

    /// The complete phase, or what is impossible about it.
    pub fn resolve(self, place: &str) -> Result<Phase> {
        let wrong = |message: String| Error::usage(format!("{place}: {message}"));
        let rw = self.rw.ok_or_else(|| {
            wrong("key 'rw' is missing; one of read, write, randread, randwrite, rw, randrw".into())
        })?;
        let blocks = self.block_sizes(rw).map_err(wrong)?;
        let distribution = self
            .random_distribution
            .as_deref()
            .map_or(Ok(Distribution::Uniform), str::parse);
        let random_distribution = distribution.map_err(wrong)?;
        let lanes = match (self.lanes, self.numjobs) {
            (Some(_), Some(_)) => {
                return Err(wrong(
                    "'lanes' and 'numjobs' mean the same; give one".into(),
                ));
            }
            (lanes, numjobs) => lanes.or(numjobs).unwrap_or(1),
        };
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
        };
        phase.validate().map_err(wrong)?;
        Ok(phase)
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

/// Largest block: bounded so that a slot stays reasonable.
const BLOCK_LIMIT: u64 = 256 << 20;
/// Most operations under way in one phase.
const INFLIGHT_LIMIT: u32 = 65_536;

impl Phase {
    /// What is impossible, in words; Ok when nothing is.
    pub(super) fn validate(&self) -> std::result::Result<(), String> {
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
        let blocks = self.size.0 / u64::from(self.block_max());
        check(
            blocks >= u64::from(self.lanes),
            format!(
                "size {} holds {blocks} blocks of {}, too few for {} lanes",
                self.size,
                Bytes(u64::from(self.block_max())),
                self.lanes
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

impl Workload {
    /// Reads a workload file. `place` names it in messages.
    pub fn parse(name: &str, text: &str, place: &str, overrides: &PhaseFile) -> Result<Self> {
        let file: WorkloadFile = toml::from_str(text).map_err(|error| {
            let line = error
                .span()
                .map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let at = line.map_or_else(|| place.to_owned(), |line| format!("{place} line {line}"));
            Error::usage(format!(
                "{at}: {}",
                error.message().trim().replace('\n', " ")
            ))
        })?;
        if file.phase.is_empty() {
            return Err(Error::usage(format!("{place}: no [[phase]] in it")));
        }
        let repeats = file.repeats.unwrap_or(1);
        if repeats == 0 {
            return Err(Error::usage(format!("{place}: repeats of 0")));
        }
        let several = file.phase.len() > 1;
        let mut phases = Vec::new();
        for (index, phase) in file.phase.into_iter().enumerate() {
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
            phases.push(phase.resolve(&if several {
                format!("{place}, {here}")
            } else {
                place.to_owned()
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
            (phase("rw='read'\niodepth=0"), "w.toml", "iodepth"),
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

    const KEYS: &str = "rw|bs|bssplit|iodepth|lanes|numjobs|size|runtime|bytes|ramp_time|rate_iops|fsync|end_fsync|durability|direct|random_distribution|payload|compress_percent|dedupe_percent|verify|rwmixread|name|what";
    const VALUES: &str = r"-?[0-9]{1,20}|'[0-9]{0,20}[kMGT]?i?B?'|'(read|write|randread|rw|randrw)'|true|'[0-9]{0,3}k?/[0-9]{0,3}:[0-9]{0,3}k?(/[0-9]{0,4})?'|'(zipf|pareto|uniform):?-?[0-9.e]{0,6}'|'[0-9.]{0,6}(s|ms|h)?'|[0-9]{0,3}\.[0-9]{0,3}|\[\]|'(none|flush|sync|zero)'";

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>()) {
            let _ = Workload::parse("w", &text, "w.toml", &PhaseFile::default());
        }

        #[test]
        fn what_is_accepted_can_be_run(
            keys in proptest::collection::btree_map(KEYS, VALUES, 0..6), rw in "read|randwrite|randrw"
        ) {
            let mut text = String::from("description = 'x'\n[[phase]]\n");
            for (key, value) in keys.iter().filter(|(key, _)| *key != "rw") {
                text.push_str(&format!("{key} = {value}\n"));
            }
            text.push_str(&format!("rw = '{rw}'\n"));
            if let Ok(workload) = Workload::parse("w", &text, "w.toml", &PhaseFile::default()) {
                let phase = &workload.phases[0];
                prop_assert!(phase.block_max() > 0 && phase.iodepth > 0 && phase.lanes > 0);
                let mut pattern = crate::pattern::Pattern::new(phase, phase.lanes - 1, phase.lanes, 1);
                for _ in 0..20 {
                    let step = pattern.advance();
                    prop_assert!(step.len > 0 && step.offset + u64::from(step.len) <= phase.size.0, "{text}");
                }
                let saved = toml::to_string(&workload).expect("TOML");
                prop_assert_eq!(&toml::from_str::<Workload>(&saved).expect("the same"), &workload);
            }
        }
    }
}
