//! Network tests as a table for people, and in sentences what they show.

use crate::network::limits::{self, Finding};
use crate::network::{Sample, Way};
use crate::record::{Row, Status};
use crate::report::table;

/// What one interface moved one way, in bytes per second, and bytes in all.
#[derive(Debug, Clone, PartialEq)]
pub struct InterfaceRate {
    /// Its name.
    pub name: String,
    /// `in` or `out`.
    pub way: &'static str,
    /// In the last second.
    pub current: Option<f64>,
    /// Over the whole time.
    pub average: Option<f64>,
    /// In the slowest second.
    pub minimum: Option<f64>,
    /// In the fastest second.
    pub maximum: Option<f64>,
    /// Bytes in all.
    pub total: u64,
}

/// A long test has its samples shown in at most so many lines.
const LINES: usize = 30;
/// A test of fewer samples is short: its table says enough.
const MANY: usize = 20;

/// The rows, by server and way; a failed test has its sentence.
#[must_use]
pub fn rows(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut groups: Vec<(&str, &str, bool)> = Vec::new();
    for row in of_network(rows) {
        let group = group(row);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for wanted in groups {
        let (target, direction, both) = wanted;
        let way = if direction == "read" {
            Way::Receive
        } else {
            Way::Send
        };
        text.push_str(&format!(
            "\n{}{}  ({})\n",
            way.words(),
            if both { ", both at once" } else { "" },
            target.trim_start_matches("tcp://")
        ));
        text.push_str(&format!(
            " {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
            "flows", "Gbit/s", "MB/s", "MiB/s", "resent", "CPU here", "CPU there", "core here"
        ));
        for row in of_network(rows).filter(|row| group(row) == wanted) {
            text.push_str(&line(row));
        }
    }
    if of_network(rows).any(|row| row.repeat > 1) {
        text.push_str("(2): again, on other ports, which may take another way through a bond\n");
    }
    text
}

fn of_network(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| row.stage == "network")
}

fn group(row: &Row) -> (&str, &str, bool) {
    let both = row.workload.ends_with("both at once");
    (&row.target, &row.direction, both)
}

fn line(row: &Row) -> String {
    if row.status != Status::Ok {
        let error = row.error.as_deref().unwrap_or("no reason known");
        return table::wrap(&format!("{}: {error}", row.status.key().to_uppercase()), 80);
    }
    let [megabytes, mebibytes, gigabits] = table::rate(row.throughput());
    let gigabits = match row.throughput() {
        Some(rate) if rate.gigabits() < 10.0 => format!("{:.3}", rate.gigabits()),
        _ => gigabits,
    };
    let whole = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.0} %"));
    let cpu = row
        .client_cpu_s
        .zip(row.seconds)
        .map(|(cpu, seconds)| cpu * 100.0 / seconds);
    let there = word(&row.negotiated, "server_cpu_percent").and_then(|text| text.parse().ok());
    let resent = row
        .retransmits
        .map_or("-".into(), |count| count.to_string());
    let flows = match row.repeat {
        0 | 1 => row.lanes.to_string(),
        again => format!("{} ({again})", row.lanes),
    };
    format!(
        " {flows:>6} {gigabits:>9} {megabytes:>9} {mebibytes:>9} {resent:>9} {:>9} {:>9} {:>9}\n",
        whole(cpu),
        whole(there),
        whole(row.busiest_core_percent)
    )
}

fn word<'a>(words: &'a str, key: &str) -> Option<&'a str> {
    words
        .split(' ')
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// What requests and answers carried, beside what theory expects; nothing where none were measured.
#[must_use]
pub fn trips(rows: &[Row], idle_ns: u64) -> String {
    let mine = rows.iter().filter(|row| row.stage == "round_trip");
    let lines: Vec<String> = mine.map(trip).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!(
        "\nWaiting for answers: requests on one connection, {} for a round trip when idle\n  {:<15}{:>8} {:>6}          {:>9} {:>9} {:>9} {:>10} {:>10}\n{}",
        table::latency(Some(idle_ns)),
        "",
        "block",
        "depth",
        "MB/s",
        "expected",
        "IOPS",
        "median",
        "p99",
        lines.concat()
    )
}

fn trip(row: &Row) -> String {
    let way = if row.direction == "read" {
        Way::Receive
    } else {
        Way::Send
    };
    let [megabytes, ..] = table::rate(row.throughput());
    let expected = word(&row.negotiated, "expected_bytes_per_s")
        .and_then(|text| text.parse::<f64>().ok())
        .map_or("-".into(), |rate| format!("{:.1}", rate / 1e6));
    let block = row
        .block_size_bytes
        .map_or("-".into(), |bytes| crate::units::Bytes(bytes).to_string());
    let iops = row.iops().map_or("-".into(), |iops| format!("{iops:.0}"));
    format!(
        "  {:<15}{block:>8} {:>6} {megabytes:>9} {expected:>9} {iops:>9} {:>10} {:>10}\n",
        way.words(),
        row.iodepth,
        table::latency(row.latency_ns.p50),
        table::latency(row.latency_ns.p99),
    )
}

