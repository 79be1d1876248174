//! Records as bytes: CSV for machines, tables for people, JSON for both.
//!
//! Pure but for the writers it is given. Sees only data; must not know how anything was measured.

pub mod aggregate;
pub mod csv;
pub mod ladder;
pub mod network;
pub mod recompute;
pub mod repeats;
pub mod table;

#[cfg(test)]
mod tests;
