//! What the kernel tells of one TCP connection: `struct tcp_info`, and what two readings of it say.
//!
//! Layout after linux/tcp.h; every kernel appends fields, so the length that came decides which are known. Must not
//! know: where the bytes came from. Times are in microseconds, sizes in bytes unless a name says packets.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use serde::{Deserialize, Serialize};

use crate::probe::net::netlink::{u32_at, u64_at};

/// Room for what newer kernels append: Linux 6.18 fills 280 bytes.
const ROOM: usize = 512;
/// Where `tcpi_delivery_rate` ends: kernels that have it also tell whether the program limited it.
const WITH_DELIVERY_RATE: usize = 168;
/// What `ssthresh` is before the first loss.
const NO_SSTHRESH: u32 = 0x7fff_ffff;

/// Facts of a connection; None where this kernel does not tell, or has not measured yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub rtt_us: Option<u32>,
    /// How much round-trip times vary.
    pub rttvar_us: Option<u32>,
    /// The least round-trip time seen lately: the path without its queues.
    pub min_rtt_us: Option<u32>,
    /// Packets that may be under way.
    pub cwnd_packets: Option<u32>,
    /// Where slow start ends; None before the first loss.
    pub ssthresh_packets: Option<u32>,
    /// Payload of a packet sent, TCP options taken off.
    pub mss_bytes: Option<u32>,
    /// Payload of the packets received, as guessed from them.
    pub receive_mss_bytes: Option<u32>,
    /// Payload that we offered to take in a packet: our MTU less headers.
    pub advertised_mss_bytes: Option<u32>,
    /// The largest packet on the path.
    pub pmtu_bytes: Option<u32>,
    /// Whether both ends scale windows; without it a window is 64 KiB at most.
    pub window_scaling: Option<bool>,
    /// Whether both ends stamp packets.
    pub timestamps: Option<bool>,
    /// Whether both ends acknowledge selectively.
    pub sack: Option<bool>,
    /// Packets sent again since the start.
    pub retransmits_total: Option<u32>,
    /// Packets under way.
    pub unacked_packets: Option<u32>,
    /// Bytes that the peer has acknowledged.
    pub bytes_acked: Option<u64>,
    /// Bytes sent, those sent again included.
    pub bytes_sent: Option<u64>,
    /// Bytes sent again.
    pub bytes_retransmitted: Option<u64>,
    /// Bytes received in order.
    pub bytes_received: Option<u64>,
    /// Bytes that the program wrote and that were not sent yet.
    pub not_sent_bytes: Option<u32>,
    /// Packets received out of order.
    pub out_of_order_packets: Option<u32>,
    /// How fast the peer took data lately, bytes a second.
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// Whether the program, not the network, set that rate.
    pub app_limited: Option<bool>,
    /// How fast the kernel lets packets out, bytes a second; None when it does not pace.
    pub pacing_rate_bytes_per_s: Option<u64>,
    /// Time during which there was something to send.
    pub busy_us: Option<u64>,
    /// Of it, time spent waiting for room at the receiver.
    pub rwnd_limited_us: Option<u64>,
    /// Of it, time spent waiting for room in our send buffer.
    pub sndbuf_limited_us: Option<u64>,
    /// Room that the receiver offers.
    pub send_window_bytes: Option<u32>,
    /// Room that we offer.
    pub receive_window_bytes: Option<u32>,
}

