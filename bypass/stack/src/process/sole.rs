//! The one thread that uses sockets: as long as there is only one, locks cost it nothing.
//!
//! A locked instruction waits until all stores before it have reached the cache, and those of a
//! message go to lines that the other side has just read. So the first thread that comes to a lock
//! owns all of them: it says that it is inside, by a plain store, and goes on. When another thread
//! comes, the ownership ends for good: the newcomer says so, makes the owner pass a fence
//! ([`barrier::fence_others`]) and waits until it is outside. From then on both take locks.
//!
//! The owner loads `owner` after its store of `inside`, the newcomer loads `inside` after its store
//! of `owner`; with the fence in between at least one of them sees the other.

mod atomic;
mod ownership;

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use bypass_sys::thread::thread;

pub use ownership::Inside;
use ownership::{Ownership, NOBODY};

static SOCKETS: Ownership = Ownership::new();

impl Ownership {
    const fn new() -> Self {
        Self {
            owner: AtomicUsize::new(NOBODY),
            former: AtomicUsize::new(NOBODY),
            inside: AtomicU32::new(0),
        }
    }
}

/// Spares the calling thread a lock, if it is the only one that uses sockets.
#[inline]
pub fn enter() -> Option<Inside<'static>> {
    SOCKETS.enter(address())
}

/// Before something that other threads or processes will do with our sockets.
pub fn end_unless_ours() {
    let owner = SOCKETS.owner.load(Ordering::Acquire);
    if owner != NOBODY && owner != address() {
        SOCKETS.end(address());
    }
}

/// Runs `work` while everybody takes locks, and gives the owner its ownership back. Not run while an
/// ownership begins or ends.
pub fn visit(work: impl FnOnce()) {
    SOCKETS.visit(address(), work);
}

#[inline(always)]
fn address() -> usize {
    core::ptr::from_ref(thread()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::sole::ownership::{ENDING, SEVERAL};
    use bypass_sys::barrier;
    use std::sync::atomic::AtomicU64;
    use std::sync::Mutex;

    /// Adds by load and store, not in one step: only the lock keeps the sum right.
    fn add(sum: &AtomicU64) {
        sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    #[test]
    fn a_second_thread_ends_the_ownership_without_a_step_lost() {
        barrier::choose(false);
        for round in 0..200u64 {
            let (ownership, lock, sum) = (Ownership::new(), Mutex::new(()), AtomicU64::new(0));
            let work = |count: u64, before: u64| {
                let me = address();
                for _ in 0..before {
                    core::hint::spin_loop();
                }
                for _ in 0..count {
                    match ownership.enter(me) {
                        Some(_inside) => add(&sum),
                        None => {
                            let _guard = lock.lock().expect("no panic");
                            add(&sum);
                        }
                    }
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| work(20_000, 0));
                scope.spawn(|| work(500, round * 50));
                scope.spawn(|| work(500, round * 70));
            });
            assert_eq!(sum.load(Ordering::Relaxed), 21_000);
        }
    }

    #[test]
    fn the_owner_keeps_nested_locks_and_a_newcomer_waits_for_all_of_them() {
        barrier::choose(false);
        let ownership = Ownership::new();
        let outer = ownership.enter(address());
        let inner = ownership.enter(address());
        let owned = ownership.owner.load(Ordering::Relaxed) == address();
        assert_eq!((outer.is_some(), inner.is_some()), (owned, owned));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| ownership.enter(address()).is_some());
            while owned && ownership.owner.load(Ordering::Relaxed) != ENDING {
                std::thread::yield_now();
            }
            // Taken back: locks from now on, while what is held stays held.
            assert!(ownership.enter(address()).is_none());
            assert!(!owned || ownership.owner.load(Ordering::Relaxed) == ENDING);
            drop(inner);
            drop(outer);
            assert!(!other.join().expect("no panic"));
        });
        assert_eq!(ownership.owner.load(Ordering::Relaxed), SEVERAL);
    }
}
