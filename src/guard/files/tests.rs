//! The guard of directories against one in memory that fails on order.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::*;
use crate::error::Phase;
use crate::guard::{self, Site, test_claim};
use crate::payload::{Content, Fill};
use crate::target::{Control, Entry, Facts};

/// A directory tree: None is a directory, Some a file.
type Tree = BTreeMap<String, Option<Vec<u8>>>;

/// A fault at a call.
#[derive(Debug, Clone, Copy)]
struct Fault {
    /// The call, from 0.
    at: usize,
    /// Whether what was asked for happens all the same: an answer that got lost.
    after: bool,
    /// Whether every later call fails too.
    lasting: bool,
    kind: Kind,
}

#[derive(Default)]
struct Disk {
    tree: Tree,
    calls: usize,
    fault: Option<Fault>,
    free: Option<u64>,
    free_files: Option<u64>,
    unwritten: Option<u64>,
    /// What another program makes just before a run would.
    racing: Option<String>,
    /// What a list shows besides.
    shown: Vec<String>,
}

#[derive(Clone, Default)]
struct Mock(Rc<RefCell<Disk>>);

fn err(kind: Kind) -> Error {
    Error::new(Phase::Open, kind, "as ordered")
}

impl Mock {
    fn with(entries: &[(&str, Option<&str>)]) -> Self {
        let mock = Self::default();
        for (path, content) in entries {
            let content = content.map(|text| text.as_bytes().to_vec());
            mock.0.borrow_mut().tree.insert((*path).into(), content);
        }
        mock
    }

    fn control(&self) -> Control {
        Control::Files(Box::new(self.clone()))
    }

    fn tree(&self) -> Tree {
        self.0.borrow().tree.clone()
    }

    /// Does `act` unless a fault is due before it, and reports one due after it.
    fn call<T>(&self, act: impl FnOnce(&mut Disk) -> Result<T>) -> Result<T> {
        let mut disk = self.0.borrow_mut();
        let call = disk.calls;
        disk.calls += 1;
        let due = disk
            .fault
            .filter(|fault| call == fault.at || (fault.lasting && call > fault.at));
        match due {
            Some(fault) if fault.after => {
                let _ = act(&mut disk);
                Err(err(fault.kind))
            }
            Some(fault) => Err(err(fault.kind)),
            None => act(&mut disk),
        }
    }
}

fn parent_exists(tree: &Tree, path: &str) -> bool {
    path.rsplit_once('/')
        .is_none_or(|(parent, _)| tree.get(parent) == Some(&None))
}

fn make(disk: &mut Disk, path: &str, content: Option<&[u8]>) -> Result<()> {
    assert!(
        !path.split('/').any(|part| matches!(part, "" | "." | "..")),
        "{path}"
    );
    if disk.racing.as_deref() == Some(path) {
        disk.tree.insert(path.into(), Some(b"theirs".to_vec()));
    }
    if disk.tree.contains_key(path) {
        return Err(err(Kind::Exists));
    }
    if !parent_exists(&disk.tree, path) {
        return Err(err(Kind::NotFound));
    }
    disk.tree.insert(path.into(), content.map(<[u8]>::to_vec));
    Ok(())
}

impl Files for Mock {
    fn facts(&mut self) -> Result<Facts> {
        self.call(|disk| {
            Ok(Facts {
                free_bytes: disk.free,
                free_files: disk.free_files,
                ..Facts::default()
            })
        })
    }

    fn list(&mut self, directory: &str) -> Result<Vec<Entry>> {
        self.call(|disk| {
            let within = |path: &String| match directory {
                "" => Some(path.clone()),
                _ => Some(path.strip_prefix(directory)?.strip_prefix('/')?.to_owned()),
            };
            let direct = disk
                .tree
                .iter()
                .filter_map(|(path, node)| Some((within(path)?, node)))
                .filter(|(name, _)| !name.contains('/'))
                .map(|(name, node)| Entry {
                    name,
                    directory: node.is_none(),
                });
            let shown = disk.shown.iter().map(|name| Entry {
                name: name.clone(),
                directory: true,
            });
            Ok(direct.chain(shown).collect())
        })
    }

