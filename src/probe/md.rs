//! Arrays of the kernel's own RAID, from /sys/block/mdX/md and /proc/mdstat (Documentation/admin-guide/md.rst).
//!
//! An array that is degraded or being rebuilt is slower than it will be. Must not know: what lies on it. Sizes are in
//! bytes.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::{line, names, number, some};

/// One array.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    /// The kernel's name: `md0`.
    pub name: String,
    /// `raid0`, `raid1`, `raid5`, `raid6`, `raid10`, `linear`.
    pub level: Option<String>,
    /// `clean`, `active`, `readonly` ..
    pub state: Option<String>,
    /// Disks that a whole array has.
    pub raid_disks: Option<u32>,
    /// How many of them are missing; None for levels that can't miss any.
    pub degraded: Option<u32>,
    /// `idle`, `resync`, `recover`, `check`, `repair`, `reshape`, `frozen`.
    pub sync_action: Option<String>,
    /// How much of it is done, in parts per million.
    pub sync_done_ppm: Option<u32>,
    /// What lies on one disk before the next has its turn.
    pub chunk_bytes: Option<u64>,
    /// Pages for each disk that RAID 5 and 6 collect whole stripes in.
    pub stripe_cache_size: Option<u32>,
    /// Its members, as /proc/mdstat names them, without roles.
    pub members: Vec<String>,
}

/// A line of /proc/mdstat and what follows it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Stat {
    level: Option<String>,
    members: Vec<String>,
    /// Disks wanted and there, of `[3/2]`.
    disks: Option<(u32, u32)>,
    /// What goes on, and how much of it is done.
    sync: Option<(String, u32)>,
    chunk: Option<u64>,
}

/// Parts per million of two counts.
fn ppm(done: u64, of: u64) -> Option<u32> {
    u32::try_from(u128::from(done) * 1_000_000 / (of > 0).then_some(u128::from(of))?).ok()
}

/// The paragraph of one array in /proc/mdstat.
fn stat(text: &str, name: &str) -> Option<Stat> {
    let mut lines = text
        .lines()
        .skip_while(|line| line.split_once(" : ").is_none_or(|(left, _)| left != name));
    let (_, first) = lines.next()?.split_once(" : ")?;
    let words = || first.split_ascii_whitespace();
    let known =
        |word: &str| word.starts_with("raid") || matches!(word, "linear" | "multipath" | "faulty");
    let mut found = Stat {
        level: words().find(|word| known(word)).map(str::to_owned),
        // `sda1[0]`, with (F), (S) or (W) behind it.
        members: words()
            .filter_map(|word| Some(word.split_once('[')?.0.to_owned()))
            .collect(),
        ..Stat::default()
    };
    for line in lines.take_while(|line| line.starts_with(' ')) {
        for word in line.split_ascii_whitespace() {
            let inside = word
                .strip_prefix('[')
                .and_then(|word| word.strip_suffix(']'));
            if let Some((wanted, there)) = inside.and_then(|inside| inside.split_once('/'))
                && let (Ok(wanted), Ok(there)) = (wanted.parse(), there.parse())
            {
                found.disks = Some((wanted, there));
            }
        }
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if let Some(at) = words.iter().position(|word| word.starts_with("chunk")) {
            let kib = at.checked_sub(1).and_then(|at| words[at].strip_suffix('k'));
            found.chunk = kib.and_then(|kib| kib.parse::<u64>().ok()?.checked_mul(1024));
        }
        found.sync = found.sync.or_else(|| progress(&words));
    }
    Some(found)
}

/// `[==>..] recovery = 12.6% (37043392/292945152) finish=127.5min`
fn progress(words: &[&str]) -> Option<(String, u32)> {
    let equals = words.iter().position(|word| *word == "=")?;
    let action = words.get(equals.checked_sub(1)?)?;
    let counts = words
        .iter()
        .find_map(|word| word.strip_prefix('(')?.strip_suffix(')')?.split_once('/'))?;
    let share = ppm(counts.0.parse().ok()?, counts.1.parse().ok()?)?;
    // sysfs calls it recover.
    let action = if *action == "recovery" {
        "recover"
    } else {
        action
    };
    Some((action.to_owned(), share))
}

