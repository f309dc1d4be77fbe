//! Quiet segments: a look does not go through them.
//!
//! A look costs some cache lines for each segment, and a server may have one of each of hundreds of client processes. Where no
//! peer has rung for a while, the set does what it does before a sleep: it says in its ready list that it sleeps, passes a
//! fence and looks once more. The next peer that rings there writes to a second waker, which is in the kernel set as well.
//! Then the segments that rang are found by one load for each, and looks go through them again.

use bypass_sys::clock::{ticks, ticks_in};
use bypass_sys::sandbox::is_confined;

use super::members::new_waker;
use super::*;
use crate::listener::Rung;
use crate::process::wakers::LEFT_TO_PROGRAM;

/// Names the waker of quiet segments among the events of a kernel set.
pub(super) const WAKER_DATA: u64 = 0x5753_7175_6965_7431;
/// So many segments cost a look little: they are never set aside.
const LOOKED_AT: usize = 8;
/// A segment in which no peer rings for so long, or up to twice as long, is set aside.
const QUIET_US: u64 = 10_000;
/// The waker is looked at this often while the set is.
const WAKER_LOOK_US: u64 = 10;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    pub places: Vec<Place>,
    pub waker: Option<Waker>,
    /// When the waker was last looked at, and when quiet segments were last looked for, in the clock's ticks.
    looked: u64,
    sought: u64,
    /// Places were taken up, of which threads that sleep on the set do not know yet.
    has_taken_up: bool,
}

impl Quiet {
    fn is_search_due(&self, now: u64) -> bool {
        now.wrapping_sub(self.sought) >= ticks_in(QUIET_US)
    }

    fn is_look_due(&self, now: u64) -> bool {
        let is_late = || now.wrapping_sub(self.looked) >= ticks_in(WAKER_LOOK_US);
        !self.places.is_empty() && is_late()
    }
}

impl Place {
    /// Whether everyone who may ring here wakes us, and nothing waits that was rung for before.
    fn may_rest(&self) -> bool {
        let listening = self.ready_list().listening.load(Ordering::SeqCst);
        // Of several processes only one that truly sleeps is to be chosen.
        let is_in_turn = listening == Rung::InTurn as u32;
        let has_silent = || (0..2).any(|side| self.peer.segment.has_silent(side));
        !is_in_turn && !self.has_waiting() && !has_silent()
    }

    fn has_rung_aside(&self) -> bool {
        self.ready_list().has_rung_aside()
    }
}

impl Inner {
    /// Before a look: takes up what has rung, and now and then sets aside what has not.
    #[inline]
    pub(super) fn tend_quiet(&mut self, set: &Set) {
        if !self.is_crowded() {
            return;
        }
        let now = ticks();
        if self.quiet.is_search_due(now) {
            self.quiet.sought = now;
            self.seek_quiet(set);
        } else if self.quiet.is_look_due(now) {
            self.quiet.looked = now;
            self.hear_quiet();
        }
    }

    /// Whether [`Self::tend_quiet`] has something to do.
    #[inline]
    pub(super) fn is_quiet_due(&self) -> bool {
        let is_due = |now| self.quiet.is_search_due(now) || self.quiet.is_look_due(now);
        self.is_crowded() && is_due(ticks())
    }

    /// Whether the set has places that are set aside, or may be.
    #[inline]
    fn is_crowded(&self) -> bool {
        self.places.len() > LOOKED_AT || !self.quiet.places.is_empty()
    }

    /// Takes the wake-ups of quiet segments, and takes up the segments that have rung.
    pub(super) fn hear_quiet(&mut self) {
        let Some(waker) = self.quiet.waker.as_ref().filter(|waker| waker.take()) else {
            return;
        };
        waker.drain();
        // A peer that found the waker's queue full sent nothing: its ring is seen now.
        fence(Ordering::SeqCst);
        self.take_up(0, Place::has_rung_aside);
    }

