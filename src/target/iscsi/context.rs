//! A safe wrapper of one libiscsi context: one TCP connection, one session, one thread.
//!
//! libiscsi's own synchronous calls can wait for ever, so everything here starts an asynchronous call and turns
//! the connection (poll, then `iscsi_service`) until its callback came or the deadline passed. libiscsi's task
//! timeouts stay off: in 1.19 they free requests whose data may still be under way; deadlines here end the whole
//! session instead. It never reconnects. Times are nanoseconds of `CLOCK_MONOTONIC`. Must not know: what is on the
//! LUN, workloads.

#![expect(unsafe_code, reason = "calls libiscsi, a C library")]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use libiscsi_sys as sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::address::Digest;
use super::fault::{Fault, Sense};
use super::login::Heard;
use super::scsi::{Cdb, cdb_length};
use crate::clock::monotonic_ns;

/// libiscsi's callback type, present.
pub type Callback = unsafe extern "C" fn(*mut sys::iscsi_context, c_int, *mut c_void, *mut c_void);

/// The status of a command that ended well.
pub const GOOD: u32 = sys::scsi_status_SCSI_STATUS_GOOD;

/// The log level at which libiscsi 1.19 repeats each key of a login response.
const LOGIN_KEYS: c_int = 6;

/// libiscsi cuts longer strings without a word.
const STRING_MAX: usize = 255;

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

/// The answer to a control call, written by a callback while `iscsi_service` runs.
#[derive(Default)]
struct Reply {
    status: Cell<Option<u32>>,
    task: Cell<*mut sys::scsi_task>,
    targets: RefCell<Vec<String>>,
}

/// One libiscsi context.
pub struct Context {
    /// Null once destroyed.
    raw: *mut sys::iscsi_context,
    /// libiscsi may write to its log.
    logs: bool,
    /// Shared with callbacks, which hold a pointer to it until `raw` is destroyed.
    reply: Rc<Reply>,
    /// Failed tasks: libiscsi may still hold unsent data of theirs, so they are freed after the context.
    failed: Vec<NonNull<sys::scsi_task>>,
}

