//! Runs through the binary on every kind of target: verified data, sums that agree, nothing left behind.

use super::lab::{self, Place};
use super::program::{Desk, Results, count};

/// Every pattern, verified wherever something is read, at several block sizes.
const WORKLOAD: &str = r#"
description = "every pattern, verified"

[defaults]
size = "4MiB"
verify = true

[[phase]]
name = "lay"
rw = "write"
bs = "1MiB"

[[phase]]
name = "back"
rw = "read"
bs = "64KiB"

[[phase]]
name = "scatter"
rw = "randwrite"
bs = "4KiB"
iodepth = 8
bytes = "2MiB"

[[phase]]
name = "gather"
rw = "randread"
bs = "4KiB"
iodepth = 8
bytes = "2MiB"

[[phase]]
name = "both"
rw = "randrw"
rwmixread = 60
bssplit = "4k/50:16k/50"
lanes = 2
bytes = "2MiB"

[[phase]]
name = "in-order"
rw = "rw"
bs = "128KiB"
bytes = "2MiB"
fsync = 4

[[phase]]
name = "again"
rw = "read"
bs = "512"
bytes = "256KiB"
"#;

/// Everything that a user does with a target, one after the other.
fn whole_story(place: &Place) {
    let desk = Desk::at(place);
    let smb = place.uri.starts_with("smb:");
    std::fs::write(desk.path("every.toml"), WORKLOAD).expect("written");

    desk.does(&["inspect", &place.uri]);
    place.assert_clean();

    // Each session over SMB is a process of its own: once is enough there.
    let repeats = if smb { "1" } else { "2" };
    let results = desk.measures(place, "every", &["every.toml", "--repeats", repeats]);
    assert_eq!(
        results.rows.len(),
        if smb { 9 } else { 18 },
        "a row for each direction of each phase"
    );
    for row in &results.rows {
        assert!(!row["negotiated"].is_empty(), "{row:?}");
        let durable = !row["durable_bytes_per_s"].is_empty();
        assert_eq!(durable, row["direction"] == "write", "{row:?}");
    }
    place.assert_clean();

    let again = desk.does(&["rerun", "every", "--out", "every-again"]);
    let again = (Results::read(&desk.path("every-again")), again);
    again.0.check();
    let cells = |results: &Results| -> Vec<String> {
        let name = |row: &super::program::Line| {
            format!("{} {} {}", row["workload"], row["direction"], row["repeat"])
        };
        results.rows.iter().map(name).collect()
    };
    assert_eq!(cells(&results), cells(&again.0));
    place.assert_clean();

    kept_and_cleaned(place, &desk);
}

fn kept_and_cleaned(place: &Place, desk: &Desk) {
    let read = [
        "--rw", "read", "--bs", "64k", "--size", "2M", "--verify", "1",
    ];
    let first = desk.measures(place, "keep-1", &[&read[..], &["--keep"]].concat());
    if place.uri == "ram:" {
        return;
    }
    assert!(first.noted("of test data stay"), "{:?}", first.ran);
    assert!(
        desk.does(&["inspect", &place.uri])
            .out
            .contains("nasgauge test data")
    );

    // A run that does not keep still leaves what an earlier one kept: it is not its own.
    let files = !place.uri.starts_with("iscsi:") && !place.uri.starts_with("block:");
    let write = [
        "--rw",
        "randwrite",
        "--bs",
        "4k",
        "--size",
        "2M",
        "--bytes",
        "1M",
    ];
    let second = desk.measures(place, "keep-2", &write);
    assert_eq!(second.noted("prepared in"), files, "{:?}", second.ran);
    if files {
        let third = desk.measures(place, "keep-3", &read);
        assert!(
            third.noted("prepared in"),
            "overwritten, and still verified: {:?}",
            third.ran
        );
        let fourth = desk.measures(
            place,
            "keep-4",
            &["--rw", "read", "--size", "4M", "--verify", "1"],
        );
        assert!(
            !fourth.noted("prepared in"),
            "2 MiB are too few: {:?}",
            fourth.ran
        );
        assert_eq!(place.names().len(), 1, "the fourth run removed its own");
    }
    let cleaned = desk.does(&["clean", &place.uri, "--yes"]);
    if files {
        assert!(cleaned.out.contains("removed"), "{cleaned:?}");
    }
    place.assert_clean();
    assert!(
        desk.does(&["clean", &place.uri, "--yes"])
            .out
            .contains("nothing of nasgauge's")
    );

    desk.does(&["prepare", &place.uri, "--size", "3M"]);
    assert!(desk.does(&["inspect", &place.uri]).out.contains("3 MiB"));
    let ran = desk.nasgauge(&["clean", &place.uri]);
    assert_eq!(ran.code, 2, "without a terminal nobody can agree: {ran:?}");
    assert!(
        desk.does(&["clean", &place.uri, "--yes"])
            .out
            .contains("removed")
    );
    place.assert_clean();
}

