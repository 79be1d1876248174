//! Diagnoses of laboratories whose limits are known: each verdict against the truth.
//!
//! `tests/lab/run` chooses and runs scenarios (`tests/lab/README.md`); under plain `cargo test -- --include-ignored` the named
//! CI scenarios run, and with `NASGAUGE_FULL_TESTS` all. Needs root, the sandbox and the guard (`./test` has both).

#[path = "lab/cgroup.rs"]
mod cgroup;
#[path = "lab/diagnose.rs"]
mod diagnose;
#[path = "lab/disk.rs"]
mod disk;
#[path = "lab/forward.rs"]
mod forward;
#[path = "lab/judge.rs"]
mod judge;
#[path = "lab/kept.rs"]
mod kept;
#[path = "lab/killed.rs"]
mod killed;
#[expect(dead_code, reason = "the tests of the network use more of it")]
#[path = "lab/lab.rs"]
mod lab;
#[path = "lab/nas.rs"]
mod nas;
#[path = "lab/scenario.rs"]
mod scenario;
#[path = "lab/site.rs"]
mod site;
#[path = "lab/table.rs"]
mod table;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use judge::{Outcome, Said, judge};
use nas::Protocol;
use scenario::{Level, Scenario};
use site::Site;
use table::{Cells, Counts, Kept, Line, imposed};

/// Both tests here use the whole machine.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is to be run.
struct Choice {
    names: Vec<String>,
    level: Option<Level>,
    protocol: Option<Protocol>,
    results: Option<PathBuf>,
    /// While another process keeps one core busy.
    load: bool,
    /// Only the scenarios of CI, each with its own protocol and level.
    ci: bool,
    /// Every protocol with every level, not only what tells something new.
    every: bool,
}

impl Choice {
    /// As `tests/lab/run` says it; without, what CI runs.
    fn from_environment() -> Self {
        let get = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let names: Vec<String> = get("NASGAUGE_LAB_NAMES")
            .map(|text| text.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default();
        let level = get("NASGAUGE_LAB_WITH").map(|text| {
            let found = Level::ALL.into_iter().find(|level| level.key() == text);
            found.unwrap_or_else(|| panic!("{text} is none of agent, iperf3 and uri"))
        });
        let protocol = get("NASGAUGE_LAB_PROTOCOL")
            .map(|text| text.parse().unwrap_or_else(|why| panic!("{why}")));
        let chosen = get("NASGAUGE_LAB_CHOSEN").is_some() || get("NASGAUGE_FULL_TESTS").is_some();
        Self {
            names,
            level,
            protocol,
            results: get("NASGAUGE_LAB_RESULTS").map(PathBuf::from),
            load: get("NASGAUGE_LAB_LOAD").is_some(),
            ci: !chosen,
            every: get("NASGAUGE_LAB_EVERY").is_some(),
        }
    }

    /// The diagnoses to be made.
    fn of<'a>(&self, all: &'a [Scenario]) -> Vec<(&'a Scenario, Protocol, Level)> {
        if let Some(name) = self
            .names
            .iter()
            .find(|name| all.iter().all(|one| one.name != **name))
        {
            panic!("no scenario is called {name}");
        }
        let named = |one: &&Scenario| self.names.is_empty() || self.names.contains(&one.name);
        let mut chosen = Vec::new();
        for one in all.iter().filter(named) {
            if self.ci {
                chosen.extend(one.ci.map(|(protocol, level)| (one, protocol, level)));
                continue;
            }
            for (protocol, level) in one.runs(self.every || self.protocol.is_some()) {
                if self.protocol.is_none_or(|only| only == protocol)
                    && self.level.is_none_or(|only| only == level)
                {
                    chosen.push((one, protocol, level));
                }
            }
        }
        chosen
    }
}

