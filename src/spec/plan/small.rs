//! What a plan's phases on small files need and write.
//!
//! Each phase but the creating ones finds its files there: those that an equal phase before it left, else new ones are
//! laid, outside of the measured time. Pure.

use crate::error::{Error, Result};
use crate::spec::plan::Plan;
use crate::spec::workload::{Files, Phase};

impl Plan {
    /// The most small files that stand at one time, and the room in bytes that they take; None without any.
    #[must_use]
    pub fn small_files(&self) -> Option<(u32, u64)> {
        let files: Vec<Files> = self.phases().filter_map(|phase| phase.files).collect();
        let count = files.iter().map(|files| files.nrfiles).max()?;
        let room = files.iter().map(|files| files.room()).max()?;
        Some((count, room))
    }

    /// Most content bytes written to small files on each target, laying included.
    pub(super) fn small_bytes_written(&self) -> u64 {
        let mut present: Option<&Phase> = None;
        let mut total = 0u64;
        let cells = (1..=self.repeats.most()).flat_map(|repeat| self.round(repeat));
        for cell in cells.filter(|cell| cell.target == 0) {
            let phase = self.phase(cell);
            let Some(files) = phase.files else {
                continue;
            };
            let creates = phase.rw.file_op() == Some(crate::op::FileOp::Create);
            if creates || !present.is_some_and(|before| before.has_files_for(phase)) {
                total = total.saturating_add(files.bytes());
            }
            present = phase.leaves_all_files().then_some(phase);
        }
        total
    }

    /// What phases on small files can't be part of.
    pub(super) fn validate_files(&self) -> Result<()> {
        if self.small_files().is_none() {
            return Ok(());
        }
        if self.keep {
            return Err(Error::usage(
                "--keep keeps a test file for the next run, but small files are made anew for each; leave it out",
            ));
        }
        if let Some(path) = &self.read_existing {
            return Err(Error::usage(format!(
                "--read-existing {path} reads blocks of one file of yours, but small files are nasgauge's own"
            )));
        }
        Ok(())
    }
}

impl Phase {
    /// Whether another phase finds the files that it needs among those of this one.
    #[must_use]
    pub fn has_files_for(&self, other: &Self) -> bool {
        self.files == other.files && self.content(0) == other.content(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::repeats::Repeats;
    use crate::spec::workload::{PhaseFile, Workload};

    fn plan(phases: &[&str], repeats: u32) -> Plan {
        let phases = phases.iter().map(|keys| {
            let keys = format!("nrfiles=10\nfilesize=1000\n{keys}");
            let file: PhaseFile = toml::from_str(&keys).expect("keys");
            file.resolve("test").expect("a phase")
        });
        let workload = Workload {
            name: "w".into(),
            description: String::new(),
            repeats: Repeats::ONCE,
            phases: phases.collect(),
        };
        Plan {
            repeats: Repeats::Fixed(repeats),
            ..Plan::new("test", vec!["/x".into()], vec![workload])
        }
    }

    #[test]
    fn files_are_laid_only_where_none_fit() {
        let written =
            |phases: &[&str], repeats| plan(phases, repeats).small_bytes_written() / 10_000;
        let all = [
            "rw='create'",
            "rw='open'",
            "rw='stat'",
            "rw='rename'",
            "rw='remove'",
        ];
        assert_eq!(written(&all, 3), 3);
        assert_eq!(
            written(&["rw='stat'"], 5),
            1,
            "they stay from round to round"
        );
        assert_eq!(written(&["rw='remove'"], 5), 5);
        assert_eq!(
            written(&["rw='create'\nruntime=1", "rw='open'"], 1),
            2,
            "time may end it early"
        );
        assert_eq!(written(&["rw='create'", "rw='open'\npayload='zero'"], 1), 2);
        assert_eq!(plan(&all, 1).small_files(), Some((10, 10 * 4096)));
        assert_eq!(plan(&all, 1).file_size(), 0);
    }

    #[test]
    fn what_belongs_to_one_file_is_refused() {
        let mut plan = plan(&["rw='stat'"], 1);
        assert_eq!(plan.validate(), Ok(()));
        plan.keep = true;
        assert!(
            plan.validate()
                .expect_err("keep")
                .to_string()
                .contains("--keep")
        );
        plan.keep = false;
        plan.read_existing = Some("a".into());
        assert!(
            plan.validate()
                .expect_err("existing")
                .to_string()
                .contains("of yours")
        );
    }
}
