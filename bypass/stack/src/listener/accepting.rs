//! What this process publishes to clients: how many connections may wait for it, see [`crate::peer::admission`].

use core::sync::atomic::Ordering;
use std::sync::Mutex;

use bypass_sys::sandbox::is_confined;

use super::{all, Listener};
use crate::peer::{self, Peer};
use crate::process::{self, uring};
use crate::sockets;

impl Listener {
    /// As many as the kernel would let wait, which is one more than the backlog says.
    fn backlog_credits(&self) -> u32 {
        self.backlog.load(Ordering::Relaxed).saturating_add(1)
    }

    fn port(&self) -> u16 {
        sockets::kernel_name(self.any_fd()).map_or(0, |name| name.port())
    }

    fn credits(&self) -> u32 {
        let is_off = process::is_switched_off();
        self.is_switched_off.store(is_off, Ordering::Relaxed);
        let is_seen = !is_off && !is_confined() && !uring::hides_sockets();
        let accepts = self.attends() && is_seen && !is_chosen_by_program(self.port());
        if accepts {
            self.backlog_credits()
        } else {
            0
        }
    }

    /// Publishes the credits to all clients.
    pub fn publish_credits(&self) {
        for peer in self.peers() {
            self.publish_credits_to(&peer);
        }
    }

    /// Publishes the credits to one client.
    pub(super) fn publish_credits_to(&self, peer: &Peer) {
        // Of threads that publish different numbers the last one looks once more after its store, and finds the newest.
        loop {
            let credits = self.credits();
            peer.publish_credits(credits);
            if self.credits() == credits {
                return;
            }
        }
    }
}

/// Ports of listeners among which a program of the kernel's chooses (SO_ATTACH_REUSEPORT_CBPF, …_EBPF): only the kernel
/// knows what it says.
static CHOSEN_BY_PROGRAM: Mutex<Vec<u16>> = Mutex::new(Vec::new());

/// See [`CHOSEN_BY_PROGRAM`].
pub fn is_chosen_by_program(port: u16) -> bool {
    CHOSEN_BY_PROGRAM
        .lock()
        .is_ok_and(|ports| ports.contains(&port))
}

/// A program chooses from now on among the listeners of the address that `fd` is bound to.
pub fn choose_by_program(fd: i32) {
    let port = sockets::kernel_name(fd).map_or(0, |name| name.port());
    if port == 0 || is_chosen_by_program(port) {
        return;
    }
    if let Ok(mut ports) = CHOSEN_BY_PROGRAM.lock() {
        ports.push(port);
    }
    publish_all();
}

/// Locks the list across a fork.
pub(super) fn hold() -> impl Sized {
    CHOSEN_BY_PROGRAM.lock().ok()
}

/// This process accepts from no segment any more, before it confines itself.
pub fn withdraw_credits() {
    for peer in all().iter().flat_map(|listener| listener.peers()) {
        peer.publish_credits(0);
    }
}

/// Sockets of this process are used where it is not seen from now on, perhaps to accept: new clients use the kernel.
#[cold]
pub fn use_hidden_sockets() {
    uring::note_hidden_sockets();
    publish_all();
}

/// Publishes the credits of all listeners, after something that they depend on has changed.
#[cold]
pub fn publish_all() {
    all().iter().for_each(|listener| listener.publish_credits());
}

/// How many connections may wait at a listener that this process alone holds, as far as can be known; None where
/// others may.
pub fn credits_of_ours_alone(inode: u64) -> Option<u32> {
    let has_relatives = peer::has_forked() || is_confined() || uring::hides_sockets();
    let own = all().into_iter().find(|one| one.inode == inode)?;
    (!has_relatives && own.others().is_empty()).then(|| own.backlog_credits())
}
