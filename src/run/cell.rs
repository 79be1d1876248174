//! One cell: jobs for its workers, and rows of their reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::engine::{FileJob, Job, Report};
use crate::error::{Error, Kind, Phase, Result};
use crate::op::Direction;
use crate::payload::Content;
use crate::record::{Burst, Flag, Interval, Row};
use crate::run::drive::{Driven, drive};
use crate::run::files;
use crate::run::intervals::Intervals;
use crate::run::results::Results;
use crate::run::row::Rows;
use crate::run::site::Place;
use crate::run::{Number, StepView, Watch, split_phase};
use crate::spec::plan::{Cell, Plan};
use crate::spec::workload;
use crate::stats::cliff::cliff;
use crate::target::Attach;
use crate::units::Nanos;

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
    /// Bytes from the object's beginning that it has written without a gap.
    pub(super) laid: u64,
}

impl Found {
    const fn broken(rows: Vec<Row>) -> Self {
        Self {
            rows,
            generations: 0,
            samples: Vec::new(),
            laid: 0,
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
    let mut rows = rows.finish(&driven, stored.as_ref(), context.stop.load(Relaxed));
    let samples = intervals.finish(&driven, results)?;
    for row in &mut rows {
        find_cliff(row, context.plan.interval, &samples);
    }
    Ok(Found {
        rows,
        generations: driven.generations(),
        samples,
        laid: laid(&phase, &driven.reports),
    })
}

/// What a sequential phase has written from the beginning on. Lanes that take turns don't get equally far: the one that is behind
/// leaves the first gap.
fn laid(phase: &workload::Phase, reports: &[Report]) -> u64 {
    let lanes = u64::from(phase.lanes);
    let alone = lanes == 1 && !phase.rw.random() && phase.files.is_none();
    if !phase.rw.writes() || !(alone || phase.takes_turns()) {
        return 0;
    }
    let block = u64::from(phase.block_max());
    let behind = reports.iter().map(|report| report.written / block).min();
    let whole = behind.unwrap_or(0) * lanes * block;
    let all: u64 = reports.iter().map(|report| report.written).sum();
    // All of it may end with a shorter block.
    if all == phase.size.0 {
        all
    } else {
        whole.min(phase.size.0)
    }
}

/// Marks a row that began much faster than it went on, by its whole samples.
fn find_cliff(row: &mut Row, every: Nanos, samples: &[(Direction, Interval)]) {
    let mine = samples
        .iter()
        .filter(|(direction, _)| direction.key() == row.direction)
        .map(|(_, sample)| sample)
        .filter(|sample| sample.is_whole(every, row.seconds));
    let bytes: Vec<u64> = mine.clone().map(|sample| sample.bytes).collect();
    let rates: Vec<f64> = mine
        .map(|sample| sample.bytes as f64 * 1e9 / (sample.to.0 - sample.from.0) as f64)
        .collect();
    if let Some(found) = cliff(&rates) {
        row.burst = Some(Burst {
            bytes_per_s: found.burst,
            bytes: bytes[..found.at].iter().sum(),
            sustained_bytes_per_s: found.sustained,
        });
        row.flags.push(Flag::CacheCliff);
        row.flags.sort_unstable();
    }
}

/// What a stage is called beside its workload's name; nothing for the workload itself.
#[must_use]
pub fn aside(stage: &str) -> &'static str {
    match stage {
        "hot_set" => ", from memory",
        "warming" => ", into the server's memory",
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of half a second with these rates in MB/s, one after the other.
    fn samples(rates: &[u64]) -> Vec<(Direction, Interval)> {
        let half = crate::units::SECOND / 2;
        let each = rates.iter().zip(0u64..).map(|(rate, at)| {
            let sample = Interval {
                from: Nanos(at * half),
                to: Nanos((at + 1) * half),
                ops: 1,
                bytes: rate * 1_000_000 / 2,
                latency_mean_ns: None,
                latency_max_ns: None,
            };
            (Direction::Write, sample)
        });
        each.collect()
    }

    fn found(rates: &[u64], seconds: f64) -> Option<Burst> {
        let mut row = Row {
            direction: "write".into(),
            seconds: Some(seconds),
            ..Row::blank()
        };
        find_cliff(&mut row, Nanos(crate::units::SECOND / 2), &samples(rates));
        assert_eq!(row.burst.is_some(), row.flags.contains(&Flag::CacheCliff));
        row.burst
    }

    #[test]
    fn only_what_has_no_gap_counts_as_laid() {
        let phase = |lanes: u16, in_turns: bool| workload::Phase {
            in_turns,
            ..workload::PhaseFile {
                rw: Some(workload::Rw::Write),
                bs: Some(crate::units::Bytes(10)),
                size: Some(crate::units::Bytes(1000)),
                lanes: Some(lanes),
                ..workload::PhaseFile::default()
            }
            .resolve("a phase")
            .expect("possible")
        };
        let reports = |written: &[u64]| -> Vec<Report> {
            let each = written.iter().map(|written| Report {
                written: *written,
                ..Report::default()
            });
            each.collect()
        };
        assert_eq!(laid(&phase(1, false), &reports(&[330])), 330);
        assert_eq!(laid(&phase(1, true), &reports(&[4000])), 1000);
        assert_eq!(laid(&phase(4, true), &reports(&[100, 120, 90, 110])), 360);
        assert_eq!(laid(&phase(4, true), &reports(&[250; 4])), 1000);
        assert_eq!(laid(&phase(4, false), &reports(&[100; 4])), 0);
    }

    #[test]
    fn a_burst_is_found_in_the_samples() {
        let burst = found(&[117, 117, 117, 117, 30, 30, 30, 30], 4.0).expect("a cliff");
        assert_eq!(burst.bytes, 234_000_000);
        assert!((burst.sustained_bytes_per_s - 30e6).abs() < 1e3);
    }

    #[test]
    fn a_flush_after_the_last_completion_is_no_cliff() {
        // Four seconds of writing, then as many of waiting until it is stored.
        let rates = [
            117, 117, 117, 117, 117, 117, 117, 117, 5, 1, 1, 1, 1, 1, 1, 1,
        ];
        assert_eq!(found(&rates, 4.0), None);
    }
}
