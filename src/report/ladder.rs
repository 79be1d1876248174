//! A case as a waterfall of its layers, its verdict in words, and both as CSV.
//!
//! The waterfall goes from the outside to the inside: each layer with what it carries, and that as a share of the layer around
//! it. Rates on the screen are MB/s and Gbit/s side by side, in files bytes per second.

use crate::error::{Error, Result};
use crate::published::{Published, Shown};
use crate::report::table::wrap;
use crate::verdict::case::{Case, Figure, Mark, Rung};
use crate::verdict::{Verdict, words};

/// Columns of verdict.csv, apart from the run's own.
pub const VERDICT_COLUMNS: &[&str] = &[
    "direction",
    "workload",
    "limit",
    "share_of_limit",
    "next_limit",
    "confidence",
    "evidence",
    "advice",
];

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
        "  {:<22} {:>9} {:>8}  {:<15} {}\n",
        "layer", "MB/s", "Gbit/s", "share of outer", "marks"
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

fn line(name: &str, figure: &Figure, around: Option<&Figure>) -> String {
    let share = around.map_or(String::new(), |around| {
        words::percent(figure.rate.0 / around.rate.0)
    });
    let marks: Vec<&str> = figure.marks.iter().map(|mark| named(*mark)).collect();
    let interval = figure
        .low
        .zip(figure.high)
        .map_or(String::new(), |(low, high)| {
            format!("{:.1}..{:.1} ", low.megabytes(), high.megabytes())
        });
    let text = format!(
        "  {name:<22} {:>9} {:>8}  {share:<15} {interval}{}",
        format!("{:.1}", figure.rate.megabytes()),
        format!("{:.3}", figure.rate.gigabits()),
        marks.join(", ")
    );
    format!("{}\n", text.trim_end())
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

/// The lines of verdict.csv for these cases.
pub fn verdicts_csv(cases: &[Shown]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |error: csv::Error| Error::usage(format!("verdict.csv: {error}"));
    writer.write_record(VERDICT_COLUMNS).map_err(failed)?;
    for shown in cases {
        let verdict = shown.verdict();
        let texts: Vec<&str> = verdict
            .evidence
            .iter()
            .map(|one| one.text.as_str())
            .collect();
        let confidence = serde_json::to_value(verdict.confidence).ok();
        writer
            .write_record([
                shown.input.direction.key(),
                &shown.name,
                &verdict.limit_key(),
                &verdict
                    .share
                    .map_or(String::new(), |share| format!("{share:.3}")),
                verdict.next.map_or("", |next| next.limit.key()),
                confidence
                    .as_ref()
                    .and_then(|value| value.as_str())
                    .unwrap_or_default(),
                &texts.join("; "),
                &verdict.advice.join("; "),
            ])
            .map_err(failed)?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| Error::usage(format!("verdict.csv: {error}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
