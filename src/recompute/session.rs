//! A whole pasted text as readings: commands, file listings and what `time` printed belong together across lines.
//!
//! Pure. Must not know: whether the readings agree.

use crate::error::Result;
use crate::recompute::parts::{Parts, Quantity, Time};
use crate::recompute::reading::{self, Reading};
use crate::recompute::text::{self, Token, Writing};
use crate::recompute::tools::IFSTAT;
use crate::recompute::{parts, units};

/// What a text holds.
#[derive(Debug, Default)]
pub struct Session {
    /// In the order of their lines.
    pub readings: Vec<Reading>,
    /// Lines that could not be read, with the reason.
    pub unread: Vec<(usize, crate::error::Error)>,
    /// Quantities that stand alone on their lines.
    pub alone: Parts,
    /// Whether the text has one line only.
    pub single: bool,
    /// The MTU that the text speaks of.
    pub mtu: Option<u32>,
}

/// Where the reader stands.
#[derive(Debug, Default)]
struct Context {
    /// Files and their sizes, from listings.
    files: Vec<(String, Quantity)>,
    /// The last command and its words.
    command: Vec<String>,
    /// Unit and columns of a table of rates.
    table: Option<Table>,
    /// The line before, for a table's names.
    above: String,
}

#[derive(Debug)]
struct Table {
    line: usize,
    unit: units::Unit,
    columns: Vec<String>,
    rows: Vec<Vec<f64>>,
}

/// Reads a text.
pub fn read(text: &str, writing: Writing) -> Result<Session> {
    let lines: Vec<&str> = text.split(['\n', '\r']).collect();
    let mut session = Session {
        single: lines.iter().filter(|line| !line.trim().is_empty()).count() <= 1,
        ..Session::default()
    };
    let mut context = Context::default();
    for (index, raw) in lines.iter().enumerate() {
        let line = raw.trim_start_matches(['>', ' ']);
        let line = if line.trim().is_empty() { "" } else { line };
        let tokens = match text::tokens(line, writing) {
            Ok(tokens) => tokens,
            Err(error) if session.single => return Err(error),
            Err(error) => {
                session.unread.push((index + 1, error));
                continue;
            }
        };
        one(&mut session, &mut context, index + 1, line, &tokens);
        line.clone_into(&mut context.above);
    }
    finish(&mut session, context.table.take());
    only_whole_tests(&mut session.readings);
    Ok(session)
}

fn one(session: &mut Session, context: &mut Context, at: usize, line: &str, tokens: &[Token]) {
    if let Some(mtu) = mtu(tokens) {
        session.mtu = Some(mtu);
    }
    if let Some(row) = row(context.table.as_ref(), tokens) {
        if let Some(table) = context.table.as_mut() {
            table.rows.push(row);
        }
        return;
    }
    if let Some(table) = header(at, line, &context.above, tokens) {
        finish(session, context.table.replace(table));
        return;
    }
    if !line.is_empty() {
        finish(session, context.table.take());
    }
    if let Some(command) = command(line) {
        context.command = command;
        return;
    }
    if let Some(file) = listed(line, tokens) {
        context.files.push(file);
        return;
    }
    if let Some(time) = timed(line, tokens) {
        session.readings.extend(of_time(context, at, line, time));
        return;
    }
    let found = reading::of(at, line, tokens);
    if found.is_empty() {
        let parts = parts::of(tokens);
        session.alone.sizes.extend(parts.sizes);
        session.alone.times.extend(parts.times);
        session.alone.bare = session.alone.bare.take().or(parts.bare);
    }
    for reading in found {
        if !repeats(&session.readings, &reading) {
            session.readings.push(reading);
        }
    }
    if let [.., before, last] = session.readings.as_mut_slice() {
        if of_one_copy(before, last) {
            let rates = std::mem::take(&mut last.rates);
            before.rates.extend(rates);
            session.readings.pop();
        }
    }
}

