//! A lock that lies in shared memory and survives the death of its holder.
//!
//! The word is the holder's thread number. Threads of one program, and of its forked children,
//! meet here; holding times are below a microsecond. The peer could write the word too: waiting
//! is bounded, and a connection whose lock cannot be had is given up.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::sandbox::is_confined;
use crate::{clock, kernel};

/// Longest wait before the connection is taken for broken.
const WAIT_NS_MAX: u64 = 2_000_000_000;
/// Looks before the holder's life is asked about.
const SPINS: u32 = 200;

/// Unlocks when dropped.
pub struct Guard<'a>(&'a AtomicU32);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Takes the lock for `thread`; None when it could not be had.
#[inline]
pub fn take(word: &AtomicU32, thread: u32) -> Option<Guard<'_>> {
    match word.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => Some(Guard(word)),
        Err(holder) => wait(word, thread, holder),
    }
}

#[cold]
fn wait(word: &AtomicU32, thread: u32, mut holder: u32) -> Option<Guard<'_>> {
    let start_ns = clock::now_ns();
    let mut spins = 0;
    loop {
        let may_ask = spins >= SPINS && !is_confined();
        let expected = if may_ask && !kernel::thread_exists(holder as i32) {
            holder
        } else {
            0
        };
        match word.compare_exchange(expected, thread, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Some(Guard(word)),
            Err(other) => holder = other,
        }
        spins += 1;
        if spins > SPINS {
            if clock::now_ns() - start_ns > WAIT_NS_MAX {
                return None;
            }
            if may_ask {
                let _ = kernel::sched_yield();
            }
        }
        core::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_a_dead_thread_is_taken_over() {
        let dead = std::thread::spawn(|| kernel::gettid().expect("a number") as u32);
        let word = AtomicU32::new(dead.join().expect("no panic"));
        assert!(take(&word, 1).is_some());
    }

    #[test]
    fn threads_exclude_each_other() {
        let word = AtomicU32::new(0);
        let count = core::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let thread = kernel::gettid().expect("a number") as u32;
                    for _ in 0..20_000 {
                        let _guard = take(&word, thread).expect("a living holder lets go");
                        // Load and store, not one step: only the lock keeps the sum right.
                        let seen = count.load(Ordering::Relaxed);
                        count.store(seen + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 80_000);
    }
}
