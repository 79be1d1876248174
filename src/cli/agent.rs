//! `nasgauge agent`: serves whoever holds its standard input and output, on the server's side.

use std::path::PathBuf;

use clap::Args;

use crate::agent::{self, Permissions};
use crate::error::Result;

/// Options of `nasgauge agent`.
#[derive(Debug, Args)]
#[command(
    after_help = "Not run by hand: another nasgauge starts it on the server, as in\n  \
                        nasgauge net nas --agent \"ssh admin@nas nasgauge agent\""
)]
pub(super) struct AgentArgs {
    /// A directory, file or block device that it may use; no other path is touched. Can be given several times.
    #[arg(long, value_name = "PATH")]
    allow: Vec<PathBuf>,
    /// Lay test files in the allowed directories; they have no names, and are gone when the test is.
    #[arg(long)]
    allow_write: bool,
    /// Drop this computer's page cache when asked to; needs root.
    #[arg(long)]
    allow_drop_caches: bool,
    /// Unlink the program's own file and directory: it was sent here for this run.
    #[arg(long, hide = true)]
    remove_itself: bool,
}

pub(super) fn main(args: AgentArgs) -> Result<u8> {
    if args.remove_itself {
        agent::remove_itself();
    }
    let permissions = Permissions {
        paths: args.allow,
        write: args.allow_write,
        drop_caches: args.allow_drop_caches,
    };
    agent::serve(&permissions).map(|()| 0)
}
