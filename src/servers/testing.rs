//! Plain clients for the servers' own tests: each writes, reads back, compares and removes.
//!
//! Must not know: nasgauge's own clients, which are tested against these servers elsewhere.

use super::Server;

/// Sizes and offsets that every server must take; the last ones lie beyond 4 GiB.
pub const PIECES: &[(u64, usize)] = &[
    (0, 1),
    (1, 4095),
    (4096, 4096),
    (1 << 20, (1 << 20) + 1),
    ((5 << 30) + 511, 4097),
];

/// Bytes that differ from place to place.
pub fn payload(offset: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|n| ((offset + n).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
        .collect()
}

/// A new empty directory of the sandbox for one test, removed with it.
pub fn work(name: &str) -> tempfile::TempDir {
    let directory = super::sandbox::Sandbox::work_dir();
    let prefix = format!("test-{name}-");
    tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir_in(directory)
        .expect("this test needs nasgauge's sandbox: run ./test, or cargo test inside it")
}

/// Nobody listens on a port of any address any more.
pub fn assert_closed(port: u16) {
    assert!(listeners(port).is_empty(), "{:?}", listeners(port));
}

/// A port is listened on, on 127.0.0.1 and nowhere else.
pub fn assert_loopback_only(port: u16) {
    assert_eq!(listeners(port), ["0100007F"]);
}

/// The addresses, as the kernel writes them, on which a port is listened on in this network.
fn listeners(port: u16) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let suffix = format!(":{port:04X}");
    tables
        .iter()
        .flat_map(|table| table.lines().skip(1))
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // State 0A is LISTEN.
            (fields[3] == "0A")
                .then(|| fields[1].strip_suffix(&suffix))
                .flatten()
        })
        .map(str::to_owned)
        .collect()
}

pub mod nfs {
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
}

#[cfg(feature = "smb")]
pub mod smb {
    use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
    use std::time::Duration;

    use pavao::{SmbClient, SmbCredentials, SmbOpenOptions, SmbOptions};

    use super::{PIECES, Server, payload};
    use crate::spec::uri::TargetSpec;

    /// A client for the server's share, with this password.
    pub fn client(uri: &str, password: &str) -> SmbClient {
        let spec = TargetSpec::parse(uri).expect(uri);
        let address = format!("smb://{}:{}", spec.host(), spec.port.expect("a port"));
        let credentials = SmbCredentials::default()
            .server(address)
            .share(spec.path.clone())
            .username(spec.user.clone().unwrap_or_default())
            .password(password)
            .workgroup("WORKGROUP");
        let client = SmbClient::new(credentials, SmbOptions::default()).expect("a client");
        client.set_timeout(Duration::from_secs(10)).expect("set");
        client
    }

    /// Creates, writes, reads back and removes.
    pub fn round_trip(server: &dyn Server) {
        let client = client(&server.uri(), server.password().unwrap_or_default());
        client.mkdir("/dir", 0o755.into()).expect("new");
        let name = "/dir/a b.bin";
        let open = |new| {
            let options = SmbOpenOptions::default().read(true).write(true);
            client.open_with(
                name,
                if new {
                    options.create(true).exclusive(true)
                } else {
                    options
                },
            )
        };
        let mut file = open(true).expect("new");
        for (offset, len) in PIECES {
            file.seek(SeekFrom::Start(*offset)).expect("seeks");
            file.write_all(&payload(*offset, *len)).expect("fits");
        }
        drop(file);
        assert!(open(true).is_err(), "a name is taken once");
        let mut file = open(false).expect("there");
        for (offset, len) in PIECES {
            let mut data = vec![0; *len];
            file.seek(SeekFrom::Start(*offset)).expect("seeks");
            file.read_exact(&mut data).expect("reads");
            assert!(
                data == payload(*offset, *len),
                "{len} bytes at {offset} differ"
            );
        }
        drop(file);
        let last = PIECES
            .last()
            .map_or(0, |(offset, len)| offset + *len as u64);
        assert_eq!(client.stat(name).expect("there").size, last);
        let names: Vec<String> = client
            .list_dir("/dir")
            .expect("lists")
            .iter()
            .map(|entry| entry.name().to_owned())
            .filter(|name| name != "." && name != "..")
            .collect();
        assert_eq!(names, ["a b.bin"]);
        client.unlink(name).expect("there");
        client.rmdir("/dir").expect("empty");
        assert!(client.stat("/dir").is_err());
    }

