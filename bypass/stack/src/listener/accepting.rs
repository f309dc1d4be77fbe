//! What this process publishes to clients: how many connections may wait for it, see [`crate::peer::admission`].

use core::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use bypass_netlink::diag;
use bypass_shm::layout::RST;
use bypass_stats::Reason;
use bypass_sys::clock::now_ns;
use bypass_sys::sandbox::is_confined;

use super::{all, Listener};
use crate::peer::{self, Peer};
use crate::process::{self, uring};
use crate::service;
use crate::sockets;

impl Listener {
    /// As many as the kernel would let wait, which is one more than the backlog says.
    pub fn backlog_credits(&self) -> u32 {
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

fn is_chosen_by_program(port: u16) -> bool {
    CHOSEN_BY_PROGRAM
        .lock()
        .is_ok_and(|ports| ports.contains(&port))
}

/// Whether a program chooses among the listeners of `port`, of which the one with number `inode` is new. The program
/// goes with the last listener that it chose among.
pub fn joins_chosen_by_program(port: u16, inode: u64) -> bool {
    if !is_chosen_by_program(port) {
        return false;
    }
    let others = diag::listening(port).map_or(true, |found| {
        found.iter().any(|listener| listener.inode != inode)
    });
    if let (false, Ok(mut ports)) = (others, CHOSEN_BY_PROGRAM.lock()) {
        ports.retain(|one| *one != port);
    }
    others
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

/// Locks the lists across a fork.
pub(super) fn hold() -> impl Sized {
    (CHOSEN_BY_PROGRAM.lock().ok(), LEFT.lock().ok())
}

/// This process accepts from no segment any more, before it confines itself.
pub fn withdraw_credits() {
    for peer in all().iter().flat_map(|listener| listener.peers()) {
        peer.publish_credits(0);
    }
}

/// A listener of a process that began to use sockets where it is not seen, perhaps to accept.
struct Left {
    listener: Arc<Listener>,
    /// The process: a forked child has the list too.
    process: u64,
    since_ns: u64,
    /// Calls of accept(2) that had been seen.
    accepts: u32,
}

static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());

/// How long connections that were offered before wait for accept(2).
const LEFT_NS: u64 = 3_000_000_000;

/// From now on sockets of this process may be used where it is not seen, perhaps to accept: new clients use the kernel.
#[cold]
pub fn use_hidden_sockets() {
    uring::note_hidden_sockets();
    leave_queues();
}

/// The same as long as a ring exists through which they go.
#[cold]
pub fn leave_queues() {
    publish_all();
    let (process, since_ns) = (process::number(), now_ns());
    let left = |listener: Arc<Listener>| Left {
        accepts: listener.turns(),
        listener,
        process,
        since_ns,
    };
    let listeners: Vec<Left> = all().into_iter().map(left).collect();
    if let Ok(mut all) = LEFT.lock() {
        all.extend(listeners);
    }
    service::wake();
}

/// Ends connections that were offered before this process began to accept where it is not seen: their clients would
/// wait for ever. True while some may still be accepted by accept(2).
pub fn end_left() -> bool {
    let Ok(mut all) = LEFT.lock() else {
        return false;
    };
    if all.is_empty() {
        return false;
    }
    let now = now_ns();
    let (over, waiting): (Vec<Left>, Vec<Left>) = std::mem::take(&mut *all)
        .into_iter()
        .filter(|left| left.process == process::number())
        .partition(|left| now.saturating_sub(left.since_ns) >= LEFT_NS);
    *all = waiting;
    let has_waiting = !all.is_empty();
    drop(all);
    over.iter().for_each(Left::end);
    has_waiting
}

impl Left {
    /// Not where accept(2) is called still, nor where another process accepts.
    fn end(&self) {
        if self.listener.turns() != self.accepts || !uring::hides_sockets() {
            return;
        }
        let is_left = |peer: &Peer| peer.is_accepted_by_none();
        while let Some((peer, slot)) = self.listener.take_from(is_left, |_, _| true) {
            process::fall_back(Reason::IoUring);
            peer.let_go(slot, RST);
        }
    }
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
    let is_ours = !has_relatives && own.others().is_empty() && !is_chosen_by_program(own.port());
    is_ours.then(|| own.backlog_credits())
}