/// robocopy says its speed twice, on two lines.
fn of_one_copy(before: &Reading, last: &Reading) -> bool {
    let robocopy = |reading: &Reading| reading.tool.is_some_and(|tool| tool.name == "robocopy");
    robocopy(before) && robocopy(last) && last.line == before.line + 1 && before.rates.len() == 1
}

/// fio says each group's rate again below its jobs.
fn repeats(readings: &[Reading], reading: &Reading) -> bool {
    let fio = reading.tool.is_some_and(|tool| tool.name.starts_with("fio"));
    let summary = reading.text.starts_with("READ:") || reading.text.starts_with("WRITE:");
    fio && summary
        && readings.iter().any(|other| {
            other.tool.map(|tool| tool.name) == reading.tool.map(|tool| tool.name)
                && other.rates.first().map(|rate| rate.number)
                    == reading.rates.first().map(|rate| rate.number)
        })
}

/// `mtu 9000`.
fn mtu(tokens: &[Token]) -> Option<u32> {
    tokens.windows(2).find_map(|two| {
        let named = two[0].word()?.eq_ignore_ascii_case("mtu");
        let number = two[1].number().filter(|_| named)?;
        (number.decimals == 0 && (500.0..=65536.0).contains(&number.value))
            .then_some(number.value as u32)
    })
}

/// The words of a command after a prompt.
fn command(line: &str) -> Option<Vec<String>> {
    let ends = ["$ ", "# ", "% ", "> "];
    let (prompt, rest) = ends.iter().find_map(|end| {
        let (prompt, rest) = line.split_once(end)?;
        let named = prompt.is_empty() || prompt.contains(['@', '~', ':']);
        let short = prompt.len() <= 60 && !prompt.contains("  ");
        (named && short && *end != "> " || prompt.starts_with("C:\\")).then_some((prompt, rest))
    })?;
    let _ = prompt;
    let wrappers = ["time", "sudo", "nice", "env", "taskset", "nohup"];
    let words = rest.split_whitespace().map(|word| base(word).to_owned());
    let words: Vec<String> = words
        .skip_while(|word| wrappers.contains(&word.as_str()) || word.contains('='))
        .collect();
    (!words.is_empty()).then_some(words)
}

/// The last part of a path.
fn base(path: &str) -> &str {
    let path = path.trim_matches(['"', '\'']);
    path.trim_end_matches('/')
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or(path)
}

/// A line of `ls -l`: the name and the size.
fn listed(line: &str, tokens: &[Token]) -> Option<(String, Quantity)> {
    let mut words = line.split_whitespace();
    let mode = words.next()?;
    let shape = mode.len() >= 10
        && mode.starts_with(['-', 'l'])
        && mode[1..].chars().take(9).all(|c| "rwxsStT-".contains(c));
    if !shape {
        return None;
    }
    let size = words.nth(3)?;
    let number = tokens
        .iter()
        .filter_map(Token::number)
        .find(|number| number.printed == size)?;
    Some((base(line.split_whitespace().last()?).to_owned(), Quantity::bytes(number)))
}

/// The elapsed time of a line that `time` printed: of GNU, bash, POSIX, zsh or csh.
fn timed(line: &str, tokens: &[Token]) -> Option<Time> {
    let lower = line.to_lowercase();
    let gnu = lower.contains("elapsed") && lower.contains("system");
    let zsh = lower.contains("% cpu") && lower.trim_end().ends_with(" total");
    let real = lower.starts_with("real");
    let letters: Vec<&str> = tokens.iter().filter_map(Token::word).take(2).collect();
    let csh = letters == ["u", "s"] && line.contains('%');
    if real {
        let times = parts::of(tokens).times;
        if let Some(time) = times.into_iter().next() {
            return Some(time);
        }
        // `time -p` and busybox: seconds without a unit.
        let number = tokens.get(1)?.number()?;
        return (tokens.len() == 2).then(|| Time {
            printed: format!("{} s", number.printed),
            span: parts::Span::around(number.value, number.half),
            clock: None,
            questioned: None,
        });
    }
    let times = parts::of(tokens).times;
    if gnu || csh {
        return times.into_iter().find(|time| time.clock.is_some());
    }
    zsh.then(|| times.into_iter().next_back()).flatten().or_else(|| {
        // A short run has no colon: `0.124 total`.
        let number = tokens.iter().rev().find_map(Token::number).filter(|_| zsh)?;
        Some(Time {
            printed: format!("{} s", number.printed),
            span: parts::Span::around(number.value, number.half),
            clock: None,
            questioned: None,
        })
    })
}

