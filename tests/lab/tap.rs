//! A network device whose other end is a file: what the host sends is read from it, what is written to it the host receives.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// The frame's own head, which says how far its checksum and its segmentation are left to the device
/// (`struct virtio_net_hdr`), in bytes.
pub const HEAD: usize = 10;

/// How many packets a frame with its head becomes on a wire, and how many bytes of heads each of them has; None for a
/// frame that is one packet. See "Packet Transmission" in the virtio specification.
pub fn segments(frame: &[u8]) -> Option<(usize, usize)> {
    let word = |at: usize| {
        Some(usize::from(u16::from_ne_bytes([
            *frame.get(at)?,
            *frame.get(at + 1)?,
        ])))
    };
    // gso_type at 1: 0 is a plain packet; hdr_len at 2, gso_size at 4.
    let (heads, size) = (word(2)?, word(4)?);
    if frame[1] == 0 || size == 0 {
        return None;
    }
    let payload = frame.len().checked_sub(HEAD + heads)?;
    Some((payload.div_ceil(size), heads))
}

/// From linux/if_tun.h; the values hold for x86 and ARM.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
/// `IFF_TAP | IFF_NO_PI | IFF_VNET_HDR`.
const FLAGS: u16 = 0x0002 | 0x1000 | 0x4000;
/// `TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6`.
const OFFLOADS: libc::c_ulong = 1 | 2 | 4;

/// Makes a device of this name in the thread's network. Reads don't wait. With `super_frames`, TCP may hand over up to
/// 64 KiB as one frame, as to a network card that cuts it up.
pub fn open(name: &str, super_frames: bool) -> File {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .expect("/dev/net/tun is there and root may open it");
    // struct ifreq: a name of 16 bytes, then the flags.
    let mut request = [0u8; 40];
    assert!(name.len() < 16, "{name} is too long for a device");
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&FLAGS.to_ne_bytes());
    #[expect(unsafe_code, reason = "no crate of ours has these two calls")]
    // SAFETY: `file` is open, the request has the size of a struct ifreq and outlives the call, which may write to it;
    // the second call takes a number.
    let results = unsafe {
        let made = libc::ioctl(file.as_raw_fd(), TUNSETIFF, request.as_mut_ptr());
        let offloads = if super_frames { OFFLOADS } else { 0 };
        (made, libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, offloads))
    };
    assert_eq!(
        results,
        (0, 0),
        "{name}: {}",
        std::io::Error::last_os_error()
    );
    file
}
