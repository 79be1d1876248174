//! Time lost to waiting for processor, storage and memory, from /proc/pressure (Documentation/accounting/psi.rst).
//!
//! It says that something was short, not what: no verdict rests on it alone. Must not know: who waited. Times are in
//! microseconds.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::line;

/// Lost time since boot, or between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Time in which at least one task waited.
    pub some_us: u64,
    /// Time in which all tasks waited; None for the processor before Linux 5.13.
    pub full_us: Option<u64>,
}

/// Lost time by what was waited for; None each where the kernel keeps no count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// The processor.
    pub cpu: Option<Lost>,
    /// Storage.
    pub io: Option<Lost>,
    /// Memory.
    pub memory: Option<Lost>,
}

impl Lost {
    /// Reads the text of one file.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let total = |kind: &str| {
            let line = text
                .lines()
                .find(|line| line.split_ascii_whitespace().next() == Some(kind))?;
            line.split_ascii_whitespace()
                .find_map(|word| word.strip_prefix("total=")?.parse().ok())
        };
        Some(Self {
            some_us: total("some")?,
            full_us: total("full"),
        })
    }

    fn since(self, earlier: Self) -> Option<Self> {
        Some(Self {
            some_us: self.some_us.checked_sub(earlier.some_us)?,
            full_us: self
                .full_us
                .zip(earlier.full_us)
                .and_then(|(now, then)| now.checked_sub(then)),
        })
    }
}

impl Pressure {
    /// What was lost since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        let take = |now: Option<Lost>, then: Option<Lost>| now?.since(then?);
        let passed = Self {
            cpu: take(self.cpu, earlier.cpu),
            io: take(self.io, earlier.io),
            memory: take(self.memory, earlier.memory),
        };
        (passed != Self::default()).then_some(passed)
    }
}

/// Lost time so far; None where the kernel keeps no count.
#[must_use]
pub fn read(root: &Path) -> Option<Pressure> {
    let of = |name: &str| Lost::parse(&line(&root.join("proc/pressure").join(name))?);
    let found = Pressure {
        cpu: of("cpu"),
        io: of("io"),
        memory: of("memory"),
    };
    (found != Pressure::default()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    #[test]
    fn totals_are_read_and_subtracted() {
        let text = "some avg10=1.00 avg60=2.00 avg300=3.00 total=500\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=20\n";
        let now = Lost::parse(text).expect("two lines");
        assert_eq!((now.some_us, now.full_us), (500, Some(20)));
        let then = Lost {
            some_us: 100,
            full_us: None,
        };
        let passed = now.since(then).expect("later");
        assert_eq!((passed.some_us, passed.full_us), (400, None));
        assert_eq!(then.since(now), None);
        assert_eq!(Lost::parse("something total=1\n"), None);
    }

    #[test]
    fn each_machine_tells_what_it_can() {
        let vm = read(machines::tree("vm").path()).expect("captured");
        assert!(vm.cpu.is_some() && vm.io.is_some() && vm.memory.is_some());
        let nas = read(machines::tree("zfs-nas").path()).expect("composed");
        assert_eq!(
            nas.cpu.and_then(|lost| lost.full_us),
            None,
            "an older kernel"
        );
        assert_eq!(read(machines::tree("bare-metal").path()), None, "psi=0");
        assert_eq!(read(machines::tree("empty").path()), None);
    }
}
