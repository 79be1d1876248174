//! How this computer's TCP is set, from /proc/sys/net, and what queues packets that leave.
//!
//! Meanings after the kernel's Documentation/networking/ip-sysctl.rst. Must not know: connections. Sizes are in bytes.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::{line, number};

/// TCP settings of a network namespace; None where this kernel has no such setting.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpSettings {
    /// The congestion control of new connections.
    pub congestion_control: Option<String>,
    /// Congestion controls that are loaded.
    pub congestion_controls_available: Vec<String>,
    /// Congestion controls that programs without privilege may choose.
    pub congestion_controls_allowed: Vec<String>,
    /// Least, first and largest receive buffer that the kernel chooses by itself.
    pub rmem_bytes: Option<[u64; 3]>,
    /// Least, first and largest send buffer that the kernel chooses by itself.
    pub wmem_bytes: Option<[u64; 3]>,
    /// The largest receive buffer that a program may ask for.
    pub core_rmem_max_bytes: Option<u64>,
    /// The largest send buffer that a program may ask for.
    pub core_wmem_max_bytes: Option<u64>,
    /// Whether windows may grow beyond 64 KiB.
    pub window_scaling: Option<bool>,
    /// Whether packets are stamped: 0 no, 1 with an offset of each connection's own, 2 without.
    pub timestamps: Option<u8>,
    /// Whether packets are acknowledged selectively.
    pub sack: Option<bool>,
    /// Whether TCP finds the path's MTU by trying: 0 no, 1 after packets vanish, 2 always.
    pub mtu_probing: Option<u8>,
    /// Whether a connection begins slowly again after a pause, which hurts bursts.
    pub slow_start_after_idle: Option<bool>,
    /// Whether nothing is remembered of earlier connections to the same host.
    pub no_metrics_save: Option<bool>,
    /// Whether the receive buffer grows by itself.
    pub moderate_rcvbuf: Option<bool>,
    /// Explicit congestion notification: 0 no, 1 yes, 2 when asked.
    pub ecn: Option<u8>,
    /// Packets that wait per core before the kernel throws away what arrives.
    pub netdev_max_backlog: Option<u64>,
    /// What queues packets on interfaces that are made from now on.
    pub default_qdisc: Option<String>,
}

impl TcpSettings {
    /// The settings that the tree below `root` holds.
    #[must_use]
    pub fn under(root: &Path) -> Self {
        // IPv6 uses the same ones.
        let tcp = |name: &str| root.join("proc/sys/net/ipv4").join(name);
        let core = |name: &str| root.join("proc/sys/net/core").join(name);
        let truth = |name: &str| number::<u32>(&tcp(name)).map(|value| value != 0);
        let words = |name: &str| {
            let text = line(&tcp(name)).unwrap_or_default();
            text.split_ascii_whitespace().map(str::to_owned).collect()
        };
        Self {
            congestion_control: line(&tcp("tcp_congestion_control")),
            congestion_controls_available: words("tcp_available_congestion_control"),
            congestion_controls_allowed: words("tcp_allowed_congestion_control"),
            rmem_bytes: line(&tcp("tcp_rmem")).and_then(|text| three(&text)),
            wmem_bytes: line(&tcp("tcp_wmem")).and_then(|text| three(&text)),
            core_rmem_max_bytes: number(&core("rmem_max")),
            core_wmem_max_bytes: number(&core("wmem_max")),
            window_scaling: truth("tcp_window_scaling"),
            timestamps: number(&tcp("tcp_timestamps")),
            sack: truth("tcp_sack"),
            mtu_probing: number(&tcp("tcp_mtu_probing")),
            slow_start_after_idle: truth("tcp_slow_start_after_idle"),
            no_metrics_save: truth("tcp_no_metrics_save"),
            moderate_rcvbuf: truth("tcp_moderate_rcvbuf"),
            ecn: number(&tcp("tcp_ecn")),
            netdev_max_backlog: number(&core("netdev_max_backlog")),
            default_qdisc: line(&core("default_qdisc")),
        }
    }
}

/// The settings below `root`; None where there is none.
#[must_use]
pub fn read(root: &Path) -> Option<TcpSettings> {
    let found = TcpSettings::under(root);
    (found != TcpSettings::default()).then_some(found)
}

/// Least, first and largest value of `tcp_rmem` and `tcp_wmem`.
#[must_use]
pub fn three(text: &str) -> Option<[u64; 3]> {
    let values: Vec<u64> = text
        .split_ascii_whitespace()
        .map(|value| value.parse().ok())
        .collect::<Option<_>>()?;
    values.try_into().ok()
}
