//! Saved answers of virtual cards; answers of a 40 Gbit/s card, composed after ethtool-netlink.rst.

use proptest::prelude::*;

use super::*;
use crate::probe::net::machines::answer;
use crate::probe::net::netlink::testing::{attributes as list, message};

fn saved(kind: &str, interface: &str, question: &str) -> Vec<u8> {
    answer(kind, &format!("ethtool-{interface}-{question}"))
}

/// A composed answer: the header every answer has, then `attributes`.
fn composed(attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut payload = vec![0, 1, 0, 0];
    let header = list(&[(2, b"eth0\0".to_vec())]);
    payload.extend(list(&[(1 | 0x8000, header)]));
    payload.extend(list(attributes));
    message(21, &payload)
}

fn word(value: u32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

/// A bit set in words: each bit's name and, in a set with a mask, whether it is set.
fn bits(mask: bool, names: &[(&str, bool)]) -> Vec<u8> {
    let inner: Vec<(u16, Vec<u8>)> = names
        .iter()
        .zip(0_u32..)
        .map(|((name, set), index)| {
            let mut name = name.as_bytes().to_vec();
            name.push(0);
            let mut bit = vec![(1, word(index)), (2, name)];
            if *set && mask {
                bit.push((3, Vec::new()));
            }
            (1 | 0x8000, list(&bit))
        })
        .collect();
    let mut set = if mask {
        Vec::new()
    } else {
        vec![(1, Vec::new())]
    };
    set.push((2, word(names.len() as u32)));
    set.push((3 | 0x8000, list(&inner)));
    list(&set)
}

#[test]
fn a_veth_s_answers_are_read() {
    let features = Features::parse(&saved("veth", "va", "features")).expect("features");
    assert!(features.on("tx-tcp-segmentation") && features.on("rx-checksum"));
    assert!(!features.on("rx-gro") && !features.on("no-such-thing"));
    assert!(
        features
            .changeable
            .contains(&"tx-tcp-segmentation".to_owned())
    );
    let channels = Channels::parse(&saved("veth", "va", "channels")).expect("channels");
    assert_eq!((channels.receive, channels.receive_max), (Some(1), Some(2)));
    assert_eq!(channels.receiving(), Some(1));
    let modes = LinkModes::parse(&saved("veth", "va", "link_modes")).expect("modes");
    assert_eq!(
        modes.speed_mbit_per_s,
        Some(10_000),
        "the lie that Nic leaves out"
    );
    assert!(modes.advertised.is_empty());
}

#[test]
fn a_virtio_card_s_answers_are_read() {
    let rings = Rings::parse(&saved("vm", "eth0", "rings")).expect("rings");
    assert_eq!((rings.receive, rings.receive_max), (Some(256), Some(256)));
    assert_eq!((rings.transmit, rings.transmit_max), (Some(256), Some(256)));
    let channels = Channels::parse(&saved("vm", "eth0", "channels")).expect("channels");
    assert_eq!(
        (channels.combined, channels.combined_max),
        (Some(1), Some(1))
    );
    let coalesce = Coalesce::parse(&saved("vm", "eth0", "coalesce")).expect("coalescing");
    assert_eq!(coalesce.receive_frames, Some(1));
    let modes = LinkModes::parse(&saved("vm", "eth0", "link_modes")).expect("modes");
    assert_eq!(
        (modes.speed_mbit_per_s, modes.full_duplex),
        (None, None),
        "unknown"
    );
    // One queue has no table to spread over.
    assert_eq!(Rss::parse(&saved("vm", "eth0", "rss")), None);
    let features = Features::parse(&saved("vm", "eth0", "features")).expect("features");
    assert!(features.on("rx-gro") && features.on("highdma") && !features.on("rx-lro"));
    let fixed = "highdma".to_owned();
    assert!(
        !features.changeable.contains(&fixed),
        "it can't be switched"
    );
    assert_eq!(features.active.len(), 10);
}

#[test]
fn a_fast_card_s_answers_are_read() {
    let ours = bits(
        true,
        &[
            ("10000baseKR/Full", false),
            ("40000baseCR4/Full", true),
            ("Autoneg", true),
        ],
    );
    let modes = composed(&[
        (2, vec![1]),
        (3 | 0x8000, ours),
        (4 | 0x8000, bits(false, &[("40000baseCR4/Full", true)])),
        (5, word(40_000)),
        (6, vec![1]),
        (9, word(4)),
    ]);
    let modes = LinkModes::parse(&modes).expect("modes");
    assert_eq!(modes.autoneg, Some(true));
    assert_eq!(
        (modes.speed_mbit_per_s, modes.lanes),
        (Some(40_000), Some(4))
    );
    assert_eq!(modes.supported.len(), 3);
    assert_eq!(modes.advertised, ["40000baseCR4/Full", "Autoneg"]);
    assert_eq!(modes.peer, ["40000baseCR4/Full"]);
    assert_eq!(modes.full_duplex, Some(true));

    let table: Vec<u8> = [0_u32, 1, 2, 3, 0, 1, 0, 1]
        .into_iter()
        .flat_map(word)
        .collect();
    let rss = Rss::parse(&composed(&[(3, word(1)), (4, table)])).expect("a table");
    assert_eq!(
        rss.entries_per_queue,
        BTreeMap::from([(0, 3), (1, 3), (2, 1), (3, 1)])
    );

    let counted = list(&[
        (2, 7_u64.to_ne_bytes().to_vec()),
        (3, 81_u64.to_ne_bytes().to_vec()),
    ]);
    let pause = composed(&[
        (2, vec![0]),
        (3, vec![1]),
        (4, vec![1]),
        (5 | 0x8000, counted),
    ]);
    let pause = Pause::parse(&pause).expect("pause");
    assert_eq!((pause.receive, pause.autoneg), (Some(true), Some(false)));
    assert_eq!(
        (pause.frames_received, pause.frames_sent),
        (Some(81), Some(7))
    );
    let uncounted = Pause::parse(&composed(&[(3, vec![0])])).expect("pause");
    assert_eq!(
        (uncounted.receive, uncounted.frames_received),
        (Some(false), None)
    );

    let fec = composed(&[
        (2 | 0x8000, bits(false, &[("RS", true)])),
        (3, vec![1]),
        (4, word(50)),
    ]);
    let fec = Fec::parse(&fec).expect("FEC");
    assert_eq!(
        (fec.configured, fec.active.as_deref()),
        (vec!["RS".to_owned()], Some("RS"))
    );

    let coalesce = composed(&[(2, word(8)), (3, word(128)), (6, word(16)), (11, vec![1])]);
    let coalesce = Coalesce::parse(&coalesce).expect("coalescing");
    assert_eq!(
        (coalesce.receive_us, coalesce.transmit_us),
        (Some(8), Some(16))
    );
    assert_eq!(
        (coalesce.adaptive_receive, coalesce.adaptive_transmit),
        (Some(true), None)
    );
}

#[test]
fn nothing_is_made_of_an_empty_answer() {
    assert_eq!(Features::parse(&[]), None);
    assert_eq!(Rings::parse(&message(3, &[])), None);
    assert_eq!(Features::parse(&composed(&[])), None);
}

#[test]
fn this_computer_answers_or_refuses() {
    // A kernel without the family refuses as one; with it, an interface that is not there is refused.
    if let Ok(asker) = Asker::new() {
        let refused = asker.ask("no-such-nic", Question::Features);
        assert!(refused.is_err());
        assert_eq!(asker.read("no-such-nic"), Ethtool::default());
        assert!(
            asker.read("lo").features.is_some(),
            "every interface has offloads"
        );
    }
}

fn read_all(bytes: &[u8]) {
    let _ = (
        Features::parse(bytes),
        Rings::parse(bytes),
        Channels::parse(bytes),
    );
    let _ = (
        Coalesce::parse(bytes),
        Rss::parse(bytes),
        Pause::parse(bytes),
    );
    let _ = (LinkModes::parse(bytes), Fec::parse(bytes));
    let _ = Channels::parse(bytes).map(|channels| channels.receiving());
}

#[test]
fn cut_answers_are_read_as_far_as_they_go() {
    let whole = saved("vm", "eth0", "features");
    for length in 0..whole.len() {
        read_all(&whole[..length]);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        read_all(&bytes);
        read_all(&message(21, &bytes));
    }

    #[test]
    fn damaged_answers_are_read_without_a_panic(at in 0_usize..2984, value in any::<u8>()) {
        let mut bytes = saved("vm", "eth0", "features");
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
        read_all(&bytes);
    }
}
