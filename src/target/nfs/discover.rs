//! What an NFS server exports: its own list, and for each export whether this computer may mount it, and its space.
//!
//! Must not know: other protocols. Sizes are in bytes.

use std::net::SocketAddr;

use nfs3_types::nfs3::{ACCESS3_EXTEND, ACCESS3_MODIFY, ACCESS3args, FSSTAT3args, nfs_fh3};

use crate::error::{Error, Kind, Phase, Result};
use crate::target::{Discovery, Offer, Search};

use super::Options;
use super::client::{Client, Life};
use super::dial::Dialer;
use super::exports::{Export, Mounting};
use super::mount::identity;
use super::path;
use super::ports::{self, Answer, Missing};
use crate::probe::names::resolve;

/// How a host is asked.
pub const DISCOVERY: Discovery = Discovery {
    name: "nfs",
    server: "NFS server",
    port: ports::NFS_PORT,
    find,
};

const WHAT: &str = "NFS export";
/// So many of an export's clients are named.
const NAMED: usize = 4;
/// How servers write that everyone may mount.
const EVERYONE: &[&str] = &["*", "(everyone)", "0.0.0.0/0", "::/0", "0.0.0.0/0.0.0.0"];

fn find(search: &Search) -> Result<Vec<Offer>> {
    let login = &search.login;
    let mut worst: Option<Error> = None;
    for address in resolve(login.spec.host(), login.connect_timeout())? {
        match at(search, address) {
            // A name may have an address that this server does not listen on.
            Err(error) if error.phase == Phase::Connect => {
                if worst.as_ref().is_none_or(Error::server_lost) {
                    worst = Some(error);
                }
            }
            done => return done,
        }
    }
    Err(worst.unwrap_or_else(|| {
        let message = format!("'{}' has no address", login.spec.host());
        Error::new(Phase::Resolve, Kind::NotFound, message)
    }))
}

fn at(search: &Search, address: SocketAddr) -> Result<Vec<Offer>> {
    let spec = &search.login.spec;
    let options = Options::of(spec)?;
    let limit = search.login.connect_timeout();
    let dialer = Dialer::new(spec.host(), address, limit)?;
    let ports = match ports::look(&dialer, spec.port, options.mount_port) {
        Ok(ports) => ports,
        Err(Missing { error, answer, .. }) => return without(error, &answer),
    };
    let (who, credential) = identity(&options);
    let listed = Mounting::new(&dialer, &ports.mount, who, &credential)
        .and_then(|mut mounting| Ok((mounting.list()?, mounting)));
    let (exports, mut mounting) = match listed {
        Ok(listed) => listed,
        Err(error) => return without(error, &ports::probe(&dialer, ports.nfs.port)),
    };
    if exports.is_empty() {
        let note = "it answers, and shows this computer no exports";
        return Ok(vec![Offer::bare("NFS server", note)]);
    }
    let calls = Dialer::new(spec.host(), address, limit)?;
    let client = Client::open(
        calls,
        ports.nfs,
        credential,
        mounting.who,
        Life::Kept,
        limit,
        &spec.uri,
    );
    // Without it the exports are known all the same, though not their space.
    let mut client = client.ok();
    let offer = |export: &Export| {
        let mut offer = listed_as(search, export);
        if offer.uri.is_some() && search.has_time() {
            look_at(search, &mut mounting, client.as_mut(), export, &mut offer);
        }
        offer
    };
    Ok(exports.iter().map(offer).collect())
}

/// Where the exports could not be had: another version's server, a server that hides its list, or none at all.
fn without(error: Error, answer: &Answer) -> Result<Vec<Offer>> {
    match answer {
        Answer::Newer(_) => Ok(vec![Offer::bare(
            "NFS server",
            "version 4 only: mount the export with the kernel (mount -t nfs4 HOST:/EXPORT /mnt/nas) and give that path",
        )]),
        Answer::Three => {
            let note = format!(
                "version 3 answers, but not its list of exports: {}",
                error.message
            );
            Ok(vec![Offer::bare("NFS server", note)])
        }
        Answer::Nothing => Err(error),
    }
}

