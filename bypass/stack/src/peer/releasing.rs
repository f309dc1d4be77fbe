//! How ends of connections are given up, by who holds them or because they have died.

use core::sync::atomic::Ordering;

use bypass_shm::layout::{CLOSED, FIN, PROCESSES, RST};
use bypass_stats::Counter;

use super::{due, ring_listeners, Notice, Peer, NO_PLACE};
use crate::process;

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
        if let Some(before) = self.leave(slot, self.side, index, ends) {
            self.end(slot, index, (before, ends));
        }
    }

    /// The end of `slot` that process `index` of our side has written, where there was `before`.
    fn end(&self, slot: usize, index: usize, (before, ends): (u32, u32)) {
        // The close of an end that was shut before sends nothing in TCP, unless it resets the connection.
        let is_news = before & FIN == 0 || ends & RST != 0;
        if is_news || self.segment.is_over_packets() {
            self.ring(slot, Notice::Bytes);
            self.ring(slot, Notice::Room);
        }
        self.give_memory_back(slot);
        self.segment.holders(slot, self.side).end(index);
    }

    /// Process `index` shares our end of `slot` from now on, on behalf of holder `by`, or of any; false if that does not
    /// hold it any more.
    pub fn share(&self, slot: usize, by: Option<usize>, index: usize) -> bool {
        let is_shared = self.segment.share(slot, self.side, by, index);
        if !is_shared && self.segment.holders(slot, self.side).retract(index) {
            let before = self.write_end(slot, self.side, FIN);
            self.end(slot, index, (before, FIN));
        }
        is_shared
    }

    /// Takes process `index` of `side` away from an end. If it was the last, which has then written `ends` and must call
    /// [`Holders::end`](bypass_shm::holders::Holders::end): the ends as they were.
    fn leave(&self, slot: usize, side: usize, index: usize, ends: u32) -> Option<u32> {
        let is_last = self.segment.holders(slot, side).leave(index);
        is_last.then(|| self.write_end(slot, side, ends))
    }

    fn write_end(&self, slot: usize, side: usize, ends: u32) -> u32 {
        let written = &self.segment.slot(slot).producer[side].ends;
        written.fetch_or(ends | CLOSED, Ordering::SeqCst)
    }

    /// Called before the last holder of an end goes: if the other end is closed too, no process reads the
    /// connection's memory any more, and its slot is not yet used for another connection.
    fn give_memory_back(&self, slot: usize) {
        let other = self.segment.holders(slot, 1 - self.side);
        if (other.is_over() || other.is_closing()) && self.segment.give_back_extents(slot) {
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
        if self.side == 0 && self.segment.queue().waiting() > 0 {
            // It may have been one of the few that were woken for a connection.
            ring_listeners(&self.segment);
        }
        // One that was accepted meanwhile, by who still found the process there.
        for slot in waiting {
            if self.segment.process(other, index) == 0 && !self.is_waiting(slot, index) {
                self.reap_slot(slot, index);
            }
        }
    }

    /// Whether a connection that process `index` of the other side holds is yet to be accepted: whoever accepts it
    /// looks too.
    fn is_waiting(&self, slot: usize, index: usize) -> bool {
        self.segment.holders(slot, 1 - self.side).has(index)
            && self.segment.holders(slot, self.side).is_queued()
    }

    /// Process `index` of the other side has ended. Connections of other processes of our side
    /// are updated, too: its place is free at once, and later processes cannot find out whose the index was.
    fn reap_slot(&self, slot: usize, index: usize) {
        let (ours, other) = (self.side, 1 - self.side);
        let (holders, dead) = (
            self.segment.holders(slot, ours),
            self.segment.holders(slot, other),
        );
        if holders.is_queued() {
            return;
        }
        let is_closed = holders.is_over();
        let unread = self.segment.ring(slot, ours).available(usize::MAX);
        let ends = if is_closed || unread == Ok(0) {
            FIN
        } else {
            RST
        };
        // One that had closed has announced all that it did.
        let has_held = dead.has(index);
        let is_over = self.leave(slot, other, index, ends).is_some();
        if is_over {
            // We have closed and the dead process had not: no other process gives back what it held.
            if is_closed && self.segment.give_back_extents(slot) {
                due::begin();
            }
            dead.end(index);
        }
        if has_held && (self.socket(slot).is_some() || is_over && !is_closed) {
            self.ring_ourselves(slot);
        }
    }

    /// No process of the other side is left: whatever it wrote about its holders, all is over.
    pub fn reap_rest(&self) {
        let other = 1 - self.side;
        for slot in self.occupied() {
            let place = self.segment.slot(slot);
            let holders = self.segment.holders(slot, other);
            let is_left = !holders.is_over() && !holders.is_queued();
            holders.clear();
            if is_left {
                place.producer[other]
                    .ends
                    .fetch_or(RST | CLOSED, Ordering::SeqCst);
                self.ring_ourselves(slot);
            }
        }
    }

    /// A connection is accepted: what processes of its client that have ended meanwhile alone held is over.
    pub fn reap_in(&self, slot: usize) {
        let other = 1 - self.side;
        let is_gone = |index: usize| self.segment.process(other, index) == 0;
        let holders = self.segment.holders(slot, other);
        // Last for a process that has taken itself away, and was killed before it could end the connection.
        let gone = holders.each().filter(|index| is_gone(*index));
        for index in gone.chain([NO_PLACE]) {
            if self.leave(slot, other, index, FIN).is_some() {
                holders.end(index);
            }
        }
        let mut others = 0..self.segment.processes_used(other);
        if self.is_stale.load(Ordering::SeqCst) && others.all(is_gone) {
            self.reap_rest();
        }
    }

    /// The listener is gone for good: connections that were not accepted are reset.
    pub fn reset_unaccepted(&self) {
        for slot in self.occupied() {
            let place = self.segment.slot(slot);
            if self.segment.holders(slot, 1).withdraw() {
                place.producer[1]
                    .ends
                    .fetch_or(RST | CLOSED, Ordering::SeqCst);
                self.ring_ourselves(slot);
            }
        }
    }
}
