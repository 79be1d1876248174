//! What a shell shows around a transfer: prompts with commands, file listings, and what the kinds of `time` print.
//!
//! Pure. Must not know: readings.

use crate::recompute::number::Number;
use crate::recompute::parts;
use crate::recompute::quantity::{Quantity, Span, Time};
use crate::recompute::text::Token;
use crate::recompute::units::Base;

/// Commands that only start another one.
const WRAPPERS: &[&str] = &[
    "time", "sudo", "nice", "env", "taskset", "nohup", "ionice", "doas",
];

/// The words of a command after a prompt, paths cut to their last part.
pub(super) fn command(line: &str) -> Option<Vec<String>> {
    let ends = ["$ ", "# ", "% ", "> "];
    let rest = ends.iter().find_map(|end| {
        let (prompt, rest) = line.split_once(end)?;
        let first = prompt.split_whitespace().next().unwrap_or("");
        let one = prompt.split_whitespace().count() <= 1 && !first.contains(char::is_numeric);
        let place = first.contains(['@', '~', ':']) || first.contains('\\');
        let named = prompt.is_empty() || one || place;
        let short = prompt.len() <= 60 && !prompt.contains("  ");
        let fits = match *end {
            "> " => first.contains(":\\") || first == "PS",
            // `Speed: 42 % of ..` is no prompt.
            "% " => named && !prompt.trim_end().ends_with(char::is_numeric),
            _ => named,
        };
        (short && fits).then_some(rest)
    })?;
    let words = rest.split_whitespace().map(|word| base(word).to_owned());
    let words: Vec<String> = words
        .skip_while(|word| {
            WRAPPERS.contains(&word.as_str()) || word.contains('=') || word.starts_with('-')
        })
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
pub(super) fn listed(line: &str, tokens: &[Token]) -> Option<(String, Quantity)> {
    let mut words = line.split_whitespace();
    let mode = words.next()?;
    let shape = mode.len() >= 10
        && mode.starts_with(['-', 'l'])
        && mode[1..].chars().take(9).all(|c| "rwxsStT-".contains(c));
    if !shape {
        return None;
    }
    let size = words.nth(3)?;
    let name = base(line.split_whitespace().next_back()?).to_owned();
    let word = |token: &Token| line[token.at..].split_whitespace().next();
    let first = tokens.iter().position(|token| word(token) == Some(size))?;
    let number = tokens[first].number()?;
    let bytes = if number.printed == size {
        Quantity::bytes(number)
    } else {
        rounded_up(
            parts::of(line, tokens.get(first..first + 2)?)
                .sizes()
                .next()?,
            number,
        )
    };
    Some((name, bytes))
}

/// A size of `ls -h` or `du -h`: by 1024, rounded up.
fn rounded_up(size: &Quantity, number: &Number) -> Quantity {
    let mut size = size.clone().by(Base::Binary);
    size.number = Span {
        best: number.value,
        low: number.value - 2.0 * number.half,
        high: number.value,
    };
    size
}

/// The elapsed time of a line that `time` printed: of GNU, bash, POSIX, zsh or csh.
pub(super) fn elapsed(line: &str, tokens: &[Token]) -> Option<Time> {
    let lower = line.trim().to_lowercase();
    let parts = parts::of(line, tokens);
    let clock = parts.times().find(|time| time.clock.is_some()).cloned();
    let number = |token: &Token| token.number().map(Time::seconds);
    if lower.starts_with("real") && tokens.len() <= 3 {
        // `time -p` and busybox print seconds without a unit.
        let plain = tokens.get(1).filter(|_| tokens.len() == 2).and_then(number);
        return parts.times().next().cloned().or(plain);
    }
    let letters: Vec<&str> = tokens.iter().filter_map(Token::word).take(2).collect();
    let csh = letters == ["u", "s"] && lower.contains('%');
    let gnu = lower.contains("elapsed") && lower.contains("system");
    if gnu || csh || lower.starts_with("elapsed (wall clock) time") {
        return clock;
    }
    let zsh = lower.contains("% cpu") && lower.ends_with(" total");
    // A short run has no colon: `0.124 total`.
    let short = || tokens.iter().rev().find_map(number);
    if zsh { clock.or_else(short) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_known_from_text() {
        let cases = [
            ("$ /usr/bin/time cp /nfs/data.bkf .", "cp"),
            ("$ /usr/bin/time -v cp a b", "cp"),
            ("p34:~# iperf -c 10.0.0.254", "iperf"),
            (
                "[root@i7raid-1 ~]# ./nuttcp-6.2.6 -In2 192.168.1.11",
                "nuttcp-6.2.6",
            ),
            ("me@mac ~ % LC_ALL=C time dd if=/dev/zero of=x", "dd"),
            ("C:\\> robocopy a b", "robocopy"),
            ("PS C:\\Users\\me> robocopy a b", "robocopy"),
        ];
        for (line, wanted) in cases {
            let words = command(line).expect(line);
            assert_eq!(words[0], wanted, "{line}");
        }
        for line in [
            "CPU usage: 42 % of 4 cores",
            "it used to get > 400MiB/s",
            "50% of 3 GB",
            "60 $ or so",
        ] {
            assert_eq!(command(line), None, "{line}");
        }
    }
}