    fn make_directory(&mut self, path: &str) -> Result<()> {
        self.call(|disk| make(disk, path, None))
    }

    fn create(&mut self, path: &str) -> Result<()> {
        self.call(|disk| make(disk, path, Some(b"")))
    }

    fn put(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.call(|disk| make(disk, path, Some(content)))
    }

    fn get(&mut self, path: &str, limit: usize) -> Result<Vec<u8>> {
        self.call(|disk| match disk.tree.get(path) {
            Some(Some(content)) => Ok(content[..content.len().min(limit)].to_vec()),
            _ => Err(err(Kind::NotFound)),
        })
    }

    fn size(&mut self, path: &str) -> Result<u64> {
        self.call(|disk| match disk.tree.get(path) {
            Some(Some(content)) => Ok(content.len() as u64),
            _ => Err(err(Kind::NotFound)),
        })
    }

    fn unwritten(&mut self, _path: &str) -> Result<Option<u64>> {
        self.call(|disk| Ok(disk.unwritten))
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        self.call(|disk| match disk.tree.get(path) {
            Some(Some(_)) => {
                disk.tree.remove(path);
                Ok(())
            }
            Some(None) => Err(err(Kind::Other)),
            None => Err(err(Kind::NotFound)),
        })
    }

    fn remove_directory(&mut self, path: &str) -> Result<()> {
        self.call(|disk| {
            let inside = format!("{path}/");
            match disk.tree.get(path) {
                Some(None) if disk.tree.keys().any(|key| key.starts_with(&inside)) => {
                    Err(err(Kind::Other))
                }
                Some(None) => {
                    disk.tree.remove(path);
                    Ok(())
                }
                _ => Err(err(Kind::NotFound)),
            }
        })
    }
}

const OURS: &str = "nasgauge-20261130-120000-test";

/// A user's directory, with names that look like ours.
fn users() -> Mock {
    Mock::with(&[
        ("letters.txt", Some("dear")),
        ("data.bin", Some("mine")),
        ("nasgauge.json", Some("{}")),
        ("nasgauge-mine", None),
        ("nasgauge-mine/data.bin", Some("precious")),
        ("nasgauge-forged", None),
        (
            "nasgauge-forged/nasgauge.json",
            Some("{\"nasgauge\":\"other\"}"),
        ),
        ("nasgauge-file", Some("not a directory")),
    ])
}

fn clean_all(mock: &Mock) {
    let mut control = mock.control();
    for leftover in guard::leftovers(&mut control).expect("listed") {
        guard::clean(&mut control, &leftover).expect("cleaned");
    }
}

/// Lays small files, as a run's workers do: each third has its second name.
fn small(mock: &Mock, count: u32) {
    let mut name = String::new();
    for number in 0..count {
        names::make(&mut name, &test_claim().run_id, number, number % 3 == 0);
        let path = format!("{OURS}/{name}");
        mock.0
            .borrow_mut()
            .tree
            .insert(path, Some(b"small".to_vec()));
    }
}

fn small_claim() -> Claim {
    Claim {
        size: 0,
        small_files: 4,
        small_room: 4 * 4096,
        ..test_claim()
    }
}

/// A whole run on the mock: what `run` does with a site. Err from any step; leaves in any case.
fn story(mock: &Mock, claim: &Claim) -> Result<Option<String>> {
    let mut site = Site::examine(mock.control(), claim.clone())?;
    let entered = site.enter().and_then(|()| {
        if let Some(Some(data)) = mock.0.borrow_mut().tree.get_mut(&site.object().name) {
            data.resize(claim.size as usize, 1);
        }
        small(mock, claim.small_files);
        site.stored_size()?;
        site.laid()
    });
    let left = site.leave();
    entered.and(left)
}

