//! Connections on their way from `connect` to `accept`, without the kernel and without a lock.
//!
//! The client writes slot numbers; any holder of the listener takes them. The slot decides, not
//! the queue: a holder owns the connection when it has turned the server end's QUEUED
//! into its own name. The queue's head is then moved by whoever gets there first, so a holder may
//! die at any point without leaving a connection in between.

use crate::atomic::Ordering;
use crate::holders::Holders;
use crate::layout::{ConnectQueue, QUEUED, SLOTS_MAX};
use crate::segment::Segment;

impl ConnectQueue {
    /// Approximate number of connections that have not been accepted yet; 0 also when the cursors are forged.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.waiting_from(self.head.0.load(Ordering::SeqCst))
    }

    #[inline]
    fn waiting_from(&self, head: u64) -> usize {
        let waiting = self.tail.0.load(Ordering::SeqCst).wrapping_sub(head);
        if waiting <= SLOTS_MAX as u64 {
            waiting as usize
        } else {
            0
        }
    }

    /// Appends; only the client's process does, one thread at a time. False when full.
    pub fn push(&self, slot: usize) -> bool {
        let tail = self.tail.0.load(Ordering::Relaxed);
        if self.waiting() >= SLOTS_MAX {
            return false;
        }
        self.entries[tail as usize % SLOTS_MAX].store(slot as u32, Ordering::Relaxed);
        self.tail.0.store(tail.wrapping_add(1), Ordering::SeqCst);
        true
    }
}

/// The queue never ends although nothing can be taken: the client does not keep the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forged;

/// Takes the oldest waiting connection for the server process with index `process`.
pub fn take(segment: &Segment, process: usize) -> Result<Option<usize>, Forged> {
    let (queue, mine) = (segment.queue(), Holders::only(process).0);
    // Bounded, because a forged queue could go round for ever.
    for _ in 0..SLOTS_MAX {
        // The one head that was found to be behind the tail is moved, and no later one: another
        // holder may have taken the last entry meanwhile, and the next one would be passed over.
        let head = queue.head.0.load(Ordering::SeqCst);
        if queue.waiting_from(head) == 0 {
            return Ok(None);
        }
        let slot = queue.entries[head as usize % SLOTS_MAX].load(Ordering::Relaxed) as usize;
        let slot = segment.clamp(slot);
        let holders = &segment.slot(slot).meta.holders[1];
        let won = holders.compare_exchange(QUEUED, mine, Ordering::SeqCst, Ordering::Relaxed);
        let next = head.wrapping_add(1);
        let _ = queue
            .head
            .0
            .compare_exchange(head, next, Ordering::SeqCst, Ordering::Relaxed);
        if won.is_ok() {
            return Ok(Some(slot));
        }
    }
    Err(Forged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(segment: &Segment, slot: usize) {
        segment.slot(slot).meta.holders[1].store(QUEUED, Ordering::SeqCst);
        assert!(segment.queue().push(slot));
    }

    #[test]
    fn each_connection_is_taken_once_and_in_order() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        for slot in [5, 3, 60] {
            queued(&segment, slot);
        }
        let taken: Vec<_> = std::iter::from_fn(|| take(&segment, 0).expect("honest")).collect();
        assert_eq!(taken, [5, 3, 60]);
        assert_eq!(segment.slot(3).meta.holders[1].load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_connection_that_comes_as_the_last_one_is_taken_is_not_passed_over() {
        const ROUNDS: usize = 20_000;
        const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let taken = std::sync::atomic::AtomicUsize::new(0);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let mut last = 0;
        std::thread::scope(|scope| {
            for process in 0..2 {
                let (segment, taken, is_over) = (&segment, &taken, &is_over);
                scope.spawn(move || {
                    for look in 1u32.. {
                        if take(segment, process).expect("honest").is_some() {
                            taken.fetch_add(1, Ordering::SeqCst);
                        } else if look % 64 == 0 {
                            std::thread::yield_now();
                        }
                        if is_over.load(Ordering::SeqCst) {
                            break;
                        }
                    }
                });
            }
            for round in 0..ROUNDS {
                queued(&segment, round % 64);
                let since = std::time::Instant::now();
                while taken.load(Ordering::SeqCst) == round && since.elapsed() < PATIENCE {
                    std::thread::yield_now();
                }
                last = taken.load(Ordering::SeqCst);
                if last == round {
                    break;
                }
            }
            is_over.store(true, Ordering::SeqCst);
        });
        assert_eq!(last, ROUNDS);
    }

    #[test]
    fn holders_share_the_connections_without_loss() {
        let segment = Segment::create(1, 16_384, 4096).expect("memory");
        let taken = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for process in 0..3 {
                let (segment, taken) = (&segment, &taken);
                scope.spawn(move || loop {
                    let found = take(segment, process).expect("honest");
                    let mut taken = taken.lock().expect("no panic");
                    taken.extend(found);
                    if taken.len() == 5000 {
                        return;
                    }
                    drop(taken);
                    if found.is_none() {
                        std::thread::yield_now();
                    }
                });
            }
            for slot in 0..5000 {
                queued(&segment, slot);
            }
        });
        let mut taken = taken.into_inner().expect("no panic");
        taken.sort_unstable();
        assert!(taken.iter().copied().eq(0..5000));
    }

    #[test]
    fn a_forged_queue_ends_and_is_noticed() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let queue = segment.queue();
        for entry in &queue.entries {
            entry.store(u32::MAX, Ordering::Relaxed);
        }
        queue.tail.0.store(10_000, Ordering::SeqCst);
        assert_eq!(take(&segment, 0), Ok(None));
        queue.tail.0.store(u64::MAX / 2, Ordering::SeqCst);
        assert_eq!(take(&segment, 0), Ok(None));
        // A tail that runs away while we look.
        let is_over = core::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let ahead = queue.head.0.load(Ordering::Relaxed).wrapping_add(9000);
                    queue.tail.0.store(ahead, Ordering::Relaxed);
                }
            });
            while take(&segment, 0) != Err(Forged) {}
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
