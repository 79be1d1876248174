//! Saved `/proc` and `/sys` of several kinds of machine (fixtures/machines), unpacked for the tests of probes, and the tests
//! that all probes share.
//!
//! A tree is one text: `=== path` begins a file, `=== path -> target` is a link. Must not know: what any probe looks for.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use tempfile::TempDir;

use super::{Counters, Snapshot};

/// Network and bus of a machine, then the rest of it.
macro_rules! machine {
    ($kind:literal) => {
        concat!(
            include_str!(concat!("../../fixtures/machines/", $kind, "/net.txt")),
            include_str!(concat!("../../fixtures/machines/", $kind, "/tree.txt"))
        )
    };
}

const VM: &str = machine!("vm");
const BARE_METAL: &str = machine!("bare-metal");
const ZFS_NAS: &str = machine!("zfs-nas");

/// The machines; the last one is an empty directory.
pub(super) const NAMES: &[&str] = &["vm", "bare-metal", "zfs-nas", "empty"];

/// A machine's tree, unpacked.
pub(super) fn tree(name: &str) -> TempDir {
    unpack(text(name))
}

fn text(name: &str) -> &'static str {
    match name {
        "vm" => VM,
        "bare-metal" => BARE_METAL,
        "zfs-nas" => ZFS_NAS,
        "empty" => "",
        other => panic!("no machine is called {other}"),
    }
}

/// Unpacks a text.
pub(super) fn unpack(text: &str) -> TempDir {
    unpack_with(text, |content| content.as_bytes().to_vec())
}

/// Unpacks a text, each file's content changed on the way.
fn unpack_with(text: &str, mut change: impl FnMut(&str) -> Vec<u8>) -> TempDir {
    // Hundreds of small files: in memory where that is possible.
    let root = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a directory");
    for part in format!("\n{text}").split("\n=== ").skip(1) {
        let (path, content) = part.split_once('\n').unwrap_or((part, ""));
        let (path, target) = match path.split_once(" -> ") {
            Some((path, target)) => (path, Some(target)),
            None => (path, None),
        };
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("it can be made");
        match target {
            Some(target) => symlink(target, path).expect("a link"),
            None => fs::write(path, change(content)).expect("a file"),
        }
    }
    root
}

/// A saved netlink answer: `fixtures/machines/MACHINE/netlink/NAME.bin`.
pub(super) fn answer(machine: &str, name: &str) -> Vec<u8> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/machines");
    let path = directory.join(machine).join("netlink").join(name);
    fs::read(path.with_extension("bin")).expect("a saved answer")
}

/// Each probe with the machines on which it finds something.
fn expected() -> Vec<(&'static str, &'static [&'static str])> {
    let all: &[&str] = &["vm", "bare-metal", "zfs-nas"];
    vec![
        ("host", all),
        ("processor", all),
        ("limits", all),
        ("writeback", all),
        ("disks", all),
        ("arrays", &["bare-metal"]),
        ("btrfs", &["bare-metal"]),
        ("pools", &["zfs-nas"]),
        ("mounts", all),
        ("tcp_settings", all),
        ("pcie", &["bare-metal", "zfs-nas"]),
        ("steering", all),
        // The clock is not in any file.
        ("at_ns", NAMES),
        ("cpu", all),
        ("threads", &["vm", "zfs-nas"]),
        ("throttle", all),
        ("memory", all),
        ("arc", &["zfs-nas"]),
        ("traffic", all),
        ("interfaces", all),
        ("interrupts", all),
        ("packet_queues", all),
        ("tcp", all),
        ("pressure", &["vm", "zfs-nas"]),
        ("io", &["vm", "zfs-nas"]),
    ]
}

fn probes() -> impl Iterator<Item = &'static (&'static str, fn(&Path) -> bool)> {
    Snapshot::PROBES.iter().chain(Counters::PROBES)
}

