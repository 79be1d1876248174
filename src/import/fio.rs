//! fio: its three forms of output, and what they share.
//!
//! `json` (json, json+), `terse` (versions 3 to 5), `text` (the normal output of versions 2 and 3). Must not know: other tools.

use serde_json::{Map, Value};

use super::test::{Side, Test};
use super::{Imported, Input};
use crate::error::Result;
use crate::record::{Interval, Row, Status};

mod json;
mod terse;
mod text;

/// fio's JSON.
pub(super) fn json(input: &Input<'_>) -> Option<Result<Imported>> {
    json::read(input)
}

/// fio's terse lines.
pub(super) fn terse(input: &Input<'_>) -> Option<Result<Imported>> {
    terse::read(input)
}

/// fio's normal output.
pub(super) fn text(input: &Input<'_>) -> Option<Result<Imported>> {
    text::read(input)
}

/// Engines that keep one request under way whatever depth is asked of them.
const ONE_AT_A_TIME: &[&str] = &["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"];

/// A job's options, by fio's names.
#[derive(Debug, Clone, Default)]
struct Options(Map<String, Value>);

impl Options {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.trim().parse().ok()
    }

    /// Whether a flag is set: `1`, or without a value.
    fn is_set(&self, name: &str) -> bool {
        self.0.contains_key(name) && !matches!(self.get(name), Some("0" | "none"))
    }

    /// The access pattern, without what follows a colon.
    fn pattern(&self) -> Option<&str> {
        let pattern = self.get("rw").or_else(|| self.get("readwrite"))?;
        pattern.split(':').next()
    }

    /// Bytes of a block, where all are alike; fio's default where it is not told and the options are.
    fn block(&self, direction: &str) -> Option<u64> {
        if self.0.contains_key("bssplit") || self.0.contains_key("bsrange") {
            return None;
        }
        let Some(all) = self.get("bs").or_else(|| self.get("blocksize")) else {
            return (!self.0.is_empty()).then_some(4096);
        };
        let mut parts = all.split(',');
        let first = parts.next()?;
        let chosen = match direction {
            "write" => parts
                .next()
                .filter(|part| !part.is_empty())
                .unwrap_or(first),
            _ => first,
        };
        size(chosen)
    }

    /// When a write counts as written.
    fn durability(&self) -> &'static str {
        let sync = self.get("sync");
        if self.number("fdatasync") == Some(1) || matches!(sync, Some("dsync")) {
            "datasync"
        } else if self.number("fsync") == Some(1) || matches!(sync, Some("1" | "sync")) {
            "sync"
        } else if self.is_set("end_fsync") || self.is_set("fsync_on_close") {
            "flush"
        } else {
            "none"
        }
    }

    /// What the data was like.
    fn payload(&self) -> String {
        let percent = self
            .number("buffer_compress_percentage")
            .filter(|share| *share > 0);
        match percent {
            _ if self.is_set("zero_buffers") => "zero".into(),
            Some(share) => format!("compressible {share} %"),
            None if self.is_set("refill_buffers") => "incompressible".into(),
            None => "unknown".into(),
        }
    }

    /// What was read or written, and the key of its protocol.
    fn target(&self, engine: &str, name: &str) -> (String, &'static str) {
        let file = self.get("filename").unwrap_or("");
        let directory = self.get("directory").unwrap_or("");
        let text = match (directory, file) {
            ("", "") => name.to_owned(),
            (directory, "") => directory.to_owned(),
            ("", file) => file.to_owned(),
            (directory, file) => format!("{}/{file}", directory.trim_end_matches('/')),
        };
        let protocol = match engine {
            "nfs" => "nfs",
            "libiscsi" => "iscsi",
            "net" | "netsplice" => "tcp",
            "null" => "null",
            _ if file.starts_with("/dev/") => "block",
            _ => "file",
        };
        (text, protocol)
    }

    /// The test that they describe; `clones` is how many of them ran.
    fn test(&self, job: &str, name: &str, clones: u16) -> Test {
        let known = !self.0.is_empty();
        let engine = self
            .get("ioengine")
            .unwrap_or(if known { "psync" } else { "" });
        let (target, protocol) = self.target(engine, name);
        let mut negotiated = Vec::new();
        if self.is_set("direct") {
            negotiated.push("direct");
        }
        let depth = match self.number("iodepth") {
            Some(_) if ONE_AT_A_TIME.contains(&engine) => 1,
            told => told.unwrap_or(u64::from(known)),
        };
        let durability = self.durability();
        Test {
            row: Row {
                target,
                protocol: protocol.into(),
                engine: if engine.is_empty() {
                    "fio".into()
                } else {
                    format!("fio/{engine}")
                },
                workload: job.to_owned(),
                pattern: self
                    .pattern()
                    .unwrap_or(if known { "read" } else { "" })
                    .to_owned(),
                iodepth: u16::try_from(depth).unwrap_or(u16::MAX),
                lanes: clones,
                size_bytes: self
                    .get("size")
                    .and_then(size)
                    .map_or(0, |size| size.saturating_mul(u64::from(clones))),
                payload: self.payload(),
                durability: known.then(|| durability.to_owned()),
                // fio's time holds the flush at its end.
                flush_seconds: (durability == "flush").then_some(0.0),
                negotiated: negotiated.join(" "),
                ..Row::blank()
            },
            cpu_s: None,
        }
    }
}

