//! Work that is left to the service thread: sockets to close while no caller waits for it.
//!
//! The thread itself and its work are in a layer above; this module only lets other modules queue work.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use core::time::Duration;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard};

use bypass_sys::clock::Waited;
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

/// The service thread works: it may hold a number for a moment that should be free for the program.
static IS_WORKING: AtomicBool = AtomicBool::new(false);
/// How often it has begun to.
static TURNS: AtomicU32 = AtomicU32::new(0);
/// Longest wait for the end of its work, and time between looks.
const WORK_NS_MAX: u64 = 1_000_000_000;
const LOOK: Duration = Duration::from_millis(1);

/// The service thread begins to work, or sleeps from now on.
pub fn set_working(is_working: bool) {
    if is_working {
        TURNS.fetch_add(1, Ordering::SeqCst);
    }
    IS_WORKING.store(is_working, Ordering::SeqCst);
}

/// `made` found no descriptor. The limit is reached only if none is found while the service thread sleeps: `make` is
/// called until then.
#[cold]
pub fn beside_service<T>(made: T, is_short: impl Fn(&T) -> bool, make: impl Fn() -> T) -> T {
    let (mut made, mut waited) = (made, Waited::begin());
    while is_short(&made) && is_running() && waited.look_ns() < WORK_NS_MAX {
        if IS_WORKING.load(Ordering::SeqCst) {
            let _ = kernel::poll(&mut [], Some(LOOK), None);
            continue;
        }
        let turns = TURNS.load(Ordering::SeqCst);
        made = make();
        if TURNS.load(Ordering::SeqCst) == turns {
            break;
        }
    }
    made
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_the_service_thread_has_for_a_moment_is_waited_for() {
        static IS_TAKEN: AtomicBool = AtomicBool::new(true);
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let make = || {
            CALLS.fetch_add(1, Ordering::SeqCst);
            match IS_TAKEN.load(Ordering::SeqCst) {
                true => Err(libc::EMFILE),
                false => Ok(7),
            }
        };
        let beside = |made: Result<i32, i32>| beside_service(made, Result::is_err, make);
        set_running(true);
        set_working(true);
        let service = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            IS_TAKEN.store(false, Ordering::SeqCst);
            set_working(false);
        });
        assert_eq!(beside(make()), Ok(7));
        service.join().expect("an end");

        IS_TAKEN.store(true, Ordering::SeqCst);
        CALLS.store(0, Ordering::SeqCst);
        assert_eq!(beside(make()), Err(libc::EMFILE));
        assert_eq!(CALLS.load(Ordering::SeqCst), 2);
        set_running(false);
        assert_eq!(beside(Err(libc::ENFILE)), Err(libc::ENFILE));
    }
}
