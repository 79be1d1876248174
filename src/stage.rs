//! One measured ceiling each: what a layer between this computer's memory and the server's disks carries by itself.
//!
//! Read first: [`network`] measures what TCP carries, [`round_trip`] what requests and answers carry. A stage starts workers
//! by the fleet, as any run does, and gives numbers; what they mean together is decided above.
//!
//! Must not know: plans, rows, verdicts, what users asked for.

pub mod network;
pub mod round_trip;
