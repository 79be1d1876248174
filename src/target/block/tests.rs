//! Block devices without any: sysfs and mount tables as directory trees.

use std::fs::{create_dir_all, write};
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use super::*;

/// A computer with a partitioned disk under LVM and an empty one.
fn tree() -> TempDir {
    let root = tempfile::tempdir().expect("a directory");
    let put = |path: &str, text: &[u8]| {
        let path = root.path().join(path);
        create_dir_all(path.parent().expect("a parent")).expect("made");
        write(path, text).expect("written");
    };
    let link = |number: &str, directory: &str| {
        create_dir_all(root.path().join("dev/block")).expect("made");
        symlink(
            format!("../../{directory}"),
            root.path().join("dev/block").join(number),
        )
        .expect("a link");
    };
    put("devices/pci/sda/dev", b"8:0\n");
    put("devices/pci/sda/ro", b"0\n");
    put("devices/pci/sda/queue/logical_block_size", b"512\n");
    put("devices/pci/sda/device/vendor", b"ATA     \n");
    put("devices/pci/sda/device/model", b"WDC WD40EFRX-68N\n");
    put(
        "devices/pci/sda/device/vpd_pg80",
        b"\0\x80\0\x10     WD-WCC4E123",
    );
    put("devices/pci/sda/device/wwid", b"naa.50014ee2\n");
    for (name, number, index) in [("sda1", "8:1", "1"), ("sda2", "8:2", "2")] {
        put(&format!("devices/pci/sda/{name}/dev"), number.as_bytes());
        put(
            &format!("devices/pci/sda/{name}/partition"),
            index.as_bytes(),
        );
        link(number, &format!("devices/pci/sda/{name}"));
    }
    put("devices/pci/sda/sda2/holders/dm-0/dm/name", b"vg-root\n");
    link("8:0", "devices/pci/sda");
    put("devices/nvme/nvme0n1/dev", b"259:0\n");
    put("devices/nvme/nvme0n1/ro", b"1\n");
    put("devices/nvme/nvme0n1/wwid", b"eui.0025\n");
    put("devices/nvme/nvme0n1/device/serial", b"S4EV   \n");
    put("devices/nvme/nvme0n1/device/model", b"Samsung SSD 970\n");
    link("259:0", "devices/nvme/nvme0n1");
    put("devices/virtual/loop0/dev", b"7:0\n");
    put(
        "devices/virtual/loop0/loop/backing_file",
        b"/srv/disk.img\n",
    );
    link("7:0", "devices/virtual/loop0");
    put("devices/virtual/zram0/dev", b"252:0\n");
    link("252:0", "devices/virtual/zram0");
    root
}

fn disk(root: &TempDir, number: (u32, u32)) -> Disk {
    Disk::under(root.path(), number).expect("it is in the tree")
}

#[test]
fn serials_stand_for_one_range_of_blocks() {
    let root = tree();
    let serial = |number| identity::serial(&disk(&root, number));
    assert_eq!(serial((8, 0)), "WD-WCC4E123");
    assert_eq!(serial((8, 2)), "WD-WCC4E123-part2");
    assert_eq!(serial((259, 0)), "S4EV");
    assert_eq!(serial((7, 0)), "loop:/srv/disk.img");
    assert_eq!(serial((252, 0)), "", "none is none");
}

#[test]
fn models_and_protection_are_read() {
    let root = tree();
    let model = |number| identity::model(&disk(&root, number));
    assert_eq!(model((8, 0)), "WDC WD40EFRX-68N");
    assert_eq!(model((8, 1)), "partition 1 of WDC WD40EFRX-68N");
    assert_eq!(model((7, 0)), "loop device");
    assert!(identity::write_protected(&disk(&root, (259, 0))));
    assert!(!identity::write_protected(&disk(&root, (8, 0))));
    assert_eq!(disk(&root, (8, 2)).logical_block(), Some(512), "the disk's");
}

#[test]
fn a_disk_is_needed_when_a_part_is_and_a_part_when_the_disk_is() {
    let root = tree();
    let evidence = Evidence {
        mounts: vec![((8, 1), "/boot".to_owned()), ((8, 3), "/other".to_owned())],
        swaps: vec![((8, 0), "/dev/sda".to_owned())],
        loops: vec![((259, 0), "loop3".to_owned())],
    };
    let reasons = |number| holders::reasons(&disk(&root, number), &evidence);
    assert_eq!(
        reasons((8, 0)),
        [
            "sda has partitions: sda1, sda2",
            "sda is swap space in use",
            "sda1 is mounted at /boot",
            "sda2 is part of dm-0 (vg-root)",
        ]
    );
    assert_eq!(
        reasons((8, 2)),
        ["sda is swap space in use", "sda2 is part of dm-0 (vg-root)"],
        "a neighbour's mount does not matter"
    );
    assert_eq!(
        reasons((259, 0)),
        ["nvme0n1 lies under the loop device loop3"]
    );
    assert!(reasons((252, 0)).is_empty());
}

#[test]
fn options_and_paths_are_checked() {
    let check = |uri: &str| crate::target::check(&TargetSpec::parse(uri).expect(uri)).map(drop);
    check("block:/dev/sdb?engine=psync&direct=0").expect("fine");
    for (uri, word) in [
        ("block:sdb", "full path"),
        ("block:", "full path"),
        ("block:/dev/sdb?engine=mmap", "psync, io_uring"),
        ("block:/dev/sdb?direct=maybe", "neither 0 nor 1"),
    ] {
        let error = check(uri).expect_err(uri);
        assert!(
            error.before_anything() && error.to_string().contains(word),
            "{error}"
        );
    }
}

#[test]
fn what_is_no_block_device_is_refused() {
    let find = |path: &str| {
        let spec = TargetSpec::parse(&format!("block:{path}")).expect(path);
        Node::find(&spec).map(drop).map_err(|error| error.kind)
    };
    assert_eq!(find("/dev/null"), Err(Kind::Usage));
    assert_eq!(find("/"), Err(Kind::Usage));
    assert_eq!(find("/dev/no-such-device"), Err(Kind::NotFound));
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path: &Path = file.path();
    assert_eq!(find(&path.display().to_string()), Err(Kind::Usage));
}
