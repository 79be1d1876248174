//! Paths taken apart: which names may reach a server at all. Pure.
//!
//! Some servers take `..` in a name literally and make files outside their export, so nothing that could climb
//! is ever sent.

use crate::error::{Error, Result};

/// Passes a single name that stays in its directory.
pub(super) fn safe(name: &str) -> Result<&str> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(Error::safety(format!(
            "'{}' is not a plain name: no empty part, '.', '..', '/' or zero byte is sent to a server",
            name.escape_debug()
        )));
    }
    Ok(name)
}

/// The names of a relative path; "" is the directory itself and has none.
pub(super) fn parts(path: &str) -> Result<Vec<&str>> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    path.split('/').map(safe).collect()
}

/// A relative path's directory and last name.
pub(super) fn split_last(path: &str) -> Result<(Vec<&str>, &str)> {
    let mut names = parts(path)?;
    let last = names
        .pop()
        .ok_or_else(|| Error::safety("an empty path where a name is needed"))?;
    Ok((names, last))
}

/// The ways to cut an absolute path into an export and the names beneath it, longest export first.
pub(super) fn cuts<'a>(names: &'a [&'a str]) -> impl Iterator<Item = (String, &'a [&'a str])> {
    (0..=names.len())
        .rev()
        .map(|at| (format!("/{}", names[..at].join("/")), &names[at..]))
}

/// Whether `path` is `export` or lies beneath it.
pub(super) fn beneath(path: &str, export: &str) -> bool {
    let export = export.trim_end_matches('/');
    path.strip_prefix(export)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn names_go_through_untouched() {
        for name in [
            "a b",
            "100% [x].bin",
            "My Médiá",
            "..a",
            "%2e%2e",
            "a\\b",
            " ",
        ] {
            assert_eq!(safe(name).expect(name), name);
        }
    }

    #[test]
    fn what_could_climb_is_refused() {
        for path in ["..", "a/../b", "a//b", "/a", "a/", ".", "a/.", "a\0b"] {
            let error = parts(path).expect_err(path);
            assert_eq!(error.kind, Kind::Safety, "{path}");
        }
        assert!(split_last("").is_err());
    }

    #[test]
    fn paths_come_apart() {
        assert_eq!(
            split_last("a/b/c").expect("three names"),
            (vec!["a", "b"], "c")
        );
        assert!(parts("").expect("the directory itself").is_empty());
    }

    #[test]
    fn the_longest_export_is_tried_first() {
        let names = ["tank", "a b", "c"];
        let cuts: Vec<(String, usize)> = cuts(&names).map(|(e, rest)| (e, rest.len())).collect();
        let expected = [("/tank/a b/c", 0), ("/tank/a b", 1), ("/tank", 2), ("/", 3)];
        assert_eq!(
            cuts,
            expected.map(|(e, n)| (e.to_owned(), n)),
            "longest first"
        );
    }

    #[test]
    fn beneath_stops_at_names() {
        assert!(beneath("/tank/a", "/tank"));
        assert!(beneath("/tank", "/tank/"));
        assert!(beneath("/tank", "/"));
        assert!(!beneath("/tankard", "/tank"));
    }
}
