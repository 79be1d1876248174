//! Everything that can go wrong at a target, met as a user meets it: through the program, on real servers.
//!
//! Each case asserts that the end comes in bounded time with one sentence that names phase and cause, that what was
//! measured before is on disk, that statuses and exit codes are CONTRACT's, that other targets of the run are still
//! measured, and that what nasgauge laid is gone wherever the server still answers. What holds in every case (no
//! panic, no secret anywhere, no headline figure in a row that failed) is checked by `harness` on each run's end.

#[path = "faults/access.rs"]
mod access;
#[path = "faults/garbage.rs"]
mod garbage;
#[path = "faults/harness.rs"]
mod harness;
#[path = "faults/ports.rs"]
mod ports;
#[path = "faults/server.rs"]
mod server;
#[path = "faults/servers_lost.rs"]
mod servers_lost;
#[path = "faults/signals.rs"]
mod signals;
#[path = "faults/space.rs"]
mod space;
#[path = "faults/targets.rs"]
mod targets;
#[path = "faults/vanished.rs"]
mod vanished;
