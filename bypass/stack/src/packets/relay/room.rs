//! Places for connections: segments are added as they fill up, as far as EF_MAX_ENDPOINTS goes, and what
//! is beyond it is left to the kernel before it exists.

use core::sync::atomic::Ordering;

use bypass_shard::tcp::Handle;

use super::{Group, Relay};
use crate::packets::FULL;
use crate::process;

/// Connections above EF_MAX_ENDPOINTS that are carried still: those whose first segment had arrived before
/// new ones were left to the kernel.
pub const LATE_MAX: usize = 16_384;

/// How long connections wait for a listener to show that it makes no child for each, before they get segments of
/// their own, or the kernel.
const PROOF_US: u64 = 100_000;

impl Relay {
    /// Whether the program has as many connections as it may.
    pub(super) fn is_at_limit(&mut self) -> bool {
        self.shard.engine().counts().connections >= process::settings().max_endpoints
    }

    /// After a round: leaves new connections to the kernel, or takes them again, and accepts connections that
    /// waited for a place.
    pub(super) fn look_at_room(&mut self) {
        if self.is_crowded {
            self.is_crowded = false;
            let listening: Vec<Handle> = self.listeners.keys().copied().collect();
            listening.into_iter().for_each(|one| self.accept_all(one));
        }
        if !self.is_crowded {
            self.awaits_proof_us = None;
        }
        let is_full = self.is_crowded && !self.awaits_proof() || self.is_at_limit();
        if is_full != self.is_full {
            self.is_full = is_full;
            self.shard.leave_new(is_full);
            match is_full {
                true => FULL.fetch_add(1, Ordering::Relaxed),
                false => FULL.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }

    /// A free slot at a listener, in a new segment where all are full. The listeners of one address take
    /// turns.
    pub(super) fn find_slot(&mut self, listening: Handle) -> Option<(usize, usize)> {
        let group = self.listeners.get_mut(&listening)?;
        let first = group.next(&self.places)?;
        let is_same = |place: &usize| {
            let inode = |at: usize| self.places[at].listener.as_ref().map(|one| one.inode);
            inode(*place) == inode(first)
        };
        let mut own = group.places.iter().copied().filter(is_same);
        let free = own.find_map(|at| {
            let peer = &self.places[at].peer;
            let slot = (!peer.is_short_of_places()).then(|| peer.take_slot())??;
            Some((at, slot))
        });
        if free.is_none() && self.places[first].peer.is_about_to_show() {
            self.awaits_proof_us.get_or_insert(self.shard.driven_us());
            if self.awaits_proof() {
                return None;
            }
        }
        free.or_else(|| self.add_slot(listening, first))
    }

    fn awaits_proof(&self) -> bool {
        let waited_us = |since_us| self.shard.driven_us().saturating_sub(since_us);
        self.awaits_proof_us
            .is_some_and(|since_us| waited_us(since_us) < PROOF_US)
    }

    fn add_slot(&mut self, listening: Handle, beside: usize) -> Option<(usize, usize)> {
        let listener = self.places[beside].listener.clone()?;
        let slots = |at: &usize| self.places[*at].peer.segment.slots();
        let group = self.listeners.get(&listening)?;
        let places: usize = group.places.iter().map(slots).sum();
        if places >= process::settings().max_endpoints.saturating_add(LATE_MAX) {
            return None;
        }
        let at = self.segment_at(&listener)?;
        self.listeners.get_mut(&listening)?.places.push(at);
        Some((at, self.places[at].peer.take_slot()?))
    }

    /// Whether no process accepts at a listener any more.
    pub(super) fn is_closed(&self, group: &Group) -> bool {
        let mut segments = group.places.iter().map(|at| &self.places[*at].peer.segment);
        segments.all(|segment| segment.is_queue_closed())
    }
}
