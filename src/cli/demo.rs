//! `nasgauge demo`: the whole story on this machine, with servers that it starts and stops itself.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Global, run};
use crate::error::{Error, Kind, Phase, Result};
use crate::servers::sandbox::Sandbox;
use crate::servers::{Server, embedded, packages, real};
use crate::spec::plan::Plan;
use crate::spec::uri::TargetSpec;
use crate::spec::workload::PhaseFile;
use crate::target::Secret;
use crate::units::{Bytes, Nanos, SECOND};

/// Which servers answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Servers {
    /// In this process: needs nothing installed and no root; shows how it works, not what a NAS can do.
    Embedded,
    /// nfs-ganesha, smbd and tgtd, in namespaces of their own (root).
    Real,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Shorter measurements
    #[arg(long)]
    quick: bool,
    /// Which servers answer
    #[arg(long, value_enum, default_value_t = Servers::Embedded)]
    servers: Servers,
    /// The result directory; without it, a new one in ./results
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What a demo measures on each target.
const WORKLOADS: &[&str] = &[
    "seq-read-1m",
    "seq-write-1m",
    "rand-read-4k-q32",
    "rand-write-4k-q32",
];

/// The command.
pub(super) fn main(args: &DemoArgs, global: &Global) -> Result<u8> {
    if args.servers == Servers::Real && !Sandbox::inside() {
        return enter_sandbox();
    }
    let (size, runtime) = if args.quick {
        (128 << 20, SECOND)
    } else {
        (512 << 20, 7 * SECOND / 2)
    };
    let directory = Directory::make()?;
    let servers = start(args.servers, size)?;
    let mut targets = vec!["ram:".to_owned(), format!("{}", directory.0.display())];
    targets.extend(servers.iter().map(|server| server.uri()));
    if !global.quiet {
        for server in &servers {
            eprintln!(
                "{:<6} {}: {}",
                server.protocol(),
                server.version(),
                server.uri()
            );
        }
    }
    let plan = plan(targets, size, runtime, args.servers == Servers::Embedded)?;
    let mut secrets = |spec: &TargetSpec| {
        let password = servers
            .iter()
            .find(|server| server.uri() == spec.uri)
            .and_then(|server| server.password());
        Ok(Secret(password.map(str::to_owned)))
    };
    let outcome = run::perform(&plan, args.out.clone(), global, &mut secrets)?;
    drop(servers);
    if !global.quiet {
        eprintln!(
            "\nAll servers are stopped. Results: {}",
            outcome.directory.display()
        );
        eprintln!(
            "Your own NAS: nasgauge run --target nfs://NAS/EXPORT/DIR --target smb://USER@NAS/SHARE --target /mnt/nas"
        );
    }
    Ok(outcome.exit_code())
}

/// The same command again, inside the sandbox.
fn enter_sandbox() -> Result<u8> {
    packages::check()?;
    let program = std::env::current_exe()
        .map_err(|error| Error::io(Phase::Prepare, &error, "find this program"))?;
    let status = Sandbox::enter(program, std::env::args_os().skip(1))?;
    let gone = || {
        Error::new(
            Phase::Prepare,
            Kind::Interrupted,
            "the demo was ended by a signal",
        )
    };
    status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .ok_or_else(gone)
}

fn plan(targets: Vec<String>, size: u64, runtime: u64, embedded: bool) -> Result<Plan> {
    let keys = PhaseFile {
        size: Some(Bytes(size)),
        runtime: Some(Nanos(runtime)),
        ramp_time: Some(Nanos(SECOND / 4)),
        ..PhaseFile::default()
    };
    let load = |name: &&str| crate::catalogue::load(name, &keys);
    let workloads = WORKLOADS.iter().map(load).collect::<Result<_>>()?;
    Ok(Plan {
        io_timeout: Nanos(30 * SECOND),
        // It shall not take longer than it must, and its servers keep their data in memory.
        settle: Nanos(0),
        embedded,
        ..Plan::new("demo", targets, workloads)
    })
}

/// One server a protocol that this build can reach. `size` is that of the test file.
fn start(servers: Servers, size: u64) -> Result<Vec<Box<dyn Server>>> {
    let room = size + size / 4 + (64 << 20);
    let mut started: Vec<Box<dyn Server>> = Vec::new();
    match servers {
        Servers::Embedded => {
            started.push(Box::new(embedded::Nfs::start(room)?));
            if cfg!(feature = "smb") {
                started.push(Box::new(embedded::Smb::start(room)?));
            }
            if cfg!(feature = "iscsi") {
                started.push(Box::new(embedded::Iscsi::start(room)?));
            }
        }
        Servers::Real => {
            let work = Sandbox::work_dir();
            let made = |name: &str| {
                let path = work.join(name);
                std::fs::create_dir_all(&path)
                    .map(|()| path)
                    .map_err(|error| {
                        Error::io(
                            Phase::Prepare,
                            &error,
                            &format!("make a directory for {name}"),
                        )
                    })
            };
            let options = real::NfsOptions {
                directory: made("nfs-export")?,
                ..real::NfsOptions::default()
            };
            started.push(Box::new(real::Nfs::start(&work, &options)?));
            if cfg!(feature = "smb") {
                let shares = vec![real::smb::Share::new("bench", made("smb-share")?)];
                let options = real::SmbOptions {
                    shares,
                    ..real::SmbOptions::default()
                };
                started.push(Box::new(real::Smb::start(&work, &options)?));
            }
            if cfg!(feature = "iscsi") {
                let lun = work.join("lun");
                std::fs::File::create_new(&lun)
                    .and_then(|file| file.set_len(room))
                    .map_err(|error| {
                        Error::io(Phase::Prepare, &error, "make the file behind the LUN")
                    })?;
                let options = real::IscsiOptions {
                    luns: vec![real::iscsi::Lun::new(lun)],
                    ..real::IscsiOptions::default()
                };
                started.push(Box::new(real::Iscsi::start(&work, &options)?));
            }
        }
    }
    Ok(started)
}

/// A directory for the path target, removed at the end; the run has removed what it laid in it.
struct Directory(PathBuf);

impl Directory {
    fn make() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("nasgauge-demo-{}", std::process::id()));
        std::fs::create_dir(&path)
            .map(|()| Self(path))
            .map_err(|error| Error::io(Phase::Prepare, &error, "make a directory for the demo"))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
