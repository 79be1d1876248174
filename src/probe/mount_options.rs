//! How disks and other computers are mounted: the options that decide how fast and how safe a mount is.
//!
//! Sources: nfs(5), mount.cifs(8), mount(8). User names, domains and client addresses are left out. Must not know: which of
//! the mounts is measured. Sizes are in bytes.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::probe::mount::Mount;
use crate::probe::{line, mount, some};

/// A mount of a disk or of another computer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounted {
    /// Where.
    pub point: PathBuf,
    /// The file system type.
    pub kind: String,
    /// What is mounted: a device, `server:/export`, `//server/share`.
    pub source: String,
    /// Whether it may only be read.
    pub read_only: bool,
    /// Whether each write waits for stable storage (`sync`).
    pub sync: bool,
    /// Options of a local file system, as the kernel lists them; empty for network mounts.
    pub options: String,
    /// What a network mount and its server agreed on.
    pub network: Option<Network>,
}

/// Options of a network mount; None each where the mount does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The protocol's version: `3`, `4.2`, `3.1.1`.
    pub version: Option<String>,
    /// The largest read.
    pub rsize_bytes: Option<u64>,
    /// The largest write.
    pub wsize_bytes: Option<u64>,
    /// TCP connections of an NFS mount, or the most channels of an SMB mount. An NFS mount that does not say has 1.
    pub connections: Option<u32>,
    /// `tcp`, `tcp6`, `udp`, `rdma`.
    pub transport: Option<String>,
    /// `sys`, `krb5`, `krb5p`, `ntlmssp` ..
    pub security: Option<String>,
    /// Whether calls are repeated for ever (`hard`) instead of failing (`soft`).
    pub hard: Option<bool>,
    /// SMB: `strict`, `none`, `loose`.
    pub cache: Option<String>,
    /// SMB: whether messages are encrypted (`seal`).
    pub encrypted: Option<bool>,
    /// SMB: whether messages are signed at the mount's own wish (`sign`).
    pub signed: Option<bool>,
    /// NFS: whether attributes are asked for each time (`noac`).
    pub attributes_uncached: Option<bool>,
    /// The server's address.
    pub address: Option<String>,
}

/// The value of `key=value` in an option list; an option without a value has an empty one.
#[must_use]
pub fn option<'a>(options: &'a str, key: &str) -> Option<&'a str> {
    options.split(',').find_map(|option| {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        (name == key).then_some(value)
    })
}

impl Network {
    /// Reads what the kernel keeps with the file system (the last field of mountinfo).
    #[must_use]
    pub fn parse(kind: &str, options: &str) -> Self {
        let text = |key: &str| option(options, key).filter(|text| !text.is_empty());
        let number = |key: &str| text(key)?.parse().ok();
        let has = |key: &str| option(options, key).is_some();
        let either = |yes: &str, no: &str| has(yes).then_some(true).or(has(no).then_some(false));
        let nfs = kind.starts_with("nfs");
        let smb = matches!(kind, "cifs" | "smb3");
        let connections = if nfs {
            // The kernel lists nconnect only where it is more than 1.
            Some(text("nconnect").map_or(Some(1), |count| count.parse().ok())).flatten()
        } else if has("multichannel") {
            text("max_channels").and_then(|count| count.parse().ok())
        } else {
            smb.then_some(1)
        };
        Self {
            version: text("vers").or_else(|| text("nfsvers")).map(str::to_owned),
            rsize_bytes: number("rsize"),
            wsize_bytes: number("wsize"),
            connections,
            transport: text("proto").map(str::to_owned),
            security: text("sec").map(str::to_owned),
            hard: either("hard", "soft"),
            cache: text("cache").map(str::to_owned),
            encrypted: smb.then(|| has("seal")),
            signed: smb.then(|| has("sign")),
            attributes_uncached: nfs.then(|| has("noac")),
            address: text("addr").map(str::to_owned),
        }
    }
}

