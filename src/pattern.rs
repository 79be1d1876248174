//! Which block comes next: a seeded, endless sequence of directions, offsets and lengths for one lane.
//!
//! All lanes share one file. Sequential lanes have a contiguous part each, or take the blocks in turns; random lanes
//! have every n-th block, so each covers the whole file and no two write the same block. Random blocks may repeat
//! before all were hit, as with fio's `norandommap`. Pure. Must not know: clocks, targets, buffers. Offsets count from the file's start.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};

use crate::op::Direction;
use crate::payload::mix;
use crate::spec::workload::{Distribution, Phase};

/// One step of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Read or write.
    pub direction: Direction,
    /// First byte, from the file's start.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// The sequence of one lane.
#[derive(Debug)]
pub struct Pattern {
    rng: SmallRng,
    /// Share of reads in percent: 0, 100 or in between.
    read_percent: u32,
    /// Block sizes with the cumulative share up to each, in percent.
    blocks: Vec<(u32, u32)>,
    places: Places,
}

#[derive(Debug)]
enum Places {
    Sequential {
        start: u64,
        end: u64,
        next: u64,
        /// Bytes of the other lanes' blocks between two of this one's.
        gap: u64,
    },
    Random {
        extent: u64,
        lane: u64,
        lanes: u64,
        extents: u64,
        pick: Pick,
    },
}

#[derive(Debug)]
enum Pick {
    Uniform,
    Zipf(Zipf<f64>),
    /// The exponent of the self-similar distribution: ln h / ln (1 - h) inverted (Gray et al., 1994).
    Pareto(f64),
}

impl Pattern {
    /// The sequence of lane `lane` of `lanes`; the same seed gives the same sequence.
    #[must_use]
    pub fn new(phase: &Phase, lane: u16, lanes: u16, seed: u64) -> Self {
        let mut cumulative = 0;
        let blocks = phase.blocks.iter().map(|(size, share)| {
            cumulative += u32::from(*share);
            (size.0 as u32, cumulative)
        });
        let blocks = blocks.collect();
        let read_percent = match (phase.rw.reads(), phase.rw.writes()) {
            (true, false) => 100,
            (false, true) => 0,
            _ => u32::from(phase.rwmixread),
        };
        Self {
            rng: SmallRng::seed_from_u64(mix(seed ^ (u64::from(lane) << 48))),
            read_percent,
            blocks,
            places: Places::new(phase, u64::from(lane), u64::from(lanes.max(1))),
        }
    }

    /// The next step. Never ends: sequential patterns start over at their end.
    #[inline]
    pub fn advance(&mut self) -> Step {
        let direction = match self.read_percent {
            100 => Direction::Read,
            0 => Direction::Write,
            percent if self.rng.random_range(0..100) < percent => Direction::Read,
            _ => Direction::Write,
        };
        let len = self.length();
        let (offset, len) = self.places.place(len, &mut self.rng);
        Step {
            direction,
            offset,
            len,
        }
    }

    /// Bytes in one pass over this lane's part.
    #[must_use]
    pub fn pass_bytes(&self) -> u64 {
        match &self.places {
            Places::Sequential { end, .. } => self.bytes_before(*end),
            Places::Random {
                extent, extents, ..
            } => extent * extents,
        }
    }

    /// This lane's bytes of the file's first `bytes`, where lanes take turns; None where each has a part of its own.
    #[must_use]
    pub fn turns(&self, bytes: u64) -> Option<u64> {
        let takes_turns = matches!(self.places, Places::Sequential { gap, .. } if gap > 0);
        takes_turns.then(|| self.bytes_before(bytes))
    }

    /// Bytes of a sequential lane before this place in the file.
    fn bytes_before(&self, end: u64) -> u64 {
        let (Places::Sequential { start, gap, .. }, [(block, _), ..]) =
            (&self.places, self.blocks.as_slice())
        else {
            return 0;
        };
        let (block, span) = (u64::from(*block), end.saturating_sub(*start));
        if *gap == 0 {
            return span;
        }
        let turn = block + gap;
        span / turn * block + (span % turn).min(block)
    }

    fn length(&mut self) -> u32 {
        if let [(len, _)] = self.blocks.as_slice() {
            return *len;
        }
        let draw = self.rng.random_range(0..100);
        self.blocks
            .iter()
            .find(|(_, upto)| draw < *upto)
            .map_or(self.blocks[0].0, |(len, _)| *len)
    }
}

