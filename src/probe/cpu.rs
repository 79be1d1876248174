//! What each core did, from /proc/stat (`proc_stat(5)`). Total CPU hides a full core, so the busiest one is told.
//!
//! Must not know: what ran there. Times are clock ticks; only shares of them leave this file.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Clock ticks of one core since boot, or between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// The kernel's number of it.
    pub number: u32,
    /// Programs, those of low priority and of guests included.
    pub user: u64,
    /// The kernel on behalf of programs.
    pub system: u64,
    /// Nothing to do.
    pub idle: u64,
    /// Nothing to do while storage was waited for.
    pub iowait: u64,
    /// Interrupts.
    pub irq: u64,
    /// What interrupts leave for later: most work of the network stack.
    pub softirq: u64,
    /// Taken by the hypervisor for others.
    pub steal: u64,
}

/// What each core did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ticks {
    /// The cores that are online, by number.
    pub cores: Vec<Core>,
}

/// Shares of a core's time, 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Which core.
    pub core: u32,
    /// All but idle and waiting.
    pub busy: f64,
    /// Programs.
    pub user: f64,
    /// The kernel.
    pub system: f64,
    /// Interrupts and what they leave for later.
    pub softirq: f64,
    /// Waiting for storage.
    pub iowait: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
}

/// The ticks of all cores.
#[must_use]
pub fn read(root: &Path) -> Option<Ticks> {
    Ticks::parse(&super::line(&root.join("proc/stat"))?)
}

impl Core {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
        // The line without a number is the sum of all.
        if line.starts_with("cpu ") {
            return None;
        }
        let number = fields.next()?.parse().ok()?;
        // Guest time, fields 9 and 10, is within user and nice. Old kernels have fewer fields.
        let ticks: Vec<u64> = fields
            .take(8)
            .map(|field| field.parse().ok())
            .collect::<Option<_>>()?;
        let at = |index: usize| ticks.get(index).copied();
        Some(Self {
            number,
            user: at(0)?.checked_add(at(1)?)?,
            system: at(2)?,
            idle: at(3)?,
            iowait: at(4).unwrap_or_default(),
            irq: at(5).unwrap_or_default(),
            softirq: at(6).unwrap_or_default(),
            steal: at(7).unwrap_or_default(),
        })
    }

    /// The difference; iowait may run backwards (the kernel says so itself) and is then 0.
    fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            number: self.number,
            user: self.user.checked_sub(earlier.user)?,
            system: self.system.checked_sub(earlier.system)?,
            idle: self.idle.saturating_sub(earlier.idle),
            iowait: self.iowait.saturating_sub(earlier.iowait),
            irq: self.irq.checked_sub(earlier.irq)?,
            softirq: self.softirq.checked_sub(earlier.softirq)?,
            steal: self.steal.saturating_sub(earlier.steal),
        })
    }

    fn busy(&self) -> u64 {
        [self.user, self.system, self.irq, self.softirq, self.steal]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    fn total(&self) -> u64 {
        self.busy()
            .saturating_add(self.idle)
            .saturating_add(self.iowait)
    }

    /// Its shares; None when no tick passed.
    #[must_use]
    pub fn share(&self) -> Option<Share> {
        let total = self.total();
        if total == 0 {
            return None;
        }
        let of = |ticks: u64| ticks as f64 * 100.0 / total as f64;
        Some(Share {
            core: self.number,
            busy: of(self.busy()),
            user: of(self.user),
            system: of(self.system),
            softirq: of(self.irq.saturating_add(self.softirq)),
            iowait: of(self.iowait),
            steal: of(self.steal),
        })
    }
}

impl Ticks {
    /// Reads /proc/stat's text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let cores: Vec<Core> = text.lines().filter_map(Core::parse).collect();
        (!cores.is_empty()).then_some(Self { cores })
    }

    /// What each core did since an earlier reading; cores that were not online at both times are left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        let then = |number| earlier.cores.iter().find(|core| core.number == number);
        let cores: Vec<Core> = self
            .cores
            .iter()
            .filter_map(|core| core.since(then(core.number)?))
            .collect();
        (!cores.is_empty()).then_some(Self { cores })
    }

    /// The busiest core of a difference; None when no tick passed.
    #[must_use]
    pub fn busiest(&self) -> Option<Share> {
        let shares = self.cores.iter().filter_map(Core::share);
        shares.reduce(|best, one| if one.busy > best.busy { one } else { best })
    }

    /// The hypervisor's share of all cores' time, 0 to 100; None when no tick passed.
    #[must_use]
    pub fn steal(&self) -> Option<f64> {
        let sum = |of: fn(&Core) -> u64| self.cores.iter().map(of).fold(0, u64::saturating_add);
        let total = sum(Core::total);
        (total > 0).then(|| sum(|core| core.steal) as f64 * 100.0 / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    const BEFORE: &str = "cpu  30 0 30 140 0 0 0 0 0 0\ncpu0 10 0 10 80 0 0 0 0 0 0\ncpu2 20 0 20 60 0 0 0 0 0 0\nintr 1\n";
    const AFTER: &str = "cpu  120 0 40 240 0 0 0 0 0 0\ncpu0 50 5 15 80 10 5 20 15 0 0\ncpu2 25 0 25 150 0 0 0 0 0 0\ncpu3 9 9 9 9\n";

    fn parse(text: &str) -> Ticks {
        Ticks::parse(text).expect("text")
    }

    #[test]
    fn the_busiest_core_is_told_with_what_it_did_not_the_mean() {
        let passed = parse(AFTER).since(&parse(BEFORE)).expect("two cores");
        assert_eq!(passed.cores.len(), 2, "core 3 was not there before");
        let busiest = passed.busiest().expect("ticks passed");
        assert_eq!(
            busiest,
            Share {
                core: 0,
                busy: 90.0,
                user: 45.0,
                system: 5.0,
                softirq: 25.0,
                iowait: 10.0,
                steal: 15.0,
            }
        );
        assert_eq!(passed.steal(), Some(7.5));
    }

    #[test]
    fn no_tick_is_no_share_and_garbage_is_nothing() {
        let same = parse(BEFORE).since(&parse(BEFORE)).expect("cores");
        assert_eq!((same.busiest(), same.steal()), (None, None));
        assert_eq!(Ticks::parse("nothing"), None);
        assert_eq!(Ticks::parse("cpu0 1 2\ncpux 1 2 3 4\n"), None);
        assert_eq!(parse(BEFORE).since(&parse(AFTER)), None, "it began anew");
    }

    #[test]
    fn cores_of_each_machine() {
        let cores = |name: &str| read(machines::tree(name).path()).map(|ticks| ticks.cores.len());
        assert_eq!(cores("vm"), Some(2));
        assert_eq!(cores("bare-metal"), Some(16));
        assert_eq!(cores("zfs-nas"), Some(4));
        assert_eq!(cores("empty"), None);
    }
}
