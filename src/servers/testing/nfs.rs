//! NFS: the `nfs3_client` crate.

use nfs3_client::tokio::{TokioConnector, TokioIo};
use nfs3_client::{Nfs3Connection, Nfs3ConnectionBuilder};
use nfs3_types::nfs3::*;
use nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_types::xdr_codec::Opaque;
use tokio::runtime::Runtime;

use super::{PIECES, Server, payload};
use crate::spec::uri::TargetSpec;

pub struct Client {
    runtime: Runtime,
    connection: Nfs3Connection<TokioIo<tokio::net::TcpStream>>,
}

fn entry<'a>(dir: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 {
        dir: dir.clone(),
        name: filename3(Opaque::borrowed(name.as_bytes())),
    }
}

impl Client {
    /// Mounts; the error as text.
    pub fn try_mount(uri: &str) -> Result<Self, String> {
        let spec = TargetSpec::parse(uri).expect(uri);
        let mount_port = spec.option("mountport", "a port").expect("a number");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let login = auth_unix::default();
        let mount = Nfs3ConnectionBuilder::new(TokioConnector, spec.host(), &spec.path)
            .nfs3_port(spec.port.expect("a port"))
            .mount_port(mount_port.expect("a mount port"))
            .connect_from_privileged_port(false)
            .credential(opaque_auth::auth_unix(&login))
            .mount();
        let connection = runtime.block_on(mount).map_err(|error| error.to_string())?;
        Ok(Self {
            runtime,
            connection,
        })
    }

    pub fn create(&mut self, name: &str, how: createhow3) -> Result<nfs_fh3, nfsstat3> {
        let arguments = CREATE3args {
            where_: entry(&self.connection.root_nfs_fh3(), name),
            how,
        };
        let call = self.connection.create(&arguments);
        match self.runtime.block_on(call).expect("an answer") {
            Nfs3Result::Ok(made) => match made.obj {
                Nfs3Option::Some(handle) => Ok(handle),
                Nfs3Option::None => panic!("no file handle"),
            },
            Nfs3Result::Err((status, _)) => Err(status),
        }
    }

    pub fn write(&mut self, file: &nfs_fh3, offset: u64, data: &[u8]) -> Result<u32, nfsstat3> {
        let arguments = WRITE3args {
            file: file.clone(),
            offset,
            count: data.len() as u32,
            stable: stable_how::UNSTABLE,
            data: Opaque::borrowed(data),
        };
        let call = self.connection.write(&arguments);
        match self.runtime.block_on(call).expect("an answer") {
            Nfs3Result::Ok(done) => Ok(done.count),
            Nfs3Result::Err((status, _)) => Err(status),
        }
    }

    pub fn read(&mut self, file: &nfs_fh3, offset: u64, count: usize) -> (Vec<u8>, bool) {
        let arguments = READ3args {
            file: file.clone(),
            offset,
            count: count as u32,
        };
        let call = self.connection.read(&arguments);
        let done = self.runtime.block_on(call).expect("an answer").unwrap();
        (done.data.as_ref().to_vec(), done.eof)
    }

    pub fn remove(&mut self, name: &str) -> Result<(), nfsstat3> {
        let root = self.connection.root_nfs_fh3();
        let arguments = REMOVE3args {
            object: entry(&root, name),
        };
        let call = self.connection.remove(&arguments);
        status(&self.runtime.block_on(call).expect("an answer"))
    }

    pub fn mkdir(&mut self, name: &str) -> Result<(), nfsstat3> {
        let root = self.connection.root_nfs_fh3();
        let arguments = MKDIR3args {
            where_: entry(&root, name),
            attributes: sattr3::default(),
        };
        let call = self.connection.mkdir(&arguments);
        status(&self.runtime.block_on(call).expect("an answer"))
    }

    pub fn rmdir(&mut self, name: &str) -> Result<(), nfsstat3> {
        let root = self.connection.root_nfs_fh3();
        let arguments = RMDIR3args {
            object: entry(&root, name),
        };
        let call = self.connection.rmdir(&arguments);
        status(&self.runtime.block_on(call).expect("an answer"))
    }

    fn names(&mut self) -> Vec<String> {
        let arguments = READDIR3args {
            dir: self.connection.root_nfs_fh3(),
            cookie: 0,
            cookieverf: cookieverf3::default(),
            count: 65536,
        };
        let call = self.connection.readdir(&arguments);
        let listing = self.runtime.block_on(call).expect("an answer").unwrap();
        let entries = listing.reply.entries.into_inner();
        let names = entries
            .iter()
            .map(|entry| String::from_utf8_lossy(entry.name.as_ref()).into_owned());
        names.filter(|name| name != "." && name != "..").collect()
    }
}

fn status<T, E>(result: &Nfs3Result<T, E>) -> Result<(), nfsstat3> {
    match result {
        Nfs3Result::Ok(_) => Ok(()),
        Nfs3Result::Err((status, _)) => Err(*status),
    }
}

/// Creates, writes, reads back and removes on a server that must be empty before and is after.
pub fn round_trip(server: &dyn Server) {
    let mut client = Client::try_mount(&server.uri()).expect("mounts");
    let guarded = || createhow3::GUARDED(sattr3::default());
    let file = client.create("a b.bin", guarded()).expect("new");
    let exists = Err(nfsstat3::NFS3ERR_EXIST);
    assert_eq!(client.create("a b.bin", guarded()).map(|_| ()), exists);
    let exclusive = |n| createhow3::EXCLUSIVE(createverf3([n; 8]));
    assert_eq!(client.create("a b.bin", exclusive(1)).map(|_| ()), exists);
    client.create("other", exclusive(2)).expect("new");
    assert_eq!(client.create("other", exclusive(3)).map(|_| ()), exists);
    client
        .create("other", exclusive(2))
        .expect("the same request again");
    client.remove("other").expect("there");
    let unchecked = createhow3::UNCHECKED(sattr3::default());
    client
        .create("a b.bin", unchecked)
        .expect("opens what is there");
    for (offset, len) in PIECES {
        let data = payload(*offset, *len);
        // One call may be shortened, to 1 MiB here.
        let mut done = 0;
        while done < data.len() {
            let end = data.len().min(done + (1 << 20));
            let at = offset + done as u64;
            done += client.write(&file, at, &data[done..end]).expect("fits") as usize;
        }
    }
    for (offset, len) in PIECES {
        let mut data = Vec::new();
        while data.len() < *len {
            let count = (len - data.len()).min(1 << 20);
            let (part, _) = client.read(&file, offset + data.len() as u64, count);
            assert!(!part.is_empty(), "early end at {offset} + {}", data.len());
            data.extend(part);
        }
        assert!(
            data == payload(*offset, *len),
            "{len} bytes at {offset} differ"
        );
    }
    let last = PIECES
        .last()
        .map_or(0, |(offset, len)| offset + *len as u64);
    assert_eq!(
        client.read(&file, last - 1, 10),
        (payload(last - 1, 1), true)
    );
    client.mkdir("dir").expect("new");
    assert_eq!(client.mkdir("dir"), exists);
    let mut names = client.names();
    names.sort();
    assert_eq!(names, ["a b.bin", "dir"]);
    client.rmdir("dir").expect("empty");
    client.remove("a b.bin").expect("there");
    assert_eq!(client.remove("a b.bin"), Err(nfsstat3::NFS3ERR_NOENT));
    assert!(client.names().is_empty());
}
