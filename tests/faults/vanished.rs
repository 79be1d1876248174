//! Test files and directories that someone else takes away in the middle of a measurement.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use nasgauge::spec::uri::TargetSpec;
use nasgauge::target::{Control, Login, Secret};

use crate::harness::{files_below, run, seconds};
use crate::server::{Kind, Server, work};

const LOAD: &[&str] = &[
    "--rw",
    "randread",
    "--bs",
    "4k",
    "--size",
    "4M",
    "--runtime",
    "1s",
    "--ramp-time",
    "0s",
    "--repeats",
    "3",
    "--target",
    "sim:?latency=2ms",
];

fn data_file(directory: &Path) -> PathBuf {
    let files = files_below(directory);
    files
        .into_iter()
        .find(|file| file.ends_with("data.bin"))
        .expect("under measurement")
}

/// Removes a file as another client of the server would.
fn remove_over(uri: &str, path: &Path) {
    let login = Login {
        spec: TargetSpec::parse(uri).expect("a URI"),
        secret: Secret::default(),
        connect_timeout_ms: 5000,
        io_timeout_ms: 5000,
    };
    let Ok(Control::Files(mut files)) = nasgauge::fleet::control(&login) else {
        panic!("{uri} has files");
    };
    files.remove(path.to_str().expect("plain")).expect("there");
}

/// Removes the test file during the second repeat. The cell may end well, since the server holds the file open; the
/// next one can't.
fn file_removed(uri: &str, protocol: &str, directory: &Path) {
    let running = run(&[&["--target", uri], LOAD].concat());
    running.until_measuring(uri, 2);
    let file = data_file(directory);
    if protocol == "nfs" {
        // The server remembers names: whoever removes one behind its back is not noticed.
        remove_over(uri, file.strip_prefix(directory).expect("below"));
    } else {
        std::fs::remove_file(file).expect("there");
    }
    let ended = running.ends(seconds(30));
    ended.exits(1).has("sim", &["ok", "ok", "ok"]);
    let statuses = ended.statuses(protocol);
    assert_eq!((statuses[0], statuses[2]), ("ok", "failed"), "{ended:?}");
    ended.says(&["failed while opening", "data.bin"]);
    assert_eq!(crate::server::left_in(directory), [""; 0], "{ended:?}");
}

#[test]
#[ignore = "needs root and servers"]
fn a_test_file_removed_by_someone_else() {
    let (nfs, smb, work) = (Server::start(Kind::Nfs), Server::start(Kind::Smb), work());
    std::thread::scope(|scope| {
        for server in [&nfs, &smb] {
            scope.spawn(move || file_removed(&server.uri(), server.protocol(), &server.directory));
        }
        let uri = format!("file:{}", work.path().display());
        let directory = work.path();
        scope.spawn(move || file_removed(&uri, "file", directory));
    });
}

#[test]
#[ignore = "needs root and servers"]
fn a_target_directory_that_vanishes() {
    let work = work();
    let target = work.path().join("target");
    std::fs::create_dir(&target).expect("new");
    let uri = format!("file:{}", target.display());
    let running = run(&[&["--target", &uri], LOAD].concat());
    running.until_measuring(&uri, 2);
    std::fs::remove_dir_all(&target).expect("there");
    let ended = running.ends(seconds(20));
    ended.exits(1).has("sim", &["ok", "ok", "ok"]);
    let statuses = ended.statuses("file");
    assert_eq!((statuses[0], statuses[2]), ("ok", "failed"), "{ended:?}");
    ended.says(&["failed while opening", "there is no directory"]);
}

/// A file system on which every change waits, as on a network mount whose server is away.
struct Frozen<'a>(&'a Path);

impl<'a> Frozen<'a> {
    fn freeze(mount: &'a Path) -> Self {
        tool("fsfreeze", &["--freeze".as_ref(), mount.as_os_str()]);
        Self(mount)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        tool("fsfreeze", &["--unfreeze".as_ref(), self.0.as_os_str()]);
    }
}

fn tool(name: &str, arguments: &[&OsStr]) {
    let status = Command::new(name).args(arguments).status();
    assert!(status.expect(name).success(), "{name} {arguments:?}");
}

#[test]
#[ignore = "needs root and servers"]
fn a_directory_that_hangs_for_ever() {
    let work = work();
    let (image, mount) = (work.path().join("image"), work.path().join("mount"));
    std::fs::create_dir(&mount).expect("new");
    let file = std::fs::File::create_new(&image);
    file.and_then(|file| file.set_len(64 << 20)).expect("new");
    tool("mkfs.ext4", &["-q".as_ref(), image.as_os_str()]);
    tool(
        "mount",
        &[
            "-o".as_ref(),
            "loop".as_ref(),
            image.as_os_str(),
            mount.as_os_str(),
        ],
    );
    let uri = format!("file:{}", mount.display());
    let load = [
        "--target",
        &uri,
        "--rw",
        "randwrite",
        "--bs",
        "4k",
        "--size",
        "4M",
        "--runtime",
        "30s",
    ];
    let running = run(&[&load[..], &["--ramp-time", "0s", "--timeout", "2s"]].concat());
    running.until_measuring(&uri, 1);
    let frozen = Frozen::freeze(&mount);
    // Within the harness's patience.
    running.until_it_says("nasgauge clean");
    // What a thread began in the kernel keeps the process until the kernel lets it go.
    drop(frozen);
    let ended = running.ends(seconds(20));
    ended.exits(1).has("file", &["server_lost"]);
    ended.says(&["failed while reading and writing", "nothing moved"]);
    ended.says(&["failed while removing the test data", "no answer within"]);
    crate::harness::clean(&uri);
    assert_eq!(crate::server::left_in(&mount), [""; 0]);
    tool("umount", &[mount.as_os_str()]);
}
