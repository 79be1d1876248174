//! The static program that is sent to a server: found, and known by its ELF header.
//!
//! Must not know: how it is sent.

use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Phase, Result};

/// The name beside this program, for those who install both.
const BESIDE: &str = "nasgauge-agent";
/// What builds it in this project's directory: an alias in .cargo/config.toml.
const BUILD: &str = "cargo agent";
/// Where that leaves it, from the directory of a program that cargo built: target/release/nasgauge.
const BUILT: &str = "../x86_64-unknown-linux-gnu/release/nasgauge";
/// No program of ours is larger, in bytes.
const SIZE_MAX: usize = 256 << 20;

/// A program that needs nothing on the computer where it runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Binary {
    /// Its machine, as uname(1) calls it.
    pub(super) machine: &'static str,
    /// The file.
    pub(super) bytes: Vec<u8>,
}

/// What an ELF file is for; None when it is no 64-bit little-endian program.
#[derive(Debug, PartialEq, Eq)]
struct Elf {
    machine: &'static str,
    is_static: bool,
}

/// Reads the headers that elf(5) describes.
fn elf(bytes: &[u8]) -> Option<Elf> {
    const HEADER: usize = 64;
    /// The type of the program header that names a dynamic loader.
    const INTERPRETER: u32 = 3;
    let short = |at: usize| {
        bytes
            .get(at..)?
            .first_chunk()
            .map(|it| u16::from_le_bytes(*it))
    };
    let word = |at: usize| {
        bytes
            .get(at..)?
            .first_chunk()
            .map(|it| u32::from_le_bytes(*it))
    };
    let long = |at: usize| {
        bytes
            .get(at..)?
            .first_chunk()
            .map(|it| u64::from_le_bytes(*it))
    };
    if bytes.len() < HEADER || bytes[..6] != *b"\x7fELF\x02\x01" {
        return None;
    }
    let machine = match short(18)? {
        62 => "x86_64",
        183 => "aarch64",
        243 => "riscv64",
        _ => return None,
    };
    let table = usize::try_from(long(32)?).ok()?;
    let (size, count) = (usize::from(short(54)?), usize::from(short(56)?));
    let mut is_static = true;
    for index in 0..count {
        let at = index.checked_mul(size)?.checked_add(table)?;
        is_static &= word(at)? != INTERPRETER;
    }
    Some(Elf { machine, is_static })
}

/// Takes a file if it is a static program.
fn take(path: &Path) -> Option<Binary> {
    let bytes = std::fs::read(path).ok()?;
    let elf = elf(&bytes).filter(|elf| elf.is_static && bytes.len() <= SIZE_MAX)?;
    Some(Binary {
        machine: elf.machine,
        bytes,
    })
}

/// Finds the static program: beside this one, where cargo builds it, or this one itself.
pub(super) fn find() -> Result<Binary> {
    let own = std::env::current_exe().unwrap_or_default();
    let own = own.canonicalize().unwrap_or(own);
    find_for(&own)
}

fn find_for(own: &Path) -> Result<Binary> {
    let directory = own.parent().unwrap_or(Path::new("/"));
    // A test's program stands one directory deeper than cargo's own: target/release/deps.
    let candidates: [PathBuf; 4] = [
        directory.join(BESIDE),
        directory.join(BUILT),
        directory.join("..").join(BUILT),
        own.to_owned(),
    ];
    candidates.iter().find_map(|path| take(path)).ok_or_else(|| {
        let message = format!(
            "there is no static nasgauge to send to the server: build it with '{BUILD}' in nasgauge's source \
             directory, or put one named {BESIDE} into {}",
            directory.display()
        );
        Error::new(Phase::Plan, Kind::NotFound, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of one header of this type.
    fn program(machine: u16, kind: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&1_u16.to_le_bytes());
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    #[test]
    fn a_static_program_has_no_interpreter() {
        let found = |bytes: &[u8]| elf(bytes).map(|elf| (elf.machine, elf.is_static));
        assert_eq!(found(&program(62, 1)), Some(("x86_64", true)));
        assert_eq!(found(&program(62, 3)), Some(("x86_64", false)));
        assert_eq!(found(&program(183, 1)), Some(("aarch64", true)));
        assert_eq!(found(&program(40, 1)), None, "32-bit arm");
        assert_eq!(found(b"#!/bin/sh\n"), None);
        let mut wild = program(62, 1);
        wild[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(found(&wild), None);
        for length in 0..program(62, 1).len() {
            let _ = elf(&program(62, 1)[..length]);
        }
    }

    #[test]
    fn the_nearest_static_program_is_taken() {
        let base = tempfile::tempdir().expect("a directory");
        let own = base.path().join("release/nasgauge");
        std::fs::create_dir_all(own.parent().expect("one")).expect("made");
        std::fs::write(&own, program(62, 3)).expect("written");
        let error = find_for(&own).expect_err("none").to_string();
        assert!(error.contains(BUILD) && error.contains(BESIDE), "{error}");
        let built = base.path().join("x86_64-unknown-linux-gnu/release");
        std::fs::create_dir_all(&built).expect("made");
        std::fs::write(built.join("nasgauge"), program(62, 1)).expect("written");
        assert_eq!(find_for(&own).expect("built").machine, "x86_64");
        std::fs::write(base.path().join("release/nasgauge-agent"), program(183, 1))
            .expect("written");
        assert_eq!(find_for(&own).expect("beside").machine, "aarch64");
    }
}
