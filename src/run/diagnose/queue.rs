//! Whether packets stand in a queue on the way: the time of TCP's first handshake with the server, before and while a
//! workload runs.
//!
//! A SYN is answered by the kernel, or refused by it, without any program there having to wake up; so disks and programs that
//! are slow do not change the time, but a full line does: its packets stand before ours. Nothing is sent beyond the handshake.
//! A port on which nothing listens is asked where that is answered, so that no server has to serve it.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::units::Nanos;

/// The discard service, which no NAS has.
const NOBODY: u16 = 9;
/// Longer than any queue that is worth a name.
const PATIENCE: Duration = Duration::from_secs(1);
/// Handshakes on the idle way.
const IDLE: usize = 15;
/// Time between two handshakes.
const EVERY: Duration = Duration::from_millis(40);
/// Fewer say nothing.
const LEAST: usize = 8;

/// A way that answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    address: SocketAddr,
    /// On the idle way.
    pub(super) idle: Nanos,
}

impl Probe {
    /// Finds a port that answers and takes the time of the idle way; None where none does.
    pub(super) fn find(server: IpAddr, service: Option<u16>) -> Option<Self> {
        let ports = [Some(NOBODY), service];
        let address = ports
            .into_iter()
            .flatten()
            .map(|port| SocketAddr::new(server, port))
            .find(|address| handshake(*address).is_some())?;
        let mut times = Vec::new();
        for _ in 0..IDLE {
            times.extend(handshake(address));
            std::thread::sleep(EVERY);
        }
        Some(Self {
            address,
            idle: typical(times)?,
        })
    }

    /// Takes the time while `work` runs.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> (T, Option<Nanos>) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let probe = std::thread::Builder::new()
                .name("handshakes".to_owned())
                .spawn_scoped(scope, || {
                    let mut times = Vec::new();
                    while !over.load(Relaxed) {
                        times.extend(handshake(self.address));
                        std::thread::sleep(EVERY);
                    }
                    typical(times)
                });
            let done = work();
            over.store(true, Relaxed);
            let loaded = probe.ok().and_then(|probe| probe.join().ok()).flatten();
            (done, loaded)
        })
    }
}

/// The time of a handshake or of its refusal; None without an answer.
fn handshake(address: SocketAddr) -> Option<Nanos> {
    let begun = Instant::now();
    match TcpStream::connect_timeout(&address, PATIENCE) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
        Err(_) => return None,
    }
    Some(Nanos(begun.elapsed().as_nanos() as u64))
}

/// The lower quartile: a process that had to wait for a processor of its own makes a time longer, never shorter, while a
/// queue that is always there makes all of them longer.
fn typical(mut times: Vec<Nanos>) -> Option<Nanos> {
    times.sort_unstable();
    (times.len() >= LEAST).then(|| times[times.len() / 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_refuses_answers_too() {
        let probe = Probe::find(IpAddr::from([127, 0, 0, 1]), None).expect("the loopback refuses");
        assert!(probe.idle.0 > 0 && probe.idle.0 < 500_000_000);
        let (done, loaded) = probe.during(|| {
            std::thread::sleep(Duration::from_secs(1));
            5
        });
        assert_eq!(done, 5);
        assert!(loaded.is_some());
    }

    #[test]
    fn few_times_say_nothing_and_late_ones_do_not_count() {
        assert_eq!(typical(vec![Nanos(1); 7]), None);
        let mut times = vec![Nanos(10); 10];
        times.extend([Nanos(1_000_000); 10]);
        assert_eq!(typical(times), Some(Nanos(10)));
    }
}
