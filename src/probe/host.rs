//! What this computer is: the part of `environment.json` that says where figures come from.
//!
//! Nothing here is secret, but names and addresses are the user's: `report --redact` removes them. Must not know:
//! targets. Sizes are in bytes.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::probe::line;
use crate::probe::net::settings::three;
use crate::probe::net::{self, Nic};

/// Facts about a computer; what could not be found out is None.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// This program's version.
    pub nasgauge_version: String,
    /// The node name.
    pub hostname: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The machine type, such as `x86_64`.
    pub architecture: Option<String>,
    /// The distribution, as it calls itself.
    pub os: Option<String>,
    /// The processor's model.
    pub cpu_model: Option<String>,
    /// Cores that this process may use.
    pub cores_online: Option<usize>,
    /// Memory of the machine.
    pub memory_total_bytes: Option<u64>,
    /// Memory that programs can still take.
    pub memory_available_bytes: Option<u64>,
    /// The hypervisor: its name, or `unknown` when only its presence shows. None on hardware.
    pub hypervisor: Option<String>,
    /// Windows Subsystem for Linux, whose figures are not those of a Linux computer.
    pub wsl: bool,
    /// Network interfaces apart from the loopback.
    pub nics: Vec<Nic>,
    /// The default TCP congestion control.
    pub congestion_control: Option<String>,
    /// Least, first and largest TCP receive buffer.
    pub tcp_rmem_bytes: Option<[u64; 3]>,
    /// Least, first and largest TCP send buffer.
    pub tcp_wmem_bytes: Option<[u64; 3]>,
    /// The clock that the kernel counts time by; anything but `tsc` makes timestamps dear on x86.
    pub clocksource: Option<String>,
    /// Versions of the client libraries in this build.
    pub libraries: BTreeMap<String, String>,
}

/// The computer below a root; the parts that no file tells belong to this one alone.
#[must_use]
pub fn read(root: &Path) -> Option<Host> {
    let host = if root == Path::new("/") {
        Host::read()
    } else {
        Host::under(root)
    };
    (host.kernel.is_some() || host.memory_total_bytes.is_some()).then_some(host)
}

impl Host {
    /// Reads this computer.
    #[must_use]
    pub fn read() -> Self {
        let name = rustix::system::uname();
        let text = |text: &std::ffi::CStr| Some(text.to_string_lossy().into_owned());
        let found = Self::under(Path::new("/"));
        Self {
            hostname: text(name.nodename()),
            // Where there is no /proc, as in a chroot, the kernel still answers.
            kernel: text(name.release()),
            architecture: text(name.machine()),
            cores_online: std::thread::available_parallelism().ok().map(usize::from),
            nics: net::read(found.hypervisor.is_some()),
            ..found
        }
    }

    /// Reads what the files below `root` tell.
    #[must_use]
    pub fn under(root: &Path) -> Self {
        let at = |path: &str| root.join(path);
        let memory = line(&at("proc/meminfo")).unwrap_or_default();
        let cpuinfo = line(&at("proc/cpuinfo")).unwrap_or_default();
        let kernel = line(&at("proc/sys/kernel/osrelease"));
        let wsl = kernel
            .as_deref()
            .is_some_and(|release| release.to_ascii_lowercase().contains("microsoft"));
        let hypervisor = hypervisor(root, &cpuinfo, wsl);
        Self {
            nasgauge_version: env!("CARGO_PKG_VERSION").to_owned(),
            hostname: line(&at("proc/sys/kernel/hostname")),
            kernel,
            architecture: None,
            os: line(&at("etc/os-release")).and_then(|text| os_name(&text)),
            cpu_model: cpu_model(&cpuinfo).or_else(|| line(&at("proc/device-tree/model"))),
            cores_online: None,
            memory_total_bytes: meminfo(&memory, "MemTotal"),
            memory_available_bytes: meminfo(&memory, "MemAvailable"),
            nics: net::under(root, &[], hypervisor.is_some()),
            hypervisor,
            wsl,
            congestion_control: line(&at("proc/sys/net/ipv4/tcp_congestion_control")),
            tcp_rmem_bytes: line(&at("proc/sys/net/ipv4/tcp_rmem")).and_then(|text| three(&text)),
            tcp_wmem_bytes: line(&at("proc/sys/net/ipv4/tcp_wmem")).and_then(|text| three(&text)),
            clocksource: line(&at(
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
            )),
            libraries: libraries(include_str!("../../Cargo.lock")),
        }
    }
}

