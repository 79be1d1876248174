//! Network interfaces: what each is, how fast its link is where that can be believed, and what stands on what.
//!
//! From /sys and, where it answers, netlink. Start with [`read`] (facts, once) and [`statistics::now`] (counters, around
//! a run); [`route::route_to`] says which interface a destination is reached through. Must not know: targets. Sizes are
//! in bytes, link speeds in Mbit/s (1000 000 bit/s) as the kernel gives them.

pub mod bonding;
pub mod ethtool;
pub mod links;
#[cfg(test)]
pub(crate) mod machines;
pub mod netlink;
pub mod rates;
pub mod route;
pub mod settings;
pub mod statistics;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::disk::entries;
use crate::probe::{line, number};
use bonding::Bond;
use ethtool::{Asker, Ethtool};
use links::Link;

/// What an interface is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A network card.
    Card,
    /// A card that a hypervisor makes; its speed is the host's affair.
    VirtualCard,
    /// One end of a pair between namespaces or containers.
    Veth,
    /// A program's or a virtual machine's interface.
    Tap,
    /// A switch made of software.
    Bridge,
    /// Several interfaces as one.
    Bond,
    /// A VLAN on another interface.
    Vlan,
    /// Other software.
    Software,
}

/// A network interface; what could not be found out is None.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// What it is made of.
    pub kind: Option<Kind>,
    /// The largest packet.
    pub mtu_bytes: Option<u32>,
    /// The link speed where known and believable: virtual interfaces invent one.
    pub speed_mbit_per_s: Option<u32>,
    /// Whether both ends may send at once, where the speed is believable.
    pub full_duplex: Option<bool>,
    /// Whether both ends agreed on the speed by themselves.
    pub autoneg: Option<bool>,
    /// The kernel driver; None for interfaces made of software.
    pub driver: Option<String>,
    /// Where it sits, such as `0000:01:00.0` on PCI.
    pub bus_address: Option<String>,
    /// Whether it has a link.
    pub up: Option<bool>,
    /// Whether the cable is connected; None when the interface is switched off.
    pub carrier: Option<bool>,
    /// How often the link came or went since it was made: many times is a bad cable or plug.
    pub carrier_changes: Option<u64>,
    /// The bond or bridge that it is part of.
    pub master: Option<String>,
    /// What it stands on: a bond's or bridge's members, a VLAN's parent.
    pub lower: Vec<String>,
    /// The VLAN's number.
    pub vlan_id: Option<u16>,
    /// How it bundles its members.
    pub bond: Option<Bond>,
    /// Queues that packets arrive in.
    pub receive_queues: Option<u32>,
    /// Queues that packets leave from.
    pub transmit_queues: Option<u32>,
    /// The memory that the card is near to; None where there is one kind only.
    pub numa_node: Option<u32>,
    /// How the card is set.
    pub ethtool: Option<Ethtool>,
}

/// Drivers of paravirtual devices, whose speed is a constant and not a link's.
const PARAVIRTUAL: &[&str] = &["virtio_net", "vmxnet3", "xen_netfront", "vif", "ena", "gve"];
/// Drivers of real cards that hypervisors like to emulate: believed on hardware only.
const EMULATED: &[&str] = &[
    "e1000", "e1000e", "igb", "8139cp", "8139too", "pcnet32", "ne2k-pci",
];

/// The interfaces of this network namespace apart from the loopback, by name, with how each is set.
/// `virtual_machine`: whether this computer is one.
#[must_use]
pub fn read(virtual_machine: bool) -> Vec<Nic> {
    let links = links::links().unwrap_or_default();
    let mut nics = under(Path::new("/"), &links, virtual_machine);
    if let Ok(asker) = Asker::new() {
        for nic in &mut nics {
            let told = asker.read(&nic.name);
            // A veth or a hypervisor's card has no cable to agree about.
            let modes = told.link_modes.as_ref();
            if let Some(modes) = modes.filter(|_| nic.speed_mbit_per_s.is_some()) {
                nic.autoneg = modes.autoneg;
            }
            nic.ethtool = (told != Ethtool::default()).then_some(told);
        }
    }
    nics
}

