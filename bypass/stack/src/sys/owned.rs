//! A value behind a lock that the one thread which uses sockets need not take.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::process::sole::{self, Inside};

/// See the module.
pub struct Owned<T> {
    lock: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time: the holder of the lock, or the owner of all
// locks, whose ownership ends before anybody else takes one (`sole`).
unsafe impl<T: Send> Sync for Owned<T> {}

/// Why no other thread has access.
enum Right<'a> {
    /// We are the only thread.
    Sole(#[allow(dead_code, reason = "held, not read")] Inside<'static>),
    Lock(#[allow(dead_code, reason = "held, not read")] MutexGuard<'a, ()>),
}

/// Access until it is dropped. As with any lock, taking a second one of the same value while the
/// first lives is an error of the caller.
pub struct OwnedGuard<'a, T> {
    value: &'a UnsafeCell<T>,
    _right: Right<'a>,
}

impl<T> Owned<T> {
    /// Holds `value`.
    pub const fn new(value: T) -> Self {
        Self {
            lock: Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// As [`lock`](Self::lock), where another thread has it not at all.
    pub fn try_lock(&self) -> Option<OwnedGuard<'_, T>> {
        let right = match sole::enter() {
            Some(inside) => Right::Sole(inside),
            None => Right::Lock(match self.lock.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            }),
        };
        Some(OwnedGuard {
            value: &self.value,
            _right: right,
        })
    }

    /// Takes the lock, or needs none; if another thread has it, `wait` is called to acquire it.
    #[inline]
    pub fn lock<'a>(
        &'a self,
        wait: impl FnOnce(&'a Mutex<()>) -> MutexGuard<'a, ()>,
    ) -> OwnedGuard<'a, T> {
        let right = match sole::enter() {
            Some(inside) => Right::Sole(inside),
            None => Right::Lock(match self.lock.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => wait(&self.lock),
            }),
        };
        OwnedGuard {
            value: &self.value,
            _right: right,
        }
    }
}

impl<T> Deref for OwnedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard's right excludes everybody else.
        unsafe { &*self.value.get() }
    }
}

impl<T> DerefMut for OwnedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed for writing.
        unsafe { &mut *self.value.get() }
    }
}
