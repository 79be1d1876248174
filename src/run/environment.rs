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
                // What the server's computer tells of itself, in the form of `client`; an agent there tells it.
                "host": Value::Null,
            })
        })
        .collect();
    json!({
        "nasgauge_version": plan.nasgauge_version,
        "client": computer(&crate::probe::Snapshot::now()),
        "targets": targets,
    })
}

/// The facts of a computer: those of its host, and beside them what the other probes found.
fn computer(snapshot: &crate::probe::Snapshot) -> Value {
    let mut facts = serde_json::to_value(snapshot).unwrap_or_default();
    if let Value::Object(all) = &mut facts
        && let Some(Value::Object(host)) = all.remove("host")
    {
        all.extend(host);
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_stands_beside_what_other_probes_found() {
        let client = computer(&crate::probe::Snapshot::now());
        assert!(client["kernel"].is_string(), "{client}");
        assert!(client["processor"]["threads"].is_u64(), "{client}");
        assert_eq!(client.get("host"), None);
        assert_eq!(
            client.get("pools").is_some(),
            std::path::Path::new("/proc/spl/kstat/zfs").exists()
        );
    }
}
