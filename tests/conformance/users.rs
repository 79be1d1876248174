//! What a user has on a target stays as it was, whatever is run on it.

use std::path::Path;

use nasgauge::target::Control;

use super::lab::{self, Place, tree};
use super::program::Desk;

/// A user's directory: files of all kinds, and some that only look like ours.
fn furnish(directory: &Path) {
    let put = |name: &str, content: &[u8]| {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("new");
        std::fs::write(path, content).expect("written");
    };
    put("precious.txt", b"nine byte");
    put("data.bin", &vec![7; 70_000]);
    put("nasgauge.json", b"{\"nasgauge\":\"a file of the user's\"}");
    put("deep/er/film.bin", &noise(3 << 20));
    // Named like a run's directory, without a manifest, with another's, and with a broken one.
    put("nasgauge-20260101T000000Z-0001/thesis.txt", b"unsaved");
    put(
        "nasgauge-20260101T000000Z-0002/nasgauge.json",
        b"{\"nasgauge\":\"mine\",\"size\":1}",
    );
    put("nasgauge-20260101T000000Z-0002/data.bin", b"mine");
    put(
        "nasgauge-20260101T000000Z-0003/nasgauge.json",
        b"{\"nasgauge\":\"nasgauge test data; safe",
    );
    put("nasgauge-20260101T000000Z-0003/laid.json", &[0xff; 100]);
    // The time of a change must be told from that of the tests.
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    for (path, ..) in tree(directory) {
        if path.is_file() {
            let file = std::fs::File::options()
                .append(true)
                .open(path)
                .expect("there");
            file.set_modified(old).expect("set");
        }
    }
}

/// Bytes without holes.
fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    super::client::pattern(0, 1, &mut bytes);
    bytes
}

fn stays_as_it_was(place: &Place) {
    let behind = place.behind.as_deref().expect("seen from here");
    furnish(behind);
    let before = tree(behind);
    let desk = Desk::at(place);
    let unchanged = || assert_eq!(tree(behind), before, "{}", place.uri);

    desk.does(&["inspect", &place.uri]);
    unchanged();
    let write = [
        "--rw",
        "randwrite",
        "--bs",
        "4k",
        "--size",
        "1M",
        "--verify",
        "1",
    ];
    let results = desk.measures(place, "write", &write);
    assert_eq!(results.rows.len(), 1);
    unchanged();
    desk.does(&["prepare", &place.uri, "--size", "1M"]);
    desk.measures(
        place,
        "kept",
        &[
            "--rw", "read", "--bs", "64k", "--size", "1M", "--verify", "1",
        ],
    );
    desk.does(&["clean", &place.uri, "--yes"]);
    unchanged();
    let clean = desk.does(&["clean", &place.uri, "--yes"]);
    assert!(clean.out.contains("nothing of nasgauge's"), "{clean:?}");
    unchanged();
    reads_the_users_file(place, &desk, "deep/er/film.bin");
    unchanged();
    a_users_file_in_our_directory(place, &desk);
    unchanged();
}

/// `--read-existing`: read, marked, never opened for writing.
fn reads_the_users_file(place: &Place, desk: &Desk, path: &str) {
    let theirs = ["--read-existing", path, "--bs", "64k"];
    let all = ["--size", "3M"];
    for rw in ["read", "randread"] {
        let results = desk.measures(
            place,
            &format!("theirs-{rw}"),
            &[&theirs[..], &all, &["--rw", rw]].concat(),
        );
        let row = &results.rows[0];
        assert_eq!(row["payload"], "unknown");
        assert!(row["flags"].contains("user_file"), "{row:?}");
        assert_eq!(row["bytes"], (3 << 20).to_string());
    }
    let refused = |more: &[&str], words: &str| {
        let line = [
            &["run", "--target", &place.uri, "--out", "refused"],
            &theirs[..],
            more,
        ]
        .concat();
        desk.refuses(&line, words);
        assert!(!desk.path("refused").exists(), "no results of nothing");
    };
    refused(&["--rw", "write", "--size", "3M"], "only reads");
    refused(&["--rw", "randrw", "--size", "3M"], "only reads");
    refused(
        &["--rw", "read", "--size", "3M", "--verify", "1"],
        "can't verify",
    );
    refused(&["--rw", "read", "--size", "4M"], "give --size");
    let outside = ["../precious.txt", "deep/../precious.txt", "./precious.txt"];
    // On this computer a user may name any file by its full path; on a server there is nothing beyond the target.
    let full = (!place.uri.starts_with("file:")).then_some("/etc/passwd");
    for outside in outside.into_iter().chain(full) {
        let one = ["--rw", "read", "--size", "1", "--bs", "1"];
        let line = [
            &["run", "--target", &place.uri, "--read-existing", outside],
            &one[..],
        ]
        .concat();
        desk.refuses(&line, "is no");
    }
}

/// A directory of ours in which a user has put something is not ours alone any more.
fn a_users_file_in_our_directory(place: &Place, desk: &Desk) {
    let before = place.names();
    desk.does(&["prepare", &place.uri, "--size", "64k"]);
    let name = place
        .names()
        .into_iter()
        .find(|name| !before.contains(name));
    let name = name.expect("prepared");
    let note = format!("{name}/note.txt");
    // Through the server: what is changed behind its back, nfs-ganesha sees a minute later.
    let Control::Files(mut files) = place.control() else {
        panic!("a directory");
    };
    files.put(&note, b"mine").expect("put");
    let all = files.list(&name).expect("lists").len();
    let ran = desk.refuses(&["clean", &place.uri, "--yes"], "note.txt");
    assert!(ran.err.contains("it stays"), "{ran:?}");
    assert_eq!(files.list(&name).expect("lists").len(), all);
    assert_eq!(files.get(&note, 100).expect("there"), b"mine");
    files.remove(&note).expect("removed");
    desk.does(&["clean", &place.uri, "--yes"]);
    assert!(!place.names().contains(&name));
}

#[test]
fn file() {
    stays_as_it_was(&lab::file("engine=psync"));
}

#[test]
#[ignore = "needs root and servers"]
fn nfs_ganesha() {
    stays_as_it_was(&lab::ganesha(|_| {}));
}

#[test]
#[ignore = "needs root and servers"]
fn smb_smbd() {
    stays_as_it_was(&lab::smbd(|_| {}));
}

/// F4: a file of holes measures no storage.
#[test]
fn a_users_file_with_holes_is_not_read() {
    let place = lab::file("engine=psync");
    let hole = place.behind.as_deref().expect("local").join("hole.bin");
    std::fs::File::create(&hole)
        .and_then(|file| file.set_len(1 << 20))
        .expect("sparse");
    let desk = Desk::at(&place);
    let line = [
        "run",
        "--target",
        &place.uri,
        "--rw",
        "read",
        "--size",
        "1M",
        "--read-existing",
        "hole.bin",
    ];
    desk.refuses(&line, "holes");
}
