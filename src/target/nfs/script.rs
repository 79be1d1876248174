//! For tests: a server of one file that answers as it is told to, for what real servers do too seldom to test.

use std::io::{Cursor, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nfs3_types::mount::{fhandle3, mountres3, mountres3_ok};
use nfs3_types::nfs3::{
    COMMIT3args, COMMIT3resok, FSINFO3resok, GETATTR3args, GETATTR3resok, LOOKUP3args,
    LOOKUP3resok, Nfs3Option, Nfs3Result, READ3args, READ3resfail, READ3resok, READDIR3args,
    READDIR3resok, READDIRPLUS3args, READDIRPLUS3resfail, READDIRPLUS3resok, WRITE3args,
    WRITE3resfail, WRITE3resok, cookieverf3, dirlist3, entry3, fattr3, ftype3, nfs_fh3, nfsstat3,
    nfstime3, specdata3, stable_how, wcc_data, writeverf3,
};
use nfs3_types::rpc::{
    accept_stat_data, accepted_reply, msg_body, opaque_auth, reply_body, rpc_msg,
};
use nfs3_types::xdr_codec::{List, Opaque, Pack, Unpack};

use crate::op::Durability;
use crate::spec::uri::TargetSpec;
use crate::target::{Attach, Login, Secret};

/// How the server behaves.
#[derive(Debug, Clone)]
pub(super) struct Behaviour {
    /// Its rtmax and wtmax in bytes.
    pub(super) most: u32,
    /// It moves at most this many bytes a call, whatever it promised.
    pub(super) short: u32,
    /// It counts no byte of a write, sends none of a read and lists no name, and never says that it is done.
    pub(super) nothing: bool,
    /// After so many writes it answers as if it had restarted.
    pub(super) restart_after: Option<u32>,
    /// So many reads and writes are put off.
    pub(super) later: u32,
    /// What it says of a write's durability.
    pub(super) committed: stable_how,
    /// It closes the connection instead of answering READ and WRITE.
    pub(super) closes: bool,
    /// Bytes that its file holds at first.
    pub(super) content: u64,
    /// What it makes of its answers to READ and WRITE.
    pub(super) mangles: fn(Vec<u8>) -> Answer,
}

/// Bytes to send, and what follows them.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) bytes: Vec<u8>,
    pub(super) then: Then,
}

/// What a server does after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// It goes on.
    More,
    /// It closes the connection.
    Close,
    /// It resets the connection.
    Reset,
    /// It says nothing more, and keeps the connection.
    Silence,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            most: 8192,
            short: u32::MAX,
            nothing: false,
            restart_after: None,
            later: 0,
            committed: stable_how::UNSTABLE,
            closes: false,
            content: 0,
            mangles: |bytes| Answer {
                bytes,
                then: Then::More,
            },
        }
    }
}

struct State {
    behaviour: Behaviour,
    content: Vec<u8>,
    writes: u32,
}

/// Starts the server; it ends with the test process. The URI's directory is the export's root, its file is `f`.
pub(super) fn serve(behaviour: Behaviour) -> Login {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let state = Arc::new(Mutex::new(State {
        content: vec![7; behaviour.content as usize],
        behaviour,
        writes: 0,
    }));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let state = Arc::clone(&state);
            std::thread::spawn(move || converse(stream.expect("accepted"), &state));
        }
    });
    Login {
        spec: TargetSpec::parse(&format!("nfs://127.0.0.1:{port}/e?mountport={port}"))
            .expect("a URI"),
        secret: Secret(None),
        connect_timeout_ms: 5000,
        io_timeout_ms: 5000,
    }
}

/// The file, for writing.
pub(super) fn attach(durability: Durability) -> Attach {
    Attach {
        object: "f".to_owned(),
        write: true,
        direct: false,
        durability,
        iodepth: 1,
        block_max: 1 << 20,
        lane: 0,
        round: 1,
    }
}

