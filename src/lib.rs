//! nasgauge tells the truth about storage over a network: the same workload on a RAM disk, files, NFS, SMB and
//! iSCSI, with honest statistics. Modules stand on floors and use lower ones only; `tests/architecture.rs` holds the table.

pub mod clock;
pub mod error;
pub mod op;
pub mod probe;
pub mod slots;
pub mod spec;
pub mod target;
pub mod units;
