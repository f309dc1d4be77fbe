//! Ready lists: which connections deserve a look, and whether the owner of the list is asleep.
//!
//! A ring puts 1 into the slot's ready flag, then (high slots) into its group's byte of the summary:
//! both idempotent, so a peer can ring spuriously but not overflow anything. Bytes, the usual reason,
//! are announced by a count in place of the 1: whoever looks remembers it and clears nothing, so the
//! line comes to it once and goes back once. The count has a byte; its turn-over rings the ready flag too,
//! hence 256 announcements without a look are not taken for none. So does the first announcement in
//! another ready list, where what was seen may by chance be the new count.
//!
//! A writer that is about to send more may hold an announcement back (`hold_back`) until it is out,
//! so that a busy reader is notified once. The bytes are published all the same and the slot is named in
//! the ready list, which every idle reader checks, a busy one checks now and then, and each checks before
//! it sleeps: no reader waits for a writer that computes for a long time, or never continues.
//!
//! The two sides of sleep and wake are the classic pair: the sleeper stores `sleeping`, then looks; the ringer sets ready flags, then loads
//! `sleeping`. Between them each passes a fence, the ringer a light one where it can, the sleeper
//! a heavy one ([`bypass_sys::barrier`]), so at least one of them sees the other. An owner of many ready lists sets
//! the quiet ones aside: to ringers it sleeps there, and is woken by another waker.

use crate::atomic::{fence, fetch_for_writing, light, ringing, AtomicU32, AtomicU64, Ordering};
use crate::layout::{ReadyList, DIRECT_GROUPS, FLAG_GROUP, MASKED, SLOTS_MAX};

impl ReadyList {
    /// Takes a free ready list for process `owner`.
    pub fn claim(&self, owner: u64, waker: u32) -> bool {
        // Loaded first, because most are somebody's.
        let is_taken = self.owner.load(Ordering::Relaxed) != 0;
        let claim = || {
            self.owner
                .compare_exchange(0, owner, Ordering::SeqCst, Ordering::Relaxed)
        };
        if is_taken || claim().is_err() {
            return false;
        }
        self.sleeping.store(0, Ordering::Relaxed);
        self.listening.store(0, Ordering::Relaxed);
        self.waker.store(waker, Ordering::SeqCst);
        true
    }

    /// Gives the ready list back.
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

    /// Marks a slot: the ready flag after what it announces, the summary after the ready flag, so that whoever
    /// takes the one sees the other.
    #[inline]
    pub fn mark(&self, slot: usize) {
        let slot = slot % SLOTS_MAX;
        self.set_flag(slot);
        self.mark_group(slot);
    }

    /// A swap and not a store: of two who ring one ready flag, the second passes on what the first has
    /// released. Ready flags are rare; what is frequent are news, plain stores that wait for no line.
    #[inline]
    fn set_flag(&self, slot: usize) {
        self.flags[slot].swap(1, Ordering::AcqRel);
    }

    /// The same as [`ring`](Self::ring) for bytes that have come. Callers of one slot come one after
    /// the other. A single store announces them, to the news or the ready flag: a reader that looked between two
    /// stores would be notified twice, and report an edge twice.
    #[inline]
    pub fn announce(&self, slot: usize, news: News, fenced: bool) -> bool {
        let slot = slot % SLOTS_MAX;
        if news.count as u8 == 0 || news.is_elsewhere {
            self.set_flag(slot);
        } else {
            self.news[slot].store(news.count as u8, Ordering::Release);
        }
        self.mark_group(slot);
        light(fenced);
        self.take_sleeper()
    }

    /// The number of the latest announcement here that was not made by a ready flag, for
    /// [`Ring::announcement`](crate::ring::Ring::announcement).
    pub fn latest(&self, slot: usize) -> u8 {
        self.news[slot % SLOTS_MAX].load(Ordering::Relaxed)
    }

    /// Instead of an [`announce`](Self::announce) by process `process` of the other side, one of the first
    /// [`MASKED`], which has only one thread that does so; true when the owner sleeps, and must be notified at once.
    #[inline]
    pub fn hold_back(&self, slot: usize, process: usize, fenced: bool) -> bool {
        let process = process % MASKED;
        let bit = 1u64 << process;
        if self.holders_back.load(Ordering::Relaxed) & bit == 0 {
            self.holders_back.fetch_or(bit, Ordering::SeqCst);
        }
        // Release: the bytes are there before their place is named.
        let word = &self.held_back[process].0;
        word.store(slot as u32 + 1, Ordering::Release);
        light(fenced);
        self.sleeping.load(Ordering::Relaxed) != 0
    }

