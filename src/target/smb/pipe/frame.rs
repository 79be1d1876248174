//! The bytes of READ, WRITE, FLUSH and CLOSE, and of the heads of their answers. Pure. Must not know: sockets, slots.

/// What a message must stand under: the server's names for session, share and file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) session: u64,
    pub(super) tree: u32,
    /// The two halves of a file's handle.
    pub(super) file: (u64, u64),
    /// One request may cost several credits, and so be longer than 64 KiB.
    pub(super) large: bool,
    /// Messages carry a signature.
    pub(super) signed: bool,
}

/// Bytes before each message: its length.
pub(super) const MARK: usize = 4;
/// An SMB2 header.
pub(super) const HEADER: usize = 64;
/// Bytes of a READ's answer before its data, at the least.
pub(super) const READ_HEAD: usize = HEADER + 16;
/// The longest head of a request: mark, header, and READ's body.
pub(super) const REQUEST_MAX: usize = MARK + HEADER + 49;
/// Bytes that one credit pays for.
pub(super) const CREDIT: u32 = 64 << 10;

/// Where the signature stands in a message.
pub(super) const SIGNATURE: std::ops::Range<usize> = 48..64;

const FLAG_RESPONSE: u32 = 1;
const FLAG_ASYNC: u32 = 2;
const FLAG_SIGNED: u32 = 8;

/// The answers that are not refusals.
pub(super) const SUCCESS: u32 = 0;
pub(super) const PENDING: u32 = 0x103;
pub(super) const END_OF_FILE: u32 = 0xc000_0011;

/// The commands that a session uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Close = 6,
    Flush = 7,
    Read = 8,
    Write = 9,
}

/// Credits that a payload of this length costs.
pub(super) const fn charge(length: u32) -> u16 {
    let units = length.div_ceil(CREDIT);
    if units == 0 { 1 } else { units as u16 }
}

/// One request's numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) command: Command,
    pub(super) id: u64,
    /// Credits that it costs, and credits asked for.
    pub(super) charge: u16,
    pub(super) wish: u16,
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// Writes a request's head into `to`; gives its length. A WRITE's payload follows it on the wire.
pub(super) fn encode(names: &Names, request: &Request, to: &mut [u8; REQUEST_MAX]) -> usize {
    let mut put = Put { to, at: 0 };
    let body = match request.command {
        Command::Close | Command::Flush => 24,
        Command::Read => 49,
        Command::Write => 48,
    };
    let payload = if request.command == Command::Write {
        request.length
    } else {
        0
    };
    put.bytes(&((HEADER + body) as u32 + payload).to_be_bytes());
    put.bytes(b"\xfeSMB");
    put.u16(HEADER as u16);
    put.u16(if names.large { request.charge } else { 0 });
    put.u32(0);
    put.u16(request.command as u16);
    put.u16(request.wish);
    put.u32(if names.signed { FLAG_SIGNED } else { 0 });
    put.u32(0);
    put.u64(request.id);
    put.u32(0);
    put.u32(names.tree);
    put.u64(names.session);
    put.bytes(&[0; 16]);
    match request.command {
        Command::Close | Command::Flush => {
            put.u16(24);
            put.bytes(&[0; 6]);
            put.file(names);
        }
        Command::Read => {
            put.u16(49);
            put.bytes(&[READ_HEAD as u8, 0]);
            put.u32(request.length);
            put.u64(request.offset);
            put.file(names);
            put.bytes(&[0; 17]);
        }
        Command::Write => {
            put.u16(49);
            put.u16((HEADER + body) as u16);
            put.u32(request.length);
            put.u64(request.offset);
            put.file(names);
            put.bytes(&[0; 16]);
        }
    }
    put.at
}

struct Put<'a> {
    to: &'a mut [u8; REQUEST_MAX],
    at: usize,
}

impl Put<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.to[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }
    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }
    fn file(&mut self, names: &Names) {
        self.u64(names.file.0);
        self.u64(names.file.1);
    }
}

/// What an answer's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u32,
    pub(super) command: u16,
    pub(super) credits: u16,
    pub(super) id: u64,
    /// An interim answer, or one to a request that had an interim one.
    pub(super) parted: bool,
}

/// Reads an answer's header; Err says in what way it is none.
pub(super) fn decode(head: &[u8]) -> Result<Answer, String> {
    match head.first_chunk::<4>() {
        Some(b"\xfeSMB") => {}
        Some(b"\xfdSMB") => return Err("an encrypted message on an unencrypted session".into()),
        _ => return Err("a message that is not SMB 2 or 3".into()),
    }
    let short = || "a message that ends in its header".to_owned();
    let flags = u32_at(head, 16).ok_or_else(short)?;
    if flags & FLAG_RESPONSE == 0 {
        return Err("a request, where only answers make sense".into());
    }
    if u32_at(head, 20) != Some(0) {
        return Err("several answers in one message".into());
    }
    Ok(Answer {
        status: u32_at(head, 8).ok_or_else(short)?,
        command: u16_at(head, 12).ok_or_else(short)?,
        credits: u16_at(head, 14).ok_or_else(short)?,
        id: u64_at(head, 24).ok_or_else(short)?,
        parted: flags & FLAG_ASYNC != 0,
    })
}

