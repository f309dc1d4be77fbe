//! Doorbells: which connections deserve a look, and whether the one who looks is asleep.
//!
//! A ring sets the slot's bit, then the bit of its word in the summary: both idempotent, so a
//! peer can ring in vain but not overflow anything. The two sides of sleep and wake are the
//! classic pair: the sleeper stores `sleeping`, then looks; the ringer sets bits, then loads
//! `sleeping`. All four are sequentially consistent, so at least one of them sees the other.

use crate::atomic::{fence, AtomicU32, AtomicU64, Ordering};
use crate::layout::{Lane, SLOTS_MAX};

impl Lane {
    /// Takes a free lane for process `owner`.
    pub fn claim(&self, owner: u64, waker: u32) -> bool {
        let free = self
            .owner
            .compare_exchange(0, owner, Ordering::SeqCst, Ordering::Relaxed);
        if free.is_err() {
            return false;
        }
        self.sleeping.store(0, Ordering::Relaxed);
        self.listening.store(0, Ordering::Relaxed);
        self.waker.store(waker, Ordering::SeqCst);
        true
    }

    /// Gives the lane back.
    pub fn free(&self) {
        self.sleeping.store(0, Ordering::SeqCst);
        self.listening.store(0, Ordering::SeqCst);
        self.owner.store(0, Ordering::SeqCst);
    }

    /// Marks a slot; true when the owner sleeps and the caller must wake it.
    #[inline]
    pub fn ring(&self, slot: usize) -> bool {
        let slot = slot % SLOTS_MAX;
        let word = slot / 64;
        self.words[word].fetch_or(1 << (slot % 64), Ordering::SeqCst);
        let summary = &self.summary.0[word / 64];
        let bit = 1u64 << (word % 64);
        if summary.load(Ordering::SeqCst) & bit == 0 {
            summary.fetch_or(bit, Ordering::SeqCst);
        }
        self.take_sleeper()
    }

    /// True for exactly one caller after each [`sleep`](Self::sleep).
    #[inline]
    pub fn take_sleeper(&self) -> bool {
        self.sleeping.load(Ordering::SeqCst) != 0 && self.sleeping.swap(0, Ordering::SeqCst) != 0
    }

    /// Says that the owner is about to sleep; it must look at its bells once more.
    pub fn sleep(&self) {
        self.sleeping.store(1, Ordering::SeqCst);
    }

    /// The owner is awake.
    pub fn awake(&self) {
        self.sleeping.store(0, Ordering::Relaxed);
    }

    /// Whether anything rang.
    #[inline]
    pub fn is_ringing(&self) -> bool {
        self.summary
            .0
            .iter()
            .any(|word| word.load(Ordering::SeqCst) != 0)
    }

    /// Calls `visit` with every slot that rang since the last time.
    #[inline]
    pub fn drain(&self, mut visit: impl FnMut(usize)) {
        for (index, summary) in self.summary.0.iter().enumerate() {
            // Ordered after `sleep`: a look that began before it would miss the last ring.
            if summary.load(Ordering::SeqCst) == 0 {
                continue;
            }
            for word in bits(summary.swap(0, Ordering::SeqCst)) {
                let word = index * 64 + word;
                for bit in bits(self.words[word].swap(0, Ordering::SeqCst)) {
                    visit(word * 64 + bit);
                }
            }
        }
    }
}

/// Rings the lane that `word` names (see `Meta::lane`), with `ring`, after bytes were published.
///
/// Whoever waits in another place from now on stores its lane and then looks for bytes. So a lane
/// that was missing is asked for once more behind a fence, and one that was rung is asked for again:
/// the ring itself is the fence.
#[inline]
pub fn ring_lane(word: &AtomicU32, mut ring: impl FnMut(usize)) {
    let mut lane = word.load(Ordering::Relaxed);
    if lane == 0 {
        fence(Ordering::SeqCst);
        lane = word.load(Ordering::Relaxed);
    }
    if lane == 0 {
        return;
    }
    ring(lane as usize - 1);
    let now = word.load(Ordering::SeqCst);
    if now != lane && now != 0 {
        ring(now as usize - 1);
    }
}

