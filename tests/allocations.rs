//! The hot loop allocates nothing: a run of ten times the operations makes exactly as many allocations.

#[path = "support/engine.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use nasgauge::spec::uri::TargetSpec;
use nasgauge::target::{self, Control, Login, Secret};

thread_local! {
    /// Allocations of this thread: workers of other tests don't disturb.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // A thread that is ending has no counter any more.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

#[expect(unsafe_code, reason = "a global allocator is unsafe by definition")]
// SAFETY: every call goes to the system's allocator unchanged; counting touches no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are handed on.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are handed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SIZE: u64 = 4 << 20;

/// A target whose loop must not allocate.
struct Case {
    /// Its URI; `DIR` stands for a fresh directory.
    uri: &'static str,
    /// The depth of its queue.
    depth: u16,
    /// Whether data can be read back.
    stores: bool,
    /// Whether a flush is a library's call, which may allocate.
    flush_elsewhere: bool,
}

/// One line for each protocol and engine whose loop is ours. The libraries of the others allocate as they like.
const CASES: &[Case] = &[
    Case {
        uri: "null:",
        depth: 1,
        stores: false,
        flush_elsewhere: false,
    },
    Case {
        uri: "sim:?latency=1us&clock=virtual",
        depth: 1,
        stores: false,
        flush_elsewhere: false,
    },
    Case {
        uri: "sim:?latency=1us&bandwidth=1GB/s&clock=virtual",
        depth: 32,
        stores: false,
        flush_elsewhere: false,
    },
    Case {
        uri: "ram:4MiB",
        depth: 1,
        stores: true,
        flush_elsewhere: false,
    },
    Case {
        uri: "file:DIR?engine=psync",
        depth: 1,
        stores: true,
        flush_elsewhere: false,
    },
    Case {
        uri: "file:DIR?engine=mmap",
        depth: 1,
        stores: true,
        flush_elsewhere: false,
    },
    Case {
        uri: "file:DIR?engine=io_uring",
        depth: 16,
        stores: true,
        flush_elsewhere: false,
    },
];

/// Lays the data, then counts the allocations of running `keys` on it.
fn allocations(login: &Login, control: &mut Control, keys: &str) -> u64 {
    let uri = &login.spec.uri;
    let object = match control {
        Control::Volatile(volatile) => volatile.provide(SIZE).expect(uri),
        Control::Files(_) => "data.bin".to_owned(),
        Control::Device(_) => String::new(),
    };
    let mut job = support::job(keys);
    job.attach.object = object;
    let session = support::session(login, &job);
    let before = COUNT.get();
    let report = support::run(session, &job);
    let made = COUNT.get() - before;
    assert_eq!(report.error, None, "{uri}: {keys}");
    assert!(report.read.ops + report.write.ops > 0);
    made
}

fn check(case: &Case, place: &str) {
    check_as(case, &support::login(&case.uri.replace("DIR", place)));
}

fn check_as(case: &Case, login: &Login) {
    let uri = &login.spec.uri;
    let protocol = target::find(&login.spec).expect(uri);
    let mut control = (protocol.control)(login).expect(uri);
    if let Control::Files(files) = &mut control {
        files.create("data.bin").expect("a new file");
    }
    if case.stores {
        allocations(
            login,
            &mut control,
            &format!("rw='write'\nbs='1M'\nsize={SIZE}"),
        );
    }
    for rw in ["read", "write", "randread", "randwrite", "randrw"] {
        for verify in [false, true] {
            if verify && (!case.stores || rw.ends_with("write")) {
                continue;
            }
            let keys = |ops: u64| {
                format!(
                    "rw='{rw}'\nbs='4k'\nsize={SIZE}\nbytes={}\niodepth={}\nfsync={}\nverify={verify}",
                    ops * 4096,
                    case.depth,
                    if rw == "write" && !case.flush_elsewhere {
                        100
                    } else {
                        0
                    }
                )
            };
            // The first run of a kind may set up what stays.
            allocations(login, &mut control, &keys(300));
            let few = allocations(login, &mut control, &keys(300));
            let many = allocations(login, &mut control, &keys(3_000));
            assert_eq!(few, many, "{uri}: {rw} with verify={verify}");
        }
    }
}

#[test]
fn the_counter_counts() {
    let before = COUNT.get();
    drop(std::hint::black_box(vec![1u8; 10]));
    drop(std::hint::black_box(vec![0u8; 10]));
    assert_eq!(COUNT.get() - before, 2);
}

#[test]
fn the_loop_allocates_nothing() {
    for case in CASES {
        let directory = tempfile::tempdir().expect("a directory");
        check(case, &directory.path().display().to_string());
    }
}

/// The server's threads allocate as they like: the counter is this thread's.
#[cfg(feature = "embedded")]
#[test]
fn the_pipelined_nfs_loop_allocates_nothing() {
    let server = nasgauge::servers::embedded::Nfs::start(64 << 20).expect("a server");
    let port = server.port();
    for connections in [1, 3] {
        let case = Case {
            uri: "nfs://127.0.0.1:DIR",
            depth: 8,
            stores: true,
            flush_elsewhere: true,
        };
        let place = format!("{port}/export?mountport={port}&nconnect={connections}");
        check(&case, &place);
        let mut control =
            (target::nfs::PROTOCOL.control)(&support::login(&case.uri.replace("DIR", &place)))
                .expect("the export");
        if let Control::Files(files) = &mut control {
            files.remove("data.bin").expect("removed");
        }
    }
}

/// The login goes through libraries; once in, the loop is ours.
#[cfg(all(feature = "embedded", feature = "smb"))]
#[test]
fn the_smb2_loop_allocates_nothing() {
    use nasgauge::servers::Server as _;
    let server = nasgauge::servers::embedded::Smb::start(64 << 20).expect("a server");
    let uri = server.uri() + "?engine=smb2";
    let case = Case {
        uri: "",
        depth: 8,
        stores: true,
        flush_elsewhere: true,
    };
    let login = Login {
        secret: Secret(server.password().map(str::to_owned)),
        ..support::login(&uri)
    };
    check_as(&case, &login);
}

#[test]
fn rate_mode_and_time_bounds_allocate_nothing() {
    let mut control =
        (nasgauge::target::sim::PROTOCOL.control)(&support::login("sim:")).expect("sim");
    let of = |control: &mut Control, runtime: &str| {
        let keys = format!(
            "rw='randrw'\nbs='4k'\nsize='1M'\nrate_iops=1000\nramp_time='1s'\nruntime='{runtime}'"
        );
        let login = support::login("sim:?latency=1us&clock=virtual");
        allocations(&login, control, &keys)
    };
    of(&mut control, "1s");
    assert_eq!(of(&mut control, "1s"), of(&mut control, "10s"));
}

/// A protocol joins [`CASES`] or the list here: none is left out by accident.
#[test]
fn every_protocol_is_decided_upon() {
    let elsewhere = ["nfs", "smb", "iscsi", "block"];
    for protocol in target::PROTOCOLS {
        let counted = CASES.iter().any(|case| {
            TargetSpec::parse(case.uri).is_ok_and(|spec| spec.protocol == protocol.name)
        });
        assert!(
            counted != elsewhere.contains(&protocol.name),
            "{}: either counted or named as a library that allocates",
            protocol.name
        );
    }
}
