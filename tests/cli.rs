//! The program from outside: exit codes, result files, signals, and what never shows. On `null:` and `sim:` only.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nasgauge::report::csv::{AGGREGATE, INTERVALS, LATENCY, SUMMARY};
use nasgauge::report::ladder::{LADDER, VERDICT};
use tempfile::TempDir;

/// The program, in a directory of its own.
fn nasgauge(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nasgauge"));
    command
        .args(arguments)
        .current_dir(directory)
        .env_remove("NASGAUGE_PASSWORD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    nasgauge(directory, arguments).output().expect("it runs")
}

fn fresh() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory)
        .expect("readable")
        .next()
        .is_none()
}

/// A CSV file: its header, and each row by column.
fn table(path: &Path, header: &[&str]) -> Vec<Line> {
    let bytes = std::fs::read(path).expect("a CSV file");
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or(b"");
    assert_eq!(
        text(first),
        format!("{}\r", header.join(",")),
        "{}",
        path.display()
    );
    // The reader refuses rows of another length.
    let mut reader = csv::ReaderBuilder::new()
        .flexible(false)
        .from_reader(bytes.as_slice());
    reader
        .records()
        .map(|record| {
            let record = record.expect("RFC 4180");
            assert_eq!(record.len(), header.len());
            header
                .iter()
                .map(ToString::to_string)
                .zip(record.iter().map(ToString::to_string))
                .collect()
        })
        .collect()
}

fn summary(directory: &Path) -> Vec<Line> {
    table(&directory.join("summary.csv"), SUMMARY)
}

fn statuses(directory: &Path) -> Vec<String> {
    summary(directory)
        .iter()
        .map(|row| row["status"].clone())
        .collect()
}

/// Ten thousand quick operations, read and written.
const QUICK: &[&str] = &[
    "--rw", "randrw", "--bs", "4k", "--size", "1M", "--bytes", "4M",
];

/// `run` with these words before those of [`QUICK`].
fn quick(directory: &Path, arguments: &[&str]) -> Output {
    run(directory, &[&["run"], arguments, QUICK].concat())
}

type Line = BTreeMap<String, String>;

/// What identifies a row in every file.
fn key(row: &Line) -> Vec<String> {
    let columns = ["stage", "target", "workload", "direction", "repeat"];
    columns.iter().map(|column| row[*column].clone()).collect()
}

fn number<T: std::str::FromStr>(row: &Line, column: &str) -> T {
    let value = row[column].parse();
    value.unwrap_or_else(|_| panic!("{column}: '{}' in {row:?}", row[column]))
}

/// The sum of a column over the lines of one row.
fn sum(lines: &[Line], row: &Line, column: &str) -> u64 {
    let its = lines.iter().filter(|line| key(line) == key(row));
    its.map(|line| number::<u64>(line, column)).sum()
}

/// Two targets, two directions, two rounds, sampled each 100 ms, under a German locale.
fn german_run(directory: &Path) -> Output {
    let arguments = "run --target sim:?latency=uniform:1ms-3ms --target null: --rw randrw --rwmixread 70 --bs 4k \
                     --iodepth 4 --size 1M --runtime 600ms --ramp-time 100ms --interval 100ms --repeats 2 --out out";
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let mut command = nasgauge(directory, &arguments);
    command
        .env("LC_ALL", "de_DE.UTF-8")
        .env("LANG", "de_DE.UTF-8");
    command.output().expect("it runs")
}

#[test]
fn csv_files_agree_with_one_another_whatever_the_locale() {
    let work = fresh();
    let output = german_run(work.path());
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("MB/s"), "a table for people");
    let out = work.path().join("out");
    let rows = summary(&out);
    assert_eq!(rows.len(), 8);
    let intervals = table(&out.join("intervals.csv"), INTERVALS);
    let latency = table(&out.join("latency.csv"), LATENCY);
    for row in &rows {
        assert_eq!(
            (row["status"].as_str(), row["errors"].as_str()),
            ("ok", "0")
        );
        let (ops, bytes): (u64, u64) = (number(row, "ops"), number(row, "bytes"));
        assert!(ops > 0 && bytes == ops * 4096);
        assert_eq!(sum(&intervals, row, "ops"), ops, "{:?}", key(row));
        assert_eq!(sum(&intervals, row, "bytes"), bytes, "{:?}", key(row));
        assert_eq!(sum(&latency, row, "count"), ops, "{:?}", key(row));
        let figure = |column| number::<f64>(row, column);
        let seconds = figure("seconds");
        assert!((figure("throughput_bytes_per_s") * seconds / bytes as f64 - 1.0).abs() < 1e-4);
        assert!((figure("iops") * seconds / ops as f64 - 1.0).abs() < 1e-3);
        assert!(figure("latency_us_mean") <= figure("latency_us_max") * 1.001);
        assert!(
            row["throughput_bytes_per_s"].contains('.'),
            "a decimal point"
        );
        let its: Vec<&Line> = intervals
            .iter()
            .filter(|line| key(line) == key(row))
            .collect();
        let ordered =
            |line: &&Line| number::<f64>(line, "from_seconds") <= number::<f64>(line, "to_seconds");
        assert!(its.iter().all(ordered));
        if row["protocol"] == "sim" {
            // A busy machine samples less often and waits longer, but never shorter.
            assert!(its.len() >= 2, "{} samples in 600 ms", its.len());
            assert!(figure("latency_us_mean") > 1000.0, "{row:?}");
        }
    }
    let aggregate = table(&out.join("aggregate.csv"), AGGREGATE);
    assert!(aggregate.iter().all(|line| line["n"] == "2"));
    let of_iops = aggregate.iter().filter(|line| line["metric"] == "iops");
    assert_eq!(of_iops.count(), 4);
    let json = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(out.join(name)).expect(name)).expect("JSON")
    };
    assert_eq!(
        json("record.json")["rows"].as_array().map(Vec::len),
        Some(8)
    );
    assert!(json("environment.json")["client"].is_object());
}

