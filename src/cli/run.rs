//! `nasgauge run`: workloads on targets.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;

use super::phase_args::PhaseArgs;
use super::progress::Show;
use super::{Format, Global, credentials};
use crate::error::{Error, Result};
use crate::report;
use crate::run::{self, Out, Outcome, Settings};
use crate::spec::plan::{LONG_RUN, Plan, SETTLE};
use crate::spec::repeats::Repeats;
use crate::spec::uri::TargetSpec;
use crate::spec::workload::Workload;
use crate::units::{Bytes, Nanos, SECOND};

/// What runs when nothing is named: sequential and random, reads and writes.
const DEFAULT: &[&str] = &[
    "seq-read-1m",
    "seq-write-1m",
    "rand-read-4k-q32",
    "rand-write-4k-q32",
];

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Names of workloads, or paths of workload files; without any, sequential 1 MiB and random 4 KiB reads and writes
    workloads: Vec<String>,
    /// A path, or a URI: ram: file: block: nfs:// smb:// iscsi:// null: sim: (may be repeated)
    #[arg(long, short, value_name = "URI")]
    target: Vec<String>,
    #[command(flatten)]
    phase: PhaseArgs,
    /// How often each workload runs on each target (default: as the workload says); 'auto' goes on until the 95 %
    /// interval of each rate is within 2 % of its mean, at least 5 and at most 15 times
    #[arg(long, value_name = "N|auto")]
    repeats: Option<Repeats>,
    /// Rest after a measurement that wrote, before the next, so that late writing of the one slows not the other; writes
    /// that the workload left unflushed are brought to storage first. Memory has no rest
    #[arg(long, value_name = "TIME", default_value_t = SETTLE)]
    settle: Nanos,
    /// The result directory; without it, a new one in ./results
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Read this file of yours (or 'device') instead of laying one; nothing is written to it
    #[arg(long, value_name = "PATH")]
    read_existing: Option<String>,
    /// Leave the test file for the next run
    #[arg(long)]
    keep: bool,
    /// The server's memory: smaller sizes than twice of it are marked as cached
    #[arg(long, value_name = "SIZE")]
    server_ram: Option<Bytes>,
    /// Refuse a plan that writes more than this to one target
    #[arg(long, value_name = "SIZE")]
    max_write: Option<Bytes>,
    /// Allow writing over the content of the device with this serial number
    #[arg(long, value_name = "SERIAL")]
    destroy: Option<String>,
    /// Spacing of interval samples
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Nanos,
    /// Longest wait for a connection
    #[arg(long, value_name = "TIME", default_value = "10s")]
    connect_timeout: Nanos,
    /// Longest time without progress; then the server counts as lost
    #[arg(long, value_name = "TIME", default_value = "60s")]
    timeout: Nanos,
    /// Seed of the access patterns
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Show the plan and end
    #[arg(long)]
    dry_run: bool,
    /// Agree to a run of over a day
    #[arg(long)]
    yes: bool,
}

/// The command.
pub(super) fn main(args: RunArgs, global: &Global) -> Result<u8> {
    let (dry_run, yes, out) = (args.dry_run, args.yes, args.out.clone());
    let plan = plan_of(args)?;
    plan.validate()?;
    if dry_run {
        println!("{}", describe(&plan));
        return Ok(0);
    }
    let longest = plan.duration(plan.repeats.most());
    if longest.0 > LONG_RUN.0 && !yes {
        return Err(Error::usage(format!(
            "this plan measures for {}{:.1} days; add --yes if that is meant",
            if plan.repeats == Repeats::Auto {
                "up to "
            } else {
                ""
            },
            longest.seconds() / 86_400.0
        )));
    }
    conduct(&plan, out, global)
}

fn plan_of(args: RunArgs) -> Result<Plan> {
    if args.target.is_empty() {
        return Err(Error::usage(
            "no target; add --target URI, such as --target nfs://nas/export/dir or --target /mnt/nas",
        ));
    }
    let overrides = args.phase.keys()?;
    let workloads = if args.workloads.is_empty() && args.phase.describes_a_workload() {
        let phase = overrides.resolve("the workload flags")?;
        vec![Workload {
            name: phase.rw.key().to_owned(),
            description: "ad hoc".into(),
            repeats: Repeats::ONCE,
            phases: vec![phase],
        }]
    } else {
        let default = DEFAULT.iter().map(ToString::to_string).collect();
        let names: Vec<String> = if args.workloads.is_empty() {
            default
        } else {
            args.workloads
        };
        names
            .iter()
            .map(|name| crate::catalogue::load(name, &overrides))
            .collect::<Result<_>>()?
    };
    let name = match workloads.as_slice() {
        [one] => one.name.clone(),
        _ => "run".to_owned(),
    };
    let repeats = args.repeats.unwrap_or_else(|| {
        workloads
            .iter()
            .map(|workload| workload.repeats)
            .fold(Repeats::ONCE, Repeats::or_more)
    });
    Ok(Plan {
        repeats,
        settle: args.settle,
        interval: args.interval,
        connect_timeout: args.connect_timeout,
        io_timeout: args.timeout,
        seed: args.seed,
        keep: args.keep,
        read_existing: args.read_existing,
        server_ram: args.server_ram,
        max_write: args.max_write,
        destroy: args.destroy,
        ..Plan::new(&name, args.target, workloads)
    })
}

