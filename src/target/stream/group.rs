//! How many small answers a connection waits for before it wakes the worker.
//!
//! Each wake costs a context switch, a receive and a send. With many calls under way and small answers that follow each
//! other closely, an eighth of them are taken at once, as a network card gathers packets before it interrupts: the
//! server still has seven eighths to work on. No answer waits longer than [`LONGEST`]; where answers come more
//! slowly than that, each is taken as it comes. Must not know what an answer means. Sizes are in bytes.

use std::time::Duration;

/// The longest that an answer may lie in the socket for others to join it.
pub(super) const LONGEST: Duration = Duration::from_micros(250);
/// One in so many of the answers that are to come may wait for the others.
const SHARE: u32 = 8;
/// Answers at once at most.
const ANSWERS_MAX: u32 = 8;
/// Answers that are larger on average are worth a wake each.
const SMALL: u32 = 16 << 10;
/// Answers between two looks at their size.
const LOOK: u32 = 64;
/// After a wait in vain, so many answers are taken as they come.
const PAUSE: u32 = 512;

/// What one connection's answers are like, and how long to go on taking each as it comes.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// An answer's mean size at the last look; 0 before it.
    size: u32,
    bytes: u64,
    answers: u32,
    pause: u32,
}

impl Group {
    /// Bytes worth a wake with `flying` answers to come; 1 for any.
    pub(super) fn bytes(&self, flying: usize) -> u32 {
        let answers = (flying as u32 / SHARE).min(ANSWERS_MAX);
        if self.pause > 0 || answers < 2 || self.size > SMALL {
            return 1;
        }
        (answers * self.size).max(1)
    }

    /// Notes that the bytes did not come in time.
    pub(super) fn in_vain(&mut self) {
        self.pause = PAUSE;
    }

    /// Notes bytes that came.
    pub(super) fn came(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Notes a whole answer.
    pub(super) fn answered(&mut self) {
        self.pause = self.pause.saturating_sub(1);
        self.answers += 1;
        if self.answers == LOOK {
            self.size = u32::try_from(self.bytes / u64::from(LOOK)).unwrap_or(u32::MAX);
            self.bytes = 0;
            self.answers = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(answers: u32, size: usize) -> Group {
        let mut group = Group::default();
        for _ in 0..answers {
            group.came(size);
            group.answered();
        }
        group
    }

    #[test]
    fn only_small_answers_at_depth_are_grouped_and_never_more_than_an_eighth() {
        assert_eq!(after(LOOK - 1, 4224).bytes(32), 1, "not yet known");
        assert_eq!(after(LOOK, 4224).bytes(15), 1);
        assert_eq!(after(LOOK, 4224).bytes(16), 2 * 4224);
        assert_eq!(after(LOOK, 4224).bytes(32), 4 * 4224);
        assert_eq!(after(LOOK, 4224).bytes(1024), 8 * 4224);
        assert_eq!(after(LOOK, 1 << 20).bytes(32), 1);
    }

    #[test]
    fn a_wait_in_vain_ends_grouping_for_a_while() {
        let mut group = after(LOOK, 100);
        group.in_vain();
        for _ in 0..PAUSE {
            assert_eq!(group.bytes(32), 1);
            group.came(100);
            group.answered();
        }
        assert_eq!(group.bytes(32), 400);
    }
}