impl TcpInfo {
    /// Reads `struct tcp_info` as far as `bytes` go.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let number = |at| u32_at(bytes, at);
        let large = |at| u64_at(bytes, at);
        // Zero is "not measured yet" where a real one can't be zero.
        let measured = |at| number(at).filter(|value| *value > 0);
        let option = |bit: u8| {
            // The options are known once the fixed first part is there.
            number(8)?;
            bytes.get(5).map(|options| options & bit != 0)
        };
        Self {
            rtt_us: measured(68),
            rttvar_us: measured(68).and(number(72)),
            min_rtt_us: number(148).filter(|rtt| *rtt != u32::MAX && *rtt > 0),
            cwnd_packets: measured(80),
            ssthresh_packets: number(76).filter(|packets| *packets < NO_SSTHRESH),
            mss_bytes: measured(16),
            receive_mss_bytes: measured(20),
            advertised_mss_bytes: measured(84),
            pmtu_bytes: measured(60),
            timestamps: option(1),
            sack: option(2),
            window_scaling: option(4),
            retransmits_total: number(100),
            unacked_packets: number(24),
            bytes_acked: large(120),
            bytes_sent: large(200),
            bytes_retransmitted: large(208),
            bytes_received: large(128),
            not_sent_bytes: number(144),
            out_of_order_packets: number(224),
            delivery_rate_bytes_per_s: large(160).filter(|rate| *rate > 0),
            app_limited: bytes
                .get(7)
                .filter(|_| bytes.len() >= WITH_DELIVERY_RATE)
                .map(|bits| bits & app_limited_bit() != 0),
            pacing_rate_bytes_per_s: large(104).filter(|rate| *rate > 0 && *rate != u64::MAX),
            busy_us: large(168),
            rwnd_limited_us: large(176),
            sndbuf_limited_us: large(184),
            send_window_bytes: number(228),
            receive_window_bytes: number(232),
        }
    }

    /// Asks the kernel about a TCP socket of our own. Errors: it is none.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut bytes = [0_u8; ROOM];
        let length = fill(socket.as_fd(), &mut bytes)?;
        Ok(Self::parse(&bytes[..length]))
    }

    /// What happened after `before`, a reading of the same connection.
    #[must_use]
    pub fn since(&self, before: &Self) -> Growth {
        let grown = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        let retransmits = self.retransmits_total.zip(before.retransmits_total);
        Growth {
            retransmits: retransmits.and_then(|(now, then)| now.checked_sub(then)),
            bytes_acked: grown(self.bytes_acked, before.bytes_acked),
            bytes_sent: grown(self.bytes_sent, before.bytes_sent),
            bytes_retransmitted: grown(self.bytes_retransmitted, before.bytes_retransmitted),
            bytes_received: grown(self.bytes_received, before.bytes_received),
            busy_us: grown(self.busy_us, before.busy_us),
            rwnd_limited_us: grown(self.rwnd_limited_us, before.rwnd_limited_us),
            sndbuf_limited_us: grown(self.sndbuf_limited_us, before.sndbuf_limited_us),
        }
    }

    /// Everything since the connection began.
    #[must_use]
    pub fn so_far(&self) -> Growth {
        Growth {
            retransmits: self.retransmits_total,
            bytes_acked: self.bytes_acked,
            bytes_sent: self.bytes_sent,
            bytes_retransmitted: self.bytes_retransmitted,
            bytes_received: self.bytes_received,
            busy_us: self.busy_us,
            rwnd_limited_us: self.rwnd_limited_us,
            sndbuf_limited_us: self.sndbuf_limited_us,
        }
    }

    /// What one connection can carry with this window: window / least round-trip time, bytes a second. The window is
    /// the smaller of what may be under way and what the receiver offers.
    #[must_use]
    pub fn window_rate_bytes_per_s(&self) -> Option<f64> {
        let congestion = u64::from(self.cwnd_packets?).checked_mul(u64::from(self.mss_bytes?))?;
        let window = self
            .send_window_bytes
            .map_or(congestion, |offered| congestion.min(u64::from(offered)));
        let rtt_us = self.min_rtt_us.or(self.rtt_us)?;
        Some(window as f64 * 1e6 / f64::from(rtt_us))
    }
}

/// Asks for `TCP_INFO`; gives how many bytes came.
fn fill(socket: BorrowedFd<'_>, bytes: &mut [u8; ROOM]) -> io::Result<usize> {
    let mut length = ROOM as libc::socklen_t;
    // SAFETY: `bytes` has room for `length` bytes, the kernel writes no more than that and says how many; the socket is
    // open for as long as it is borrowed.
    #[expect(unsafe_code, reason = "rustix does not read TCP_INFO")]
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(length).unwrap_or(0).min(ROOM))
}

