//! The round trip carries what theory says it does, on a line of 1 Gbit/s with a round trip of a millisecond.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use nasgauge::op::Direction;
use nasgauge::round_trip::theory::Expected;
use nasgauge::servers::round_trip::{Served, serve};
use nasgauge::stage::round_trip::{Idle, Load, PROBES, Place, carry, idle};

use crate::lab::calm::calm;
use crate::lab::reference::ceiling;
use crate::lab::{Lab, Link, Server, Way};

/// Runs `work` on host `a` while host `b` serves it; gives its result and what the server did.
fn with_server<T: Send>(lab: &Lab, work: impl FnOnce(&Place) -> T + Send) -> (T, Served) {
    let listener = lab
        .b
        .inside(|| TcpListener::bind((lab.b.address, 0)).expect("a port"));
    let place = Place {
        address: SocketAddr::from((lab.b.address, listener.local_addr().expect("bound").port())),
        connect_timeout: Duration::from_secs(5),
        io_timeout: Duration::from_secs(10),
    };
    let deadline = Instant::now() + Duration::from_mins(10);
    let stop = AtomicBool::new(false);
    let peer = lab.a.address.into();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(listener, peer, deadline, &stop));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lab.a.inside(|| work(&place))
        }));
        stop.store(true, Relaxed);
        let done = server.join().expect("no panic").expect("served");
        match result {
            Ok(result) => (result, done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// A line of 1 Gbit/s with a round trip of a millisecond. `tbf` alone would let the first 128 KiB after a pause pass
/// at once, and so every block of a shallow loop: the way carries them at the line's rate as well. Super-frames of 64 KiB
/// would arrive as one, so that all requests of a loop went together for ever; on a line they spread.
fn line() -> Lab {
    let way = Way {
        line_rate: Some(RATE),
        super_frame_max: 4_700,
        ..Way::delay(500)
    };
    Lab::far(&Link::rate(RATE), &way)
}

const RATE: u64 = 1_000_000_000;

fn load(direction: Direction, block_size: u32, connections: u16, iodepth: u16) -> Load {
    Load {
        direction,
        block_size,
        connections,
        iodepth,
        ramp: Duration::from_millis(200),
        runtime: Duration::from_millis(400),
    }
}

/// One line of the table: a load, what it carried and what theory expects, in bytes per second.
struct Line {
    load: Load,
    idle: Idle,
    got: f64,
    expected: Expected,
}

impl Line {
    /// The round trip is taken just before: on a machine with other work it is not the same all the time.
    fn measure(place: &Place, load: Load, line: f64) -> Self {
        let idle = idle(place, PROBES).expect("round trips");
        assert_eq!(idle.probes, PROBES);
        assert!(idle.min_ns >= 1_000_000 && idle.min_ns <= idle.median_ns);
        assert!(idle.median_ns <= idle.p90_ns);
        let stop = AtomicBool::new(false);
        let got = calm(3, || {
            let carried = carry(place, &load, &stop).expect("it carries something");
            assert_eq!(carried.bytes, carried.ops * u64::from(load.block_size));
            carried.bytes_per_s().expect("time passed")
        });
        let expected = Expected::new(line, load.in_flight(), load.block_size, idle.median_ns, 0);
        Self {
            load,
            idle,
            got,
            expected: expected.expect("a line"),
        }
    }

    /// How far it is from theory, as a share.
    fn off(&self) -> f64 {
        self.got / self.expected.rate() - 1.0
    }

    fn good(&self) -> bool {
        let allowed = if self.expected.clear() { 0.05 } else { 0.15 };
        self.off().abs() <= allowed
    }

    fn say(&self) {
        eprintln!(
            "{:5} {:>5} KiB x {:>2} x {:>2}: {:7.2} MB/s of {:7.2} (line {:7.2}, waiting {:8.2}, RTT {} us) {:+6.1} % {}{}",
            self.load.direction.key(),
            self.load.block_size >> 10,
            self.load.connections,
            self.load.iodepth,
            self.got / 1e6,
            self.expected.rate() / 1e6,
            self.expected.line / 1e6,
            self.expected.waiting / 1e6,
            self.idle.median_ns / 1000,
            self.off() * 100.0,
            if self.expected.clear() { "" } else { "near" },
            if self.good() { "" } else { "  <-- OFF" },
        );
    }
}

#[test]
#[ignore = "needs root and servers"]
fn single_requests_take_a_round_trip_and_their_time_on_the_line() {
    table(&[4, 16], &[1, 2]);
}

#[test]
#[ignore = "needs root and servers"]
fn a_far_line_carries_what_theory_says() {
    // Minutes of measuring: `./test --full`.
    if std::env::var_os("NASGAUGE_FULL_TESTS").is_some() {
        table(&[4, 16, 64, 256, 1024], &[1, 2, 4, 8, 16, 32]);
    }
}

/// Measures all blocks, in KiB, at all depths both ways, and holds them against theory.
fn table(blocks: &[u32], depths: &[u16]) {
    let lab = line();
    let (lines, served) = {
        let iperf3_server = Server::iperf3(&lab.b);
        let line = |more: &[&str]| ceiling(&lab.a, &lab.b, more) / 8.0;
        let rates = [
            (Direction::Read, line(&["-R"])),
            (Direction::Write, line(&[])),
        ];
        drop(iperf3_server);
        with_server(&lab, |place| {
            let mut lines = Vec::new();
            for (direction, rate) in rates {
                for kib in blocks {
                    for depth in depths {
                        let load = load(direction, kib << 10, 1, *depth);
                        let line = Line::measure(place, load, rate);
                        line.say();
                        lines.push(line);
                    }
                }
            }
            lines
        })
    };
    assert_eq!((served.strangers, served.broken), (0, 0));
    let off = lines.iter().filter(|line| !line.good()).count();
    assert_eq!(off, 0, "{off} of {} are off", lines.len());
    assert!(lines.iter().any(|line| line.expected.clear()));
}

#[test]
#[ignore = "needs root and servers"]
fn connections_count_as_depth() {
    let lab = line();
    let (lines, _) = {
        let iperf3_server = Server::iperf3(&lab.b);
        let line = |more: &[&str]| ceiling(&lab.a, &lab.b, more) / 8.0;
        let rates = [
            (Direction::Read, line(&["-R", "-P", "4"])),
            (Direction::Write, line(&["-P", "4"])),
        ];
        drop(iperf3_server);
        with_server(&lab, |place| {
            rates.map(|(direction, rate)| {
                [(16, 1), (256, 4)].map(|(kib, depth)| {
                    let load = load(direction, kib << 10, 4, depth);
                    let line = Line::measure(place, load, rate);
                    line.say();
                    line
                })
            })
        })
    };
    assert!(lines.iter().flatten().all(Line::good));
}
