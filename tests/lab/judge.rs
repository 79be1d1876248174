//! Whether a diagnosis was right: what it wrote against what a scenario expects. Pure, but for [`Said::read`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::scenario::{Direction, Level};

/// What a limited device may do at once, in seconds of its rate: a slice of the block controller's (block/blk-throttle.c, HZ / 10).
/// Direct writes and reads of a loop device limited to 60 MB/s came 0.085 s early, after 2.4 s (62.1 MB/s) as after 12.4 s (60.4).
const SLICE_S: f64 = 0.1;
/// The shortest measurement of a disk, in seconds: a layer of a quick diagnosis.
const SHORTEST_S: f64 = 2.5;

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
        let most = ceiling.tolerance_percent * allowance();
        // A disk's limit lets a tenth of a second's bytes through at once before it holds (the kernel's slice).
        let at_once = if ceiling.rung.starts_with("storage") {
            100.0 * SLICE_S / SHORTEST_S
        } else {
            0.0
        };
        if off < -most || off > most + at_once {
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

/// How much wider tolerances are in CI, whose machine has neighbours: the verdict must be right there too, but a figure near
/// the truth is shown on a quiet one.
fn allowance() -> f64 {
    let quiet = ["NASGAUGE_LAB_CHOSEN", "NASGAUGE_FULL_TESTS"];
    if quiet
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
    {
        1.0
    } else {
        4.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> Direction {
        toml::from_str(
            r#"
            agent = { limits = ["network"], next = ["storage"] }
            iperf3 = { limits = ["network"] }
            uri = { limits = ["network"], unresolved = true }
            must_not_say = ["loss"]
            ceilings = [{ rung = "network", mb_s = 100 }]
            "#,
        )
        .expect("an expectation")
    }

    fn said(limit: &str, next: &str, network: Option<f64>) -> Said {
        Said {
            limit: limit.to_owned(),
            next_limit: next.to_owned(),
            advice: "add an agent".to_owned(),
            rungs: network
                .map(|rate| ("network".to_owned(), rate))
                .into_iter()
                .collect(),
            ..Said::default()
        }
    }

    #[test]
    fn a_disk_may_begin_with_a_slice_and_no_more() {
        let mut expected = expected();
        expected.ceilings[0].rung = "storage_best".to_owned();
        let off = |mb_s: f64| {
            let said = Said {
                rungs: [("storage_best".to_owned(), mb_s * 1e6)].into(),
                ..said("network", "storage", None)
            };
            judge(&expected, Level::Agent, &said) != Outcome::Right
        };
        let wide = allowance();
        assert!(!off(100.0 + 3.0 * wide + 3.9) && !off(100.0 - 2.9 * wide));
        assert!(off(100.0 + 3.0 * wide + 4.1) && off(100.0 - 3.1 * wide));
    }

    #[test]
    fn what_is_said_is_right_wrong_or_not_sure() {
        let expected = expected();
        let outcome = |level, said: &Said| judge(&expected, level, said);
        let wrong = |level, said: &Said| match outcome(level, said) {
            Outcome::Wrong(why) => why,
            other => panic!("{other}"),
        };
        let right = said("network", "storage", Some(102e6));
        assert_eq!(outcome(Level::Agent, &right), Outcome::Right);
        let unsure = said("unresolved", "", None);
        assert_eq!(outcome(Level::Uri, &unsure), Outcome::Unresolved);
        assert!(wrong(Level::Iperf3, &unsure).contains("'unresolved'"));
        let silent = Said {
            advice: " ".to_owned(),
            ..unsure
        };
        assert!(wrong(Level::Uri, &silent).contains("settle"));
        let other = said("storage", "network", Some(100e6));
        assert!(wrong(Level::Uri, &other).contains("'storage'"));
        let next = said("network", "protocol", Some(100e6));
        assert!(wrong(Level::Agent, &next).contains("next"));
        assert_eq!(outcome(Level::Iperf3, &next), Outcome::Right);
        let never = said("loss+network", "storage", Some(100e6));
        assert!(wrong(Level::Agent, &never).contains("must not say 'loss'"));
        let fast = said("network", "storage", Some(116e6));
        assert!(wrong(Level::Agent, &fast).contains("+16.0 %"));
        let low = said("network", "storage", Some(84e6));
        assert!(wrong(Level::Agent, &low).contains("-16.0 %"));
        let unmeasured = said("network", "storage", None);
        assert!(wrong(Level::Agent, &unmeasured).contains("no network"));
        assert_eq!(outcome(Level::Uri, &unmeasured), Outcome::Right);
    }
}
