//! What is printed of rows: CSV that any reader takes, and a table that fits a terminal.

use super::*;
use crate::record::{Flag, HostCounters, Interval, LatencySummary, Row, Status};
use crate::spec::repeats::Repeats;
use crate::units::Nanos;

/// A good row: a million reads of 4 KiB in two seconds.
fn row() -> Row {
    let mut latency = crate::stats::latency_histogram();
    latency.record_n(150_000, 999_000).expect("in range");
    latency.record_n(20_000_000, 1_000).expect("in range");
    Row {
        run_id: "r".into(),
        started_utc: "2026-11-30T12:00:00Z".into(),
        stage: "run".into(),
        target: "nfs://nas/tank".into(),
        protocol: "nfs".into(),
        engine: "nfs3_client".into(),
        workload: "w".into(),
        direction: "read".into(),
        pattern: "randread".into(),
        block_size_bytes: Some(4096),
        iodepth: 1,
        lanes: 32,
        connections: Some(32),
        size_bytes: 1 << 30,
        repeat: 1,
        bytes: 4_096_000_000,
        seconds: Some(2.0),
        ops: 1_000_000,
        latency_ns: LatencySummary::of(&latency),
        latency,
        flush_seconds: None,
        wire_ops: Some(1_000_000),
        errors: 0,
        payload: "incompressible".into(),
        cache_state: None,
        durability: None,
        burst: None,
        generator_bytes_per_s: None,
        client_cpu_s: Some(4.096),
        busiest_core_percent: Some(99.94),
        host: HostCounters {
            busiest_core: Some(3),
            busiest_core_softirq_percent: Some(40.04),
            steal_percent: None,
            throttled_periods: Some(0),
        },
        network_bytes: Some(4_300_000_000),
        device_bytes: None,
        retransmits: None,
        negotiated: "vers=3".into(),
        status: Status::Ok,
        flags: vec![Flag::Loopback, Flag::TooShort],
        error: None,
        files: None,
    }
}

fn cell<'a>(line: &'a [String], header: &[&str], column: &str) -> &'a str {
    let at = header.iter().position(|name| *name == column);
    &line[at.expect(column)]
}

#[test]
fn every_line_has_its_headers_columns() {
    assert_eq!(csv::summary(&row()).len(), csv::SUMMARY.len());
    let interval = Interval {
        from: Nanos(0),
        to: Nanos(1),
        ops: 0,
        bytes: 0,
        latency_mean_ns: None,
        latency_max_ns: None,
    };
    assert_eq!(csv::interval(&row(), &interval).len(), csv::INTERVALS.len());
    assert!(
        csv::latency(&row())
            .iter()
            .all(|line| line.len() == csv::LATENCY.len())
    );
    assert!(
        csv::aggregates(&[row()], Repeats::ONCE)
            .iter()
            .all(|line| line.len() == csv::AGGREGATE.len())
    );
}

#[test]
fn figures_are_in_the_units_of_their_names_and_unknown_is_empty() {
    let line = csv::summary(&row());
    for (column, want) in [
        ("throughput_bytes_per_s", "2048000000.0"),
        ("iops", "500000.00"),
        ("client_cpu_s_per_gb", "1.0000"),
        ("busiest_core_percent", "99.9"),
        ("flags", "loopback;too_short"),
        ("flush_seconds", ""),
        ("durable_bytes_per_s", ""),
        ("device_bytes", ""),
        ("network_bytes", "4300000000"),
        ("retransmits", ""),
        ("busiest_core", "3"),
        ("busiest_core_softirq_percent", "40.0"),
        ("steal_percent", ""),
        ("throttled_periods", "0"),
        ("cache_state", ""),
        ("status", "ok"),
    ] {
        assert_eq!(cell(&line, csv::SUMMARY, column), want, "{column}");
    }
    let micros: f64 = cell(&line, csv::SUMMARY, "latency_us_p50")
        .parse()
        .expect("a number");
    assert!((micros - 150.0).abs() < 0.2, "{micros}");
    let odd = Row {
        generator_bytes_per_s: Some(f64::INFINITY),
        busiest_core_percent: Some(f64::NAN),
        seconds: Some(0.0),
        ..row()
    };
    let line = csv::summary(&odd);
    for column in [
        "generator_bytes_per_s",
        "busiest_core_percent",
        "throughput_bytes_per_s",
        "iops",
    ] {
        assert_eq!(cell(&line, csv::SUMMARY, column), "", "{column}");
    }
}