/// A timed command moved the file that it names, where a listing told its size.
fn of_time(context: &Context, line: usize, text: &str, time: Time) -> Option<Reading> {
    let named = context
        .files
        .iter()
        .rev()
        .find(|(name, _)| context.command.iter().any(|word| word == name));
    let (name, size) = match (named, context.files.as_slice()) {
        (Some(file), _) => file,
        (None, [only]) if context.command.is_empty() => only,
        _ => return None,
    };
    Some(Reading {
        line,
        text: text.trim().to_owned(),
        command: context.command.first().cloned(),
        size: Some(size.clone()),
        time: Some(time),
        notes: vec![format!("the size is that of {name} in the listing")],
        ..Reading::default()
    })
}

/// ifstat's head: the unit, and the names from the line above.
fn header(line: usize, text: &str, above: &str, tokens: &[Token]) -> Option<Table> {
    let words: Vec<&str> = tokens.iter().filter_map(Token::word).collect();
    let pairs = words.iter().filter(|word| **word == "in").count();
    let unit = units::amount(words.iter().find(|word| word.contains('/') || word.ends_with("ps"))?)?;
    let shape = pairs > 0
        && words.iter().filter(|word| **word == "out").count() == pairs
        && words.len() >= 4 * pairs
        && tokens.iter().all(|token| token.number().is_none());
    if !shape || !(text.contains("KB/s in") || text.contains("Kbps in")) {
        return None;
    }
    let names: Vec<&str> = above.split_whitespace().collect();
    let skipped = names.len().saturating_sub(pairs);
    let columns = (0..pairs).flat_map(|pair| {
        let name = names.get(skipped + pair).copied().unwrap_or("");
        [format!("{name} in"), format!("{name} out")]
    });
    Some(Table {
        line,
        unit,
        columns: columns.collect(),
        rows: Vec::new(),
    })
}

/// A row of that table: as many bare numbers as it has columns.
fn row(table: Option<&Table>, tokens: &[Token]) -> Option<Vec<f64>> {
    let table = table?;
    let numbers: Vec<f64> = tokens
        .iter()
        .filter_map(Token::number)
        .map(|number| number.value)
        .collect();
    let words = tokens.iter().filter(|token| token.word().is_some()).count();
    // A first column may have the time of the day.
    let times = tokens.iter().filter(|token| token.clock().is_some()).count();
    (numbers.len() == table.columns.len() && words == 0 && times <= 1).then_some(numbers)
}

/// A table's columns as readings: the mean over its rows.
fn finish(session: &mut Session, table: Option<Table>) {
    let Some(table) = table.filter(|table| !table.rows.is_empty()) else {
        return;
    };
    for (at, column) in table.columns.iter().enumerate() {
        let values: Vec<f64> = table.rows.iter().map(|row| row[at]).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let (low, high) = values
            .iter()
            .fold((f64::MAX, 0f64), |(low, high), value| (low.min(*value), high.max(*value)));
        if high <= 0.0 {
            continue;
        }
        session.readings.push(Reading {
            line: table.line,
            text: format!("{column}: mean of {} rows", values.len()),
            tool: Some(&IFSTAT),
            label: Some(column.trim().to_owned()),
            rates: vec![Quantity {
                printed: format!("{mean:.2}"),
                number: parts::Span::around(mean, 0.005),
                loose: 0.005,
                unit: table.unit,
            }],
            notes: vec![format!("the mean of {} rows, from {low} to {high}", values.len())],
            ..Reading::default()
        });
    }
}

