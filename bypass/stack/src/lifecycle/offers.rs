//! Connections on their way to another process: kept open here until the receiver has asked for them.

use core::sync::atomic::Ordering;
use std::sync::Mutex;

use bypass_shm::link::{self, Message};
use bypass_sys::clock::now_ns;
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_sys::waker::Name;

use super::sharing;
use crate::operations::release::let_go;
use crate::operations::shadow;
use crate::process::later;
use crate::process::table::{self, Kind};
use crate::service;
use crate::sockets;

/// How long a connection may lie in a socket's queue before its sender forgets it.
const LYING_NS: u64 = 60_000_000_000;
/// How long a sender that ends waits for what it has sent to be received.
const LAST_WAIT_NS: u64 = 1_000_000_000;

/// A connection on its way.
struct Offer {
    inode: u64,
    socket: usize,
    life: u32,
    rendezvous: i32,
    since_ns: u64,
    times: u32,
}

static OFFERS: Mutex<Vec<Offer>> = Mutex::new(Vec::new());

/// Locks the offers across a fork.
pub fn hold() -> impl Sized {
    OFFERS.lock().ok()
}

/// Before `fd` is sent.
pub fn offer(fd: i32) {
    let entry = table::get(fd);
    if entry.kind() == Kind::Unbound {
        // Two processes that both may connect it: the kernel keeps them apart.
        return shadow::leave_to_kernel(fd, bypass_stats::Reason::Option);
    }
    if entry.kind() == Kind::Listener {
        return sharing::share_listener(entry);
    }
    if entry.kind() != Kind::Connected || service::start().is_err() {
        return;
    }
    let Ok(inode) = kernel::fstat(fd).map(|stat| stat.st_ino) else {
        return;
    };
    let socket = sockets::get(entry.index());
    // What the sender and the receiver do with its flags concerns the same file.
    sharing::share_flags(entry.index(), socket);
    socket.set(sockets::DIRTY, true);
    let Ok(mut offers) = OFFERS.lock() else {
        return;
    };
    if let Some(known) = offers.iter_mut().find(|one| one.inode == inode) {
        known.times += 1;
        known.since_ns = now_ns();
        return;
    }
    let Ok(rendezvous) = link::open_rendezvous(&Name::of_listener(inode)) else {
        return;
    };
    socket.descriptors.fetch_add(1, Ordering::AcqRel);
    let rendezvous = rendezvous.into_raw();
    table::hide(rendezvous);
    if offers.is_empty() {
        bypass_sys::process::at_exit(wait_for_receivers);
    }
    offers.push(Offer {
        inode,
        socket: entry.index(),
        life: entry.generation(),
        rendezvous,
        since_ns: now_ns(),
        times: 1,
    });
    drop(offers);
    service::add(rendezvous, service::Role::Offer(inode));
}

/// The receiver's question, at the sender: the connection, for whoever shows its shadow.
pub fn give(inode: u64, caller: i32, proof: Option<Owned>) -> Result<(), i32> {
    let shown = proof.ok_or(libc::EPROTO)?;
    if kernel::fstat(shown.0)?.st_ino != inode {
        return Err(libc::EPROTO);
    }
    kernel::option_int(shown.0, libc::SOL_SOCKET, libc::SO_TYPE)?;
    let offers = OFFERS.lock().map_err(|_| libc::EPROTO)?;
    let offer = offers
        .iter()
        .find(|one| one.inode == inode)
        .ok_or(libc::ENOENT)?;
    let socket = sockets::get(offer.socket);
    let peer = socket.share_peer().filter(|_| socket.life() == offer.life);
    let peer = peer.ok_or(libc::ENOENT)?;
    let flags = socket.flags.load(Ordering::Relaxed) & sockets::HANDED_ON;
    let answer = Message::Give {
        slot: u64::from(socket.slot.load(Ordering::Relaxed)),
        side: peer.side as u64,
        family: socket.family.load(Ordering::Relaxed) as u64,
        flags: u64::from(flags),
        linger_s: u64::from(socket.linger_s.load(Ordering::Relaxed)),
    };
    link::send(caller, answer, &[peer.segment.fd()])
}

/// A receiver has what it asked for, or is gone.
pub fn given(inode: u64) {
    forget(|one| {
        if one.inode == inode {
            one.times -= 1;
        }
        one.times == 0
    });
}

/// Forgets what nobody has received for long; true while something is on its way.
pub fn expire() -> bool {
    let now = now_ns();
    forget(|one| now.saturating_sub(one.since_ns) > LYING_NS);
    OFFERS.lock().is_ok_and(|offers| !offers.is_empty())
}

fn forget(mut is_over: impl FnMut(&mut Offer) -> bool) {
    let mut over = Vec::new();
    if let Ok(mut offers) = OFFERS.lock() {
        let mut at = 0;
        while at < offers.len() {
            if is_over(&mut offers[at]) {
                over.push(offers.swap_remove(at));
            } else {
                at += 1;
            }
        }
    }
    for offer in over {
        service::close_rendezvous(offer.rendezvous, offer.inode, None);
        later::leave_time();
        let_go(offer.socket);
    }
}

/// In a forked child: what is on its way is the parent's to give.
pub fn forget_all() {
    let taken = OFFERS.lock().map(|mut offers| std::mem::take(&mut *offers));
    // Their rendezvous sockets were among what the service watched.
    for offer in taken.unwrap_or_default() {
        let_go(offer.socket);
    }
}

/// Before the process ends: the kernel would keep a file that lies in a queue, we can only wait a
/// little for its receiver.
pub extern "C" fn wait_for_receivers() {
    let started = now_ns();
    while now_ns() - started < LAST_WAIT_NS && OFFERS.lock().is_ok_and(|offers| !offers.is_empty())
    {
        let _ = kernel::poll(&mut [], Some(core::time::Duration::from_millis(1)), None);
    }
}
