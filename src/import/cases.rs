//! Imported rows as cases for the verdict: workloads, and the layers that other rows measured alone.
//!
//! Nothing says that a layer was measured on what the workload used, so storage and protocol are `unproven`. Must not know: formats.

use crate::error::{Error, Result};
use crate::import::Imported;
use crate::op::Direction;
use crate::published::{Published, Shown};
use crate::record::{Flag, Row, Status};
use crate::stats::mean_of;
use crate::units::{Bytes, Rate};
use crate::verdict::case::{Case, Figure, Layer, Load, Mark, Rung};
use crate::verdict::{Confidence, decide};

/// Stages of a workload itself.
const WORKLOADS: &[&str] = &["run", "end_to_end"];

/// What a mark on a row is on a figure.
const MARKS: &[(Flag, Mark)] = &[
    (Flag::Max, Mark::Peak),
    (Flag::NotDurable, Mark::NotDurable),
    (Flag::ClientCached, Mark::ClientCached),
    (Flag::ServerCached, Mark::ServerCached),
    (Flag::Compressible, Mark::Compressible),
    (Flag::GeneratorBound, Mark::GeneratorBound),
    (Flag::Loopback, Mark::SameHost),
    (Flag::TooShort, Mark::TooShort),
];

/// Files with what they held, as one publication: each workload a case, its layers from all of them.
pub fn publication(files: &[(String, Imported)]) -> Result<Published> {
    let of = |wanted: fn(&Imported) -> bool| -> Vec<&Row> {
        let chosen = files.iter().filter(|(_, one)| wanted(one));
        let rows = chosen.flat_map(|(_, one)| one.tests.iter().map(|(row, _)| row));
        rows.filter(|row| row.status == Status::Ok).collect()
    };
    let mut cases: Vec<Case> = files
        .iter()
        .flat_map(|(_, one)| one.judged.clone())
        .collect();
    // A diagnosis has judged its own workloads, and knows more of them than its rows do.
    cases.extend(workloads(&of(|one| one.judged.is_empty()), &of(|_| true)));
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    if cases.is_empty() {
        return Err(Error::usage(format!(
            "{}: layers only; add the results of a workload, such as fio's on the share",
            names.join(", ")
        )));
    }
    let notes = files
        .iter()
        .flat_map(|(name, one)| one.notes.iter().map(move |note| format!("{name}: {note}")));
    let conditions = files
        .iter()
        .map(|(name, one)| format!("{name}: {}", one.tool));
    Ok(Published {
        id: "imported".into(),
        title: "results of other runs".into(),
        source: names.join(", "),
        conditions: conditions.collect(),
        labels: notes.collect(),
        figure: Vec::new(),
        compute: Vec::new(),
        case: cases.into_iter().map(shown).collect(),
    })
}

fn shown(case: Case) -> Shown {
    Shown {
        name: case.workload.clone(),
        limit: decide(&case).limit_key(),
        input: case,
        at_most: Confidence::Confirmed,
        never: Vec::new(),
    }
}

