//! `nasgauge diagnose`: what limits a target, by measuring its layers, or by figures that somebody has measured already.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::progress::Show;
use super::run::{read, stop_on_signals};
use super::{Format, Global, credentials};
use crate::error::{Error, Result};
use crate::import::cases::publication;
use crate::op::Direction;
use crate::published::Published;
use crate::recompute::Writing;
use crate::report::ladder;
use crate::run::diagnose::{Diagnosis, run};
use crate::run::{Out, Settings, Watch};
use crate::spec::diagnose::{DIAGNOSE_PLAN_VERSION, DiagnosePlan, Work};
use crate::spec::network::Host;
use crate::spec::uri::TargetSpec;
use crate::spec::workload::PhaseFile;
use crate::units::{Bytes, Nanos, SECOND};

mod place;

/// What is diagnosed where nothing is named: one large file, copied to the NAS and from it.
const DEFAULT: &[&str] = &["seq-write-1m", "seq-read-1m"];
/// Most bytes of the test file, and of all that is written.
const SIZE: (Bytes, Bytes) = (Bytes(512 << 20), Bytes(4 << 30));
const WRITE: (Bytes, Bytes) = (Bytes(4 << 30), Bytes(16 << 30));

/// Arguments of `diagnose`.
#[derive(Debug, Args)]
pub(super) struct DiagnoseArgs {
    /// A path (a network mount is recognised), or a URI: nfs:// smb:// iscsi:// file: block:
    #[arg(value_name = "TARGET", conflicts_with = "target")]
    place: Option<String>,
    /// The same
    #[arg(long, short, value_name = "URI")]
    target: Option<String>,
    /// A share of the same server that lies in its memory: what the protocol carries without disks
    #[arg(long, value_name = "URI")]
    ram_target: Option<String>,
    /// An iperf3 server on the NAS; without it, port 5201 of the target's server if one answers there
    #[arg(long, value_name = "HOST[:PORT]")]
    net: Option<String>,
    /// A command whose input and output reach 'nasgauge agent' on the server, or ssh:[USER@]HOST to send one there
    #[arg(long, value_name = "CMD")]
    agent: Option<String>,
    /// Where the share lies on the server, for the agent: a directory; the file or device of a LUN
    #[arg(long, value_name = "PATH")]
    server_path: Option<String>,
    /// Names of workloads, or paths of workload files; without any, sequential 1 MiB writes and reads
    #[arg(long, short, value_name = "NAME")]
    workload: Vec<String>,
    /// Only this direction of the workloads
    #[arg(long, value_enum, default_value_t = Ways::Both)]
    direction: Ways,
    /// The server's memory: a test file of twice its size is known to come from the disks
    #[arg(long, value_name = "SIZE")]
    server_ram: Option<Bytes>,
    /// Most bytes of the test file (default: 4 GiB, with --quick 512 MiB)
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Most bytes written to the target in all (default: 16 GiB, with --quick 4 GiB)
    #[arg(long, value_name = "SIZE")]
    max_write: Option<Bytes>,
    /// Under a minute, with wider intervals
    #[arg(long)]
    quick: bool,
    /// The result directory; without it, a new one in ./results
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Show the plan and end
    #[arg(long)]
    dry_run: bool,
    /// Judge figures of others instead of measuring: files with their conditions (.toml, in the form of fixtures/published), or
    /// what 'import' reads: result directories and files of fio, iperf3 and others, together
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["place", "target"])]
    from: Vec<PathBuf>,
}

/// Which ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ways {
    Read,
    Write,
    Both,
}

/// The command.
pub(super) fn main(args: &DiagnoseArgs, global: &Global) -> Result<u8> {
    if !args.from.is_empty() {
        return published(&args.from, global);
    }
    let mut show = Show::new(global.quiet);
    let plan = plan_of(args, global, &mut show)?;
    plan.validate()?;
    if args.dry_run {
        println!("{}", describe(&plan));
        return Ok(0);
    }
    drop(show);
    conduct(&plan, args.out.clone(), global)
}

/// Carries a plan out, shows what it found, and gives the exit code.
pub(super) fn conduct(plan: &DiagnosePlan, out: Option<PathBuf>, global: &Global) -> Result<u8> {
    let mut show = Show::new(global.quiet);
    show.note(&describe(plan));
    let out = out.map_or_else(|| Out::Below("results".into()), Out::Exactly);
    let mut secrets = |spec: &TargetSpec| credentials::secret(spec, global.credentials.as_deref());
    let stop = stop_on_signals()?;
    let mut settings = Settings {
        out,
        secrets: &mut secrets,
        stop,
    };
    let diagnosis = run(plan, &mut settings, &mut show)?;
    drop(show);
    match global.format {
        Format::Table => print!("{}", table(plan, &diagnosis)),
        Format::Csv => print!("{}", read(&diagnosis.directory.join("verdict.csv"))?),
        Format::Json => println!("{}", read(&diagnosis.directory.join("record.json"))?),
    }
    for left in &diagnosis.left {
        eprintln!("nasgauge: {left}");
    }
    Ok(diagnosis.exit_code(plan))
}

