//! `ram:4GiB` is this computer's memory: what storage without any wire or disk would do.
//!
//! The control side makes one memfd and keeps it; sessions of this process and of its children open it by its
//! name below `/proc` and copy through a mapping of their own; [`pages`] tells which pages that got. Must not know: files of a user. Sizes are in bytes.

mod pages;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::error::{Error, Kind, Phase, Result};
use crate::op::{Completion, Direction, Op, Submit};
use crate::probe::host::meminfo;
use crate::probe::{line, number};
use crate::slots::Slots;
use crate::spec::uri::TargetSpec;
use crate::target::local::mmap::Mapping;
use crate::target::{Attach, Caps, Control, Facts, Login, Protocol, Session, Threads, Volatile};
use crate::units::Bytes;

/// The registry line.
pub const PROTOCOL: Protocol = Protocol {
    name: "ram",
    example: "ram:4GiB",
    options: &[],
    check,
    caps: |_| Caps {
        iodepth_max: 1,
        threads: Threads::Shared,
        control: Threads::Shared,
        flush: true,
        sync: true,
        stores: true,
        engine: "memmap2",
        connections: 0,
        ceiling: None,
    },
    control: |login| {
        Ok(Control::Volatile(Box::new(Ram {
            limit: limit(&login.spec)?,
            memory: None,
        })))
    },
    connect: |login, attach| Ok(Box::new(Copying::new(login, attach)?)),
    folder: None,
};

/// The name that the memfd shows in `/proc`: a session opens nothing else.
const NAME: &str = "nasgauge-ram";

fn check(spec: &TargetSpec) -> Result<()> {
    limit(spec).map(drop)
}

/// The size in the URI; None when the run decides.
fn limit(spec: &TargetSpec) -> Result<Option<u64>> {
    if spec.path.is_empty() {
        return Ok(None);
    }
    let size = spec.path.parse::<Bytes>().map_err(|error| {
        Error::usage(format!(
            "'{}' is not a size: {error}; write ram:4GiB, or ram: for as much as the run needs",
            spec.path
        ))
        .at(&spec.uri)
    })?;
    if size.0 == 0 {
        return Err(Error::usage("a RAM disk of no bytes; write ram:4GiB").at(&spec.uri));
    }
    Ok(Some(size.0))
}

/// The memory of one run.
struct Ram {
    limit: Option<u64>,
    memory: Option<Memory>,
}

struct Memory {
    handle: OwnedFd,
    size: u64,
    page: u64,
}

impl Volatile for Ram {
    fn facts(&mut self) -> Result<Facts> {
        let room = Room::now();
        let mut lines = vec![(
            "RAM disk".to_owned(),
            match self.limit {
                Some(limit) => Bytes(limit).both(),
                None => "as large as the run needs".to_owned(),
            },
        )];
        if let Some(usable) = room.usable {
            lines.push(("memory available".to_owned(), Bytes(usable).both()));
        }
        lines.push((
            "huge pages".to_owned(),
            match room.huge {
                Some(huge) => format!("{} of {} reserved and free", huge.free, Bytes(huge.size)),
                None => match pages::policy() {
                    Some(policy) => {
                        format!("none reserved; transparent ones in shared memory: {policy}")
                    }
                    None => "none reserved".to_owned(),
                },
            },
        ));
        Ok(Facts {
            lines,
            free_bytes: match (self.limit, room.usable) {
                (Some(limit), Some(usable)) => Some(limit.min(usable)),
                (limit, usable) => limit.or(usable),
            },
            free_files: None,
            server: None,
        })
    }

    fn provide(&mut self, size: u64) -> Result<String> {
        if let Some(limit) = self.limit.filter(|limit| size > *limit) {
            return Err(Error::usage(format!(
                "the workload needs {}, but the RAM disk has {}; use ram:{} or a smaller size",
                Bytes(size).both(),
                Bytes(limit).both(),
                Bytes(size).spelled()
            )));
        }
        let present = self.memory.as_ref().map_or(0, |memory| memory.size);
        if size > present || self.memory.is_none() {
            let room = Room::now();
            // What is already ours counts as taken in the kernel's figure once it has been touched.
            room.refuse_beyond(size - present)?;
            self.grow(size, &room)?;
        }
        let memory = self.memory.as_ref().ok_or_else(lost)?;
        Ok(format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            memory.handle.as_raw_fd()
        ))
    }
}

