//! What the control group of this process may use, and how often it was stopped for it, from cgroup versions 1 and 2.
//!
//! Sources: Documentation/admin-guide/cgroup-v2.rst, Documentation/scheduler/sched-bwc.rst. The tightest limit on the way
//! up to the mounted root holds. Must not know: who set it. Times are in microseconds and nanoseconds as named.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::probe::disk::entries;
use crate::probe::{keyed, line, mount, number};

/// A version 1 group without a memory limit says a number near 2^63.
const NO_LIMIT: u64 = 1 << 62;

/// Limits of a control group; None is unlimited or unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// CPU time that it may use in each period, over all cores.
    pub cpu_quota_us: Option<u64>,
    /// That period.
    pub cpu_period_us: Option<u64>,
    /// Memory, page cache included.
    pub memory_bytes: Option<u64>,
}

/// How often a group had used up its CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttle {
    /// Periods in which it wanted to run.
    pub periods: u64,
    /// Periods in which it was stopped.
    pub throttled_periods: u64,
    /// Time for which it was stopped, summed over cores, in nanoseconds.
    pub throttled_ns: u64,
}

impl Limits {
    /// Cores' worth of CPU time; None when unlimited.
    #[must_use]
    pub fn cores(&self) -> Option<f64> {
        let period = self.cpu_period_us.filter(|period| *period > 0)?;
        Some(self.cpu_quota_us? as f64 / period as f64)
    }
}

impl Throttle {
    /// Reads the text of `cpu.stat`; version 1 tells nanoseconds, version 2 microseconds.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let throttled_ns = match keyed(text, "throttled_time") {
            Some(nanos) => nanos,
            None => keyed(text, "throttled_usec")?.checked_mul(1000)?,
        };
        Some(Self {
            periods: keyed(text, "nr_periods")?,
            throttled_periods: keyed(text, "nr_throttled")?,
            throttled_ns,
        })
    }

    /// What happened since an earlier reading; None when the group is another one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            periods: self.periods.checked_sub(earlier.periods)?,
            throttled_periods: self
                .throttled_periods
                .checked_sub(earlier.throttled_periods)?,
            throttled_ns: self.throttled_ns.checked_sub(earlier.throttled_ns)?,
        })
    }
}

/// The directories of this process's group for a controller, its own first, up to the mounted root.
fn directories(root: &Path, controller: &str) -> Vec<PathBuf> {
    let groups = line(&root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = line(&root.join("proc/self/mountinfo"))
        .map(|text| mount::parse(&text))
        .unwrap_or_default();
    let has = |list: &str| list.split(',').any(|one| one == controller);
    let path_of = |wanted: &dyn Fn(&str, &str) -> bool| {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (id, list, path) = (fields.next()?, fields.next()?, fields.next()?);
            wanted(id, list).then(|| path.to_owned())
        })
    };
    // A controller is in version 1 or in version 2, never in both.
    let first = path_of(&|_, list| has(list)).and_then(|path| {
        let mount = mounts
            .iter()
            .rfind(|mount| mount.kind == "cgroup" && has(&mount.super_options))?;
        Some((path, mount))
    });
    let found = first.or_else(|| {
        let path = path_of(&|id, list| id == "0" && list.is_empty())?;
        let mount = mounts.iter().rfind(|mount| mount.kind == "cgroup2")?;
        Some((path, mount))
    });
    let Some((path, mount)) = found else {
        return Vec::new();
    };
    let top = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
    // In a container the mount may show a part of the tree, and the path may lead out of what is visible.
    let path = Path::new(&path);
    let inside = path.strip_prefix(&mount.root).unwrap_or(Path::new(""));
    let visible: PathBuf = inside
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    let mut directories: Vec<PathBuf> = visible.ancestors().map(|part| top.join(part)).collect();
    directories.retain(|directory| directory.is_dir());
    directories
}

/// Quota and period of one directory; None when it has no limit.
fn quota(directory: &Path) -> Option<(u64, u64)> {
    let found = if let Some(text) = line(&directory.join("cpu.max")) {
        let (quota, period) = text.split_once(' ')?;
        (quota.parse().ok()?, period.trim().parse().ok()?)
    } else {
        // Unlimited is -1, which is no u64.
        (
            number(&directory.join("cpu.cfs_quota_us"))?,
            number(&directory.join("cpu.cfs_period_us"))?,
        )
    };
    (found.1 > 0).then_some(found)
}

/// The directory with the least CPU time, and its quota and period.
fn tightest(directories: &[PathBuf]) -> Option<(&PathBuf, (u64, u64))> {
    directories
        .iter()
        .filter_map(|directory| Some((directory, quota(directory)?)))
        .min_by(|(_, a), (_, b)| {
            let share = |(quota, period): &(u64, u64)| *quota as f64 / *period as f64;
            share(a).total_cmp(&share(b))
        })
}

