//! The engines against a temporary file. `Scene` serves the tests of `file:` too.

use std::fs::File;

use super::*;
use crate::op::{Completion, Op, Submit};
use crate::slots::Slots;

/// An attachment with the usual values.
pub(crate) fn attach(object: &str, write: bool, iodepth: u16) -> Attach {
    Attach {
        object: object.to_owned(),
        write,
        direct: false,
        durability: Durability::Flush,
        iodepth,
        block_max: 4096,
        lane: 0,
        round: 1,
    }
}

/// A session and its buffers.
pub(crate) struct Scene {
    /// The session under test.
    pub(crate) session: Box<dyn Session>,
    /// Its buffers.
    pub(crate) slots: Slots,
}

impl Scene {
    /// A session with `count` buffers of `len` bytes.
    pub(crate) fn new(mut session: Box<dyn Session>, count: u16, len: usize) -> Self {
        let mut slots = Slots::new(count, len).expect("slots");
        session.prepare(&mut slots).expect("prepared");
        Self { session, slots }
    }

    /// One operation from start to end.
    pub(crate) fn one(&mut self, direction: Direction, offset: u64, len: u32) -> Result<u32> {
        let op = Op {
            direction,
            offset,
            len,
            slot: 0,
        };
        if let Submit::Done(done) = self.session.submit(op, &mut self.slots)? {
            return Ok(done.bytes);
        }
        let mut done = Vec::new();
        self.session.reap(None, &mut self.slots, &mut done)?;
        assert_eq!((done.len(), done[0].slot), (1, 0));
        Ok(done[0].bytes)
    }

    /// Writes a recognisable block, reads it back into cleared memory and compares every byte.
    pub(crate) fn there_and_back(&mut self, offset: u64, len: u32) {
        for (at, byte) in self.slots.get_mut(0, len).iter_mut().enumerate() {
            *byte = ((at as u64 * 7 + offset) % 251) as u8 + 1;
        }
        let sent = self.slots.get(0, len).to_vec();
        assert_eq!(self.one(Direction::Write, offset, len), Ok(len));
        self.slots.get_mut(0, len).fill(0);
        assert_eq!(self.one(Direction::Read, offset, len), Ok(len));
        assert!(self.slots.get(0, len) == sent, "{len} bytes at {offset}");
    }
}

fn opened(file: File) -> Opened {
    Opened {
        file,
        name: "the test file".to_owned(),
        write: true,
        direct: None,
        durability: Durability::Flush,
        io_timeout: Duration::from_secs(5),
        companion: None,
    }
}

fn session(engine: Engine, file: File, iodepth: u16) -> Box<dyn Session> {
    opened(file)
        .start(Some(engine), &attach("", true, iodepth))
        .expect("a session")
}

/// Whether this kernel permits `io_uring`; where it does not (many containers), its refusal is what is tested.
fn uring_or_its_refusal() -> bool {
    if !uring::permitted() {
        let file = tempfile::tempfile().expect("a file");
        let refusal = opened(file).start(Some(Engine::IoUring), &attach("", true, 2));
        let error = refusal.err().expect("a refusal");
        assert_eq!(error.kind, Kind::Unsupported, "{error}");
    }
    uring::permitted()
}

/// The engines that this kernel permits.
fn engines() -> Vec<Engine> {
    let mut engines = vec![Engine::Psync, Engine::Mmap];
    if uring::permitted() {
        engines.push(Engine::IoUring);
    }
    engines
}

#[test]
fn every_engine_moves_every_byte() {
    for engine in engines() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(3 << 20).expect("it grows");
        let mut scene = Scene::new(session(engine, file, 1), 1, (1 << 20) + 1);
        for len in [1, 4095, 4096, (1 << 20) + 1] {
            for offset in [0, 1, 4096, 777_777, (5 << 30) + 3] {
                scene.there_and_back(offset, len);
            }
        }
        scene.session.flush().expect("a flush");
        let words = scene.session.negotiated();
        assert!(
            words.starts_with(&format!("engine={}", engine.key())),
            "{words}"
        );
    }
}