thread_local! {
    /// What libiscsi said to its log on this thread during a login.
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// libiscsi puts its log together in one static buffer for all threads, so one login at a time may log.
static LOG: Mutex<()> = Mutex::new(());

unsafe extern "C" fn log(_level: c_int, message: *const c_char) {
    // SAFETY: libiscsi hands over a terminated string that lives until this function returns.
    let text = unsafe { CStr::from_ptr(message) };
    SAID.with_borrow_mut(|said| said.push(text.to_string_lossy().into_owned()));
}

unsafe extern "C" fn on_event(
    _context: *mut sys::iscsi_context,
    status: c_int,
    _data: *mut c_void,
    private: *mut c_void,
) {
    // SAFETY: `private` is the `Reply` of the context that calls; it is dropped only after the context.
    let reply = unsafe { &*private.cast::<Reply>() };
    reply.status.set(Some(status.cast_unsigned()));
}

unsafe extern "C" fn on_task(
    _context: *mut sys::iscsi_context,
    status: c_int,
    data: *mut c_void,
    private: *mut c_void,
) {
    // SAFETY: as in `on_event`.
    let reply = unsafe { &*private.cast::<Reply>() };
    reply.status.set(Some(status.cast_unsigned()));
    reply.task.set(data.cast());
}

unsafe extern "C" fn on_targets(
    _context: *mut sys::iscsi_context,
    status: c_int,
    data: *mut c_void,
    private: *mut c_void,
) {
    // SAFETY: as in `on_event`.
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

impl Context {
    /// A context that is not connected; `target` None is for discovery.
    pub fn new(
        initiator: &str,
        target: Option<&str>,
        digest: Option<Digest>,
    ) -> Result<Self, Fault> {
        let initiator = c_string(initiator)?;
        let target = target.map(c_string).transpose()?;
        // SAFETY: a terminated string; libiscsi copies it.
        let raw = unsafe { sys::iscsi_create_context(initiator.as_ptr()) };
        if raw.is_null() {
            return Err(Fault::Rejected("no memory for a session".into()));
        }
        let random = RandomState::new().hash_one(0);
        let session = if target.is_some() {
            sys::iscsi_session_type_ISCSI_SESSION_NORMAL
        } else {
            sys::iscsi_session_type_ISCSI_SESSION_DISCOVERY
        };
        // SAFETY: `raw` is a live context, not yet logged in; strings are terminated and copied.
        unsafe {
            sys::iscsi_set_log_level(raw, 0);
            sys::iscsi_set_log_fn(raw, Some(log));
            sys::iscsi_set_noautoreconnect(raw, 1);
            sys::iscsi_set_timeout(raw, 0);
            // Sessions of one initiator name differ in their ISID alone; libiscsi's default is 24 random bits.
            sys::iscsi_set_isid_random(raw, random as u32, (random >> 32) as u32);
            sys::iscsi_set_session_type(raw, session);
            if let Some(target) = &target {
                sys::iscsi_set_targetname(raw, target.as_ptr());
            }
            if let Some(digest) = digest {
                sys::iscsi_set_header_digest(
                    raw,
                    match digest {
                        Digest::None => sys::iscsi_header_digest_ISCSI_HEADER_DIGEST_NONE,
                        Digest::Crc32c => sys::iscsi_header_digest_ISCSI_HEADER_DIGEST_CRC32C,
                    },
                );
            }
        }
        Ok(Self {
            raw,
            logs: false,
            reply: Rc::default(),
            failed: Vec::new(),
        })
    }

    /// Sets the CHAP user and secret.
    pub fn authenticate_as(&mut self, user: &str, secret: &str) -> Result<(), Fault> {
        let (user, secret) = (c_string(user)?, c_string(secret)?);
        let raw = self.live()?;
        // SAFETY: a live context, not yet logged in; the strings are copied.
        unsafe { sys::iscsi_set_initiator_username_pwd(raw, user.as_ptr(), secret.as_ptr()) };
        Ok(())
    }

    /// Opens the TCP connection to `portal` (numeric, IPv6 in brackets).
    pub fn connect(&mut self, portal: &str, deadline: u64) -> Result<(), Fault> {
        let portal = c_string(portal)?;
        let (raw, private) = (self.live()?, self.ask());
        // SAFETY: a live context; the string is used during the call; `private` outlives the context.
        let started =
            unsafe { sys::iscsi_connect_async(raw, portal.as_ptr(), Some(on_event), private) };
        self.started(started)?;
        let status = self.answer(deadline)?;
        self.judge(status)
    }

    /// Logs in. What the target said is returned either way.
    pub fn login(&mut self, deadline: u64) -> (Result<(), Fault>, Heard) {
        SAID.with_borrow_mut(Vec::clear);
        let result = self.login_logged(deadline);
        let said = SAID.take();
        (result, Heard::from_log(&said))
    }

    fn login_logged(&mut self, deadline: u64) -> Result<(), Fault> {
        let (raw, private) = (self.live()?, self.ask());
        self.logs = true;
        let started = {
            let _one = LOG.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: a live, connected context; `private` outlives it.
            unsafe {
                sys::iscsi_set_log_level(raw, LOGIN_KEYS);
                sys::iscsi_login_async(raw, Some(on_event), private)
            }
        };
        let result = self.started(started).and_then(|()| self.answer(deadline));
        self.silence();
        self.judge(result?)
    }

    fn silence(&mut self) {
        if std::mem::take(&mut self.logs) && !self.raw.is_null() {
            // SAFETY: a live context.
            unsafe { sys::iscsi_set_log_level(self.raw, 0) };
        }
    }

    /// Where a login response sent us instead.
    #[must_use]
    pub fn redirect(&self) -> Option<String> {
        if self.raw.is_null() {
            return None;
        }
        // SAFETY: a live context returns a terminated string inside itself.
        let text = unsafe { CStr::from_ptr(sys::iscsi_get_target_address(self.raw)) };
        Some(text.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
    }

    /// The names of the targets behind the portal, on a discovery session.
    pub fn discover(&mut self, deadline: u64) -> Result<Vec<String>, Fault> {
        let (raw, private) = (self.live()?, self.ask());
        // SAFETY: a live context; `private` outlives it.
        let started = unsafe { sys::iscsi_discovery_async(raw, Some(on_targets), private) };
        self.started(started)?;
        let status = self.answer(deadline)?;
        self.judge(status)?;
        let mut names = self.reply.targets.take();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

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

    /// Sends what is queued, as far as the socket takes it now.
    pub fn push(&mut self) -> Result<(), Fault> {
        let raw = self.live()?;
        // SAFETY: a live context.
        let events = unsafe { sys::iscsi_which_events(raw) };
        if events & c_int::from(PollFlags::OUT.bits()) == 0 {
            return Ok(());
        }
        self.service(PollFlags::OUT)
    }

    /// Waits until something can be received or sent, or `until` has passed, and does it.
    pub fn turn(&mut self, until: u64) -> Result<(), Fault> {
        let raw = self.live()?;
        // SAFETY: a live context.
        let (fd, events) = unsafe { (sys::iscsi_get_fd(raw), sys::iscsi_which_events(raw)) };
        if fd < 0 {
            return Err(Fault::Gone(self.words()));
        }
        let left = until.saturating_sub(monotonic_ns());
        let timeout = Timespec {
            tv_sec: (left / 1_000_000_000).cast_signed(),
            tv_nsec: (left % 1_000_000_000).cast_signed(),
        };
        let wanted = PollFlags::from_bits_truncate(events as u16);
        // SAFETY: libiscsi closes its socket only in calls that we make, and we make none while polling.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let mut polled = [PollFd::from_borrowed_fd(socket, wanted)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(Fault::Rejected(error.to_string())),
        }
        let came = polled[0].revents();
        self.service(came)
    }

    fn service(&mut self, events: PollFlags) -> Result<(), Fault> {
        let _one = self
            .logs
            .then(|| LOG.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: a live context; callbacks that it makes use cells and raw pointers, never this `&mut self`.
        let result = unsafe { sys::iscsi_service(self.raw, c_int::from(events.bits())) };
        if result < 0 {
            return Err(Fault::Gone(self.words()));
        }
        Ok(())
    }

    /// Logs out, so that the target frees the session at once; failures don't matter.
    pub fn logout(&mut self, deadline: u64) {
        let private = self.ask();
        if let Ok(raw) = self.live() {
            // SAFETY: a live context; `private` outlives it.
            if unsafe { sys::iscsi_logout_async(raw, Some(on_event), private) } == 0 {
                let _ = self.answer(deadline);
            }
        }
        self.destroy();
    }

    /// Ends the connection. Callbacks of commands under way are made here; after it, libiscsi holds no pointer.
    pub fn destroy(&mut self) {
        self.silence();
        let raw = std::mem::replace(&mut self.raw, null_mut());
        if !raw.is_null() {
            // SAFETY: a live context, used no more; what its callbacks point to still lives.
            unsafe { sys::iscsi_destroy_context(raw) };
        }
        let late = NonNull::new(self.reply.task.replace(null_mut()));
        for task in self.failed.drain(..).chain(late) {
            // SAFETY: handed over by callbacks, each once; the context that knew it is gone.
            unsafe { sys::scsi_free_scsi_task(task.as_ptr()) };
        }
    }

    fn live(&self) -> Result<*mut sys::iscsi_context, Fault> {
        if self.raw.is_null() {
            return Err(Fault::Closed);
        }
        Ok(self.raw)
    }

    /// Readies the reply for a new call and gives the pointer for its callback.
    fn ask(&self) -> *mut c_void {
        self.reply.status.set(None);
        self.reply.targets.borrow_mut().clear();
        Rc::as_ptr(&self.reply).cast_mut().cast()
    }

    fn started(&mut self, result: c_int) -> Result<(), Fault> {
        if result == 0 {
            return Ok(());
        }
        let words = self.words().unwrap_or_else(|| "no reason given".into());
        Err(Fault::Rejected(words))
    }

    /// Turns the connection until the call is answered. Failing destroys the context: nothing of the call is left.
    fn answer(&mut self, deadline: u64) -> Result<u32, Fault> {
        loop {
            if let Some(status) = self.reply.status.get() {
                return Ok(status);
            }
            let turned = self.turn(deadline);
            if self.reply.status.get().is_some() {
                continue;
            }
            let fault = match turned {
                Err(fault) => fault,
                Ok(()) if monotonic_ns() >= deadline => Fault::TimedOut,
                Ok(()) => continue,
            };
            self.destroy();
            return Err(fault);
        }
    }

    /// The fault of any other status than good.
    fn judge(&self, status: u32) -> Result<(), Fault> {
        match status {
            GOOD => Ok(()),
            sys::scsi_status_SCSI_STATUS_TIMEOUT => Err(Fault::TimedOut),
            sys::scsi_status_SCSI_STATUS_CANCELLED => Err(Fault::Gone(self.words())),
            sys::scsi_status_SCSI_STATUS_ERROR => Err(Fault::Broken(self.words())),
            status => Err(Fault::Status(status)),
        }
    }

    /// libiscsi's words on its last failure, where they help.
    fn words(&self) -> Option<String> {
        if self.raw.is_null() {
            return None;
        }
        // SAFETY: a live context returns a terminated string inside itself.
        let text = unsafe { CStr::from_ptr(sys::iscsi_get_error(self.raw)) };
        let text = text.to_string_lossy().trim().to_owned();
        // Said whenever a connection ends, since reconnecting is off; and on sense data, which is reported apart.
        let noise = text.is_empty()
            || text.contains("Can not reconnect")
            || text.contains("reconnect is already deferred")
            || text.starts_with("SENSE KEY");
        (!noise).then_some(text)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.destroy();
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

fn c_string(text: &str) -> Result<CString, Fault> {
    if text.len() > STRING_MAX {
        return Err(Fault::Rejected(format!(
            "a name or secret has more than {STRING_MAX} bytes"
        )));
    }
    CString::new(text).map_err(|_| Fault::Rejected("a zero byte in a name or secret".into()))
}

fn no_memory() -> Fault {
    Fault::Rejected("no memory for a command".into())
}
