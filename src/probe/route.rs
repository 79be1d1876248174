//! The interface towards an address, from /proc/net/route and `/proc/net/ipv6_route` (`proc_pid_net(5)`).
//!
//! The main table alone: rules that choose another one are not looked at, so the answer is good for telling a user, not
//! for an alarm. Must not know: who is at the address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use crate::probe::line;
use crate::probe::traffic::LOOPBACK;

/// The route is up.
const UP: u32 = 1;
/// The route refuses.
const REJECT: u32 = 0x200;

/// A way to a range of addresses.
struct Way<'a> {
    prefix: u32,
    metric: u32,
    interface: &'a str,
}

/// The longest prefix wins, then the smallest metric.
fn best<'a>(ways: impl Iterator<Item = Way<'a>>) -> Option<String> {
    ways.min_by_key(|way| (u32::MAX - way.prefix, way.metric))
        .map(|way| way.interface.to_owned())
}

/// The interface towards an IPv4 address, by the text of `route`: numbers in the machine's own byte order.
#[must_use]
pub fn v4(text: &str, address: Ipv4Addr) -> Option<String> {
    if address.is_loopback() {
        return Some(LOOPBACK.to_owned());
    }
    let address = u32::from_ne_bytes(address.octets());
    best(text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let hex = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
        let (destination, flags, mask) = (hex(1)?, hex(3)?, hex(7)?);
        let fits = flags & UP != 0 && flags & REJECT == 0 && address & mask == destination;
        fits.then_some(())?;
        Some(Way {
            prefix: mask.count_ones(),
            metric: fields.get(6)?.parse().ok()?,
            interface: fields.first()?,
        })
    }))
}

/// The interface towards an IPv6 address, by the text of `ipv6_route`.
#[must_use]
pub fn v6(text: &str, address: Ipv6Addr) -> Option<String> {
    if address.is_loopback() {
        return Some(LOOPBACK.to_owned());
    }
    let address = u128::from(address);
    best(text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let hex = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
        let destination = u128::from_str_radix(fields.first()?, 16).ok()?;
        let (prefix, metric, flags) = (hex(1)?, hex(5)?, hex(8)?);
        let mask = u128::MAX
            .checked_shl(128u32.checked_sub(prefix)?)
            .unwrap_or(0);
        let fits = flags & UP != 0 && flags & REJECT == 0 && address & mask == destination;
        fits.then_some(())?;
        Some(Way {
            prefix,
            metric,
            interface: fields.get(9)?,
        })
    }))
}

/// The interface towards an address; None when there is no route or it can't be known. An address of this computer
/// itself is the caller's to know: it is on the loopback whatever the table says.
#[must_use]
pub fn towards(root: &Path, address: IpAddr) -> Option<String> {
    let text = |name: &str| line(&root.join("proc/net").join(name)).unwrap_or_default();
    match address.to_canonical() {
        IpAddr::V4(address) => v4(&text("route"), address),
        IpAddr::V6(address) => v6(&text("ipv6_route"), address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    #[test]
    fn the_longest_prefix_and_then_the_smallest_metric_win() {
        let tree = machines::tree("bare-metal");
        let to = |address: &str| towards(tree.path(), address.parse().expect("an address"));
        assert_eq!(to("10.40.0.7").as_deref(), Some("bond0"), "the storage net");
        assert_eq!(to("192.0.2.9").as_deref(), Some("eth1"), "its own net");
        assert_eq!(
            to("198.51.100.1").as_deref(),
            Some("eth1"),
            "the default route"
        );
        assert_eq!(to("127.0.0.1").as_deref(), Some("lo"));
        assert_eq!(to("::ffff:10.40.0.7").as_deref(), Some("bond0"));
        assert_eq!(to("fd00:40::7").as_deref(), Some("bond0"));
        assert_eq!(to("2001:db8::1"), None, "refused");
        assert_eq!(to("::1").as_deref(), Some("lo"));
    }

    #[test]
    fn a_virtual_machine_and_nothing() {
        let vm = machines::tree("vm");
        let to = |address: &str| towards(vm.path(), address.parse().expect("an address"));
        assert_eq!(to("203.0.113.5").as_deref(), Some("eth0"));
        let empty = machines::tree("empty");
        assert_eq!(
            towards(empty.path(), Ipv4Addr::new(203, 0, 113, 5).into()),
            None
        );
        assert_eq!(v4("eth0 zz 0 1 0 0 0 0\n", Ipv4Addr::new(1, 2, 3, 4)), None);
    }
}
