//! A diagnosis: the layers of one target measured one by one, and what limits each workload by them.
//!
//! Read first. Nothing but the target is needed; what else is there (an agent, an iperf3 server, a share in the server's
//! memory, our own client beside a mount) is measured too. Then `verdict` decides. Where that is not sure, one thing after the
//! other is changed (`changes`) and it decides again. `bench` measures on a target, `ways` the network, `server` what an agent
//! tells, `queue` whether packets wait on the way, `layers` puts them together, `taken` makes a case of all of it, `scene` is all
//! that there is to measure on.
//!
//! Must not know: how anything is shown.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use crate::error::{Kind, Result};
use crate::record::{Row, SCHEMA_VERSION};
use crate::report::ladder;
use crate::run::{Identity, Results, Settings, Watch};
use crate::spec::diagnose::DiagnosePlan;
use crate::spec::repeats::Repeats;
use crate::verdict::Verdict;
use crate::verdict::case::Case;

mod bench;
mod changes;
mod layers;
mod queue;
mod scene;
mod server;
mod taken;
mod ways;

use bench::Around;
use scene::Scene;

/// The seed of all patterns: two diagnoses of one target do the same.
const SEED: u64 = 1;
/// One workload in one direction, judged.
#[derive(Debug, Clone, Serialize)]
pub struct Judged {
    /// Bytes of a request.
    pub block_size_bytes: Option<u64>,
    /// All that is known.
    pub case: Case,
    /// What limits it.
    pub verdict: Verdict,
}

/// What a diagnosis came to.
#[derive(Debug)]
pub struct Diagnosis {
    /// Its workloads.
    pub judged: Vec<Judged>,
    /// All rows.
    pub rows: Vec<Row>,
    /// The result directory.
    pub directory: PathBuf,
    /// What was measured on, in a line or two, without names and addresses.
    pub head: String,
    /// What could not be measured or removed, one sentence each.
    pub left: Vec<String>,
    /// The user stopped it.
    pub interrupted: bool,
}

impl Diagnosis {
    /// The exit code of CONTRACT: 0 all is judged, 1 something could not be measured, 130 interrupted.
    #[must_use]
    pub fn exit_code(&self, plan: &DiagnosePlan) -> u8 {
        if self.interrupted {
            130
        } else {
            u8::from(self.judged.len() < plan.work.len() || !self.left.is_empty())
        }
    }
}

/// The whole record, as record.json has it.
#[derive(Serialize)]
struct DiagnoseRecord<'a> {
    schema_version: u32,
    run_id: &'a str,
    nasgauge_version: &'a str,
    plan: &'a DiagnosePlan,
    environment: &'a Value,
    rows: &'a [Row],
    judged: &'a [Judged],
}

/// Carries a plan out. Err only when nothing was touched.
pub fn run(
    plan: &DiagnosePlan,
    settings: &mut Settings<'_>,
    watch: &mut dyn Watch,
) -> Result<Diagnosis> {
    plan.validate()?;
    let identity = Identity::new(SEED);
    let out = settings.out.clone();
    let mut around = Around {
        plan,
        run: &identity,
        settings,
        watch,
        results: None,
        rows: Vec::new(),
        left: plan.max_write.0,
    };
    let mut scene = Scene::open(&mut around)?;
    let environment = scene.environment();
    let mut results = Results::create(&out, &identity.id, "diagnose", plan, &environment)?;
    around.watch.results(results.directory());
    around.results = Some(&mut results);
    let mut judged = Vec::new();
    let measured = scene.measure(&mut around, &mut judged);
    let mut left = scene.leave(around.watch);
    match measured {
        Err(error) if error.kind != Kind::Interrupted => left.push(error.to_string()),
        _ => {}
    }
    let interrupted = around.settings.stopped();
    let rows = std::mem::take(&mut around.rows);
    let record = DiagnoseRecord {
        schema_version: SCHEMA_VERSION,
        run_id: &identity.id,
        nasgauge_version: &plan.nasgauge_version,
        plan,
        environment: &environment,
        rows: &rows,
        judged: &judged,
    };
    let head = head(plan, &rows, &environment);
    let kept = keep(&mut results, &record);
    left.extend(kept.err().map(|error| error.to_string()));
    Ok(Diagnosis {
        judged,
        head,
        rows,
        directory: results.directory().to_owned(),
        left,
        interrupted,
    })
}

/// This computer, its way to the server and what both agreed on: what anybody who is asked for help wants to know.
fn head(plan: &DiagnosePlan, rows: &[Row], environment: &Value) -> String {
    let whole = rows.iter().find(|row| row.stage == "end_to_end");
    let mut parts = vec![format!(
        "nasgauge {} diagnose{}",
        plan.nasgauge_version,
        if plan.quick { " --quick" } else { "" }
    )];
    if let Some(row) = whole {
        parts.push(row.protocol.clone());
        let agreed = row.negotiated.split(' ').filter(|word| !word.is_empty());
        parts.extend(agreed.map(ToOwned::to_owned));
    }
    let told = |pointer: &str| {
        let value = environment.pointer(pointer)?;
        value.as_str().map(ToOwned::to_owned)
    };
    parts.extend(told("/client/kernel").map(|kernel| format!("client Linux {kernel}")));
    parts.extend(told("/client/cpu_model"));
    parts
        .extend(told("/targets/0/host/host/kernel").map(|kernel| format!("server Linux {kernel}")));
    parts.join(", ")
}

fn keep(results: &mut Results, record: &DiagnoseRecord<'_>) -> Result<()> {
    let all = || record.judged.iter();
    let ladder = ladder::ladder_csv(
        record.run_id,
        all().map(|one| (&one.case, one.block_size_bytes)),
    )?;
    let verdicts = ladder::verdict_csv(record.run_id, all().map(|one| (&one.case, &one.verdict)))?;
    results.put("ladder.csv", ladder.as_bytes())?;
    results.put("verdict.csv", verdicts.as_bytes())?;
    results.finish(record.rows, Repeats::ONCE, record)
}
