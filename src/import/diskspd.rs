//! diskspd's text: what was asked, and its tables of reads and writes.
//!
//! Must not know: other formats.

use serde_json::{Value, json};

use super::test::{Side, Test};
use super::{Imported, Input};
use crate::error::Result;
use crate::record::{Interval, Row};

/// Where in its output a line stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Parameters,
    Table(&'static str),
    Percentiles,
    Elsewhere,
}

/// One run of it.
struct Run {
    command: String,
    parameters: Vec<String>,
    seconds: Option<f64>,
    threads: u16,
    processors: f64,
    busy: Option<f64>,
    started: String,
    /// Its tables have a mean latency.
    latency: bool,
    read: Side,
    write: Side,
}

pub(super) fn read(input: &Input<'_>) -> Option<Result<Imported>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut place = Place::Elsewhere;
    for line in input.text.lines() {
        let line = line.trim();
        if let Some(command) = line
            .strip_prefix("Command Line: ")
            .filter(|line| line.contains("diskspd"))
        {
            runs.push(Run::new(command));
            place = Place::Elsewhere;
        }
        if let Some(run) = runs.last_mut() {
            place = run.line(line, place);
        }
    }
    if runs.is_empty() {
        return None;
    }
    let mut settings = Vec::new();
    let mut tests = Vec::new();
    let mut notes = Vec::new();
    for run in &runs {
        settings.push(json!({ "command": run.command, "parameters": run.parameters }));
        tests.extend(run.rows(input.name, &mut notes));
    }
    Some(Ok(Imported {
        tool: "diskspd".into(),
        settings: Value::Array(settings),
        tests,
        judged: Vec::new(),
        notes,
    }))
}

/// `duration: 30s`: what stands behind a name.
fn named<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.strip_prefix(name)?
        .trim_start()
        .strip_prefix(':')
        .map(str::trim)
}

fn number(text: &str) -> Option<f64> {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    text[..end]
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
}

impl Run {
    fn new(command: &str) -> Self {
        Self {
            command: command.to_owned(),
            parameters: Vec::new(),
            seconds: None,
            threads: 0,
            processors: 0.0,
            busy: None,
            started: String::new(),
            latency: false,
            read: Side::default(),
            write: Side::default(),
        }
    }

    fn line(&mut self, line: &str, place: Place) -> Place {
        match line {
            "Input parameters:" => return Place::Parameters,
            "System information:" => return Place::Elsewhere,
            "Total IO" => return Place::Table("total"),
            "Read IO" => return Place::Table("read"),
            "Write IO" => return Place::Table("write"),
            _ => {}
        }
        if line.starts_with("%-ile") {
            return Place::Percentiles;
        }
        if let Some(time) = named(line, "actual test time") {
            self.seconds = number(time);
        } else if let Some(count) = named(line, "thread count") {
            self.threads = count.parse().unwrap_or(0);
        } else if let Some(count) = named(line, "proc count") {
            self.processors = number(count).unwrap_or(0.0);
        } else if let Some(time) = named(line, "start time") {
            self.started = utc(time).unwrap_or_default();
        } else if line.starts_with("thread |") {
            self.latency = line.contains("AvgLat");
        } else if let Some(rest) = line.strip_prefix("avg.|") {
            self.busy = number(rest.trim());
        }
        match place {
            Place::Parameters if !line.is_empty() => self.parameters.push(line.to_owned()),
            Place::Table(direction) => {
                if let Some(rest) = line.strip_prefix("total:") {
                    self.total(direction, rest);
                    return Place::Elsewhere;
                }
            }
            Place::Percentiles => self.percentile(line),
            _ => {}
        }
        place
    }

