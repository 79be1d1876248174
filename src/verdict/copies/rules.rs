//! The rules on copies, in the order in which they are asked; the first that has something to say decides. A new one needs rows in
//! fixtures/copies.toml.
//!
//! Must not know: how anything is shown.

use super::{CopyCase, Part, Side, in_turn};
use crate::verdict::ruling::FAR;
use crate::verdict::words::{self, mb, percent};
use crate::verdict::{Evidence, Kind, Limit};

/// At this share of a ceiling the copy has reached it.
const REACHED: f64 = 0.85;
/// Two ceilings nearer than this can't be told apart.
const TIE: f64 = 1.1;
/// More than a network carries can't have crossed it.
const IMPOSSIBLE: f64 = 1.02;
/// A core that is full, in percent.
const FULL: f64 = 95.0;
/// Reading and writing at the same time must promise this much more to be worth naming.
const WORTH: f64 = 1.15;

/// What a rule says.
pub(super) struct Said {
    pub(super) limits: Vec<Limit>,
    pub(super) share: Option<f64>,
    pub(super) evidence: Vec<Evidence>,
    /// No more certain than likely, whatever the evidence.
    pub(super) doubtful: bool,
}

impl Said {
    pub(super) const fn new(limits: Vec<Limit>) -> Self {
        Self {
            limits,
            share: None,
            evidence: Vec::new(),
            doubtful: false,
        }
    }

    fn because(mut self, kind: Kind, text: String) -> Self {
        self.evidence.push(Evidence { kind, text });
        self
    }
}

/// A rule: None where it has nothing to say.
pub(super) type Rule = fn(&CopyCase) -> Option<Said>;

/// All rules by name, in the order in which they are asked.
pub(super) const RULES: &[(&str, Rule)] = &[
    ("impossible", impossible),
    ("in_turn", by_turns),
    ("shared", shared),
    ("named", named),
    ("full_core", full_core),
    ("starved", starved),
    ("nearest", nearest),
];

/// More than the network carries, or no data moved.
fn impossible(copy: &CopyCase) -> Option<Said> {
    let cached = Said::new(vec![Limit::Cached]);
    if copy.offloaded {
        let text = "the copy was left to the server or the file system: no data came through this computer";
        return Some(cached.because(Kind::Counter, text.to_owned()));
    }
    let ways = [copy.network_in, copy.network_out];
    let least = ways
        .into_iter()
        .flatten()
        .map(|way| way.most.0)
        .min_by(f64::total_cmp)?;
    (copy.rate.0 > IMPOSSIBLE * least).then(|| {
        cached.because(
            Kind::Ceiling,
            format!(
                "{} is more than the network was measured to carry, {}",
                mb(copy.rate.0),
                mb(least)
            ),
        )
    })
}

/// It reads and writes one after the other, and that costs.
fn by_turns(copy: &CopyCase) -> Option<Said> {
    if copy.overlapped == Some(true) || copy.shared.is_some() {
        return None;
    }
    let (reads, writes) = (copy.reads()?, copy.writes()?);
    let (one_by_one, at_once) = (in_turn(reads, writes), reads.min(writes));
    let rate = copy.rate.0;
    let near = (REACHED..=1.0 / REACHED).contains(&(rate / one_by_one));
    if !near || at_once < WORTH * rate {
        return None;
    }
    let text = format!(
        "{} read and {} written make {} one after the other; at the same time they would make {}",
        mb(reads),
        mb(writes),
        mb(one_by_one),
        mb(at_once)
    );
    let mut said = Said {
        share: Some(rate / one_by_one),
        // Of another program it is only concluded.
        doubtful: copy.overlapped.is_none() && copy.at_the_same_time.is_none(),
        ..Said::new(vec![Limit::NoOverlap])
    }
    .because(Kind::Ceiling, text);
    if let Some(better) = copy
        .at_the_same_time
        .filter(|better| better.0 >= WORTH * rate)
    {
        let text = format!(
            "read and written at the same time the same file went at {}",
            mb(better.0)
        );
        said = said.because(Kind::Difference, text);
    }
    Some(said)
}

