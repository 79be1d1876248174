//! fio's normal output. Version 2 counts KB, MB and GB by 1024 and prints one rate, version 3 prints MiB and MB.
//!
//! The line of rate, size and time is read as [`crate::recompute`] reads it. Must not know: its other forms.

use serde_json::{Map, Value, json};

use super::{Options, rows, trouble};
use crate::error::Result;
use crate::import::test::{Side, Test};
use crate::import::{Imported, Input};
use crate::recompute::Status::Disagrees;
use crate::recompute::{Writing, recompute};
use crate::record::Status;

/// A job's section.
#[derive(Debug, Default)]
struct Job {
    name: String,
    /// Which of several runs in one text, and which group of it.
    run: (usize, String),
    clones: u16,
    error: Option<String>,
    started: String,
    /// Of reads and of writes.
    sides: [Side; 2],
    /// Processor time as a share of the wall clock.
    cpu_share: Option<f64>,
    ops: [Option<u64>; 2],
}

pub(super) fn read(input: &Input<'_>) -> Option<Result<Imported>> {
    let known = input
        .text
        .lines()
        .any(|line| line.contains(": (groupid=") && line.contains("jobs="));
    known.then(|| Ok(run(input)))
}

fn run(input: &Input<'_>) -> Imported {
    let mut tool = "fio".to_owned();
    let mut settings = Map::new();
    let mut jobs: Vec<Job> = Vec::new();
    let mut lines = input.text.lines().peekable();
    let mut direction = "";
    let mut runs = 0;
    let mut notes = Vec::new();
    while let Some(raw) = lines.next() {
        let line = raw.trim();
        if let Some((name, options)) = header(line) {
            settings.insert(name, options);
        } else if let Some(version) = version(line) {
            tool = version;
        } else if let Some(mut job) = begins(line) {
            job.run.0 = runs;
            jobs.push(job);
            direction = "";
        } else if line.starts_with("Run status") || line.starts_with("Disk stats") {
            runs += usize::from(line.starts_with("Run status"));
            direction = "end";
        } else if let (Some(job), false) = (jobs.last_mut(), direction == "end") {
            if let Some((way, side, wrong)) = whole(line, input.writing) {
                direction = way;
                notes.extend(wrong.map(|wrong| format!("{}, {way}: {wrong}", job.name)));
                *of(job, way) = side;
            } else if let Some((unit, percentiles)) = percentiles(line, &mut lines) {
                let scaled = percentiles.into_iter();
                let scaled = scaled.map(|(at, value)| (at, (value * unit).round() as u64));
                of(job, direction).percentiles = scaled.filter(|(_, nanos)| *nanos > 0).collect();
            } else {
                detail(job, direction, line);
            }
        }
    }
    let trouble = trouble(input.text);
    let mut tests = Vec::new();
    for clones in grouped(jobs) {
        let first = &clones[0];
        let options = options(&settings, &first.name);
        let together: u16 = clones
            .iter()
            .map(|job| job.clones)
            .fold(0, u16::saturating_add);
        let mut test = options.test(&first.name, input.name, together);
        if !first.started.is_empty()
            && let Some(Value::Object(told)) = settings.get_mut(&first.name)
        {
            // Local time of a zone that it does not tell.
            told.insert("started".into(), Value::String(first.started.clone()));
        }
        outcome(&mut test, &clones, trouble.as_ref());
        if clones.len() > 1 {
            notes.push(format!(
                "{}: {} clones are added up; their percentiles can't be",
                first.name,
                clones.len()
            ));
        }
        let mut sides = Vec::new();
        for (at, way) in ["read", "write"].into_iter().enumerate() {
            let each = clones
                .iter()
                .map(|job| exact(&job.sides[at], job.ops[at], options.block(way)));
            let whole = each.filter(Side::moved).reduce(Side::with);
            sides.push((way, whole.unwrap_or_default()));
        }
        let cpu = clones.iter().map(|job| {
            let seconds = job
                .sides
                .iter()
                .filter_map(|side| side.seconds)
                .fold(0f64, f64::max);
            Some(job.cpu_share? * seconds * f64::from(job.clones.max(1)))
        });
        test.cpu_s = cpu.sum();
        tests.extend(rows(&test, &options, &sides, &mut notes));
    }
    Imported {
        tool,
        settings: Value::Object(settings),
        tests,
        judged: Vec::new(),
        notes,
    }
}

/// Jobs, with the clones of one that ran at the same time together.
fn grouped(jobs: Vec<Job>) -> Vec<Vec<Job>> {
    let mut groups: Vec<Vec<Job>> = Vec::new();
    for job in jobs {
        let alike = |group: &&mut Vec<Job>| group[0].name == job.name && group[0].run == job.run;
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(job),
            None => groups.push(vec![job]),
        }
    }
    groups
}

