//! What a run shows while it goes on: a bar with rate, IOPS and time left on a terminal, plain lines otherwise.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::record::Row;
use crate::run::{Progress, StepView, Watch};
use crate::units::Rate;

/// Steps of the bar: its position is in thousandths.
const FULL: u64 = 1000;

/// Progress on standard error.
pub(super) struct Show {
    quiet: bool,
    bar: Option<ProgressBar>,
    terminal: bool,
    step: Option<StepView>,
}

impl Show {
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            quiet,
            bar: None,
            terminal: std::io::stderr().is_terminal(),
            step: None,
        }
    }

    fn line(&self, text: &str) {
        if self.quiet {
            return;
        }
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// A row of small files.
    fn small_row(&self, row: &Row) {
        let files = row
            .files_per_s()
            .map_or_else(|| "-".into(), |files| format!("{files:.0}"));
        let median = crate::report::table::latency(row.latency_ns.p50);
        let rate = row.throughput().map_or_else(String::new, |rate| {
            format!(", {:.1} MB/s", rate.megabytes())
        });
        self.line(&format!(
            "  {} {} on {}: {files} files/s, median {median}{rate}",
            row.workload, row.direction, row.protocol
        ));
    }

    fn end_bar(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Show {
    fn drop(&mut self) {
        self.end_bar();
    }
}

impl Watch for Show {
    fn note(&mut self, text: &str) {
        self.line(text);
    }

    fn results(&mut self, directory: &Path) {
        self.line(&format!("results: {}", directory.display()));
    }

    fn begin(&mut self, step: &StepView) {
        self.end_bar();
        if self.quiet {
            return;
        }
        let number = step
            .number
            .map_or_else(String::new, |number| format!("[{number}] "));
        if self.terminal {
            let bar = ProgressBar::with_draw_target(Some(FULL), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{prefix} {bar:20} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(format!("{number}{}", step.label));
            bar.enable_steady_tick(Duration::from_millis(250));
            self.bar = Some(bar);
        } else {
            eprintln!("{number}{}", step.label);
        }
        self.step = Some(step.clone());
    }

    fn progress(&mut self, progress: &Progress) {
        let (Some(bar), Some(step)) = (&self.bar, &self.step) else {
            return;
        };
        let (share, left) = share_and_left(step, progress);
        bar.set_position((share * FULL as f64) as u64);
        let rate = Rate(progress.bytes_per_s);
        let left = left.map_or_else(String::new, |left| format!(", {left:.0} s left"));
        bar.set_message(format!(
            "{:.0} MB/s, {:.0} IOPS{left}",
            rate.megabytes(),
            progress.iops
        ));
    }

    fn row(&mut self, row: &Row) {
        self.end_bar();
        if row.status != crate::record::Status::Ok {
            let error = row.error.as_deref().unwrap_or("no reason known");
            // Not a note: without it nothing tells why there is no figure.
            eprintln!(
                "  {} {}: {}: {error}",
                row.workload,
                row.direction,
                row.status.key()
            );
            return;
        }
        if row.files.is_some() {
            return self.small_row(row);
        }
        let [megabytes, mebibytes, gigabits] = crate::report::table::rate(row.throughput());
        let iops = row
            .iops()
            .map_or_else(String::new, |iops| format!(", {iops:.0} IOPS"));
        let aside = crate::run::aside(&row.stage);
        let what = format!(
            "{} {}{aside} on {}",
            row.workload, row.direction, row.protocol
        );
        self.line(&format!(
            "  {what}: {megabytes} MB/s = {mebibytes} MiB/s = {gigabits} Gbit/s{iops}"
        ));
    }
}

/// How much is done, 0 to 1, and the seconds left where they can be told.
fn share_and_left(step: &StepView, progress: &Progress) -> (f64, Option<f64>) {
    if let Some(seconds) = step.seconds {
        return (
            (progress.seconds / seconds).min(1.0),
            Some((seconds - progress.seconds).max(0.0)),
        );
    }
    match step.bytes {
        Some(bytes) if bytes > 0 => {
            let left = bytes.saturating_sub(progress.bytes) as f64;
            let time = (progress.bytes_per_s > 0.0).then(|| left / progress.bytes_per_s);
            ((progress.bytes as f64 / bytes as f64).min(1.0), time)
        }
        _ => (0.0, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_or_bytes_tell_how_far_a_step_is() {
        let step = |seconds, bytes| StepView {
            label: String::new(),
            number: None,
            seconds,
            bytes,
        };
        let progress = Progress {
            seconds: 2.0,
            bytes: 50,
            bytes_per_s: 25.0,
            iops: 1.0,
        };
        assert_eq!(
            share_and_left(&step(Some(8.0), None), &progress),
            (0.25, Some(6.0))
        );
        assert_eq!(
            share_and_left(&step(None, Some(100)), &progress),
            (0.5, Some(2.0))
        );
        assert_eq!(share_and_left(&step(None, None), &progress), (0.0, None));
    }
}
