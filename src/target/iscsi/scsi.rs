//! SCSI in bytes: the commands we send and the answers to them. Pure.
//!
//! Answers come from a peer and may be short or wrong: every reader returns None rather than trust a length.
//! Lengths are in bytes unless a name says blocks. Must not know: iSCSI, libiscsi.

/// A command descriptor block.
pub type Cdb = [u8; 16];

/// How many bytes of a [`Cdb`] its operation code uses.
#[must_use]
pub const fn cdb_length(cdb: &Cdb) -> u8 {
    match cdb[0] >> 5 {
        0 => 6,
        1 | 2 => 10,
        5 => 12,
        _ => 16,
    }
}

fn cdb(bytes: &[u8]) -> Cdb {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

/// TEST UNIT READY.
#[must_use]
pub fn test_unit_ready() -> Cdb {
    cdb(&[0x00])
}

/// INQUIRY for 255 bytes: the standard data, or a page of vital product data.
#[must_use]
pub fn inquiry_command(page: Option<u8>) -> Cdb {
    cdb(&[
        0x12,
        u8::from(page.is_some()),
        page.unwrap_or(0),
        0,
        SMALL,
        0,
    ])
}

/// READ CAPACITY(16) for 32 bytes.
#[must_use]
pub fn read_capacity_16() -> Cdb {
    let mut cdb = cdb(&[0x9e, 0x10]);
    cdb[13] = 32;
    cdb
}

/// READ CAPACITY(10).
#[must_use]
pub fn read_capacity_10() -> Cdb {
    cdb(&[0x25])
}

/// MODE SENSE(6) of all pages, 255 bytes.
#[must_use]
pub fn mode_sense_6() -> Cdb {
    cdb(&[0x1a, 0, 0x3f, 0, SMALL, 0])
}

/// MODE SENSE(10) of all pages, 255 bytes.
#[must_use]
pub fn mode_sense_10() -> Cdb {
    cdb(&[0x5a, 0, 0x3f, 0, 0, 0, 0, 0, SMALL, 0])
}

/// REPORT LUNS for [`REPORT_LUNS_BYTES`].
#[must_use]
pub fn report_luns() -> Cdb {
    let mut cdb = cdb(&[0xa0]);
    cdb[6..10].copy_from_slice(&REPORT_LUNS_BYTES.to_be_bytes());
    cdb
}

/// SYNCHRONIZE CACHE(10) of the whole medium.
#[must_use]
pub fn synchronize_cache_10() -> Cdb {
    cdb(&[0x35])
}

/// SYNCHRONIZE CACHE(16) of the whole medium.
#[must_use]
pub fn synchronize_cache_16() -> Cdb {
    cdb(&[0x91])
}

/// READ(16).
#[must_use]
pub fn read_16(block: u64, blocks: u32) -> Cdb {
    transfer(0x88, false, block, blocks)
}

/// WRITE(16); `durable` sets FUA.
#[must_use]
pub fn write_16(block: u64, blocks: u32, durable: bool) -> Cdb {
    transfer(0x8a, durable, block, blocks)
}

fn transfer(code: u8, durable: bool, block: u64, blocks: u32) -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = code;
    cdb[1] = if durable { 0x08 } else { 0 };
    cdb[2..10].copy_from_slice(&block.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// The answer length asked for by INQUIRY and MODE SENSE.
pub const SMALL: u8 = 255;
/// The answer length asked for by REPORT LUNS: 255 units.
pub const REPORT_LUNS_BYTES: u32 = 2048;

fn be16(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

fn be32(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

fn be64(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(data.get(at..at + 8)?.try_into().ok()?))
}

/// Printable text of a fixed field.
fn text(data: &[u8]) -> String {
    let printable: String = data
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| {
            if (0x20..0x7f).contains(byte) {
                char::from(*byte)
            } else {
                '?'
            }
        })
        .collect();
    printable.trim().to_owned()
}

/// Standard INQUIRY data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inquiry {
    /// 0: a unit is there; anything else: none.
    pub qualifier: u8,
    /// 0: a disk.
    pub device_type: u8,
    /// Who made it.
    pub vendor: String,
    /// What it is.
    pub product: String,
    /// Its firmware.
    pub revision: String,
}

impl Inquiry {
    /// Reads standard INQUIRY data.
    #[must_use]
    pub fn read(data: &[u8]) -> Option<Self> {
        let field = |range: std::ops::Range<usize>| text(data.get(range).unwrap_or(&[]));
        Some(Self {
            qualifier: data.first()? >> 5,
            device_type: data.first()? & 0x1f,
            vendor: field(8..16),
            product: field(16..32),
            revision: field(32..36),
        })
    }

    /// The device type in words.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.device_type {
            0x00 => "a disk",
            0x01 => "a tape drive",
            0x05 => "a CD or DVD drive",
            0x08 => "a media changer",
            0x0c => "the storage controller itself",
            0x0d => "an enclosure",
            0x0e => "a simplified disk",
            0x11 => "an object storage device",
            _ => "a device of an unknown type",
        }
    }
}

