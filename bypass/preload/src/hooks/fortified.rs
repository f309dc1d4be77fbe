//! Calls of programs that were compiled with _FORTIFY_SOURCE.

use libc::size_t;

extern "C" {
    fn __chk_fail() -> !;
}

/// What a fortified program expects of a call that would overrun its buffer: libc's message, and its end.
#[cold]
pub fn overrun() -> ! {
    // SAFETY: takes nothing.
    unsafe { __chk_fail() }
}

/// Whether the call stays within its buffer; it does not come back if not.
pub fn check_room(length: size_t, room: size_t) {
    if length > room {
        overrun();
    }
}
