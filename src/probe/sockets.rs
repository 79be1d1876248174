//! TCP connections of this network namespace, whoever owns them: other programs, and the kernel's own NFS, SMB and iSCSI
//! mounts. Over netlink (`sock_diag`), as `ss -tin` reads them; no privilege is needed.
//!
//! Layout after `sock_diag(7)`. Must not know: protocols above TCP. Sizes are in bytes; see [`info`] for the rest.

pub mod info;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::AddressFamily;
use rustix::net::netlink::SOCK_DIAG;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Phase, Result};
use crate::probe::net::netlink::{self, Request, ask_each, bytes_at, find, told, u32_at};
pub use info::{Growth, Limit, TcpInfo};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const IPPROTO_TCP: u8 = 6;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_SKMEMINFO: u16 = 7;
/// Length of `struct inet_diag_msg`, bytes.
const HEADER: usize = 72;

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Both ends may send.
    Established,
    /// Opening: one end has asked.
    Opening,
    /// Closing: one end will send no more.
    Closing,
}

/// One TCP connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// How far it is.
    pub state: State,
    /// Bytes that arrived and that the program has not read.
    pub receive_queue_bytes: u32,
    /// Bytes that the program wrote and the peer has not acknowledged.
    pub send_queue_bytes: u32,
    /// Who owns it: 0 for the kernel's own, as for root's.
    pub user_id: u32,
    /// The socket's number below `/proc/PID/fd`; None for the kernel's own sockets, such as those of a mount.
    pub inode: Option<u32>,
    /// The congestion control: `cubic`, `bbr`, ..
    pub congestion_control: Option<String>,
    /// The kernel's room for what arrives, its own overhead included.
    pub receive_buffer_bytes: Option<u32>,
    /// The kernel's room for what is to be sent, its own overhead included.
    pub send_buffer_bytes: Option<u32>,
    /// Packets thrown away for want of room in the receive buffer.
    pub dropped_packets: Option<u32>,
    /// What TCP tells.
    pub tcp: TcpInfo,
}

/// Which connections are wanted; the default is all. An IPv4 address also finds IPv4 in IPv6 clothes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter {
    /// The other end's address.
    pub remote_ip: Option<IpAddr>,
    /// The other end's port.
    pub remote_port: Option<u16>,
    /// Our address.
    pub local_ip: Option<IpAddr>,
    /// Our port.
    pub local_port: Option<u16>,
}

impl Filter {
    /// Connections to `remote`.
    #[must_use]
    pub const fn to(remote: SocketAddr) -> Self {
        Self {
            remote_ip: Some(remote.ip()),
            remote_port: Some(remote.port()),
            local_ip: None,
            local_port: None,
        }
    }

    fn admits(&self, connection: &Connection) -> bool {
        let ip = |wanted: Option<IpAddr>, address: SocketAddr| {
            wanted.is_none_or(|ip| ip.to_canonical() == address.ip())
        };
        let port = |wanted: Option<u16>, address: SocketAddr| {
            wanted.is_none_or(|port| port == address.port())
        };
        ip(self.remote_ip, connection.remote)
            && port(self.remote_port, connection.remote)
            && ip(self.local_ip, connection.local)
            && port(self.local_port, connection.local)
    }
}

/// The connections that `filter` admits. Errors: this kernel does not tell (no `tcp_diag`, no netlink).
pub fn connections(filter: &Filter) -> Result<Vec<Connection>> {
    let mut found = Vec::new();
    let mut failure = None;
    let families = [AddressFamily::INET, AddressFamily::INET6];
    for family in families {
        // Connections of one port at most come back where a port is wanted; the kernel compares it cheaply.
        let asked = ask_each(Some(SOCK_DIAG), request(family, filter), |datagram| {
            let wanted = parse(datagram).into_iter();
            found.extend(wanted.filter(|connection| filter.admits(connection)));
        });
        // A kernel without IPv6 answers for IPv4 alone.
        if let Err(error) = asked
            && family == AddressFamily::INET
        {
            failure = Some(error);
        }
    }
    match failure {
        Some(error) => Err(Error::io(
            Phase::Io,
            &error,
            "read the TCP connections of this computer",
        )),
        None => Ok(found),
    }
}

