//! The members of a set, and its doorbells in the segments where they live.

use super::*;
use crate::peer::SEEK_SLEEPS;

impl Inner {
    pub(super) fn find(&self, fd: i32, socket: usize) -> Option<usize> {
        let index = (*self.by_fd.get(fd as usize)? as usize).checked_sub(1)?;
        let member = self.members.get(index)?.as_ref()?;
        (member.fd == fd && member.socket == socket).then_some(index)
    }

    pub(super) fn insert(&mut self, member: Member) -> usize {
        let fd = member.fd as usize;
        let index = match self.free.pop() {
            Some(index) => index as usize,
            None => {
                self.members.push(None);
                self.members.len() - 1
            }
        };
        self.members[index] = Some(member);
        if self.by_fd.len() <= fd {
            self.by_fd.resize(fd + 64, 0);
        }
        self.by_fd[fd] = index as u32 + 1;
        index
    }

    pub(super) fn need_waker(&mut self, set: &Set) -> Result<(), i32> {
        if self.waker.is_some() || set.is_orphan.load(Ordering::Relaxed) {
            return Ok(());
        }
        let waker = new_waker(set, WAKER_DATA)?;
        let number = u64::from(waker.number());
        set.waker.store(number + 1, Ordering::Release);
        self.waker = Some(waker);
        Ok(())
    }

    pub(super) fn queue(&mut self, index: usize) {
        if let Some(member) = self.members.get_mut(index).and_then(Option::as_mut) {
            if !member.is_queued {
                member.is_queued = true;
                self.ready.push_back(index as u32);
            }
        }
    }

    pub(super) fn scan(&mut self, index: usize) {
        let Some(member) = self.members[index].as_mut() else {
            return;
        };
        if !member.is_scanned {
            member.is_scanned = true;
            self.marks.remove(&(index as u32));
            sockets::get(member.socket)
                .other_watches
                .fetch_add(1, Ordering::Relaxed);
            self.scanned.push(index as u32);
            kick_outer_sets();
        }
    }

