//! The bytes that are written: incompressible, never the same twice, and checkable when read back.
//!
//! Content is a pure function of (key, offset, generation), in sectors of [`SECTOR`] bytes. A sector starts with a
//! stamp of 8 bytes that holds its generation, hidden by a hash of key and sector number; the rest is random words
//! from a small pool, changed by a hash of key, sector and generation. So a sector found at a wrong place, of another
//! run, or half overwritten is recognised, and verification needs no memory of what was written when. A sector that
//! is not written whole always has the first generation: its parts may come from two operations. Filling is one pass
//! of XOR over a pool that stays in the first-level cache.
//!
//! Pure. Must not know: files, protocols, workloads. Offsets and lengths are bytes.

use serde::{Deserialize, Serialize};

/// Bytes in one stamped unit: the smallest block that any target takes.
pub const SECTOR: usize = 512;
/// The newest generation there can be: 48 bits, which leaves 16 bits of each stamp to recognise a foreign one.
pub const GENERATION_MAX: u64 = (1 << 48) - 1;
/// Generation of a freshly laid file.
pub const LAID: u64 = 0;
/// Unit in which blocks repeat when `dedupe_percent` asks for it: the common block of deduplicating storage.
const GRAIN: u64 = 4096;
/// Distinct blocks among the repeated ones.
const REPEATED_GRAINS: u64 = 64;
const WORDS: usize = SECTOR / 8;
const POOL_WORDS: usize = 1024;

/// What kind of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// Random words: neither compressible nor dedupable.
    #[default]
    Incompressible,
    /// Zeros: for showing what compression does; never a disk figure.
    Zero,
}

/// The content of one test file or LUN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Identifies run and file.
    pub key: u64,
    /// What kind of bytes.
    pub fill: Fill,
    /// Share of each sector that is zeros, 0 to 99.
    pub compress_percent: u8,
    /// Share of 4 KiB blocks that are copies of one another, 0 to 100.
    pub dedupe_percent: u8,
}

/// Makes and checks content; owns the pool.
pub struct Payload {
    content: Content,
    pool: Box<[u64; POOL_WORDS]>,
    /// Random words in a sector, its stamp included; the rest is zeros.
    random_words: usize,
}

/// Where and how bytes differ from what they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// First wrong byte, as an offset in the object.
    pub offset: u64,
    /// What is wrong, for people.
    pub what: String,
}

/// The finaliser of `SplitMix64` (Steele, Lea, Flood 2014): a bijection that spreads each input bit over all others.
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

