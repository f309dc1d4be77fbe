//! pthread_cancel: a thread that waits in one of our calls ends as it would in one of the kernel's.
//!
//! libc cancels a thread inside its own system calls only, so a request is noted in the thread's
//! block too, and a thread that sleeps here is sent the signal that libc uses for this, until it has
//! woken. Its call then ends like any other, with everything given back, and the thread ends where
//! no frame of this library is left on its stack.

use core::ffi::c_int;
use core::sync::atomic::Ordering;
use core::time::Duration;

use bypass_stack::{thread, Outcome, Thread};
use bypass_sys::kernel;
use bypass_sys::thread::{CANCEL_ACTING, CANCEL_ASYNCHRONOUS, CANCEL_DISABLED, CANCEL_REQUESTED};
use libc::pthread_t;

use crate::outcome::finish;
use crate::real;

/// libc's own signal, whose handler does nothing to a thread that is not in a call of libc's.
const SIGCANCEL: c_int = 32;
/// Values of pthread.h.
const DISABLE: c_int = 1;
const DEFERRED: c_int = 0;
const ASYNCHRONOUS: c_int = 1;
/// Between two signals to a thread that may have gone to sleep just after the first.
const AGAIN: Duration = Duration::from_micros(100);
/// A thread that cannot be woken has blocked libc's signal by a system call of its own.
const SIGNALS_MAX: u32 = 10_000;
/// A request is noted just before libc knows of it.
const TRIES_MAX: u32 = 10_000;

/// [`finish`] for the calls that POSIX makes cancellation points.
#[inline(always)]
pub fn point(work: impl FnOnce() -> Outcome, real: impl FnOnce() -> isize) -> isize {
    let was_asynchronous = match thread().cancel.load(Ordering::Relaxed) {
        0 => false,
        state => begin(state),
    };
    let outcome = work();
    if was_asynchronous || thread().cancel.load(Ordering::Relaxed) & CANCEL_REQUESTED != 0 {
        return finish(end(outcome, was_asynchronous), real);
    }
    finish(outcome, real)
}

/// A thread that may be cancelled at any instruction may not be so in the middle of ours.
#[cold]
fn begin(state: u32) -> bool {
    act();
    let is_asynchronous = state & CANCEL_ASYNCHRONOUS != 0;
    if is_asynchronous {
        set_type(DEFERRED);
    }
    is_asynchronous
}

#[cold]
fn end(outcome: Outcome, was_asynchronous: bool) -> Outcome {
    act();
    let is_ended = outcome == Outcome::Error(libc::ECANCELED);
    let mut tries = 0;
    while is_ended && thread().is_cancelled() && tries < TRIES_MAX {
        kernel::let_others_run(tries);
        act();
        tries += 1;
    }
    if was_asynchronous {
        set_type(ASYNCHRONOUS);
    }
    if is_ended {
        Outcome::Error(libc::EINTR)
    } else {
        outcome
    }
}

/// Ends the thread if it is to be cancelled: does not return then. Calls made by its clean-up handlers
/// wait as usual.
fn act() {
    let cancel = &thread().cancel;
    if thread().is_cancelled() {
        cancel.fetch_or(CANCEL_ACTING, Ordering::SeqCst);
        // SAFETY: takes nothing.
        unsafe { real::pthread_testcancel()() };
        cancel.fetch_and(!CANCEL_ACTING, Ordering::SeqCst);
    }
}

fn set_type(kind: c_int) {
    let mut old = 0;
    // SAFETY: the old value lives on this frame.
    unsafe { real::pthread_setcanceltype()(kind, &mut old) };
}

/// The block of another thread: it lies as far from what names the thread as ours does.
fn block_of(target: pthread_t) -> &'static Thread {
    let own: *const Thread = thread();
    // SAFETY: no arguments.
    let distance = (own as usize).wrapping_sub(unsafe { libc::pthread_self() } as usize);
    let at = (target as usize).wrapping_add(distance) as *const Thread;
    // SAFETY: the caller of pthread_cancel promises a thread that is there, and with it its block,
    // which is in the part of the thread-local memory that all threads have at the same place.
    unsafe { &*at }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn pthread_cancel(target: pthread_t) -> c_int {
    let block = block_of(target);
    block.cancel.fetch_or(CANCEL_REQUESTED, Ordering::SeqCst);
    // SAFETY: the caller's argument.
    let result = unsafe { real::pthread_cancel()(target) };
    if result != 0 {
        block.cancel.fetch_and(!CANCEL_REQUESTED, Ordering::SeqCst);
    } else if !core::ptr::eq(block, thread()) {
        wake(block);
    }
    result
}

/// Signals a thread that sleeps in a call of ours until it has woken: the first signal may come just
/// before it sleeps.
fn wake(block: &Thread) {
    let seen = block.sleeps.load(Ordering::SeqCst);
    let is_asleep = seen & 1 != 0;
    for _ in 0..SIGNALS_MAX {
        if !is_asleep || block.sleeps.load(Ordering::SeqCst) != seen {
            return;
        }
        let process = kernel::getpid().unwrap_or(0) as i32;
        let _ = kernel::tgkill(process, block.tid() as i32, SIGCANCEL);
        let _ = kernel::poll(&mut [], Some(AGAIN), None);
    }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::pthread_setcancelstate()(state, old) };
    note(result, CANCEL_DISABLED, state == DISABLE);
    result
}

#[no_mangle]
pub unsafe extern "C-unwind" fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int {
    note(0, CANCEL_ASYNCHRONOUS, kind == ASYNCHRONOUS);
    // SAFETY: the caller's arguments.
    let result = unsafe { real::pthread_setcanceltype()(kind, old) };
    if result != 0 {
        note(0, CANCEL_ASYNCHRONOUS, false);
    }
    result
}

fn note(result: c_int, bit: u32, on: bool) {
    let cancel = &thread().cancel;
    match (result, on) {
        (0, true) => cancel.fetch_or(bit, Ordering::SeqCst),
        (0, false) => cancel.fetch_and(!bit, Ordering::SeqCst),
        _ => 0,
    };
}