#[test]
fn ram() {
    whole_story(&lab::ram());
}

#[test]
fn file() {
    for options in ["engine=psync", "engine=io_uring", "engine=mmap"] {
        whole_story(&lab::file(options));
    }
}

#[test]
fn nfs_embedded() {
    whole_story(&lab::embedded_nfs());
}

#[test]
fn smb_embedded() {
    whole_story(&lab::embedded_smb());
}

#[test]
fn iscsi_embedded() {
    whole_story(&lab::embedded_iscsi(8 << 20));
}

#[test]
#[ignore = "needs root and servers"]
fn nfs_ganesha() {
    whole_story(&lab::ganesha(|_| {}));
}

#[test]
#[ignore = "needs root and servers"]
fn smb_smbd() {
    whole_story(&lab::smbd(|_| {}));
}

/// Only libsmbclient encrypts, and it can't flush: nothing proves that such writes are stable.
#[test]
#[ignore = "needs root and servers"]
fn encrypted_smb_is_not_durable() {
    let place = lab::smbd(|_| {});
    let uri = format!("{}?encrypt=1", place.uri);
    let place = place.under(uri);
    let desk = Desk::at(&place);
    let write = [
        "--rw", "write", "--bs", "64k", "--size", "2M", "--bytes", "2M",
    ];
    let results = desk.measures(&place, "encrypted", &write);
    let row = &results.rows[0];
    assert!(row["negotiated"].contains("encryption=on"), "{row:?}");
    assert!(row["flags"].contains("not_durable"), "{row:?}");
    assert_eq!(row["durability"], "none");
    assert_eq!(row["durable_bytes_per_s"], "");
}

#[test]
#[ignore = "needs root and servers"]
fn iscsi_tgtd() {
    whole_story(&lab::tgtd(8 << 20, |options| {
        options.chap = Some(("tester".into(), "a-secret-of-16-ch".into()));
    }));
}

#[test]
#[ignore = "needs root and servers"]
fn block_loop() {
    whole_story(&lab::loop_device(8 << 20, &[]));
}

/// Several targets in one run: each has its rows, each is clean afterwards, and one that is down spoils no other.
#[test]
fn targets_side_by_side() {
    let (nfs, iscsi, file) = (
        lab::embedded_nfs(),
        lab::embedded_iscsi(8 << 20),
        lab::file("engine=psync"),
    );
    let desk = Desk::at(&nfs);
    let size = [
        "--rw",
        "randrw",
        "--bs",
        "8k",
        "--size",
        "2M",
        "--verify",
        "1",
        "--repeats",
        "2",
    ];
    let more = [
        "--target", &iscsi.uri, "--target", &file.uri, "--target", "ram:",
    ];
    let results = desk.measures(&nfs, "all", &[&size[..], &more].concat());
    assert_eq!(results.rows.len(), 4 * 2 * 2);

    // Port 1 of this computer: nobody listens there.
    let lost = "iscsi://127.0.0.1:1/iqn.2026-11.dev.nasgauge:none/1";
    let mut line = vec![
        "run", "--target", &nfs.uri, "--target", lost, "--out", "lost",
    ];
    line.extend(size);
    let ran = desk.nasgauge(&line);
    assert_eq!(ran.code, 1, "{ran:?}");
    let rows = Results::read(&desk.path("lost")).rows;
    for row in &rows {
        let status = if row["target"] == lost {
            "server_lost"
        } else {
            "ok"
        };
        assert_eq!(row["status"], status, "{row:?}");
    }
    assert_eq!(rows.len(), 2 * 2 * 2);
    for place in [&nfs, &iscsi, &file] {
        place.assert_clean();
    }
}

/// One directory reached in several ways is several targets, each with a file of its own.
#[test]
fn one_directory_under_several_uris() {
    let place = lab::file("engine=psync");
    let path = place.behind.clone().expect("local").display().to_string();
    let (uring, mapped) = (
        format!("file:{path}?engine=io_uring"),
        format!("file:{path}?engine=mmap"),
    );
    let desk = Desk::at(&place);
    let others = ["--target", &uring, "--target", &mapped, "--target", &path];
    let load = [
        "--rw", "randrw", "--bs", "4k", "--size", "1M", "--verify", "1",
    ];
    let results = desk.measures(&place, "same", &[&others[..], &load].concat());
    assert_eq!(results.rows.len(), 4 * 2);
    place.assert_clean();
    // What is kept of all of them is cleaned together.
    desk.measures(&place, "kept", &[&others[..], &load, &["--keep"]].concat());
    assert_eq!(place.names().len(), 4);
    desk.does(&["clean", &path, "--yes"]);
    place.assert_clean();
}

