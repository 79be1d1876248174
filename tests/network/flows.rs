//! `nasgauge net` on networks whose limits are known, against Debian's iperf3 server.

use std::collections::HashMap;
use std::process::Output;
use std::time::{Duration, Instant};

use crate::full::full;
use crate::lab::calm::undisturbed;
use crate::lab::reference::payload;
use crate::lab::{Host, Lab, Link, Server, Way};

/// The program's output and exit code, run on a host.
pub fn net(host: &Host, arguments: &[&str]) -> (Output, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("results");
    let output = host
        .command(env!("CARGO_BIN_EXE_nasgauge"))
        .args(["net", "--quiet"])
        .args(arguments)
        .arg("--out")
        .arg(&out)
        .output()
        .expect("nasgauge starts");
    (output, directory)
}

type Row = HashMap<String, String>;

/// The rows that the program printed as CSV.
pub fn rows(output: &Output) -> Vec<Row> {
    let text = String::from_utf8_lossy(&output.stdout);
    csv_rows(&text)
}

fn csv_rows(text: &str) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().expect("a header").clone();
    reader
        .records()
        .map(|record| {
            let record = record.expect("a row");
            let pairs = header.iter().zip(record.iter());
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect()
        })
        .collect()
}

/// Bits per second of a row.
fn bits(row: &Row) -> f64 {
    let rate: f64 = row["throughput_bytes_per_s"].parse().expect("a rate");
    rate * 8.0
}

/// Rates in bits per second of the rows of a direction.
fn rates(rows: &[Row], direction: &str) -> Vec<f64> {
    let mine = rows.iter().filter(|row| row["direction"] == direction);
    mine.map(|row| {
        assert_eq!(row["status"], "ok", "{row:?}");
        bits(row)
    })
    .collect()
}

/// Holds on any machine of the rows of a direction whose line carries `wanted` bits per second: none is more, each is what
/// its samples say, and [undisturbed] those are no more than 3 % below the line's rate.
fn carries(directory: &tempfile::TempDir, rows: &[Row], direction: &str, wanted: f64) {
    let text = std::fs::read_to_string(directory.path().join("results/intervals.csv"));
    let samples = csv_rows(&text.expect("intervals.csv"));
    let mine = rows.iter().filter(|row| row["direction"] == direction);
    for row in mine {
        assert_eq!(row["status"], "ok", "{row:?}");
        let same = |sample: &&Row| {
            ["workload", "direction", "repeat"]
                .iter()
                .all(|column| sample[*column] == row[*column])
        };
        let of = |target: &str| -> Vec<f64> {
            let mine = samples.iter().filter(same);
            let mine = mine.filter(|sample| sample["target"] == target);
            mine.map(bits).collect()
        };
        let mut parts = of(&row["target"]);
        if let Some((first, second)) = row["target"].split_once(',') {
            // A sum has no samples of its own: those of its two servers are taken at the same time.
            let both = of(first).into_iter().zip(of(&format!("tcp://{second}")));
            parts = both.map(|(one, other)| one + other).collect();
        }
        let mean = parts.iter().sum::<f64>() / parts.len() as f64;
        let (told, best) = (bits(row), undisturbed(parts));
        let what = format!(
            "{} {direction}: {:.1} told, {:.1} in samples, {:.1} undisturbed of {:.1} Mbit/s",
            row["workload"],
            told / 1e6,
            mean / 1e6,
            best / 1e6,
            wanted / 1e6
        );
        eprintln!("{what}");
        assert!(told <= wanted * 1.01, "{what}");
        assert!((told / mean - 1.0).abs() < 0.15, "{what}");
        // Not bounded above: a part may carry what the one before it was kept from.
        assert!(best / wanted >= 0.97, "{what}");
    }
}

/// Options of a test whose rate is asserted: in a full run long ones, else short ones with samples for [`carries`].
fn timing() -> [&'static str; 4] {
    if full() {
        ["--runtime", "3", "--interval", "1s"]
    } else {
        ["--runtime", "2", "--interval", "200ms"]
    }
}

fn assert_within(got: f64, wanted: f64, share: f64, what: &str) {
    eprintln!("{what}: {:.1} of {:.1} Mbit/s", got / 1e6, wanted / 1e6);
    assert!(
        (got / wanted - 1.0).abs() <= share,
        "{what}: {got} of {wanted}"
    );
}

