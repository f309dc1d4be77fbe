//! Interrupts of a command that has to finish something before it ends.

use core::sync::atomic::{AtomicBool, Ordering};

static IS_ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn ask(_signal: i32) {
    IS_ASKED.store(true, Ordering::Relaxed);
}

/// From now on Ctrl-C, SIGTERM and SIGHUP set the returned flag, and interrupted calls are
/// restarted. Signals that are ignored already, as under nohup, stay ignored.
pub fn asked() -> &'static AtomicBool {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: all zeroes is an empty sigaction.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        // Queries the current action, into a structure on this frame.
        unsafe { libc::sigaction(signal, core::ptr::null(), &mut action) };
        if action.sa_sigaction == libc::SIG_IGN {
            continue;
        }
        action.sa_sigaction = ask as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the handler stores one atomic.
        unsafe { libc::sigaction(signal, &action, core::ptr::null_mut()) };
    }
    &IS_ASKED
}
