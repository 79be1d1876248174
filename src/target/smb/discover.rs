//! What an SMB server shares: its own list, and for each share whether it lets us in, its space and the right to write.
//!
//! The list is a call to the server's `srvsvc` over a named pipe of `IPC$` (MS-SRVS). It goes through the smb2 crate over a
//! socket of ours: libsmbclient would need a process for it. Must not know: how blocks are moved. Sizes are in bytes.

use std::future::Future;
use std::sync::Arc;

use smb2::client::{Connection, Session, Tree};
use smb2::msg::create::{
    CreateDisposition, CreateRequest, CreateResponse, ImpersonationLevel, ShareAccess,
};
use smb2::msg::read::{ReadRequest, ReadResponse, SMB2_CHANNEL_NONE};
use smb2::msg::tree_connect::{TreeConnectRequest, TreeConnectRequestFlags, TreeConnectResponse};
use smb2::msg::write::WriteRequest;
use smb2::pack::{Pack, ReadCursor, Unpack};
use smb2::rpc;
use smb2::types::flags::{FileAccessMask, ShareFlags};
use smb2::types::status::NtStatus;
use smb2::types::{Command, FileId, OplockLevel, TreeId};
use tokio::time::Instant;

use super::pipe::carrier::Carrier;
use super::pipe::status;
use super::place::PORT;
use super::server;
use super::shares::{self, Listed};
use crate::error::{Error, Kind, Phase, Result};
use crate::target::{Discovery, Offer, Search};

/// How a host is asked.
pub const DISCOVERY: Discovery = Discovery {
    name: "smb",
    server: "SMB server",
    port: PORT,
    find,
};

const WHAT: &str = "SMB share";
const SERVER: &str = "SMB server";
/// One read of the pipe.
const PIECE: u32 = 32 << 10;
/// More of a list is not read: some thousands of shares.
const LIST_MAX: usize = 2 << 20;
/// Where a WRITE's data begins: after its header and its fixed part.
const WRITE_DATA: u16 = 0x70;
/// Where a READ's data is wanted.
const READ_DATA: u8 = 0x50;
/// Windows' "access is denied", as calls answer it.
const ACCESS_DENIED: u32 = 5;

fn find(search: &Search) -> Result<Vec<Offer>> {
    let login = &search.login;
    let spec = &login.spec;
    let (host, port) = (spec.host(), spec.port.unwrap_or(PORT));
    let address = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    let timeout = login.connect_timeout();
    let broken = |error: &std::io::Error| {
        let doing = format!("use the connection to {address}");
        Error::io(Phase::Connect, error, &doing)
    };
    let socket = server::reach(host, port, &address, timeout)?;
    socket
        .set_nonblocking(true)
        .map_err(|error| broken(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| broken(&error))?;
    let visit = Visit {
        search,
        address: &address,
        // A second timeout for the details, which are given up first.
        deadline: Instant::now() + timeout,
    };
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::from_std(socket).map_err(|error| broken(&error))?;
        let stream = Arc::new(stream);
        let mut connection = Connection::from_transport(
            Box::new(Carrier(Arc::clone(&stream))),
            Box::new(Carrier(stream)),
            host,
        );
        connection.set_compression_requested(false);
        visit.offers(&mut connection).await
    })
}

/// One conversation with a server; all of it ends by the deadline.
struct Visit<'a> {
    search: &'a Search,
    address: &'a str,
    deadline: Instant,
}

