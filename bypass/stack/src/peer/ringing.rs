//! How the other side's waiting places, and our own, are notified that something has come.

use core::sync::atomic::Ordering;

use bypass_shm::doorbell::{ring_ready_list, Sleeper};
use bypass_shm::segment::Segment;

use super::asleep::place;
use super::Peer;
use crate::process;

/// Sleeps without a ready list in some segment, from one search for it to the next.
pub const SEEK_SLEEPS: u32 = 32;
/// A process looks for its first ready list from one of so many on: a ringer goes through all that were ever taken.
const FIRST_READY_LISTS: usize = 16;

/// A notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// Bytes; by the thread that holds the writer's lock.
    News,
    /// Bytes or an end.
    Bytes,
    /// Space.
    Room,
}

#[inline]
fn ring_side(segment: &Segment, slot: usize, side: usize, what: Notice) {
    ring_ready_list(&segment.slot(slot).meta.ready_list[side], |index| {
        let ready_list = segment.ready_list(side, index);
        let fenced = segment.is_fenced(side);
        let is_asleep = match what {
            Notice::News => {
                let ring = segment.ring(slot, 1 - side);
                let news = ring.announcement(index, || ready_list.latest(slot));
                ready_list.announce(slot, news, fenced)
            }
            Notice::Bytes | Notice::Room => ready_list.ring(slot, fenced),
        };
        if is_asleep {
            let waker = ready_list.waker.load(Ordering::SeqCst);
            process::wake(ready_list.owner.load(Ordering::SeqCst), waker);
        }
    });
    if let Some(sleeper) = Sleeper::take(place(segment, slot, side, what)) {
        process::wake(
            segment.process(side, sleeper.process as usize),
            sleeper.waker,
        );
    }
}

/// Wakes whoever waits for connections of this segment.
pub fn ring_listeners(segment: &Segment) {
    ring_some(segment, |_| true);
}

/// The same of those processes only, by number.
pub fn ring_some(segment: &Segment, which: impl Fn(u64) -> bool) {
    let used = segment.ready_lists(1).len();
    // Another one first each time: where only one is woken, all get their turn.
    let first = segment.queue().tail.0.load(Ordering::SeqCst) as usize;
    // The queue's tail was stored just before: both are sequentially consistent.
    core::sync::atomic::fence(Ordering::SeqCst);
    let mut has_rung_one = false;
    for step in 0..used {
        let ready_list = segment.ready_list(1, first.wrapping_add(step) % used);
        let is_due = match ready_list.listening.load(Ordering::SeqCst) {
            0 => false,
            2 => !has_rung_one,
            _ => true,
        };
        let owner = ready_list.owner.load(Ordering::SeqCst);
        if is_due && which(owner) && ready_list.take_sleeper() {
            // The process that sleeps there now: the list may be another's since, or not be rung for connections any more.
            let owner = ready_list.owner.load(Ordering::SeqCst);
            let waker = ready_list.waker.load(Ordering::SeqCst);
            process::wake(owner, waker);
            has_rung_one |= ready_list.listening.load(Ordering::SeqCst) == 2 && which(owner);
        }
    }
}

impl Peer {
    /// Takes a ready list of our side for this process and `waker`.
    pub fn claim_ready_list(&self, waker: u32) -> Option<usize> {
        // The former one is mostly free still, and hundreds of processes do not begin at the same one.
        let from = match self.ready_list.load(Ordering::Relaxed) {
            0 => self.process_index() % FIRST_READY_LISTS,
            former => former as usize - 1,
        };
        let owner = (process::number(), from);
        let claimed = self.segment.claim_ready_list(self.side, owner, waker)?;
        self.ready_list.store(claimed as u32 + 1, Ordering::Relaxed);
        Some(claimed)
    }

    /// The same for a single sleep: while none is left, not each one of a millisecond goes through all of them.
    pub fn claim_ready_list_to_sleep(&self, waker: u32) -> Option<usize> {
        let misses = self.ready_list_misses.load(Ordering::Relaxed);
        let is_due = misses.is_multiple_of(SEEK_SLEEPS);
        let claimed = is_due.then(|| self.claim_ready_list(waker)).flatten();
        let misses = claimed.map_or(misses.wrapping_add(1), |_| 0);
        self.ready_list_misses.store(misses, Ordering::Relaxed);
        claimed
    }

    /// Notifies the other side that bytes (or an end) have come, or that there is room.
    #[inline]
    pub fn ring(&self, slot: usize, what: Notice) {
        ring_side(&self.segment, slot, 1 - self.side, what);
    }

