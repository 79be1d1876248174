//! Other people's figures computed again: what a line or a whole pasted terminal says was moved, in what time and how fast, the
//! right rate, and what does not fit.
//!
//! Pure: text in, findings out. `text` to `units` know how people and tools write quantities, `reading` and `session` what belongs
//! together, `check` and `cause` what agrees and why not, `together` what figures say of each other. Bytes, seconds, bytes
//! per second. Must not know: files, layouts.

use serde::Serialize;

use crate::error::{Error, Result};

mod cause;
mod check;
mod clock;
mod links;
mod number;
mod parts;
mod quantity;
mod reading;
mod session;
mod text;
mod together;
mod tools;
mod units;
mod words;

pub use check::Status;
pub use links::{LINKS, Share};
pub use number::Writing;
pub use quantity::Span;
pub use text::decoded;
pub use together::Reference;
pub use words::trimmed;

/// At most so many lines that could not be read are told.
const UNREAD: usize = 3;
/// Characters of a text that are shown.
const SHOWN: usize = 60;

/// What a text says, computed again.
#[derive(Debug, Clone, Serialize)]
pub struct Recomputed {
    /// In the order of the text.
    pub findings: Vec<Finding>,
    /// What the figures are shares of; None where there is only one.
    pub reference: Option<Reference>,
    /// What must be said of them all.
    pub notes: Vec<String>,
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// Its line, from 1.
    pub line: usize,
    /// The tool, the timed command, and which of several; empty for what people wrote.
    pub tool: String,
    /// The line, or the sentence of it.
    pub text: String,
    /// How its parts stand to each other.
    pub status: Status,
    /// Bytes moved.
    pub size_bytes: Option<Span>,
    /// In what time.
    pub seconds: Option<Span>,
    /// The right rate, in bytes per second; None where the time is too short for one.
    pub rate_bytes_per_s: Option<Span>,
    /// The rate as it was printed.
    pub printed_bytes_per_s: Option<Span>,
    /// The right rate as a share of the text's [`Reference`]; None for that itself.
    pub share_of_reference: Option<f64>,
    /// The right rate as shares of Ethernet links.
    pub shares: Vec<Share>,
    /// What must be said.
    pub sentences: Vec<String>,
}

/// Computes the figures of a text again. A text without any is an error that says what is missing.
pub fn recompute(text: &str, writing: Writing) -> Result<Recomputed> {
    let mut session = session::read(text, writing)?;
    if session.readings.is_empty() {
        return Err(nothing(&session));
    }
    together::totals(&mut session.readings);
    let mut checked = together::checked(session.readings);
    together::frames(&mut checked, session.mtu);
    let reference = together::reference(&checked);
    let open = checked.iter().any(|one| {
        let rate = one.reading.rates.first();
        one.reading.tool.is_none() && rate.is_some_and(|rate| one.reading.is_open(rate))
    });
    let mut notes = Vec::new();
    if open {
        notes.push(
            "MB/s without a tool's name were taken as 10^6 bytes; where a program meant 2^20, rates are 4.9 % higher (KB 2.4 %, GB \
             7.4 %)"
                .to_owned(),
        );
    }
    let unread = session.unread.iter().take(UNREAD);
    notes.extend(unread.map(|(line, error)| format!("line {line} was not read: {error}")));
    let share = |at: usize, rate: f64| {
        let (own, reference) = reference.as_ref()?;
        (*own != at).then_some(rate / reference.bytes_per_s)
    };
    let findings = checked.into_iter().enumerate();
    let findings = findings
        .map(|(at, one)| {
            let share = one.rate.and_then(|rate| share(at, rate.best));
            Finding::of(one, share)
        })
        .collect();
    Ok(Recomputed {
        findings,
        reference: reference.map(|(_, reference)| reference),
        notes,
    })
}

impl Finding {
    fn of(one: check::Checked, share_of_reference: Option<f64>) -> Self {
        let reading = one.reading;
        let printed = reading.rates.first().or(reading.size.as_ref());
        let printed = printed.map_or("", |quantity| &quantity.printed);
        let text = excerpt(&reading.text, printed);
        let tool = reading.tool.map(|tool| tool.name.to_owned());
        let role = reading.role.map(str::to_owned);
        let parts = [tool.or(reading.command), reading.label, role];
        Self {
            line: reading.line,
            tool: parts.into_iter().flatten().collect::<Vec<_>>().join(" "),
            text,
            status: one.status,
            size_bytes: one.size,
            seconds: one.seconds,
            rate_bytes_per_s: one.rate,
            printed_bytes_per_s: one.printed,
            share_of_reference,
            shares: one
                .rate
                .map_or_else(Vec::new, |rate| links::shares(rate.best)),
            sentences: one.sentences,
        }
    }
}

/// So much of a text as fits a line, around what was read in it.
fn excerpt(text: &str, read: &str) -> String {
    let characters: Vec<char> = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if characters.len() <= SHOWN {
        return characters.into_iter().collect();
    }
    let at = text.find(read).map_or(0, |at| text[..at].chars().count());
    let last = at + read.chars().count();
    // From the beginning where that holds it, else from the beginning of a word.
    let mut from = if last <= SHOWN {
        0
    } else {
        at.saturating_sub(SHOWN / 2)
    };
    from = from.min(characters.len() - SHOWN);
    while from > 0 && from < at && characters[from - 1] != ' ' {
        from += 1;
    }
    let to = (from + SHOWN).min(characters.len());
    let shown: String = characters[from..to].iter().collect();
    let before = if from > 0 { ".." } else { "" };
    let after = if to < characters.len() { ".." } else { "" };
    format!("{before}{shown}{after}")
}

/// Why a text gave nothing, and what to write.
fn nothing(session: &session::Session) -> Error {
    if let Some((line, error)) = session.unread.first() {
        return Error::usage(format!("line {line}: {error}"));
    }
    let rest = &session.rest;
    let first = |get: fn(&parts::Parts) -> Option<String>| rest.iter().find_map(get);
    let unclear = first(|parts| parts.unclear.clone());
    let bare = first(|parts| parts.bare.clone());
    let size = first(|parts| parts.sizes().next().map(|size| size.printed.clone()));
    let time = first(|parts| parts.times().next().map(|time| time.printed.clone()));
    Error::usage(match (unclear, bare, size, time) {
        (Some(unclear), ..) => format!(
            "'{unclear}' may be of bits or of bytes; write Mbit/s or MB/s"
        ),
        (_, Some(bare), Some(_), None) => format!(
            "'{bare}' has no unit; a duration is 1:47.07, 1m47s, 107 s or 1.47 min, a rate is 5 MB/s"
        ),
        (_, _, Some(size), Some(time)) => format!(
            "'{size}' and '{time}' don't stand together; write the size and the time of one transfer on one line"
        ),
        (_, _, Some(size), _) => format!(
            "'{size}' is a size only; add the time it took (1:47.07, 107 s) or a rate (5 MB/s)"
        ),
        (_, _, None, Some(time)) => format!(
            "'{time}' is a duration only; add the size that was moved in it (49 GB, 52046502432 bytes)"
        ),
        _ => "no size with a time and no rate in it; a line is such as '52046502432 bytes in 1:47.07', or what dd, cp with time, \
              rsync, iperf3 or fio print"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests;