    /// Before the announcement that was held back, or the one for more.
    #[inline]
    pub fn hold_no_more(&self, process: usize) {
        // Plain: only this process names slots here. A reader that takes the old one makes a spurious check.
        let word = &self.held_back[process % MASKED].0;
        word.store(0, Ordering::Relaxed);
    }

    /// Calls `visit` with the slots whose announcements are held back, once for each time.
    #[inline]
    pub fn drain_held_back(&self, mut visit: impl FnMut(usize)) {
        let mut left = self.holders_back.load(Ordering::Relaxed);
        while left != 0 {
            let process = left.trailing_zeros() as usize % MASKED;
            left &= left - 1;
            let word = &self.held_back[process].0;
            if word.load(Ordering::Relaxed) != 0 {
                let slot = word.swap(0, Ordering::AcqRel);
                if let Some(slot) = (slot as usize).checked_sub(1) {
                    visit(slot);
                }
            }
        }
    }

    /// Whether [`drain_held_back`](Self::drain_held_back) would find anything.
    #[inline]
    pub fn is_held_back(&self) -> bool {
        let mut left = self.holders_back.load(Ordering::Relaxed);
        while left != 0 {
            let word = &self.held_back[left.trailing_zeros() as usize % MASKED].0;
            if word.load(Ordering::Relaxed) != 0 {
                return true;
            }
            left &= left - 1;
        }
        false
    }

    /// Before an [`announce`](Self::announce): its line is on its way while the bytes are copied.
    #[inline]
    pub fn expect_announcing(&self, slot: usize) {
        fetch_for_writing(&self.news[slot % SLOTS_MAX]);
    }

    #[inline]
    fn mark_group(&self, slot: usize) {
        if slot >= DIRECT_GROUPS * FLAG_GROUP {
            self.summary.0[slot / FLAG_GROUP].store(1, Ordering::Release);
        }
    }

    /// True for exactly one caller after each [`sleep`](Self::sleep).
    #[inline]
    pub fn take_sleeper(&self) -> bool {
        // The load is behind the caller's fence; most callers find the owner awake.
        self.sleeping.load(Ordering::Relaxed) != 0 && self.sleeping.swap(0, Ordering::SeqCst) != 0
    }

    /// Says that the owner is about to sleep; behind [`heavy`] it must look at its ready flags once more.
    pub fn sleep(&self) {
        self.sleeping.store(1, Ordering::SeqCst);
    }

    /// The owner is awake.
    pub fn awake(&self) {
        self.sleeping.store(0, Ordering::Relaxed);
    }

    /// The owner, awake or not, looks here no more until `waker` has rung; behind [`heavy`] it must look once more.
    pub fn set_aside(&self, waker: u32) {
        self.waker.store(waker, Ordering::SeqCst);
        self.sleep();
    }

    /// Of one that was set aside: whether it has rung since.
    pub fn has_rung_aside(&self) -> bool {
        self.sleeping.load(Ordering::SeqCst) == 0
    }

    /// The owner looks here again, and is woken by `waker`.
    pub fn take_up(&self, waker: u32) {
        self.waker.store(waker, Ordering::SeqCst);
        self.awake();
    }

    /// Whether any of the first `slots` slots rang.
    #[inline]
    pub fn is_ringing(&self, slots: usize, seen: &Seen) -> bool {
        let groups = seen.groups(slots);
        (0..groups.min(DIRECT_GROUPS)).any(|index| self.ringing(index, seen) != 0)
            || self.summary.0[groups.min(DIRECT_GROUPS)..groups]
                .iter()
                .any(|group| group.load(Ordering::Relaxed) != 0)
    }

    #[inline]
    fn ringing(&self, group: usize, seen: &Seen) -> u64 {
        let slots = group * FLAG_GROUP..(group + 1) * FLAG_GROUP;
        let (flags, news) = (&self.flags[slots.clone()], &self.news[slots.clone()]);
        ringing(flags, news, &seen.0[slots])
    }