/// A line of `/proc/meminfo` in bytes.
#[must_use]
pub fn meminfo(text: &str, key: &str) -> Option<u64> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?
        .trim();
    match value.strip_suffix("kB") {
        Some(kib) => kib.trim().parse::<u64>().ok()?.checked_mul(1024),
        None => value.parse().ok(),
    }
}

/// `PRETTY_NAME` of os-release(5), else `NAME`.
fn os_name(text: &str) -> Option<String> {
    let value = |key: &str| {
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        let value = value.trim().trim_matches(['"', '\'']);
        (!value.is_empty()).then(|| value.to_owned())
    };
    value("PRETTY_NAME").or_else(|| value("NAME"))
}

/// The first processor's model from `/proc/cpuinfo`.
fn cpu_model(text: &str) -> Option<String> {
    let field = |wanted: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == wanted && !value.trim().is_empty()).then(|| value.trim().to_owned())
        })
    };
    // x86 says "model name", older ARM "Processor" or "Hardware", POWER and s390 "cpu".
    ["model name", "Processor", "Hardware", "cpu"]
        .iter()
        .find_map(|key| field(key))
}

/// The hypervisor by the marks it leaves: Xen's directory, the firmware's vendor, the processor's flag.
fn hypervisor(root: &Path, cpuinfo: &str, wsl: bool) -> Option<String> {
    if wsl {
        return Some("Hyper-V (WSL)".to_owned());
    }
    if let Some(kind) = line(&root.join("sys/hypervisor/type")) {
        return Some(kind);
    }
    let dmi = |name: &str| line(&root.join("sys/class/dmi/id").join(name)).unwrap_or_default();
    let firmware = format!("{} {}", dmi("sys_vendor"), dmi("product_name"));
    let known = [
        ("QEMU", "QEMU"),
        ("KVM", "KVM"),
        ("VMware", "VMware"),
        ("VirtualBox", "VirtualBox"),
        ("innotek", "VirtualBox"),
        ("Microsoft Corporation Virtual", "Hyper-V"),
        ("Parallels", "Parallels"),
        ("Xen", "Xen"),
        ("Bochs", "Bochs"),
        ("Google Compute", "Google Compute Engine"),
        ("Amazon EC2", "Amazon EC2"),
    ];
    let named = known.iter().find(|(mark, _)| firmware.contains(mark));
    let flagged = cpuinfo.lines().any(|line| {
        line.starts_with("flags")
            && line
                .split_ascii_whitespace()
                .any(|flag| flag == "hypervisor")
    });
    // Amazon's firmware says the same on bare metal: there the processor decides.
    match named {
        Some((_, "Amazon EC2")) if !flagged => None,
        Some((_, name)) => Some((*name).to_owned()),
        None => flagged.then(|| "unknown".to_owned()),
    }
}