#[test]
fn what_a_run_makes_it_removes_and_nothing_else() {
    let mock = users();
    let before = mock.tree();
    let mut site = Site::examine(mock.control(), test_claim()).expect("a fine place");
    assert_eq!(mock.tree(), before, "nothing is written by looking");
    assert_eq!(site.object().name, format!("{OURS}/data.bin"));
    site.enter().expect("entered");
    let made: Vec<String> = mock
        .tree()
        .keys()
        .filter(|path| !before.contains_key(*path))
        .cloned()
        .collect();
    let file = |name: &str| format!("{OURS}/{name}");
    assert_eq!(
        made,
        [OURS.to_owned(), file("data.bin"), file("nasgauge.json")]
    );
    site.laid().expect("noted");
    assert_eq!(site.leave(), Ok(None));
    assert_eq!(mock.tree(), before);
    assert_eq!(site.leave(), Ok(None), "a second time does nothing");
}

#[test]
fn after_any_single_fault_nothing_stays_or_clean_removes_it() {
    let faults = [
        (false, Kind::TimedOut),
        (false, Kind::NoSpace),
        (false, Kind::Denied),
        (false, Kind::Other),
        (true, Kind::TimedOut),
        (true, Kind::Gone),
    ];
    let kept = Claim {
        keep: true,
        ..test_claim()
    };
    for claim in [test_claim(), kept, small_claim()] {
        let keep = claim.keep;
        for (after, kind) in faults {
            for at in 0.. {
                let mock = users();
                let before = mock.tree();
                let fault = Fault {
                    at,
                    after,
                    lasting: false,
                    kind,
                };
                mock.0.borrow_mut().fault = Some(fault);
                let told = story(&mock, &claim);
                let reached = mock.0.borrow().calls > at;
                mock.0.borrow_mut().fault = None;
                if told.is_ok() && !keep && reached && !after {
                    // Only a fault that was made good by another way may stay untold.
                    assert_eq!(mock.tree(), before, "{fault:?}");
                }
                clean_all(&mock);
                let mut rest = mock.tree();
                if told.is_err()
                    && kind == Kind::TimedOut
                    && !after
                    && rest.get(OURS) == Some(&None)
                {
                    // The directory, empty by then: a silent server is not asked again, each time for a timeout.
                    rest.remove(OURS);
                }
                assert_eq!(rest, before, "{fault:?} keep={keep}");
                if !reached {
                    assert!(at > 8, "the story is shorter than thought: {at}");
                    break;
                }
            }
        }
    }
}

#[test]
fn a_server_lost_at_any_point_leaves_at_most_an_empty_directory_beside_what_clean_removes() {
    for (at, claim) in (0..30).flat_map(|at| [(at, test_claim()), (at, small_claim())]) {
        let mock = users();
        let mut before = mock.tree();
        mock.0.borrow_mut().fault = Some(Fault {
            at,
            after: false,
            lasting: true,
            kind: Kind::Gone,
        });
        let _ = story(&mock, &claim);
        mock.0.borrow_mut().fault = None;
        clean_all(&mock);
        if mock.tree().contains_key(OURS) {
            before.insert(OURS.into(), None);
        }
        assert_eq!(mock.tree(), before, "lost at call {at}");
    }
}

#[test]
fn a_directory_of_the_runs_name_that_was_there_is_not_touched() {
    let mock = Mock::with(&[
        (OURS, None),
        ("nasgauge-20261130-120000-test/data.bin", Some("theirs")),
    ]);
    let before = mock.tree();
    let error = story(&mock, &test_claim()).expect_err("it is there already");
    assert_eq!(error.kind, Kind::Exists);
    assert_eq!(mock.tree(), before);
}