/// `tcpi_delivery_rate_app_limited` is the first bit of its byte: the lowest on little-endian machines.
const fn app_limited_bit() -> u8 {
    if cfg!(target_endian = "big") { 0x80 } else { 1 }
}

/// What happened on a connection, or on several, during a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Growth {
    /// Packets sent again.
    pub retransmits: Option<u32>,
    /// Bytes acknowledged by the peer.
    pub bytes_acked: Option<u64>,
    /// Bytes sent, those sent again included.
    pub bytes_sent: Option<u64>,
    /// Bytes sent again.
    pub bytes_retransmitted: Option<u64>,
    /// Bytes received in order.
    pub bytes_received: Option<u64>,
    /// Time during which there was something to send.
    pub busy_us: Option<u64>,
    /// Of it, time spent waiting for room at the receiver.
    pub rwnd_limited_us: Option<u64>,
    /// Of it, time spent waiting for room in our send buffer.
    pub sndbuf_limited_us: Option<u64>,
}

/// What held a sender back for at least half of the time in which it had something to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The receiver offered no more room: its TCP buffer is small for the path, or its program reads slowly.
    Receiver,
    /// Our own send buffer was full: it is small for the path.
    Sender,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Receiver => "TCP buffer too small (receiver)",
            Self::Sender => "TCP buffer too small (sender)",
        })
    }
}

impl Growth {
    /// Both together, for the connections of one target; unknown in one is unknown in the sum.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| a?.checked_add(b?);
        let retransmits = self.retransmits.zip(other.retransmits);
        Self {
            retransmits: retransmits.and_then(|(a, b)| a.checked_add(b)),
            bytes_acked: sum(self.bytes_acked, other.bytes_acked),
            bytes_sent: sum(self.bytes_sent, other.bytes_sent),
            bytes_retransmitted: sum(self.bytes_retransmitted, other.bytes_retransmitted),
            bytes_received: sum(self.bytes_received, other.bytes_received),
            busy_us: sum(self.busy_us, other.busy_us),
            rwnd_limited_us: sum(self.rwnd_limited_us, other.rwnd_limited_us),
            sndbuf_limited_us: sum(self.sndbuf_limited_us, other.sndbuf_limited_us),
        }
    }

    /// The share of the busy time spent waiting for room at the receiver, 0 to 1; None when never busy.
    #[must_use]
    pub fn receiver_limited_share(&self) -> Option<f64> {
        share(self.rwnd_limited_us?, self.busy_us?)
    }

    /// The share of the busy time spent waiting for room in our send buffer, 0 to 1; None when never busy.
    #[must_use]
    pub fn sender_limited_share(&self) -> Option<f64> {
        share(self.sndbuf_limited_us?, self.busy_us?)
    }

    /// The share of the bytes sent that were sent again, 0 to 1; None when nothing was sent.
    #[must_use]
    pub fn retransmitted_share(&self) -> Option<f64> {
        share(self.bytes_retransmitted?, self.bytes_sent?)
    }

    /// What held the sender back for half of its busy time or more; the larger share when both did.
    ///
    /// Some buffer always ends a transfer that nothing else slows: on a loopback, and on a link that is full, this names it as
    /// well. So it is a cause only where the rate is well below the line and the processors idle.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        let receiver = self.receiver_limited_share().unwrap_or(0.0);
        let sender = self.sender_limited_share().unwrap_or(0.0);
        if receiver.max(sender) < 0.5 {
            return None;
        }
        Some(if receiver >= sender {
            Limit::Receiver
        } else {
            Limit::Sender
        })
    }
}