/// The plan in words: what will be read and written where, and for how long at least.
pub(super) fn describe(plan: &Plan) -> String {
    let round = plan.round(1);
    let size = Bytes(plan.file_size()).both();
    let (least, most) = (plan.repeats.least(), plan.repeats.most());
    let cells = |rounds: u32| (round.len() * rounds as usize).to_string();
    let time = range(
        &rounded(plan.duration(least)).to_string(),
        &rounded(plan.duration(most)).to_string(),
    );
    let data = match (plan.file_size(), plan.small_files()) {
        (_, None) => format!("test file {size}"),
        (0, Some(small)) => small_text(small),
        (_, Some(small)) => format!("test file {size} and {}", small_text(small)),
    };
    let what = match (&plan.read_existing, plan.write_bytes()) {
        (Some(path), _) => format!("reading {path} only; nothing is written"),
        (None, Some(bytes)) => {
            format!("{data}, at most {} written, on each of:", bytes.both())
        }
        (None, None) => format!("{data}, overwritten as often as the time allows, on each of:"),
    };
    let mut text = format!(
        "plan: {} measurements, {}; {what}",
        range(&cells(least), &cells(most)),
        if plan.duration(most).0 == 0 {
            "as long as their bytes and files take".to_owned()
        } else {
            format!("{time} of measuring and ramp")
        },
    );
    for target in &plan.targets {
        text.push_str(&format!("\n  {target}"));
    }
    let names: Vec<String> = round
        .iter()
        .filter(|cell| cell.target == 0)
        .map(|cell| plan.cell_name(*cell))
        .collect();
    text.push_str(&format!(
        "\nworkloads, {} repeat(s): {}",
        plan.repeats,
        names.join(", ")
    ));
    if plan.settle.0 > 0 && plan.writes() {
        text.push_str(&format!(
            "\nresting {} after each measurement that writes to storage",
            plan.settle
        ));
    }
    text
}

/// Small files in words: how many at most, and what they take.
fn small_text((count, room): (u32, u64)) -> String {
    format!(
        "up to {count} small files (room for {}) in a new directory nasgauge-RUN",
        Bytes(room).both()
    )
}

/// Two figures, or one where both are the same.
fn range(least: &str, most: &str) -> String {
    if least == most {
        least.to_owned()
    } else {
        format!("{least} to {most}")
    }
}

/// Whole seconds; whole milliseconds below one.
const fn rounded(time: Nanos) -> Nanos {
    let unit = if time.0 < SECOND {
        SECOND / 1000
    } else {
        SECOND
    };
    Nanos(time.0 / unit * unit)
}

/// Runs a plan, shows it, and gives the exit code.
pub(super) fn conduct(plan: &Plan, out: Option<PathBuf>, global: &Global) -> Result<u8> {
    let mut secrets = |spec: &TargetSpec| credentials::secret(spec, global.credentials.as_deref());
    let outcome = perform(plan, out, global, &mut secrets)?;
    Ok(outcome.exit_code())
}

/// Runs a plan and prints its rows.
pub(super) fn perform(
    plan: &Plan,
    out: Option<PathBuf>,
    global: &Global,
    secrets: &mut dyn FnMut(&TargetSpec) -> Result<crate::target::Secret>,
) -> Result<Outcome> {
    let out = out.map_or_else(|| Out::Below("results".into()), Out::Exactly);
    let mut show = Show::new(global.quiet);
    run::Watch::note(&mut show, &describe(plan));
    let mut settings = Settings {
        out,
        secrets,
        stop: stop_on_signals()?,
    };
    let outcome = run::run(plan, &mut settings, &mut show)?;
    drop(show);
    print_rows(&outcome, plan.repeats, global)?;
    for sentence in &outcome.left {
        eprintln!("nasgauge: {sentence}");
    }
    Ok(outcome)
}

fn print_rows(outcome: &Outcome, repeats: Repeats, global: &Global) -> Result<()> {
    match global.format {
        Format::Table => {
            print!("{}", report::table::rows(&outcome.rows));
            print!("{}", report::repeats::sentences(&outcome.rows, repeats));
        }
        Format::Csv => {
            let file = outcome.directory.join("summary.csv");
            print!("{}", read(&file)?);
        }
        Format::Json => println!("{}", read(&outcome.directory.join("record.json"))?),
    }
    Ok(())
}

pub(super) fn read(path: &std::path::Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Error::io(
            crate::error::Phase::Cleanup,
            &error,
            &format!("read {}", path.display()),
        )
    })
}

/// A flag that SIGINT, SIGTERM and a closing terminal set; a second signal ends the program at once.
pub(super) fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    // Under nohup the terminal's end is not ours.
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Error::usage(format!("signals can't be caught: {error}")))?;
    }
    Ok(stop)
}

/// Whether this process was started with a signal ignored, by the kernel's mask.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}
