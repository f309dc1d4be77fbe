//! Which socket a datagram is for: by port, then as the kernel chooses.

use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::RwLock;

use bypass_shard::tcp::Datagram;
use bypass_stats::Counter;

use super::queue::Received;
use crate::process;

/// Where a socket is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub index: usize,
    /// The address; None: any.
    pub ip: Option<IpAddr>,
    /// Whom it takes datagrams from; None: anybody.
    pub peer: Option<SocketAddr>,
    /// Whether it takes IPv4, and IPv6.
    pub families: [bool; 2],
}

impl Place {
    /// How well a datagram fits; None: not at all.
    fn rank(&self, datagram: &Datagram) -> Option<u32> {
        let is_of_family = self.families[usize::from(datagram.destination.is_ipv6())];
        let fits = self.ip.is_none_or(|ip| ip == datagram.destination.ip())
            && self.peer.is_none_or(|peer| peer == datagram.source);
        // Of two wildcards the one that has no other family.
        let is_narrow = u32::from(self.families != [true; 2]);
        let rank =
            u32::from(self.peer.is_some()) * 4 + u32::from(self.ip.is_some()) * 2 + is_narrow;
        (is_of_family && fits).then_some(rank)
    }
}

static PLACES: RwLock<BTreeMap<u16, Vec<Place>>> = RwLock::new(BTreeMap::new());
static ARRIVALS: AtomicU32 = AtomicU32::new(0);

/// How many datagrams have come for any socket; wraps.
#[inline]
pub fn arrivals() -> u32 {
    ARRIVALS.load(Ordering::Acquire)
}

/// A datagram waits for its receiver.
pub fn note_arrival() {
    ARRIVALS.fetch_add(1, Ordering::AcqRel);
}

/// From now on datagrams of a port are this socket's where they fit this place, whatever it was before.
pub fn enter(port: u16, place: Place) {
    if let Ok(mut places) = PLACES.write() {
        let at_port = places.entry(port).or_default();
        at_port.retain(|one| one.index != place.index);
        at_port.push(place);
    }
}

/// A socket is bound there no more.
pub fn withdraw(port: u16, index: usize) {
    let Ok(mut places) = PLACES.write() else {
        return;
    };
    if let Some(at_port) = places.get_mut(&port) {
        at_port.retain(|place| place.index != index);
        if at_port.is_empty() {
            places.remove(&port);
        }
    }
}

/// The sockets of a port.
pub fn at_port(port: u16) -> Vec<Place> {
    let places = PLACES.read();
    places.map_or(Vec::new(), |places| {
        places.get(&port).cloned().unwrap_or_default()
    })
}

/// The ports that any socket has.
pub fn ports() -> Vec<u16> {
    PLACES
        .read()
        .map_or(Vec::new(), |places| places.keys().copied().collect())
}

/// A datagram that has come by interface `link`, at a port that was claimed. An engine is locked.
pub fn deliver(link: u32, datagram: &Datagram) {
    let Ok(places) = PLACES.read() else { return };
    let Some(at_port) = places.get(&datagram.destination.port()) else {
        return;
    };
    let ranked = at_port.iter().filter_map(|place| {
        let rank = place.rank(datagram)?;
        Some((rank, place.index))
    });
    let received = Received {
        source: datagram.source,
        destination: datagram.destination.ip(),
        link,
        traffic_class: datagram.traffic_class,
        hops: datagram.hops,
        length: datagram.payload.len(),
    };
    let best = ranked.max_by_key(|(rank, _)| *rank);
    let is_taken = best.is_some_and(|(_, index)| super::get(index).put(received, datagram.payload));
    let counter = match is_taken {
        true => Counter::DatagramsIn,
        false => Counter::DatagramsLost,
    };
    process::count(counter, 1);
}

/// Locks them across a fork.
pub fn hold() -> impl Sized {
    PLACES.write().ok()
}

/// In a forked child, whose sockets have none.
pub fn forget() {
    if let Ok(mut places) = PLACES.write() {
        places.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 4] = [10, 0, 0, 2];
    const OTHER: [u8; 4] = [10, 0, 0, 1];

    fn ranked(ip: Option<[u8; 4]>, peer: Option<u16>, families: [bool; 2]) -> Option<u32> {
        let place = Place {
            index: 0,
            ip: ip.map(IpAddr::from),
            peer: peer.map(|port| (OTHER, port).into()),
            families,
        };
        place.rank(&Datagram {
            source: (OTHER, 7).into(),
            destination: (OWN, 53).into(),
            traffic_class: 0,
            hops: 64,
            payload: b"",
        })
    }

    #[test]
    fn a_connected_socket_comes_before_a_bound_one_and_that_before_any() {
        const BOTH: [bool; 2] = [true, true];
        const V4: [bool; 2] = [true, false];
        let best_last = [
            ranked(None, None, BOTH),
            ranked(None, None, V4),
            ranked(Some(OWN), None, V4),
            ranked(None, Some(7), V4),
            ranked(Some(OWN), Some(7), V4),
        ];
        assert!(best_last.iter().all(Option::is_some));
        assert!(best_last.is_sorted_by(|one, next| one < next));
        for wrong in [
            ranked(Some(OTHER), None, V4),
            ranked(None, Some(8), V4),
            ranked(None, None, [false, true]),
        ] {
            assert_eq!(wrong, None);
        }
    }
}
