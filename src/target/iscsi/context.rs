//! A safe wrapper of one libiscsi context: one TCP connection, one session, one thread.
//!
//! libiscsi's own synchronous calls can wait for ever, so everything here starts an asynchronous call and turns
//! the connection (poll, then `iscsi_service`) until its callback came or the deadline passed. libiscsi's task
//! timeouts stay off: in 1.19 they free requests whose data may still be under way; deadlines here end the whole
//! session instead. It never reconnects. Times are nanoseconds of `CLOCK_MONOTONIC`. Must not know: what is on the
//! LUN, workloads.

#![expect(unsafe_code, reason = "calls libiscsi, a C library")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;
use std::sync::PoisonError;

use libiscsi_sys as sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::address::{Digest, Wishes};
use super::command::GOOD;
use super::fault::Fault;
use super::login::Heard;
use super::reply::{LOG, Reply, log, on_event, on_targets, said};
use crate::clock::monotonic_ns;

/// The log level at which libiscsi 1.19 repeats each key of a login response.
const LOGIN_KEYS: c_int = 6;

/// How often to look for something received while idle: a closed connection takes two looks, and a question or
/// two may lie before its end.
const CATCH_UP_MAX: u8 = 4;

/// libiscsi cuts longer strings without a word.
const STRING_MAX: usize = 255;

/// One libiscsi context.
pub struct Context {
    /// Null once destroyed.
    pub(super) raw: *mut sys::iscsi_context,
    /// libiscsi may write to its log.
    logs: bool,
    /// Commands were queued that nothing has tried to send yet.
    pub(super) fresh: bool,
    /// Shared with callbacks, which hold a pointer to it until `raw` is destroyed.
    pub(super) reply: Rc<Reply>,
    /// Failed tasks: libiscsi may still hold unsent data of theirs, so they are freed after the context.
    pub(super) failed: Vec<NonNull<sys::scsi_task>>,
}

impl Context {
    /// A context that is not connected; `target` None is for discovery.
    pub fn new(initiator: &str, target: Option<&str>, wishes: Wishes) -> Result<Self, Fault> {
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
            if let Some(digest) = wishes.digest {
                sys::iscsi_set_header_digest(
                    raw,
                    match digest {
                        Digest::None => sys::iscsi_header_digest_ISCSI_HEADER_DIGEST_NONE,
                        Digest::Crc32c => sys::iscsi_header_digest_ISCSI_HEADER_DIGEST_CRC32C,
                    },
                );
            }
            if let Some(flag) = wishes.immediate_data {
                let choice = if flag {
                    sys::iscsi_immediate_data_ISCSI_IMMEDIATE_DATA_YES
                } else {
                    sys::iscsi_immediate_data_ISCSI_IMMEDIATE_DATA_NO
                };
                sys::iscsi_set_immediate_data(raw, choice);
            }
            if let Some(flag) = wishes.initial_r2t {
                let choice = if flag {
                    sys::iscsi_initial_r2t_ISCSI_INITIAL_R2T_YES
                } else {
                    sys::iscsi_initial_r2t_ISCSI_INITIAL_R2T_NO
                };
                sys::iscsi_set_initial_r2t(raw, choice);
            }
        }
        Ok(Self {
            raw,
            logs: false,
            fresh: false,
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
        match self.answer(deadline)? {
            GOOD => Ok(()),
            _ => Err(Fault::Gone(self.words())),
        }
    }

    /// Logs in. What the target said is returned either way.
    pub fn login(&mut self, deadline: u64) -> (Result<(), Fault>, Heard) {
        drop(said());
        let result = self.login_logged(deadline);
        (result, Heard::from_log(&said()))
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

    /// Answers what the target asked while nobody listened, without waiting; fails when it closed the connection.
    pub fn catch_up(&mut self) -> Result<(), Fault> {
        // A closed connection shows at the second look: at the first, libiscsi notes that it may not reconnect.
        for _ in 0..CATCH_UP_MAX {
            if let Err(fault) = self.turn(0) {
                self.destroy();
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Waits until something can be received or sent, or `until` has passed, and does it.
    pub fn turn(&mut self, until: u64) -> Result<(), Fault> {
        if self.fresh {
            // Sending needs no wait, and answers may lie there already.
            return self.service(PollFlags::IN | PollFlags::OUT);
        }
        let mut polled = [self.waiting()?];
        wait(&mut polled, until)?;
        let came = polled[0].revents();
        self.serve(came)
    }

    /// What to wait for, on which socket.
    pub(super) fn waiting(&self) -> Result<PollFd<'static>, Fault> {
        let raw = self.live()?;
        // SAFETY: a live context.
        let (fd, events) = unsafe { (sys::iscsi_get_fd(raw), sys::iscsi_which_events(raw)) };
        if fd < 0 {
            return Err(Fault::Gone(self.words()));
        }
        let wanted = PollFlags::from_bits_truncate(events as u16);
        // SAFETY: libiscsi closes its socket only in calls that we make; callers poll at once, and make none meanwhile.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        Ok(PollFd::from_borrowed_fd(socket, wanted))
    }

    /// Does what a wait said can be done.
    pub(super) fn serve(&mut self, came: PollFlags) -> Result<(), Fault> {
        if came.is_empty() {
            return Ok(());
        }
        self.live()?;
        self.service(came)
    }

    fn service(&mut self, events: PollFlags) -> Result<(), Fault> {
        self.fresh = false;
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

    pub(super) fn live(&self) -> Result<*mut sys::iscsi_context, Fault> {
        if self.raw.is_null() {
            return Err(Fault::Closed);
        }
        Ok(self.raw)
    }

    /// Readies the reply for a new call and gives the pointer for its callback.
    pub(super) fn ask(&self) -> *mut c_void {
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
    pub(super) fn answer(&mut self, deadline: u64) -> Result<u32, Fault> {
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
    pub(super) fn judge(&self, status: u32) -> Result<(), Fault> {
        match status {
            GOOD => Ok(()),
            sys::scsi_status_SCSI_STATUS_TIMEOUT => Err(Fault::TimedOut),
            sys::scsi_status_SCSI_STATUS_CANCELLED => Err(Fault::Gone(self.words())),
            sys::scsi_status_SCSI_STATUS_ERROR => Err(Fault::Broken(self.words())),
            status => Err(Fault::Status(status)),
        }
    }

    /// libiscsi's words on its last failure, where they help.
    pub(super) fn words(&self) -> Option<String> {
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

/// Waits until one of `polled` is ready or `until` has passed; a signal ends it too.
pub(super) fn wait(polled: &mut [PollFd<'_>], until: u64) -> Result<(), Fault> {
    let left = until.saturating_sub(monotonic_ns());
    let timeout = Timespec {
        tv_sec: (left / 1_000_000_000).cast_signed(),
        tv_nsec: (left % 1_000_000_000).cast_signed(),
    };
    match poll(polled, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Fault::Rejected(error.to_string())),
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.destroy();
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
