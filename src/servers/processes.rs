//! The processes of this machine or sandbox, as /proc shows them.
//!
//! Must not know: what they are.

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its state: `R` running, `S` waiting, `T` stopped, `Z` ended and not waited for, and so on.
    pub state: char,
    /// Its parent's number.
    pub parent: i32,
    /// Its process group; 0 when that lies outside this process's namespace.
    pub group: i32,
}

impl Process {
    /// Reads a line of `/proc/PID/stat`.
    fn parse(stat: &str) -> Option<Self> {
        // The name in parentheses may hold anything, so what follows is counted from the last one.
        let (head, tail) = stat.rsplit_once(')')?;
        let mut fields = tail.split_whitespace();
        Some(Self {
            pid: head.split(' ').next()?.parse().ok()?,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    }

    /// Whether it still does anything, or could.
    #[must_use]
    pub const fn lives(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

/// Every process that can be seen.
#[must_use]
pub fn all() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(|stat| Process::parse(&stat))
        .collect()
}

/// The living processes of a group.
#[must_use]
pub fn in_group(group: i32) -> Vec<Process> {
    let mut all = all();
    all.retain(|process| process.group == group && process.lives());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_does_not_mislead() {
        let expected = Process {
            pid: 17,
            state: 'S',
            parent: 5,
            group: 6,
        };
        assert_eq!(Process::parse("17 (a) b (c) S 5 6 7 0 -1"), Some(expected));
        assert_eq!(Process::parse("nonsense"), None);
    }

    #[test]
    fn this_process_is_among_them() {
        let own = std::process::id().cast_signed();
        assert!(
            all()
                .iter()
                .any(|process| process.pid == own && process.lives())
        );
    }
}
