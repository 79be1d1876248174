//! Other people's published figures: as they were printed, what they compute to, and what they show.
//!
//! A file (fixtures/published/*.toml, or a reader's own) has the figures with the units that their source printed, the
//! conditions, computations with the values that must come out, and cases for [`crate::verdict`]. What a source shows only in
//! a picture has no value here and gets none. Pure. Must not know: files, printing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Nanos, Rate};
use crate::verdict::case::Case;
use crate::verdict::{Confidence, Limit, Verdict, decide};

/// A publication.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Its short name.
    pub id: String,
    /// What was measured.
    pub title: String,
    /// Where it stands, and when.
    pub source: String,
    /// The conditions as far as they were told.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// What must be said wherever its figures are used.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Figures as printed.
    #[serde(default)]
    pub figure: Vec<Printed>,
    /// What they compute to.
    #[serde(default)]
    pub compute: Vec<Compute>,
    /// What they show.
    #[serde(default)]
    pub case: Vec<Shown>,
}

/// A figure as its source printed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// What it is of.
    pub what: String,
    /// The printed text; absent where the source shows a picture only.
    #[serde(default)]
    pub printed: Option<String>,
    /// What the printed unit means, or that it is wrong.
    #[serde(default)]
    pub note: Option<String>,
}

/// One computation with what must come out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// In words.
    pub what: String,
    /// From which numbers.
    pub from: From,
    /// What must come out: a rate or a time with its unit, a share as a bare number.
    pub is: String,
    /// How far off it may be, as a share.
    pub within: f64,
    /// What the source says instead, where that is wrong.
    #[serde(default)]
    pub printed: Option<String>,
}

/// Numbers of a computation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum From {
    /// Bytes over a time is a rate.
    Moved {
        /// How many.
        bytes: Bytes,
        /// In what time.
        time: Nanos,
    },
    /// Bytes at a rate take a time.
    Takes {
        /// How many.
        bytes: Bytes,
        /// At what rate.
        rate: String,
    },
    /// One rate in another unit.
    Rate(String),
    /// All of these together.
    Sum(Vec<String>),
    /// One rate as a share of another.
    Share {
        /// The part.
        of: String,
        /// The whole.
        whole: String,
    },
    /// Operations of a size each second are a rate.
    Operations {
        /// Each second.
        iops: f64,
        /// Bytes of each.
        size: Bytes,
    },
    /// Requests under way over operations each second is the time of one (Little's law).
    Little {
        /// Under way.
        depth: f64,
        /// Each second.
        iops: f64,
    },
    /// What a window carries over a round trip.
    Window {
        /// Bytes under way.
        bytes: Bytes,
        /// The round trip.
        rtt: Nanos,
    },
}

/// One case with the verdict of somebody who knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// What it is about.
    pub name: String,
    /// The case.
    pub input: Case,
    /// The limits that must be named, as verdict.csv has them.
    pub limit: String,
    /// How sure at most: nobody can be surer than what was published.
    pub at_most: Confidence,
    /// Limits that must not be named.
    #[serde(default)]
    pub never: Vec<Limit>,
}

/// A value that a computation gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Bytes per second.
    Rate(f64),
    /// Seconds.
    Time(f64),
    /// A bare number.
    Number(f64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => {
                let rate = Rate(*rate);
                write!(
                    f,
                    "{:.2} MB/s = {:.2} MiB/s = {:.3} Gbit/s",
                    rate.megabytes(),
                    rate.mebibytes(),
                    rate.gigabits()
                )
            }
            Self::Time(seconds) if *seconds < 1e-3 => write!(f, "{:.2} us", seconds * 1e6),
            Self::Time(seconds) if *seconds < 1.0 => write!(f, "{:.3} ms", seconds * 1e3),
            Self::Time(seconds) => write!(f, "{seconds:.2} s"),
            Self::Number(number) => write!(f, "{number:.3}"),
        }
    }
}

impl Value {
    const fn number(self) -> f64 {
        match self {
            Self::Rate(value) | Self::Time(value) | Self::Number(value) => value,
        }
    }

