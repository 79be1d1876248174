//! What each tool means by its units, and how its lines look: a new tool is one entry of [`TOOLS`].
//!
//! Found in the tools' documentation, in their sources or by running them; each entry says which prefix a printed `MB` or
//! `Mbit` has there. Pure. Must not know: numbers.

use crate::recompute::units::Base;

/// How the quantities of a tool's line belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// All of them are of one transfer.
    Whole,
    /// iperf: an id in brackets, and after the rate what is no part of it.
    Streams,
    /// nuttcp: a name in front, and a round-trip time behind.
    Named,
    /// nload: both ways beside each other.
    Sides,
    /// fio: its first rate, and behind it those of single jobs.
    Jobs,
    /// `CrystalDiskMark`: a test's name with its block size, a rate, operations and a latency.
    Marks,
    /// rsync: what was sent and what was received.
    Totals,
    /// wget and smbclient: the size stands in words, and behind the rate a mean over several files.
    File,
}

/// A tool whose words are known.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What its open byte units are; None where versions differ.
    pub bytes: Option<Base>,
    /// What its bit units are.
    pub bits: Base,
    /// It cuts whole seconds off instead of rounding them.
    pub cuts: bool,
    /// It measures the network alone.
    pub network: bool,
    /// What must be said of its figures.
    pub label: Option<&'static str>,
    /// How its lines are built.
    pub shape: Shape,
    /// Whether a line, in lower case and with single blanks, is of it.
    mark: fn(&str) -> bool,
}

/// Most tools: bytes by 1024, bits by 1000, no network, rounding.
const COMMON: Tool = Tool {
    name: "",
    bytes: Some(Base::Binary),
    bits: Base::Decimal,
    cuts: false,
    network: false,
    label: None,
    shape: Shape::Whole,
    mark: |_| false,
};

fn has(line: &str, words: &[&str]) -> bool {
    words.iter().all(|word| line.contains(word))
}

/// Every tool; the first whose mark fits has the line.
pub const TOOLS: &[Tool] = &[
    Tool {
        // `(1.0GB) copied` and `seconds`: its human-readable numbers are by 1024. GNU dd has a blank before the unit.
        name: "busybox dd",
        mark: |line| {
            let inside = line.split(['(', ')']).nth(1).unwrap_or("");
            has(line, &[" bytes (", "b) copied, ", " seconds, "]) && !inside.contains(' ')
        },
        ..COMMON
    },
    Tool {
        // GNU dd: SI units, and IEC ones written as such. BSD's dd prints whole bytes per second.
        name: "dd",
        bytes: Some(Base::Decimal),
        mark: |line| {
            let words = ["copied, ", "kopiert, ", "copiés, "];
            let gnu = words.iter().any(|word| line.contains(word))
                && (line.contains(" s, ") || line.contains(" seconds, "));
            gnu && (has(line, &[" (", "b) "]) || line.contains(" bytes copied, "))
                || has(line, &[" bytes transferred in ", " sec", "bytes/sec)"])
        },
        ..COMMON
    },
    Tool {
        name: "lftp",
        mark: |line| has(line, &["bytes transferred in ", " second"]) && line.ends_with("/s)"),
        ..COMMON
    },
    Tool {
        name: "nuttcp",
        network: true,
        shape: Shape::Named,
        mark: |line| has(line, &[" mb / ", " sec = ", "mbps"]),
        ..COMMON
    },
    Tool {
        // Two decimals in the interval, or its words for the two ends.
        name: "iperf3",
        network: true,
        shape: Shape::Streams,
        mark: |line| {
            interval(line)
                && (line.ends_with(" sender") || line.ends_with(" receiver") || two_decimals(line))
        },
        ..COMMON
    },
    Tool {
        name: "iperf",
        network: true,
        shape: Shape::Streams,
        mark: interval,
        ..COMMON
    },
    Tool {
        // Version 2 says KB and means 1024 bytes; its last ones and version 3 print MiB, and MB beside it.
        name: "fio 2",
        shape: Shape::Jobs,
        mark: |line| {
            (has(line, &["bw=", "runt="]) || line.contains("aggrb=")) && !line.contains("ib/s")
        },
        ..COMMON
    },
    Tool {
        name: "fio",
        bytes: Some(Base::Decimal),
        shape: Shape::Jobs,
        mark: |line| has(line, &["bw=", "ib/s ("]),
        ..COMMON
    },
    Tool {
        name: "CrystalDiskMark",
        bytes: Some(Base::Decimal),
        label: Some("max: the best of its runs, not a mean"),
        shape: Shape::Marks,
        mark: |line| {
            has(line, &[" mb/s", "(q="])
                || has(line, &[" mb/s [", " iops]"])
                || (has(line, &[" : ", " mb/s"])
                    && (line.starts_with("sequential ") || line.starts_with("random ")))
        },
        ..COMMON
    },
    Tool {
        // Its lines are translated, its units are not.
        name: "robocopy",
        mark: |line| {
            let label = line.split(" :").next().unwrap_or(line);
            let label = label.split(':').next().unwrap_or("").trim();
            let lone = !label.is_empty() && !label.contains(' ') && line.contains(':');
            lone && (line.ends_with(" bytes/sec.")
                || line.ends_with(" megabytes/min.")
                || line.ends_with(" bytes/sek."))
        },
        ..COMMON
    },
    Tool {
        name: "smbclient",
        shape: Shape::File,
        mark: |line| has(line, &[" kilobytes/sec) (average "]) || has(line, &[" kb/s) (average "]),
        ..COMMON
    },
    Tool {
        // It divides by 1000.
        name: "ftp of Windows",
        bytes: Some(Base::Decimal),
        mark: |line| line.starts_with("ftp: ") && has(line, &["seconds", "kbytes/sec"]),
        ..COMMON
    },
    Tool {
        // Some divide by 1024, some by 1000.
        name: "ftp",
        bytes: None,
        mark: |line| line.contains(" bytes received in ") || line.contains(" bytes sent in "),
        ..COMMON
    },
    Tool {
        name: "wget",
        shape: Shape::File,
        mark: |line| has(line, &["b/s) - ", " saved ["]),
        ..COMMON
    },
    Tool {
        name: "nload",
        bits: Base::Binary,
        network: true,
        shape: Shape::Sides,
        mark: |line| {
            let words = ["curr: ", "avg: ", "min: ", "max: ", "ttl: "];
            words.iter().any(|word| line.starts_with(word))
                && (line.contains("bit") || line.contains("byte"))
        },
        ..COMMON
    },
    Tool {
        name: "hdparm",
        mark: |line| has(line, &["timing ", " reads: ", " mb in ", " mb/sec"]),
        ..COMMON
    },
    Tool {
        // Its totals: human-readable numbers (-h) are by 1000.
        name: "rsync",
        bytes: Some(Base::Decimal),
        shape: Shape::Totals,
        mark: |line| line.starts_with("sent ") && has(line, &[" received ", "bytes/sec"]),
        ..COMMON
    },
];

