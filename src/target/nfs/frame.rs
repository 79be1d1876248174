//! READ and WRITE as bytes: calls from a template with three places patched, replies decoded from their first bytes.
//!
//! Pure. RPC and NFS layouts are those of RFC 5531 and RFC 1813. Must not know sockets, slots or time.

use nfs3_types::nfs3::{
    PROGRAM, READ3args, VERSION, WRITE3args, nfs_fh3, nfsstat3, stable_how, writeverf3,
};
use nfs3_types::rpc::{call_body, msg_body, opaque_auth, rpc_msg};
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack};

/// Bit of a record mark that says "last fragment".
const LAST: u32 = 0x8000_0000;
/// A verifier may be this long (RFC 5531).
const VERIFIER_MAX: u32 = 400;
/// The longest head of a reply: RPC header, verifier, status, attributes, counts.
pub(super) const HEAD_MAX: usize = 24 + VERIFIER_MAX as usize + 4 + 28 + 88 + 16;

const READ: u32 = 6;
const WRITE: u32 = 7;

/// The bytes of a call, all but its xid, offset and count.
#[derive(Debug, Clone)]
pub(super) struct Template {
    bytes: Vec<u8>,
    /// Where the offset stands; the count follows it.
    offset_at: usize,
    write: bool,
}

impl Template {
    /// READ of a file.
    pub(super) fn read(file: &nfs_fh3, credential: &opaque_auth<'static>) -> Option<Self> {
        let args = READ3args {
            file: file.clone(),
            offset: 0,
            count: 0,
        };
        let mut bytes = call(READ, credential)?;
        args.pack(&mut bytes).ok()?;
        let offset_at = bytes.len() - 12;
        Some(Self {
            bytes,
            offset_at,
            write: false,
        })
    }

    /// WRITE to a file, up to its data.
    pub(super) fn write(
        file: &nfs_fh3,
        credential: &opaque_auth<'static>,
        stable: stable_how,
    ) -> Option<Self> {
        let args = WRITE3args {
            file: file.clone(),
            offset: 0,
            count: 0,
            stable,
            data: Opaque::borrowed(&[]),
        };
        let mut bytes = call(WRITE, credential)?;
        args.pack(&mut bytes).ok()?;
        let offset_at = bytes.len() - 20;
        Some(Self {
            bytes,
            offset_at,
            write: true,
        })
    }

    /// Bytes of a call without its data.
    pub(super) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes one call into `into`, which is as long as [`Template::len`].
    pub(super) fn fill(&self, into: &mut [u8], xid: u32, offset: u64, count: u32) {
        into.copy_from_slice(&self.bytes);
        let data = if self.write {
            count + padding(count)
        } else {
            0
        };
        let record = (self.bytes.len() as u32 - 4 + data) | LAST;
        into[..4].copy_from_slice(&record.to_be_bytes());
        into[4..8].copy_from_slice(&xid.to_be_bytes());
        into[self.offset_at..self.offset_at + 8].copy_from_slice(&offset.to_be_bytes());
        into[self.offset_at + 8..self.offset_at + 12].copy_from_slice(&count.to_be_bytes());
        if self.write {
            let end = self.bytes.len();
            into[end - 4..].copy_from_slice(&count.to_be_bytes());
        }
    }
}

/// Bytes that fill data up to a multiple of four.
pub(super) const fn padding(len: u32) -> u32 {
    len.wrapping_neg() & 3
}

fn call(procedure: u32, credential: &opaque_auth<'static>) -> Option<Vec<u8>> {
    let message = rpc_msg {
        xid: 0,
        body: msg_body::CALL(call_body {
            rpcvers: 2,
            prog: PROGRAM,
            vers: VERSION,
            proc: procedure,
            cred: credential.borrow(),
            verf: opaque_auth::default(),
        }),
    };
    let mut bytes = vec![0; 4];
    message.pack(&mut bytes).ok()?;
    Some(bytes)
}

/// What a record mark says: bytes of the fragment, and whether it is the last of its message.
pub(super) const fn fragment(mark: [u8; 4]) -> (u32, bool) {
    let mark = u32::from_be_bytes(mark);
    (mark & !LAST, mark & LAST != 0)
}

