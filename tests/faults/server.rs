//! The three real servers behind one face, and what of nasgauge's is on them.

use std::path::{Path, PathBuf};

use nasgauge::servers::Server as _;
use nasgauge::servers::real::iscsi::Lun;
use nasgauge::servers::real::smb::Share;
use nasgauge::servers::real::{Iscsi, IscsiOptions, Nfs, NfsOptions, Smb, SmbOptions};
use nasgauge::servers::sandbox::{Disk, Sandbox};

use crate::harness::{SECRET, files_below};

/// Bytes of a LUN here.
const LUN: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Nfs,
    Smb,
    Iscsi,
}

pub const KINDS: [Kind; 3] = [Kind::Nfs, Kind::Smb, Kind::Iscsi];

enum Program {
    Nfs(Nfs),
    Smb(Smb),
    Iscsi(Iscsi),
}

/// A server over a filesystem in RAM of its own.
pub struct Server {
    program: Program,
    /// Starts it again on the same ports.
    again: Box<dyn Fn() -> Program + Send + Sync>,
    /// What is exported; for iSCSI the directory of the LUN's file.
    pub directory: PathBuf,
    // Dropped last.
    _disk: Disk,
    _work: tempfile::TempDir,
}

/// A new directory in the sandbox's RAM.
pub fn work() -> tempfile::TempDir {
    assert!(
        Sandbox::inside(),
        "this test needs nasgauge's sandbox: run ./test"
    );
    tempfile::Builder::new()
        .prefix("faults-")
        .tempdir_in(Sandbox::work_dir())
        .expect("the sandbox has a directory")
}

impl Server {
    /// Starts one with plenty of space.
    pub fn start(kind: Kind) -> Self {
        Self::on(kind, 256 << 20)
    }

    /// Starts one over a disk of `space` bytes.
    pub fn on(kind: Kind, space: u64) -> Self {
        match kind {
            Kind::Nfs => Self::nfs(space, NfsOptions::default()),
            Kind::Smb => Self::smb(space, |_| {}),
            Kind::Iscsi => Self::iscsi(space, |_| {}),
        }
    }

    pub fn nfs(space: u64, options: NfsOptions) -> Self {
        let (work, disk, directory) = place(space);
        let options = NfsOptions {
            directory: directory.clone(),
            ..options
        };
        let server = Nfs::start(work.path(), &options).expect("nfs-ganesha starts");
        let fixed = NfsOptions {
            port: Some(server.port()),
            mount_port: Some(server.mount_port()),
            ..options
        };
        let path = work.path().to_owned();
        let again =
            move || Program::Nfs(Nfs::start(&path, &fixed).expect("nfs-ganesha starts again"));
        Self {
            program: Program::Nfs(server),
            again: Box::new(again),
            directory,
            _disk: disk,
            _work: work,
        }
    }

    pub fn smb(space: u64, change: impl FnOnce(&mut SmbOptions)) -> Self {
        let (work, disk, directory) = place(space);
        let mut options = SmbOptions {
            shares: vec![Share::new("bench", &directory)],
            password: SECRET.to_owned(),
            ..SmbOptions::default()
        };
        change(&mut options);
        let server = Smb::start(work.path(), &options).expect("smbd starts");
        options.port = Some(server.port());
        let path = work.path().to_owned();
        let again = move || Program::Smb(Smb::start(&path, &options).expect("smbd starts again"));
        Self {
            program: Program::Smb(server),
            again: Box::new(again),
            directory,
            _disk: disk,
            _work: work,
        }
    }

    /// With CHAP, so that there is a secret to keep.
    pub fn iscsi(space: u64, change: impl FnOnce(&mut IscsiOptions)) -> Self {
        let (work, disk, directory) = place(space);
        let file = directory.join("lun");
        std::fs::File::create_new(&file)
            .and_then(|lun| lun.set_len(LUN))
            .expect("new");
        let mut options = IscsiOptions {
            luns: vec![Lun::new(&file)],
            chap: Some(("tester".to_owned(), SECRET.to_owned())),
            ..IscsiOptions::default()
        };
        change(&mut options);
        let server = Iscsi::start(work.path(), &options).expect("tgtd starts");
        options.port = Some(server.port());
        let path = work.path().to_owned();
        let again =
            move || Program::Iscsi(Iscsi::start(&path, &options).expect("tgtd starts again"));
        Self {
            program: Program::Iscsi(server),
            again: Box::new(again),
            directory,
            _disk: disk,
            _work: work,
        }
    }

    pub fn uri(&self) -> String {
        match &self.program {
            Program::Nfs(server) => server.uri(),
            Program::Smb(server) => server.uri(),
            Program::Iscsi(server) => server.uri(),
        }
    }

    pub fn protocol(&self) -> &'static str {
        match &self.program {
            Program::Nfs(server) => server.protocol(),
            Program::Smb(server) => server.protocol(),
            Program::Iscsi(server) => server.protocol(),
        }
    }

    pub fn port(&self) -> u16 {
        match &self.program {
            Program::Nfs(server) => server.port(),
            Program::Smb(server) => server.port(),
            Program::Iscsi(server) => server.port(),
        }
    }

    pub fn pause(&self) {
        let done = match &self.program {
            Program::Nfs(server) => server.pause(),
            Program::Smb(server) => server.pause(),
            Program::Iscsi(server) => server.pause(),
        };
        done.expect("it runs");
    }

    pub fn resume(&self) {
        let done = match &self.program {
            Program::Nfs(server) => server.resume(),
            Program::Smb(server) => server.resume(),
            Program::Iscsi(server) => server.resume(),
        };
        done.expect("it is paused");
    }

    pub fn kill(&mut self) {
        match &mut self.program {
            Program::Nfs(server) => server.kill(),
            Program::Smb(server) => server.kill(),
            Program::Iscsi(server) => server.kill(),
        }
    }

    /// Starts it again after it was killed.
    pub fn restart(&mut self) {
        self.program = (self.again)();
    }

    /// What of nasgauge's is on it: names of files, or for a LUN the offset of a block that is not zero.
    pub fn left(&self) -> Vec<String> {
        if let Program::Iscsi(_) = self.program {
            let content = std::fs::read(self.directory.join("lun")).expect("there");
            let byte = content.iter().position(|byte| *byte != 0);
            return byte.map(|at| format!("data at {at}")).into_iter().collect();
        }
        left_in(&self.directory)
    }

    /// Nothing of nasgauge's is on it.
    pub fn assert_clean(&self) {
        assert_eq!(self.left(), [""; 0], "{} is not clean", self.protocol());
    }
}

/// What of nasgauge's is in a directory.
pub fn left_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .expect("there")
        .map(|entry| {
            entry
                .expect("readable")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| name.starts_with("nasgauge-"))
        .collect();
    names.extend(
        files_below(directory)
            .iter()
            .map(|file| file.display().to_string())
            .filter(|name| name.contains("/nasgauge-")),
    );
    names
}

/// A work directory, a disk on it, and a directory on that.
fn place(space: u64) -> (tempfile::TempDir, Disk, PathBuf) {
    let work = work();
    let disk = Disk::mount(work.path().join("disk"), space).expect("mounts");
    let directory = disk.path().join("bench");
    std::fs::create_dir(&directory).expect("new");
    (work, disk, directory)
}
