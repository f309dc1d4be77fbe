//! Signals that come while our own code works on something: their handlers run at its end.
//!
//! A handler may use any socket, also the one whose lock its own thread holds. So a handler that
//! would run in the middle of an operation is put off: the signal is blocked and queued again, and
//! let in when the operation is over, before it returns to the program. A thread that sleeps holds
//! nothing and takes signals at once.

use core::sync::atomic::{compiler_fence, Ordering};

use bypass_sys::kernel;
use bypass_sys::process::keeping_errno;
use bypass_sys::sandbox::is_confined;

use bypass_sys::thread::{thread, Thread};

/// Runs an operation; handlers wait for its end. It leaves errno alone: a lock that another thread has
/// changes it, too.
#[inline(always)]
pub fn inside<T>(work: impl FnOnce() -> T) -> T {
    let thread = thread();
    let depth = thread.inside.load(Ordering::Relaxed);
    thread.inside.store(depth + 1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    let result = keeping_errno(work);
    compiler_fence(Ordering::SeqCst);
    thread.inside.store(depth, Ordering::Relaxed);
    if thread.deferred.load(Ordering::Relaxed) != 0 && depth == 0 {
        let_in(thread);
    }
    result
}

/// The two halves of [`inside`], for work that begins in one function and ends in another.
pub fn enter() {
    let depth = thread().inside.load(Ordering::Relaxed);
    thread().inside.store(depth + 1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// See [`enter`].
pub fn leave() {
    compiler_fence(Ordering::SeqCst);
    let depth = thread().inside.load(Ordering::Relaxed).saturating_sub(1);
    thread().inside.store(depth, Ordering::Relaxed);
    if depth == 0 {
        let_in(thread());
    }
}

/// Sleeps in the kernel in the middle of an operation: nothing is held, so handlers run. One that
/// was put off runs now, and the sleep ends before it has begun. ECANCELED: the thread is to end.
pub fn asleep<T>(sleep: impl FnOnce() -> Result<T, i32>) -> Result<T, i32> {
    super::later::leave_time();
    let thread = thread();
    let depth = thread.inside.swap(0, Ordering::Relaxed);
    let sleep_before = thread.begin_sleep();
    let result = if thread.deferred.load(Ordering::Relaxed) != 0 {
        let_in(thread);
        Err(libc::EINTR)
    } else if thread.is_cancelled() {
        Err(libc::ECANCELED)
    } else {
        match sleep() {
            Err(libc::EINTR) if thread.is_cancelled() => Err(libc::ECANCELED),
            other => other,
        }
    };
    thread.end_sleep(sleep_before);
    thread.inside.store(depth, Ordering::Relaxed);
    result
}

/// Lets the signals in that were put off: they are delivered before this returns.
#[cold]
fn let_in(thread: &Thread) {
    let mask = thread.deferred.swap(0, Ordering::Relaxed);
    if mask != 0 {
        kernel::unblock_signals(mask);
    }
}

/// In a handler: puts the signal off if its thread is in the middle of an operation. The caller must
/// then see to it that the signal stays blocked when the handler returns.
pub fn put_off(signal: i32, requeue: impl FnOnce() -> bool) -> bool {
    let thread = thread();
    if thread.inside.load(Ordering::Relaxed) == 0 || is_confined() || !requeue() {
        return false;
    }
    thread
        .deferred
        .fetch_or(1 << (signal - 1), Ordering::Relaxed);
    true
}
