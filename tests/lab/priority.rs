//! A measured test goes before other work on the same machine.
//!
//! The kernel shares the processors out between sessions first (autogroups), so that a niceness within one session says
//! nothing to a build in another: the session itself must be favoured.

use std::sync::Once;

/// Makes this process, and what it starts, a session of its own with the highest share; once, however often called.
pub fn raise() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Refused to the leader of a session, who has what this is for.
        let _ = rustix::process::setsid();
        match std::fs::write("/proc/self/autogroup", "-19") {
            Ok(()) => {}
            // A kernel without autogroups shares out by threads.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => panic!("/proc/self/autogroup: {error}"),
        }
    });
}
