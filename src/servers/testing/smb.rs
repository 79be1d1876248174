//! SMB: libsmbclient.

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
