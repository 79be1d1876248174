//! Whether a test has all the time it wants (`./test --full`), or shares a quarter of an hour with all others.
//!
//! The plain run decides on other people's machines, whose processors are taken away for parts of a second and shared
//! with builds. It holds the same kinds of checks, on less, by what such a machine can't change.

/// True in `./test --full`.
pub fn full() -> bool {
    std::env::var_os("NASGAUGE_FULL_TESTS").is_some()
}
