//! A slow way inside a server: what comes to one port goes to another of the same host, at a known rate.
//!
//! Network and disks stay fast; whatever speaks through it is slow, as a protocol server with little processor is. Rates are
//! bytes per second, for each direction, over all connections.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bytes handed on at once.
const PIECE: usize = 64 << 10;
/// Time of which an idle way may catch up.
const BURST: Duration = Duration::from_millis(5);

/// When the next piece may go.
struct Pace {
    rate: f64,
    free: Mutex<Instant>,
}

impl Pace {
    fn new(rate: u64) -> Arc<Self> {
        Arc::new(Self {
            rate: rate as f64,
            free: Mutex::new(Instant::now()),
        })
    }

    /// Waits for a piece's turn.
    fn wait(&self, bytes: usize) {
        let now = Instant::now();
        let turn = {
            let mut free = self.free.lock().expect("no panic holds it");
            let earliest = now.checked_sub(BURST).unwrap_or(now);
            *free = (*free).max(earliest) + Duration::from_secs_f64(bytes as f64 / self.rate);
            *free
        };
        std::thread::sleep(turn.saturating_duration_since(now));
    }
}

/// Listens on the calling thread's network until the process ends, and gives the port.
pub fn start(to: u16, rate: u64) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let paces = [Pace::new(rate), Pace::new(rate)];
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let to = SocketAddr::from((Ipv4Addr::LOCALHOST, to));
            let Ok(server) = TcpStream::connect(to) else {
                continue;
            };
            let pairs = [(&client, &server), (&server, &client)];
            for ((from, to), pace) in pairs.into_iter().zip(&paces) {
                let _ = to.set_nodelay(true);
                let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else {
                    continue;
                };
                let pace = Arc::clone(pace);
                std::thread::spawn(move || carry(from, to, &pace));
            }
        }
    });
    port
}

fn carry(mut from: TcpStream, mut to: TcpStream, pace: &Pace) {
    let mut buffer = vec![0; PIECE];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        pace.wait(length);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
