//! Small files through the binary, on every target that has files: what is claimed is there, and nothing stays.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nasgauge::target::Control;

use super::lab::{self, Place};
use super::program::{Desk, Line, Results, count, number};

/// Everything that a user does with small files, one after the other.
fn whole_story(place: &Place) {
    let desk = Desk::at(place);
    let smb = place.uri.starts_with("smb:");
    every_operation(place, &desk);
    listings(place, &desk);
    odd_sizes(place, &desk);
    time_boxes(place, &desk);
    let durable = ["--rw", "create", "--nrfiles", "5", "--fsync", "1"];
    if smb {
        let line = [&["run", "--target", &place.uri], &durable[..]].concat();
        desk.refuses(&line, "durable");
    } else {
        let results = desk.measures(place, "durable", &durable);
        let row = &results.rows[0];
        assert_eq!(row["durability"], "sync");
        assert_eq!(row["durable_bytes_per_s"], row["throughput_bytes_per_s"]);
        assert!(!row["flags"].contains("not_durable"), "{row:?}");
    }
    place.assert_clean();
}

/// The shipped workload, verified, over three lanes; then again from its plan.
fn every_operation(place: &Place, desk: &Desk) {
    let small = [
        "small-files",
        "--nrfiles",
        "40",
        "--lanes",
        "3",
        "--verify",
        "1",
        "--repeats",
        "2",
    ];
    let results = desk.measures(place, "every", &small);
    let check = |results: &Results| {
        let done: Vec<&str> = results
            .rows
            .iter()
            .map(|row| row["direction"].as_str())
            .collect();
        let once = ["create", "open", "stat", "rename", "remove"];
        assert_eq!(done, [once, once].concat());
        for row in &results.rows {
            assert_eq!(count(row, "ops"), 40, "{row:?}");
            assert_eq!(row["lanes"], "3");
            assert_eq!(count(row, "size_bytes"), 40 * 102_400);
            assert_eq!(
                row["flags"].contains("not_durable"),
                row["direction"] == "create"
            );
        }
    };
    check(&results);
    place.assert_clean();
    desk.does(&["rerun", "every", "--out", "every-again"]);
    let again = Results::read(&desk.path("every-again"));
    again.check();
    check(&again);
    place.assert_clean();
}

/// More entries than a page of any server's listing holds; and files that no phase made are laid.
fn listings(place: &Place, desk: &Desk) {
    let many = [
        "folder-listing",
        "--nrfiles",
        "1500",
        "--runtime",
        "500ms",
        "--ramp-time",
        "0",
    ];
    let results = desk.measures(place, "list", &many);
    let row = &results.rows[0];
    // The manifest stands beside them.
    assert!(row["negotiated"].contains("entries=1501"), "{row:?}");
    assert!(
        results.noted("laying 1500 empty files"),
        "{:?}",
        results.ran
    );
    let mut aggregate = csv::Reader::from_path(desk.path("list/aggregate.csv")).expect("there");
    let mut metrics = aggregate
        .deserialize::<Line>()
        .map(|line| line.expect("regular"));
    let files = metrics
        .find(|line| line["metric"] == "files_per_s")
        .expect("files a second");
    let each: f64 = files["mean"].parse().expect("a number");
    let iops: f64 = row["iops"].parse().expect("a number");
    assert!(
        (each / (iops * 1501.0) - 1.0).abs() < 1e-3,
        "{each} and {iops}"
    );
    place.assert_clean();
}

/// Empty files, tiny ones, those that end within a sector, and those of several requests.
fn odd_sizes(place: &Place, desk: &Desk) {
    for size in ["0", "1", "1000", "3MiB"] {
        let out = format!("size-{size}");
        let arguments = [
            "small-files",
            "--nrfiles",
            "3",
            "--filesize",
            size,
            "--verify",
            "1",
        ];
        desk.measures(place, &out, &arguments);
        place.assert_clean();
    }
}