/// The interfaces that the tree below `root` and the kernel's list tell of, apart from the loopback, by name.
///
/// Where there is a list it decides which there are, since /sys may be another namespace's.
#[must_use]
pub fn under(root: &Path, links: &[Link], virtual_machine: bool) -> Vec<Nic> {
    let directory = root.join("sys/class/net");
    let mut found = BTreeMap::new();
    for path in entries(&directory) {
        let Some(name) = path.file_name().map(|name| name.to_string_lossy()) else {
            continue;
        };
        if path.join("mtu").exists() && name != "lo" {
            let nic = Nic::in_sysfs(name.clone().into_owned(), &path, virtual_machine);
            found.insert(name.into_owned(), nic);
        }
    }
    if !links.is_empty() {
        let same = |name: &str| {
            let link = links.iter().find(|link| link.name == name)?;
            let index = number::<u32>(&directory.join(name).join("ifindex"));
            index.is_none_or(|index| index == link.index).then_some(())
        };
        found.retain(|name, _| same(name).is_some());
    }
    for link in links.iter().filter(|link| !link.loopback) {
        let nic = found
            .entry(link.name.clone())
            .or_insert_with(|| Nic::named(link.name.clone()));
        nic.refine(link, links);
    }
    for nic in found.values_mut() {
        let text = line(&root.join("proc/net/bonding").join(&nic.name));
        nic.bond = text.and_then(|text| Bond::parse(&text));
    }
    found.into_values().collect()
}

impl Nic {
    fn named(name: String) -> Self {
        Self {
            name,
            kind: None,
            mtu_bytes: None,
            speed_mbit_per_s: None,
            full_duplex: None,
            autoneg: None,
            driver: None,
            bus_address: None,
            up: None,
            carrier: None,
            carrier_changes: None,
            master: None,
            lower: Vec::new(),
            vlan_id: None,
            bond: None,
            receive_queues: None,
            transmit_queues: None,
            numa_node: None,
            ethtool: None,
        }
    }

    fn in_sysfs(name: String, path: &Path, virtual_machine: bool) -> Self {
        let speed_mbit_per_s = speed(path, virtual_machine, 0);
        let carrier = number::<u8>(&path.join("carrier")).map(|carrier| carrier == 1);
        let queues = |direction: &str| {
            let queues = below(&path.join("queues"), direction).len();
            u32::try_from(queues).ok().filter(|count| *count > 0)
        };
        Self {
            kind: kind(path, virtual_machine),
            mtu_bytes: number(&path.join("mtu")),
            speed_mbit_per_s,
            full_duplex: speed_mbit_per_s.and_then(|_| {
                match line(&path.join("duplex")).as_deref() {
                    Some("full") => Some(true),
                    Some("half") => Some(false),
                    _ => None,
                }
            }),
            driver: driver(path),
            bus_address: bus_address(path),
            up: match line(&path.join("operstate")).as_deref() {
                Some("up") => Some(true),
                Some("down" | "lowerlayerdown" | "notpresent") => Some(false),
                // Some drivers never say; their carrier can be read while the interface is up.
                _ => carrier,
            },
            carrier,
            carrier_changes: number(&path.join("carrier_changes")),
            master: link_name(&path.join("master")),
            lower: below(path, "lower_"),
            receive_queues: queues("rx-"),
            transmit_queues: queues("tx-"),
            // -1 where there is no such thing.
            numa_node: number(&path.join("device/numa_node")),
            ..Self::named(name)
        }
    }

    /// Adds what the kernel's list tells; it knows kinds for sure.
    fn refine(&mut self, link: &Link, links: &[Link]) {
        let name_of = |index: Option<u32>| {
            let found = links.iter().find(|other| Some(other.index) == index);
            found.map(|other| other.name.clone())
        };
        match link.kind.as_deref() {
            // A card of Xen calls itself a kind, too.
            None | Some("vif") => {}
            Some("veth") => self.kind = Some(Kind::Veth),
            Some("tun") => self.kind = Some(Kind::Tap),
            Some("bridge") => self.kind = Some(Kind::Bridge),
            Some("bond" | "team") => self.kind = Some(Kind::Bond),
            Some("vlan") => self.kind = Some(Kind::Vlan),
            Some(_) => self.kind = Some(Kind::Software),
        }
        self.mtu_bytes = link.mtu_bytes.or(self.mtu_bytes);
        self.up = self.up.or(link.up).or(link.carrier);
        self.carrier = self.carrier.or(link.carrier);
        self.vlan_id = link.vlan_id;
        self.master = self.master.take().or_else(|| name_of(link.master_index));
        if self.lower.is_empty() && self.kind == Some(Kind::Vlan) {
            self.lower = name_of(link.lower_index).into_iter().collect();
        }
    }

