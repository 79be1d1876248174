//! The runner's words: a line for each diagnosis, counts at the end, and the same as files.

use std::fmt::Write;
use std::fs::{File, TryLockError};
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

    /// As the table has it; `source` is what the program was built of.
    pub fn cells(&self, source: &str) -> Cells {
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
            format!("{:.0}", self.seconds),
            own(source),
        ]
    }
}

/// A row of the table.
pub type Cells = [String; 13];

const HEADS: [&str; 13] = [
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
    "seconds",
    "source",
];

/// The columns that say which diagnosis a row is of.
const DIAGNOSIS: usize = 3;
const OUTCOME: usize = 10;

/// How many ended how.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub right: usize,
    pub unresolved: usize,
    pub wrong: usize,
    pub not_run: usize,
}

impl Counts {
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Cells>) -> Self {
        let mut counts = Self::default();
        for row in rows {
            // As `Outcome` writes itself.
            match row[OUTCOME].split([' ', ',', ':']).next() {
                Some("right") => counts.right += 1,
                Some("unresolved") => counts.unresolved += 1,
                Some("not") => counts.not_run += 1,
                _ => counts.wrong += 1,
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
pub fn markdown(rows: &[Cells]) -> String {
    let row = |cells: &Cells| format!("| {} |\n", cells.join(" | "));
    let mut text = row(&HEADS.map(str::to_owned));
    text.push_str(&row(&HEADS.map(|_| "---".to_owned())));
    for line in rows {
        text.push_str(&row(&line.each_ref().map(|cell| cell.replace('|', "/"))));
    }
    // Writing to a String can't fail.
    let _ = writeln!(text, "\nAll: {}", Counts::of(rows).shown());
    for level in Level::ALL.map(Level::key) {
        let own: Vec<&Cells> = rows.iter().filter(|row| row[2] == level).collect();
        if !own.is_empty() {
            let counts = Counts::of(own);
            let _ = writeln!(text, "With {level}: {}", counts.shown());
        }
    }
    text
}

/// A directory that keeps a table, row by row: several runs, one after the other or beside one another, may fill it.
pub struct Kept<'a>(pub &'a Path);

impl Kept<'_> {
    fn failed(&self, error: &dyn std::fmt::Display) -> String {
        format!("{}: {error}", self.0.display())
    }

    /// What is there.
    pub fn rows(&self) -> Result<Vec<Cells>, String> {
        let path = self.0.join("laboratory.csv");
        if !path.is_file() {
            return Ok(Vec::new());
        }
        let mut reader = csv::Reader::from_path(&path).map_err(|error| self.failed(&error))?;
        let rows = reader.deserialize();
        rows.collect::<Result<_, _>>()
            .map_err(|error| self.failed(&error))
    }

    /// Whether a diagnosis is there, whatever came of it: nothing is made until it pleases.
    pub fn has(&self, diagnosis: [&str; DIAGNOSIS]) -> Result<bool, String> {
        let rows = self.rows()?;
        Ok(rows.iter().any(|row| row[..DIAGNOSIS] == diagnosis))
    }

    /// Adds the rows of a diagnosis to laboratory.csv and laboratory.md.
    pub fn add(&self, rows: &[Cells]) -> Result<(), String> {
        let _one_at_a_time = self.lock("table.lock")?;
        let mut all = self.rows()?;
        all.extend_from_slice(rows);
        all.sort_by(|a, b| (&a[0], &a[1]).cmp(&(&b[0], &b[1])));
        // Each under another name first: who is killed leaves the old ones.
        let write = |name: &str, text: &[u8]| {
            let new = self.0.join(format!("{name}.new"));
            std::fs::write(&new, text)
                .and_then(|()| std::fs::rename(&new, self.0.join(name)))
                .map_err(|error| self.failed(&error))
        };
        let mut table = csv::Writer::from_writer(Vec::new());
        let heads = HEADS.map(str::to_owned);
        for row in std::iter::once(&heads).chain(&all) {
            table
                .write_record(row)
                .map_err(|error| self.failed(&error))?;
        }
        let table = table.into_inner().map_err(|error| self.failed(&error))?;
        write("laboratory.csv", &table)?;
        write("laboratory.md", markdown(&all).as_bytes())
    }

    /// A lock that ends with its file, and so with its process.
    fn lock(&self, name: &str) -> Result<File, String> {
        let file = self.open(name)?;
        file.lock().map_err(|error| self.failed(&error))?;
        Ok(file)
    }

    fn open(&self, name: &str) -> Result<File, String> {
        let directory = self.0.join("locks");
        std::fs::create_dir_all(&directory).map_err(|error| self.failed(&error))?;
        File::create(directory.join(name)).map_err(|error| self.failed(&error))
    }

    /// Takes a diagnosis as one's own; None where another runner has it.
    pub fn claim(&self, name: &str) -> Result<Option<File>, String> {
        let file = self.open(name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(self.failed(&error)),
        }
    }

    /// Waits until the machine may be used: `alone`, or beside others that need not be alone.
    pub fn machine(&self, alone: bool) -> Result<File, String> {
        let file = self.open("machine")?;
        let locked = if alone {
            file.lock()
        } else {
            file.lock_shared()
        };
        locked.map_err(|error| self.failed(&error))?;
        Ok(file)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scenario: &str, level: &str, outcome: &str) -> Cells {
        let mut row = HEADS.map(|_| String::new());
        scenario.clone_into(&mut row[0]);
        "nfs".clone_into(&mut row[1]);
        level.clone_into(&mut row[2]);
        outcome.clone_into(&mut row[OUTCOME]);
        row
    }

    #[test]
    fn a_table_is_filled_row_by_row_and_counted() {
        let outcomes = [
            Outcome::Right,
            Outcome::Unresolved,
            Outcome::Wrong("it, too".to_owned()),
            Outcome::NotRun("no root".to_owned()),
        ];
        let directory = tempfile::tempdir().expect("a directory");
        let kept = Kept(directory.path());
        assert_eq!(kept.rows(), Ok(Vec::new()));
        for (at, outcome) in outcomes.iter().enumerate() {
            let scenario = format!("s{}", 9 - at);
            let row = row(&scenario, "uri", &outcome.to_string());
            kept.add(&[row]).expect("added");
        }
        let rows = kept.rows().expect("rows");
        let one = Counts {
            right: 1,
            unresolved: 1,
            wrong: 1,
            not_run: 1,
        };
        assert_eq!(Counts::of(&rows), one);
        assert_eq!((rows[0][0].as_str(), rows[3][0].as_str()), ("s6", "s9"));
        assert_eq!(kept.has(["s7", "nfs", "uri"]), Ok(true));
        assert_eq!(kept.has(["s7", "nfs", "agent"]), Ok(false));
        let text = std::fs::read_to_string(directory.path().join("laboratory.md"));
        assert_eq!(text.expect("a table"), markdown(&rows));
    }

    #[test]
    fn a_diagnosis_is_claimed_once_and_free_when_its_runner_is_gone() {
        let directory = tempfile::tempdir().expect("a directory");
        let kept = Kept(directory.path());
        let mine = kept.claim("one").expect("a lock");
        assert!(mine.is_some());
        assert!(kept.claim("one").expect("a lock").is_none());
        assert!(kept.claim("other").expect("a lock").is_some());
        drop(mine);
        assert!(kept.claim("one").expect("a lock").is_some());
        let beside = kept.machine(false).expect("a lock");
        let _second = kept.machine(false).expect("two at once");
        drop(beside);
    }
}