/// What can be done again starts over; making ends at its time, and what comes after has all files all the same.
fn time_boxes(place: &Place, desk: &Desk) {
    std::fs::write(
        desk.path("boxes.toml"),
        r#"
description = "time bounds each"
[defaults]
nrfiles = 30
filesize = "4k"
runtime = "300ms"
ramp_time = 0
[[phase]]
name = "rename"
rw = "rename"
[[phase]]
name = "open"
rw = "open"
verify = true
[[phase]]
name = "remove"
rw = "remove"
"#,
    )
    .expect("written");
    let results = desk.measures(place, "boxes", &["boxes.toml"]);
    assert_eq!(count(&results.rows[2], "ops"), 30);
    for row in &results.rows[..2] {
        assert!(count(row, "ops") > 30, "it starts over: {row:?}");
    }
    let make = |count: &'static str| ["--rw", "create", "--filesize", "0", "--nrfiles", count];
    let few = desk.measures(place, "few", &make("500"));
    // As long as those took, at whatever speed: enough for some of 10000, and far from enough for all.
    let runtime = format!("{:.0}ms", (number(&few.rows[0], "seconds") * 1e3).max(20.0));
    let cut = [&make("10000")[..], &["--runtime", &runtime]].concat();
    let results = desk.measures(place, "cut", &cut);
    assert!(count(&results.rows[0], "ops") < 10_000);
    assert!(results.noted("of 10000 files"), "{:?}", results.ran);
    place.assert_clean();
}

/// A run that has made some files and will not end soon; killed when dropped.
struct Running(Child);