    #[cold]
    fn seek_quiet(&mut self, set: &Set) {
        if set.is_shared.load(Ordering::Relaxed) {
            // The process that has the kernel's part too would be woken by our waker, again and again until we look.
            return self.take_up(0, |_| true);
        }
        // Also where the wake-up got lost, for want of a descriptor.
        self.take_up(0, |place| place.has_rung_aside() || !place.may_rest());
        let Some(waker) = self.quiet_waker(set) else {
            return;
        };
        let before = self.quiet.places.len();
        let spare = self.places.len().saturating_sub(LOOKED_AT);
        let is_quiet =
            |place: &mut Place| !core::mem::take(&mut place.has_rung) && place.may_rest();
        let quiet = self.places.extract_if(.., is_quiet).take(spare);
        self.quiet
            .places
            .extend(quiet.inspect(|place| place.ready_list().set_aside(waker)));
        if self.quiet.places.len() > before {
            barrier::heavy();
            let is_heard = |place: &Place| {
                let has_bytes = place.is_ringing() || place.ready_list().is_held_back();
                has_bytes || place.has_rung_aside() || !place.may_rest()
            };
            self.take_up(before, is_heard);
        }
    }

    /// The number of the waker; None where there is none to be had, or not for this.
    fn quiet_waker(&mut self, set: &Set) -> Option<u32> {
        if self.places.len() <= LOOKED_AT || self.waker.is_none() {
            return None;
        }
        let may_make = || !is_confined() && kernel::has_descriptors_left(LEFT_TO_PROGRAM);
        if self.quiet.waker.is_none() && may_make() {
            self.quiet.waker = new_waker(set, WAKER_DATA).ok();
        }
        self.quiet.waker.as_ref().map(Waker::number)
    }

    /// Of quiet places from number `from` on, looks go through those again that `is_heard` says.
    fn take_up(&mut self, from: usize, is_heard: impl Fn(&Place) -> bool) {
        let Some(waker) = self.waker.as_ref().map(Waker::number) else {
            return;
        };
        let count = self.places.len();
        let heard = self
            .quiet
            .places
            .extract_if(from.., |place| is_heard(place));
        self.places.extend(heard.map(|mut place| {
            place.has_rung = true;
            place.ready_list().take_up(waker);
            place
        }));
        self.quiet.has_taken_up |= self.places.len() > count;
    }

    /// A listener's segments have changed: connections may have come before we listened there.
    pub(super) fn take_up_listening(&mut self) {
        fence(Ordering::SeqCst);
        self.take_up(0, |place| !place.may_rest());
    }

    /// The end of a look that has found so many events: what has come in places that were taken up, if it found none.
    pub(super) fn collect_taken_up(
        &mut self,
        set: &Set,
        number: usize,
        out: &mut [libc::epoll_event],
        found: usize,
    ) -> usize {
        let mut found = found;
        if self.quiet.has_taken_up && found == 0 {
            self.drain(number);
            found = self.collect(out, 0);
        }
        self.arm_taken_up(set);
        found
    }

    /// Threads that sleep on the set, or on one around it, are woken by places that were taken up, too.
    pub(super) fn arm_taken_up(&mut self, set: &Set) {
        if core::mem::take(&mut self.quiet.has_taken_up) && set.is_awaited() {
            self.rearm(set);
        }
    }

    /// Before another process has the kernel set, too, which cannot take the wake-ups of quiet segments.
    pub(super) fn take_up_all(&mut self, set: &Set) {
        self.hear_quiet();
        self.take_up(0, |_| true);
        if core::mem::take(&mut self.quiet.has_taken_up) && set.is_awaited() {
            // A look for what is ready may need the lock of another set, which the caller holds.
            self.announce_sleep();
            set.kick();
        }
    }
}

#[cfg(test)]
mod tests {
    use bypass_shm::segment::Segment;
    use bypass_sys::numbers;

    use super::*;
    use crate::peer::Notice;

    const PLACES: usize = LOOKED_AT + 4;

    /// A set that lives in the segments of so many clients, and each client's part of one connection.
    fn crowded_set() -> (Set, Inner, Vec<Arc<Peer>>) {
        let set = Set::new();
        let epoll = numbers::high(|| kernel::epoll_create1(libc::EPOLL_CLOEXEC));
        let epoll = epoll.expect("a descriptor").into_raw();
        set.fd.store(epoll, Ordering::Relaxed);
        let mut inner = Inner::default();
        inner.need_waker(&set).expect("a waker");
        let enter = |_| {
            let segment = Segment::create(1, 64, 4096).expect("memory");
            let shared = kernel::dup(segment.fd()).expect("a descriptor") as i32;
            let client = Peer::join(segment, 0, 1).expect("a place");
            let segment = Segment::adopt(shared).expect("memory");
            let server = Peer::join(segment, 1, 1).expect("a place");
            let ready_list = inner.enter(server).expect("a ready list") as u32 + 1;
            let slot = client.take_slot().expect("a slot");
            let meta = &client.segment.slot(slot).meta;
            meta.ready_list[1].store(ready_list, Ordering::SeqCst);
            client
        };
        let clients = (0..PLACES).map(enter).collect();
        (set, inner, clients)
    }

