//! Per-process state: values replaced by fork, locks held across it, work at exit.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A value that is created once per process and replaced in a forked child; never freed, because
/// threads may be reading it.
pub struct Leaked<T: 'static>(AtomicPtr<T>);

impl<T: Sync> Default for Leaked<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Sync> Leaked<T> {
    /// Empty.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Replaces the value.
    pub fn put(&self, value: T) {
        self.0
            .store(Box::into_raw(Box::new(value)), Ordering::Release);
    }

    /// The value.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null or came from `put` and is never freed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }
}

/// A lock that is held together with the object that contains it; for a fork, which is not a scope.
pub struct Held<O: 'static, T: 'static> {
    // Dropped in this order: the guard before what it borrows from.
    _guard: Option<MutexGuard<'static, T>>,
    _owner: Arc<O>,
}

impl<O, T> Held<O, T> {
    /// Takes the lock that `find` returns.
    pub fn lock(owner: Arc<O>, find: impl FnOnce(&O) -> &Mutex<T>) -> Self {
        let mutex: *const Mutex<T> = find(&owner);
        // SAFETY: the mutex is part of the object, which lives at least as long as the guard.
        let mutex: &'static Mutex<T> = unsafe { &*mutex };
        Self {
            _guard: mutex.lock().ok(),
            _owner: owner,
        }
    }
}

/// Whether the process has, or may acquire, any capability (capget(2)).
pub fn has_capabilities() -> bool {
    const VERSION: u32 = 0x2008_0522;
    let header = [VERSION, 0];
    // Effective, permitted, inheritable; the lower half of each, then the upper.
    let mut sets = [0u32; 6];
    let arguments = [header.as_ptr() as usize, sets.as_mut_ptr() as usize];
    // SAFETY: header and sets have the sizes of this version.
    let asked =
        unsafe { crate::kernel::raw(libc::SYS_capget, [arguments[0], arguments[1], 0, 0, 0, 0]) };
    // The kernel wrote through the address.
    // SAFETY: the array lives on this frame.
    let sets = unsafe { core::ptr::read_volatile(&sets) };
    crate::kernel::check(asked).is_err() || sets[1] != 0 || sets[4] != 0
}

extern "C" {
    /// What at_quick_exit(3) calls.
    fn __cxa_at_quick_exit(work: extern "C" fn(), module: *mut c_void) -> c_int;
}

/// Runs `work` when the process ends by exit(3) or quick_exit(3).
pub fn at_exit(work: extern "C" fn()) {
    // SAFETY: a function of this library, which is never unloaded, and ignores its argument.
    unsafe {
        libc::atexit(work);
        __cxa_at_quick_exit(work, core::ptr::null_mut());
    }
}

/// Runs `work` and leaves the program's errno unchanged: libc's own functions may set it even on
/// success.
#[inline(always)]
pub fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: libc's errno of this thread is always readable and writable.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    let result = work();
    *errno = before;
    result
}