fn converse(mut stream: TcpStream, state: &Mutex<State>) {
    let mut head = [0; 4];
    while stream.read_exact(&mut head).is_ok() {
        let length = u32::from_be_bytes(head) & 0x7fff_ffff;
        let mut message = vec![0; length as usize];
        if stream.read_exact(&mut message).is_err() {
            return;
        }
        let mut message = Cursor::new(message);
        let (call, _) = rpc_msg::unpack(&mut message).expect("a call");
        let msg_body::CALL(body) = call.body else {
            return;
        };
        let mut reply = vec![0; 4];
        let accepted = rpc_msg {
            xid: call.xid,
            body: msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted_reply {
                verf: opaque_auth::default(),
                reply_data: accept_stat_data::SUCCESS,
            })),
        };
        accepted.pack(&mut reply).expect("packed");
        let mut state = state.lock().expect("whole");
        if !state.answer(body.prog, body.proc, &mut message, &mut reply) {
            return;
        }
        let mangles = state.behaviour.mangles;
        drop(state);
        let length = (reply.len() - 4) as u32 | 0x8000_0000;
        reply[..4].copy_from_slice(&length.to_be_bytes());
        let data = body.prog == 100_003 && matches!(body.proc, 6 | 7);
        let answer = if data {
            mangles(reply)
        } else {
            (Behaviour::default().mangles)(reply)
        };
        if stream.write_all(&answer.bytes).is_err() {
            return;
        }
        match answer.then {
            Then::More => {}
            Then::Close => return,
            Then::Reset => {
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))
                    .expect("a socket");
                return;
            }
            Then::Silence => std::thread::sleep(Duration::from_mins(1)),
        }
    }
}

fn handle(id: u8) -> nfs_fh3 {
    nfs_fh3 {
        data: Opaque::owned(vec![id; 8]),
    }
}

fn argument<T: Unpack>(message: &mut Cursor<Vec<u8>>) -> T {
    T::unpack(message).expect("arguments").0
}

impl State {
    /// Packs the result of a call; false closes the connection.
    fn answer(
        &mut self,
        program: u32,
        procedure: u32,
        message: &mut Cursor<Vec<u8>>,
        reply: &mut Vec<u8>,
    ) -> bool {
        let packed = match (program, procedure) {
            (100_005, 1) => mountres3::Ok(mountres3_ok {
                fhandle: fhandle3(handle(1).data),
                auth_flavors: vec![1],
            })
            .pack(reply),
            (100_003, 1) => {
                let args: GETATTR3args = argument(message);
                let obj_attributes = self.attributes(args.object == handle(1));
                Nfs3Result::<_, ()>::Ok(GETATTR3resok { obj_attributes }).pack_ok(reply)
            }
            (100_003, 3) => {
                let args: LOOKUP3args = argument(message);
                let directory = args.what.name.as_ref() == b"d";
                Nfs3Result::<_, ()>::Ok(LOOKUP3resok {
                    object: handle(if directory { 1 } else { 2 }),
                    obj_attributes: Nfs3Option::None,
                    dir_attributes: Nfs3Option::None,
                })
                .pack_ok(reply)
            }
            (100_003, 19) => Nfs3Result::<_, ()>::Ok(self.limits()).pack_ok(reply),
            (100_003, 6 | 7) if self.behaviour.closes => return false,
            (100_003, 6) => self.read(&argument(message)).pack(reply),
            (100_003, 7) => self.write(&argument(message)).pack(reply),
            (100_003, 16) => self.list(&argument(message)).pack_ok(reply),
            (100_003, 17) => {
                let _: READDIRPLUS3args = argument(message);
                let none = READDIRPLUS3resfail::default();
                Nfs3Result::<READDIRPLUS3resok, _>::Err((nfsstat3::NFS3ERR_NOTSUPP, none))
                    .pack(reply)
            }
            (100_003, 21) => {
                let _: COMMIT3args = argument(message);
                Nfs3Result::<_, ()>::Ok(COMMIT3resok {
                    file_wcc: wcc_data::default(),
                    verf: self.verifier(),
                })
                .pack_ok(reply)
            }
            other => panic!("a call that no test makes: {other:?}"),
        };
        packed.expect("packed");
        true
    }

    fn verifier(&self) -> writeverf3 {
        let restarted = self
            .behaviour
            .restart_after
            .is_some_and(|after| self.writes > after);
        writeverf3([u8::from(restarted); 8])
    }

