//! `nasgauge targets`: what servers offer is found, and each URI that it prints works as it stands.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nasgauge::servers::real::{self, iscsi::Lun, smb::Share};
use nasgauge::servers::{Server, embedded};
use nasgauge::spec::uri::TargetSpec;
use serde_json::Value;

use super::lab::{self, Place};
use super::program::Desk;

/// A desk with this password in its environment.
fn desk(password: Option<&str>) -> Desk {
    let mut place = Place::new("ram:", ());
    place.password = password.map(str::to_owned);
    Desk::at(&place)
}

/// A port of 127.0.0.1 where nobody listens.
fn free() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|one| one.local_addr())
        .expect("free")
        .port()
}

/// Flags for the ports of servers; whoever is not there gets a port where nobody listens.
#[derive(Default)]
struct Ports {
    nfs: Option<(u16, u16)>,
    smb: Option<u16>,
    iscsi: Option<u16>,
    iperf3: Option<u16>,
}

impl Ports {
    fn flags(&self) -> Vec<String> {
        let (nfs, mount) = self.nfs.unwrap_or_else(|| (free(), free()));
        let or_free = |port: Option<u16>| port.unwrap_or_else(free);
        [
            ("nfs", nfs),
            ("mount", mount),
            ("smb", or_free(self.smb)),
            ("iscsi", or_free(self.iscsi)),
            ("iperf3", or_free(self.iperf3)),
        ]
        .map(|(name, port)| format!("--{name}-port={port}"))
        .to_vec()
    }
}

/// What `targets` says in JSON.
struct Found {
    value: Value,
    code: i32,
}

fn look(desk: &Desk, ports: &Ports, more: &[&str]) -> Found {
    look_at(desk, "127.0.0.1", ports, more)
}

fn look_at(desk: &Desk, host: &str, ports: &Ports, more: &[&str]) -> Found {
    let flags = ports.flags();
    let mut line = vec!["targets", host, "--format", "json"];
    line.extend(flags.iter().map(String::as_str));
    line.extend(more);
    let ran = desk.nasgauge(&line);
    let value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("JSON: {ran:?}"));
    Found {
        value,
        code: ran.code,
    }
}

impl Found {
    fn server(&self, protocol: &str) -> &Value {
        let servers = self.value["servers"].as_array().expect("a list");
        let found = servers.iter().find(|server| server["protocol"] == protocol);
        found.unwrap_or_else(|| panic!("no {protocol} in {}", self.value))
    }

    fn offers(&self, protocol: &str) -> Vec<&Value> {
        let offers = self.server(protocol)["offers"].as_array();
        offers.expect("a list").iter().collect()
    }

    fn offer(&self, protocol: &str, name: &str) -> &Value {
        let offers = self.offers(protocol);
        let found = offers.into_iter().find(|offer| offer["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {:#}", self.value))
    }

    /// Every URI that is said to be accessible.
    fn uris(&self) -> Vec<String> {
        let servers = self.value["servers"].as_array().expect("a list");
        let offers = servers
            .iter()
            .flat_map(|server| server["offers"].as_array().expect("a list"));
        let open =
            offers.filter(|offer| offer["accessible"] == true && offer["what"] != "iperf3 server");
        open.filter_map(|offer| offer["uri"].as_str().map(str::to_owned))
            .collect()
    }
}

fn notes(offer: &Value) -> String {
    let notes = offer["notes"].as_array().expect("a list");
    notes
        .iter()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join("; ")
}

/// The port of a server's URI, and its MOUNT port.
fn ports_of(uri: &str) -> (u16, u16) {
    let spec = TargetSpec::parse(uri).expect(uri);
    let mount = spec
        .options
        .get("mountport")
        .map_or(0, |port| port.parse().expect("a port"));
    (spec.port.expect("explicit"), mount)
}

/// Each URI is looked at and, where it can be written, measured.
fn each_works(desk: &Desk, uris: &[String], read_only: &[&str]) {
    for (index, uri) in uris.iter().enumerate() {
        desk.does(&["inspect", uri]);
        if read_only.iter().any(|word| uri.contains(word)) {
            continue;
        }
        let out = format!("out{index}");
        desk.does(&[
            "run", "--target", uri, "--rw", "randread", "--bs", "4k", "--bytes", "64k", "--size",
            "1M", "--settle", "0s", "--quiet", "--out", &out,
        ]);
    }
}

