//! libc's list of variables, while another is installed for the shells that libc itself starts.
//!
//! Several threads may start shells at once: each installs its list on top of the others', and the last that ends puts
//! back what the program had.

use core::ffi::{c_char, CStr};
use std::collections::VecDeque;
use std::ffi::CString;
use std::mem;
use std::sync::Mutex;

use crate::locking::lock;

/// Variables, with null behind the last.
pub type List = *const *const c_char;

extern "C" {
    static mut environ: List;
}

/// Lists that are kept when no thread needs them: another thread may still be looking for a variable in one of them.
const KEPT: usize = 64;

/// A list of ours, with the variable that is in it only.
struct Ours {
    list: Vec<*const c_char>,
    _record: Option<CString>,
}

struct Lists {
    /// Calls that libc starts a shell in.
    borrowers: usize,
    /// The program's own list, while one of ours is in its place.
    own: List,
    /// The newest is the last.
    ours: VecDeque<Ours>,
}

// SAFETY: what the pointers lead to is only read.
unsafe impl Send for Lists {}

static LISTS: Mutex<Lists> = Mutex::new(Lists {
    borrowers: 0,
    own: core::ptr::null(),
    ours: VecDeque::new(),
});

impl Lists {
    /// Whether libc has one of our lists; if not, the program has set a variable, and its list is a copy of one of ours.
    fn are_in_place(&self) -> bool {
        // SAFETY: libc's variable.
        let now = unsafe { environ };
        self.ours.iter().any(|ours| ours.list.as_ptr() == now)
    }

    /// The program's own list is in its place again, or a copy, which needs what ours lead to.
    fn put_back(&mut self) {
        if self.are_in_place() {
            // SAFETY: libc's variable.
            unsafe { environ = self.own };
        } else {
            mem::forget(mem::take(&mut self.ours));
        }
        while self.ours.len() > KEPT {
            self.ours.pop_front();
        }
    }
}

/// A list is installed until this is dropped.
pub struct Lent(());

/// Has libc find what `extended` makes of its list and of the variable that names a record.
pub fn lend(
    record: Option<CString>,
    extended: impl FnOnce(List, Option<&CStr>) -> Vec<*const c_char>,
) -> Lent {
    if let Ok(mut lists) = lock(&LISTS) {
        if lists.borrowers == 0 || !lists.are_in_place() {
            if lists.borrowers > 0 {
                mem::forget(mem::take(&mut lists.ours));
            }
            // SAFETY: libc's variable.
            lists.own = unsafe { environ };
        }
        lists.borrowers += 1;
        let list = extended(lists.own, record.as_deref());
        let at = list.as_ptr();
        lists.ours.push_back(Ours {
            list,
            _record: record,
        });
        // SAFETY: libc's variable; the list stays until it is replaced.
        unsafe { environ = at };
    }
    Lent(())
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Ok(mut lists) = lock(&LISTS) {
            lists.borrowers = lists.borrowers.saturating_sub(1);
            if lists.borrowers == 0 {
                lists.put_back();
            }
        }
    }
}

/// Holds the lists across a fork, so that the child finds them whole and free.
pub fn hold() -> impl Sized {
    lock(&LISTS).ok()
}

/// In a forked child: the threads that have borrowed are not there.
pub fn forget() {
    if let Ok(mut lists) = lock(&LISTS) {
        if mem::take(&mut lists.borrowers) > 0 {
            lists.put_back();
        }
    }
}
