//! How the other side's waiting places, and our own, are notified that something has come.

use core::sync::atomic::Ordering;

use bypass_shm::doorbell::{ring_ready_list, Sleeper};
use bypass_shm::layout::READY_LISTS;
use bypass_shm::segment::Segment;

use super::Peer;
use crate::process;

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
    let meta = &segment.slot(slot).meta;
    ring_ready_list(&meta.ready_list[side], |index| {
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
    let place = match what {
        Notice::News | Notice::Bytes => &meta.sleeper_read[side],
        Notice::Room => &meta.sleeper_write[side],
    };
    if let Some(sleeper) = Sleeper::take(place) {
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
    let used = segment.header().ready_lists_used[1].load(Ordering::SeqCst) as usize;
    let used = used.min(READY_LISTS);
    // Another one first each time: where only one is woken, all get their turn.
    let first = segment.queue().tail.0.load(Ordering::SeqCst) as usize;
    for step in 0..used {
        let ready_list = segment.ready_list(1, first.wrapping_add(step) % used);
        let listening = ready_list.listening.load(Ordering::SeqCst);
        // The queue's tail was stored just before: both are sequentially consistent.
        core::sync::atomic::fence(Ordering::SeqCst);
        let owner = ready_list.owner.load(Ordering::SeqCst);
        if listening != 0 && which(owner) && ready_list.take_sleeper() {
            // The process that sleeps there now: the list may be another's since, or not be rung for connections any more.
            let owner = ready_list.owner.load(Ordering::SeqCst);
            let waker = ready_list.waker.load(Ordering::SeqCst);
            process::wake(owner, waker);
            if ready_list.listening.load(Ordering::SeqCst) == 2 && which(owner) {
                return;
            }
        }
    }
}

impl Peer {
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

    /// How others find a thread of ours that sleeps on waker `waker`.
    pub fn sleeper(&self, waker: u32) -> Sleeper {
        Sleeper {
            process: self.process_index() as u32,
            waker,
        }
    }

    /// A process of the other side has ended, perhaps as it was about to wake a thread of ours that it had found asleep:
    /// who does not count as asleep any more looks.
    pub fn wake_unheard(&self) {
        let (own, header) = (process::number(), self.segment.header());
        let used = header.ready_lists_used[self.side & 1].load(Ordering::SeqCst) as usize;
        for index in 0..used.min(READY_LISTS) {
            let ready_list = self.segment.ready_list(self.side, index);
            let is_ours = ready_list.owner.load(Ordering::SeqCst) == own;
            if is_ours && ready_list.sleeping.load(Ordering::SeqCst) == 0 {
                process::wake(own, ready_list.waker.load(Ordering::SeqCst));
            }
        }
    }

    /// Notifies our own waiting places, after an end that the other side could not write itself.
    pub fn ring_ourselves(&self, slot: usize) {
        ring_side(&self.segment, slot, self.side, Notice::Bytes);
        ring_side(&self.segment, slot, self.side, Notice::Room);
    }
}
