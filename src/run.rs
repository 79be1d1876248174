//! The conductor: a plan becomes rows.
//!
//! Order: every target is opened and examined (`site`) before any is touched; then a result directory (`results`); then
//! each target is entered and its test file laid; then the cells in turn (`cell`, whose workers `drive` runs); then everything of ours is
//! removed, whatever happened before. Rows are on disk as soon as they are known.
//!
//! Must not know: protocols, how a worker runs, or how anything is shown ([`Watch`] is told).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::clock::now_utc;
use crate::error::{Error, Kind, Result};
use crate::payload::mix;
use crate::record::{Record, Row, SCHEMA_VERSION, Status};
use crate::spec::plan::{Cell, Plan};
use crate::spec::uri::TargetSpec;
use crate::target::Secret;

mod cell;
pub mod diagnose;
mod drive;
mod environment;
mod files;
pub mod imports;
mod intervals;
pub mod network;
mod results;
mod rounds;
mod row;
mod settle;
mod site;
mod way;
mod witness;

use rounds::Rounds;

pub use cell::aside;
pub use results::Results;

/// What a run tells while it goes on.
pub trait Watch {
    /// A sentence for the user.
    fn note(&mut self, text: &str);
    /// The result directory was made.
    fn results(&mut self, directory: &Path);
    /// Something with a known end begins: a cell or the laying of a file.
    fn begin(&mut self, step: &StepView);
    /// How far it is.
    fn progress(&mut self, progress: &Progress);
    /// A row is known and on disk.
    fn row(&mut self, row: &Row);
}

/// What begins.
#[derive(Debug, Clone, PartialEq)]
pub struct StepView {
    /// What, for people.
    pub label: String,
    /// Its place among all steps of its kind; None for laying and resting.
    pub number: Option<Number>,
    /// Expected length in seconds, where time bounds it.
    pub seconds: Option<f64>,
    /// Bytes to move, where bytes bound it.
    pub bytes: Option<u64>,
}

/// A step's place among all of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// Which, from 1.
    pub at: usize,
    /// How many there will be at least.
    pub least: usize,
    /// How many there will be at most: more than `least` while `--repeats auto` has not seen enough.
    pub most: usize,
}

/// `3/20`, or `3/20-60` while only limits are known.
impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.at, self.least)?;
        if self.most > self.least {
            write!(f, "-{}", self.most)?;
        }
        Ok(())
    }
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Time since its start.
    pub seconds: f64,
    /// Bytes moved since its start.
    pub bytes: u64,
    /// Recent rate.
    pub bytes_per_s: f64,
    /// Recent operations per second.
    pub iops: f64,
}

/// What surrounds a run.
pub struct Settings<'a> {
    /// Where results go.
    pub out: Out,
    /// Gives the password of a target that needs one.
    pub secrets: &'a mut dyn FnMut(&TargetSpec) -> Result<Secret>,
    /// Set by SIGINT and SIGTERM.
    pub stop: Arc<AtomicBool>,
}

impl Settings<'_> {
    /// Whether the user wants it to end.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// Where results go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Out {
    /// A new directory below this one, named by time and run.
    Below(PathBuf),
    /// Exactly this directory; it must not hold results yet.
    Exactly(PathBuf),
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// All rows.
    pub rows: Vec<Row>,
    /// The result directory.
    pub directory: PathBuf,
    /// What could not be removed, one sentence each.
    pub left: Vec<String>,
    /// The user stopped it.
    pub interrupted: bool,
}

impl Outcome {
    /// The exit code of CONTRACT: 0 all ok, 1 a row is not, 130 interrupted.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.interrupted {
            130
        } else {
            u8::from(self.rows.iter().any(|row| row.status != Status::Ok) || !self.left.is_empty())
        }
    }
}

/// A new run's name: the time and four random digits.
fn new_run_id() -> String {
    let compact: String = now_utc()
        .chars()
        .filter(|c| *c != '-' && *c != ':')
        .collect();
    let random = mix(crate::clock::monotonic_ns() ^ (u64::from(std::process::id()) << 32)) & 0xffff;
    format!("{compact}-{random:04x}")
}

/// Opens and examines every target of a plan; nothing is written anywhere.
pub fn examine(plan: &Plan, settings: &mut Settings<'_>, watch: &mut dyn Watch) -> Result<()> {
    plan.validate()?;
    let run = Identity::new(plan.seed);
    site::open_all(plan, &run, settings, watch).map(drop)
}