    /// Calls `visit` with every one of the first `slots` slots that rang since the last time. What
    /// must not be missed, before a sleep, is behind [`heavy`](bypass_sys::barrier::heavy).
    #[inline]
    pub fn drain(&self, slots: usize, seen: &mut Seen, mut visit: impl FnMut(usize)) {
        let groups = seen.groups(slots);
        for index in 0..groups.min(DIRECT_GROUPS) {
            self.drain_group(index, seen, &mut visit);
        }
        for index in DIRECT_GROUPS..groups {
            let group = &self.summary.0[index];
            if group.load(Ordering::Relaxed) != 0 {
                // The swaps acquire what the last ringer released: its ready flags, then its bytes.
                group.swap(0, Ordering::AcqRel);
                self.drain_group(index, seen, &mut visit);
            }
        }
    }

    #[inline]
    fn drain_group(&self, index: usize, seen: &mut Seen, visit: &mut impl FnMut(usize)) {
        let mut left = self.ringing(index, seen);
        while left != 0 {
            let slot = index * FLAG_GROUP + left.trailing_zeros() as usize;
            left &= left - 1;
            if self.flags[slot].load(Ordering::Relaxed) != 0 {
                self.flags[slot].swap(0, Ordering::AcqRel);
            }
            // Acquire: the bytes are there before their announcement.
            seen.0[slot] = self.news[slot].load(Ordering::Acquire);
            visit(slot);
        }
    }
}

/// An announcement: see [`Ring::announcement`](crate::ring::Ring::announcement).
#[derive(Debug, Clone, Copy)]
pub struct News {
    /// Its number.
    pub count: u32,
    /// The one before was in another ready list.
    pub is_elsewhere: bool,
}

/// News that the owner of a ready list has already seen, by slot.
#[derive(Debug)]
pub struct Seen(Box<[u8]>);

impl Seen {
    /// For a segment of so many slots, of which nothing was seen.
    pub fn of(slots: usize) -> Self {
        Self(vec![0; slots.min(SLOTS_MAX).next_multiple_of(FLAG_GROUP)].into())
    }

    #[inline]
    fn groups(&self, slots: usize) -> usize {
        slots.div_ceil(FLAG_GROUP).min(self.0.len() / FLAG_GROUP)
    }
}

