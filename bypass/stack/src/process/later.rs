//! Work that is left to the service thread: what is to be closed while nobody waits for it.
//!
//! The thread itself, and what it does, lie above; here is only what others need to leave it work.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard};

use bypass_sys::kernel;

use super::table;

/// Readable when work was left.
static EVENT: AtomicI32 = AtomicI32::new(-1);
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// What is to be closed.
static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    descriptors: Vec::new(),
    values: Vec::new(),
});
static HAS_WORK: AtomicBool = AtomicBool::new(false);

/// See [`queue`].
pub struct Queue {
    descriptors: Vec<i32>,
    values: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Queue {
    /// Closes a hidden descriptor later.
    pub fn close(&mut self, fd: i32) {
        self.descriptors.push(fd);
        HAS_WORK.store(true, Ordering::Release);
    }

    /// Drops a reference later.
    pub fn forget(&mut self, value: Arc<dyn Any + Send + Sync>) {
        self.values.push(value);
        HAS_WORK.store(true, Ordering::Release);
    }
}

/// What is to be closed, for adding to it.
pub fn queue() -> Option<MutexGuard<'static, Queue>> {
    QUEUE.lock().ok()
}

/// Whether anything is to be closed.
pub fn has_work() -> bool {
    HAS_WORK.load(Ordering::Acquire)
}

/// The service runs, and is woken by `event`, an eventfd.
pub fn begin(event: i32) {
    EVENT.store(event, Ordering::Release);
}

/// Whether the service thread runs.
pub fn is_running() -> bool {
    IS_RUNNING.load(Ordering::Acquire)
}

/// See [`is_running`].
pub fn set_running(is_running: bool) {
    IS_RUNNING.store(is_running, Ordering::SeqCst);
}

/// Makes the thread do what was left for it; false when it does not run.
pub fn wake() -> bool {
    is_running() && kernel::write(EVENT.load(Ordering::Acquire), &1u64.to_ne_bytes()).is_ok()
}

/// The program is about to sleep: time for what it was not to wait for.
#[inline]
pub fn leave_time() {
    if HAS_WORK.load(Ordering::Relaxed) && !wake() {
        finish();
    }
}

/// Closes what was left to be closed; false when there was nothing.
pub fn finish() -> bool {
    if !HAS_WORK.swap(false, Ordering::AcqRel) {
        return false;
    }
    let (descriptors, values) = QUEUE.lock().map_or_else(
        |_| (Vec::new(), Vec::new()),
        |mut queue| {
            let descriptors = std::mem::take(&mut queue.descriptors);
            (descriptors, std::mem::take(&mut queue.values))
        },
    );
    for fd in descriptors {
        table::show(fd);
        let _ = kernel::close(fd);
    }
    drop(values);
    true
}

/// Locks the queue across a fork.
pub fn hold() -> impl Sized {
    QUEUE.lock().ok()
}
