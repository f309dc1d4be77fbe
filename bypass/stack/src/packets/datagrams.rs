//! UDP sockets over packets: their ports are claimed from the engines, which also send what they can send.
//!
//! A port is claimed when a socket on it receives or sends, and again when the socket's names or options have changed;
//! not when a program waits for the socket, which may be one of thousands that nothing arrives for. The kernel is
//! asked what the socket is, so no change that a program makes to it is missed. A socket that shares its port with
//! sockets of other processes is handled by the kernel, and so is one that requests information that only the kernel
//! has.

use core::sync::atomic::{AtomicU64, Ordering};
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use bypass_netlink::diag;
use bypass_sys::clock::{ticks, ticks_in};
use bypass_sys::sandbox::is_confined;
use bypass_sys::{address, kernel};

use super::relay::Relay;
use super::{begin_as_client, is_wanted, relays};
use crate::datagrams::{self, control, Inner, Place, Socket};
use crate::process::uring;

mod ways;

pub use ways::send;

/// One thread at a time asks and claims.
static FOLLOWING: Mutex<()> = Mutex::new(());
/// Between looks who has the ports that are claimed.
const LOOK_US: u64 = 1_000_000;
/// The last one, by the ticks of the processor.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// Before a socket is received from or sent by: what it is bound to is claimed.
#[inline]
pub fn attend(index: usize, fd: i32) {
    let socket = datagrams::get(index);
    if socket.take_stale_at_use() {
        follow(index, socket, fd);
    }
}

#[cold]
fn follow(index: usize, socket: &Socket, fd: i32) {
    let _one_at_a_time = FOLLOWING.lock();
    follow_locked(index, socket, fd);
}

fn follow_locked(index: usize, socket: &Socket, fd: i32) {
    if socket.is_left() {
        return;
    }
    let is_kernels = !is_wanted() || is_confined() || uring::may_hide_sockets();
    let found = (!is_kernels)
        .then(|| Found::of(fd, &mut socket.lock()))
        .flatten();
    let before = socket.lock().claimed;
    let is_elsewhere = |found: &Found| before.is_some_and(|at| at.port() != found.local.port());
    if found.as_ref().is_none_or(is_elsewhere) {
        withdraw(index, socket);
    }
    if let Some(found) = found {
        found.note(&mut socket.lock());
        if !claim(index, socket, &found) {
            release(socket);
        }
    }
}

/// The state of a socket that may be accelerated, as the kernel reports it.
struct Found {
    local: SocketAddr,
    peer: Option<SocketAddr>,
    families: [bool; 2],
    class_and_hops: [(u8, u8); 2],
    told: u32,
    receive_bytes: usize,
    inode: u64,
}

/// Options that request control messages for a receiver, in the order of [`control`]'s bits.
const TOLD: [(i32, i32, u32); 6] = [
    (libc::SOL_IP, libc::IP_PKTINFO, control::PACKET_INFO),
    (libc::SOL_IP, libc::IP_RECVTTL, control::TTL),
    (libc::SOL_IP, libc::IP_RECVTOS, control::TOS),
    (
        libc::SOL_IPV6,
        libc::IPV6_RECVPKTINFO,
        control::PACKET_INFO_6,
    ),
    (libc::SOL_IPV6, libc::IPV6_RECVHOPLIMIT, control::HOP_LIMIT),
    (
        libc::SOL_IPV6,
        libc::IPV6_RECVTCLASS,
        control::TRAFFIC_CLASS,
    ),
];

