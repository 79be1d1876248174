//! The laboratory imposes what it says, as ping and Debian's iperf3 see it.

use std::time::Duration;

use crate::lab::reference::{iperf3, payload, ping};
use crate::lab::{Host, Lab, Link, Server, Way, run};

fn assert_within(got: f64, wanted: f64, share: f64, what: &str) {
    eprintln!("{what}: {:.1} of {:.1} Mbit/s", got / 1e6, wanted / 1e6);
    assert!((got / wanted - 1.0).abs() <= share, "{what}");
}

#[test]
#[ignore = "needs root and servers"]
fn a_relay_delays_as_asked() {
    for one_way_us in [0, 500, 5_000] {
        let lab = Lab::far(&Link::FAST, &Way::delay(one_way_us));
        let (least, median) = ping(&lab.a, &lab.b);
        let imposed = 2.0 * one_way_us as f64 / 1e3;
        eprintln!("2 x {one_way_us} us: {least} ms at least, {median} ms at the median");
        assert!(least >= imposed && median <= imposed + 0.4);
    }
}

#[test]
#[ignore = "needs root and servers"]
fn a_rate_is_what_iperf3_sees() {
    let slower_back = Link {
        rate_b_to_a: Some(200_000_000),
        ..Link::rate(1_000_000_000)
    };
    let jumbo = Link {
        mtu: 9000,
        ..Link::rate(1_000_000_000)
    };
    for (name, link) in [("MTU 1500", slower_back), ("MTU 9000", jumbo)] {
        let lab = Lab::pair(&link);
        let _server = Server::iperf3(&lab.b);
        let mtu = f64::from(link.mtu);
        let there = payload(link.rate_a_to_b.expect("shaped") as f64, mtu);
        let back = payload(link.rate_b_to_a.expect("shaped") as f64, mtu);
        assert_within(
            iperf3(&lab.a, &lab.b, &[]),
            there,
            0.01,
            &format!("{name}, there"),
        );
        assert_within(
            iperf3(&lab.a, &lab.b, &["-R"]),
            back,
            0.01,
            &format!("{name}, back"),
        );
    }
}

#[test]
#[ignore = "needs root and servers"]
fn a_far_rate_is_what_iperf3_sees() {
    // A line of the same rate behind the shaper loses whatever moment the shaper left it without a frame: 949 to 955 Mbit/s,
    // where the line alone, or behind a shaper 2 % faster, carries 955 to 957.
    let fast = (None, 64 << 10, 0.01);
    let even = (Some(1_000_000_000), 4_700, 0.025);
    for (line_rate, super_frame_max, share) in [fast, even] {
        let way = Way {
            line_rate,
            super_frame_max,
            ..Way::delay(500)
        };
        let lab = Lab::far(&Link::rate(1_000_000_000), &way);
        let _server = Server::iperf3(&lab.b);
        let wanted = payload(1e9, 1500.0);
        for (direction, more) in [("there", &[][..]), ("back", &["-R"])] {
            let got = iperf3(&lab.a, &lab.b, more);
            let what = format!("far, line rate {line_rate:?}, {direction}");
            assert_within(got, wanted, share, &what);
        }
    }
}

#[test]
#[ignore = "needs root and servers"]
fn losses_and_long_frames_vanish_on_the_way() {
    let lossy = Way {
        loss_ppm: 100_000,
        super_frame_max: 0,
        ..Way::delay(100)
    };
    let lab = Lab::far(&Link::FAST, &lossy);
    let address = lab.b.address.to_string();
    let answered = |lab: &Lab, more: &[&str]| {
        let output = lab
            .a
            .command("ping")
            .args(["-q", "-c", "200", "-i", "0.002", "-W", "1", &address])
            .args(more)
            .output()
            .expect("ping starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = said.split(" received").next().expect("a part");
        let count = count.rsplit(' ').next().expect("a word");
        count.parse::<u32>().expect(&said)
    };
    // A tenth each way: 162 of 200 come back, give or take three standard deviations.
    let back = answered(&lab, &[]);
    eprintln!("{back} of 200 pings came back");
    assert!((144..=180).contains(&back));
    drop(lab);

    let jumbo = Link {
        mtu: 9000,
        ..Link::FAST
    };
    let narrow = Way {
        super_frame_max: 0,
        frame_max: Some(1514),
        ..Way::delay(0)
    };
    let lab = Lab::far(&jumbo, &narrow);
    // 28 bytes are heads.
    assert_eq!(answered(&lab, &["-s", "1472", "-M", "do"]), 200);
    assert_eq!(answered(&lab, &["-s", "1473", "-M", "do"]), 0);
}

#[test]
#[ignore = "needs root and servers"]
fn a_filter_takes_what_it_names_and_nothing_else() {
    let lab = Lab::switched(2, &Link::FAST);
    let other = &lab.others[0];
    lab.b.drop_incoming("tcp dport 5201");
    let reach = |host: &Host| {
        let address = (host.address, 5201).into();
        lab.a.inside(|| {
            std::net::TcpStream::connect_timeout(&address, Duration::from_millis(300))
                .expect_err("nobody listens")
                .kind()
        })
    };
    assert_eq!(reach(&lab.b), std::io::ErrorKind::TimedOut);
    assert_eq!(reach(other), std::io::ErrorKind::ConnectionRefused);
    assert!(lab.b.dropped() > 0);
    lab.b.drop_nothing();
    assert_eq!(reach(&lab.b), std::io::ErrorKind::ConnectionRefused);
}

#[test]
#[ignore = "needs root and servers"]
fn nothing_is_left_of_a_lab() {
    let lab = Lab::pair(&Link::FAST);
    let names = [lab.a.namespace().to_owned(), lab.b.namespace().to_owned()];
    let mut sleeper = lab.b.command("sleep").arg("600").spawn().expect("starts");
    drop(lab);
    let ended = sleeper.wait().expect("our child");
    assert!(!ended.success(), "it was killed");
    let left = run(std::process::Command::new("ip").args(["netns", "list"]));
    for name in names {
        assert!(!left.contains(&name), "{left}");
    }
}