    /// `11837591552 | 2890037 | 94.08 | 24083.62 | 1.563 | 1.026`: bytes, operations, MiB/s, operations a second, mean latency.
    fn total(&mut self, direction: &str, rest: &str) {
        let cells: Vec<&str> = rest.split('|').map(str::trim).collect();
        let with_latency = self.latency;
        let side = match direction {
            "read" => &mut self.read,
            "write" => &mut self.write,
            _ => return,
        };
        let cell = |at: usize| cells.get(at).and_then(|cell| number(cell));
        side.bytes = cells
            .first()
            .and_then(|cell| cell.parse().ok())
            .unwrap_or(0);
        side.ops = cells.get(1).and_then(|cell| cell.parse().ok()).unwrap_or(0);
        side.printed = cell(2)
            .map(|mebibytes| mebibytes * 1_048_576.0)
            .filter(|rate| *rate > 0.0);
        let mean = cell(4).filter(|mean| with_latency && *mean > 0.0);
        side.mean_ns = mean.map(|millis| millis * 1e6);
    }

    /// `99th | 4.075 | 3.153 | 3.779`: milliseconds of reads and of writes.
    fn percentile(&mut self, line: &str) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let at = match cells[0] {
            "max" => 100.0,
            "3-nines" => 99.9,
            name => match name.strip_suffix("th").and_then(|name| name.parse().ok()) {
                Some(at) => at,
                None => return,
            },
        };
        for (side, cell) in [(&mut self.read, 1), (&mut self.write, 2)] {
            let millis = cells.get(cell).and_then(|cell| number(cell));
            let Some(nanos) = millis.map(|millis| (millis * 1e6).round() as u64) else {
                continue;
            };
            if at >= 100.0 {
                side.max_ns = Some(nanos);
            } else {
                side.percentiles.push((at, nanos));
            }
        }
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find_map(|line| named(line, name))
    }

    fn says(&self, words: &str) -> bool {
        self.parameters.iter().any(|line| line.contains(words))
    }

    fn rows(&self, name: &str, notes: &mut Vec<String>) -> Vec<(Row, Vec<Interval>)> {
        let mut found = Vec::new();
        let path = self.parameter("path").map(|path| path.trim_matches('\''));
        let depth = self
            .parameter("number of outstanding I/O operations per thread")
            .or_else(|| self.parameter("number of outstanding I/O operations"))
            .and_then(number);
        let random = self.says("random I/O");
        let write_through = self.says("writethrough on") || self.says("using O_SYNC");
        let direct = self.says("software cache disabled") || self.says("using O_DIRECT");
        let cpu = self
            .busy
            .zip(self.seconds)
            .map(|(busy, seconds)| busy / 100.0 * seconds * self.processors);
        let any = self.read.moved() || self.write.moved();
        for (direction, side) in [("read", &self.read), ("write", &self.write)] {
            if !(side.moved() || !any && direction == "read") {
                continue;
            }
            let side = Side {
                seconds: self.seconds,
                ..side.clone()
            };
            let test = Test {
                row: Row {
                    started_utc: self.started.clone(),
                    target: path.unwrap_or(name).to_owned(),
                    protocol: "file".into(),
                    engine: "diskspd".into(),
                    workload: format!("{}{direction}", if random { "rand" } else { "" }),
                    pattern: format!("{}{direction}", if random { "rand" } else { "" }),
                    block_size_bytes: self.parameter("block size").and_then(size),
                    iodepth: depth.map_or(0, |depth| depth as u16),
                    lanes: self.threads,
                    payload: "unknown".into(),
                    durability: Some(if write_through { "datasync" } else { "none" }.into()),
                    negotiated: if direct {
                        "direct".into()
                    } else {
                        String::new()
                    },
                    ..Row::blank()
                },
                cpu_s: cpu.filter(|cpu| *cpu > 0.0),
            };
            notes.extend(
                side.contradiction()
                    .map(|said| format!("{direction}: {said}")),
            );
            found.push((test.row(direction, &side), Vec::new()));
        }
        found
    }
}

/// `4096`, `4KiB`.
fn size(text: &str) -> Option<u64> {
    let bytes: crate::units::Bytes = text.parse().ok()?;
    Some(bytes.0)
}

/// `2019/12/10 20:53:15 UTC` as RFC 3339; None for another zone.
fn utc(text: &str) -> Option<String> {
    let (date, time) = text.strip_suffix(" UTC")?.split_once(' ')?;
    Some(format!("{}T{time}Z", date.replace('/', "-")))
}
