//! Which way a target's bytes take out of this computer, and so which of its counters see them.
//!
//! Must not know: what was measured. Names may have to be resolved and paths looked up, so it is found out once a target.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::probe::disk::Disk;
use crate::probe::mount::{self, Mount};
use crate::probe::mount_options::option;
use crate::probe::net::route::route_to;
use crate::probe::traffic::{Bytes, LOOPBACK, Traffic};
use crate::spec::uri::TargetSpec;

/// A path on a server that does not answer may hang for ever; then nothing is known of it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The way of a target's bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Way {
    /// None that this computer counts.
    #[default]
    Unseen,
    /// Over the network, by our own client or a network mount.
    Network(Network),
    /// To a block device, by name; None where several or none stand behind the path, or not surely this one.
    Storage(Option<String>),
}

/// Where the other end is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Network {
    /// All of its addresses are this computer's own, none is, or some are.
    place: Place,
    /// Interfaces towards it; empty when unknown.
    towards: Vec<String>,
    /// A kernel's mount, whose cache may answer in place of the server.
    pub(super) mounted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Here,
    Elsewhere,
    Both,
}

impl Way {
    /// The way to a target.
    pub(super) fn of(spec: &TargetSpec) -> Self {
        if !spec.hosts.is_empty() {
            return Network::to(&spec.hosts, false).map_or(Self::Unseen, Self::Network);
        }
        if !matches!(spec.protocol.as_str(), "file" | "block") {
            return Self::Unseen;
        }
        let path = PathBuf::from(&spec.path);
        let found = in_time(move || (mount::of(&path), Disk::behind(&path), path));
        let Some((mount, disk, path)) = found else {
            return Self::Unseen;
        };
        let server = mount
            .as_ref()
            .filter(|mount| spec.protocol == "file" && mount.is_network());
        if let Some(mount) = server {
            return option(&mount.super_options, "addr")
                .and_then(|address| Network::to(&[address.to_owned()], true))
                .map_or(Self::Unseen, Self::Network);
        }
        Self::Storage(disk.and_then(|disk| sure(mount.as_ref(), &disk, &path)))
    }
}

impl Way {
    /// Whether the bytes leave for a server, this computer's own included.
    pub(super) const fn is_network(&self) -> bool {
        matches!(self, Self::Network(_))
    }
}

/// The name of the whole disk, when all of the path's bytes pass it.
fn sure(mount: Option<&Mount>, disk: &Disk, path: &Path) -> Option<String> {
    let is_device = disk.is_node(path);
    let mount = mount.filter(|_| !is_device);
    // btrfs spreads over devices of which only one is known here; DAX moves bytes past every counter.
    let unsure = mount.is_some_and(|mount| {
        mount.kind == "btrfs"
            || option(&mount.super_options, "dax").is_some_and(|mode| mode != "never")
    });
    if unsure || (mount.is_none() && !is_device) {
        return None;
    }
    let whole = disk
        .parent()
        .map_or_else(|| disk.clone(), |parent| parent.0);
    Some(whole.name)
}

/// What a call that may hang comes to, unless it does.
fn in_time<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("looks at path".to_owned())
        .spawn(move || {
            // Whoever gave up waiting has no use for it.
            let _ = sender.send(call());
        })
        .ok()?;
    receiver.recv_timeout(PATIENCE).ok()
}

impl Network {
    /// The way to some hosts; None when none of them has an address.
    fn to(hosts: &[String], mounted: bool) -> Option<Self> {
        let addresses: Vec<IpAddr> = hosts
            .iter()
            .filter_map(|host| (host.as_str(), 0u16).to_socket_addrs().ok())
            .flatten()
            .map(|address| address.ip())
            .collect();
        let here: Vec<bool> = addresses.iter().map(|address| is_here(*address)).collect();
        let place = match (here.contains(&true), here.contains(&false)) {
            (true, true) => Place::Both,
            (true, false) => Place::Here,
            (false, true) => Place::Elsewhere,
            (false, false) => return None,
        };
        let interface = |(address, here): (&IpAddr, &bool)| {
            if *here {
                Some(LOOPBACK.to_owned())
            } else {
                route_to(*address).ok().map(|route| route.interface)
            }
        };
        let towards: Option<Vec<String>> = addresses.iter().zip(&here).map(interface).collect();
        let mut towards = towards.unwrap_or_default();
        towards.sort();
        towards.dedup();
        Some(Self {
            place,
            towards,
            mounted,
        })
    }

