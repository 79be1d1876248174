//! Directory listings: page after page until the server says that it was the last, with each name's kind.

use nfs3_types::nfs3::{
    LOOKUP3args, Nfs3Result, READDIR3args, READDIRPLUS3args, cookieverf3, diropargs3, ftype3,
    nfs_fh3, nfsstat3,
};

use crate::error::{Error, Kind, Phase, Result};
use crate::target::Entry;

use super::client::{Client, given};

/// What one page of a listing may take on the wire, in bytes, and its names alone.
const PAGE: u32 = 64 << 10;
const PAGE_NAMES: u32 = 16 << 10;

/// How this server is asked.
#[derive(Debug)]
pub(super) struct Listing {
    /// Whether it lists names together with their attributes.
    plus: bool,
}

/// How far a listing has come.
#[derive(Default)]
pub(super) struct Cursor {
    cookie: u64,
    verifier: cookieverf3,
    last: bool,
}

/// A name and its kind, where the server tells it.
pub(super) type Named = (Vec<u8>, Option<ftype3>);

/// One page of a listing.
struct Page {
    names: Vec<(Vec<u8>, u64, Option<ftype3>)>,
    verifier: cookieverf3,
    last: bool,
}

impl Listing {
    pub(super) const fn new() -> Self {
        Self { plus: true }
    }

    /// All names in a directory; `shown` is its name in messages.
    pub(super) fn list(
        &mut self,
        client: &mut Client,
        handle: &nfs_fh3,
        shown: &str,
    ) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut cursor = Cursor::default();
        while let Some(names) = self.page(client, Phase::Open, handle, shown, &mut cursor)? {
            for (name, kind) in names {
                let directory = match kind {
                    Some(kind) => kind == ftype3::NF3DIR,
                    None => is_directory(client, handle, &name)?,
                };
                entries.push(Entry {
                    name: String::from_utf8_lossy(&name).into_owned(),
                    directory,
                });
            }
        }
        Ok(entries)
    }

    /// The next page of names, `.` and `..` left out: one call, or two of a server that is seen to list bare names
    /// only; None after the last.
    pub(super) fn page(
        &mut self,
        client: &mut Client,
        phase: Phase,
        handle: &nfs_fh3,
        shown: &str,
        cursor: &mut Cursor,
    ) -> Result<Option<Vec<Named>>> {
        if cursor.last {
            return Ok(None);
        }
        let page = self.ask(client, phase, handle, shown, cursor)?;
        cursor.last = page.last;
        cursor.verifier = page.verifier;
        match page.names.last().map(|(_, cookie, _)| *cookie) {
            Some(next) if next != cursor.cookie => cursor.cookie = next,
            _ if page.last => {}
            _ => {
                let message = format!(
                    "could not list '{shown}': the server says that there is more and sends nothing"
                );
                return Err(Error::new(phase, Kind::Protocol, message).at(client.uri()));
            }
        }
        let names = page.names.into_iter();
        Ok(Some(
            names
                .filter(|(name, _, _)| name != b"." && name != b"..")
                .map(|(name, _, kind)| (name, kind))
                .collect(),
        ))
    }

    fn ask(
        &mut self,
        client: &mut Client,
        phase: Phase,
        directory: &nfs_fh3,
        shown: &str,
        cursor: &Cursor,
    ) -> Result<Page> {
        let Cursor {
            cookie, verifier, ..
        } = *cursor;
        let doing = || format!("list '{shown}'");
        if self.plus {
            let args = READDIRPLUS3args {
                dir: directory.clone(),
                cookie,
                cookieverf: verifier,
                dircount: PAGE_NAMES,
                maxcount: PAGE,
            };
            // None: this server does not offer the call.
            let answer = client.call(phase, doing, async |nfs| {
                match nfs.readdirplus(&args).await {
                    Ok(Nfs3Result::Ok(page)) => Ok(Nfs3Result::Ok(Some(page))),
                    Ok(Nfs3Result::Err((nfsstat3::NFS3ERR_NOTSUPP, _)))
                    | Err(nfs3_client::RpcError::ProcUnavail) => Ok(Nfs3Result::Ok(None)),
                    Ok(Nfs3Result::Err(other)) => Ok(Nfs3Result::Err(other)),
                    Err(error) => Err(error),
                }
            })?;
            if let Some(page) = answer {
                return Ok(Page {
                    names: page
                        .reply
                        .entries
                        .into_inner()
                        .into_iter()
                        .map(|found| {
                            let kind = given(found.name_attributes).map(|known| known.type_);
                            (found.name.0.into_owned(), found.cookie, kind)
                        })
                        .collect(),
                    verifier: page.cookieverf,
                    last: page.reply.eof,
                });
            }
            self.plus = false;
        }
        let args = READDIR3args {
            dir: directory.clone(),
            cookie,
            cookieverf: verifier,
            count: PAGE,
        };
        let page = client.call(phase, doing, async |nfs| nfs.readdir(&args).await)?;
        Ok(Page {
            names: page
                .reply
                .entries
                .into_inner()
                .into_iter()
                .map(|found| (found.name.0.into_owned(), found.cookie, None))
                .collect(),
            verifier: page.cookieverf,
            last: page.reply.eof,
        })
    }
}

/// Whether a name that came without its kind is a directory; false once it is gone again.
fn is_directory(client: &mut Client, directory: &nfs_fh3, name: &[u8]) -> Result<bool> {
    let args = LOOKUP3args {
        what: diropargs3 {
            dir: directory.clone(),
            name: name.into(),
        },
    };
    let shown = String::from_utf8_lossy(name);
    let doing = || format!("find '{shown}'");
    let found = client.call(Phase::Open, doing, async |nfs| nfs.lookup(&args).await);
    let found = match found {
        Ok(found) => found,
        Err(error) if error.kind == Kind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let kind = match given(found.obj_attributes) {
        Some(known) => known.type_,
        None => client.attributes(Phase::Open, &found.object, &shown)?.type_,
    };
    Ok(kind == ftype3::NF3DIR)
}
