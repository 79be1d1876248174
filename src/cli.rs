//! The command line: arguments become plans, and outcomes become words and exit codes. One file a subcommand.
//!
//! Must not know: how anything is measured.

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::error::{Error, Kind, Result};

/// Writes to a standard stream. A reader that left early (`| head`, a closed terminal) is no error: panicking, as the
/// standard macros do, would end a run without removing what it made.
fn show(mut stream: impl std::io::Write, text: std::fmt::Arguments<'_>) {
    let _ = stream.write_fmt(text).and_then(|()| stream.flush());
}

macro_rules! print {
    ($($part:tt)*) => { $crate::cli::show(std::io::stdout(), format_args!($($part)*)) };
}
macro_rules! println {
    ($($part:tt)*) => { $crate::cli::show(std::io::stdout(), format_args!("{}\n", format_args!($($part)*))) };
}
macro_rules! eprint {
    ($($part:tt)*) => { $crate::cli::show(std::io::stderr(), format_args!($($part)*)) };
}
macro_rules! eprintln {
    ($($part:tt)*) => { $crate::cli::show(std::io::stderr(), format_args!("{}\n", format_args!($($part)*))) };
}

mod agent;
mod clean;
mod credentials;
#[cfg(feature = "embedded")]
mod demo;
mod diagnose;
mod import;
mod inspect;
mod net;
mod phase_args;
mod prepare;
mod progress;
mod recompute;
mod rerun;
mod run;
mod targets;
mod workloads;

/// Benchmarks storage over a network: the same workload on a RAM disk, files, NFS, SMB and iSCSI.
#[derive(Debug, Parser)]
#[command(
    name = "nasgauge",
    version,
    about,
    max_term_width = 100,
    propagate_version = true
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
struct Global {
    /// What standard output holds; progress and messages go to standard error.
    #[arg(long, global = true, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// No progress and no notes.
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Passwords for [host] headings: lines `username=`, `password=`, `domain=`; the file must be mode 0600.
    #[arg(long, global = true, value_name = "FILE")]
    credentials: Option<std::path::PathBuf>,
}

/// The form of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people.
    Table,
    /// The lines of summary.csv.
    Csv,
    /// The record.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the whole story on this machine, with servers that nasgauge starts and stops itself.
    #[cfg(feature = "embedded")]
    Demo(demo::DemoArgs),
    /// Find what a NAS offers: NFS exports, SMB shares, iSCSI LUNs, an iperf3 port, each as a URI to paste.
    Targets(targets::TargetsArgs),
    /// Measure workloads on one or more targets.
    Run(Box<run::RunArgs>),
    /// Measure what the network carries to an iperf3 server and back, apart from any storage.
    Net(Box<net::NetArgs>),
    /// Say what limits a target, by measuring its layers, or by figures that were measured already.
    Diagnose(diagnose::DiagnoseArgs),
    /// Compute rates again from what dd, cp, rsync, iperf, fio and others print, and say what does not fit.
    Recompute(recompute::RecomputeArgs),
    /// Take over results of other tools, with their settings.
    #[command(
        about = "Take over results of fio, iperf3, CrystalDiskMark, diskspd or elbencho, with their settings"
    )]
    Import(import::ImportArgs),
    /// Show what a target is and what was negotiated; nothing is written.
    Inspect(inspect::InspectArgs),
    /// Run the saved plan of a result directory again.
    Rerun(rerun::RerunArgs),
    /// Lay a test file once, for later runs.
    Prepare(prepare::PrepareArgs),
    /// List the workloads, or show one.
    Workloads(workloads::WorkloadsArgs),
    /// Remove what an interrupted run left on a target.
    Clean(clean::CleanArgs),
    /// Serve another computer's nasgauge on this one: facts, test ports, and the disks of allowed paths.
    Agent(agent::AgentArgs),
}

/// Runs the command line of this process and gives its exit code.
#[must_use]
pub fn main() -> u8 {
    let mut arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    if arguments
        .get(1)
        .is_some_and(|argument| argument == crate::fleet::child::ARGUMENT)
    {
        return match crate::fleet::child::serve() {
            Ok(()) => 0,
            Err(error) => fail(&error),
        };
    }
    for argument in arguments.iter_mut().skip(1) {
        underscores(argument);
    }
    match Cli::try_parse_from(arguments) {
        Ok(cli) => dispatch(cli).unwrap_or_else(|error| fail(&error)),
        Err(error) => {
            // Help and version are no failures; clap prints them to standard output.
            let _ = error.print();
            u8::try_from(error.exit_code()).unwrap_or(2)
        }
    }
}

/// Whether there is such a subcommand: advice never names one that there is not.
fn knows(name: &str) -> bool {
    use clap::CommandFactory;
    Cli::command().find_subcommand(name).is_some()
}

fn dispatch(cli: Cli) -> Result<u8> {
    let Cli { global, command } = cli;
    match command {
        #[cfg(feature = "embedded")]
        Command::Demo(args) => demo::main(&args, &global),
        Command::Targets(args) => targets::main(&args, &global),
        Command::Run(args) => run::main(*args, &global),
        Command::Net(args) => net::main(&args, &global),
        Command::Diagnose(args) => diagnose::main(&args, &global),
        Command::Recompute(args) => recompute::main(&args, &global),
        Command::Import(args) => import::main(&args, &global),
        Command::Inspect(args) => inspect::main(&args, &global),
        Command::Rerun(args) => rerun::main(&args, &global),
        Command::Prepare(args) => prepare::main(&args, &global),
        Command::Workloads(args) => workloads::main(&args),
        Command::Clean(args) => clean::main(&args, &global),
        Command::Agent(args) => agent::main(args),
    }
}

/// One clear sentence, and the exit code of CONTRACT: 2 when nothing was touched, 130 when stopped, else 1.
fn fail(error: &Error) -> u8 {
    eprintln!("nasgauge: {error}");
    match error.kind {
        Kind::Interrupted => 130,
        _ if error.before_anything() => 2,
        _ => 1,
    }
}

/// `--ramp_time` is `--ramp-time`.
fn underscores(argument: &mut std::ffi::OsString) {
    let Some(text) = argument.to_str().filter(|text| text.starts_with("--")) else {
        return;
    };
    let (flag, value) = text
        .split_once('=')
        .map_or((text, None), |(flag, value)| (flag, Some(value)));
    if flag.contains('_') {
        let flag = flag.replace('_', "-");
        *argument = value
            .map_or_else(|| flag.clone(), |value| format!("{flag}={value}"))
            .into();
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn underscores_in_flags_are_hyphens_but_values_stay() {
        let mut argument = "--ramp_time=a_b".into();
        underscores(&mut argument);
        assert_eq!(argument, "--ramp-time=a_b");
        let mut path = "my_file".into();
        underscores(&mut path);
        assert_eq!(path, "my_file");
    }
}
