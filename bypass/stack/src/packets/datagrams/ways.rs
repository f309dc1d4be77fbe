//! Datagrams out.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use bypass_shard::tcp::Way;
use bypass_stats::Counter;
use bypass_sys::clock::now_ns;
use bypass_sys::kernel;

use super::super::begin_as_client;
use super::super::relays::{self, lock};
use crate::datagrams::{Said, Socket};
use crate::process;

/// A way is as old as this at most, as what engines know of the network.
const FRESH_NS: u64 = 10_000_000;
/// Between looks whether a connected socket has an error.
const ASK_NS: u64 = 1_000_000;
/// Ways that are remembered.
const WAYS: usize = 256;

/// A way of datagrams from one name to another; None: the kernel knows it.
#[derive(Clone, Copy)]
struct Known {
    ends: (SocketAddr, SocketAddr),
    until_ns: u64,
    way: Option<Open>,
}

/// By which engine, and how long a datagram may be.
#[derive(Clone, Copy)]
struct Open {
    /// Its place, and its number.
    engine: (usize, u64),
    way: Way,
    room: usize,
}

static KNOWN: [Mutex<Option<Known>>; WAYS] = [const { Mutex::new(None) }; WAYS];

/// Locks what is known across a fork.
pub(super) fn hold() -> impl Sized {
    KNOWN.each_ref().map(|known| known.lock().ok())
}

/// In a forked child: the engines are the parent's.
pub(super) fn forget() {
    for known in &KNOWN {
        if let Ok(mut known) = known.lock() {
            *known = None;
        }
    }
}

/// Sends a datagram of some pieces to `to`, or to whom the socket is connected with; its length. None: it is the
/// kernel's to send, which also says what is wrong with it.
pub fn send(
    (socket, fd): (&Socket, i32),
    to: Option<SocketAddr>,
    pieces: &[&[u8]],
    said: &Said,
) -> Option<usize> {
    let now = now_ns();
    let (local, to, class_and_hops) = {
        let mut inner = socket.lock();
        if inner.peer.is_some() && now.saturating_sub(inner.asked_ns) >= ASK_NS {
            inner.asked_ns = now;
            if has_error(fd) {
                return None;
            }
        }
        let to = to.or(inner.peer)?;
        let of_family = usize::from(to.is_ipv6());
        if !inner.families[of_family] {
            return None;
        }
        (inner.claimed?, to, inner.class_and_hops[of_family])
    };
    let local = SocketAddr::new(said.source.unwrap_or(local.ip()), local.port());
    let mut known = KNOWN[place(local, to)].lock().ok()?;
    let ends = (local, to);
    if known.is_none_or(|known| known.ends != ends || known.until_ns < now) {
        let before = known.filter(|known| known.ends == ends);
        let former = before.and_then(|known| known.way);
        *known = Some(Known {
            ends,
            until_ns: now + FRESH_NS,
            way: find(local, to, former),
        });
    }
    let open = known.as_mut()?.way.as_mut()?;
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    if length > open.room {
        return None;
    }
    let (class, hops) = class_and_hops;
    open.way.traffic_class = said.traffic_class.unwrap_or(class);
    open.way.hops = said.hops.unwrap_or(hops);
    let (at, number) = open.engine;
    let mut place = lock(relays::places().get(at)?);
    let relay = place.as_deref_mut().filter(|one| one.number == number)?;
    if said.link.is_some_and(|link| link != relay.link) {
        return None;
    }
    let is_sent = relay.send_datagram(&mut open.way, pieces);
    is_sent.then(|| {
        process::count(Counter::DatagramsOut, 1);
        length
    })
}

/// Whether ICMP has notified the kernel that a datagram did not arrive: the kernel reports it to the next sender.
fn has_error(fd: i32) -> bool {
    let mut one = [libc::pollfd {
        fd,
        events: 0,
        revents: 0,
    }];
    kernel::poll(&mut one, Some(Duration::ZERO), None).is_ok_and(|found| found > 0)
}

fn find(local: SocketAddr, to: SocketAddr, former: Option<Open>) -> Option<Open> {
    let source = Some(local.ip()).filter(|ip| !ip.is_unspecified());
    begin_as_client();
    let mut places = relays::places().iter().enumerate();
    places.find_map(|(at, place)| {
        let place = lock(place);
        let relay = place.as_deref()?;
        let (way, room) = relay.way((source, local.port()), to)?;
        let engine = (at, relay.number);
        // The same way as before knows its neighbour already.
        let kept = former.filter(|former| former.engine == engine && is_same(&former.way, &way));
        let way = kept.map_or(way, |former| former.way);
        Some(Open { engine, way, room })
    })
}

fn is_same(one: &Way, other: &Way) -> bool {
    (one.source, one.destination) == (other.source, other.destination)
}

fn place(local: SocketAddr, to: SocketAddr) -> usize {
    let low = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u32::from(ip),
        IpAddr::V6(ip) => u128::from(ip) as u32,
    };
    let mixed = low(to.ip())
        .wrapping_mul(0x9e37_79b1)
        .wrapping_add(u32::from(to.port()).wrapping_mul(0x85eb_ca6b))
        .wrapping_add(u32::from(local.port()).wrapping_mul(0xc2b2_ae35));
    (mixed >> 16) as usize % WAYS
}
