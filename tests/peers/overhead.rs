//! What nasgauge itself costs, as ratios within one run: `cargo bench --bench overhead [-- PAIRS]`.
//!
//! 1. The engine on a file in tmpfs (psync, 128 KiB reads) against a bare pread loop over the same file.
//! 2. How fast one core makes payload, in GB/s, and checks it.
//!
//! Each pair alternates the two; the median ratio stands with its 95 % interval (of the order statistics).

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nasgauge::engine::{self, Job, Live};
use nasgauge::op::Durability;
use nasgauge::payload::{Content, Fill, Payload};
use nasgauge::spec::uri::TargetSpec;
use nasgauge::spec::workload::PhaseFile;
use nasgauge::target::{self, Attach, Login, Secret};

const BLOCK: usize = 128 << 10;
const SIZE: u64 = 256 << 20;
const SLICE: Duration = Duration::from_millis(400);

fn bare(file: &File) -> f64 {
    let mut buffer = vec![0u8; BLOCK];
    let (start, mut offset, mut ops) = (Instant::now(), 0u64, 0u64);
    while start.elapsed() < SLICE {
        let got = file.read_at(&mut buffer, offset).expect("reads");
        assert_eq!(got, BLOCK);
        black_box(&buffer);
        offset = (offset + BLOCK as u64) % SIZE;
        ops += 1;
    }
    start.elapsed().as_nanos() as f64 / ops as f64
}

fn ours(directory: &str) -> f64 {
    let spec = TargetSpec::parse(directory).expect("a path");
    let protocol = target::find(&spec).expect("file");
    let login = Login {
        spec,
        secret: Secret::default(),
        connect_timeout_ms: 10_000,
        io_timeout_ms: 10_000,
    };
    let keys = format!(
        "rw='read'\nbs={BLOCK}\nsize={SIZE}\nruntime='{}ms'\nramp_time=0",
        SLICE.as_millis()
    );
    let phase = toml::from_str::<PhaseFile>(&keys)
        .expect("keys")
        .resolve("bench")
        .expect("a phase");
    let attach = Attach {
        object: "data".into(),
        write: false,
        direct: false,
        durability: Durability::Flush,
        iodepth: 1,
        block_max: BLOCK as u32,
        lane: 0,
        round: 1,
    };
    let session = (protocol.connect)(&login, &attach).expect("opens");
    let job = Job {
        phase,
        lane: 0,
        lanes: 1,
        attach,
        base: 0,
        seed: 1,
        content: content(),
        generation: None,
        flush: true,
        files: None,
    };
    let start = nasgauge::clock::monotonic_ns();
    let report = engine::run(
        session,
        &job,
        &Live::default(),
        &AtomicBool::new(false),
        || Some(start),
    );
    assert_eq!(report.error, None);
    (report.ended_ns - report.started_ns) as f64 / report.read.ops as f64
}

const fn content() -> Content {
    Content {
        key: 1,
        fill: Fill::Incompressible,
        compress_percent: 0,
        dedupe_percent: 0,
    }
}

/// GB/s of filling and of checking 1 MiB blocks on one core.
fn payload() -> (f64, f64) {
    let payload = Payload::new(content());
    let mut block = vec![0u8; 1 << 20];
    let rate = |work: &mut dyn FnMut(u64)| {
        let (start, mut blocks) = (Instant::now(), 0u64);
        while start.elapsed() < SLICE {
            work(blocks);
            blocks += 1;
        }
        (blocks << 20) as f64 / start.elapsed().as_secs_f64() / 1e9
    };
    let fill = rate(&mut |index| {
        payload.fill(&mut block, index << 20, index);
        black_box(&block);
    });
    payload.fill(&mut block, 0, 1);
    let check = rate(&mut |_| payload.check(&block, 0, 1).expect("what was filled"));
    (fill, check)
}

fn main() {
    let pairs: usize = std::env::args()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(21);
    let directory = tempfile::tempdir_in("/dev/shm").expect("tmpfs");
    let path = directory.path().join("data");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("creates");
    for offset in (0..SIZE).step_by(BLOCK) {
        file.write_all_at(&vec![7; BLOCK], offset).expect("writes");
    }
    let target = directory.path().to_str().expect("UTF-8").to_owned();
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        let (engine, loop_ns) = if pair % 2 == 0 {
            (ours(&target), bare(&file))
        } else {
            let loop_ns = bare(&file);
            (ours(&target), loop_ns)
        };
        ratios.push(engine / loop_ns);
        println!(
            "pair {:2}: engine {engine:8.0} ns, bare loop {loop_ns:8.0} ns",
            pair + 1
        );
    }
    ratios.sort_by(f64::total_cmp);
    let half = (pairs as f64).sqrt() * 0.98;
    let rank = |at: f64| ratios[(at.max(0.0) as usize).min(pairs - 1)];
    let middle = pairs as f64 / 2.0;
    println!(
        "128 KiB reads, engine / bare pread loop: median {:.3}, 95 % interval {:.3} .. {:.3}",
        rank(middle),
        rank(middle - half),
        rank(middle + half)
    );
    let (made, check) = payload();
    println!("payload on one core: {made:.1} GB/s made, {check:.1} GB/s checked");
}
