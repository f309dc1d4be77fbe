//! A segment of three slots, with what `accept_queue.rs` and `holders.rs` ask of one.

use crate::atomic::{AtomicU32, AtomicU64};
use crate::holders::Holders;
use crate::layout::{ConnectQueue, Line, ProcessSet, SET_WORDS};

pub struct Segment {
    queue: ConnectQueue,
    slots: [Slot; 3],
}

struct Slot {
    word: AtomicU32,
    sharers: ProcessSet,
}

impl Segment {
    pub fn new() -> Self {
        let line = || Line(AtomicU64::new(0));
        let slot = || Slot {
            word: AtomicU32::new(0),
            sharers: ProcessSet(core::array::from_fn::<_, SET_WORDS, _>(|_| {
                AtomicU64::new(0)
            })),
        };
        let entries = || AtomicU32::new(0);
        Self {
            queue: ConnectQueue {
                tail: line(),
                head: line(),
                entries: [entries(), entries(), entries()],
            },
            slots: [slot(), slot(), slot()],
        }
    }

    pub fn queue(&self) -> &ConnectQueue {
        &self.queue
    }

    pub fn clamp(&self, slot: usize) -> usize {
        slot % self.slots.len()
    }

    /// The server's.
    pub fn holders(&self, slot: usize, _side: usize) -> Holders<'_> {
        Holders {
            word: &self.slots[slot].word,
            sharers: &self.slots[slot].sharers,
        }
    }
}
