//! One measured ceiling each: what a layer between this computer's memory and the server's disks carries by itself.
//!
//! Read first: [`network`] measures what TCP carries. A stage gives numbers; what they mean together is decided above.
//!
//! Must not know: plans, rows, verdicts, what users asked for.

pub mod network;
