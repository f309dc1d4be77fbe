//! Where several processes have an engine each, a connection is for the process through whose engine it came, as
//! it is with SO_REUSEPORT. Processes without an engine take part in all, and so do processes whose queues
//! receive no frames: veth, for one, may leave a queue without frames.
//!
//! A process that has an engine and does not come to accept, because it is busy or has as many connections as it
//! wants, must not keep connections from other processes: after a while any process may accept what waits.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use bypass_device::Device;
use bypass_sys::kernel;

use super::Relay;
use crate::listener::Listener;
use crate::peer;
use crate::process;

/// How long a connection waits for the process whose engine has it.
const PATIENCE_US: u64 = 10_000;
/// Between looks who accepts where.
const GUESTS_US: u64 = 20_000;
/// Without a connection for so long, an engine's process takes part in the others' again.
const IDLE_US: u64 = 1_000_000;

impl Relay {
    /// Takes another queue of the interface.
    pub fn add_queue(&mut self, queue: u32, device: Box<dyn Device>) -> kernel::Result<()> {
        self.count_losses();
        let added = self.shard.add_queue(queue, device);
        self.forget_losses();
        added
    }

    /// Gives a queue that was added to another process.
    pub fn remove_queue(&mut self, queue: u32) -> kernel::Result<()> {
        self.count_losses();
        let removed = self.shard.remove_queue(queue);
        self.forget_losses();
        removed
    }

    /// Where the program listens now.
    pub(super) fn follow_keeping(&mut self, listeners: &[Arc<Listener>]) {
        for place in &mut self.places {
            let own = place.listener.as_ref();
            let is_own = |own: &Arc<Listener>| listeners.iter().any(|one| one.inode == own.inode);
            place.is_open_here = own.is_some_and(is_own);
        }
        if self.is_divided {
            self.guests_us = 0;
            self.look_at_kept();
        }
    }

    /// Keeps what waits for this process, or gives what has waited too long to all.
    pub(super) fn look_at_kept(&mut self) {
        let now_us = self.shard.driven_us();
        let looks_at_guests = now_us >= self.guests_us;
        if looks_at_guests {
            self.guests_us = now_us + GUESTS_US;
        }
        for place in &mut self.places {
            let Some(listener) = &place.listener else {
                continue;
            };
            let accepts = place.is_open_here && listener.attends();
            if looks_at_guests {
                place.is_wanted = accepts || listener.is_attended_by_guests();
            }
            let is_idle = now_us.saturating_sub(place.served_us) >= IDLE_US;
            if is_idle && place.served_us != 0 {
                place.served_us = 0;
                listener.set_served(false);
            }
            let queue = place.peer.segment.queue();
            let head = queue.head.0.load(Ordering::SeqCst);
            place.oldest = match (queue.waiting(), place.oldest) {
                (0, _) => None,
                (_, Some(oldest)) if oldest.0 == head => Some(oldest),
                _ => Some((head, now_us)),
            };
            let since_us = place.oldest.map_or(now_us, |(_, since_us)| since_us);
            let is_kept = place.peer.segment.is_kept();
            let keeps = accepts && now_us.saturating_sub(since_us) < PATIENCE_US;
            // Given to all, it is so until nothing waits.
            if is_kept && !keeps || !is_kept && keeps && place.oldest.is_none() {
                place.peer.segment.set_over_packets(keeps);
                if !keeps {
                    peer::ring_listeners(&place.peer.segment);
                }
            }
        }
    }

    /// No connections come here any more: what waits is for all, and so are those of others' engines for this process.
    pub(super) fn keep_nothing(&mut self) {
        for place in &mut self.places {
            let Some(listener) = &place.listener else {
                continue;
            };
            if core::mem::take(&mut place.served_us) != 0 {
                listener.set_served(false);
            }
            if place.peer.segment.is_kept() {
                place.peer.segment.set_over_packets(false);
                peer::ring_listeners(&place.peer.segment);
            }
        }
    }

    /// The engine has accepted a connection of this listener.
    pub(super) fn note_served(&mut self, at: usize) {
        let now_us = self.shard.driven_us();
        let place = &mut self.places[at];
        let listener = place.listener.as_ref().filter(|_| self.is_divided);
        if let Some(listener) = listener {
            place.served_us = now_us.max(1);
            if !listener.is_served() {
                listener.set_served(true);
            }
        }
    }

    /// Wakes those whose an offered connection may be.
    pub(super) fn ring_acceptors(&self, at: usize) {
        let place = &self.places[at];
        let segment = &place.peer.segment;
        match &place.listener {
            Some(listener) if segment.is_kept() => {
                let own = process::number();
                peer::ring_some(segment, |one| one == own || !listener.serves_itself(one));
            }
            _ => peer::ring_listeners(segment),
        }
    }
}
