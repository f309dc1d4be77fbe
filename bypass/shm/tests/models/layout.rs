//! A miniature of `src/layout.rs`: the same fields, as few words as the models need.

use crate::atomic::{AtomicU32, AtomicU64, AtomicU8};

/// Two groups of one summary.
pub const SLOTS_MAX: usize = 4;
/// Ready flags of a group.
pub const FLAG_GROUP: usize = 2;
/// The other group has a summary.
pub const DIRECT_GROUPS: usize = 1;
/// As in the real one.
pub const QUEUED: u64 = 1 << 63;
/// Likewise.
pub const CLOSING: u64 = 1 << 62;
/// Processes of a side.
pub const PROCESSES: usize = 8;
/// Those of them that have a bit in masks.
pub const MASKED: usize = 2;

pub struct ReadyList {
    pub owner: AtomicU64,
    pub waker: AtomicU32,
    pub sleeping: AtomicU32,
    pub listening: AtomicU32,
    pub holders_back: AtomicU64,
    pub summary: Summary,
    pub flags: [AtomicU8; SLOTS_MAX],
    pub news: [AtomicU8; SLOTS_MAX],
    pub held_back: [HeldBack; MASKED],
}

pub struct HeldBack(pub AtomicU32);

pub struct Summary(pub [AtomicU8; SLOTS_MAX / FLAG_GROUP]);

impl ReadyList {
    pub fn new() -> Self {
        Self {
            owner: AtomicU64::new(1),
            waker: AtomicU32::new(0),
            sleeping: AtomicU32::new(0),
            listening: AtomicU32::new(0),
            holders_back: AtomicU64::new(0),
            summary: Summary(core::array::from_fn(|_| AtomicU8::new(0))),
            flags: core::array::from_fn(|_| AtomicU8::new(0)),
            news: core::array::from_fn(|_| AtomicU8::new(0)),
            held_back: core::array::from_fn(|_| HeldBack(AtomicU32::new(0))),
        }
    }
}

pub struct ProducerLine {
    pub tail: AtomicU64,
    pub ends: AtomicU32,
    pub want_space: AtomicU32,
    pub records: AtomicU64,
    pub urgent: AtomicU64,
}

impl ProducerLine {
    pub fn new() -> Self {
        Self {
            tail: AtomicU64::new(0),
            ends: AtomicU32::new(0),
            want_space: AtomicU32::new(0),
            records: AtomicU64::new(0),
            urgent: AtomicU64::new(0),
        }
    }
}

/// The fields of the real one that the ring needs.
pub struct Locks {
    pub tail: AtomicU64,
    pub head_seen: AtomicU64,
    pub records: AtomicU64,
    pub has_sent_urgent: AtomicU32,
    pub ring: AtomicU32,
    pub records_seen: AtomicU64,
    pub news: AtomicU32,
    pub ready_list_rung: AtomicU32,
    pub since: AtomicU64,
    pub idle_at: AtomicU64,
    pub send_buffer: AtomicU32,
    pub short_writes: AtomicU32,
}

impl Locks {
    pub fn new() -> Self {
        Self {
            tail: AtomicU64::new(0),
            head_seen: AtomicU64::new(0),
            records: AtomicU64::new(0),
            has_sent_urgent: AtomicU32::new(0),
            ring: AtomicU32::new(0),
            records_seen: AtomicU64::new(0),
            news: AtomicU32::new(0),
            ready_list_rung: AtomicU32::new(0),
            since: AtomicU64::new(0),
            idle_at: AtomicU64::new(0),
            send_buffer: AtomicU32::new(0),
            short_writes: AtomicU32::new(0),
        }
    }
}

pub struct ConsumerLine {
    pub head: AtomicU64,
    pub tail_seen: AtomicU64,
    pub records_done: AtomicU64,
    pub loan_bytes: AtomicU64,
    pub ring: AtomicU32,
    pub receive_buffer: AtomicU32,
    pub far: AtomicU32,
}

pub struct Record {
    pub at: AtomicU64,
    pub what: AtomicU64,
}

/// Fewer than in the real one.
pub const RECORDS: usize = 3;
/// Likewise.
pub const LOANS: usize = 2;
/// Most that a direction of a model holds.
pub const UNREAD_MAX: usize = 8;

pub struct Class {
    pub bytes: usize,
    pub count: usize,
}

/// One larger ring.
pub const CLASSES: [Class; 1] = [Class { bytes: 4, count: 1 }];
/// As in the real one.
pub const EXTENTS: usize = 1;

pub fn extents_before(_class: usize) -> usize {
    0
}

pub fn extent_offset(_class: usize, _index: usize) -> usize {
    0
}

pub struct Owners(pub [AtomicU32; EXTENTS]);

pub struct Records(pub [Record; RECORDS]);

impl Records {
    pub fn new() -> Self {
        Self(core::array::from_fn(|_| Record {
            at: AtomicU64::new(0),
            what: AtomicU64::new(0),
        }))
    }
}

impl ConsumerLine {
    pub fn new() -> Self {
        Self {
            head: AtomicU64::new(0),
            tail_seen: AtomicU64::new(0),
            records_done: AtomicU64::new(0),
            loan_bytes: AtomicU64::new(0),
            ring: AtomicU32::new(0),
            receive_buffer: AtomicU32::new(0),
            far: AtomicU32::new(0),
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
