//! Whether the program has confined this process with seccomp: from then on only calls are made that
//! a program which reads, writes and polls makes itself. Any other could be the end of the process.

use core::sync::atomic::{AtomicBool, Ordering};

static IS_CONFINED: AtomicBool = AtomicBool::new(false);

/// Whether it has.
#[inline]
pub fn is_confined() -> bool {
    IS_CONFINED.load(Ordering::Relaxed)
}

/// It is about to, or could not.
pub fn set_confined(on: bool) {
    IS_CONFINED.store(on, Ordering::SeqCst);
}