/// What the tests show, a sentence each.
#[must_use]
pub fn findings(found: &[(Way, Vec<Finding>)]) -> String {
    let mut text = String::new();
    for (way, findings) in found {
        for finding in findings {
            text.push_str(&table::wrap(&format!("{}: {finding}", way.words()), 80));
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("\nWhat it shows\n{text}")
}

/// The samples of a long test, slow ones marked; nothing for a short one.
#[must_use]
pub fn intervals(title: &str, samples: &[Sample]) -> String {
    let measured: Vec<Sample> = samples
        .iter()
        .copied()
        .filter(|sample| sample.from >= 0.0)
        .collect();
    if measured.len() < MANY {
        return String::new();
    }
    let each = measured.len().div_ceil(LINES);
    let mut rates: Vec<f64> = measured.iter().filter_map(Sample::bits_per_s).collect();
    rates.sort_by(f64::total_cmp);
    let Some(median) = rates.get(rates.len() / 2).copied() else {
        return String::new();
    };
    let mut text = format!(
        "\n{title}, over time\n  {:>13} {:>13} {:>13}\n",
        "seconds", "mean", "least"
    );
    for part in measured.chunks(each) {
        let (Some(first), Some(last)) = (part.first(), part.last()) else {
            continue;
        };
        let whole = Sample {
            from: first.from,
            to: last.to,
            bytes: part.iter().map(|sample| sample.bytes).sum(),
        };
        let slowest = part
            .iter()
            .filter_map(Sample::bits_per_s)
            .reduce(f64::min)
            .unwrap_or(0.0);
        let mark = if limits::is_drop_off(slowest, median) {
            "  <- drop-off"
        } else {
            ""
        };
        text.push_str(&format!(
            "  {:>13} {:>13} {:>13}{mark}\n",
            format!("{:.0}-{:.0}", whole.from, whole.to),
            limits::bits(whole.bits_per_s().unwrap_or(0.0)),
            limits::bits(slowest)
        ));
    }
    text
}

/// What the interfaces moved, in MB/s.
#[must_use]
pub fn interfaces(rates: &[InterfaceRate]) -> String {
    let busy: Vec<&InterfaceRate> = rates.iter().filter(|rate| rate.total > 0).collect();
    if busy.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\nInterfaces here, MB/s in each second\n  {:<12} {:<4} {:>9} {:>9} {:>9} {:>9} {:>12}\n",
        "", "", "last", "average", "minimum", "maximum", "total"
    );
    let megabytes =
        |value: Option<f64>| value.map_or("-".into(), |value| format!("{:.1}", value / 1e6));
    for rate in busy {
        text.push_str(&format!(
            "  {:<12} {:<4} {:>9} {:>9} {:>9} {:>9} {:>12}\n",
            rate.name,
            rate.way,
            megabytes(rate.current),
            megabytes(rate.average),
            megabytes(rate.minimum),
            megabytes(rate.maximum),
            format!("{:.2} GB", rate.total as f64 / 1e9)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::STREAM;

    fn row(lanes: u16, workload: &str) -> Row {
        Row {
            stage: "network".into(),
            target: "tcp://nas:5201".into(),
            direction: "read".into(),
            workload: workload.into(),
            pattern: STREAM.into(),
            lanes,
            bytes: 597_750_000,
            seconds: Some(5.0),
            retransmits: Some(3),
            client_cpu_s: Some(0.25),
            busiest_core_percent: Some(9.4),
            negotiated: "mss=1448 server_cpu_percent=4.6".into(),
            ..Row::blank()
        }
    }

    #[test]
    fn a_table_has_each_way_apart_and_fits_80_columns() {
        let failed = Row {
            status: Status::ServerLost,
            error: Some("nas:5201: failed while connecting: nobody listens".into()),
            ..row(4, "4 flows")
        };
        let again = Row {
            repeat: 2,
            ..row(2, "2 flows")
        };
        let other = Row {
            stage: "round_trip".into(),
            ..row(7, "requests of 4 KiB")
        };
        let both = row(1, "1 flow, both at once");
        let text = rows(&[row(1, "1 flow"), again, failed, both, other]);
        assert!(text.contains("\n  2 (2)     0.956"), "{text}");
        assert!(text.contains("(2): again"), "{text}");
        assert!(!text.contains("\n      7"), "{text}");
        assert!(text.contains("NAS -> this PC  (nas:5201)"), "{text}");
        assert!(text.contains("NAS -> this PC, both at once"), "{text}");
        assert!(
            text.contains(
                "    1     0.956     119.5     114.0         3       5 %       5 %       9 %"
            ),
            "{text}"
        );
        assert!(text.contains("SERVER_LOST: nas:5201"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn a_long_test_shows_its_drop_off_and_a_short_one_nothing() {
        let sample = |second: u32, bytes| Sample {
            from: f64::from(second),
            to: f64::from(second + 1),
            bytes,
        };
        let mut samples: Vec<Sample> = (0..120).map(|second| sample(second, 125_000_000)).collect();
        samples[61].bytes /= 3;
        let text = intervals("NAS -> this PC", &samples);
        assert_eq!(text.matches("drop-off").count(), 1, "{text}");
        assert!(text.lines().count() <= LINES + 3, "{text}");
        assert!(text.contains("60-64"), "{text}");
        assert_eq!(intervals("x", &samples[..10]), "");
    }

    #[test]
    fn idle_interfaces_are_left_out() {
        let rate = |name: &str, total| InterfaceRate {
            name: name.into(),
            way: "in",
            current: Some(1e6),
            average: Some(2e6),
            minimum: None,
            maximum: Some(3e6),
            total,
        };
        let text = interfaces(&[rate("eth0", 9), rate("eth1", 0)]);
        assert!(text.contains("eth0") && !text.contains("eth1"), "{text}");
        assert_eq!(interfaces(&[]), "");
    }
}