/// The directions of a pattern; both where it is not known.
fn directions(pattern: Option<&str>) -> &'static [&'static str] {
    match pattern {
        Some("read" | "randread") => &["read"],
        Some("write" | "randwrite" | "trimwrite" | "randtrimwrite") => &["write"],
        Some("trim" | "randtrim") => &[],
        _ => &["read", "write"],
    }
}

/// A size in fio's words: by 1024, but `KiB` by 1000, as its default `kb_base` has it; bytes without a unit.
fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let unit = text[end..].to_lowercase();
    let power = match unit.chars().next() {
        None | Some('b') => 0,
        Some('k') => 1,
        Some('m') => 2,
        Some('g') => 3,
        Some('t') => 4,
        Some('p') => 5,
        _ => return None,
    };
    let base: f64 = if unit.chars().nth(1) == Some('i') {
        1000.0
    } else {
        1024.0
    };
    Some((number * base.powi(power)).round() as u64)
}

/// What fio says beside its figures of how it ended: a signal, a full disk, an error of a server.
fn trouble(text: &str) -> Option<(Status, String)> {
    text.lines().find_map(|line| {
        let line = line.trim();
        if line.starts_with("fio: terminat") {
            return Some((Status::Interrupted, line.to_owned()));
        }
        let failed = line.starts_with("fio: ") && (line.contains("err=") || line.contains("error"));
        failed.then(|| (Status::Failed, line.to_owned()))
    })
}

/// Bytes of a block: what was moved decides where the options can be read in two ways, or are not told.
fn block(options: &Options, direction: &str, side: &Side) -> Option<u64> {
    let told = options.block(direction);
    let each = side
        .bytes
        .checked_div(side.ops)
        .filter(|each| each * side.ops == side.bytes);
    let each = each.filter(|each| each % 512 == 0);
    if options.0.is_empty() || told.is_some() {
        each.or(told)
    } else {
        None
    }
}

/// Rows of one job: a direction that it does not have is none, one in which nothing moved has failed.
fn rows(
    test: &Test,
    options: &Options,
    sides: &[(&'static str, Side)],
    notes: &mut Vec<String>,
) -> Vec<(Row, Vec<Interval>)> {
    let asked = directions(options.pattern());
    let engine = options.get("ioengine").unwrap_or("psync");
    let depth = options.number("iodepth").filter(|depth| *depth > 1);
    if let Some(depth) = depth.filter(|_| ONE_AT_A_TIME.contains(&engine)) {
        notes.push(format!(
            "{}: a depth of {depth} was asked for, but its engine {engine} keeps one request under way",
            test.row.workload
        ));
    }
    let any = sides.iter().any(|(_, side)| side.moved());
    let mut found = Vec::new();
    for (direction, side) in sides {
        let wanted = options.pattern().is_some() && asked.contains(direction);
        if !(side.moved() || wanted || !any && *direction == "read") {
            continue;
        }
        let mut test = test.clone();
        test.row.block_size_bytes = block(options, direction, side);
        let row = test.row(direction, side);
        if let Some(contradiction) = side.contradiction() {
            notes.push(format!("{}, {direction}: {contradiction}", row.workload));
        }
        found.push((row, Vec::new()));
    }
    found
}
