//! What one session writes another reads, byte for byte: any size, any place, any depth, many at once.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasgauge::error::Kind;
use nasgauge::op::{Direction, Durability};
use nasgauge::payload::{Content, Fill, LAID, Payload, mix};
use nasgauge::target::{self, Attach, Caps, Control};

use super::client::{Ground, Worker};
use super::lab::{self, Place};

/// How far the disks of these tests reach: beyond 2^32 bytes.
const FAR: u64 = (6 << 30) + (2 << 20);
/// Bytes of memory for places whose room is fixed.
const ROOM: u64 = 8 << 20;

/// libsmbclient has one lock and one state for a whole process: its tests take turns.
fn smb_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All of it, on one place; with `unit`, offsets and lengths are multiples of it.
fn keeps_its_promises(place: &Place, unit: Option<u32>) {
    let spec = place.login().spec;
    let caps = (target::check(&spec).expect(&place.uri).caps)(&spec);
    assert!(caps.stores);
    let mut ground = Ground::make(place, ROOM);
    ground.unit = ground.unit.max(unit.unwrap_or(1));
    comes_back_at_any_depth(place, &mut ground, &caps);
    ends_where_it_ends(place, &mut ground);
    survives_random_overwrites(place, &ground, &caps);
    many_share_it(place, &ground);
    if caps.sync {
        each_write_can_be_durable(place, &ground);
    }
    ground.remove();
}

/// Sizes and places around every boundary, in units of the ground, within its capacity.
fn pieces(ground: &Ground) -> Vec<(u64, u32)> {
    let unit = ground.unit;
    let (far, size) = (4u64 << 30, 1u32 << 20);
    let wanted = if unit == 1 {
        vec![
            (0, 1),
            (1, 4095),
            (4096, 4096),
            (u64::from(size), size + 1),
            (far - 4095, 4095),
            (far + 511, 4097),
            (far + (2 << 30), size + 1),
        ]
    } else {
        vec![
            (0, unit),
            (u64::from(unit), 7 * unit),
            (u64::from(8 * unit), 4096.max(unit)),
            (u64::from(size), size + unit),
            (far - u64::from(unit), 2 * unit),
            (far + u64::from(unit), 8 * unit),
            (far + (2 << 30), size),
        ]
    };
    let fits = |(offset, len): &(u64, u32)| {
        ground
            .capacity
            .is_none_or(|capacity| offset + u64::from(*len) <= capacity)
    };
    let mut fitting: Vec<(u64, u32)> = wanted.into_iter().filter(fits).collect();
    // Two pieces that overlap could not both be checked.
    fitting.sort_unstable();
    for pair in fitting.windows(2) {
        let end = pair[0].0 + u64::from(pair[0].1);
        assert!(end <= pair[1].0, "{pair:?}");
    }
    fitting
}

fn comes_back_at_any_depth(place: &Place, ground: &mut Ground, caps: &Caps) {
    let pieces = pieces(ground);
    for (salt, depth) in (1..).zip([1, 8, 32]) {
        if depth > caps.iodepth_max {
            continue;
        }
        let mut writer =
            Worker::connect(&place.login(), &ground.attach(true, depth)).expect("connects");
        writer.write(&pieces, salt);
        if caps.flush {
            writer.session.flush().expect("flushes");
        }
        writer.verify(&pieces, salt);
        drop(writer);
        let mut reader =
            Worker::connect(&place.login(), &ground.attach(false, depth)).expect("connects");
        reader.verify(&pieces, salt);
        // Backwards, so that nothing depends on the order.
        let backwards: Vec<(u64, u32)> = pieces.iter().rev().copied().collect();
        reader.verify(&backwards, salt);
    }
    let end = pieces.last().map(|(offset, len)| offset + u64::from(*len));
    if let Some(size) = ground.size() {
        assert_eq!(Some(size), end);
    }
}

