//! Ctrl-C ends a run early with its full report.

use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// From now on SIGINT and SIGTERM are noted; a second one of the same kind ends the process.
pub fn watch() {
    set_action(note as extern "C" fn(libc::c_int) as usize);
}

/// From now on the first SIGINT or SIGTERM ends the process.
pub fn unwatch() {
    set_action(libc::SIG_DFL);
}

fn set_action(handler: libc::sighandler_t) {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all zeros is an action without mask and flags.
        let action = unsafe { action.assume_init_mut() };
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: the handler only stores to an atomic, which is safe at any time.
        unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) };
    }
}

/// Ends the run as a signal does.
pub fn request_stop() {
    STOP.store(true, Ordering::Relaxed);
}

/// Whether a signal has come.
#[inline]
pub fn stop_wanted() -> bool {
    STOP.load(Ordering::Relaxed)
}