/// A question for every connection of a family that is or was open: `struct inet_diag_req_v2`.
fn request(family: AddressFamily, filter: &Filter) -> Request {
    let extensions = [INET_DIAG_INFO, INET_DIAG_CONG, INET_DIAG_SKMEMINFO];
    let mut header = [0_u8; 56];
    header[0] = family.as_raw() as u8;
    header[1] = IPPROTO_TCP;
    header[2] = extensions
        .iter()
        .fold(0, |bits, extension| bits | 1 << (extension - 1));
    header[4..8].copy_from_slice(&STATES.to_ne_bytes());
    header[8..10].copy_from_slice(&filter.local_port.unwrap_or(0).to_be_bytes());
    header[10..12].copy_from_slice(&filter.remote_port.unwrap_or(0).to_be_bytes());
    Request::list(SOCK_DIAG_BY_FAMILY).header(&header)
}

/// Established 1, opening 2 and 3, closing 4, 5, 8, 9 and 11; not waiting out (6), closed (7) or listening (10).
const STATES: u32 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;

/// Reads the kernel's answer; what is damaged is left out.
#[must_use]
pub fn parse(answer: &[u8]) -> Vec<Connection> {
    told(answer)
        .filter(|message| message.kind == SOCK_DIAG_BY_FAMILY)
        .filter_map(|message| connection(message.payload))
        .collect()
}

/// `struct inet_diag_msg` and the attributes after it.
fn connection(payload: &[u8]) -> Option<Connection> {
    let attributes = payload.get(HEADER..)?;
    let family = u16::from(payload[0]);
    let end = |port_at: usize, ip_at: usize| {
        let port = u16::from_be_bytes(bytes_at(payload, port_at)?);
        let ip: IpAddr = if family == AddressFamily::INET.as_raw() {
            Ipv4Addr::from(bytes_at::<4>(payload, ip_at)?).into()
        } else {
            Ipv6Addr::from(bytes_at::<16>(payload, ip_at)?).into()
        };
        Some(SocketAddr::new(ip.to_canonical(), port))
    };
    let memory = |index: usize| {
        find(attributes, INET_DIAG_SKMEMINFO).and_then(|list| u32_at(list, index * 4))
    };
    Some(Connection {
        state: match payload[1] {
            1 => State::Established,
            2 | 3 => State::Opening,
            _ => State::Closing,
        },
        local: end(4, 8)?,
        remote: end(6, 24)?,
        receive_queue_bytes: u32_at(payload, 56)?,
        send_queue_bytes: u32_at(payload, 60)?,
        user_id: u32_at(payload, 64)?,
        inode: u32_at(payload, 68).filter(|inode| *inode > 0),
        congestion_control: netlink::text(attributes, INET_DIAG_CONG),
        // SK_MEMINFO_RCVBUF, SK_MEMINFO_SNDBUF, SK_MEMINFO_DROPS.
        receive_buffer_bytes: memory(1),
        send_buffer_bytes: memory(3),
        dropped_packets: memory(8),
        tcp: find(attributes, INET_DIAG_INFO)
            .map(TcpInfo::parse)
            .unwrap_or_default(),
    })
}

