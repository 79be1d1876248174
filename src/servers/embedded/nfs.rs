//! NFS version 3 over RAM: the `nfs3_server` crate with a file system of our own.
//!
//! The crate's own in-memory file system refuses to open an existing file by CREATE UNCHECKED, writes beyond the end
//! of a file and holes; tests need all three. NFS and MOUNT share one port, which answers portmapper calls too.
//!
//! Must not know: the other servers. It reports 1 TiB of free space whatever the budget (the crate answers FSSTAT by
//! itself); a full budget still refuses writes with `NFS3ERR_NOSPC`.

use std::time::{SystemTime, UNIX_EPOCH};

use nfs3_server::nfs3_types::nfs3::{
    createverf3, fattr3, filename3, ftype3, nfspath3, nfsstat3, nfstime3, sattr3, set_gid3,
    set_mode3, set_mtime, set_size3, set_uid3, specdata3, stable_how,
};
use nfs3_server::nfs3_types::xdr_codec::Opaque;
use nfs3_server::tcp::{NFSTcp, NFSTcpListener};
use nfs3_server::vfs::{
    DirEntryPlus, FileHandleU64, NextResult, NfsFileSystem, NfsReadFileSystem, ReadDirPlusIterator,
};

use super::tree::{Fault, Node, ROOT, Tree};
use super::{Serving, Shared, lock};
use crate::error::Result;
use crate::servers::Server;

/// The name it exports.
pub const EXPORT: &str = "/export";

/// A running NFS server; dropping it stops it.
pub struct Nfs {
    port: u16,
    _serving: Serving,
}

impl Nfs {
    /// Starts one that may hold `capacity` bytes.
    pub fn start(capacity: u64) -> Result<Self> {
        let files = Files {
            tree: Shared::new(Tree::new(capacity).into()),
        };
        let bind = async move {
            let mut listener = NFSTcpListener::bind("127.0.0.1:0", files).await?;
            listener.with_export_name(EXPORT);
            let address = (listener.get_listen_ip(), listener.get_listen_port()).into();
            Ok((address, async move { listener.handle_forever().await }))
        };
        let (serving, address) = Serving::start("nfs", bind)?;
        Ok(Self {
            port: address.port(),
            _serving: serving,
        })
    }

    /// The port of both NFS and MOUNT.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Server for Nfs {
    fn protocol(&self) -> &'static str {
        "nfs"
    }

    fn version(&self) -> &'static str {
        "nfs3_server 0.11 (embedded)"
    }

    fn uri(&self) -> String {
        let port = self.port;
        format!("nfs://127.0.0.1:{port}{EXPORT}?mountport={port}")
    }

    fn password(&self) -> Option<&str> {
        None
    }
}

struct Files {
    tree: Shared,
}

impl From<Fault> for nfsstat3 {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NotFound => Self::NFS3ERR_NOENT,
            Fault::Stale => Self::NFS3ERR_STALE,
            Fault::Exists => Self::NFS3ERR_EXIST,
            Fault::NotDirectory => Self::NFS3ERR_NOTDIR,
            Fault::IsDirectory => Self::NFS3ERR_ISDIR,
            Fault::NotEmpty => Self::NFS3ERR_NOTEMPTY,
            Fault::NoSpace => Self::NFS3ERR_NOSPC,
            Fault::Invalid => Self::NFS3ERR_INVAL,
        }
    }
}

fn text<'a>(name: &'a filename3<'_>) -> std::result::Result<&'a str, nfsstat3> {
    std::str::from_utf8(name.as_ref()).map_err(|_| nfsstat3::NFS3ERR_INVAL)
}

fn time(at: SystemTime) -> nfstime3 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    nfstime3 {
        seconds: u32::try_from(since.as_secs()).unwrap_or(u32::MAX),
        nseconds: since.subsec_nanos(),
    }
}

fn attributes(node: &Node) -> fattr3 {
    let (size, used) = node.size_and_held();
    let at = time(node.modified);
    fattr3 {
        type_: if node.is_directory() {
            ftype3::NF3DIR
        } else {
            ftype3::NF3REG
        },
        mode: node.mode,
        nlink: 1,
        uid: node.uid,
        gid: node.gid,
        size,
        used,
        rdev: specdata3::default(),
        fsid: 1,
        fileid: node.id,
        atime: at,
        mtime: at,
        ctime: at,
    }
}

