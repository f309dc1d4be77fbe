//! Whether the program has confined this process with seccomp: from then on the library makes only
//! calls that a program which reads, writes and polls makes itself. Any other could end the
//! process.

use core::sync::atomic::{AtomicBool, Ordering};

static IS_CONFINED: AtomicBool = AtomicBool::new(false);

/// Whether it has.
#[inline]
pub fn is_confined() -> bool {
    IS_CONFINED.load(Ordering::Relaxed)
}

/// The process is about to confine itself, or failed to.
pub fn set_confined(on: bool) {
    IS_CONFINED.store(on, Ordering::SeqCst);
}
