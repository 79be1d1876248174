//! Tests of whole texts: published lines of many tools, and texts that say nothing.

use serde::Deserialize;

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lines {
    line: Vec<Line>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    text: String,
    tool: String,
    source: String,
    rate: f64,
    status: String,
    size: Option<f64>,
    seconds: Option<f64>,
    #[serde(default)]
    at: usize,
    #[serde(default)]
    says: Vec<String>,
    #[serde(default)]
    decimal_comma: bool,
}

#[test]
fn published_lines_come_out_right() {
    let text = include_str!("../../fixtures/recompute/lines.toml");
    let lines: Lines = toml::from_str(text).expect("a table");
    assert!(lines.line.len() >= 30, "{}", lines.line.len());
    let mut wrong = Vec::new();
    let mut tools: Vec<&str> = Vec::new();
    for line in &lines.line {
        assert!(!line.source.is_empty(), "{}", line.text);
        tools.extend(line.tool.split_whitespace().next());
        let writing = Writing {
            decimal_comma: line.decimal_comma,
        };
        let found = match recompute(&line.text, writing) {
            Ok(found) => found.findings,
            Err(error) => {
                wrong.push(format!("{}: {error}", line.text));
                continue;
            }
        };
        let Some(finding) = found.get(line.at) else {
            wrong.push(format!("{}: {found:?}", line.text));
            continue;
        };
        let near = |span: Option<Span>, wanted: f64| {
            span.is_some_and(|span| (span.best / wanted - 1.0).abs() < 1e-6)
        };
        let said = finding.sentences.join("; ");
        let right = finding.tool == line.tool
            && finding.status.key() == line.status
            && near(finding.rate_bytes_per_s, line.rate)
            && line.size.is_none_or(|size| near(finding.size_bytes, size))
            && line
                .seconds
                .is_none_or(|seconds| near(finding.seconds, seconds))
            && line.says.iter().all(|words| said.contains(words.as_str()));
        if !right {
            wrong.push(format!("{line:#?}\n{finding:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    tools.sort_unstable();
    tools.dedup();
    assert!(tools.len() >= 10, "{tools:?}");
}

#[test]
fn a_text_without_figures_says_what_is_missing() {
    let cases = [
        ("", "no size with a time"),
        ("it was slow", "no size with a time"),
        ("52046502432 bytes in 1.47", "'1.47' has no unit"),
        ("a file of 49 GB", "'49 GB' is a size only"),
        ("it took 1:47.07", "'1:47.07' is a duration only"),
        ("about 70 mb/s", "'70 mb/s' may be of bits or of bytes"),
        ("49 GB\n107 s\n", "don't stand together"),
        ("1.234,5 MB/s", "--decimal-comma"),
        ("a 10 Gbit/s switch", "no size with a time"),
    ];
    for (text, words) in cases {
        let error = recompute(text, Writing::default())
            .expect_err(text)
            .to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn decimal_commas_are_read_where_they_are_told() {
    let writing = Writing {
        decimal_comma: true,
    };
    let found = recompute(
        "1.073.741.824 Bytes (1,1 GB, 1,0 GiB) kopiert, 9,123 s, 118 MB/s",
        writing,
    );
    let found = found.expect("figures").findings;
    assert_eq!(found[0].status, Status::Agrees, "{found:?}");
    let without = recompute(
        "1073741824 Bytes (1,1 GB, 1,0 GiB) kopiert, 9,123 s, 118 MB/s",
        Writing::default(),
    );
    let without = without.expect("figures").findings;
    assert_eq!(without[0].status, Status::Disagrees);
    assert!(
        without[0].sentences[0].contains("--decimal-comma"),
        "{without:?}"
    );
}

#[test]
fn a_line_that_can_not_be_read_is_told_beside_the_others() {
    let found = recompute("5 GB in 50 s\n1.234,5 MB/s\n", Writing::default()).expect("figures");
    assert_eq!(found.findings.len(), 1);
    let told = found
        .notes
        .iter()
        .any(|note| note.starts_with("line 2 was not read"));
    assert!(told, "{:?}", found.notes);
}

#[test]
fn a_long_text_is_shown_around_what_was_read() {
    let text = format!("{} 900 MB/s {}", "before ".repeat(20), "after ".repeat(20));
    let found = recompute(&text, Writing::default()).expect("figures");
    let shown = &found.findings[0].text;
    assert!(
        shown.contains("900 MB/s") && shown.chars().count() <= SHOWN + 4,
        "{shown}"
    );
}

/// Pieces that meet in such texts.
const PIECES: &[&str] = &[
    "9",
    "49000",
    "1:47.07",
    "1.47",
    "0",
    "99999999999999999999",
    "1,234",
    "1.234,5",
    "MB",
    "KB/s",
    " ",
    "Gbit/s",
    "min",
    "s",
    "=",
    "+",
    "(",
    ")",
    "-",
    "%",
    "/",
    ".",
    "[",
    "]",
    "sec",
    "\n",
    "\r",
    "bytes",
    "copied, ",
    "IOPS=",
    "k",
    "M",
    "to",
    "x",
    "é",
    "🦀",
    ":",
    "$ cp a b",
    "real ",
    "-rw-r--r-- 1 a b ",
    "KB/s in KB/s out\n",
    "1e308",
    "1e-300",
    "sender",
    "SUM",
    "mtu 9000",
    "|",
    "th=[",
];

proptest::proptest! {
    #[test]
    fn no_text_ends_it(text in "\\PC{0,120}") {
        let _ = recompute(&text, Writing::default());
        let _ = recompute(&text, Writing { decimal_comma: true });
    }

    #[test]
    fn no_mixture_of_what_is_known_ends_it(picks in proptest::collection::vec(0..PIECES.len(), 0..40)) {
        let text: String = picks.iter().map(|pick| PIECES[*pick]).collect();
        for decimal_comma in [false, true] {
            if let Ok(found) = recompute(&text, Writing { decimal_comma }) {
                for rate in found.findings.iter().filter_map(|finding| finding.rate_bytes_per_s) {
                    proptest::prop_assert!(rate.best.is_finite() && rate.low <= rate.high, "{text:?}: {rate:?}");
                }
            }
        }
    }
}
