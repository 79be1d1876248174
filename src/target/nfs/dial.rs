//! Connections to the services of one server, and the runtime that waits for them: every wait has a limit, and
//! every failure names the service and the port. Must not know what is said on a connection.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use nfs3_client::RpcError;
use tokio::runtime::{Builder, Runtime};

use crate::error::{Error, Phase, Result};

use super::status::Failure;
use super::wire::{From, Io};

/// One of the services that make up an NFS server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Service {
    /// What people call it.
    pub(super) name: &'static str,
    /// Its TCP port.
    pub(super) port: u16,
    /// What to do when nobody answers there.
    pub(super) advice: &'static str,
}

/// Reaches the services of one server at one address.
pub(super) struct Dialer {
    runtime: Runtime,
    peer: String,
    address: SocketAddr,
    limit: Duration,
}

impl Dialer {
    /// For the server that the user calls `host`, at `address`.
    pub(super) fn new(host: &str, address: SocketAddr, limit: Duration) -> Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| Error::io(Phase::Connect, &error, "start the network event loop"))?;
        let ip = address.ip().to_string();
        let peer = if host.starts_with(&ip) {
            host.to_owned()
        } else {
            format!("{host} ({ip})")
        };
        Ok(Self {
            runtime,
            peer,
            address,
            limit,
        })
    }

    /// The server's address; its port means nothing.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The longest wait for a connection or a control call.
    pub(super) const fn limit(&self) -> Duration {
        self.limit
    }

    /// Waits for a call, at most this long.
    pub(super) fn wait<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = std::result::Result<T, RpcError>>,
    ) -> std::result::Result<T, Failure> {
        self.runtime.block_on(async {
            match tokio::time::timeout(limit, call).await {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(error)) => Err(Failure::Rpc(error)),
                Err(_) => Err(Failure::Late(limit)),
            }
        })
    }

    /// Connects to a service; the failure says which one, and what to do.
    pub(super) fn dial(&self, service: &Service, from: From) -> Result<Io> {
        self.try_dial(service.port, from).map_err(|failure| {
            let doing = format!("reach {}", self.name(service));
            let mut error = failure.error(Phase::Connect, &doing);
            error.message = format!("{}; {}", error.message, service.advice);
            error
        })
    }

    /// Connects to a port.
    pub(super) fn try_dial(&self, port: u16, from: From) -> std::result::Result<Io, Failure> {
        let mut address = self.address;
        address.set_port(port);
        self.wait(self.limit, async {
            Io::connect(address, from).await.map_err(RpcError::Io)
        })
    }

    /// A service with its server and port, for messages.
    pub(super) fn name(&self, service: &Service) -> String {
        format!("{} of {} (port {})", service.name, self.peer, service.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use std::net::TcpListener;
    use std::time::Instant;

    const SERVICE: Service = Service {
        name: "the NFS service",
        port: 0,
        advice: "check it",
    };

    fn dialer(limit: Duration) -> Dialer {
        Dialer::new("127.0.0.1", ([127, 0, 0, 1], 0).into(), limit).expect("an event loop")
    }

    #[test]
    fn a_refused_port_is_named() {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let service = Service { port, ..SERVICE };
        let error = dialer(Duration::from_secs(5))
            .dial(&service, From::Any)
            .err()
            .expect("nobody listens");
        assert_eq!((error.phase, error.kind), (Phase::Connect, Kind::Refused));
        assert!(
            error.message.contains(&format!(
                "the NFS service of 127.0.0.1 (port {port}): Connection refused; check it"
            )),
            "{error}"
        );
    }

    #[test]
    fn a_silent_peer_costs_the_limit_and_no_more() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = silent.local_addr().expect("bound").port();
        let limit = Duration::from_secs(1);
        let dialer = dialer(limit);
        let io = dialer
            .dial(&Service { port, ..SERVICE }, From::Any)
            .expect("the kernel accepts");
        let mut client = nfs3_client::Nfs3Client::new(io);
        let begun = Instant::now();
        let failure = dialer
            .wait(limit, client.null())
            .expect_err("nobody answers");
        assert!(matches!(failure, Failure::Late(_)), "{failure:?}");
        assert!(begun.elapsed() >= limit && begun.elapsed() < limit * 10);
    }

    #[test]
    fn a_closed_connection_is_an_error_and_not_a_loop() {
        let closing = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = closing.local_addr().expect("bound").port();
        let server = std::thread::spawn(move || drop(closing.accept()));
        let dialer = dialer(Duration::from_secs(5));
        let io = dialer
            .dial(&Service { port, ..SERVICE }, From::Any)
            .expect("accepted");
        server.join().expect("closed");
        let mut client = nfs3_client::Nfs3Client::new(io);
        let failure = dialer
            .wait(dialer.limit(), client.null())
            .expect_err("closed by the peer");
        assert_eq!(failure.error(Phase::Io, "read").kind, Kind::Gone);
    }
}