/// Limits of this process's group; None where there are no groups.
#[must_use]
pub fn limits(root: &Path) -> Option<Limits> {
    let cpu = directories(root, "cpu");
    let memory = directories(root, "memory");
    if cpu.is_empty() && memory.is_empty() {
        return None;
    }
    let quota = tightest(&cpu).map(|(_, quota)| quota);
    let limit = |directory: &PathBuf| {
        number::<u64>(&directory.join("memory.max"))
            .or_else(|| number(&directory.join("memory.limit_in_bytes")))
            .filter(|bytes| *bytes < NO_LIMIT)
    };
    Some(Limits {
        cpu_quota_us: quota.map(|quota| quota.0),
        cpu_period_us: quota.map(|quota| quota.1),
        memory_bytes: memory.iter().filter_map(limit).min(),
    })
}

/// How often the tightest group of this process, or its own when none is limited, was stopped.
#[must_use]
pub fn throttle(root: &Path) -> Option<Throttle> {
    let directories = directories(root, "cpu");
    let directory =
        tightest(&directories).map_or_else(|| directories.first(), |found| Some(found.0));
    Throttle::parse(&line(&directory?.join("cpu.stat"))?)
}

/// Groups that are looked at, and how deep: a computer full of containers has thousands.
const GROUPS_MAX: usize = 2000;
const DEPTH_MAX: usize = 8;

/// How often any group of this computer that can be seen was stopped, all together: the server of a share is seldom in the
/// group of whoever asks. None where no group is limited.
#[must_use]
pub fn groups(root: &Path) -> Option<Throttle> {
    let mounts = line(&root.join("proc/self/mountinfo")).map(|text| mount::parse(&text))?;
    let has = |list: &str| list.split(',').any(|one| one == "cpu");
    let mount = mounts
        .iter()
        .rfind(|mount| mount.kind == "cgroup" && has(&mount.super_options))
        .or_else(|| mounts.iter().rfind(|mount| mount.kind == "cgroup2"))?;
    let top = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
    let mut left = vec![(top, 0)];
    let mut seen = 0;
    let mut sum: Option<Throttle> = None;
    while let Some((directory, depth)) = left.pop() {
        seen += 1;
        if seen > GROUPS_MAX {
            break;
        }
        let limited = quota(&directory).is_some();
        let text = line(&directory.join("cpu.stat")).filter(|_| limited);
        if let Some(one) = text.and_then(|text| Throttle::parse(&text)) {
            let all = sum.get_or_insert(Throttle {
                periods: 0,
                throttled_periods: 0,
                throttled_ns: 0,
            });
            all.periods = all.periods.saturating_add(one.periods);
            all.throttled_periods = all.throttled_periods.saturating_add(one.throttled_periods);
            all.throttled_ns = all.throttled_ns.saturating_add(one.throttled_ns);
        }
        if depth < DEPTH_MAX {
            let below = entries(&directory).into_iter().filter(|path| path.is_dir());
            left.extend(below.map(|path| (path, depth + 1)));
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    #[test]
    fn both_versions_tell_the_same() {
        let first = "nr_periods 100\nnr_throttled 7\nthrottled_time 5000000\n";
        let second =
            "usage_usec 9\nuser_usec 8\nnr_periods 100\nnr_throttled 7\nthrottled_usec 5000\n";
        let before = Throttle::parse(first).expect("version 1");
        assert_eq!(Some(before), Throttle::parse(second));
        assert_eq!((before.periods, before.throttled_ns), (100, 5_000_000));
        assert_eq!(
            Throttle::parse("usage_usec 9\n"),
            None,
            "no limit, no count"
        );
        let later = Throttle {
            periods: 130,
            throttled_periods: 9,
            throttled_ns: 6_000_000,
        };
        let passed = later.since(&before).expect("later");
        assert_eq!((passed.periods, passed.throttled_periods), (30, 2));
        assert_eq!(before.since(&later), None);
    }

    #[test]
    fn the_limits_of_each_machine() {
        // Version 1, no quota.
        let vm = machines::tree("vm");
        let limited = limits(vm.path()).expect("groups");
        assert_eq!(limited, Limits::default());
        assert_eq!(throttle(vm.path()), Some(Throttle::default()));
        // Version 2, two cores' worth set two levels above, memory limited at the level itself.
        let nas = machines::tree("zfs-nas");
        let limited = limits(nas.path()).expect("groups");
        assert_eq!(limited.cores(), Some(2.0));
        assert_eq!(limited.memory_bytes, Some(4 << 30));
        assert_eq!(
            throttle(nas.path()).map(|throttle| throttle.throttled_periods),
            Some(250)
        );
        // Only groups with a limit of their own count, whosever they are.
        assert_eq!(groups(vm.path()), None);
        let all = groups(nas.path()).expect("a limited group");
        assert!(all.throttled_periods >= 250, "{all:?}");
        assert_eq!(groups(machines::tree("empty").path()), None);
        assert_eq!(limits(machines::tree("empty").path()), None);
        assert_eq!(throttle(machines::tree("empty").path()), None);
    }
}