#[test]
#[ignore = "needs root and servers"]
fn the_rate_imposed_is_the_rate_told_each_way() {
    let asymmetric = Link {
        rate_b_to_a: Some(400_000_000),
        ..Link::rate(1_000_000_000)
    };
    let jumbo = Link {
        mtu: 9000,
        ..Link::rate(1_000_000_000)
    };
    let links = [
        ("400 Mbit/s back", asymmetric),
        ("MTU 9000", jumbo),
        ("1 Gbit/s", Link::rate(1_000_000_000)),
        ("984.4 Mbit/s", Link::rate(984_400_000)),
    ];
    let (links, streams) = if full() {
        (&links[..], "1,4,1")
    } else {
        (&links[..2], "1,4")
    };
    for (name, link) in links {
        let lab = Lab::pair(link);
        let _server = Server::iperf3(&lab.b);
        let address = lab.b.address.to_string();
        let (output, kept) = net(
            &lab.a,
            &[
                &[&address, "--streams", streams, "--direction", "both"][..],
                &timing(),
                &["--format", "csv"],
            ]
            .concat(),
        );
        let rows = rows(&output);
        assert_eq!(rows.len(), 2 * streams.split(',').count(), "{output:?}");
        for (direction, rate) in [("write", link.rate_a_to_b), ("read", link.rate_b_to_a)] {
            let wanted = payload(rate.expect("shaped") as f64, f64::from(link.mtu));
            if !full() {
                eprintln!("{name}");
                carries(&kept, &rows, direction, wanted);
                continue;
            }
            // The middle one of three: a virtual machine loses its processors for some milliseconds now and then.
            let mut got = rates(&rows, direction);
            got.sort_by(f64::total_cmp);
            let what = format!(
                "{name}, {direction} ({:.1} to {:.1})",
                got[0] / 1e6,
                got[2] / 1e6
            );
            assert_within(got[1], wanted, 0.005, &what);
        }
        let mss = format!("mss={}", link.mtu - 52);
        for row in &rows {
            assert!(row["negotiated"].contains(&mss), "{row:?}");
            assert!(row["flags"].contains("virtual_link"), "{row:?}");
            assert_eq!((row["protocol"].as_str(), row["ops"].as_str()), ("tcp", ""));
        }
    }
}

/// The command that reaches an agent on a host.
fn agent(host: &Host) -> String {
    let program = env!("CARGO_BIN_EXE_nasgauge");
    format!("ip netns exec {} {program} agent", host.namespace())
}

#[test]
#[ignore = "needs root and servers"]
fn an_agent_serves_tests_and_answers_requests() {
    let lab = Lab::pair(&Link::rate(1_000_000_000));
    let address = lab.b.address.to_string();
    let agent = agent(&lab.b);
    let streams = if full() { "1,4,1" } else { "1" };
    let (output, kept) = net(
        &lab.a,
        &[
            &[&address, "--agent", &agent, "-P", streams][..],
            &["--direction", "both", "--format", "csv"],
            &timing(),
        ]
        .concat(),
    );
    let rows = rows(&output);
    let (flows, requests): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| row["stage"] == "network");
    let count = 2 * streams.split(',').count();
    assert_eq!((flows.len(), requests.len()), (count, 8), "{output:?}");
    let wanted = payload(1e9, 1500.0);
    for direction in ["write", "read"] {
        // Much on the way fills the line; one small request waits for each answer.
        let answered = rates(&requests, direction);
        eprintln!("{direction}: {answered:?}");
        if full() {
            let mut got = rates(&flows, direction);
            got.sort_by(f64::total_cmp);
            assert_within(got[1], wanted, 0.005, direction);
            assert_within(answered[3], wanted, 0.02, "8 requests of 1 MiB");
            assert!(answered[0] < answered[1], "{answered:?}");
        } else {
            carries(&kept, &flows, direction, wanted);
            assert!(answered[3] > 0.5 * wanted && answered[3] < 1.01 * wanted);
        }
    }
    for row in &flows {
        let told = &row["negotiated"];
        // Of what the server sends, its own kernel tells.
        for word in [
            "server_busiest_core_percent=",
            "rtt_us=",
            "cwnd_bytes=",
            "rwnd_limited_percent=",
        ] {
            assert!(told.contains(word), "{word}: {told}");
        }
    }
    for row in &requests {
        let expected = row["negotiated"].strip_prefix("expected_bytes_per_s=");
        let expected: f64 = expected.expect("theory").parse().expect("a number");
        assert!(expected * 8.0 <= wanted * 1.01, "{row:?}");
        assert!(row["latency_us_p50"].parse::<f64>().expect("a time") > 0.0);
    }
    assert_eq!(listening(&lab.b), 0, "no port is left open");
}

