//! One cell: jobs for its workers, and rows of their reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::engine::{FileJob, Job};
use crate::error::{Error, Kind, Phase, Result};
use crate::op::Direction;
use crate::payload::Content;
use crate::record::{Interval, Row};
use crate::run::drive::{Driven, drive};
use crate::run::files;
use crate::run::intervals::Intervals;
use crate::run::results::Results;
use crate::run::row::Rows;
use crate::run::site::Place;
use crate::run::{Number, StepView, Watch, split_phase};
use crate::spec::plan::{Cell, Plan};
use crate::spec::workload;
use crate::target::Attach;

/// What a cell is measured for.
pub(super) struct Context<'a> {
    pub(super) plan: &'a Plan,
    /// What its rows are for, as their column `stage` has it.
    pub(super) stage: &'static str,
    pub(super) cell: Cell,
    pub(super) number: Option<Number>,
    pub(super) run_id: &'a str,
    pub(super) generation: u64,
    pub(super) wsl: bool,
    pub(super) stop: &'a Arc<AtomicBool>,
}

/// What a cell came to.
pub(super) struct Found {
    /// A row for each direction of its phase.
    pub(super) rows: Vec<Row>,
    /// How many generations of blocks it used up.
    pub(super) generations: u64,
    /// Its interval samples, in order.
    pub(super) samples: Vec<(Direction, Interval)>,
}

impl Found {
    const fn broken(rows: Vec<Row>) -> Self {
        Self {
            rows,
            generations: 0,
            samples: Vec::new(),
        }
    }
}

/// Measures one cell. Err only for what is not the target's fault.
pub(super) fn measure(
    context: &Context<'_>,
    place: &mut Place,
    watch: &mut dyn Watch,
    results: &mut Results,
) -> Result<Found> {
    let (phase, lanes) = split_phase(context.plan, context.cell, &place.caps);
    let mut rows = Rows::new(context, place, &phase, lanes);
    if let Err(error) = place.object() {
        return Ok(Found::broken(rows.broken(&error.clone())));
    }
    let small = match files::ready(context, place, &phase, watch) {
        Ok(small) => small,
        Err(error) => return Ok(Found::broken(rows.broken(&error))),
    };
    let label = format!(
        "{}{} on {}",
        context.plan.cell_name(context.cell),
        aside(context.stage),
        place.login.spec.protocol
    );
    let seconds = phase
        .runtime
        .map(|runtime| runtime.seconds() + phase.ramp_time.seconds());
    let moves = phase
        .rw
        .file_op()
        .is_none_or(crate::op::FileOp::moves_content);
    let bytes = if seconds.is_some() || !moves {
        None
    } else {
        Some(phase.bytes.map_or(phase.size.0, |bytes| bytes.0))
    };
    watch.begin(&StepView {
        label: label.clone(),
        number: context.number,
        seconds,
        bytes,
    });
    if phase.rw.reads()
        && small.is_none()
        && let Some(site) = place.site()
    {
        // What can't be forgotten shows in the device's counters.
        let _ = site.drop_cache();
    }
    let jobs = match place.object() {
        Ok(object) => jobs(context, &place.caps, &phase, object, small.as_ref()),
        Err(error) => return Ok(Found::broken(rows.broken(&error.clone()))),
    };
    rows.started();
    let mut intervals = Intervals::new(context.plan.interval, &rows);
    let driven = drive(place, jobs, context.stop, watch, &mut |at, sum| {
        intervals.sample(at, sum, results)
    })?;
    let stored = match &small {
        Some(small) => files::check(place, &phase, small, &driven),
        None => check_stored(place, &phase, &driven),
    };
    if let Some(cut) = files::cut_short(&phase, &driven) {
        watch.note(&format!("{label}: {cut}"));
    }
    let rows = rows.finish(&driven, stored.as_ref(), context.stop.load(Relaxed));
    Ok(Found {
        rows,
        generations: driven.generations(),
        samples: intervals.finish(&driven, results)?,
    })
}

/// What a stage is called beside its workload's name; nothing for the workload itself.
#[must_use]
pub fn aside(stage: &str) -> &'static str {
    match stage {
        "hot_set" => ", from memory",
        "half_depth" => ", with half as many requests under way",
        "double_depth" => ", with twice as many requests under way",
        "second_connection" => ", over twice the connections",
        "alone" => ", one request at a time",
        "own_client" => ", by nasgauge's own client",
        "protocol" => ", with memory behind the protocol",
        "storage_best" => ", as deep as it gets",
        "tool" => ", without any server",
        _ => "",
    }
}

/// A job for each lane of a phase, on the object's blocks or on the small files beside it.
pub(super) fn jobs(
    context: &Context<'_>,
    caps: &crate::target::Caps,
    phase: &workload::Phase,
    object: &crate::guard::Object,
    small: Option<&FileJob>,
) -> Vec<Job> {
    let lanes = phase.lanes;
    let blocks = Content {
        key: object.content.key,
        ..phase.content(0)
    };
    let job = |lane| Job {
        phase: phase.clone(),
        lane,
        lanes,
        attach: Attach {
            object: match small {
                Some(_) => object.directory().to_owned(),
                None => object.name.clone(),
            },
            write: phase.rw.writes(),
            direct: phase.direct,
            durability: phase.durability,
            iodepth: phase.iodepth,
            block_max: phase.block_max(),
            lane,
            round: context.cell.repeat,
        },
        base: object.base,
        seed: context.plan.seed
            ^ (u64::from(context.cell.repeat) << 32)
            ^ ((context.cell.phase as u64) << 16),
        content: blocks.clone(),
        generation: Some(context.generation),
        flush: caps.flush,
        files: small.cloned(),
    };
    (0..lanes).map(job).collect()
}

/// After writing: the size that the server holds, when it is not the size that it accepted.
fn check_stored(place: &mut Place, phase: &workload::Phase, driven: &Driven) -> Option<Error> {
    if !phase.rw.writes() {
        return None;
    }
    let high_water = driven
        .reports
        .iter()
        .map(|report| report.high_water)
        .max()
        .unwrap_or(0);
    let site = place.site()?;
    site.written_to(high_water);
    let stored = site.stored_size().ok()??;
    (stored < high_water).then(|| {
        let message =
            format!("{high_water} bytes were accepted, but the server holds only {stored}");
        Error::new(Phase::Flush, Kind::Corrupt, message)
    })
}
