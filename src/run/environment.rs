//! environment.json: what the figures depend on and no CSV column holds.

use serde_json::{Value, json};

use crate::run::site::Place;
use crate::spec::plan::Plan;

/// Facts about this computer and about each target, as far as they tell.
pub(super) fn gather(plan: &Plan, places: &mut [Place]) -> Value {
    let targets: Vec<Value> = places
        .iter_mut()
        .map(|place| {
            let facts = place.facts().unwrap_or_default();
            let lines: serde_json::Map<String, Value> = facts
                .lines
                .into_iter()
                .map(|(label, value)| (label, Value::String(value)))
                .collect();
            json!({
                "uri": place.uri(),
                "server": facts.server,
                "free_bytes": facts.free_bytes,
                "loopback": place.loopback(),
                "facts": lines,
            })
        })
        .collect();
    json!({
        "nasgauge_version": plan.nasgauge_version,
        "client": crate::probe::host::Host::read(),
        "targets": targets,
    })
}
