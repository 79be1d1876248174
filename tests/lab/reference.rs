//! What programs that are not ours say of a lab's network, and what arithmetic does.

use super::calm::{calm, undisturbed};
use super::{Host, run};

/// Seconds that a program here may take; each needs a few. iperf3 itself waits for ever.
const PATIENCE: &str = "30";

/// The round trip as ping sees it, in milliseconds: the least and the median of 100.
pub fn ping(from: &Host, to: &Host) -> (f64, f64) {
    let address = to.address.to_string();
    let said = run(from
        .command("timeout")
        .args([PATIENCE, "ping", "-c", "100", "-i", "0.01", &address]));
    // 64 bytes from 10.77.0.2: icmp_seq=1 ttl=64 time=1.05 ms
    let time = |line: &str| line.split("time=").nth(1)?.split(' ').next()?.parse().ok();
    let mut times: Vec<f64> = said.lines().filter_map(time).collect();
    times.sort_by(f64::total_cmp);
    assert_eq!(times.len(), 100, "{said}");
    (times[0], times[50])
}

/// What Debian's iperf3 carries in three calm seconds after its first, with these further options, in bits per second of
/// the receiver's bytes; `to` has [`Server::iperf3`](super::Server::iperf3).
pub fn iperf3(from: &Host, to: &Host, more: &[&str]) -> f64 {
    calm(1, || iperf3_once(from, to, "3", more))
}

/// The same as a ceiling that something else is held against: the median of three times two seconds, or a moment's stall
/// would make all the rest look too fast.
pub fn ceiling(from: &Host, to: &Host, more: &[&str]) -> f64 {
    calm(3, || iperf3_once(from, to, "2", more))
}

/// What iperf3 sees on any machine, in bits per second: the receiver's mean of two seconds, and what was carried
/// [undisturbed] in quarters of a second (of whichever end runs the client).
pub fn iperf3_parts(from: &Host, to: &Host, more: &[&str]) -> (f64, f64) {
    let said = report(from, to, "2", &[&["-i", "0.25"], more].concat());
    let parts = said["intervals"].as_array().expect("intervals");
    let parts = parts.iter().map(|part| &part["sum"]);
    let measured = parts.filter(|part| part["omitted"] == false);
    (received(&said), undisturbed(measured.map(rate).collect()))
}

fn iperf3_once(from: &Host, to: &Host, seconds: &str, more: &[&str]) -> f64 {
    received(&report(from, to, seconds, more))
}

fn report(from: &Host, to: &Host, seconds: &str, more: &[&str]) -> serde_json::Value {
    let address = to.address.to_string();
    let said = run(from
        .command("timeout")
        .args([
            PATIENCE, "iperf3", "-c", &address, "-J", "-O", "1", "-t", seconds,
        ])
        .args(more));
    serde_json::from_str(&said).expect("JSON")
}

fn received(report: &serde_json::Value) -> f64 {
    rate(&report["end"]["sum_received"])
}

fn rate(sum: &serde_json::Value) -> f64 {
    sum["bits_per_second"].as_f64().expect("a rate")
}

/// What TCP carries of a rate that counts Ethernet's 14 bytes, as `tbf` does: 52 of each packet are heads (with time
/// stamps).
pub fn payload(rate: f64, mtu: f64) -> f64 {
    rate * (mtu - 52.0) / (mtu + 14.0)
}
