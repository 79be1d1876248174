//! Where the services listen: from the URI, else from the portmapper (rpcbind, port 111).
//!
//! Over IPv4 that is GETPORT of version 2; over IPv6, for which version 2 has no words, GETADDR of version 4.

use nfs3_client::rpc::RpcClient;
use nfs3_client::{PortmapError, PortmapperClient, RpcError};
use nfs3_types::portmap::{IPPROTO_TCP, PMAP_PORT, PROGRAM as PORTMAPPER};
use nfs3_types::xdr_codec::{Opaque, XdrCodec};

use crate::error::{Error, Kind, Phase, Result};

use super::dial::{Dialer, Service};
use super::status::{self, Failure};
use super::wire::{From, Io};

/// NFS's own port, where the portmapper is not asked.
pub(super) const NFS_PORT: u16 = 2049;
/// The version of rpcbind's protocol that knows IPv6.
const RPCBIND_VERSION: u32 = 4;
/// `RPCBPROC_GETADDR`.
const GET_ADDRESS: u32 = 3;

/// The two services that a session needs.
#[derive(Debug, Clone)]
pub(super) struct Ports {
    /// Where files are served.
    pub(super) nfs: Service,
    /// Where exports are opened.
    pub(super) mount: Service,
}

const fn nfs(port: u16) -> Service {
    Service {
        name: "the NFS service",
        port,
        advice: "check that the server runs and that no firewall drops that port",
    }
}

const fn mount(port: u16, named: bool) -> Service {
    Service {
        name: "the MOUNT service",
        port,
        advice: if named {
            "check mountport= in the URI, and that no firewall drops that port"
        } else {
            "the portmapper names that port, so a firewall may drop it"
        },
    }
}

/// Finds both ports; asks the portmapper only for what the URI leaves open.
pub(super) fn find(dialer: &Dialer, port: Option<u16>, mount_port: Option<u16>) -> Result<Ports> {
    look(dialer, port, mount_port).map_err(Missing::explain)
}

/// Ports that could not be found, and what answers on the NFS port itself.
pub(super) struct Missing {
    pub(super) error: Error,
    pub(super) answer: Answer,
    nfs_port: u16,
}

/// [`find`], with what is known beside the failure.
pub(super) fn look(
    dialer: &Dialer,
    port: Option<u16>,
    mount_port: Option<u16>,
) -> std::result::Result<Ports, Missing> {
    if let (Some(port), Some(mount_port)) = (port, mount_port) {
        return Ok(Ports {
            nfs: nfs(port),
            mount: mount(mount_port, true),
        });
    }
    let mut nfs_port = port;
    ask(dialer, &mut nfs_port, mount_port).map_err(|error| {
        let nfs_port = nfs_port.unwrap_or(NFS_PORT);
        Missing {
            error,
            answer: probe(dialer, nfs_port),
            nfs_port,
        }
    })
}

/// Asks for what is not known; leaves the NFS port in `port` as soon as it is.
fn ask(dialer: &Dialer, port: &mut Option<u16>, mount_port: Option<u16>) -> Result<Ports> {
    let portmapper = Service {
        name: "the portmapper",
        port: PMAP_PORT,
        advice: "it tells the ports of NFS and MOUNT",
    };
    let mut asked = Asked::new(dialer, &portmapper)?;
    let nfs_port = match *port {
        Some(port) => port,
        None => asked.port("NFS", nfs3_types::nfs3::PROGRAM, nfs3_types::nfs3::VERSION)?,
    };
    // It may be the port of another version, for want of one: the probe tells.
    *port = Some(nfs_port);
    let mounting = match mount_port {
        Some(port) => mount(port, true),
        None => mount(
            asked.port(
                "MOUNT",
                nfs3_types::mount::PROGRAM,
                nfs3_types::mount::VERSION,
            )?,
            false,
        ),
    };
    Ok(Ports {
        nfs: nfs(nfs_port),
        mount: mounting,
    })
}

impl Missing {
    /// Makes an answer out of "no portmapper" or "not registered".
    fn explain(self) -> Error {
        let Self {
            mut error,
            answer,
            nfs_port,
        } = self;
        match answer {
            Answer::Newer(words) => return Error::new(Phase::Connect, Kind::Unsupported, words),
            Answer::Three => {
                error.message = format!(
                    "{}; NFS version 3 does answer on port {nfs_port}, so only the port of the MOUNT service is \
                     missing: give it as nfs://HOST:{nfs_port}/EXPORT?mountport=N",
                    error.message
                );
            }
            Answer::Nothing => {
                error.message = format!(
                    "{}; if the server uses fixed ports, give both: nfs://HOST:PORT/EXPORT?mountport=N",
                    error.message
                );
            }
        }
        error
    }
}

