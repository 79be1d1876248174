//! 64 sessions with 32 operations each, on every protocol that has depth: all of them are there, and all data is right.

use super::lab;
use super::lab::Place;
use super::program::{Desk, count};

/// Room for the file and what belongs to it.
const LUN: u64 = 72 << 20;
/// Each of the 2048 places in flight is filled four times over.
const LOAD: &str = "description = \"as wide as it gets\"
[defaults]
bs = \"4k\"
size = \"64M\"
bytes = \"32M\"
lanes = 64
iodepth = 32
ramp_time = \"0s\"
[[phase]]
name = \"write\"
rw = \"randwrite\"
[[phase]]
name = \"check\"
rw = \"randread\"
verify = true
";

fn wide(place: &Place) {
    let desk = Desk::at(place);
    std::fs::write(desk.path("wide.toml"), LOAD).expect("written");
    let results = desk.measures(place, "wide", &["wide.toml"]);
    assert_eq!(results.rows.len(), 2);
    for row in &results.rows {
        assert_eq!(
            (row["lanes"].as_str(), row["iodepth"].as_str()),
            ("64", "32")
        );
        assert_eq!(count(row, "ops"), (32 << 20) / 4096, "{row:?}");
        assert_eq!(count(row, "errors"), 0);
    }
    place.assert_clean();
}

fn with(place: Place, options: &str) -> Place {
    let uri = format!("{}{options}", place.uri);
    place.under(uri)
}

#[test]
#[ignore = "needs root and servers"]
fn nfs() {
    wide(&lab::ganesha(|_| {}));
}

#[test]
#[ignore = "needs root and servers"]
fn smb() {
    wide(&with(lab::smbd(|_| {}), "?engine=smb2"));
}

#[test]
#[ignore = "needs root and servers"]
fn iscsi() {
    wide(&lab::tgtd(LUN, |_| {}));
}

#[test]
fn file() {
    if nasgauge::target::local::uring::permitted() {
        wide(&lab::file("engine=io_uring"));
    }
}
