//! What readings of one text say of each other: streams and their sum, a figure that misread another one's time, one that
//! repeats a wrong one, and the network that they all went over.
//!
//! Pure. Bytes, seconds, bytes per second. Must not know: lines.

use crate::recompute::cause;
use crate::recompute::check::{Checked, Status, check, correction};
use crate::recompute::links;
use crate::recompute::quantity::{Quantity, Span, near};
use crate::recompute::reading::Reading;
use crate::recompute::session::APART;
use crate::recompute::tools::Shape;
use crate::recompute::words;

/// A figure that misread another one's time is of the same size within this share.
const SAME_SIZE: f64 = 0.05;
/// Sizes nearer than this are the same.
const EQUAL: f64 = 0.002;

/// What the figures of a text are shares of.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Reference {
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// In words.
    pub words: String,
}

/// Streams of one test as a whole: the sum that the tool prints is told its parts; where it prints none, they are added up.
pub fn totals(readings: &mut Vec<Reading>) {
    let mut done = Vec::with_capacity(readings.len());
    let mut group: Vec<Reading> = Vec::new();
    for reading in readings.drain(..) {
        if group.last().is_some_and(|last| !follows(last, &reading)) {
            close(&mut group, &mut done);
        }
        group.push(reading);
    }
    close(&mut group, &mut done);
    *readings = done;
}

/// Whether a reading is of the same test as the one before.
fn follows(last: &Reading, reading: &Reading) -> bool {
    let name = |reading: &Reading| reading.tool.map(|tool| tool.name);
    name(last) == name(reading) && reading.line.saturating_sub(last.line) <= APART
}

fn close(group: &mut Vec<Reading>, done: &mut Vec<Reading>) {
    for role in [None, Some("sender"), Some("receiver")] {
        total(group, role);
    }
    done.append(group);
}

fn total(group: &mut Vec<Reading>, role: Option<&'static str>) {
    let is_sum = |reading: &Reading| reading.label.as_deref() == Some("SUM");
    let parallel: Vec<&Reading> = group
        .iter()
        .filter(|reading| reading.role == role && is_stream(reading) && !is_sum(reading))
        .collect();
    let mut labels: Vec<&Option<String>> = parallel.iter().map(|reading| &reading.label).collect();
    labels.sort_unstable();
    labels.dedup();
    let ways = parallel
        .iter()
        .any(|reading| reading.tool.is_some_and(|tool| tool.shape == Shape::Whole));
    // An interface's two ways are no sum.
    let least = if ways { 3 } else { 2 };
    if labels.len() != parallel.len() || parallel.len() < least {
        return;
    }
    let rates: Vec<Quantity> = parallel
        .iter()
        .filter_map(|reading| reading.rates.first().cloned())
        .collect();
    let Some(ending) = parallel.last() else {
        return;
    };
    let added = together(ending, &rates);
    match group
        .iter_mut()
        .find(|reading| is_sum(reading) && reading.role == role)
    {
        Some(printed) => printed.addends = rates,
        None => group.extend(added),
    }
}

/// Whether it is one of several that may run at the same time.
fn is_stream(reading: &Reading) -> bool {
    reading.label.is_some()
        && reading
            .tool
            .is_some_and(|tool| tool.network && tool.shape != Shape::Sides)
}

/// The sum of rates as a reading of its own, in the unit of the first.
fn together(last: &Reading, rates: &[Quantity]) -> Option<Reading> {
    let unit = rates.first()?.unit;
    let open = last.open(rates.first()?);
    let sum = rates
        .iter()
        .map(|rate| last.span(rate))
        .fold(Span::around(0.0, 0.0), Span::plus);
    let number = sum.times(1.0 / unit.factor(open));
    Some(Reading {
        line: last.line,
        text: format!(
            "{} of them together, if they ran at the same time",
            rates.len()
        ),
        tool: last.tool,
        label: Some("together".into()),
        role: last.role,
        rates: vec![Quantity {
            printed: words::in_unit(sum.best, unit, open),
            number,
            loose: (number.high - number.low) / 2.0,
            unit,
            either: false,
            range: false,
        }],
        addends: rates.to_vec(),
        ..Reading::default()
    })
}

/// Checks all readings, first each alone, then against each other.
#[must_use]
pub fn checked(readings: Vec<Reading>) -> Vec<Checked> {
    let mut list: Vec<Checked> = readings.into_iter().map(check).collect();
    for at in 0..list.len() {
        misread(&mut list, at);
    }
    for at in 0..list.len() {
        echo(&mut list, at);
    }
    // A tool's units are said once.
    let mut said: Vec<&str> = Vec::new();
    for one in &mut list {
        let name = one.reading.tool.map_or("", |tool| tool.name);
        if let Some(note) = one.unit_note.take().filter(|_| !said.contains(&name)) {
            one.sentences.push(note);
            said.push(name);
        }
    }
    list
}

