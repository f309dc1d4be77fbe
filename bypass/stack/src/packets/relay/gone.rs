//! An engine whose interface is gone: its connections have ended, and it stays until no program has any of them.

use core::sync::atomic::Ordering;

use bypass_shard::tcp::{self, Handle};

use super::Relay;
use crate::peer;
use crate::process::table;
use crate::service;

impl Relay {
    /// Connections over an interface that is gone end.
    pub(super) fn look_at_interface(&mut self) {
        if self.is_gone.is_none() && self.shard.has_lost_interface() {
            self.is_gone = Some(false);
            self.end_with_interface();
            service::wake();
        }
    }

    fn end_with_interface(&mut self) {
        let now_us = self.shard.driven_us();
        self.shard
            .engine()
            .fail_all(now_us, tcp::Error::NetworkUnreachable);
        // Each program gets its error.
        self.take_in();
        self.forget_lingering();
        let listening: Vec<Handle> = self.listeners.keys().copied().collect();
        for handle in listening {
            self.leave_crowded(handle, None);
            self.listeners.remove(&handle);
            let _ = self.shard.close(handle);
        }
        self.forget_room();
        self.keep_nothing();
    }

    /// A round without an interface: what programs do with their ends of connections.
    pub(super) fn drive_without_interface(&mut self) {
        let has_moved = self.hear();
        self.forget_lingering();
        if has_moved && self.is_done() {
            service::wake();
        }
    }

    /// Nobody is waited for at the other end any more (SO_LINGER).
    fn forget_lingering(&mut self) {
        for (at, slot, _) in std::mem::take(&mut self.lingering) {
            if self.places[at].conns[slot].is_some_and(|conn| conn.lingers) {
                self.leave(at, slot);
            }
        }
    }

    /// Whether the interface is gone. Nothing is sent then, and nothing comes.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.is_gone.is_some()
    }

    /// Whether the interface has gone since that was asked last.
    pub fn has_gone(&mut self) -> bool {
        let is_new = self.is_gone == Some(false);
        self.is_gone = self.is_gone.map(|_| true);
        is_new
    }

    /// Whether the interface is gone, as was asked, and no program has any of the connections that ended with it.
    pub fn is_done(&self) -> bool {
        let mut conns = self.places.iter().flat_map(|place| &place.conns);
        self.is_gone == Some(true) && conns.all(Option::is_none)
    }

    /// Before one is freed that [is done](Self::is_done): who takes part in its segments learns of their end.
    pub fn leave_segments(&mut self) {
        for place in &self.places {
            place.peer.give_place_up();
            service::remove_participants(&place.peer);
            peer::forget(&place.peer);
        }
        for (peer, _) in &self.outgoing {
            peer.is_stale.store(true, Ordering::SeqCst);
            peer::retire(peer.clone());
        }
        table::show(self.waker.fd());
    }
}
