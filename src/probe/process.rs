//! Bytes that this process moved from and to storage, from /proc/self/io: what the page cache answered is not in it.

/// A reading of /proc/self/io.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// Bytes fetched from storage.
    pub read_bytes: u64,
    /// Bytes sent, or marked to be sent, to storage.
    pub write_bytes: u64,
}

/// The counters now; None where the kernel does not tell.
#[must_use]
pub fn io() -> Option<Io> {
    std::fs::read_to_string("/proc/self/io")
        .ok()
        .and_then(|text| Io::parse(&text))
}

impl Io {
    /// Reads /proc/self/io's text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| {
            text.lines().find_map(|line| {
                line.strip_prefix(key)?
                    .strip_prefix(':')?
                    .trim()
                    .parse::<u64>()
                    .ok()
            })
        };
        Some(Self {
            read_bytes: value("read_bytes")?,
            write_bytes: value("write_bytes")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_bytes_are_not_call_bytes() {
        let text = "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 1\n";
        assert_eq!(
            Io::parse(text),
            Some(Io {
                read_bytes: 4096,
                write_bytes: 512
            })
        );
        assert_eq!(Io::parse("rchar: 9\n"), None);
    }
}