impl Ram {
    fn grow(&mut self, size: u64, room: &Room) -> Result<()> {
        let error = |error: rustix::io::Errno| {
            let doing = format!("make {} of memory", Bytes(size));
            Error::io(Phase::Prepare, &error.into(), &doing)
        };
        let present = self.memory.take().filter(|memory| {
            // Reserved huge pages that can't grow give way to ordinary ones.
            let extra = size - memory.size;
            memory.page == base_page() || room.huge.is_some_and(|huge| huge.holds(extra))
        });
        let memory = match present {
            Some(memory) => memory,
            None => Memory::new(size, room).map_err(error)?,
        };
        // A mapping of no bytes is impossible, and huge pages come whole.
        let whole = size.max(1).next_multiple_of(memory.page);
        ftruncate(&memory.handle, whole).map_err(error)?;
        self.memory = Some(Memory { size, ..memory });
        Ok(())
    }
}

impl Memory {
    /// An empty memfd, on reserved huge pages when they suffice.
    fn new(size: u64, room: &Room) -> rustix::io::Result<Self> {
        let huge = room.huge.filter(|huge| huge.holds(size));
        if let Some(huge) = huge {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB;
            if let Ok(handle) = memfd_create(NAME, flags) {
                return Ok(Self {
                    handle,
                    size: 0,
                    page: huge.size,
                });
            }
        }
        let handle = memfd_create(NAME, MemfdFlags::CLOEXEC)?;
        Ok(Self {
            handle,
            size: 0,
            page: base_page(),
        })
    }
}

/// The size of an ordinary page.
fn base_page() -> u64 {
    rustix::param::page_size() as u64
}

fn lost() -> Error {
    Error::new(Phase::Prepare, Kind::Other, "the RAM disk is gone")
}

/// Huge pages that the administrator reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Huge {
    size: u64,
    free: u64,
}

impl Huge {
    const fn holds(self, size: u64) -> bool {
        size > 0 && size.div_ceil(self.size) <= self.free
    }
}

/// The memory that a RAM disk may take.
#[derive(Debug, PartialEq, Eq)]
struct Room {
    /// Bytes that can be taken without pushing this computer into swap; None when unknown.
    usable: Option<u64>,
    huge: Option<Huge>,
}

impl Room {
    fn now() -> Self {
        let meminfo = line(Path::new("/proc/meminfo")).unwrap_or_default();
        Self::of(&meminfo, control_group_room(Path::new("/")))
    }

    /// From the text of meminfo and the room that the control group leaves.
    fn of(text: &str, group: Option<u64>) -> Self {
        let value = |key| meminfo(text, key);
        // 1/16 of the machine, at least 128 MiB, is left to everybody else.
        let usable = value("MemAvailable").map(|available| {
            let margin = (value("MemTotal").unwrap_or(available) / 16).max(128 << 20);
            available.saturating_sub(margin)
        });
        let usable = match (usable, group) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let huge = value("HugePages_Free")
            .zip(value("Hugepagesize"))
            .map(|(free, size)| Huge {
                size,
                free: free.saturating_sub(value("HugePages_Rsvd").unwrap_or(0)),
            })
            .filter(|huge| huge.free > 0 && huge.size > 0);
        Self { usable, huge }
    }

    fn refuse_beyond(&self, size: u64) -> Result<()> {
        if self.huge.is_some_and(|huge| huge.holds(size)) {
            return Ok(());
        }
        match self.usable {
            Some(usable) if size > usable => Err(Error::usage(format!(
                "the run needs {} of memory, but this computer can spare {} (some is left for other programs); \
                 use a smaller size",
                Bytes(size).both(),
                Bytes(usable).both()
            ))),
            _ => Ok(()),
        }
    }
}