/// The same through a server, as one compares a protocol with a mount of it.
#[test]
#[ignore = "needs root and servers"]
fn one_directory_over_nfs_and_smb_and_as_a_path() {
    let nfs = lab::ganesha(|_| {});
    let directory = nfs.behind.clone().expect("here");
    let smb = lab::smbd(|options| options.shares[0].directory.clone_from(&directory));
    let desk = Desk::at(&smb);
    let path = directory.display().to_string();
    let others = ["--target", &nfs.uri, "--target", &path];
    let load = [
        "--rw", "randrw", "--bs", "4k", "--size", "1M", "--verify", "1",
    ];
    let results = desk.measures(&smb, "same", &[&others[..], &load].concat());
    assert_eq!(results.rows.len(), 3 * 2);
    assert_eq!(std::fs::read_dir(&directory).expect("there").count(), 0);
}

/// One LUN under two names is not two: the second is refused, and the first is measured all the same.
#[test]
fn one_lun_under_two_uris() {
    let place = lab::embedded_iscsi(8 << 20);
    let desk = Desk::at(&place);
    let twin = place.uri.replace("127.0.0.1", "localhost");
    let load = [
        "--rw", "randrw", "--bs", "4k", "--size", "1M", "--verify", "1",
    ];
    let line = [
        "run", "--target", &place.uri, "--target", &twin, "--out", "twins",
    ];
    let ran = desk.nasgauge(&[&line[..], &load].concat());
    assert_ne!(ran.code, 0, "{ran:?}");
    for row in Results::read(&desk.path("twins")).rows {
        let twin = row["target"] == twin;
        assert_eq!(row["status"] == "ok", !twin, "{row:?}");
    }
    place.assert_clean();
}

/// F33 through the binary: what the server's limit makes of a block shows in the row.
#[test]
#[ignore = "needs root and servers"]
fn a_split_block_is_marked() {
    let place = lab::ganesha(|options| {
        options.max_read = Some(64 << 10);
        options.max_write = Some(64 << 10);
    });
    let desk = Desk::at(&place);
    let results = desk.measures(
        &place,
        "split",
        &["--rw", "rw", "--bs", "1M", "--size", "8M", "--verify", "1"],
    );
    let ops: u64 = results.rows.iter().map(|row| count(row, "ops")).sum();
    for row in &results.rows {
        assert_eq!(count(row, "wire_ops"), 16 * ops);
        assert!(row["flags"].contains("block_split"), "{row:?}");
        assert!(row["negotiated"].contains("65536"), "{row:?}");
    }
}

/// F30: a size that is no multiple of the block ends in a short operation, and each byte counts once.
#[test]
fn a_last_short_block_is_exact() {
    for place in [
        lab::file("engine=psync"),
        lab::embedded_nfs(),
        lab::embedded_smb(),
    ] {
        let desk = Desk::at(&place);
        for rw in ["write", "read"] {
            let results = desk.measures(
                &place,
                rw,
                &["--rw", rw, "--bs", "4k", "--size", "30000", "--verify", "1"],
            );
            assert_eq!(results.rows[0]["bytes"], "30000");
            assert_eq!(results.rows[0]["ops"], "8");
        }
        place.assert_clean();
    }
}

/// What SIGKILL leaves is known as ours, and `clean` removes it; a device can be used again even without that.
#[test]
fn what_a_killed_run_leaves_is_cleaned() {
    for (index, place) in [
        lab::file("engine=psync"),
        lab::embedded_nfs(),
        lab::embedded_smb(),
        lab::embedded_iscsi(8 << 20),
        lab::embedded_iscsi(8 << 20),
    ]
    .iter()
    .enumerate()
    {
        let desk = Desk::at(place);
        let write = ["--rw", "randwrite", "--bs", "4k", "--size", "4M"];
        let line = [
            "run",
            "--target",
            &place.uri,
            "--out",
            "killed",
            "--runtime",
            "60",
            "--interval",
            "100ms",
        ];
        let mut child = desk
            .command(&[&line[..], &write].concat())
            .spawn()
            .expect("runs");
        let intervals = desk.path("killed").join("intervals.csv");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        // Two intervals beyond the header: it is in the middle of writing.
        while std::fs::read_to_string(&intervals).map_or(0, |text| text.lines().count()) < 3 {
            assert!(std::time::Instant::now() < deadline, "it did not start");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        child.kill().expect("running");
        child.wait().expect("ended");
        std::fs::remove_dir_all(desk.path("tmp")).expect("what SIGKILL leaves of its own");

        assert!(
            desk.does(&["inspect", &place.uri])
                .out
                .contains("nasgauge test data")
        );
        if index < 4 {
            assert!(
                desk.does(&["clean", &place.uri, "--yes"])
                    .out
                    .contains("removed")
            );
        } else {
            desk.measures(place, "next", &[&write[..], &["--verify", "1"]].concat());
        }
        place.assert_clean();
    }
}