#[test]
fn a_row_with_errors_has_no_headline() {
    for status in [Status::Failed, Status::ServerLost, Status::Invalid] {
        let line = csv::summary(&Row { status, ..row() });
        assert_eq!(cell(&line, csv::SUMMARY, "throughput_bytes_per_s"), "");
        assert_eq!(cell(&line, csv::SUMMARY, "iops"), "");
        assert_eq!(
            cell(&line, csv::SUMMARY, "ops"),
            "1000000",
            "what was counted stays"
        );
    }
    let line = csv::summary(&Row { errors: 1, ..row() });
    assert_eq!(cell(&line, csv::SUMMARY, "throughput_bytes_per_s"), "");
}

#[test]
fn fields_with_commas_quotes_and_line_breaks_come_back() {
    let odd = Row {
        target: "/mnt/a,b \"c\"\r\nd;é".into(),
        negotiated: ", \"".into(),
        ..row()
    };
    let mut file = csv::line(csv::SUMMARY);
    file.extend(csv::line(&csv::summary(&odd)));
    let mut reader = ::csv::Reader::from_reader(file.as_slice());
    let records: Vec<_> = reader
        .records()
        .collect::<Result<_, _>>()
        .expect("RFC 4180");
    assert_eq!(records.len(), 1);
    assert_eq!(&records[0][4], odd.target);
    assert!(file.ends_with(b"\r\n"));
}

#[test]
fn histograms_can_be_merged_from_their_lines() {
    let lines = csv::latency(&row());
    let sum: u64 = lines
        .iter()
        .map(|line| {
            cell(line, csv::LATENCY, "count")
                .parse::<u64>()
                .expect("a count")
        })
        .sum();
    assert_eq!(sum, 1_000_000);
    for line in &lines {
        let bound = |column| cell(line, csv::LATENCY, column).parse::<u64>().expect("ns");
        let (low, high) = (bound("latency_ns_low"), bound("latency_ns_high"));
        assert!(
            low <= high && high - low <= low / 100 + 1,
            "{low} to {high}"
        );
    }
}

#[test]
fn only_good_rows_have_a_mean_and_an_interval_needs_two() {
    let slow = Row {
        repeat: 2,
        seconds: Some(4.0),
        ..row()
    };
    let failed = Row {
        repeat: 3,
        status: Status::Failed,
        ..row()
    };
    let lines = csv::aggregates(&[row(), slow, failed.clone()], Repeats::Fixed(3));
    let iops = lines
        .iter()
        .find(|line| cell(line, csv::AGGREGATE, "metric") == "iops")
        .expect("a line");
    assert_eq!(cell(iops, csv::AGGREGATE, "n"), "2");
    assert_eq!(cell(iops, csv::AGGREGATE, "mean"), "375000.00");
    assert!(!cell(iops, csv::AGGREGATE, "ci95_low").is_empty());
    assert_eq!(cell(iops, csv::AGGREGATE, "failed"), "1");
    let single = csv::aggregates(&[row()], Repeats::ONCE);
    assert!(
        single
            .iter()
            .all(|line| cell(line, csv::AGGREGATE, "ci95_low").is_empty())
    );
    assert!(csv::aggregates(&[failed], Repeats::ONCE).is_empty());
}

/// Repeats with these rates as shares of that of [`row`].
fn repeated(shares: &[f64]) -> Vec<Row> {
    let rows = (1..).zip(shares).map(|(repeat, share)| Row {
        repeat,
        seconds: Some(2.0 / share),
        ..row()
    });
    rows.collect()
}

#[test]
fn auto_has_a_wider_interval_since_it_looked_at_each_repeat() {
    let rows = repeated(&[1.0, 1.02, 0.99, 1.01, 0.98]);
    let width = |repeats| {
        let lines = csv::aggregates(&rows, repeats);
        let end = |column| cell(&lines[0], csv::AGGREGATE, column).parse::<f64>();
        end("ci95_high").expect("a rate") - end("ci95_low").expect("a rate")
    };
    let ratio = width(Repeats::Auto) / width(Repeats::Fixed(5));
    // t(4) at 0.985 and at 0.975: 3.298 and 2.776.
    assert!((ratio - 1.188).abs() < 0.001, "{ratio}");
}

#[test]
fn repeats_that_fall_are_marked_in_the_file_and_on_the_screen() {
    let falling = repeated(&[1.0, 0.96, 0.94, 0.91, 0.88, 0.85, 0.83, 0.80]);
    let lines = csv::aggregates(&falling, Repeats::Fixed(8));
    for line in &lines {
        let constant = cell(line, csv::AGGREGATE, "metric") == "latency_us_mean";
        let want = if constant { "" } else { "trend" };
        assert_eq!(cell(line, csv::AGGREGATE, "flags"), want, "{line:?}");
    }
    let text = repeats::sentences(&falling, Repeats::Fixed(8));
    assert!(
        text.contains("w read on nfs fell 20 % over 8 repeats"),
        "{text}"
    );
    let steady = repeated(&[1.0, 0.96, 1.04, 0.98, 1.02, 0.97, 1.01, 1.0]);
    let lines = csv::aggregates(&steady, Repeats::Fixed(8));
    assert!(
        lines
            .iter()
            .all(|line| cell(line, csv::AGGREGATE, "flags").is_empty())
    );
    assert!(!repeats::sentences(&steady, Repeats::Fixed(8)).contains("trend"));
}