const fn hash(key: u64, sector: u64, salt: u64) -> u64 {
    mix(mix(key ^ salt).wrapping_add(sector.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// A sector as it should be: where it claims to be, of which generation, under which key.
#[derive(Clone, Copy)]
struct Identity {
    key: u64,
    sector: u64,
    generation: u64,
}

impl Identity {
    const fn mask(self) -> u64 {
        hash(self.key, self.sector, 0x0053_5441_4d50)
    }

    const fn stamp(self) -> u64 {
        self.generation ^ self.mask()
    }

    /// The word that changes the pool's words, and where in the pool to start.
    const fn change(self) -> (u64, usize) {
        let change = mix(hash(self.key, self.sector, 0x424f_4459)
            ^ self.generation.wrapping_mul(0xd6e8_feb8_6659_fd93));
        (
            change,
            (change >> 52) as usize % (POOL_WORDS / 8) * 8 % (POOL_WORDS - WORDS + 8),
        )
    }
}

impl Payload {
    /// A payload of this content.
    #[must_use]
    pub fn new(content: Content) -> Self {
        let mut pool = Box::new([0u64; POOL_WORDS]);
        for (index, word) in pool.iter_mut().enumerate() {
            *word = mix(0x6e61_7367_6175_6765 ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        let keep = WORDS * (100 - usize::from(content.compress_percent.min(99))) / 100;
        Self {
            content,
            pool,
            random_words: keep.max(2),
        }
    }

    /// The content that it makes.
    #[must_use]
    pub const fn content(&self) -> &Content {
        &self.content
    }

    /// Fills `block` with the content at `offset` of `generation`.
    pub fn fill(&self, block: &mut [u8], offset: u64, generation: u64) {
        if self.content.fill == Fill::Zero {
            block.fill(0);
            return;
        }
        let mut offset = offset;
        let mut rest = block;
        while !rest.is_empty() {
            let within = (offset % SECTOR as u64) as usize;
            let len = (SECTOR - within).min(rest.len());
            let (head, tail) = rest.split_at_mut(len);
            let identity = self.identity(offset, generation, len);
            if len == SECTOR {
                self.write_sector(head, identity);
            } else {
                let mut whole = [0u8; SECTOR];
                self.write_sector(&mut whole, identity);
                head.copy_from_slice(&whole[within..within + len]);
            }
            offset += len as u64;
            rest = tail;
        }
    }

    /// Checks `block`, read at `offset`, against what may stand there: any one generation up to `newest` a sector.
    pub fn check(&self, block: &[u8], offset: u64, newest: u64) -> Result<(), Mismatch> {
        if self.content.fill == Fill::Zero {
            return match block.iter().position(|byte| *byte != 0) {
                None => Ok(()),
                Some(at) => Err(Mismatch {
                    offset: offset + at as u64,
                    what: "a byte that is not zero".into(),
                }),
            };
        }
        let mut at = 0;
        while at < block.len() {
            let here = offset + at as u64;
            let within = (here % SECTOR as u64) as usize;
            let len = (SECTOR - within).min(block.len() - at);
            let part = &block[at..at + len];
            let generation = if len == SECTOR {
                self.generation_of(part, here, newest)?
            } else {
                LAID
            };
            let mut whole = [0u8; SECTOR];
            self.write_sector(&mut whole, self.identity(here, generation, len));
            let expected = &whole[within..within + len];
            if part != expected {
                return Err(first_difference(part, expected, here));
            }
            at += len;
        }
        Ok(())
    }

    /// Whether every whole sector of `block` carries this content's stamp: ours, of whatever generation.
    #[must_use]
    pub fn is_ours(&self, block: &[u8], offset: u64) -> bool {
        self.check(block, offset, GENERATION_MAX).is_ok()
    }

    fn identity(&self, offset: u64, generation: u64, len: usize) -> Identity {
        let sector = offset / SECTOR as u64;
        let grain = offset / GRAIN;
        let repeated = self.content.dedupe_percent > 0
            && hash(self.content.key, grain, 0x4445_4455) % 100
                < u64::from(self.content.dedupe_percent);
        if repeated {
            let twin = hash(self.content.key, grain, 0x5457_494e) % REPEATED_GRAINS;
            let per_grain = GRAIN / SECTOR as u64;
            return Identity {
                key: self.content.key,
                sector: twin * per_grain + sector % per_grain,
                generation: LAID,
            };
        }
        // A piece of a sector can't be told apart from the rest of it, which another operation may have written.
        let generation = if len < SECTOR { LAID } else { generation };
        Identity {
            key: self.content.key,
            sector,
            generation,
        }
    }

    fn write_sector(&self, sector: &mut [u8], identity: Identity) {
        let (change, start) = identity.change();
        let words = &self.pool[start..start + WORDS];
        for (bytes, word) in sector.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&(word ^ change).to_le_bytes());
        }
        sector[..8].copy_from_slice(&identity.stamp().to_le_bytes());
        if self.random_words < WORDS {
            sector[self.random_words * 8..].fill(0);
        }
    }

    fn generation_of(&self, part: &[u8], offset: u64, newest: u64) -> Result<u64, Mismatch> {
        let mut stamp = [0; 8];
        stamp.copy_from_slice(&part[..8]);
        let identity = self.identity(offset, LAID, SECTOR);
        let generation = u64::from_le_bytes(stamp) ^ identity.mask();
        if generation <= newest {
            return Ok(generation);
        }
        let what = if part.iter().all(|byte| *byte == 0) {
            "zeros where test data was written".to_owned()
        } else if generation <= GENERATION_MAX {
            format!("generation {generation}, newer than any written ({newest})")
        } else {
            "a sector that was never written here".to_owned()
        };
        Err(Mismatch { offset, what })
    }
}

fn first_difference(got: &[u8], want: &[u8], offset: u64) -> Mismatch {
    let first = got
        .iter()
        .zip(want)
        .position(|(got, want)| got != want)
        .unwrap_or(0);
    let what = format!(
        "read {:#04x} where {:#04x} was written",
        got[first], want[first]
    );
    Mismatch {
        offset: offset + first as u64,
        what,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content(key: u64) -> Content {
        Content {
            key,
            fill: Fill::Incompressible,
            compress_percent: 0,
            dedupe_percent: 0,
        }
    }

    proptest! {
        #[test]
        fn what_is_filled_checks_at_any_offset_and_length(
            offset in 0u64..1 << 44, len in 1usize..9000, generation in 0u64..1 << 40, key: u64,
            compress in 0u8..100, dedupe in 0u8..=100,
        ) {
            let offset = offset * SECTOR as u64;
            let payload = Payload::new(Content { compress_percent: compress, dedupe_percent: dedupe, ..content(key) });
            let mut block = vec![0; len];
            payload.fill(&mut block, offset, generation);
            prop_assert_eq!(payload.check(&block, offset, generation), Ok(()));
        }

        #[test]
        fn one_wrong_byte_is_found_where_it_is(len in 8usize..6000, at: prop::sample::Index, flip in 1u8..=255) {
            let payload = Payload::new(content(7));
            let mut block = vec![0; len];
            payload.fill(&mut block, 1 << 33, 3);
            let at = at.index(len);
            block[at] ^= flip;
            let found = payload.check(&block, 1 << 33, 3).expect_err("a wrong byte");
            let sector = |offset: u64| offset / SECTOR as u64;
            prop_assert_eq!(sector(found.offset), sector((1 << 33) + at as u64));
        }
    }

    #[test]
    fn pieces_join_to_the_whole() {
        let payload = Payload::new(content(1));
        let mut whole = vec![0; 8192];
        payload.fill(&mut whole, 512, LAID);
        let mut piece = vec![0; 1000];
        payload.fill(&mut piece, 512 + 100, LAID);
        assert_eq!(piece, whole[100..1100]);
    }

    #[test]
    fn nothing_repeats_across_offsets_generations_and_keys() {
        let mut seen = std::collections::HashSet::new();
        for (key, generation, sector) in
            [(1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0), (1, 0, 1 << 40)]
        {
            let mut block = vec![0; SECTOR];
            Payload::new(content(key)).fill(&mut block, sector * SECTOR as u64, generation);
            assert!(
                seen.insert(block),
                "repeated at key {key} generation {generation} sector {sector}"
            );
        }
    }

    #[test]
    fn foreign_moved_stale_and_zero_sectors_are_told_apart() {
        let payload = Payload::new(content(9));
        let mut block = vec![0; SECTOR];
        payload.fill(&mut block, 4096, 5);
        assert!(
            payload
                .check(&block, 4096, 4)
                .expect_err("newer")
                .what
                .contains("newer")
        );
        assert!(
            payload
                .check(&block, 8192, 5)
                .expect_err("moved")
                .what
                .contains("never written here")
        );
        assert!(!Payload::new(content(10)).is_ours(&block, 4096));
        assert!(
            payload
                .check(&[0; SECTOR], 0, 9)
                .expect_err("zeros")
                .what
                .contains("zeros")
        );
    }

    #[test]
    fn overwriting_half_of_a_block_leaves_both_generations_valid() {
        let payload = Payload::new(content(3));
        let mut block = vec![0; 4096];
        payload.fill(&mut block, 0, 1);
        payload.fill(&mut block[1024..2048], 1024, 77);
        assert_eq!(payload.check(&block, 0, 77), Ok(()));
    }

    #[test]
    fn compress_percent_is_spread_over_each_sector() {
        let payload = Payload::new(Content {
            compress_percent: 50,
            ..content(3)
        });
        let mut block = vec![0; 1 << 16];
        payload.fill(&mut block, 0, 1);
        for sector in block.chunks(SECTOR) {
            assert!(sector[..SECTOR / 2].iter().any(|byte| *byte != 0));
            assert!(sector[SECTOR / 2..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn dedupe_percent_repeats_that_share_of_blocks() {
        let payload = Payload::new(Content {
            dedupe_percent: 40,
            ..content(3)
        });
        let mut block = vec![0; 4096];
        let mut distinct = std::collections::HashSet::new();
        for grain in 0..10_000u64 {
            payload.fill(&mut block, grain * 4096, 1);
            distinct.insert(block.clone());
        }
        let unique = distinct.len() as f64 / 10_000.0;
        assert!((0.58..0.63).contains(&unique), "{unique}");
    }
}