fn plan_of(args: &DiagnoseArgs, global: &Global, watch: &mut dyn Watch) -> Result<DiagnosePlan> {
    let target = args.place.clone().or_else(|| args.target.clone());
    let target = target.ok_or_else(|| {
        Error::usage(
            "no target; name a path such as /mnt/nas, or a URI such as nfs://nas/export/dir",
        )
    })?;
    let place = place::find(&target, global.credentials.is_some(), watch)?;
    let pick = |(quick, whole): (Bytes, Bytes)| if args.quick { quick } else { whole };
    let iperf3 = match (&args.net, &args.agent, &place.server) {
        (Some(net), ..) => Some(Host::parse(net)?),
        // The agent serves tests itself.
        (None, None, Some(server)) => place::iperf3(server, watch),
        _ => None,
    };
    Ok(DiagnosePlan {
        diagnose_plan_version: DIAGNOSE_PLAN_VERSION,
        nasgauge_version: env!("CARGO_PKG_VERSION").into(),
        target,
        own_client: place.own_client,
        ram_target: args.ram_target.clone(),
        server: place.server,
        iperf3,
        agent: args.agent.clone(),
        server_path: args.server_path.clone(),
        server_ram: args.server_ram,
        size: args.size.unwrap_or_else(|| pick(SIZE)),
        max_write: args.max_write.unwrap_or_else(|| pick(WRITE)),
        quick: args.quick,
        connect_timeout: Nanos(10 * SECOND),
        io_timeout: Nanos(60 * SECOND),
        work: work(args)?,
    })
}

/// The workloads' phases, those of the direction that is asked for.
fn work(args: &DiagnoseArgs) -> Result<Vec<Work>> {
    let default: Vec<String> = DEFAULT.iter().map(ToString::to_string).collect();
    let names = if args.workload.is_empty() {
        &default
    } else {
        &args.workload
    };
    let mut all = Vec::new();
    for name in names {
        let workload = crate::catalogue::load(name, &PhaseFile::default())?;
        for phase in workload.phases {
            let name = if phase.name.is_empty() {
                workload.name.clone()
            } else {
                format!("{}/{}", workload.name, phase.name)
            };
            all.push(Work { name, phase });
        }
    }
    all.retain(|work| match args.direction {
        Ways::Both => true,
        Ways::Read => work.direction() == Direction::Read,
        Ways::Write => work.direction() == Direction::Write,
    });
    Ok(all)
}

/// The plan in words: what is measured where, what is written, and how long it takes.
fn describe(plan: &DiagnosePlan) -> String {
    let names: Vec<&str> = plan.work.iter().map(|work| work.name.as_str()).collect();
    let minutes = plan.duration().seconds() / 60.0;
    let mut text = format!(
        "plan: what limits {} on {}\nwrites a test file of at most {} there, removed at the end, and parts of it again: at most {} in all\ntakes about {:.1} minutes where nothing stalls\n",
        names.join(" and "),
        plan.target,
        plan.file_bytes().both(),
        plan.max_write.both(),
        minutes.max(0.1)
    );
    let mut with = vec!["the target".to_owned()];
    if let Some(uri) = &plan.own_client {
        with.push(format!("the same export by nasgauge's own client ({uri})"));
    }
    if let Some(uri) = &plan.ram_target {
        with.push(format!("a share in the server's memory ({uri})"));
    }
    match (&plan.agent, &plan.iperf3) {
        (Some(agent), _) => with.push(format!("an agent on the server ({agent})")),
        (None, Some(host)) => with.push(format!("the iperf3 server {}:{}", host.host, host.port)),
        (None, None) => {}
    }
    text.push_str(&format!("measures with {}", with.join(", ")));
    let mut lacks = Vec::new();
    if plan.server.is_some() && plan.agent.is_none() {
        if plan.iperf3.is_none() {
            lacks.push("the network alone ('iperf3 -s' on the server, or --agent)");
        }
        lacks.push("the server's disks and processor (--agent ssh:USER@HOST --server-path PATH)");
    } else if plan.agent.is_some() && plan.server_path.is_none() {
        lacks.push("the server's disks (--server-path PATH)");
    }
    if !lacks.is_empty() {
        text.push_str(&format!("\ncan't see {}", lacks.join(", nor ")));
    }
    text
}

fn table(plan: &DiagnosePlan, diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    for judged in &diagnosis.judged {
        text.push_str(&format!("\n{} on {}\n", judged.case.workload, plan.target));
        text.push_str(&ladder::case(&judged.case, &judged.verdict));
    }
    let pairs = diagnosis.judged.iter().map(|one| (&one.case, &one.verdict));
    text.push_str("\nTo paste into a forum (no names or addresses in it):\n");
    text.push_str(&ladder::forum(&diagnosis.head, pairs));
    if super::knows("copy") {
        text.push_str(&format!(
            "\nIf your own copy is slower than this: nasgauge copy YOURFILE '{}'\n",
            plan.target
        ));
    }
    text
}

/// Judges figures of others.
fn published(files: &[PathBuf], global: &Global) -> Result<u8> {
    let mut all = Vec::new();
    let mut imported = Vec::new();
    for path in files {
        if path.is_dir() || path.extension().is_none_or(|ending| ending != "toml") {
            let one = crate::run::imports::read(path, Writing::default())?;
            imported.push((path.display().to_string(), one));
            continue;
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::usage(format!("{}: {error}", path.display())))?;
        let published: Published = toml::from_str(&text)
            .map_err(|error| Error::usage(format!("{}: {error}", path.display())))?;
        all.push(published);
    }
    if !imported.is_empty() {
        all.push(publication(&imported)?);
    }
    match global.format {
        Format::Table => {
            for published in &all {
                print!("{}", ladder::published(published)?);
            }
        }
        Format::Csv => {
            let cases: Vec<_> = all.iter().flat_map(|one| one.case.clone()).collect();
            print!("{}", ladder::verdicts_csv(&cases)?);
        }
        Format::Json => {
            let verdicts: Vec<_> = all
                .iter()
                .flat_map(|one| one.case.iter().map(|shown| (&shown.name, shown.verdict())))
                .collect();
            let text = serde_json::to_string_pretty(&verdicts)
                .map_err(|error| Error::usage(error.to_string()))?;
            println!("{text}");
        }
    }
    Ok(0)
}
