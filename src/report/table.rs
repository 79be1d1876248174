//! Results as a table that fits 80 columns.

use crate::record::{Flag, Row, Status};

mod small;

/// A rate in the three units that people mix up: MB/s, MiB/s, Gbit/s.
#[must_use]
pub fn rate(rate: Option<crate::units::Rate>) -> [String; 3] {
    match rate {
        Some(rate) => [
            format!("{:.1}", rate.megabytes()),
            format!("{:.1}", rate.mebibytes()),
            format!("{:.2}", rate.gigabits()),
        ],
        None => ["-".into(), "-".into(), "-".into()],
    }
}

/// A latency with a fitting unit.
#[must_use]
pub fn latency(nanos: Option<u64>) -> String {
    match nanos {
        None => "-".into(),
        Some(nanos) if nanos < 1_000 => format!("{nanos} ns"),
        Some(nanos) if nanos < 1_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        Some(nanos) if nanos < 1_000_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
        Some(nanos) => format!("{:.2} s", nanos as f64 / 1e9),
    }
}

/// A table of rows, grouped by workload; then what each mark means. Repeats stand one below the other.
#[must_use]
pub fn rows(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut workloads: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        if !workloads.contains(&(&row.workload, &row.direction)) {
            workloads.push((&row.workload, &row.direction));
        }
    }
    for (workload, direction) in workloads {
        let group: Vec<&Row> = rows
            .iter()
            .filter(|row| row.workload == workload && row.direction == direction)
            .collect();
        if let Some(files) = group[0].files {
            text.push_str(&small::heading(group[0], files));
        } else {
            text.push_str(&format!("\n{}\n", heading(group[0])));
            text.push_str(&format!(
                "  {:<8}{:>9} {:>9} {:>9} {:>7} {:>9} {:>10} {:>10}\n",
                "target", "in flight", "MB/s", "MiB/s", "Gbit/s", "IOPS", "median", "p99"
            ));
        }
        for row in group {
            text.push_str(&one(row, &label(rows, row)));
        }
    }
    text.push_str(&legend(rows));
    text.push_str(&marks(rows));
    text
}

/// A row's target in a word: its protocol, numbered where several targets have the same.
pub(super) fn label(rows: &[Row], row: &Row) -> String {
    let mut alike: Vec<&str> = Vec::new();
    for other in rows.iter().filter(|other| other.protocol == row.protocol) {
        if !alike.contains(&other.target.as_str()) {
            alike.push(&other.target);
        }
    }
    match alike.iter().position(|target| *target == row.target) {
        Some(index) if alike.len() > 1 => format!("{}.{}", row.protocol, index + 1),
        _ => row.protocol.clone(),
    }
}

/// Which target each numbered word stands for; nothing when no word is numbered.
fn legend(rows: &[Row]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for row in rows {
        let label = label(rows, row);
        let line = format!("  {label:<8} {}\n", row.target);
        if label != row.protocol && !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.is_empty() {
        String::new()
    } else {
        format!("\nTargets\n{}", lines.concat())
    }
}

fn heading(row: &Row) -> String {
    let block = row
        .block_size_bytes
        .map_or("mixed blocks".to_owned(), |size| {
            crate::units::Bytes(size).to_string()
        });
    let what = if row.pattern.starts_with("rand") {
        "random"
    } else {
        "sequential"
    };
    format!("{}: {what} {}, {block}", row.workload, row.direction)
}

fn one(row: &Row, target: &str) -> String {
    let [megabytes, mebibytes, gigabits] = rate(row.throughput());
    let iops = row
        .iops()
        .map_or_else(|| "-".into(), |iops| format!("{iops:.0}"));
    let inflight = if row.lanes > 0 && row.iodepth > 0 {
        format!("{}x{}", row.lanes, row.iodepth)
    } else {
        "-".into()
    };
    let mut text = if row.files.is_some() {
        small::line(row, target)
    } else {
        format!(
            "  {:<8}{inflight:>9} {megabytes:>9} {mebibytes:>9} {gigabits:>7} {iops:>9} {:>10} {:>10}\n",
            target,
            latency(row.latency_ns.p50),
            latency(row.latency_ns.p99),
        )
    };
    if let Some(durable) = row
        .durable()
        .filter(|_| row.flush_seconds.is_some_and(|flush| flush > 0.0))
    {
        let [megabytes, mebibytes, gigabits] = rate(Some(durable));
        text.push_str(&format!(
            "  {:<8}{:>9} {megabytes:>9} {mebibytes:>9} {gigabits:>7}\n",
            "", "durable"
        ));
    }
    if row.status != Status::Ok {
        let error = row.error.as_deref().unwrap_or("");
        text.push_str(&format!("  {}: {error}\n", row.status.key().to_uppercase()));
    }
    text
}

/// What the marks on these rows mean, one line each.
fn marks(rows: &[Row]) -> String {
    let mut flags: Vec<Flag> = rows
        .iter()
        .flat_map(|row| row.flags.iter().copied())
        .collect();
    flags.sort_unstable();
    flags.dedup();
    if flags.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nMarks\n");
    for flag in flags {
        let mut on: Vec<String> = Vec::new();
        for row in rows.iter().filter(|row| row.flags.contains(&flag)) {
            let label = label(rows, row);
            if !on.contains(&label) {
                on.push(label);
            }
        }
        text.push_str(&wrap(
            &format!("{} ({}): {}", flag.key(), on.join(", "), flag.advice()),
            78,
        ));
    }
    text
}

/// Wraps a sentence at `width`, its first line indented by two spaces and the others by four.
pub(super) fn wrap(sentence: &str, width: usize) -> String {
    let mut text = String::new();
    let mut line = String::from("  ");
    for word in sentence.split(' ') {
        if line.trim().len() + word.len() + 1 > width - 4 && !line.trim().is_empty() {
            text.push_str(line.trim_end());
            text.push('\n');
            line = String::from("    ");
        }
        line.push_str(word);
        line.push(' ');
    }
    text.push_str(line.trim_end());
    text.push('\n');
    text
}
