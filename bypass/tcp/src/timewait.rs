//! TIME_WAIT as compact entries: bounded in number, first in, first out (RFC 9293, 3.4.2; RFC 6191;
//! RFC 1337).

use crate::config::Config;
use crate::conn::Conn;
use crate::input::may_answer_invalid;
use crate::seq::after;
use crate::slab::Slab;
use crate::wire::tcp::{Flow, Segment, ACK, FIN, RST, SYN};

const NONE: u32 = u32::MAX;
/// The slowest clock of timestamps moves on in this time (RFC 7323, 5.4).
const CLOCK_US: u64 = 1_000_000;

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
    /// When a segment without bytes was last answered; zero for never.
    answered_us: u64,
    /// A SYN that may be old was answered: a peer that knows nothing of the connection resets it.
    has_answered_syn: bool,
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
    /// The peer has a use for the flow, and knows nothing of the old connection: the entry goes.
    End,
}

/// All entries, the oldest first.
pub struct TimeWaits {
    slab: Slab<Entry>,
    head: u32,
    tail: u32,
    life_us: u64,
    answer_pause_us: u64,
}

impl TimeWaits {
    /// None.
    pub fn new(config: &Config) -> TimeWaits {
        TimeWaits {
            slab: Slab::new(config.time_wait_max.max(1)),
            head: NONE,
            tail: NONE,
            life_us: config.time_wait_us,
            answer_pause_us: config.invalid_pause_us,
        }
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.slab.in_use()
    }

    /// Every flow, the oldest first.
    pub fn flows(&self) -> impl Iterator<Item = &Flow> {
        let mut next = self.head;
        core::iter::from_fn(move || {
            let entry = (next != NONE).then(|| &self.slab[next])?;
            next = entry.next;
            Some(&entry.flow)
        })
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

    /// Whether a new connection of ours may take the place of an entry: timestamps must distinguish their segments
    /// apart, so that the peer's clock has moved on (as Linux's tcp_twsk_unique).
    pub fn may_give_way(&self, index: u32, now_us: u64) -> bool {
        let entry = &self.slab[index];
        let since_us = entry.expires_us - self.life_us;
        entry.has_timestamps && now_us - since_us >= CLOCK_US
    }

    /// A segment for an entry (RFC 9293, 3.10.7.4, TIME-WAIT).
    pub fn on_segment(&mut self, index: u32, seg: &Segment, now_us: u64) -> Verdict {
        let entry = &mut self.slab[index];
        if seg.has(RST) {
            // RFC 1337: it must not end TIME_WAIT early, unless we have asked for it.
            let is_asked_for = entry.has_answered_syn && seg.seq == entry.rcv_nxt;
            return if is_asked_for {
                Verdict::End
            } else {
                Verdict::Drop
            };
        }
        if seg.has(SYN) {
            if entry.may_reopen(seg) {
                return Verdict::Reopen(entry.next_iss());
            }
            entry.has_answered_syn |= !seg.has(ACK | FIN);
            return self.answer(index, now_us);
        }
        if !seg.has(ACK) {
            // RFC 9293, 3.10.7.4, fifth: no segment of a connection is without.
            return Verdict::Drop;
        }
        if seg.len() == 0 {
            return match seg.seq == entry.rcv_nxt {
                true => Verdict::Drop,
                false => self.answer(index, now_us),
            };
        }
        if seg.has(FIN) && seg.end() == entry.rcv_nxt {
            self.unlink(index);
            self.append(index, now_us);
        }
        // A segment with bytes or a FIN is sent again until it is acknowledged, and does not answer ours.
        Verdict::Ack
    }

    /// A possible answer to one of ours is answered twice a second only, so that two confused ends do
    /// not answer each other for ever (Linux's tcp_invalid_ratelimit).
    pub fn answer(&mut self, index: u32, now_us: u64) -> Verdict {
        let answered_us = &mut self.slab[index].answered_us;
        match may_answer_invalid(answered_us, now_us, self.answer_pause_us) {
            true => Verdict::Ack,
            false => Verdict::Drop,
        }
    }
}

impl Entry {
    /// Our first number in a connection after this one: beyond the largest window that it could have had in flight
    /// without scaling, as Linux has it.
    pub fn next_iss(&self) -> u32 {
        self.snd_nxt.wrapping_add(0x1_0001)
    }

    /// RFC 6191, 2: a later timestamp, or with the same one or none a later number, cannot be an old duplicate.
    fn may_reopen(&self, seg: &Segment) -> bool {
        let timestamp = seg.options.timestamps.filter(|_| self.has_timestamps);
        let is_new = match timestamp {
            Some((value, _)) if value != self.ts_recent => after(value, self.ts_recent),
            _ => after(seg.seq, self.rcv_nxt),
        };
        // One with FIN opens nothing.
        !seg.has(ACK | FIN) && is_new
    }
}