    /// Gives a connected member its ready flag.
    pub(super) fn settle(&mut self, index: usize) {
        let Some(member) = self.members[index].as_ref() else {
            return;
        };
        if member.is_scanned {
            return;
        }
        let socket = member.socket;
        let Some(stream) = stream::of_socket(socket) else {
            return;
        };
        let known = self.ready_list_in(stream.peer);
        let ready_list = known.or_else(|| self.enter(sockets::get(socket).share_peer()?));
        let Some(ready_list) = ready_list else {
            sockets::get(socket).watch.store(0, Ordering::Relaxed);
            self.scan(index);
            return;
        };
        let ready_list = ready_list as u32 + 1;
        if !take_flag(&stream, ready_list) {
            // Another process that holds this end is notified through the only ready flag.
            sockets::get(socket).watch.store(0, Ordering::Relaxed);
            self.scan(index);
            return;
        }
        // The member is looked at next, and a ringer may just be at work. One that found no ready list
        // looks for it once more behind a fence; one that still rings a former ready list does not. A program that
        // removes a member and adds it again, as redis-benchmark does for each request, has the former one again.
        if sockets::get(socket).moves_to(ready_list) {
            barrier::heavy();
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// Queues the members without a ready flag; one that another process has given up gets one.
    pub(super) fn queue_scanned(&mut self, number: usize) {
        let mut at = 0;
        while at < self.scanned.len() {
            let index = self.scanned[at] as usize;
            if self.has_changed(index) {
                self.queue(index);
            }
            if self.ring_instead(number, index) {
                self.queue(index);
                self.scanned.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Whether a member without a ready flag deserves a look: with EPOLLET only when something has come, or has become
    /// possible, since the last.
    fn has_changed(&mut self, index: usize) -> bool {
        let Some(member) = self.members[index].as_ref() else {
            return false;
        };
        let stream = stream::of_socket(member.socket).filter(|_| member.events & EDGE != 0);
        let Some(stream) = stream else {
            return true;
        };
        let (slot, side) = (stream.peer.segment.slot(stream.slot), stream.peer.side);
        let (from_peer, by_peer) = (&slot.producer[1 - side], &slot.consumer[side]);
        let mark = Mark {
            // A ring that was full in between has room again.
            head: by_peer.head.load(Ordering::SeqCst),
            records_done: by_peer.records_done.load(Ordering::SeqCst),
            tail: from_peer.tail.load(Ordering::SeqCst),
            records: from_peer.records.load(Ordering::SeqCst),
            urgent: from_peer.urgent.load(Ordering::SeqCst),
            ends: from_peer.ends.load(Ordering::SeqCst) & (FIN | RST),
            events: self.events_of(member, member.events),
        };
        self.marks.insert(index as u32, mark) != Some(mark)
    }

    fn ring_instead(&mut self, number: usize, index: usize) -> bool {
        let Some(socket) = self.members[index].as_ref().map(|member| member.socket) else {
            return false;
        };
        let Some(stream) = stream::of_socket(socket) else {
            return false;
        };
        let Some(ready_list) = self.ready_list_in(stream.peer) else {
            return false;
        };
        let socket = sockets::get(socket);
        let word = watch_word(number, index);
        let watch = &socket.watch;
        let is_free = watch.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed);
        if is_free.is_err() {
            return false;
        }
        let ready_list = ready_list as u32 + 1;
        if !take_flag(&stream, ready_list) {
            watch.store(0, Ordering::Relaxed);
            return false;
        }
        // For the next set that takes the flag: who is at work may still ring this one.
        socket.last_ready_list.store(ready_list, Ordering::Relaxed);
        if let Some(member) = self.members[index].as_mut() {
            member.is_scanned = false;
        }
        socket.other_watches.fetch_sub(1, Ordering::Relaxed);
        // The member is queued: what came before this is looked at after it.
        barrier::heavy();
        true
    }

    /// A member leaves: its ready flag is no longer ours, if it is.
    pub(super) fn detach(&self, set: usize, member: &Member) {
        let socket = sockets::get(member.socket);
        if member.is_scanned {
            socket.other_watches.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let word = socket.watch.load(Ordering::Relaxed);
        if word >> 32 != set as u64 + 1 {
            return;
        }
        socket.watch.store(0, Ordering::Relaxed);
        let stream = stream::of_socket(member.socket).filter(|_| socket.life() == member.life);
        let Some(stream) = stream else { return };
        if let Some(own) = self.ready_list_in(stream.peer) {
            // After fork or SCM_RIGHTS it may be the ready flag of another process that holds the end.
            let own = own as u32 + 1;
            let ready_list =
                &stream.peer.segment.slot(stream.slot).meta.ready_list[stream.peer.side];
            let _ = ready_list.compare_exchange(own, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    /// Enters a segment; the number of our ready list there.
    pub(super) fn enter(&mut self, peer: Arc<Peer>) -> Option<usize> {
        // Sets without a listener learn of ended clients when new ones come.
        self.leave_stale();
        let place = self.take_place(peer)?;
        Some(self.places[place].ready_list)
    }

    /// Our ready list in a segment.
    fn ready_list_in(&self, peer: &Peer) -> Option<usize> {
        let mut places = self.places.iter().chain(&self.quiet.places);
        let place = places.find(|place| core::ptr::eq(&*place.peer, peer))?;
        Some(place.ready_list)
    }

    fn take_place(&mut self, peer: Arc<Peer>) -> Option<usize> {
        let waker = self.waker.as_ref()?.number();
        let ready_list = peer.claim_ready_list(waker)?;
        let seen = Seen::of(peer.segment.slots());
        self.places.push(Place {
            peer,
            ready_list,
            seen,
            is_listening: false,
            has_rung: true,
        });
        Some(self.places.len() - 1)
    }

    /// Sees to it that every segment of our listeners wakes us.
    pub(super) fn follow_listeners(&mut self) {
        if !self.has_segments_to_enter() {
            return;
        }
        self.misses_a_place = false;
        for at in 0..self.listeners.len() {
            let (index, listener, _) = &self.listeners[at];
            let generation = listener.generation();
            let word = self.listening_word(*index);
            let peers = listener.peers().into_iter();
            let mut missing: HashMap<_, _> = peers.map(|peer| (Arc::as_ptr(&peer), peer)).collect();
            for place in self.places.iter_mut().chain(&mut self.quiet.places) {
                if missing.remove(&Arc::as_ptr(&place.peer)).is_some() {
                    place.listen(word);
                }
            }
            for peer in missing.into_values() {
                match self.take_place(peer) {
                    Some(place) => self.places[place].listen(word),
                    None => self.misses_a_place = true,
                }
            }
            self.listeners[at].2 = generation;
        }
        self.take_up_listening();
        self.leave_stale();
    }

    /// Whether a segment of a listener cannot wake us.
    pub(super) fn misses_connections(&self) -> bool {
        self.misses_a_place && !self.listeners.is_empty()
    }

    /// Before a sleep: a ready list that was missing may be free by now. Not before each, of which there is
    /// one a millisecond then: all segments are gone through.
    pub(super) fn seek_places(&mut self) {
        if self.waker.is_none() || !self.misses_connections() {
            return;
        }
        self.seeks = self.seeks.wrapping_add(1);
        if self.seeks.is_multiple_of(SEEK_SLEEPS) {
            let listeners = self.listeners.iter_mut();
            listeners.for_each(|(_, _, seen)| *seen = 0);
        }
    }

    /// What a ready list says of connections to the listener that is member `index`.
    fn listening_word(&self, index: u32) -> u32 {
        let member = self.members[index as usize].as_ref();
        let is_exclusive = member.is_some_and(|member| member.events & EXCLUSIVE != 0);
        if is_exclusive {
            2
        } else {
            1
        }
    }

    /// A listener has left the set: clients of it alone do not wake us for new connections. One that is
    /// to wake only one of several must not choose us.
    pub(super) fn unfollow_listener(&mut self) {
        let left = self.listeners.iter();
        let left: Vec<_> = left
            .map(|(index, listener, _)| (self.listening_word(*index), listener.peers()))
            .collect();
        let places = self.places.iter_mut().chain(&mut self.quiet.places);
        for place in places.filter(|place| place.is_listening) {
            let is_of = |peers: &[Arc<Peer>]| peers.iter().any(|p| Arc::ptr_eq(p, &place.peer));
            let words = left.iter().filter(|(_, peers)| is_of(peers));
            let word = words.map(|(word, _)| *word).min().unwrap_or(0);
            place.is_listening = word != 0;
            place.ready_list().listening.store(word, Ordering::SeqCst);
        }
    }

    /// Lets segments of ended clients go, once no member of this set lives there.
    pub(super) fn leave_stale(&mut self) {
        for places in [&mut self.places, &mut self.quiet.places] {
            places.retain(|place| {
                let is_over = place.peer.is_stale.load(Ordering::Relaxed)
                    && place.peer.occupied().next().is_none();
                if is_over {
                    place.ready_list().free();
                }
                !is_over
            });
        }
    }

    /// After a wake of a watched set was taken: what is there shows in the kernel set again, and the
    /// next ring will.
    pub(super) fn renew_watch(&mut self, set: &Set) {
        if let Some(waker) = &self.waker {
            waker.drain();
        }
        self.hear_quiet();
        self.rearm(set);
    }

    /// For a set that somebody watches or sleeps on: the next ring must reach the kernel set.
    pub(super) fn rearm(&mut self, set: &Set) {
        self.announce_sleep();
        self.expect_datagrams();
        if self.has_more() {
            set.kick();
        }
    }

    /// Whether there is something that a look would find, or a segment of a listener in which it would wait.
    fn has_more(&mut self) -> bool {
        self.has_ready() || self.is_ringing() || self.is_held_back() || self.has_segments_to_enter()
    }

    /// Whether a listener has segments now that were not there when they were entered.
    pub(super) fn has_segments_to_enter(&self) -> bool {
        let mut listeners = self.listeners.iter();
        listeners.any(|(_, listener, seen)| *seen != listener.generation())
    }

    /// From now on whoever rings must wake us; what rang before is seen by a look after this.
    pub(super) fn announce_sleep(&self) {
        for place in &self.places {
            place.ready_list().sleep();
        }
        if !self.places.is_empty() {
            barrier::heavy();
        }
    }

    pub(super) fn is_held_back(&self) -> bool {
        let mut places = self.places.iter();
        places.any(|place| place.ready_list().is_held_back())
    }

    pub(super) fn is_ringing(&self) -> bool {
        self.places.iter().any(|place| {
            place.is_ringing() || (place.has_waiting() && self.has_arrivals_to_report())
        })
    }

    /// Whether connections that wait are to be reported: not if an edge or a one-shot has reported them already.
    fn has_arrivals_to_report(&self) -> bool {
        self.listeners.iter().any(|(index, listener, _)| {
            let Some(member) = self.members[*index as usize].as_ref() else {
                return false;
            };
            let is_edge = member.events & EDGE != 0;
            let is_told = || self.reported.get(index) == Some(&listener.arrivals());
            member.is_armed() && listener.has_acceptable() && !(is_edge && is_told())
        })
    }
}

/// A waker that the kernel's part of a set reports with `data`.
pub(super) fn new_waker(set: &Set, data: u64) -> Result<Waker, i32> {
    let waker = wakers::new_waker()?;
    let epoll = set.fd.load(Ordering::Relaxed);
    let events = libc::EPOLLIN as u32;
    kernel::epoll_control(epoll, libc::EPOLL_CTL_ADD, waker.fd(), events, data)?;
    Ok(waker)
}

/// Makes `ready_list` the one that is rung for our end of a connection; false when another living process
/// that holds the same end has its own there.
fn take_flag(stream: &Stream, ready_list: u32) -> bool {
    let side = stream.peer.side;
    let segment = &stream.peer.segment;
    let word = &segment.slot(stream.slot).meta.ready_list[side];
    let take = |now: u32| {
        let owner = (now as usize).checked_sub(1).map_or(0, |now| {
            segment.ready_list(side, now).owner.load(Ordering::SeqCst)
        });
        (owner == 0 || owner == process::number()).then_some(ready_list)
    };
    word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
        .is_ok()
}
