//! A copy of the kernel's links, addresses, routes and neighbours.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use bypass_sys::kernel::Result;

use crate::item::{Address, Link, Mac, Neighbour, Route, RouteKind};
use crate::message::{Message, Request};
use crate::policy::{Fate, Ways};
use crate::rule::Rule;
use crate::socket::Socket;

const GROUPS: i32 = libc::RTMGRP_LINK
    | libc::RTMGRP_NEIGH
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV6_ROUTE
    | RULES;
/// RTNLGRP_IPV4_RULE and RTNLGRP_IPV6_RULE as bits.
const RULES: i32 = 1 << 7 | 1 << 18;

/// Consecutive floods of notifications that are discarded before everything is read again.
const DRAINS_MAX: u32 = 8;

/// The next hop of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextHop {
    /// Interface index.
    pub link: u32,
    /// The host on that link: the gateway, or the destination itself.
    pub ip: IpAddr,
    /// Source address that the route prefers.
    pub source: Option<IpAddr>,
    /// MTU of the route, else of the link.
    pub mtu: u32,
    /// The destination is this host.
    pub is_local: bool,
}

/// A copy of the kernel's tables of one network namespace: that of the thread that created it.
#[derive(Debug)]
pub struct Tables {
    socket: Socket,
    /// With the generation in which each came: see [`link_came`](Self::link_came).
    links: HashMap<u32, (Link, u64)>,
    addresses: Vec<Address>,
    routes: BTreeSet<Route>,
    /// They are to be read again: the kernel does not list what an IPv4 route replaces, nor what goes with a link.
    has_stale_routes: bool,
    rules: Vec<Rule>,
    /// Of a socket without an address, over IPv4 and IPv6; made when they are asked for.
    ways: [OnceCell<Ways>; 2],
    neighbours: HashMap<(u32, IpAddr), Neighbour>,
    generation: u64,
    ways_generation: u64,
    losses: u64,
    /// News were lost, and not everything could be read again yet.
    has_lost: bool,
}

impl Tables {
    /// Reads everything, and receives changes from now on.
    pub fn new() -> Result<Self> {
        let mut tables = Self {
            socket: Socket::open(GROUPS as u32)?,
            links: HashMap::new(),
            addresses: Vec::new(),
            routes: BTreeSet::new(),
            has_stale_routes: false,
            rules: Vec::new(),
            ways: Default::default(),
            neighbours: HashMap::new(),
            generation: 0,
            ways_generation: 0,
            losses: 0,
            has_lost: false,
        };
        tables.read_all()?;
        Ok(tables)
    }

    /// For polling until readable: [`update`](Self::update) has work.
    pub fn fd(&self) -> i32 {
        self.socket.fd()
    }

    /// Takes in what has changed; true when anything has. Without news it costs one system call.
    pub fn update(&mut self) -> Result<bool> {
        let before = self.generation;
        let mut news = Vec::new();
        let heard = self
            .socket
            .news(&mut |message| news.push(Change::read(message)));
        for change in news.into_iter().flatten() {
            self.apply(change);
        }
        // Once for all news.
        if std::mem::take(&mut self.has_stale_routes) {
            self.read_routes();
        }
        match heard {
            Err(libc::ENOBUFS) => {
                self.losses += 1;
                self.has_lost = true;
            }
            other => other?,
        }
        if self.has_lost {
            self.read_again()?;
        }
        Ok(self.generation != before)
    }

    /// After a loss. Notifications that are still queued from before are older than the tables that
    /// it reads now.
    fn read_again(&mut self) -> Result<()> {
        let is_flooded = |socket: &mut Socket| socket.news(&mut |_| ()) == Err(libc::ENOBUFS);
        (0..DRAINS_MAX).find(|_| !is_flooded(&mut self.socket));
        self.read_all()?;
        self.has_lost = false;
        Ok(())
    }

    /// Increases with every change: data derived from the tables is stale when it has increased.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Increases with every change that may reroute packets.
    pub fn ways_generation(&self) -> u64 {
        self.ways_generation
    }

