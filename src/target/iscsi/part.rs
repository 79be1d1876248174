//! The side of a queued command that libiscsi's callback sees, and the list of those that ended.
//!
//! Callbacks run inside our own calls, on the same thread: cells are enough, and nothing is allocated. Must not
//! know: operations, slots.

#![expect(unsafe_code, reason = "called by libiscsi, a C library")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;

use libiscsi_sys as sys;

use super::command::GOOD;

/// Indices of commands that ended and were not yet looked at.
#[derive(Default)]
pub struct Ended {
    list: Box<[Cell<u32>]>,
    count: Cell<usize>,
}

/// The side of a command that its callback sees.
pub struct Part {
    ended: Rc<Ended>,
    index: u32,
    /// Sent, and its callback not yet made.
    pub under_way: Cell<bool>,
    /// The status that the callback was told.
    pub status: Cell<u32>,
    /// Ours to free once the callback was made; null when there is none.
    pub task: Cell<*mut sys::scsi_task>,
}

/// Callback of a queued command: notes that it ended, and how.
///
/// # Safety
/// `private` is a [`Part`] that lives longer than the context that calls.
pub unsafe extern "C" fn on_part(
    _context: *mut sys::iscsi_context,
    status: c_int,
    _task: *mut c_void,
    private: *mut c_void,
) {
    // SAFETY: as the caller promises.
    let part = unsafe { &*private.cast::<Part>() };
    if !part.under_way.replace(false) {
        return;
    }
    part.status.set(status.cast_unsigned());
    let count = part.ended.count.get();
    // Each part is in the list at most once, and the list has room for all.
    if let Some(place) = part.ended.list.get(count) {
        place.set(part.index);
        part.ended.count.set(count + 1);
    }
}

impl Ended {
    /// Forgets what is listed and tells how many there were, to be read with [`Ended::at`].
    pub fn take(&self) -> usize {
        self.count.replace(0)
    }

    /// The index at a place of the list.
    #[must_use]
    pub fn at(&self, place: usize) -> u32 {
        self.list[place].get()
    }
}

/// `count` parts with a list that has room for all of them.
#[must_use]
pub fn parts(count: u32) -> (Rc<Ended>, Rc<[Part]>) {
    let ended = Rc::new(Ended {
        list: (0..count).map(|_| Cell::new(0)).collect(),
        count: Cell::new(0),
    });
    let parts = (0..count)
        .map(|index| Part {
            ended: Rc::clone(&ended),
            index,
            under_way: Cell::new(false),
            status: Cell::new(GOOD),
            task: Cell::new(null_mut()),
        })
        .collect();
    (ended, parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_ends_once() {
        let (ended, parts) = parts(2);
        let private = std::ptr::from_ref(&parts[1]).cast_mut().cast();
        parts[1].under_way.set(true);
        for status in [2, 0] {
            // SAFETY: the part lives on.
            unsafe { on_part(null_mut(), status, null_mut(), private) };
        }
        assert_eq!(parts[1].status.get(), 2, "the second call is not heard");
        assert_eq!((ended.take(), ended.at(0)), (1, 1));
        assert_eq!(ended.take(), 0);
    }
}