/// A file gives what it has and then nothing; a device refuses what lies beyond it.
fn ends_where_it_ends(place: &Place, ground: &mut Ground) {
    let unit = ground.unit;
    let mut reader = Worker::connect(&place.login(), &ground.attach(false, 1)).expect("connects");
    if let Some(size) = ground.size() {
        let last = reader
            .read(size - u64::from(unit), 4 * unit)
            .expect("reads");
        assert_eq!(last.len(), unit as usize, "a short read at the end");
        assert!(
            reader.read(size, unit).expect("reads").is_empty(),
            "nothing after it"
        );
        assert!(
            reader
                .read(size + (1 << 20), unit)
                .expect("reads")
                .is_empty()
        );
    } else if let Some(capacity) = ground.capacity.filter(|_| place.uri != "ram:") {
        let last = reader
            .read(capacity - u64::from(unit), unit)
            .expect("the last block");
        assert_eq!(last.len(), unit as usize);
        beyond(place, ground, capacity, unit);
        beyond(place, ground, capacity - u64::from(unit), 2 * unit);
    }
}

/// Neither read nor written, and the error says why.
fn beyond(place: &Place, ground: &Ground, offset: u64, len: u32) {
    for direction in [Direction::Read, Direction::Write] {
        let attach = ground.attach(direction == Direction::Write, 1);
        let mut worker = Worker::connect(&place.login(), &attach).expect("connects");
        let mut moved = 0;
        let result = worker.transfer(
            direction,
            [(offset, len)],
            &mut |_, _| {},
            &mut |_, block| moved += block.len(),
        );
        // This computer's own devices end like files for reads; nobody takes a byte beyond the end.
        let short = result.is_ok() && moved < len as usize && direction == Direction::Read;
        assert!(
            result.is_err() || short,
            "{direction:?} at {offset}: {moved} bytes"
        );
        if let Err(error) = result {
            assert!(error.message.len() > 20, "{error}");
        }
    }
}

fn survives_random_overwrites(place: &Place, ground: &Ground, caps: &Caps) {
    const BLOCK: u32 = 4096;
    const BLOCKS: u64 = 256;
    let payload = Payload::new(Content {
        key: 77,
        fill: Fill::Incompressible,
        compress_percent: 0,
        dedupe_percent: 0,
    });
    let depth = caps.iodepth_max.min(16);
    let mut worker =
        Worker::connect(&place.login(), &ground.attach(true, depth)).expect("connects");
    let mut newest = vec![LAID; BLOCKS as usize];
    let mut generation = LAID;
    let all = || (0..BLOCKS).map(|block| (block * u64::from(BLOCK), BLOCK));
    worker
        .transfer(
            Direction::Write,
            all(),
            &mut |offset, block| payload.fill(block, offset, LAID),
            &mut |_, _| {},
        )
        .expect("lays");
    for round in 0..40u64 {
        // Two writes of one block under way at once would have no defined winner.
        let chosen: HashSet<u64> = (0..16).map(|n| mix(round * 16 + n) % BLOCKS).collect();
        let chosen: Vec<(u64, u32)> = chosen
            .iter()
            .map(|block| (block * u64::from(BLOCK), BLOCK))
            .collect();
        let mut stamp = |offset: u64, block: &mut [u8]| {
            generation += 1;
            newest[(offset / u64::from(BLOCK)) as usize] = generation;
            payload.fill(block, offset, generation);
        };
        worker
            .transfer(Direction::Write, chosen, &mut stamp, &mut |_, _| {})
            .expect("writes");
    }
    drop(worker);
    let mut reader =
        Worker::connect(&place.login(), &ground.attach(false, depth)).expect("connects");
    let mut wanted = vec![0; BLOCK as usize];
    let mut seen = 0;
    reader
        .transfer(
            Direction::Read,
            all(),
            &mut |_, _| {},
            &mut |offset, block| {
                payload.check(block, offset, generation).expect("ours");
                payload.fill(
                    &mut wanted,
                    offset,
                    newest[(offset / u64::from(BLOCK)) as usize],
                );
                assert!(block == wanted, "the block at {offset} is not the newest");
                seen += 1;
            },
        )
        .expect("reads");
    assert_eq!(seen, BLOCKS);
}

