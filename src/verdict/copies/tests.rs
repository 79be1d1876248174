//! Rows in fixtures/copies.toml: a copy, what its parts promise, and what must be said of it.

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// What it is about.
    about: String,
    copy: CopyCase,
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
    /// What the parts promise, to a thousandth.
    predicted: Option<Rate>,
    /// Words that must be in the sentence, the evidence or the advice.
    #[serde(default)]
    says: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    row: Vec<Row>,
}

fn rows() -> Vec<Row> {
    let text = include_str!("../../../fixtures/copies.toml");
    let rows: Rows = toml::from_str(text).expect("fixtures/copies.toml");
    rows.row
}

#[test]
fn every_row_gets_its_verdict() {
    for Row {
        about,
        copy,
        expect,
    } in rows()
    {
        let verdict = decide(&copy);
        let sentence = sentence(&copy, &verdict);
        let told = format!("{about}: {sentence}\n{verdict:#?}");
        assert_eq!(verdict.limit_key(), expect.limit, "{told}");
        assert_eq!(verdict.confidence, expect.confidence, "{told}");
        assert_eq!(verdict.rule, expect.rule, "{told}");
        assert_eq!(verdict.next.map(|next| next.limit), expect.next, "{told}");
        let predicted = copy.predicted();
        assert_eq!(predicted.is_some(), expect.predicted.is_some(), "{told}");
        if let Some((is, wanted)) = predicted.zip(expect.predicted) {
            assert!((is / wanted.0 - 1.0).abs() < 1e-3, "{is} {told}");
        }
        assert!(!verdict.advice.is_empty(), "{told}");
        let said = [sentence]
            .into_iter()
            .chain(verdict.evidence.iter().map(|one| one.text.clone()))
            .chain(verdict.advice.clone());
        let said: Vec<String> = said.collect();
        let said = said.join("\n");
        for word in &expect.says {
            assert!(said.contains(word.as_str()), "'{word}' is missing: {told}");
        }
    }
}

#[test]
fn every_rule_has_rows() {
    let spoke: Vec<String> = rows().into_iter().map(|row| row.expect.rule).collect();
    for name in RULES.iter().map(|(name, _)| *name).chain(["unresolved"]) {
        assert!(
            spoke.iter().any(|rule| rule == name),
            "no row of fixtures/copies.toml needs {name}"
        );
    }
}

#[test]
fn a_rate_alone_is_never_explained() {
    for rate in [1e3, 1e8, 1e11] {
        let copy = CopyCase::of(rate);
        let verdict = decide(&copy);
        assert_eq!(verdict.limits, [Limit::Unresolved]);
        assert_eq!(verdict.confidence, Confidence::Unresolved);
        assert_eq!(copy.predicted(), None);
    }
}

/// What the parts promise is what a copy of them takes: never more than either side, never less than half of the lower one.
#[test]
fn predictions_lie_between_their_bounds() {
    let rates = [20e6, 23.9e6, 60e6, 117.7e6, 1e9];
    for source in rates {
        for destination in rates {
            for network in rates {
                let way = Some(Way {
                    most: Rate(network),
                    one: None,
                });
                let overlapped = CopyCase {
                    overlapped: Some(true),
                    source: Some(Rate(source)),
                    destination: Some(Rate(destination)),
                    network_in: way,
                    network_out: way,
                    ..CopyCase::of(1.0)
                };
                let serial = CopyCase {
                    overlapped: Some(false),
                    ..overlapped.clone()
                };
                let lowest = source.min(destination).min(network);
                let at_once = overlapped.predicted().expect("both sides");
                let in_turn = serial.predicted().expect("both sides");
                assert!((at_once - lowest).abs() < 1.0);
                assert!(in_turn < at_once && in_turn >= 0.5 * lowest - 1.0);
                let shared = CopyCase {
                    shared: Some("one disk".to_owned()),
                    ..overlapped
                };
                assert_eq!(shared.predicted(), Some(in_turn));
            }
        }
    }
}

/// In every combination of a source, a destination and a network, the lowest is named, or all that are as low.
#[test]
fn the_lowest_part_is_named() {
    for source in [60.0, 20.0] {
        for destination in [60.0, 20.0] {
            for network in [1000.0, 24.0, 20.0] {
                let way = Some(Way {
                    most: Rate(network * 1e6),
                    one: None,
                });
                let mut copy = CopyCase {
                    overlapped: Some(true),
                    source: Some(Rate(source * 1e6)),
                    destination: Some(Rate(destination * 1e6)),
                    network_in: way,
                    ..CopyCase::of(1.0)
                };
                copy.rate = Rate(0.97 * copy.predicted().expect("both sides"));
                let lowest = f64::min(source, destination).min(network);
                let wanted: Vec<&str> = [
                    ("network", network),
                    ("source_storage", source),
                    ("destination_storage", destination),
                ]
                .into_iter()
                .filter(|(_, rate)| *rate <= 1.1 * lowest)
                .map(|(key, _)| key)
                .collect();
                assert_eq!(decide(&copy).limit_key(), wanted.join("+"), "{copy:?}");
            }
        }
    }
}