/// A process that keeps one core busy, in a session of its own, as somebody else's work; ended on drop.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        let mut command = Command::new("setsid");
        command.args([
            "sh",
            "-c",
            "echo 0 > /proc/self/autogroup; while :; do :; done",
        ]);
        Self(command.spawn().expect("setsid, of util-linux"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One diagnosis in a laboratory of its own.
fn one(scenario: &Scenario, protocol: Protocol, level: Level, out: &Path) -> Vec<Line> {
    let begun = Instant::now();
    let said = match Site::make(scenario, protocol) {
        Err(reason) => Err(Outcome::NotRun(reason)),
        Ok(site) => diagnose::diagnose(scenario, &site, level, out).map_err(Outcome::Wrong),
    };
    let seconds = begun.elapsed().as_secs_f64();
    let directions = scenario.directions().enumerate();
    let lines = directions.map(|(at, (direction, expected))| {
        let with = expected.with(level);
        let (said, outcome) = match &said {
            Ok(all) => (all[at].clone(), judge(expected, level, &all[at])),
            Err(outcome) => (Said::default(), outcome.clone()),
        };
        let mut right = with.limits.clone();
        if with.unresolved {
            right.push("unresolved".to_owned());
        }
        Line {
            scenario: scenario.name.clone(),
            imposed: imposed(scenario),
            protocol: protocol.key(),
            level: level.key(),
            direction,
            said,
            expected: right.join(" or "),
            outcome,
            seconds,
        }
    });
    lines.collect()
}

#[test]
#[ignore = "needs root and servers"]
fn every_verdict_is_true() {
    let _alone = alone();
    let choice = Choice::from_environment();
    let mut all = scenario::all().unwrap_or_else(|why| panic!("{why}"));
    if choice.ci {
        all = all.into_iter().map(Scenario::in_ci).collect();
    }
    let chosen = choice.of(&all);
    assert!(!chosen.is_empty(), "nothing is chosen");
    let _busy = choice.load.then(Busy::start);
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = choice.results.as_deref().unwrap_or(scratch.path());
    let (kept, runs) = (Kept(directory), directory.join("runs"));
    std::fs::create_dir_all(&runs).expect("a place for results");
    let source = std::env::var("NASGAUGE_LAB_SOURCE").unwrap_or_default();
    // What may run beside another first, so that two runners wait for one another only once.
    let mut chosen = chosen;
    chosen.sort_by_key(|(scenario, ..)| scenario.alone());
    let mut mine: Vec<Cells> = Vec::new();
    for (scenario, protocol, level) in chosen {
        let name = format!("{}-{}-{}", scenario.name, protocol.key(), level.key());
        let Some(_claim) = kept.claim(&name).expect("a lock") else {
            continue;
        };
        let diagnosis = [scenario.name.as_str(), protocol.key(), level.key()];
        if kept.has(diagnosis).expect("a table") {
            continue;
        }
        let _machine = kept.machine(scenario.alone()).expect("a lock");
        let out = runs.join(name);
        // Of a diagnosis that was cut off.
        let _ = std::fs::remove_dir_all(&out);
        let made = one(scenario, protocol, level, &out);
        for line in &made {
            eprintln!("{}", line.shown());
        }
        let rows: Vec<Cells> = made.iter().map(|line| line.cells(&source)).collect();
        kept.add(&rows).unwrap_or_else(|why| panic!("{why}"));
        mine.extend(rows);
    }
    let counts = Counts::of(&mine);
    eprintln!("\n{}", table::markdown(&mine));
    assert_eq!(counts.wrong, 0, "{}", counts.shown());
    assert!(!choice.ci || counts.not_run == 0, "{}", counts.shown());
}

#[test]
fn scenarios_make_sense_together() {
    let all = scenario::all().unwrap_or_else(|why| panic!("{why}"));
    assert!(all.len() >= 20, "{}", all.len());
    let ci: Vec<Level> = all
        .iter()
        .filter_map(|one| one.ci)
        .map(|(_, level)| level)
        .collect();
    let with = |level: Level| ci.iter().filter(|one| **one == level).count();
    assert_eq!(ci.len(), 8, "what CI runs");
    assert!(with(Level::Iperf3) >= 2 && with(Level::Uri) >= 2);
    // With an agent, what may stay unresolved is listed.
    let readme = include_str!("lab/README.md");
    let list = readme
        .split("## Where")
        .nth(1)
        .and_then(|rest| rest.split("\n## ").next());
    let list = list.expect("a list");
    let listed = list
        .lines()
        .filter_map(|line| line.strip_prefix("- `")?.split('`').next());
    let mut listed: Vec<&str> = listed.collect();
    listed.sort_unstable();
    let open = |one: &&Scenario| {
        one.directions()
            .any(|(_, direction)| direction.agent.unresolved)
    };
    let open: Vec<&str> = all
        .iter()
        .filter(open)
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(open, listed);
    assert!(open.len() <= 3);
}
