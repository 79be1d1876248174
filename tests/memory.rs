//! Resident memory grows neither with the file nor with the time.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The peak resident set of a run in KiB, as the kernel counts it, read until the process is gone.
fn peak_kib(arguments: &[&str], out: &Path) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_nasgauge"))
        .args(["--quiet", "run"])
        .args(arguments)
        .arg("--out")
        .arg(out)
        .stdout(Stdio::null())
        .spawn()
        .expect("runs");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let high = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let high =
            high.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        peak = peak.max(high.unwrap_or(0));
        if let Some(status) = child.try_wait().expect("a child") {
            assert!(status.success());
            return peak;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn memory_does_not_grow_with_file_size_or_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("target");
    std::fs::create_dir(&target).expect("a directory");
    let target = target.to_str().expect("UTF-8");
    let peak = |name: &str, size: &str, runtime: &str| {
        let arguments = [
            "--target",
            target,
            "--target",
            "null:",
            "--rw",
            "randrw",
            "--bs",
            "64k",
            "--iodepth",
            "4",
            "--size",
            size,
            "--runtime",
            runtime,
            "--ramp-time",
            "0",
            "--interval",
            "100ms",
        ];
        peak_kib(&arguments, &directory.path().join(name))
    };
    let small = peak("small", "16M", "500ms");
    let large = peak("large", "512M", "500ms");
    let long = peak("long", "16M", "4s");
    assert!(small > 1_000, "the peak was seen: {small} KiB");
    for (what, other) in [
        ("a 32 times larger file", large),
        ("an 8 times longer run", long),
    ] {
        assert!(
            // What may differ by chance: pages of histograms that rarer latencies touch, and buffers of the step before
            // whose thread has not ended yet. Both are constants; what is looked for would be hundreds of MiB.
            other < small + 16_384,
            "{what}: {other} KiB instead of {small} KiB"
        );
    }
}

const LANES: u64 = 64;
const DEPTH: u64 = 32;

#[test]
fn lanes_and_depth_cost_their_slots_and_a_constant() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("target");
    std::fs::create_dir(&target).expect("a directory");
    // The slots are the engine's, whatever serves them at this depth.
    let uri = if nasgauge::target::local::uring::permitted() {
        format!("file:{}?engine=io_uring", target.display())
    } else {
        "sim:?latency=1ms".to_owned()
    };
    let (lanes, depth) = (LANES.to_string(), DEPTH.to_string());
    let peak = |kib: u64| {
        let block = format!("{kib}k");
        let arguments = [
            "--target",
            &uri,
            "--rw",
            "randread",
            "--bs",
            &block,
            "--lanes",
            &lanes,
            "--iodepth",
            &depth,
            "--size",
            "256M",
            "--runtime",
            "500ms",
            "--ramp-time",
            "0",
        ];
        peak_kib(&arguments, &directory.path().join(block.as_str()))
    };
    let (small, large) = (peak(4), peak(128));
    let slots = LANES * DEPTH * (128 - 4);
    let grown = large.saturating_sub(small);
    // Chance adds or spares pages of each lane's histograms: a quarter is more than that. What is looked for, a copy of
    // each slot, would double it.
    assert!(
        grown > slots / 4 * 3 && grown < slots / 4 * 5,
        "{grown} KiB more for {slots} KiB more of slots ({small} and {large} KiB)"
    );
}
