//! `nasgauge inspect`: what a target is; nothing is written.

use clap::Args;

use super::{Format, Global, credentials};
use crate::error::Result;
use crate::fleet;
use crate::guard;
use crate::spec::uri::TargetSpec;
use crate::target::{self, Control, Login, Secret};
use crate::units::Bytes;

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// A path or a URI
    target: String,
}

/// A login with the timeouts of short commands.
pub(super) fn login(text: &str, global: &Global) -> Result<Login> {
    let spec = TargetSpec::parse(text)?;
    target::check(&spec)?;
    let secret = match &spec.user {
        Some(_) => credentials::secret(&spec, global.credentials.as_deref())?,
        None => Secret::default(),
    };
    Ok(Login {
        spec,
        secret,
        connect_timeout_ms: 10_000,
        io_timeout_ms: 60_000,
    })
}

/// The command.
pub(super) fn main(args: &InspectArgs, global: &Global) -> Result<u8> {
    let login = login(&args.target, global)?;
    let mut control = fleet::control(&login)?;
    let mut facts = match &mut control {
        Control::Files(files) => files.facts(),
        Control::Device(device) => device.facts(),
        Control::Volatile(volatile) => volatile.facts(),
    }
    .map_err(|error| error.at(&args.target))?;
    let leftovers = guard::leftovers(&mut control).map_err(|error| error.at(&args.target))?;
    let caps = target::find(&login.spec)?.caps;
    if let Some(ceiling) = caps(&login.spec).ceiling {
        let line = ("ceiling".into(), format!("run with {ceiling} first"));
        facts.lines.push(line);
    }
    if global.format == Format::Json {
        println!(
            "{}",
            serde_json::to_string_pretty(&facts).unwrap_or_default()
        );
        return Ok(0);
    }
    println!("{}", args.target);
    for (label, value) in &facts.lines {
        println!("  {label:<22} {value}");
    }
    if let Some(server) = &facts.server {
        println!("  {:<22} {server}", "server");
    }
    if let Some(free) = facts.free_bytes {
        println!("  {:<22} {}", "free space", Bytes(free).both());
    }
    for leftover in &leftovers {
        let manifest = &leftover.manifest;
        println!(
            "  {:<22} {} of {} ({})",
            "nasgauge test data",
            Bytes(manifest.size),
            manifest.created_utc,
            leftover.name
        );
    }
    Ok(0)
}