/// What READ CAPACITY says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Logical blocks on the medium.
    pub blocks: u64,
    /// Bytes in a logical block.
    pub block: u32,
    /// Bytes in a physical block, where told.
    pub physical: Option<u64>,
    /// Whether space is allocated only when written, where told.
    pub thin: Option<bool>,
}

impl Capacity {
    /// Reads READ CAPACITY(16) data: the address there is that of the last block.
    #[must_use]
    pub fn read_16(data: &[u8]) -> Option<Self> {
        let block = be32(data, 8)?;
        Some(Self {
            blocks: be64(data, 0)?.checked_add(1)?,
            block,
            physical: data
                .get(13)
                .map(|byte| u64::from(block) << u32::from(byte & 0x0f)),
            thin: data.get(14).map(|byte| byte & 0x80 != 0),
        })
        .filter(Self::plausible)
    }

    /// Reads READ CAPACITY(10) data; None when the medium is beyond its 32 bits.
    #[must_use]
    pub fn read_10(data: &[u8]) -> Option<Self> {
        let last = be32(data, 0).filter(|last| *last != u32::MAX)?;
        Some(Self {
            blocks: u64::from(last) + 1,
            block: be32(data, 4)?,
            physical: None,
            thin: None,
        })
        .filter(Self::plausible)
    }

    fn plausible(&self) -> bool {
        self.block.is_power_of_two()
            && (512..=1 << 20).contains(&self.block)
            && self.blocks.checked_mul(u64::from(self.block)).is_some()
    }

    /// Bytes on the medium.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks * self.block as u64
    }
}

/// What MODE SENSE says of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mode {
    /// The medium refuses writes.
    pub write_protected: bool,
    /// Single writes can be forced to the medium (DPOFUA).
    pub fua: bool,
    /// Whether writes are accepted into a volatile cache, where told.
    pub write_cache: Option<bool>,
}

impl Mode {
    /// Reads MODE SENSE(6) data.
    #[must_use]
    pub fn read_6(data: &[u8]) -> Option<Self> {
        let pages = 4 + usize::from(*data.get(3)?);
        Some(Self::of(*data.get(2)?, data.get(pages..).unwrap_or(&[])))
    }

    /// Reads MODE SENSE(10) data.
    #[must_use]
    pub fn read_10(data: &[u8]) -> Option<Self> {
        let pages = 8 + usize::from(be16(data, 6)?);
        Some(Self::of(*data.get(3)?, data.get(pages..).unwrap_or(&[])))
    }

    fn of(parameter: u8, mut pages: &[u8]) -> Self {
        const CACHING: u8 = 0x08;
        let mut write_cache = None;
        while let [code, length, body @ ..] = pages {
            // A page with sub-pages (bit 6) has a longer header.
            let (body, length) = if code & 0x40 != 0 {
                let Some(length) = be16(body, 0) else { break };
                (&body[2..], usize::from(length))
            } else {
                (body, usize::from(*length))
            };
            if code & 0x7f == CACHING {
                write_cache = body.first().map(|flags| flags & 0x04 != 0);
            }
            pages = body.get(length..).unwrap_or(&[]);
        }
        Self {
            write_protected: parameter & 0x80 != 0,
            fua: parameter & 0x10 != 0,
            write_cache,
        }
    }
}

