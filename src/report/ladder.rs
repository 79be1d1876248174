//! A case as a waterfall of its layers, its verdict in words, and both as CSV.
//!
//! The waterfall goes from the outside to the inside: each layer with what it carries, and that as a share of the layer around
//! it. Rates on the screen are MB/s and Gbit/s side by side, in files bytes per second.

use crate::error::{Error, Result};
use crate::published::{Published, Shown};
use crate::record::SCHEMA_VERSION;
use crate::report::table::wrap;
use crate::verdict::case::{Case, Figure, Mark, Rung};
use crate::verdict::{Verdict, words};

const WIDTH: usize = 80;

/// Layers from the outside to the inside, with their names on the screen and the layer around each.
const LAYERS: &[(Rung, &str, Option<Rung>)] = &[
    (Rung::Line, "line", None),
    (Rung::Network, "network", Some(Rung::Line)),
    (Rung::SingleFlow, "one connection", Some(Rung::Network)),
    (Rung::RoundTrip, "waiting for answers", Some(Rung::Network)),
    (Rung::Protocol, "protocol", Some(Rung::Network)),
    (Rung::OwnClient, "our own client", Some(Rung::Network)),
    (Rung::StorageBest, "disks at their best", None),
    (Rung::Storage, "disks, same load", Some(Rung::StorageBest)),
    (Rung::Tool, "this program", None),
];

/// What a mark is called on the screen.
const fn named(mark: Mark) -> &'static str {
    match mark {
        Mark::AboveCeiling => "above its ceiling",
        Mark::CeilingUnderestimated => "too low",
        Mark::GeneratorBound => "its generator was the limit",
        Mark::HotSet => "from the server's memory",
        Mark::ServerCached => "perhaps from the server's memory",
        Mark::ClientCached => "from this computer's memory",
        Mark::Unproven => "not proven to be the share's",
        Mark::NotDurable => "not durable",
        Mark::Compressible => "compressible",
        Mark::Offloaded => "blocks shared",
        Mark::Peak => "peak, not mean",
        Mark::SameHost => "same host",
        Mark::TooShort => "too short",
    }
}

/// The waterfall, the sentence, its evidence and what to do.
#[must_use]
pub fn case(case: &Case, verdict: &Verdict) -> String {
    let mut text = format!(
        "  {:<20} {:>8} {:>7} {:>18}  {:>5}  {}\n",
        "layer", "MB/s", "Gbit/s", "95 % interval", "share", "marks"
    );
    for (rung, name, around) in LAYERS {
        if let Some(figure) = case.layer(*rung) {
            let around = around.and_then(|rung| case.layer(rung));
            text.push_str(&line(name, figure, around));
        }
    }
    let around = case.layer(Rung::Network).or(case.layer(Rung::Line));
    text.push_str(&line("the workload", &case.end_to_end, around));
    text.push('\n');
    text.push_str(&wrap(&words::sentence(case, verdict), WIDTH));
    for evidence in &verdict.evidence {
        text.push_str(&wrap(&format!("- {}", evidence.text), WIDTH));
    }
    for advice in &verdict.advice {
        text.push_str(&wrap(&format!("To do: {advice}"), WIDTH));
    }
    text
}

/// What to paste into a forum: everything that a helper there asks for, and no name or address.
#[must_use]
pub fn forum<'a>(head: &str, cases: impl Iterator<Item = (&'a Case, &'a Verdict)>) -> String {
    let mut text = format!("```\n{head}\n");
    for (case, verdict) in cases {
        let mut layers: Vec<String> = LAYERS
            .iter()
            .filter(|(rung, ..)| *rung != Rung::Tool)
            .filter_map(|(rung, name, _)| {
                let rate = case.layer(*rung)?.rate.megabytes();
                Some(format!("{name} {}", short(rate)))
            })
            .collect();
        layers.push(format!(
            "workload {}",
            short(case.end_to_end.rate.megabytes())
        ));
        text.push_str(&format!(
            "{}, MB/s: {}\n",
            case.workload,
            layers.join(" | ")
        ));
        text.push_str(&format!("{}\n", words::sentence(case, verdict)));
        for evidence in &verdict.evidence {
            text.push_str(&format!("- {}\n", evidence.text));
        }
    }
    text.push_str("```\n");
    text
}