/// Both sides on one thing, which carries each byte twice.
fn shared(copy: &CopyCase) -> Option<Said> {
    let what = copy.shared.as_ref()?;
    let (reads, writes) = (copy.reads()?, copy.writes()?);
    let both = in_turn(reads, writes);
    (copy.rate.0 >= REACHED * both && copy.rate.0 < reads.min(writes)).then(|| {
        let text = format!(
            "source and destination are on {what}: {} read and {} written make {} together",
            mb(reads),
            mb(writes),
            mb(both)
        );
        Said {
            share: Some(copy.rate.0 / both),
            ..Said::new(vec![Limit::SourceStorage, Limit::DestinationStorage])
        }
        .because(Kind::Ceiling, text)
    })
}

/// It reached the lowest part; others as low are named with it.
fn named(copy: &CopyCase) -> Option<Said> {
    let parts = copy.parts();
    let lowest = *parts.first()?;
    let share = copy.rate.0 / lowest.rate;
    // What the copy itself disproves is no ceiling.
    let disproved = share > 1.0 / REACHED;
    if share < REACHED || disproved || copy.overlapped == Some(false) {
        return None;
    }
    let tied: Vec<Part> = parts
        .into_iter()
        .filter(|part| part.rate <= TIE * lowest.rate)
        .collect();
    let mut said = Said {
        share: Some(share),
        ..Said::new(tied.iter().map(|part| part.limit).collect())
    };
    for part in &tied {
        let text = format!(
            "{} is {} of what {} carries alone, {}",
            mb(copy.rate.0),
            percent(copy.rate.0 / part.rate),
            name(part),
            mb(part.rate)
        );
        said = said.because(Kind::Ceiling, text);
    }
    if let Some((side, text)) = copy.starved() {
        if tied.iter().all(|part| part.side == side) {
            said = said.because(Kind::Counter, text);
        } else if tied.iter().all(|part| part.side != side) {
            // The other side waited: what was measured alone does not explain it.
            said.doubtful = true;
        }
    }
    Some(said)
}

/// A core of this computer, where no part is reached.
fn full_core(copy: &CopyCase) -> Option<Said> {
    let core = copy.core_percent.filter(|core| *core >= FULL)?;
    Some(Said::new(vec![Limit::ClientCpu]).because(
        Kind::Counter,
        format!("a processor core of this computer is {core:.0} % busy"),
    ))
}

/// One side waited for the other, whose network carries much more: its disks.
fn starved(copy: &CopyCase) -> Option<Said> {
    if copy.overlapped == Some(false) {
        return None;
    }
    let (side, text) = copy.starved()?;
    let (way, limit) = match side {
        Side::Source => (copy.network_in, Limit::SourceStorage),
        Side::Destination => (copy.network_out, Limit::DestinationStorage),
    };
    // Without a network in between there is nothing else; one that was not measured may be it.
    let way = way.filter(|way| way.bound() >= FAR * copy.rate.0)?;
    let carries = format!("the network on that side carries {}", mb(way.bound()));
    Some(Said {
        doubtful: true,
        ..Said::new(vec![limit])
            .because(Kind::Counter, text)
            .because(Kind::Elimination, carries)
    })
}

/// One part is near, all others that were measured are far.
fn nearest(copy: &CopyCase) -> Option<Said> {
    let mut parts = copy.parts().into_iter();
    let lowest = parts.next()?;
    let share = copy.rate.0 / lowest.rate;
    let far = |part: &Part| part.rate >= FAR * copy.rate.0;
    let mut others = parts.filter(|part| part.limit != lowest.limit).peekable();
    if share > 1.0 || far(&lowest) || others.peek().is_none() || !others.all(|part| far(&part)) {
        return None;
    }
    let text = format!(
        "{} is {} of what {} carries alone, and all else that was measured carries much more",
        mb(copy.rate.0),
        percent(share),
        name(&lowest)
    );
    Some(
        Said {
            share: Some(share),
            ..Said::new(vec![lowest.limit])
        }
        .because(Kind::Ceiling, text),
    )
}

/// What a part is called.
fn name(part: &Part) -> String {
    let layer = words::layer(part.limit);
    match (part.limit, part.side) {
        (Limit::SourceStorage | Limit::DestinationStorage, _) => layer.to_owned(),
        (_, Side::Source) => format!("{layer} from the source"),
        (_, Side::Destination) => format!("{layer} to the destination"),
    }
}
