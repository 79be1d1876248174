//! `nasgauge agent`: serves whoever holds its standard input and output, on the server's side.

use clap::Args;

use crate::agent::{self, Permissions};
use crate::error::Result;

/// Options of `nasgauge agent`.
#[derive(Debug, Args)]
#[command(after_help = "Not run by hand: another nasgauge starts it on the server, as in\n  \
                        nasgauge net nas --agent \"ssh admin@nas nasgauge agent\"")]
pub(super) struct AgentArgs {}

pub(super) fn main(_args: AgentArgs) -> Result<u8> {
    agent::serve(Permissions::default()).map(|()| 0)
}