#[test]
fn what_embedded_servers_offer_works_as_it_stands() {
    let nfs = embedded::Nfs::start(64 << 20).expect("starts");
    let smb = embedded::Smb::start(64 << 20).expect("starts");
    let iscsi = embedded::Iscsi::start(64 << 20).expect("starts");
    let ports = Ports {
        nfs: Some(ports_of(&nfs.uri())),
        smb: Some(smb.port()),
        iscsi: Some(ports_of(&iscsi.uri()).0),
        iperf3: None,
    };
    let desk = desk(smb.password());
    let found = look(&desk, &ports, &["--user", embedded::smb::USER]);
    assert_eq!(found.code, 0);
    let mut uris = found.uris();
    uris.sort();
    let mut expected = [nfs.uri(), smb.uri(), iscsi.uri()].to_vec();
    expected.sort();
    assert_eq!(uris, expected, "{:#}", found.value);
    assert_eq!(found.offers("iscsi")[0]["size_bytes"], 64 << 20);
    let silent = found.server("iperf3")["error"]
        .as_str()
        .expect("nobody there")
        .to_owned();
    assert!(
        silent.starts_with("no iperf3 server answers on port"),
        "{silent}"
    );
    each_works(&desk, &uris, &[]);
    // Without a user the share is there, but not for guests.
    let found = look(&desk, &ports, &[]);
    assert!(
        notes(found.offers("smb")[0]).contains("--user"),
        "{:#}",
        found.value
    );
    assert_eq!(found.offers("nfs").len(), 1);
}

