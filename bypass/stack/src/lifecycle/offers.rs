//! Connections on their way to another process: kept open here until the receiver has asked for them.

use core::sync::atomic::Ordering;
use std::sync::{Mutex, Once};

use bypass_shm::link::{self, Message};
use bypass_sys::clock::{now_ns, Waited};
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_sys::sandbox::is_confined;
use bypass_sys::waker::Name;

use super::sharing;
use crate::operations::release::{count_down, end_uncounted};
use crate::operations::{connect, shadow};
use crate::process::deferral::inside;
use crate::process::table::{self, Kind};
use crate::service;
use crate::sockets;

/// How long a connection may lie in a socket's queue before its sender forgets it.
const LYING_NS: u64 = 60_000_000_000;
/// How often a sender that ends looks, a millisecond apart, whether what it has sent was received: a
/// second, or more of a machine that stands still meanwhile, as the receiver does then.
const LAST_LOOKS: usize = 1000;
/// How long one that looks without a break does.
const LAST_LOOK_NS: u64 = 1_000_000_000;
/// So many processes may have the same connection on its way at once.
const TURNS: u32 = 4;

/// A connection on its way.
struct Offer {
    inode: u64,
    socket: usize,
    life: u32,
    rendezvous: i32,
    since_ns: u64,
    /// So often it was sent and not received.
    times: u32,
    /// Number of receivers that have been answered.
    answered: u32,
}

static OFFERS: Mutex<Vec<Offer>> = Mutex::new(Vec::new());

/// Locks the offers across a fork.
pub fn hold() -> impl Sized {
    OFFERS.lock().ok()
}

/// Before `fd` is sent.
pub fn offer(fd: i32) {
    connect::settle(std::iter::once(fd));
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
    // The sender and the receiver change the flags of the same file.
    sharing::share_flags(fd);
    shadow::apply_times(fd, socket);
    sharing::share(entry.index(), socket);
    socket.set(sockets::DIRTY, true);
    let Ok(mut offers) = OFFERS.lock() else {
        return;
    };
    if let Some(known) = offers.iter_mut().find(|one| one.inode == inode) {
        known.times += 1;
        known.since_ns = now_ns();
        return;
    }
    let Some(rendezvous) = names(inode).find_map(|name| link::open_rendezvous(&name).ok()) else {
        return;
    };
    socket.descriptors.fetch_add(1, Ordering::AcqRel);
    let rendezvous = rendezvous.into_raw();
    table::hide(rendezvous);
    // Once: each handler would wait for itself.
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| bypass_sys::process::at_exit(wait_for_receivers));
    offers.push(Offer {
        inode,
        socket: entry.index(),
        life: entry.generation(),
        rendezvous,
        since_ns: now_ns(),
        times: 1,
        answered: 0,
    });
    // Under the lock: a child of fork would keep a rendezvous socket that has no role.
    service::add(rendezvous, service::Role::Offer(inode));
}

/// Where a connection may be asked for: another holder of it may have sent it, too.
pub fn names(inode: u64) -> impl Iterator<Item = Name> {
    (0..TURNS).map(move |turn| Name::of_offer(inode, turn))
}

/// How a process has come by a message with a connection in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// It has received it.
    Taken,
    /// It has only looked at it (MSG_PEEK): another descriptor of the connection comes when it receives it.
    LookedAt,
}

/// The receiver's question, at the sender: the connection, for whoever shows its shadow.
pub fn give(inode: u64, caller: i32, proof: Option<Owned>, receipt: Receipt) -> Result<(), i32> {
    let shown = proof.ok_or(libc::EPROTO)?;
    if kernel::fstat(shown.0)?.st_ino != inode {
        return Err(libc::EPROTO);
    }
    kernel::option_int(shown.0, libc::SOL_SOCKET, libc::SO_TYPE)?;
    let mut offers = OFFERS.lock().map_err(|_| libc::EPROTO)?;
    // No more than it was sent: who received it from another holder asks there, too.
    let offer = offers
        .iter_mut()
        .find(|one| one.inode == inode && one.answered < one.times)
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
    link::send(caller, answer, &[peer.segment.fd()])?;
    offer.answered += 1;
    offer.times += u32::from(receipt == Receipt::LookedAt);
    Ok(())
}

/// A receiver that was answered has what it asked for, or is gone.
pub fn given(inode: u64) {
    less(inode, 1);
}

/// It was not sent after all.
pub fn withdraw(inode: u64) {
    less(inode, 0);
}

fn less(inode: u64, answered: u32) {
    forget(|one| {
        if one.inode == inode {
            one.times = one.times.saturating_sub(1);
            one.answered = one.answered.saturating_sub(answered);
        }
        one.times + one.answered == 0
    });
}

/// Drops offers that no process has received for a long time; true while one is still in transit.
pub fn expire() -> bool {
    let now = now_ns();
    forget(|one| now.saturating_sub(one.since_ns) > LYING_NS);
    OFFERS.lock().is_ok_and(|offers| !offers.is_empty())
}

