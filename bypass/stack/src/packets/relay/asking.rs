//! Requests of the program to the engine of a connection besides bytes: options, and facts.

use core::sync::atomic::Ordering;

use bypass_shard::tcp::Handle;
use bypass_shm::layout::{ASKABLE, ASKS, INFO_WORDS, LINGERS};

use super::Relay;
use crate::packets::info;
use crate::packets::options::Wish;

impl Relay {
    /// Answers what the program has left in the connection's place of the segment.
    pub(super) fn answer(&mut self, at: usize, slot: usize) {
        let peer = self.places[at].peer.clone();
        let other = 1 - peer.side;
        let ends = &peer.segment.slot(slot).producer[other].ends;
        ends.fetch_and(!ASKS, Ordering::SeqCst);
        let transport = peer.segment.transport(slot);
        let asked = transport.asked.swap(0, Ordering::SeqCst);
        let handle = self.places[at].conns[slot].and_then(|conn| conn.handle);
        for code in (0..ASKABLE).filter(|code| asked & 1 << code != 0) {
            let value = transport.values[code].load(Ordering::Relaxed);
            if let Some(handle) = handle {
                self.obey(handle, Wish { code, value });
            }
        }
        if asked & 1 << ASKABLE != 0 {
            let words = self.facts(handle);
            for (word, value) in transport.info.iter().zip(words) {
                word.store(value, Ordering::Relaxed);
            }
            transport.answers.fetch_add(1, Ordering::Release);
        }
    }

    /// Sets an option of a connection or a listener.
    pub(super) fn obey(&mut self, handle: Handle, wish: Wish) {
        let now_us = self.shard.driven_us();
        if let Some(option) = wish.option() {
            // A value that the engine refuses is one that the kernel's socket has refused before.
            let _ = self.shard.engine().setopt(now_us, handle, option);
        }
    }

    fn facts(&mut self, handle: Option<Handle>) -> [u32; INFO_WORDS] {
        let known = handle.and_then(|handle| self.shard.engine().info(handle).ok());
        known.map_or_else(info::of_nothing, |known| info::words(&known))
    }

    /// The program has closed the connection and waits for the other host to have everything.
    pub(super) fn linger(&mut self, at: usize, slot: usize, handle: Handle) {
        if let Some(conn) = self.places[at].conns[slot].as_mut() {
            conn.handle = None;
            conn.lingers = true;
        }
        self.conns[handle.index as usize] = None;
        self.lingering.push((at, slot, handle));
    }

    /// Ends the waiting of connections whose peer has everything, and forgets connections that wait no more.
    pub(super) fn look_at_lingering(&mut self) {
        for (at, slot, handle) in std::mem::take(&mut self.lingering) {
            let lingers = self.places[at].conns[slot].is_some_and(|conn| conn.lingers);
            if !lingers {
                continue;
            }
            let segment = &self.places[at].peer.segment;
            let waits = segment.transport(slot).lingering.load(Ordering::SeqCst) != 0;
            if waits && self.shard.engine().is_closing(handle) {
                self.lingering.push((at, slot, handle));
            } else {
                self.leave(at, slot);
            }
        }
    }

    /// Before a slot is left: nothing of this connection is to be found by the next one there.
    pub(super) fn forget_asked(&self, at: usize, slot: usize) {
        let peer = &self.places[at].peer;
        let ends = &peer.segment.slot(slot).producer[1 - peer.side].ends;
        let transport = peer.segment.transport(slot);
        let ends = ends.load(Ordering::Relaxed);
        if ends & ASKS != 0 {
            transport.asked.store(0, Ordering::SeqCst);
        }
        if ends & LINGERS != 0 {
            transport.lingering.store(0, Ordering::SeqCst);
        }
    }
}
