//! Where the program listens, so does the engine: what it accepts is offered in segments of ours.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use bypass_shard::tcp::Handle;
use bypass_shm::layout::QUEUED;
use bypass_stats::{Counter, Reason};
use bypass_sys::kernel;

use super::{mapped_again, new_segment, Group, Relay};
use crate::listener::{self, Listener};
use crate::packets::options::{self, Wish};
use crate::process;
use crate::sockets;

impl Relay {
    /// Listens where the program listens now, and where it has closed its listener and other processes
    /// have not: their connections go on coming through this one.
    pub fn follow(&mut self, listeners: &[Arc<Listener>]) {
        if self.is_gone() {
            return;
        }
        let places = &self.places;
        let is_over = |place: &usize| {
            let own = places[*place].listener.as_ref();
            own.is_none_or(|own| {
                listeners.iter().all(|one| one.inode != own.inode) && own.others().is_empty()
            })
        };
        let mut gone = Vec::new();
        for (handle, group) in &mut self.listeners {
            group.places.retain(|place| !is_over(place));
            if group.places.is_empty() {
                gone.push(*handle);
            }
        }
        for handle in gone {
            self.leave_crowded(handle, None);
            self.listeners.remove(&handle);
            let _ = self.shard.close(handle);
        }
        for listener in listeners {
            let is_it = |own: &Arc<Listener>| own.inode == listener.inode;
            let mut served = self.listeners.values().flat_map(|group| &group.places);
            let is_known =
                served.any(|place| self.places[*place].listener.as_ref().is_some_and(is_it));
            if !is_known {
                self.listen(listener);
            }
        }
        let handles: Vec<Handle> = self.listeners.keys().copied().collect();
        handles.into_iter().for_each(|one| self.tell_waiting(one));
        self.follow_options(listeners);
        self.follow_keeping(listeners);
        self.shard.finish();
    }

    /// The first [`follow`](Self::follow), perhaps after a process that had the interface before: what has
    /// arrived since is for these listeners too.
    pub fn succeed(&mut self, listeners: &[Arc<Listener>]) {
        self.follow(listeners);
        self.shard.drop_others_claims();
        self.drive();
    }

    /// None where the address is not of this interface, or taken: the kernel serves it.
    fn listen(&mut self, listener: &Arc<Listener>) -> Option<()> {
        let fd = listener.any_fd();
        let at = sockets::kernel_name(fd)?;
        let is_v6_only =
            at.is_ipv6() && kernel::option_int(fd, libc::SOL_IPV6, libc::IPV6_V6ONLY) == Ok(1);
        let joined = self.listeners.iter().find(|(_, group)| group.at == at);
        if let Some(handle) = joined.map(|(handle, _)| *handle) {
            listener.set_kernel_first(true);
            let place = self.segment_at(listener)?;
            self.listeners.get_mut(&handle)?.places.push(place);
            return Some(());
        }
        if options::of_listener(fd, at.is_ipv6())
            .into_iter()
            .any(Wish::is_unknown_congestion)
        {
            process::fall_back(Reason::Option);
            return None;
        }
        let backlog = listener.backlog_credits();
        let opened = self.shard.listen_with(at, backlog, is_v6_only);
        let handle = opened.ok()?;
        self.others_us = 0;
        listener.set_kernel_first(true);
        match self.segment_at(listener) {
            Some(place) => {
                let group = Group {
                    at,
                    places: vec![place],
                    turn: 0,
                    obeyed: 0,
                    waiting: 0,
                    is_crowded: false,
                    proof: None,
                    left: None,
                    has_others: false,
                };
                self.listeners.insert(handle, group);
            }
            None => drop(self.shard.close(handle)),
        }
        Some(())
    }

    /// As many connections may wait at an address as its listeners let wait together.
    fn backlog_of(&self, group: &Group) -> u32 {
        let (mut counted, mut backlog) = (Vec::new(), 0_u32);
        let listeners = group.places.iter();
        for listener in listeners.filter_map(|at| self.places[*at].listener.as_ref()) {
            if !counted.contains(&listener.inode) {
                counted.push(listener.inode);
                backlog = backlog.saturating_add(listener.backlog_credits());
            }
        }
        backlog
    }

    /// The engine's listeners get the options that the program's have now, of several at one address
    /// those of the first.
    fn follow_options(&mut self, listeners: &[Arc<Listener>]) {
        let mut changed = Vec::new();
        for (handle, group) in &mut self.listeners {
            let first = group.places.first().copied();
            let own = first.and_then(|place| self.places[place].listener.as_ref());
            let is_own = |one: &&Arc<Listener>| own.is_some_and(|own| own.inode == one.inode);
            let Some(listener) = listeners.iter().find(is_own) else {
                continue;
            };
            let wishes = options::of_listener(listener.any_fd(), group.at.is_ipv6());
            let mut wanted = 0;
            for wish in wishes {
                wanted |= 1 << wish.code;
                changed.push((*handle, wish));
            }
            // Set before, and as a new socket has it again.
            let usual = options::usual(group.obeyed & !wanted, listener.any_fd());
            changed.extend(usual.map(|wish| (*handle, wish)));
            group.obeyed = wanted;
        }
        for (handle, wish) in changed {
            self.obey(handle, wish);
        }
    }