#[test]
fn the_screen_says_how_well_a_cell_is_known() {
    let mut rows = repeated(&[1.0, 1.001, 0.999, 1.0, 1.001]);
    assert_eq!(
        repeats::sentences(&rows[..1], Repeats::ONCE),
        "",
        "no repeats"
    );
    let text = repeats::sentences(&rows, Repeats::Auto);
    assert!(
        text.contains("w read on nfs: 2048.4 MB/s +- 0.1 % over 5\n"),
        "{text}"
    );
    rows[1].status = Status::Failed;
    let text = repeats::sentences(&rows, Repeats::Fixed(5));
    assert!(text.contains("over 4, 1 more failed\n"), "{text}");
    for row in &mut rows {
        row.status = Status::Invalid;
    }
    let text = repeats::sentences(&rows, Repeats::Fixed(5));
    assert!(text.contains("none of 5 repeats is ok"), "{text}");
    let wild = repeated(&[1.0, 1.3, 0.7, 1.2, 0.8]);
    let text = repeats::sentences(&wild, Repeats::Auto);
    assert!(text.contains("over 5, not within 2 % after them"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn auto_wants_every_rate_well_known_and_waits_for_no_dead_target() {
    let settled = |rows: &[Row]| aggregate::groups(rows)[0].settled();
    let steady = repeated(&[1.0, 1.001, 0.999, 1.0, 1.001]);
    assert!(settled(&steady) && !settled(&steady[..4]));
    assert!(!settled(&repeated(&[1.0, 1.1, 0.9, 1.0, 1.1])));
    let mut flushed = steady.clone();
    for (row, flush) in flushed.iter_mut().zip([0.1, 0.3, 0.2, 0.5, 0.1]) {
        row.direction = "write".into();
        row.flush_seconds = Some(flush);
    }
    assert!(!settled(&flushed), "the durable rate scatters");
    let mut once = steady.clone();
    once[2].status = Status::Failed;
    assert!(!settled(&once), "four good ones are too few");
    let mut dead = steady;
    for row in &mut dead {
        row.status = Status::ServerLost;
    }
    assert!(settled(&dead));
}

#[test]
fn targets_of_one_protocol_are_told_apart() {
    let other = Row {
        target: "another".into(),
        ..row()
    };
    let both = table::rows(&[row(), other.clone()]);
    for word in [
        format!("{}.1 ", row().protocol),
        format!("{}.2 ", row().protocol),
        "another\n".into(),
    ] {
        assert!(both.contains(&word), "{word} in {both}");
    }
    assert!(
        !table::rows(&[other]).contains("Targets"),
        "nothing to tell apart"
    );
}

#[test]
fn the_table_fits_80_columns_and_explains_its_marks() {
    let fast = Row {
        protocol: "iscsi".into(),
        lanes: 1024,
        iodepth: 64,
        seconds: Some(0.2),
        direction: "write".into(),
        flush_seconds: Some(0.1),
        ..row()
    };
    let lost = Row {
        status: Status::ServerLost,
        error: Some("it went away".into()),
        flags: vec![Flag::ServerLost],
        ..row()
    };
    let listed = Row {
        workload: "small".into(),
        direction: "list".into(),
        pattern: "files".into(),
        bytes: 0,
        files: Some(crate::record::SmallFiles {
            nrfiles: 10_000_000,
            filesize: 0,
            entries: Some(100),
        }),
        ..row()
    };
    let text = table::rows(&[row(), fast, lost, listed.clone()]);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for word in [
        "2048.0",
        "1953.1",
        "16.38",
        "500000",
        "150.",
        "durable",
        "SERVER_LOST: it went away",
        "small: list a directory of 100 entries",
        " 50000000         -         -       - ",
        "loopback",
    ] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert_eq!(table::rows(&[]), "");
    let line = csv::summary(&listed);
    for (column, want) in [
        ("iops", "500000.00"),
        ("throughput_bytes_per_s", ""),
        ("client_cpu_s_per_gb", ""),
    ] {
        assert_eq!(cell(&line, csv::SUMMARY, column), want, "{column}");
    }
    let lines = csv::aggregates(&[listed], Repeats::ONCE);
    let metrics: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                cell(line, csv::AGGREGATE, "metric"),
                cell(line, csv::AGGREGATE, "mean"),
            )
        })
        .collect();
    assert!(
        metrics.contains(&("files_per_s", "50000000.00")),
        "{metrics:?}"
    );
}