    /// Bytes that passed the interfaces towards the other end; all that leave the machine when those are unknown.
    pub(super) fn towards(&self, passed: &Traffic) -> Option<Bytes> {
        let named = passed.of(self.towards.iter().map(String::as_str));
        named.or_else(|| passed.wires())
    }

    /// Bytes both ways of every interface that the transfer can have passed, each byte once.
    pub(super) fn at_most(&self, passed: &Traffic) -> Option<u64> {
        // The loopback sends and receives the same bytes.
        let here = passed.of([LOOPBACK]).map(|bytes| bytes.received);
        let elsewhere = passed
            .wires()
            .map(|bytes| bytes.received.saturating_add(bytes.sent));
        match self.place {
            Place::Here => here,
            Place::Elsewhere => elsewhere,
            Place::Both => Some(here?.saturating_add(elsewhere?)),
        }
    }

    /// Whether the counters are those of network cards, which may lag.
    pub(super) fn leaves(&self) -> bool {
        self.place != Place::Here
    }
}

/// Whether an address is one of this computer's own, by the kernel's own routes. That it can be bound would prove less: with
/// `ip_nonlocal_bind` any can. Nothing is sent.
pub(super) fn is_here(address: IpAddr) -> bool {
    address.is_loopback() || route_to(address).is_ok_and(|route| route.local)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "    lo: 1000 1 0 0 0 0 0 0 1000 1 0 0 0 0 0 0\n";

    fn traffic(rest: &str) -> Traffic {
        Traffic::parse(&format!("{HEAD}{rest}")).expect("interfaces")
    }

    #[test]
    fn nothing_is_seen_of_memory_and_a_disk_of_none() {
        let way = |uri: &str| Way::of(&TargetSpec::parse(uri).expect("a URI"));
        assert_eq!(way("null:"), Way::Unseen);
        assert_eq!(way("ram:1MiB"), Way::Unseen);
        assert_eq!(way("file:/proc"), Way::Storage(None));
        assert_eq!(way("file:/does/not/exist"), Way::Storage(None));
    }

    #[test]
    fn this_computers_own_addresses_are_on_the_loopback() {
        let way = Way::of(&TargetSpec::parse("nfs://127.0.0.1/x").expect("a URI"));
        let Way::Network(network) = way else {
            panic!("{way:?}");
        };
        assert!(!network.leaves() && !network.mounted);
        let passed = traffic("eth0: 70 1 0 0 0 0 0 0 80 1 0 0 0 0 0 0\n");
        assert_eq!(network.at_most(&passed), Some(1000), "once, not twice");
        assert_eq!(network.towards(&passed).map(|bytes| bytes.sent), Some(1000));
    }

    #[test]
    fn others_are_behind_all_cards_but_shown_by_the_one_towards_them() {
        let network = Network {
            place: Place::Elsewhere,
            towards: vec!["eth1".into()],
            mounted: false,
        };
        let passed = traffic(
            "eth0: 70 1 0 0 0 0 0 0 80 1 0 0 0 0 0 0\neth1: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n",
        );
        assert_eq!(network.at_most(&passed), Some(161));
        assert_eq!(
            network.towards(&passed).map(|bytes| bytes.received),
            Some(5)
        );
        let unknown = Network {
            towards: Vec::new(),
            ..network.clone()
        };
        assert_eq!(
            unknown.towards(&passed).map(|bytes| bytes.received),
            Some(75)
        );
        let both = Network {
            place: Place::Both,
            ..network
        };
        assert_eq!(both.at_most(&passed), Some(1161));
    }

    #[test]
    fn a_call_that_hangs_is_left_alone() {
        assert_eq!(in_time(|| 5), Some(5));
        let (_kept, hangs) = channel::<()>();
        assert_eq!(in_time(move || hangs.recv().is_ok()), None);
    }
}
