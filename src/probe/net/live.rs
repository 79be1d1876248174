//! The readers on a network of known facts: a veth pair in a namespace of its own, while /sys still shows another one.

use std::net::{IpAddr, UdpSocket};
use std::process::Command;

use super::*;
use crate::probe::net::rates::Sampler;

/// Set in the process that has the namespace.
const INSIDE: &str = "NASGAUGE_TEST_NETWORK";
/// What the namespace holds: names, addresses and MTUs that the test then expects to be told.
const NETWORK: &str = "
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
ip link set lo up
ip link add probe-a mtu 1600 type veth peer name probe-b
ip addr add 10.77.0.1/24 dev probe-a
ip link set probe-a up
ip link set probe-b up
ip neigh add 10.77.0.9 lladdr 02:00:00:00:00:09 dev probe-a
ip route add 10.78.0.0/16 via 10.77.0.9 mtu 1400
";

#[test]
#[ignore = "needs root and servers"]
fn a_network_of_known_facts_is_told_as_it_is() {
    if std::env::var_os(INSIDE).is_none() {
        let own = std::env::current_exe().expect("this program");
        let output = Command::new("unshare")
            .args(["--net", "--", "sh", "-ec"])
            .arg(format!("{NETWORK}exec \"$0\" \"$@\""))
            .arg(own)
            .args(["--exact", "--ignored", "--nocapture"])
            .arg("probe::net::live::a_network_of_known_facts_is_told_as_it_is")
            .env(INSIDE, "1")
            .output()
            .expect("unshare is there");
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        // A name that no test has would pass with none.
        let ran = output.status.success() && said.contains("1 passed");
        assert!(ran, "{said}{complained}");
        return;
    }
    the_way_is_told();
    interfaces_are_those_of_the_namespace();
    bytes_are_counted_to_the_last();
}

fn the_way_is_told() {
    let near = route::route_to(IpAddr::from([10, 77, 0, 9])).expect("a route");
    assert_eq!(near.interface, "probe-a");
    assert_eq!(near.source, Some(IpAddr::from([10, 77, 0, 1])));
    assert_eq!((near.gateway, near.local), (None, false));
    assert_eq!((near.mtu_bytes, near.path_mtu_known), (Some(1600), false));
    let far = route::route_to(IpAddr::from([10, 78, 1, 1])).expect("a route");
    assert_eq!(far.gateway, Some(IpAddr::from([10, 77, 0, 9])));
    assert_eq!((far.mtu_bytes, far.path_mtu_known), (Some(1400), true));
    let own = route::route_to(IpAddr::from([10, 77, 0, 1])).expect("a route");
    assert_eq!((own.interface.as_str(), own.local), ("lo", true));
    let nowhere = route::route_to(IpAddr::from([192, 0, 2, 1]));
    let sentence = nowhere.expect_err("no default route").to_string();
    assert!(
        sentence.contains("find the route to 192.0.2.1"),
        "{sentence}"
    );
}

fn interfaces_are_those_of_the_namespace() {
    let nics = read(false);
    let names: Vec<_> = nics.iter().map(|nic| nic.name.as_str()).collect();
    assert_eq!(names, ["probe-a", "probe-b"]);
    assert_eq!(nics[0].kind, Some(Kind::Veth));
    assert_eq!(nics[0].mtu_bytes, Some(1600));
    assert_eq!(nics[0].speed_mbit_per_s, None);
    let ethtool = nics[0].ethtool.as_ref().expect("a veth has offloads");
    let features = ethtool.features.as_ref().expect("a veth has offloads");
    assert!(features.on("tx-tcp-segmentation"));
    assert_eq!((ethtool.rings, ethtool.pause), (None, None));
}

fn bytes_are_counted_to_the_last() {
    let socket = UdpSocket::bind("10.77.0.1:0").expect("a socket");
    let mut sampler = Sampler::default();
    sampler.sample(0, statistics::now());
    for _ in 0..1000 {
        // With the headers of UDP, IP and Ethernet: 1000 + 8 + 20 + 14.
        let sent = socket.send_to(&[0; 1000], "10.77.0.9:9");
        assert_eq!(sent.expect("the way is known"), 1000);
    }
    sampler.sample(2_000_000_000, statistics::now());
    let rates = sampler.rates();
    assert_eq!(rates["probe-a"].transmit.total_bytes, 1_042_000);
    assert_eq!(rates["probe-b"].receive.total_bytes, 1_042_000);
    assert_eq!(rates["probe-a"].receive.total_bytes, 0);
    assert_eq!(
        rates["probe-b"].receive.average_bytes_per_s,
        Some(521_000.0)
    );
}
