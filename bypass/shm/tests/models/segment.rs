//! A segment of three slots, with what `accept_queue.rs` asks of one.

use crate::atomic::{AtomicU32, AtomicU64};
use crate::layout::{ConnectQueue, Line};

pub struct Segment {
    queue: ConnectQueue,
    slots: [Slot; 3],
}

pub struct Slot {
    pub meta: Meta,
}

pub struct Meta {
    pub holders: [AtomicU64; 2],
}

impl Segment {
    pub fn new() -> Self {
        let line = || Line(AtomicU64::new(0));
        let slot = || Slot {
            meta: Meta {
                holders: [AtomicU64::new(0), AtomicU64::new(0)],
            },
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

    pub fn slot(&self, slot: usize) -> &Slot {
        &self.slots[slot]
    }
}
