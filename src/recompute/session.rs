//! A whole pasted text as readings: commands, file listings and what `time` printed belong together across lines.
//!
//! Pure. Must not know: whether the readings agree.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::recompute::number::Writing;
use crate::recompute::parts::{self, Parts};
use crate::recompute::quantity::{Quantity, Time};
use crate::recompute::reading::{self, Reading};
use crate::recompute::text::{self, Token};

mod shell;
mod table;

/// Lines that are further apart are of different tests.
pub(super) const APART: usize = 3;

/// What a text holds.
#[derive(Debug, Default)]
pub struct Session {
    /// In the order of their lines.
    pub readings: Vec<Reading>,
    /// Lines that could not be read, with the reason.
    pub unread: Vec<(usize, Error)>,
    /// Quantities that stand alone on their lines.
    pub rest: Vec<Parts>,
    /// The MTU that the text speaks of.
    pub mtu: Option<u32>,
}

/// Where the reader stands.
#[derive(Debug, Default)]
struct Reader {
    session: Session,
    /// Files and their sizes, from listings.
    files: Vec<(String, Quantity)>,
    /// The last command and its words.
    command: Vec<String>,
    table: Option<table::Table>,
    /// The line before, for a table's names.
    above: String,
    /// Lines so far, since mails quote them.
    seen: HashSet<String>,
}

/// Reads a text. A single line that can't be read is an error; of more lines the others are read.
pub fn read(text: &str, writing: Writing) -> Result<Session> {
    let mut reader = Reader::default();
    let single = text.lines().filter(|line| !line.trim().is_empty()).count() <= 1;
    for (index, raw) in text.split('\n').enumerate() {
        // Of a progress line only the last state counts.
        let before = reader.session.readings.len();
        for piece in raw.split('\r') {
            let quoted = piece.trim_start().starts_with('>');
            let line = piece.trim_start_matches(['>', ' ']).trim_end();
            let fresh = reader.seen.insert(line.to_owned());
            if quoted && !fresh {
                continue;
            }
            let already = reader.session.readings.len();
            match text::tokens(line, writing) {
                Ok(tokens) => reader.line(index + 1, line, &tokens),
                Err(error) if single => return Err(error),
                Err(error) => reader.session.unread.push((index + 1, error)),
            }
            if reader.session.readings.len() > already && already > before {
                reader.session.readings.drain(before..already);
            }
        }
    }
    reader.end_of_table();
    only_whole_tests(&mut reader.session.readings);
    Ok(reader.session)
}

impl Reader {
    fn line(&mut self, at: usize, line: &str, tokens: &[Token]) {
        self.session.mtu = mtu(tokens).or(self.session.mtu);
        if self.table.as_mut().is_some_and(|table| table.row(tokens)) {
            return;
        }
        if let Some(table) = table::header(at, line, &self.above, tokens) {
            self.end_of_table();
            self.table = Some(table);
            return;
        }
        line.clone_into(&mut self.above);
        if line.is_empty() {
            return;
        }
        self.end_of_table();
        if let Some(command) = shell::command(line) {
            self.command = command;
        } else if let Some(file) = shell::listed(line, tokens) {
            self.files.push(file);
        } else if let Some(time) = shell::elapsed(line, tokens) {
            let reading = self.timed(at, &time);
            if reading.is_none() {
                self.session.rest.push(parts::of(line, tokens));
            }
            self.session.readings.extend(reading);
        } else {
            let found = reading::of(at, line, tokens);
            self.session.rest.extend(found.rest);
            for reading in found.readings {
                self.push(reading);
            }
        }
    }

    fn push(&mut self, mut reading: Reading) {
        if repeats(&self.session.readings, &reading) {
            return;
        }
        if let Some(before) = self.session.readings.last_mut()
            && of_one_copy(before, &reading)
        {
            before.rates.append(&mut reading.rates);
            return;
        }
        self.session.readings.push(reading);
    }

    fn end_of_table(&mut self) {
        if let Some(table) = self.table.take() {
            self.session.readings.extend(table.readings());
        }
    }

    /// A timed command moved the file that it names, where a listing told its size.
    fn timed(&self, line: usize, time: &Time) -> Option<Reading> {
        let named = self
            .files
            .iter()
            .rev()
            .find(|(name, _)| self.command.iter().any(|word| word == name));
        let (name, size) = match (named, self.files.as_slice()) {
            (Some(file), _) => file,
            (None, [only]) if self.command.is_empty() => only,
            _ => return None,
        };
        Some(Reading {
            line,
            text: format!("{name}, {} in {}", size.printed, time.printed),
            command: self.command.first().cloned(),
            size: Some(size.clone()),
            time: Some(time.clone()),
            notes: vec![format!("the size is that of {name} in the listing")],
            ..Reading::default()
        })
    }
}

