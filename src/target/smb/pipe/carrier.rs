//! The way by which the smb2 crate reaches a server while it logs in: its messages over a socket of ours.
//!
//! The crate takes any carrier, so the socket stays ours when the login is over: the blocks go over it without the
//! crate. Must not know: what the messages mean.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use smb2::transport::{TransportReceive, TransportSend};
use tokio::net::TcpStream;

/// No answer during a login is nearly as long.
const ANSWER_MAX: usize = 64 << 10;

/// One end of the carrier.
pub(in crate::target::smb) struct Carrier(pub(in crate::target::smb) Arc<TcpStream>);

#[async_trait]
impl TransportSend for Carrier {
    async fn send(&self, message: &[u8]) -> smb2::Result<()> {
        let mut framed = (message.len() as u32).to_be_bytes().to_vec();
        framed.extend_from_slice(message);
        let mut rest = &framed[..];
        while !rest.is_empty() {
            self.0.writable().await?;
            match self.0.try_write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[async_trait]
impl TransportReceive for Carrier {
    async fn receive(&self) -> smb2::Result<Vec<u8>> {
        let mut mark = [0; 4];
        self.fill(&mut mark).await?;
        let length = u32::from_be_bytes(mark) as usize;
        if length > ANSWER_MAX {
            return Err(smb2::Error::invalid_data(format!("{length} bytes at once")));
        }
        let mut message = vec![0; length];
        self.fill(&mut message).await?;
        Ok(message)
    }
}

impl Carrier {
    async fn fill(&self, mut rest: &mut [u8]) -> smb2::Result<()> {
        while !rest.is_empty() {
            self.0.readable().await?;
            match self.0.try_read(rest) {
                Ok(0) => return Err(smb2::Error::Disconnected),
                Ok(read) => rest = &mut rest[read..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
