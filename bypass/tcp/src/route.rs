//! Where packets go: our addresses, routes, path MTUs.

use crate::error::Error;
use crate::wire::ip::{self, Addr};
use crate::wire::tcp;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

/// How long a path MTU is believed (RFC 1191, 6.3).
const PATH_MTU_LIFE_US: u64 = 600_000_000;
/// Paths remembered at most.
const PATHS_MAX: usize = 4_096;
/// Least path MTU that is believed for IPv4 (Linux's `min_pmtu`).
const MTU_MIN_V4: u32 = 552;
/// Least maximum that a route can have (RFC 791, 3.2).
const ROUTE_MTU_MIN: u32 = 68;
/// Least path MTU of IPv6 (RFC 8200, 5).
const MTU_MIN_V6: u32 = 1_280;

/// An address of ours and the length of its network's prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Bits of the network's prefix.
    pub prefix_len: u8,
}

/// A way to a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The network.
    pub network: IpAddr,
    /// Bits of its prefix; zero for the default route.
    pub prefix_len: u8,
    /// The router; none when the network is on the link.
    pub gateway: Option<IpAddr>,
    /// Largest packet of this route; zero for the link's.
    pub mtu: u32,
    /// MSS that is stated to peers (`advmss`), whatever the largest packet; zero for what that leaves.
    pub mss: u32,
    /// The address to send from; none for the one that shares most bits.
    pub source: Option<IpAddr>,
    /// Time to live, or hop limit, of its packets; zero for the engine's.
    pub hops: u8,
}

/// The neighbour of a connection, remembered; a generation of zero is none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Number in the neighbour table.
    pub index: u32,
    /// Which use of that number.
    pub generation: u32,
    /// For which addresses and routes it was chosen.
    pub routes: u32,
    /// When the peer last acknowledged something new, or sent it: the way there works.
    pub progress_us: u64,
    /// The address at this end is no longer ours: nothing leaves.
    pub is_stranded: bool,
}

/// Addresses, routes and paths.
#[derive(Default)]
pub struct Routes {
    /// Networks of the addresses are on the link where no route says otherwise. With the kernel's routes these decide
    /// alone (RFC 5942, 4).
    infers_networks: bool,
    /// Increases as addresses or routes change.
    pub generation: u32,
    addresses: Vec<(Addr, u8)>,
    /// Of our networks.
    broadcasts: Vec<Addr>,
    /// By length of prefix, the longest first; then by network, of IPv4 and IPv6.
    routes: Vec<(u8, BTreeMap<(bool, Addr), Route>)>,
    paths: BTreeMap<Addr, (u32, u64)>,
    /// When the first of them is to be tried with larger packets again; zero: none.
    paths_until_us: u64,
}

impl Routes {
    /// None yet. `infers_networks`: those of the addresses are on the link where no route says otherwise.
    pub fn new(infers_networks: bool) -> Self {
        Self {
            infers_networks,
            ..Self::default()
        }
    }

    /// Replaces the addresses. Whether they are others.
    pub fn set_addresses(&mut self, addresses: &[Address]) -> bool {
        let own = addresses.iter().map(|own| (own.ip.into(), own.prefix_len));
        let own: Vec<(Addr, u8)> = own.collect();
        if own == self.addresses {
            return false;
        }
        self.generation = self.generation.wrapping_add(1);
        self.addresses = own;
        let broadcasts = self.addresses.iter().filter_map(|own| broadcast(*own));
        self.broadcasts = broadcasts.collect();
        true
    }

    /// Replaces the routes. Of several for a network the first counts.
    pub fn set_routes(&mut self, routes: &[Route]) {
        let mut by_len: BTreeMap<u8, BTreeMap<(bool, Addr), Route>> = BTreeMap::new();
        for route in routes {
            let network = Addr::from(route.network);
            let place = (network.is_v4(), masked(network, route.prefix_len));
            let of_len = by_len.entry(route.prefix_len).or_default();
            of_len.entry(place).or_insert(*route);
        }
        let routes: Vec<_> = by_len.into_iter().rev().collect();
        if routes != self.routes {
            self.generation = self.generation.wrapping_add(1);
            self.routes = routes;
        }
    }

    /// Whether the address belongs to this host.
    #[inline]
    pub fn is_local(&self, addr: Addr) -> bool {
        self.addresses.iter().any(|(own, _)| *own == addr)
    }

    /// Whether a packet from the link can come from this address; Linux calls others martians.
    #[inline]
    pub fn is_possible_source(&self, from: Addr) -> bool {
        let is_none = from.is_of_no_link() || from.is_multicast();
        !is_none && !self.is_local(from) && !self.broadcasts.contains(&from)
    }

    fn on_link(&self, to: Addr) -> bool {
        if !self.infers_networks {
            return false;
        }
        self.addresses
            .iter()
            .any(|(own, len)| shares_prefix(*own, to, *len))
            || !to.is_v4() && to.high >> 54 == 0xfe80 >> 6
    }

    fn route(&self, to: Addr) -> Option<&Route> {
        let place = |len| (to.is_v4(), masked(to, len));
        let mut by_len = self.routes.iter();
        by_len.find_map(|(len, of_len)| of_len.get(&place(*len)))
    }