    /// Text of the same kind as this value.
    fn like(self, text: &str) -> Result<f64, String> {
        match self {
            Self::Rate(_) => rate(text),
            Self::Time(_) => {
                let time: Nanos = text.parse().map_err(|error| format!("{error}"))?;
                Ok(time.seconds())
            }
            Self::Number(_) => text
                .parse()
                .map_err(|_| format!("'{text}' is not a number")),
        }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: Rate = text.parse().map_err(|error| format!("{error}"))?;
    Ok(rate.0)
}

impl Compute {
    /// What comes out; the reason where the numbers can't be read.
    pub fn value(&self) -> Result<Value, String> {
        Ok(match &self.from {
            From::Moved { bytes, time } => Value::Rate(bytes.0 as f64 / time.seconds()),
            From::Takes { bytes, rate: at } => Value::Time(bytes.0 as f64 / rate(at)?),
            From::Rate(text) => Value::Rate(rate(text)?),
            From::Sum(texts) => {
                let rates: Result<Vec<f64>, String> = texts.iter().map(|text| rate(text)).collect();
                Value::Rate(rates?.iter().sum())
            }
            From::Share { of, whole } => Value::Number(rate(of)? / rate(whole)?),
            From::Operations { iops, size } => Value::Rate(iops * size.0 as f64),
            From::Little { depth, iops } => Value::Time(depth / iops),
            From::Window { bytes, rtt } => Value::Rate(bytes.0 as f64 / rtt.seconds()),
        })
    }

    /// Whether that is what must come out.
    pub fn holds(&self) -> Result<bool, String> {
        let value = self.value()?;
        let wanted = value.like(&self.is)?;
        Ok((value.number() / wanted - 1.0).abs() <= self.within)
    }

    /// How far the source's own figure is off, as a share; None where it prints none, or one that holds.
    pub fn slip(&self) -> Result<Option<f64>, String> {
        let Some(printed) = &self.printed else {
            return Ok(None);
        };
        let value = self.value()?;
        let off = value.like(printed)? / value.number() - 1.0;
        Ok((off.abs() > self.within).then_some(off))
    }
}

impl Shown {
    /// The verdict on it.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        decide(&self.input)
    }

    /// Whether that is what must be said.
    #[must_use]
    pub fn holds(&self) -> bool {
        let verdict = self.verdict();
        verdict.limit_key() == self.limit
            && verdict.confidence <= self.at_most
            && !verdict
                .limits
                .iter()
                .any(|limit| self.never.contains(limit))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn all() -> Vec<(std::path::PathBuf, Published)> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/published");
        let paths = std::fs::read_dir(&directory).expect("fixtures/published");
        let mut found: Vec<_> = paths
            .map(|entry| entry.expect("readable").path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
            .map(|path| {
                let text = std::fs::read_to_string(&path).expect("readable");
                let published =
                    toml::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
                (path, published)
            })
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    #[test]
    fn all_publications_compute_and_are_judged_as_experts_do() {
        let mut wrong = Vec::new();
        for (path, published) in all() {
            let name = path.file_stem().expect("a name").to_string_lossy();
            assert!(
                name.starts_with(&published.id.to_lowercase()),
                "{name}: {}",
                published.id
            );
            for compute in &published.compute {
                match compute.holds() {
                    Ok(true) => {}
                    other => wrong.push(format!(
                        "{name}: {}: {:?}, not {} ({other:?})",
                        compute.what,
                        compute.value(),
                        compute.is
                    )),
                }
                if compute.printed.is_some() && compute.slip() == Ok(None) {
                    wrong.push(format!(
                        "{name}: {}: the printed figure holds",
                        compute.what
                    ));
                }
            }
            for shown in &published.case {
                if !shown.holds() {
                    let verdict = shown.verdict();
                    wrong.push(format!(
                        "{name}: {}: {} ({:?}), not {} ({:?} at most): {verdict:#?}",
                        shown.name,
                        verdict.limit_key(),
                        verdict.confidence,
                        shown.limit,
                        shown.at_most
                    ));
                }
            }
            assert!(
                !published.compute.is_empty() || !published.case.is_empty(),
                "{name} checks nothing"
            );
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn a_wrong_figure_is_found() {
        let compute = Compute {
            what: "a copy".into(),
            from: From::Moved {
                bytes: Bytes(52_046_502_432),
                time: "107.07s".parse().expect("a time"),
            },
            is: "486.098 MB/s".into(),
            within: 1e-4,
            printed: Some("568889 KiB/s".into()),
        };
        assert_eq!(compute.holds(), Ok(true));
        let slip = compute.slip().expect("numbers").expect("a slip");
        assert!((slip - 0.198).abs() < 0.001, "{slip}");
        let wrong = Compute {
            is: "490 MB/s".into(),
            printed: None,
            ..compute
        };
        assert_eq!((wrong.holds(), wrong.slip()), (Ok(false), Ok(None)));
    }
}
