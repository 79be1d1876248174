//! What the kernel counted of a run: a true row is never contradicted, and its columns are filled where something counts.

use super::lab::{self, Place};
use super::program::{Desk, Line, count, number};

/// Enough to be judged, in large and in small blocks, read, written and both, with and without a ramp.
const LOAD: &str = r#"
description = "enough for the kernel's counters"

[defaults]
size = "32MiB"
ramp_time = "0s"

[[phase]]
name = "write"
rw = "write"
bs = "1MiB"

[[phase]]
name = "read"
rw = "read"
bs = "1MiB"

[[phase]]
name = "small"
rw = "randread"
bs = "4KiB"
iodepth = 8
bytes = "16MiB"

[[phase]]
name = "both"
rw = "randrw"
bs = "64KiB"
lanes = 2
bytes = "32MiB"

[[phase]]
name = "ramped"
rw = "randread"
bs = "64KiB"
ramp_time = "300ms"
runtime = "700ms"
"#;

/// Measures it all; that no row is contradicted is checked of every run.
fn rows(place: &Place) -> Vec<Line> {
    let desk = Desk::at(place);
    std::fs::write(desk.path("load.toml"), LOAD).expect("written");
    let results = desk.measures(place, "counted", &["load.toml"]);
    assert_eq!(results.rows.len(), 6);
    for row in &results.rows {
        // The kernel counts in ticks of up to 10 ms: a short phase may see none.
        if number(row, "seconds") < 0.2 {
            continue;
        }
        for column in [
            "busiest_core_percent",
            "busiest_core_softirq_percent",
            "steal_percent",
        ] {
            let percent = number(row, column);
            assert!((0.0..=100.0).contains(&percent), "{column}: {row:?}");
        }
        count(row, "busiest_core");
    }
    place.assert_clean();
    results.rows
}

/// Our own clients: each byte is on the loopback, which counts both directions of a mixed phase together.
fn networked(place: &Place) {
    for row in rows(place) {
        let (moved, seen) = (count(&row, "bytes"), count(&row, "network_bytes"));
        // After a ramp the count begins at the next look, up to 50 ms late or more on a busy machine.
        let ramped = row["workload"].ends_with("ramped");
        let least = moved as f64 * if ramped { 0.5 } else { 1.0 };
        assert!(seen as f64 >= least, "{seen} of {moved}: {row:?}");
        count(&row, "retransmits");
        assert_eq!(row["device_bytes"], "", "{row:?}");
    }
}

fn local(place: &Place) {
    for row in rows(place) {
        for column in ["network_bytes", "retransmits"] {
            assert_eq!(row[column], "", "{row:?}");
        }
    }
}

#[test]
fn embedded_servers_are_counted_on_the_loopback() {
    networked(&lab::embedded_nfs());
    networked(&lab::embedded_smb());
    networked(&lab::embedded_iscsi(40 << 20));
}

#[test]
fn memory_and_nothing_are_not_judged() {
    local(&lab::ram());
    local(&Place::new("null:", ()));
    local(&Place::new("sim:?bandwidth=1GB/s", ()));
}

#[test]
fn files_are_not_contradicted_with_or_without_the_page_cache() {
    local(&lab::file("engine=psync"));
    local(&lab::file("engine=psync&direct=1"));
    if nasgauge::target::local::uring::permitted() {
        local(&lab::file("engine=io_uring&direct=1"));
    }
}

#[test]
#[ignore = "needs root and servers"]
fn nfs_ganesha() {
    networked(&lab::ganesha(|_| {}));
}

#[test]
#[ignore = "needs root and servers"]
fn smb_smbd() {
    let place = lab::smbd(|_| {});
    networked(&place);
    let uri = format!("{}?engine=smb2", place.uri);
    networked(&place.under(uri));
}

#[test]
#[ignore = "needs root and servers"]
fn iscsi_tgtd() {
    networked(&lab::tgtd(40 << 20, |_| {}));
}

#[test]
#[ignore = "needs root and servers"]
fn block_loop() {
    local(&lab::loop_device(40 << 20, &[]));
}
