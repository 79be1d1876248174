//! What this computer's own counters say of a cell: columns of its rows, and whether they bear its bytes out.
//!
//! Must not know: how the cell was driven. Sizes are in bytes.

use crate::op::Direction;
use crate::probe::Counters;
use crate::record::{Flag, HostCounters, Row, Status};
use crate::run::way::Way;

/// A counter may miss this share of what was claimed.
const TOLERANCE: f64 = 0.05;
/// Less than this is not judged: a page here or there would decide.
const LEAST: u64 = 8 << 20;
/// The shortest header that each operation has on the wire: iSCSI's (RFC 7143, 11.2); those of ONC RPC with NFS and
/// of SMB2 are longer. TCP's own come on top, but many operations may share one.
const HEADER: u64 = 48;
/// What this process may read beside its target: its own program's pages, and 4 KiB of a file's map an operation.
const ASIDE: u64 = 32 << 20;
const ASIDE_EACH: u64 = 4096;

/// What a phase claims to have moved from its start to its end, ramp and flush included.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Claim {
    /// Bytes of both directions.
    pub(super) bytes: u64,
    /// Operations of the measured time: no more than there were.
    pub(super) ops: u64,
    /// Nothing was written.
    pub(super) only_reads: bool,
    /// The kernel was asked not to cache, and agreed.
    pub(super) direct: bool,
}

/// A counter that should have seen at least, and perhaps at most, what was claimed.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Count {
    seen: u64,
    at_least: u64,
    /// Only where nothing but the claim can have moved the counter.
    at_most: Option<u64>,
}

impl Count {
    fn disagrees(&self) -> bool {
        (self.seen as f64) < self.at_least as f64 * (1.0 - TOLERANCE)
            || self
                .at_most
                .is_some_and(|most| self.seen as f64 > most as f64 * (1.0 + TOLERANCE))
    }
}

/// Whether an independent counter of the kernel contradicts what was claimed, by more than 5 %.
///
/// The counters are read when all sessions stand and nothing has moved, and again when all workers have ended, flushes
/// included, so no time is cut off on either side. They are compared with the bytes of that same time, ramp included.
///
/// - **Network** (our own clients, whose every byte crosses the wire; a kernel's mount only with direct I/O): bytes both
///   ways of all interfaces that can have carried it, each byte once: of the loopback when the server is here, else of
///   every card that stands on no other. Headers and other traffic only add, and no one knows how much, so only
///   *fewer* than the bytes and one 48-byte header an operation is a contradiction. Small blocks are thereby not
///   excused by their headers. A card whose driver counts late gets a second look (`drive`).
/// - **Storage** (direct I/O to one known disk; what the page cache does is told by `cache_state`): what the kernel
///   charged to this process (/proc/self/io) and what passed the disk. Fewer is a contradiction in both. *More* is one
///   only where the counter is ours alone: reads of this process in a phase without writes, beyond the file's map. A
///   disk that counted nothing at all keeps no count.
/// - Under 8 MiB, and where nothing counts (null, sim, ram, ZFS, several disks), nothing is said.
pub(super) fn contradict(way: &Way, claim: Claim, passed: &Counters) -> bool {
    claim.bytes >= LEAST && counts(way, claim, passed).iter().any(Count::disagrees)
}

/// Marks a row whose bytes the counters contradict. A failed one claims nothing, and where a user's own file lies is not
/// known.
pub(super) fn mark(row: &mut Row, way: &Way, claim: Claim, passed: &Counters) {
    let claims = matches!(row.status, Status::Ok | Status::Interrupted);
    let elsewhere = row.flags.contains(&Flag::UserFile) && matches!(way, Way::Storage(_));
    if claims && !elsewhere && contradict(way, claim, passed) {
        row.flags.push(Flag::CountersDisagree);
    }
}

/// The same of a network target elsewhere, whose cards may not have counted everything yet.
pub(super) fn may_lag(way: &Way, claim: Claim, passed: &Counters) -> bool {
    matches!(way, Way::Network(network) if network.leaves()) && contradict(way, claim, passed)
}

