//! Threads of this process that sleep on one connection: where the other side finds them, and how this process finds
//! them when one of the other side's has died as it was about to wake them.

use core::sync::atomic::AtomicU64;

use bypass_shm::doorbell::Sleeper;
use bypass_shm::segment::Segment;

use super::{Notice, Peer};

/// A thread of this process that sleeps, by its place in the segment and its waker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asleep {
    /// The connection.
    pub slot: usize,
    /// What it waits for.
    pub awaits: Notice,
    /// The number of its waker.
    pub waker: u32,
}

/// The word in which a thread of `side` says that it sleeps.
pub(super) fn place(segment: &Segment, slot: usize, side: usize, what: Notice) -> &AtomicU64 {
    let meta = &segment.slot(slot).meta;
    match what {
        Notice::News | Notice::Bytes => &meta.sleeper_read[side],
        Notice::Room => &meta.sleeper_write[side],
    }
}

impl Peer {
    /// Says that a thread is about to sleep; false when another one sleeps in its place. Behind
    /// [`heavy`](bypass_sys::barrier::heavy) it must look once more.
    pub fn fall_asleep(&self, one: Asleep) -> bool {
        let place = place(&self.segment, one.slot, self.side, one.awaits);
        let is_registered = self.sleeper(one.waker).register(place);
        if is_registered {
            if let Ok(mut slots) = self.slots.lock() {
                slots.asleep.push(one);
            }
        }
        is_registered
    }

    /// The thread sleeps no more.
    pub fn wake_up(&self, one: Asleep) {
        if let Ok(mut slots) = self.slots.lock() {
            // From the end: a poll of many connections takes its entries back in reverse order.
            if let Some(at) = slots.asleep.iter().rposition(|other| *other == one) {
                slots.asleep.swap_remove(at);
            }
        }
        let place = place(&self.segment, one.slot, self.side, one.awaits);
        self.sleeper(one.waker).withdraw(place);
    }

    /// The wakers of threads whose word a process of the other side has taken, to wake them.
    pub(super) fn taken(&self) -> Vec<u32> {
        let is_taken = |one: &&Asleep| {
            let place = place(&self.segment, one.slot, self.side, one.awaits);
            !self.sleeper(one.waker).is_in(place)
        };
        let Ok(slots) = self.slots.lock() else {
            return Vec::new();
        };
        let taken = slots.asleep.iter().filter(is_taken);
        taken.map(|one| one.waker).collect()
    }

    /// In a forked child: the threads are the parent's.
    pub(super) fn forget_asleep(&self) {
        if let Ok(mut slots) = self.slots.lock() {
            slots.asleep.clear();
        }
    }

    /// How others find a thread of ours that sleeps on waker `waker`.
    fn sleeper(&self, waker: u32) -> Sleeper {
        Sleeper {
            process: self.process_index() as u32,
            waker,
        }
    }
}
