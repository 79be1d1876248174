//! One measured ceiling each: what a layer between this computer's memory and the server's disks carries by itself.
//!
//! Read first: [`round_trip`] measures what requests and answers carry. A stage starts workers by the fleet, as any run
//! does, and gives numbers; what they mean together is decided above.
//!
//! Must not know: plans, rows, verdicts, what users asked for. Rates are bytes per second, times nanoseconds.

pub mod round_trip;