fn counts(way: &Way, claim: Claim, passed: &Counters) -> Vec<Count> {
    let least = |seen: u64, at_least: u64| Count {
        seen,
        at_least,
        at_most: None,
    };
    let mut found = Vec::new();
    match way {
        Way::Network(network) if claim.direct || !network.mounted => {
            let seen = passed.traffic.as_ref().and_then(|all| network.at_most(all));
            let headers = claim.ops.saturating_mul(HEADER);
            found.extend(seen.map(|seen| least(seen, claim.bytes.saturating_add(headers))));
        }
        Way::Storage(Some(disk)) if claim.direct => {
            found.extend(passed.io.map(|io| Count {
                seen: io.read_bytes.saturating_add(io.write_bytes),
                at_least: claim.bytes,
                at_most: None,
            }));
            found.extend(passed.io.filter(|_| claim.only_reads).map(|io| {
                Count {
                    seen: io.read_bytes,
                    at_least: claim.bytes,
                    at_most: Some(
                        claim
                            .bytes
                            .saturating_add(ASIDE)
                            .saturating_add(claim.ops.saturating_mul(ASIDE_EACH)),
                    ),
                }
            }));
            let disk = passed.disks.as_ref().and_then(|all| all.by_name.get(disk));
            let moved = disk.map(|disk| disk.read_bytes.saturating_add(disk.write_bytes));
            found.extend(
                moved
                    .filter(|moved| *moved > 0)
                    .map(|moved| least(moved, claim.bytes)),
            );
        }
        _ => {}
    }
    found
}

