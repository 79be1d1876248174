//! A program runs again in namespaces of its own, where real servers can do no harm.
//!
//! Inside there is a network with nothing but `lo`, a private view of the mounts, fresh process numbers, an empty
//! `/run`, and copies of `/etc/passwd` and `/etc/group` with one more user, [`USER`], without whom smbd has nobody to
//! log in. The machine's own servers, ports, users and files are untouched. When the outer process ends, for whatever
//! reason, the kernel ends everything inside and forgets the mounts: nothing is left to clean up.
//!
//! How: `setpriv --pdeathsig KILL unshare … sh -c SCRIPT sandbox inside PROGRAM ARGS…`. The shell is process 1 inside:
//! it sets things up, starts `rpcbind`, runs the program and gives its exit code back. Ctrl-C in a terminal reaches
//! the program directly, since it stays in the terminal's foreground group; SIGTERM and SIGHUP to the outer process
//! (and SIGINT, when no terminal sent it) are handed on to it. Shell scripts do the same by
//! `sh src/servers/sandbox.sh enter PROGRAM ARGS…`.
//!
//! Must not know: what runs inside.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::packages;
use super::processes::{self, Process};
use crate::error::{Error, Kind, Phase, Result};

/// The user whom the sandbox adds.
pub const USER: &str = "bench";
/// Set inside to the namespaces that the sandbox was entered from.
const MARK: &str = "NASGAUGE_SANDBOX";
/// The namespaces that must differ from those of the mark.
const NAMESPACES: &[&str] = &["net", "mnt", "pid"];
/// The tools' arguments that make the namespaces; the script's `enter` has the same.
const NEW: &[&str] = &[
    "--pdeathsig",
    "KILL",
    "unshare",
    "--net",
    "--mount",
    "--propagation",
    "private",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
];
/// What process 1 does before the program starts.
const SCRIPT: &str = include_str!("sandbox.sh");

/// The namespaces of this program's own; see the module.
pub struct Sandbox;

impl Sandbox {
    /// Whether this process runs in a sandbox: by the mark, and by what the kernel says.
    #[must_use]
    pub fn inside() -> bool {
        std::env::var(MARK).is_ok_and(|mark| differs(&mark)) && only_loopback()
    }

    /// A directory inside the sandbox, in RAM, that vanishes with it.
    #[must_use]
    pub fn work_dir() -> PathBuf {
        PathBuf::from("/run/nasgauge")
    }

    /// Fails unless this process runs in a sandbox; what follows would touch the machine otherwise.
    pub(super) fn require() -> Result<()> {
        if Self::inside() {
            return Ok(());
        }
        Err(Error::safety(
            "real servers run only inside nasgauge's own sandbox, so that this machine stays untouched; \
             start them by ./demo --real or ./test",
        ))
    }

    /// Runs a program in a new sandbox and waits for it. Needs root.
    pub fn enter<S: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = S>,
    ) -> Result<ExitStatus> {
        let (tool, arguments) = Self::command(program.as_ref(), args)?;
        let failed = |error: &std::io::Error| {
            Error::io(Phase::Prepare, error, "run a program in new namespaces")
        };
        let asked = Asked::listen().map_err(|error| failed(&error))?;
        let mut child = Command::new(tool)
            .args(arguments)
            .env(MARK, mark())
            .spawn()
            .map_err(|error| failed(&error))?;
        loop {
            if let Some(status) = child.try_wait().map_err(|error| failed(&error))? {
                return Ok(status);
            }
            asked.hand_on(&child);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The command that [`Sandbox::enter`] runs, without the mark.
    fn command<S: AsRef<OsStr>>(
        program: &OsStr,
        args: impl IntoIterator<Item = S>,
    ) -> Result<(PathBuf, Vec<OsString>)> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::new(
                Phase::Plan,
                Kind::Denied,
                "the real servers need namespaces of their own, and those need root; \
                 run it as root (sudo), or use the embedded servers",
            ));
        }
        for tool in ["unshare", "ip", "mount"] {
            packages::program(tool)?;
        }
        let script = ["--", "sh", "-c", SCRIPT, "sandbox", "inside"];
        let mut line: Vec<OsString> = NEW.iter().chain(&script).map(OsString::from).collect();
        line.push(program.to_owned());
        line.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        Ok((packages::program("setpriv")?, line))
    }
}