impl Found {
    /// None: it has no port yet, or only the kernel can handle it.
    fn of(fd: i32, inner: &mut Inner) -> Option<Self> {
        let named = |name: kernel::Result<kernel::NameBytes>| {
            let name = name.ok()?;
            address::from_bytes(&name.bytes[..name.length as usize])
        };
        let local = named(kernel::socket_name(fd)).filter(|local| local.port() != 0);
        inner.is_bound = local.is_some();
        let local = local?;
        let option = |level, name| kernel::option_int(fd, level, name).unwrap_or(0);
        let is_shared = option(libc::SOL_SOCKET, libc::SO_REUSEPORT) != 0;
        if is_shared || is_bound_to_device(fd) {
            return None;
        }
        let is_v6 = inner.family == libc::AF_INET6;
        let takes_v4 = !is_v6 || option(libc::SOL_IPV6, libc::IPV6_V6ONLY) == 0;
        let byte = |level, name| option(level, name).clamp(0, 255) as u8;
        let of_v4 = (
            byte(libc::SOL_IP, libc::IP_TOS),
            byte(libc::SOL_IP, libc::IP_TTL),
        );
        let of_v6 = || {
            let hops = byte(libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS);
            (byte(libc::SOL_IPV6, libc::IPV6_TCLASS), hops)
        };
        let told = TOLD.iter().filter(|(level, name, _)| {
            let is_of_family = *level == libc::SOL_IP || is_v6;
            is_of_family && option(*level, *name) != 0
        });
        Some(Self {
            local,
            peer: named(kernel::peer_name(fd)),
            families: [takes_v4, is_v6],
            class_and_hops: [of_v4, if is_v6 { of_v6() } else { (0, 0) }],
            told: told.fold(0, |bits, (.., bit)| bits | bit),
            receive_bytes: option(libc::SOL_SOCKET, libc::SO_RCVBUF).max(0) as usize,
            inode: inner.inode,
        })
    }

    fn note(&self, inner: &mut Inner) {
        inner.peer = self.peer;
        inner.families = self.families;
        inner.class_and_hops = self.class_and_hops;
        inner.told = self.told;
        inner.set_limit(self.receive_bytes);
    }

    fn ip(&self) -> Option<IpAddr> {
        Some(self.local.ip()).filter(|ip| !ip.is_unspecified())
    }
}

fn is_bound_to_device(fd: i32) -> bool {
    let mut name = [0; libc::IFNAMSIZ];
    let _ = kernel::option(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &mut name);
    name[0] != 0
}

/// Whether its datagrams are accelerated. Existing claims are kept without a gap.
fn claim(index: usize, socket: &Socket, found: &Found) -> bool {
    let (port, ip) = (found.local.port(), found.ip());
    begin_as_client();
    let has_address =
        |relay: &mut Relay| !relay.is_gone() && ip.is_none_or(|ip| relay.has_address(ip));
    if relays::find(|relay| has_address(relay).then_some(())).is_none() {
        return false;
    }
    let Some(inodes) = who_has(port) else {
        return false;
    };
    let siblings = siblings(index, &inodes);
    let are_to_be = siblings.iter().map(|(_, sibling)| sibling.lock().inode);
    if !are_ours_alone(&inodes, port, are_to_be.chain([found.inode])) {
        return false;
    }
    let families = ip.map_or(found.families, |ip| [ip.is_ipv4(), ip.is_ipv6()]);
    let place = Place {
        index,
        ip,
        peer: found.peer,
        families,
    };
    datagrams::enter(port, place);
    let is_new = {
        let mut inner = socket.lock();
        inner.place = Some(port);
        inner.claimed.replace(found.local).is_none()
    };
    if is_new {
        // Datagrams that came before the claim wait in the kernel.
        socket.expect_older();
    }
    // Since an earlier claim engines may have come and gone.
    let before = std::mem::take(&mut socket.lock().engines);
    let mut now = Vec::new();
    relays::each(|relay| {
        if relay.is_gone() {
            return;
        }
        now.push(relay.number);
        if !before.contains(&relay.number) {
            relay.claim_datagrams(port);
        }
    });
    socket.lock().engines = now;
    siblings.is_empty() || are_claimed(port, siblings)
}

/// Other sockets of this process among those of a port, which the program has not used yet.
fn siblings(index: usize, inodes: &[u64]) -> Vec<(usize, &'static Socket)> {
    let others = datagrams::all().filter(|(other, socket)| {
        let inner = socket.lock();
        let is_new = inner.claimed.is_none() && !socket.is_left();
        *other != index && is_new && inodes.contains(&inner.inode)
    });
    others.collect()
}

