//! The binary as a user runs it, in a directory of its own, and the results that it leaves there.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::lab::{self, Place};

/// A line of a CSV file by its column names.
pub type Line = HashMap<String, String>;

/// Where a user sits: the working directory, and the password in the environment.
pub struct Desk {
    directory: TempDir,
    password: Option<String>,
}

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Desk {
    /// For working on a place.
    pub fn at(place: &Place) -> Self {
        Self {
            directory: lab::directory(),
            password: place.password.clone(),
        }
    }

    /// A path in the working directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The program with these arguments.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nasgauge"));
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env("TMPDIR", lab::below(self.directory.path(), "tmp"))
            .env_remove("NASGAUGE_PASSWORD");
        if let Some(password) = &self.password {
            command.env("NASGAUGE_PASSWORD", password);
        }
        command
    }

    /// Runs the program to its end; it leaves nothing in the directory for temporary files.
    pub fn nasgauge(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().expect("the binary runs");
        let temporary = std::fs::read_dir(self.path("tmp")).expect("there");
        assert_eq!(temporary.count(), 0, "left behind by {arguments:?}");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let ran = Ran {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        };
        if let Some(password) = &self.password {
            let said = format!("{}{}", ran.out, ran.err);
            assert!(
                !said.contains(password.as_str()),
                "the password shows: {ran:?}"
            );
        }
        ran
    }

    /// Runs it and fails unless all went well.
    pub fn does(&self, arguments: &[&str]) -> Ran {
        let ran = self.nasgauge(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran
    }

    /// Runs it and fails unless it refused, having touched nothing, in a sentence with `words`.
    pub fn refuses(&self, arguments: &[&str], words: &str) -> Ran {
        let ran = self.nasgauge(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(ran.err.contains(words), "'{words}' in {ran:?}");
        ran
    }

    /// `run` on a place with more arguments, all well; gives the checked rows.
    pub fn measures(&self, place: &Place, out: &str, arguments: &[&str]) -> Results {
        let mut line = vec!["run", "--target", &place.uri, "--out", out];
        if !arguments.contains(&"--settle") {
            line.extend(["--settle", "0s"]);
        }
        line.extend(arguments);
        let ran = self.does(&line);
        let results = Results::read(&self.path(out));
        results.check();
        if let Some(password) = &self.password {
            results.assert_without(password);
        }
        Results {
            ran: Some(ran),
            ..results
        }
    }
}

/// A result directory.
pub struct Results {
    directory: PathBuf,
    /// The lines of summary.csv.
    pub rows: Vec<Line>,
    /// What the command said.
    pub ran: Option<Ran>,
}

/// The lines of a CSV file.
fn lines(path: &Path) -> Vec<Line> {
    let mut reader = csv::Reader::from_path(path).expect("there");
    reader
        .deserialize()
        .map(|line| line.expect("regular CSV"))
        .collect()
}

/// A count in a column.
pub fn count(line: &Line, column: &str) -> u64 {
    let text = &line[column];
    text.parse()
        .unwrap_or_else(|_| panic!("{column} is '{text}' in {line:?}"))
}

/// A number in a column.
pub fn number(line: &Line, column: &str) -> f64 {
    let text = &line[column];
    text.parse()
        .unwrap_or_else(|_| panic!("{column} is '{text}' in {line:?}"))
}

impl Results {
    /// Reads one.
    pub fn read(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            rows: lines(&directory.join("summary.csv")),
            ran: None,
        }
    }

    /// Whether a note with these words was given.
    pub fn noted(&self, words: &str) -> bool {
        self.ran.as_ref().is_some_and(|ran| ran.err.contains(words))
    }

    /// Fails unless every row is ok and the files agree with one another.
    pub fn check(&self) {
        assert!(!self.rows.is_empty());
        let intervals = lines(&self.directory.join("intervals.csv"));
        let latency = lines(&self.directory.join("latency.csv"));
        for row in &self.rows {
            assert_eq!(row["status"], "ok", "{row:?}");
            assert_eq!(row["errors"], "0", "{row:?}");
            assert!(count(row, "ops") > 0, "{row:?}");
            assert!(!row["flags"].contains("counters_disagree"), "{row:?}");
            let same = |line: &&Line| {
                ["run_id", "target", "workload", "direction", "repeat"]
                    .iter()
                    .all(|column| line[*column] == row[*column])
            };
            let sum = |lines: &[Line], column: &str| -> u64 {
                lines
                    .iter()
                    .filter(same)
                    .map(|line| count(line, column))
                    .sum()
            };
            for column in ["ops", "bytes"] {
                let told = count(row, column);
                assert_eq!(
                    sum(&intervals, column),
                    told,
                    "{column} of intervals, {row:?}"
                );
            }
            assert_eq!(sum(&latency, "count"), count(row, "ops"), "{row:?}");
            if row["pattern"] == "files" {
                Self::check_files(row);
            } else {
                self.check_sizes(row);
            }
            if count(row, "bytes") == 0 {
                assert_eq!(row["throughput_bytes_per_s"], "", "{row:?}");
                continue;
            }
            let rate = number(row, "bytes") / number(row, "seconds");
            let told = number(row, "throughput_bytes_per_s");
            // It has one decimal, which is coarse where a stalled machine moved a few bytes in seconds.
            let off = (rate - told).abs();
            assert!(off <= 0.05 + 1e-3 * rate, "{rate} and {told}");
        }
        self.check_texts();
    }

    /// Small files: content moves whole or not at all, and each operation takes a request at least.
    fn check_files(row: &Line) {
        let ops = count(row, "ops");
        let size = if row["block_size_bytes"].is_empty() {
            0
        } else {
            count(row, "block_size_bytes")
        };
        assert_eq!(count(row, "bytes"), ops * size, "{row:?}");
        assert!((number(row, "iops") * number(row, "seconds") / ops as f64 - 1.0).abs() < 1e-2);
        assert!(
            row["wire_ops"].is_empty() || count(row, "wire_ops") >= ops,
            "{row:?}"
        );
        assert_eq!(row["iodepth"], "1");
        assert!(row["negotiated"].contains("nrfiles="), "{row:?}");
    }

    fn check_sizes(&self, row: &Line) {
        let ops = count(row, "ops");
        let mixed = row["block_size_bytes"].is_empty();
        let block = if mixed {
            1 << 20
        } else {
            count(row, "block_size_bytes")
        };
        if !mixed && count(row, "size_bytes").is_multiple_of(block) {
            assert_eq!(count(row, "bytes"), ops * block, "{row:?}");
        }
        // The requests of a mixed cell are those of both its rows.
        let cell = |other: &&Line| {
            let columns = ["target", "workload", "repeat"];
            columns.iter().all(|column| other[*column] == row[*column])
        };
        let all: u64 = self
            .rows
            .iter()
            .filter(cell)
            .map(|row| count(row, "ops"))
            .sum();
        if !row["wire_ops"].is_empty() {
            let wire = count(row, "wire_ops");
            // No server here takes less than 64 KiB at once; flushes in mid-run are few.
            let most = all * block.div_ceil(64 << 10) + 64;
            assert!((all..=most).contains(&wire), "{wire} for {all}: {row:?}");
        }
    }

    /// F20 and F26: no value that is none, nothing of another locale, and every file a whole one.
    fn check_texts(&self) {
        for name in [
            "summary.csv",
            "intervals.csv",
            "latency.csv",
            "aggregate.csv",
        ] {
            let text = std::fs::read_to_string(self.directory.join(name)).expect(name);
            let lower = text.to_lowercase();
            for wrong in ["nan", ",inf", "18446744073709551615", "9223372036854"] {
                assert!(!lower.contains(wrong), "{wrong} in {name}: {text}");
            }
            assert!(text.ends_with('\n'), "{name}");
        }
        for name in ["environment.json", "record.json"] {
            let text = std::fs::read_to_string(self.directory.join(name)).expect(name);
            serde_json::from_str::<serde_json::Value>(&text).expect(name);
        }
        assert!(self.directory.join("plan.toml").exists());
    }

    /// F49: no file of it holds the secret.
    fn assert_without(&self, secret: &str) {
        for entry in std::fs::read_dir(&self.directory).expect("there").flatten() {
            let text = std::fs::read_to_string(entry.path()).expect("text");
            assert!(!text.contains(secret), "{}", entry.path().display());
        }
    }
}