/// The serial number of vital product data page 0x80; None when it is blank.
#[must_use]
pub fn serial(page: &[u8]) -> Option<String> {
    let length = usize::from(be16(page, 2)?);
    let body = page.get(4..)?;
    let serial = text(&body[..length.min(body.len())]);
    Some(serial).filter(|serial| !serial.is_empty())
}

/// The best designator of the unit in vital product data page 0x83: NAA, then EUI-64, then the vendor's own.
#[must_use]
pub fn designator(page: &[u8]) -> Option<String> {
    let length = usize::from(be16(page, 2)?);
    let mut rest = page.get(4..)?;
    rest = &rest[..length.min(rest.len())];
    let mut best: Option<(u8, String)> = None;
    while let [set, kind, _, length, body @ ..] = rest {
        let value = body.get(..usize::from(*length)).unwrap_or(&[]);
        rest = body.get(usize::from(*length)..).unwrap_or(&[]);
        let of_unit = kind & 0x30 == 0;
        let rank = match kind & 0x0f {
            3 => 3,
            2 => 2,
            1 => 1,
            _ => 0,
        };
        if !of_unit || rank == 0 || value.is_empty() {
            continue;
        }
        let name = if set & 0x0f == 1 {
            value
                .iter()
                .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
        } else {
            text(value)
        };
        if !name.is_empty() && best.as_ref().is_none_or(|(known, _)| rank > *known) {
            best = Some((rank, name));
        }
    }
    best.map(|(_, name)| name)
}

/// The largest transfer in blocks of vital product data page 0xb0 (Block Limits); None without a limit.
#[must_use]
pub fn transfer_max_blocks(page: &[u8]) -> Option<u32> {
    if *page.get(1)? != 0xb0 {
        return None;
    }
    be32(page, 8).filter(|blocks| *blocks > 0)
}

