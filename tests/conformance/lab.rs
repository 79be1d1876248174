//! Places to test on: a URI each, with the server behind it and a look at what the server holds.

use std::any::Any;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use nasgauge::fleet;
use nasgauge::servers::sandbox::Sandbox;
use nasgauge::servers::{Server, embedded, real};
use nasgauge::spec::uri::TargetSpec;
use nasgauge::target::{Control, Login, Secret};
use tempfile::TempDir;

/// A target, and whatever must live as long as it.
pub struct Place {
    /// The URI for `--target`.
    pub uri: String,
    /// The password that belongs to it.
    pub password: Option<String>,
    /// The directory or the disk image on the server's side, where this computer can see it.
    pub behind: Option<PathBuf>,
    _alive: Box<dyn Any>,
}

impl Place {
    /// A place at `uri` that keeps `alive`.
    pub fn new(uri: impl Into<String>, alive: impl Any) -> Self {
        Self {
            uri: uri.into(),
            password: None,
            behind: None,
            _alive: Box::new(alive),
        }
    }

    fn of_server<S: Server + 'static>(server: S, behind: Option<PathBuf>, alive: impl Any) -> Self {
        Self {
            uri: server.uri(),
            password: server.password().map(str::to_owned),
            behind,
            _alive: Box::new((server, alive)),
        }
    }

    /// The same under another URI.
    pub fn under(self, uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            ..self
        }
    }

    /// How the library is told about it.
    pub fn login(&self) -> Login {
        login(&self.uri, self.password.as_deref())
    }

    /// The control side.
    pub fn control(&self) -> Control {
        fleet::child::set_program(Path::new(env!("CARGO_BIN_EXE_nasgauge")));
        fleet::control(&self.login()).expect(&self.uri)
    }

    /// Names in the target's directory.
    pub fn names(&self) -> Vec<String> {
        let Control::Files(mut files) = self.control() else {
            panic!("{} has no directory", self.uri);
        };
        let entries = files.list("").expect("lists");
        entries.into_iter().map(|entry| entry.name).collect()
    }

    /// Whether every byte of the device is zero.
    pub fn is_zero(&self) -> bool {
        let Control::Device(mut device) = self.control() else {
            panic!("{} is no device", self.uri);
        };
        let capacity = device.identity().expect("tells").capacity;
        let mut block = vec![0; 1 << 20];
        (0..capacity).step_by(block.len()).all(|offset| {
            let part =
                usize::try_from(capacity - offset).map_or(block.len(), |n| n.min(block.len()));
            device.read(offset, &mut block[..part]).expect("reads");
            block[..part].iter().all(|byte| *byte == 0)
        })
    }

    /// Fails unless nothing of a run is there any more.
    pub fn assert_clean(&self) {
        match self.control() {
            Control::Files(_) => assert_eq!(self.names(), Vec::<String>::new(), "{}", self.uri),
            Control::Device(_) => assert!(self.is_zero(), "{} is not blank", self.uri),
            Control::Volatile(_) => {}
        }
    }
}

/// A login with short waits.
pub fn login(uri: &str, password: Option<&str>) -> Login {
    Login {
        spec: TargetSpec::parse(uri).expect(uri),
        secret: Secret(password.map(str::to_owned)),
        connect_timeout_ms: 10_000,
        io_timeout_ms: 20_000,
    }
}

/// A new directory on this computer's disk.
pub fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory for a test")
}

/// The file target with these options, such as `engine=mmap`.
pub fn file(options: &str) -> Place {
    let directory = directory();
    let uri = format!("file:{}?{options}", directory.path().display());
    Place {
        behind: Some(directory.path().to_owned()),
        ..Place::new(uri, directory)
    }
}

/// This computer's memory.
pub fn ram() -> Place {
    Place::new("ram:", ())
}

/// NFS inside this process.
pub fn embedded_nfs() -> Place {
    Place::of_server(embedded::Nfs::start(64 << 20).expect("starts"), None, ())
}

/// SMB inside this process.
pub fn embedded_smb() -> Place {
    Place::of_server(embedded::Smb::start(64 << 20).expect("starts"), None, ())
}

/// iSCSI inside this process, with a LUN of `size` bytes.
pub fn embedded_iscsi(size: u64) -> Place {
    Place::of_server(embedded::Iscsi::start(size).expect("starts"), None, ())
}

/// A new directory of the sandbox, in RAM.
pub fn sandboxed(name: &str) -> TempDir {
    tempfile::Builder::new()
        .prefix(&format!("e2e-{name}-"))
        .tempdir_in(Sandbox::work_dir())
        .expect("this test needs nasgauge's sandbox: run ./test, or cargo test inside it")
}

/// A directory below `work`.
pub fn below(work: &Path, name: &str) -> PathBuf {
    let path = work.join(name);
    std::fs::create_dir_all(&path).expect("new");
    path
}

/// Real servers start only where the loopback is the only interface: tests run beside one another in one sandbox, so whoever adds
/// an interface holds this alone, and whoever starts a server shares it.
static INTERFACES: RwLock<()> = RwLock::new(());

/// While this is held the sandbox has its loopback only.
pub fn only_loopback() -> RwLockReadGuard<'static, ()> {
    INTERFACES.read().unwrap_or_else(PoisonError::into_inner)
}

