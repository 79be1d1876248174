//! Interfaces of three kinds of machine, of saved netlink answers, and of this computer.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::probe::net::machines::{KINDS, answer, tree};
use crate::probe::net::settings::TcpSettings;
use crate::probe::{irq, pcie};

fn nics(kind: &str) -> Vec<Nic> {
    under(tree(kind).path(), &[], kind == "vm")
}

#[test]
fn a_server_s_cards_and_bond_are_read_as_they_are() {
    let nics = nics("bare-metal");
    let names: Vec<_> = nics.iter().map(|nic| nic.name.as_str()).collect();
    assert_eq!(names, ["bond0", "eth0", "eth1"], "the loopback is left out");
    let [bond, fast, slow] = &nics[..] else {
        panic!("three interfaces")
    };
    assert_eq!(bond.kind, Some(Kind::Bond));
    assert_eq!(bond.speed_mbit_per_s, Some(40_000));
    assert_eq!(bond.lower, ["eth0", "eth1"]);
    let facts = bond.bond.as_ref().expect("its file");
    assert_eq!(
        facts.mode.as_deref(),
        Some("fault-tolerance (active-backup)")
    );
    assert_eq!(facts.active_member.as_deref(), Some("eth0"));
    assert_eq!(facts.members[1].link_failures, Some(20));
    assert_eq!(facts.members[1].speed_mbit_per_s, Some(10_000));
    assert_eq!(facts.left_out(), None, "no LACP");
    assert_eq!(fast.kind, Some(Kind::Card));
    assert_eq!(fast.driver.as_deref(), Some("mlx5_core"));
    assert_eq!(fast.bus_address.as_deref(), Some("0000:03:00.0"));
    assert_eq!(fast.line_bits_per_s(), Some(40_000_000_000));
    assert_eq!((fast.full_duplex, fast.carrier), (Some(true), Some(true)));
    assert_eq!(fast.master.as_deref(), Some("bond0"));
    assert_eq!(fast.mtu_bytes, Some(9000));
    assert_eq!(fast.receive_queues, Some(4));
    assert_eq!(fast.numa_node, Some(0));
    assert_eq!(slow.carrier_changes, Some(41));
    assert_eq!(slow.autoneg, None, "only ethtool tells");
}

#[test]
fn a_hypervisor_s_card_claims_no_speed() {
    let nics = nics("vm");
    assert_eq!(nics.len(), 1);
    assert_eq!(nics[0].kind, Some(Kind::VirtualCard));
    assert_eq!(nics[0].bus_address.as_deref(), Some("0000:00:03.0"));
    assert_eq!(
        (nics[0].speed_mbit_per_s, nics[0].full_duplex),
        (None, None)
    );
    assert_eq!(nics[0].numa_node, None, "-1 is no node");
    assert_eq!(nics[0].up, Some(true));
}

#[test]
fn a_nas_is_read_and_an_empty_tree_tells_nothing() {
    let nas = nics("zfs-nas");
    assert_eq!(nas.len(), 1);
    assert_eq!(nas[0].speed_mbit_per_s, Some(10_000));
    assert!(nics("empty").is_empty());
    assert_eq!(statistics::read(tree("empty").path()), None);
    assert_eq!(settings::read(tree("empty").path()), None);
}

#[test]
fn a_veth_s_speed_is_not_believed() {
    // LAB: every veth says 10000, at 35 Gbit/s too.
    let root = machines::unpack(
        "=== sys/class/net/va/mtu\n1500\n=== sys/class/net/va/speed\n10000\n=== sys/class/net/va/duplex\nfull\n=== sys/class/net/va/ifindex\n3\n=== sys/class/net/va/iflink\n2\n",
    );
    let nics = under(root.path(), &[], false);
    assert_eq!(nics[0].kind, Some(Kind::Veth));
    assert_eq!(
        (nics[0].speed_mbit_per_s, nics[0].full_duplex),
        (None, None)
    );
}

#[test]
fn the_kernel_s_list_decides_which_interfaces_there_are() {
    let links = links::parse(&answer("veth", "links"));
    let found = |name: &str| links.iter().find(|link| link.name == name).expect(name);
    assert_eq!(found("va").kind.as_deref(), Some("veth"));
    assert_eq!(found("va").mtu_bytes, Some(1500));
    assert_eq!(found("va").lower_index, Some(found("vb").index));
    assert_eq!(found("vb").master_index, Some(found("br0").index));
    assert!(found("lo").loopback);
    assert_eq!(
        found("lo").statistics.transmit_bytes,
        found("lo").statistics.receive_bytes
    );
    assert!(found("lo").statistics.transmit_bytes > Some(1_000_000));
    // A /sys of another namespace: its eth0 is not here, and without it everything still comes from the list.
    let nics = under(tree("vm").path(), &links, true);
    let kinds: Vec<_> = nics
        .iter()
        .map(|nic| (nic.name.as_str(), nic.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            ("br0", Some(Kind::Bridge)),
            ("tap0", Some(Kind::Tap)),
            ("va", Some(Kind::Veth)),
            ("vb", Some(Kind::Veth)),
        ]
    );
    assert_eq!(nics[1].up, Some(false));
    assert_eq!(nics[2].up, Some(true));
    assert_eq!(nics[3].master.as_deref(), Some("br0"));
    // Where both tell of the same interface, both are used.
    let links = links::parse(&answer("vm", "links"));
    let nics = under(tree("vm").path(), &links, true);
    let eth0 = nics
        .iter()
        .find(|nic| nic.name == "eth0")
        .expect("it is there");
    assert_eq!(eth0.kind, Some(Kind::VirtualCard));
    assert_eq!(eth0.mtu_bytes, Some(1400));
    assert_eq!(eth0.driver.as_deref(), Some("virtio_net"));
}