/// Of each run of network tests without a gap, only the whole tests stay, not their samples; and where both ends speak,
/// only what they say.
fn only_whole_tests(readings: &mut Vec<Reading>) {
    let mut runs: Vec<usize> = Vec::new();
    let mut run = 0;
    for pair in 0..readings.len() {
        let apart = pair > 0
            && (readings[pair].line - readings[pair - 1].line > 3
                || readings[pair].tool.map(|tool| tool.name)
                    != readings[pair - 1].tool.map(|tool| tool.name));
        run += usize::from(apart);
        runs.push(run);
    }
    let network = |reading: &Reading| reading.tool.is_some_and(|tool| tool.network);
    let longest = |run: usize, readings: &[Reading]| {
        let of_run = readings.iter().zip(&runs).filter(|(_, other)| **other == run);
        let times = of_run.filter_map(|(reading, _)| Some(reading.time.as_ref()?.span.best));
        times.fold(0f64, f64::max)
    };
    let speaks: Vec<bool> = (0..=run)
        .map(|run| readings.iter().zip(&runs).any(|(reading, other)| *other == run && reading.role.is_some()))
        .collect();
    let keep: Vec<bool> = readings
        .iter()
        .zip(&runs)
        .map(|(reading, run)| {
            let Some(time) = reading.time.as_ref().filter(|_| network(reading)) else {
                return true;
            };
            let whole = time.span.best >= 0.9 * longest(*run, readings);
            whole && (!speaks[*run] || reading.role.is_some())
        })
        .collect();
    let mut keep = keep.into_iter();
    readings.retain(|_| keep.next().unwrap_or(true));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(text: &str) -> Vec<Reading> {
        read(text, Writing::default()).expect("readable").readings
    }

    #[test]
    fn a_timed_copy_has_the_size_of_the_listing() {
        let listing = "-rw-r--r-- 1 abc users 52046502432 2010-02-25 16:01 data.bkf\n";
        for time in [
            "0.04user 45.51system 1:47.07elapsed 42%CPU (0avgtext+0avgdata 7008maxresident)k",
            "real    1m47.070s",
            "real 107.07",
            "cp data.bkf /nfs  0.04s user 45.51s system 42% cpu 1:47.07 total",
            "0.040u 45.510s 1:47.07 42.5%    0+0k 0+0io 0pf+0w",
        ] {
            let found = readings(&format!("{listing}$ /usr/bin/time cp /nfs/data.bkf .\n{time}\n"));
            assert_eq!(found.len(), 1, "{time}");
            let seconds = found[0].time.as_ref().expect("a time").span.best;
            assert!((seconds - 107.07).abs() < 1e-9, "{time}");
            assert_eq!(found[0].command.as_deref(), Some("cp"));
        }
        assert!(readings("$ time cp other .\nreal 1m47.070s\n").is_empty());
    }

    #[test]
    fn samples_of_a_test_are_left_out() {
        let text = "[  5]   0.00-1.00   sec  1.10 GBytes  9.45 Gbits/sec    0   1023 KBytes\n\
            [  5]   1.00-2.00   sec  1.10 GBytes  9.45 Gbits/sec    0   1023 KBytes\n\
            - - - - - -\n\
            [  5]   0.00-2.00   sec  2.20 GBytes  9.45 Gbits/sec    0             sender\n\
            [  5]   0.00-2.00   sec  2.20 GBytes  9.44 Gbits/sec                  receiver\n";
        let found = readings(text);
        let roles: Vec<_> = found.iter().map(|reading| reading.role).collect();
        assert_eq!(roles, [Some("sender"), Some("receiver")]);
    }

    #[test]
    fn a_table_of_ifstat_is_read_by_column() {
        let text = "        lo        \n KB/s in  KB/s out\n2.58e+06  2.58e+06\n1.66e+06  1.66e+06\n";
        let found = readings(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].label.as_deref(), Some("lo in"));
        assert!((found[0].rates[0].number.best / 2.12e6 - 1.0).abs() < 1e-9);
    }
}
