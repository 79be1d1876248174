//! Devices and LUNs: what is not blank is not touched, unless its serial number is given.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nasgauge::servers::real::iscsi::Lun;
use nasgauge::target::Control;

use super::lab::{self, Loop, Place, digest};
use super::program::Desk;

const SIZE: u64 = 32 << 20;

/// Makes a blank image not blank.
type Furnish = fn(&Path);

/// Ways in which a disk is not blank: what the refusal says, and how.
const FOREIGN: &[(&str, Furnish)] = &[
    ("an ext2/3/4 filesystem", ext4),
    ("a partition table", |image| put(image, 510, b"\x55\xaa")),
    ("a GPT partition table", |image| {
        put(image, 512, b"EFI PART");
    }),
    ("an LVM physical volume", |image| {
        put(image, 512, b"LABELONE");
    }),
    ("a LUKS volume", |image| {
        put(image, 0, b"LUKS\xba\xbe\0\x02");
    }),
    ("an XFS filesystem", |image| put(image, 0, b"XFSB")),
    ("a btrfs filesystem", |image| {
        put(image, 65_600, b"_BHRfS_M");
    }),
    ("data at offset 512000", |image| put(image, 512_000, b"x")),
    ("data at offset 33553920", |image| {
        put(image, SIZE - 1, b"x");
    }),
    ("data at offset", in_the_middle),
    ("data at offset", zeroed_at_its_start),
];

/// Where only samples look.
fn in_the_middle(image: &Path) {
    put(image, 2 << 20, &vec![0xa5; 28 << 20]);
}

/// As by a careless dd: the rest is somebody's data.
fn zeroed_at_its_start(image: &Path) {
    let mut bytes = vec![0; SIZE as usize];
    super::client::pattern(0, 8, &mut bytes);
    bytes[..1 << 20].fill(0);
    put(image, 0, &bytes);
}

fn put(image: &Path, offset: u64, bytes: &[u8]) {
    let file = std::fs::File::options()
        .write(true)
        .open(image)
        .expect("there");
    file.write_all_at(bytes, offset).expect("fits");
}

fn ext4(image: &Path) {
    let status = Command::new("mkfs.ext4")
        .args(["-q", "-F"])
        .arg(image)
        .status();
    assert!(status.expect("mkfs.ext4 runs").success());
}

/// An image in the sandbox with content on it.
fn furnished(content: fn(&Path)) -> (tempfile::TempDir, PathBuf) {
    let work = lab::sandboxed("image");
    let image = lab::image(work.path(), SIZE);
    content(&image);
    (work, image)
}

fn serial(place: &Place) -> String {
    let Control::Device(mut device) = place.control() else {
        panic!("a device");
    };
    device.identity().expect("tells").serial
}

const WRITE: &[&str] = &[
    "--rw",
    "randwrite",
    "--bs",
    "4k",
    "--size",
    "4M",
    "--bytes",
    "1M",
];
const READ: &[&str] = &["--rw", "read", "--bs", "64k", "--size", "4M"];

/// Every command that could write refuses; the bytes stay.
fn stays(place: &Place, image: &Path, why: &str) {
    let before = digest(image);
    let desk = Desk::at(place);
    let run = |arguments: &[&str]| {
        let line = [&["run", "--target", &place.uri, "--out", "none"], arguments].concat();
        let ran = desk.refuses(&line, why);
        assert!(ran.err.contains("nothing was written"), "{ran:?}");
        assert!(!desk.path("none").exists(), "no results of nothing");
    };
    run(WRITE);
    // Reading needs test data, which would have to be laid first.
    run(READ);
    desk.refuses(&["prepare", &place.uri, "--size", "1M"], why);
    let clean = desk.does(&["clean", &place.uri, "--yes"]);
    assert!(clean.out.contains("nothing of nasgauge's"), "{clean:?}");
    desk.does(&["inspect", &place.uri]);
    let wrong = [
        &["run", "--target", &place.uri, "--destroy", "no-such-serial"],
        WRITE,
    ]
    .concat();
    let ran = desk.refuses(&wrong, "no-such-serial");
    assert!(
        ran.err.contains(&serial(place)),
        "it tells the right one: {ran:?}"
    );
    desk.refuses(
        &[&["run", "--target", &place.uri, "--destroy", ""], WRITE].concat(),
        "serial",
    );
    assert_eq!(digest(image), before, "{why}");
    let results = desk.measures(
        place,
        "read",
        &[&["--read-existing", "device"], READ].concat(),
    );
    assert!(results.rows[0]["flags"].contains("user_file"));
    assert_eq!(digest(image), before, "{why}");
}

