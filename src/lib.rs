//! nasgauge tells the truth about storage over a network: the same workload on a RAM disk, files, NFS, SMB and
//! iSCSI, with honest statistics. Modules stand on floors and use lower ones only; `tests/architecture.rs` holds the table.

pub mod agent;
pub mod catalogue;
pub mod cli;
pub mod clock;
pub mod discover;
pub mod engine;
pub mod error;
pub mod fleet;
pub mod guard;
pub mod import;
pub mod iperf3;
pub mod line;
pub mod network;
pub mod op;
pub mod pattern;
pub mod payload;
pub mod probe;
pub mod published;
pub mod recompute;
pub mod record;
pub mod report;
pub mod round_trip;
pub mod run;
pub mod servers;
pub mod slots;
pub mod spec;
pub mod stage;
pub mod stats;
pub mod target;
pub mod units;
pub mod verdict;