/// Four sessions at once, each on every fourth block; a fifth sees all of it.
fn many_share_it(place: &Place, ground: &Ground) {
    const SESSIONS: u64 = 4;
    const BLOCK: u32 = 64 << 10;
    let blocks = |session: u64| -> Vec<(u64, u32)> {
        let mine = (0..64).filter(|block| block % SESSIONS == session);
        mine.map(|block| (block * u64::from(BLOCK), BLOCK))
            .collect()
    };
    let login = place.login();
    std::thread::scope(|scope| {
        for session in 0..SESSIONS {
            let (login, blocks) = (&login, &blocks);
            let attach = Attach {
                lane: session as u16,
                ..ground.attach(true, 1)
            };
            scope.spawn(move || {
                let mut worker = Worker::connect(login, &attach).expect("connects");
                worker.write(&blocks(session), 100 + session);
                worker.verify(&blocks(session), 100 + session);
            });
        }
    });
    let mut reader = Worker::connect(&login, &ground.attach(false, 1)).expect("connects");
    for session in 0..SESSIONS {
        reader.verify(&blocks(session), 100 + session);
    }
}

fn each_write_can_be_durable(place: &Place, ground: &Ground) {
    let pieces: Vec<(u64, u32)> = (0..8).map(|n| (n * 8192, 8192)).collect();
    let attach = Attach {
        durability: Durability::Sync,
        ..ground.attach(true, 1)
    };
    let mut writer = match Worker::connect(&place.login(), &attach) {
        Ok(writer) => writer,
        // A protocol may offer it where a certain LUN does not; then it says so before anything is written.
        Err(error) => {
            assert!(
                place.uri.starts_with("iscsi:") && error.kind == Kind::Unsupported,
                "{error}"
            );
            return;
        }
    };
    writer.write(&pieces, 9);
    drop(writer);
    let mut reader = Worker::connect(&place.login(), &ground.attach(false, 1)).expect("connects");
    reader.verify(&pieces, 9);
}

#[test]
fn every_protocol_that_stores_has_its_tests_here() {
    let storing: Vec<&str> = target::PROTOCOLS
        .iter()
        .filter(|protocol| {
            let spec =
                nasgauge::spec::uri::TargetSpec::parse(protocol.example).expect(protocol.example);
            (protocol.caps)(&spec).stores
        })
        .map(|protocol| protocol.name)
        .collect();
    assert_eq!(storing, ["ram", "file", "block", "nfs", "smb", "iscsi"]);
}

#[test]
fn ram() {
    keeps_its_promises(&lab::ram(), None);
}

#[test]
fn file_psync() {
    let place = lab::file("engine=psync");
    keeps_its_promises(&place, None);
    place.assert_clean();
}

#[test]
fn file_io_uring() {
    let place = lab::file("engine=io_uring");
    keeps_its_promises(&place, None);
    place.assert_clean();
}

#[test]
fn file_mmap() {
    let place = lab::file("engine=mmap");
    keeps_its_promises(&place, None);
    place.assert_clean();
}

#[test]
fn file_direct() {
    for engine in ["psync", "io_uring"] {
        let place = lab::file(&format!("engine={engine}&direct=1"));
        keeps_its_promises(&place, Some(4096));
        place.assert_clean();
    }
}

#[test]
fn nfs_embedded() {
    let place = lab::embedded_nfs();
    keeps_its_promises(&place, None);
    place.assert_clean();
}

#[test]
fn nfs_embedded_otherwise() {
    for options in NFS_OTHERWISE {
        let place = with(lab::embedded_nfs(), options);
        keeps_its_promises(&place, None);
        place.assert_clean();
    }
}

#[test]
fn smb_embedded() {
    let _turn = smb_turn();
    let place = lab::embedded_smb();
    keeps_its_promises(&place, None);
    place.assert_clean();
}

/// The same server through the engine with many requests under way.
fn smb2(place: Place) -> Place {
    let uri = format!("{}?engine=smb2", place.uri);
    place.under(uri)
}

