//! Which Debian packages the real servers need, and which of their programs are missing here.
//!
//! Must not know: how a server is started. Nothing is installed here; `./demo` and `./test` do that.

use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Phase, Result};

/// A Debian package and the programs that are used of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Package {
    /// The package's name for apt.
    pub name: &'static str,
    /// The programs.
    pub programs: &'static [&'static str],
    /// A file that is no program and needed too.
    pub file: Option<&'static str>,
}

const fn package(name: &'static str, programs: &'static [&'static str]) -> Package {
    Package {
        name,
        programs,
        file: None,
    }
}

/// What the real servers and the sandbox need on Debian 12.
pub const NEEDED: &[Package] = &[
    package("nfs-ganesha", &["ganesha.nfsd"]),
    Package {
        name: "nfs-ganesha-vfs",
        programs: &[],
        file: Some("ganesha/libfsalvfs.so"),
    },
    package("rpcbind", &["rpcbind"]),
    package("samba", &["smbd"]),
    package("samba-common-bin", &["smbpasswd"]),
    package("tgt", &["tgtd", "tgtadm"]),
    package("iproute2", &["ip"]),
    package("util-linux", &["unshare", "setpriv", "setsid"]),
    package("mount", &["mount", "umount"]),
];

/// Where system programs live, also for a user whose PATH lacks the sbin directories.
const DIRECTORIES: &[&str] = &[
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];
/// Where libraries live.
const LIBRARIES: &[&str] = &["/usr/lib", "/usr/lib64"];

/// The full path of a program, if it is installed.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(DIRECTORIES.iter().map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

/// The full path of a program, or what to install.
pub(super) fn program(name: &str) -> Result<PathBuf> {
    find(name).ok_or_else(|| missing_error(&missing_of(|package| package.programs.contains(&name))))
}

/// The needed packages of which something is missing here.
#[must_use]
pub fn missing() -> Vec<&'static Package> {
    missing_of(|package| {
        package
            .programs
            .iter()
            .any(|program| find(program).is_none())
            || package.file.is_some_and(|file| !library(file))
    })
}

/// Fails with the line for apt when anything is missing.
pub fn check() -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(missing_error(&missing))
    }
}

fn missing_of(lacks: impl Fn(&Package) -> bool) -> Vec<&'static Package> {
    NEEDED.iter().filter(|package| lacks(package)).collect()
}

fn missing_error(packages: &[&Package]) -> Error {
    let names: Vec<&str> = packages.iter().map(|package| package.name).collect();
    let names = names.join(" ");
    Error::new(
        Phase::Plan,
        Kind::NotFound,
        format!(
            "the real servers are not all installed; install them with: \
             apt-get install --no-install-recommends {names} (or use the embedded servers)"
        ),
    )
}

/// Whether a library directory, or a directory in it (`x86_64-linux-gnu`), holds `file`.
fn library(file: &str) -> bool {
    LIBRARIES.iter().any(|directory| {
        let below = std::fs::read_dir(directory).into_iter().flatten().flatten();
        Path::new(directory).join(file).exists()
            || below
                .into_iter()
                .any(|entry| entry.path().join(file).exists())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs root and servers"]
    fn where_servers_are_installed_nothing_is_missing() {
        check().expect("all there");
    }

    #[test]
    fn what_is_missing_is_named_with_the_line_for_apt() {
        let error = missing_error(&[&NEEDED[0], &NEEDED[2]]);
        assert!(
            error
                .to_string()
                .contains("apt-get install --no-install-recommends nfs-ganesha rpcbind "),
            "{error}"
        );
        assert!(find("sh").is_some());
        assert!(find("no-such-program-here").is_none());
    }
}
