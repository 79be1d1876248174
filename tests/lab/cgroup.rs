//! Control groups of version 1 inside the sandbox: limits of devices, and of what servers may use.
//!
//! The sandbox hides `/sys/fs/cgroup`, so each hierarchy is mounted again below `/run/nasgauge`. Where a controller is not in
//! version 1 there is no limit that is exact enough: the reason is the error. Must not know: what runs in a group.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nasgauge::servers::sandbox::Sandbox;

use super::kept;
use super::lab::run;

/// A period of the processor's share, in microseconds.
const PERIOD_US: u64 = 100_000;
/// How long killed processes may need to leave a group.
const PATIENCE: Duration = Duration::from_secs(5);

/// The hierarchy of a controller: where it is mounted, and this process's group in it.
struct Hierarchy {
    top: PathBuf,
    own: String,
}

impl Hierarchy {
    /// Mounts it once; the reason where it is not of version 1.
    fn of(controller: &str) -> Result<Self, String> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let found = groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (list, own) = (fields.next()?, fields.next()?);
            list.split(',')
                .any(|one| one == controller)
                .then(|| (list.to_owned(), own.to_owned()))
        });
        let (list, own) = found.ok_or_else(|| {
            format!("the kernel has no {controller} controller of control groups version 1 here")
        })?;
        let top = Sandbox::work_dir().join("cgroup").join(&list);
        if !top.is_dir() {
            std::fs::create_dir_all(&top).expect("the sandbox's own directory");
            let mut mount = Command::new("mount");
            mount
                .args(["-t", "cgroup", "-o", &list, "cgroup"])
                .arg(&top);
            let mounted = mount.output().expect("mount, of the package mount");
            if !mounted.status.success() {
                std::fs::remove_dir(&top).expect("ours");
                let said = String::from_utf8_lossy(&mounted.stderr).trim().to_owned();
                return Err(format!(
                    "the {controller} controller can't be mounted: {said}"
                ));
            }
        }
        Ok(Self { top, own })
    }

    /// A new group below this process's own, so that nothing leaves that one's accounting.
    fn group(&self) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = self.top.join(self.own.trim_start_matches('/'));
        let path = own.join(format!("{}-{}-{number}", kept::token(), std::process::id()));
        std::fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }
}

fn set(path: &Path, value: &str) {
    std::fs::write(path, value)
        .unwrap_or_else(|error| panic!("{value} > {}: {error}", path.display()));
}

/// What processes may use together, and all that they start; removed on drop, when they have ended.
#[derive(Debug)]
pub struct Group {
    paths: Vec<PathBuf>,
}

impl Group {
    /// At most so much memory, page cache included, and so much of one processor in percent.
    pub fn new(memory_bytes: Option<u64>, cpu_percent: Option<u64>) -> Result<Self, String> {
        let mut group = Self { paths: Vec::new() };
        if let Some(bytes) = memory_bytes {
            let path = Hierarchy::of("memory")?.group();
            group.paths.push(path.clone());
            set(&path.join("memory.limit_in_bytes"), &bytes.to_string());
        }
        if let Some(percent) = cpu_percent {
            let path = Hierarchy::of("cpu")?.group();
            group.paths.push(path.clone());
            set(&path.join("cpu.cfs_period_us"), &PERIOD_US.to_string());
            let quota = PERIOD_US * percent / 100;
            set(&path.join("cpu.cfs_quota_us"), &quota.to_string());
        }
        Ok(group)
    }

    /// Brings the calling thread in: what it starts from now on is there from its first moment.
    pub fn join(&self) {
        for path in &self.paths {
            enter(path);
        }
    }

    /// Brings the calling thread in where memory is limited, and nowhere else.
    pub fn join_memory(&self) {
        for path in &self.paths {
            if path.join("memory.limit_in_bytes").exists() {
                enter(path);
            }
        }
    }
}

fn enter(group: &Path) {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    set(&group.join("tasks"), &thread);
}

impl Drop for Group {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        for path in &self.paths {
            while std::fs::remove_dir(path).is_err() && path.is_dir() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// What a device may do in a second; None is as much as it can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    /// Bytes read.
    pub read: Option<u64>,
    /// Bytes written.
    pub write: Option<u64>,
    /// Reads.
    pub read_iops: Option<u64>,
    /// Writes.
    pub write_iops: Option<u64>,
}

/// The files of the block controller, in the order of [`Rates::all`].
const LIMITS: [&str; 4] = [
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
];

impl Rates {
    fn all(&self) -> [Option<u64>; 4] {
        [self.read, self.write, self.read_iops, self.write_iops]
    }
}

/// A limited device. In the root group the limit holds for everybody, the kernel's own writing included; a limit in a group of
/// one's own would let that escape. Taken back on drop.
#[derive(Debug)]
pub struct Limit {
    root: PathBuf,
    number: String,
}

impl Limit {
    /// Not limited yet; `number` is `MAJOR:MINOR`.
    pub fn of(number: &str) -> Result<Self, String> {
        let root = Hierarchy::of("blkio")?.top;
        if !root.join(LIMITS[0]).is_file() {
            return Err("the kernel limits no devices (CONFIG_BLK_DEV_THROTTLING)".to_owned());
        }
        forgotten(&root);
        kept::note_loop(number);
        let limit = Self {
            root,
            number: number.to_owned(),
        };
        // The device has just become ours; what its last user left is not.
        limit.set(&Rates::default());
        Ok(limit)
    }

    /// From now on so much.
    pub fn set(&self, rates: &Rates) {
        for (file, rate) in LIMITS.iter().zip(rates.all()) {
            // 0 is no limit.
            let line = format!("{} {}", self.number, rate.unwrap_or(0));
            set(&self.root.join(file), &line);
        }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.set(&Rates::default());
    }
}

/// Takes limits back that are on loop devices without a file: somebody was killed without a guard.
fn forgotten(root: &Path) {
    for file in LIMITS {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        for number in text.lines().filter_map(|line| line.split(' ').next()) {
            let device = Path::new("/sys/dev/block").join(number);
            let free = device.join("loop").exists() || number.starts_with("7:");
            if free && !device.join("loop/backing_file").exists() {
                set(&root.join(file), &format!("{number} 0"));
            }
        }
    }
}

/// The number of a block device, `MAJOR:MINOR`.
pub fn number(device: &Path) -> String {
    let name = device.file_name().expect("a device has a name");
    let path = Path::new("/sys/block").join(name).join("dev");
    let text = run(Command::new("cat").arg(&path));
    text.trim().to_owned()
}

/// All limits of devices that hold at the moment, a line each.
pub fn limits() -> String {
    let root = Hierarchy::of("blkio")
        .unwrap_or_else(|why| panic!("{why}"))
        .top;
    let text = LIMITS.map(|file| std::fs::read_to_string(root.join(file)).unwrap_or_default());
    text.concat()
}

/// All groups of laboratories, a line each.
pub fn groups() -> String {
    let mut all = Vec::new();
    for controller in ["memory", "cpu"] {
        let Ok(hierarchy) = Hierarchy::of(controller) else {
            continue;
        };
        let own = hierarchy.top.join(hierarchy.own.trim_start_matches('/'));
        let entries = std::fs::read_dir(own).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.path().display().to_string());
        all.extend(names.filter(|path| path.contains("nasgauge-lab")));
    }
    all.sort();
    all.join("\n")
}
