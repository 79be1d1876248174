//! Recomputed figures as a table for people and as CSV.

use crate::recompute::{Finding, LINKS, Recomputed, Share, Span, Status, trimmed};

use super::table::wrap;

/// Width of a table's line.
const WIDTH: usize = 78;

/// The columns of the CSV; a share is one of what the link carries, above 1 it is more.
#[must_use]
pub fn header() -> Vec<String> {
    let mut header: Vec<String> = [
        "line",
        "tool",
        "status",
        "size_bytes",
        "seconds",
        "rate_bytes_per_s",
        "rate_low_bytes_per_s",
        "rate_high_bytes_per_s",
        "printed_bytes_per_s",
        "share_of_reference",
    ]
    .map(str::to_owned)
    .into();
    for (_, link) in LINKS {
        for of in ["line", "tcp_mtu1500", "tcp_mtu9000"] {
            header.push(format!("share_of_{link}gbe_{of}"));
        }
    }
    header.extend(["text", "sentences"].map(str::to_owned));
    header
}

/// All findings as CSV, its header first.
#[must_use]
pub fn csv(recomputed: &Recomputed) -> Vec<u8> {
    let mut bytes = super::csv::line(&header());
    for finding in &recomputed.findings {
        bytes.extend(super::csv::line(&fields(finding)));
    }
    bytes
}

fn fields(finding: &Finding) -> Vec<String> {
    let number = |value: Option<f64>, places: usize| {
        value.map_or_else(String::new, |value| format!("{value:.places$}"))
    };
    let best = |span: Option<Span>, places: usize| number(span.map(|span| span.best), places);
    let rate = finding.rate_bytes_per_s;
    let mut fields = vec![
        finding.line.to_string(),
        finding.tool.clone(),
        finding.status.key().to_owned(),
        best(finding.size_bytes, 0),
        best(finding.seconds, 6),
        best(rate, 1),
        number(rate.map(|rate| rate.low), 1),
        number(rate.map(|rate| rate.high), 1),
        best(finding.printed_bytes_per_s, 1),
        number(finding.share_of_reference, 4),
    ];
    for at in 0..LINKS.len() {
        let share = finding.shares.get(at);
        fields.push(number(share.map(|share| share.of_line), 4));
        fields.push(number(share.and_then(|share| share.of_tcp_mtu_1500), 4));
        fields.push(number(share.and_then(|share| share.of_tcp_mtu_9000), 4));
    }
    fields.push(finding.text.clone());
    fields.push(finding.sentences.join("; "));
    fields
}

/// All findings in words, what does not fit once more at the end.
#[must_use]
pub fn table(recomputed: &Recomputed) -> String {
    let mut text = String::new();
    for finding in &recomputed.findings {
        text.push_str(&one(finding, recomputed));
        text.push('\n');
    }
    for note in &recomputed.notes {
        text.push_str(&wrap(note, WIDTH));
    }
    let wrong = recomputed.findings.iter();
    let wrong: Vec<&Finding> = wrong
        .filter(|finding| finding.status == Status::Disagrees)
        .collect();
    if !wrong.is_empty() && recomputed.findings.len() > 1 {
        text.push_str("What does not fit\n");
        for finding in wrong {
            let sentence = finding.sentences.first().map_or("", String::as_str);
            text.push_str(&wrap(&format!("line {}: {sentence}", finding.line), WIDTH));
        }
    }
    text
}

fn one(finding: &Finding, recomputed: &Recomputed) -> String {
    let tool = if finding.tool.is_empty() {
        String::new()
    } else {
        format!("{}: ", finding.tool)
    };
    let mut text = format!("line {}: {tool}{}\n", finding.line, finding.text);
    match finding.rate_bytes_per_s {
        Some(rate) => {
            text.push_str(&format!("  {}\n", rates(rate.best)));
            if let (Some(share), Some(reference)) =
                (finding.share_of_reference, &recomputed.reference)
            {
                let sentence = format!("{:.1} % of {}", share * 100.0, reference.words);
                text.push_str(&wrap(&sentence, WIDTH));
            }
            text.push_str(&shares(&finding.shares));
        }
        None => text.push_str("  no rate\n"),
    }
    for sentence in &finding.sentences {
        let mark = if finding.status == Status::Disagrees {
            "!"
        } else {
            "-"
        };
        text.push_str(&wrap(&format!("{mark} {sentence}"), WIDTH));
    }
    text
}

