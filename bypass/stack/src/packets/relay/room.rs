//! Places for connections: segments are added as they fill up, as far as EF_MAX_ENDPOINTS goes, and what
//! is beyond it is left to the kernel before it exists.

use core::sync::atomic::Ordering;

use bypass_shard::tcp::Handle;
use bypass_stats::Reason;

use super::{Group, Relay, ROOM_US};
use crate::packets::{self, FULL};
use crate::process;

/// Connections above EF_MAX_ENDPOINTS that are carried still: those whose first segment had arrived before
/// new ones were left to the kernel.
pub const LATE_MAX: usize = 16_384;

/// How long a program that accepts has to show that it makes no child for each connection, before further connections get
/// segments of their own, or the kernel.
const PROOF_US: u64 = 100_000;

/// Connections wait in the engine for a program to show that it makes no child for each. As long as it accepts none they
/// would wait as well in the kernel; and time in which the process does not run does not count.
#[derive(Debug)]
pub(super) struct Proof {
    /// How many the program had accepted when it began.
    accepted: u64,
    looked_us: u64,
    /// How long it has accepted without showing it.
    waited_us: u64,
}

impl Proof {
    fn begin(accepted: u64, now_us: u64) -> Self {
        Self {
            accepted,
            looked_us: now_us,
            waited_us: 0,
        }
    }

    fn look(&mut self, accepted: u64, now_us: u64) {
        let passed_us = now_us.saturating_sub(self.looked_us);
        if accepted != self.accepted {
            self.waited_us += passed_us.min(ROOM_US);
        }
        self.looked_us = now_us;
    }

    fn is_awaited(&self) -> bool {
        self.waited_us < PROOF_US
    }
}

impl Relay {
    /// Whether the program has as many connections as it may.
    pub(super) fn is_at_limit(&mut self) -> bool {
        self.shard.engine().counts().connections >= process::settings().max_endpoints
    }

    /// After a round: accepts connections that waited for a place, and leaves new ones to the kernel, or takes them
    /// again.
    pub(super) fn look_at_room(&mut self) {
        if self.is_crowded {
            let groups = self.listeners.iter();
            let is_crowded =
                |group: &Group| group.is_crowded || group.proof.is_some() || group.left.is_some();
            let crowded = groups.filter(|(_, group)| is_crowded(group));
            let crowded: Vec<Handle> = crowded.map(|(handle, _)| *handle).collect();
            self.is_crowded = false;
            crowded.into_iter().for_each(|one| self.look_at_crowd(one));
        }
        let is_full = self.is_at_limit();
        if is_full != self.is_full {
            self.is_full = is_full;
            self.shard.leave_new(is_full);
            match is_full {
                true => FULL.fetch_add(1, Ordering::Relaxed),
                false => FULL.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }

    /// Nothing is left to the kernel any more because this engine has as many connections as may be.
    pub(super) fn forget_room(&mut self) {
        if core::mem::take(&mut self.is_full) {
            FULL.fetch_sub(1, Ordering::Relaxed);
        }
        self.is_crowded = false;
    }

    fn look_at_crowd(&mut self, listening: Handle) {
        let (accepted, now_us) = (self.accepted(listening), self.shard.driven_us());
        if let Some(group) = self.listeners.get_mut(&listening) {
            if let Some(proof) = &mut group.proof {
                proof.look(accepted, now_us);
            }
        }
        self.accept_all(listening);
        let Some(group) = self.listeners.get_mut(&listening) else {
            return;
        };
        if !group.is_crowded {
            group.proof = None;
        }
        let left = match &group.proof {
            Some(proof) => (!proof.is_awaited()).then_some(Reason::NotAccepting),
            None => group.is_crowded.then_some(Reason::Limit),
        };
        self.leave_crowded(listening, left);
    }

    /// Leaves new connections of a listener's port to the kernel, for this reason, or takes them again.
    pub(super) fn leave_crowded(&mut self, listening: Handle, left: Option<Reason>) {
        let Some(group) = self.listeners.get_mut(&listening) else {
            return;
        };
        let before = core::mem::replace(&mut group.left, left);
        if before == left {
            return;
        }
        if let Some(count) = before.and_then(packets::left_for) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(count) = left.and_then(packets::left_for) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let port = group.at.port();
        self.share_port(port);
    }

    /// The kernel handles new connections of a port where other programs listen too, or one of its listeners is crowded.
    pub(super) fn share_port(&mut self, port: u16) {
        let mut groups = self.listeners.values();
        let leaves_new = groups
            .any(|group| group.at.port() == port && (group.left.is_some() || group.has_others));
        self.shard.leave_port(port, leaves_new);
    }

    /// Connections that were accepted from the segments of a listener, since they were made.
    fn accepted(&self, listening: Handle) -> u64 {
        let group = self.listeners.get(&listening);
        let places = group.map_or(&[][..], |group| &group.places);
        let queues = places
            .iter()
            .map(|at| self.places[*at].peer.segment.queue());
        let heads = queues.map(|queue| queue.head.0.load(Ordering::Relaxed));
        heads.fold(0, u64::wrapping_add)
    }

    /// A free slot at a listener, in a new segment where all are full. The listeners of one address take
    /// turns; one that gets none lets the next one take its own.
    pub(super) fn find_slot(&mut self, listening: Handle) -> Option<(usize, usize)> {
        let turns = self.listeners.get(&listening)?.places.len();
        (0..turns).find_map(|_| {
            let first = self.listeners.get_mut(&listening)?.next(&self.places)?;
            self.find_slot_beside(listening, first)
        })
    }

    /// The same at the listener of this place.
    fn find_slot_beside(&mut self, listening: Handle, first: usize) -> Option<(usize, usize)> {
        let group = self.listeners.get(&listening)?;
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
        if free.is_none() && self.places[first].peer.may_still_show() {
            let begun = Proof::begin(self.accepted(listening), self.shard.driven_us());
            let group = self.listeners.get_mut(&listening)?;
            if group.proof.get_or_insert(begun).is_awaited() {
                return None;
            }
        }
        free.or_else(|| self.add_slot(listening, first))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_accept_or_run_uses_up_no_time_for_its_proof() {
        let mut proof = Proof::begin(7, 0);
        for now_us in (0..10 * PROOF_US).step_by(ROOM_US as usize) {
            proof.look(7, now_us);
        }
        assert!(proof.is_awaited(), "it has accepted nothing");
        proof.look(8, 100 * PROOF_US);
        assert!(proof.is_awaited(), "it has stood still");
        let mut now_us = 100 * PROOF_US;
        for _ in 1..PROOF_US / ROOM_US {
            assert!(proof.is_awaited());
            now_us += ROOM_US;
            proof.look(9, now_us);
        }
        assert!(!proof.is_awaited());
    }
}
