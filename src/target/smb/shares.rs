//! A server's list of shares in bytes: the answer to `NetrShareEnum` at level 1 (MS-SRVS 3.1.4.8), in NDR. Pure.
//!
//! The answer comes from a peer and may be short, huge or wrong: no length of it is trusted, none makes room before its
//! bytes are there. Must not know: how it was asked for.

/// More shares than this are not read.
const SHARES_MAX: u32 = 4096;
/// The kind of share in the lower bits of its type (MS-SRVS 2.2.2.4).
const KIND: u32 = 0xffff;
/// An administrative share.
const SPECIAL: u32 = 0x8000_0000;

/// A share as the list has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    /// Its name.
    pub name: String,
    /// The server's remark on it.
    pub remark: String,
    kind: u32,
}

impl Listed {
    /// What it is where it holds no files; None of a disk.
    pub fn no_disk(&self) -> Option<&'static str> {
        match self.kind & KIND {
            0 => None,
            1 => Some("a printer"),
            2 => Some("a device"),
            3 => Some("for calls between programs (IPC)"),
            _ => Some("of an unknown kind"),
        }
    }

    /// Left out of what people are shown: administrative, or hidden by the `$` at its end.
    pub fn hidden(&self) -> bool {
        self.kind & SPECIAL != 0 || self.name.ends_with('$') || self.no_disk().is_some()
    }
}

/// Reads the list; None when it is none, Some(Err(code)) where the server refused with a Windows error code.
pub(super) fn read(stub: &[u8]) -> Option<Result<Vec<Listed>, u32>> {
    let mut at = Cursor {
        rest: stub,
        read: 0,
    };
    let (level, union, container) = (at.number()?, at.number()?, at.number()?);
    let code = u32::from_le_bytes(stub.get(stub.len().checked_sub(4)?..)?.try_into().ok()?);
    if code != 0 {
        return Some(Err(code));
    }
    if (level, union) != (1, 1) {
        return None;
    }
    if container == 0 {
        return Some(Ok(Vec::new()));
    }
    let (count, array) = (at.number()?, at.number()?);
    if count == 0 || array == 0 {
        return Some(Ok(Vec::new()));
    }
    let room = at.number()?;
    if room < count || count > SHARES_MAX {
        return None;
    }
    // First what has a fixed length, of all; then the strings that it points to.
    let mut fixed = Vec::new();
    for _ in 0..count {
        fixed.push((at.number()?, at.number()?, at.number()?));
    }
    let mut shares = Vec::new();
    for (name, kind, remark) in fixed {
        let name = if name == 0 { String::new() } else { at.text()? };
        let remark = if remark == 0 {
            String::new()
        } else {
            at.text()?
        };
        shares.push(Listed { name, remark, kind });
    }
    Some(Ok(shares))
}

struct Cursor<'a> {
    rest: &'a [u8],
    read: usize,
}

impl Cursor<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        self.read += count;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// A conformant and varying string: room, offset, length in units of UTF-16, the units, and up to the next number.
    fn text(&mut self) -> Option<String> {
        let (_room, _offset, length) = (self.number()?, self.number()?, self.number()?);
        let bytes = self.take((length as usize).checked_mul(2)?)?;
        let units = bytes
            .chunks_exact(2)
            .map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
        let text = char::decode_utf16(units)
            .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect::<String>();
        let padding = self.read.next_multiple_of(4) - self.read;
        // The last string may end with the answer.
        self.take(padding.min(self.rest.len()))?;
        Some(text.trim_end_matches('\0').to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_text(into: &mut Vec<u8>, text: &str) {
        let units: Vec<u16> = text.encode_utf16().chain([0]).collect();
        for number in [units.len() as u32, 0, units.len() as u32] {
            into.extend(number.to_le_bytes());
        }
        into.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        into.resize(into.len().next_multiple_of(4), 0);
    }

    fn answer(shares: &[(&str, u32, &str)]) -> Vec<u8> {
        let count = shares.len() as u32;
        let mut bytes: Vec<u8> = [1, 1, 0x2_0000, count, 0x2_0004, count]
            .iter()
            .flat_map(|number: &u32| number.to_le_bytes())
            .collect();
        for (_, kind, _) in shares {
            bytes.extend(
                [9_u32, *kind, 9]
                    .iter()
                    .flat_map(|number| number.to_le_bytes()),
            );
        }
        for (name, _, remark) in shares {
            put_text(&mut bytes, name);
            put_text(&mut bytes, remark);
        }
        // Total, no handle to go on, success.
        bytes.extend([count, 0, 0].iter().flat_map(|number| number.to_le_bytes()));
        bytes
    }

    const SHARES: &[(&str, u32, &str)] = &[
        ("Médiá 100%", 0, "films"),
        ("IPC$", 0x8000_0003, "IPC Service"),
        ("C$", 0x8000_0000, ""),
        ("secret$", 0, ""),
        ("laser", 1, ""),
    ];

    #[test]
    fn shares_are_read_and_sorted_out() {
        let shares = read(&answer(SHARES)).expect("a list").expect("no refusal");
        let names: Vec<&str> = shares.iter().map(|share| share.name.as_str()).collect();
        assert_eq!(
            names,
            SHARES.iter().map(|share| share.0).collect::<Vec<_>>()
        );
        assert_eq!(shares[0].remark, "films");
        let shown: Vec<bool> = shares.iter().map(|share| !share.hidden()).collect();
        assert_eq!(shown, [true, false, false, false, false]);
        assert_eq!(shares[4].no_disk(), Some("a printer"));
    }

    #[test]
    fn cut_and_wild_lists_are_none() {
        let whole = answer(SHARES);
        for length in 0..whole.len() - 14 {
            // Cut before the end of the last string, of which padding is no part; the code is then anything at all.
            assert!(!matches!(read(&whole[..length]), Some(Ok(_))), "{length}");
        }
        let mut wild = whole.clone();
        wild[12..16].fill(0xff);
        wild[20..24].fill(0xff);
        assert_eq!(read(&wild), None, "four thousand million shares");
        let mut refused = whole;
        let end = refused.len() - 4;
        refused[end..].copy_from_slice(&5_u32.to_le_bytes());
        assert_eq!(read(&refused), Some(Err(5)));
    }

    #[test]
    fn an_empty_list_is_one() {
        let numbers: [u32; 6] = [1, 1, 0x2_0000, 0, 0, 0];
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        assert_eq!(read(&bytes), Some(Ok(Vec::new())));
    }
}
