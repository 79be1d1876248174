//! Signatures of messages, over pieces where they lie: nothing is copied together. Pure.
//!
//! SMB 2 signs with HMAC-SHA256, SMB 3 with AES-CMAC, and SMB 3.1.1 with AES-GMAC where both sides can.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use cmac::Cmac;
use ghash::GHash;
use ghash::universal_hash::UniversalHash;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use smb2::crypto::signing::SigningAlgorithm;

use super::frame::SIGNATURE;

/// Bytes of a cipher's block, and of a signature.
const BLOCK: usize = 16;

/// A session's key, ready to sign.
pub(super) enum Seal {
    Hmac(Box<Hmac<Sha256>>),
    Cmac(Box<Cmac<Aes128>>),
    Gmac(Box<(Aes128, GHash)>),
}

/// Which side made a message; it goes into some signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Seal {
    /// None when the key does not fit the algorithm.
    pub(super) fn new(algorithm: SigningAlgorithm, key: &[u8]) -> Option<Self> {
        Some(match algorithm {
            SigningAlgorithm::HmacSha256 => {
                Self::Hmac(Box::new(Hmac::<Sha256>::new_from_slice(key).ok()?))
            }
            SigningAlgorithm::AesCmac => {
                Self::Cmac(Box::new(Cmac::<Aes128>::new_from_slice(key).ok()?))
            }
            SigningAlgorithm::AesGmac => {
                let cipher = Aes128::new_from_slice(key).ok()?;
                let mut subkey = [0; BLOCK].into();
                cipher.encrypt_block(&mut subkey);
                Self::Gmac(Box::new((cipher, GHash::new(&subkey))))
            }
        })
    }

    /// The algorithm's name for the CSV.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Hmac(_) => "HMAC-SHA256",
            Self::Cmac(_) => "AES-128-CMAC",
            Self::Gmac(_) => "AES-128-GMAC",
        }
    }

    /// Signs a request: `head` is its header and what follows before `payload`.
    pub(super) fn sign(&self, id: u64, head: &mut [u8], payload: &[u8]) {
        let made = self.made(id, Side::Client, head, [payload, &[]]);
        head[SIGNATURE].copy_from_slice(&made);
    }

    /// Whether the server signed this answer.
    pub(super) fn holds(&self, id: u64, head: &[u8], rest: [&[u8]; 2]) -> bool {
        // Forgers gain nothing from the time that this takes: a session ends with the first false one.
        head.get(SIGNATURE) == Some(&self.made(id, Side::Server, head, rest)[..])
    }

    /// The signature of a message whose signature field counts as zeros.
    fn made(&self, id: u64, side: Side, head: &[u8], rest: [&[u8]; 2]) -> [u8; BLOCK] {
        let pieces = [
            &head[..SIGNATURE.start],
            &[0; BLOCK],
            &head[SIGNATURE.end..],
            rest[0],
            rest[1],
        ];
        match self {
            Self::Hmac(key) => {
                let mut mac = key.as_ref().clone();
                for piece in pieces {
                    mac.update(piece);
                }
                let long = mac.finalize().into_bytes();
                std::array::from_fn(|at| long[at])
            }
            Self::Cmac(key) => {
                let mut mac = key.as_ref().clone();
                for piece in pieces {
                    mac.update(piece);
                }
                mac.finalize().into_bytes().into()
            }
            Self::Gmac(key) => gmac(&key.0, key.1.clone(), id, side, pieces),
        }
    }
}

/// GCM's tag over data that is only authenticated.
fn gmac(cipher: &Aes128, hash: GHash, id: u64, side: Side, pieces: [&[u8]; 5]) -> [u8; BLOCK] {
    let mut blocks = Blocks {
        hash,
        part: [0; BLOCK],
        have: 0,
    };
    let mut length = 0;
    for piece in pieces {
        blocks.add(piece);
        length += piece.len() as u64;
    }
    let mut last = [0; BLOCK];
    last[..8].copy_from_slice(&(length * 8).to_be_bytes());
    blocks.pad();
    blocks.add(&last);
    // The counter block of GCM: twelve bytes of nonce, and 1.
    let mut mask = [0; BLOCK];
    mask[..8].copy_from_slice(&id.to_le_bytes());
    mask[8] = u8::from(side == Side::Server);
    mask[15] = 1;
    let mut mask = mask.into();
    cipher.encrypt_block(&mut mask);
    let sum = blocks.hash.finalize();
    std::array::from_fn(|at| sum[at] ^ mask[at])
}

