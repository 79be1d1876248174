//! The `nasgauge` command: parse, dispatch, exit code.

use std::process::ExitCode;

/// glibc's allocator costs the client libraries half of their speed: they allocate a frame per operation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(nasgauge::cli::main())
}
