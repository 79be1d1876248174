//! A measured test goes before other work on the same machine.
//!
//! The kernel shares the processors out between sessions first (autogroups), so that a niceness within one session says
//! nothing to a build in another: the session itself must be favoured.

use std::process::{Child, Command, Stdio};
use std::sync::Once;

/// Set where several laboratories run at a time on a machine that has nothing else to do.
const BESIDE: &str = "NASGAUGE_LAB_BESIDE";

/// Makes this process, and what it starts, a session of its own with the highest share; once, however often called. Beside
/// another laboratory all sessions are alike: two favoured ones would leave the kernel's workers, who read what the other's
/// disks hold, nothing for as long as both are busy (10 of 60 MB/s were seen for 2.5 s).
pub fn raise() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Refused to the leader of a session, who has what this is for.
        let _ = rustix::process::setsid();
        if std::env::var_os(BESIDE).is_some_and(|value| !value.is_empty()) {
            return;
        }
        match std::fs::write("/proc/self/autogroup", "-19") {
            Ok(()) => {}
            // A kernel without autogroups shares out by threads.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => panic!("/proc/self/autogroup: {error}"),
        }
    });
}

/// Sessions share the processors out first: in the test's own, which is favoured, even such a loop would leave the kernel's
/// workers, those of loop devices among them, a hundredth of a processor.
const LOOP: &str = "echo 19 2> /dev/null > /proc/self/autogroup; while :; do :; done";

/// Keeps every processor from sleeping while it lives, by work that gives way to all other. In a virtual machine an idle
/// processor takes long to wake, so that one request alone would see a longer way than many together.
pub struct Awake(Vec<Child>);

impl Awake {
    /// One loop on each processor.
    pub fn keep() -> Self {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = |processor: usize| {
            Command::new("setsid")
                .args(["chrt", "--idle", "0", "taskset", "--cpu-list"])
                .arg(processor.to_string())
                .args(["sh", "-c", LOOP])
                .stdin(Stdio::null())
                .spawn()
                .expect("setsid, chrt and taskset, of util-linux")
        };
        Self((0..count).map(spin).collect())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
