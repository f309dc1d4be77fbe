//! What this process publishes to clients: how many connections may wait for it, see [`crate::peer::admission`].

use core::sync::atomic::Ordering;

use bypass_sys::sandbox::is_confined;

use super::{all, Listener};
use crate::peer::{self, Peer};
use crate::process::uring;

impl Listener {
    /// As many as the kernel would let wait, which is one more than the backlog says.
    fn backlog_credits(&self) -> u32 {
        self.backlog.load(Ordering::Relaxed).saturating_add(1)
    }

    fn credits(&self) -> u32 {
        let accepts = self.attends() && !is_confined() && !uring::hides_sockets();
        if accepts {
            self.backlog_credits()
        } else {
            0
        }
    }

    /// Tells all clients.
    pub fn publish_credits(&self) {
        for peer in self.peers() {
            self.publish_credits_to(&peer);
        }
    }

    /// Tells one client.
    pub(super) fn publish_credits_to(&self, peer: &Peer) {
        peer.publish_credits(self.credits());
    }
}

/// This process accepts from no segment any more, before it confines itself.
pub fn withdraw_credits() {
    for peer in all().iter().flat_map(|listener| listener.peers()) {
        peer.publish_credits(0);
    }
}

/// Sockets of this process go through a ring from now on, which may be about to accept: new clients use the kernel.
#[cold]
pub fn use_hidden_sockets() {
    uring::note_hidden_sockets();
    all().iter().for_each(|listener| listener.publish_credits());
}

/// How many connections may wait at a listener that this process alone holds, as far as can be known; None where
/// others may.
pub fn credits_of_ours_alone(inode: u64) -> Option<u32> {
    let has_relatives = peer::has_forked() || is_confined() || uring::hides_sockets();
    let own = all().into_iter().find(|one| one.inode == inode)?;
    (!has_relatives && own.others().is_empty()).then(|| own.backlog_credits())
}