#[test]
fn counters_are_the_same_by_both_ways() {
    let tree = tree("bare-metal");
    let counters = statistics::under(tree.path());
    assert_eq!(counters["eth0"].receive_missed, Some(48_211));
    assert_eq!(counters["eth0"].receive_lost(), Some(48_211));
    assert_eq!(counters["eth1"].receive_crc_errors, Some(1733));
    assert_eq!(counters["lo"].receive_bytes, Some(91_233_441));
    assert_eq!(counters["lo"].receive_dropped, None, "no such file");
    let mut later = counters.clone();
    later.entry("eth0".into()).and_modify(|eth0| {
        eth0.receive_bytes = eth0.receive_bytes.map(|bytes| bytes + 1000);
        eth0.receive_missed = Some(3);
    });
    let grown = statistics::since(&later, &counters);
    assert_eq!(grown["eth0"].receive_bytes, Some(1000));
    assert_eq!(grown["eth0"].transmit_bytes, Some(0));
    assert_eq!(grown["eth0"].receive_missed, None, "it ran backwards");
}

#[test]
fn tcp_settings_of_each_machine() {
    let expected = [
        ("vm", "bbr", 33_554_432, "pfifo_fast"),
        ("bare-metal", "cubic", 6_291_456, "fq_codel"),
        ("zfs-nas", "cubic", 16_777_216, "pfifo_fast"),
    ];
    for (kind, congestion, rmem_max, qdisc) in expected {
        let tcp = TcpSettings::under(tree(kind).path());
        assert_eq!(
            tcp.congestion_control.as_deref(),
            Some(congestion),
            "{kind}"
        );
        assert_eq!(tcp.rmem_bytes.map(|rmem| rmem[2]), Some(rmem_max), "{kind}");
        assert_eq!(tcp.default_qdisc.as_deref(), Some(qdisc), "{kind}");
        assert_eq!(tcp.window_scaling, Some(true), "{kind}");
        assert_eq!(tcp.slow_start_after_idle, Some(true), "{kind}");
        assert_eq!(tcp.mtu_probing, Some(0), "{kind}");
        assert!(
            tcp.congestion_controls_available
                .contains(&"cubic".to_owned())
        );
    }
}

#[test]
fn every_machine_s_facts_survive_json() {
    for kind in KINDS {
        let nics = nics(kind);
        let text = serde_json::to_string(&nics).expect("plain data");
        assert_eq!(
            serde_json::from_str::<Vec<Nic>>(&text).expect("its own text"),
            nics
        );
        let counters = statistics::under(tree(kind).path());
        let text = serde_json::to_string(&counters).expect("plain data");
        let read: statistics::PerInterface = serde_json::from_str(&text).expect("its own text");
        assert_eq!(read, counters);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn files_full_of_anything_are_read_without_a_panic(
        which in 0_usize..3,
        text in "(-?[0-9a-f]{1,20}|[0-9]{1,5}-[0-9]{1,9}|[A-Za-z :,.0-9-]{0,40}|\\PC{0,20})(\n.{0,40}){0,3}",
    ) {
        let original = machines::text(KINDS[which]);
        let damaged = machines::damaged(&original, &text.replace("=== ", ""));
        let root = machines::unpack(&damaged);
        let root = root.path();
        let _ = (under(root, &[], false), statistics::read(root), settings::read(root));
        let _ = (pcie::read(root), irq::read(root), irq::softnet_read(root));
        let _ = irq::steering(root, "eth0");
        for way in pcie::read(root).unwrap_or_default().values() {
            let _ = (way.usable_bytes_per_s(), way.held_back());
        }
    }
}

#[test]
fn this_computer_has_its_loopback_and_its_counters() {
    let links = links::links().expect("netlink");
    assert!(links.iter().any(|link| link.loopback && link.name == "lo"));
    assert!(statistics::now().contains_key("lo"));
    let nics = read(false);
    assert!(nics.iter().all(|nic| nic.name != "lo"));
    assert!(settings::read(Path::new("/")).is_some());
}