#[test]
fn a_read_at_the_end_is_short_and_one_beyond_is_empty() {
    for engine in engines() {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&[9; 5000], 0).expect("it is written");
        let mut scene = Scene::new(session(engine, file, 1), 1, 4096);
        assert_eq!(
            scene.one(Direction::Read, 4096, 4096),
            Ok(904),
            "{engine:?}"
        );
        assert_eq!(scene.one(Direction::Read, 8192, 4096), Ok(0), "{engine:?}");
        assert_eq!(scene.one(Direction::Write, 4999, 2), Ok(2), "{engine:?}");
    }
}

#[test]
fn a_mapping_takes_over_where_blocks_are_there() {
    let file = tempfile::tempfile().expect("a file");
    file.write_all_at(&[9; 8192], 0).expect("it is written");
    let mut scene = Scene::new(session(Engine::Mmap, file, 1), 1, 4096);
    scene.there_and_back(4096, 4096);
    assert_eq!(scene.session.negotiated(), "engine=mmap direct=0");
    scene.there_and_back(6000, 4096);
    assert_eq!(
        scene.session.negotiated(),
        "engine=mmap direct=0 unmapped_ops=2"
    );
    scene.session.flush().expect("a flush");
}

#[test]
fn a_mapping_for_reading_refuses_writes() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file()
        .write_all_at(&[9; 4096], 0)
        .expect("it is written");
    let mut opened = opened(File::open(file.path()).expect("it opens"));
    opened.write = false;
    let session = opened
        .start(Some(Engine::Mmap), &attach("", false, 1))
        .expect("a session");
    let mut scene = Scene::new(session, 1, 4096);
    assert_eq!(scene.one(Direction::Read, 0, 4096), Ok(4096));
    let error = scene.one(Direction::Write, 0, 4096).expect_err("read only");
    assert!(error.before_anything(), "{error}");
}

const DEPTH: u16 = 32;

#[test]
fn many_operations_are_under_way_and_each_ends_once() {
    if !uring_or_its_refusal() {
        return;
    }
    let file = tempfile::tempfile().expect("a file");
    let mut scene = Scene::new(session(Engine::IoUring, file, DEPTH), DEPTH, 8192);
    let mut next = 0u64;
    let mut done: Vec<Completion> = Vec::new();
    let mut seen = 0;
    let mut start = |scene: &mut Scene, slot: u16| {
        scene.slots.get_mut(slot, 8192).fill((next % 251) as u8);
        let op = Op {
            direction: Direction::Write,
            offset: next * 8192,
            len: 8192,
            slot,
        };
        next += 1;
        let queued = scene.session.submit(op, &mut scene.slots);
        assert_eq!(queued, Ok(Submit::Queued));
    };
    for slot in 0..DEPTH {
        start(&mut scene, slot);
    }
    while seen < 1000 {
        done.clear();
        scene
            .session
            .reap(None, &mut scene.slots, &mut done)
            .expect("completions");
        assert!(!done.is_empty());
        for one in &done {
            assert_eq!(one.bytes, 8192);
            seen += 1;
            if seen + u64::from(DEPTH) <= 1000 {
                start(&mut scene, one.slot);
            }
        }
    }
    assert_eq!(seen, 1000);
    for block in 0..1000u64 {
        assert_eq!(scene.one(Direction::Read, block * 8192, 8192), Ok(8192));
        let expected = (block % 251) as u8;
        assert!(
            scene
                .slots
                .get(0, 8192)
                .iter()
                .all(|byte| *byte == expected),
            "{block}"
        );
    }
}

