//! The round trip carries what theory says it does, on a line of 1 Gbit/s with a round trip of a millisecond.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use nasgauge::op::Direction;
use nasgauge::round_trip::theory::Expected;
use nasgauge::servers::round_trip::{Served, serve};
use nasgauge::stage::round_trip::{Idle, Load, PROBES, Place, carry, idle};

use crate::full::full;
use crate::lab::calm::calm;
use crate::lab::reference::{ceiling, payload};
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
    /// What it would have carried had each request taken as long as the median one.
    usual: f64,
    expected: Expected,
    /// What can't be exceeded: theory on the quickest round trip of all.
    most: f64,
}

impl Line {
    /// The round trip is taken just before: on a machine with other work it is not the same all the time.
    fn measure(place: &Place, load: Load, line: f64) -> Self {
        let idle = idle(place, PROBES).expect("round trips");
        assert_eq!(idle.probes, PROBES);
        assert!(idle.min_ns >= 1_000_000 && idle.min_ns <= idle.median_ns);
        assert!(idle.median_ns <= idle.p90_ns);
        let stop = AtomicBool::new(false);
        let mut usual = 0.0;
        let mut once = || {
            let carried = carry(place, &load, &stop).expect("it carries something");
            assert_eq!(carried.bytes, carried.ops * u64::from(load.block_size));
            let median_ns = carried.tally.latency.value_at_quantile(0.5);
            let in_flight = f64::from(load.in_flight()) * f64::from(load.block_size);
            usual = in_flight * 1e9 / median_ns as f64;
            carried.bytes_per_s().expect("time passed")
        };
        // What is disturbed is slower, never faster: the best of three says what the line lets through.
        let got = if full() {
            calm(3, once)
        } else {
            (0..3).map(|_| once()).fold(0.0, f64::max)
        };
        let expected = |rtt_ns| {
            let expected = Expected::new(line, load.in_flight(), load.block_size, rtt_ns, 0);
            expected.expect("a line")
        };
        Self {
            load,
            idle,
            got,
            usual,
            expected: expected(idle.median_ns),
            most: expected(idle.min_ns).rate(),
        }
    }

    /// How far it is from theory, as a share.
    fn off(&self) -> f64 {
        self.got / self.expected.rate() - 1.0
    }

    /// In a full run its rate is theory's. Else the median request is: a processor that is away for a while delays few
    /// requests, and takes that while from the rate. On a full line requests queue, so there the rate alone can tell.
    fn good(&self) -> bool {
        let (line, waiting) = (self.expected.line, self.expected.waiting);
        if full() {
            let allowed = if self.expected.clear() { 0.05 } else { 0.15 };
            return self.off().abs() <= allowed;
        }
        let usual = self.usual / waiting;
        let as_expected = if self.expected.clear() && waiting < line {
            (0.85..1.1).contains(&usual)
        } else {
            self.got >= 0.5 * line
        };
        as_expected && self.got <= 1.05 * self.most
    }

    fn say(&self) {
        eprintln!(
            "{:5} {:>5} KiB x {:>2} x {:>2}: {:7.2} MB/s (usually {:7.2}) of {:7.2} (line {:7.2}, waiting {:8.2}, RTT {} us) {:+6.1} % {}{}",
            self.load.direction.key(),
            self.load.block_size >> 10,
            self.load.connections,
            self.load.iodepth,
            self.got / 1e6,
            self.usual / 1e6,
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

/// What this number of connections carries of a plain stream, in bytes per second: as iperf3 sees it in a full run, else
/// as arithmetic does.
fn plain_stream(lab: &Lab, connections: &str) -> [(Direction, f64); 2] {
    if !full() {
        let line = payload(RATE as f64, 1500.0) / 8.0;
        return [(Direction::Read, line), (Direction::Write, line)];
    }
    let _server = Server::iperf3(&lab.b);
    let line = |more: &[&str]| {
        let more = [more, &["-P", connections]].concat();
        ceiling(&lab.a, &lab.b, &more) / 8.0
    };
    [
        (Direction::Read, line(&["-R"])),
        (Direction::Write, line(&[])),
    ]
}

#[test]
#[ignore = "needs root and servers"]
fn single_requests_take_a_round_trip_and_their_time_on_the_line() {
    if full() {
        table(&[4, 16], &[1, 2]);
    } else {
        table(&[16], &[1, 2]);
    }
}

#[test]
#[ignore = "needs root and servers"]
fn a_far_line_carries_what_theory_says() {
    if full() {
        // Minutes of measuring.
        table(&[4, 16, 64, 256, 1024], &[1, 2, 4, 8, 16, 32]);
    } else {
        table(&[1024], &[8]);
    }
}

/// Measures all blocks, in KiB, at all depths both ways, and holds them against theory.
fn table(blocks: &[u32], depths: &[u16]) {
    let lab = line();
    let rates = plain_stream(&lab, "1");
    let (lines, served) = with_server(&lab, |place| {
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
    });
    assert_eq!((served.strangers, served.broken), (0, 0));
    let off = lines.iter().filter(|line| !line.good()).count();
    assert_eq!(off, 0, "{off} of {} are off", lines.len());
    assert!(lines.iter().any(|line| line.expected.clear()));
}

#[test]
#[ignore = "needs root and servers"]
fn connections_count_as_depth() {
    let lab = line();
    let rates = plain_stream(&lab, "4");
    let (lines, _) = with_server(&lab, |place| {
        rates.map(|(direction, rate)| {
            [(16, 1), (256, 4)].map(|(kib, depth)| {
                let load = load(direction, kib << 10, 4, depth);
                let line = Line::measure(place, load, rate);
                line.say();
                line
            })
        })
    });
    assert!(lines.iter().flatten().all(Line::good));
}
