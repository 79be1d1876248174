//! Directories and files in a temporary directory.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::error::Kind;
use crate::op::Direction;
use crate::target::local::tests::{Scene, attach};
use crate::target::{Files, Secret, find};

fn place() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn spec(uri: &str) -> TargetSpec {
    TargetSpec::parse(uri).expect(uri)
}

fn login(directory: &Path, options: &str) -> Login {
    Login {
        spec: spec(&format!("file:{}{options}", directory.display())),
        secret: Secret::default(),
        connect_timeout_ms: 2000,
        io_timeout_ms: 2000,
    }
}

fn files(directory: &Path) -> Box<dyn Files> {
    match (PROTOCOL.control)(&login(directory, "")) {
        Ok(Control::Files(files)) => files,
        Ok(_) => panic!("files were expected"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn options_are_checked_without_touching_anything() {
    for uri in [
        "/nowhere",
        "file:/nowhere?engine=io_uring&direct=1",
        "file:rel/dir?engine=psync&direct=0",
        "file:/nowhere?engine=mmap",
    ] {
        crate::target::check(&spec(uri)).expect(uri);
    }
    for (uri, word) in [
        ("file:", "without a directory"),
        ("file:/x?engine=libaio", "psync, io_uring, mmap"),
        ("file:/x?direct=2", "neither 0 nor 1"),
        ("file:/x?engine=mmap&direct=1", "exclude"),
        ("file:/x?speed=1", "unknown option"),
    ] {
        let error = crate::target::check(&spec(uri)).map(drop).expect_err(uri);
        assert!(
            error.before_anything() && error.to_string().contains(word),
            "{error}"
        );
    }
}

#[test]
fn the_depth_follows_the_engine() {
    let caps = |uri: &str| {
        let spec = spec(uri);
        let caps = (find(&spec).expect(uri).caps)(&spec);
        (caps.iodepth_max, caps.engine)
    };
    assert_eq!(caps("file:/x?engine=psync"), (1, "psync"));
    assert_eq!(caps("file:/x?engine=mmap"), (1, "mmap"));
    let deep = Engine::depth_max(None);
    assert_eq!(caps("/x"), (deep, "psync"));
    assert_eq!(caps("file:/x?engine=io_uring"), (deep, "io_uring"));
}

#[test]
fn a_directory_must_be_there_and_be_one() {
    let dir = place();
    fs::write(dir.path().join("f"), "x").expect("a file");
    let open = |name: &str| (PROTOCOL.control)(&login(&dir.path().join(name), "")).err();
    let missing = open("none").expect("it is missing");
    assert_eq!(
        (missing.phase, missing.kind),
        (crate::error::Phase::Open, Kind::NotFound)
    );
    assert_eq!(open("f").map(|error| error.kind), Some(Kind::Usage));
}

#[test]
fn files_are_made_read_and_removed() {
    let dir = place();
    let mut files = files(dir.path());
    files.make_directory("run").expect("made");
    files.create("run/data").expect("created");
    files.put("run/marker", b"ours").expect("put");
    assert_eq!(files.get("run/marker", 2).expect("read"), b"ou");
    assert_eq!(files.get("run/marker", 100).expect("read"), b"ours");
    assert_eq!(files.size("run/marker"), Ok(4));
    assert_eq!(files.unwritten("run/marker"), Ok(Some(0)));
    let names: Vec<_> = files
        .list("run")
        .expect("listed")
        .into_iter()
        .map(|e| (e.name, e.directory))
        .collect();
    assert_eq!(
        names,
        [("data".to_owned(), false), ("marker".to_owned(), false)]
    );
    assert!(files.list("").expect("listed")[0].directory);
    assert_eq!(
        files.remove_directory("run").map_err(|e| e.kind),
        Err(Kind::Other),
        "not empty"
    );
    files.drop_cache("run/data").expect("dropped");
    files.remove("run/data").expect("removed");
    files.remove("run/marker").expect("removed");
    files.remove_directory("run").expect("removed");
    assert!(files.list("").expect("listed").is_empty());
    assert_eq!(
        files.get("run/marker", 1).map_err(|e| e.kind),
        Err(Kind::NotFound)
    );
}

#[test]
fn nothing_that_is_there_is_overwritten() {
    let dir = place();
    let mut files = files(dir.path());
    fs::write(dir.path().join("a"), "precious").expect("a file");
    symlink("a", dir.path().join("link")).expect("a link");
    symlink("nowhere", dir.path().join("dangling")).expect("a link");
    for name in ["a", "link", "dangling"] {
        assert_eq!(
            files.create(name).map_err(|e| e.kind),
            Err(Kind::Exists),
            "{name}"
        );
        assert_eq!(
            files.put(name, b"x").map_err(|e| e.kind),
            Err(Kind::Exists),
            "{name}"
        );
        assert_eq!(
            files.make_directory(name).map_err(|e| e.kind),
            Err(Kind::Exists),
            "{name}"
        );
    }
    assert_eq!(fs::read(dir.path().join("a")).expect("read"), b"precious");
    assert!(!dir.path().join("nowhere").exists());
}

#[test]
fn no_path_leads_out() {
    let dir = place();
    let outside = place();
    fs::write(outside.path().join("secret"), "precious").expect("a file");
    symlink(outside.path(), dir.path().join("out")).expect("a link");
    symlink(outside.path().join("secret"), dir.path().join("file")).expect("a link");
    let mut files = files(dir.path());
    for path in [
        "..", "../x", "a/../b", "", "a//b", "/abs", "./a", "a/", "a\0b",
    ] {
        for error in [
            files.create(path).err(),
            files.remove(path).err(),
            files.put(path, b"").err(),
        ] {
            assert_eq!(error.map(|e| e.kind), Some(Kind::Safety), "{path:?}");
        }
    }
    assert_eq!(
        files.create("out/new").map_err(|e| e.kind),
        Err(Kind::Safety)
    );
    assert_eq!(
        files.remove("out/secret").map_err(|e| e.kind),
        Err(Kind::Safety)
    );
    assert_eq!(files.size("file").map_err(|e| e.kind), Err(Kind::Safety));
    assert_eq!(
        files.list("out").map(drop).map_err(|e| e.kind),
        Err(Kind::Safety)
    );
    for object in ["file", "out/secret", "../x"] {
        let error = connect(&login(dir.path(), ""), &attach(object, true, 1))
            .err()
            .expect(object);
        assert_eq!(error.kind, Kind::Safety, "{error}");
    }
    assert_eq!(
        fs::read(outside.path().join("secret")).expect("read"),
        b"precious"
    );
}

#[test]
fn a_users_file_is_read_by_its_full_path_and_never_written() {
    let dir = place();
    let elsewhere = place();
    let path = elsewhere.path().join("film");
    fs::write(&path, vec![7; 10_000]).expect("a file");
    let object = path.to_string_lossy().into_owned();
    let session = connect(&login(dir.path(), ""), &attach(&object, false, 1)).expect("a session");
    let mut scene = Scene::new(session, 1, 4096);
    assert_eq!(scene.one(Direction::Read, 8192, 4096), Ok(10_000 - 8192));
    assert!(scene.one(Direction::Write, 0, 4096).is_err());
    assert!(connect(&login(dir.path(), ""), &attach(&object, true, 1)).is_err());
    assert_eq!(files(dir.path()).size(&object), Ok(10_000));
    assert_eq!(fs::metadata(&path).expect("there").size(), 10_000);
}

#[test]
fn only_regular_files_are_opened_and_nothing_hangs() {
    let dir = place();
    let fifo = dir.path().join("pipe");
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
    )
    .expect("a pipe");
    fs::create_dir(dir.path().join("sub")).expect("a directory");
    for object in ["pipe", "sub", "/dev/null"] {
        let error = connect(&login(dir.path(), ""), &attach(object, false, 1))
            .err()
            .expect(object);
        assert_eq!(error.kind, Kind::Usage, "{error}");
    }
    let error = connect(&login(dir.path(), ""), &attach("none", false, 1))
        .err()
        .expect("missing");
    assert_eq!(
        (error.phase, error.kind),
        (crate::error::Phase::Open, Kind::NotFound)
    );
}

#[test]
fn every_engine_and_durability_works_through_the_registry() {
    for engine in ["psync", "io_uring", "mmap"] {
        if engine == "io_uring" && Engine::depth_max(None) == 1 {
            continue;
        }
        for durability in [
            Durability::None,
            Durability::Flush,
            Durability::Datasync,
            Durability::Sync,
        ] {
            let dir = place();
            files(dir.path()).create("data").expect("created");
            fs::write(dir.path().join("data"), vec![1; 65536]).expect("laid");
            let mut wanted = attach("data", true, 1);
            wanted.durability = durability;
            let login = login(dir.path(), &format!("?engine={engine}"));
            let session = connect(&login, &wanted).expect("a session");
            let mut scene = Scene::new(session, 1, 1 << 20);
            for (offset, len) in [(0, 4096), (123, 1), (30_000, 40_000), (5 << 30, 4095)] {
                scene.there_and_back(offset, len);
            }
            scene.session.flush().expect("a flush");
            assert_eq!(files(dir.path()).size("data"), Ok((5 << 30) + 4095));
        }
    }
}

#[test]
fn direct_is_the_uris_choice_first() {
    let dir = place();
    files(dir.path()).create("data").expect("created");
    let words = |options: &str, direct: bool| {
        let mut wanted = attach("data", true, 1);
        wanted.direct = direct;
        connect(&login(dir.path(), options), &wanted).map(|session| session.negotiated())
    };
    assert_eq!(words("", false).as_deref(), Ok("engine=psync direct=0"));
    assert_eq!(
        words("?direct=0", true).as_deref(),
        Ok("engine=psync direct=0")
    );
    // Where the temporary directory has no direct I/O, it says so in words.
    for words in [words("", true), words("?direct=1", false)] {
        match words {
            Ok(words) => assert!(words.starts_with("engine=psync direct=1 align="), "{words}"),
            Err(error) => assert_eq!(error.kind, Kind::Unsupported, "{error}"),
        }
    }
}

#[test]
fn facts_are_facts() {
    let dir = place();
    let facts = files(dir.path()).facts().expect("facts");
    let labels: Vec<_> = facts
        .lines
        .iter()
        .map(|(label, _)| label.as_str())
        .collect();
    assert!(
        labels.contains(&"file system") && labels.contains(&"mount options"),
        "{labels:?}"
    );
    assert!(facts.free_bytes.is_some_and(|free| free > 0));
}