/// A hash that takes whole blocks, fed with pieces of any length.
struct Blocks {
    hash: GHash,
    part: [u8; BLOCK],
    have: usize,
}

impl Blocks {
    fn add(&mut self, mut bytes: &[u8]) {
        if self.have > 0 {
            let some = bytes.len().min(BLOCK - self.have);
            self.part[self.have..self.have + some].copy_from_slice(&bytes[..some]);
            self.have += some;
            bytes = &bytes[some..];
            if self.have < BLOCK {
                return;
            }
            self.pad();
        }
        let whole = bytes.len() - bytes.len() % BLOCK;
        self.hash.update_padded(&bytes[..whole]);
        self.have = bytes.len() - whole;
        self.part[..self.have].copy_from_slice(&bytes[whole..]);
    }

    /// Completes the last block with zeros.
    fn pad(&mut self) {
        self.hash.update_padded(&self.part[..self.have]);
        self.have = 0;
    }
}

#[cfg(test)]
mod tests {
    use smb2::crypto::signing::{sign_message, verify_signature};

    use super::*;

    const ALGORITHMS: [SigningAlgorithm; 3] = [
        SigningAlgorithm::HmacSha256,
        SigningAlgorithm::AesCmac,
        SigningAlgorithm::AesGmac,
    ];

    fn message(length: usize) -> Vec<u8> {
        let mut message: Vec<u8> = (0..length).map(|at| (at * 7 + at / 250) as u8).collect();
        // A command that is one, for the other library's sentence when a signature fails.
        message[12..14].copy_from_slice(&8u16.to_le_bytes());
        message
    }

    /// Another's implementation signs what ours must sign alike, however the message is cut.
    #[test]
    fn signatures_are_those_of_another_library() {
        let key = *b"0123456789abcdef";
        for algorithm in ALGORITHMS {
            let seal = Seal::new(algorithm, &key).expect("fits");
            for length in [64, 65, 80, 112, 117, 4208, 70_001] {
                for cut in [64, 68, 80, 113, 112] {
                    let cut = cut.min(length);
                    let mut theirs = message(length);
                    let mut ours = theirs.clone();
                    sign_message(&mut theirs, &key, algorithm, 99, false).expect("signs");
                    let (head, payload) = ours.split_at_mut(cut);
                    seal.sign(99, head, payload);
                    assert!(ours == theirs, "{algorithm:?} {length} cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn a_servers_signature_holds_and_a_changed_byte_does_not() {
        let key = *b"0123456789abcdef";
        for algorithm in ALGORITHMS {
            let seal = Seal::new(algorithm, &key).expect("fits");
            let mut bytes = message(5000);
            let made = seal.made(
                7,
                Side::Server,
                &bytes[..80],
                [&bytes[80..4990], &bytes[4990..]],
            );
            bytes[SIGNATURE].copy_from_slice(&made);
            verify_signature(&bytes, &key, algorithm, 7, false).expect("the other library agrees");
            let holds =
                |bytes: &[u8]| seal.holds(7, &bytes[..85], [&bytes[85..4999], &bytes[4999..]]);
            assert!(holds(&bytes), "{algorithm:?}");
            for at in [0, 50, 70, 2000, 4999] {
                bytes[at] ^= 1;
                assert!(!holds(&bytes), "{algorithm:?} {at}");
                bytes[at] ^= 1;
            }
        }
    }

    #[test]
    fn a_key_of_the_wrong_length_is_none() {
        assert!(Seal::new(SigningAlgorithm::AesGmac, &[0; 15]).is_none());
        assert!(Seal::new(SigningAlgorithm::AesCmac, &[]).is_none());
    }
}
