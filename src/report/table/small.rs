//! Rows of small files: files a second first, since MB/s say little of them.

use super::{latency, rate};
use crate::record::{Row, SmallFiles};
use crate::units::Bytes;

/// What was done to how many files, and the columns.
pub(super) fn heading(row: &Row, files: SmallFiles) -> String {
    let SmallFiles {
        nrfiles,
        filesize,
        entries,
    } = files;
    let what = match (row.direction.as_str(), filesize) {
        ("list", _) => format!(
            "list a directory of {} entries; latency of a whole listing",
            entries.unwrap_or(u64::from(nrfiles))
        ),
        (op @ ("create" | "open"), 1..) => format!("{op} {nrfiles} files of {}", Bytes(filesize)),
        (op @ ("create" | "open"), 0) => format!("{op} {nrfiles} empty files"),
        (op, _) => format!("{op} {nrfiles} files"),
    };
    format!(
        "\n{}: {what}\n  {:<8}{:>9} {:>9} {:>9} {:>9} {:>7} {:>10} {:>10}\n",
        row.workload, "target", "in flight", "files/s", "MB/s", "MiB/s", "Gbit/s", "median", "p99"
    )
}

/// One row.
pub(super) fn line(row: &Row, target: &str) -> String {
    let [megabytes, mebibytes, gigabits] = rate(row.throughput());
    let files = row
        .files_per_s()
        .map_or_else(|| "-".into(), |files| format!("{files:.0}"));
    format!(
        "  {target:<8}{:>9} {files:>9} {megabytes:>9} {mebibytes:>9} {gigabits:>7} {:>10} {:>10}\n",
        format!("{}x{}", row.lanes, row.iodepth),
        latency(row.latency_ns.p50),
        latency(row.latency_ns.p99),
    )
}
