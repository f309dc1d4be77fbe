//! Whether memory of connections that have grown is to be looked after; see `trimming`.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::process::later;

static IS_DUE: AtomicBool = AtomicBool::new(false);

/// A connection has grown, or one that had has ended.
#[cold]
pub fn begin() {
    if !IS_DUE.swap(true, Ordering::SeqCst) {
        later::wake();
    }
}

/// In a forked child: the service is the parent's.
pub fn forget() {
    IS_DUE.store(false, Ordering::SeqCst);
}

/// Whether there is anything to look at.
pub fn is_due() -> bool {
    IS_DUE.load(Ordering::SeqCst)
}

/// See [`is_due`].
pub fn set_due(is_due: bool) {
    IS_DUE.store(is_due, Ordering::SeqCst);
}