/// A filesystem in RAM of a fixed size, to export and to fill up; unmounted on drop.
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Mounts one of `size` bytes (whole pages of 4 KiB) on a new directory inside the sandbox.
    pub fn mount(path: impl Into<PathBuf>, size: u64) -> Result<Self> {
        Sandbox::require()?;
        let path = path.into();
        let failed = |error: &std::io::Error| {
            let doing = format!("mount a filesystem in RAM on {}", path.display());
            Error::io(Phase::Prepare, error, &doing)
        };
        std::fs::create_dir(&path).map_err(|error| failed(&error))?;
        let mounted = Command::new(packages::program("mount")?)
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("mode=755,size={size}"),
                "tmpfs",
            ])
            .arg(&path)
            .status()
            .and_then(|status| match status.code() {
                Some(0) => Ok(()),
                _ => Err(std::io::Error::other("mount failed")),
            });
        mounted.map_err(|error| failed(&error))?;
        Ok(Self { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, since a server that still exports it must not keep the directory from going.
        let unmounted = packages::program("umount").is_ok_and(|umount| {
            let status = Command::new(umount).arg("--lazy").arg(&self.path).status();
            status.is_ok_and(|status| status.success())
        });
        if unmounted {
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

/// This process's namespaces, as the kernel names them: `net:[4026531840] mnt:[…] pid:[…]`.
fn mark() -> String {
    let links: Vec<String> = NAMESPACES.iter().map(|name| namespace(name)).collect();
    links.join(" ")
}

fn namespace(name: &str) -> String {
    std::fs::read_link(Path::new("/proc/self/ns").join(name))
        .map(|link| link.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Whether each of this process's namespaces is another one than `mark` has.
fn differs(mark: &str) -> bool {
    let outer: Vec<&str> = mark.split(' ').collect();
    outer.len() == NAMESPACES.len()
        && NAMESPACES.iter().zip(outer).all(|(name, outer)| {
            let own = namespace(name);
            !own.is_empty() && outer.starts_with(name) && own != outer
        })
}

/// Whether this network has no interface but `lo`.
fn only_loopback() -> bool {
    let Ok(table) = std::fs::read_to_string("/proc/net/dev") else {
        return false;
    };
    let names: Vec<&str> = table
        .lines()
        .skip(2)
        .filter_map(|line| line.split(':').next())
        .map(str::trim)
        .collect();
    names == ["lo"]
}

/// Signals that ask the outer process to stop, noted until they are handed on.
struct Asked {
    flags: Vec<(Signal, Arc<AtomicBool>)>,
    ids: Vec<signal_hook::SigId>,
}

impl Asked {
    fn listen() -> std::io::Result<Self> {
        let mut asked = Self {
            flags: Vec::new(),
            ids: Vec::new(),
        };
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let flag = Arc::new(AtomicBool::new(false));
            let id = signal_hook::flag::register(signal.as_raw(), Arc::clone(&flag))?;
            asked.flags.push((signal, flag));
            asked.ids.push(id);
        }
        Ok(asked)
    }

    /// Hands what came in on to the program inside.
    fn hand_on(&self, child: &Child) {
        for (signal, flag) in &self.flags {
            if !flag.swap(false, Ordering::Relaxed) {
                continue;
            }
            // A terminal's Ctrl-C has reached the whole foreground group already; twice would mean "at once".
            if *signal == Signal::INT && in_foreground() {
                continue;
            }
            for pid in programs_inside(child.id()) {
                let _ = kill_process(pid, *signal);
            }
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// Whether this process is in the foreground of a terminal on standard input.
fn in_foreground() -> bool {
    rustix::termios::tcgetpgrp(rustix::stdio::stdin())
        .is_ok_and(|group| own_group(&processes::all()) == Some(group.as_raw_nonzero().get()))
}

/// This process's group as /proc has it: 0 when it comes from outside the namespace, as in a sandbox in a sandbox.
fn own_group(all: &[Process]) -> Option<i32> {
    let own = std::process::id().cast_signed();
    all.iter()
        .find(|process| process.pid == own)
        .map(|process| process.group)
}

/// The children of process 1 inside that share this process's group: the program, but no server, since each server
/// has a group of its own.
fn programs_inside(unshare: u32) -> Vec<Pid> {
    let all = processes::all();
    let own = own_group(&all);
    let below = |parent: i32| {
        all.iter()
            .filter(move |process| process.parent == parent && Some(process.group) == own)
            .map(|process| process.pid)
    };
    below(unshare.cast_signed())
        .flat_map(below)
        .filter_map(Pid::from_raw)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_alone_does_not_make_a_sandbox() {
        assert!(!differs(&mark()), "these are our own namespaces");
        assert!(!differs(""));
        assert!(!differs("net:[1] mnt:[2]"));
        assert!(differs("net:[1] mnt:[2] pid:[3]"));
    }

    #[test]
    fn the_script_makes_the_same_namespaces() {
        assert!(SCRIPT.contains(&NEW.join(" ")));
        for name in NAMESPACES {
            assert!(
                SCRIPT.contains(&format!("readlink /proc/self/ns/{name}")),
                "{name}"
            );
        }
        assert!(SCRIPT.contains(MARK) && SCRIPT.contains(&format!("'^{USER}:'")));
    }

    #[test]
    #[ignore = "needs root and servers"]
    fn a_disk_is_full_at_its_size_and_goes_with_its_drop() {
        let path = Sandbox::work_dir().join("test-disk");
        let disk = Disk::mount(&path, 1 << 20).expect("needs the sandbox: run ./test");
        let full = std::fs::write(disk.path().join("a"), vec![1; (1 << 20) + 1]);
        let full = full.expect_err("too much");
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        drop(disk);
        assert!(!path.exists());
    }

    #[test]
    #[ignore = "needs root and servers"]
    fn who_is_asked_to_stop_hands_it_on_and_waits() {
        let shared = tempfile::tempdir().expect("new");
        let ready = shared.path().join("ready");
        let script = "trap 'exit 9' TERM; touch \"$0\"; sleep 60 & wait";
        let inside = std::thread::spawn({
            let ready = ready.clone();
            move || Sandbox::enter("sh", ["-c".as_ref(), script.as_ref(), ready.as_os_str()])
        });
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while !ready.exists() {
            assert!(std::time::Instant::now() < deadline, "it did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        kill_process(rustix::process::getpid(), Signal::TERM).expect("ourselves");
        let status = inside.join().expect("no panic").expect("ran");
        assert_eq!(status.code(), Some(9));
    }

    #[test]
    #[ignore = "needs root and servers"]
    fn inside_it_is_lonely_and_outside_nothing_is_left() {
        let mounts = || std::fs::read_to_string("/proc/self/mounts").expect("readable");
        let before = mounts();
        let script = "test \"$(id -un bench)\" = bench && test $$ -lt 100 && exit 7";
        let status = Sandbox::enter("sh", ["-c", script]).expect("runs");
        assert_eq!(status.code(), Some(7));
        assert_eq!(before, mounts());
    }
}
