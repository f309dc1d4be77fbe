//! TIME_WAIT as compact entries: bounded in number, first in, first out (RFC 9293, 3.4.2; RFC 6191;
//! RFC 1337).

use crate::conn::Conn;
use crate::seq::after;
use crate::slab::Slab;
use crate::wire::tcp::{Flow, Segment, FIN, RST, SYN};

const NONE: u32 = u32::MAX;

/// What is left of a connection.
#[derive(Clone, Copy, Default)]
pub struct Entry {
    /// Addresses and ports.
    pub flow: Flow,
    /// Next number expected: one behind the peer's FIN.
    pub rcv_nxt: u32,
    /// Next number of ours: one behind our FIN.
    pub snd_nxt: u32,
    /// The peer's last timestamp.
    pub ts_recent: u32,
    /// Added to our clock.
    pub ts_offset: u32,
    /// The last window field.
    pub window: u16,
    /// Timestamps were in use.
    pub has_timestamps: bool,
    expires_us: u64,
    next: u32,
    previous: u32,
}

/// What a segment for an entry leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing.
    Drop,
    /// Acknowledge again.
    Ack,
    /// A new connection may begin; our numbers begin behind this one.
    Reopen(u32),
}

/// All entries, the oldest first.
pub struct TimeWaits {
    slab: Slab<Entry>,
    head: u32,
    tail: u32,
    life_us: u64,
}

impl TimeWaits {
    /// None.
    pub fn new(entries_max: u32, life_us: u64) -> TimeWaits {
        TimeWaits {
            slab: Slab::new(entries_max.max(1)),
            head: NONE,
            tail: NONE,
            life_us,
        }
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.slab.in_use()
    }

    /// An entry.
    pub fn get(&self, index: u32) -> &Entry {
        &self.slab[index]
    }

    /// The entry that must go before one more can be added.
    pub fn overflow(&self) -> Option<u32> {
        (self.slab.is_full() && self.head != NONE).then_some(self.head)
    }

    /// Adds what is left of a connection.
    pub fn add(&mut self, conn: &Conn, window: u16, now_us: u64) -> Option<u32> {
        let index = self.slab.take(Entry::default)?;
        self.slab[index] = Entry {
            flow: conn.flow,
            rcv_nxt: conn.rcv_nxt,
            snd_nxt: conn.snd_nxt,
            ts_recent: conn.ts_recent,
            ts_offset: conn.ts_offset,
            window,
            has_timestamps: conn.has_timestamps,
            ..Entry::default()
        };
        self.append(index, now_us);
        Some(index)
    }

    fn append(&mut self, index: u32, now_us: u64) {
        let tail = self.tail;
        let entry = &mut self.slab[index];
        entry.expires_us = now_us + self.life_us;
        entry.previous = tail;
        entry.next = NONE;
        match tail {
            NONE => self.head = index,
            tail => self.slab[tail].next = index,
        }
        self.tail = index;
    }

    fn unlink(&mut self, index: u32) {
        let Entry { next, previous, .. } = self.slab[index];
        match previous {
            NONE => self.head = next,
            previous => self.slab[previous].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => self.slab[next].previous = previous,
        }
    }

    /// Takes an entry away.
    pub fn remove(&mut self, index: u32) {
        self.unlink(index);
        self.slab.give(index);
    }

    /// The oldest entry, when its time is over.
    pub fn expired(&self, now_us: u64) -> Option<u32> {
        (self.head != NONE && self.slab[self.head].expires_us <= now_us).then_some(self.head)
    }

    /// When the oldest entry's time is over.
    pub fn next_us(&self) -> Option<u64> {
        (self.head != NONE).then(|| self.slab[self.head].expires_us)
    }

    /// A segment for an entry (RFC 9293, 3.10.7.4, TIME-WAIT).
    pub fn on_segment(&mut self, index: u32, seg: &Segment, now_us: u64) -> Verdict {
        let entry = &self.slab[index];
        if seg.has(RST) {
            return Verdict::Drop; // RFC 1337: it must not end TIME_WAIT early
        }
        if seg.has(SYN) {
            return if entry.may_reopen(seg) {
                Verdict::Reopen(entry.snd_nxt.wrapping_add(0x1_0001))
            } else {
                Verdict::Ack
            };
        }
        if seg.has(FIN) && seg.end() == entry.rcv_nxt {
            self.unlink(index);
            self.append(index, now_us);
            return Verdict::Ack;
        }
        if seg.len() > 0 || seg.seq != entry.rcv_nxt {
            return Verdict::Ack;
        }
        Verdict::Drop
    }
}

impl Entry {
    /// RFC 6191: a later timestamp, or a later number, cannot be an old duplicate.
    fn may_reopen(&self, seg: &Segment) -> bool {
        let later = match seg.options.timestamps {
            Some((value, _)) if self.has_timestamps => after(value, self.ts_recent),
            _ => false,
        };
        !seg.has(crate::wire::tcp::ACK) && (later || after(seg.seq, self.rcv_nxt))
    }
}
