//! Whoever kills a laboratory leaves nothing of it on the machine.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nasgauge::servers::processes;
use rustix::process::{Pid, Signal, kill_process};

use super::cgroup;
use super::lab::run;

/// How long a laboratory may need until it diagnoses, and until it is gone.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the machine has of laboratories: each thing a line.
fn things() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut add = |what: &str, text: &str| {
        all.extend(text.lines().map(|line| format!("{what}: {line}")));
    };
    add("loop device", &run(Command::new("losetup").arg("--all")));
    add("limit", &cgroup::limits());
    add("group", &cgroup::groups());
    add("network", &run(Command::new("ip").args(["netns", "list"])));
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("proc");
    add("mount", &mounts);
    let processes = processes::all();
    let lines: Vec<String> = processes
        .iter()
        .filter(|process| process.lives())
        .map(|process| {
            let line = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            format!("{} {line}", process.pid)
        })
        .collect();
    add("process", &lines.join("\n"));
    let books = std::fs::read_dir(std::env::temp_dir()).expect("a place for temporary files");
    let books = books
        .flatten()
        .map(|entry| entry.path().display().to_string());
    let books: Vec<String> = books.filter(|path| path.contains("nasgauge-lab")).collect();
    add("book", &books.join("\n"));
    // Dirty limits of loop devices.
    for entry in std::fs::read_dir("/sys/class/bdi")
        .expect("sysfs")
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let strict = std::fs::read_to_string(entry.path().join("strict_limit"));
        let ratio = std::fs::read_to_string(entry.path().join("max_ratio"));
        if let (true, Ok(strict), Ok(ratio)) = (name.starts_with("7:"), strict, ratio)
            && (strict.trim() != "0" || ratio.trim() != "100")
        {
            add("dirty limit", &name);
        }
    }
    all
}

/// Waits until what is there fulfils a condition; the last look where it does not.
fn wait_for(reached: impl Fn(&BTreeSet<String>) -> bool) -> Result<(), BTreeSet<String>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = things();
        if reached(&now) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(now);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A laboratory in a sandbox of its own, below a guard of its own.
fn start() -> Child {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    Command::new("sh")
        .arg(root.join("tests/lab/guard"))
        .arg("sh")
        .arg(root.join("src/servers/sandbox.sh"))
        .arg("enter")
        .arg(std::env::current_exe().expect("this test"))
        .args([
            "every_verdict_is_true",
            "--ignored",
            "--exact",
            "--nocapture",
        ])
        .env("NASGAUGE_LAB_CHOSEN", "1")
        .env("NASGAUGE_LAB_NAMES", "raid5")
        .env("NASGAUGE_LAB_WITH", "agent")
        .env("NASGAUGE_LAB_PROTOCOL", "nfs")
        .env("NASGAUGE_LAB_RESULTS", "")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell")
}

#[test]
#[ignore = "needs root and servers"]
fn a_killed_laboratory_leaves_nothing() {
    let _alone = super::alone();
    // Its own mounts are here before, so that they are no difference.
    cgroup::limits();
    let before = things();
    for whom in ["the guard's shell", "the sandbox"] {
        let mut child = start();
        let diagnoses = |now: &BTreeSet<String>| {
            let limits = now
                .iter()
                .filter(|line| line.starts_with("limit: "))
                .count();
            let agent = now
                .iter()
                .any(|line| line.starts_with("process: ") && line.contains(" agent --allow "));
            limits >= 4 && agent
        };
        wait_for(diagnoses).unwrap_or_else(|now| panic!("it does not diagnose: {now:#?}"));
        let shell = child.id().cast_signed();
        let victim = if whom == "the sandbox" {
            let below = processes::all();
            let found = below
                .iter()
                .find(|process| process.parent == shell && names(process.pid, "unshare"));
            found.expect("the sandbox's first process").pid
        } else {
            shell
        };
        kill_process(Pid::from_raw(victim).expect("a process"), Signal::KILL).expect("ours");
        child.wait().expect("our child");
        wait_for(|now| *now == before).unwrap_or_else(|now| {
            let left: Vec<_> = now.symmetric_difference(&before).collect();
            panic!("{whom} was killed, and this is left or gone: {left:#?}")
        });
    }
}

/// Whether a process runs this program for somebody: `unshare` with its namespaces.
fn names(pid: i32, program: &str) -> bool {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split('\0')
        .next()
        .is_some_and(|first| first.ends_with(program))
        && line.contains("--kill-child")
}