/// The client libraries whose versions matter, from the lock file that this build was made with.
fn libraries(lock: &str) -> BTreeMap<String, String> {
    const WANTED: &[&str] = &[
        "io-uring",
        "memmap2",
        "nfs3_client",
        "pavao",
        "pavao-sys",
        "libiscsi-sys",
        "tokio",
        "hdrhistogram",
    ];
    let quoted = |line: &str, key: &str| {
        let value = line.strip_prefix(key)?.strip_prefix(" = \"")?;
        Some(value.strip_suffix('"')?.to_owned())
    };
    let mut found = BTreeMap::new();
    let mut name = None;
    for line in lock.lines() {
        if let Some(value) = quoted(line, "name") {
            name = Some(value).filter(|value| WANTED.contains(&value.as_str()));
        } else if let Some((name, version)) = name
            .take_if(|_| line.starts_with("version = "))
            .zip(quoted(line, "version"))
        {
            found.insert(name, version);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        create_dir_all(path.parent().expect("a directory")).expect("it can be made");
        write(path, text).expect("it can be written");
    }

    fn card(root: &Path, name: &str, driver: Option<&str>, speed: &str) {
        let at = |file: &str| format!("sys/class/net/{name}/{file}");
        put(root, &at("mtu"), "9000\n");
        put(root, &at("speed"), speed);
        put(root, &at("operstate"), "up\n");
        if let Some(driver) = driver {
            create_dir_all(root.join(at("device"))).expect("a directory");
            symlink(
                format!("../../../../bus/pci/drivers/{driver}"),
                root.join(at("device/driver")),
            )
            .expect("a link");
        }
    }

    #[test]
    fn an_empty_tree_tells_nothing_and_invents_nothing() {
        let root = tempfile::tempdir().expect("a directory");
        let host = Host::under(root.path());
        assert_eq!(host.kernel, None);
        assert_eq!(host.memory_total_bytes, None);
        assert_eq!(host.hypervisor, None);
        assert_eq!(host.tcp_rmem_bytes, None);
        assert!(host.nics.is_empty() && !host.wsl);
        assert!(
            host.libraries.contains_key("io-uring"),
            "{:?}",
            host.libraries
        );
    }

    #[test]
    fn a_server_is_read_as_it_is() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        put(root, "proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
        put(
            root,
            "proc/meminfo",
            "MemTotal:       32768000 kB\nMemFree: 1 kB\nMemAvailable:   16384000 kB\n",
        );
        put(
            root,
            "proc/cpuinfo",
            "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) E-2236\nflags\t\t: fpu aes\n",
        );
        put(
            root,
            "etc/os-release",
            "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
        );
        put(root, "sys/class/dmi/id/sys_vendor", "Supermicro\n");
        put(
            root,
            "proc/sys/net/ipv4/tcp_rmem",
            "4096\t131072\t6291456\n",
        );
        card(root, "eth0", Some("mlx5_core"), "40000\n");
        card(root, "eth1", Some("e1000e"), "-1\n");
        card(root, "veth1", None, "10000\n");
        card(root, "tun0", None, "10\n");
        card(root, "bond0", None, "40000\n");
        put(
            root,
            "sys/class/net/bond0/uevent",
            "DEVTYPE=bond\nINTERFACE=bond0\n",
        );
        symlink("../eth0", root.join("sys/class/net/bond0/lower_eth0")).expect("a link");
        let host = Host::under(root);
        assert_eq!(host.memory_available_bytes, Some(16_384_000 * 1024));
        assert_eq!(host.cpu_model.as_deref(), Some("Intel(R) Xeon(R) E-2236"));
        assert_eq!(host.os.as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(host.hypervisor, None);
        assert_eq!(host.tcp_rmem_bytes, Some([4096, 131_072, 6_291_456]));
        let speeds: Vec<_> = host
            .nics
            .iter()
            .map(|nic| (nic.name.as_str(), nic.speed_mbit_per_s))
            .collect();
        assert_eq!(
            speeds,
            [
                ("bond0", Some(40_000)),
                ("eth0", Some(40_000)),
                ("eth1", None),
                ("tun0", None),
                ("veth1", None)
            ]
        );
        assert_eq!(host.nics[1].driver.as_deref(), Some("mlx5_core"));
    }

    #[test]
    fn a_virtual_machine_shows_and_its_cards_invent_speeds() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        put(
            root,
            "proc/cpuinfo",
            "model name : AMD EPYC\nflags\t: fpu hypervisor avx\n",
        );
        card(root, "eth0", Some("e1000"), "1000\n");
        card(root, "eth1", Some("vmxnet3"), "10000\n");
        let host = Host::under(root);
        assert_eq!(host.hypervisor.as_deref(), Some("unknown"));
        assert!(host.nics.iter().all(|nic| nic.speed_mbit_per_s.is_none()));
        put(root, "sys/class/dmi/id/sys_vendor", "QEMU\n");
        assert_eq!(Host::under(root).hypervisor.as_deref(), Some("QEMU"));
        put(
            root,
            "proc/sys/kernel/osrelease",
            "5.15.153.1-microsoft-standard-WSL2\n",
        );
        assert!(Host::under(root).wsl);
    }

    #[test]
    fn bare_metal_at_amazon_is_no_virtual_machine() {
        let root = tempfile::tempdir().expect("a directory");
        put(root.path(), "sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
        assert_eq!(Host::under(root.path()).hypervisor, None);
    }

    #[test]
    fn memory_lines_are_whole_keys() {
        assert_eq!(meminfo("MemTotal: 1 kB\nMem: 2 kB", "Mem"), Some(2048));
        assert_eq!(
            meminfo("HugePages_Free:       7\n", "HugePages_Free"),
            Some(7)
        );
        assert_eq!(meminfo("MemTotal: x kB", "MemTotal"), None);
    }

    #[test]
    fn this_computer_can_be_read() {
        let host = Host::read();
        assert!(host.kernel.is_some() && host.memory_total_bytes.is_some());
        let text = serde_json::to_string(&host).expect("plain data");
        assert_eq!(
            serde_json::from_str::<Host>(&text).expect("its own text"),
            host
        );
    }
}