    /// Whether packets through it meet no cable of this computer's own: it names any speed, and loses packets for other
    /// reasons than a cable does.
    #[must_use]
    pub fn is_software(&self) -> bool {
        match self.kind {
            Some(Kind::Veth | Kind::Tap | Kind::VirtualCard | Kind::Software) => true,
            // These stand for the cards below them, where there are any.
            Some(Kind::Bridge | Kind::Bond | Kind::Vlan) => self.speed_mbit_per_s.is_none(),
            Some(Kind::Card) | None => false,
        }
    }

    /// What the line can carry in each direction, bits a second; None where the speed is not believable.
    #[must_use]
    pub fn line_bits_per_s(&self) -> Option<u64> {
        self.speed_mbit_per_s
            .map(|speed| u64::from(speed) * 1_000_000)
    }
}

/// Names in `directory` that begin with `prefix`, without it, in order.
fn below(directory: &Path, prefix: &str) -> Vec<String> {
    let mut names: Vec<String> = entries(directory)
        .iter()
        .filter_map(|path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            name.strip_prefix(prefix).map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

fn link_name(path: &Path) -> Option<String> {
    let link = std::fs::read_link(path).ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

fn driver(path: &Path) -> Option<String> {
    link_name(&path.join("device/driver"))
}

/// The address on the bus; of a virtio card that of the PCI device which carries it, where there is one.
fn bus_address(path: &Path) -> Option<String> {
    let device = path.join("device");
    let uevent = |path: &Path| {
        let text = line(&path.join("uevent"))?;
        let slot = text
            .lines()
            .find_map(|line| line.strip_prefix("PCI_SLOT_NAME="))?;
        Some(slot.to_owned())
    };
    uevent(&device)
        .or_else(|| uevent(&device.join("..")))
        .or_else(|| link_name(&device))
}

/// The kind by the marks in /sys; None when they don't decide.
fn kind(path: &Path, virtual_machine: bool) -> Option<Kind> {
    let uevent = line(&path.join("uevent")).unwrap_or_default();
    let named = uevent
        .lines()
        .find_map(|line| match line.strip_prefix("DEVTYPE=")? {
            "bond" => Some(Kind::Bond),
            "bridge" => Some(Kind::Bridge),
            "vlan" => Some(Kind::Vlan),
            // Wireless cards, and cards behind a switch chip.
            "wlan" | "wwan" | "dsa" => None,
            _ => Some(Kind::Software),
        });
    let mark = |file: &str, kind: Kind| path.join(file).exists().then_some(kind);
    let marked = named
        .or_else(|| mark("bridge", Kind::Bridge))
        .or_else(|| mark("bonding", Kind::Bond))
        .or_else(|| mark("tun_flags", Kind::Tap));
    if marked.is_some() {
        return marked;
    }
    if let Some(driver) = driver(path) {
        return Some(if invents_speed(&driver, virtual_machine) {
            Kind::VirtualCard
        } else {
            Kind::Card
        });
    }
    // A veth names another interface as its link, yet stands on none.
    let (own, other) = (
        number::<u32>(&path.join("ifindex"))?,
        number::<u32>(&path.join("iflink"))?,
    );
    (own != other && other != 0 && below(path, "lower_").is_empty()).then_some(Kind::Veth)
}

fn invents_speed(driver: &str, virtual_machine: bool) -> bool {
    PARAVIRTUAL.contains(&driver) || virtual_machine && EMULATED.contains(&driver)
}

/// The speed, believed of hardware, and of bonds and VLANs that stand on nothing else. `depth` ends a circle.
fn speed(path: &Path, virtual_machine: bool, depth: u8) -> Option<u32> {
    // A link that is down says -1, or that as an unsigned number.
    let speed = number::<u32>(&path.join("speed")).filter(|speed| (1..u32::MAX).contains(speed))?;
    if let Some(driver) = driver(path) {
        return (!invents_speed(&driver, virtual_machine)).then_some(speed);
    }
    let stacked = matches!(kind(path, virtual_machine), Some(Kind::Bond | Kind::Vlan));
    let mut lower = below(path, "lower_").into_iter().peekable();
    let believable = depth < 4
        && stacked
        && lower.peek().is_some()
        && lower.all(|name| {
            let below = path.join(format!("lower_{name}"));
            self::speed(&below, virtual_machine, depth + 1).is_some()
        });
    believable.then_some(speed)
}

#[cfg(test)]
mod live;
#[cfg(test)]
mod tests;