#[test]
fn csv_headers_are_those_that_scripts_know() {
    let fixture = include_str!("../fixtures/csv-headers.txt");
    let now = [
        ("summary.csv", SUMMARY),
        ("intervals.csv", INTERVALS),
        ("latency.csv", LATENCY),
        ("aggregate.csv", AGGREGATE),
        ("ladder.csv", LADDER),
        ("verdict.csv", VERDICT),
    ]
    .map(|(name, header)| format!("{name}: {}\n", header.join(",")))
    .concat();
    let recomputed = nasgauge::report::recompute::header().join(",");
    let now = format!("{now}recompute: {recomputed}\n");
    assert_eq!(
        now, fixture,
        "scripts rely on these: columns may join at the end, with a new schema_version"
    );
}

/// Arguments of `diagnose` that can't be, each with a word of the refusal.
const UNDIAGNOSABLE: &[(&[&str], &str)] = &[
    (&[], "no target"),
    (&["/does/not/exist"], "/does/not/exist"),
    (&["ftp://nas/x"], "unknown protocol 'ftp'"),
    (&["/tmp", "--server-path", "/tank"], "add --agent"),
    (
        &["/tmp", "--workload", "mixed-70-30-8k"],
        "has no direction",
    ),
    (&["/tmp", "--workload", "small-files"], "small files"),
    (&["/tmp", "--workload", "seq-reed"], "seq-read-1m"),
    (
        &["/tmp", "--workload", "seq-read-1m", "--direction", "write"],
        "nothing to diagnose",
    ),
    (&["/tmp", "--size", "2MiB"], "larger --size"),
    (&["/tmp", "--net", "http://nas"], "no server to test with"),
    (
        &["/tmp", "--ram-target", "smb://me:secret@nas/x"],
        "password",
    ),
];

#[test]
fn what_can_not_be_diagnosed_is_refused_in_a_sentence_and_nothing_is_touched() {
    let directory = tempfile::tempdir().expect("a directory");
    for (arguments, words) in UNDIAGNOSABLE {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_nasgauge"))
            .arg("diagnose")
            .args(*arguments)
            .current_dir(directory.path())
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
    let left = std::fs::read_dir(directory.path()).expect("there").count();
    assert_eq!(left, 0, "a result directory was made");
}

#[test]
fn what_a_diagnosis_can_not_reach_is_told_once() {
    let directory = tempfile::tempdir().expect("a directory");
    // A port that was free a moment ago: nobody listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let targets = [
        format!("nfs://127.0.0.1:{port}/export?mountport={port}"),
        format!("smb://127.0.0.1:{port}/share"),
        format!("iscsi://127.0.0.1:{port}/iqn.2026-11.dev.nasgauge:none/1"),
    ];
    let ram = format!("ram:1GiB --ram-target {}", targets[0]);
    for arguments in targets.iter().chain([&ram]) {
        let mut words = vec!["diagnose", "--quick"];
        words.extend(arguments.split(' '));
        let output = run(directory.path(), &words);
        let said = text(&output.stderr);
        assert_eq!(code(&output), 1, "{arguments}: {said}");
        let times = said.matches("failed while connecting").count();
        assert_eq!(times, 1, "{arguments}: {said}");
        assert!(is_empty(directory.path()), "{arguments}");
    }
}

