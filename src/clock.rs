//! Time as the engine sees it: the kernel's monotonic clock, or a virtual one that a simulated target drives.
//!
//! `CLOCK_MONOTONIC` is one clock for all processes of a machine, so a start time can be handed to a child
//! process as a number. Must not know: what is being timed.

use std::cell::Cell;
use std::rc::Rc;

use rustix::time::{ClockId, clock_gettime};

/// A source of nanoseconds.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`.
    #[default]
    Monotonic,
    /// A counter that only its owner moves.
    Virtual(Rc<Cell<u64>>),
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Now, in UTC, as RFC 3339 with whole seconds.
#[must_use]
pub fn now_utc() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}

impl Clock {
    /// Nanoseconds since an arbitrary start that is the same for all readers of this clock.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        match self {
            Self::Monotonic => monotonic_ns(),
            Self::Virtual(time) => time.get(),
        }
    }

    /// Waits until `at`, asleep; a virtual clock jumps there.
    pub fn sleep_until(&self, at: u64) {
        match self {
            Self::Monotonic => {
                let now = monotonic_ns();
                if at > now {
                    std::thread::sleep(std::time::Duration::from_nanos(at - now));
                }
            }
            Self::Virtual(time) => time.set(time.get().max(at)),
        }
    }
}