#[test]
fn smb_embedded_smb2() {
    let place = smb2(lab::embedded_smb());
    keeps_its_promises(&place, None);
    place.assert_clean();
}

#[test]
fn iscsi_embedded() {
    keeps_its_promises(&lab::embedded_iscsi(FAR), None);
}

/// The same LUN over several sessions.
fn spread(place: Place, options: &str) -> Place {
    let uri = format!("{}?{options}", place.uri);
    place.under(uri)
}

#[test]
fn iscsi_embedded_over_two_sessions() {
    let place = spread(lab::embedded_iscsi(FAR), "sessions=2");
    keeps_its_promises(&place, None);
}

#[test]
#[ignore = "needs root and servers"]
fn nfs_ganesha() {
    let place = lab::ganesha(|_| {});
    keeps_its_promises(&place, None);
    place.assert_clean();
}

/// Several connections, and the engine that makes one call at a time.
const NFS_OTHERWISE: [&str; 2] = ["nconnect=3", "engine=crate"];

fn with(place: Place, options: &str) -> Place {
    let uri = format!("{}&{options}", place.uri);
    place.under(uri)
}

#[test]
#[ignore = "needs root and servers"]
fn nfs_ganesha_otherwise() {
    for options in NFS_OTHERWISE {
        let place = with(lab::ganesha(|_| {}), options);
        keeps_its_promises(&place, None);
        place.assert_clean();
    }
}

#[test]
#[ignore = "needs root and servers"]
fn smb_smbd() {
    let _turn = smb_turn();
    let place = lab::smbd(|_| {});
    keeps_its_promises(&place, None);
    place.assert_clean();
}

#[test]
#[ignore = "needs root and servers"]
fn smb_smbd_smb2() {
    let place = smb2(lab::smbd(|_| {}));
    keeps_its_promises(&place, None);
    place.assert_clean();
}

/// Lanes take turns over the addresses of a URI, and all reach the same file.
#[test]
#[ignore = "needs root and servers"]
fn smb_sessions_over_two_addresses() {
    let place = smb2(lab::smbd(|_| {}));
    let uri = place.uri.replacen("127.0.0.1", "127.0.0.1,[::1]", 1);
    let place = place.under(uri);
    let ground = Ground::make(&place, ROOM);
    for lane in 0..3 {
        let attach = Attach {
            lane,
            ..ground.attach(true, 4)
        };
        let mut worker = Worker::connect(&place.login(), &attach).expect("connects");
        let piece = [(u64::from(lane) * 4096, 4096)];
        worker.write(&piece, 3);
        worker.verify(&piece, 3);
        let negotiated = worker.session.negotiated();
        assert!(negotiated.contains("addresses=2"), "{negotiated}");
    }
    ground.remove();
    // The second address alone is what lane 1 needs.
    let dead = place.uri.replacen("[::1]", "127.0.0.77", 1);
    let login = lab::login(&dead, place.password.as_deref());
    let attach = Attach {
        object: "x".into(),
        write: false,
        direct: false,
        durability: Durability::None,
        iodepth: 1,
        block_max: 4096,
        lane: 1,
        round: 1,
    };
    let error = Worker::connect(&login, &attach)
        .err()
        .expect("nobody there");
    assert!(error.message.contains("127.0.0.77"), "{error}");
    // Every address is asked before anything is written.
    let error = nasgauge::fleet::control(&login).err().expect("half there");
    assert!(error.message.contains("127.0.0.77"), "{error}");
    place.assert_clean();
}

#[test]
#[ignore = "needs root and servers"]
fn iscsi_tgtd() {
    keeps_its_promises(&lab::tgtd(FAR, |_| {}), None);
}

#[test]
#[ignore = "needs root and servers"]
fn iscsi_tgtd_over_several_sessions() {
    for options in [
        "sessions=2",
        "sessions=4&immediate_data=0",
        "sessions=3&immediate_data=0&initial_r2t=1",
    ] {
        let place = spread(lab::tgtd(FAR, |_| {}), options);
        keeps_its_promises(&place, None);
    }
}