/// How it ended.
fn outcome(test: &mut Test, clones: &[Job], trouble: Option<&(Status, String)>) {
    if let Some((status, sentence)) = trouble {
        test.row.status = *status;
        test.row.error = Some(sentence.clone());
    }
    if let Some(error) = clones.iter().find_map(|job| job.error.as_ref()) {
        test.row.status = Status::Failed;
        test.row.error.get_or_insert_with(|| error.clone());
    }
    test.row.errors = u64::from(test.row.status == Status::Failed);
}

/// `NAME: (g=0): rw=read, bs=(R) 512KiB-512KiB, (W) .., ioengine=libaio, iodepth=8`.
fn header(line: &str) -> Option<(String, Value)> {
    let (name, rest) = line.split_once(": (g=")?;
    let (_, rest) = rest.split_once("): ")?;
    let of = |key: &str| {
        let (_, value) = rest.split_once(key)?;
        value
            .split(", ")
            .next()
            .map(|value| value.trim().to_owned())
    };
    // `4K-4K/4K-4K/4K-4K` or `(R) 4096B-4096B`: reads, then writes; a range of sizes has two ends.
    let blocks = rest.split_once("bs=").map_or("", |(_, blocks)| blocks);
    let blocks = blocks.split(", ioengine=").next().unwrap_or("");
    let ends: Vec<&str> = blocks
        .split(['/', ','])
        .filter_map(|one| one.rsplit(' ').next())
        .map(|one| {
            one.trim_start_matches("(R)")
                .trim_start_matches("(W)")
                .trim()
        })
        .collect();
    let alike = |range: &&str| range.split_once('-').is_some_and(|(low, high)| low == high);
    let mut options = Map::new();
    if ends.len() >= 2 && ends.iter().take(2).all(alike) {
        let size = |range: &str| unit(range.split('-').next().unwrap_or(""));
        options.insert(
            "bs".into(),
            json!(format!("{},{}", size(ends[0]), size(ends[1]))),
        );
    } else {
        options.insert("bsrange".into(), json!(blocks));
    }
    for key in ["rw", "ioengine", "iodepth"] {
        if let Some(value) = of(&format!("{key}=")) {
            options.insert(key.into(), Value::String(value));
        }
    }
    Some((name.to_owned(), Value::Object(options)))
}

/// A size as fio prints it, as its options have it: here `KiB` is 1024, there it would be 1000.
fn unit(printed: &str) -> String {
    printed.replace("iB", "").replace('B', "")
}

/// `fio-3.36`, `fio-2.17-45-g06cb`, and alone on its line `2.0.8`.
fn version(line: &str) -> Option<String> {
    let bare = line.strip_prefix("fio-").unwrap_or(line);
    let digits = bare.starts_with(|c: char| c.is_ascii_digit());
    let fits =
        digits && !bare.contains(' ') && bare.contains('.') && !bare.contains(['=', ';', '/']);
    fits.then(|| format!("fio-{bare}"))
}

/// `NAME: (groupid=0, jobs=4): err= 0: pid=8843: Sat Jan  8 17:06:40 2022`.
fn begins(line: &str) -> Option<Job> {
    let (name, rest) = line.split_once(": (groupid=")?;
    let (group, rest) = rest.split_once(", jobs=")?;
    let (clones, rest) = rest.split_once("): err=")?;
    let rest = rest.trim();
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (error, rest) = rest.split_at(digits);
    let (words, date) = match rest.split_once(": pid=") {
        Some((words, rest)) => (words, rest.split_once(": ").map_or("", |(_, date)| date)),
        None => (rest, ""),
    };
    let words = words.trim().trim_start_matches(':').trim();
    Some(Job {
        name: name.to_owned(),
        run: (0, group.to_owned()),
        clones: clones.trim().parse().unwrap_or(1),
        error: (error != "0").then(|| {
            format!("fio ended with error {error} {words}")
                .trim()
                .to_owned()
        }),
        started: date.trim().to_owned(),
        ..Job::default()
    })
}

