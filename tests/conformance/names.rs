//! Names that other tools trip over: blanks, unicode, brackets, percent signs, IPv6 literals, several hosts.

use std::path::{Path, PathBuf};

use nasgauge::servers::real;

use super::lab::{self, Place, below};
use super::program::Desk;

/// F53: a directory that needs care, as it is and as a URI has it.
const AWKWARD: &str = "sub dir/100% [a]";
const AWKWARD_URI: &str = "sub%20dir/100%25%20%5Ba%5D";
/// A share's or an export's name.
const SHARE: &str = "My Médiá Share";

/// Runs in a directory, reads a user's awkward file there, and cleans up.
fn works(place: &Place, directory: &Path) {
    let name = "100% [a] é.bin";
    let mut bytes = vec![0; 256 << 10];
    super::client::pattern(0, 1, &mut bytes);
    std::fs::write(directory.join(name), &bytes).expect("written");
    let before = lab::tree(directory);
    let desk = Desk::at(place);
    assert!(desk.does(&["inspect", &place.uri]).out.contains(&place.uri));
    let results = desk.measures(
        place,
        "made",
        &["--rw", "randrw", "--size", "1M", "--verify", "1"],
    );
    assert_eq!(results.rows[0]["target"], place.uri);
    let theirs = [
        "--rw",
        "read",
        "--size",
        "256k",
        "--bs",
        "64k",
        "--read-existing",
        name,
    ];
    desk.measures(place, "theirs", &theirs);
    desk.does(&["prepare", &place.uri, "--size", "64k"]);
    desk.does(&["clean", &place.uri, "--yes"]);
    assert_eq!(lab::tree(directory), before);
}

/// The directory behind a place, and one more below it with an awkward name.
fn awkward(place: &Place) -> PathBuf {
    below(place.behind.as_deref().expect("seen from here"), AWKWARD)
}

#[test]
fn a_path_is_literal_and_a_uri_is_decoded_once() {
    let home = lab::directory();
    let directory = below(home.path(), AWKWARD);
    works(&Place::new(directory.display().to_string(), ()), &directory);
    let uri = format!("file:{}/{AWKWARD_URI}", home.path().display());
    works(&Place::new(uri, ()), &directory);
    // Decoded twice, `%2541` would be `A`.
    let twice = below(home.path(), "%41");
    works(
        &Place::new(format!("file:{}/%2541", home.path().display()), ()),
        &twice,
    );
}

#[test]
#[ignore = "needs root and servers"]
fn nfs() {
    let place = lab::ganesha(|options| {
        options.directory = below(options.directory.parent().expect("work"), SHARE);
    });
    let directory = awkward(&place);
    let uri = place.uri.replace('?', &format!("/{AWKWARD_URI}?"));
    works(&place.under(uri), &directory);
}

#[test]
#[ignore = "needs root and servers"]
fn smb() {
    let place = lab::smbd(|options| options.shares[0].name = SHARE.into());
    let directory = awkward(&place);
    let uri = format!("{}/{AWKWARD_URI}", place.uri);
    works(&place.under(uri), &directory);
}

#[test]
#[ignore = "needs root and servers"]
fn a_missing_directory_is_named_as_it_was_written() {
    let nfs = lab::ganesha(|_| {});
    let nfs_uri = nfs.uri.replace('?', "/not%20there?");
    let smb = lab::smbd(|_| {});
    let smb_uri = format!("{}/not%20there", smb.uri);
    for place in [nfs.under(nfs_uri), smb.under(smb_uri)] {
        let ran = Desk::at(&place).nasgauge(&["inspect", &place.uri]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains("not there"), "{ran:?}");
    }
}

/// F52: one spelling for every protocol.
#[test]
#[ignore = "needs root and servers"]
fn ipv6_literals() {
    let nfs = lab::ganesha(|_| {});
    let smb = lab::smbd(|_| {});
    let iscsi = lab::tgtd(8 << 20, |options| options.address = "::1".into());
    assert!(iscsi.uri.contains("[::1]"), "{}", iscsi.uri);
    let over_6 = |place: Place| {
        let uri = place.uri.replace("127.0.0.1", "[::1]");
        place.under(uri)
    };
    for place in [over_6(nfs), over_6(smb), iscsi] {
        let desk = Desk::at(&place);
        desk.does(&["inspect", &place.uri]);
        desk.measures(
            &place,
            "six",
            &["--rw", "rw", "--size", "2M", "--bs", "64k", "--verify", "1"],
        );
        place.assert_clean();
    }
}

/// Sessions take turns over two addresses of one SMB server.
#[test]
#[ignore = "needs root and servers"]
fn two_hosts_share_the_sessions() {
    let place = lab::smbd(|options: &mut real::SmbOptions| {
        options.global_lines = "bind interfaces only = no".into();
    });
    let uri = place.uri.replace("127.0.0.1", "127.0.0.1,127.0.0.2");
    let place = place.under(uri);
    let port: u16 = place.login().spec.port.expect("a port");
    let desk = Desk::at(&place);
    let met = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let long = [
                "--rw",
                "read",
                "--bs",
                "4k",
                "--size",
                "2M",
                "--numjobs",
                "4",
                "--runtime",
                "2",
            ];
            let mut line = vec![
                "run",
                "--target",
                &place.uri,
                "--out",
                "two",
                "--ramp-time",
                "0",
            ];
            line.extend(long);
            desk_does(&desk, &line);
        });
        let mut met = [false, false];
        while !run.is_finished() {
            let now = ["0100007F", "0200007F"].map(|address| established(address, port) >= 2);
            met = [met[0] || now[0], met[1] || now[1]];
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        run.join().expect("all well");
        met
    });
    assert_eq!(met, [true, true], "two sessions on each address");
    place.assert_clean();
}

fn desk_does(desk: &Desk, line: &[&str]) {
    desk.does(line);
}

/// Connections to an address, as the kernel writes it, and port.
fn established(address: &str, port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("readable");
    let wanted = format!("{address}:{port:04X}");
    let fits = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[2] == wanted && fields[3] == "01"
    };
    table.lines().skip(1).filter(fits).count()
}