impl Running {
    /// Starts one and waits until it has made files; gives their directory.
    fn start(desk: &Desk, place: &Place) -> (Self, String) {
        let many = ["--rw", "create", "--nrfiles", "1000000", "--filesize", "1k"];
        let line = [&["run", "--target", &place.uri, "--out", "out"], &many[..]].concat();
        let mut command = desk.command(&line);
        let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
        let running = Self(silent.spawn().expect("the binary runs"));
        let directory = place.behind.clone().expect("seen from here");
        let patience = Instant::now() + Duration::from_mins(1);
        loop {
            assert!(Instant::now() < patience, "no file was made");
            let ours = std::fs::read_dir(&directory).expect("there").flatten();
            if let Some(ours) = ours.map(|entry| entry.path()).find(|path| path.is_dir())
                && std::fs::read_dir(&ours).is_ok_and(|entries| entries.count() > 50)
            {
                let name = ours.file_name().and_then(|name| name.to_str());
                return (running, name.expect("UTF-8").to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What SIGINT ends is removed; what SIGKILL leaves `clean` removes, but never a user's file that strayed in.
fn interrupted(place: &Place) {
    let desk = Desk::at(place);
    let (mut running, _) = Running::start(&desk, place);
    let pid = rustix::process::Pid::from_child(&running.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signalled");
    assert_eq!(running.0.wait().expect("ends").code(), Some(130));
    let results = Results::read(&desk.path("out"));
    assert_eq!(results.rows[0]["status"], "interrupted");
    assert!(count(&results.rows[0], "ops") > 0);
    place.assert_clean();

    let (running, ours) = Running::start(&Desk::at(place), place);
    drop(running);
    let desk = Desk::at(place);
    let run = ours.strip_prefix("nasgauge-").expect("our name");
    // A user's own; then names that are nearly those of this run.
    for stray in [
        "holiday.jpg".to_owned(),
        format!("x{run}.00000001"),
        format!("{run}.000000001"),
        format!("{run}.00000001.jpg"),
    ] {
        let stray = format!("{ours}/{stray}");
        let Control::Files(mut files) = place.control() else {
            panic!("{} has no directory", place.uri);
        };
        files.put(&stray, b"mine").expect("a user's file");
        let before = files.list(&ours).expect("lists").len();
        let ran = desk.nasgauge(&["clean", &place.uri, "--yes"]);
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(ran.err.contains("not nasgauge's"), "{ran:?}");
        assert_eq!(files.list(&ours).expect("lists").len(), before);
        assert_eq!(files.get(&stray, 9).expect("there"), b"mine");
        files.remove(&stray).expect("removed by its user");
    }
    desk.does(&["clean", &place.uri, "--yes"]);
    place.assert_clean();
}

#[test]
fn on_a_path() {
    whole_story(&lab::file("engine=io_uring"));
}

#[test]
fn on_embedded_nfs() {
    whole_story(&lab::embedded_nfs());
}

#[test]
fn on_embedded_smb() {
    whole_story(&lab::embedded_smb());
}

#[test]
#[ignore = "needs root and servers"]
fn on_nfs() {
    let place = lab::ganesha(|_| {});
    whole_story(&place);
    let two = place.uri.replace('?', "?nconnect=2&");
    let place = place.under(two);
    every_operation(&place, &Desk::at(&place));
}

#[test]
#[ignore = "needs root and servers"]
fn on_smb() {
    whole_story(&lab::smbd(|_| {}));
}

#[test]
fn interrupted_on_a_path() {
    interrupted(&lab::file(""));
}

#[test]
#[ignore = "needs root and servers"]
fn interrupted_on_nfs() {
    interrupted(&lab::ganesha(|_| {}));
}

#[test]
#[ignore = "needs root and servers"]
fn interrupted_on_smb() {
    interrupted(&lab::smbd(|_| {}));
}

/// What another program does to a file.
type Harm = fn(&Path) -> std::io::Result<()>;

/// A server that claims more than it holds: here, another program takes a file away or cuts it meanwhile.
#[test]
fn what_is_claimed_must_be_there() {
    let place = lab::file("");
    let directory = place.behind.clone().expect("seen from here");
    let harms: [(Harm, &str); 2] = [
        (|path| std::fs::remove_file(path), "a listing shows"),
        (
            |path| std::fs::File::create(path).map(drop),
            "the server holds 0",
        ),
    ];
    for (harm, words) in harms {
        let desk = Desk::at(&place);
        let mut command = desk.command(&[
            "run",
            "--target",
            &place.uri,
            "--out",
            "out",
            "--rw",
            "create",
            "--filesize",
            "1k",
            "--nrfiles",
            "100000",
            "--runtime",
            "1s",
        ]);
        let child = command.stderr(Stdio::piped()).stdout(Stdio::null());
        let running = child.spawn().expect("the binary runs");
        let first = || {
            let ours = std::fs::read_dir(&directory)
                .expect("there")
                .flatten()
                .next()?;
            let inside = std::fs::read_dir(ours.path()).ok()?.flatten();
            let mut names = inside.map(|entry| entry.path());
            // Whole by now, since the second is there too.
            let all: Vec<_> = names.by_ref().collect();
            let has = |end: &str| {
                all.iter()
                    .find(|path| path.to_string_lossy().ends_with(end))
            };
            has(".00000001").and_then(|_| has(".00000000")).cloned()
        };
        let patience = Instant::now() + Duration::from_mins(1);
        let path = loop {
            if let Some(path) = first() {
                break Some(path);
            }
            if Instant::now() > patience {
                break None;
            }
        };
        let harmed = path.as_deref().map(harm);
        let ended = running.wait_with_output().expect("ends");
        harmed.expect("files were made").expect("harmed");
        assert_eq!(ended.status.code(), Some(1));
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains(words), "{said}");
        let row = &Results::read(&desk.path("out")).rows[0];
        assert_eq!(row["status"], "invalid");
        assert!(row["flags"].contains("wrong_size_stored"), "{row:?}");
        assert_eq!(row["iops"], "");
        place.assert_clean();
    }
}

#[test]
fn targets_without_files_are_refused() {
    let place = lab::ram();
    let desk = Desk::at(&place);
    for uri in ["ram:", "null:", "block:/dev/null"] {
        let line = ["run", "small-files", "--target", uri, "--out", "out"];
        desk.refuses(&line, "has none");
        assert!(!desk.path("out").exists());
    }
    let file = lab::file("direct=1");
    let line = ["run", "small-files", "--target", &file.uri, "--out", "out"];
    desk.refuses(&line, "direct=1");
    file.assert_clean();
}