/// A directory of this computer: no network, no server, and still an answer, with everything removed.
#[test]
fn a_local_directory_is_diagnosed_and_left_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("data");
    std::fs::create_dir(&place).expect("made");
    std::fs::write(place.join("precious.txt"), "mine").expect("written");
    let diagnose = |more: &[&str]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_nasgauge"))
            .arg("diagnose")
            .arg(&place)
            .args(["--quick", "--size", "32MiB", "--max-write", "80MiB"])
            .args(["--direction", "write"])
            .args(more)
            .current_dir(directory.path())
            .output()
            .expect("runs")
    };
    let plan = diagnose(&["--dry-run"]);
    let said = String::from_utf8_lossy(&plan.stdout);
    assert!(
        plan.status.success() && said.contains("at most 32 MiB (33.55 MB)"),
        "{plan:?}"
    );
    assert!(!directory.path().join("results").exists());
    let out = directory.path().join("out");
    let done = diagnose(&["--quiet", "--out", &out.display().to_string()]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        said.contains("Writes: ") && said.contains("To paste into a forum"),
        "{said}"
    );
    for (name, header) in [("ladder.csv", LADDER), ("verdict.csv", VERDICT)] {
        let lines = table(&out.join(name), header);
        assert!(!lines.is_empty(), "{name}");
        assert!(
            lines.iter().all(|line| line["direction"] == "write"),
            "{lines:?}"
        );
    }
    // Whatever is measured twice or with something changed: never more is written than allowed, and no sample is without its
    // row.
    let rows = table(&out.join("summary.csv"), SUMMARY);
    let bytes = |line: &Line| line["bytes"].parse::<u64>().expect("bytes");
    let written = rows.iter().filter(|row| row["protocol"] == "file");
    let written: u64 = written.map(bytes).sum();
    assert!((1..=80 << 20).contains(&written), "{written}");
    let place_of = |line: &Line| {
        ["stage", "target", "workload", "direction", "repeat"].map(|key| line[key].clone())
    };
    for row in &rows {
        let samples = table(&out.join("intervals.csv"), INTERVALS);
        let mine = samples.iter().filter(|one| place_of(one) == place_of(row));
        assert_eq!(mine.map(bytes).sum::<u64>(), bytes(row), "{row:?}");
    }
    let samples = table(&out.join("intervals.csv"), INTERVALS);
    let known = |one| rows.iter().any(|row| place_of(row) == place_of(one));
    assert!(samples.iter().all(known), "a sample without a row");
    let names: Vec<_> = std::fs::read_dir(&place)
        .expect("there")
        .flatten()
        .collect();
    assert_eq!(names.len(), 1, "only what was there before: {names:?}");
    let kept = std::fs::read_to_string(place.join("precious.txt"));
    assert_eq!(kept.expect("still there"), "mine");
}

/// Arguments of `run` that can't be, each with a word of the refusal.
const IMPOSSIBLE: &[(&[&str], &str)] = &[
    (&[], "no target"),
    (&["--target", "ftp://x/y"], "unknown protocol 'ftp'"),
    (&["--target", "sim:?latncy=1us"], "unknown option 'latncy'"),
    (&["--target", "sim:?latency=soon"], "latency=soon"),
    (&["--target", "null:?x=1"], "unknown option 'x'"),
    (&["--target", "null:", "--blocksize", "4k"], "--blocksize"),
    (&["--target", "null:", "seq-reed"], "seq-read-1m"),
    (&["--target", "null:", "./missing.toml"], "missing.toml"),
    (&["--target", "null:", "--set", "block=4k"], "`bs`"),
    (&["--target", "null:", "--rw", "sideways"], "sideways"),
    (
        &["--target", "null:", "--rw", "read", "--bs", "0"],
        "block size of 0",
    ),
    (
        &["--target", "null:", "--rw", "read", "--bs", "4q"],
        "unknown unit 'q'",
    ),
    (
        &["--target", "null:", "--rw", "read", "--size", "20000000TiB"],
        "larger than any",
    ),
    (
        &["--target", "null:", "--rw", "read", "--iodepth", "0"],
        "iodepth 0",
    ),
    (
        &["--target", "null:", "--rw", "read", "--lanes", "70000"],
        "70000",
    ),
    (
        &[
            "--target", "null:", "--rw", "read", "--bs", "1M", "--size", "1k",
        ],
        "smaller than one block",
    ),
    (
        &["--target", "null:", "--rw", "read", "--repeats", "0"],
        "repeats 0",
    ),
    (
        &["--target", "null:", "--rw", "read", "--repeats", "often"],
        "nor auto",
    ),
    (
        &["--target", "null:", "--rw", "read", "--settle", "2h"],
        "settle 2h",
    ),
    (&["--target", "sim:?noise=3"], "noise=3"),
    (&["--target", "sim:?noise=26%"], "25%"),
    (&["--target", "sim:?drift=fast"], "drift=fast"),
    (
        &["--target", "null:", "--rw", "read", "--interval", "1ms"],
        "100ms",
    ),
    (
        &["--target", "null:", "--rw", "read", "--timeout", "1ns"],
        "1ms",
    ),
    (
        &["--target", "null:", "--rw", "read", "--runtime", "25h"],
        "--yes",
    ),
    (
        &["--target", "null:", "--rw", "read", "--verify", "1"],
        "stores no data",
    ),
    (
        &["--target", "null:", "--target", "null:", "--rw", "read"],
        "given twice",
    ),
    (
        &[
            "--target",
            "sim:",
            "--rw",
            "write",
            "--size",
            "2M",
            "--max-write",
            "1M",
        ],
        "--max-write",
    ),
    (
        &["--target", "sim:", "--rw", "write", "--read-existing", "a"],
        "only reads",
    ),
    (
        &["--target", "sim:", "--rw", "read", "--read-existing", "a"],
        "--read-existing",
    ),
    (
        &["--target", "null:", "small-files"],
        "works on small files",
    ),
    (
        &["--target", "sim:", "--rw", "create", "--size", "1G"],
        "'size' is for blocks",
    ),
    (
        &["--target", "sim:", "--rw", "read", "--nrfiles", "3"],
        "'nrfiles' is for small files",
    ),
    (&["--target", "sim:", "--rw", "stat", "--keep"], "--keep"),
    (
        &["--target", "sim:", "--rw", "open", "--read-existing", "a"],
        "--read-existing",
    ),
    (
        &["--target", "sim:", "small-files", "--max-write", "1M"],
        "--max-write",
    ),
    (
        &["--target", "null:", "--rw", "read", "--format", "xml"],
        "xml",
    ),
];

