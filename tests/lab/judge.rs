//! Whether a diagnosis was right: what it wrote against what a scenario expects. Pure, but for [`Said::read`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::scenario::{Direction, Level};

/// What a diagnosis wrote of one direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Said {
    /// Keys joined by `+`.
    pub limit: String,
    pub next_limit: String,
    pub confidence: String,
    pub evidence: String,
    pub advice: String,
    /// Bytes per second by rung.
    pub rungs: BTreeMap<String, f64>,
}

impl Said {
    /// Reads ladder.csv and verdict.csv of a directory.
    pub fn read(out: &Path, direction: &str) -> Result<Self, String> {
        let rows = |name: &str| -> Result<Vec<BTreeMap<String, String>>, String> {
            let path = out.join(name);
            let mut reader =
                csv::Reader::from_path(&path).map_err(|error| format!("{name}: {error}"))?;
            let rows = reader.deserialize();
            rows.collect::<Result<_, _>>()
                .map_err(|error| format!("{name}: {error}"))
        };
        let own = |row: &BTreeMap<String, String>| {
            row.get("direction").is_some_and(|one| one == direction)
        };
        let verdicts: Vec<_> = rows("verdict.csv")?.into_iter().filter(own).collect();
        let [verdict] = verdicts.as_slice() else {
            return Err(format!("{} verdicts on {direction}s", verdicts.len()));
        };
        let text = |key: &str| verdict.get(key).cloned().unwrap_or_default();
        let mut said = Self {
            limit: text("limit"),
            next_limit: text("next_limit"),
            confidence: text("confidence"),
            evidence: text("evidence"),
            advice: text("advice"),
            rungs: BTreeMap::new(),
        };
        for row in rows("ladder.csv")?.iter().filter(|row| own(row)) {
            let rate = row
                .get("rate_bytes_per_s")
                .and_then(|text| text.parse().ok());
            if let (Some(rung), Some(rate)) = (row.get("rung"), rate) {
                said.rungs.insert(rung.clone(), rate);
            }
        }
        Ok(said)
    }

    /// Its rungs in words: `network 23.9, storage 60.1`.
    pub fn measured(&self) -> String {
        let all = self.rungs.iter();
        let all: Vec<String> = all
            .map(|(rung, rate)| format!("{rung} {:.1}", rate / 1e6))
            .collect();
        all.join(", ")
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Right,
    /// Not sure, and that is no mistake here.
    Unresolved,
    /// With all that is wrong.
    Wrong(String),
    /// Why it could not be made here.
    NotRun(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right => write!(f, "right"),
            Self::Unresolved => write!(f, "unresolved, as allowed"),
            Self::Wrong(why) => write!(f, "WRONG: {why}"),
            Self::NotRun(why) => write!(f, "not run: {why}"),
        }
    }
}

/// Judges what was said.
pub fn judge(expected: &Direction, level: Level, said: &Said) -> Outcome {
    let with = expected.with(level);
    let mut wrong = Vec::new();
    let unresolved = said.limit == "unresolved";
    let allowed = unresolved && with.unresolved;
    if !allowed && !with.limits.contains(&said.limit) {
        wrong.push(format!("it says '{}'", said.limit));
    }
    if !with.next.is_empty() && !with.next.contains(&said.next_limit) {
        wrong.push(format!("the next limit is '{}'", said.next_limit));
    }
    let parts: Vec<&str> = said.limit.split('+').collect();
    for never in &expected.must_not_say {
        if parts.contains(&never.as_str()) {
            wrong.push(format!("it must not say '{never}'"));
        }
    }
    if unresolved && said.advice.trim().is_empty() {
        wrong.push("it can't tell, and does not say what would settle it".to_owned());
    }
    for ceiling in &expected.ceilings {
        // What this level can't measure is no mistake; that one of them is missing with an agent is.
        let Some(rate) = said.rungs.get(&ceiling.rung) else {
            if level == Level::Agent {
                wrong.push(format!("it has no {}", ceiling.rung));
            }
            continue;
        };
        let off = 100.0 * (rate / 1e6 / ceiling.mb_s - 1.0);
        if off.abs() > ceiling.tolerance_percent {
            wrong.push(format!(
                "{} is {:.1} MB/s, {off:+.1} % off the imposed {:.1}",
                ceiling.rung,
                rate / 1e6,
                ceiling.mb_s
            ));
        }
    }
    match (wrong.is_empty(), allowed) {
        (false, _) => Outcome::Wrong(wrong.join("; ")),
        (true, true) => Outcome::Unresolved,
        (true, false) => Outcome::Right,
    }
}
