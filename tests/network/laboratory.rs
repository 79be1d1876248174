//! The laboratory imposes what it says, as ping and Debian's iperf3 see it.

use std::time::Duration;

use crate::full::full;
use crate::lab::reference::{iperf3, iperf3_parts, payload, ping};
use crate::lab::{Host, Lab, Link, Server, Way, run};

/// Both directions of a lab carry these bits per second, as iperf3 sees it: within `share` in a full run, else never more,
/// and undisturbed not less than `least` of it.
fn carries(lab: &Lab, [there, back]: [f64; 2], share: f64, least: f64, what: &str) {
    let _server = Server::iperf3(&lab.b);
    for (direction, wanted, more) in [("there", there, &[][..]), ("back", back, &["-R"])] {
        let of = |got: f64| format!("{:.1} of {:.1} Mbit/s", got / 1e6, wanted / 1e6);
        if full() {
            let got = iperf3(&lab.a, &lab.b, more);
            eprintln!("{what}, {direction}: {}", of(got));
            let off = (got / wanted - 1.0).abs();
            assert!(off <= share, "{what}, {direction}: {}", of(got));
            continue;
        }
        let (mean, undisturbed) = iperf3_parts(&lab.a, &lab.b, more);
        let told = format!(
            "{what}, {direction}: {} on average, {} undisturbed",
            of(mean),
            of(undisturbed)
        );
        eprintln!("{told}");
        assert!(mean <= wanted * 1.01, "{told}");
        // Not bounded above: a part may carry what the one before it was kept from.
        assert!(undisturbed / wanted >= least, "{told}");
    }
}

#[test]
#[ignore = "needs root and servers"]
fn a_relay_delays_as_asked() {
    for one_way_us in [0, 500, 5_000] {
        let lab = Lab::far(&Link::FAST, &Way::delay(one_way_us));
        let (least, median) = ping(&lab.a, &lab.b);
        let imposed = 2.0 * one_way_us as f64 / 1e3;
        eprintln!("2 x {one_way_us} us: {least} ms at least, {median} ms at the median");
        assert!(least >= imposed && least <= imposed + 0.4);
        // A processor that is away delays most of them, but hardly all.
        assert!(!full() || median <= imposed + 0.4);
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
        let rates = [link.rate_a_to_b, link.rate_b_to_a]
            .map(|rate| payload(rate.expect("shaped") as f64, f64::from(link.mtu)));
        carries(&Lab::pair(&link), rates, 0.01, 0.97, name);
    }
}

#[test]
#[ignore = "needs root and servers"]
fn a_far_rate_is_what_iperf3_sees() {
    // A line of the same rate behind the shaper loses whatever moment the shaper left it without a frame: 949 to 955 Mbit/s,
    // where the line alone, or behind a shaper 2 % faster, carries 955 to 957.
    let fast = (None, 64 << 10, 0.01, 0.97);
    let even = (Some(1_000_000_000), 4_700, 0.025, 0.9);
    for (line_rate, super_frame_max, share, least) in [fast, even] {
        let way = Way {
            line_rate,
            super_frame_max,
            ..Way::delay(500)
        };
        let lab = Lab::far(&Link::rate(1_000_000_000), &way);
        let what = format!("far, line rate {line_rate:?}");
        carries(&lab, [payload(1e9, 1500.0); 2], share, least, &what);
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
    let answered = |lab: &Lab, count: &str, more: &[&str]| {
        let output = lab
            .a
            .command("ping")
            .args(["-q", "-c", count, "-i", "0.002", "-W", "1", &address])
            .args(more)
            .output()
            .expect("ping starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = said.split(" received").next().expect("a part");
        let count = count.rsplit(' ').next().expect("a word");
        count.parse::<u32>().expect(&said)
    };
    // A tenth each way: 648 of 800 come back, give or take five standard deviations.
    let back = answered(&lab, "800", &[]);
    eprintln!("{back} of 800 pings came back");
    assert!((592..=704).contains(&back));
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
    assert_eq!(answered(&lab, "100", &["-s", "1472", "-M", "do"]), 100);
    assert_eq!(answered(&lab, "100", &["-s", "1473", "-M", "do"]), 0);
}

#[test]
#[ignore = "needs root and servers"]
fn a_filter_takes_what_it_names_and_nothing_else() {
    let lab = Lab::switched(2, &Link::FAST);
    let other = &lab.others[0];
    lab.b.drop_incoming("tcp dport 5201");
    // A refusal comes at once, but not on every machine within a moment.
    let reach = |host: &Host, patience_ms| {
        let address = (host.address, 5201).into();
        lab.a.inside(|| {
            std::net::TcpStream::connect_timeout(&address, Duration::from_millis(patience_ms))
                .expect_err("nobody listens")
                .kind()
        })
    };
    assert_eq!(reach(&lab.b, 300), std::io::ErrorKind::TimedOut);
    assert_eq!(reach(other, 10_000), std::io::ErrorKind::ConnectionRefused);
    assert!(lab.b.dropped() > 0);
    lab.b.drop_nothing();
    assert_eq!(reach(&lab.b, 10_000), std::io::ErrorKind::ConnectionRefused);
}

#[test]
#[ignore = "needs root and servers"]
fn nothing_is_left_of_a_lab() {
    let lab = Lab::beside(&Link::FAST);
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