/// A part of a whole, at most 1: the kernel's clocks are not read at one instant.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64).min(1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A `struct tcp_info` of `length` bytes in which the 32-bit fields at the places given are set.
    fn made(length: usize, fields: &[(usize, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for (at, value) in fields {
            bytes[*at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn fields_that_an_old_kernel_lacks_are_unknown() {
        // Linux 2.6.32 ends after total_retrans.
        let old = TcpInfo::parse(&made(104, &[(8, 200_000), (68, 500), (80, 10), (100, 3)]));
        assert_eq!(old.rtt_us, Some(500));
        assert_eq!(old.retransmits_total, Some(3));
        assert_eq!((old.min_rtt_us, old.bytes_acked), (None, None));
        assert_eq!((old.busy_us, old.app_limited), (None, None));
        assert_eq!(old.so_far().limit(), None);
        let newer = TcpInfo::parse(&made(192, &[(148, u32::MAX), (76, NO_SSTHRESH)]));
        assert_eq!(newer.busy_us, Some(0), "known to be zero");
        assert_eq!(newer.app_limited, Some(false));
        assert_eq!((newer.min_rtt_us, newer.ssthresh_packets), (None, None));
        assert_eq!(newer.send_window_bytes, None);
        assert_eq!(TcpInfo::parse(&[]), TcpInfo::default());
    }

    #[test]
    fn a_small_buffer_is_told_with_its_end() {
        let before = TcpInfo::parse(&made(232, &[(168, 1_000_000), (176, 900_000)]));
        let after = TcpInfo::parse(&made(
            232,
            &[(168, 3_000_000), (176, 1_000_000), (184, 1_800_000)],
        ));
        let growth = after.since(&before);
        assert_eq!(growth.busy_us, Some(2_000_000));
        assert_eq!(growth.receiver_limited_share(), Some(0.05));
        assert_eq!(growth.sender_limited_share(), Some(0.9));
        assert_eq!(growth.limit(), Some(Limit::Sender));
        assert_eq!(before.so_far().limit(), Some(Limit::Receiver));
        assert_eq!(
            Limit::Receiver.to_string(),
            "TCP buffer too small (receiver)"
        );
        assert_eq!(
            before.since(&after).busy_us,
            None,
            "another connection's counters"
        );
        let both = growth.and(&growth);
        assert_eq!(
            (both.busy_us, both.limit()),
            (Some(4_000_000), Some(Limit::Sender))
        );
        assert_eq!(growth.and(&Growth::default()).busy_us, None);
    }

    #[test]
    fn the_window_sets_what_one_connection_carries() {
        let mut info = TcpInfo {
            cwnd_packets: Some(2000),
            mss_bytes: Some(1000),
            min_rtt_us: Some(10_000),
            ..TcpInfo::default()
        };
        assert_eq!(info.window_rate_bytes_per_s(), Some(200e6));
        info.send_window_bytes = Some(65_536);
        assert_eq!(info.window_rate_bytes_per_s(), Some(6_553_600.0));
    }

    #[test]
    fn a_socket_of_our_own_is_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = std::net::TcpStream::connect(listener.local_addr().expect("its address"))
            .expect("a connection");
        let info = TcpInfo::of(&client).expect("a TCP socket");
        assert!(info.cwnd_packets.is_some() && info.mss_bytes.is_some());
        assert!(info.rtt_us.is_some());
        assert_eq!(info.pmtu_bytes, Some(65_535));
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(TcpInfo::of(&udp).is_err());
    }

    #[test]
    fn a_receiver_that_does_not_read_holds_the_sender_back() {
        use std::io::Write;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = std::net::TcpStream::connect(listener.local_addr().expect("its address"))
            .expect("a connection");
        let (_silent, _) = listener.accept().expect("the other end");
        client.set_nonblocking(true).expect("possible");
        // Until neither end has room.
        let (mut written, block) = (0, vec![0; 65_536]);
        while let Ok(bytes) = client.write(&block) {
            written += bytes;
        }
        assert!(written > 65_536);
        let before = TcpInfo::of(&client).expect("our socket");
        std::thread::sleep(std::time::Duration::from_millis(300));
        let growth = TcpInfo::of(&client).expect("our socket").since(&before);
        assert!(
            growth.busy_us.is_some_and(|busy| busy > 200_000),
            "{growth:?}"
        );
        assert_eq!(growth.limit(), Some(Limit::Receiver), "{growth:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            first in proptest::collection::vec(any::<u8>(), 0..300),
            second in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let (first, second) = (TcpInfo::parse(&first), TcpInfo::parse(&second));
            let growth = first.since(&second).and(&first.so_far());
            let _ = (growth.limit(), growth.retransmitted_share(), first.window_rate_bytes_per_s());
        }
    }
}