impl Places {
    fn new(phase: &Phase, lane: u64, lanes: u64) -> Self {
        let extent = u64::from(phase.block_max());
        let size = phase.size.0;
        if !phase.rw.random() {
            let blocks = size.div_ceil(extent);
            if phase.takes_turns() {
                let start = (lane * extent).min(size);
                return Self::Sequential {
                    start,
                    end: size,
                    next: start,
                    gap: (lanes - 1) * extent,
                };
            }
            let start = blocks * lane / lanes * extent;
            let end = (blocks * (lane + 1) / lanes * extent).min(size);
            return Self::Sequential {
                start,
                end,
                next: start,
                gap: 0,
            };
        }
        // Lane k owns extents k, k + lanes, k + 2 lanes ..; a short last block is left out.
        let whole = size / extent;
        let extents = (whole + lanes - 1 - lane) / lanes;
        let pick = match phase.random_distribution {
            Distribution::Uniform => Pick::Uniform,
            Distribution::Zipf(theta) => {
                Zipf::new(extents as f64, theta).map_or(Pick::Uniform, Pick::Zipf)
            }
            Distribution::Pareto(share) => Pick::Pareto(share.ln() / (1.0 - share).ln()),
        };
        Self::Random {
            extent,
            lane,
            lanes,
            extents,
            pick,
        }
    }

    #[inline]
    fn place(&mut self, len: u32, rng: &mut SmallRng) -> (u64, u32) {
        match self {
            Self::Sequential {
                start,
                end,
                next,
                gap,
            } => {
                if *next >= *end {
                    *next = *start;
                }
                let offset = *next;
                let len = u64::from(len).min(*end - offset);
                *next += len + *gap;
                (offset, len as u32)
            }
            Self::Random {
                extent,
                lane,
                lanes,
                extents,
                pick,
            } => {
                let rank = match pick {
                    Pick::Uniform => rng.random_range(0..*extents),
                    Pick::Zipf(zipf) => scatter(zipf.sample(rng) as u64 - 1, *extents),
                    Pick::Pareto(power) => {
                        let share = rng.random::<f64>().powf(*power);
                        scatter(
                            ((share * *extents as f64) as u64).min(*extents - 1),
                            *extents,
                        )
                    }
                };
                let mut offset = (rank * *lanes + *lane) * *extent;
                if u64::from(len) < *extent {
                    offset += rng.random_range(0..*extent / u64::from(len)) * u64::from(len);
                }
                (offset, len)
            }
        }
    }
}