impl Visit<'_> {
    async fn offers(&self, connection: &mut Connection) -> Result<Vec<Offer>> {
        let timeout = self.search.login.connect_timeout();
        self.in_time(connection.negotiate())
            .await
            .map_err(|error| server::unanswered(kind(&error), self.address, timeout))?;
        let listed = match self.listed(connection).await {
            Ok(Ok(listed)) => listed,
            Ok(Err(code)) if code == ACCESS_DENIED => return Ok(self.nobody_let_in()),
            Ok(Err(code)) => {
                let note = format!("it does not list its shares (Windows error {code})");
                return Ok(vec![Offer::bare(SERVER, note)]);
            }
            Err(smb2::Error::GuestSessionRefused { .. }) => return Ok(self.nobody_let_in()),
            Err(smb2::Error::Protocol { status, .. }) => {
                if status::kind(status) == Kind::Denied {
                    return Ok(self.nobody_let_in());
                }
                let note = format!("it does not list its shares ({status})");
                return Ok(vec![Offer::bare(SERVER, note)]);
            }
            Err(error) => return Err(self.failed(&error)),
        };
        let mut offers = Vec::new();
        for share in &listed {
            if share.hidden() && !self.search.hidden {
                continue;
            }
            offers.push(self.offer(connection, share).await);
        }
        if offers.is_empty() {
            let who = if self.user().is_some() {
                "this user"
            } else {
                "guests"
            };
            offers.push(Offer::bare(SERVER, format!("it shows {who} no shares")));
        }
        Ok(offers)
    }

    fn user(&self) -> Option<&str> {
        let user = self.search.login.spec.user.as_deref();
        user.filter(|user| !user.is_empty())
    }

    /// The server is there, but tells this user nothing.
    fn nobody_let_in(&self) -> Vec<Offer> {
        let note = match self.user() {
            None => "it tells its shares to users only: give --user NAME".to_owned(),
            Some(user) => format!(
                "it did not let user {user} in: the name or the password is wrong, or the user may not log in"
            ),
        };
        let mut offer = Offer::bare(SERVER, note);
        offer.accessible = Some(false);
        vec![offer]
    }

    /// Logs in and has the list told; Err in it is the server's code.
    async fn listed(
        &self,
        connection: &mut Connection,
    ) -> smb2::Result<std::result::Result<Vec<Listed>, u32>> {
        let login = &self.search.login;
        let domain = login.spec.domain.as_deref().unwrap_or("");
        let (user, password) = match self.user() {
            Some(user) => (user, login.secret.0.as_deref().unwrap_or("")),
            None => ("", ""),
        };
        self.in_time(Session::setup(connection, user, password, domain))
            .await?;
        let tree = self.in_time(Tree::connect(connection, "IPC$")).await?;
        let pipe = Pipe {
            visit: self,
            connection,
            tree: tree.tree_id,
            file: self.open(connection, tree.tree_id).await?,
        };
        let list = pipe.list().await;
        pipe.close().await;
        // The login and its tree end with the connection, which is closed next.
        list
    }

    /// Opens the server's list-teller.
    async fn open(&self, connection: &Connection, tree: TreeId) -> smb2::Result<FileId> {
        let request = CreateRequest {
            requested_oplock_level: OplockLevel::None,
            impersonation_level: ImpersonationLevel::Impersonation,
            desired_access: FileAccessMask::new(
                FileAccessMask::FILE_READ_DATA | FileAccessMask::FILE_WRITE_DATA,
            ),
            file_attributes: 0,
            share_access: ShareAccess(ShareAccess::FILE_SHARE_READ | ShareAccess::FILE_SHARE_WRITE),
            create_disposition: CreateDisposition::FileOpen,
            create_options: 0,
            name: "srvsvc".to_owned(),
            create_contexts: Vec::new(),
        };
        let body = self
            .call(connection, Command::Create, &request, Some(tree))
            .await?;
        Ok(CreateResponse::unpack(&mut ReadCursor::new(&body))?.file_id)
    }

    /// A call that must succeed; the body of its answer.
    async fn call(
        &self,
        connection: &Connection,
        command: Command,
        request: &dyn Pack,
        tree: Option<TreeId>,
    ) -> smb2::Result<Vec<u8>> {
        let frame = self
            .in_time(connection.execute(command, request, tree))
            .await?;
        let status = frame.header.status;
        if status == NtStatus::SUCCESS {
            return Ok(frame.body);
        }
        Err(smb2::Error::Protocol { status, command })
    }

    /// A share with what a look at it tells.
    async fn offer(&self, connection: &mut Connection, share: &Listed) -> Offer {
        let uri = self.search.uri(&format!("/{}", share.name));
        let mut offer = Offer::new(WHAT, &share.name, uri);
        if let Some(kind) = share.no_disk() {
            offer.uri = None;
            offer.note(format!("no folder: {kind}"));
            return offer;
        }
        if share.name.contains(char::REPLACEMENT_CHARACTER) {
            offer.uri = None;
            offer.note("its name is not Unicode, which no URI can hold");
            return offer;
        }
        if self.search.has_time() {
            self.look_at(connection, share, &mut offer).await;
        }
        if !share.remark.is_empty() {
            offer.note(format!("\"{}\"", share.remark));
        }
        offer
    }

    async fn look_at(&self, connection: &mut Connection, share: &Listed, offer: &mut Offer) {
        let request = TreeConnectRequest {
            flags: TreeConnectRequestFlags::default(),
            path: format!(r"\\{}\{}", connection.server_name(), share.name),
        };
        let answer = self
            .call(connection, Command::TreeConnect, &request, None)
            .await;
        let opened =
            answer.and_then(|body| TreeConnectResponse::unpack(&mut ReadCursor::new(&body)));
        let rights = match opened {
            Ok(rights) => rights,
            Err(smb2::Error::Protocol { status, .. }) => {
                let (accessible, note) = match (status::kind(status), self.user()) {
                    (Kind::Denied, None) => {
                        (Some(false), "needs a user: give --user NAME".to_owned())
                    }
                    // smbd refuses this client a share that it serves encrypted only; libsmbclient gets in.
                    (Kind::Denied, Some(user)) => (
                        None,
                        format!("not for user {user}, or encrypted only: nasgauge inspect tells"),
                    ),
                    _ => (
                        Some(false),
                        format!("the server does not open it ({status})"),
                    ),
                };
                offer.accessible = accessible;
                offer.note(note);
                return;
            }
            // What a broken connection leaves unknown stays so.
            Err(_) => return,
        };
        offer.accessible = Some(true);
        let write = FileAccessMask::FILE_WRITE_DATA | FileAccessMask::FILE_APPEND_DATA;
        if rights.maximal_access & write != write {
            offer.note("read-only for this user");
        }
        if rights.share_flags.contains(ShareFlags::ENCRYPT_DATA) {
            offer.note("encrypted");
        }
        if let Ok(tree) = self.in_time(Tree::connect(connection, &share.name)).await {
            if let Ok(space) = self.in_time(tree.fs_info(connection)).await {
                offer.size_bytes = Some(space.total_bytes).filter(|size| *size > 0);
                offer.free_bytes = offer.size_bytes.and(Some(space.free_bytes));
            }
            let _ = self.in_time(tree.disconnect(connection)).await;
        }
    }

    async fn in_time<T>(&self, step: impl Future<Output = smb2::Result<T>>) -> smb2::Result<T> {
        tokio::time::timeout_at(self.deadline, step)
            .await
            .unwrap_or(Err(smb2::Error::Timeout))
    }

    fn failed(&self, error: &smb2::Error) -> Error {
        let address = self.address;
        let message = match kind(error) {
            Kind::TimedOut => format!("{address} speaks SMB, but did not tell its shares in time"),
            Kind::Gone => format!("{address} closed the connection instead of telling its shares"),
            _ => format!("{address} answers what makes no sense ({error})"),
        };
        Error::new(Phase::Open, Kind::Protocol, message)
    }
}

