//! `nasgauge import` as users call it, and `diagnose --from` on what it made.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn run(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nasgauge"))
        .args(arguments)
        .current_dir(directory)
        .env("LC_ALL", "de_DE.UTF-8")
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .output()
        .expect("it runs")
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/import")
        .join(name);
    path.to_string_lossy().into_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn fresh() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

/// summary.csv as maps would have it: the header, then the rows.
fn summary(directory: &Path) -> (csv::StringRecord, Vec<csv::StringRecord>) {
    let mut reader = csv::Reader::from_path(directory.join("summary.csv")).expect("there");
    let header = reader.headers().expect("a header").clone();
    (
        header,
        reader.records().map(|row| row.expect("a row")).collect(),
    )
}

#[test]
fn files_of_several_tools_become_one_result_directory() {
    let work = fresh();
    let files = [
        "fio-3.33.json",
        "iperf3-3.6-wan.txt",
        "crystaldiskmark-8.0.4.txt",
        "elbencho-3.1.csv",
    ]
    .map(fixture);
    let mut arguments = vec!["import", "--out", "theirs"];
    arguments.extend(files.iter().map(String::as_str));
    let output = run(work.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("MB/s") && shown.contains("max ("), "{shown}");
    assert!(
        text(&output.stderr).contains("MKDIRS"),
        "notes go to standard error"
    );
    let out = work.path().join("theirs");
    let (header, rows) = summary(&out);
    assert_eq!(rows.len(), 2 + 1 + 8 + 2);
    let column = |name: &str| header.iter().position(|column| column == name).expect(name);
    let cell = |row: usize, name: &str| rows[row][column(name)].to_owned();
    assert_eq!(
        (cell(0, "engine"), cell(0, "block_size_bytes")),
        ("fio/libaio".into(), "4096".into())
    );
    assert_eq!(
        (cell(2, "protocol"), cell(2, "ops"), cell(2, "stage")),
        ("tcp".into(), String::new(), "network".into())
    );
    assert_eq!(cell(3, "flags"), "max");
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("record.json")).expect("there"))
            .expect("JSON");
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(13));
    assert_eq!(
        json["environment"]["imported"][0]["settings"]["rw"]["iodepth"],
        "8"
    );
    let intervals = std::fs::read_to_string(out.join("intervals.csv")).expect("there");
    assert_eq!(intervals.lines().count(), 1 + 4, "iperf3's samples");
    let again = run(work.path(), &["rerun", "theirs"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(
        text(&again.stderr).contains("another tool measured"),
        "{}",
        text(&again.stderr)
    );
    // What was imported is imported again.
    let twice = run(
        work.path(),
        &["import", "theirs", "--out", "twice", "--quiet"],
    );
    assert_eq!(twice.status.code(), Some(0), "{}", text(&twice.stderr));
    assert!(twice.stderr.is_empty());
    let (_, copied) = summary(&work.path().join("twice"));
    for (first, second) in rows.iter().zip(&copied) {
        let without =
            |row: &csv::StringRecord| row.iter().skip(2).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(without(first), without(second));
    }
}

#[test]
fn the_same_test_in_several_files_is_repeated() {
    let work = fresh();
    let file = fixture("fio-3.33.json");
    let output = run(
        work.path(),
        &[
            "import", &file, &file, &file, "--out", "o", "--format", "csv",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 1 + 6);
    let aggregate = std::fs::read_to_string(work.path().join("o/aggregate.csv")).expect("there");
    assert!(
        aggregate.contains(",throughput_bytes_per_s,3,"),
        "{aggregate}"
    );
}

#[test]
fn what_failed_there_fails_here() {
    let work = fresh();
    let file = fixture("fio-3.33-full-disk.json");
    let output = run(work.path(), &["import", &file, "--out", "o"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("No space left"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn what_is_nobodys_is_refused_and_nothing_is_made() {
    let work = fresh();
    std::fs::write(work.path().join("notes.txt"), "5 GB in 50 s").expect("written");
    for (file, word) in [
        ("notes.txt", "nothing in it is known"),
        ("none.json", "No such file"),
        (".", "record.json"),
    ] {
        let output = run(work.path(), &["import", file, "--out", "o"]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        let said = text(&output.stderr);
        assert!(said.contains(word) && said.lines().count() == 1, "{said}");
        assert!(!work.path().join("o").exists());
    }
}

#[test]
fn several_files_are_judged_together() {
    let work = fresh();
    let job = |bytes: u64| {
        format!(
            "{{\"fio version\": \"fio-3.33\", \"jobs\": [{{\"jobname\": \"copy\", \"groupid\": 0, \"error\": 0, \
             \"job options\": {{\"rw\": \"read\", \"bs\": \"1M\", \"filename\": \"/mnt/nas/f\"}}, \"read\": {{\"io_bytes\": {bytes}, \
             \"bw_bytes\": {}, \"runtime\": 10000, \"total_ios\": {}}}}}]}}",
            bytes / 10,
            bytes >> 20
        )
    };
    std::fs::write(work.path().join("share.json"), job(1120 << 20)).expect("written");
    std::fs::write(work.path().join("disks.json"), job(5000 << 20)).expect("written");
    let network = r#"{"start": {"test_start": {"num_streams": 1, "reverse": 1}}, "intervals": [], "end": {"sum_received":
        {"start": 0, "end": 10, "bytes": 1177000000}}}"#;
    std::fs::write(work.path().join("net.json"), network).expect("written");
    let kept = run(
        work.path(),
        &[
            "import",
            "disks.json",
            "--layer",
            "storage",
            "--out",
            "disks",
        ],
    );
    assert_eq!(kept.status.code(), Some(0), "{}", text(&kept.stderr));
    let judged = run(
        work.path(),
        &["diagnose", "--from", "share.json", "net.json", "disks"],
    );
    assert_eq!(judged.status.code(), Some(0), "{}", text(&judged.stderr));
    let said = text(&judged.stdout);
    let flowing: Vec<&str> = said.split_whitespace().collect();
    let flowing = flowing.join(" ");
    for words in [
        "limited by the network",
        "disks, same load",
        "not proven to be the share's",
        "copy on /mnt/nas/f",
    ] {
        assert!(flowing.contains(words), "'{words}' is missing in {said}");
    }
    let alone = run(work.path(), &["diagnose", "--from", "net.json"]);
    assert_eq!(alone.status.code(), Some(2), "{}", text(&alone.stdout));
    assert!(
        text(&alone.stderr).contains("layers only"),
        "{}",
        text(&alone.stderr)
    );
}

#[test]
fn the_help_is_the_one_that_was_agreed() {
    let work = fresh();
    let output = run(work.path(), &["import", "--help"]);
    assert_eq!(
        text(&output.stdout),
        include_str!("../fixtures/help/import.txt")
    );
}
