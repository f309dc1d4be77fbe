//! Doorbells: which connections deserve a look, and whether the one who looks is asleep.
//!
//! A ring stores 1 into the slot's bell, then (high slots) into its group's byte of the summary:
//! both idempotent, so a peer can ring in vain but not overflow anything. The two sides of sleep and wake are the
//! classic pair: the sleeper stores `sleeping`, then looks; the ringer sets bells, then loads
//! `sleeping`. Between them each passes a fence, the ringer a light one where it can, the sleeper
//! a heavy one ([`crate::barrier`]), so at least one of them sees the other.

use crate::atomic::{any_set, fence, light, AtomicU32, AtomicU64, Ordering};
use crate::layout::{Lane, BELLS_TOGETHER, BELL_GROUP, DIRECT_GROUPS, SLOTS_MAX};

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

    /// Marks a slot; true when the owner sleeps and the caller must wake it. `fenced`: see
    /// [`light`].
    #[inline]
    pub fn ring(&self, slot: usize, fenced: bool) -> bool {
        self.mark(slot);
        light(fenced);
        self.take_sleeper()
    }

    /// Marks a slot. Plain stores: the bell after what it announces, the summary after the bell, so
    /// that whoever takes the one (an acquiring swap) sees the other. Nothing here waits for the
    /// cache line to come back from the owner.
    #[inline]
    pub fn mark(&self, slot: usize) {
        let slot = slot % SLOTS_MAX;
        self.bells[slot].store(1, Ordering::Release);
        if slot < DIRECT_GROUPS * BELL_GROUP {
            return;
        }
        self.summary.0[slot / BELL_GROUP].store(1, Ordering::Release);
    }

    /// True for exactly one caller after each [`sleep`](Self::sleep).
    #[inline]
    pub fn take_sleeper(&self) -> bool {
        // The load is behind the caller's fence; most find nobody asleep.
        self.sleeping.load(Ordering::Relaxed) != 0 && self.sleeping.swap(0, Ordering::SeqCst) != 0
    }

    /// Says that the owner is about to sleep; behind [`heavy`] it must look at its bells once more.
    pub fn sleep(&self) {
        self.sleeping.store(1, Ordering::SeqCst);
    }

    /// The owner is awake.
    pub fn awake(&self) {
        self.sleeping.store(0, Ordering::Relaxed);
    }

    /// Whether any of the first `slots` slots rang.
    #[inline]
    pub fn is_ringing(&self, slots: usize) -> bool {
        let groups = Self::groups(slots);
        let direct = groups.min(DIRECT_GROUPS) * BELL_GROUP;
        self.bells[..direct]
            .chunks_exact(BELLS_TOGETHER)
            .any(any_set)
            || self.summary.0[groups.min(DIRECT_GROUPS)..groups]
                .iter()
                .any(|group| group.load(Ordering::Relaxed) != 0)
    }

    #[inline]
    fn groups(slots: usize) -> usize {
        slots.div_ceil(BELL_GROUP).min(SLOTS_MAX / BELL_GROUP)
    }

    /// Calls `visit` with every one of the first `slots` slots that rang since the last time. What
    /// must not be missed, before a sleep, is behind [`heavy`](crate::barrier::heavy).
    #[inline]
    pub fn drain(&self, slots: usize, mut visit: impl FnMut(usize)) {
        let groups = Self::groups(slots);
        for index in 0..groups.min(DIRECT_GROUPS) {
            self.drain_group(index, &mut visit);
        }
        for index in DIRECT_GROUPS..groups {
            let group = &self.summary.0[index];
            if group.load(Ordering::Relaxed) != 0 {
                // The swaps acquire what the last ringer released: its bells, then its bytes.
                group.swap(0, Ordering::AcqRel);
                self.drain_group(index, &mut visit);
            }
        }
    }

    #[inline]
    fn drain_group(&self, index: usize, visit: &mut impl FnMut(usize)) {
        let mut slot = index * BELL_GROUP;
        let bells = &self.bells[slot..slot + BELL_GROUP];
        for together in bells.chunks_exact(BELLS_TOGETHER) {
            if any_set(together) {
                for (at, bell) in together.iter().enumerate() {
                    if bell.load(Ordering::Relaxed) != 0 {
                        bell.swap(0, Ordering::AcqRel);
                        visit(slot + at);
                    }
                }
            }
            slot += BELLS_TOGETHER;
        }
    }
}

/// Rings the lane that `word` names (see `Meta::lane`), with `ring`, after bytes were published.
///
/// Whoever waits in another place from now on stores its lane and then looks for bytes. A lane that
/// was missing is asked for once more behind a fence. One that was rung is asked for again, behind
/// the fence of the ring; whoever moves a connection from one lane to another makes up for it when
/// the ringer's is only a light one (`settle` in the stack's epoll).
#[inline]
pub fn ring_lane(word: &AtomicU32, mut ring: impl FnMut(usize)) {
    // Acquire: what the lane's owner has asked for (`fenced`) is known to who knows the lane.
    let mut lane = word.load(Ordering::Acquire);
    if lane == 0 {
        fence(Ordering::SeqCst);
        lane = word.load(Ordering::Acquire);
    }
    if lane == 0 {
        return;
    }
    ring(lane as usize - 1);
    let now = word.load(Ordering::Acquire);
    if now != lane && now != 0 {
        ring(now as usize - 1);
    }
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
        // Behind the caller's fence, that of the lane's ring.
        if place.load(Ordering::Relaxed) == 0 {
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
            assert!(!lane.ring(slot, false));
            lane.ring(slot, false);
        }
        let mut seen = Vec::new();
        lane.drain(SLOTS_MAX, |slot| seen.push(slot));
        assert_eq!(seen, [0, 63, 64, 4095, 4096, 16_383]);
        lane.drain(SLOTS_MAX, |slot| panic!("{slot} rang twice"));
        assert!(!lane.is_ringing(SLOTS_MAX));
    }

    #[test]
    fn a_sleeper_is_woken_by_one_of_many() {
        let lane = lane();
        lane.sleep();
        let woken: usize = (0..5).map(|slot| usize::from(lane.ring(slot, true))).sum();
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
        crate::barrier::choose(false);
        let woken = &std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    if lane.ring(round % SLOTS_MAX, false) {
                        woken.fetch_add(1, Ordering::SeqCst);
                    }
                    if round % 64 == 0 {
                        std::thread::yield_now();
                    }
                }
                // The end: a ring that nobody may miss.
                if lane.ring(SLOTS_MAX - 1, false) {
                    woken.fetch_add(1, Ordering::SeqCst);
                }
            });
            let mut last = false;
            while !last {
                lane.drain(SLOTS_MAX, |slot| last |= slot == SLOTS_MAX - 1);
                let before = woken.load(Ordering::SeqCst);
                lane.sleep();
                crate::barrier::heavy();
                if last || lane.is_ringing(SLOTS_MAX) {
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
