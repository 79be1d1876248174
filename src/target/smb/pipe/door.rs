//! Into a share and to an open file through the smb2 crate, over a socket that stays ours.
//!
//! Each step has until one common deadline, and its own sentence when it fails. Nothing is created: a file must be there.
//! Must not know: how blocks are moved.

use std::future::Future;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use smb2::client::{Connection, NegotiatedParams, Session, Tree};
use smb2::msg::create::{
    CreateDisposition, CreateRequest, CreateResponse, ImpersonationLevel, ShareAccess,
};
use smb2::pack::{ReadCursor, Unpack};
use smb2::types::flags::{Capabilities, FileAccessMask};
use smb2::types::status::NtStatus;
use smb2::types::{Command, Dialect, FileId, OplockLevel};
use tokio::time::Instant;

use super::calls::Start;
use super::carrier::Carrier;
use super::frame::Names;
use super::seal::Seal;
use super::status;
use crate::error::{Error, Kind, Phase, Result};
use crate::op::Durability;
use crate::target::smb::place::Place;
use crate::target::smb::{refusal, server};
use crate::target::{Attach, Login};

/// A handle on a file, never on a directory.
const NON_DIRECTORY: u32 = 0x40;
/// Every write through the handle is durable before its answer. Asked for write by write, Windows would refuse it to
/// handles that buffer.
const WRITE_THROUGH: u32 = 0x02;

/// A file that is open, and all that a session needs to go on alone.
pub(super) struct Entered {
    pub(super) socket: TcpStream,
    pub(super) start: Start,
    /// None for guests, whose messages can't be signed.
    pub(super) seal: Option<Seal>,
    /// As in `3.1.1`.
    pub(super) dialect: String,
    /// The server and port in use.
    pub(super) address: String,
}

/// Logs in and opens the file.
pub(super) fn enter(login: &Login, place: &Place, attach: &Attach) -> Result<Entered> {
    let address = place.address(attach.lane);
    let host = place.host(attach.lane);
    let name = place.entry_name(&attach.object)?;
    let timeout = login.connect_timeout();
    let broken = |error: &std::io::Error| {
        Error::io(
            Phase::Connect,
            error,
            &format!("use the connection to {address}"),
        )
    };
    let socket = server::reach(host, place.port, &address, timeout)?;
    socket.set_nodelay(true).map_err(|error| broken(&error))?;
    socket
        .set_nonblocking(true)
        .map_err(|error| broken(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| broken(&error))?;
    let visit = Visit {
        place,
        host,
        address: &address,
        timeout,
        deadline: Instant::now() + timeout,
    };
    let copy = socket.try_clone().map_err(|error| broken(&error))?;
    let password = login.secret.0.as_deref().unwrap_or("");
    let found = runtime.block_on(async {
        let stream = tokio::net::TcpStream::from_std(copy).map_err(|error| broken(&error))?;
        visit.enter(stream, password, &name, attach).await
    });
    // With it ends all that the crate would still do on the connection.
    drop(runtime);
    let (start, session, dialect) = found?;
    socket
        .set_nonblocking(false)
        .map_err(|error| broken(&error))?;
    let seal = if start.names.signed {
        let seal = Seal::new(session.signing_algorithm, &session.signing_key);
        Some(seal.ok_or_else(|| {
            Error::new(
                Phase::Authenticate,
                Kind::Other,
                "the session's key can't sign",
            )
        })?)
    } else {
        None
    };
    Ok(Entered {
        socket,
        start,
        seal,
        dialect: server::dialect_name(dialect.into()),
        address,
    })
}

/// One login, step by step.
struct Visit<'a> {
    place: &'a Place,
    host: &'a str,
    address: &'a str,
    timeout: Duration,
    deadline: Instant,
}