    /// The neighbour that a packet to this address is handed to.
    pub fn next_hop(&self, to: Addr) -> Result<Addr, Error> {
        match self.route(to) {
            Some(Route { prefix_len: 0, .. }) | None if self.on_link(to) => Ok(to),
            Some(route) => Ok(route.gateway.map_or(to, Addr::from)),
            None => Err(Error::NetworkUnreachable),
        }
    }

    /// The address of ours that packets to this address should come from.
    pub fn source_for(&self, to: Addr) -> Option<Addr> {
        if let Some(source) = self.route(to).and_then(|route| route.source) {
            return Some(source.into());
        }
        let same_kind = self
            .addresses
            .iter()
            .filter(|(own, _)| own.is_v4() == to.is_v4());
        same_kind
            .max_by_key(|(own, _)| common_bits(*own, to))
            .map(|(own, _)| *own)
    }

    /// Time to live, or hop limit, of packets to this address that have none of their own.
    pub fn hops(&self, to: Addr, usual: u8) -> u8 {
        let own = self.route(to).map(|route| route.hops);
        own.filter(|hops| *hops > 0).unwrap_or(usual)
    }

    /// The largest packet that link and route are set to carry, whatever a router has reported of the path.
    pub fn configured_mtu(&self, to: Addr, link_mtu: u32) -> u32 {
        match self.route(to) {
            Some(route) if route.mtu > 0 => route.mtu.max(ROUTE_MTU_MIN).min(link_mtu),
            _ => link_mtu,
        }
    }

    /// The MSS that is stated to a peer at this address (RFC 6691): what link and route carry without headers, unless the
    /// route has one of its own, which Linux states even where it is larger.
    pub fn stated_mss(&self, to: Addr, link_mtu: u32) -> u32 {
        let headers = ip::header_len(to) + tcp::HEADER;
        let mss = match self.route(to) {
            Some(route) if route.mss > 0 => route.mss,
            _ => self
                .configured_mtu(to, link_mtu)
                .saturating_sub(headers as u32),
        };
        mss.min(0xffff)
    }

    /// The largest packet that the path is known to carry.
    pub fn mtu(&self, to: Addr, link_mtu: u32, now_us: u64) -> u32 {
        let mtu = self.configured_mtu(to, link_mtu);
        match self.paths.get(&to) {
            Some((path, until_us)) if *until_us > now_us => mtu.min(*path),
            _ => mtu,
        }
    }

    /// A router reported a smaller maximum. Answers what is believed of it, if anything.
    pub fn lower_mtu(&mut self, to: Addr, reported: u32, current: u32, now_us: u64) -> Option<u32> {
        let believed = match to.is_v4() {
            true => reported.max(MTU_MIN_V4),
            // RFC 8201, 4: such a report must be discarded.
            false if reported < MTU_MIN_V6 => return None,
            false => reported,
        };
        if believed >= current {
            return None;
        }
        if self.paths.len() >= PATHS_MAX && !self.paths.contains_key(&to) {
            self.paths.pop_first();
        }
        self.paths.insert(to, (believed, now_us + PATH_MTU_LIFE_US));
        self.find_first_path();
        Some(believed)
    }

    /// Whether paths are to be tried with larger packets again.
    #[inline]
    pub fn has_old_paths(&self, now_us: u64) -> bool {
        self.paths_until_us != 0 && self.paths_until_us <= now_us
    }

    /// Forgets them.
    pub fn forget_old_paths(&mut self, now_us: u64) {
        self.paths.retain(|_, (_, until_us)| *until_us > now_us);
        self.find_first_path();
    }

    fn find_first_path(&mut self) {
        let first = self.paths.values().map(|(_, until_us)| *until_us).min();
        self.paths_until_us = first.unwrap_or(0);
    }
}

/// The last address of an IPv4 network that has one to spare (RFC 3021).
fn broadcast((own, prefix_len): (Addr, u8)) -> Option<Addr> {
    let has_one = own.is_v4() && prefix_len < 31;
    has_one.then(|| Addr::v4(own.v4_bits() | u32::MAX.wrapping_shr(prefix_len.into())))
}

/// The first `len` bits; for IPv4 those behind the mapped prefix.
fn masked(addr: Addr, len: u8) -> Addr {
    if addr.is_v4() {
        let mask = u32::MAX
            .checked_shl(32 - u32::from(len.min(32)))
            .unwrap_or(0);
        return Addr::v4(addr.v4_bits() & mask);
    }
    let mask = u128::MAX
        .checked_shl(128 - u32::from(len.min(128)))
        .unwrap_or(0);
    Addr {
        high: addr.high & (mask >> 64) as u64,
        low: addr.low & mask as u64,
    }
}

/// Whether the first `len` bits agree; for IPv4 the bits behind the mapped prefix.
fn shares_prefix(a: Addr, b: Addr, len: u8) -> bool {
    a.is_v4() == b.is_v4() && common_bits(a, b) >= u32::from(len)
}