    fn counts(inner: &Inner) -> (usize, usize) {
        (inner.places.len(), inner.quiet.places.len())
    }

    fn is_looked_at(inner: &Inner, client: &Peer) -> bool {
        let mut places = inner.places.iter();
        places.any(|place| place.peer.segment.id() == client.segment.id())
    }

    #[test]
    fn looks_leave_quiet_segments_out_until_somebody_rings_there() {
        let (set, mut inner, clients) = crowded_set();
        inner.seek_quiet(&set);
        assert_eq!(counts(&inner), (PLACES, 0));
        clients[0].ring(0, Notice::Bytes);
        inner.drain(0);
        inner.seek_quiet(&set);
        assert_eq!(counts(&inner), (LOOKED_AT, PLACES - LOOKED_AT));
        assert!(is_looked_at(&inner, &clients[0]));

        inner.hear_quiet();
        assert_eq!(counts(&inner), (LOOKED_AT, PLACES - LOOKED_AT));
        let mut quiet = clients.iter();
        let quiet = quiet.find(|client| !is_looked_at(&inner, client));
        let quiet = quiet.expect("a quiet client");
        quiet.ring(0, Notice::Bytes);
        inner.hear_quiet();
        assert_eq!(counts(&inner), (LOOKED_AT + 1, PLACES - LOOKED_AT - 1));
        assert!(is_looked_at(&inner, quiet) && inner.is_ringing());
    }

    #[test]
    fn a_ring_just_before_a_segment_is_set_aside_is_heard() {
        let (set, mut inner, clients) = crowded_set();
        inner.seek_quiet(&set);
        clients
            .iter()
            .for_each(|client| client.ring(0, Notice::Bytes));
        inner.seek_quiet(&set);
        assert_eq!(counts(&inner), (PLACES, 0));
    }

    #[test]
    fn a_lost_wake_up_is_made_up_for() {
        let (set, mut inner, _clients) = crowded_set();
        (0..2).for_each(|_| inner.seek_quiet(&set));
        // The ringer has died, or had no descriptor.
        let peer = inner.quiet.places[1].peer.clone();
        assert!(inner.quiet.places[1].ready_list().take_sleeper());
        inner.seek_quiet(&set);
        assert!(is_looked_at(&inner, &peer));
    }

    #[test]
    fn segments_are_looked_at_where_a_ring_would_not_do() {
        let (set, mut inner, _clients) = crowded_set();
        (0..2).for_each(|_| inner.seek_quiet(&set));
        // Connections are offered to one of several processes, a client confines itself, a connection waits.
        let quiet = &mut inner.quiet.places;
        quiet[0].listen(Rung::InTurn as u32);
        quiet[1].peer.segment.set_silent(0, 0);
        quiet[2].listen(1);
        assert!(quiet[2].peer.segment.queue().push(0));
        inner.take_up_listening();
        assert_eq!(counts(&inner), (PLACES - 1, 1));
        (0..2).for_each(|_| inner.seek_quiet(&set));
        assert_eq!(counts(&inner), (LOOKED_AT, PLACES - LOOKED_AT));
        let restless = inner.places.iter().filter(|place| !place.may_rest());
        assert_eq!(restless.count(), 3);

        // Another process has the kernel's part too.
        set.is_shared.store(true, Ordering::Relaxed);
        inner.seek_quiet(&set);
        assert_eq!(counts(&inner), (PLACES, 0));
    }

    #[test]
    fn a_client_that_confines_itself_in_a_quiet_segment_is_polled_for() {
        let (set, mut inner, _clients) = crowded_set();
        (0..2).for_each(|_| inner.seek_quiet(&set));
        assert!(inner.why_look_again(&set).is_none());
        inner.quiet.places[0].peer.segment.set_silent(0, 0);
        assert!(matches!(
            inner.why_look_again(&set),
            Some(Polling::Confined)
        ));
    }

    #[test]
    fn a_fork_leaves_no_segment_aside() {
        let (set, mut inner, _clients) = crowded_set();
        (0..2).for_each(|_| inner.seek_quiet(&set));
        inner.take_up_all(&set);
        assert_eq!(counts(&inner), (PLACES, 0));
    }
}