    /// How often notifications were lost, and everything was read again.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    fn read_all(&mut self) -> Result<()> {
        // Not the socket of the notifications: a response could be lost among them.
        let mut socket = Socket::open(0)?;
        let mut found = Vec::new();
        for (kind, bytes) in [
            (libc::RTM_GETLINK, 16),
            (libc::RTM_GETADDR, 8),
            (libc::RTM_GETROUTE, 12),
            (libc::RTM_GETNEIGH, 12),
        ] {
            let request = || Request::new(kind, libc::NLM_F_DUMP, &vec![0; bytes]);
            socket.dump(request, &mut |message| found.push(Change::read(message)))?;
        }
        // Half of it would be worse than what was known.
        let before = std::mem::take(&mut self.links);
        self.neighbours = HashMap::new();
        (self.addresses, self.routes) = (Vec::new(), BTreeSet::new());
        self.rules = read_rules();
        self.ways = Default::default();
        self.ways_generation += 1;
        for change in found.into_iter().flatten() {
            self.apply(change);
        }
        for (index, (_, came)) in &mut self.links {
            *came = before.get(index).map_or(*came, |(_, came)| *came);
        }
        self.generation += 1;
        Ok(())
    }

    fn apply(&mut self, change: Change) {
        self.generation += 1;
        if change.may_move_ways() {
            self.ways = Default::default();
            self.ways_generation += 1;
        }
        match change {
            Change::Link(link) => self.take_link(link),
            Change::LinkGone(index) => self.forget_link(index),
            Change::Address(address) => {
                match self.addresses.iter_mut().find(|one| one.is(&address)) {
                    Some(one) => *one = address, // renewed; it keeps its place
                    None => self.addresses.push(address),
                }
            }
            Change::AddressGone(address) => self.forget_address(&address),
            Change::Routes(routes) => self.routes.extend(routes),
            Change::RoutesGone(gone) => {
                for route in gone {
                    let is_known = self.routes.remove(&route);
                    self.has_stale_routes |= !is_known && self.has_alike(&route);
                }
            }
            Change::Neighbour(one) => drop(self.neighbours.insert((one.link, one.ip), one)),
            Change::NeighbourGone(one) => drop(self.neighbours.remove(&(one.link, one.ip))),
            Change::RoutesReplaced => self.has_stale_routes = true,
            // There may be several that are alike.
            Change::Rules => self.rules = read_rules(),
        }
    }

    fn take_link(&mut self, link: Link) {
        let before = self.links.get(&link.index);
        let came = before.map_or(self.generation, |(_, came)| *came);
        // Hops by it are dead from now on, or no more, and the kernel reports nothing of their routes.
        let works = |link: &Link| (link.is_up, link.is_running);
        self.has_stale_routes |= before.is_some_and(|(before, _)| works(before) != works(&link));
        self.links.insert(link.index, (link, came));
    }

    /// Whether a route is known that differs from another only in what the kernel may change without a word, as a
    /// router's preference.
    fn has_alike(&self, route: &Route) -> bool {
        let network = |one: &Route| (one.table, one.kind, one.destination, one.prefix);
        let hop = |one: &Route| (one.tos, one.from, one.metric, one.link, one.gateway);
        let from = self.routes.range(route.first_of_network()..);
        from.take_while(|one| network(one) == network(route))
            .any(|one| hop(one) == hop(route))
    }

    fn forget_link(&mut self, index: u32) {
        self.links.remove(&index);
        self.addresses.retain(|address| address.link != index);
        self.routes.retain(|route| route.link != index);
        self.neighbours.retain(|(link, _), _| *link != index);
    }

    fn forget_address(&mut self, gone: &Address) {
        self.addresses.retain(|kept| !kept.is(gone));
    }

    fn read_routes(&mut self) {
        let mut found = BTreeSet::new();
        let request = || Request::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP, &[0; 12]);
        let read = Socket::open(0).and_then(|mut socket| {
            socket.dump(request, &mut |message| {
                if !Route::is_remembered(message.body) {
                    found.extend(Route::read(message.body));
                }
            })
        });
        if read.is_ok() {
            self.routes = found;
        }
    }

    /// Every interface.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values().map(|(link, _)| link)
    }

    /// The interface of this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links().find(|link| link.name == name)
    }

    /// The interface of this index.
    pub fn link_at(&self, index: u32) -> Option<&Link> {
        self.links.get(&index).map(|(link, _)| link)
    }

    /// The [generation](Self::generation) in which the interface of this index came: another number means that it was
    /// removed, and another one has its index.
    pub fn link_came(&self, index: u32) -> Option<u64> {
        self.links.get(&index).map(|(_, came)| *came)
    }

    /// Every address of this host.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Every route, of all tables.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }

    /// Every policy rule.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Ways to other hosts from an address of this one.
    pub fn ways_from(&self, source: IpAddr) -> Ways {
        let is_v4 = source.is_ipv4();
        Ways::of(&self.rules, self.routes(), Some(source), is_v4, false)
    }

    /// Every neighbour.
    pub fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.neighbours.values()
    }

    /// The entry of `ip` on interface `link`.
    pub fn neighbour(&self, link: u32, ip: IpAddr) -> Option<&Neighbour> {
        self.neighbours.get(&(link, ip))
    }

    /// The link-layer address of `ip` on interface `link`, if packets may be sent to it.
    pub fn mac(&self, link: u32, ip: IpAddr) -> Option<Mac> {
        self.neighbour(link, ip)
            .filter(|one| one.is_valid())
            .and_then(|one| one.mac)
    }

    /// The route to `destination` of a socket without an address, by all rules and tables. None if
    /// the kernel has no route, or if it depends on properties that are unknown here; see
    /// [`crate::route::ask`].
    pub fn next_hop(&self, destination: IpAddr) -> Option<NextHop> {
        let is_v4 = destination.is_ipv4();
        let ways = self.ways[usize::from(!is_v4)]
            .get_or_init(|| Ways::of(&self.rules, &self.routes, None, is_v4, true));
        let Some(Fate::Goes(route)) = ways.to(destination) else {
            return None;
        };
        let link = self.link_at(route.link);
        Some(NextHop {
            link: route.link,
            ip: route.gateway.unwrap_or(destination),
            source: route.source,
            mtu: route.mtu.or(link.map(|link| link.mtu)).unwrap_or(1500),
            is_local: route.kind == RouteKind::Local,
        })
    }
}