fn forget(mut is_over: impl FnMut(&mut Offer) -> bool) {
    let mut ended = Vec::new();
    if let Ok(mut offers) = OFFERS.lock() {
        let mut at = 0;
        while at < offers.len() {
            if !is_over(&mut offers[at]) {
                at += 1;
                continue;
            }
            let offer = offers.swap_remove(at);
            // At once: the receiver may pass it on as soon as it is notified.
            service::remove(offer.rendezvous);
            // Under the lock: a child of fork finds the offer with its count, or neither.
            if count_down(offer.socket) {
                ended.push(offer.socket);
            }
        }
    }
    // This takes locks that fork takes before that of the offers.
    ended.into_iter().for_each(end_uncounted);
}

/// In a forked child: what is on its way is the parent's to give. Their rendezvous sockets were among what the service
/// watched, and their connections were held for the parent's calls.
pub fn forget_all() {
    if let Ok(mut offers) = OFFERS.lock() {
        offers.clear();
    }
}

/// Before the process ends: the kernel would keep a file that lies in a queue, we can only wait a
/// little for its receiver.
pub extern "C" fn wait_for_receivers() {
    if is_confined() {
        return wait_without_calls();
    }
    // A handler that runs meanwhile may send one, too.
    let are_received = || inside(|| OFFERS.lock().map_or(true, |offers| offers.is_empty()));
    for _ in 0..LAST_LOOKS {
        if are_received() {
            return;
        }
        let _ = kernel::poll(&mut [], Some(core::time::Duration::from_millis(1)), None);
    }
}

/// A filter may allow neither a sleep nor the wait for a lock, and a handler that ends the process may have interrupted
/// its own thread with the lock.
fn wait_without_calls() {
    let are_received = || OFFERS.try_lock().is_ok_and(|offers| offers.is_empty());
    let mut waited = Waited::begin();
    // A filter for all threads has ended the service, without which no receiver is answered.
    while service::is_running() && !are_received() && waited.look_ns() < LAST_LOOK_NS {
        core::hint::spin_loop();
    }
}

/// An offer of a test's, of which so many receivers were answered.
#[cfg(test)]
pub fn lay(inode: u64, socket: usize, times: u32, answered: u32) {
    let Ok(mut offers) = OFFERS.lock() else {
        return;
    };
    sockets::get(socket)
        .descriptors
        .fetch_add(1, Ordering::AcqRel);
    offers.push(Offer {
        inode,
        socket,
        life: 0,
        rendezvous: -1,
        since_ns: now_ns(),
        times,
        answered,
    });
}

/// How often it was sent, and the number of receivers that were answered; None without an offer.
#[cfg(test)]
pub fn counts(inode: u64) -> Option<(u32, u32)> {
    let offers = OFFERS.lock().ok()?;
    let of_inode = offers.iter().find(|one| one.inode == inode)?;
    Some((of_inode.times, of_inode.answered))
}

#[cfg(test)]
mod tests {
    use std::sync::TryLockError;

    use super::*;

    const PATIENCE: core::time::Duration = core::time::Duration::from_secs(20);

    #[test]
    fn handlers_wait_while_an_ending_process_looks_at_its_offers() {
        let offers = OFFERS.lock().expect("no panic");
        let (sender, receiver) = std::sync::mpsc::channel();
        let ending = std::thread::spawn(move || {
            sender.send(bypass_sys::thread::thread()).expect("sent");
            wait_for_receivers();
        });
        let block = receiver.recv().expect("its block");
        let since = std::time::Instant::now();
        while block.inside.load(Ordering::Relaxed) == 0 {
            assert!(since.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        drop(offers);
        ending.join().expect("an end");
    }

    #[test]
    fn a_fork_finds_an_offer_with_its_count_or_neither() {
        let _one_at_a_time = sockets::hold_in_test();
        let socket = sockets::allocate(libc::AF_INET, 0).expect("a socket");
        let descriptors = &sockets::get(socket).descriptors;
        let inode = u64::MAX;
        lay(inode, socket, 1, 0);
        // Without the roles it stops half-way.
        let roles = service::roles();
        let withdrawing = std::thread::spawn(move || withdraw(inode));
        let mut times_locked = 0;
        while times_locked < 100 {
            match OFFERS.try_lock() {
                Ok(offers) => {
                    assert!(offers.iter().any(|one| one.inode == inode));
                    assert_eq!(descriptors.load(Ordering::Acquire), 2);
                }
                Err(TryLockError::WouldBlock) => times_locked += 1,
                Err(error) => panic!("{error}"),
            }
            std::thread::yield_now();
        }
        drop(roles);
        withdrawing.join().expect("a thread");
        assert_eq!(counts(inode), None);
        assert_eq!(descriptors.load(Ordering::Acquire), 1);
        sockets::free(socket);
    }
}