/// What happened after `before` on the connections that are in both lists, each with its growth.
#[must_use]
pub fn since(now: &[Connection], before: &[Connection]) -> Vec<(SocketAddr, SocketAddr, Growth)> {
    now.iter()
        .filter_map(|now| {
            let then = before
                .iter()
                .find(|then| (then.local, then.remote) == (now.local, now.remote))?;
            Some((now.local, now.remote, now.tcp.since(&then.tcp)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;

    use super::*;
    use crate::probe::net::machines::answer;
    use crate::probe::net::netlink::testing::{attributes, message};

    #[test]
    fn a_saved_answer_reads_as_ss_showed_it() {
        let found = parse(&answer("veth", "sockets"));
        assert_eq!(found.len(), 2);
        let sender = found.iter().find(|one| one.local.port() == 700);
        let sender = sender.expect("the sender");
        assert_eq!(sender.remote, SocketAddr::from(([10, 77, 0, 2], 2049)));
        assert_eq!(sender.congestion_control.as_deref(), Some("bbr"));
        let tcp = &sender.tcp;
        assert_eq!(
            (tcp.bytes_sent, tcp.bytes_acked),
            (Some(1_000_000), Some(1_000_001))
        );
        assert_eq!((tcp.rtt_us, tcp.rttvar_us), (Some(81), Some(74)));
        assert_eq!((tcp.min_rtt_us, tcp.mss_bytes), (Some(3), Some(65_483)));
        assert_eq!(
            (tcp.cwnd_packets, tcp.ssthresh_packets),
            (Some(16), Some(8))
        );
        assert_eq!(
            (tcp.pmtu_bytes, tcp.retransmits_total),
            (Some(65_535), Some(0))
        );
        assert_eq!(tcp.delivery_rate_bytes_per_s, Some(43_655_333_333));
        assert_eq!(tcp.send_window_bytes, Some(201_728));
        assert_eq!(tcp.app_limited, Some(false));
        assert_eq!(tcp.window_scaling, Some(true));
        assert_eq!((tcp.busy_us, tcp.rwnd_limited_us), (Some(4000), Some(4000)));
        assert_eq!(tcp.so_far().limit(), Some(Limit::Receiver));
        let receiver = found.iter().find(|one| one.local.port() == 2049);
        let receiver = receiver.expect("the receiver");
        assert_eq!(receiver.tcp.bytes_received, Some(1_000_000));
        assert_eq!(receiver.tcp.app_limited, Some(true));
        assert_eq!(receiver.tcp.so_far().limit(), None, "it sent nothing");
    }

    #[test]
    fn a_cut_answer_gives_what_is_whole() {
        let whole = answer("veth", "sockets");
        for length in 0..whole.len() {
            assert!(parse(&whole[..length]).len() <= 2);
        }
    }

    #[test]
    fn a_connection_of_this_process_is_found_from_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = listener.local_addr().expect("its address");
        let mut client = TcpStream::connect(server).expect("a connection");
        let (mut peer, _) = listener.accept().expect("the other end");
        let before = connections(&Filter::to(server)).expect("sock_diag");
        client.write_all(&vec![7; 100_000]).expect("room");
        peer.read_exact(&mut vec![0; 100_000]).expect("all of it");
        let found = connections(&Filter::to(server)).expect("sock_diag");
        assert_eq!(found.len(), 1, "{found:?}");
        let ours = &found[0];
        assert_eq!(ours.local, client.local_addr().expect("our end"));
        assert_eq!(ours.state, State::Established);
        assert_eq!(ours.tcp.bytes_sent, Some(100_000));
        assert!(ours.congestion_control.is_some() && ours.inode.is_some());
        assert!(ours.send_buffer_bytes.is_some_and(|bytes| bytes > 0));
        let growth = since(&found, &before);
        assert_eq!(growth.len(), 1);
        assert_eq!(growth[0].2.bytes_sent, Some(100_000));
        // By our own port: the other end's socket is the one whose port it is.
        let by_port = Filter {
            local_port: Some(server.port()),
            ..Filter::default()
        };
        let found = connections(&by_port).expect("sock_diag");
        assert_eq!(found.len(), 1, "listeners are no connections: {found:?}");
        assert_eq!(found[0].tcp.bytes_received, Some(100_000));
        // Both ways of asking tell the same.
        let info = TcpInfo::of(&client).expect("our socket");
        assert_eq!(info.bytes_sent, ours.tcp.bytes_sent);
        assert_eq!(info.mss_bytes, ours.tcp.mss_bytes);
    }

    #[test]
    fn an_ipv4_connection_of_an_ipv6_socket_is_found_by_its_ipv4_address() {
        let listener = TcpListener::bind("[::]:0").expect("a port for both");
        let port = listener.local_addr().expect("its address").port();
        let client = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let (_peer, _) = listener.accept().expect("the other end");
        let filter = Filter::to(client.local_addr().expect("our end"));
        let found = connections(&filter).expect("sock_diag");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].local, SocketAddr::from(([127, 0, 0, 1], port)));
    }

    #[test]
    fn an_answer_without_tcp_info_keeps_the_addresses() {
        let mut payload = vec![0_u8; HEADER];
        payload[0] = AddressFamily::INET.as_raw() as u8;
        payload[1] = 1;
        payload[4..6].copy_from_slice(&700_u16.to_be_bytes());
        payload[6..8].copy_from_slice(&2049_u16.to_be_bytes());
        payload[8..12].copy_from_slice(&[10, 0, 0, 1]);
        payload[24..28].copy_from_slice(&[10, 0, 0, 9]);
        payload.extend(attributes(&[(INET_DIAG_CONG, b"cubic\0".to_vec())]));
        let found = parse(&message(SOCK_DIAG_BY_FAMILY, &payload));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].remote, SocketAddr::from(([10, 0, 0, 9], 2049)));
        assert_eq!(found[0].inode, None, "the kernel's own");
        assert_eq!(found[0].tcp, TcpInfo::default());
        assert_eq!(found[0].congestion_control.as_deref(), Some("cubic"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
            let _ = parse(&message(SOCK_DIAG_BY_FAMILY, &bytes));
        }
    }
}
