//! Media without room: found before anything is written where the target tells, else in the middle.

use std::io::Write;
use std::path::Path;

use crate::harness::{Ended, files_below, run, seconds};
use crate::server::{Kind, Server, left_in, work};
use nasgauge::servers::sandbox::Disk;

const SPACE: u64 = 192 << 20;
const SIM: &[&str] = &["--ramp-time", "0s", "--target", "sim:?latency=2ms"];

/// Takes all of a disk's space but for `left` bytes.
fn fill(directory: &Path, left: u64) {
    let free = || {
        let space = rustix::fs::statvfs(directory).expect("there");
        space.f_bavail * space.f_frsize
    };
    let mut filler = std::fs::File::create_new(directory.join("filler")).expect("room for a name");
    let piece = vec![1; 1 << 20];
    while free() > left && filler.write_all(&piece).is_ok() {}
}

/// A size that does not fit is refused before anything is touched.
fn refused_before(uri: &str) {
    let load = [
        "--rw",
        "write",
        "--bs",
        "1M",
        "--size",
        "200M",
        "--runtime",
        "1s",
        "--target",
        uri,
    ];
    let ended = run(&[&load, SIM].concat()).ends(seconds(20));
    ended
        .touched_nothing()
        .says(&["200 MiB", "would not fit", "--size"]);
}

/// Space that another takes away after the check. The cells overwrite what was laid, so it is the laying that runs out.
fn full_while_laying(uri: &str, directory: &Path) -> Ended {
    let load = [
        "--rw",
        "write",
        "--bs",
        "64k",
        "--size",
        "150M",
        "--runtime",
        "1s",
        "--repeats",
        "2",
        "--target",
        uri,
    ];
    let running = run(&[&load, SIM].concat());
    fill_when_made(directory);
    let ended = running.ends(seconds(30));
    ended.exits(1).has("sim", &["ok", "ok"]);
    ended
}

/// Waits for the test file and takes the space away.
fn fill_when_made(directory: &Path) {
    let deadline = std::time::Instant::now() + seconds(20);
    while left_in(directory)
        .iter()
        .all(|name| !name.ends_with("data.bin"))
    {
        assert!(
            std::time::Instant::now() < deadline,
            "no test file was made"
        );
        std::thread::yield_now();
    }
    fill(directory, 0);
}

fn files(kind: Kind, options: &str) {
    let server = Server::on(kind, SPACE);
    let uri = format!("{}{options}", server.uri());
    refused_before(&uri);
    server.assert_clean();
    let ended = full_while_laying(&uri, &server.directory);
    ended.has(server.protocol(), &["failed", "failed"]);
    ended.says(&["failed while laying the test file", "full"]);
    server.assert_clean();
}

#[test]
#[ignore = "needs root and servers"]
fn an_nfs_export_without_space() {
    files(Kind::Nfs, "");
    files(Kind::Nfs, "&engine=crate");
}

#[test]
#[ignore = "needs root and servers"]
fn an_smb_share_without_space() {
    files(Kind::Smb, "");
    files(Kind::Smb, "?engine=smb2");
}

#[test]
#[ignore = "needs root and servers"]
fn a_directory_without_space() {
    let work = work();
    let disk = Disk::mount(work.path().join("disk"), SPACE).expect("mounts");
    let uri = format!("file:{}", disk.path().display());
    refused_before(&uri);
    let ended = full_while_laying(&uri, disk.path());
    ended.has("file", &["failed", "failed"]);
    ended.says(&["failed while laying the test file", "No space left"]);
    assert_eq!(left_in(disk.path()), [""; 0]);
}

#[test]
#[ignore = "needs root and servers"]
fn a_thin_lun_that_runs_full_is_zeroed_as_far_as_it_was_written() {
    let server = Server::start(Kind::Iscsi);
    let uri = server.uri();
    // Of the LUN's 64 MiB the disk below it can hold 8.
    fill(&server.directory, 8 << 20);
    let load = [
        "--rw",
        "write",
        "--bs",
        "64k",
        "--size",
        "32M",
        "--runtime",
        "1s",
        "--repeats",
        "2",
        "--target",
        &uri,
    ];
    let ended = run(&[&load, SIM].concat()).ends(seconds(30));
    ended
        .exits(1)
        .has("iscsi", &["failed", "failed"])
        .has("sim", &["ok", "ok"]);
    ended.says(&[
        "failed while laying the test file",
        "could not write",
        "LUN 1",
        "full",
    ]);
    server.assert_clean();
}

#[test]
#[ignore = "needs root and servers"]
fn a_disk_for_results_that_runs_full() {
    let work = work();
    let target = work.path().join("target");
    std::fs::create_dir(&target).expect("new");
    let uri = format!("file:{}", target.display());
    let load = [
        "--rw",
        "read",
        "--bs",
        "64k",
        "--size",
        "1M",
        "--runtime",
        "500ms",
        "--repeats",
        "8",
        "--target",
        &uri,
    ];
    for (pages, code) in [(1, 2), (6, 1)] {
        let disk = Disk::mount(work.path().join("results"), pages * 4096).expect("mounts");
        let out = disk.path().join("out");
        let start = crate::harness::Start::new(&load).out(&out).run();
        let ended = start.ends(seconds(20));
        ended.exits(code).says(&["No space left", "results"]);
        assert_eq!(left_in(&target), [""; 0]);
        drop(ended);
        drop(disk);
    }
}

#[test]
#[ignore = "needs root and servers"]
fn results_that_can_not_be_written_anywhere() {
    let work = work();
    let file = work.path().join("file");
    std::fs::write(&file, "").expect("new");
    let load = [
        "--rw",
        "read",
        "--size",
        "1M",
        "--runtime",
        "1s",
        "--target",
        "ram:1M",
    ];
    let ended = crate::harness::Start::new(&load)
        .out(&file.join("out"))
        .run()
        .ends(seconds(10));
    ended
        .touched_nothing()
        .says(&["results can't go to", "Not a directory"]);
}

/// The server forgets what it accepted: here somebody shortens the file between the last write and the end.
#[test]
#[ignore = "needs root and servers"]
fn bytes_accepted_but_not_stored() {
    let (server, work) = (Server::start(Kind::Smb), work());
    let uri = format!("file:{}", work.path().display());
    std::thread::scope(|scope| {
        scope.spawn(|| shortened(&server.uri(), "smb", &server.directory));
        scope.spawn(|| shortened(&uri, "file", work.path()));
    });
    server.assert_clean();
}

fn shortened(uri: &str, protocol: &str, directory: &Path) {
    // Writes at 0, 1 and 2 seconds; the end at 3.
    let load = [
        "--rw",
        "write",
        "--bs",
        "64k",
        "--rate-iops",
        "1",
        "--size",
        "1M",
        "--runtime",
        "3s",
    ];
    let running = run(&[&["--target", uri], &load[..], &["--ramp-time", "0s"]].concat());
    // All have been seen, and most of a second is left.
    running.until_moved(uri, 1, 3);
    let files = files_below(directory);
    let data = files.iter().find(|file| file.ends_with("data.bin"));
    let file = std::fs::File::options()
        .write(true)
        .open(data.expect("there"));
    file.and_then(|file| file.set_len(100)).expect("ours");
    let ended = running.ends(seconds(20));
    ended.exits(1).has(protocol, &["invalid"]);
    ended.says(&["invalid", "196608 bytes were accepted", "holds only 100"]);
    assert!(
        ended.rows[0]["flags"].contains("wrong_size_stored"),
        "{:?}",
        ended.rows
    );
    assert_eq!(left_in(directory), [""; 0]);
}