    fn attributes(&self, directory: bool) -> fattr3 {
        fattr3 {
            type_: if directory {
                ftype3::NF3DIR
            } else {
                ftype3::NF3REG
            },
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: self.content.len() as u64,
            used: 0,
            rdev: specdata3::default(),
            fsid: 1,
            fileid: 1,
            atime: nfstime3::default(),
            mtime: nfstime3::default(),
            ctime: nfstime3::default(),
        }
    }

    fn limits(&self) -> FSINFO3resok {
        let most = self.behaviour.most;
        FSINFO3resok {
            obj_attributes: Nfs3Option::None,
            rtmax: most,
            rtpref: most,
            rtmult: 1,
            wtmax: most,
            wtpref: most,
            wtmult: 1,
            dtpref: most,
            maxfilesize: u64::MAX,
            time_delta: nfstime3::default(),
            properties: 0,
        }
    }

    /// A page a name: `.`, `f` and the directory `d`.
    fn list(&self, args: &READDIR3args) -> Nfs3Result<READDIR3resok<'static>, ()> {
        let names = [".", "f", "d"];
        let at = args.cookie as usize;
        let verifier = cookieverf3([u8::from(at > 0) * 9; 8]);
        assert_eq!(args.cookieverf, verifier, "the verifier of the page before");
        let entries = if self.behaviour.nothing {
            Vec::new()
        } else {
            vec![entry3 {
                fileid: 1,
                name: names[at].as_bytes().to_vec().into(),
                cookie: args.cookie + 1,
            }]
        };
        Nfs3Result::Ok(READDIR3resok {
            dir_attributes: Nfs3Option::None,
            cookieverf: cookieverf3([9; 8]),
            reply: dirlist3 {
                entries: List(entries),
                eof: at + 1 == names.len(),
            },
        })
    }

    fn put_off(&mut self) -> bool {
        let later = self.behaviour.later > 0;
        self.behaviour.later = self.behaviour.later.saturating_sub(1);
        later
    }

    fn read(&mut self, args: &READ3args) -> Nfs3Result<READ3resok<'static>, READ3resfail> {
        if self.put_off() {
            return Nfs3Result::Err((nfsstat3::NFS3ERR_JUKEBOX, READ3resfail::default()));
        }
        assert!(args.count <= self.behaviour.most, "more than rtmax");
        let start = (args.offset as usize).min(self.content.len());
        let count = args.count.min(self.behaviour.short) as usize;
        let end = if self.behaviour.nothing {
            start
        } else {
            (start + count).min(self.content.len())
        };
        Nfs3Result::Ok(READ3resok {
            file_attributes: Nfs3Option::None,
            count: (end - start) as u32,
            eof: end == self.content.len() && !self.behaviour.nothing,
            data: Opaque::owned(self.content[start..end].to_vec()),
        })
    }

    fn write(&mut self, args: &WRITE3args<'static>) -> Nfs3Result<WRITE3resok, WRITE3resfail> {
        if self.put_off() {
            return Nfs3Result::Err((nfsstat3::NFS3ERR_JUKEBOX, WRITE3resfail::default()));
        }
        assert!(args.count <= self.behaviour.most, "more than wtmax");
        assert_eq!(args.count as usize, args.data.len());
        self.writes += 1;
        let count = if self.behaviour.nothing {
            0
        } else {
            args.count.min(self.behaviour.short)
        };
        let (start, end) = (args.offset as usize, args.offset as usize + count as usize);
        let length = self.content.len().max(end);
        self.content.resize(length, 0);
        self.content[start..end].copy_from_slice(&args.data[..count as usize]);
        Nfs3Result::Ok(WRITE3resok {
            file_wcc: wcc_data::default(),
            count,
            committed: self.behaviour.committed,
            verf: self.verifier(),
        })
    }
}

/// Results that cannot fail here need no failure type that can be packed.
trait PackOk {
    fn pack_ok(&self, out: &mut Vec<u8>) -> nfs3_types::xdr_codec::Result<usize>;
}

impl<T: Pack> PackOk for Nfs3Result<T, ()> {
    fn pack_ok(&self, out: &mut Vec<u8>) -> nfs3_types::xdr_codec::Result<usize> {
        match self {
            Self::Ok(value) => Ok(nfsstat3::NFS3_OK.pack(out)? + value.pack(out)?),
            Self::Err((status, ())) => status.pack(out),
        }
    }
}
