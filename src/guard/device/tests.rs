//! The guard of devices against one in memory that counts, checks and fails on order.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::error::{Kind, Phase};
use crate::guard::{self, Site, test_claim};
use crate::payload::{Content, SECTOR};
use crate::target::{Control, Facts};

/// What was done to the device.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Did {
    Write(u64, usize),
    Flush,
}

struct Medium {
    bytes: Vec<u8>,
    identity: Identity,
    holders: Vec<String>,
    did: Vec<Did>,
    calls: usize,
    /// This call fails, having done its work or not.
    fault: Option<(usize, bool)>,
}

#[derive(Clone)]
struct Mock(Rc<RefCell<Medium>>);

impl Mock {
    fn new(capacity: usize, block: u32) -> Self {
        Self(Rc::new(RefCell::new(Medium {
            bytes: vec![0; capacity],
            identity: Identity {
                serial: "S123".into(),
                model: "disk".into(),
                capacity: capacity as u64,
                block,
                write_protected: false,
            },
            holders: Vec::new(),
            did: Vec::new(),
            calls: 0,
            fault: None,
        })))
    }

    fn control(&self) -> Control {
        Control::Device(Box::new(self.clone()))
    }

    fn set(&self, offset: usize, bytes: &[u8]) {
        self.0.borrow_mut().bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn blank(&self) -> bool {
        self.0.borrow().bytes.iter().all(|byte| *byte == 0)
    }

    fn untouched(&self) -> bool {
        self.0.borrow().did.is_empty()
    }

    fn call(&self, act: impl FnOnce(&mut Medium)) -> Result<()> {
        let mut medium = self.0.borrow_mut();
        let call = medium.calls;
        medium.calls += 1;
        match medium.fault {
            Some((at, after)) if at == call => {
                if after {
                    act(&mut medium);
                }
                Err(Error::new(Phase::Io, Kind::TimedOut, "as ordered"))
            }
            _ => {
                act(&mut medium);
                Ok(())
            }
        }
    }
}

fn range(medium: &Medium, offset: u64, len: usize) -> std::ops::Range<usize> {
    let block = u64::from(medium.identity.block);
    assert!(
        offset.is_multiple_of(block) && (len as u64).is_multiple_of(block),
        "{len} bytes at {offset} are not whole blocks"
    );
    let end = offset as usize + len;
    assert!(end <= medium.bytes.len(), "beyond the end");
    offset as usize..end
}

impl Device for Mock {
    fn facts(&mut self) -> Result<Facts> {
        Ok(Facts::default())
    }

    fn identity(&mut self) -> Result<Identity> {
        self.call(|_| ())?;
        Ok(self.0.borrow().identity.clone())
    }

    fn holders(&mut self) -> Result<Vec<String>> {
        self.call(|_| ())?;
        Ok(self.0.borrow().holders.clone())
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.call(|medium| {
            buffer.copy_from_slice(&medium.bytes[range(medium, offset, buffer.len())]);
        })
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.call(|medium| {
            assert!(
                !medium.identity.write_protected,
                "a write to a protected device"
            );
            let range = range(medium, offset, data.len());
            medium.bytes[range].copy_from_slice(data);
            medium.did.push(Did::Write(offset, data.len()));
        })
    }