fn common_bits(a: Addr, b: Addr) -> u32 {
    if a.is_v4() && b.is_v4() {
        return (a.v4_bits() ^ b.v4_bits()).leading_zeros();
    }
    match (a.high ^ b.high).leading_zeros() {
        64 => 64 + (a.low ^ b.low).leading_zeros(),
        bits => bits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// A route by a gateway.
    fn to(network: &str, prefix_len: u8, gateway: &str) -> Route {
        Route {
            network: ip(network),
            prefix_len,
            gateway: Some(ip(gateway)),
            mtu: 0,
            mss: 0,
            source: None,
            hops: 0,
        }
    }

    fn routes() -> Routes {
        let mut routes = Routes::new(true);
        routes.set_addresses(&[
            Address {
                ip: ip("10.0.0.1"),
                prefix_len: 24,
            },
            Address {
                ip: ip("192.168.7.1"),
                prefix_len: 16,
            },
            Address {
                ip: ip("fd00::1"),
                prefix_len: 64,
            },
        ]);
        routes.set_routes(&[
            to("0.0.0.0", 0, "10.0.0.254"),
            to("172.16.0.0", 12, "10.0.0.253"),
        ]);
        routes
    }

    #[test]
    fn the_longest_prefix_wins_and_the_link_comes_before_the_default_route() {
        let routes = routes();
        let hop = |to| routes.next_hop(ip(to).into()).map(IpAddr::from);
        assert_eq!(hop("10.0.0.9"), Ok(ip("10.0.0.9")));
        assert_eq!(hop("172.20.1.1"), Ok(ip("10.0.0.253")));
        assert_eq!(hop("8.8.8.8"), Ok(ip("10.0.0.254")));
        assert_eq!(hop("fd00::9"), Ok(ip("fd00::9")));
        assert_eq!(hop("fd01::9"), Err(Error::NetworkUnreachable));
        assert_eq!(
            routes.source_for(ip("192.168.1.1").into()),
            Some(ip("192.168.7.1").into())
        );
    }

    /// RFC 5942, 4: an address says nothing of other hosts; the kernel's routes do.
    #[test]
    fn with_the_kernels_routes_a_network_is_on_the_link_where_they_say_so() {
        let mut routes = Routes::new(false);
        routes.set_addresses(&[Address {
            ip: ip("10.0.0.2"),
            prefix_len: 24,
        }]);
        let router = Route {
            gateway: None,
            ..to("10.0.0.1", 32, "10.0.0.1")
        };
        let default = to("0.0.0.0", 0, "10.0.0.1");
        routes.set_routes(&[default, router]);
        let hop = |routes: &Routes| routes.next_hop(ip("10.0.0.77").into()).map(IpAddr::from);
        assert_eq!(hop(&routes), Ok(ip("10.0.0.1")));
        routes.set_routes(&[]);
        assert_eq!(hop(&routes), Err(Error::NetworkUnreachable));
        let network = Route {
            network: ip("10.0.0.0"),
            prefix_len: 24,
            ..router
        };
        routes.set_routes(&[default, network]);
        assert_eq!(hop(&routes), Ok(ip("10.0.0.77")));
    }

    #[test]
    fn the_default_route_of_one_family_is_not_the_others() {
        let mut routes = routes();
        routes.set_routes(&[
            to("0.0.0.0", 0, "10.0.0.254"),
            to("fd01::", 16, "fd00::fe"),
            to("fd01:2::", 127, "fd00::fd"),
            to("fd01:2::", 127, "fd00::fc"),
        ]);
        let hop = |to| routes.next_hop(ip(to).into()).map(IpAddr::from);
        assert_eq!(hop("2001::1"), Err(Error::NetworkUnreachable));
        assert_eq!(hop("fd01::1"), Ok(ip("fd00::fe")));
        assert_eq!(hop("fd01:2::1"), Ok(ip("fd00::fd")));
        assert_eq!(hop("fd01:2::2"), Ok(ip("fd00::fe")));
        assert_eq!(hop("8.8.8.8"), Ok(ip("10.0.0.254")));
    }

    #[test]
    fn a_reported_mtu_is_bounded_below_and_expires() {
        let mut routes = routes();
        let to = ip("8.8.8.8").into();
        assert_eq!(routes.lower_mtu(to, 1_400, 1_500, 0), Some(1_400));
        assert_eq!(routes.lower_mtu(to, 1_450, 1_400, 0), None);
        assert_eq!(routes.lower_mtu(to, 68, 1_400, 0), Some(MTU_MIN_V4));
        assert_eq!(routes.mtu(to, 1_500, 1), MTU_MIN_V4);
        assert_eq!(routes.mtu(to, 1_500, PATH_MTU_LIFE_US), 1_500);
    }

    /// RFC 8201, 4: no path of IPv6 carries less.
    #[test]
    fn a_report_of_less_than_ipv6_needs_is_discarded() {
        let mut routes = routes();
        let to = ip("fd00::9").into();
        assert_eq!(routes.lower_mtu(to, 1_279, 1_500, 0), None);
        assert_eq!(routes.mtu(to, 1_500, 1), 1_500);
        assert_eq!(routes.lower_mtu(to, 1_280, 1_500, 0), Some(1_280));
    }
}