/// Runs a plan. Err only when nothing was touched.
pub fn run(plan: &Plan, settings: &mut Settings<'_>, watch: &mut dyn Watch) -> Result<Outcome> {
    plan.validate()?;
    let run = Identity::new(plan.seed);
    let mut places = site::open_all(plan, &run, settings, watch)?;
    let environment = environment::gather(plan, &mut places);
    let mut results = Results::create(&settings.out, &run.id, &plan.name, plan, &environment)?;
    watch.results(results.directory());
    let mut rows = Vec::new();
    let measured = measure_all(
        plan,
        &run,
        &mut places,
        settings,
        watch,
        &mut results,
        &mut rows,
    );
    let mut left = site::leave_all(&mut places, watch);
    if let Err(error) = measured {
        left.push(error.to_string());
    }
    let record = Record {
        schema_version: SCHEMA_VERSION,
        run_id: run.id,
        nasgauge_version: plan.nasgauge_version.clone(),
        plan: plan.clone(),
        environment,
        rows,
    };
    if let Err(error) = results.finish(&record.rows, plan.repeats, &record) {
        left.push(error.to_string());
    }
    let interrupted = settings.stop.load(Relaxed);
    Ok(Outcome {
        rows: record.rows,
        directory: results.directory().to_owned(),
        left,
        interrupted,
    })
}

/// What tells one run from another.
struct Identity {
    id: String,
    started_utc: String,
    key: u64,
    /// Generation of the first block that any cell writes; grows with time, so that a kept file is never
    /// rewritten with what it holds.
    generation: u64,
    wsl: bool,
}

impl Identity {
    fn new(seed: u64) -> Self {
        let id = new_run_id();
        let key = id
            .bytes()
            .fold(seed, |key, byte| mix(key ^ u64::from(byte)));
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seconds = since_epoch.map_or(0, |since| since.as_secs());
        // 2^17 blocks a second for 68 years fit in a generation's 48 bits.
        Self {
            id,
            started_utc: now_utc(),
            key,
            generation: (seconds & 0x7fff_ffff) << 17,
            wsl: crate::probe::host::Host::read().wsl,
        }
    }
}

fn measure_all(
    plan: &Plan,
    run: &Identity,
    places: &mut [site::Place],
    settings: &Settings<'_>,
    watch: &mut dyn Watch,
    results: &mut Results,
    rows: &mut Vec<Row>,
) -> Result<()> {
    for place in places.iter_mut() {
        if !settings.stop.load(Relaxed) {
            place.prepare(plan, &settings.stop, watch);
        }
    }
    let mut rounds = Rounds::new(plan);
    let mut generation = run.generation;
    // The cell before, when it wrote.
    let mut wrote: Option<Cell> = None;
    loop {
        let round = rounds.next(rows);
        if round.is_empty() {
            return Ok(());
        }
        for cell in round {
            if let Some(wrote) = wrote.take() {
                let place = &mut places[wrote.target];
                settle::settle(place, plan.phase(wrote), plan.settle, &settings.stop, watch);
            }
            if settings.stop.load(Relaxed) {
                let Number { at, least, most } = rounds.number();
                let more = if most > least { "at least " } else { "" };
                watch.note(&format!(
                    "stopped: {more}{} of {least} cells were not measured",
                    least - at
                ));
                return Ok(());
            }
            let context = cell::Context {
                plan,
                stage: "run",
                cell,
                number: Some(rounds.begin()),
                run_id: &run.id,
                generation,
                wsl: run.wsl,
                stop: &settings.stop,
            };
            let found = cell::measure(&context, &mut places[cell.target], watch, results)?;
            wrote = plan.phase(cell).rw.writes().then_some(cell);
            // What a lost worker had under way is not known; it is less than this.
            generation += found.generations + u64::from(u16::MAX);
            for row in found.rows {
                results.row(&row)?;
                watch.row(&row);
                rows.push(row);
            }
        }
    }
}

/// The status that an error gives its row.
const fn status_of(error: &Error) -> Status {
    match error.kind {
        Kind::Gone | Kind::TimedOut | Kind::Refused => Status::ServerLost,
        Kind::Interrupted => Status::Interrupted,
        Kind::Corrupt => Status::Invalid,
        _ => Status::Failed,
    }
}

/// A cell's phase with the lanes and depth that its target takes.
fn split_phase(
    plan: &Plan,
    cell: Cell,
    caps: &crate::target::Caps,
) -> (crate::spec::workload::Phase, u16) {
    let mut phase = plan.phase(cell).clone();
    let (lanes, depth) = crate::spec::plan::lanes_and_depth(&phase, caps.iodepth_max);
    phase.iodepth = depth;
    phase.lanes = lanes;
    (phase, lanes)
}