/// The numbers of the bits that are set.
pub fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros() as usize;
        word &= word - 1;
        Some(bit)
    })
}

/// Names one sleeping thread in shared memory: who (process index) and which waker; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sleeper {
    /// Index into the side's processes.
    pub process: u32,
    /// Waker number.
    pub waker: u32,
}

impl Sleeper {
    fn word(self) -> u64 {
        1 << 63 | u64::from(self.process) << 32 | u64::from(self.waker)
    }

    /// Registers in `place` unless another thread is there already.
    pub fn register(self, place: &AtomicU64) -> bool {
        place
            .compare_exchange(0, self.word(), Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Takes the registration back, if nobody has.
    pub fn withdraw(self, place: &AtomicU64) {
        let _ = place.compare_exchange(self.word(), 0, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// The thread that waits in `place`, for exactly one caller.
    #[inline]
    pub fn take(place: &AtomicU64) -> Option<Self> {
        if place.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let word = place.swap(0, Ordering::SeqCst);
        let found = Self {
            process: (word >> 32) as u32 & 0xffff,
            waker: word as u32,
        };
        (word != 0).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane() -> Box<Lane> {
        // SAFETY: a lane is atomics only, for which zero is valid.
        unsafe { Box::new(std::mem::zeroed()) }
    }

    #[test]
    fn every_ring_is_seen_once() {
        let lane = lane();
        for slot in [0, 63, 64, 4095, 4096, 16_383] {
            assert!(!lane.ring(slot));
            lane.ring(slot);
        }
        let mut seen = Vec::new();
        lane.drain(|slot| seen.push(slot));
        assert_eq!(seen, [0, 63, 64, 4095, 4096, 16_383]);
        lane.drain(|slot| panic!("{slot} rang twice"));
        assert!(!lane.is_ringing());
    }

    #[test]
    fn a_sleeper_is_woken_by_one_of_many() {
        let lane = lane();
        lane.sleep();
        let woken: usize = (0..5).map(|slot| usize::from(lane.ring(slot))).sum();
        assert_eq!(woken, 1);
    }

    #[test]
    fn a_place_holds_one_sleeper() {
        let place = AtomicU64::new(0);
        let (first, second) = (
            Sleeper {
                process: 3,
                waker: 9,
            },
            Sleeper {
                process: 0,
                waker: 0,
            },
        );
        assert!(first.register(&place) && !second.register(&place));
        second.withdraw(&place);
        assert_eq!(Sleeper::take(&place), Some(first));
        assert_eq!(Sleeper::take(&place), None);
    }

    #[test]
    fn no_ring_is_lost_between_looking_and_sleeping() {
        const ROUNDS: usize = 20_000;
        let lane = lane();
        let lane = &*lane;
        let woken = &std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    if lane.ring(round % SLOTS_MAX) {
                        woken.fetch_add(1, Ordering::SeqCst);
                    }
                    if round % 64 == 0 {
                        std::thread::yield_now();
                    }
                }
                // The end: a ring that nobody may miss.
                if lane.ring(SLOTS_MAX - 1) {
                    woken.fetch_add(1, Ordering::SeqCst);
                }
            });
            let mut last = false;
            while !last {
                lane.drain(|slot| last |= slot == SLOTS_MAX - 1);
                let before = woken.load(Ordering::SeqCst);
                lane.sleep();
                if last || lane.is_ringing() {
                    lane.awake();
                    continue;
                }
                // Asleep: only a wake may end it. A lost one would hang the test.
                while woken.load(Ordering::SeqCst) == before {
                    std::thread::yield_now();
                }
            }
        });
    }
}