/// Each workload in each direction, its repeats together; its layers are among `all`.
fn workloads(rows: &[&Row], all: &[&Row]) -> Vec<Case> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    let wanted = |row: &&&Row| WORKLOADS.contains(&row.stage.as_str()) && !row.is_stream();
    for row in rows.iter().filter(wanted) {
        match groups.iter_mut().find(|group| group[0].repeats(row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups.iter().filter_map(|group| case(group, all)).collect()
}

fn direction(row: &Row) -> Option<Direction> {
    [Direction::Read, Direction::Write]
        .into_iter()
        .find(|direction| direction.key() == row.direction)
}

fn case(group: &[&Row], rows: &[&Row]) -> Option<Case> {
    let first = group[0];
    let direction = direction(first)?;
    let depth = u32::from(first.iodepth) * u32::from(first.lanes);
    let load = Load {
        block_size: first.block_size_bytes.map(Bytes),
        depth: Some(depth).filter(|depth| *depth > 0),
        connections: first.connections.filter(|connections| *connections > 0),
    };
    let of = |wanted: &dyn Fn(&Row) -> bool| -> Vec<&Row> {
        let alike = rows.iter().filter(|row| row.direction == first.direction);
        alike.filter(|row| wanted(row)).copied().collect()
    };
    let best = |rows: &[&Row], rung: Rung, proven: bool| {
        let figures = rows.iter().filter_map(|row| figure(&[*row]));
        let mut figure = figures.max_by(|a, b| a.rate.0.total_cmp(&b.rate.0))?;
        if !proven {
            figure.marks.push(Mark::Unproven);
        }
        Some(Layer { rung, figure })
    };
    let same_load = |row: &Row| {
        row.block_size_bytes == first.block_size_bytes
            && (row.iodepth, row.lanes) == (first.iodepth, first.lanes)
    };
    let network = of(&|row| row.stage == "network" && row.is_stream());
    let single = of(&|row| row.stage == "network" && row.connections == Some(1));
    let storage = of(&|row| row.stage == "storage" && same_load(row));
    let storage_best = of(&|row| row.stage.starts_with("storage") && !same_load(row));
    let protocol = of(&|row| row.stage == "protocol");
    let layers = [
        best(&network, Rung::Network, true),
        best(&single, Rung::SingleFlow, true).filter(|_| load.connections == Some(1)),
        best(&storage, Rung::Storage, false),
        best(&storage_best, Rung::StorageBest, false),
        best(&protocol, Rung::Protocol, false),
    ];
    Some(Case {
        workload: format!("{} on {}", first.workload, first.target),
        end_to_end: figure(group)?,
        layers: layers.into_iter().flatten().collect(),
        load,
        ..Case::of(direction, 0.0)
    })
}

/// The mean over repeats, for writes the durable rate where all tell one; with all their marks.
fn figure(rows: &[&Row]) -> Option<Figure> {
    let durable: Option<Vec<f64>> = rows.iter().map(|row| Some(row.durable()?.0)).collect();
    let accepted: Vec<f64> = rows
        .iter()
        .filter_map(|row| Some(row.throughput()?.0))
        .collect();
    let mean = mean_of(&durable.unwrap_or(accepted))?;
    let has = |flag: &Flag| rows.iter().any(|row| row.flags.contains(flag));
    let marks = MARKS
        .iter()
        .filter(|(flag, _)| has(flag))
        .map(|(_, mark)| *mark);
    Some(Figure {
        low: mean.interval.map(|(low, _)| Rate(low.max(0.0))),
        high: mean.interval.map(|(_, high)| Rate(high)),
        marks: marks.collect(),
        ..Figure::of(mean.mean)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::STREAM;

    fn row(stage: &str, direction: &str, megabytes: u64) -> Row {
        Row {
            stage: stage.into(),
            target: "/mnt/nas".into(),
            workload: "copy".into(),
            direction: direction.into(),
            block_size_bytes: Some(1 << 20),
            bytes: megabytes * 10_000_000,
            seconds: Some(10.0),
            ops: 1000,
            ..Row::blank()
        }
    }

    fn imported(rows: Vec<Row>) -> (String, Imported) {
        let tests = rows.into_iter().map(|row| (row, Vec::new())).collect();
        let one = Imported {
            tool: "fio-3.33".into(),
            settings: serde_json::Value::Null,
            tests,
            judged: Vec::new(),
            notes: vec!["a note".into()],
        };
        ("fio.json".into(), one)
    }

    #[test]
    fn files_make_one_ladder() {
        let network = Row {
            pattern: STREAM.into(),
            connections: Some(4),
            ..row("network", "read", 118)
        };
        let files = [
            imported(vec![row("run", "read", 116), row("run", "read", 114)]),
            imported(vec![network]),
            imported(vec![
                row("storage", "read", 500),
                row("storage", "write", 30),
            ]),
        ];
        let published = publication(&files).expect("cases");
        assert_eq!(published.case.len(), 1);
        let case = &published.case[0].input;
        assert!((case.rate() / 115e6 - 1.0).abs() < 1e-9 && case.end_to_end.low.is_some());
        assert!((case.layer(Rung::Network).expect("measured").rate.0 / 118e6 - 1.0).abs() < 1e-9);
        let disks = case.layer(Rung::Storage).expect("measured");
        assert!((disks.rate.0 / 500e6 - 1.0).abs() < 1e-9 && disks.has(Mark::Unproven));
        assert_eq!(published.case[0].limit, "network");
        assert!(published.case[0].holds());
    }

    #[test]
    fn a_diagnosis_beside_other_files_takes_none_of_them_away() {
        let mut diagnosis = imported(vec![
            row("end_to_end", "read", 60),
            Row {
                pattern: STREAM.into(),
                connections: Some(4),
                ..row("network", "read", 118)
            },
        ]);
        diagnosis.1.judged = vec![Case::of(Direction::Read, 60e6)];
        let files = [diagnosis, imported(vec![row("run", "read", 116)])];
        let published = publication(&files).expect("cases");
        let rates: Vec<f64> = published
            .case
            .iter()
            .map(|case| case.input.rate())
            .collect();
        assert_eq!(rates, [60e6, 116e6]);
        // What the diagnosis measured of the network holds for the other file too.
        assert!(published.case[1].input.layer(Rung::Network).is_some());
    }

    #[test]
    fn layers_alone_are_no_case() {
        let error =
            publication(&[imported(vec![row("storage", "read", 500)])]).expect_err("no workload");
        assert!(error.to_string().contains("layers only"), "{error}");
    }
}
