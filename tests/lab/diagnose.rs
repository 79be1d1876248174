//! One diagnosis: the program on host `a` against the NAS on `b`, with as much at hand as a level says.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::judge::Said;
use super::lab::Server;
use super::scenario::{Level, Scenario};
use super::site::Site;

/// Seconds after which a diagnosis hangs; a quick one takes less than one minute, and writes to slow disks more.
const PATIENCE: &str = "300";

/// The program; another one where that is asked for.
pub fn program() -> PathBuf {
    let other = std::env::var_os("NASGAUGE_LAB_PROGRAM").map(PathBuf::from);
    other.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_nasgauge")))
}

/// Diagnoses what a scenario expects something of; what was said of each of its directions, in their order.
pub fn diagnose(
    scenario: &Scenario,
    site: &Site,
    level: Level,
    out: &Path,
) -> Result<Vec<Said>, String> {
    let directions: Vec<&str> = scenario.directions().map(|(name, _)| name).collect();
    let program = program();
    let mut command = site.lab.a.command("timeout");
    command
        .args(["--kill-after=10", PATIENCE])
        .arg(&program)
        .args([
            "diagnose",
            "--quick",
            "--quiet",
            "--target",
            &site.nas.target,
        ])
        .args([
            "--direction",
            if directions.len() > 1 {
                "both"
            } else {
                directions[0]
            },
        ])
        .arg("--out")
        .arg(out)
        .args(&scenario.options);
    if let Some(workload) = &scenario.workload {
        // One of the laboratory's own, or a shipped one.
        let own = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/lab/workloads")
            .join(format!("{workload}.toml"));
        command.arg("--workload");
        if own.is_file() {
            command.arg(own);
        } else {
            command.arg(workload);
        }
    }
    if let Some(password) = &site.nas.password {
        command.env("NASGAUGE_PASSWORD", password);
    }
    let _iperf3 = (level == Level::Iperf3).then(|| Server::iperf3(&site.lab.b));
    match level {
        Level::Agent => {
            command
                .args(["--agent", &site.nas.agent(&program)])
                .arg("--server-path")
                .arg(&site.nas.server_path);
            if let Some(memory) = &site.nas.memory {
                command.args(["--ram-target", memory]);
            }
        }
        Level::Iperf3 => {
            command.args(["--net", &site.lab.b.address.to_string()]);
        }
        Level::Uri => {}
    }
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    std::fs::write(
        out.with_extension("txt"),
        text(&done.stdout) + &text(&done.stderr),
    )
    .expect("a directory for results");
    if !done.status.success() {
        let errors = text(&done.stderr);
        let last = errors.lines().rfind(|line| !line.trim().is_empty());
        return Err(format!(
            "the diagnosis ended with {}: {}",
            done.status,
            last.unwrap_or("")
        ));
    }
    let said = directions
        .iter()
        .map(|direction| Said::read(out, direction));
    said.collect()
}