/// The line of a direction's whole, as recompute reads it; with what its own figures contradict.
fn whole(line: &str, writing: Writing) -> Option<(&'static str, Side, Option<String>)> {
    let way = ["read", "write"].into_iter().find(|way| {
        let rest = line.strip_prefix(way).map(str::trim_start);
        rest.is_some_and(|rest| rest.starts_with(':'))
    })?;
    let found = recompute(line, writing).ok()?;
    let finding = found.findings.first()?;
    let iops = line.to_lowercase();
    let iops = iops.split_once("iops=").and_then(|(_, rest)| amount(rest));
    let seconds = finding.seconds.map(|seconds| seconds.best);
    let ops = iops
        .zip(seconds)
        .map(|(iops, seconds)| (iops * seconds).round() as u64);
    let side = Side {
        bytes: finding
            .size_bytes
            .map_or(0, |size| size.best.round() as u64),
        ops: ops.unwrap_or(0),
        seconds,
        printed: finding.printed_bytes_per_s.map(|rate| rate.best),
        ..Side::default()
    };
    let wrong = (finding.status == Disagrees).then(|| finding.sentences.join("; "));
    Some((way, side, wrong))
}

fn of<'a>(job: &'a mut Job, way: &str) -> &'a mut Side {
    &mut job.sides[usize::from(way == "write")]
}

/// A number with fio's own `K` and `M`, which are thousands and millions.
fn amount(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let value: f64 = text[..end].parse().ok()?;
    let factor = match text[end..].chars().next() {
        Some('k' | 'K') => 1e3,
        Some('m' | 'M') => 1e6,
        Some('G') => 1e9,
        _ => 1.0,
    };
    Some(value * factor)
}

/// Nanoseconds of a unit of fio's: `(usec)`.
fn nanos(line: &str) -> Option<f64> {
    let units = [("(nsec)", 1.0), ("(usec)", 1e3), ("(msec)", 1e6)];
    units
        .iter()
        .find(|(unit, _)| line.contains(unit))
        .map(|(_, factor)| *factor)
}

/// The table of percentiles that a line begins: what one of its unit is in nanoseconds, and the pairs.
fn percentiles<'a>(
    line: &str,
    lines: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
) -> Option<(f64, Vec<(f64, f64)>)> {
    let unit = line.contains("percentiles (").then(|| nanos(line))??;
    let mut pairs = Vec::new();
    while let Some(row) = lines.next_if(|next| next.trim().starts_with('|')) {
        for pair in row.split("th=[").collect::<Vec<_>>().windows(2) {
            let at = pair[0]
                .rsplit(['|', ' ', ','])
                .next()
                .and_then(|at| at.parse().ok());
            let value = pair[1].split(']').next().and_then(amount);
            pairs.extend(at.zip(value));
        }
    }
    Some((unit, pairs))
}

/// A line of latency, processor or counts.
fn detail(job: &mut Job, direction: &str, line: &str) {
    let after = |key: &str| line.split_once(key).and_then(|(_, rest)| amount(rest));
    if line.starts_with("lat (") && line.contains("avg=") {
        if let Some(unit) = nanos(line) {
            let side = of(job, direction);
            side.mean_ns = after("avg=")
                .map(|mean| mean * unit)
                .filter(|mean| *mean > 0.0);
            side.max_ns = after("max=")
                .map(|max| (max * unit).round() as u64)
                .filter(|max| *max > 0);
        }
    } else if line.starts_with("cpu") {
        let shares = after("usr=").zip(after("sys="));
        job.cpu_share = shares.map(|(user, system)| (user + system) / 100.0);
    } else if line.starts_with("issued") {
        // `total=r=0/w=24100/d=0` of version 2, `total=3501338,0,0,0` of version 3.
        let count = |key: &str| after(key).map(|count| count as u64);
        let plain = line.split_once("total=").map_or("", |(_, rest)| rest);
        let mut list = plain
            .split([',', ' '])
            .map(|count| count.parse::<u64>().ok());
        job.ops = if plain.starts_with("r=") {
            [count("r="), count("/w=")]
        } else {
            [list.next().flatten(), list.next().flatten()]
        };
    }
}

/// Bytes and operations to the last one, where fio counted them and blocks are alike; the printed size is rounded.
fn exact(side: &Side, ops: Option<u64>, block: Option<u64>) -> Side {
    let Some(ops) = ops.filter(|ops| *ops > 0 && side.moved()) else {
        return side.clone();
    };
    let bytes = block.and_then(|block| ops.checked_mul(block));
    let near = |bytes: &u64| (*bytes as f64 / side.bytes as f64 - 1.0).abs() < 0.01;
    Side {
        bytes: bytes.filter(near).unwrap_or(side.bytes),
        ops,
        ..side.clone()
    }
}

/// The options of a job; clones of one share its header.
fn options(settings: &Map<String, Value>, name: &str) -> Options {
    let own = settings.get(name).and_then(Value::as_object);
    Options(own.cloned().unwrap_or_default())
}
