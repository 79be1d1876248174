//! Servers on a lab's host that are not ours: what this program is measured against.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::Host;

/// A server's own port, iperf3's default.
pub const IPERF3_PORT: u16 = 5201;
/// How long it may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running server, stopped on drop.
pub struct Server {
    child: Child,
}

impl Server {
    /// Debian's `iperf3 -s` on [`IPERF3_PORT`], listening.
    pub fn iperf3(host: &Host) -> Self {
        let port = IPERF3_PORT.to_string();
        let child = host
            .command("iperf3")
            .args(["--server", "--port", &port])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("iperf3 starts");
        let mut server = Self { child };
        server.listens(IPERF3_PORT);
        server
    }

    /// Waits until it listens. A connection to try it would be a client to it, so the kernel is asked.
    fn listens(&mut self, port: u16) {
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", self.child.id()));
        let wanted = format!(":{port:04X}");
        let listening = |line: &str| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next().unwrap_or("");
            // State 0A is LISTEN.
            local.ends_with(&wanted) && fields.nth(1) == Some("0A")
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = tables.iter().any(|table| {
                let table = std::fs::read_to_string(table).unwrap_or_default();
                table.lines().any(listening)
            });
            if found {
                return;
            }
            let ended = self.child.try_wait().expect("our child");
            assert!(ended.is_none(), "the server ended: {ended:?}");
            assert!(Instant::now() < deadline, "the server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
