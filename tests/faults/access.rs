//! Who may not, and what is not there: passwords, shares, exports, LUNs, directories, rights.

use nasgauge::servers::real::NfsOptions;
use nasgauge::servers::real::iscsi::Lun;
use nasgauge::servers::real::smb::Share;
use nasgauge::servers::sandbox;

use crate::harness::{Ended, Start, clean, command, run, seconds};
use crate::server::{Kind, Server, work};

const SPACE: u64 = 256 << 20;
const LOAD: &[&str] = &[
    "--rw",
    "read",
    "--bs",
    "64k",
    "--size",
    "1M",
    "--runtime",
    "1s",
    "--ramp-time",
    "0s",
    "--target",
    "sim:?latency=2ms",
];

/// One run on a target that can't be used, beside one that can: the first fails in a sentence, the other is measured.
fn refused(uri: &str, words: &[&str]) -> Ended {
    let ended = run(&[&["--target", uri], LOAD].concat()).ends(seconds(20));
    expect_refused(ended, uri, words)
}

fn expect_refused(ended: Ended, uri: &str, words: &[&str]) -> Ended {
    let protocol = uri.split(':').next().expect("a scheme");
    ended.exits(1).says(words).has("sim", &["ok"]);
    ended.has(protocol, &["failed"]);
    ended
}

/// The same URI with another share.
fn with_share(uri: &str, share: &str) -> String {
    let (server, _) = uri.rsplit_once('/').expect("a share");
    format!("{server}/{share}")
}

/// With another password than the server's, which must show as little as the right one.
fn wrong_password(uri: &str, words: &[&str]) {
    let wrong = "not-the-one-17xy";
    let start = Start::new(&[&["--target", uri], LOAD].concat())
        .password(Some(wrong))
        .run();
    let ended = expect_refused(start.ends(seconds(20)), uri, words);
    assert!(!ended.shows(wrong), "{ended:?}");
}

/// Without a password and a terminal to ask on.
fn no_password(uri: &str) {
    let start = Start::new(&[&["--target", uri], LOAD].concat())
        .password(None)
        .run();
    let ended = start.ends(seconds(10));
    ended
        .touched_nothing()
        .says(&["no password for user", "NASGAUGE_PASSWORD", "--credentials"]);
}

#[test]
#[ignore = "needs root and servers"]
fn smb_refusals() {
    let server = Server::smb(SPACE, |options| {
        let directory = options.shares[0].directory.clone();
        let read_only = Share {
            read_only: true,
            ..Share::new("closed", &directory)
        };
        options.shares.push(read_only);
    });
    let uri = server.uri();
    wrong_password(&uri, &["failed while logging in", "bench", "password"]);
    no_password(&uri);
    refused(
        &with_share(&uri, "nothing"),
        &["failed while opening", "share 'nothing'"],
    );
    refused(
        &format!("{uri}/not/there"),
        &["failed while opening", "no directory 'not/there'"],
    );
    let closed = with_share(&uri, "closed");
    refused(&closed, &["failed while laying the test file", "read-only"]);
    server.assert_clean();
}

#[test]
#[ignore = "needs root and servers"]
fn iscsi_refusals() {
    let server = Server::iscsi(SPACE, |options| {
        let disk = &options.luns[0].file;
        let file = disk.with_file_name("closed");
        std::fs::copy(disk, &file).expect("room");
        options.luns.push(Lun {
            read_only: true,
            ..Lun::new(file)
        });
    });
    let uri = server.uri();
    let base = uri.strip_suffix("/1").expect("LUN 1");
    wrong_password(&uri, &["failed while logging in", "tester"]);
    no_password(&uri);
    refused(&format!("{base}/9"), &["failed while opening", "LUN 9"]);
    refused(
        &uri.replace(":real", ":other"),
        &["failed while opening", "nasgauge:other"],
    );
    let closed = format!("{base}/2");
    let ended = run(&[&["--target", &closed], LOAD].concat()).ends(seconds(20));
    ended.touched_nothing().says(&["write-protected"]);
    let anonymous = uri.replace("tester@", "");
    refused(&anonymous, &["failed while logging in"]);
    server.assert_clean();
}

#[test]
#[ignore = "needs root and servers"]
fn nfs_refusals() {
    let server = Server::nfs(SPACE, NfsOptions::default());
    let uri = server.uri();
    refused(
        &uri.replace("/disk/bench", "/nothing"),
        &["failed while opening", "/nothing"],
    );
    refused(
        &uri.replace("/disk/bench", "/disk/bench/not/there"),
        &["failed while opening", "not"],
    );
    let closed = Server::nfs(
        SPACE,
        NfsOptions {
            read_only: true,
            ..NfsOptions::default()
        },
    );
    refused(
        &closed.uri(),
        &["failed while laying the test file", "read-only"],
    );
    let squashed = Server::nfs(
        SPACE,
        NfsOptions {
            root_squash: true,
            ..NfsOptions::default()
        },
    );
    refused(
        &squashed.uri(),
        &["failed while laying the test file", "uid="],
    );
    for server in [server, closed, squashed] {
        server.assert_clean();
    }
}

#[test]
#[ignore = "needs root and servers"]
fn an_ordinary_user_is_told_about_privileged_ports_and_served_without() {
    let strict = Server::nfs(
        SPACE,
        NfsOptions {
            privileged_port: true,
            ..NfsOptions::default()
        },
    );
    let uri = strict.uri();
    let as_user = |uri: &str| {
        let arguments = [&["--target", uri], LOAD].concat();
        Start::new(&arguments)
            .user(sandbox::USER)
            .run()
            .ends(seconds(20))
    };
    let ended = as_user(&uri);
    expect_refused(ended, &uri, &["port", "root", "insecure"]);
    run(&[&["--target", &uri], LOAD].concat())
        .ends(seconds(20))
        .exits(0);
    strict.assert_clean();
    let open = Server::nfs(SPACE, NfsOptions::default());
    let squash = [open.directory.as_path()];
    for directory in squash {
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(directory, all).expect("ours");
    }
    as_user(&open.uri()).exits(0);
    open.assert_clean();
}

#[test]
#[ignore = "needs root and servers"]
fn a_path_that_is_not_there_or_closed() {
    let work = work();
    let gone = work.path().join("gone");
    let uri = format!("file:{}", gone.display());
    refused(
        &uri,
        &["failed while opening", "there is no directory", "gone"],
    );
    let closed = work.path().join("closed");
    std::fs::create_dir(&closed).expect("new");
    let uri = format!("file:{}", closed.display());
    let arguments = [&["--target", uri.as_str()], LOAD].concat();
    let ended = Start::new(&arguments)
        .user(sandbox::USER)
        .run()
        .ends(seconds(20));
    expect_refused(
        ended,
        &uri,
        &["failed while laying the test file", "Permission denied"],
    );
}

#[test]
#[ignore = "needs root and servers"]
fn short_commands_fail_in_the_same_words() {
    let server = Server::start(Kind::Smb);
    let uri = with_share(&server.uri(), "nothing");
    let load = ["--quiet", "--format", "csv", "--target", &uri];
    let ended = run(&[&load, LOAD].concat()).ends(seconds(20));
    ended
        .exits(1)
        .says(&["failed while opening", "share 'nothing'"]);
    assert_eq!(
        ended.stdout.lines().count(),
        3,
        "a header and two rows: {ended:?}"
    );
    for verb in [&["inspect", &uri][..], &["clean", &uri, "--yes"]] {
        command(verb)
            .exits(1)
            .says(&["nasgauge: ", "failed while opening", "share 'nothing'"]);
    }
    clean(&server.uri());
}
