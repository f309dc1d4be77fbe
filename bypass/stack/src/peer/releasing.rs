//! How ends of connections are given up, by who holds them or because they have died.

use core::sync::atomic::Ordering;

use bypass_shm::holders::{self, Holders};
use bypass_shm::layout::{ProducerLine, Slot, CLOSED, CLOSING, FIN, LATE, PROCESSES, QUEUED, RST};
use bypass_stats::{Counter, Reason};

use super::{due, ring_listeners, Notice, Peer};
use crate::process;

/// How a socket waits for what the other side does, by what this process alone knows.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    /// A ready list plus one; 0 for none, and where another process may have moved it.
    pub ready_list: u32,
    /// The last look of the program has found that the other side's direction has ended.
    pub knows_end: bool,
}

impl Peer {
    /// Gives up our end of `slot`; the last holder writes `ends` before anybody can reuse it.
    pub fn let_go(&self, slot: usize, ends: u32) {
        self.let_go_as(slot, self.process_index(), ends);
        if self.side == 0 {
            self.return_slot(slot);
        }
    }

    /// The same for process `index` of our side.
    pub(super) fn let_go_as(&self, slot: usize, index: usize, ends: u32) {
        let place = self.segment.slot(slot);
        if let Some(before) = drop_holder(place, self.side, index, ends) {
            // The close of an end that was shut before sends nothing in TCP, unless it resets the connection.
            let is_news = before & FIN == 0 || ends & RST != 0;
            if is_news || self.segment.is_over_packets() {
                self.ring(slot, Notice::Bytes);
                self.ring(slot, Notice::Room);
            }
            self.give_memory_back(slot);
            holders::forget(&place.meta.holders[self.side], index);
        }
    }

    /// The other side has forged what it says of `slot`: the connection is reset.
    #[cold]
    pub fn condemn(&self, slot: usize) {
        process::fall_back(Reason::PeerProtocol);
        let [ours, theirs] =
            [self.side, 1 - self.side].map(|side| &self.segment.slot(slot).producer[side].ends);
        theirs.fetch_or(RST | CLOSED, Ordering::SeqCst);
        ours.fetch_or(RST, Ordering::SeqCst);
    }

    /// A connection that was taken from the queue is to be socket `index`. False where a socket of ours lives in `slot`: its
    /// end is given up before the slot is used again, so the client does not keep the rules. Of two sockets no set would be
    /// notified of the first any more, and after the close of one neither would end with the client.
    pub fn enter(&self, slot: usize, index: usize, waiting: impl Fn(usize) -> Waiting) -> bool {
        let (place, word) = (&self.sockets[self.segment.clamp(slot)], index as u32 + 1);
        let entered = place.compare_exchange(0, word, Ordering::SeqCst, Ordering::Relaxed);
        if entered.is_err() {
            self.condemn(slot);
            self.put_place_back(slot, &waiting);
            self.ring_ourselves(slot);
        }
        entered.is_ok()
    }

    /// Called before the last holder of an end goes: if the other end is closed too, no process reads the
    /// connection's memory any more, and its slot is not yet used for another connection.
    fn give_memory_back(&self, slot: usize) {
        let other = &self.segment.slot(slot).meta.holders[1 - self.side];
        let holders = other.load(Ordering::SeqCst);
        let is_over = holders == 0 || holders & CLOSING != 0;
        if is_over && self.segment.give_back_extents(slot) {
            due::begin();
        }
    }

    /// Process `number` at place `index` of the other side has ended: what it alone held is over.
    /// A process may have several links, and its place may be another's when the last of them ends.
    pub fn reap(&self, index: usize, number: u64) {
        let other = 1 - self.side;
        if index >= PROCESSES || self.segment.process(other, index) != number {
            return;
        }
        process::count(Counter::PeerDeaths, 1);
        let used = self.segment.slots_used();
        let mut waiting = Vec::new();
        for slot in 0..used {
            if self.is_waiting(slot, index) {
                waiting.push(slot);
            } else {
                self.reap_slot(slot, index);
            }
        }
        self.segment.leave(other, index);
        // One that was accepted meanwhile, by who still found the process there.
        for slot in waiting {
            if self.segment.process(other, index) == 0 && !self.is_waiting(slot, index) {
                self.reap_slot(slot, index);
            }
        }
        // A connection may have woken that process alone, as one of several.
        if other == 1 && self.segment.queue().waiting() > 0 && !self.segment.is_kept() {
            ring_listeners(&self.segment);
        }
    }

    /// Whether a connection that process `index` of the other side has is yet to be accepted: whoever accepts it
    /// looks too.
    fn is_waiting(&self, slot: usize, index: usize) -> bool {
        let holders = &self.segment.slot(slot).meta.holders;
        holders[self.side].load(Ordering::SeqCst) & QUEUED != 0
            && Holders(holders[1 - self.side].load(Ordering::SeqCst)).has(index)
    }

