//! iSCSI: libiscsi.

#![expect(unsafe_code, reason = "libiscsi is a C library")]

use std::ffi::{CStr, CString, c_int};

use libiscsi_sys as sys;

use super::{Server, payload};
use crate::spec::uri::TargetSpec;

pub struct Client {
    context: *mut sys::iscsi_context,
    lun: c_int,
}

impl Client {
    /// Logs in; the error as text.
    pub fn try_login(uri: &str, password: Option<&str>) -> Result<Self, String> {
        let spec = TargetSpec::parse(uri).expect(uri);
        let parts: Vec<&str> = spec.parts().collect();
        let text = |text: &str| CString::new(text).expect("no zero byte");
        let portal = text(&format!("{}:{}", spec.host(), spec.port.expect("a port")));
        let (name, lun) = (
            text("iqn.2026-11.dev.nasgauge:tests"),
            parts[1].parse().expect("a LUN"),
        );
        // SAFETY: every pointer is to a live, zero-terminated string, and libiscsi copies what it keeps.
        unsafe {
            let context = sys::iscsi_create_context(name.as_ptr());
            assert!(!context.is_null());
            let client = Self { context, lun };
            sys::iscsi_set_noautoreconnect(context, 1);
            sys::iscsi_set_timeout(context, 10);
            sys::iscsi_set_session_type(context, sys::iscsi_session_type_ISCSI_SESSION_NORMAL);
            sys::iscsi_set_targetname(context, text(parts[0]).as_ptr());
            if let (Some(user), Some(password)) = (&spec.user, password) {
                let (user, password) = (text(user), text(password));
                sys::iscsi_set_initiator_username_pwd(context, user.as_ptr(), password.as_ptr());
            }
            if sys::iscsi_full_connect_sync(context, portal.as_ptr(), lun) == 0 {
                return Ok(client);
            }
            let error = CStr::from_ptr(sys::iscsi_get_error(context));
            Err(error.to_string_lossy().into_owned())
        }
    }

    /// Writes whole blocks; false when the target refuses.
    pub fn write(&mut self, block: u64, data: &[u8]) -> bool {
        let mut data = data.to_vec();
        // SAFETY: the data outlives the call, which is synchronous; the task is freed once.
        unsafe {
            let task = sys::iscsi_write16_sync(
                self.context,
                self.lun,
                block,
                data.as_mut_ptr(),
                data.len() as u32,
                512,
                0,
                0,
                0,
                0,
                0,
            );
            assert!(!task.is_null());
            let good = (*task).status == 0;
            sys::scsi_free_scsi_task(task);
            good
        }
    }

    pub fn read(&mut self, block: u64, len: usize) -> Vec<u8> {
        // SAFETY: the task owns its data until it is freed, after the copy.
        unsafe {
            let task = sys::iscsi_read16_sync(
                self.context,
                self.lun,
                block,
                len as u32,
                512,
                0,
                0,
                0,
                0,
                0,
            );
            assert!(!task.is_null() && (*task).status == 0);
            let data =
                std::slice::from_raw_parts((*task).datain.data, (*task).datain.size as usize);
            let data = data.to_vec();
            sys::scsi_free_scsi_task(task);
            data
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: the context is live, and nothing uses it afterwards.
        unsafe {
            sys::iscsi_destroy_context(self.context);
        }
    }
}

/// Writes and reads back all over a LUN of at least 6 GiB.
pub fn round_trip(server: &dyn Server) {
    let mut client = Client::try_login(&server.uri(), server.password()).expect("logs in");
    let pieces = [
        (0, 512),
        (7, 4096),
        (4096, 1 << 20),
        ((5 << 30) / 512 + 1, (1 << 20) + 512),
    ];
    for (block, len) in pieces {
        assert!(
            client.write(block, &payload(block, len)),
            "{len} bytes at {block}"
        );
    }
    for (block, len) in pieces {
        assert!(
            client.read(block, len) == payload(block, len),
            "{len} bytes at {block} differ"
        );
    }
    assert_eq!(client.read((4 << 30) / 512, 512), [0; 512], "never written");
}
