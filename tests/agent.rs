//! The agent from both ends: what it serves and refuses, what hostile peers get, and that nothing of it is left.
//!
//! Plain tests run the program on this computer's loopback; the ignored ones need root and namespaces (`./test`).

#[path = "agent/harness.rs"]
mod harness;
#[path = "agent/hostile.rs"]
mod hostile;
#[path = "agent/kill.rs"]
mod kill;
#[path = "agent/paths.rs"]
mod paths;
#[path = "agent/ports.rs"]
mod ports;
#[path = "agent/remote.rs"]
mod remote;
