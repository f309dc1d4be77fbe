//! The route of a packet of this host, by all policy rules and tables (RFC 1812, 5.2.4.3, and
//! fib_rules of Linux): rules are evaluated by priority, and the first of their tables that has a
//! route decides.
//!
//! The tables of all rules that apply to a source are merged into one, in which the longest prefix
//! decides: from a later table it takes only prefixes outside every prefix of the earlier ones.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use crate::item::{Route, RouteKind};
use crate::rule::{Action, Applies, Rule};

/// The table of this host's own addresses.
const LOCAL: u32 = 255;

/// A network: its bits from the left, with zeros after its length, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// Bits of the network.
    pub len: u8,
    bits: u128,
}

impl Prefix {
    /// A network of either family.
    pub fn new(network: IpAddr, len: u8) -> Self {
        let bits = bits_of(network) & mask(len);
        Self { len, bits }
    }

    /// Whether an address of the same family lies in it.
    pub fn contains(&self, ip: IpAddr) -> bool {
        bits_of(ip) & mask(self.len) == self.bits
    }

    /// Whether it contains another network, or equals it.
    pub fn covers(&self, other: &Self) -> bool {
        self.len <= other.len && other.bits & mask(self.len) == self.bits
    }

    /// Address and mask of the network in IPv6; an IPv4 network in its mapped form.
    pub fn mapped(&self, is_v4: bool) -> [u128; 2] {
        const MAPPED: u128 = 0xffff << 32;
        match is_v4 {
            true => [
                MAPPED | self.bits >> 96,
                !(u128::MAX >> 96 >> self.len.min(32)),
            ],
            false => [self.bits, mask(self.len)],
        }
    }
}

fn bits_of(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

fn mask(len: u8) -> u128 {
    !u128::MAX.checked_shr(u32::from(len)).unwrap_or(0)
}

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It takes this route.
    Goes(Route),
    /// It is dropped, or refused.
    Refused,
    /// It depends on properties that are unknown here.
    Unsure,
}

/// The routes from one source, of one family.
#[derive(Debug, Default)]
pub struct Ways {
    by_prefix: HashMap<Prefix, Fate>,
    /// Lengths of prefixes in use, longest first.
    lens: Vec<u8>,
}

impl FromIterator<(Prefix, Fate)> for Ways {
    fn from_iter<T: IntoIterator<Item = (Prefix, Fate)>>(all: T) -> Self {
        let mut ways = Self::default();
        ways.append(all.into_iter().collect());
        ways
    }
}

impl Ways {
    /// From an address of this host, or for a socket that has none yet. `has_local`: destinations on this host are
    /// among them.
    pub fn of<'a>(
        rules: &[Rule],
        routes: impl IntoIterator<Item = &'a Route>,
        source: Option<IpAddr>,
        is_v4: bool,
        has_local: bool,
    ) -> Self {
        let mut ways = Self::default();
        let mut sorted: Vec<&Rule> = rules
            .iter()
            .filter(|rule| rule.source.0.is_ipv4() == is_v4 && rule.applies != Applies::Never)
            .filter(|rule| rule.is_for(source))
            .collect();
        sorted.sort_by_key(|rule| rule.priority);
        let mut tables: HashMap<u32, Vec<&Route>> = HashMap::new();
        for route in routes
            .into_iter()
            .filter(|one| one.destination.is_ipv4() == is_v4)
        {
            if has_local || route.table != LOCAL {
                tables.entry(route.table).or_default().push(route);
            }
        }
        for rule in sorted {
            ways.append(entries(rule, &tables));
        }
        ways
    }

    /// Adds the entries that no earlier prefix covers.
    fn append(&mut self, entries: BTreeMap<Prefix, Fate>) {
        let new: Vec<_> = entries
            .into_iter()
            .filter(|(prefix, _)| self.covering(prefix).is_none())
            .collect();
        self.by_prefix.extend(new);
        let mut lens: Vec<u8> = self.by_prefix.keys().map(|prefix| prefix.len).collect();
        lens.sort_unstable_by_key(|len| std::cmp::Reverse(*len));
        lens.dedup();
        self.lens = lens;
    }

    /// The longest prefix that contains another, or equals it.
    fn covering(&self, inner: &Prefix) -> Option<(&Prefix, &Fate)> {
        let mut outer = self
            .lens
            .iter()
            .filter(|len| **len <= inner.len)
            .map(|len| Prefix {
                len: *len,
                bits: inner.bits & mask(*len),
            });
        outer.find_map(|prefix| self.by_prefix.get_key_value(&prefix))
    }

    /// The fate of packets to an address; None without a route.
    pub fn to(&self, destination: IpAddr) -> Option<Fate> {
        self.to_prefix(&Prefix::new(destination, 128))
    }

    /// The fate of packets to a network, if no part of it has a separate route.
    pub fn to_prefix(&self, network: &Prefix) -> Option<Fate> {
        self.covering(network).map(|(_, fate)| *fate)
    }

    /// Every prefix with its fate.
    pub fn all(&self) -> impl Iterator<Item = (&Prefix, &Fate)> {
        self.by_prefix.iter()
    }
}

