//! Places of the listener's side: each process that holds a connection of a segment has one, and a child for each
//! connection soon has them all.

use core::sync::atomic::Ordering;
use core::time::Duration;

use bypass_shm::holders::Holders;
use bypass_shm::layout::PROCESSES;
use bypass_sys::clock::now_ns;
use bypass_sys::kernel;

use super::Peer;
use crate::process;

/// Places that are kept for children of connections that are there and have none yet.
const PLACES_KEPT: usize = 6;
/// Places that a connection may need which waits and will get a child: ncat's makes another, which is a shell, which
/// starts programs, and each has the connection.
const PLACES_EACH: usize = 4;
/// How long a connection waits for the end of a child that serves another one: what a client that has no answer
/// may wait before it asks again, which the kernel then serves.
const DELAY_MAX_NS: u64 = 3_000_000_000;
/// Between looks whether a listener has shown what it does with its connections.
const SHOW_LOOK_MS: u64 = 1;

impl Peer {
    /// Whether a connection waits and is to be left there until a child of this process, or another relative, has ended: they have
    /// all places but our own, so a child for it would find none. Not for ever: its client may do without.
    pub fn must_wait_for_children(&self) -> bool {
        if self.side == 0 || !self.segment.has_forked() || self.segment.queue().waiting() == 0 {
            return false;
        }
        if self.is_stale.load(Ordering::Relaxed) || !self.is_full_of_relatives() {
            self.delayed_ns.store(0, Ordering::Relaxed);
            return false;
        }
        let now = now_ns();
        let first = self
            .delayed_ns
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        now.saturating_sub(first.unwrap_or_else(|since| since)) < DELAY_MAX_NS
    }

    fn is_full_of_relatives(&self) -> bool {
        let own = self.process_index();
        self.relatives().is_some_and(|places| {
            let is_relatives = |(index, number): &(usize, u64)| {
                *index == own || *number == places[*index].load(Ordering::Relaxed)
            };
            let of_relatives = self.segment.processes(self.side).filter(is_relatives);
            of_relatives.count() == PROCESSES
        })
    }

    /// Whether a new connection would be one too many for the places of the listener's side, and must go
    /// another segment's way.
    pub fn is_short_of_places(&self) -> bool {
        self.lacks_places() || self.may_starve()
    }

    /// The same where the alternative is the kernel, for the lifetime of the connection: a listener that is about to
    /// show what it does with its connections is given up to `patience_ms` for it, once.
    pub fn stays_short_of_places(&self, patience_ms: u64) -> bool {
        while self.lacks_places() {
            // One that is our own process shows nothing while it connects: it is believed.
            if self.is_our_own_listener() {
                return !self.is_proof_expected() || self.may_starve();
            }
            if !self.may_show_more() || self.has_waited_ms.load(Ordering::Relaxed) >= patience_ms {
                return true;
            }
            self.has_waited_ms
                .fetch_add(SHOW_LOOK_MS, Ordering::Relaxed);
            let look = Duration::from_millis(SHOW_LOOK_MS);
            let _ = kernel::poll(&mut [], Some(look), None);
        }
        self.may_starve()
    }

    /// Whether the listener's process will soon have shown that it needs no places for children: it waits in an epoll
    /// set and has not forked, or has served connections without a child before it did.
    fn may_show_more(&self) -> bool {
        self.is_proof_expected() || self.segment.has_forked() && self.segment.is_proven()
    }

    /// Whether a new connection would be one too many only until the listener's process has shown that it makes no child
    /// for each.
    pub fn may_still_show(&self) -> bool {
        !self.segment.has_forked() && self.would_burst()
    }

    fn is_proof_expected(&self) -> bool {
        self.segment.is_proof_expected() && !self.segment.has_forked()
    }

    fn is_our_own_listener(&self) -> bool {
        self.segment.index_of(1, process::number()).is_some()
    }

    /// Whether there may soon be no place for the children that a process of the listener's side makes.
    fn lacks_places(&self) -> bool {
        if !self.segment.has_forked() {
            return self.would_burst();
        }
        let left = self.segment.places_left(1);
        if left < PLACES_KEPT {
            return true;
        }
        let waiting = self.segment.queue().waiting();
        if left >= PLACES_KEPT + PLACES_EACH * waiting {
            return false;
        }
        // If the listener forks for each connection rather than now and then, waiting connections get a child, too.
        // The one that was accepted last may not have its child yet.
        let children = PROCESSES - left;
        2 * children >= self.occupied().count().saturating_sub(waiting)
    }

    /// Whether more would wait than have a place, should the listener's process make a child for each of them: it has
    /// not shown yet that it does not.
    fn would_burst(&self) -> bool {
        let places = PLACES_EACH * self.segment.queue().waiting();
        !self.segment.is_proven() && places >= PROCESSES - PLACES_KEPT
    }

    /// Whether this process serves more than one connection, or has served one, without a child: called
    /// when it has accepted or ended one, and no process has shown it yet.
    pub fn shows_no_children(&self, has_ended: bool) -> bool {
        let is_there = |slot: &usize| self.socket(*slot).is_some();
        let serves_two = || {
            (0..self.segment.slots_used())
                .filter(is_there)
                .nth(1)
                .is_some()
        };
        !self.segment.has_forked() && (has_ended || serves_two())
    }

    /// Whether connections wait that a child of this process may accept. Where each of them may get a child of its own,
    /// they keep the places for that: this one may be for a connection of the kernel's, or of another segment.
    pub fn has_waiting_for_child(&self) -> bool {
        let waiting = self.segment.queue().waiting();
        let serves_by_itself = self.segment.is_proven() && !self.segment.has_forked();
        let is_roomy = || self.segment.places_left(1) >= PLACES_KEPT + PLACES_EACH * waiting;
        self.side == 1 && waiting > 0 && (serves_by_itself || is_roomy())
    }

    /// Whether a new connection could wait for ever: all who can accept it are busy with one each, and
    /// idle processes of the listener have no place here.
    fn may_starve(&self) -> bool {
        if self.segment.places_left(1) > 0 {
            return false;
        }
        let (mut busy, mut accepted) = ([false; PROCESSES], 0);
        for slot in self.occupied() {
            let holders = self.segment.slot(slot).meta.holders[1].load(Ordering::Relaxed);
            let mut serving = Holders(holders).processes().peekable();
            accepted += usize::from(serving.peek().is_some());
            if serving.any(|process| core::mem::replace(&mut busy[process], true)) {
                // It serves several at once, and so takes more.
                return false;
            }
        }
        accepted + self.segment.queue().waiting() >= PROCESSES - PLACES_KEPT
    }
}