/// What the first bytes of a reply say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// At least this many bytes are needed.
    Need(usize),
    /// A good READ: `count` bytes of data follow.
    Read { count: u32, eof: bool },
    /// A good WRITE: nothing follows.
    Write {
        count: u32,
        committed: stable_how,
        verifier: writeverf3,
    },
    /// The server refused; the rest of the message means nothing.
    Refused(nfsstat3),
}

/// The xid of a reply, from its first four bytes.
pub(super) fn xid(head: &[u8]) -> Option<u32> {
    word(head, 0)
}

/// Decodes the first bytes of a reply to READ (or WRITE). Err says in what way it breaks the protocol.
pub(super) fn decode(head: &[u8], write: bool) -> Result<Head, String> {
    // xid, reply, accepted, verifier's flavour and length.
    if head.len() < 20 {
        return Ok(Head::Need(20));
    }
    let at = |place: usize| word(head, place).unwrap_or_default();
    if at(4) != 1 {
        return Err("a call came where a reply was due".into());
    }
    if at(8) != 0 {
        return Err("the RPC call was denied".into());
    }
    let verifier = at(16);
    if verifier > VERIFIER_MAX {
        return Err(format!("a verifier of {verifier} bytes"));
    }
    let accepted = 20 + (verifier + padding(verifier)) as usize;
    if head.len() < accepted + 8 {
        return Ok(Head::Need(accepted + 8));
    }
    match at(accepted) {
        0 => {}
        1 | 2 => return Err("the server has no NFS version 3 here".into()),
        3 => return Err("the server does not know the procedure".into()),
        4 => return Err("the server could not read the call".into()),
        5 => return Err("the server had an internal error".into()),
        other => return Err(format!("an RPC status of {other}")),
    }
    let status = at(accepted + 4);
    if status != 0 {
        let status = nfsstat3::unpack(&mut &head[accepted + 4..accepted + 8]);
        return status
            .map(|(status, _)| Head::Refused(status))
            .map_err(|_| format!("an NFS status of {}", at(accepted + 4)));
    }
    body(head, accepted + 8, write)
}