#[test]
#[ignore = "needs root and servers"]
fn an_agent_serves_all_addresses_of_its_server_at_once() {
    let lab = Lab::pair(&Link::rate(400_000_000));
    crate::lab::run(
        lab.b
            .command("ip")
            .args(["addr", "add", "10.77.0.12/24", "dev", "eth0"]),
    );
    let hosts = format!("{},10.77.0.12", lab.b.address);
    let agent = agent(&lab.b);
    let (output, kept) = net(
        &lab.a,
        &[
            &[&hosts, "--agent", &agent, "-P", "1", "--direction", "send"][..],
            &["--no-round-trip", "--format", "csv"],
            &timing(),
        ]
        .concat(),
    );
    let flows = rows(&output);
    let got = rates(&flows, "write");
    assert_eq!(got.len(), 3, "{output:?}");
    let both = payload(4e8, 1500.0);
    if full() {
        assert_within(got[2], both, 0.01, "both together");
    } else {
        carries(&kept, &flows[2..], "write", both);
    }
    assert!(got[0].min(got[1]) > 0.0);
    // An address that is not the agent's server has no port.
    let hosts = format!("{},10.77.0.99", lab.b.address);
    let (output, _kept) = net(&lab.a, &[&hosts, "--agent", &agent, "-P", "1", "-t", "1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("10.77.0.99 is not an address of this computer"),
        "{said}"
    );
}

/// Ports on which a host listens.
fn listening(host: &Host) -> usize {
    let said = crate::lab::run(host.command("ss").arg("-Hltun"));
    said.lines().count()
}

#[test]
#[ignore = "needs root and servers"]
fn both_at_once_are_measured_at_once() {
    let lab = Lab::pair(&Link::rate(500_000_000));
    let _server = Server::iperf3(&lab.b);
    let address = lab.b.address.to_string();
    let (output, kept) = net(
        &lab.a,
        &[
            &[&address, "-P", "2", "--bidir", "--format", "csv"][..],
            &timing(),
        ]
        .concat(),
    );
    let rows = rows(&output);
    let wanted = payload(5e8, 1500.0);
    for direction in ["write", "read"] {
        let got = rates(&rows, direction);
        assert_eq!(got.len(), 1, "{output:?}");
        // Acknowledgements of the other way cross the same line.
        if full() {
            assert_within(got[0], wanted, 0.02, direction);
        } else {
            carries(&kept, &rows, direction, wanted);
        }
    }
    assert!(
        rows.iter()
            .all(|row| row["workload"].contains("both at once"))
    );
}

/// 5 ms each way: a small send buffer bounds one flow, and four carry four times as much, far below what the machine can.
#[test]
#[ignore = "needs root and servers"]
fn one_flow_on_a_long_way_is_named_window_limited() {
    let lab = Lab::far(&Link::FAST, &Way::delay(5_000));
    crate::lab::run(
        lab.a
            .command("sysctl")
            .args(["-qw", "net.ipv4.tcp_wmem=4096 65536 262144"]),
    );
    let _server = Server::iperf3(&lab.b);
    let address = lab.b.address.to_string();
    let (output, _kept) = net(
        &lab.a,
        &[
            &address,
            "--streams",
            "1,4",
            "--direction",
            "send",
            "--runtime",
            "2",
        ],
    );
    let text = String::from_utf8_lossy(&output.stdout).replace("\n    ", " ");
    assert!(output.status.success(), "{output:?}");
    eprintln!("{text}");
    assert!(
        text.contains("TCP buffer too small for one connection")
            && text.contains("in flight at 1")
            && text.contains("4 connections carry"),
        "{text}"
    );
}

#[test]
#[ignore = "needs root and servers"]
fn several_servers_are_tested_together_and_summed() {
    let link = Link {
        rate_a_to_b: Some(600_000_000),
        rate_b_to_a: Some(200_000_000),
        ..Link::FAST
    };
    let lab = Lab::switched(2, &link);
    let _first = Server::iperf3(&lab.b);
    let _second = Server::iperf3(&lab.others[0]);
    let hosts = format!("{},{}", lab.b.address, lab.others[0].address);
    let (output, kept) = net(
        &lab.a,
        &[
            &[&hosts, "-P", "1", "--direction", "receive"][..],
            &["--cores", "0,1", "--format", "csv"],
            &timing(),
        ]
        .concat(),
    );
    let rows = rows(&output);
    assert_eq!(rows.len(), 3, "{output:?}");
    let got = rates(&rows, "read");
    let one = payload(2e8, 1500.0);
    for (index, wanted) in [one, one, 2.0 * one].into_iter().enumerate() {
        if full() {
            assert_within(got[index], wanted, 0.02, "each and both");
        } else {
            carries(&kept, &rows[index..=index], "read", wanted);
        }
    }
    assert_eq!(
        rows[2]["target"],
        format!(
            "tcp://{}:5201,{}:5201",
            lab.b.address, lab.others[0].address
        )
    );
    let network: f64 = rows[0]["network_bytes"].parse().expect("bytes");
    let bytes: f64 = rows[0]["bytes"].parse().expect("bytes");
    assert!(
        network > 1.2 * bytes,
        "the interface carried both servers' data"
    );
}

#[test]
#[ignore = "needs root and servers"]
fn a_drop_off_in_a_long_test_is_marked() {
    let lab = Lab::pair(&Link::rate(400_000_000));
    let _server = Server::iperf3(&lab.b);
    let address = lab.b.address.to_string();
    // 24 samples, of which 4 or so are slow. Others may be as well on a machine with other work, but hardly most.
    let slow = std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(5));
            lab.b.shape(100_000_000);
            std::thread::sleep(Duration::from_secs(2));
            lab.b.shape(400_000_000);
        });
        let arguments = [&address, "-P", "1", "-R", "-t", "12", "-i", "500ms"];
        let found = net(&lab.a, &arguments);
        slow.join().expect("shaped");
        found
    });
    let text = String::from_utf8_lossy(&slow.0.stdout);
    let marked = text.matches("drop-off").count();
    assert!((2..=12).contains(&marked), "{text}");
    assert!(text.contains("not steady: "), "{text}");
}