/// Where a READ's data starts in its message, and how long it is.
pub(super) fn read_data(head: &[u8]) -> Option<(usize, u32)> {
    Some((
        usize::from(*head.get(HEADER + 2)?),
        u32_at(head, HEADER + 4)?,
    ))
}

/// Bytes that a WRITE's answer says were taken.
pub(super) fn written(head: &[u8]) -> Option<u32> {
    u32_at(head, HEADER + 4)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use smb2::msg::header::Header;
    use smb2::pack::{Pack, Unpack};

    use super::*;

    fn request(command: Command, length: u32) -> Request {
        Request {
            command,
            id: 77,
            charge: charge(length),
            wish: 9,
            offset: 0x1_0000_0003,
            length,
        }
    }

    const NAMES: Names = Names {
        session: 5,
        tree: 6,
        file: (7, 8),
        large: true,
        signed: true,
    };

    /// The smb2 crate, whose encoder is another's work, must make the same bytes.
    fn as_the_crate_packs(command: smb2::types::Command, body: &dyn Pack) -> Vec<u8> {
        let mut header = Header::new_request(command);
        header.credit_charge = smb2::types::CreditCharge(charge(100_000));
        header.credits = 9;
        header.message_id = smb2::types::MessageId(77);
        header.tree_id = Some(smb2::types::TreeId(6));
        header.session_id = smb2::types::SessionId(5);
        header.flags.set_signed();
        let mut cursor = smb2::pack::WriteCursor::new();
        header.pack(&mut cursor);
        body.pack(&mut cursor);
        cursor.into_inner()
    }

    #[test]
    fn requests_are_laid_out_as_another_library_lays_them() {
        let file_id = smb2::types::FileId {
            persistent: 7,
            volatile: 8,
        };
        let mut bytes = [0; REQUEST_MAX];
        let length = encode(&NAMES, &request(Command::Read, 100_000), &mut bytes);
        let read = smb2::msg::read::ReadRequest {
            padding: 0x50,
            flags: 0,
            length: 100_000,
            offset: 0x1_0000_0003,
            file_id,
            minimum_count: 0,
            channel: 0,
            remaining_bytes: 0,
            read_channel_info: Vec::new(),
        };
        let theirs = as_the_crate_packs(smb2::types::Command::Read, &read);
        assert_eq!(bytes[..MARK], (theirs.len() as u32).to_be_bytes());
        assert_eq!(bytes[MARK..length], theirs);

        let length = encode(&NAMES, &request(Command::Write, 100_000), &mut bytes);
        let write = smb2::msg::write::WriteRequest {
            data_offset: 0x70,
            offset: 0x1_0000_0003,
            file_id,
            channel: 0,
            remaining_bytes: 0,
            write_channel_info_offset: 0,
            write_channel_info_length: 0,
            flags: 0,
            data: vec![3; 100_000],
        };
        let theirs = as_the_crate_packs(smb2::types::Command::Write, &write);
        assert_eq!(bytes[..MARK], (theirs.len() as u32).to_be_bytes());
        assert_eq!(bytes[MARK..length], theirs[..theirs.len() - 100_000]);

        let length = encode(&NAMES, &request(Command::Flush, 100_000), &mut bytes);
        let theirs = as_the_crate_packs(
            smb2::types::Command::Flush,
            &smb2::msg::flush::FlushRequest { file_id },
        );
        assert_eq!(bytes[MARK..length], theirs);
    }

    #[test]
    fn an_answer_is_read_or_refused() {
        let mut bytes = [0; REQUEST_MAX];
        encode(&NAMES, &request(Command::Read, 1), &mut bytes);
        let head = &mut bytes[MARK..];
        assert!(decode(head).expect_err("a request").contains("request"));
        head[16] |= 1;
        let answer = decode(head).expect("an answer");
        assert_eq!(
            (answer.id, answer.credits, answer.command, answer.parted),
            (77, 9, 8, false)
        );
        let mut cursor = smb2::pack::ReadCursor::new(head);
        assert!(Header::unpack(&mut cursor).is_ok());
        head[20] = 1;
        assert!(decode(head).expect_err("two").contains("several"));
        head[0] = 0xfd;
        assert!(decode(head).expect_err("sealed").contains("encrypted"));
        assert!(decode(b"HTTP/1.1 400").is_err());
        assert!(decode(b"\xfeSMB").expect_err("cut").contains("ends"));
    }

    #[test]
    fn credits_are_counted_in_64_kib() {
        assert_eq!(
            [0, 1, 65536, 65537, 1 << 20, 8 << 20].map(charge),
            [1, 1, 1, 2, 16, 128]
        );
    }
}
