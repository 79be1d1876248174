//! Where to look for a target's ceiling first.

use std::fmt;

/// With what a target's client carried the most when it was measured: where to look for a ceiling first.
///
/// Of all settings in `results/reference/sweep`, that whose worse direction came nearest to the best of its direction:
///
/// | client | setting | read MB/s | write MB/s | of the best |
/// |---|---|---|---|---|
/// | NFS | 1 MiB, 2 x 4 | 2864 | 2421 | 0.86 |
/// | SMB, pavao | 1 MiB, 2 x 1 | 4741 | 3395 | 1.00 |
/// | SMB, smb2 | 1 MiB, 2 x 1 | 4264 | 3048 | 1.00 |
/// | iSCSI | 1 MiB, 1 x 4 | 2377 | 2159 | 0.80 |
///
/// Client and server shared two cores there: over a network more lanes may carry more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceiling {
    /// Bytes of a block.
    pub block_size: u32,
    /// Sessions.
    pub lanes: u16,
    /// Operations under way on each.
    pub iodepth: u16,
}

impl Ceiling {
    /// `lanes` sessions with `iodepth` operations of `kib` KiB each.
    #[must_use]
    pub const fn new(kib: u32, lanes: u16, iodepth: u16) -> Self {
        Self {
            block_size: kib << 10,
            lanes,
            iodepth,
        }
    }
}

impl fmt::Display for Ceiling {
    /// As options of `run`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            block_size,
            lanes,
            iodepth,
        } = self;
        let bs = block_size >> 10;
        write!(f, "--bs {bs}k --lanes {lanes} --iodepth {iodepth}")
    }
}