/// The arrays, by name.
#[must_use]
pub fn read(root: &Path) -> Option<Vec<Array>> {
    let mdstat = line(&root.join("proc/mdstat")).unwrap_or_default();
    let blocks = root.join("sys/block");
    let mut all = names(&blocks);
    all.retain(|name| blocks.join(name).join("md").is_dir());
    // A container may see the text but not the tree.
    let told = mdstat
        .lines()
        .filter_map(|line| line.split_once(" : "))
        .map(|(name, _)| name.to_owned())
        .filter(|name| name.starts_with("md"));
    all.extend(told);
    all.sort();
    all.dedup();
    some(
        all.into_iter()
            .map(|name| array(&blocks.join(&name).join("md"), &mdstat, name))
            .collect(),
    )
}

fn array(directory: &Path, mdstat: &str, name: String) -> Array {
    let at = |file: &str| directory.join(file);
    let told = stat(mdstat, &name).unwrap_or_default();
    let completed = line(&at("sync_completed")).and_then(|text| {
        let (done, of) = text.split_once('/')?;
        ppm(done.trim().parse().ok()?, of.trim().parse().ok()?)
    });
    let missing = told
        .disks
        .and_then(|(wanted, there)| wanted.checked_sub(there));
    Array {
        level: line(&at("level")).or(told.level),
        state: line(&at("array_state")),
        // While it is reshaped, the old number follows in brackets.
        raid_disks: line(&at("raid_disks"))
            .and_then(|text| text.split(' ').next()?.parse().ok())
            .or(told.disks.map(|(wanted, _)| wanted)),
        degraded: number(&at("degraded")).or(missing),
        sync_action: line(&at("sync_action"))
            .or_else(|| told.sync.as_ref().map(|(action, _)| action.clone())),
        sync_done_ppm: completed.or(told.sync.map(|(_, share)| share)),
        chunk_bytes: line(&at("chunk_size"))
            .and_then(|text| text.split(' ').next()?.parse().ok())
            .or(told.chunk)
            .filter(|bytes| *bytes > 0),
        stripe_cache_size: number(&at("stripe_cache_size")),
        members: told.members,
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    #[test]
    fn arrays_of_each_machine() {
        let found = read(machines::tree("bare-metal").path()).expect("composed");
        assert_eq!(found.len(), 2);
        let mirror = &found[0];
        assert_eq!(mirror.level.as_deref(), Some("raid1"));
        assert_eq!((mirror.raid_disks, mirror.degraded), (Some(2), Some(0)));
        assert_eq!((mirror.chunk_bytes, mirror.sync_done_ppm), (None, None));
        let raid6 = &found[1];
        assert_eq!(raid6.level.as_deref(), Some("raid6"));
        assert_eq!((raid6.raid_disks, raid6.degraded), (Some(4), Some(1)));
        assert_eq!(raid6.sync_action.as_deref(), Some("recover"));
        assert_eq!(raid6.sync_done_ppm, Some(250_000));
        assert_eq!(raid6.chunk_bytes, Some(524_288));
        assert_eq!(raid6.stripe_cache_size, Some(256));
        assert_eq!(raid6.members, ["sdd2", "sdc2", "sdb2", "sda2"]);
        for other in ["vm", "zfs-nas", "empty"] {
            assert_eq!(read(machines::tree(other).path()), None, "{other}");
        }
    }

    #[test]
    fn the_text_alone_tells_most_of_it() {
        let tree = machines::unpack(
            "=== proc/mdstat\nPersonalities : [raid1] [raid6] [raid5]\nmd127 : active (auto-read-only) raid5 sdf1[3](F) sde1[1] sdd1[0]\n      \
             976507904 blocks super 1.2 level 5, 512k chunk, algorithm 2 [3/2] [UU_]\n      [==>..................]  recovery = 12.6% (126/1000) finish=127.5min speed=33440K/sec\n\nunused devices: <none>\n",
        );
        let array = &read(tree.path()).expect("one array")[0];
        assert_eq!(
            (array.name.as_str(), array.level.as_deref()),
            ("md127", Some("raid5"))
        );
        assert_eq!((array.raid_disks, array.degraded), (Some(3), Some(1)));
        assert_eq!(array.chunk_bytes, Some(512 << 10));
        assert_eq!(array.sync_action.as_deref(), Some("recover"));
        assert_eq!(array.sync_done_ppm, Some(126_000));
        assert_eq!(array.members, ["sdf1", "sde1", "sdd1"]);
        assert_eq!(array.state, None);
    }
}
