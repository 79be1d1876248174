//! Real servers for comparisons: `servers SIZE PROTOCOL..` starts nfs-ganesha (`nfs`), smbd (`smb`) and tgtd (`iscsi`) as
//! the program itself does, so that their configurations stand once; inside the sandbox only.
//!
//! Prints one line of JSON, a list with what there is to know of each, and serves until its standard input ends. SIZE is in
//! bytes: that of each of tgtd's two LUNs, the first to be read, the second to be written.

use std::io::Read;
use std::path::{Path, PathBuf};

use nasgauge::error::Result;
use nasgauge::servers::sandbox::Sandbox;
use nasgauge::servers::{Server, real};
use serde_json::{Value, json};

/// A server and what its clients need, its URI and version aside.
type Started = (Box<dyn Server>, Value);

fn directory(work: &Path, name: &str) -> PathBuf {
    let path = work.join(name);
    std::fs::create_dir_all(&path).expect("a directory in the sandbox");
    path
}

fn nfs(work: &Path) -> Result<Started> {
    let options = real::NfsOptions {
        directory: directory(work, "nfs-export"),
        ..real::NfsOptions::default()
    };
    let server = real::Nfs::start(work, &options)?;
    let facts = json!({
        "directory": options.directory, "port": server.port(), "mount_port": server.mount_port(),
    });
    Ok((Box::new(server), facts))
}

/// One share for the user and for guests: a client that can't log in reads the same file.
fn smb(work: &Path) -> Result<Started> {
    let share = real::smb::Share {
        guest: true,
        ..real::smb::Share::new("bench", directory(work, "smb-share"))
    };
    let options = real::SmbOptions {
        shares: vec![share],
        ..real::SmbOptions::default()
    };
    let server = real::Smb::start(work, &options)?;
    let share = &options.shares[0];
    let facts = json!({
        "directory": share.directory, "port": server.port(), "share": share.name, "user": options.user,
    });
    Ok((Box::new(server), facts))
}

fn iscsi(work: &Path, size: u64) -> Result<Started> {
    let luns = ["read", "written"].map(|name| {
        let path = work.join(format!("lun-{name}"));
        std::fs::File::create_new(&path)
            .and_then(|file| file.set_len(size))
            .expect("a sparse file in the sandbox");
        real::iscsi::Lun::new(path)
    });
    let options = real::IscsiOptions {
        luns: luns.to_vec(),
        ..real::IscsiOptions::default()
    };
    let server = real::Iscsi::start(work, &options)?;
    let facts = json!({ "written_uri": server.uri_of(2) });
    Ok((Box::new(server), facts))
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let size: u64 = arguments
        .next()
        .and_then(|size| size.parse().ok())
        .expect("usage: servers SIZE PROTOCOL..");
    let work = Sandbox::work_dir();
    let started: Vec<Started> = arguments
        .map(|protocol| {
            let started = match protocol.as_str() {
                "nfs" => nfs(&work),
                "smb" => smb(&work),
                "iscsi" => iscsi(&work, size),
                other => panic!("no server speaks '{other}'; there are nfs, smb and iscsi"),
            };
            started.unwrap_or_else(|error| panic!("{error}"))
        })
        .collect();
    let told: Vec<Value> = started
        .iter()
        .map(|(server, facts)| {
            let mut facts = facts.clone();
            facts["protocol"] = server.protocol().into();
            facts["uri"] = server.uri().into();
            facts["version"] = server.version().into();
            facts["password"] = server.password().into();
            facts
        })
        .collect();
    println!("{}", Value::from(told));
    // Nothing is ever said: its end is the sign.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