impl Visit<'_> {
    async fn enter(
        &self,
        stream: tokio::net::TcpStream,
        password: &str,
        name: &str,
        attach: &Attach,
    ) -> Result<(Start, Session, Dialect)> {
        let stream = Arc::new(stream);
        let mut connection = Connection::from_transport(
            Box::new(Carrier(Arc::clone(&stream))),
            Box::new(Carrier(stream)),
            self.host,
        );
        // Compressed blocks would make the rate one of the processor.
        connection.set_compression_requested(false);
        let params = self.negotiate(&mut connection).await?;
        let session = self.log_in(&mut connection, password).await?;
        let tree = self.share(&mut connection).await?;
        let file = self.open(&connection, &tree, name, attach).await?;
        let large = params.dialect != Dialect::Smb2_0_2
            && params.capabilities.contains(Capabilities::LARGE_MTU);
        let start = Start {
            names: Names {
                session: connection.session_id().0,
                tree: tree.tree_id.0,
                file: (file.persistent, file.volatile),
                large,
                signed: session.should_sign,
            },
            next_id: connection.next_message_id(),
            credits: connection.credits(),
            read_max: params.max_read_size,
            write_max: params.max_write_size,
        };
        Ok((start, session, params.dialect))
    }

    async fn negotiate(&self, connection: &mut Connection) -> Result<NegotiatedParams> {
        match self.in_time(connection.negotiate()).await {
            Ok(()) => {}
            Err(smb2::Error::Timeout) => {
                return Err(server::unanswered(
                    Kind::TimedOut,
                    self.address,
                    self.timeout,
                ));
            }
            Err(smb2::Error::Disconnected | smb2::Error::SendFailed { .. }) => {
                return Err(server::unanswered(Kind::Gone, self.address, self.timeout));
            }
            Err(_) => return Err(server::unanswered(Kind::Other, self.address, self.timeout)),
        }
        connection
            .params()
            .ok_or_else(|| server::unanswered(Kind::Other, self.address, self.timeout))
    }

    async fn log_in(&self, connection: &mut Connection, password: &str) -> Result<Session> {
        let place = self.place;
        let (user, password) = match &place.user {
            Some(user) => (user.as_str(), password),
            None => ("", ""),
        };
        let session = self
            .in_time(Session::setup(connection, user, password, &place.domain))
            .await
            .map_err(|error| match error {
                smb2::Error::GuestSessionRefused { .. } => self.not_let_in(),
                smb2::Error::Protocol { status, .. } if status::kind(status) == Kind::Denied => {
                    self.not_let_in()
                }
                other => self.failed(
                    Phase::Authenticate,
                    other,
                    &format!("log in as {}", place.login_name()),
                ),
            })?;
        if session.should_encrypt {
            return Err(self.sealed());
        }
        Ok(session)
    }

    async fn share(&self, connection: &mut Connection) -> Result<Tree> {
        let share = &self.place.share;
        let tree = self
            .in_time(Tree::connect(connection, share))
            .await
            .map_err(|error| match error.status() {
                Some(NtStatus::BAD_NETWORK_NAME) => refusal::no_share(self.address, share),
                Some(status) if status::kind(status) == Kind::Denied => self.not_let_in(),
                _ => self.failed(Phase::Open, error, &format!("reach share '{share}'")),
            })?;
        if tree.encrypt_data {
            return Err(self.sealed());
        }
        Ok(tree)
    }

    async fn open(
        &self,
        connection: &Connection,
        tree: &Tree,
        name: &str,
        attach: &Attach,
    ) -> Result<FileId> {
        let mut access = FileAccessMask::FILE_READ_DATA
            | FileAccessMask::FILE_READ_ATTRIBUTES
            | FileAccessMask::SYNCHRONIZE;
        if attach.write {
            access |= FileAccessMask::FILE_WRITE_DATA
                | FileAccessMask::FILE_APPEND_DATA
                | FileAccessMask::FILE_WRITE_ATTRIBUTES;
        }
        // In a distributed file system names start at the server.
        let name = if tree.is_dfs {
            format!("{}\\{}\\{name}", self.host, self.place.share)
        } else {
            name.to_owned()
        };
        let request = CreateRequest {
            requested_oplock_level: OplockLevel::None,
            impersonation_level: ImpersonationLevel::Impersonation,
            desired_access: FileAccessMask::new(access),
            file_attributes: 0,
            share_access: ShareAccess(
                ShareAccess::FILE_SHARE_READ
                    | ShareAccess::FILE_SHARE_WRITE
                    | ShareAccess::FILE_SHARE_DELETE,
            ),
            create_disposition: CreateDisposition::FileOpen,
            create_options: match attach.durability {
                // SMB knows no weaker form: with the data its length is made durable too.
                Durability::Datasync | Durability::Sync => NON_DIRECTORY | WRITE_THROUGH,
                Durability::None | Durability::Flush => NON_DIRECTORY,
            },
            name,
            create_contexts: Vec::new(),
        };
        let doing = format!("open '{}' on share '{}'", attach.object, self.place.share);
        let frame = self
            .in_time(connection.execute(Command::Create, &request, Some(tree.tree_id)))
            .await
            .map_err(|error| self.failed(Phase::Open, error, &doing))?;
        if frame.header.status != NtStatus::SUCCESS {
            let status = frame.header.status;
            return Err(status::refused(Phase::Open, status, self.address, &doing));
        }
        CreateResponse::unpack(&mut ReadCursor::new(&frame.body))
            .map(|response| response.file_id)
            .map_err(|error| self.failed(Phase::Open, error, &doing))
    }

    /// The crate's own limits are longer and count otherwise.
    async fn in_time<T>(&self, step: impl Future<Output = smb2::Result<T>>) -> smb2::Result<T> {
        tokio::time::timeout_at(self.deadline, step)
            .await
            .unwrap_or(Err(smb2::Error::Timeout))
    }

    fn not_let_in(&self) -> Error {
        let mut error = refusal::not_let_in(self.address, self.place);
        error
            .message
            .push_str("; or it demands encryption, which engine=smb2 can't do");
        error
    }

    fn sealed(&self) -> Error {
        let message = format!(
            "{} demands encryption, which engine=smb2 can't do; take engine=pavao with encrypt=1",
            self.address
        );
        Error::new(Phase::Authenticate, Kind::Unsupported, message)
    }

    fn failed(&self, phase: Phase, error: smb2::Error, doing: &str) -> Error {
        let address = self.address;
        match error {
            smb2::Error::Protocol { status, .. } => status::refused(phase, status, address, doing),
            smb2::Error::Timeout => Error::new(
                phase,
                Kind::TimedOut,
                format!(
                    "could not {doing}: {address} did not answer within {:?}",
                    self.timeout
                ),
            ),
            smb2::Error::Disconnected | smb2::Error::SendFailed { .. } => Error::new(
                phase,
                Kind::Gone,
                format!("could not {doing}: {address} closed the connection"),
            ),
            smb2::Error::Io(error) => Error::io(phase, &error, &format!("{doing} at {address}")),
            other => Error::new(
                phase,
                Kind::Protocol,
                format!("could not {doing}: {address} answers what makes no sense ({other})"),
            ),
        }
    }
}