#[test]
#[ignore = "needs root and servers"]
fn iscsi_tgtd_with_its_own_small_bursts() {
    // 8 KiB segments, and a permission asked for every write: what tgtd does when nobody tells it otherwise.
    let place = lab::tgtd(64 << 20, |options| options.parameters.clear());
    keeps_its_promises(&place, None);
}

#[test]
#[ignore = "needs root and servers"]
fn block_loop() {
    keeps_its_promises(&lab::loop_device(FAR, &[]), None);
}

#[test]
#[ignore = "needs root and servers"]
fn block_loop_with_blocks_of_4_kib() {
    let place = lab::loop_device(64 << 20, &["--sector-size", "4096"]);
    let Control::Device(mut device) = place.control() else {
        panic!("a device");
    };
    assert_eq!(device.identity().expect("tells").block, 4096);
    drop(device);
    keeps_its_promises(&place, None);
}

/// F33: a server whose limits are below the block.
#[test]
#[ignore = "needs root and servers"]
fn blocks_beyond_the_servers_limit_are_split_and_counted() {
    let narrow = || {
        lab::ganesha(|options| {
            options.max_read = Some(64 << 10);
            options.max_write = Some(64 << 10);
        })
    };
    split_and_counted(&narrow());
    split_and_counted(&with(narrow(), "engine=crate"));
}

fn split_and_counted(place: &Place) {
    let ground = Ground::make(place, ROOM);
    let blocks = [(0, 1 << 20), (1 << 20, 1 << 20), (2 << 20, (64 << 10) + 1)];
    let mut worker = Worker::connect(&place.login(), &ground.attach(true, 1)).expect("connects");
    let calls = |worker: &Worker| worker.session.wire_ops().expect("counted");
    let before = calls(&worker);
    worker.write(&blocks, 3);
    assert_eq!(calls(&worker) - before, 16 + 16 + 2);
    let before = calls(&worker);
    worker.verify(&blocks, 3);
    assert_eq!(calls(&worker) - before, 16 + 16 + 2);
    let negotiated = worker.session.negotiated();
    assert!(
        negotiated.contains("rtmax=65536") && negotiated.contains("wtmax=65536"),
        "{negotiated}"
    );
    drop(worker);
    ground.remove();
    place.assert_clean();
}

/// F37: more than 2^32 sectors.
#[test]
#[ignore = "needs root and servers"]
fn a_lun_of_3_tib_is_reached_to_its_end_and_not_beyond() {
    let capacity = 3u64 << 40;
    let place = lab::tgtd(capacity, |_| {});
    let Control::Device(mut device) = place.control() else {
        panic!("a device");
    };
    assert_eq!(
        device.identity().expect("tells").capacity,
        3_298_534_883_328
    );
    drop(device);
    let ground = Ground::make(&place, ROOM);
    let pieces = [
        (0, 4096),
        ((2 << 40) - 4096, 8192),
        ((2 << 40) + (1 << 30), 1 << 20),
        (capacity - 512, 512),
    ];
    let mut writer = Worker::connect(&place.login(), &ground.attach(true, 4)).expect("connects");
    writer.write(&pieces, 5);
    writer.session.flush().expect("flushes");
    drop(writer);
    let mut reader = Worker::connect(&place.login(), &ground.attach(false, 4)).expect("connects");
    reader.verify(&pieces, 5);
    for (offset, len) in [
        (capacity, 512),
        (capacity - 512, 1024),
        (u64::MAX - 511, 512),
    ] {
        let mut reader =
            Worker::connect(&place.login(), &ground.attach(false, 1)).expect("connects");
        let error = reader.read(offset, len).expect_err("beyond the end");
        assert_eq!(error.kind, Kind::Usage, "refused by us: {error}");
    }
    // What went to the far end went nowhere else.
    assert_eq!(
        reader.read(capacity - 512 - (2 << 40), 512).expect("reads"),
        [0; 512]
    );
}
