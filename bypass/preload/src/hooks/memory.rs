//! mlockall(2): the program's memory is locked. Segments are not: the kernel would make memory of each of their
//! pages, of which few are in use.

use core::ffi::{c_int, c_void};

use bypass_stack::process::deferral::inside;
use bypass_sys::kernel;
use bypass_sys::memory::ranges;

use crate::outcome::{errno, set_errno};
use crate::real;

fn lock_all(flags: c_int) -> c_int {
    // SAFETY: a number only.
    unsafe { real::mlockall()(flags) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn mlockall(flags: c_int) -> c_int {
    let has_segments = || ranges().is_ok_and(|all| all.iter().any(|one| one.is_sparse));
    if flags & libc::MCL_CURRENT == 0 || !inside(has_segments) {
        return lock_all(flags);
    }
    let before = errno();
    // Pages that are not in memory stay out of it at first, wherever they are.
    let result = lock_all(flags | libc::MCL_ONFAULT);
    // The kernel's limit counts the segments, which are not to be locked.
    if result != 0 && (errno() != libc::ENOMEM || !inside(is_within_limit)) {
        return result;
    }
    set_errno(before);
    inside(|| lock_the_programs(flags));
    0
}

/// Whether the program's own memory is within the limit of locked memory.
fn is_within_limit() -> bool {
    let own = ranges().unwrap_or_default();
    let own = own.iter().filter(|range| !range.is_sparse);
    own.map(|range| range.length).sum::<usize>() <= kernel::locked_memory_limit()
}

/// Unlocks the segments, and gives the program's own memory what it asked for. Memory that another thread maps meanwhile is
/// either among the ranges, or comes after the call about the future.
fn lock_the_programs(flags: c_int) {
    if flags & libc::MCL_FUTURE != 0 {
        lock_all(flags & !libc::MCL_CURRENT);
    }
    let is_on_fault = flags & libc::MCL_ONFAULT != 0;
    let lock_flags = if is_on_fault { libc::MLOCK_ONFAULT } else { 0 };
    for range in ranges().unwrap_or_default() {
        let (start, length) = (range.start, range.length);
        // Like the kernel's call, this goes on after a range that has no pages.
        // SAFETY: neither changes what the memory holds.
        unsafe {
            if range.is_sparse {
                real::munlock()(start as *const c_void, length);
            } else {
                let flags = lock_flags as usize;
                real::syscall()(libc::SYS_mlock2, start, length, flags, 0, 0, 0);
            }
        }
    }
}