/// The progress line of rsync: size, percentage, rate, time.
pub static RSYNC: Tool = Tool {
    name: "rsync",
    cuts: true,
    ..COMMON
};

/// The progress line of scp: percentage, size, rate, time.
pub static SCP: Tool = Tool {
    name: "scp",
    cuts: true,
    ..COMMON
};

/// A table of ifstat: both its kilobytes and its kilobits are by 1024.
pub static IFSTAT: Tool = Tool {
    name: "ifstat",
    bits: Base::Binary,
    network: true,
    ..COMMON
};

/// `[  3]  0.0-10.0 sec  10.9 GBytes ..`, in lower case and with single blanks.
fn interval(line: &str) -> bool {
    line.starts_with('[')
        && has(line, &["]", "-", " sec "])
        && (line.contains("bits/sec") || line.contains("bytes/sec"))
}

/// Whether the first number after the brackets has two decimals.
fn two_decimals(line: &str) -> bool {
    let after = line
        .rsplit_once(']')
        .map_or("", |(_, after)| after.trim_start());
    let first = after.split('-').next().unwrap_or("");
    first
        .split_once('.')
        .is_some_and(|(_, decimals)| decimals.len() == 2)
}

/// A line as the marks want it.
#[must_use]
pub fn plain(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.join(" ").to_lowercase()
}

/// The tool whose line it is; the line as [`plain`] gives it.
#[must_use]
pub fn of_line(plain: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| (tool.mark)(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_their_tools() {
        let cases = [
            (
                "1073741824 bytes (1.0GB) copied, 0.867793 seconds, 1.2GB/s",
                "busybox dd",
            ),
            (
                "10737418240 bytes (11 GB) copied, 38.6415 s, 278 MB/s",
                "dd",
            ),
            (
                "2536201 bytes (2.5 MB, 2.4 MiB) copied, 3.55005 s, 714 kB/s",
                "dd",
            ),
            (
                "1073741824 bytes (1.1 GB) copied, 9.1 seconds, 118 MB/s",
                "dd",
            ),
            (
                "1073741824 Bytes (1,1 GB, 1,0 GiB) kopiert, 9,12345 s, 118 MB/s",
                "dd",
            ),
            (
                "20971520 bytes transferred in 1.967966 secs (10656444 bytes/sec)",
                "dd",
            ),
            (
                "4442654720 bytes transferred in 8 seconds (502.77M/s)",
                "lftp",
            ),
            ("[  3]  0.0-10.0 sec  10.9 GBytes  9.39 Gbits/sec", "iperf"),
            (
                "[  2] 0.0000-1.0013 sec  2.91 GBytes  25.0 Gbits/sec",
                "iperf",
            ),
            (
                "[  5]   0.00-1.00   sec  1.31 GBytes  11.3 Gbits/sec    0   1023 KBytes",
                "iperf3",
            ),
            (
                "[  5][TX-C]   0.00-1.00   sec  1.31 GBytes  11.3 Gbits/sec",
                "iperf3",
            ),
            (
                "  read : io=1024.3MB, bw=258970KB/s, iops=64742 , runt=  4050msec",
                "fio 2",
            ),
            (
                "  write: IOPS=734, BW=734MiB/s (770MB/s)(30.0GiB/41847msec)",
                "fio",
            ),
            (
                "  SEQ    1MiB (Q=  8, T= 1):   384.064 MB/s [    366.3 IOPS] < 21765.43 us>",
                "CrystalDiskMark",
            ),
            ("   Speed :           356962042 Bytes/sec.", "robocopy"),
            (
                "    Geschwindigkeit:           163428952 Bytes/Sek.",
                "robocopy",
            ),
            (
                "putting file a as \\a (31,2 kb/s) (average 31,2 kb/s)",
                "smbclient",
            ),
            (
                "ftp: 166 bytes received in 0.02Seconds 10.38Kbytes/sec.",
                "ftp of Windows",
            ),
            ("Curr: 1.10 MByte/s      Curr: 1120.57 MByte/s", "nload"),
        ];
        for (line, name) in cases {
            assert_eq!(
                of_line(&plain(line)).map(|tool| tool.name),
                Some(name),
                "{line}"
            );
        }
        for line in ["it copied 3 GB in a while", "it copied, in 3 s, at 5 MB/s"] {
            assert!(of_line(&plain(line)).is_none(), "{line}");
        }
    }
}