/// While this is held no server starts, and the sandbox may have more interfaces.
pub fn other_interfaces() -> RwLockWriteGuard<'static, ()> {
    INTERFACES.write().unwrap_or_else(PoisonError::into_inner)
}

/// nfs-ganesha on an empty directory, after `change` had its way with the options.
pub fn ganesha(change: impl FnOnce(&mut real::NfsOptions)) -> Place {
    let work = sandboxed("nfs");
    let mut options = real::NfsOptions {
        directory: below(work.path(), "export"),
        ..real::NfsOptions::default()
    };
    change(&mut options);
    let behind = options.directory.clone();
    let _loopback = only_loopback();
    let server = real::Nfs::start(work.path(), &options).expect("starts");
    Place::of_server(server, Some(behind), work)
}

/// smbd with one share on an empty directory, after `change`.
pub fn smbd(change: impl FnOnce(&mut real::SmbOptions)) -> Place {
    let work = sandboxed("smb");
    let mut options = real::SmbOptions {
        shares: vec![real::smb::Share::new("bench", below(work.path(), "share"))],
        ..real::SmbOptions::default()
    };
    change(&mut options);
    let behind = options.shares[0].directory.clone();
    let _loopback = only_loopback();
    let server = real::Smb::start(work.path(), &options).expect("starts");
    Place::of_server(server, Some(behind), work)
}

/// tgtd with one sparse LUN of `size` bytes, after `change`.
pub fn tgtd(size: u64, change: impl FnOnce(&mut real::IscsiOptions)) -> Place {
    let work = sandboxed("iscsi");
    let image = image(work.path(), size);
    let mut options = real::IscsiOptions {
        luns: vec![real::iscsi::Lun::new(&image)],
        ..real::IscsiOptions::default()
    };
    change(&mut options);
    let _loopback = only_loopback();
    let server = real::Iscsi::start(work.path(), &options).expect("starts");
    Place::of_server(server, Some(image), work)
}

/// A sparse file of `size` bytes below `directory`.
pub fn image(directory: &Path, size: u64) -> PathBuf {
    let path = directory.join("image");
    let file = File::create_new(&path).expect("new");
    file.set_len(size).expect("sparse");
    path
}

/// A loop device, detached on drop.
pub struct Loop(pub PathBuf);

impl Loop {
    /// Attaches one to a file, with more arguments for losetup.
    pub fn attach(file: &Path, arguments: &[&str]) -> Self {
        let out = Command::new("losetup")
            .args(["--find", "--show"])
            .args(arguments)
            .arg(file)
            .output()
            .expect("losetup runs");
        let said = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        assert!(
            out.status.success() && said.starts_with("/dev/loop"),
            "{out:?}"
        );
        Self(said.into())
    }

    /// Its target URI.
    pub fn uri(&self) -> String {
        format!("block:{}", self.0.display())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let status = Command::new("losetup").arg("-d").arg(&self.0).status();
        if !std::thread::panicking() {
            assert!(status.is_ok_and(|status| status.success()), "detaches");
        }
    }
}

/// A loop device over a sparse file of `size` bytes in RAM.
pub fn loop_device(size: u64, arguments: &[&str]) -> Place {
    let work = sandboxed("loop");
    let image = image(work.path(), size);
    let device = Loop::attach(&image, arguments);
    Place {
        behind: Some(image),
        ..Place::new(device.uri(), (device, work))
    }
}

/// A number that changes with any byte of a (possibly huge and sparse) file: FNV-1a over what is not zero, with its
/// place. Far from cryptographic, but nobody here tries to deceive it.
pub fn digest(path: &Path) -> u64 {
    use rustix::fs::{SeekFrom, seek};
    let file = File::open(path).expect("there");
    let size = file.metadata().expect("there").len();
    let mut sum = size ^ 0xcbf2_9ce4_8422_2325;
    let mut add = |byte: u64| sum = (sum ^ byte).wrapping_mul(0x100_0000_01b3);
    let mut block = vec![0; 1 << 20];
    let mut at = 0;
    while let Ok(data) = seek(&file, SeekFrom::Data(at)) {
        let end = seek(&file, SeekFrom::Hole(data)).expect("a hole at the end");
        at = data;
        while at < end {
            let part = (end - at).min(1 << 20) as usize;
            file.read_exact_at(&mut block[..part], at).expect("reads");
            for (index, word) in block[..part].chunks(8).enumerate() {
                let mut eight = [0; 8];
                eight[..word.len()].copy_from_slice(word);
                if eight != [0; 8] {
                    add(at + index as u64 * 8);
                    add(u64::from_le_bytes(eight));
                }
            }
            at += part as u64;
        }
    }
    sum
}

/// Every file below a directory with its digest and modification time, sorted.
pub fn tree(directory: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("there").flatten() {
        let path = entry.path();
        let meta = std::fs::symlink_metadata(&path).expect("there");
        if meta.is_dir() {
            found.extend(tree(&path));
            found.push((path, 0, std::time::SystemTime::UNIX_EPOCH));
        } else {
            found.push((path.clone(), digest(&path), meta.modified().expect("known")));
        }
    }
    found.sort();
    found
}