#[test]
fn what_others_put_into_our_directory_stays() {
    for (name, racing) in [
        ("notes.txt", false),
        ("data.bin", true),
        ("laid.json", true),
    ] {
        let mock = users();
        let path = format!("{OURS}/{name}");
        if racing {
            mock.0.borrow_mut().racing = Some(path.clone());
        }
        let claim = Claim {
            keep: name == "laid.json",
            ..test_claim()
        };
        let mut site = Site::examine(mock.control(), claim).expect("a fine place");
        let entered = site.enter().and_then(|()| site.laid());
        assert_eq!(entered.is_err(), racing, "{name}: {entered:?}");
        if !racing {
            mock.clone().put(&path, b"theirs").expect("put");
        }
        assert!(site.leave().is_err(), "{name}");
        let theirs = Some(Some(b"theirs".to_vec()));
        assert_eq!(mock.tree().get(&path).cloned(), theirs, "{name}");
        let mut control = mock.control();
        for leftover in guard::leftovers(&mut control).expect("listed") {
            let error = guard::clean(&mut control, &leftover).expect_err("theirs is in it");
            assert!(error.before_anything() && error.message.contains(name));
        }
        assert_eq!(mock.tree().get(&path).cloned(), theirs, "{name}");
    }
}

#[test]
fn clean_refuses_what_is_not_surely_ours() {
    let mock = users();
    let manifest = Manifest::of(&test_claim(), &test_claim().content, 5);
    {
        let mut disk = mock.0.borrow_mut();
        let bytes = manifest.bytes().expect("bytes");
        disk.tree.insert("other".into(), None);
        disk.tree
            .insert("other/nasgauge.json".into(), Some(bytes.clone()));
        disk.tree.insert("nasgauge-full".into(), None);
        disk.tree
            .insert("nasgauge-full/nasgauge.json".into(), Some(bytes));
        disk.tree
            .insert("nasgauge-full/data.bin".into(), Some(vec![1]));
        disk.tree
            .insert("nasgauge-full/thesis.doc".into(), Some(vec![2]));
        // What a hostile server may list.
        disk.shown = vec![
            "nasgauge-x/../other".into(),
            "nasgauge-/..".into(),
            "nasgauge-\0".into(),
            "nasgauge-".into(),
        ];
    }
    let before = mock.tree();
    let mut control = mock.control();
    let found = guard::leftovers(&mut control).expect("listed");
    let names: Vec<&str> = found
        .iter()
        .map(|leftover| leftover.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["nasgauge-full"],
        "without a manifest of ours it is not ours"
    );
    for name in [
        "nasgauge-full",
        "nasgauge-mine",
        "nasgauge-forged",
        "nasgauge-file",
        "nasgauge-gone",
        "other",
        "nasgauge-x/../other",
        "nasgauge-full/..",
        "../nasgauge-full",
        "..",
        "",
    ] {
        let leftover = Leftover {
            name: name.into(),
            manifest: manifest.clone(),
        };
        let error = guard::clean(&mut control, &leftover).expect_err(name);
        assert!(error.before_anything(), "{name}: {error:?}");
        assert_eq!(mock.tree(), before, "{name}");
    }
}

/// A directory that an earlier run kept.
fn prepared(size: u64, content: &Content, stored: usize, laid: bool) -> Mock {
    let claim = Claim {
        size,
        ..test_claim()
    };
    let bytes = Manifest::of(&claim, content, size).bytes().expect("bytes");
    let mock = Mock::default();
    let mut disk = mock.0.borrow_mut();
    disk.tree.insert("nasgauge-old".into(), None);
    disk.tree
        .insert("nasgauge-old/nasgauge.json".into(), Some(bytes.clone()));
    disk.tree
        .insert("nasgauge-old/data.bin".into(), Some(vec![1; stored]));
    if laid {
        disk.tree
            .insert("nasgauge-old/laid.json".into(), Some(bytes));
    }
    drop(disk);
    mock
}