#[test]
fn every_probe_finds_what_each_machine_has_and_nothing_else() {
    let expected = expected();
    for machine in NAMES {
        let tree = tree(machine);
        for (probe, finds) in probes() {
            let row = expected.iter().find(|(name, _)| name == probe);
            let (_, machines) = row.unwrap_or_else(|| panic!("no row for the probe {probe}"));
            assert_eq!(
                finds(tree.path()),
                machines.contains(machine),
                "{probe} on {machine}"
            );
        }
    }
}

#[test]
fn readings_travel_as_json_and_come_back() {
    for machine in NAMES {
        let tree = tree(machine);
        let snapshot = Snapshot::under(tree.path());
        let text = serde_json::to_string(&snapshot).expect("plain data");
        let back: Snapshot = serde_json::from_str(&text).expect("its own text");
        assert_eq!(back, snapshot, "{machine}");
        let counters = Counters::under(tree.path());
        let text = serde_json::to_string(&counters).expect("plain data");
        let back: Counters = serde_json::from_str(&text).expect("its own text");
        assert_eq!(back, counters, "{machine}");
    }
}

#[test]
fn a_reading_less_itself_is_nothing_done() {
    let tree = tree("zfs-nas");
    let now = Counters::under(tree.path());
    let passed = Counters::under(tree.path()).since(&now);
    assert!(passed.at_ns > Some(0), "time passes");
    assert_eq!(passed.cpu.and_then(|cpu| cpu.busiest()), None);
    assert_eq!(passed.tcp.map(|tcp| tcp.retransmits), Some(0));
    assert_eq!(passed.throttle.map(|one| one.throttled_periods), Some(0));
    assert_eq!(passed.arc.map(|arc| (arc.hits, arc.misses)), Some((0, 0)));
    assert_eq!(passed.memory, now.memory, "a level is no difference");
    let nothing = now.since(&Counters::default());
    assert_eq!((nothing.cpu, nothing.io, nothing.disks), (None, None, None));
}

#[test]
fn this_computer_can_be_read_and_moves() {
    let before = Counters::now();
    let mut sum = 0u64;
    while before.cpu == Counters::now().cpu {
        sum = sum.wrapping_add(std::hint::black_box(1));
    }
    let passed = Counters::now().since(&before);
    assert!(passed.cpu.and_then(|cpu| cpu.busiest()).is_some());
    assert!(passed.threads.is_some_and(|threads| !threads.is_empty()));
    let snapshot = Snapshot::now();
    assert!(
        snapshot
            .host
            .is_some_and(|host| host.architecture.is_some())
    );
}

/// What may become of a file's content.
fn garbled(content: &str, seed: u64, bytes: &[u8]) -> Vec<u8> {
    let mut content = content.as_bytes().to_vec();
    let at = usize::try_from(seed % (content.len() as u64 + 1)).expect("within");
    match seed % 5 {
        0 => content.truncate(at),
        1 => content = bytes.to_vec(),
        2 => {
            content.splice(at..at, bytes.iter().copied());
        }
        // The largest numbers, where sums and products overflow.
        3 => {
            content = String::from_utf8_lossy(&content)
                .split(' ')
                .map(|word| match word.parse::<u64>() {
                    Ok(_) => u64::MAX.to_string(),
                    Err(_) => word.to_owned(),
                })
                .collect::<Vec<_>>()
                .join(" ")
                .into_bytes();
        }
        _ => content.reverse(),
    }
    content
}

/// The machines' counters as they are.
static WHOLE: LazyLock<Vec<Counters>> = LazyLock::new(|| {
    NAMES
        .iter()
        .map(|name| Counters::under(tree(name).path()))
        .collect()
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn garbage_never_ends_a_probe(
        machine in 0usize..3,
        mut seed: u64,
        bytes in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let tree = unpack_with(text(NAMES[machine]), |content| {
            seed = crate::payload::mix(seed);
            garbled(content, seed, &bytes)
        });
        for (_, finds) in probes() {
            finds(tree.path());
        }
        let now = Counters::under(tree.path());
        let whole = &WHOLE[machine];
        for passed in [now.since(whole), whole.since(&now)] {
            let _ = passed.cpu.map(|cpu| (cpu.busiest(), cpu.steal()));
            let _ = passed.traffic.map(|traffic| traffic.wires());
        }
    }
}