/// The kind of a failure that is no answer of the server's.
fn kind(error: &smb2::Error) -> Kind {
    match error {
        smb2::Error::Timeout => Kind::TimedOut,
        smb2::Error::Disconnected | smb2::Error::SendFailed { .. } => Kind::Gone,
        smb2::Error::Io(error) => Kind::of_io(error),
        _ => Kind::Protocol,
    }
}

/// An open `srvsvc`.
struct Pipe<'a> {
    visit: &'a Visit<'a>,
    connection: &'a Connection,
    tree: TreeId,
    file: FileId,
}

impl Pipe<'_> {
    async fn list(&self) -> smb2::Result<std::result::Result<Vec<Listed>, u32>> {
        self.say(rpc::build_srvsvc_bind(1)).await?;
        rpc::parse_bind_ack(&self.hear().await?)?;
        let server = format!(r"\\{}", self.connection.server_name());
        self.say(rpc::srvsvc::build_net_share_enum_all(2, &server))
            .await?;
        let mut told = Vec::new();
        loop {
            let message = self.hear().await?;
            let (part, last) = rpc::parse_response_fragment(&message)?;
            told.extend_from_slice(part);
            if told.len() > LIST_MAX || (part.is_empty() && !last) {
                return Err(smb2::Error::invalid_data("a list of shares without end"));
            }
            if last {
                break;
            }
        }
        shares::read(&told).ok_or_else(|| smb2::Error::invalid_data("no list of shares"))
    }

    async fn say(&self, data: Vec<u8>) -> smb2::Result<()> {
        let request = WriteRequest {
            data_offset: WRITE_DATA,
            offset: 0,
            file_id: self.file,
            channel: 0,
            remaining_bytes: 0,
            write_channel_info_offset: 0,
            write_channel_info_length: 0,
            flags: 0,
            data,
        };
        let tree = Some(self.tree);
        let done = self
            .visit
            .call(self.connection, Command::Write, &request, tree);
        done.await.map(drop)
    }

    /// One message, in as many pieces as the server makes of it.
    async fn hear(&self) -> smb2::Result<Vec<u8>> {
        let mut message = Vec::new();
        loop {
            let request = ReadRequest {
                padding: READ_DATA,
                flags: 0,
                length: PIECE,
                offset: 0,
                file_id: self.file,
                minimum_count: 0,
                channel: SMB2_CHANNEL_NONE,
                remaining_bytes: 0,
                read_channel_info: Vec::new(),
            };
            let asked = self
                .connection
                .execute(Command::Read, &request, Some(self.tree));
            let frame = self.visit.in_time(asked).await?;
            let status = frame.header.status;
            if !status.is_success_or_partial() {
                let command = Command::Read;
                return Err(smb2::Error::Protocol { status, command });
            }
            let piece = ReadResponse::unpack(&mut ReadCursor::new(&frame.body))?.data;
            message.extend_from_slice(&piece);
            if status != NtStatus::BUFFER_OVERFLOW {
                return Ok(message);
            }
            if piece.is_empty() || message.len() > LIST_MAX {
                return Err(smb2::Error::invalid_data("a message without end"));
            }
        }
    }

    async fn close(&self) {
        let request = smb2::msg::close::CloseRequest {
            flags: 0,
            file_id: self.file,
        };
        let tree = Some(self.tree);
        // The end of the connection closes it as well.
        let _ = self
            .visit
            .call(self.connection, Command::Close, &request, tree)
            .await;
    }
}
