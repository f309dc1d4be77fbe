//! Whether a thread has entered another network namespace. There the same address is another host's: what is
//! known of listeners, the descriptors in the pool and the names of wakers belong to the former one.

use core::sync::atomic::{AtomicBool, Ordering};

use super::{number, pool};

static HAS_LEFT: AtomicBool = AtomicBool::new(false);

/// Whether one has. New sockets are handled by the kernel from then on; existing connections continue.
#[inline]
pub fn has_left() -> bool {
    HAS_LEFT.load(Ordering::Relaxed)
}

/// A thread has entered another.
pub fn leave() {
    if number::is_started() {
        HAS_LEFT.store(true, Ordering::SeqCst);
        pool::empty();
    }
}
