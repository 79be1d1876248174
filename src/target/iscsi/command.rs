//! SCSI commands on a [`Context`]: one at a time for the control side, or queued with an own callback.
//!
//! Must not know: what the bytes mean.

#![expect(unsafe_code, reason = "calls libiscsi, a C library")]

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};

use libiscsi_sys as sys;
use rustix::event::PollFlags;

use super::context::Context;
use super::fault::{Fault, Sense};
use super::reply::on_task;
use super::scsi::{Cdb, cdb_length};

/// libiscsi's callback type, present.
pub type Callback = unsafe extern "C" fn(*mut sys::iscsi_context, c_int, *mut c_void, *mut c_void);

/// The status of a command that ended well.
pub const GOOD: u32 = sys::scsi_status_SCSI_STATUS_GOOD;

/// What a command carries, as libiscsi will see it for as long as the command runs.
#[derive(Clone, Copy)]
pub enum Data {
    /// Nothing.
    None,
    /// Up to so many bytes, into memory of libiscsi's.
    Answer(u32),
    /// So many bytes, straight into this memory.
    Into(*mut u8, u32),
    /// So many bytes, straight from this memory.
    From(*const u8, u32),
}

/// What a control command carries.
pub enum Payload<'a> {
    /// Nothing.
    None,
    /// An answer of up to so many bytes.
    Answer(u32),
    /// Filled by the target.
    Into(&'a mut [u8]),
    /// Sent to the target.
    From(&'a [u8]),
}

impl Context {
    /// Runs one command to its end and returns the bytes of its answer, or how many bytes moved of its payload.
    pub fn command(
        &mut self,
        lun: i32,
        cdb: &Cdb,
        payload: Payload<'_>,
        deadline: u64,
    ) -> Result<(Vec<u8>, usize), Fault> {
        let (data, len) = match payload {
            Payload::None => (Data::None, 0),
            Payload::Answer(len) => (Data::Answer(len), 0),
            Payload::Into(buffer) => (
                Data::Into(buffer.as_mut_ptr(), buffer.len() as u32),
                buffer.len(),
            ),
            Payload::From(buffer) => (
                Data::From(buffer.as_ptr(), buffer.len() as u32),
                buffer.len(),
            ),
        };
        let private = self.ask();
        // SAFETY: the payload is borrowed until this function returns, and by then the command has either ended or
        // the context is destroyed; the reply lives longer than the context.
        let task = unsafe { self.queue(lun, cdb, data, on_task, private) }?;
        // Should the wait fail, `destroy` frees it, whether libiscsi made the callback or not.
        self.reply.task.set(task.as_ptr());
        let status = self.answer(deadline)?;
        self.reply.task.set(null_mut());
        // SAFETY: the callback was made, so the task is ours; it is freed below or with the context.
        let outcome = unsafe { self.fault_of(task, status) };
        if let Some(fault) = outcome {
            self.failed.push(task);
            // A target may refuse a write before it has all of its data: what is left unsent must not be sent from
            // memory that the caller takes back now.
            if fault.ends_session() || self.unsent() {
                self.destroy();
            }
            return Err(fault);
        }
        // SAFETY: ended well, so libiscsi holds nothing of it any more.
        unsafe {
            let bytes = answer_of(task.as_ref());
            let moved = len.saturating_sub(residual(task.as_ref()));
            sys::scsi_free_scsi_task(task.as_ptr());
            Ok((bytes, moved))
        }
    }

    /// The fault of a task that ended with `status`; None when it ended well.
    ///
    /// # Safety
    /// `task` is live and its callback has been made with `status`.
    #[must_use]
    pub unsafe fn fault_of(&self, task: NonNull<sys::scsi_task>, status: u32) -> Option<Fault> {
        match status {
            GOOD => None,
            sys::scsi_status_SCSI_STATUS_CHECK_CONDITION => {
                // SAFETY: as the caller promises.
                let sense = unsafe { task.as_ref() }.sense;
                Some(Fault::Sense(Sense {
                    key: sense.key as u8,
                    code: sense.ascq as u16,
                }))
            }
            status => self.judge(status).err(),
        }
    }

    /// Hands a command to libiscsi, which sends it when the connection is turned or pushed.
    ///
    /// # Safety
    /// The memory that `data` points to, and whatever `private` points to, stay valid until `callback` was called
    /// for this command or the context is destroyed. `callback` gets the task and owns it then; it may free a task
    /// that ended [`GOOD`], and must hand any other to [`Context::retire`].
    pub unsafe fn queue(
        &mut self,
        lun: i32,
        cdb: &Cdb,
        data: Data,
        callback: Callback,
        private: *mut c_void,
    ) -> Result<NonNull<sys::scsi_task>, Fault> {
        let raw = self.live()?;
        let mut cdb_bytes = *cdb;
        let (direction, len) = match data {
            Data::None => (sys::scsi_xfer_dir_SCSI_XFER_NONE, 0),
            Data::Answer(len) | Data::Into(_, len) => (sys::scsi_xfer_dir_SCSI_XFER_READ, len),
            Data::From(_, len) => (sys::scsi_xfer_dir_SCSI_XFER_WRITE, len),
        };
        let len = c_int::try_from(len)
            .map_err(|_| Fault::Rejected("a transfer of 2 GiB or more".into()))?;
        // SAFETY: the command block is copied; its length fits.
        let task = unsafe {
            sys::scsi_create_task(
                c_int::from(cdb_length(cdb)),
                cdb_bytes.as_mut_ptr(),
                direction.cast_signed(),
                len,
            )
        };
        let task = NonNull::new(task).ok_or_else(no_memory)?;
        // SAFETY: a fresh task of ours. libiscsi only reads what it sends, whatever its signature says, and the
        // caller keeps the memory.
        let attached = unsafe {
            match data {
                Data::Into(buffer, _) => {
                    sys::scsi_task_add_data_in_buffer(task.as_ptr(), len, buffer)
                }
                Data::From(buffer, _) => {
                    sys::scsi_task_add_data_out_buffer(task.as_ptr(), len, buffer.cast_mut())
                }
                Data::None | Data::Answer(_) => 0,
            }
        };
        let started = if attached == 0 {
            // SAFETY: a live context and a task that it takes over until the callback.
            unsafe {
                sys::iscsi_scsi_command_async(
                    raw,
                    lun,
                    task.as_ptr(),
                    Some(callback),
                    null_mut(),
                    private,
                )
            }
        } else {
            -1
        };
        if started != 0 {
            // SAFETY: libiscsi did not take it.
            unsafe { sys::scsi_free_scsi_task(task.as_ptr()) };
            return Err(Fault::Rejected(
                self.words().unwrap_or_else(|| "no reason given".into()),
            ));
        }
        self.fresh = true;
        Ok(task)
    }

    /// Takes a task that failed; it is freed with the context, since libiscsi may still hold data of it.
    pub fn retire(&mut self, task: NonNull<sys::scsi_task>) {
        self.failed.push(task);
    }

    /// Whether anything is still to be sent.
    fn unsent(&self) -> bool {
        // SAFETY: a live context, or null, which is asked nothing.
        !self.raw.is_null()
            && unsafe {
                sys::iscsi_out_queue_length(self.raw) > 0
                    || sys::iscsi_which_events(self.raw) & c_int::from(PollFlags::OUT.bits()) != 0
            }
    }
}

/// The answer of a task, from libiscsi's memory.
///
/// # Safety
/// `task` ended well.
unsafe fn answer_of(task: &sys::scsi_task) -> Vec<u8> {
    let size = usize::try_from(task.datain.size).unwrap_or(0);
    if task.datain.data.is_null() {
        return Vec::new();
    }
    // SAFETY: libiscsi keeps `size` bytes there until the task is freed.
    unsafe { std::slice::from_raw_parts(task.datain.data, size) }.to_vec()
}

/// Bytes of the payload that the target says did not move.
#[must_use]
pub const fn residual(task: &sys::scsi_task) -> usize {
    if task.residual_status == sys::scsi_residual_SCSI_RESIDUAL_UNDERFLOW {
        task.residual
    } else {
        0
    }
}

fn no_memory() -> Fault {
    Fault::Rejected("no memory for a command".into())
}
