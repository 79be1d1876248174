//! Rows in fixtures/verdicts: a case, and what must be said of it.

use std::path::Path;

use serde::Deserialize;

use super::case::{Case, Figure, Layer, Rung};
use super::{Confidence, Limit, decide, rules, words};
use crate::op::Direction;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// What it is about.
    about: String,
    case: Case,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    limit: String,
    confidence: Confidence,
    /// The rule that must speak.
    rule: String,
    next: Option<Limit>,
    /// Words that must be in the sentence, the evidence or the advice.
    #[serde(default)]
    says: Vec<String>,
    /// Words that must not.
    #[serde(default)]
    never: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    row: Vec<Row>,
}

fn rows() -> Vec<Row> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/verdicts");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&directory).expect("fixtures/verdicts") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("readable");
        let rows: Rows = toml::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        found.extend(rows.row);
    }
    found
}

#[test]
fn every_row_gets_its_verdict() {
    let wrong: Vec<String> = rows().iter().flat_map(faults).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong with the verdict on a row.
fn faults(row: &Row) -> Vec<String> {
    let verdict = decide(&row.case);
    let expect = &row.expect;
    let mut found = Vec::new();
    let mut hold = |right: bool, what: &str| {
        if !right {
            found.push(format!("{}: {what}: {verdict:#?}", row.about));
        }
    };
    hold(verdict.limit_key() == expect.limit, "limit");
    hold(verdict.confidence == expect.confidence, "confidence");
    hold(verdict.rule == expect.rule, "rule");
    hold(
        verdict.next.map(|next| next.limit) == expect.next,
        "next limit",
    );
    let mut said = vec![words::sentence(&row.case, &verdict)];
    said.extend(verdict.evidence.iter().map(|one| one.text.clone()));
    said.extend(verdict.advice.clone());
    let said = said.join("\n");
    for word in &expect.says {
        hold(
            said.contains(word.as_str()),
            &format!("'{word}' is missing in\n{said}\n"),
        );
    }
    for word in &expect.never {
        hold(
            !said.contains(word.as_str()),
            &format!("'{word}' is in\n{said}\n"),
        );
    }
    found
}

#[test]
fn every_rule_has_rows() {
    let spoke: Vec<String> = rows().into_iter().map(|row| row.expect.rule).collect();
    for (name, _) in rules::RULES
        .iter()
        .chain([&("unresolved", rules::RULES[0].1)])
    {
        assert!(
            spoke.iter().any(|rule| rule == name),
            "no row of fixtures/verdicts needs {name}"
        );
    }
}

#[test]
fn a_rate_alone_is_never_explained() {
    for rate in [1e3, 1e8, 1e11] {
        let case = Case::of(Direction::Read, rate);
        let verdict = decide(&case);
        assert_eq!(verdict.limits, [Limit::Unresolved]);
        assert_eq!(verdict.confidence, Confidence::Unresolved);
        assert!(verdict.advice[0].contains("--net"), "{verdict:?}");
    }
}

/// More evidence never makes a verdict less sure, and a lower ceiling never names a higher one.
#[test]
fn the_named_ceiling_is_the_lowest_reached() {
    for storage in [100.0, 200.0, 400.0, 800.0] {
        for network in [100.0, 200.0, 400.0, 800.0] {
            let layer = |rung, mb: f64| Layer {
                rung,
                figure: Figure::of(mb * 1e6),
            };
            let lowest = f64::min(storage, network);
            let case = Case {
                layers: vec![layer(Rung::Storage, storage), layer(Rung::Network, network)],
                ..Case::of(Direction::Write, lowest * 0.95e6)
            };
            let wanted = match storage.total_cmp(&network) {
                std::cmp::Ordering::Less => "storage",
                std::cmp::Ordering::Equal => "network+storage",
                std::cmp::Ordering::Greater => "network",
            };
            assert_eq!(decide(&case).limit_key(), wanted, "{storage} {network}");
        }
    }
}