fn line(name: &str, figure: &Figure, around: Option<&Figure>) -> String {
    let share = around.map_or(String::new(), |around| {
        words::percent(figure.rate.0 / around.rate.0)
    });
    let marks: Vec<&str> = figure.marks.iter().map(|mark| named(*mark)).collect();
    let interval = figure
        .low
        .zip(figure.high)
        .map_or(String::new(), |(low, high)| {
            format!("{} to {}", short(low.megabytes()), short(high.megabytes()))
        });
    let head = format!(
        "  {name:<20} {:>8} {:>7} {interval:>18}  {share:>5}",
        short(figure.rate.megabytes()),
        format!("{:.2}", figure.rate.gigabits()),
    );
    let mut text = head.trim_end().to_owned();
    // Marks that do not fit stand below, where the eye looks for them.
    for (at, mark) in marks.iter().enumerate() {
        let room = text.lines().last().map_or(0, str::len);
        let column = 68.max(if at == 0 { room + 2 } else { 0 });
        if at == 0 && column + mark.len() <= WIDTH {
            text.push_str(&format!("{:1$}{mark}", "", column - room));
        } else {
            text.push_str(&format!("\n{:24}({mark})", ""));
        }
    }
    text.push('\n');
    text
}

/// Three digits or more: a decimal only where it says something.
fn short(megabytes: f64) -> String {
    if megabytes < 1000.0 {
        format!("{megabytes:.1}")
    } else {
        format!("{megabytes:.0}")
    }
}

/// A publication: its conditions, what its figures compute to, and a verdict on each case.
pub fn published(published: &Published) -> Result<String> {
    let wrong = |reason: String| Error::usage(format!("{}: {reason}", published.id));
    let mut text = format!("\n{}: {}\n", published.id, published.title);
    text.push_str(&wrap(&format!("Source: {}", published.source), WIDTH));
    for condition in &published.conditions {
        text.push_str(&wrap(&format!("- {condition}"), WIDTH));
    }
    for label in &published.labels {
        text.push_str(&wrap(&format!("NOTE: {label}"), WIDTH));
    }
    if !published.compute.is_empty() {
        text.push_str("\nComputed\n");
    }
    for compute in &published.compute {
        let value = compute.value().map_err(wrong)?;
        text.push_str(&wrap(&format!("{}: {value}", compute.what), WIDTH));
        if let Some(off) = compute.slip().map_err(wrong)? {
            let printed = compute.printed.as_deref().unwrap_or_default();
            text.push_str(&wrap(
                &format!("  printed was {printed}: {:+.1} % off", off * 100.0),
                WIDTH,
            ));
        }
    }
    for shown in &published.case {
        text.push_str(&format!("\n{}\n", shown.name));
        text.push_str(&case(&shown.input, &shown.verdict()));
    }
    Ok(text)
}

/// Columns of ladder.csv.
pub const LADDER: &[&str] = &[
    "schema_version",
    "run_id",
    "direction",
    "block_size_bytes",
    "rung",
    "rate_bytes_per_s",
    "ci95_low_bytes_per_s",
    "ci95_high_bytes_per_s",
    "parent_rung",
    "share_of_parent",
    "flags",
];

/// Columns of verdict.csv.
pub const VERDICT: &[&str] = &[
    "schema_version",
    "run_id",
    "direction",
    "workload",
    "limit",
    "share_of_limit",
    "next_limit",
    "confidence",
    "evidence",
    "advice",
];

/// The end-to-end rate among the rungs of ladder.csv.
const END_TO_END: &str = "end_to_end";

