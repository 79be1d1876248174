//! What the kernel counted of a run: a true row is never contradicted, and its columns are filled where something counts.

use std::process::Command;

use super::lab::{self, Place};
use super::program::{Desk, Line, Results, count, number};

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

/// A pair of virtual cards with an address, and another address beyond them, except for TCP: that ends here, on the
/// loopback. No card sees what the routes say that one carries. All of it ends with the pair.
struct Detour;

impl Detour {
    const HERE: &'static str = "10.211.0.2";
    const BEYOND: &'static str = "10.211.0.1";
    /// The kernel looks up its own addresses first of all; here two rules come before that.
    const RULES: [&'static str; 3] = [
        "rule add pref 1 to 10.211.0.1 ipproto tcp lookup local",
        "rule add pref 2 to 10.211.0.1 lookup main",
        "rule add pref 3 lookup local",
    ];

    fn new() -> Self {
        let detour = Self;
        for line in [
            "link add counted0 type veth peer name counted1",
            "link set counted0 up",
            "link set counted1 up",
            &format!("address add {}/24 dev counted0", Self::HERE),
            &format!("route add local {} dev lo src {}", Self::BEYOND, Self::HERE),
        ] {
            assert!(Self::ip(line), "ip {line}");
        }
        for line in Self::RULES {
            assert!(Self::ip(line), "ip {line}");
        }
        assert!(Self::ip("rule delete pref 0"));
        detour
    }

    fn ip(line: &str) -> bool {
        let ended = Command::new("ip").args(line.split(' ')).status();
        ended.is_ok_and(|status| status.success())
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        Self::ip("rule add pref 0 lookup local");
        for line in Self::RULES {
            Self::ip(&line.replace(" add ", " delete "));
        }
        Self::ip(&format!("route delete local {} dev lo", Self::BEYOND));
        Self::ip("link delete counted0");
    }
}

/// Bytes that pass no card that leads to the server are a contradiction, and the row says so.
#[test]
#[ignore = "needs root and servers"]
fn bytes_that_no_card_saw_are_marked() {
    let place = lab::ganesha(|_| {});
    let _alone = lab::other_interfaces();
    let _detour = Detour::new();
    let uri = place.uri.replace("127.0.0.1", Detour::BEYOND);
    let desk = Desk::at(&place);
    desk.does(&[
        "run", "--target", &uri, "--rw", "read", "--bs", "1M", "--size", "32M", "--out", "detour",
    ]);
    let row = &Results::read(&desk.path("detour")).rows[0];
    assert_eq!(
        (row["status"].as_str(), count(row, "bytes")),
        ("ok", 32 << 20)
    );
    assert!(row["flags"].contains("counters_disagree"), "{row:?}");
    assert!(count(row, "network_bytes") < 1 << 20, "{row:?}");
    // Straight to it, nothing is wrong.
    let straight = desk.measures(
        &place,
        "straight",
        &["--rw", "read", "--bs", "1M", "--size", "32M"],
    );
    assert!(count(&straight.rows[0], "network_bytes") >= 32 << 20);
}