/// Rings the ready list that `word` names (see `Meta::ready_list`), with `ring`, after bytes were published.
///
/// A thread that waits in another place from now on stores its ready list and then looks for bytes. A missing
/// ready list is looked up once more behind a fence. After a ready list was rung, `word` is loaded again, behind
/// the fence of the ring; a thread that moves a connection from one ready list to another compensates when
/// the ringer's fence is only a light one (`settle` in the stack's epoll).
#[inline]
pub fn ring_ready_list(word: &AtomicU32, mut ring: impl FnMut(usize)) {
    // Acquire: what the ready list's owner has asked for (`fenced`) is known to who knows the ready list.
    let mut ready_list = word.load(Ordering::Acquire);
    if ready_list == 0 {
        fence(Ordering::SeqCst);
        ready_list = word.load(Ordering::Acquire);
    }
    if ready_list == 0 {
        return;
    }
    ring(ready_list as usize - 1);
    let now = word.load(Ordering::Acquire);
    if now != ready_list && now != 0 {
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

    /// Whether it is registered there still: no ringer has taken it.
    pub fn is_in(self, place: &AtomicU64) -> bool {
        place.load(Ordering::SeqCst) == self.word()
    }

    /// Withdraws the registration, unless another thread has done so.
    pub fn withdraw(self, place: &AtomicU64) {
        let _ = place.compare_exchange(self.word(), 0, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// The thread that waits in `place`, for exactly one caller.
    #[inline]
    pub fn take(place: &AtomicU64) -> Option<Self> {
        // Behind the caller's fence, that of the ready list's ring.
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

    fn ready_list() -> Box<ReadyList> {
        // SAFETY: a ready list is atomics only, for which zero is valid.
        unsafe { Box::new(std::mem::zeroed()) }
    }

    fn news_of(count: u32, is_elsewhere: bool) -> News {
        News {
            count,
            is_elsewhere,
        }
    }

    fn rung(ready_list: &ReadyList, news: &mut Seen) -> Vec<usize> {
        let mut slots = Vec::new();
        ready_list.drain(SLOTS_MAX, news, |slot| slots.push(slot));
        slots
    }

    #[test]
    fn every_ring_is_seen_once() {
        let ready_list = ready_list();
        let mut news = Seen::of(SLOTS_MAX);
        for slot in [0, 63, 64, 4095, 4096, 16_383] {
            assert!(!ready_list.ring(slot, false));
            ready_list.ring(slot, false);
        }
        assert_eq!(
            rung(&ready_list, &mut news),
            [0, 63, 64, 4095, 4096, 16_383]
        );
        assert!(rung(&ready_list, &mut news).is_empty());
        assert!(!ready_list.is_ringing(SLOTS_MAX, &news));
    }

    #[test]
    fn announcements_are_seen_once_however_many_there_were() {
        let ready_list = ready_list();
        let mut news = Seen::of(SLOTS_MAX);
        let mut count = 0;
        for often in [1, 2, 255, 256, 257, 512] {
            for slot in [5, 70, 5000] {
                for number in 1..=often {
                    assert!(!ready_list.announce(slot, news_of(count + number, false), false));
                }
            }
            count += often;
            assert!(ready_list.is_ringing(SLOTS_MAX, &news), "{often}");
            assert_eq!(rung(&ready_list, &mut news), [5, 70, 5000], "{often}");
            assert!(!ready_list.is_ringing(SLOTS_MAX, &news), "{often}");
        }
    }

    #[test]
    fn an_announcement_is_one_store() {
        let ready_list = ready_list();
        for (count, is_elsewhere) in [(7, true), (256, false), (9, false)] {
            let before = ready_list.latest(5);
            ready_list.announce(5, news_of(count, is_elsewhere), false);
            let has_rung = ready_list.flags[5].swap(0, Ordering::Relaxed) != 0;
            assert!(has_rung != (ready_list.latest(5) != before), "{count}");
        }
    }

    #[test]
    fn a_connection_that_is_given_another_ready_list_is_heard_there() {
        let (first, second) = (ready_list(), ready_list());
        let mut seen = Seen::of(64);
        second.announce(3, news_of(8, true), false);
        assert_eq!(rung(&second, &mut seen), [3]);
        first.announce(3, news_of(7 + 256, true), false);
        second.announce(3, news_of(8 + 256, true), false);
        assert_eq!(rung(&second, &mut seen), [3]);
    }

    #[test]
    fn a_held_back_announcement_is_seen_once_and_reports_a_sleeper() {
        let ready_list = ready_list();
        assert!(!ready_list.hold_back(7, 0, false) && !ready_list.hold_back(9, MASKED - 1, false));
        assert!(ready_list.is_held_back());
        let mut slots = Vec::new();
        ready_list.drain_held_back(|slot| slots.push(slot));
        assert_eq!(slots, [7, 9]);
        ready_list.drain_held_back(|_| panic!("seen twice"));
        ready_list.sleep();
        assert!(ready_list.hold_back(7, 0, false));
        ready_list.hold_no_more(0);
        assert!(!ready_list.is_held_back());
    }

    #[test]
    fn a_sleeper_is_woken_by_one_of_many() {
        let ready_list = ready_list();
        ready_list.sleep();
        let woken: usize = (0..5)
            .map(|slot| usize::from(ready_list.ring(slot, true)))
            .sum();
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
        assert!(first.is_in(&place) && !second.is_in(&place));
        second.withdraw(&place);
        assert_eq!(Sleeper::take(&place), Some(first));
        assert_eq!(Sleeper::take(&place), None);
    }

    #[test]
    fn no_ring_is_lost_between_looking_and_sleeping() {
        const ROUNDS: usize = 20_000;
        let ready_list = ready_list();
        let ready_list = &*ready_list;
        bypass_sys::barrier::choose(false);
        let woken = &std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    if ready_list.ring(round % SLOTS_MAX, false) {
                        woken.fetch_add(1, Ordering::SeqCst);
                    }
                    if round % 64 == 0 {
                        std::thread::yield_now();
                    }
                }
                // The end: a ring that the reader must not miss.
                if ready_list.ring(SLOTS_MAX - 1, false) {
                    woken.fetch_add(1, Ordering::SeqCst);
                }
            });
            let mut last = false;
            let mut news = Seen::of(SLOTS_MAX);
            while !last {
                ready_list.drain(SLOTS_MAX, &mut news, |slot| last |= slot == SLOTS_MAX - 1);
                let before = woken.load(Ordering::SeqCst);
                ready_list.sleep();
                bypass_sys::barrier::heavy();
                if last || ready_list.is_ringing(SLOTS_MAX, &news) {
                    ready_list.awake();
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
