//! The one place that turns what an operation says into a return value and errno.

use bypass_stack::Outcome;

/// Stores errno.
pub fn set_errno(error: i32) {
    // SAFETY: libc's errno of this thread is always writable.
    unsafe { *libc::__errno_location() = error };
}

/// This thread's errno.
pub fn errno() -> i32 {
    // SAFETY: libc's errno of this thread is always readable.
    unsafe { *libc::__errno_location() }
}

/// The C result; `real` is asked when the kernel is to do it.
#[inline(always)]
pub fn finish(outcome: Outcome, real: impl FnOnce() -> isize) -> isize {
    match outcome {
        Outcome::Done(value) => value,
        Outcome::Error(error) => {
            set_errno(error);
            -1
        }
        Outcome::Kernel => real(),
    }
}

/// −1 with errno.
pub fn fail(error: i32) -> i32 {
    set_errno(error);
    -1
}
