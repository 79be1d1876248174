//! Findings as sentences for people.

use std::fmt;

use super::{Buffer, DROP, FULL_PERCENT, Finding};

/// A rate in the unit that links are sold in.
#[must_use]
pub fn bits(bits_per_s: f64) -> String {
    if bits_per_s >= 1e9 {
        format!("{:.2} Gbit/s", bits_per_s / 1e9)
    } else {
        format!("{:.1} Mbit/s", bits_per_s / 1e6)
    }
}

fn megabytes(bytes: f64) -> String {
    if bytes >= 1e6 {
        format!("{:.1} MB", bytes / 1e6)
    } else {
        format!("{:.0} kB", bytes / 1e3)
    }
}

impl Finding {
    /// The sentence of a small buffer.
    fn window(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Window {
            single_bits_per_s,
            in_flight_bytes,
            rtt_s,
            buffer,
            buffer_bytes,
            flows,
            many_bits_per_s,
        } = self
        else {
            return Ok(());
        };
        write!(
            f,
            "TCP buffer too small for one connection: {} in flight at {:.1} ms round trip is {}, while {flows} connections carry {}; ",
            megabytes(*in_flight_bytes),
            rtt_s * 1e3,
            bits(*single_bits_per_s),
            bits(*many_bits_per_s)
        )?;
        f.write_str(match buffer {
            Buffer::Send => "the sender's buffer is full",
            Buffer::Receive => "the receiver's buffer is full",
            Buffer::Unknown => "both ends' buffers fill",
        })?;
        if let Some(bytes) = buffer_bytes {
            write!(f, " (at most {} here)", megabytes(*bytes as f64))?;
        }
        f.write_str(match buffer {
            Buffer::Send => ": use more connections, or raise net.ipv4.tcp_wmem on the sender",
            Buffer::Receive => ": use more connections, or raise net.ipv4.tcp_rmem on the receiver",
            Buffer::Unknown => {
                ": use more connections, or raise net.ipv4.tcp_wmem and tcp_rmem on both ends"
            }
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line {
                share,
                link_bits_per_s,
                framing,
            } => write!(
                f,
                "{:.1} % of what a {} line carries with packets of {} bytes",
                share * 100.0,
                bits(*link_bits_per_s).replace(".00", ""),
                framing.mtu
            ),
            Self::NoLine { software: true } => f.write_str(
                "the interface here is one of software: whatever speed it names, no line limits it",
            ),
            Self::NoLine { software: false } => f.write_str(
                "the speed of the link here is not known, so nothing is said about the line",
            ),
            Self::AboveLine { limit_bits_per_s } => write!(
                f,
                "faster than the {} that the link here could carry: its named speed is not the truth, or the data took another way",
                bits(*limit_bits_per_s)
            ),
            Self::MtuMismatch { mtu, mss } => write!(
                f,
                "packets of up to {mtu} bytes are set here, but a segment carries only {mss} bytes: the other end or something between has a smaller MTU"
            ),
            Self::ConsistentWith { mtu } => write!(
                f,
                "the rate is consistent with packets of {mtu} bytes, though the interface here is set otherwise"
            ),
            Self::Window { .. } => self.window(f),
            Self::SingleFlow {
                single_bits_per_s,
                flows,
                many_bits_per_s,
                core_percent,
            } => {
                write!(
                    f,
                    "one TCP connection carries {}, {flows} carry {}: what uses one connection (SMB without multichannel, NFS without nconnect) gets the smaller figure",
                    bits(*single_bits_per_s),
                    bits(*many_bits_per_s)
                )?;
                match core_percent {
                    Some(percent) if *percent >= FULL_PERCENT => {
                        write!(f, "; a core here was {percent:.0} % busy with the one")
                    }
                    _ => Ok(()),
                }
            }
            Self::OneIsEnough {
                single_bits_per_s,
                flows: 1,
                ..
            } => write!(
                f,
                "one TCP connection carries {}, and more carry no more",
                bits(*single_bits_per_s)
            ),
            Self::OneIsEnough {
                single_bits_per_s,
                flows,
                many_bits_per_s,
            } => write!(
                f,
                "one TCP connection carries {}, {flows} carry {}, {:.0} % more",
                bits(*single_bits_per_s),
                bits(*many_bits_per_s),
                (many_bits_per_s / single_bits_per_s - 1.0) * 100.0
            ),
            Self::Core { percent, flows } => write!(
                f,
                "a core of this PC was {percent:.0} % busy with {flows} connection{}: the processor here bounds this figure",
                if *flows == 1 { "" } else { "s" }
            ),
            Self::Disturbed { percent } => write!(
                f,
                "other programs kept a core of this PC {percent:.0} % busy: end them and measure again, the figure may be low"
            ),
            Self::Loss { retransmits, share } => write!(
                f,
                "{retransmits} segments were sent again ({:.2} %): packets are lost or come late on the way",
                share * 100.0
            ),
            Self::DropOffs {
                count,
                of,
                least_bits_per_s,
                at_s,
                median_bits_per_s,
            } => write!(
                f,
                "not steady: {count} of {of} samples fell below {:.0} % of the median {}, down to {} after {at_s:.0} s",
                DROP * 100.0,
                bits(*median_bits_per_s),
                bits(*least_bits_per_s)
            ),
        }
    }
}