impl Rule {
    fn is_for(&self, source: Option<IpAddr>) -> bool {
        let prefix = Prefix::new(self.source.0, self.source.1);
        self.source.1 == 0 || source.is_some_and(|source| prefix.contains(source))
    }
}

/// The entries of a rule, by prefix.
fn entries(rule: &Rule, tables: &HashMap<u32, Vec<&Route>>) -> BTreeMap<Prefix, Fate> {
    let scope = Prefix::new(rule.destination.0, rule.destination.1);
    let mut entries = match rule.action {
        Action::Nothing => BTreeMap::new(),
        Action::Refuse => BTreeMap::from([(scope, Fate::Refused)]),
        Action::Unknown => BTreeMap::from([(scope, Fate::Unsure)]),
        Action::Table(table) => {
            let routes = tables.get(&table).map_or(&[][..], Vec::as_slice);
            let counts = |route: &&Route| {
                let bits = u32::from(route.prefix);
                rule.suppressed.is_none_or(|suppressed| bits > suppressed)
            };
            within(scope, routes.iter().copied().filter(counts))
        }
    };
    if rule.applies == Applies::Perhaps {
        entries.values_mut().for_each(|fate| *fate = Fate::Unsure);
    }
    entries
}

/// The routes of a table to destinations in `scope`.
fn within<'a>(scope: Prefix, routes: impl Iterator<Item = &'a Route>) -> BTreeMap<Prefix, Fate> {
    let mut best: BTreeMap<Prefix, Vec<&Route>> = BTreeMap::new();
    let mut of_some = BTreeSet::new();
    let rank = |route: &Route| (std::cmp::Reverse(route.prefix), route.metric);
    for route in routes {
        let network = Prefix::new(route.destination, route.prefix);
        let part = match (scope.covers(&network), network.covers(&scope)) {
            (true, _) => network,
            (_, true) => scope,
            _ => continue,
        };
        let known = best.entry(part).or_default();
        // Packets of its type of service, or from its sources, go by it, whatever its metric.
        if route.tos != 0 || route.from != 0 {
            of_some.insert(part);
        }
        match known.first().map(|first| rank(route).cmp(&rank(first))) {
            None | Some(Ordering::Equal) => known.push(route),
            Some(Ordering::Less) => *known = vec![route],
            Some(Ordering::Greater) => {}
        }
    }
    let fate = |part: &Prefix, routes: Vec<&Route>| match routes[0].kind {
        _ if of_some.contains(part) => Fate::Unsure,
        // The kernel chooses one of several hops by a hash of the flow.
        RouteKind::Unicast
            if routes
                .iter()
                .any(|one| (one.link, one.kind) != (routes[0].link, routes[0].kind)) =>
        {
            Fate::Unsure
        }
        RouteKind::Unicast | RouteKind::Local => Fate::Goes(preferred(&routes)),
        RouteKind::Refused => Fate::Refused,
        RouteKind::Other => Fate::Unsure,
    };
    best.into_iter()
        .map(|(part, routes)| (part, fate(&part, routes)))
        .collect()
}

