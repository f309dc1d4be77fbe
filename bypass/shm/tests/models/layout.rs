//! A miniature of `src/layout.rs`: the same fields, as few words as the models need.

use crate::atomic::{AtomicU32, AtomicU64};

/// Two words of one summary.
pub const SLOTS_MAX: usize = 128;
/// As in the real one.
pub const QUEUED: u32 = 1 << 31;

pub struct Lane {
    pub owner: AtomicU64,
    pub waker: AtomicU32,
    pub sleeping: AtomicU32,
    pub listening: AtomicU32,
    pub summary: Summary,
    pub words: [AtomicU64; SLOTS_MAX / 64],
}

pub struct Summary(pub [AtomicU64; 1]);

impl Lane {
    pub fn new() -> Self {
        Self {
            owner: AtomicU64::new(1),
            waker: AtomicU32::new(0),
            sleeping: AtomicU32::new(0),
            listening: AtomicU32::new(0),
            summary: Summary([AtomicU64::new(0)]),
            words: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }
}

pub struct ProducerLine {
    pub tail: AtomicU64,
    pub head_seen: AtomicU64,
    pub ends: AtomicU32,
    pub want_space: AtomicU32,
    pub lock: AtomicU32,
    pub urgent: AtomicU64,
}

impl ProducerLine {
    pub fn new() -> Self {
        Self {
            tail: AtomicU64::new(0),
            head_seen: AtomicU64::new(0),
            ends: AtomicU32::new(0),
            want_space: AtomicU32::new(0),
            lock: AtomicU32::new(0),
            urgent: AtomicU64::new(0),
        }
    }
}

pub struct ConsumerLine {
    pub head: AtomicU64,
    pub tail_seen: AtomicU64,
    pub lock: AtomicU32,
}

impl ConsumerLine {
    pub fn new() -> Self {
        Self {
            head: AtomicU64::new(0),
            tail_seen: AtomicU64::new(0),
            lock: AtomicU32::new(0),
        }
    }
}

pub struct Line(pub AtomicU64);

/// Fewer entries than `SLOTS_MAX`: no model queues more.
pub struct ConnectQueue {
    pub tail: Line,
    pub head: Line,
    pub entries: [AtomicU32; 3],
}
