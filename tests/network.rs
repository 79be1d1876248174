//! What the network layers say is true on networks whose limits are known.
//!
//! All but the plainest need root and the sandbox of `src/servers/sandbox.sh` (run `./test`, which enters it).
//! `lab` makes the networks; `laboratory` checks them with programs that are not ours.

#[path = "network/flows.rs"]
mod flows;
#[path = "lab/lab.rs"]
mod lab;
#[path = "network/laboratory.rs"]
mod laboratory;