    /// Before bytes are written: what will be needed to notify the other side.
    #[inline]
    pub fn expect_ringing(&self, slot: usize) {
        let word = &self.segment.slot(slot).meta.ready_list[1 - self.side];
        if let Some(ready_list) = (word.load(Ordering::Relaxed) as usize).checked_sub(1) {
            self.segment
                .ready_list(1 - self.side, ready_list)
                .expect_announcing(slot);
        }
    }

    /// A process of the other side has ended, perhaps as it was about to wake a thread of ours that it had found asleep:
    /// who does not count as asleep any more looks.
    pub fn wake_unheard(&self) {
        let own = process::number();
        for ready_list in self.segment.ready_lists(self.side) {
            let is_ours = ready_list.owner.load(Ordering::SeqCst) == own;
            if is_ours && ready_list.sleeping.load(Ordering::SeqCst) == 0 {
                process::wake(own, ready_list.waker.load(Ordering::SeqCst));
            }
        }
        for waker in self.taken() {
            process::wake(own, waker);
        }
    }

    /// Notifies our own writers that there may be room, although the other side has made none.
    pub fn ring_our_writers(&self, slot: usize) {
        ring_side(&self.segment, slot, self.side, Notice::Room);
    }

    /// Notifies our own waiting places, after an end that the other side could not write itself.
    pub fn ring_ourselves(&self, slot: usize) {
        ring_side(&self.segment, slot, self.side, Notice::Bytes);
        ring_side(&self.segment, slot, self.side, Notice::Room);
    }
}

#[cfg(test)]
mod tests {
    use bypass_shm::layout::{ReadyList, PROCESSES};

    use super::*;

    #[test]
    fn of_processes_that_are_rung_in_turn_each_is_rung_for_one_connection() {
        const SLEEPERS: usize = 3;
        let segment = Segment::create(1, 64, 4096).expect("memory");
        for place in 0..SLEEPERS {
            let owner = (90 + place as u64, place);
            let index = segment.claim_ready_list(1, owner, 1).expect("room");
            let ready_list = segment.ready_list(1, index);
            ready_list.listening.store(2, Ordering::SeqCst);
            ready_list.sleep();
        }
        let is_asleep = |one: &&ReadyList| one.sleeping.load(Ordering::SeqCst) != 0;
        for left in (0..SLEEPERS).rev() {
            assert!(segment.queue().push(left));
            ring_listeners(&segment);
            assert_eq!(segment.ready_lists(1).filter(is_asleep).count(), left);
        }
    }

    #[test]
    fn who_is_rung_for_each_connection_is_rung_wherever_one_that_is_rung_in_turn_stands() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let rung = [2, 1, 0, 2, 1, 2];
        for (place, listening) in rung.into_iter().enumerate() {
            let owner = (90 + place as u64, place);
            let index = segment.claim_ready_list(1, owner, 1).expect("room");
            let ready_list = segment.ready_list(1, index);
            ready_list.listening.store(listening, Ordering::SeqCst);
        }
        let asleep_of = |kind: u32| {
            let of_kind = |one: &&ReadyList| one.listening.load(Ordering::SeqCst) == kind;
            let lists = segment.ready_lists(1).filter(of_kind);
            let sleeping = lists.map(|one| one.sleeping.load(Ordering::SeqCst));
            sleeping.sum::<u32>()
        };
        // One that is rung in turn stands first, or last, or between two others.
        for _ in rung {
            segment.ready_lists(1).for_each(ReadyList::sleep);
            assert!(segment.queue().push(0));
            ring_listeners(&segment);
            assert_eq!([0, 1, 2].map(asleep_of), [1, 0, 2]);
        }
    }

    #[test]
    fn a_process_takes_its_former_ready_list_again_and_few_are_gone_through() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let last = (0..PROCESSES).map(|number| segment.enter(1, 2 + number as u64));
        let last = last.last().flatten().expect("a place");
        let peer = Peer::at_place(segment, 1, last).expect("a peer");
        let first = peer.claim_ready_list(1).expect("room");
        let second = peer.claim_ready_list(1).expect("room");
        assert!(first < second && peer.segment.ready_lists(1).len() <= FIRST_READY_LISTS + 1);
        peer.segment.ready_list(1, first).free();
        peer.segment.ready_list(1, second).free();
        assert_eq!(peer.claim_ready_list(1), Some(second));
    }

    #[test]
    fn while_no_ready_list_is_left_few_sleeps_look_for_one() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let peer = Peer::join(segment, 1, 1).expect("a place");
        let claims = || peer.claim_ready_list_to_sleep(1);
        while claims().is_some() {}
        peer.segment.ready_list(1, 7).free();
        let skipped = (1..).take_while(|_| claims().is_none()).count();
        assert_eq!(skipped as u32, SEEK_SLEEPS - 1);
        // There is one again: each sleep looks.
        peer.segment.ready_list(1, 7).free();
        assert!(claims().is_some());
    }
}