/// The last word of what a session tells about itself.
fn registered(scene: &Scene) -> String {
    let words = scene.session.negotiated();
    words.rsplit(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn slots_that_were_not_announced_work_without_registration() {
    if !uring_or_its_refusal() {
        return;
    }
    let file = tempfile::tempfile().expect("a file");
    let mut scene = Scene::new(session(Engine::IoUring, file, 2), 2, 8192);
    scene.there_and_back(0, 8192);
    let announced = registered(&scene);
    assert!(announced.starts_with("registered=file"), "{announced}");
    scene.slots = Slots::new(2, 16384).expect("slots");
    scene.there_and_back(1 << 20, 16384);
    assert_eq!(registered(&scene), "registered=file");
    let Scene { session, slots } = &mut scene;
    session.prepare(slots).expect("prepared again");
    scene.there_and_back(4096, 16384);
    assert_eq!(registered(&scene), announced);
    let op = Op {
        direction: Direction::Write,
        offset: 0,
        len: 4096,
        slot: 1,
    };
    let Scene { session, slots } = &mut scene;
    session.submit(op, slots).expect("it is queued");
    let mut others = Slots::new(2, 16384).expect("slots");
    let error = session.submit(op, &mut others).expect_err("exchanged");
    assert_eq!(error.kind, Kind::Usage, "{error}");
}

#[test]
fn where_locked_memory_is_short_buffers_stay_unregistered() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    if !uring_or_its_refusal() {
        return;
    }
    // Capabilities are a thread's own: this one gives up the one that lifts the limit.
    let mut own = capabilities(None).expect("a thread has capabilities");
    own.effective.remove(CapabilitySet::IPC_LOCK);
    own.permitted.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, own).expect("less is always granted");
    let before = getrlimit(Resource::Memlock);
    // Where there is none, the usual one; other tests need far less.
    let limit = before.current.unwrap_or(8 << 20);
    let usual = Rlimit {
        current: Some(limit),
        ..before
    };
    setrlimit(Resource::Memlock, usual).expect("less is always granted");
    let len = usize::try_from(limit / 2 + 4096).expect("a limit that memory can hold");
    let file = tempfile::tempfile().expect("a file");
    let mut scene = Scene::new(session(Engine::IoUring, file, 2), 2, len);
    assert_eq!(registered(&scene), "registered=file");
    for len in [1, 4096, len as u32] {
        scene.there_and_back(12_345, len);
    }
}

#[test]
fn what_was_registered_is_given_back_with_the_session() {
    if !uring_or_its_refusal() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("a file");
    // A lock lasts as long as anything holds the open file.
    file.lock().expect("it is locked");
    let mut scene = Scene::new(session(Engine::IoUring, file, 2), 2, 4096);
    scene.there_and_back(0, 4096);
    let other = File::open(&path).expect("it opens");
    assert!(other.try_lock().is_err(), "the session holds it");
    drop(scene);
    other.try_lock().expect("nothing holds it any more");
}

#[test]
fn a_session_may_end_with_operations_under_way_and_after_its_slots() {
    if !uring_or_its_refusal() {
        return;
    }
    for _ in 0..50 {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&vec![5; 1 << 20], 0)
            .expect("it is written");
        let Scene {
            mut session,
            mut slots,
        } = Scene::new(session(Engine::IoUring, file, 16), 16, 65536);
        for slot in 0..16 {
            let op = Op {
                direction: Direction::Read,
                offset: u64::from(slot) * 65536,
                len: 65536,
                slot,
            };
            session.submit(op, &mut slots).expect("it is queued");
        }
        session
            .reap(None, &mut slots, &mut Vec::new())
            .expect("one at least");
        drop(slots);
        drop(session);
    }
}

#[test]
fn waiting_ends_at_the_time_asked_for_and_at_the_limit() {
    if !uring_or_its_refusal() {
        return;
    }
    // A pipe nobody writes into is a device that hangs.
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let mut opened = opened(File::from(OwnedFd::from(reader)));
    opened.io_timeout = Duration::from_secs(1);
    let session = opened
        .start(Some(Engine::IoUring), &attach("", false, 2))
        .expect("a session");
    let mut scene = Scene::new(session, 2, 4096);
    let op = Op {
        direction: Direction::Read,
        offset: 0,
        len: 4096,
        slot: 1,
    };
    scene
        .session
        .submit(op, &mut scene.slots)
        .expect("it is queued");
    let mut done = Vec::new();
    let start = crate::clock::monotonic_ns();
    let passed = || (crate::clock::monotonic_ns() - start) / 1_000_000;
    scene
        .session
        .reap(Some(start + 50_000_000), &mut scene.slots, &mut done)
        .expect("time passed");
    assert!(done.is_empty() && passed() >= 50, "{} ms", passed());
    let error = scene
        .session
        .reap(None, &mut scene.slots, &mut done)
        .expect_err("silence");
    assert_eq!((error.phase, error.kind), (Phase::Io, Kind::TimedOut));
    assert!(
        passed() >= 1000,
        "{} ms, counted from the first wait",
        passed()
    );
}