    /// Process `index` of the other side has ended. Connections of other processes of our side are updated, too: its
    /// place is free at once, and later processes cannot find out who it was.
    fn reap_slot(&self, slot: usize, index: usize) {
        let (ours, other) = (self.side, 1 - self.side);
        let place = self.segment.slot(slot);
        let holders = place.meta.holders[ours].load(Ordering::SeqCst);
        if holders & QUEUED != 0 {
            return;
        }
        let ends = self.ends_of_dead(slot, holders);
        // One that had closed has announced all that it did.
        let has_held = Holders(place.meta.holders[other].load(Ordering::SeqCst)).has(index);
        let is_over = drop_holder(place, other, index, ends).is_some();
        if is_over {
            // We have closed and the dead process had not: no other process gives back what it held.
            if holders == 0 && self.segment.give_back_extents(slot) {
                due::begin();
            }
            holders::forget(&place.meta.holders[other], index);
        }
        if has_held && (self.socket(slot).is_some() || is_over && holders != 0) {
            self.ring_ourselves(slot);
        }
    }

    /// How a connection ends whose last process on the other side has ended, with `holders` on ours: what it has not read
    /// resets it, as in the kernel, and so does SO_LINGER without a time.
    fn ends_of_dead(&self, slot: usize, holders: u64) -> u32 {
        let unread = self.segment.ring(slot, self.side).available(usize::MAX);
        match holders == 0 || unread == Ok(0) && !self.is_aborted(slot) {
            true => FIN,
            false => RST,
        }
    }

    /// Whether the other side's end is to reset the connection in `slot`, which has not ended in both directions before.
    fn is_aborted(&self, slot: usize) -> bool {
        let sides = &self.segment.slot(slot).producer;
        let has_ended = |side: &ProducerLine| side.ends.load(Ordering::SeqCst) & FIN != 0;
        let aborts = sides[1 - self.side].aborts.load(Ordering::Relaxed) != 0;
        aborts && !sides.iter().all(has_ended)
    }

    /// Whether no process of the other side is left.
    pub fn is_alone(&self) -> bool {
        self.segment.processes(1 - self.side).next().is_none()
    }

    /// No process of the other side is left: whatever it wrote about its holders, all is over.
    pub fn reap_rest(&self, waiting: impl Fn(usize) -> Waiting) {
        let slots = self.segment.slots() as u32;
        self.segment
            .header()
            .slots_used
            .store(slots, Ordering::SeqCst);
        // Before the look at the slots: an accept meanwhile ends its own connection.
        self.is_losing_others.store(true, Ordering::SeqCst);
        for slot in self.occupied() {
            self.end_rest(slot, &waiting);
        }
        // After it: a reader would take an end for one in order whose reset is yet to be written.
        self.has_lost_others.store(true, Ordering::SeqCst);
    }

    /// The same for the connection in `slot`.
    fn end_rest(&self, slot: usize, waiting: impl Fn(usize) -> Waiting) {
        let other = 1 - self.side;
        let place = self.segment.slot(slot);
        let left = place.meta.holders[other].swap(0, Ordering::SeqCst);
        let ends = &place.producer[other].ends;
        // An end that was closed in order has said so. That no process holds it proves nothing: the client wrote it.
        let is_news = left & !QUEUED != 0 || ends.load(Ordering::SeqCst) & CLOSED == 0;
        if is_news {
            let holders = place.meta.holders[self.side].load(Ordering::SeqCst);
            write_ends(place, other, self.ends_of_dead(slot, holders));
        }
        // Nor has one been announced because it is written.
        let is_known = self.socket(slot).is_some_and(|own| waiting(own).knows_end);
        if self.put_place_back(slot, &waiting) || is_news || !is_known {
            self.ring_ourselves(slot);
        }
    }

    /// Makes the other side's last word on where our end of `slot` waits what this process knows of it; whether it was
    /// another.
    fn put_place_back(&self, slot: usize, waiting: impl Fn(usize) -> Waiting) -> bool {
        let known = self.socket(slot).map_or(0, |own| waiting(own).ready_list);
        let place = &self.segment.slot(slot).meta.ready_list[self.side];
        known != 0 && place.swap(known, Ordering::SeqCst) != known
    }

    /// A connection is accepted: what processes of its client that have ended meanwhile alone held is over.
    pub fn reap_in(&self, slot: usize, waiting: impl Fn(usize) -> Waiting) {
        let other = 1 - self.side;
        let place = self.segment.slot(slot);
        let word = &place.meta.holders[other];
        for index in Holders(word.load(Ordering::SeqCst)).processes() {
            let is_gone = self.segment.process(other, index) == 0;
            let ends = if self.is_aborted(slot) { RST } else { FIN };
            if is_gone && drop_holder(place, other, index, ends).is_some() {
                holders::forget(word, index);
            }
        }
        if self.is_losing_others.load(Ordering::SeqCst) {
            // The others have been ended, or are by who has said so.
            self.end_rest(slot, waiting);
        } else if self.is_stale.load(Ordering::SeqCst) && self.is_alone() {
            self.reap_rest(waiting);
        }
    }

