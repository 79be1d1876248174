//! `nasgauge recompute` as users call it: arguments, standard input, forms, exit codes, and its help.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn start(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nasgauge"));
    command.arg("recompute").args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = start(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    // A program that refuses its arguments reads nothing.
    let _ = child.stdin.take().expect("piped").write_all(input);
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn a_line_is_an_argument_words_or_standard_input() {
    for (arguments, input) in [
        (&["52046502432 bytes in 1:47.07"][..], ""),
        (&["52046502432", "bytes", "in", "1:47.07"], ""),
        (&[], "52046502432 bytes in 1:47.07\n"),
        (&["-"], "52046502432 bytes in 1:47.07\r\n"),
    ] {
        let output = run(arguments, input.as_bytes());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = text(&output.stdout);
        assert!(said.contains("486.098 MB/s = 463.579 MiB/s"), "{said}");
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn a_whole_terminal_is_read() {
    let pasted = include_bytes!("../fixtures/recompute/seeds/p1.txt");
    let said = text(&run(&[], pasted).stdout);
    let flowing: Vec<&str> = said.split_whitespace().collect();
    let flowing = flowing.join(" ");
    for words in [
        "What does not fit",
        "1:47.07 was read as 1.47 minutes and 49000 used for 49,635 MiB: 486.1 MB/s, not 568,889 KB/s",
        "4:33.29 was read as 4.33 minutes and 49000 used for 49,635 MiB: 190.4 MB/s, not 193,133 KB/s",
    ] {
        assert!(flowing.contains(words), "'{words}' is missing in {said}");
    }
}

#[test]
fn csv_and_json_hold_the_same_figures() {
    let pasted = include_bytes!("../fixtures/recompute/seeds/p1.txt");
    let output = run(&["--format", "csv"], pasted);
    let mut reader = csv::Reader::from_reader(output.stdout.as_slice());
    let header = reader.headers().expect("a header").clone();
    let column = header.iter().position(|name| name == "rate_bytes_per_s");
    let column = column.expect("a column");
    let rows: Vec<csv::StringRecord> = reader.records().map(|row| row.expect("a row")).collect();
    let output = run(&["--format", "json"], pasted);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = json["findings"].as_array().expect("findings");
    assert_eq!(rows.len(), findings.len());
    for (row, finding) in rows.iter().zip(findings) {
        let printed: f64 = row[column].parse().expect("a number");
        let best = finding["rate_bytes_per_s"]["best"]
            .as_f64()
            .expect("a rate");
        assert!((printed / best - 1.0).abs() < 1e-6, "{row:?}");
    }
}

#[test]
fn what_says_nothing_is_refused_in_a_sentence() {
    for (arguments, input, word) in [
        (&["it was slow"][..], &b""[..], "no size with a time"),
        (&[], b"", "no size with a time"),
        (&[], b"52046502432 bytes in 1.47\n", "has no unit"),
        (&["1.234,5 MB/s"], b"", "--decimal-comma"),
        (&[], b"a\0b", "no text"),
    ] {
        let output = run(arguments, input);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(word) && said.lines().count() == 1, "{said}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
    let comma = run(&["--decimal-comma", "1.234,5 MB/s"], b"");
    assert!(text(&comma.stdout).contains("1,234.5 MB/s"), "{comma:?}");
}

#[test]
fn output_has_points_whatever_the_locale() {
    let output = start(&["38,64 MB in 2 s"])
        .env("LC_ALL", "de_DE.UTF-8")
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert!(text(&output.stdout).contains("19.32 MB/s"), "{output:?}");
}

#[test]
fn the_help_is_the_one_that_was_agreed() {
    let output = start(&["--help"])
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert_eq!(
        text(&output.stdout),
        include_str!("../fixtures/help/recompute.txt")
    );
}
