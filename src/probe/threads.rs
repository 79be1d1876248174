//! What each thread of a process did, from /proc/PID/task (`proc_pid_stat(5)`, Documentation/scheduler/sched-stats.rst).
//!
//! One full thread limits a program on a machine of many idle cores. Must not know: what the threads are for. Times
//! are nanoseconds, but for the split into user and system, which the kernel keeps in clock ticks.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::{line, names, some};

/// A thread's time since it began, or between two readings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Its name, at most 15 bytes as the kernel keeps it.
    pub name: String,
    /// Clock ticks in programs.
    pub user_ticks: u64,
    /// Clock ticks in the kernel.
    pub system_ticks: u64,
    /// Time on a core, in nanoseconds; None where the kernel keeps no such count.
    pub run_ns: Option<u64>,
    /// Time ready to run but waiting for a core, in nanoseconds.
    pub wait_ns: Option<u64>,
    /// The core that it last ran on.
    pub core: Option<u32>,
}

impl Thread {
    /// Reads the texts of `stat` and `schedstat`.
    #[must_use]
    pub fn parse(stat: &str, schedstat: Option<&str>) -> Option<Self> {
        // The name may hold anything, spaces and parentheses too.
        let (tid, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(')')?;
        // From field 3, the state, on.
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        let mut times = schedstat
            .unwrap_or_default()
            .split_ascii_whitespace()
            .map(|time| time.parse().ok());
        Some(Self {
            tid: tid.trim().parse().ok()?,
            name: name.to_owned(),
            user_ticks: field(14)?,
            system_ticks: field(15)?,
            run_ns: times.next().flatten(),
            wait_ns: times.next().flatten(),
            core: field(39).and_then(|core| u32::try_from(core).ok()),
        })
    }

    fn since(&self, earlier: &Self) -> Option<Self> {
        let take = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        Some(Self {
            user_ticks: self.user_ticks.checked_sub(earlier.user_ticks)?,
            system_ticks: self.system_ticks.checked_sub(earlier.system_ticks)?,
            run_ns: take(self.run_ns, earlier.run_ns),
            wait_ns: take(self.wait_ns, earlier.wait_ns),
            ..self.clone()
        })
    }
}

/// The threads of this process.
#[must_use]
pub fn read(root: &Path) -> Option<Vec<Thread>> {
    under(&root.join("proc/self"))
}

/// The threads of the process with that number; None when it is gone or not ours to look at.
#[must_use]
pub fn of(root: &Path, pid: u32) -> Option<Vec<Thread>> {
    under(&root.join(format!("proc/{pid}")))
}

fn under(process: &Path) -> Option<Vec<Thread>> {
    let tasks = process.join("task");
    let thread = |tid: &String| {
        let directory = tasks.join(tid);
        let schedstat = line(&directory.join("schedstat"));
        Thread::parse(&line(&directory.join("stat"))?, schedstat.as_deref())
    };
    let mut found: Vec<Thread> = names(&tasks).iter().filter_map(thread).collect();
    found.sort_by_key(|thread| thread.tid);
    some(found)
}

/// What the threads did since an earlier reading. One that began in between did all of its work since; one that has
/// ended is lost.
#[must_use]
pub fn since(now: &[Thread], earlier: &[Thread]) -> Vec<Thread> {
    let then = |tid| earlier.iter().find(|thread| thread.tid == tid);
    now.iter()
        .filter_map(|thread| match then(thread.tid) {
            Some(before) => thread.since(before),
            None => Some(thread.clone()),
        })
        .collect()
}

/// The thread that was longest on a core; None where the kernel does not count.
#[must_use]
pub fn busiest(threads: &[Thread]) -> Option<&Thread> {
    threads
        .iter()
        .filter(|thread| thread.run_ns.is_some())
        .max_by_key(|thread| thread.run_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    #[test]
    fn names_with_parentheses_and_times_are_read() {
        let stat = "91 (io (a) b) R 1 91 91 0 -1 4194304 1 2 3 4 77 33 0 0 20 0 1 0 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 3 0 0";
        let thread = Thread::parse(stat, Some("5000 400 12\n")).expect("a stat line");
        assert_eq!((thread.tid, thread.name.as_str()), (91, "io (a) b"));
        assert_eq!((thread.user_ticks, thread.system_ticks), (77, 33));
        assert_eq!((thread.run_ns, thread.wait_ns), (Some(5000), Some(400)));
        assert_eq!(thread.core, Some(3));
        let bare = Thread::parse(stat, None).expect("a stat line");
        assert_eq!((bare.run_ns, bare.wait_ns), (None, None));
        assert_eq!(Thread::parse("91 (x", None), None);
        assert_eq!(Thread::parse("", None), None);
    }

    #[test]
    fn only_what_was_done_since_counts() {
        let thread = |tid, run| Thread {
            tid,
            name: "w".into(),
            user_ticks: run,
            system_ticks: 0,
            run_ns: Some(run),
            wait_ns: None,
            core: None,
        };
        let passed = since(
            &[thread(1, 50), thread(3, 20)],
            &[thread(1, 45), thread(2, 9)],
        );
        let runs: Vec<_> = passed.iter().map(|one| (one.tid, one.run_ns)).collect();
        assert_eq!(runs, [(1, Some(5)), (3, Some(20))]);
        assert_eq!(busiest(&passed).map(|one| one.tid), Some(3));
    }

    #[test]
    fn threads_of_each_machine() {
        let vm = machines::tree("vm");
        assert_eq!(read(vm.path()).expect("captured").len(), 1);
        let nas = machines::tree("zfs-nas");
        let smbd = of(nas.path(), 4711).expect("composed");
        assert_eq!(smbd[1].name, "smbd_io");
        assert_eq!(of(nas.path(), 4712), None);
        assert_eq!(read(machines::tree("empty").path()), None);
    }

    #[test]
    fn this_process_has_threads_that_ran() {
        let own = read(Path::new("/")).expect("/proc is mounted");
        assert!(own.iter().any(|thread| thread.run_ns > Some(0)));
    }
}