/// Fills what the counters say of the measured time into a row of that direction.
pub(super) fn fill(row: &mut Row, way: &Way, direction: Direction, passed: &Counters) {
    let busiest = passed
        .cpu
        .as_ref()
        .and_then(crate::probe::cpu::Ticks::busiest);
    row.busiest_core_percent = busiest.map(|share| share.busy);
    row.host = HostCounters {
        busiest_core: busiest.map(|share| share.core),
        busiest_core_softirq_percent: busiest.map(|share| share.softirq),
        steal_percent: passed
            .cpu
            .as_ref()
            .and_then(crate::probe::cpu::Ticks::steal),
        throttled_periods: passed.throttle.map(|throttle| throttle.throttled_periods),
    };
    if let Way::Network(network) = way {
        let bytes = passed.traffic.as_ref().and_then(|all| network.towards(all));
        row.network_bytes = bytes.map(|bytes| match direction {
            Direction::Read => bytes.received,
            Direction::Write => bytes.sent,
        });
        row.retransmits = passed.tcp.map(|tcp| tcp.retransmits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::block;
    use crate::probe::disk;
    use crate::probe::process::Io;
    use crate::probe::traffic::Traffic;
    use crate::spec::uri::TargetSpec;

    const GB: u64 = 1_000_000_000;

    fn loopback() -> Way {
        Way::of(&TargetSpec::parse("nfs://127.0.0.1/x").expect("a URI"))
    }

    fn passed_lo(bytes: u64) -> Counters {
        let text = format!("lo: {bytes} 1 0 0 0 0 0 0 {bytes} 1 0 0 0 0 0 0\n");
        Counters {
            traffic: Traffic::parse(&text),
            ..Counters::default()
        }
    }

    fn claim(bytes: u64, ops: u64) -> Claim {
        Claim {
            bytes,
            ops,
            only_reads: true,
            direct: false,
        }
    }

    #[test]
    fn fewer_bytes_on_the_wire_than_claimed_are_a_contradiction_and_more_are_not() {
        let way = loopback();
        let says = |claimed, seen| contradict(&way, claim(claimed, 1000), &passed_lo(seen));
        assert!(!says(GB, GB + GB / 50), "headers");
        assert!(!says(GB, 3 * GB), "other traffic");
        assert!(!says(GB, GB * 96 / 100), "within 5 %");
        assert!(says(GB, GB * 94 / 100));
        assert!(says(GB, 0), "nothing was sent at all");
        assert!(!says(LEAST - 1, 0), "too little to judge");
        assert!(
            !contradict(&way, claim(GB, 1000), &Counters::default()),
            "unknown"
        );
    }

    #[test]
    fn headers_of_small_blocks_are_no_excuse() {
        // A tenth of all 512-byte blocks never crossed the wire; what did has 60 bytes of headers each.
        let ops = 2_000_000;
        let seen = (512 + 60) * (ops * 9 / 10);
        assert!(seen > 512 * ops, "by bytes alone it would pass");
        assert!(contradict(
            &loopback(),
            claim(512 * ops, ops),
            &passed_lo(seen)
        ));
        let whole = (512 + 60) * ops;
        assert!(!contradict(
            &loopback(),
            claim(512 * ops, ops),
            &passed_lo(whole)
        ));
    }

    fn passed_disk(own: Io, disk: Option<u64>) -> Counters {
        let mut all = block::All::default();
        if let Some(bytes) = disk {
            let counters = disk::Counters {
                read_bytes: bytes,
                ..disk::Counters::default()
            };
            all.by_name.insert("sda".into(), counters);
        }
        Counters {
            io: Some(own),
            disks: Some(all),
            ..Counters::default()
        }
    }

    #[test]
    fn direct_io_must_reach_the_disk() {
        let way = Way::Storage(Some("sda".into()));
        let own = |read_bytes| Io {
            read_bytes,
            write_bytes: 0,
        };
        let direct = Claim {
            direct: true,
            ..claim(GB, 1000)
        };
        let says = |claim, own, disk| contradict(&way, claim, &passed_disk(own, disk));
        assert!(!says(direct, own(GB), Some(GB)));
        assert!(
            says(direct, own(GB / 2), Some(GB)),
            "half never left memory"
        );
        assert!(
            says(direct, own(GB), Some(GB / 2)),
            "half never reached the disk"
        );
        assert!(
            !says(direct, own(GB), Some(3 * GB)),
            "others use the disk too"
        );
        assert!(!says(direct, own(GB), None), "no such disk in the list");
        assert!(
            !says(direct, own(GB), Some(0)),
            "a disk that keeps no count"
        );
        assert!(
            says(direct, own(2 * GB), None),
            "twice the reads are ours alone"
        );
        let writes = Claim {
            only_reads: false,
            ..direct
        };
        let written = Io {
            read_bytes: 0,
            write_bytes: 2 * GB,
        };
        assert!(!says(writes, written, None), "a file system writes its own");
        let cached = Claim {
            direct: false,
            ..direct
        };
        assert!(
            !says(cached, own(0), Some(0)),
            "cache_state tells of the page cache"
        );
        let unsure = passed_disk(own(0), Some(1));
        assert!(!contradict(&Way::Storage(None), direct, &unsure));
        assert!(!contradict(&Way::Unseen, direct, &unsure));
    }

    #[test]
    fn a_contradicted_row_is_marked_unless_it_claims_nothing() {
        let marks = |status, flags: Vec<Flag>, way: &Way| {
            let mut row = Row {
                status,
                flags,
                ..Row::blank()
            };
            let direct = Claim {
                direct: true,
                ..claim(GB, 10)
            };
            let passed = Counters {
                io: Some(Io {
                    read_bytes: 0,
                    write_bytes: 0,
                }),
                ..passed_lo(GB / 2)
            };
            mark(&mut row, way, direct, &passed);
            row.flags.contains(&Flag::CountersDisagree)
        };
        let disk = Way::Storage(Some("sda".into()));
        for way in [&loopback(), &disk] {
            assert!(marks(Status::Ok, Vec::new(), way));
            assert!(marks(Status::Interrupted, Vec::new(), way));
            assert!(!marks(Status::Failed, Vec::new(), way));
        }
        assert!(marks(Status::Ok, vec![Flag::UserFile], &loopback()));
        assert!(
            !marks(Status::Ok, vec![Flag::UserFile], &disk),
            "it may lie elsewhere"
        );
        assert!(
            !marks(Status::Ok, Vec::new(), &Way::Unseen),
            "null, sim and ram"
        );
    }

    #[test]
    fn a_row_gets_the_bytes_of_its_own_direction() {
        let mut row = Row::blank();
        let text = "lo: 70 1 0 0 0 0 0 0 80 1 0 0 0 0 0 0\n";
        let passed = Counters {
            traffic: Traffic::parse(text),
            ..Counters::default()
        };
        fill(&mut row, &loopback(), Direction::Write, &passed);
        assert_eq!((row.network_bytes, row.retransmits), (Some(80), None));
        fill(&mut row, &loopback(), Direction::Read, &passed);
        assert_eq!(row.network_bytes, Some(70));
        let mut local = Row::blank();
        fill(&mut local, &Way::Unseen, Direction::Read, &passed);
        assert_eq!(local.network_bytes, None);
    }
}
