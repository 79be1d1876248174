//! The ZFS cache and pools, from /proc/spl/kstat/zfs (`OpenZFS` on Linux). Commands are not run for it.
//!
//! The kernel module tells each pool's state and what its datasets moved, but not how a pool is made of disks: that stays
//! unknown here. Must not know: what the cache should be. Sizes are in bytes.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::{line, names, some};

/// The cache (ARC): its size, and how often it answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arc {
    /// Size now; not subtracted.
    pub size_bytes: u64,
    /// The size that it may grow to; not subtracted.
    pub max_bytes: Option<u64>,
    /// Reads that it answered.
    pub hits: u64,
    /// Reads that went to the disks.
    pub misses: u64,
    /// Misses of data that a program asked for, as against read-ahead and metadata.
    pub demand_data_misses: Option<u64>,
}

/// A pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// `ONLINE`, `DEGRADED`, `FAULTED`, `SUSPENDED` ..; None before `OpenZFS` 0.8.
    pub state: Option<String>,
    /// Its mounted datasets and volumes.
    pub datasets: Vec<String>,
}

/// A value of a named kstat: lines of name, type and data.
fn value(text: &str, name: &str) -> Option<u64> {
    data(text, name)?.parse().ok()
}

fn data<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        (fields.next() == Some(name)).then_some(())?;
        fields.nth(1)
    })
}

impl Arc {
    /// Reads the text of `arcstats`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self {
            size_bytes: value(text, "size")?,
            max_bytes: value(text, "c_max"),
            hits: value(text, "hits")?,
            misses: value(text, "misses")?,
            demand_data_misses: value(text, "demand_data_misses"),
        })
    }

    /// Hits and misses since an earlier reading, and the size now.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            hits: self.hits.checked_sub(earlier.hits)?,
            misses: self.misses.checked_sub(earlier.misses)?,
            demand_data_misses: self
                .demand_data_misses
                .zip(earlier.demand_data_misses)
                .and_then(|(now, then)| now.checked_sub(then)),
            ..*self
        })
    }
}

/// The cache now; None without ZFS.
#[must_use]
pub fn arc(root: &Path) -> Option<Arc> {
    Arc::parse(&line(&root.join("proc/spl/kstat/zfs/arcstats"))?)
}

/// The imported pools, by name.
#[must_use]
pub fn pools(root: &Path) -> Option<Vec<Pool>> {
    let directory = root.join("proc/spl/kstat/zfs");
    let pool = |name: String| {
        let pool = directory.join(&name);
        // Files beside the pools' directories are counters of the whole module.
        pool.is_dir().then(|| Pool {
            state: line(&pool.join("state")),
            datasets: datasets(&pool),
            name,
        })
    };
    some(names(&directory).into_iter().filter_map(pool).collect())
}

/// The names in a pool's `objset-0x..` files; they may hold spaces.
fn datasets(pool: &Path) -> Vec<String> {
    let name = |file: &String| {
        let text = line(&pool.join(file))?;
        let line = text.lines().find(|line| line.starts_with("dataset_name"))?;
        // Name, type 7 for text, data.
        let rest = line.strip_prefix("dataset_name")?.trim_start();
        let data = rest.split_once(' ')?.1.trim();
        (!data.is_empty()).then(|| data.to_owned())
    };
    let mut found: Vec<String> = names(pool)
        .iter()
        .filter(|file| file.starts_with("objset-"))
        .filter_map(name)
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    #[test]
    fn the_cache_is_read_by_whole_names() {
        let text = "13 1 0x01 123 33456 9876 5432\nname type data\nhits 4 900\ndemand_hits 4 5\nmisses 4 100\nsize 4 4096\n";
        let arc = Arc::parse(text).expect("three names");
        assert_eq!((arc.hits, arc.misses, arc.size_bytes), (900, 100, 4096));
        assert_eq!((arc.max_bytes, arc.demand_data_misses), (None, None));
        let later = Arc {
            hits: 950,
            size_bytes: 8192,
            ..arc
        };
        let passed = later.since(&arc).expect("later");
        assert_eq!(
            (passed.hits, passed.misses, passed.size_bytes),
            (50, 0, 8192)
        );
        assert_eq!(arc.since(&later), None, "the module was loaded anew");
        assert_eq!(Arc::parse("hits 4 x\n"), None);
    }

    #[test]
    fn only_one_machine_has_zfs() {
        let nas = machines::tree("zfs-nas");
        let arc = arc(nas.path()).expect("composed");
        assert_eq!(arc.max_bytes, Some(33_653_252_096));
        let pools = pools(nas.path()).expect("composed");
        let states: Vec<_> = pools
            .iter()
            .map(|pool| (pool.name.as_str(), pool.state.as_deref()))
            .collect();
        assert_eq!(
            states,
            [("boot-pool", Some("ONLINE")), ("tank", Some("DEGRADED"))]
        );
        assert_eq!(pools[1].datasets, ["tank", "tank/bench", "tank/my files"]);
        for other in ["vm", "bare-metal", "empty"] {
            assert_eq!(super::arc(machines::tree(other).path()), None, "{other}");
            assert_eq!(super::pools(machines::tree(other).path()), None, "{other}");
        }
    }
}