/// With the right serial number it goes ahead, and leaves nothing of its own.
fn goes(place: &Place, image: &Path) {
    let serial = serial(place);
    assert!(!serial.is_empty());
    let desk = Desk::at(place);
    let asked = ["--destroy", &serial, "--verify", "1"];
    let results = desk.measures(place, "gone", &[&asked[..], WRITE].concat());
    assert!(results.noted("will be destroyed"), "{:?}", results.ran);
    let clean = desk.does(&["clean", &place.uri, "--yes"]);
    assert!(clean.out.contains("nothing of nasgauge's"), "{clean:?}");
    // The manifest's place and that of the test data.
    let file = std::fs::File::open(image).expect("there");
    for (offset, len) in [(0, 4096), (64 << 10, 4 << 20)] {
        let mut bytes = vec![1; len];
        file.read_exact_at(&mut bytes, offset).expect("reads");
        assert!(
            bytes.iter().all(|byte| *byte == 0),
            "{len} bytes at {offset}"
        );
    }
}

#[test]
#[ignore = "needs root and servers"]
fn a_lun_with_anything_on_it() {
    for (why, content) in FOREIGN {
        let (_work, image) = furnished(*content);
        let place = lab::tgtd(512, |options| options.luns = vec![Lun::new(&image)]);
        stays(&place, &image, why);
        goes(&place, &image);
    }
}

#[test]
#[ignore = "needs root and servers"]
fn a_loop_device_with_anything_on_it() {
    for (why, content) in FOREIGN {
        let (_work, image) = furnished(*content);
        let device = Loop::attach(&image, &[]);
        let place = Place::new(device.uri(), device);
        stays(&place, &image, why);
        goes(&place, &image);
    }
}

/// On a disk of which it is a hundred-thousandth, data just where a run would write is found all the same.
#[test]
#[ignore = "needs root and servers"]
fn a_huge_lun_with_little_on_it() {
    let place = lab::tgtd(3 << 40, |_| {});
    let image = place.behind.clone().expect("here");
    put(&image, 4 << 20, &vec![0xa5; 24 << 20]);
    let before = digest(&image);
    let desk = Desk::at(&place);
    let load = ["--rw", "write", "--bs", "1M", "--size", "32M"];
    let line = [&["run", "--target", &place.uri, "--out", "none"], &load[..]].concat();
    desk.refuses(&line, "data at offset");
    assert_eq!(digest(&image), before);
}

/// What a run kept is ours; what somebody puts beside it afterwards is not, wherever it lies.
#[test]
#[ignore = "needs root and servers"]
fn a_kept_lun_on_which_somebody_wrote() {
    let place = lab::tgtd(SIZE, |_| {});
    let image = place.behind.clone().expect("here");
    let desk = Desk::at(&place);
    desk.does(&["prepare", &place.uri, "--size", "4M"]);
    let middle = (64 << 10) + (1 << 20);
    for offset in [2000, 5000, 40_000, middle, SIZE - 600] {
        let mut old = [0];
        let file = std::fs::File::open(&image).expect("there");
        file.read_exact_at(&mut old, offset).expect("reads");
        let len = if offset == middle { 2 << 20 } else { 1 };
        let mut kept = vec![0; len];
        file.read_exact_at(&mut kept, offset).expect("reads");
        put(&image, offset, &vec![!old[0]; len]);
        let before = digest(&image);
        let line = [&["run", "--target", &place.uri, "--out", "none"], WRITE].concat();
        desk.refuses(&line, "data at offset");
        desk.refuses(&["clean", &place.uri, "--yes"], "data at offset");
        assert_eq!(digest(&image), before, "{offset}");
        put(&image, offset, &kept);
    }
    desk.does(&["clean", &place.uri, "--yes"]);
    place.assert_clean();
}

