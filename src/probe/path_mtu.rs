//! The largest packet that really crosses to a host and back: ICMP echoes that may not be fragmented.
//!
//! A path whose large packets vanish looks like a server that stops answering: small messages pass, data never does.
//! Sizes are of whole IP packets, in bytes. Must not know: who asks.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketType, ipproto, sockopt};

/// Wait for one answer.
const PATIENCE: Duration = Duration::from_millis(300);
/// Echoes of each size before it counts as lost.
const TRIES: u16 = 2;
/// A packet that crosses every path.
const SMALL: u32 = 128;
/// Sizes of packets that paths are known to end at: jumbo frames, Ethernet, `PPPoE`, tunnels, the least of IPv6.
const STEPS: &[u32] = &[9000, 4000, 1500, 1492, 1450, 1420, 1400, 1280, 576];
/// Bytes of an ICMP echo's header.
const HEADER: usize = 8;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathMtu {
    /// Packets of the size asked for are answered.
    Whole,
    /// Only packets up to this size are answered, and nothing told that larger ones are refused.
    OnlyUpTo(u32),
    /// Not even small ones are answered, or echoes can't be sent from here: nothing can be said.
    Unknown,
}

/// The largest packet up to `mtu` that a host answers. Takes up to about four seconds.
#[must_use]
pub fn largest(to: IpAddr, mtu: u32) -> PathMtu {
    let Ok(echo) = Echo::new(to) else {
        return PathMtu::Unknown;
    };
    let mut sequence = 0;
    let mut answered = |size: u32| {
        (0..TRIES).any(|_| {
            sequence += 1;
            echo.answered(size, sequence)
        })
    };
    if !answered(SMALL) {
        return PathMtu::Unknown;
    }
    if answered(mtu) {
        return PathMtu::Whole;
    }
    let smaller = STEPS.iter().filter(|step| **step < mtu);
    let found = smaller.copied().find(|step| answered(*step));
    PathMtu::OnlyUpTo(found.unwrap_or(SMALL))
}

/// The shortest of a few echoes' round trips; None when none is answered, or none can be sent from here.
#[must_use]
pub fn round_trip(to: IpAddr) -> Option<Duration> {
    let echo = Echo::new(to).ok()?;
    let mut least: Option<Duration> = None;
    for sequence in 0..4 {
        let start = Instant::now();
        if !echo.answered(SMALL, sequence) {
            break;
        }
        let took = start.elapsed();
        least = Some(least.map_or(took, |least| least.min(took)));
    }
    least
}

/// A socket for echoes to one host.
struct Echo {
    socket: OwnedFd,
    to: IpAddr,
    raw: bool,
}

impl Echo {
    fn new(to: IpAddr) -> std::io::Result<Self> {
        let (family, protocol): (_, Protocol) = match to {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        // Users may send echoes where the system allows it, root everywhere.
        let (socket, raw) = match rustix::net::socket(family, SocketType::DGRAM, Some(protocol)) {
            Ok(socket) => (socket, false),
            Err(_) => (
                rustix::net::socket(family, SocketType::RAW, Some(protocol))?,
                true,
            ),
        };
        never_fragment(&socket, to)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { socket, to, raw })
    }

    /// Whether an echo in a packet of that size is answered.
    fn answered(&self, size: u32, sequence: u16) -> bool {
        let ip = if self.to.is_ipv6() { 40 } else { 20 };
        let Some(length) = (size as usize)
            .checked_sub(ip)
            .filter(|length| *length >= HEADER)
        else {
            return false;
        };
        let id = (std::process::id() as u16).to_be_bytes();
        let mut packet = vec![0u8; length];
        packet[0] = if self.to.is_ipv6() { 128 } else { 8 };
        packet[4..6].copy_from_slice(&id);
        packet[6..8].copy_from_slice(&sequence.to_be_bytes());
        let sum = checksum(&packet).to_be_bytes();
        packet[2..4].copy_from_slice(&sum);
        let to = SocketAddr::new(self.to, 0);
        if rustix::net::sendto(&self.socket, &packet, SendFlags::empty(), &to).is_err() {
            return false;
        }
        let deadline = Instant::now() + PATIENCE;
        let mut answer = vec![0u8; length + 60];
        while Instant::now() < deadline {
            let Ok((got, _)) =
                rustix::net::recv(&self.socket, answer.as_mut_slice(), RecvFlags::empty())
            else {
                return false;
            };
            if self.is_answer(&answer[..got], id, sequence, length) {
                return true;
            }
        }
        false
    }

    fn is_answer(&self, packet: &[u8], id: [u8; 2], sequence: u16, length: usize) -> bool {
        let v4 = self.to.is_ipv4();
        // A raw IPv4 socket gives the IP header too.
        let skip = match packet.first() {
            Some(first) if self.raw && v4 => usize::from(first & 15) * 4,
            _ => 0,
        };
        let Some(icmp) = packet.get(skip..).filter(|icmp| icmp.len() >= HEADER) else {
            return false;
        };
        let kind = if v4 { 0 } else { 129 };
        icmp[0] == kind
            && icmp.len() == length
            && icmp[6..8] == sequence.to_be_bytes()
            // The kernel gives a user's echo an identifier of its own, and hands on only its answers.
            && (!self.raw || icmp[4..6] == id)
    }
}

/// The Internet checksum (RFC 1071).
fn checksum(packet: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in packet.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Packets go out whole or not at all, whatever the kernel believes of the path.
#[expect(unsafe_code, reason = "no safe crate here sets this socket option")]
fn never_fragment(socket: &OwnedFd, to: IpAddr) -> std::io::Result<()> {
    let (level, option, value) = match to {
        IpAddr::V4(_) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_PROBE,
        ),
        IpAddr::V6(_) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        ),
    };
    // SAFETY: the socket is open, and the pointer and length are those of a live integer.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // The example of RFC 1071, section 3: the sum is ddf2.
        let packet = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&packet), !0xddf2);
        assert_eq!(checksum(&[]), 0xffff);
    }
}