#[test]
fn nobody_there_is_four_lines_and_an_exit_code() {
    let desk = desk(None);
    let flags = Ports::default().flags();
    let mut line = vec!["targets", "127.0.0.1"];
    line.extend(flags.iter().map(String::as_str));
    let ran = desk.nasgauge(&line);
    assert_eq!(ran.code, 1, "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines.len(), 4, "{ran:?}");
    for (line, server) in
        lines
            .iter()
            .zip(["NFS server", "SMB server", "iSCSI target", "iperf3 server"])
    {
        assert!(
            line.starts_with(&format!("no {server} answers on port")),
            "{line}"
        );
        assert!(line.ends_with("(refused)"), "{line}");
    }
}

/// nfs-ganesha, smbd, tgtd and iperf3, with names that a URI can't hold as they are.
struct Real {
    nfs: real::Nfs,
    smb: real::Smb,
    iscsi: real::Iscsi,
    iperf3: Iperf3,
    _work: tempfile::TempDir,
}

impl Real {
    fn start() -> Self {
        let work = lab::sandboxed("targets");
        let nfs = real::NfsOptions {
            directory: lab::below(work.path(), "exp ört 100% [x] &?@:=+,'"),
            ..real::NfsOptions::default()
        };
        let share = |name: &str| {
            let directory = format!("share {}", name.len());
            Share::new(name, lab::below(work.path(), &directory))
        };
        let mut shares = vec![share("bench"), share("Médiá & 'q' (1)")];
        shares.extend([
            Share {
                guest: true,
                ..share("open")
            },
            Share {
                read_only: true,
                ..share("frozen")
            },
            Share {
                encrypt: true,
                ..share("sealed-up")
            },
            share("hidden1$"),
        ]);
        let smb = real::SmbOptions {
            shares,
            // The list is told by a helper, which the other tests do without.
            global_lines: "rpc start on demand helpers = yes".to_owned(),
            ..real::SmbOptions::default()
        };
        let image = |name, size| lab::image(&lab::below(work.path(), name), size);
        let iscsi = real::IscsiOptions {
            luns: vec![
                Lun::new(image("one", 32 << 20)),
                Lun {
                    read_only: true,
                    ..Lun::new(image("two", 16 << 20))
                },
            ],
            ..real::IscsiOptions::default()
        };
        let _loopback = lab::only_loopback();
        Self {
            nfs: real::Nfs::start(work.path(), &nfs).expect("starts"),
            smb: real::Smb::start(work.path(), &smb).expect("starts"),
            iscsi: real::Iscsi::start(work.path(), &iscsi).expect("starts"),
            iperf3: Iperf3::start(),
            _work: work,
        }
    }

    const fn ports(&self) -> Ports {
        Ports {
            nfs: Some((self.nfs.port(), self.nfs.mount_port())),
            smb: Some(self.smb.port()),
            iscsi: Some(self.iscsi.port()),
            iperf3: Some(self.iperf3.port),
        }
    }
}

/// All that the user is told of [`Real`].
fn all_is_told(found: &Found) {
    assert_eq!(found.code, 0);
    let told = || format!("{:#}", found.value);
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let export = found.offers("nfs")[0];
    assert_eq!(export["accessible"], true, "{}", told());
    assert!(number(&export["free_bytes"]) > 0, "{}", told());
    assert!(notes(export).is_empty(), "{}", told());
    let count = found.offers("smb").len();
    assert_eq!(count, 5, "IPC$ and hidden ones are left out: {}", told());
    for (share, word) in [("frozen", "read-only"), ("sealed-up", "encrypted only")] {
        let notes = notes(found.offer("smb", share));
        assert!(notes.contains(word), "{}", told());
    }
    assert!(number(&found.offer("smb", "bench")["size_bytes"]) > 0);
    // tgtd's controller is no disk.
    let luns = found.offers("iscsi");
    let sizes: Vec<u64> = luns.iter().map(|lun| number(&lun["size_bytes"])).collect();
    assert_eq!(sizes, [32 << 20, 16 << 20], "{}", told());
    let frozen = |lun| notes(lun).contains("read-only");
    assert!(!frozen(luns[0]) && frozen(luns[1]), "{}", told());
    let iperf3 = found.offers("iperf3")[0];
    assert_eq!(iperf3["accessible"], true, "{}", told());
}

#[test]
#[ignore = "needs root and servers"]
fn what_ganesha_smbd_and_tgtd_offer_works_as_it_stands() {
    let real = Real::start();
    let ports = real.ports();
    let user = desk(real.smb.password());
    let found = look(&user, &ports, &["--user", "bench"]);
    all_is_told(&found);
    let uris = found.uris();
    assert_eq!(uris.len(), 1 + 4 + 2, "{uris:?}");
    // A LUN for reading only holds no test data, and neither does a share.
    each_works(&user, &uris, &["frozen", "real/2"]);
    let sealed = &found.offer("smb", "sealed-up")["uri"];
    let sealed = sealed.as_str().expect("a URI").to_owned();
    each_works(&desk(real.smb.password()), &[sealed], &[]);
    // The table has the same URIs.
    let mut line = vec!["targets".to_owned(), "127.0.0.1".to_owned()];
    line.extend(ports.flags());
    line.extend(["--user".to_owned(), "bench".to_owned()]);
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let table = user.does(&line).out;
    eprintln!("{table}");
    for uri in &uris {
        assert!(table.contains(uri), "{uri} in {table}");
    }
    // What was left out is found with --all.
    let all = look(&user, &ports, &["--user", "bench", "--all"]);
    assert_eq!(all.offer("smb", "hidden1$")["accessible"], true);
    assert_eq!(all.offer("smb", "IPC$")["uri"], Value::Null);
    // Guests see the list, and one share lets them in.
    let guest = look(&desk(None), &ports, &[]);
    let open = guest.offer("smb", "open");
    assert_eq!(open["accessible"], true, "{:#}", guest.value);
    let bench = notes(guest.offer("smb", "bench"));
    assert!(bench.contains("needs a user"), "{bench}");
    let open = open["uri"].as_str().expect("a URI").to_owned();
    each_works(&desk(None), &[open], &[]);
    // The server was asked four times, and is free.
    real.iperf3.takes_a_test();
}

#[test]
#[ignore = "needs root and servers"]
fn an_ipv6_address_stands_in_brackets() {
    let work = lab::sandboxed("targets-v6");
    let options = real::IscsiOptions {
        luns: vec![Lun::new(lab::image(work.path(), 16 << 20))],
        address: "::1".to_owned(),
        ..real::IscsiOptions::default()
    };
    let server = real::Iscsi::start(work.path(), &options).expect("starts");
    let ports = Ports {
        iscsi: Some(server.port()),
        ..Ports::default()
    };
    let desk = desk(None);
    for host in ["::1", "[::1]"] {
        let found = look_at(&desk, host, &ports, &[]);
        assert_eq!(found.uris(), [server.uri()], "{:#}", found.value);
    }
    each_works(&desk, &[server.uri()], &[]);
}

#[test]
#[ignore = "needs root and servers"]
fn a_chap_target_is_named_and_its_luns_need_the_user() {
    let work = lab::sandboxed("targets-chap");
    let secret = "a-secret-of-16-ch";
    let options = real::IscsiOptions {
        luns: vec![Lun::new(lab::image(work.path(), 16 << 20))],
        chap: Some(("tester".to_owned(), secret.to_owned())),
        ..real::IscsiOptions::default()
    };
    let server = real::Iscsi::start(work.path(), &options).expect("starts");
    let ports = Ports {
        iscsi: Some(server.port()),
        ..Ports::default()
    };
    let found = look(&desk(None), &ports, &[]);
    assert_eq!(found.code, 0);
    let target = found.offer("iscsi", &options.target);
    assert_eq!(
        (&target["uri"], &target["accessible"]),
        (&Value::Null, &Value::Bool(false))
    );
    assert!(
        notes(target).contains("CHAP") && notes(target).contains("LUNs unknown"),
        "{target:#}"
    );
    let user = desk(Some(secret));
    let found = look(&user, &ports, &["--user", "tester"]);
    assert_eq!(found.uris(), [server.uri()], "{:#}", found.value);
    each_works(&user, &found.uris(), &[]);
    let wrong = look(
        &desk(Some("another-secret-16")),
        &ports,
        &["--user", "tester"],
    );
    assert!(
        notes(wrong.offer("iscsi", &options.target)).contains("check user tester"),
        "{:#}",
        wrong.value
    );
}

#[test]
#[ignore = "needs root and servers"]
fn an_export_for_others_and_one_for_reading_say_so() {
    let work = lab::sandboxed("targets-nfs");
    let start = |name: &str, change: &dyn Fn(&mut real::NfsOptions)| {
        let mut options = real::NfsOptions {
            directory: lab::below(work.path(), name),
            ..real::NfsOptions::default()
        };
        change(&mut options);
        real::Nfs::start(&work.path().join(format!("state-{name}")), &options).expect("starts")
    };
    let ask = |server: &real::Nfs| {
        let ports = Ports {
            nfs: Some((server.port(), server.mount_port())),
            ..Ports::default()
        };
        look(&desk(None), &ports, &[])
    };
    let frozen = start("frozen", &|options| options.read_only = true);
    let found = ask(&frozen);
    assert!(
        notes(found.offers("nfs")[0]).contains("read-only"),
        "{:#}",
        found.value
    );
    drop(frozen);
    let others = start("others", &|options| {
        options.export_lines =
            "  CLIENT { Clients = 10.99.0.0/24; Access_Type = RW; }\n  Access_Type = NONE;"
                .to_owned();
    });
    let found = ask(&others);
    let told = format!("{:#}", found.value);
    // ganesha hides an export from those who may not mount it, or names who may.
    assert!(
        told.contains("10.99.0.0/24") || told.contains("no exports"),
        "{told}"
    );
}

/// Debian's iperf3 as a server, ended on drop.
struct Iperf3 {
    child: Child,
    port: u16,
}

impl Iperf3 {
    fn start() -> Self {
        let port = free();
        let child = Command::new("iperf3")
            .args(["-s", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("iperf3 is installed");
        // Held at once, so that a failure below ends it.
        let mut server = Self { child, port };
        let socket = format!("{port}");
        let deadline = Instant::now() + Duration::from_secs(5);
        while !listens(&socket) {
            assert!(Instant::now() < deadline, "iperf3 does not listen");
            assert!(
                server.child.try_wait().expect("ours").is_none(),
                "iperf3 ended"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// A client's test of a moment goes through at once.
    fn takes_a_test(mut self) {
        let port = self.port.to_string();
        let client = Command::new("iperf3")
            .args([
                "-c",
                "127.0.0.1",
                "-p",
                &port,
                "-n",
                "1M",
                "--connect-timeout",
                "2000",
            ])
            .output()
            .expect("iperf3 runs");
        let _ = self.child.kill();
        let mut said = String::new();
        let out = self.child.stdout.as_mut().expect("piped");
        out.read_to_string(&mut said).expect("text");
        assert!(
            client.status.success(),
            "{client:?}; the server said: {said}"
        );
    }
}

impl Drop for Iperf3 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether somebody listens on a TCP port of this network, without a connection: to iperf3 each is a test.
fn listens(port: &str) -> bool {
    let port: u16 = port.parse().expect("a port");
    let wanted = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        text.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let local = words.next().unwrap_or("");
            local.ends_with(&wanted) && words.nth(1) == Some("0A")
        })
    })
}