/// Claims further sockets of a port: all or none, since datagrams for one that the kernel handles would be lost.
fn are_claimed(port: u16, siblings: Vec<(usize, &'static Socket)>) -> bool {
    for (index, socket) in siblings.into_iter().filter(|(_, one)| one.take_stale()) {
        if let Some(fd) = datagrams::descriptor(index) {
            follow_locked(index, socket, fd);
        }
    }
    let are_all = is_ours_alone(port);
    if !are_all {
        for place in datagrams::at_port(port) {
            release(datagrams::get(place.index));
        }
    }
    are_all
}

/// The inodes of all UDP sockets of a port, whosever they are.
fn who_has(port: u16) -> Option<Vec<u64>> {
    diag::datagram_sockets(port).ok()
}

/// Whether a port belongs only to claimed sockets of this process.
fn is_ours_alone(port: u16) -> bool {
    who_has(port).is_some_and(|inodes| are_ours_alone(&inodes, port, []))
}

/// The same of those with these inodes and `others` that are to be claimed.
fn are_ours_alone(inodes: &[u64], port: u16, others: impl IntoIterator<Item = u64>) -> bool {
    let claimed = claimed_at(port).into_iter();
    let known = claimed.map(|socket| socket.lock().inode);
    let known: Vec<u64> = known.chain(others).collect();
    inodes.iter().all(|inode| known.contains(inode))
}

/// The sockets of a port whose datagrams are accelerated.
fn claimed_at(port: u16) -> Vec<&'static Socket> {
    let places = datagrams::at_port(port).into_iter();
    let sockets = places.map(|place| datagrams::get(place.index));
    sockets
        .filter(|socket| socket.lock().claimed.is_some())
        .collect()
}

/// Returns its datagrams to the kernel. Datagrams that are on their way to an engine still find the socket.
fn release(socket: &Socket) {
    let (local, engines) = {
        let mut inner = socket.lock();
        (inner.claimed.take(), std::mem::take(&mut inner.engines))
    };
    let Some(local) = local else { return };
    // Those of then: there may be others since.
    relays::each(|relay| {
        if engines.contains(&relay.number) {
            relay.release_datagrams(local.port());
        }
    });
}

/// The same of a socket that is bound elsewhere now, or closed: nothing finds it any more.
fn withdraw(index: usize, socket: &Socket) {
    release(socket);
    let place = socket.lock().place.take();
    if let Some(port) = place {
        datagrams::withdraw(port, index);
    }
}

/// The kernel handles a socket from now on, except for datagrams that wait here, and with it others of its port.
#[cold]
pub fn leave(index: usize) {
    let _one_at_a_time = FOLLOWING.lock();
    let socket = datagrams::get(index);
    let claimed = socket.lock().claimed;
    socket.set_left();
    release(socket);
    for other in claimed.map_or(Vec::new(), |claimed| claimed_at(claimed.port())) {
        other.set_left();
        release(other);
    }
}

/// Nothing means a socket any more.
pub fn close(index: usize) {
    let _one_at_a_time = FOLLOWING.lock();
    let socket = datagrams::get(index);
    socket.set_left();
    withdraw(index, socket);
}

/// The kernel has bound or connected a socket, whose port others of this process may have already.
pub fn named(index: usize, fd: i32) {
    datagrams::get(index).set_stale();
    let name = kernel::socket_name(fd).ok();
    let name = name.and_then(|name| address::from_bytes(&name.bytes[..name.length as usize]));
    if name.is_some_and(|name| !datagrams::at_port(name.port()).is_empty()) {
        follow(index, datagrams::get(index), fd);
    }
}

/// The kernel handles all sockets from now on.
pub fn leave_all() {
    if datagrams::are_used() {
        let all: Vec<_> = datagrams::all().collect();
        all.into_iter().for_each(|(index, _)| leave(index));
    }
}

/// Locks what is claimed across a fork, before the engines.
pub(super) fn hold() -> impl Sized {
    (FOLLOWING.lock().ok(), ways::hold())
}

/// In a forked child.
pub(super) fn forget() {
    ways::forget();
}

/// There are new engines: all sockets are claimed of them too.
pub(super) fn follow_engines() {
    if datagrams::are_used() {
        datagrams::all().for_each(|(_, socket)| socket.set_stale());
    }
}

/// Other programs may have bound sockets to ports that were claimed: the kernel then handles these ports, as it knows
/// which socket each datagram is for. No engine is locked.
#[inline]
pub fn look_at_others() {
    let is_due = || {
        let now = ticks();
        let since = now.wrapping_sub(LOOKED.load(Ordering::Relaxed));
        since >= ticks_in(LOOK_US) && LOOKED.swap(now, Ordering::Relaxed) != now
    };
    if datagrams::are_used() && is_due() {
        look_at_ports();
    }
}

#[cold]
fn look_at_ports() {
    let _one_at_a_time = FOLLOWING.lock();
    let claimed = datagrams::ports().into_iter();
    for port in claimed.filter(|port| !claimed_at(*port).is_empty()) {
        let siblings = who_has(port).map(|inodes| siblings(usize::MAX, &inodes));
        are_claimed(port, siblings.unwrap_or_default());
    }
}
