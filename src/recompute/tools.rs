//! What each tool means by its units, and how its lines look: a new tool is one entry of [`TOOLS`].
//!
//! Found in the tools' documentation, their sources or by running them; each entry says which prefix a printed `MB` or
//! `Mbit` has there. Pure. Must not know: numbers.

use crate::recompute::units::Base;

/// A tool whose words are known.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What its open byte units are.
    pub bytes: Base,
    /// What its bit units are.
    pub bits: Base,
    /// It cuts whole seconds off instead of rounding them.
    pub cuts: bool,
    /// It measures the network alone.
    pub network: bool,
    /// What must be said of its figures.
    pub label: Option<&'static str>,
    /// Whether a line, in lower case and with single blanks, is of it.
    mark: fn(&str) -> bool,
}

/// Most tools: bytes by 1024, bits by 1000, no network, rounding.
const COMMON: Tool = Tool {
    name: "",
    bytes: Base::Binary,
    bits: Base::Decimal,
    cuts: false,
    network: false,
    label: None,
    mark: |_| false,
};

fn has(line: &str, words: &[&str]) -> bool {
    words.iter().all(|word| line.contains(word))
}

/// Every tool; the first whose mark fits has the line.
pub const TOOLS: &[Tool] = &[
    Tool {
        // (1.0GB) without a blank, and `seconds`: its human-readable numbers are by 1024.
        name: "busybox dd",
        mark: |line| has(line, &["b) copied, ", " seconds, "]) && !has(line, &[" gb) "]) && !has(line, &[" mb) "]),
        ..COMMON
    },
    Tool {
        name: "dd",
        bytes: Base::Decimal,
        mark: |line| {
            has(line, &[" bytes", " copied, "])
                || has(line, &[" bytes", " kopiert, "])
                || has(line, &["bytes transferred in", "bytes/sec)"])
        },
        ..COMMON
    },
    Tool {
        name: "lftp",
        mark: |line| has(line, &["bytes transferred in ", " second"]) && line.ends_with(')'),
        ..COMMON
    },
    Tool {
        name: "nuttcp",
        network: true,
        mark: |line| has(line, &[" mb / ", " sec = ", "mbps"]),
        ..COMMON
    },
    Tool {
        // Two decimals in the interval, or its words for the two ends.
        name: "iperf3",
        network: true,
        mark: |line| {
            interval(line)
                && (line.ends_with(" sender") || line.ends_with(" receiver") || two_decimals(line))
        },
        ..COMMON
    },
    Tool {
        name: "iperf",
        network: true,
        mark: interval,
        ..COMMON
    },
    Tool {
        // Version 2 says KB and means 1024 bytes; version 3 prints MiB and MB.
        name: "fio 2",
        mark: |line| {
            has(line, &["bw="]) && !has(line, &["ib/s"]) && (has(line, &["runt="]) || has(line, &["aggrb="]))
        },
        ..COMMON
    },
    Tool {
        name: "fio",
        bytes: Base::Decimal,
        mark: |line| has(line, &["bw=", "ib/s ("]),
        ..COMMON
    },
    Tool {
        name: "CrystalDiskMark",
        bytes: Base::Decimal,
        label: Some("the best of its runs"),
        mark: |line| {
            has(line, &["mb/s", "(q=", "t="])
                || has(line, &["mb/s [", " iops]"])
                || (has(line, &[" : ", "mb/s"])
                    && (line.starts_with("sequential ") || line.starts_with("random ")))
        },
        ..COMMON
    },
    Tool {
        name: "robocopy",
        mark: |line| {
            has(line, &["speed :", "bytes/sec."]) || has(line, &["speed :", "megabytes/min"])
        },
        ..COMMON
    },
    Tool {
        name: "smbclient",
        mark: |line| has(line, &["kilobytes/sec) (average "]) || has(line, &[" kb/s) (average "]),
        ..COMMON
    },
    Tool {
        // ftp.exe divides by 1000, by ticks of 16 ms.
        name: "ftp of Windows",
        bytes: Base::Decimal,
        mark: |line| line.contains("ftp: ") && has(line, &["seconds", "kbytes/sec"]),
        ..COMMON
    },
    Tool {
        name: "ftp",
        mark: |line| has(line, &["bytes received in "]) || has(line, &["bytes sent in "]),
        ..COMMON
    },
    Tool {
        name: "wget",
        mark: |line| has(line, &["b/s) - ", "saved ["]),
        ..COMMON
    },
    Tool {
        // Its bits are by 1024 as well.
        name: "nload",
        bits: Base::Binary,
        network: true,
        mark: |line| {
            ["curr: ", "avg: ", "min: ", "max: ", "ttl: "]
                .iter()
                .any(|word| line.starts_with(word))
                && (line.contains("bit") || line.contains("byte"))
        },
        ..COMMON
    },
    Tool {
        name: "hdparm",
        mark: |line| has(line, &["timing ", " reads: ", " mb in "]),
        ..COMMON
    },
    Tool {
        // Its totals: human-readable numbers (-h) are by 1000.
        name: "rsync",
        bytes: Base::Decimal,
        mark: |line| has(line, &["sent ", " received ", "bytes/sec"]),
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
    line.starts_with('[') && has(line, &["] ", "-", " sec ", "its/sec"])
        || line.starts_with('[') && has(line, &["] ", "-", " sec ", "ytes/sec"])
}

/// Whether the first number after the brackets has two decimals.
fn two_decimals(line: &str) -> bool {
    let after = line.split_once(']').map_or("", |(_, after)| after.trim_start());
    let first = after.split('-').next().unwrap_or("");
    first.split_once('.').is_some_and(|(_, decimals)| decimals.len() == 2)
}

/// The tool whose line it is.
#[must_use]
pub fn of_line(line: &str) -> Option<&'static Tool> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let line = words.join(" ").to_lowercase();
    TOOLS.iter().find(|tool| (tool.mark)(&line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_their_tools() {
        let cases = [
            ("1073741824 bytes (1.0GB) copied, 0.867793 seconds, 1.2GB/s", "busybox dd"),
            ("10737418240 bytes (11 GB) copied, 38.6415 s, 278 MB/s", "dd"),
            ("1073741824 bytes (1.1 GB) copied, 9.1 seconds, 118 MB/s", "dd"),
            ("20971520 bytes transferred in 1.967966 secs (10656444 bytes/sec)", "dd"),
            ("4442654720 bytes transferred in 8 seconds (502.77M/s)", "lftp"),
            ("[  3]  0.0-10.0 sec  10.9 GBytes  9.39 Gbits/sec", "iperf"),
            ("[  2] 0.0000-1.0013 sec  2.91 GBytes  25.0 Gbits/sec", "iperf"),
            ("[  5]   0.00-1.00   sec  1.31 GBytes  11.3 Gbits/sec    0   1023 KBytes", "iperf3"),
            ("  read : io=1024.3MB, bw=258970KB/s, iops=64742 , runt=  4050msec", "fio 2"),
            ("  write: IOPS=734, BW=734MiB/s (770MB/s)(30.0GiB/41847msec)", "fio"),
            ("  SEQ    1MiB (Q=  8, T= 1):   384.064 MB/s [    366.3 IOPS] < 21765.43 us>", "CrystalDiskMark"),
            ("   Speed :           356962042 Bytes/sec.", "robocopy"),
            ("putting file a as \\a (31,2 kb/s) (average 31,2 kb/s)", "smbclient"),
            ("ftp: 166 bytes received in 0.02Seconds 10.38Kbytes/sec.", "ftp of Windows"),
            ("Curr: 1.10 MByte/s      Curr: 1120.57 MByte/s", "nload"),
        ];
        for (line, name) in cases {
            assert_eq!(of_line(line).map(|tool| tool.name), Some(name), "{line}");
        }
        assert!(of_line("it copied 3 GB in a while").is_none());
    }
}