/// What the list itself tells.
fn listed_as(search: &Search, export: &Export) -> Offer {
    let mut offer = Offer::new(WHAT, &export.path, search.uri(&export.path));
    // The list was read as UTF-8, with this where it was none.
    if export.path.contains(char::REPLACEMENT_CHARACTER) {
        offer.uri = None;
        offer.note("its path is not UTF-8, which no URI can hold: mount it");
    } else if !export.path.starts_with('/')
        || names(&export.path).any(|name| path::safe(name).is_err())
    {
        offer.uri = None;
        offer.note("its path is not a plain one from the root");
    }
    if let Some(only) = only(&export.hosts) {
        offer.note(only);
    }
    offer
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// Who alone may mount, where not everyone may.
fn only(hosts: &[String]) -> Option<String> {
    if hosts.is_empty() || hosts.iter().any(|host| EVERYONE.contains(&host.as_str())) {
        return None;
    }
    let named: Vec<&str> = hosts.iter().take(NAMED).map(String::as_str).collect();
    let more = hosts.len().saturating_sub(NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    Some(format!("only {}{more}", named.join(", ")))
}

/// Mounts the export for a look.
fn look_at(
    search: &Search,
    mounting: &mut Mounting<'_>,
    client: Option<&mut Client>,
    export: &Export,
    offer: &mut Offer,
) {
    let names: Vec<&str> = names(&export.path).collect();
    match mounting.longest(&names) {
        Ok((root, opened, rest)) => {
            // A server may open a parent in its place, through which the export is reached as well.
            offer.accessible = rest.is_empty().then_some(true);
            if let (Some(client), true) = (client, rest.is_empty()) {
                space(search, client, root, offer);
            }
            if search.has_time() {
                mounting.leave(&opened);
            }
        }
        Err(error) => {
            offer.accessible = Some(false);
            offer.note(match (error.phase, error.kind) {
                (Phase::Authenticate, Kind::Unsupported) => {
                    "Kerberos only: mount it with the kernel and give that path".to_owned()
                }
                (_, Kind::Denied) => "the server does not let this computer mount it".to_owned(),
                _ => error.message,
            });
        }
    }
}

/// Size, free space, and whether there is a right to write.
fn space(search: &Search, client: &mut Client, root: nfs_fh3, offer: &mut Offer) {
    if !search.has_time() {
        return;
    }
    let args = FSSTAT3args {
        fsroot: root.clone(),
    };
    let doing = || "ask for the free space (FSSTAT)".to_owned();
    let answer = client.call(Phase::Open, doing, async |nfs| nfs.fsstat(&args).await);
    // A file system of no size at all is one that the server knows nothing of.
    if let Some(space) = answer.ok().filter(|space| space.tbytes > 0) {
        offer.size_bytes = Some(space.tbytes);
        offer.free_bytes = Some(space.abytes);
    }
    if !search.has_time() {
        return;
    }
    let wanted = ACCESS3_MODIFY | ACCESS3_EXTEND;
    let args = ACCESS3args {
        object: root,
        access: wanted,
    };
    let doing = || "ask for the rights (ACCESS)".to_owned();
    let answer = client.call(Phase::Open, doing, async |nfs| nfs.access(&args).await);
    if answer.is_ok_and(|rights| rights.access & wanted != wanted) {
        let who = client.who();
        offer.note(format!(
            "read-only, or not for uid {} to write: give ?uid=N&gid=N of its owner",
            who.uid
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use crate::spec::uri::TargetSpec;
    use crate::target::{Login, Secret};

    fn search(uri: &str) -> Search {
        Search {
            login: Login {
                spec: TargetSpec::parse(uri).expect(uri),
                secret: Secret::default(),
                connect_timeout_ms: 2000,
                io_timeout_ms: 2000,
            },
            hidden: false,
            enough: Instant::now() + Duration::from_secs(2),
        }
    }

    /// A port on which every call is answered "versions 4 to 4 only" (RFC 5531, `PROG_MISMATCH`).
    fn version_4_only() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("free");
        let port = listener.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a client");
                let mut head = [0; 8];
                while stream.read_exact(&mut head).is_ok() {
                    let length = u32::from_be_bytes([0, head[1], head[2], head[3]]);
                    let mut rest = vec![0; length as usize - 4];
                    stream.read_exact(&mut rest).expect("a whole call");
                    let mut answer = 0x8000_0020_u32.to_be_bytes().to_vec();
                    answer.extend(&head[4..]);
                    let words: [u32; 7] = [1, 0, 0, 0, 2, 4, 4];
                    answer.extend(words.iter().flat_map(|word| word.to_be_bytes()));
                    stream.write_all(&answer).expect("listens");
                }
            }
        });
        port
    }

    #[test]
    fn a_server_of_version_4_only_points_to_a_mount() {
        let free = TcpListener::bind("127.0.0.1:0").expect("free");
        let mount = free.local_addr().expect("bound").port();
        drop(free);
        let port = version_4_only();
        let offers = find(&search(&format!(
            "nfs://127.0.0.1:{port}?mountport={mount}"
        )));
        let offers = offers.expect("it is there");
        assert_eq!((offers.len(), &offers[0].uri), (1, &None));
        assert!(
            offers[0].notes[0].starts_with("version 4 only: mount"),
            "{offers:?}"
        );
    }

    #[test]
    fn paths_that_make_no_target_have_no_uri() {
        let search = search("nfs://nas:2049?mountport=20048");
        let offer = |path: &str| {
            let export = Export {
                path: path.to_owned(),
                hosts: vec!["10.0.0.0/24".to_owned()],
            };
            listed_as(&search, &export)
        };
        let good = offer("/tank/a b");
        assert_eq!(
            good.uri.as_deref(),
            Some("nfs://nas:2049/tank/a%20b?mountport=20048")
        );
        assert_eq!(good.notes, ["only 10.0.0.0/24"]);
        for bad in ["/tank/../etc", "tank", "", "/\u{fffd}", "/a\0b"] {
            let offer = offer(bad);
            assert_eq!(offer.uri, None, "{bad:?}");
            assert_eq!(offer.notes.len(), 2, "{bad:?}");
        }
    }

    #[test]
    fn who_alone_may_mount_is_told_in_bounds() {
        let hosts = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(only(&[]), None);
        assert_eq!(only(&hosts(&["10.0.0.0/24", "*"])), None);
        assert_eq!(
            only(&hosts(&["10.0.0.0/24", "nas2"])).as_deref(),
            Some("only 10.0.0.0/24, nas2")
        );
        let many: Vec<String> = (0..7).map(|n| format!("h{n}")).collect();
        assert_eq!(
            only(&many).as_deref(),
            Some("only h0, h1, h2, h3 and 3 more")
        );
    }
}
