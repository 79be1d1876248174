//! What request and answer carry at a block size and a depth: the words that are spoken, and what theory expects.
//!
//! Read first. The rung between the network and a protocol: it moves blocks as a protocol does, but nothing behind the
//! wire does any work. [`wire`] is the probe's own protocol, which `servers::round_trip` answers and `target::tcp`
//! asks; [`theory`] says what the line's rate and the time of a round trip allow.
//!
//! Pure. Must not know: sockets, clocks, other protocols.

pub mod theory;
pub mod wire;