impl Mounted {
    /// The options of a mount; None for those of neither a disk nor another computer.
    #[must_use]
    pub fn of(mount: &Mount) -> Option<Self> {
        let network = mount.is_network();
        let pooled = matches!(mount.kind.as_str(), "zfs" | "bcachefs");
        let stacked = mount.kind == "overlay" || mount.kind.starts_with("fuse");
        let local = mount.source.starts_with("/dev/") && mount.kind != "devtmpfs";
        if !(network || pooled || stacked && mount.kind != "fusectl" || local) {
            return None;
        }
        let has = |key: &str| {
            option(&mount.options, key).is_some() || option(&mount.super_options, key).is_some()
        };
        Some(Self {
            point: mount.point.clone(),
            kind: mount.kind.clone(),
            source: mount.source.clone(),
            read_only: has("ro"),
            sync: has("sync"),
            options: if local || pooled {
                format!("{},{}", mount.options, mount.super_options)
            } else {
                String::new()
            },
            network: network.then(|| Network::parse(&mount.kind, &mount.super_options)),
        })
    }
}

/// The mounts of this process that hold data.
#[must_use]
pub fn read(root: &Path) -> Option<Vec<Mounted>> {
    let text = line(&root.join("proc/self/mountinfo"))?;
    some(mount::parse(&text).iter().filter_map(Mounted::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::machines;

    #[test]
    fn options_of_each_protocol() {
        let nfs = Network::parse(
            "nfs4",
            "rw,vers=4.2,rsize=1048576,wsize=524288,namlen=255,hard,proto=tcp,nconnect=8,timeo=600,retrans=2,sec=sys,clientaddr=10.40.0.2,local_lock=none,addr=10.40.0.7",
        );
        assert_eq!(nfs.version.as_deref(), Some("4.2"));
        assert_eq!(
            (nfs.rsize_bytes, nfs.wsize_bytes),
            (Some(1 << 20), Some(1 << 19))
        );
        assert_eq!((nfs.connections, nfs.hard), (Some(8), Some(true)));
        assert_eq!(nfs.transport.as_deref(), Some("tcp"));
        assert_eq!(nfs.address.as_deref(), Some("10.40.0.7"));
        assert_eq!(
            (nfs.encrypted, nfs.attributes_uncached),
            (None, Some(false))
        );
        let one = Network::parse("nfs", "rw,vers=3,soft,noac,proto=udp");
        assert_eq!((one.connections, one.hard), (Some(1), Some(false)));
        assert_eq!(one.attributes_uncached, Some(true));
        let smb = Network::parse(
            "cifs",
            "rw,vers=3.1.1,cache=strict,username=anna,domain=home,seal,soft,rsize=4194304,sec=ntlmssp",
        );
        assert_eq!(
            (smb.cache.as_deref(), smb.encrypted),
            (Some("strict"), Some(true))
        );
        assert_eq!((smb.signed, smb.connections), (Some(false), Some(1)));
        let kept = format!("{smb:?}");
        assert!(!kept.contains("anna") && !kept.contains("home"), "{kept}");
        let many = Network::parse("cifs", "multichannel,max_channels=4");
        assert_eq!(many.connections, Some(4));
        let unknown = Network::parse("ceph", "rw");
        assert_eq!(unknown, Network::default());
    }

    #[test]
    fn a_value_belongs_to_its_own_key() {
        assert_eq!(option("mountvers=3,vers=4.1", "vers"), Some("4.1"));
        assert_eq!(option("nosync", "sync"), None);
        assert_eq!(option("rw,sync", "sync"), Some(""));
    }

    #[test]
    fn the_mounts_of_each_machine() {
        let points = |name: &str| -> Vec<(String, String)> {
            let found = read(machines::tree(name).path()).unwrap_or_default();
            found
                .into_iter()
                .map(|one| (one.point.to_string_lossy().into_owned(), one.kind))
                .collect()
        };
        let pair = |point: &str, kind: &str| (point.to_owned(), kind.to_owned());
        assert_eq!(points("vm"), [pair("/", "ext4")]);
        assert_eq!(
            points("bare-metal"),
            [
                pair("/", "ext4"),
                pair("/srv/data", "xfs"),
                pair("/srv/backup", "btrfs"),
                pair("/mnt/nas", "nfs4"),
                pair("/mnt/office", "cifs"),
            ]
        );
        assert_eq!(
            points("zfs-nas"),
            [
                pair("/", "zfs"),
                pair("/mnt/tank", "zfs"),
                pair("/mnt/tank/bench", "zfs")
            ]
        );
        assert!(points("empty").is_empty());
        let server = read(machines::tree("bare-metal").path()).expect("composed");
        assert!(server[1].options.contains("logbufs=8") && !server[1].sync);
        assert!(server[2].sync && server[3].options.is_empty());
        assert_eq!(
            server[3].network.as_ref().and_then(|nfs| nfs.connections),
            Some(4)
        );
    }
}
