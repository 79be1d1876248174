//! `nasgauge recompute`: other people's figures computed again.

use std::io::{IsTerminal, Read};

use clap::Args;

use super::{Format, Global};
use crate::error::{Error, Phase, Result};
use crate::recompute::{Writing, decoded, recompute};
use crate::report::recompute::{csv, table};

/// More than any terminal holds.
const LONGEST: u64 = 16 << 20;

/// Arguments of `recompute`.
#[derive(Debug, Args)]
pub(super) struct RecomputeArgs {
    /// What was printed or published, such as "52046502432 bytes in 1:47.07"; each argument with blanks in it is a line. Without
    /// any, standard input is read: a whole pasted terminal
    #[arg(value_name = "TEXT")]
    text: Vec<String>,
    /// Numbers are written 1.234,5
    #[arg(long)]
    decimal_comma: bool,
}

/// The command.
pub(super) fn main(args: &RecomputeArgs, global: &Global) -> Result<u8> {
    let text = match lines(&args.text) {
        Some(text) => text,
        None => standard_input()?,
    };
    let writing = Writing {
        decimal_comma: args.decimal_comma,
    };
    let recomputed = recompute(&text, writing)?;
    match global.format {
        Format::Table => print!("{}", table(&recomputed)),
        Format::Csv => print!("{}", String::from_utf8_lossy(&csv(&recomputed))),
        Format::Json => println!(
            "{}",
            serde_json::to_string_pretty(&recomputed).unwrap_or_default()
        ),
    }
    Ok(0)
}

/// Arguments as lines; without quotes they are the words of one. None without any, and for `-`.
fn lines(arguments: &[String]) -> Option<String> {
    match arguments {
        [] => None,
        [one] if one == "-" => None,
        all if all
            .iter()
            .any(|argument| argument.trim().contains(char::is_whitespace)) =>
        {
            Some(all.join("\n"))
        }
        words => Some(words.join(" ")),
    }
}

fn standard_input() -> Result<String> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(Error::usage(
            "nothing to compute; give a text such as '52046502432 bytes in 1:47.07', or send a pasted terminal to standard input",
        ));
    }
    let mut bytes = Vec::new();
    input
        .lock()
        .take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::io(Phase::Plan, &error, "read standard input"))?;
    if bytes.len() as u64 > LONGEST {
        return Err(Error::usage(
            "standard input is longer than 16 MiB; send the lines that tell sizes, times and rates",
        ));
    }
    decoded(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_without_quotes_are_one_line() {
        let lines = |arguments: &[&str]| {
            let owned: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            lines(&owned)
        };
        assert_eq!(
            lines(&["5", "GB", "in", "50", "s"]).as_deref(),
            Some("5 GB in 50 s")
        );
        assert_eq!(
            lines(&["5 GB in 50 s", "900MB/s"]).as_deref(),
            Some("5 GB in 50 s\n900MB/s")
        );
        assert_eq!((lines(&[]), lines(&["-"])), (None, None));
    }
}