/// `49000MB for 1.47 minutes` beside a copy that took 1:47.07.
fn misread(list: &mut [Checked], at: usize) {
    let one = &list[at];
    let reading = &one.reading;
    let (Some(time), Some(used), Some(said)) =
        (&reading.time, &reading.size, reading.rates.first())
    else {
        return;
    };
    let (Some(clock), Some(size), Some(printed)) = (time.as_clock(), one.size, one.printed) else {
        return;
    };
    let measured = list.iter().find_map(|other| {
        let time = other
            .reading
            .time
            .as_ref()
            .filter(|time| time.clock.is_some())?;
        let (bytes, seconds) = (other.size?, other.seconds?);
        let same = seconds.meets(clock) && near(size.best, bytes.best, SAME_SIZE);
        same.then_some((time, bytes.best, other.rate?))
    });
    let Some((right, bytes, rate)) = measured else {
        return;
    };
    let number = used.printed.trim_end_matches(|c: char| !c.is_ascii_digit());
    let base = used.unit.base.unwrap_or_else(|| reading.open(used));
    let used = (!near(size.best, bytes, EQUAL)).then_some((number, bytes, base));
    let cause = cause::misread(&right.printed, time.span.best / 60.0, used);
    let sentence = correction(Some(&cause), rate.best, said, printed.best);
    let one = &mut list[at];
    one.sentences.clear();
    one.correct(rate, sentence);
}

/// `about 560MiB/s` beside a wrong 568,889 KB/s.
fn echo(list: &mut [Checked], at: usize) {
    let one = &list[at];
    if one.status != Status::Stated || one.reading.tool.is_some() {
        return;
    }
    let Some(said) = one.reading.rates.first() else {
        return;
    };
    let half = said.loose.max((said.number.high - said.number.low) / 2.0);
    let mut loose = said.clone();
    loose.number = Span::around(said.number.best, half);
    let loose = one.reading.span(&loose);
    if loose.width() > 0.05 {
        return;
    }
    let within = |value: f64| (loose.low..=loose.high).contains(&value);
    let wrong = list.iter().find_map(|other| {
        let (printed, right) = (other.printed?, other.rate?);
        let wrong = other.status == Status::Disagrees && other.reading.size.is_some();
        (wrong && within(printed.best) && !within(right.best)).then_some((other, right))
    });
    let Some((wrong, right)) = wrong else {
        return;
    };
    let figure = wrong
        .reading
        .rates
        .first()
        .map_or_else(String::new, words::printed);
    let sentence = format!(
        "{} is the {figure} of line {} again, which is wrong: {}",
        said.printed,
        wrong.reading.line,
        words::rate(right.best)
    );
    list[at].correct(right, sentence);
}

/// What the other figures are shares of, and which of the list it is: the network's, else the fastest one. None where there is
/// nothing to compare with it.
#[must_use]
pub fn reference(list: &[Checked]) -> Option<(usize, Reference)> {
    let is_network = |one: &Checked| one.reading.tool.is_some_and(|tool| tool.network);
    let is_test = |one: &Checked| {
        is_network(one) && (one.seconds.is_some() || !one.reading.addends.is_empty())
    };
    let best = |wanted: &dyn Fn(&Checked) -> bool| {
        let fitting = list.iter().enumerate().filter(|(_, one)| wanted(one));
        let rated = fitting.filter_map(|(at, one)| Some((at, one.rate?.best)));
        rated.max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let network = best(&is_test).or_else(|| best(&is_network));
    let (at, rate) = match network {
        Some(found) => found,
        None => best(&|_| true)?,
    };
    let others = list.iter().filter(|one| !is_network(one)).count();
    if others == 0 || list.len() < 2 {
        return None;
    }
    let reading = &list[at].reading;
    let figure = match reading.rates.first() {
        Some(printed) => words::printed(printed),
        None => words::rate(rate),
    };
    let whose = match (network, reading.tool) {
        (Some(_), Some(tool)) => format!("{} measured", tool.name),
        _ => "are the fastest here".to_owned(),
    };
    Some((
        at,
        Reference {
            bytes_per_s: rate,
            words: format!("the {figure} that {whose} (line {})", reading.line),
        },
    ))
}

/// Says of the network's figures where jumbo frames that are set may not be in effect.
pub fn frames(list: &mut [Checked], mtu: Option<u32>) {
    let Some(mtu) = mtu else { return };
    for one in list {
        let network = one.reading.tool.is_some_and(|tool| tool.network) && one.seconds.is_some();
        if let (true, Some(rate)) = (network, one.rate) {
            one.sentences.extend(links::no_jumbo(rate.best, mtu));
        }
    }
}
