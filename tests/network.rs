//! What the network layers say is true on networks whose limits are known.
//!
//! All but the plainest need root and the sandbox of `src/servers/sandbox.sh` (run `./test`, which enters it).
//! `lab` makes the networks; `laboratory` checks them with programs that are not ours;
//! `round_trip` holds the probe against theory. Tables, and rates to half a percent, are for `./test --full`; the plain
//! run judges rates by [`lab::calm::undisturbed`].

#[path = "network/flows.rs"]
mod flows;
#[path = "support/full.rs"]
mod full;
#[path = "lab/lab.rs"]
mod lab;
#[path = "network/laboratory.rs"]
mod laboratory;
#[path = "network/round_trip.rs"]
mod round_trip;