/// A rate in the units that people mix up.
fn rates(bytes_per_s: f64) -> String {
    let places = |value: f64| match value {
        value if value < 0.01 => 6,
        value if value < 1.0 => 4,
        _ => 3,
    };
    let megabytes = bytes_per_s / 1e6;
    format!(
        "{} MB/s = {} MiB/s = {} KiB/s = {} Gbit/s",
        trimmed(megabytes, places(megabytes)),
        trimmed(megabytes / 1.048_576, places(megabytes)),
        trimmed(bytes_per_s / 1024.0, 0),
        trimmed(megabytes / 125.0, places(megabytes / 125.0))
    )
}

/// Which of a link's shares.
type Of = fn(&Share) -> Option<f64>;

/// Shares of links in percent, a line for each way to see it.
fn shares(shares: &[Share]) -> String {
    let mut text = format!("  {:<16}", "% of");
    for (_, link) in LINKS {
        text.push_str(&format!("{:>9}", format!("{link} GbE")));
    }
    text.push('\n');
    let ways: [(&str, Of); 3] = [
        ("the line", |share| Some(share.of_line)),
        ("TCP at MTU 1500", |share| share.of_tcp_mtu_1500),
        ("TCP at MTU 9000", |share| share.of_tcp_mtu_9000),
    ];
    for (name, of) in ways {
        text.push_str(&format!("  {name:<16}"));
        for share in shares {
            let cell = match of(share) {
                None => "-".to_owned(),
                Some(share) if share >= 1.0005 => "over".to_owned(),
                Some(share) => format!("{:.1}", share * 100.0),
            };
            text.push_str(&format!("{cell:>9}"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recompute::{Writing, recompute};

    fn recomputed(text: &str) -> Recomputed {
        recompute(text, Writing::default()).expect("figures")
    }

    #[test]
    fn a_rate_is_in_all_units_and_a_share_of_all_links() {
        let text = table(&recomputed("52046502432 bytes in 1:47.07"));
        for words in [
            "486.098 MB/s = 463.579 MiB/s = 474,705 KiB/s = 3.889 Gbit/s",
            "1 GbE  2.5 GbE    5 GbE   10 GbE   25 GbE   40 GbE  100 GbE",
            "TCP at MTU 1500      over     over     82.6     41.3     16.5     10.3      4.1",
            "TCP at MTU 9000      over     over     78.6     39.3     15.7      9.8      3.9",
        ] {
            assert!(text.contains(words), "'{words}' is missing in\n{text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 81),
            "{text}"
        );
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Seed {
        id: String,
        file: String,
        source: String,
        #[serde(default)]
        lines: Vec<usize>,
        says: Vec<String>,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Seeds {
        seed: Vec<Seed>,
    }

    fn flowing(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn published_texts_come_out_to_the_digit() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recompute");
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).expect(name);
        let seeds: Seeds = toml::from_str(&read("seeds.toml")).expect("seeds");
        let mut missing = Vec::new();
        for seed in &seeds.seed {
            assert!(
                !seed.source.is_empty() && !seed.says.is_empty(),
                "{}",
                seed.id
            );
            let all = read(&format!("seeds/{}", seed.file));
            let chosen = all.lines().enumerate();
            let chosen =
                chosen.filter(|(at, _)| seed.lines.is_empty() || seed.lines.contains(&(at + 1)));
            let text: Vec<&str> = chosen.map(|(_, line)| line).collect();
            let shown = table(&recomputed(&text.join("\n")));
            let flowing = flowing(&shown);
            let absent = seed
                .says
                .iter()
                .filter(|words| !flowing.contains(words.as_str()));
            let absent: Vec<&String> = absent.collect();
            if !absent.is_empty() {
                missing.push(format!("{}: {absent:#?} not in\n{shown}", seed.id));
            }
        }
        assert!(missing.is_empty(), "{}", missing.join("\n"));
    }

    #[test]
    fn the_csv_has_as_many_fields_as_columns_and_nothing_for_the_unknown() {
        let csv = String::from_utf8(csv(&recomputed("900 MB/s\n5 GB in 0 s\n"))).expect("UTF-8");
        let mut reader = ::csv::Reader::from_reader(csv.as_bytes());
        let rows: Vec<::csv::StringRecord> =
            reader.records().map(|row| row.expect("a row")).collect();
        assert_eq!(rows.len(), 2, "{csv}");
        assert!(rows.iter().all(|row| row.len() == header().len()));
        assert_eq!((&rows[0][3], &rows[0][5]), ("", "900000000.0"));
        assert_eq!(&rows[1][5], "", "no rate");
        let lower = csv.to_lowercase();
        assert!(!lower.contains("nan") && !lower.contains("inf"), "{csv}");
    }
}
