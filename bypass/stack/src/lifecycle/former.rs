//! Whether the program before exec was this process, and the locks that its threads have left.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bypass_sys::thread::thread;
use bypass_sys::{kernel, lock};

static IS_SAME_PROCESS: AtomicBool = AtomicBool::new(false);

/// The process that called exec has this number, if it goes on in the new program.
pub fn note(process: Option<i32>) {
    IS_SAME_PROCESS.store(process == Some(number()), Ordering::Relaxed);
}

/// The number of this process.
pub fn number() -> i32 {
    kernel::getpid().map_or(0, |process| process as i32)
}

/// Frees a lock that a thread of the program before exec held. Not in another process: one of another PID namespace may
/// hold it, and its thread have the number of ours.
pub fn free_lock(word: &AtomicU32) {
    if IS_SAME_PROCESS.load(Ordering::Relaxed) {
        lock::free_at_start(word, thread().tid());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_called_exec_frees_its_locks() {
        let word = AtomicU32::new(thread().tid());
        for other in [None, Some(number() + 1)] {
            note(other);
            free_lock(&word);
            assert_eq!(word.load(Ordering::Relaxed), thread().tid());
        }
        note(Some(number()));
        free_lock(&word);
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }
}
