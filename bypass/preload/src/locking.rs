//! Locks of the hooks themselves, outside the operations of the stack.

use std::sync::{LockResult, Mutex, MutexGuard};

use bypass_sys::process::keeping_errno;

/// Locks and leaves errno alone, which waiting for another thread changes.
pub fn lock<T>(mutex: &'static Mutex<T>) -> LockResult<MutexGuard<'static, T>> {
    keeping_errno(|| mutex.lock())
}