/// Each bad server gets a sentence of its own, within 15 s, and exit code 1.
#[test]
#[ignore = "needs root and servers"]
fn a_bad_server_is_told_apart_within_15_seconds() {
    let lab = Lab::beside(&Link::rate(1_000_000_000));
    let address = lab.b.address.to_string();
    let fails = |arguments: &[&str], words: &str| {
        let start = Instant::now();
        let (output, _kept) = net(&lab.a, arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        eprintln!("{:.1} s: {told}", start.elapsed().as_secs_f64());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(told.contains(words), "{words}: {told}");
        assert!(start.elapsed() < Duration::from_secs(15), "{words}");
    };
    let plain = [address.as_str(), "-P", "1", "-t", "5"];
    fails(&plain, "nobody listens on");

    // Silent: takes connections, says nothing.
    let silent = lab
        .b
        .inside(|| std::net::TcpListener::bind((lab.b.address, 5201)).expect("a port"));
    fails(&plain, "takes the connection but says nothing");
    drop(silent);

    // Not an iperf3 server at all.
    let stranger = lab
        .b
        .inside(|| std::net::TcpListener::bind((lab.b.address, 5201)).expect("a port"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Ok((mut stream, _)) = stranger.accept() {
                use std::io::Write;
                let _ = stream.write_all(b"220 nas FTP server ready\r\n");
                std::thread::sleep(Duration::from_secs(2));
            }
        });
        fails(&plain, "no iperf3 server");
    });
    drop(stranger);

    // Busy with another's test.
    let server = Server::iperf3(&lab.b);
    let mut other = lab
        .a
        .command("iperf3")
        .args(["-c", &address, "-t", "30", "-b", "10M"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("iperf3 starts");
    let established = || {
        let mut ss = lab.b.command("ss");
        crate::lab::run(ss.args(["-Htn", "state", "established", "sport", "=", ":5201"]))
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    // One connection for control, one for data.
    while established().lines().count() < 2 {
        assert!(Instant::now() < deadline, "iperf3 does not test");
        std::thread::sleep(Duration::from_millis(20));
    }
    fails(&plain, "busy with someone else's test");
    other.kill().expect("ours");
    other.wait().expect("ours");
    drop(server);

    // Filtered: packets vanish.
    let _server = Server::iperf3(&lab.b);
    lab.b.drop_incoming("tcp dport 5201");
    fails(&plain, "does not answer at all");
    lab.b.drop_nothing();
}

#[test]
#[ignore = "needs root and servers"]
fn a_path_whose_jumbo_frames_vanish_is_named() {
    let jumbo = Link {
        mtu: 9000,
        ..Link::rate(1_000_000_000)
    };
    let lab = Lab::beside(&jumbo);
    // A switch in between that knows 1500 only: longer ones vanish, in both directions, and nobody says so.
    for host in [&lab.a, &lab.b] {
        host.drop_incoming("meta length > 1500");
        crate::lab::run(
            host.command("sysctl")
                .args(["-qw", "net.ipv4.tcp_mtu_probing=0"]),
        );
    }
    let _server = Server::iperf3(&lab.b);
    let address = lab.b.address.to_string();
    for direction in ["send", "receive"] {
        let start = Instant::now();
        let arguments = [&address, "-P", "1", "--direction", direction, "-t", "5"];
        let (output, _kept) = net(&lab.a, &arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        eprintln!("{:.1} s: {told}", start.elapsed().as_secs_f64());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(
            told.contains("large packets vanish") && told.contains("only 1500 are answered"),
            "{told}"
        );
        assert!(start.elapsed() < Duration::from_secs(15), "{direction}");
    }
}
