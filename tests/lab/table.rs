//! The runner's words: a line for each diagnosis, counts at the end, and the same as files.

use std::fmt::Write;
use std::path::Path;

use super::judge::{Outcome, Said};
use super::scenario::{Level, Scenario};

/// One direction of one diagnosis.
#[derive(Debug, Clone)]
pub struct Line {
    pub scenario: String,
    pub imposed: String,
    pub protocol: &'static str,
    pub level: &'static str,
    pub direction: &'static str,
    pub said: Said,
    pub expected: String,
    pub outcome: Outcome,
    pub seconds: f64,
}

impl Line {
    /// For the screen, as it comes.
    pub fn shown(&self) -> String {
        let said = &self.said;
        format!(
            "{} {} {} {}: imposed {} | measured {} | verdict {} ({}) | expected {} | {} [{:.0} s]",
            self.scenario,
            self.protocol,
            self.level,
            self.direction,
            self.imposed,
            said.measured(),
            said.limit,
            said.confidence,
            self.expected,
            self.outcome,
            self.seconds
        )
    }

    fn cells(&self) -> [String; 11] {
        let said = &self.said;
        let own = |text: &str| text.to_owned();
        [
            own(&self.scenario),
            own(self.protocol),
            own(self.level),
            own(self.direction),
            own(&self.imposed),
            said.measured(),
            own(&said.limit),
            own(&said.next_limit),
            own(&said.confidence),
            own(&self.expected),
            self.outcome.to_string(),
        ]
    }
}

const HEADS: [&str; 11] = [
    "scenario",
    "protocol",
    "at hand",
    "direction",
    "imposed",
    "measured, MB/s",
    "limit",
    "next",
    "confidence",
    "expected",
    "outcome",
];

/// How many ended how.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub right: usize,
    pub unresolved: usize,
    pub wrong: usize,
    pub not_run: usize,
}

impl Counts {
    pub fn of(lines: &[Line]) -> Self {
        let mut counts = Self::default();
        for line in lines {
            match line.outcome {
                Outcome::Right => counts.right += 1,
                Outcome::Unresolved => counts.unresolved += 1,
                Outcome::Wrong(_) => counts.wrong += 1,
                Outcome::NotRun(_) => counts.not_run += 1,
            }
        }
        counts
    }

    pub fn shown(&self) -> String {
        format!(
            "{} right, {} unresolved as allowed, {} wrong, {} not run",
            self.right, self.unresolved, self.wrong, self.not_run
        )
    }
}

/// The table as Markdown.
pub fn markdown(lines: &[Line]) -> String {
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = row(&HEADS.map(str::to_owned));
    text.push_str(&row(&HEADS.map(|_| "---".to_owned())));
    for line in lines {
        text.push_str(&row(&line.cells().map(|cell| cell.replace('|', "/"))));
    }
    // Writing to a String can't fail.
    let _ = writeln!(text, "\nAll: {}", Counts::of(lines).shown());
    for level in Level::ALL.map(Level::key) {
        let own: Vec<Line> = lines
            .iter()
            .filter(|line| line.level == level)
            .cloned()
            .collect();
        if !own.is_empty() {
            let _ = writeln!(text, "With {level}: {}", Counts::of(&own).shown());
        }
    }
    text
}

/// Writes laboratory.md and laboratory.csv.
pub fn keep(directory: &Path, lines: &[Line]) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", directory.display());
    std::fs::create_dir_all(directory).map_err(|error| failed(&error))?;
    std::fs::write(directory.join("laboratory.md"), markdown(lines))
        .map_err(|error| failed(&error))?;
    let mut table =
        csv::Writer::from_path(directory.join("laboratory.csv")).map_err(|error| failed(&error))?;
    table.write_record(HEADS).map_err(|error| failed(&error))?;
    for line in lines {
        table
            .write_record(line.cells())
            .map_err(|error| failed(&error))?;
    }
    table.flush().map_err(|error| failed(&error))
}

/// What a scenario imposes, in few words.
pub fn imposed(scenario: &Scenario) -> String {
    let mut all = Vec::new();
    let network = &scenario.network;
    let links = if network.two_links { "2 x " } else { "" };
    for (rate, way) in [
        (network.rate_mbit_s, ""),
        (network.to_server_mbit_s, " to the server"),
        (network.to_client_mbit_s, " to the client"),
    ] {
        all.extend(rate.map(|rate| format!("{links}{rate} Mbit/s{way}")));
    }
    all.extend(
        network
            .one_way_us
            .map(|us| format!("RTT {} ms", us as f64 / 500.0)),
    );
    if network.loss_ppm > 0 {
        all.push(format!("loss {} %", f64::from(network.loss_ppm) / 1e4));
    }
    all.extend(
        network
            .buffer_kib
            .map(|kib| format!("TCP buffers {kib} KiB")),
    );
    all.extend(network.congestion.clone());
    let disk = &scenario.disk;
    let mut disks = Vec::new();
    for (value, name) in [(disk.read_mb_s, "read"), (disk.write_mb_s, "write")] {
        disks.extend(value.map(|value| format!("{name} {value} MB/s")));
    }
    for (value, name) in [(disk.read_iops, "read"), (disk.write_iops, "write")] {
        disks.extend(value.map(|value| format!("{name} {value}/s")));
    }
    let array = scenario.array.as_ref().map(|array| {
        let degraded = if array.degraded { " degraded" } else { "" };
        format!("{}{degraded} of {} with ", array.level, array.members)
    });
    if !disks.is_empty() {
        all.push(format!(
            "disk {}{}",
            array.unwrap_or_default(),
            disks.join(" ")
        ));
    }
    if scenario.ram_disk {
        all.push("memory as a disk".to_owned());
    }
    all.extend(scenario.cliff.map(|cliff| {
        let rate = cliff.write_mb_s.or(cliff.read_mb_s).unwrap_or(0.0);
        format!("{rate} MB/s after {} MiB", cliff.after_mib)
    }));
    let servers = &scenario.servers;
    all.extend(
        servers
            .cpu_percent
            .map(|percent| format!("servers {percent} % of a core")),
    );
    all.extend(
        servers
            .forward_mb_s
            .map(|rate| format!("the server's port {rate} MB/s")),
    );
    let limited = scenario.limits_the_disk();
    if limited && servers.memory_mib == 0 {
        all.push("server caches reads".to_owned());
    }
    if limited && !scenario.honest_writes() {
        all.push("server caches writes".to_owned());
    }
    if all.is_empty() {
        all.push("nothing".to_owned());
    }
    all.join(", ")
}