/// Mounted, it is refused whatever serial is given.
#[test]
#[ignore = "needs root and servers"]
fn a_mounted_loop_device() {
    struct Mounted(PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.0).status();
        }
    }
    let (work, image) = furnished(ext4);
    let device = Loop::attach(&image, &[]);
    let point = lab::below(work.path(), "mnt");
    let mount = Command::new("mount")
        .args(["-o", "ro"])
        .arg(&device.0)
        .arg(&point)
        .status();
    assert!(mount.expect("mount runs").success());
    let mounted = Mounted(point.clone());
    let before = digest(&image);
    let place = Place::new(device.uri(), device);
    let desk = Desk::at(&place);
    let line = [&["run", "--target", &place.uri], WRITE].concat();
    desk.refuses(&line, &point.display().to_string());
    let serial = serial(&place);
    desk.refuses(&[&line[..], &["--destroy", &serial]].concat(), "in use");
    assert_eq!(digest(&image), before);
    drop(mounted);
}

/// Another loop device over the first one holds it.
#[test]
#[ignore = "needs root and servers"]
fn a_loop_device_that_another_lies_on() {
    let (_work, image) = furnished(|_| {});
    let below = Loop::attach(&image, &[]);
    let above = Loop::attach(&below.0, &[]);
    let uri = below.uri();
    let place = Place::new(uri.clone(), ());
    Desk::at(&place).refuses(&[&["run", "--target", &uri], WRITE].concat(), "in use");
    drop(above);
    drop(below);
}

#[test]
#[ignore = "needs root and servers"]
fn a_read_only_lun_is_only_read() {
    let (_work, image) = furnished(ext4);
    let place = lab::tgtd(512, |options| {
        options.luns = vec![Lun {
            read_only: true,
            ..Lun::new(&image)
        }];
    });
    let before = digest(&image);
    let desk = Desk::at(&place);
    desk.refuses(
        &[&["run", "--target", &place.uri], WRITE].concat(),
        "write-protected",
    );
    desk.refuses(&["prepare", &place.uri, "--size", "1M"], "write-protected");
    let serial = serial(&place);
    let destroy = [
        &["run", "--target", &place.uri, "--destroy", &serial],
        WRITE,
    ]
    .concat();
    desk.refuses(&destroy, "write-protected");
    desk.measures(
        &place,
        "read",
        &[&["--read-existing", "device"], READ].concat(),
    );
    assert_eq!(digest(&image), before);
}

/// F39: what does not fit is refused while planning.
#[test]
#[ignore = "needs root and servers"]
fn a_tiny_lun() {
    let place = lab::tgtd(1 << 20, |_| {});
    let desk = Desk::at(&place);
    let run = |more: &[&'static str]| {
        [
            &["run", "--target", place.uri.as_str(), "--out", "none"],
            more,
        ]
        .concat()
    };
    let big = ["--rw", "randwrite", "--bs", "256k", "--iodepth", "8"];
    desk.refuses(
        &run(&[&big[..], &["--size", "1M"]].concat()),
        "smaller --size",
    );
    desk.refuses(
        &run(&[&big[..], &["--size", "2M"]].concat()),
        "smaller --size",
    );
    assert!(place.is_zero());
    // What fits is measured to the last block of it: 64 KiB are ours, the rest is data.
    let results = desk.measures(
        &place,
        "fits",
        &[
            "--rw", "write", "--bs", "64k", "--size", "960k", "--verify", "1",
        ],
    );
    assert_eq!(results.rows[0]["bytes"], (960 << 10).to_string());
    desk.refuses(
        &run(&["--rw", "write", "--bs", "512", "--size", "983552"]),
        "smaller --size",
    );
    place.assert_clean();
}

