//! Names of small files: the run's own name and a number, so that no file of a user's can have one.
//!
//! Pure. What makes names and what recognises them stand here together.

use std::fmt::Write;

/// Ends the second name of a file that a rename gives it.
const SECOND: &str = ".renamed";
/// Digits of a number.
const DIGITS: usize = 8;

/// Puts the name of a run's file into `name`: its first one, or the second that a rename gives it.
pub fn make(name: &mut String, run: &str, number: u32, renamed: bool) {
    name.clear();
    let end = if renamed { SECOND } else { "" };
    // Writing to a String can't fail.
    let _ = write!(name, "{run}.{number:0DIGITS$}{end}");
}

/// The number of a run's file, and whether it has its second name; None for what the run did not make.
#[must_use]
pub fn read(run: &str, name: &str) -> Option<(u32, bool)> {
    let rest = name.strip_prefix(run)?.strip_prefix('.')?;
    let (digits, renamed) = match rest.strip_suffix(SECOND) {
        Some(digits) => (digits, true),
        None => (rest, false),
    };
    let plain = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain
        .then(|| digits.parse().ok())
        .flatten()
        .map(|number| (number, renamed))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_made_is_recognised_by_its_run_only(number in 0u32..100_000_000, renamed: bool) {
            let mut name = String::from("before");
            make(&mut name, "20261130T120000Z-00ff", number, renamed);
            prop_assert_eq!(read("20261130T120000Z-00ff", &name), Some((number, renamed)));
            prop_assert_eq!(read("20261130T120000Z-00fe", &name), None);
            prop_assert_eq!(read("20261130T120000Z-00f", &name), None);
        }

        #[test]
        fn nothing_else_is_taken_for_ours(name in "(run)?[.]?[0-9+-]{0,10}(.renamed)?[a-z]{0,2}") {
            if let Some((number, renamed)) = read("run", &name) {
                let mut made = String::new();
                make(&mut made, "run", number, renamed);
                prop_assert_eq!(made, name);
            }
        }
    }
}
