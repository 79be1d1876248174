//! Real output of each tool, with what must come out of it.

use std::path::Path;

use super::*;
use crate::record::{Flag, Status};

fn read(name: &str) -> Imported {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/import")
        .join(name);
    let bytes = std::fs::read(&path).expect(name);
    import(name, &bytes, Writing::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn rows(imported: &Imported) -> Vec<&Row> {
    imported.tests.iter().map(|(row, _)| row).collect()
}

/// Within 0.01 %.
fn near(value: Option<f64>, wanted: f64) -> bool {
    value.is_some_and(|value| (value / wanted - 1.0).abs() < 1e-4)
}

fn rate(row: &Row) -> Option<f64> {
    row.throughput().map(|rate| rate.0)
}

#[test]
fn iperf3_takes_what_arrived_over_the_receivers_own_time() {
    let found = read("iperf3-3.6-wan.txt");
    assert_eq!(found.tool, "iperf 3.6");
    let (row, samples) = &found.tests[0];
    let bits = rate(row).expect("a rate") * 8.0;
    assert!((bits - 534_080_943.0).abs() < 1.0, "{bits}");
    assert_eq!(
        (row.direction.as_str(), row.retransmits, row.connections),
        ("write", Some(16), Some(1))
    );
    assert_eq!(
        (row.stage.as_str(), row.target.as_str()),
        ("network", "tcp://192.0.2.79:5500")
    );
    assert_eq!(row.started_utc, "2021-07-21T07:17:17Z");
    assert_eq!(samples.len(), 4);
    assert!(!samples[3].is_whole(crate::units::Nanos(1_000_000_000), row.seconds));
    let sent: u64 = samples.iter().map(|sample| sample.bytes).sum();
    assert_eq!(sent, 210_361_728);
}

#[test]
fn crystaldiskmark_is_the_best_of_its_runs() {
    let found = read("crystaldiskmark-8.0.4.txt");
    assert_eq!(found.tool, "CrystalDiskMark 8.0.4");
    let rows = rows(&found);
    assert_eq!(rows.len(), 8);
    assert!(rows.iter().all(|row| row.flags.contains(&Flag::Max)));
    let first = rows[0];
    assert!(
        near(rate(first), 384.064e6) && near(first.iops(), 366.3),
        "{first:?}"
    );
    assert_eq!(
        (
            first.block_size_bytes,
            first.iodepth,
            first.lanes,
            first.pattern.as_str()
        ),
        (Some(1 << 20), 8, 1, "read")
    );
    assert!(near(first.latency_ns.mean, 21_765_430.0));
    assert_eq!((first.size_bytes, first.seconds), (1 << 30, Some(5.0)));
    let last = rows[7];
    assert!(
        near(rate(last), 25.727e6) && last.pattern == "randwrite",
        "{last:?}"
    );
    for (row, depth) in rows.iter().zip([8, 1, 32, 1, 8, 1, 32, 1]) {
        assert_eq!(row.iodepth, depth);
    }
}

#[test]
fn crystaldiskmark_of_old_versions_is_known_too() {
    let six = read("crystaldiskmark-6.0.0.txt");
    let six = rows(&six);
    assert_eq!(six.len(), 8);
    assert!(near(rate(six[0]), 91.559e6));
    assert_eq!(
        (
            six[0].block_size_bytes,
            six[0].iodepth,
            six[0].direction.as_str()
        ),
        (Some(128 << 10), 32, "read")
    );
    assert_eq!(
        (six[2].lanes, six[2].iodepth, six[2].pattern.as_str()),
        (8, 8, "randread")
    );
    let three = read("crystaldiskmark-3.0.1.txt");
    let three = rows(&three);
    assert_eq!(three.len(), 8);
    assert!(near(rate(three[6]), 271.859e6));
    assert_eq!(
        (three[6].block_size_bytes, three[6].iodepth),
        (Some(4096), 32)
    );
    assert_eq!(
        (three[2].block_size_bytes, three[2].size_bytes),
        (Some(512 << 10), 1000 << 20)
    );
}

#[test]
fn diskspd_has_bytes_and_latencies_of_both_ways() {
    let found = read("diskspd-mixed.txt");
    let both = rows(&found);
    assert_eq!(both.len(), 2);
    let (read_row, write) = (both[0], both[1]);
    assert_eq!((read_row.bytes, read_row.ops), (11_837_591_552, 2_890_037));
    assert!(near(rate(read_row), 11_837_591_552.0 / 120.0));
    assert!(near(read_row.latency_ns.mean, 1.563e6));
    assert_eq!(
        (read_row.latency_ns.p50, read_row.latency_ns.p999),
        (Some(1_405_000), Some(7_703_000))
    );
    assert_eq!(
        (write.lanes, write.iodepth, write.block_size_bytes),
        (8, 8, Some(4096))
    );
    assert_eq!(write.durability.as_deref(), Some("datasync"));
    assert!(!write.flags.contains(&Flag::NotDurable), "written through");
    assert_eq!(write.started_utc, "2019-07-25T21:46:27Z");
    assert!(found.notes.is_empty(), "{:?}", found.notes);
    let alone = read("diskspd-read.txt");
    let alone = rows(&alone);
    assert_eq!(alone.len(), 1, "nothing was written");
    assert!(near(rate(alone[0]), 361_897_984.0 / 10.02) && alone[0].latency_ns.mean.is_none());
}

#[test]
fn elbencho_is_what_the_last_worker_ended() {
    let found = read("elbencho-3.1.csv");
    let rows = rows(&found);
    assert_eq!(rows.len(), 2);
    assert!(near(rate(rows[0]), (8192u64 << 20) as f64 / 2.784));
    assert!(near(rate(rows[1]), (8192u64 << 20) as f64 / 0.905));
    assert_eq!(
        (rows[1].lanes, rows[1].iodepth, rows[1].negotiated.as_str()),
        (8, 4, "direct")
    );
    assert!(rows[1].flags.contains(&Flag::TooShort));
    assert!(
        found.notes.iter().any(|note| note.contains("MKDIRS")),
        "{:?}",
        found.notes
    );
}

#[test]
fn decimal_commas_need_the_option_and_semicolons() {
    let header = "ISO date;operation;time ms [last];MiB [last];MiB/s [last];block size\n";
    let text = format!("{header}x;READ;1234,5;1000;810,05;1048576\n");
    let writing = Writing {
        decimal_comma: true,
    };
    let found = import("e.csv", text.as_bytes(), writing).expect("readable");
    assert!(near(found.tests[0].0.seconds, 1.2345));
    let commas = text.replace(';', ",");
    let error = import("e.csv", commas.as_bytes(), writing).expect_err("ambiguous");
    assert!(error.to_string().contains("semicolons"), "{error}");
}

#[test]
fn fio_2_counts_by_1024_and_its_runs_are_repeats() {
    let found = read("fio-2.0.8.txt");
    assert_eq!(found.tool, "fio-2.0.8");
    let rows = rows(&found);
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[0].bytes, rows[0].ops), (771_200 * 1024, 24_100));
    assert!(near(rate(rows[0]), 771_200.0 * 1024.0 / 60.003));
    assert_eq!(
        (rows[0].pattern.as_str(), rows[0].block_size_bytes),
        ("randwrite", Some(32 << 10))
    );
    let latency = rows[0].latency_ns;
    assert!(near(latency.mean, 2_484_670.0));
    assert_eq!(
        (latency.p50, latency.p999, latency.max),
        (Some(1_832_000), Some(19_072_000), Some(853_080_000))
    );
    assert!(
        near(rows[1].latency_ns.max.map(|max| max as f64), 1.0334e9),
        "1033.4K is thousands"
    );
    // Its engine keeps one request under way, whatever was asked.
    assert_eq!(rows[0].iodepth, 1);
    assert!(
        found.notes.iter().any(|note| note.contains("depth of 32")),
        "{:?}",
        found.notes
    );
    assert_eq!(rows[0].flags, [Flag::NotDurable]);
}