/// Spreads popular ranks over the file, as fio does: else the popular blocks would be neighbours. Not a
/// permutation: two ranks may share a block, which changes the distribution's tail, not its shape.
fn scatter(rank: u64, extents: u64) -> u64 {
    mix(rank) % extents
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use super::*;
    use crate::spec::workload::PhaseFile;
    use crate::units::Bytes;

    fn phase(keys: &str) -> Phase {
        toml::from_str::<PhaseFile>(keys)
            .expect("keys")
            .resolve("test")
            .expect("a possible phase")
    }

    #[test]
    fn lanes_in_turns_leave_no_gap_however_far_they_get() {
        for (blocks, lanes) in [(12u64, 4u16), (13, 4), (3, 2), (11, 5), (7, 1)] {
            let size = blocks * 4096 - 100;
            let phase = Phase {
                in_turns: true,
                ..phase(&format!(
                    "rw='write'\nbs='4k'\nsize='{size}'\nlanes={lanes}"
                ))
            };
            let mut seen = Vec::new();
            let mut passes = 0;
            let mut beginning = 0;
            for lane in 0..lanes {
                let mut pattern = Pattern::new(&phase, lane, lanes, 1);
                let own = blocks
                    .saturating_sub(u64::from(lane))
                    .div_ceil(u64::from(lanes));
                passes += pattern.pass_bytes();
                // A part of the file is shared out as the lanes go through it, and never twice.
                beginning += pattern.turns(2 * 4096 + 7).unwrap_or(2 * 4096 + 7);
                assert_eq!(pattern.turns(size).unwrap_or(size), pattern.pass_bytes());
                for turn in 0..own {
                    let step = pattern.advance();
                    let block = turn * u64::from(lanes) + u64::from(lane);
                    assert_eq!(step.offset, block * 4096, "{blocks} blocks, {lanes} lanes");
                    seen.push((step.offset, u64::from(step.len)));
                }
                // And over again.
                assert_eq!(pattern.advance().offset, u64::from(lane) * 4096);
            }
            seen.sort_unstable();
            let end = seen.iter().fold(0, |end, (offset, len)| {
                assert_eq!(*offset, end);
                end + len
            });
            assert_eq!((end, passes, beginning), (size, size, 2 * 4096 + 7));
        }
    }

    #[test]
    fn sequential_lanes_cover_the_file_once_and_the_last_block_is_short() {
        let phase = phase("rw='read'\nbs='4k'\nsize=41000\nlanes=3");
        let mut covered = Vec::new();
        for lane in 0..3 {
            let mut pattern = Pattern::new(&phase, lane, 3, 1);
            let mut left = pattern.pass_bytes();
            while left > 0 {
                let step = pattern.advance();
                covered.push((step.offset, step.len));
                left -= u64::from(step.len);
            }
        }
        covered.sort_unstable();
        let mut at = 0;
        for (offset, len) in covered {
            assert_eq!(offset, at);
            at += u64::from(len);
        }
        assert_eq!(at, 41000);
    }

    #[test]
    fn random_lanes_never_meet_and_stay_inside() {
        let phase = phase("rw='randwrite'\nbssplit='512/50:4k/50'\nsize='100k'\nlanes=4");
        let mut owner: BTreeMap<u64, u16> = BTreeMap::new();
        for lane in 0..4 {
            let mut pattern = Pattern::new(&phase, lane, 4, 9);
            for _ in 0..2_000 {
                let step = pattern.advance();
                assert!(step.offset + u64::from(step.len) <= 100 << 10);
                assert_eq!(step.offset % u64::from(step.len), 0);
                assert_eq!(*owner.entry(step.offset / 4096).or_insert(lane), lane);
            }
        }
        assert_eq!(owner.len(), 25, "all extents were reached");
    }

    #[test]
    fn a_tebibyte_file_is_reached_to_its_end() {
        let phase = phase("rw='randread'\nbs='4k'\nsize='3T'");
        let mut pattern = Pattern::new(&phase, 0, 1, 2);
        let far = (0..1_000)
            .map(|_| pattern.advance().offset)
            .max()
            .expect("steps");
        assert!(far > 2 << 40, "{far}");
    }

    #[test]
    fn mixes_and_seeds_hold() {
        let phase = phase("rw='randrw'\nrwmixread=70\nbs='8k'\nsize='1M'");
        let reads = |seed| {
            let mut pattern = Pattern::new(&phase, 0, 1, seed);
            let steps: Vec<Step> = (0..20_000).map(|_| pattern.advance()).collect();
            (
                steps
                    .iter()
                    .filter(|step| step.direction == Direction::Read)
                    .count(),
                steps,
            )
        };
        let (count, first) = reads(1);
        assert!((13_700..14_300).contains(&count), "{count}");
        assert_eq!(first, reads(1).1);
        assert_ne!(first, reads(2).1);
    }

    #[test]
    fn skewed_distributions_are_skewed_as_said() {
        let share_of_top_fifth = |distribution: &str| {
            let keys = format!(
                "rw='randread'\nbs=512\nsize='5000k'\nrandom_distribution='{distribution}'"
            );
            let mut pattern = Pattern::new(&phase(&keys), 0, 1, 5);
            let mut hits: BTreeMap<u64, u32> = BTreeMap::new();
            for _ in 0..100_000 {
                *hits.entry(pattern.advance().offset).or_default() += 1;
            }
            let mut counts: Vec<u32> = hits.into_values().collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            f64::from(counts.iter().take(2_000).sum::<u32>()) / 100_000.0
        };
        let (uniform, pareto, zipf) = (
            share_of_top_fifth("uniform"),
            share_of_top_fifth("pareto:0.2"),
            share_of_top_fifth("zipf:1.2"),
        );
        assert!(uniform < 0.35, "{uniform}");
        assert!((0.78..0.92).contains(&pareto), "{pareto}");
        assert!(zipf > 0.85, "{zipf}");
    }

    #[test]
    fn block_shares_are_as_given() {
        let phase = phase("rw='randread'\nbssplit='4k/25:64k/75'\nsize='10M'");
        let mut pattern = Pattern::new(&phase, 0, 1, 5);
        let small = (0..10_000)
            .filter(|_| pattern.advance().len == 4096)
            .count();
        assert!((2_300..2_700).contains(&small), "{small}");
    }

    #[test]
    fn odd_blocks_are_whole_in_random_order() {
        let phase = phase("rw='randread'\nbs=4095\nsize=40960");
        let mut pattern = Pattern::new(&phase, 0, 1, 5);
        let offsets: HashSet<u64> = (0..1_000).map(|_| pattern.advance().offset).collect();
        assert_eq!(offsets.len(), 10);
        assert_eq!(phase.size, Bytes(40960));
    }
}