/// The logical units of REPORT LUNS data, in peripheral or flat form.
#[must_use]
pub fn luns(data: &[u8]) -> Vec<u16> {
    let length = be32(data, 0).unwrap_or(0) as usize;
    let body = data.get(8..).unwrap_or(&[]);
    let mut luns: Vec<u16> = body[..length.min(body.len())]
        .chunks_exact(8)
        .filter(|entry| entry[0] >> 6 < 2)
        .map(|entry| u16::from_be_bytes([entry[0], entry[1]]) & 0x3fff)
        .collect();
    luns.sort_unstable();
    luns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_length_of_their_code() {
        for (cdb, length) in [
            (test_unit_ready(), 6),
            (inquiry_command(None), 6),
            (mode_sense_6(), 6),
            (mode_sense_10(), 10),
            (read_capacity_10(), 10),
            (synchronize_cache_10(), 10),
            (report_luns(), 12),
            (read_capacity_16(), 16),
            (synchronize_cache_16(), 16),
            (read_16(0, 1), 16),
        ] {
            assert_eq!(cdb_length(&cdb), length, "{cdb:?}");
        }
    }

    #[test]
    fn transfers_reach_beyond_two_tebibytes() {
        let cdb = write_16(0x1_8000_0001, 8, true);
        assert_eq!(cdb, [0x8a, 8, 0, 0, 0, 1, 0x80, 0, 0, 1, 0, 0, 0, 8, 0, 0]);
        assert_eq!(read_16(7, 1)[1], 0);
        assert_eq!(inquiry_command(Some(0x80))[..5], [0x12, 1, 0x80, 0, 255]);
    }

    #[test]
    fn blocks_are_the_last_address_and_one() {
        let mut data = [0_u8; 32];
        data[..8].copy_from_slice(&6_442_450_943_u64.to_be_bytes());
        data[8..12].copy_from_slice(&512_u32.to_be_bytes());
        data[13] = 3;
        data[14] = 0x80;
        let capacity = Capacity::read_16(&data).expect("3 TiB");
        assert_eq!(capacity.bytes(), 3_298_534_883_328);
        assert_eq!((capacity.physical, capacity.thin), (Some(4096), Some(true)));
        assert_eq!(Capacity::read_16(&data[..11]), None);
        data[8..12].copy_from_slice(&513_u32.to_be_bytes());
        assert_eq!(Capacity::read_16(&data), None, "no block has 513 bytes");
        data[..8].copy_from_slice(&u64::MAX.to_be_bytes());
        assert_eq!(Capacity::read_16(&data), None);
        assert_eq!(
            Capacity::read_10(&[0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]),
            None
        );
        let small = Capacity::read_10(&[0, 0, 0x07, 0xff, 0, 0, 2, 0]).expect("1 MiB");
        assert_eq!(small.bytes(), 1 << 20);
    }

    #[test]
    fn inquiry_is_read_as_text() {
        let mut data = vec![0_u8, 0, 5, 2, 31, 0, 0, 0];
        data.extend_from_slice(b"IET     VIRTUAL-DISK    0001");
        let inquiry = Inquiry::read(&data).expect("36 bytes");
        assert_eq!(
            (
                inquiry.vendor.as_str(),
                inquiry.product.as_str(),
                inquiry.revision.as_str()
            ),
            ("IET", "VIRTUAL-DISK", "0001")
        );
        assert_eq!(inquiry.kind(), "a disk");
        assert_eq!(Inquiry::read(&[0x7f]).map(|i| i.qualifier), Some(3));
        assert_eq!(Inquiry::read(&[]), None);
    }

    #[test]
    fn mode_pages_are_walked() {
        let six = [15, 0, 0x90, 0, 0x0a, 2, 0, 0, 0x08, 2, 0x04, 0];
        let mode = Mode {
            write_protected: true,
            fua: true,
            write_cache: Some(true),
        };
        assert_eq!(Mode::read_6(&six), Some(mode));
        let ten = [
            0, 10, 0, 0x80, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0x88, 1, 0,
        ];
        assert_eq!(
            Mode::read_10(&ten),
            Some(Mode {
                fua: false,
                write_cache: Some(false),
                ..mode
            })
        );
        assert_eq!(Mode::read_6(&[3, 0]), None);
        // A page that claims more than is there, or nothing, ends the walk.
        assert_eq!(
            Mode::read_6(&[9, 0, 0, 0, 0x0a, 200, 1]),
            Some(Mode::default())
        );
        assert_eq!(
            Mode::read_6(&[9, 0, 0, 0, 0x48, 0, 0]),
            Some(Mode::default())
        );
    }

    #[test]
    fn serials_and_designators() {
        assert_eq!(serial(b"\0\x80\0\x08beaf11  "), Some("beaf11".to_owned()));
        assert_eq!(serial(b"\0\x80\0\x04    "), None);
        assert_eq!(serial(b"\0\x80"), None);
        let page = [
            0, 0x83, 0, 22, 2, 1, 0, 4, b'I', b'E', b'T', b' ', 1, 3, 0, 2, 0x60, 0x01, 1, 0x13, 0,
            4, 1, 2, 3, 4,
        ];
        assert_eq!(designator(&page), Some("6001".to_owned()));
        assert_eq!(designator(&page[..12]), Some("IET".to_owned()));
        assert_eq!(designator(&[0, 0x83, 0, 200, 1, 3, 0, 100]), None);
    }

    #[test]
    fn limits_and_luns() {
        let mut page = [0_u8; 64];
        page[1] = 0xb0;
        assert_eq!(transfer_max_blocks(&page), None, "0 means no limit");
        page[10] = 0x20;
        assert_eq!(transfer_max_blocks(&page), Some(8192));
        let mut data = vec![0, 0, 0, 24, 0, 0, 0, 0];
        data.extend_from_slice(&[0, 5, 0, 0, 0, 0, 0, 0]);
        data.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0]);
        data.extend_from_slice(&[0x41, 0x00, 0, 0, 0, 0, 0, 0]);
        assert_eq!(luns(&data), [0, 5, 256]);
        assert!(luns(&[0xff; 9]).is_empty());
    }
}
