//! What the user asked for, as data: target URIs, workloads, and the plan made of them.
//!
//! Pure: no I/O, no clock, no threads. `File` forms have every key optional; a `Plan` is complete.

pub mod diagnose;
pub mod network;
pub mod plan;
pub mod repeats;
pub mod uri;
pub mod workload;
