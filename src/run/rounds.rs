//! Which cells run in which round. A workload goes on, on all targets and with all phases, until each of its cells is known
//! well: rounds stay whole, so that targets can be compared round by round, and no target is measured at
//! another time than its rivals.
//!
//! Must not know: how a cell is measured.

use crate::record::Row;
use crate::report::aggregate::{Group, groups};
use crate::run::Number;
use crate::spec::plan::{Cell, Plan};

/// The rounds of a run.
pub(super) struct Rounds<'a> {
    plan: &'a Plan,
    /// The round under way, from 1; 0 before the first.
    repeat: u32,
    /// Workloads that still go on.
    open: Vec<bool>,
    /// Cells of earlier rounds.
    before: usize,
    /// Cells begun in this round.
    begun: usize,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            repeat: 0,
            open: vec![true; plan.workloads.len()],
            before: 0,
            begun: 0,
        }
    }

    /// The cells of the next round, after what was found so far; none when all is done.
    pub(super) fn next(&mut self, rows: &[Row]) -> Vec<Cell> {
        self.before += self.begun;
        self.begun = 0;
        self.repeat += 1;
        let (least, most) = (self.plan.repeats.least(), self.plan.repeats.most());
        if self.repeat > most {
            return Vec::new();
        }
        if self.repeat > least {
            let settled = settled(self.plan, rows);
            for (open, settled) in self.open.iter_mut().zip(settled) {
                // What was known well is not taken up again.
                *open &= !settled;
            }
        }
        let mut cells = self.plan.round(self.repeat);
        cells.retain(|cell| self.open[cell.workload]);
        cells
    }

    /// The next cell of the round begins: its number among all.
    pub(super) fn begin(&mut self) -> Number {
        self.begun += 1;
        Number {
            at: self.before + self.begun,
            ..self.number()
        }
    }

    /// How many cells have begun, of how many.
    pub(super) fn number(&self) -> Number {
        let cells = |workload: &crate::spec::workload::Workload| {
            workload.phases.len() * self.plan.targets.len()
        };
        let open = self.plan.workloads.iter().zip(&self.open);
        let a_round: usize = open.filter(|pair| *pair.1).map(|pair| cells(pair.0)).sum();
        let with = |rounds: u32| {
            let more = rounds.saturating_sub(self.repeat) as usize;
            self.before + a_round * (1 + more)
        };
        Number {
            at: self.before + self.begun,
            least: with(self.plan.repeats.least()),
            most: with(self.plan.repeats.most()),
        }
    }
}

/// For each workload, whether all of its cells are known well.
fn settled(plan: &Plan, rows: &[Row]) -> Vec<bool> {
    let groups = groups(rows);
    let mut settled = vec![true; plan.workloads.len()];
    for cell in plan.round(1).iter().filter(|cell| cell.target == 0) {
        let name = plan.cell_name(*cell);
        let mut of_cell = groups.iter().filter(|group| group.rows[0].workload == name);
        settled[cell.workload] &= of_cell.all(Group::settled);
    }
    settled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::repeats::Repeats;
    use crate::spec::workload::{PhaseFile, Workload};

    fn workload(name: &str) -> Workload {
        let phase = toml::from_str::<PhaseFile>("rw='read'").expect("keys");
        Workload {
            name: name.into(),
            description: String::new(),
            repeats: Repeats::ONCE,
            phases: vec![phase.resolve("test").expect("a phase")],
        }
    }

    fn plan(repeats: Repeats) -> Plan {
        let targets = vec!["null:".into(), "sim:".into()];
        let workloads = vec![workload("steady"), workload("wild")];
        Plan {
            repeats,
            ..Plan::new("test", targets, workloads)
        }
    }

    fn row(plan: &Plan, cell: Cell, seconds: f64) -> Row {
        Row {
            target: plan.targets[cell.target].clone(),
            workload: plan.cell_name(cell),
            direction: "read".into(),
            repeat: cell.repeat,
            bytes: 1,
            seconds: Some(seconds),
            ops: 1,
            ..Row::blank()
        }
    }

    /// Cells of each workload in each round, when `seconds` is how long a cell takes.
    fn rounds(plan: &Plan, seconds: impl Fn(Cell) -> f64) -> Vec<[usize; 2]> {
        let (mut rounds, mut rows, mut counts) = (Rounds::new(plan), Vec::new(), Vec::new());
        loop {
            let cells = rounds.next(&rows);
            if cells.is_empty() {
                return counts;
            }
            counts.push([0, 1].map(|of| cells.iter().filter(|cell| cell.workload == of).count()));
            rows.extend(cells.iter().map(|cell| row(plan, *cell, seconds(*cell))));
        }
    }

    #[test]
    fn a_workload_goes_on_for_all_targets_until_all_are_known() {
        // One of its two targets scatters until the eighth round, after which it never does.
        let scatters = |cell: Cell| cell.workload == 1 && cell.target == 1 && cell.repeat < 8;
        let found = rounds(&plan(Repeats::Auto), |cell| {
            let swing = if cell.repeat % 2 == 0 { 0.04 } else { -0.04 };
            1.0 + if scatters(cell) { swing } else { 0.0 }
        });
        assert_eq!(found[..5], [[2, 2]; 5]);
        assert!(found[5..].iter().all(|round| *round == [0, 2]), "{found:?}");
        assert!((9..15).contains(&found.len()), "{found:?}");
        let wild = rounds(&plan(Repeats::Auto), |cell| f64::from(cell.repeat));
        assert_eq!(wild, [[2, 2]; 15], "the limit ends it");
        assert_eq!(rounds(&plan(Repeats::Auto), |_| 1.0), [[2, 2]; 5]);
        assert_eq!(rounds(&plan(Repeats::Fixed(7)), |_| 1.0), [[2, 2]; 7]);
    }

    #[test]
    fn the_number_tells_what_is_known_of_the_end() {
        let plan = plan(Repeats::Auto);
        let (mut rounds, mut rows) = (Rounds::new(&plan), Vec::new());
        let mut numbers = Vec::new();
        loop {
            let cells = rounds.next(&rows);
            if cells.is_empty() {
                break;
            }
            numbers.push(rounds.begin().to_string());
            for _ in &cells[1..] {
                let _ = rounds.begin();
            }
            let seconds = |cell: Cell| {
                if cell.workload == 0 {
                    1.0
                } else {
                    f64::from(cell.repeat)
                }
            };
            rows.extend(cells.iter().map(|cell| row(&plan, *cell, seconds(*cell))));
        }
        assert_eq!(numbers[0], "1/20-60");
        assert_eq!(numbers[4], "17/20-60");
        assert_eq!(numbers[5], "21/22-40", "the steady workload has ended");
        assert_eq!(numbers[14], "39/40");
    }
}