/// The better error for a MOUNT service that is not there: the server may do without, speaking newer versions only.
pub(super) fn without_mount(dialer: &Dialer, nfs: &Service, error: Error) -> Error {
    match probe(dialer, nfs.port) {
        Answer::Newer(words) => Error::new(Phase::Connect, Kind::Unsupported, words),
        Answer::Three | Answer::Nothing => error,
    }
}

/// What answers on the NFS port.
pub(super) enum Answer {
    /// Versions above 3 only, in words.
    Newer(String),
    /// NFS version 3.
    Three,
    /// Nothing, or no NFS.
    Nothing,
}

/// Asks the NFS port itself.
pub(super) fn probe(dialer: &Dialer, port: u16) -> Answer {
    let Ok(io) = dialer.try_dial(port, From::Privileged) else {
        return Answer::Nothing;
    };
    let mut client = nfs3_client::Nfs3Client::new(io);
    match dialer.wait(dialer.limit(), client.null()) {
        Ok(()) => Answer::Three,
        Err(Failure::Rpc(RpcError::ProgMismatch { low, high })) if low > 3 => {
            Answer::Newer(status::newer_only(low, high))
        }
        Err(_) => Answer::Nothing,
    }
}

/// A conversation with the portmapper.
struct Asked<'a> {
    dialer: &'a Dialer,
    service: &'a Service,
    client: Client,
}

enum Client {
    V2(PortmapperClient<Io>),
    V4(RpcClient<Io>),
}

impl<'a> Asked<'a> {
    fn new(dialer: &'a Dialer, service: &'a Service) -> Result<Self> {
        let io = dialer.dial(service, From::Any)?;
        let client = if dialer.address().is_ipv4() {
            Client::V2(PortmapperClient::new(io))
        } else {
            Client::V4(RpcClient::new(io))
        };
        Ok(Self {
            dialer,
            service,
            client,
        })
    }

    fn port(&mut self, name: &str, program: u32, version: u32) -> Result<u16> {
        let dialer = self.dialer;
        let found = match &mut self.client {
            Client::V2(client) => dialer.wait(dialer.limit(), async {
                match client.getport(program, version, IPPROTO_TCP).await {
                    Ok(port) => Ok(Some(port)),
                    Err(PortmapError::Rpc(error)) => Err(error),
                    Err(PortmapError::ProgramUnavailable | PortmapError::InvalidPortValue(_)) => {
                        Ok(None)
                    }
                }
            }),
            Client::V4(client) => dialer.wait(dialer.limit(), async {
                let question = Registration {
                    program,
                    version,
                    network: Opaque::borrowed(b"tcp6"),
                    address: Opaque::borrowed(b""),
                    owner: Opaque::borrowed(b""),
                };
                let answer: Opaque<'static> = client
                    .call(PORTMAPPER, RPCBIND_VERSION, GET_ADDRESS, &question)
                    .await?;
                Ok(port_of(&answer))
            }),
        };
        let who = dialer.name(self.service);
        match found {
            Ok(Some(port)) => Ok(port),
            Ok(None) => Err(Error::new(
                Phase::Connect,
                Kind::Unsupported,
                format!(
                    "{who} knows no {name} service of version {version} over TCP: NFS version 3 is off there"
                ),
            )),
            Err(failure) => Err(failure.error(
                Phase::Connect,
                &format!("learn the port of {name} from {who}"),
            )),
        }
    }
}

/// `rpcb` of RFC 1833.
#[derive(Debug, XdrCodec)]
struct Registration {
    program: u32,
    version: u32,
    network: Opaque<'static>,
    address: Opaque<'static>,
    owner: Opaque<'static>,
}

/// The port of a universal address: the last two numbers of `::.8.1` are its high and low byte.
fn port_of(address: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(address).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (_, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    (port > 0).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_addresses_give_ports() {
        assert_eq!(port_of(b"::.8.1"), Some(2049));
        assert_eq!(port_of(b"127.0.0.1.78.80"), Some(20048));
        for none in ["", "::", "::.8", "::.0.0", "::.256.1", "::.a.b"] {
            assert_eq!(port_of(none.as_bytes()), None, "{none}");
        }
    }
}
