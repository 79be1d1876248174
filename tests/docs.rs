//! What the documents promise: every column and every mark is explained, and every example in the README is real.

use nasgauge::report::{csv, ladder};

const DICTIONARY: &str = include_str!("../results/README.md");
const README: &str = include_str!("../README.md");

#[test]
fn every_column_is_in_the_dictionary() {
    let all = [
        csv::SUMMARY,
        csv::INTERVALS,
        csv::LATENCY,
        csv::AGGREGATE,
        ladder::LADDER,
        ladder::VERDICT,
    ];
    for column in all.concat() {
        assert!(
            DICTIONARY.contains(&format!("`{column}`")),
            "results/README.md does not explain {column}"
        );
    }
}

#[test]
fn every_command_and_workload_in_the_readme_exists() {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_nasgauge"))
        .arg("--help")
        .output()
        .expect("runs");
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    let mut seen = 0;
    let blocks = README.split("```").skip(1).step_by(2).filter(|block| {
        block.starts_with(
            "sh
",
        )
    });
    for line in blocks
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("nasgauge "))
    {
        let command = line.split_whitespace().next().expect("a word");
        assert!(
            help.contains(&format!("\n  {command} ")),
            "README shows 'nasgauge {command}', which does not exist"
        );
        seen += 1;
    }
    assert!(seen > 5, "the README shows commands");
    for name in nasgauge::catalogue::names() {
        assert!(
            README.contains(&format!("`{name}`")),
            "README does not name the workload {name}"
        );
    }
}
