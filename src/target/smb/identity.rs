//! The server's own name and the Windows version that it claims to be, from the challenge that any login begins with.
//!
//! A login is begun and left: no user is named, so none can fail. Whoever tells nothing stays unknown. Must not
//! know: shares, users, libsmbclient.

use std::time::{Duration, Instant};

use super::server::{self, HEADER, u16_at, u32_at};

/// The command number of `SESSION_SETUP`.
const SESSION_SETUP: u8 = 1;
/// "More processing required": the challenge is in there.
const CHALLENGED: u32 = 0xc000_0016;
const SIGNATURE: &[u8; 8] = b"NTLMSSP\0";
/// Unicode, request target, NTLM, extended session security, target info, version.
const FLAGS: u32 = 0x0288_0205;
const FLAG_VERSION: u32 = 0x0200_0000;
/// Kinds of names in a challenge.
const NETBIOS_NAME: u16 = 1;
const DNS_NAME: u16 = 3;

/// Asks who the server is.
pub(super) fn ask(host: &str, port: u16, timeout: Duration) -> Option<String> {
    let end = Instant::now() + timeout;
    let mut stream = server::reach(host, port, host, timeout).ok()?;
    server::exchange(&mut stream, &server::request(), end).ok()?;
    let answer = server::exchange(&mut stream, &request(), end).ok()?;
    parse(&answer)
}

/// A `SESSION_SETUP` that holds NTLM's first message.
fn request() -> Vec<u8> {
    let mut message = vec![0xfe, b'S', b'M', b'B', HEADER as u8, 0];
    message.resize(HEADER, 0);
    message[6] = 1; // credits used
    message[12] = SESSION_SETUP;
    message[14] = 1; // credits asked for
    message[24] = 1; // second message of the connection
    let token_at = HEADER as u16 + 24;
    let token_length: u16 = 40;
    message.extend_from_slice(&25_u16.to_le_bytes()); // length of the fixed part
    message.extend_from_slice(&[0, 1]); // signing enabled
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&token_at.to_le_bytes());
    message.extend_from_slice(&token_length.to_le_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(SIGNATURE);
    message.extend_from_slice(&1_u32.to_le_bytes());
    message.extend_from_slice(&FLAGS.to_le_bytes());
    message.extend_from_slice(&[0; 24]); // no domain, no workstation, no version
    message
}

/// Reads the challenge, bare or wrapped.
fn parse(answer: &[u8]) -> Option<String> {
    if u32_at(answer, 8)? != CHALLENGED {
        return None;
    }
    let start = answer.windows(8).position(|part| part == SIGNATURE)?;
    let challenge = &answer[start..];
    let names_at = u32_at(challenge, 44)? as usize;
    let names_end = names_at.checked_add(usize::from(u16_at(challenge, 40)?))?;
    let name = name(challenge.get(names_at..names_end)?)?;
    let versioned = u32_at(challenge, 20)? & FLAG_VERSION != 0;
    // Samba claims an old Windows, with build 0.
    let build = u16_at(challenge, 50).filter(|build| versioned && *build != 0);
    Some(match (build, challenge.get(48..50)) {
        (Some(build), Some([major, minor])) => {
            format!("{name} (says Windows {major}.{minor}.{build})")
        }
        _ => name,
    })
}

/// The DNS name of the computer when it has one, else its `NetBIOS` name.
fn name(mut pairs: &[u8]) -> Option<String> {
    let mut found = None;
    while let (Some(kind), Some(length)) = (u16_at(pairs, 0), u16_at(pairs, 2)) {
        let value = pairs.get(4..4 + usize::from(length))?;
        if kind == DNS_NAME || (kind == NETBIOS_NAME && found.is_none()) {
            let units: Vec<u16> = value
                .chunks_exact(2)
                .map(|unit| u16::from_le_bytes([unit[0], unit[1]]))
                .collect();
            let text: String = String::from_utf16_lossy(&units)
                .chars()
                .filter(|c| !c.is_control())
                .collect();
            if !text.is_empty() {
                found = Some(text);
            }
        }
        if kind == 0 {
            break;
        }
        pairs = &pairs[4 + value.len()..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenge(build: u16) -> Vec<u8> {
        let mut bytes = vec![0; HEADER + 8];
        bytes[8..12].copy_from_slice(&CHALLENGED.to_le_bytes());
        let mut token = SIGNATURE.to_vec();
        token.resize(56, 0);
        token[8] = 2;
        token[20..24].copy_from_slice(&FLAG_VERSION.to_le_bytes());
        token[48..50].copy_from_slice(&[10, 0]);
        token[50..52].copy_from_slice(&build.to_le_bytes());
        let names = [
            1, 0, 4, 0, b'P', 0, b'C', 0, 3, 0, 6, 0, b'p', 0, b'.', 0, b'x', 0, 0, 0, 0, 0,
        ];
        token[40] = names.len() as u8;
        token[44] = 56;
        token.extend_from_slice(&names);
        bytes.extend_from_slice(&token);
        bytes
    }

    #[test]
    fn a_challenge_names_its_sender() {
        assert_eq!(parse(&challenge(0)).as_deref(), Some("p.x"));
        assert_eq!(
            parse(&challenge(20348)).as_deref(),
            Some("p.x (says Windows 10.0.20348)")
        );
    }

    #[test]
    fn a_cut_challenge_names_nobody() {
        let whole = challenge(1);
        for length in 0..whole.len() - 22 {
            assert_eq!(parse(&whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn the_request_is_laid_out_as_the_protocol_says() {
        let request = request();
        assert_eq!(request.len(), HEADER + 24 + 40);
        assert_eq!(&request[88..96], SIGNATURE);
        assert_eq!(
            (u16_at(&request, 76), u16_at(&request, 78)),
            (Some(88), Some(40))
        );
    }
}
