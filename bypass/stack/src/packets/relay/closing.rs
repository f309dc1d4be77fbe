//! How connections end that no process carries on: at the end of the process.

use core::sync::atomic::Ordering;

use bypass_shard::tcp::Handle;
use bypass_shm::holders::Holders;
use bypass_shm::layout::{CLOSED, FIN, QUEUED, RST};

use super::{Left, Relay};
use crate::peer::Notice;
use crate::process;

impl Relay {
    /// As the process ends: closes connections that only it holds, when the engine has what was written.
    pub fn close_own(&mut self) -> Left {
        let mut left = Left::default();
        for at in 0..self.places.len() {
            let peer = self.places[at].peer.clone();
            let other = 1 - peer.side;
            let own = peer.segment.index_of(other, process::number());
            let own = own.map_or(0, |index| Holders::only(index).0);
            for slot in 0..peer.segment.slots_used().min(peer.segment.slots()) {
                let Some(conn) = self.places[at].conns[slot] else {
                    continue;
                };
                if conn.lingers {
                    self.leave(at, slot);
                    continue;
                }
                let place = peer.segment.slot(slot);
                let holders = place.meta.holders[other].load(Ordering::SeqCst);
                if holders == 0 || holders == own {
                    let ends = &place.producer[other].ends;
                    ends.fetch_or(FIN | CLOSED, Ordering::SeqCst);
                    self.bring_out(at, slot);
                    left.has_unsent |= self.places[at].conns[slot].is_some();
                } else if holders & QUEUED != 0 && !self.is_accepted_elsewhere(at) {
                    self.reset(at, slot);
                } else {
                    // What is over already needs the engine no more.
                    left.has_others |= conn.handle.is_some();
                }
            }
        }
        self.shard.finish();
        left
    }

    fn is_accepted_elsewhere(&self, at: usize) -> bool {
        let listener = self.places[at].listener.as_ref();
        listener.is_some_and(|listener| !listener.others().is_empty())
    }

    /// Whether somebody is opening a connection, or has opened one that has no place yet.
    pub fn is_being_reached(&mut self) -> bool {
        let engine = self.shard.engine();
        let mut listening = self.listeners.keys();
        let waits = |listening: &Handle| engine.waiting(*listening).is_ok_and(|count| count > 0);
        engine.counts().half_open > 0 || listening.any(waits)
    }

    /// Nobody carries them any more; who comes now asks again, and finds the kernel or the next process.
    pub fn reset_all(&mut self) {
        self.is_over = true;
        for (handle, _) in std::mem::take(&mut self.listeners) {
            let _ = self.shard.close(handle);
        }
        for at in 0..self.places.len() {
            for slot in 0..self.places[at].conns.len() {
                if self.places[at].conns[slot].is_some() {
                    self.reset(at, slot);
                }
            }
        }
        self.shard.finish();
    }

    /// Resets a connection to both sides.
    fn reset(&mut self, at: usize, slot: usize) {
        let peer = self.places[at].peer.clone();
        let conn = self.places[at].conns[slot];
        if let Some(handle) = conn.and_then(|conn| conn.handle) {
            let _ = self.send_all(&peer, slot, handle);
            self.shard.finish();
            let _ = self.abort(handle);
        }
        let producer = &peer.segment.slot(slot).producer[peer.side];
        producer.ends.fetch_or(RST | CLOSED, Ordering::SeqCst);
        peer.ring(slot, Notice::Bytes);
        peer.ring(slot, Notice::Room);
        self.leave(at, slot);
    }
}
