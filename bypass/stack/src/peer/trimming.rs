//! Memory of connections that have grown is given back when it is not needed: free extents, and extents that
//! an idle connection keeps. The service checks once per second as long as there are any.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Arc, OnceLock};

use bypass_sys::clock::now_ns;

use super::{due, Peer};
use crate::process::sole;

/// Between looks: a connection is idle when nothing was written to it from one to the next.
pub const TICK: Duration = Duration::from_secs(1);

static LOOKED_NS: AtomicU64 = AtomicU64::new(0);

/// Looks if it is time; true when it is to be called again after a [`TICK`].
pub fn look() -> bool {
    if !due::is_due() {
        return false;
    }
    let now = now_ns();
    let elapsed = now.saturating_sub(LOOKED_NS.load(Ordering::Relaxed));
    if elapsed < TICK.as_nanos() as u64 * 9 / 10 {
        return true;
    }
    LOOKED_NS.store(now, Ordering::Relaxed);
    // Before the looks: what grows behind one of them is due again.
    due::set_due(false);
    let count = super::mapped().iter().filter(|peer| trim(peer)).count();
    if count > 0 {
        due::set_due(true);
    }
    count > 0
}

/// True when connections of ours are still in larger rings.
fn trim(peer: &Arc<Peer>) -> bool {
    let (mut idle, mut has_grown) = (Vec::new(), false);
    peer.segment.grown(peer.side, |slot| {
        // A relay's directions belong to whoever drives it.
        if peer.is_relay || peer.socket(slot).is_none() {
            return;
        }
        let is_idle = peer.segment.ring(slot, peer.side).is_idle();
        has_grown |= is_idle.is_some();
        if is_idle == Some(true) {
            idle.push(slot);
        }
    });
    if !idle.is_empty() {
        sole::visit(|| idle.into_iter().for_each(|slot| leave(peer, slot)));
    }
    peer.segment.clean_extents();
    has_grown
}

/// Leaves the larger ring of an idle connection.
fn leave(peer: &Peer, slot: usize) {
    let (Some(socket), Some(writing)) = (peer.socket(slot), WRITING.get()) else {
        return;
    };
    writing(socket, &|| {
        // Ended meanwhile: then its slot may be another connection's.
        if peer.socket(slot) == Some(socket) {
            if let Some(place) = peer.segment.ring(slot, peer.side).leave_idle_extent() {
                peer.segment.empty_extent(place);
            }
        }
    });
}

/// Runs something while no thread writes to the connection of a socket, by its number.
pub type Writing = fn(usize, &dyn Fn());

static WRITING: OnceLock<Writing> = OnceLock::new();

/// Says how that is done. Connections lie above.
pub fn provide(writing: Writing) {
    let _ = WRITING.set(writing);
}
