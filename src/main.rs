//! nasgauge.
fn main() {}
