//! Every protocol that stores keeps the same promises: what is written comes back byte for byte, numbers add up, a
//! user's data stays as it was, and nothing is left behind.
//!
//! Plain tests use the servers inside this process and this computer's files; the ignored ones need root, the real
//! servers and the sandbox of `src/servers/sandbox.sh` (run `./test`, which enters it). `lab` holds the places to test
//! on, `client` drives sessions as the engine does, `program` runs the binary as a user does.

#![cfg(all(feature = "embedded", feature = "smb", feature = "iscsi"))]

#[path = "conformance/client.rs"]
mod client;
#[path = "conformance/counters.rs"]
mod counters;
#[path = "conformance/demo.rs"]
mod demo;
#[path = "conformance/devices.rs"]
mod devices;
#[path = "conformance/lab.rs"]
mod lab;
#[path = "conformance/names.rs"]
mod names;
#[path = "conformance/program.rs"]
mod program;
#[path = "conformance/runs.rs"]
mod runs;
#[path = "conformance/sessions.rs"]
mod sessions;
#[path = "conformance/small.rs"]
mod small;
#[path = "conformance/targets.rs"]
mod targets;
#[path = "conformance/users.rs"]
mod users;
#[path = "conformance/wide.rs"]
mod wide;