    /// The listener is gone for good: connections of this process that were not accepted are reset. Between network
    /// namespaces the kernel does so, or another process has its listener.
    pub fn reset_unaccepted(&self, is_across: impl Fn(usize) -> bool) {
        for slot in self.occupied() {
            if self.socket(slot).is_none_or(&is_across) {
                continue;
            }
            let place = self.segment.slot(slot);
            let holders = &place.meta.holders[1];
            let took = holders.compare_exchange(QUEUED, 0, Ordering::SeqCst, Ordering::Relaxed);
            if took.is_ok() {
                place.producer[1]
                    .ends
                    .fetch_or(RST | CLOSED, Ordering::SeqCst);
                self.ring_ourselves(slot);
            }
        }
    }
}

/// Takes process `index` away. When it was the last, which has then written `ends` and must be
/// [forgotten](holders::forget): the ends as they were.
fn drop_holder(place: &Slot, side: usize, index: usize, ends: u32) -> Option<u32> {
    if !holders::leave(&place.meta.holders[side], index) {
        return None;
    }
    Some(write_ends(place, side, ends))
}

/// A side has closed, with `ends`: the ends as they were.
fn write_ends(place: &Slot, side: usize, ends: u32) -> u32 {
    let written = &place.producer[side].ends;
    let add = |before: u32| {
        let is_late = before & (FIN | RST) == FIN && ends & RST != 0;
        Some(before | ends | CLOSED | if is_late { LATE } else { 0 })
    };
    let before = written.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
    before.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bypass_shm::segment::Segment;

    use super::*;

    const NOTHING_KNOWN: Waiting = Waiting {
        ready_list: 0,
        knows_end: false,
    };

    /// How a connection has ended whose client ends when a thread of ours has just accepted it, which has written `answer`.
    fn ends_after(answer: &[u8]) -> u32 {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        segment.header().slots_used.store(1, Ordering::SeqCst);
        segment.slot(0).meta.holders[0].store(1, Ordering::SeqCst);
        let peer = Peer::join(segment, 1, 1).expect("a place");
        let holders = &peer.segment.slot(0).meta.holders[1];
        holders.store(peer.alone(), Ordering::SeqCst);
        peer.set_socket(0, Some(5));
        let written = peer.segment.ring(0, 1).push_slice(answer);
        assert_eq!(written, Ok(answer.len()));
        peer.reap_rest(|_| NOTHING_KNOWN);
        peer.set_socket(0, None);
        super::super::forget(&peer);
        peer.segment.slot(0).producer[0].ends.load(Ordering::SeqCst)
    }

    #[test]
    fn a_client_that_ends_while_it_is_accepted_resets_only_what_it_has_not_read() {
        assert_eq!(ends_after(b""), FIN | CLOSED);
        assert_eq!(ends_after(b"answer"), RST | CLOSED);
    }

    #[test]
    fn an_accept_after_the_end_of_a_client_ends_that_connection_alone() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let peer = Peer::join(segment, 1, 1).expect("a place");
        peer.set_socket(0, Some(5));
        peer.reap_rest(|_| NOTHING_KNOWN);
        peer.set_socket(1, Some(6));
        let looked_at = std::cell::RefCell::new(Vec::new());
        peer.reap_in(1, |own| {
            looked_at.borrow_mut().push(own);
            NOTHING_KNOWN
        });
        let mut looked_at = looked_at.into_inner();
        looked_at.dedup();
        assert_eq!(looked_at, [6]);
        let ends = peer.segment.slot(1).producer[0].ends.load(Ordering::SeqCst);
        assert_eq!(ends, FIN | CLOSED);
        peer.set_socket(0, None);
        peer.set_socket(1, None);
        super::super::forget(&peer);
    }

    #[test]
    fn no_end_is_read_before_it_is_written_nor_missed_by_an_accept_meanwhile() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let peer = Peer::join(segment, 1, 1).expect("a place");
        peer.set_socket(1, Some(5));
        peer.set_socket(2, Some(5));
        peer.reap_rest(|_| {
            assert!(!peer.has_lost_others.load(Ordering::SeqCst));
            // Another process that maps the memory writes a number, so that the client seems to live.
            peer.segment.header().processes[0][0].store(7, Ordering::SeqCst);
            peer.set_socket(0, Some(6));
            peer.reap_in(0, |_| NOTHING_KNOWN);
            NOTHING_KNOWN
        });
        assert!(peer.has_lost_others.load(Ordering::SeqCst));
        let ends_of = |slot| {
            peer.segment.slot(slot).producer[0]
                .ends
                .load(Ordering::SeqCst)
        };
        assert_eq!([0, 1, 2].map(ends_of), [FIN | CLOSED; 3]);
        (0..3).for_each(|slot| peer.set_socket(slot, None));
        super::super::forget(&peer);
    }
}