#[test]
fn what_can_not_be_is_refused_with_code_2_before_anything_is_written() {
    let bad_plan: &[&str] = &["run", "--out", "out"];
    let work = fresh();
    for (arguments, word) in IMPOSSIBLE {
        let output = run(work.path(), &[bad_plan, arguments].concat());
        let told = text(&output.stderr);
        assert_eq!(code(&output), 2, "{arguments:?}: {told}");
        assert!(told.contains(word), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(is_empty(work.path()), "{arguments:?} wrote something");
    }
    for arguments in [
        &["runn"][..],
        &[],
        &["inspect"],
        &["inspect", "ftp://x"],
        &["rerun", "nowhere"],
    ] {
        let output = run(work.path(), arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", text(&output.stderr));
        assert!(is_empty(work.path()));
    }
    let output = quick(
        work.path(),
        &["--target", "null:", "--out", "/proc/nowhere"],
    );
    assert_eq!(code(&output), 2, "{}", text(&output.stderr));
}

#[test]
fn looking_writes_nothing() {
    let work = fresh();
    for (arguments, word) in [
        (
            &[
                "run",
                "--target",
                "sim:",
                "--rw",
                "write",
                "--size",
                "10GiB",
                "--dry-run",
                "--out",
                "out",
            ][..],
            "10 GiB (10.74 GB)",
        ),
        (
            &[
                "run",
                "--target",
                "sim:",
                "small-files",
                "--nrfiles",
                "50",
                "--dry-run",
            ],
            "up to 50 small files (room for 4.88 MiB (5.12 MB)) in a new directory",
        ),
        (&["workloads"], "seq-read-1m"),
        (&["workloads", "seq-read-1m"], "[[phase]]"),
        (&["inspect", "sim:?latency=1ms"], "simulated"),
        (&["inspect", "null:"], "null"),
        (&["clean", "sim:", "--yes"], "nothing"),
        (&["--help"], "inspect"),
        (&["run", "--help"], "--rwmixread"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let output = run(work.path(), arguments);
        assert_eq!(code(&output), 0, "{arguments:?}: {}", text(&output.stderr));
        assert!(
            text(&output.stdout).contains(word),
            "{arguments:?}: {}",
            text(&output.stdout)
        );
        assert!(is_empty(work.path()), "{arguments:?} wrote something");
    }
}

#[test]
fn standard_output_is_pure_and_quiet_is_quiet() {
    let work = fresh();
    let output = quick(
        work.path(),
        &["--target", "sim:", "--out", "csv", "--format", "csv"],
    );
    assert_eq!(code(&output), 0);
    let file = std::fs::read(work.path().join("csv/summary.csv")).expect("there");
    assert_eq!(text(&output.stdout), text(&file));
    assert!(
        text(&output.stderr).contains("results: "),
        "progress goes to standard error"
    );
    let output = quick(
        work.path(),
        &[
            "--target", "sim:", "--out", "json", "--format", "json", "--quiet",
        ],
    );
    let record: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    assert_eq!(record["schema_version"], 1);
    assert_eq!(text(&output.stderr), "", "--quiet");
}

#[test]
fn without_out_a_directory_is_made_in_results() {
    let work = fresh();
    assert_eq!(code(&quick(work.path(), &["--target", "null:"])), 0);
    let made: Vec<_> = std::fs::read_dir(work.path().join("results"))
        .expect("made")
        .flatten()
        .collect();
    assert_eq!(made.len(), 1);
    assert_eq!(summary(&made[0].path()).len(), 2);
}

#[test]
fn what_is_in_a_result_directory_stays() {
    let work = fresh();
    let out = work.path().join("out");
    assert_eq!(
        code(&quick(work.path(), &["--target", "null:", "--out", "out"])),
        0
    );
    let before = std::fs::read(out.join("summary.csv")).expect("there");
    let output = quick(work.path(), &["--target", "null:", "--out", "out"]);
    assert_eq!(code(&output), 2);
    assert!(
        text(&output.stderr).contains("already"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(
        std::fs::read(out.join("summary.csv")).expect("there"),
        before
    );
    for name in [
        "plan.toml",
        "record.json",
        "environment.json",
        "aggregate.csv",
        "intervals.csv",
        "latency.csv",
    ] {
        let theirs = fresh();
        std::fs::write(theirs.path().join(name), "mine").expect("written");
        let output = quick(theirs.path(), &["--target", "null:", "--out", "."]);
        assert_eq!(code(&output), 2, "{name}: {}", text(&output.stderr));
        assert_eq!(
            std::fs::read_to_string(theirs.path().join(name)).expect("there"),
            "mine"
        );
        assert_eq!(
            std::fs::read_dir(theirs.path()).expect("readable").count(),
            1,
            "{name}"
        );
    }
}

#[test]
fn a_fault_fails_its_row_only_and_the_exit_code_says_so() {
    for (fault, status, word) in [
        ("fail_at=100", "failed", "operation 100"),
        ("gone_at=100", "server_lost", "gone as ordered"),
        ("full_at=1", "failed", "full"),
        ("short_at=100", "failed", "only 2048 of 4096 bytes"),
        (
            "stall_at=100&stall=1h",
            "server_lost",
            "did not answer in time",
        ),
    ] {
        let work = fresh();
        let bad = format!("sim:?{fault}");
        let output = quick(
            work.path(),
            &[
                "--target",
                "sim:",
                "--target",
                &bad,
                "--out",
                "out",
                "--timeout",
                "500ms",
                "--repeats",
                "2",
            ],
        );
        let told = text(&output.stderr);
        assert_eq!(code(&output), 1, "{fault}: {told}");
        assert!(told.contains(word), "{fault}: {told}");
        let rows = summary(&work.path().join("out"));
        assert_eq!(rows.len(), 8, "{fault}: all cells have their rows");
        for row in rows {
            if row["target"] == "sim:" {
                assert_eq!(
                    (row["status"].as_str(), row["errors"].as_str()),
                    ("ok", "0"),
                    "{fault}"
                );
                assert!(!row["throughput_bytes_per_s"].is_empty());
                continue;
            }
            assert_eq!(row["status"], status, "{fault}");
            assert_ne!(row["errors"], "0", "{fault}");
            for column in [
                "throughput_bytes_per_s",
                "iops",
                "durable_bytes_per_s",
                "client_cpu_s_per_gb",
            ] {
                assert_eq!(row[column], "", "{fault}: no {column} with errors");
            }
            assert_eq!(
                row["flags"].contains("server_lost"),
                status == "server_lost"
            );
        }
        let aggregate = table(&work.path().join("out/aggregate.csv"), AGGREGATE);
        assert!(
            aggregate.iter().all(|line| line["target"] == "sim:"),
            "failed rows have no mean"
        );
    }
}

#[test]
fn a_flush_may_take_longer_than_any_operation() {
    let work = fresh();
    let arguments = [
        "run",
        "--target",
        "sim:?flush=7s",
        "--rw",
        "write",
        "--bs",
        "4k",
        "--size",
        "1M",
        "--bytes",
        "1M",
        "--timeout",
        "1s",
        "--out",
        "out",
    ];
    let output = run(work.path(), &arguments);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let row = &summary(&work.path().join("out"))[0];
    assert!(number::<f64>(row, "flush_seconds") >= 7.0);
    assert!(number::<f64>(row, "durable_bytes_per_s") < f64::from(1 << 20) / 7.0);
}

#[test]
fn a_signal_ends_a_run_in_order() {
    for (signal, hangs) in [
        ("INT", false),
        ("TERM", false),
        ("HUP", false),
        ("INT", true),
    ] {
        let work = fresh();
        let plan = "description = 'one short phase, one long'\n[defaults]\nrw = 'randwrite'\nbs = '4k'\nsize = '1M'\n\
                    [[phase]]\nname = 'short'\nbytes = '1M'\n[[phase]]\nname = 'long'\nruntime = 3600\nramp_time = 0\n";
        std::fs::write(work.path().join("two.toml"), plan).expect("written");
        // One that hangs has an operation under way for longer than anybody waits.
        let uri = if hangs {
            "sim:?latency=1ms&stall_at=300&stall=1s"
        } else {
            "sim:?latency=1ms"
        };
        let arguments = [
            "run",
            "./two.toml",
            "--target",
            uri,
            "--out",
            "out",
            "--interval",
            "100ms",
        ];
        let mut child = nasgauge(work.path(), &arguments).spawn().expect("it runs");
        let out = work.path().join("out");
        let seen = |file: &str, lines: usize| {
            std::fs::read_to_string(out.join(file)).is_ok_and(|text| text.lines().count() > lines)
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        // The short phase is on disk, and the long one has begun.
        while !(seen("summary.csv", 1)
            && std::fs::read_to_string(out.join("intervals.csv"))
                .is_ok_and(|text| text.contains("two/long")))
        {
            assert!(Instant::now() < deadline, "it never got going");
            std::thread::sleep(Duration::from_millis(20));
        }
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &child.id().to_string()])
            .status();
        assert!(sent.expect("kill(1)").success());
        let told = Instant::now();
        while child.try_wait().expect("a child").is_none() {
            assert!(
                told.elapsed() < Duration::from_secs(20),
                "deaf to SIG{signal}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = child.wait_with_output().expect("ended");
        assert_eq!(code(&output), 130, "SIG{signal}: {}", text(&output.stderr));
        assert_eq!(statuses(&out), ["ok", "interrupted"], "SIG{signal}");
        let rows = summary(&out);
        assert!(rows[1]["flags"].contains("interrupted"));
        assert_eq!(rows[1]["errors"], "0", "being stopped is no error");
        assert!(
            !rows[1]["throughput_bytes_per_s"].is_empty(),
            "what was measured is a figure"
        );
        assert!(out.join("record.json").exists() && out.join("aggregate.csv").exists());
    }
}

#[test]
fn rerun_measures_the_same_cells() {
    let work = fresh();
    let output = quick(
        work.path(),
        &[
            "--target",
            "sim:?latency=1us",
            "--target",
            "null:",
            "--repeats",
            "2",
            "--iodepth",
            "8",
            "--out",
            "one",
        ],
    );
    assert_eq!(code(&output), 0);
    assert_eq!(
        code(&run(work.path(), &["rerun", "one", "--out", "two"])),
        0
    );
    let plan = |name: &str| {
        std::fs::read_to_string(work.path().join(name).join("plan.toml")).expect("a plan")
    };
    assert_eq!(plan("one"), plan("two"));
    let cells = |name: &str| -> Vec<Vec<String>> {
        let columns = [
            "stage",
            "target",
            "workload",
            "direction",
            "pattern",
            "block_size_bytes",
            "iodepth",
            "lanes",
            "size_bytes",
            "repeat",
            "bytes",
            "ops",
            "payload",
        ];
        let rows = summary(&work.path().join(name));
        rows.iter()
            .map(|row| columns.iter().map(|column| row[*column].clone()).collect())
            .collect()
    };
    assert_eq!(cells("one"), cells("two"), "the same seed, the same mix");
    let wrong = plan("one").replace("iodepth = 8", "iodepth = 0");
    std::fs::create_dir(work.path().join("edited")).expect("made");
    std::fs::write(work.path().join("edited/plan.toml"), wrong).expect("written");
    let output = run(work.path(), &["rerun", "edited", "--out", "three"]);
    assert_eq!(code(&output), 2, "{}", text(&output.stderr));
    assert!(!work.path().join("three").exists());
}

#[test]
fn a_password_in_a_uri_is_refused_and_shows_nowhere() {
    let work = fresh();
    for uri in [
        "smb://me:hunter2@nas/share",
        "iscsi://nas/iqn.x/0?chap-secret=hunter2",
        "nfs://me:hunter2/more@nas/export",
        "ftp://me:hunter2@nas/x",
    ] {
        for command in ["run", "inspect", "clean"] {
            let mut arguments = vec![command];
            if command == "run" {
                arguments.push("--target");
            }
            arguments.push(uri);
            let output = run(work.path(), &arguments);
            assert_eq!(code(&output), 2, "{command} {uri}");
            let told = text(&output.stdout) + &text(&output.stderr);
            assert!(!told.contains("hunter2"), "{command} {uri}: {told}");
            assert!(is_empty(work.path()));
        }
    }
}

#[test]
fn a_reader_that_leaves_early_does_not_end_a_run() {
    let work = fresh();
    let bench = work.path().join("bench");
    std::fs::create_dir(&bench).expect("made");
    let target = bench.display().to_string();
    for arguments in [
        [
            &[
                "run", "--target", &target, "--target", "sim:", "--out", "out",
            ],
            QUICK,
        ]
        .concat(),
        vec!["workloads"],
        vec!["inspect", "sim:"],
    ] {
        let mut child = nasgauge(work.path(), &arguments).spawn().expect("it runs");
        drop((child.stdout.take(), child.stderr.take()));
        let status = child.wait().expect("ended");
        assert_eq!(status.code(), Some(0), "{arguments:?}");
    }
    assert_eq!(statuses(&work.path().join("out")), ["ok"; 4]);
    assert!(is_empty(&bench), "nothing stays on the target");
}

/// Passwords that are given as they should be, to the protocols that take one.
#[cfg(any(feature = "smb", feature = "iscsi"))]
mod secrets {
    use std::net::TcpListener;

    use nasgauge::target::PROTOCOLS;

    use super::*;

    /// Everything below a directory, as one text.
    fn all_files(directory: &Path) -> String {
        let mut all = String::new();
        for entry in std::fs::read_dir(directory).expect("readable").flatten() {
            if entry.path().is_dir() {
                all.push_str(&all_files(&entry.path()));
            } else {
                all.push_str(&text(&std::fs::read(entry.path()).expect("readable")));
            }
        }
        all
    }

    #[test]
    fn a_password_from_the_environment_or_a_file_shows_nowhere() {
        // A port that was free a moment ago, and refuses.
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|socket| socket.local_addr())
            .expect("a port")
            .port();
        for (protocol, rest) in [("smb", "share"), ("iscsi", "iqn.2026-11.test:x/0")] {
            if !PROTOCOLS.iter().any(|known| known.name == protocol) {
                continue;
            }
            let uri = format!("{protocol}://me@127.0.0.1:{port}/{rest}");
            for by_file in [false, true] {
                let work = fresh();
                let file = work.path().join("secrets");
                let mut arguments =
                    vec!["--target", &uri, "--out", "out", "--connect-timeout", "5s"];
                let mut environment = "";
                if by_file {
                    std::fs::write(&file, "[127.0.0.1]\nusername=me\npassword=hunter2\n")
                        .expect("written");
                    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
                    std::fs::set_permissions(&file, mode).expect("mode 600");
                    arguments.extend(["--credentials", "secrets"]);
                } else {
                    environment = "hunter2";
                }
                let arguments = [&["run"], arguments.as_slice(), QUICK].concat();
                let mut command = nasgauge(work.path(), &arguments);
                if !environment.is_empty() {
                    command.env("NASGAUGE_PASSWORD", environment);
                }
                let output = command.output().expect("it runs");
                let told = text(&output.stdout) + &text(&output.stderr);
                assert_eq!(code(&output), 1, "{uri}: {told}");
                assert!(!told.contains("hunter2"), "{uri}: {told}");
                assert!(
                    !all_files(&work.path().join("out")).contains("hunter2"),
                    "{uri}"
                );
                assert_eq!(
                    statuses(&work.path().join("out")),
                    ["server_lost", "server_lost"],
                    "{uri}: {told}"
                );
                assert!(
                    told.contains("connecting") && told.contains(&port.to_string()),
                    "{uri}: {told}"
                );
            }
        }
    }

    #[test]
    fn a_credentials_file_that_others_can_read_is_refused() {
        let uri = if cfg!(feature = "smb") {
            "smb://me@127.0.0.1:1/x"
        } else {
            "iscsi://me@127.0.0.1:1/iqn.2026-11.test:x/0"
        };
        let work = fresh();
        let file = work.path().join("secrets");
        std::fs::write(&file, "password=hunter2\n").expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&file, mode).expect("mode 644");
        let output = quick(work.path(), &["--target", uri, "--credentials", "secrets"]);
        let told = text(&output.stderr);
        assert_eq!(code(&output), 2, "{told}");
        assert!(
            told.contains("chmod 600") && !told.contains("hunter2"),
            "{told}"
        );
        let none = quick(work.path(), &["--target", uri]);
        assert_eq!(code(&none), 2);
        assert!(
            text(&none.stderr).contains("NASGAUGE_PASSWORD"),
            "no prompt without a terminal"
        );
    }
}

/// Runs 16 operations a repeat on the virtual clock of these targets, as often as asked.
fn repeated(directory: &Path, targets: &[&str], repeats: &str) -> Output {
    let mut arguments = vec![
        "run", "--rw", "randread", "--bs", "4k", "--size", "64k", "--out", "out",
    ];
    arguments.extend(["--repeats", repeats]);
    arguments.extend(targets.iter().flat_map(|target| ["--target", *target]));
    run(directory, &arguments)
}

/// How many rows each target has.
fn rows_of(rows: &[Line], target: &str) -> usize {
    rows.iter().filter(|row| row["target"] == target).count()
}

#[test]
fn auto_repeats_all_targets_until_the_last_is_known() {
    const STEADY: &str = "sim:?clock=virtual&latency=1ms&noise=0.1%";
    const WILD: &str = "sim:?clock=virtual&latency=1ms&noise=10%";
    const BROKEN: &str = "sim:?clock=virtual&latency=1ms&fail_at=3";
    for (targets, least, most) in [(vec![STEADY, BROKEN], 5, 5), (vec![STEADY, WILD], 15, 15)] {
        let work = fresh();
        let output = repeated(work.path(), &targets, "auto");
        let told = text(&output.stdout) + &text(&output.stderr);
        let out = work.path().join("out");
        let rows = summary(&out);
        for target in &targets {
            let count = rows_of(&rows, target);
            assert!((least..=most).contains(&count), "{target}: {count}\n{told}");
        }
        assert!(told.contains("plan: 10 to 30 measurements"), "{told}");
        assert!(told.contains("[1/10-30]"), "{told}");
        let aggregate = table(&out.join("aggregate.csv"), AGGREGATE);
        for line in &aggregate {
            assert_eq!(number::<usize>(line, "n"), rows_of(&rows, &line["target"]));
            assert_eq!(line["failed"], "0");
        }
        let broken = targets.contains(&BROKEN);
        assert_eq!(code(&output), i32::from(broken));
        assert_eq!(told.contains("none of 5 repeats is ok"), broken, "{told}");
        assert_eq!(told.contains("not within 2 %"), !broken, "{told}");
        let order = rows.iter().take(4).map(|row| row["target"].as_str());
        let turns = [targets[0], targets[1], targets[1], targets[0]];
        assert!(order.eq(turns), "rounds turn: ABBA");
    }
}

#[test]
fn auto_is_planned_shown_and_run_again() {
    let work = fresh();
    let arguments = [
        "--target",
        "null:",
        "--runtime",
        "1s",
        "--ramp-time",
        "0s",
        "--repeats",
        "auto",
    ];
    let shown = run(
        work.path(),
        &[&["run", "--dry-run"], &arguments[..]].concat(),
    );
    let told = text(&shown.stdout);
    assert!(told.contains("5 to 15 repeat(s)"), "{told}");
    assert!(told.contains("20 to 60 measurements, 20s to 1m"), "{told}");
    assert!(is_empty(work.path()), "only shown");
    let too_long = [
        "run",
        "--target",
        "null:",
        "--rw",
        "read",
        "--runtime",
        "2h",
        "--repeats",
        "auto",
    ];
    let output = run(work.path(), &too_long);
    assert_eq!(code(&output), 2);
    assert!(
        text(&output.stderr).contains("up to 1.3 days"),
        "{}",
        text(&output.stderr)
    );
    std::fs::write(
        work.path().join("own.toml"),
        "description = 'own'\nrepeats = 'auto'\n[[phase]]\nrw = 'read'\nbs = '4k'\nsize = '64k'\nbytes = '64k'\n",
    )
    .expect("written");
    let target = "sim:?clock=virtual&latency=1ms";
    let output = run(
        work.path(),
        &["run", "./own.toml", "--target", target, "--out", "one"],
    );
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let output = run(work.path(), &["rerun", "one", "--out", "two"]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    for name in ["one", "two"] {
        let plan =
            std::fs::read_to_string(work.path().join(name).join("plan.toml")).expect("a plan");
        assert!(plan.contains("repeats = \"auto\""), "{plan}");
        assert_eq!(summary(&work.path().join(name)).len(), 5);
    }
}

#[test]
fn a_target_that_slows_down_is_marked() {
    let work = fresh();
    let output = repeated(
        work.path(),
        &["sim:?clock=virtual&latency=1ms&drift=-3%"],
        "8",
    );
    let told = text(&output.stdout);
    assert!(told.contains("fell 19 % over 8 repeats"), "{told}");
    let aggregate = table(&work.path().join("out/aggregate.csv"), AGGREGATE);
    assert!(!aggregate.is_empty() && aggregate.iter().all(|line| line["flags"] == "trend"));
}

#[test]
fn a_rest_follows_what_wrote_to_storage_and_nothing_else() {
    let work = fresh();
    let bench = work.path().join("bench");
    std::fs::create_dir(&bench).expect("made");
    let storage = bench.display().to_string();
    let took = |target: &str, rw: &str, out: &str| {
        let arguments = [
            "run",
            "--target",
            target,
            "--rw",
            rw,
            "--bs",
            "4k",
            "--size",
            "64k",
            "--bytes",
            "64k",
            "--durability",
            "none",
            "--repeats",
            "2",
            "--settle",
            "5s",
            "--out",
            out,
        ];
        let start = Instant::now();
        let output = run(work.path(), &arguments);
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        let shown = text(&output.stderr).contains("letting file come to rest");
        (start.elapsed() >= Duration::from_secs(5), shown)
    };
    assert_eq!(took(&storage, "write", "one"), (true, true));
    assert!(
        !took(&storage, "read", "two").1,
        "reading leaves nothing to write"
    );
    assert!(!took("ram:", "write", "three").1, "memory has no rest");
}

/// The file of a run is not there yet when its blocks are checked against what direct I/O needs.
#[test]
fn direct_io_on_a_directory_where_no_run_was() {
    // Beside the program, since the usual place of temporary files is often memory, where nothing is direct.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let target = directory.path().join("share");
    std::fs::create_dir(&target).expect("a directory");
    let forced = format!("file:{}?direct=1", target.display());
    let plain = target.display().to_string();
    for more in [
        vec!["--target", &forced],
        vec!["--target", &plain, "--direct", "1"],
    ] {
        let mut arguments = vec![
            "run", "--quiet", "--rw", "randread", "--bs", "4k", "--size", "1M", "--bytes", "1M",
        ];
        arguments.extend(more);
        let output = run(directory.path(), &arguments);
        let said = text(&output.stderr);
        // A file system without direct I/O says so; else it works.
        assert!(
            code(&output) == 0 || said.contains("direct I/O on"),
            "{arguments:?}: {said}"
        );
        assert_eq!(std::fs::read_dir(&target).expect("there").count(), 0);
    }
}

/// Figures of others are judged on the screen and as CSV; what is no such file is refused with its name and line.
#[test]
fn figures_of_others_are_judged() {
    let directory = fresh();
    let here = directory.path();
    std::fs::write(
        here.join("mine.toml"),
        "id='X'\ntitle='a copy'\nsource='here'\nlabels=['peak, not mean']\n\
         [[compute]]\nwhat='it'\nfrom={rate='1119 MiB/s'}\nis='9.387 Gbit/s'\nwithin=0.001\nprinted='1119 MB/s'\n\
         [[case]]\nname='the copy'\nlimit='network'\nat_most='confirmed'\n[case.input]\ndirection='read'\n\
         end_to_end={rate='117 MB/s', marks=['same_host']}\n\
         layer=[{rung='line', figure={rate='941.5 Mbit/s'}}]\n",
    )
    .expect("written");
    let shown = run(here, &["diagnose", "--from", "mine.toml"]);
    assert_eq!(code(&shown), 0, "{shown:?}");
    let said = text(&shown.stdout);
    let flowing: Vec<&str> = said.split_whitespace().collect();
    let flowing = flowing.join(" ");
    for word in [
        "peak, not mean",
        "-4.6 % off",
        "Reads: 117 MB/s, limited by the network",
        "same host",
        "nothing of a cable",
    ] {
        assert!(flowing.contains(word), "'{word}' is missing in {said}");
    }
    assert!(
        said.lines().all(|line| line.chars().count() <= 80),
        "{said}"
    );
    let csv = run(
        here,
        &["diagnose", "--from", "mine.toml", "--format", "csv"],
    );
    let lines: Vec<String> = text(&csv.stdout).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 2, "{csv:?}");
    assert!(lines[1].starts_with("read,the copy,network,"), "{lines:?}");
    for (name, content, word) in [
        ("none.toml", None, "none.toml"),
        ("bad.toml", Some("id=3"), "line 1"),
        (
            "unit.toml",
            Some(
                "id='X'\ntitle='t'\nsource='s'\n[[compute]]\nwhat='w'\nfrom={rate='5 parsecs'}\nis='1 MB/s'\nwithin=0.1",
            ),
            "parsecs",
        ),
    ] {
        if let Some(content) = content {
            std::fs::write(here.join(name), content).expect("written");
        }
        let refused = run(here, &["diagnose", "--from", name]);
        assert_eq!(code(&refused), 2, "{refused:?}");
        let said = text(&refused.stderr);
        assert!(said.contains(word), "{name}: {said}");
    }
}
