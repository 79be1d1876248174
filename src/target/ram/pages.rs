//! Which pages a mapping of the RAM disk got: huge ones that were reserved, huge ones that the kernel gave, or none.
//!
//! Must not know: who made the mapping. Sizes are in bytes unless a name says KiB.

use std::path::Path;

use crate::probe::line;

/// Where the kernel says whether shared memory, of which a memfd is made, may have transparent huge pages.
const SHARED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// `huge_pages=` with how they were asked for and the share of `len` bytes at `address` that has them, as words for the
/// CSV; empty where the kernel does not tell.
pub fn words(address: usize, len: u64, asked: bool) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let Some(found) = Found::at(&smaps, address) else {
        return String::new();
    };
    let how = match (found.reserved, asked) {
        (true, _) => "reserved",
        (false, true) => "asked",
        (false, false) => "refused",
    };
    let percent = (100 * found.huge).checked_div(len).unwrap_or(0).min(100);
    format!("huge_pages={how} huge_percent={percent}")
}

/// What the kernel's policy for transparent huge pages of shared memory is; None where it has none.
pub fn policy() -> Option<String> {
    selected(&line(Path::new(SHARED))?)
}

/// The word in brackets of `always [never] deny`.
fn selected(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

/// What smaps tells of one mapping.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// Its pages come from those that the administrator reserved.
    reserved: bool,
    /// Bytes in huge pages.
    huge: u64,
}

impl Found {
    /// Of the mapping that holds `address`.
    fn at(smaps: &str, address: usize) -> Option<Self> {
        let mut lines = smaps.lines();
        lines.find(|line| range(line).is_some_and(|(from, to)| (from..to).contains(&address)))?;
        let mut found = Self {
            reserved: false,
            huge: 0,
        };
        for line in lines.take_while(|line| range(line).is_none()) {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let kib = value.trim().strip_suffix(" kB");
            let Some(kib) = kib.and_then(|kib| kib.trim().parse::<u64>().ok()) else {
                continue;
            };
            match key {
                "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => found.huge += kib << 10,
                "Shared_Hugetlb" | "Private_Hugetlb" => {
                    found.huge += kib << 10;
                    found.reserved |= kib > 0;
                }
                _ => {}
            }
        }
        Some(found)
    }
}

/// The addresses of a line that begins a mapping: `7f00-7f01 rw-s …`.
fn range(line: &str) -> Option<(usize, usize)> {
    let (range, _) = line.split_once(' ')?;
    let (from, to) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(from)?, number(to)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-s 00000000 00:01 1    /memfd:nasgauge-ram (deleted)
Size:               4096 kB
KernelPageSize:        4 kB
AnonHugePages:         0 kB
ShmemPmdMapped:     2048 kB
Shared_Hugetlb:        0 kB
VmFlags: rd wr sh mr mw me ms hg
7f0000400000-7f0000800000 rw-s 00000000 00:0f 2    /memfd:nasgauge-ram (deleted)
Size:               4096 kB
KernelPageSize:     2048 kB
Shared_Hugetlb:     4096 kB
Private_Hugetlb:       0 kB
";

    #[test]
    fn the_right_mapping_is_read() {
        let of = |address| Found::at(SMAPS, address);
        let found = |reserved, huge| Some(Found { reserved, huge });
        assert_eq!(of(0x7f00_0000_0000), found(false, 2 << 20));
        assert_eq!(of(0x7f00_003f_ffff), found(false, 2 << 20));
        assert_eq!(of(0x7f00_0040_0000), found(true, 4 << 20));
        assert_eq!(of(0x7f00_0080_0000), None);
    }

    #[test]
    fn the_policy_is_the_word_in_brackets() {
        let text = "always within_size advise [never] deny force";
        assert_eq!(selected(text).as_deref(), Some("never"));
        assert_eq!(selected("nothing"), None);
    }
}
