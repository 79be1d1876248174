//! Disks whose limits are known: loop devices over files in RAM, limited in the root group, below a file system.
//!
//! A limited device shows no queue and no use, since the limit sits above its queue. So what a server uses is a second loop
//! device over a file on the limited one: that shows how busy it is, and how long requests wait. A [`Disk`] is one of them or
//! several as an array. Writes can't hide in the page cache for long where that is asked for.
//!
//! Device files are free again as soon as they are not mounted (autoclear), however this process ends. Rates are bytes per
//! second, sizes bytes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use nasgauge::servers::sandbox::Sandbox;

use super::cgroup::{Limit, Rates, number};
use super::kept;
use super::lab::run;

/// Bytes of a disk that can wait to be written, where they are limited.
const DIRTY_MAX: u64 = 16 << 20;
/// What the lower file system keeps for itself.
const OVERHEAD: u64 = 24 << 20;

/// A mounted file system, unmounted on drop.
#[derive(Debug)]
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: what still uses it ends soon.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn mount(device: &Path, kind: &str, options: &str, at: &Path) -> Mounted {
    std::fs::create_dir_all(at).unwrap_or_else(|error| panic!("{}: {error}", at.display()));
    run(Command::new("mount")
        .args(["-t", kind, "-o", options])
        .arg(device)
        .arg(at));
    Mounted(at.to_owned())
}

/// A loop device; free again when neither this nor a mount holds it.
#[derive(Debug)]
struct Loop {
    device: PathBuf,
    number: String,
}

impl Loop {
    fn over(file: &Path, direct: bool) -> Self {
        let direct = format!("--direct-io={}", if direct { "on" } else { "off" });
        let said = run(Command::new("losetup")
            .args(["--find", "--show", &direct])
            .arg(file));
        let device = PathBuf::from(said.trim());
        let number = number(&device);
        Self { device, number }
    }

    /// From now on its last user frees it.
    fn release(&self) {
        run(Command::new("losetup").arg("-d").arg(&self.device));
    }
}

/// A limited device below a second one, which is what is used.
#[derive(Debug)]
struct Stack {
    upper: Loop,
    lower: Loop,
    // Dropped in this order: the limit, and then what holds the device.
    limit: Limit,
    _mounted: Mounted,
    _image: Image,
}

/// A file in RAM, removed on drop.
#[derive(Debug)]
struct Image(PathBuf);

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Stack {
    /// One of `size` bytes, unlimited until [`Stack::limit`] is set. `name` is its own below `work`.
    fn new(work: &Path, name: &str, size: u64) -> Result<Self, String> {
        let image = Image(work.join(format!("{}-{name}.img", kept::token())));
        // All of it at once: memory that a server's writing takes later would be that server's.
        run(Command::new("fallocate")
            .args(["--length", &size.to_string()])
            .arg(&image.0));
        let lower = Loop::over(&image.0, false);
        let limit = Limit::of(&lower.number).inspect_err(|_| lower.release())?;
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-O", "^has_journal", "-m", "0"])
            .args(["-E", "nodiscard,lazy_itable_init=0"])
            .arg(&lower.device));
        let at = work.join(format!("{name}-lower"));
        let mounted = mount(&lower.device, "ext4", "noatime,nodiscard", &at);
        lower.release();
        let file = at.join(format!("{}.img", kept::token()));
        let blocks = (size - size / 32 - OVERHEAD) >> 20;
        // Written, not only reserved: the device would answer for what was never written without reading.
        run(Command::new("dd")
            .args(["if=/dev/zero", "bs=1M", "oflag=direct", "status=none"])
            .arg(format!("count={blocks}"))
            .arg(format!("of={}", file.display())));
        let upper = Loop::over(&file, true);
        kept::note_loop(&upper.number);
        Ok(Self {
            upper,
            lower,
            limit,
            _mounted: mounted,
            _image: image,
        })
    }

    /// Bytes written to the limited device since it is there.
    fn written(&self) -> u64 {
        let name = self.lower.device.file_name().expect("a name");
        let path = Path::new("/sys/block").join(name).join("stat");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // The seventh field counts sectors of 512 bytes (Documentation/block/stat.rst).
        let sectors = text.split_whitespace().nth(6);
        sectors
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or(0)
            * 512
    }
}

/// An array of disks, as btrfs makes it.
#[derive(Debug, Clone)]
pub struct Array {
    /// `raid0`, `raid1`, `raid5`, `raid10`.
    pub level: String,
    /// How many disks.
    pub members: usize,
    /// What the first of them can do, where that is something else.
    pub first: Option<Rates>,
    /// The last of them is taken away.
    pub degraded: bool,
}

/// A limited disk, or an array of them, with a file system.
#[derive(Debug)]
pub struct Disk {
    directory: PathBuf,
    strict: Option<PathBuf>,
    /// Of each member.
    made: Vec<Rates>,
    // Dropped in this order.
    _mounted: Mounted,
    members: Vec<Stack>,
}