fn name(reading: &Reading) -> &'static str {
    reading.tool.map_or("", |tool| tool.name)
}

/// robocopy says its speed twice, on two lines.
fn of_one_copy(before: &Reading, last: &Reading) -> bool {
    let next = (1..=2).contains(&last.line.saturating_sub(before.line));
    let both = name(before) == "robocopy" && name(last) == "robocopy";
    let units =
        before.rates.first().map(|rate| rate.unit) != last.rates.first().map(|rate| rate.unit);
    both && next && units && before.rates.len() == 1
}

/// fio says each group's rate again below its jobs.
fn repeats(readings: &[Reading], reading: &Reading) -> bool {
    let summary = reading.text.starts_with("READ:") || reading.text.starts_with("WRITE:");
    let number = |reading: &Reading| reading.rates.first().map(|rate| rate.number);
    name(reading).starts_with("fio")
        && summary
        && readings
            .iter()
            .any(|other| name(other) == name(reading) && number(other) == number(reading))
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

/// Of each run of network tests only the whole tests stay, not their samples; and where both ends speak, only what they say.
fn only_whole_tests(readings: &mut Vec<Reading>) {
    let mut runs = Vec::with_capacity(readings.len());
    let mut run = 0;
    for (at, reading) in readings.iter().enumerate() {
        if let Some(before) = at.checked_sub(1).map(|before| &readings[before]) {
            run += usize::from(
                reading.line.saturating_sub(before.line) > APART || name(reading) != name(before),
            );
        }
        runs.push(run);
    }
    let seconds = |reading: &Reading| reading.time.as_ref().map_or(0.0, |time| time.span.best);
    let mut longest = vec![0f64; run + 1];
    let mut speaks = vec![false; run + 1];
    for (reading, run) in readings.iter().zip(&runs) {
        longest[*run] = longest[*run].max(seconds(reading));
        speaks[*run] |= reading.role.is_some();
    }
    let mut runs = runs.into_iter();
    readings.retain(|reading| {
        let Some(run) = runs.next() else { return true };
        let network = reading.tool.is_some_and(|tool| tool.network);
        let whole = seconds(reading) >= 0.9 * longest[run];
        !network || reading.time.is_none() || whole && (!speaks[run] || reading.role.is_some())
    });
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
            "\tElapsed (wall clock) time (h:mm:ss or m:ss): 1:47.07",
        ] {
            let found = readings(&format!(
                "{listing}$ /usr/bin/time cp /nfs/data.bkf .\n{time}\n"
            ));
            assert_eq!(found.len(), 1, "{time}");
            let seconds = found[0].time.as_ref().expect("a time").span.best;
            assert!((seconds - 107.07).abs() < 1e-9, "{time}");
            assert_eq!(found[0].command.as_deref(), Some("cp"));
        }
        assert!(readings("$ time cp other .\nreal 1m47.070s\n").is_empty());
    }

    #[test]
    fn a_size_for_people_was_rounded_up() {
        let found = readings(
            "-rw-r--r-- 1 abc users 49G Feb 25 16:01 data.bkf\n$ time cp data.bkf /nfs\nreal\t1m47.070s\n",
        );
        let size = found[0].span(found[0].size.as_ref().expect("a size"));
        assert!(
            size.low < 52_046_502_432.0 && size.high > 52_046_502_432.0,
            "{size:?}"
        );
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
    fn of_a_progress_line_the_last_state_counts() {
        let text = "133677568 bytes (134 MB, 127 MiB) copied, 129 s, 1.0 MB/s\r134217728 bytes (134 MB, 128 MiB) copied, 129.408 s, 1.0 MB/s\r\n";
        let found = readings(text);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 1);
        assert!(found[0].text.starts_with("134217728"));
    }

    #[test]
    fn what_a_mail_quotes_counts_once() {
        let line =
            "n2: 11505.2648 MB / 10.09 sec = 9566.2298 Mbps 37 %TX 55 %RX 0 retrans 0.10 msRTT";
        assert_eq!(readings(&format!("{line}\n\n> {line}\n")).len(), 1);
        assert_eq!(readings(&format!("> {line}\n")).len(), 1);
    }

    #[test]
    fn robocopy_says_its_speed_twice() {
        let found = readings(
            "   Speed :           106742705 Bytes/sec.\n   Speed :            6107.866 MegaBytes/min.\n",
        );
        assert_eq!((found.len(), found[0].rates.len()), (1, 2));
    }
}