#[test]
fn a_prepared_file_is_taken_only_with_its_own_manifest_size_and_kind() {
    let content = Content {
        key: 77,
        ..test_claim().content
    };
    let zero = Content {
        fill: Fill::Zero,
        ..content.clone()
    };
    let compressed = Content {
        compress_percent: 50,
        ..content.clone()
    };
    let size = test_claim().size;
    let stored = size as usize;
    for (mock, taken, why) in [
        (
            prepared(size, &content, stored, true),
            true,
            "as it should be",
        ),
        (
            prepared(size * 2, &content, stored * 2, true),
            true,
            "larger",
        ),
        (
            prepared(size, &content, stored, false),
            false,
            "never finished",
        ),
        (
            prepared(size, &content, stored - 1, true),
            false,
            "truncated since",
        ),
        (
            prepared(size / 2, &content, stored, true),
            false,
            "laid smaller",
        ),
        (prepared(size, &zero, stored, true), false, "zeros"),
        (
            prepared(size, &compressed, stored, true),
            false,
            "compressible",
        ),
    ] {
        let before = mock.tree();
        let mut place = Site::examine(mock.control(), test_claim()).expect(why);
        assert_eq!(place.object().laid, taken, "{why}");
        if taken {
            assert_eq!(place.object().content.key, 77, "its own key");
            assert_eq!(place.object().name, "nasgauge-old/data.bin");
            place.enter().expect("nothing to make");
            place.laid().expect("nothing to note");
            assert_eq!(place.leave(), Ok(None));
        }
        assert_eq!(mock.tree(), before, "{why}");
    }
    let gone = prepared(size, &content, stored, true);
    gone.0.borrow_mut().tree.remove("nasgauge-old/data.bin");
    let fresh = Site::examine(gone.control(), test_claim()).expect("a new one is laid");
    assert!(!fresh.object().laid);
}

#[test]
fn a_run_that_keeps_its_file_prepares_the_next() {
    let mock = users();
    let claim = Claim {
        keep: true,
        ..test_claim()
    };
    let told = story(&mock, &claim)
        .expect("a good run")
        .expect("a sentence");
    assert!(told.contains(OURS), "{told}");
    let site = Site::examine(mock.control(), test_claim()).expect("a fine place");
    assert!(site.object().laid);
    assert_eq!(site.object().content.key, claim.content.key);
    clean_all(&mock);
    assert_eq!(mock.tree(), users().tree());
}

#[test]
fn small_files_are_told_from_all_else_in_our_directory() {
    let mock = users();
    let before = mock.tree();
    let mut site = Site::examine(mock.control(), small_claim()).expect("a fine place");
    site.enter().expect("entered");
    assert!(
        !mock.tree().contains_key(&format!("{OURS}/data.bin")),
        "no blocks, no file for them"
    );
    small(&mock, 4);
    let found = site.small_files().expect("listed").expect("a directory");
    assert_eq!(found.present.len(), 4);
    assert_eq!(found.entries, 5, "the manifest too");
    assert_eq!(site.small_size(1, false), Ok(5));
    assert_eq!(site.remove_small(1, false), Ok(()));
    assert!(site.small_size(1, false).is_err());

    let stray = format!("{OURS}/{}.00000001.jpg", test_claim().run_id);
    mock.0
        .borrow_mut()
        .tree
        .insert(stray.clone(), Some(b"mine".to_vec()));
    let mut control = mock.control();
    let leftovers = guard::leftovers(&mut control).expect("listed");
    let as_it_was = mock.tree();
    let refused = guard::clean(&mut control, &leftovers[0]).expect_err("a stray");
    assert_eq!(refused.kind, Kind::Safety);
    assert_eq!(mock.tree(), as_it_was);
    assert!(site.leave().is_err(), "it stays");
    let left: Vec<_> = mock
        .tree()
        .into_keys()
        .filter(|path| !before.contains_key(path))
        .collect();
    assert_eq!(
        left,
        [
            OURS.to_owned(),
            stray.clone(),
            format!("{OURS}/nasgauge.json")
        ]
    );
    mock.0.borrow_mut().tree.remove(&stray);
    clean_all(&mock);
    assert_eq!(mock.tree(), before);
}

#[test]
fn small_files_never_go_into_a_prepared_directory() {
    let content = test_claim().content;
    let mock = prepared(1 << 20, &content, 1 << 20, true);
    let claim = Claim {
        size: 1 << 20,
        run_id: "another".into(),
        ..small_claim()
    };
    let site = Site::examine(mock.control(), claim).expect("a fine place");
    assert_eq!(site.object().directory(), "nasgauge-another");
}