    fn flush(&mut self) -> Result<()> {
        self.call(|medium| medium.did.push(Did::Flush))
    }
}

const SMALL: usize = 4 << 20;

fn examine_as(mock: &Mock, claim: Claim) -> Result<Site> {
    Site::examine(mock.control(), claim)
}

fn refused(mock: &Mock, claim: Claim, word: &str) {
    let Err(error) = examine_as(mock, claim) else {
        panic!("not refused: {word}");
    };
    assert!(error.before_anything(), "{error:?}");
    assert!(error.message.contains(word), "{word}: {error}");
    assert!(mock.untouched(), "{word}");
}

/// Test data as the engine writes it, `len` bytes from the start of the data.
fn lay(mock: &Mock, object: &Object, len: usize, generation: u64) {
    let mut data = vec![0; len];
    Payload::new(object.content.clone()).fill(&mut data, 0, generation);
    mock.set(DATA_BASE as usize, &data);
}

#[test]
fn every_known_signature_is_refused_by_name() {
    for (offset, magic, word) in [
        (512, &b"EFI PART"[..], "GPT"),
        (4096, b"EFI PART", "GPT"),
        (510, &[0x55, 0xaa], "partition table"),
        (1080, &[0x53, 0xef], "ext2/3/4"),
        (0, b"XFSB", "XFS"),
        (65600, b"_BHRfS_M", "btrfs"),
        (512, b"LABELONE", "LVM"),
        (0, b"LABELONE", "LVM"),
        (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "RAID"),
        (0, &[0xfc, 0x4e, 0x2b, 0xa9], "RAID"),
        (0, b"LUKS\xba\xbe", "LUKS"),
        (4086, b"SWAPSPACE2", "swap"),
        (3, b"NTFS    ", "NTFS"),
        (3, b"EXFAT   ", "exFAT"),
        (1024, b"H+\0\x04", "HFS+"),
        (32, b"NXSB", "APFS"),
        (1024, &[0x10, 0x20, 0xf5, 0xf2], "F2FS"),
        (3, b"-FVE-FS-", "BitLocker"),
    ] {
        let mock = Mock::new(SMALL, 512);
        mock.set(offset, magic);
        refused(&mock, test_claim(), word);
        refused(&mock, test_claim(), "--destroy S123");
    }
}

#[test]
fn any_foreign_byte_in_the_first_or_last_mebibyte_is_refused() {
    // A capacity that is no multiple of 4096: the last sectors hold the copy of a GPT.
    let capacity = SMALL + 7 * 512;
    let mebibyte = 1 << 20;
    for at in [
        0,
        4095,
        4096,
        DATA_BASE as usize - 1,
        DATA_BASE as usize,
        mebibyte - 1,
        capacity - mebibyte,
        capacity - 33 * 512,
        capacity - 512,
        capacity - 1,
    ] {
        let mock = Mock::new(capacity, 512);
        mock.set(at, &[1]);
        refused(&mock, test_claim(), "not blank");
    }
    let full = Mock::new(16 * mebibyte, 512);
    full.set(mebibyte, &vec![9; 14 * mebibyte]);
    refused(&full, test_claim(), "there is data at offset");
}

#[test]
fn a_blank_device_is_entered_and_left_blank_with_the_manifest_last() {
    for block in [512, 4096] {
        let mock = Mock::new(SMALL, block);
        let mut site = examine_as(&mock, test_claim()).expect("blank");
        assert!(mock.untouched(), "looking writes nothing");
        assert_eq!(site.object().base, DATA_BASE);
        site.enter().expect("entered");
        assert_eq!(
            mock.0.borrow().did,
            [Did::Write(0, 4096), Did::Flush],
            "the manifest comes first"
        );
        let found = guard::leftovers(&mut mock.control()).expect("readable");
        assert_eq!(found[0].manifest.run_id, test_claim().run_id);
        lay(&mock, &site.object().clone(), 1 << 20, 3);
        site.written_to(1 << 20);
        mock.0.borrow_mut().did.clear();
        assert_eq!(site.leave(), Ok(None));
        assert!(mock.blank());
        let did = mock.0.borrow().did.clone();
        assert_eq!(
            did,
            [
                Did::Write(DATA_BASE, 1 << 20),
                Did::Flush,
                Did::Write(0, 4096),
                Did::Flush
            ],
            "data is gone for sure before the manifest goes"
        );
        assert_eq!(site.leave(), Ok(None), "a second time does nothing");
    }
}

#[test]
fn after_a_fault_at_any_call_the_device_can_be_cleaned() {
    for after in [false, true] {
        for at in 0.. {
            let mock = Mock::new(SMALL, 512);
            mock.0.borrow_mut().fault = Some((at, after));
            let told = examine_as(&mock, test_claim()).and_then(|mut site| {
                let entered = site.enter();
                if entered.is_ok() {
                    lay(&mock, &site.object().clone(), 700_416, 3);
                    site.written_to(1 << 20);
                }
                entered.and(site.leave())
            });
            let reached = mock.0.borrow().calls > at;
            mock.0.borrow_mut().fault = None;
            let mut control = mock.control();
            for leftover in guard::leftovers(&mut control).expect("readable") {
                guard::clean(&mut control, &leftover).expect("ours");
            }
            assert!(mock.blank(), "fault at {at}, after={after}: {told:?}");
            if !reached {
                assert!(at > 70 && told.is_ok());
                break;
            }
            assert!(told.is_err(), "a fault at {at} was not told");
        }
    }
}

#[test]
fn what_an_interrupted_run_left_is_taken_over_with_its_key() {
    let mock = Mock::new(SMALL, 512);
    let mut site = examine_as(&mock, test_claim()).expect("blank");
    site.enter().expect("entered");
    lay(&mock, &site.object().clone(), 1 << 20, 9);
    drop(site);

    let other = Content {
        key: 99,
        ..test_claim().content
    };
    let smaller = Claim {
        content: other,
        size: 64 << 10,
        ..test_claim()
    };
    let mut site = examine_as(&mock, smaller.clone()).expect("ours");
    assert_eq!(site.object().content.key, 5, "the old key");
    site.enter().expect("entered");
    assert_eq!(site.leave(), Ok(None));
    assert!(mock.blank(), "the older run's data is gone too");

    // With a foreign sector among ours it is refused, by a new run and by clean.
    let mut site = examine_as(&mock, test_claim()).expect("blank");
    site.enter().expect("entered");
    lay(&mock, &site.object().clone(), 1 << 20, 9);
    drop(site);
    mock.set(DATA_BASE as usize + 10 * SECTOR, &[7; SECTOR]);
    mock.0.borrow_mut().did.clear();
    refused(&mock, test_claim(), "there is data at offset 70656");
    let mut control = mock.control();
    let found = guard::leftovers(&mut control).expect("readable");
    assert!(
        guard::clean(&mut control, &found[0])
            .expect_err("foreign")
            .before_anything()
    );
    assert!(mock.untouched());
}

#[test]
fn leftovers_of_another_payload_are_cleaned_first() {
    let mock = Mock::new(SMALL, 512);
    let mut site = examine_as(&mock, test_claim()).expect("blank");
    site.enter().expect("entered");
    mock.0.borrow_mut().did.clear();
    let compressed = Content {
        compress_percent: 50,
        ..test_claim().content
    };
    let claim = Claim {
        content: compressed,
        ..test_claim()
    };
    refused(&mock, claim, "nasgauge clean");
}

#[test]
fn destruction_needs_the_exact_serial_and_overrides_nothing_else() {
    let full = || {
        let mock = Mock::new(SMALL, 512);
        mock.set(0, &[0xee; 8192]);
        mock
    };
    let claim = |serial: &str| Claim {
        destroy: Some(serial.into()),
        ..test_claim()
    };
    for wrong in ["", "S12", "S1234", "s123", " S123"] {
        refused(&full(), claim(wrong), "nothing is written");
        refused(&Mock::new(SMALL, 512), claim(wrong), "nothing is written");
    }
    let nameless = full();
    nameless.0.borrow_mut().identity.serial.clear();
    refused(&nameless, claim(""), "nothing is written");
    refused(&nameless, test_claim(), "no serial number");

    let held = full();
    held.0.borrow_mut().holders = vec!["mounted at /".into()];
    refused(&held, claim("S123"), "mounted at /");
    refused(&held, test_claim(), "mounted at /");
    let protected = full();
    protected.0.borrow_mut().identity.write_protected = true;
    refused(&protected, claim("S123"), "write-protected");

    let mock = full();
    let mut site = examine_as(&mock, claim("S123")).expect("as asked");
    assert!(mock.untouched());
    assert!(site.notes.iter().any(|note| note.contains("S123")));
    site.enter().expect("entered");
    assert_eq!(site.leave(), Ok(None));
}

#[test]
fn a_device_that_changed_since_it_was_examined_is_not_written() {
    type Change = fn(&mut Medium);
    let changes: [(Change, &str); 5] = [
        (|medium| medium.identity.serial = "S124".into(), "changed"),
        (|medium| medium.identity.capacity -= 512, "changed"),
        (|medium| medium.identity.block = 4096, "changed"),
        (|medium| medium.holders = vec!["swap".into()], "swap"),
        (|medium| medium.bytes[0..4].copy_from_slice(b"XFSB"), "XFS"),
    ];
    for (change, word) in changes {
        let mock = Mock::new(SMALL, 512);
        let mut site = examine_as(&mock, test_claim()).expect("blank");
        change(&mut mock.0.borrow_mut());
        let error = site.enter().expect_err(word);
        assert!(
            error.before_anything() && error.message.contains(word),
            "{error}"
        );
        assert_eq!(site.leave(), Ok(None), "nothing was made");
        assert!(mock.untouched(), "{word}");
    }
}

#[test]
fn clean_writes_only_what_it_was_shown() {
    let mock = Mock::new(SMALL, 512);
    let mut site = examine_as(&mock, test_claim()).expect("blank");
    site.enter().expect("entered");
    let mut control = mock.control();
    let shown = guard::leftovers(&mut control).expect("readable").remove(0);
    mock.0.borrow_mut().did.clear();
    mock.0.borrow_mut().holders = vec!["mounted".into()];
    assert!(
        guard::clean(&mut control, &shown)
            .expect_err("held")
            .message
            .contains("mounted")
    );
    mock.0.borrow_mut().holders.clear();
    let other = Leftover {
        manifest: Manifest {
            run_id: "another".into(),
            ..shown.manifest.clone()
        },
        ..shown.clone()
    };
    assert!(
        guard::clean(&mut control, &other)
            .expect_err("another")
            .before_anything()
    );
    mock.set(0, &[0; 4096]);
    assert!(
        guard::clean(&mut control, &shown).is_err(),
        "no manifest any more"
    );
    assert!(mock.untouched());
}

#[test]
fn a_manifest_of_any_size_stays_inside_the_device() {
    let mock = Mock::new(SMALL, 512);
    let manifest = Manifest::of(&test_claim(), &test_claim().content, u64::MAX);
    mock.set(0, &manifest.bytes().expect("bytes"));
    let mut control = mock.control();
    let found = guard::leftovers(&mut control).expect("readable");
    guard::clean(&mut control, &found[0]).expect("blank but for the manifest");
    assert!(mock.blank());
}

#[test]
fn reading_writes_nothing_whatever_is_there() {
    let mock = Mock::new(SMALL, 512);
    mock.set(0, &vec![0xab; SMALL]);
    mock.0.borrow_mut().holders = vec!["mounted".into()];
    mock.0.borrow_mut().identity.write_protected = true;
    let claim = Claim {
        read_existing: Some("device".into()),
        writes: false,
        ..test_claim()
    };
    let mut site = examine_as(&mock, claim.clone()).expect("reading is always allowed");
    assert!(site.object().foreign && site.object().laid && site.object().base == 0);
    site.enter().expect("nothing to write");
    assert_eq!(site.leave(), Ok(None));
    assert!(mock.untouched());
    refused(
        &mock,
        Claim {
            writes: true,
            ..claim
        },
        "only be read",
    );
}

#[test]
fn a_kept_device_keeps_its_data_until_clean() {
    let mock = Mock::new(SMALL, 4096);
    let claim = Claim {
        keep: true,
        ..test_claim()
    };
    let mut site = examine_as(&mock, claim).expect("blank");
    site.enter().expect("entered");
    lay(&mock, &site.object().clone(), 1 << 20, 0);
    site.written_to(1 << 20);
    let told = site.leave().expect("left").expect("a sentence");
    assert!(told.contains("1 MiB") && told.contains("clean"), "{told}");
    let mut control = mock.control();
    let found = guard::leftovers(&mut control).expect("readable");
    guard::clean(&mut control, &found[0]).expect("ours");
    assert!(mock.blank());
}

#[test]
fn tiny_and_odd_devices_are_refused_or_used_without_going_beyond() {
    for block in [512u32, 4096] {
        for capacity in [0, 1, 8, 9, 16, 17, 128, 129, 136, 257, 2047, 2049, 4095] {
            let capacity = capacity * block as usize;
            for size in [0, u64::from(block), 64 << 10, 1 << 20] {
                let mock = Mock::new(capacity, block);
                let claim = Claim {
                    size,
                    ..test_claim()
                };
                let Ok(mut site) = examine_as(&mock, claim) else {
                    assert!(mock.untouched());
                    assert!(capacity < (size + DATA_BASE) as usize || capacity == 0);
                    continue;
                };
                assert!(capacity as u64 >= size + DATA_BASE);
                site.enter().expect("entered");
                lay(&mock, &site.object().clone(), size as usize, 1);
                site.written_to(size);
                assert_eq!(site.leave(), Ok(None));
                assert!(mock.blank(), "{size} on {capacity}");
            }
        }
    }
}