#[test]
fn clones_of_one_job_are_one_row() {
    let found = read("fio-2.1.3-clones.txt");
    let rows = rows(&found);
    assert_eq!(rows.len(), 1);
    let row = rows[0];
    assert_eq!((row.bytes, row.lanes), (4 * 786_432 * 1024, 4));
    // As fio itself has it: aggrb=353810KB/s.
    assert!(near(rate(row), 353_810.0 * 1024.0), "{:?}", rate(row));
    assert!(near(row.latency_ns.mean, 44_612.5) && row.latency_ns.p50.is_none());
}

#[test]
fn what_nobody_knows_is_refused_in_a_sentence() {
    for (name, bytes) in [
        ("a.txt", &b"hello"[..]),
        ("b.json", b"{\"a\": 1}"),
        ("c", b""),
        ("d", b"a\0b"),
    ] {
        let error = import(name, bytes, Writing::default())
            .expect_err(name)
            .to_string();
        assert!(error.starts_with(name), "{error}");
    }
}

#[test]
fn an_error_of_iperf3_is_no_measurement() {
    let text = "{\"start\": {}, \"intervals\": [], \"end\": {}, \"error\": \"the server is busy running a test. try again later\"}";
    let found = import("busy.json", text.as_bytes(), Writing::default()).expect("readable");
    let row = &found.tests[0].0;
    assert_eq!(
        (row.status, row.throughput(), row.errors),
        (Status::Failed, None, 1)
    );
    assert!(
        row.error
            .as_deref()
            .is_some_and(|error| error.contains("busy"))
    );
}