#[test]
fn small_files_need_inodes() {
    for (free_files, fits) in [(None, true), (Some(8), true), (Some(7), false)] {
        let mock = users();
        mock.0.borrow_mut().free_files = free_files;
        let found = Site::examine(mock.control(), small_claim());
        assert_eq!(found.is_ok(), fits, "{free_files:?}");
        if let Err(error) = found {
            assert!(error.message.contains("inodes for 7 more"), "{error}");
        }
    }
    let mock = users();
    mock.0.borrow_mut().free = Some((16 << 20) + 4 * 4096 - 1);
    let error = Site::examine(mock.control(), small_claim())
        .err()
        .expect("full");
    assert!(error.message.contains("--nrfiles"), "{error}");
}

#[test]
fn space_is_checked_with_a_margin() {
    const MARGIN: u64 = 16 << 20;
    for (size, free, fits) in [
        (1 << 20, Some((1 << 20) + MARGIN), true),
        (1 << 20, Some((1 << 20) + MARGIN - 1), false),
        (100 << 30, Some(105 << 30), true),
        (100 << 30, Some((105 << 30) - 1), false),
        (u64::MAX, Some(u64::MAX - 1), false),
        (1 << 40, None, true),
        (1 << 20, Some(0), false),
    ] {
        let mock = users();
        mock.0.borrow_mut().free = free;
        let claim = Claim {
            size,
            ..test_claim()
        };
        let found = Site::examine(mock.control(), claim);
        assert_eq!(found.is_ok(), fits, "{size} of {free:?}");
        if let Err(error) = found {
            assert!(error.before_anything());
        }
    }
}

#[test]
fn a_users_file_is_only_read() {
    let read = |path: &str, size: u64, writes: bool, unwritten: Option<u64>| {
        let mock = Mock::with(&[("films", None), ("films/one.mkv", Some("0123456789"))]);
        mock.0.borrow_mut().unwritten = unwritten;
        let before = mock.tree();
        let claim = Claim {
            read_existing: Some(path.into()),
            size,
            writes,
            ..test_claim()
        };
        let site = Site::examine(mock.control(), claim).map(|mut site| {
            site.enter().expect("nothing to make");
            site.laid().expect("nothing to note");
            assert_eq!(site.leave(), Ok(None));
            site.object().clone()
        });
        assert_eq!(mock.tree(), before, "{path}");
        site
    };
    let object = read("films/one.mkv", 10, false, Some(0)).expect("readable");
    assert!(object.foreign && object.laid && object.base == 0);
    assert_eq!(object.name, "films/one.mkv");
    assert!(
        read("films/one.mkv", 10, false, None).is_ok(),
        "a target that can't tell holes"
    );
    for (path, size, writes, unwritten, word) in [
        ("films/one.mkv", 10, true, None, "writes"),
        ("films/one.mkv", 11, false, None, "less than"),
        ("films/one.mkv", 10, false, Some(4096), "holes"),
        ("films/../films/one.mkv", 10, false, None, "'..'"),
        ("../one.mkv", 10, false, None, "'..'"),
        ("/films/one.mkv", 10, false, None, "empty"),
        ("films//one.mkv", 10, false, None, "empty"),
        ("./films/one.mkv", 10, false, None, "'.'"),
        ("", 10, false, None, "empty"),
    ] {
        let error = read(path, size, writes, unwritten).expect_err(path);
        assert!(
            error.before_anything() && error.message.contains(word),
            "{path}: {error}"
        );
    }
    assert_eq!(
        read("films/two.mkv", 1, false, None)
            .expect_err("none")
            .kind,
        Kind::NotFound
    );
}

#[test]
fn bins_and_snapshots_are_told_of() {
    let mock = Mock::with(&[("#recycle", None), (".zfs", None)]);
    let site = Site::examine(mock.control(), test_claim()).expect("a fine place");
    assert_eq!(site.notes.len(), 2);
    assert!(site.notes[0].contains("#recycle") && site.notes[0].contains("1 MiB"));
    assert!(site.notes[1].contains(".zfs"));
}
