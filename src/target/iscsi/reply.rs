//! Where libiscsi's callbacks leave what they were told, and its log.
//!
//! Callbacks run inside our own calls, on the same thread: cells are enough. Must not know: what was asked.

#![expect(unsafe_code, reason = "called by libiscsi, a C library")]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;

use libiscsi_sys as sys;

use super::command::GOOD;

/// The answer to a control call, written by a callback while `iscsi_service` runs.
#[derive(Default)]
pub struct Reply {
    /// The status, once the callback was made.
    pub status: Cell<Option<u32>>,
    /// The task of a command.
    pub task: Cell<*mut sys::scsi_task>,
    /// The names that a discovery found.
    pub targets: RefCell<Vec<String>>,
}

thread_local! {
    /// What libiscsi said to its log on this thread during a login.
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// libiscsi puts its log together in one static buffer for all threads, so one login at a time may log.
pub static LOG: Mutex<()> = Mutex::new(());

/// libiscsi's log function: keeps what it is told.
///
/// # Safety
/// Called by libiscsi only.
pub unsafe extern "C" fn log(_level: c_int, message: *const c_char) {
    // SAFETY: libiscsi hands over a terminated string that lives until this function returns.
    let text = unsafe { CStr::from_ptr(message) };
    SAID.with_borrow_mut(|said| said.push(text.to_string_lossy().into_owned()));
}

/// Callback of calls that end with a status alone.
///
/// # Safety
/// `private` is the [`Reply`] of the context that calls, which lives longer than the context.
pub unsafe extern "C" fn on_event(
    _context: *mut sys::iscsi_context,
    status: c_int,
    _data: *mut c_void,
    private: *mut c_void,
) {
    // SAFETY: as the caller promises.
    let reply = unsafe { &*private.cast::<Reply>() };
    reply.status.set(Some(status.cast_unsigned()));
}

/// Callback of SCSI commands.
///
/// # Safety
/// `private` is the [`Reply`] of the context that calls, which lives longer than the context.
pub unsafe extern "C" fn on_task(
    _context: *mut sys::iscsi_context,
    status: c_int,
    data: *mut c_void,
    private: *mut c_void,
) {
    // SAFETY: as the caller promises.
    let reply = unsafe { &*private.cast::<Reply>() };
    reply.status.set(Some(status.cast_unsigned()));
    reply.task.set(data.cast());
}

/// Callback of a discovery.
///
/// # Safety
/// `private` is the [`Reply`] of the context that calls, which lives longer than the context.
pub unsafe extern "C" fn on_targets(
    _context: *mut sys::iscsi_context,
    status: c_int,
    data: *mut c_void,
    private: *mut c_void,
) {
    // SAFETY: as the caller promises.
    let reply = unsafe { &*private.cast::<Reply>() };
    reply.status.set(Some(status.cast_unsigned()));
    if status.cast_unsigned() != GOOD {
        return;
    }
    let mut next = data.cast::<sys::iscsi_discovery_address>();
    // SAFETY: a good discovery hands over a list that lives until this function returns.
    while let Some(entry) = unsafe { next.as_ref() } {
        if !entry.target_name.is_null() {
            // SAFETY: a name in that list is a terminated string.
            let name = unsafe { CStr::from_ptr(entry.target_name) };
            reply
                .targets
                .borrow_mut()
                .push(name.to_string_lossy().into_owned());
        }
        next = entry.next;
    }
}

/// Takes what libiscsi said on this thread since the last time.
#[must_use]
pub fn said() -> Vec<String> {
    SAID.take()
}