    /// A segment of ours at a listener, known to all who hold it.
    pub(super) fn segment_at(&mut self, listener: &Arc<Listener>) -> Option<usize> {
        let segment = new_segment()?;
        let mapped = mapped_again(&segment)?;
        let place = self.add_place(segment, 0, Some(listener.clone()))?;
        listener.register_carrier();
        listener::adopt_from_relay(listener, mapped)?;
        Some(place)
    }

    /// Gives `asking` the segments at listener `inode`. Of those whose listener is closed here nothing can
    /// be shown as proof: that process trusts its own user's.
    pub fn share(&self, inode: u64, asking: u64) {
        let served = self.listeners.values().flat_map(|group| &group.places);
        for place in served.map(|place| &self.places[*place]) {
            let listener = place.listener.as_ref();
            if let Some(listener) = listener.filter(|one| one.inode == inode) {
                listener.pass_without_proof(asking, &place.peer);
            }
        }
    }

    /// Takes what waits at the engine's listener, as far as there are places for it.
    pub(super) fn accept_all(&mut self, listening: Handle) {
        let has_places = self.accept_some(listening);
        if let Some(group) = self.listeners.get_mut(&listening) {
            group.is_crowded = !has_places;
            self.is_crowded |= group.is_crowded;
        }
        self.tell_waiting(listening);
    }

    /// Connections in the segments of a listener count as waiting in the engine: its backlog is for both.
    fn tell_waiting(&mut self, listening: Handle) {
        let Some(group) = self.listeners.get(&listening) else {
            return;
        };
        let segments = group.places.iter().map(|at| &self.places[*at].peer.segment);
        let waiting: usize = segments.map(|segment| segment.queue().waiting()).sum();
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        let backlog = self.backlog_of(group);
        if let Some(group) = self.listeners.get_mut(&listening) {
            group.waiting = waiting;
        }
        self.has_waiting |= waiting > 0;
        let engine = self.shard.engine();
        let _ = engine.set_backlog(listening, backlog);
        let _ = engine.set_taken(listening, waiting);
    }

    /// The program has accepted some of what waited, or listens with another backlog.
    pub(super) fn count_waiting(&mut self) {
        self.has_waiting = false;
        let groups = self.listeners.iter();
        let waiting = groups.filter(|(_, group)| group.waiting > 0);
        let waiting: Vec<Handle> = waiting.map(|(handle, _)| *handle).collect();
        waiting.into_iter().for_each(|one| self.tell_waiting(one));
    }

    /// False: there are too few places.
    fn accept_some(&mut self, listening: Handle) -> bool {
        while self.shard.engine().waiting(listening).unwrap_or(0) > 0 {
            let group = self.listeners.get(&listening);
            if group.is_none_or(|group| self.is_closed(group)) {
                if let Ok(handle) = self.shard.accept(listening) {
                    let _ = self.abort(handle);
                }
                continue;
            }
            let Some((at, slot)) = self.find_slot(listening) else {
                return false;
            };
            if let Ok(handle) = self.shard.accept(listening) {
                if self.offer(at, slot, handle).is_none() {
                    let _ = self.abort(handle);
                }
            }
        }
        true
    }

    /// Puts an accepted connection where the listener's holders find it.
    fn offer(&mut self, at: usize, slot: usize, handle: Handle) -> Option<()> {
        let local = self.shard.engine().local_addr(handle).ok();
        let remote = self.shard.engine().remote_addr(handle).ok();
        let peer = self.places[at].peer.clone();
        let (Some(local), Some(remote), false) = (local, remote, peer.segment.is_queue_closed())
        else {
            peer.return_slot(slot);
            return None;
        };
        peer.segment.reset(slot);
        let place = peer.segment.slot(slot);
        place.names.of[0].store(remote);
        place.names.of[1].store(local);
        place.meta.holders[1].store(QUEUED, Ordering::SeqCst);
        self.enter(at, slot, handle, None);
        self.bring_in(at, slot);
        if !peer.offer(slot) {
            place.meta.holders[1].store(0, Ordering::SeqCst);
            self.leave(at, slot);
            return None;
        }
        process::count(Counter::AcceptsEngine, 1);
        self.note_served(at);
        self.ring_acceptors(at);
        Some(())
    }
}