impl Disk {
    /// One disk of `size` bytes. With `honest_writes`, few bytes can wait in memory to be written.
    pub fn single(size: u64, rates: &Rates, honest_writes: bool) -> Result<Self, String> {
        let work = work();
        let stack = Stack::new(&work, "disk", size)?;
        let device = &stack.upper.device;
        run(Command::new("mkfs.xfs")
            .args(["-q", "-f", "-K"])
            .arg(device));
        let directory = work.join("export");
        let mounted = mount(device, "xfs", "noatime", &directory);
        stack.upper.release();
        let strict = Path::new("/sys/class/bdi").join(&stack.upper.number);
        let strict = honest_writes.then(|| hold_back(&strict));
        let disk = Self {
            directory,
            strict,
            made: vec![*rates],
            _mounted: mounted,
            members: vec![stack],
        };
        disk.limit_as_made();
        Ok(disk)
    }

    /// Memory as a disk: nothing of it is ever cold, so reading it costs a server the same at any time.
    pub fn memory(size: u64) -> Self {
        let directory = work().join("export");
        let options = format!("size={size}");
        let mounted = mount(Path::new("nasgauge-lab"), "tmpfs", &options, &directory);
        Self {
            directory,
            strict: None,
            made: Vec::new(),
            _mounted: mounted,
            members: Vec::new(),
        }
    }

    /// An array of disks of `size` bytes each, each with these limits.
    pub fn array(
        array: &Array,
        size: u64,
        rates: &Rates,
        honest_writes: bool,
    ) -> Result<Self, String> {
        let work = work();
        let stacks = (0..array.members).map(|at| Stack::new(&work, &format!("disk{at}"), size));
        let mut members = stacks.collect::<Result<Vec<_>, _>>()?;
        let metadata = if array.members < 2 { "single" } else { "raid1" };
        run(Command::new("mkfs.btrfs")
            .args(["-q", "-f", "-K", "-d", &array.level, "-m", metadata])
            .args(members.iter().map(|member| &member.upper.device)));
        if array.degraded {
            let gone = members.pop().expect("an array has members");
            gone.upper.release();
            // What the kernel has seen of it would be used all the same.
            run(Command::new("btrfs").args(["device", "scan", "--forget"]));
        }
        let devices: Vec<String> = members
            .iter()
            .map(|member| format!("device={}", member.upper.device.display()))
            .collect();
        let degraded = if array.degraded { ",degraded" } else { "" };
        let options = format!("noatime,nodiscard{degraded},{}", devices.join(","));
        let directory = work.join("export");
        let mounted = mount(&members[0].upper.device, "btrfs", &options, &directory);
        for member in &members {
            member.upper.release();
        }
        let strict = honest_writes.then(|| {
            let id = run(Command::new("findmnt")
                .args(["-n", "-o", "UUID"])
                .arg(&directory));
            hold_back(&Path::new("/sys/fs/btrfs").join(id.trim()).join("bdi"))
        });
        let mut made = vec![*rates; members.len()];
        if let Some(first) = array.first {
            made[0] = first;
        }
        let disk = Self {
            directory,
            strict,
            made,
            _mounted: mounted,
            members,
        };
        disk.limit_as_made();
        Ok(disk)
    }

    /// What it shows to a server.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Bytes that files can have, about.
    pub fn room(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.directory).expect("mounted");
        found.f_bavail * found.f_frsize
    }

    /// Changes the limits of every member from now on.
    pub fn limit(&self, rates: &Rates) {
        for member in &self.members {
            member.limit.set(rates);
        }
    }

    /// As they were at first.
    pub fn limit_as_made(&self) {
        for (member, rates) in self.members.iter().zip(&self.made) {
            member.limit.set(rates);
        }
    }

    /// Waits until all that was written is on it.
    pub fn flush(&self) {
        let directory = File::open(&self.directory).expect("mounted");
        rustix::fs::syncfs(&directory).expect("a disk that takes what is written");
    }

    /// Bytes that its members have been given to write.
    pub fn written(&self) -> u64 {
        self.members.iter().map(Stack::written).sum()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Whatever waits to be written would wait for the limit.
        self.limit(&Rates::default());
        if let Some(bdi) = &self.strict {
            let _ = std::fs::write(bdi.join("strict_limit"), "0");
            let _ = std::fs::write(bdi.join("max_ratio"), "100");
        }
    }
}

/// Lets few bytes of a device wait to be written; gives back what is to be undone.
fn hold_back(bdi: &Path) -> PathBuf {
    for (file, value) in [
        ("strict_limit", "1".to_owned()),
        ("max_bytes", DIRTY_MAX.to_string()),
    ] {
        let path = bdi.join(file);
        std::fs::write(&path, value).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    bdi.to_owned()
}

/// A new directory in the sandbox's RAM.
fn work() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = Sandbox::work_dir().join(format!("lab-disk-{}-{number}", std::process::id()));
    std::fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}