fn set(tree: &mut Tree, id: u64, wanted: &sattr3) -> std::result::Result<fattr3, nfsstat3> {
    if let set_size3::Some(size) = wanted.size {
        tree.resize(id, size)?;
    }
    let node = tree.node_mut(id)?;
    if let set_mode3::Some(mode) = wanted.mode {
        node.mode = mode & 0o7777;
    }
    if let set_uid3::Some(uid) = wanted.uid {
        node.uid = uid;
    }
    if let set_gid3::Some(gid) = wanted.gid {
        node.gid = gid;
    }
    if matches!(wanted.mtime, set_mtime::SET_TO_SERVER_TIME) {
        node.modified = SystemTime::now();
    }
    Ok(attributes(node))
}

impl NfsReadFileSystem for Files {
    type Handle = FileHandleU64;

    fn root_dir(&self) -> FileHandleU64 {
        ROOT.into()
    }

    async fn lookup(
        &self,
        dirid: &FileHandleU64,
        filename: &filename3<'_>,
    ) -> std::result::Result<FileHandleU64, nfsstat3> {
        Ok(lock(&self.tree)
            .lookup(dirid.as_u64(), text(filename)?)?
            .into())
    }

    async fn getattr(&self, id: &FileHandleU64) -> std::result::Result<fattr3, nfsstat3> {
        Ok(attributes(lock(&self.tree).node(id.as_u64())?))
    }

    async fn read(
        &self,
        id: &FileHandleU64,
        offset: u64,
        count: u32,
    ) -> std::result::Result<(Vec<u8>, bool), nfsstat3> {
        let tree = lock(&self.tree);
        let pages = tree.node(id.as_u64())?.file()?;
        let data = pages.read(offset, count.into());
        let end = offset.saturating_add(data.len() as u64) >= pages.len();
        Ok((data, end))
    }

    async fn readdirplus(
        &self,
        dirid: &FileHandleU64,
        cookie: u64,
    ) -> std::result::Result<impl ReadDirPlusIterator<FileHandleU64>, nfsstat3> {
        let tree = lock(&self.tree);
        // In the order of numbers, which never come again: so a listing goes on rightly after its last entry is gone.
        let mut found: Vec<(u64, &String)> = tree
            .node(dirid.as_u64())?
            .entries()?
            .iter()
            .map(|(name, id)| (*id, name))
            .filter(|(id, _)| *id > cookie)
            .collect();
        found.sort_unstable();
        let entries = found
            .into_iter()
            .map(|(id, name)| {
                Ok(DirEntryPlus {
                    fileid: id,
                    name: filename3(Opaque::owned(name.clone().into_bytes())),
                    cookie: id,
                    name_attributes: Some(attributes(tree.node(id)?)),
                    name_handle: Some(id.into()),
                })
            })
            .collect::<std::result::Result<Vec<_>, Fault>>()?;
        Ok(Listing(entries.into_iter()))
    }

    async fn readlink(&self, _id: &FileHandleU64) -> std::result::Result<nfspath3<'_>, nfsstat3> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }
}

struct Listing(std::vec::IntoIter<DirEntryPlus<FileHandleU64>>);

impl ReadDirPlusIterator<FileHandleU64> for Listing {
    async fn next(&mut self) -> NextResult<DirEntryPlus<FileHandleU64>> {
        self.0.next().map_or(NextResult::Eof, NextResult::Ok)
    }
}

impl NfsFileSystem for Files {
    async fn setattr(
        &self,
        id: &FileHandleU64,
        setattr: sattr3,
    ) -> std::result::Result<fattr3, nfsstat3> {
        set(&mut lock(&self.tree), id.as_u64(), &setattr)
    }