#[test]
fn a_session_that_ends_cancels_what_hangs() {
    if !uring_or_its_refusal() {
        return;
    }
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let mut opened = opened(File::from(OwnedFd::from(reader)));
    opened.io_timeout = Duration::from_secs(30);
    let session = opened
        .start(Some(Engine::IoUring), &attach("", false, 2))
        .expect("a session");
    let mut scene = Scene::new(session, 2, 4096);
    let op = Op {
        direction: Direction::Read,
        offset: 0,
        len: 4096,
        slot: 0,
    };
    scene
        .session
        .submit(op, &mut scene.slots)
        .expect("it is queued");
    let start = crate::clock::monotonic_ns();
    let mut done = Vec::new();
    scene
        .session
        .reap(Some(start), &mut scene.slots, &mut done)
        .expect("handed to the kernel");
    drop(scene);
    let seconds = (crate::clock::monotonic_ns() - start) / 1_000_000_000;
    assert!(seconds < 15, "cancelled, not waited for: {seconds} s");
}

#[test]
fn nothing_under_way_is_a_sleep() {
    if !uring_or_its_refusal() {
        return;
    }
    let file = tempfile::tempfile().expect("a file");
    let mut scene = Scene::new(session(Engine::IoUring, file, 2), 2, 4096);
    let until = crate::clock::monotonic_ns() + 20_000_000;
    let mut done = Vec::new();
    scene
        .session
        .reap(Some(until), &mut scene.slots, &mut done)
        .expect("a sleep");
    assert!(crate::clock::monotonic_ns() >= until);
    scene
        .session
        .reap(None, &mut scene.slots, &mut done)
        .expect("nothing to wait for");
}

#[test]
fn errors_say_where_and_what_to_do() {
    let opened = opened(File::open("/dev/full").expect("it is there"));
    let text = |errno: i32| {
        let error = io::Error::from_raw_os_error(errno);
        opened.failed(Direction::Write, 4096, 8192, &error)
    };
    let full = text(28);
    assert_eq!(full.kind, Kind::NoSpace);
    assert_eq!(
        full.to_string(),
        "failed while reading and writing: could not write 4096 bytes at offset 8192 of the test file: No space \
         left on device; free some space or use a smaller size"
    );
    assert_eq!(text(116).kind, Kind::Gone, "stale handle");
    assert_eq!(text(19).kind, Kind::Gone, "no such device");
    assert_eq!(text(110).kind, Kind::TimedOut);
    assert_eq!(text(5).kind, Kind::Other);
}

#[test]
fn a_full_disk_ends_an_operation_with_its_name() {
    for engine in [Engine::Psync, Engine::Mmap] {
        let file = File::options()
            .write(true)
            .open("/dev/full")
            .expect("it is there");
        let mut scene = Scene::new(session(engine, file, 1), 1, 4096);
        let error = scene.one(Direction::Write, 0, 4096).expect_err("full");
        assert_eq!(
            (error.phase, error.kind),
            (Phase::Io, Kind::NoSpace),
            "{engine:?}"
        );
    }
}

#[test]
fn depth_and_direct_are_checked_before_the_start() {
    let start = |choice, iodepth, direct, block| {
        let mut opened = opened(tempfile::tempfile().expect("a file"));
        opened.direct = direct;
        let mut attach = attach("", true, iodepth);
        attach.block_max = block;
        opened.start(choice, &attach).map(drop)
    };
    assert_eq!(start(Some(Engine::Psync), 1, Some(512), 1024), Ok(()));
    for (choice, iodepth, direct, block, word) in [
        (Some(Engine::Psync), 2, None, 4096, "more lanes"),
        (Some(Engine::Mmap), 1, Some(1), 4096, "page cache"),
        (Some(Engine::Psync), 1, Some(4096), 1024, "multiple"),
    ] {
        let error = start(choice, iodepth, direct, block).expect_err(word);
        assert!(
            error.kind == Kind::Usage && error.message.contains(word),
            "{error}"
        );
    }
}