fn body(head: &[u8], start: usize, write: bool) -> Result<Head, String> {
    let mut place = start;
    // wcc_data before, for WRITE: size, mtime, ctime; then the attributes after.
    let optional: &[usize] = if write { &[24, 84] } else { &[84] };
    for length in optional {
        let Some(follows) = word(head, place) else {
            return Ok(Head::Need(place + 4));
        };
        place += match follows {
            0 => 4,
            1 => 4 + length,
            other => return Err(format!("{other} where attributes follow or not")),
        };
    }
    let tail = if write { 16 } else { 12 };
    if head.len() < place + tail {
        return Ok(Head::Need(place + tail));
    }
    let at = |place: usize| word(head, place).unwrap_or_default();
    let count = at(place);
    if write {
        let committed = match at(place + 4) {
            0 => stable_how::UNSTABLE,
            1 => stable_how::DATA_SYNC,
            2 => stable_how::FILE_SYNC,
            other => return Err(format!("a durability of {other}")),
        };
        let mut verifier = [0; 8];
        verifier.copy_from_slice(&head[place + 8..place + 16]);
        return Ok(Head::Write {
            count,
            committed,
            verifier: writeverf3(verifier),
        });
    }
    if at(place + 8) != count {
        return Err(format!("{count} bytes read, but {} sent", at(place + 8)));
    }
    Ok(Head::Read {
        count,
        eof: at(place + 4) != 0,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let part = bytes.get(at..at + 4)?;
    part.try_into().ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use nfs3_types::nfs3::{Nfs3Option, READ3resok, WRITE3resok, wcc_data};
    use nfs3_types::rpc::{accept_stat_data, accepted_reply, reply_body};
    use proptest::prelude::*;

    use super::*;

    fn file() -> nfs_fh3 {
        nfs_fh3 {
            data: Opaque::owned(vec![7; 33]),
        }
    }

    /// A reply as the library packs it, with any verifier.
    fn reply(verifier: usize, pack: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let verf = opaque_auth {
            body: Opaque::owned(vec![9; verifier]),
            ..opaque_auth::default()
        };
        let message = rpc_msg {
            xid: 77,
            body: msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted_reply {
                verf,
                reply_data: accept_stat_data::SUCCESS,
            })),
        };
        let mut bytes = Vec::new();
        message.pack(&mut bytes).expect("packs");
        pack(&mut bytes);
        bytes
    }

    /// Decodes with as few bytes as asked for, like the receiver does.
    fn patient(bytes: &[u8], write: bool) -> (Result<Head, String>, usize) {
        let mut have = 0;
        loop {
            match decode(&bytes[..have], write) {
                Ok(Head::Need(need)) => {
                    assert!(need > have, "asked again for {need}");
                    assert!(need <= bytes.len(), "asked beyond the head");
                    have = need;
                }
                other => return (other, have),
            }
        }
    }

    #[test]
    fn calls_are_those_of_the_library() {
        let credential = opaque_auth::default();
        let template = Template::read(&file(), &credential).expect("packs");
        let mut bytes = vec![0; template.len()];
        template.fill(&mut bytes, 5, 1 << 40, 4096);
        let mut expected = call(READ, &credential).expect("packs");
        expected[4..8].copy_from_slice(&5u32.to_be_bytes());
        READ3args {
            file: file(),
            offset: 1 << 40,
            count: 4096,
        }
        .pack(&mut expected)
        .expect("packs");
        let mark = (expected.len() as u32 - 4) | LAST;
        expected[..4].copy_from_slice(&mark.to_be_bytes());
        assert_eq!(bytes, expected);

        let template = Template::write(&file(), &credential, stable_how::FILE_SYNC).expect("packs");
        let mut bytes = vec![0; template.len()];
        template.fill(&mut bytes, 5, 3, 5);
        let data = [1, 2, 3, 4, 5];
        bytes.extend(data);
        bytes.extend([0; 3]);
        let mut expected = call(WRITE, &credential).expect("packs");
        expected[4..8].copy_from_slice(&5u32.to_be_bytes());
        let args = WRITE3args {
            file: file(),
            offset: 3,
            count: 5,
            stable: stable_how::FILE_SYNC,
            data: Opaque::borrowed(&data),
        };
        args.pack(&mut expected).expect("packs");
        let mark = (expected.len() as u32 - 4) | LAST;
        expected[..4].copy_from_slice(&mark.to_be_bytes());
        assert_eq!(bytes, expected);
    }

    #[test]
    fn replies_are_read_with_no_byte_too_many() {
        for verifier in [0, 5, 400] {
            let read = READ3resok {
                file_attributes: Nfs3Option::None,
                count: 3,
                eof: true,
                data: Opaque::borrowed(b"abc"),
            };
            let bytes = reply(verifier, |bytes| {
                0u32.pack(bytes).expect("packs");
                read.pack(bytes).expect("packs");
            });
            let (head, used) = patient(&bytes, false);
            assert_eq!(
                head,
                Ok(Head::Read {
                    count: 3,
                    eof: true
                })
            );
            assert_eq!(&bytes[used..], b"abc\0", "the data was left alone");
            let write = WRITE3resok {
                file_wcc: wcc_data {
                    before: Nfs3Option::None,
                    after: Nfs3Option::None,
                },
                count: 9,
                committed: stable_how::UNSTABLE,
                verf: writeverf3([1; 8]),
            };
            let bytes = reply(verifier, |bytes| {
                0u32.pack(bytes).expect("packs");
                write.pack(bytes).expect("packs");
            });
            let (head, used) = patient(&bytes, true);
            let expected = Head::Write {
                count: 9,
                committed: stable_how::UNSTABLE,
                verifier: writeverf3([1; 8]),
            };
            assert_eq!((head, used), (Ok(expected), bytes.len()));
        }
    }

    #[test]
    fn a_refusal_is_its_status() {
        let bytes = reply(0, |bytes| 28u32.pack(bytes).map(drop).expect("packs"));
        assert_eq!(
            patient(&bytes, true).0,
            Ok(Head::Refused(nfsstat3::NFS3ERR_NOSPC))
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_ask_without_end(bytes in proptest::collection::vec(any::<u8>(), 0..700), write: bool) {
            if let Ok(Head::Need(need)) = decode(&bytes, write) {
                prop_assert!(need > bytes.len() && need <= HEAD_MAX);
            }
        }

        #[test]
        fn nearly_right_replies_do_no_harm(
            cut in 0usize..200, at in 0usize..200, byte: u8, write: bool
        ) {
            let mut bytes = reply(8, |bytes| {
                0u32.pack(bytes).expect("packs");
                bytes.extend([0; 160]);
            });
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(cut.max(1));
            let _ = decode(&bytes, write);
        }
    }
}