    async fn write(
        &self,
        id: &FileHandleU64,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> std::result::Result<(fattr3, stable_how), nfsstat3> {
        let mut tree = lock(&self.tree);
        tree.write(id.as_u64(), offset, data)?;
        // As a disk-backed server does: unstable stays unstable until COMMIT.
        Ok((attributes(tree.node(id.as_u64())?), stable))
    }

    async fn create(
        &self,
        dirid: &FileHandleU64,
        filename: &filename3<'_>,
        attr: sattr3,
    ) -> std::result::Result<(FileHandleU64, fattr3), nfsstat3> {
        let mut tree = lock(&self.tree);
        let name = text(filename)?;
        // GUARDED has been checked by the crate, with no other task in between; UNCHECKED opens what is there.
        let id = match tree.create(dirid.as_u64(), name) {
            Err(Fault::Exists) => {
                let there = tree.lookup(dirid.as_u64(), name)?;
                tree.node(there)?.file().map_err(|_| Fault::Exists)?;
                there
            }
            other => other?,
        };
        let attributes = set(&mut tree, id, &attr)?;
        Ok((id.into(), attributes))
    }

    async fn create_exclusive(
        &self,
        dirid: &FileHandleU64,
        filename: &filename3<'_>,
        createverf: createverf3,
    ) -> std::result::Result<FileHandleU64, nfsstat3> {
        let mut tree = lock(&self.tree);
        let name = text(filename)?;
        match tree.create(dirid.as_u64(), name) {
            // The same verifier is the same request again, whose answer was lost.
            Err(Fault::Exists) => {
                let there = tree.lookup(dirid.as_u64(), name)?;
                if tree.node(there)?.verifier == Some(createverf.0) {
                    return Ok(there.into());
                }
                Err(nfsstat3::NFS3ERR_EXIST)
            }
            other => {
                let id = other?;
                tree.node_mut(id)?.verifier = Some(createverf.0);
                Ok(id.into())
            }
        }
    }

    async fn mkdir(
        &self,
        dirid: &FileHandleU64,
        dirname: &filename3<'_>,
    ) -> std::result::Result<(FileHandleU64, fattr3), nfsstat3> {
        let mut tree = lock(&self.tree);
        let id = tree.mkdir(dirid.as_u64(), text(dirname)?)?;
        Ok((id.into(), attributes(tree.node(id)?)))
    }

    async fn remove(
        &self,
        dirid: &FileHandleU64,
        filename: &filename3<'_>,
    ) -> std::result::Result<(), nfsstat3> {
        Ok(lock(&self.tree).remove(dirid.as_u64(), text(filename)?)?)
    }

    async fn rename<'a>(
        &self,
        from_dirid: &FileHandleU64,
        from_filename: &filename3<'a>,
        to_dirid: &FileHandleU64,
        to_filename: &filename3<'a>,
    ) -> std::result::Result<(), nfsstat3> {
        let from = (from_dirid.as_u64(), text(from_filename)?);
        let to = (to_dirid.as_u64(), text(to_filename)?);
        Ok(lock(&self.tree).rename(from, to, true)?)
    }

    async fn symlink<'a>(
        &self,
        _dirid: &FileHandleU64,
        _linkname: &filename3<'a>,
        _symlink: &nfspath3<'a>,
        _attr: &sattr3,
    ) -> std::result::Result<(FileHandleU64, fattr3), nfsstat3> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }

    async fn commit(
        &self,
        id: &FileHandleU64,
        _offset: u64,
        _count: u32,
    ) -> std::result::Result<(), nfsstat3> {
        lock(&self.tree).node(id.as_u64())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nfs3_server::nfs3_types::nfs3::createhow3;

    use super::*;
    use crate::servers::testing;

    #[test]
    fn files_come_and_go() {
        let server = Nfs::start(64 << 20).expect("starts");
        testing::nfs::round_trip(&server);
    }

    #[test]
    fn a_full_server_says_so_and_a_removed_file_makes_room() {
        let server = Nfs::start(1 << 20).expect("starts");
        let mut client = testing::nfs::Client::try_mount(&server.uri()).expect("mounts");
        let new = || createhow3::GUARDED(sattr3::default());
        let file = client.create("a", new()).expect("new");
        let full = vec![1; 1 << 20];
        assert_eq!(client.write(&file, 0, &full), Ok(1 << 20));
        assert_eq!(
            client.write(&file, 1 << 20, &[1]),
            Err(nfsstat3::NFS3ERR_NOSPC)
        );
        client.remove("a").expect("there");
        let file = client.create("b", new()).expect("new");
        assert_eq!(client.write(&file, 0, &full), Ok(1 << 20));
    }

    #[test]
    fn another_export_is_refused_and_a_stopped_server_is_gone() {
        let server = Nfs::start(1 << 20).expect("starts");
        let wrong = server.uri().replace(EXPORT, "/other");
        assert!(testing::nfs::Client::try_mount(&wrong).is_err());
        let port = server.port();
        testing::assert_loopback_only(port);
        drop(server);
        testing::assert_closed(port);
    }
}