/// Of routes over one link the one by the router that is preferred, or the first of several.
fn preferred(routes: &[&Route]) -> Route {
    let best = routes.iter().rev().max_by_key(|route| route.preference);
    **best.unwrap_or(&routes[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn prefix(text: &str) -> (IpAddr, u8) {
        let (network, len) = text.split_once('/').expect("a prefix");
        (ip(network), len.parse().expect("a length"))
    }

    fn route(table: u32, to: &str, link: u32) -> Route {
        let (destination, prefix) = prefix(to);
        Route {
            table,
            kind: RouteKind::Unicast,
            destination,
            prefix,
            tos: 0,
            from: 0,
            preference: 0,
            gateway: None,
            link,
            source: None,
            metric: 0,
            mtu: None,
            mss: None,
            hops: None,
        }
    }

    fn rule(priority: u32, source: &str, destination: &str, action: Action) -> Rule {
        Rule {
            priority,
            source: prefix(source),
            destination: prefix(destination),
            action,
            suppressed: None,
            applies: Applies::Always,
            is_of_datagrams: false,
        }
    }

    /// Two uplinks: packets from the second one's address use a separate table.
    fn two_uplinks() -> (Vec<Rule>, Vec<Route>) {
        let any = "0.0.0.0/0";
        let rules = vec![
            rule(0, any, any, Action::Table(LOCAL)),
            rule(100, "10.2.0.0/24", any, Action::Table(7)),
            rule(32766, any, any, Action::Table(254)),
            rule(32767, any, any, Action::Table(253)),
        ];
        let routes = vec![
            route(254, any, 1),
            route(254, "10.1.0.0/24", 1),
            route(254, "10.2.0.0/24", 2),
            route(7, any, 2),
        ];
        (rules, routes)
    }

    fn link(ways: &Ways, to: &str) -> u32 {
        match ways.to(ip(to)) {
            Some(Fate::Goes(route)) => route.link,
            other => panic!("{to}: {other:?}"),
        }
    }

    #[test]
    fn each_address_leaves_by_the_table_of_its_rule() {
        let (rules, routes) = two_uplinks();
        let from = |source: Option<&str>| Ways::of(&rules, &routes, source.map(ip), true, false);
        let (first, second, none) = (from(Some("10.1.0.2")), from(Some("10.2.0.2")), from(None));
        assert_eq!(
            [&first, &second, &none].map(|ways| link(ways, "8.8.8.8")),
            [1, 2, 1]
        );
        // The rule's table has a route everywhere: the main one is not used.
        assert_eq!([&first, &second].map(|ways| link(ways, "10.1.0.9")), [1, 2]);
        assert_eq!(
            Ways::of(&rules, &routes, None, false, false).to(ip("fd00::1")),
            None
        );
    }

    #[test]
    fn a_rule_that_refuses_or_is_not_understood_comes_before_later_tables() {
        let (mut rules, routes) = two_uplinks();
        let any = "0.0.0.0/0";
        rules.push(rule(50, any, "8.8.0.0/16", Action::Refuse));
        rules.push(rule(60, any, "9.9.0.0/16", Action::Unknown));
        rules.push(Rule {
            applies: Applies::Perhaps,
            ..rule(70, any, "7.7.0.0/16", Action::Table(254))
        });
        rules.push(Rule {
            applies: Applies::Never,
            ..rule(10, any, any, Action::Refuse)
        });
        let ways = Ways::of(&rules, &routes, Some(ip("10.1.0.2")), true, false);
        assert_eq!(ways.to(ip("8.8.8.8")), Some(Fate::Refused));
        assert_eq!(ways.to(ip("9.9.9.9")), Some(Fate::Unsure));
        assert_eq!(ways.to(ip("7.7.7.7")), Some(Fate::Unsure));
        assert_eq!(link(&ways, "8.9.8.8"), 1);
    }

    /// The usual setup of VPN programs: everything but the default route of the main table, then
    /// another table.
    #[test]
    fn suppressed_prefixes_leave_their_destinations_to_the_next_rule() {
        let (mut rules, mut routes) = two_uplinks();
        let any = "0.0.0.0/0";
        rules.push(Rule {
            suppressed: Some(0),
            ..rule(10, any, any, Action::Table(254))
        });
        rules.push(rule(20, any, "8.0.0.0/8", Action::Table(9)));
        routes.push(route(9, any, 3));
        let ways = Ways::of(&rules, &routes, None, true, false);
        assert_eq!(link(&ways, "10.2.0.9"), 2);
        assert_eq!(link(&ways, "8.8.8.8"), 3);
        assert_eq!(link(&ways, "9.8.8.8"), 1);
    }

    #[test]
    fn the_lowest_metric_counts_and_hops_over_two_links_are_unsure() {
        let (rules, mut routes) = two_uplinks();
        routes.push(Route {
            metric: 50,
            ..route(254, "0.0.0.0/0", 4)
        });
        let ways = |routes: &[Route]| Ways::of(&rules, routes, None, true, false);
        assert_eq!(link(&ways(&routes), "8.8.8.8"), 1);
        routes.push(route(254, "0.0.0.0/0", 5));
        assert_eq!(ways(&routes).to(ip("8.8.8.8")), Some(Fate::Unsure));
    }

    #[test]
    fn of_a_prefix_with_a_route_of_one_type_of_service_nothing_is_sure() {
        let (rules, mut routes) = two_uplinks();
        let of_tos = |gateway: &str| Route {
            tos: 0x10,
            metric: 9,
            gateway: Some(ip(gateway)),
            ..route(254, "0.0.0.0/0", 1)
        };
        routes.push(of_tos("10.1.0.1"));
        let ways = Ways::of(&rules, &routes, None, true, false);
        assert_eq!(ways.to(ip("8.8.8.8")), Some(Fate::Unsure));
        assert_eq!(link(&ways, "10.2.0.9"), 2);
    }

    /// RFC 4191, 3.1.
    #[test]
    fn of_routers_on_one_link_the_preferred_one_is_taken() {
        let (rules, mut routes) = two_uplinks();
        let by = |gateway: &str, preference| Route {
            preference,
            gateway: Some(ip(gateway)),
            ..route(254, "8.8.0.0/16", 1)
        };
        routes.extend([by("10.1.0.1", 2), by("10.1.0.9", 3), by("10.1.0.2", 1)]);
        let ways = Ways::of(&rules, &routes, None, true, false);
        let Some(Fate::Goes(found)) = ways.to(ip("8.8.8.8")) else {
            panic!("a way");
        };
        assert_eq!(found.gateway, Some(ip("10.1.0.9")));
    }

    #[test]
    fn of_a_prefix_with_a_route_from_some_sources_nothing_is_sure() {
        let (rules, mut routes) = two_uplinks();
        routes.push(Route {
            from: 24,
            metric: 9,
            ..route(254, "8.8.0.0/16", 1)
        });
        routes.push(route(254, "8.8.0.0/16", 1));
        let ways = Ways::of(&rules, &routes, None, true, false);
        assert_eq!(ways.to(ip("8.8.8.8")), Some(Fate::Unsure));
        assert_eq!(link(&ways, "8.9.8.8"), 1);
    }

    #[test]
    fn prefixes_are_mapped_as_addresses_are() {
        let mapped = Prefix::new(ip("10.1.2.3"), 24).mapped(true);
        let std::net::IpAddr::V4(v4) = ip("10.1.2.0") else {
            unreachable!()
        };
        assert_eq!(mapped[0], v4.to_ipv6_mapped().to_bits());
        assert_eq!(mapped[1], u128::MAX << 8);
        assert_eq!(
            Prefix::new(ip("0.0.0.0"), 0).mapped(true)[1],
            u128::MAX << 32
        );
        assert_eq!(Prefix::new(ip("::"), 0).mapped(false), [0, 0]);
    }
}