/// What the control group of this process still grants, by version 2 or 1; None when it sets no limit.
fn control_group_room(root: &Path) -> Option<u64> {
    let groups = line(&root.join("proc/self/cgroup"))?;
    let mut least: Option<u64> = None;
    for group in groups.lines() {
        let mut fields = group.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        let (base, limit, used) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max", "memory.current"),
            "memory" => (
                "sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            ),
            _ => continue,
        };
        // In a container the path may be the host's: then the group is mounted at the top.
        let base = root.join(base);
        let directory = [base.join(path), base]
            .into_iter()
            .find(|directory| directory.join(limit).exists());
        let left = directory.and_then(|directory| {
            let limit: u64 = number(&directory.join(limit))?;
            limit.checked_sub(number(&directory.join(used))?)
        });
        least = match (least, left) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    least
}

/// A session: copies between slots and the mapping.
struct Copying {
    mapping: Mapping,
    /// About its pages.
    words: String,
}

impl Copying {
    fn new(_login: &Login, attach: &Attach) -> Result<Self> {
        // The object must be a memfd of ours, not any file that a plan could name.
        let target = std::fs::read_link(&attach.object).unwrap_or_default();
        if !target
            .to_string_lossy()
            .starts_with(&format!("/memfd:{NAME}"))
        {
            return Err(Error::new(
                Phase::Open,
                Kind::NotFound,
                "the RAM disk is gone: the process that made it has ended",
            ));
        }
        let error = |error: &std::io::Error| Error::io(Phase::Open, error, "map the RAM disk");
        let file = File::options()
            .read(true)
            .write(attach.write)
            .open(&attach.object)
            .map_err(|cause| error(&cause))?;
        let mapping = Mapping::new(&file, attach.write).map_err(|cause| error(&cause))?;
        let asked = mapping.populate();
        // Reading smaps walks all mappings, so one lane does it for all.
        let words = if attach.lane == 0 {
            pages::words(mapping.address(), mapping.len(), asked)
        } else {
            String::new()
        };
        Ok(Self { mapping, words })
    }
}

impl Session for Copying {
    fn submit(&mut self, op: Op, slots: &mut Slots) -> Result<Submit> {
        if op.direction == Direction::Write && !self.mapping.writable() {
            return Err(Error::usage("the RAM disk is open for reading only"));
        }
        let bytes = match op.direction {
            Direction::Read => self.mapping.read(slots.get_mut(op.slot, op.len), op.offset),
            Direction::Write => self.mapping.write(slots.get(op.slot, op.len), op.offset),
        };
        if bytes < op.len as usize && op.direction == Direction::Write {
            return Err(Error::new(
                Phase::Io,
                Kind::NoSpace,
                format!(
                    "the RAM disk ends at {} bytes, before offset {} + {}; this is a fault of nasgauge",
                    self.mapping.len(),
                    op.offset,
                    op.len
                ),
            ));
        }
        Ok(Submit::Done(Completion {
            slot: op.slot,
            bytes: bytes as u32,
        }))
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn negotiated(&self) -> String {
        self.words.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Secret;
    use crate::target::local::tests::{Scene, attach};

    const MEMINFO: &str = "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nHugePages_Total: 100\n\
                           HugePages_Free: 100\nHugePages_Rsvd: 10\nHugepagesize: 2048 kB\n";

    fn login(uri: &str) -> Login {
        Login {
            spec: TargetSpec::parse(uri).expect(uri),
            secret: Secret::default(),
            connect_timeout_ms: 2000,
            io_timeout_ms: 2000,
        }
    }

    fn control(uri: &str) -> Box<dyn Volatile> {
        match (PROTOCOL.control)(&login(uri)) {
            Ok(Control::Volatile(control)) => control,
            _ => panic!("memory was expected"),
        }
    }

    #[test]
    fn sizes_are_read() {
        let limit = |uri: &str| limit(&login(uri).spec);
        assert_eq!(limit("ram:4GiB"), Ok(Some(4 << 30)));
        assert_eq!(limit("ram:"), Ok(None));
        for uri in ["ram:lots", "ram:0", "ram:-1"] {
            assert!(
                limit(uri).is_err_and(|error| error.before_anything()),
                "{uri}"
            );
        }
    }

    #[test]
    fn sessions_share_the_memory_and_it_ends_with_its_maker() {
        let mut control = control("ram:8MiB");
        let object = control.provide(3 << 20).expect("room");
        let connect = |write| (PROTOCOL.connect)(&login("ram:8MiB"), &attach(&object, write, 1));
        let mut writer = Scene::new(connect(true).expect("a session"), 1, 1 << 20);
        for (offset, len) in [(0, 4096), (1, 1), (4097, 4095), (2 << 20, 1 << 20)] {
            writer.there_and_back(offset, len);
        }
        let words = writer.session.negotiated();
        assert!(words.starts_with("huge_pages="), "{words}");
        let mut reader = Scene::new(connect(false).expect("a session"), 1, 1 << 20);
        assert_eq!(reader.one(Direction::Read, 4097, 4095), Ok(4095));
        assert_eq!(reader.slots.get(0, 1)[0], (4097 % 251) as u8 + 1);
        assert_eq!(
            reader.one(Direction::Read, (3 << 20) - 10, 100),
            Ok(10),
            "the end"
        );
        let beyond = writer
            .one(Direction::Write, 3 << 20, 1)
            .expect_err("the end");
        assert_eq!(beyond.kind, Kind::NoSpace);
        assert_eq!(
            control.provide(1 << 20).as_ref(),
            Ok(&object),
            "what is there stays"
        );
        assert_eq!(control.provide(4 << 20).as_ref(), Ok(&object), "and grows");
        drop(control);
        assert_eq!(
            connect(true).err().map(|error| error.kind),
            Some(Kind::NotFound)
        );
    }

    #[test]
    fn nothing_but_our_memory_is_opened() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let object = file.path().display().to_string();
        assert!((PROTOCOL.connect)(&login("ram:"), &attach(&object, true, 1)).is_err());
    }

    #[test]
    fn more_than_there_is_is_refused() {
        let error = control("ram:1MiB").provide(2 << 20).expect_err("too much");
        assert!(error.message.contains("ram:2MiB"), "{error}");
        let error = control("ram:").provide(1 << 50).expect_err("far too much");
        assert!(error.before_anything(), "{error}");
    }

    #[test]
    fn a_margin_stays_and_groups_count() {
        let room = Room::of(MEMINFO, None);
        assert_eq!(room.usable, Some((8 << 30) - (1 << 30)));
        assert_eq!(
            room.huge,
            Some(Huge {
                size: 2 << 20,
                free: 90
            })
        );
        assert_eq!(Room::of(MEMINFO, Some(1 << 30)).usable, Some(1 << 30));
        assert_eq!(
            Room::of("", None),
            Room {
                usable: None,
                huge: None
            }
        );
        assert!(room.refuse_beyond(7 << 30).is_ok());
        assert!(room.refuse_beyond((7 << 30) + 1).is_err());
        assert!(
            Huge {
                size: 2 << 20,
                free: 90
            }
            .holds(180 << 20)
        );
        assert!(
            !Huge {
                size: 2 << 20,
                free: 90
            }
            .holds((180 << 20) + 1)
        );
    }

    #[test]
    fn control_groups_of_both_versions_are_read() {
        let root = tempfile::tempdir().expect("a directory");
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        assert_eq!(control_group_room(root.path()), None);
        put("proc/self/cgroup", "4:memory:/docker/abc\n0::/user.slice\n");
        assert_eq!(control_group_room(root.path()), None);
        put("sys/fs/cgroup/user.slice/memory.max", "max\n");
        put("sys/fs/cgroup/user.slice/memory.current", "5\n");
        assert_eq!(control_group_room(root.path()), None, "no limit");
        put("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n");
        put("sys/fs/cgroup/memory/memory.usage_in_bytes", "400\n");
        assert_eq!(
            control_group_room(root.path()),
            Some(600),
            "the container's own top"
        );
    }
}