/// The rules of both families. A kernel without policy rules has the three of a new network namespace.
fn read_rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    let request = || Request::new(libc::RTM_GETRULE, libc::NLM_F_DUMP, &[0; 12]);
    let _ = Socket::open(0).and_then(|mut socket| {
        socket.dump(request, &mut |message| {
            rules.extend(Rule::read(message.body))
        })
    });
    for any in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
        if !rules
            .iter()
            .any(|rule| rule.source.0.is_ipv4() == any.is_ipv4())
        {
            rules.extend(Rule::usual(any));
        }
    }
    rules
}

/// One notification.
enum Change {
    Link(Link),
    LinkGone(u32),
    Address(Address),
    AddressGone(Address),
    Routes(Vec<Route>),
    RoutesGone(Vec<Route>),
    RoutesReplaced,
    Rules,
    Neighbour(Neighbour),
    NeighbourGone(Neighbour),
}

impl Change {
    fn may_move_ways(&self) -> bool {
        !matches!(
            self,
            Self::Neighbour(_) | Self::NeighbourGone(_) | Self::Address(_)
        )
    }

    fn read(message: Message) -> Vec<Self> {
        let body = message.body;
        let is_news = message.flags & libc::NLM_F_MULTI == 0;
        match message.kind {
            // Links of a bridge (AF_BRIDGE) describe its ports, not links.
            libc::RTM_NEWLINK if body.first() == Some(&0) => one(Link::read(body), |link| {
                // The kernel drops routes of an interface that goes down without a notification.
                let is_down = !link.is_up;
                let mut changes = vec![Self::Link(link)];
                changes.extend((is_news && is_down).then_some(Self::RoutesReplaced));
                changes
            }),
            libc::RTM_DELLINK if body.first() == Some(&0) => {
                one(Link::read(body), |link| vec![Self::LinkGone(link.index)])
            }
            libc::RTM_NEWADDR => one(Address::read(body), |address| vec![Self::Address(address)]),
            libc::RTM_DELADDR => one(Address::read(body), |address| {
                vec![Self::AddressGone(address), Self::RoutesReplaced]
            }),
            libc::RTM_NEWROUTE if message.flags & libc::NLM_F_REPLACE != 0 && is_news => {
                vec![Self::RoutesReplaced]
            }
            libc::RTM_NEWROUTE if Route::is_remembered(body) => Vec::new(),
            libc::RTM_NEWROUTE => vec![Self::Routes(Route::read(body))],
            libc::RTM_DELROUTE => vec![Self::RoutesGone(Route::read_all(body))],
            libc::RTM_NEWRULE | libc::RTM_DELRULE => vec![Self::Rules],
            libc::RTM_NEWNEIGH => one(Neighbour::read(body), |found| vec![Self::Neighbour(found)]),
            libc::RTM_DELNEIGH => one(Neighbour::read(body), |found| {
                vec![Self::NeighbourGone(found)]
            }),
            _ => Vec::new(),
        }
    }
}

fn one<T>(read: Option<T>, changes: impl FnOnce(T) -> Vec<Change>) -> Vec<Change> {
    read.map_or_else(Vec::new, changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel takes over what a router says of itself in an advertisement, and reports only the end of its route.
    #[test]
    fn a_route_that_has_changed_without_a_word_goes_with_its_end() {
        let known = Route {
            table: 254,
            kind: RouteKind::Unicast,
            destination: IpAddr::from([0; 16]),
            prefix: 0,
            tos: 0,
            from: 0,
            preference: 2,
            gateway: Some(IpAddr::from([0xfe; 16])),
            link: 1 << 30,
            source: None,
            metric: 1024,
            mtu: None,
            mss: None,
            hops: Some(64),
        };
        let mut tables = Tables::new().expect("tables");
        let is_there = |tables: &Tables| tables.routes().any(|route| *route == known);
        tables.routes.insert(known);
        let gone = |route| Change::RoutesGone(vec![route]);
        tables.apply(gone(Route { link: 7, ..known }));
        assert!(!tables.has_stale_routes && is_there(&tables), "another one");
        let (preference, hops) = (3, Some(9));
        tables.apply(gone(Route {
            preference,
            hops,
            ..known
        }));
        tables.update().expect("an update");
        assert!(!is_there(&tables));
    }
}
