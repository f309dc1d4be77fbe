//! fork, as it is followed in the parent and in the child.

use std::any::Any;
use std::cell::RefCell;

use bypass_stack::lifecycle::fork::{self, Prepared, Taken};
use bypass_stack::process::deferral;
use bypass_sys::numbers;

use crate::outcome::{errno, set_errno};
use crate::{environment, real, spawning, streams};

thread_local! {
    static PREPARED: RefCell<Option<Prepared>> = const { RefCell::new(None) };
    /// What the hooks share and lock.
    static LOCKED: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
    /// Until fork says whether there is a child.
    static TAKEN: RefCell<Option<Taken>> = const { RefCell::new(None) };
}

/// From now on each fork is followed.
pub fn follow() {
    // SAFETY: the three handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
}

/// fork(2), by whatever name: handlers of pthread_atfork(3) run whether it has worked or not, and are not told.
pub fn fork() -> libc::pid_t {
    // SAFETY: no arguments.
    let child = unsafe { real::fork()() };
    let taken = TAKEN.try_with(RefCell::take).ok().flatten();
    if let Some(taken) = taken.filter(|_| child < 0) {
        let error = errno();
        deferral::inside(|| fork::undo(taken));
        set_errno(error);
    }
    child
}

extern "C" fn before_fork() {
    deferral::enter();
    let prepared = fork::prepare();
    let _ = PREPARED.try_with(|place| place.replace(prepared));
    let hooks = (streams::hold(), spawning::hold(), environment::hold());
    // Last: a thread that takes numbers waits for nothing.
    let locked: Box<dyn Any> = Box::new((hooks, numbers::hold()));
    let _ = LOCKED.try_with(|place| place.replace(Some(locked)));
}

extern "C" fn in_parent() {
    let _ = LOCKED.try_with(RefCell::take);
    let prepared = PREPARED.try_with(RefCell::take).ok().flatten();
    let taken = prepared.map(fork::parent);
    let _ = TAKEN.try_with(|place| place.replace(taken));
    deferral::leave();
}

extern "C" fn in_child() {
    let _ = LOCKED.try_with(RefCell::take);
    let prepared = PREPARED.try_with(RefCell::take).ok().flatten();
    environment::forget();
    fork::child(prepared);
    deferral::leave();
}