/// F31 and F32: what the medium's blocks forbid is refused while planning.
#[test]
#[ignore = "needs root and servers"]
fn blocks_that_do_not_fit_the_medium() {
    let of_4_kib = lab::loop_device(SIZE, &["--sector-size", "4096"]);
    let of_512 = lab::tgtd(SIZE, |_| {});
    let cases: &[(&Place, &[&str])] = &[
        (
            &of_4_kib,
            &["--rw", "randwrite", "--bs", "512", "--size", "1M"],
        ),
        (
            &of_4_kib,
            &["--rw", "randread", "--bs", "6144", "--size", "6M"],
        ),
        (
            &of_4_kib,
            &["--rw", "write", "--bs", "4k", "--size", "1049088"],
        ),
        (
            &of_4_kib,
            &["--rw", "randrw", "--bssplit", "4k/50:1k/50", "--size", "1M"],
        ),
        (
            &of_512,
            &["--rw", "write", "--bs", "1000", "--size", "1000000"],
        ),
        (&of_512, &["--rw", "read", "--bs", "4k", "--size", "30000"]),
        (&of_512, &["--rw", "randread", "--bs", "4k", "--size", "3k"]),
    ];
    for (place, workload) in cases {
        let desk = Desk::at(place);
        let ran =
            desk.nasgauge(&[&["run", "--target", &place.uri, "--out", "none"], *workload].concat());
        assert_eq!(ran.code, 2, "{workload:?}: {ran:?}");
        assert!(!desk.path("none").exists(), "no results of nothing");
        place.assert_clean();
    }
    let desk = Desk::at(&of_4_kib);
    desk.measures(
        &of_4_kib,
        "fits",
        &[
            "--rw",
            "randwrite",
            "--bs",
            "8k",
            "--size",
            "1M",
            "--verify",
            "1",
        ],
    );
    of_4_kib.assert_clean();
}

/// F40: a LUN that is not there is told with those that are.
#[test]
#[ignore = "needs root and servers"]
fn a_missing_lun_is_told_with_those_that_exist() {
    let place = lab::tgtd(SIZE, |_| {});
    let wrong = place.uri.replace(":real/1", ":real/9");
    let ran =
        Desk::at(&place).nasgauge(&["run", "--target", &wrong, "--rw", "write", "--size", "1M"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains('9') && ran.err.contains('1'), "{ran:?}");
    place.assert_clean();
}

/// F37 through the binary: random offsets really lie beyond 2^32 sectors.
#[test]
#[ignore = "needs root and servers"]
fn a_lun_of_3_tib_is_read_all_over() {
    let place = lab::tgtd(3 << 40, |_| {});
    let desk = Desk::at(&place);
    let line = [
        "--read-existing",
        "device",
        "--rw",
        "randread",
        "--bs",
        "4k",
        "--size",
        "3T",
        "--bytes",
        "4M",
    ];
    let results = desk.measures(&place, "wide", &line);
    assert_eq!(results.rows[0]["size_bytes"], "3298534883328");
    desk.measures(
        &place,
        "write",
        &[
            "--rw",
            "randwrite",
            "--bs",
            "4k",
            "--size",
            "4M",
            "--verify",
            "1",
        ],
    );
    let image = place.behind.as_deref().expect("here");
    assert_eq!(digest(image), digest_of_zeros(3 << 40));
}

fn digest_of_zeros(size: u64) -> u64 {
    let work = lab::sandboxed("zeros");
    digest(&lab::image(work.path(), size))
}
