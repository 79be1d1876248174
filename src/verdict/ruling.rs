//! What a rule says, and how it becomes a verdict.

use super::case::{Case, Rung};
use super::ladder::{Ladder, Step};
use super::words::mb;
use super::{Confidence, Evidence, Kind, Limit, Next, Verdict};

/// A ceiling so much higher is out of question.
pub(super) const FAR: f64 = 1.5;

/// This program further away than that will never be what limits.
const TOOL_NEAR: f64 = 4.0;

/// What a rule says.
#[derive(Debug, Clone, PartialEq)]
pub struct Ruling {
    pub(super) limits: Vec<Limit>,
    pub(super) share: Option<f64>,
    pub(super) evidence: Vec<Evidence>,
    /// The ceilings that were reached, by their own names: a limit may be called after what holds its ceiling down.
    pub(super) reached: Vec<Limit>,
    /// No more certain than likely, whatever the evidence.
    pub(super) doubtful: bool,
}

impl Ruling {
    /// One limit, without evidence yet.
    pub(super) fn new(limit: Limit) -> Self {
        Self {
            limits: vec![limit],
            share: None,
            evidence: Vec::new(),
            reached: vec![limit],
            doubtful: false,
        }
    }

    /// With one more piece of evidence.
    pub(super) fn because(mut self, kind: Kind, text: String) -> Self {
        self.evidence.push(Evidence { kind, text });
        self
    }

    /// The whole verdict: with elimination, the next limit, and how sure it is.
    pub(super) fn verdict(mut self, case: &Case, ladder: &Ladder, rule: &'static str) -> Verdict {
        self.limits.sort_unstable();
        self.limits.dedup();
        let others = ladder.steps.iter().filter(|step| {
            !self.limits.contains(&step.limit) && !self.reached.contains(&step.limit)
        });
        let next = others.clone().find(|step| limits_next(step, case));
        let next = next.map(|step| Next {
            limit: step.limit,
            bytes_per_s: step.figure.rate.0,
        });
        let invalid = self.limits == [Limit::Cached];
        let far = others
            .clone()
            .all(|step| step.figure.rate.0 >= FAR * case.rate());
        // Nothing is ruled out by what was not measured: the way and the disks must both be known.
        let known =
            |limit| self.reached.contains(&limit) || others.clone().any(|step| step.limit == limit);
        let both = known(Limit::Network) && known(Limit::Storage);
        if !invalid && far && both && next.is_some() {
            let least = next.map_or(String::new(), |next| mb(next.bytes_per_s));
            self = self.because(
                Kind::Elimination,
                format!("every other layer that was measured carries {least} or more"),
            );
        }
        let mut kinds: Vec<Kind> = self.evidence.iter().map(|evidence| evidence.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let confidence = match (kinds.len(), self.doubtful) {
            (0, _) => Confidence::Unresolved,
            (1, _) | (_, true) => Confidence::Likely,
            _ => Confidence::Confirmed,
        };
        let advice = super::words::advice(&self.limits, case);
        Verdict {
            share: self.share,
            next: next.or_else(|| self.line(case)).filter(|_| !invalid),
            confidence,
            evidence: self.evidence,
            advice,
            rule,
            limits: self.limits,
        }
    }

    /// What the line would carry, where something holds the network down.
    fn line(&self, case: &Case) -> Option<Next> {
        let held = self.reached.contains(&Limit::Network) && !self.limits.contains(&Limit::Network);
        let line = case.layer(Rung::Line).filter(|_| held)?;
        (line.rate.0 > case.rate()).then_some(Next {
            limit: Limit::Network,
            bytes_per_s: line.rate.0,
        })
    }
}

/// Whether a layer is worth a word as the next limit: this program is only where it is near.
fn limits_next(step: &Step, case: &Case) -> bool {
    let rate = step.figure.rate.0;
    rate > case.rate() && (step.limit != Limit::Tool || rate < TOOL_NEAR * case.rate())
}

/// Nothing decides: what would settle it is the advice.
pub(super) fn unresolved(case: &Case, ladder: &Ladder) -> Verdict {
    let next = ladder.steps.iter().find(|step| limits_next(step, case));
    Verdict {
        limits: vec![Limit::Unresolved],
        share: None,
        next: next.map(|step| Next {
            limit: step.limit,
            bytes_per_s: step.figure.rate.0,
        }),
        confidence: Confidence::Unresolved,
        evidence: Vec::new(),
        advice: super::words::advice(&[Limit::Unresolved], case),
        rule: "unresolved",
    }
}