    /// Fails to log in with another password.
    pub fn wrong_password(server: &dyn Server) {
        let client = client(&server.uri(), "not the password");
        match client.stat("/") {
            Err(pavao::SmbError::Io(error)) => {
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
            }
            other => panic!("expected a refusal, got {other:?}"),
        }
    }
}

#[cfg(feature = "iscsi")]
pub mod iscsi {
    #![expect(unsafe_code, reason = "libiscsi is a C library")]

    use std::ffi::{CStr, CString, c_int};

    use libiscsi_sys as sys;

    use super::{Server, payload};
    use crate::spec::uri::TargetSpec;

    pub struct Client {
        context: *mut sys::iscsi_context,
        lun: c_int,
    }

    impl Client {
        /// Logs in; the error as text.
        pub fn try_login(uri: &str, password: Option<&str>) -> Result<Self, String> {
            let spec = TargetSpec::parse(uri).expect(uri);
            let parts: Vec<&str> = spec.parts().collect();
            let text = |text: &str| CString::new(text).expect("no zero byte");
            let portal = text(&format!("{}:{}", spec.host(), spec.port.expect("a port")));
            let (name, lun) = (
                text("iqn.2026-11.dev.nasgauge:tests"),
                parts[1].parse().expect("a LUN"),
            );
            // SAFETY: every pointer is to a live, zero-terminated string, and libiscsi copies what it keeps.
            unsafe {
                let context = sys::iscsi_create_context(name.as_ptr());
                assert!(!context.is_null());
                let client = Self { context, lun };
                sys::iscsi_set_noautoreconnect(context, 1);
                sys::iscsi_set_timeout(context, 10);
                sys::iscsi_set_session_type(context, sys::iscsi_session_type_ISCSI_SESSION_NORMAL);
                sys::iscsi_set_targetname(context, text(parts[0]).as_ptr());
                if let (Some(user), Some(password)) = (&spec.user, password) {
                    let (user, password) = (text(user), text(password));
                    sys::iscsi_set_initiator_username_pwd(
                        context,
                        user.as_ptr(),
                        password.as_ptr(),
                    );
                }
                if sys::iscsi_full_connect_sync(context, portal.as_ptr(), lun) == 0 {
                    return Ok(client);
                }
                let error = CStr::from_ptr(sys::iscsi_get_error(context));
                Err(error.to_string_lossy().into_owned())
            }
        }

        /// Writes whole blocks; false when the target refuses.
        pub fn write(&mut self, block: u64, data: &[u8]) -> bool {
            let mut data = data.to_vec();
            // SAFETY: the data outlives the call, which is synchronous; the task is freed once.
            unsafe {
                let task = sys::iscsi_write16_sync(
                    self.context,
                    self.lun,
                    block,
                    data.as_mut_ptr(),
                    data.len() as u32,
                    512,
                    0,
                    0,
                    0,
                    0,
                    0,
                );
                assert!(!task.is_null());
                let good = (*task).status == 0;
                sys::scsi_free_scsi_task(task);
                good
            }
        }

        pub fn read(&mut self, block: u64, len: usize) -> Vec<u8> {
            // SAFETY: the task owns its data until it is freed, after the copy.
            unsafe {
                let task = sys::iscsi_read16_sync(
                    self.context,
                    self.lun,
                    block,
                    len as u32,
                    512,
                    0,
                    0,
                    0,
                    0,
                    0,
                );
                assert!(!task.is_null() && (*task).status == 0);
                let data =
                    std::slice::from_raw_parts((*task).datain.data, (*task).datain.size as usize);
                let data = data.to_vec();
                sys::scsi_free_scsi_task(task);
                data
            }
        }
    }

    impl Drop for Client {
        fn drop(&mut self) {
            // SAFETY: the context is live, and nothing uses it afterwards.
            unsafe {
                sys::iscsi_destroy_context(self.context);
            }
        }
    }

    /// Writes and reads back all over a LUN of at least 6 GiB.
    pub fn round_trip(server: &dyn Server) {
        let mut client = Client::try_login(&server.uri(), server.password()).expect("logs in");
        let pieces = [
            (0, 512),
            (7, 4096),
            (4096, 1 << 20),
            ((5 << 30) / 512 + 1, (1 << 20) + 512),
        ];
        for (block, len) in pieces {
            assert!(
                client.write(block, &payload(block, len)),
                "{len} bytes at {block}"
            );
        }
        for (block, len) in pieces {
            assert!(
                client.read(block, len) == payload(block, len),
                "{len} bytes at {block} differ"
            );
        }
        assert_eq!(client.read((4 << 30) / 512, 512), [0; 512], "never written");
    }
}
