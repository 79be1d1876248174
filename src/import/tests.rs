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
    assert!(near(rate(first), 384.064e6));
    // Operations are whole ones of five seconds.
    assert!(
        first
            .iops()
            .is_some_and(|iops| (iops - 366.3).abs() <= 0.11)
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

/// What fio itself tells in a file, without whatever stands in front of it.
fn told(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/import")
        .join(name);
    let text = std::fs::read_to_string(&path).expect(name);
    let begin = text.find('{').expect("an object");
    serde_json::from_str(&text[begin..]).expect("JSON")
}

#[test]
fn fio_3_agrees_with_itself() {
    let found = read("fio-3.33.json");
    let value = told("fio-3.33.json");
    let both = rows(&found);
    assert_eq!((found.tool.as_str(), both.len()), ("fio-3.33", 2));
    for row in both {
        let side = &value["jobs"][0][row.direction.as_str()];
        assert_eq!(
            (Some(row.bytes), Some(row.ops)),
            (side["io_bytes"].as_u64(), side["total_ios"].as_u64())
        );
        assert!(near(rate(row), side["bw_bytes"].as_f64().expect("a rate")));
        assert!(near(row.iops(), side["iops"].as_f64().expect("a rate")));
        assert!(near(
            row.latency_ns.mean,
            side["lat_ns"]["mean"].as_f64().expect("a mean")
        ));
        assert_eq!(
            row.latency_ns.p50,
            side["clat_ns"]["percentile"]["50.000000"].as_u64()
        );
        assert_eq!(
            (
                row.pattern.as_str(),
                row.block_size_bytes,
                row.iodepth,
                row.lanes
            ),
            ("randrw", Some(4096), 8, 1)
        );
        assert_eq!(
            (row.engine.as_str(), row.negotiated.as_str(), row.size_bytes),
            ("fio/libaio", "direct", 32 << 20)
        );
        assert!(row.started_utc.starts_with("20") && row.started_utc.ends_with('Z'));
    }
    // Its time holds the flush at the end.
    let write = &found.tests[1].0;
    assert_eq!(
        (write.durability.as_deref(), write.durable()),
        (Some("flush"), write.throughput())
    );
    assert!(found.notes.is_empty(), "{:?}", found.notes);
    assert_eq!(found.settings["rw"]["rwmixread"], "70");
}

#[test]
fn the_histogram_of_json_plus_is_taken_over() {
    let found = read("fio-3.33-plus.json");
    let side = &told("fio-3.33-plus.json")["jobs"][0]["read"];
    let row = &found.tests[0].0;
    assert_eq!(Some(row.latency.len()), side["total_ios"].as_u64());
    let wanted = side["clat_ns"]["percentile"]["99.000000"]
        .as_f64()
        .expect("told");
    let own = row.latency.value_at_quantile(0.99) as f64;
    assert!((own / wanted - 1.0).abs() < 0.02, "{own} {wanted}");
}

#[test]
fn clones_in_json_are_one_row() {
    let found = read("fio-3.33-clones.json");
    let jobs = told("fio-3.33-clones.json");
    let jobs = jobs["jobs"].as_array().expect("jobs");
    assert_eq!((jobs.len(), found.tests.len()), (3, 1));
    let row = &found.tests[0].0;
    let bytes: u64 = jobs
        .iter()
        .filter_map(|job| job["read"]["io_bytes"].as_u64())
        .sum();
    assert_eq!((row.bytes, row.lanes), (bytes, 3));
    assert!(found.notes[0].contains("3 clones"), "{:?}", found.notes);
}

#[test]
fn a_full_disk_and_a_signal_are_seen_whatever_the_error_field_says() {
    let full = read("fio-3.33-full-disk.json");
    let row = &full.tests[0].0;
    assert_eq!((row.status, row.throughput()), (Status::Failed, None));
    assert!(
        row.error
            .as_deref()
            .is_some_and(|error| error.contains("No space left"))
    );
    let stopped = read("fio-3.33-interrupted.json");
    assert_eq!(told("fio-3.33-interrupted.json")["jobs"][0]["error"], 0);
    let row = &stopped.tests[0].0;
    assert_eq!(row.status, Status::Interrupted);
    assert!(row.flags.contains(&Flag::Interrupted));
}

#[test]
fn terse_lines_of_all_versions_have_the_same_figures() {
    for version in [3, 4, 5] {
        let name = format!("fio-3.33-terse-v{version}.txt");
        let found = read(&name);
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fixtures/import")
            .join(&name);
        let text = std::fs::read_to_string(path).expect("there");
        let fields: Vec<&str> = text.lines().last().expect("a line").split(';').collect();
        let rows = rows(&found);
        assert_eq!(rows.len(), 2, "{name}");
        let kib: f64 = fields[6].parse().expect("a rate");
        assert!(near(rate(rows[0]), kib * 1024.0), "{name}");
        let write = 5 + if version == 5 { 47 } else { 41 };
        let kib: f64 = fields[write + 1].parse().expect("a rate");
        assert!(near(rate(rows[1]), kib * 1024.0), "{name}");
        assert_eq!((rows[0].iodepth, rows[0].lanes), (0, 0), "unknown");
        assert!(found.notes.iter().any(|note| note.contains("no settings")));
        let mean: f64 = fields[5 + 34].parse().expect("a mean");
        assert!(near(rows[0].latency_ns.mean, mean * 1e3));
    }
}

#[test]
fn the_normal_output_of_fio_3_is_exact_to_the_last_byte() {
    let found = read("fio-3.33-normal.txt");
    let row = &found.tests[0].0;
    assert_eq!((row.ops, row.bytes), (13_448, 13_448 << 20));
    assert!(near(row.seconds, 3.002) && near(row.latency_ns.mean, 445_520.0));
    assert_eq!(
        (row.lanes, row.iodepth, row.block_size_bytes),
        (2, 1, Some(1 << 20))
    );
    assert_eq!(
        (row.latency_ns.p50, row.latency_ns.p99),
        (Some(184_000), Some(4_490_000))
    );
    assert_eq!(row.flags, [Flag::NotDurable]);
}

#[test]
fn two_units_of_one_line_that_disagree_are_told() {
    let line = |rate: &str| {
        format!(
            "job: (groupid=0, jobs=1): err= 0: pid=1: Thu Dec  3 07:45:11 2026\n  read: IOPS=734, BW=734MiB/s ({rate})(30.0GiB/41847msec)\n"
        )
    };
    let notes = |rate: &str| {
        let found = import("a.txt", line(rate).as_bytes(), Writing::default());
        found.expect("readable").notes
    };
    assert_eq!(notes("770MB/s"), [""; 0]);
    let told = notes("734MB/s");
    assert!(
        told[0].starts_with("job, read: 734MB/s is by 1024"),
        "{told:?}"
    );
}

#[test]
fn iperf3_3_12_agrees_with_itself() {
    for (name, wanted) in [
        ("iperf3-3.12.json", &[("write", "sum_received")][..]),
        ("iperf3-3.12-reverse.json", &[("read", "sum_received")]),
        (
            "iperf3-3.12-bidir.json",
            &[
                ("write", "sum_received"),
                ("read", "sum_received_bidir_reverse"),
            ],
        ),
        ("iperf3-3.12-udp.json", &[("write", "sum_received")]),
    ] {
        let found = read(name);
        let end = &told(name)["end"];
        assert_eq!(found.tests.len(), wanted.len(), "{name}");
        for ((row, samples), (direction, sum)) in found.tests.iter().zip(wanted) {
            assert_eq!(row.direction, *direction, "{name}");
            let sum = &end[*sum];
            let bits = sum["bits_per_second"].as_f64().expect("a rate");
            if bits > 0.0 {
                assert!(
                    near(rate(row), bits / 8.0),
                    "{name}: {:?} {bits}",
                    rate(row)
                );
            }
            assert!(rate(row).is_some() && samples.len() >= 3, "{name}");
        }
    }
    let busy = read("iperf3-3.12-busy.json");
    let row = &busy.tests[0].0;
    assert_eq!((row.status, row.throughput()), (Status::Failed, None));
}

#[test]
fn a_rate_comes_back_from_every_unit() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/import");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).expect("fixtures") {
        let name = entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned();
        if name == "README.md" {
            continue;
        }
        for (row, _) in &read(&name).tests {
            let Some(rate) = rate(row) else { continue };
            for (unit, factor) in [
                ("MB/s", 1e6),
                ("MiB/s", 1_048_576.0),
                ("KiB/s", 1024.0),
                ("Gbit/s", 125e6),
            ] {
                let line = format!("{:.6} {unit}", rate / factor);
                let back = crate::recompute::recompute(&line, Writing::default()).expect(&line);
                let back = back.findings[0].rate_bytes_per_s.map(|rate| rate.best);
                assert!(near(back, rate), "{name}: {line}");
            }
            let line = crate::report::csv::summary(row);
            let lower = line.join(",").to_lowercase();
            for word in ["nan", "inf", "18446744073709551615", "9223372036854"] {
                assert!(!lower.contains(word), "{name}: {lower}");
            }
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}");
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

fn fixtures() -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/import");
    let entries = std::fs::read_dir(directory).expect("fixtures");
    let files = entries.map(|entry| {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        (name, std::fs::read(&path).expect("readable"))
    });
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Cut, and with bytes changed: an error at most.
    #[test]
    fn no_damaged_file_ends_it(cut in 0usize..20_000, at in 0usize..20_000, byte in 0u8.., nines in 0usize..20_000) {
        for (name, mut bytes) in fixtures() {
            let length = bytes.len();
            bytes[at % length] = byte;
            if bytes[nines % length].is_ascii_digit() {
                let place = nines % length;
                bytes.splice(place..=place, *b"99999999999999999999");
            }
            let _ = import(&name, &bytes[..cut.min(bytes.len())], Writing::default());
            let _ = import(&name, &bytes, Writing { decimal_comma: true });
        }
    }
}