/// ladder.csv: the layers of each case, from the outside to the inside, and the workload itself last.
pub fn ladder_csv<'a>(
    run_id: &str,
    cases: impl Iterator<Item = (&'a Case, Option<u64>)>,
) -> Result<String> {
    let mut lines = Vec::new();
    for (case, block) in cases {
        let mut line = |rung: &str, figure: &Figure, parent: Option<(&str, &Figure)>| {
            let rate = |rate: f64| format!("{rate:.0}");
            let mut marks: Vec<String> = figure.marks.iter().map(|mark| key(*mark)).collect();
            marks.dedup();
            lines.push(vec![
                SCHEMA_VERSION.to_string(),
                run_id.to_owned(),
                case.direction.key().to_owned(),
                block.map_or(String::new(), |block| block.to_string()),
                rung.to_owned(),
                rate(figure.rate.0),
                figure.low.map_or(String::new(), |low| rate(low.0)),
                figure.high.map_or(String::new(), |high| rate(high.0)),
                parent.map_or(String::new(), |(name, _)| name.to_owned()),
                parent.map_or(String::new(), |(_, around)| {
                    format!("{:.4}", figure.rate.0 / around.rate.0)
                }),
                marks.join(" "),
            ]);
        };
        for (rung, _, around) in LAYERS {
            let Some(figure) = case.layer(*rung) else {
                continue;
            };
            let name = key(*rung);
            let around = around.and_then(|rung| Some((key(rung), case.layer(rung)?)));
            line(
                &name,
                figure,
                around
                    .as_ref()
                    .map(|(name, figure)| (name.as_str(), *figure)),
            );
        }
        let around = innermost(case).map(|(rung, figure)| (key(rung), figure));
        line(
            END_TO_END,
            &case.end_to_end,
            around
                .as_ref()
                .map(|(name, figure)| (name.as_str(), *figure)),
        );
    }
    csv_text(LADDER, lines)
}

/// What the workload is compared with: the lower of the protocol's way and the disks.
fn innermost(case: &Case) -> Option<(Rung, &Figure)> {
    let way = [
        Rung::Protocol,
        Rung::RoundTrip,
        Rung::SingleFlow,
        Rung::Network,
        Rung::Line,
    ];
    let way = way
        .into_iter()
        .find_map(|rung| Some((rung, case.layer(rung)?)));
    let disks = [Rung::Storage, Rung::StorageBest];
    let disks = disks
        .into_iter()
        .find_map(|rung| Some((rung, case.layer(rung)?)));
    let lower = |a: (Rung, &'_ Figure), b: (Rung, &'_ Figure)| a.1.rate.0 <= b.1.rate.0;
    match (way, disks) {
        (Some(way), Some(disks)) => Some(if lower(way, disks) { way } else { disks }),
        (way, disks) => way.or(disks),
    }
}

/// A key as files have it.
fn key(of: impl serde::Serialize) -> String {
    let value = serde_json::to_value(of).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// verdict.csv.
pub fn verdict_csv<'a>(
    run_id: &str,
    cases: impl Iterator<Item = (&'a Case, &'a Verdict)>,
) -> Result<String> {
    let lines = cases.map(|(case, verdict)| {
        let mut line = vec![SCHEMA_VERSION.to_string(), run_id.to_owned()];
        line.extend(verdict_cells(&case.workload, case, verdict));
        line
    });
    csv_text(VERDICT, lines.collect())
}

/// The verdicts on published cases, without a run's columns.
pub fn verdicts_csv(cases: &[Shown]) -> Result<String> {
    let lines = cases
        .iter()
        .map(|shown| verdict_cells(&shown.name, &shown.input, &shown.verdict()));
    csv_text(&VERDICT[2..], lines.collect())
}

fn verdict_cells(name: &str, case: &Case, verdict: &Verdict) -> Vec<String> {
    let texts: Vec<&str> = verdict
        .evidence
        .iter()
        .map(|one| one.text.as_str())
        .collect();
    vec![
        case.direction.key().to_owned(),
        name.to_owned(),
        verdict.limit_key(),
        verdict
            .share
            .map_or(String::new(), |share| format!("{share:.3}")),
        verdict.next.map_or("", |next| next.limit.key()).to_owned(),
        key(verdict.confidence),
        texts.join("; "),
        verdict.advice.join("; "),
    ]
}

fn csv_text(header: &[&str], lines: Vec<Vec<String>>) -> Result<String> {
    let failed = |error: csv::Error| Error::usage(format!("CSV can't be written: {error}"));
    let mut writer = csv::WriterBuilder::new()
        .terminator(csv::Terminator::CRLF)
        .from_writer(Vec::new());
    writer.write_record(header).map_err(failed)?;
    for line in lines {
        writer.write_record(line).map_err(failed)?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| Error::usage(format!("CSV can't be written: {error}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
