//! `CrystalDiskMark`'s text, versions 3 to 9: the best of its runs, so every row has the mark `max`.
//!
//! Its MB are 10^6 bytes, the KB of its blocks 1024. It tells rates and no bytes: a row's bytes are the rate times its measured time, or
//! one second where it tells none. Must not know: other formats.

use serde_json::{Map, Value, json};

use super::test::{Side, Test};
use super::{Imported, Input};
use crate::error::Result;
use crate::recompute::recompute;
use crate::record::{Flag, Row};

/// A line of a test.
struct Line {
    direction: &'static str,
    name: String,
    random: bool,
    block: u64,
    depth: u16,
    lanes: u16,
    rate: f64,
    iops: Option<f64>,
    mean_ns: Option<f64>,
}

pub(super) fn read(input: &Input<'_>) -> Option<Result<Imported>> {
    let begins = |line: &&str| {
        line.trim_start_matches(['/', ' '])
            .starts_with("CrystalDiskMark ")
    };
    let head = input.text.lines().find(begins)?;
    let version = head
        .split("CrystalDiskMark ")
        .nth(1)?
        .split_whitespace()
        .next()?;
    let mut section = None;
    let mut settings = Map::new();
    let mut lines = Vec::new();
    for line in input.text.lines() {
        let line = line.trim_start_matches(['/', ' ']).trim();
        match line {
            "[Read]" => section = Some("read"),
            "[Write]" => section = Some("write"),
            "[Mix]" => section = Some("mix"),
            _ => {}
        }
        if let Some(found) = test(line, section, input) {
            lines.push(found);
        } else if let Some((key, value)) = line.split_once(':') {
            let key = key.trim();
            if ["Profile", "Test", "Mode", "Time", "Date", "OS", "Comment"].contains(&key) {
                settings.insert(key.to_lowercase(), json!(value.trim()));
            }
        }
    }
    let seconds = seconds(&settings);
    let mut notes =
        vec!["CrystalDiskMark prints the best of its runs: rows are marked max".to_owned()];
    if seconds.is_none() {
        notes.push("it does not tell its measured time: bytes are those of one second".to_owned());
    }
    let size = settings.get("test").and_then(Value::as_str).and_then(size);
    let tests = lines
        .iter()
        .map(|line| (row(line, input.name, seconds, size), Vec::new()));
    Some(Ok(Imported {
        tool: format!("CrystalDiskMark {version}"),
        tests: tests.collect(),
        settings: Value::Object(settings),
        judged: Vec::new(),
        notes,
    }))
}

/// One of its lines; None for others and for mixed ones, of which it does not tell the parts.
fn test(line: &str, section: Option<&'static str>, input: &Input<'_>) -> Option<Line> {
    let (name, figures) = line
        .rsplit_once(':')
        .filter(|(_, figures)| figures.contains(" MB/s"))?;
    let name = name.trim();
    let lower = name.to_lowercase();
    let direction = if lower.contains("write") {
        "write"
    } else if lower.contains("read") {
        "read"
    } else {
        section.filter(|section| *section != "mix")?
    };
    let found = recompute(figures, input.writing).ok()?;
    let rate = found.findings.first()?.printed_bytes_per_s?.best;
    let bracket = |open: char, close: &str| {
        let (_, rest) = figures.split_once(open)?;
        rest.split(close).next()?.trim().parse::<f64>().ok()
    };
    let depth = after(&lower, &["q=", "qd="]).unwrap_or(1);
    // Sequential tests of old versions name no block: it is 1 MiB, or 128 KiB where they have a queue.
    let unnamed = if depth > 1 { 128 << 10 } else { 1 << 20 };
    let random = lower.starts_with("rnd") || lower.starts_with("random");
    Some(Line {
        direction,
        name: name.split_whitespace().collect::<Vec<_>>().join(" "),
        random,
        block: block(&lower).unwrap_or(unnamed),
        depth,
        lanes: after(&lower, &["t="]).unwrap_or(1),
        rate,
        iops: bracket('[', "IOPS"),
        mean_ns: bracket('<', "us>").map(|micros| micros * 1e3),
    })
}

/// `1mib`, `4kib`, `512kb`.
fn block(name: &str) -> Option<u64> {
    name.split_whitespace().find_map(|word| {
        let digits = word.trim_end_matches(|c: char| c.is_alphabetic());
        let factor = match &word[digits.len()..] {
            "kib" | "kb" => 1 << 10,
            "mib" | "mb" => 1 << 20,
            _ => return None,
        };
        digits.parse::<u64>().ok()?.checked_mul(factor)
    })
}

/// The number after one of these.
fn after(name: &str, keys: &[&str]) -> Option<u16> {
    let (_, rest) = keys.iter().find_map(|key| name.split_once(key))?;
    let digits: String = rest
        .trim_start()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

/// `Measure 5 sec / Interval 5 sec`.
fn seconds(settings: &Map<String, Value>) -> Option<f64> {
    let time = settings.get("time")?.as_str()?;
    let (_, rest) = time.split_once("Measure ")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// `1 GiB (x5) [..]`, `1000 MB [..] (x5)`.
fn size(test: &str) -> Option<u64> {
    let mut words = test.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    let factor = match words.next()? {
        "MiB" | "MB" => 1u64 << 20,
        "GiB" | "GB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    Some((number * factor as f64) as u64)
}

fn row(line: &Line, name: &str, seconds: Option<f64>, bytes: Option<u64>) -> Row {
    let seconds = seconds.unwrap_or(1.0);
    let ops = line.iops.unwrap_or(line.rate / line.block as f64);
    let test = Test {
        row: Row {
            target: name.to_owned(),
            protocol: "file".into(),
            engine: "CrystalDiskMark".into(),
            workload: line.name.clone(),
            pattern: format!(
                "{}{}",
                if line.random { "rand" } else { "" },
                line.direction
            ),
            block_size_bytes: Some(line.block),
            iodepth: line.depth,
            lanes: line.lanes,
            size_bytes: bytes.unwrap_or(0),
            payload: "unknown".into(),
            flags: vec![Flag::Max],
            ..Row::blank()
        },
        cpu_s: None,
    };
    let moved = Side {
        bytes: (line.rate * seconds).round() as u64,
        ops: (ops * seconds).round() as u64,
        seconds: Some(seconds),
        mean_ns: line.mean_ns,
        ..Side::default()
    };
    test.row(line.direction, &moved)
}
