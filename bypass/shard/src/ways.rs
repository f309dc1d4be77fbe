//! Destinations that the kernel's policy rules and routing tables lead over an interface, from each of its addresses.

use std::collections::HashMap;
use std::net::IpAddr;

use bypass_netlink::{Fate, Prefix, Route, Tables, Ways};
use bypass_xdp::From;

/// Routes of an engine, and networks for its steering.
#[derive(Debug, Default)]
pub struct Routing {
    /// The engine's, which looks at no source: of several for a network the first counts.
    pub routes: Vec<bypass_tcp::Route>,
    /// By address of the interface: where new connections are taken from.
    pub from: Vec<(IpAddr, Vec<From>)>,
}

impl Routing {
    /// Of the addresses of an interface.
    pub fn of(tables: &Tables, link: u32, addresses: &[IpAddr]) -> Self {
        let ways: Vec<(IpAddr, Ways)> = addresses
            .iter()
            .map(|ip| (*ip, tables.ways_from(*ip)))
            .collect();
        let mut known: HashMap<(bool, Prefix), Route> = HashMap::new();
        for (ip, ways) in &ways {
            let own = ways.all().filter_map(|(prefix, fate)| match fate {
                Fate::Goes(route) if route.link == link => Some((*prefix, *route)),
                _ => None,
            });
            for (prefix, route) in own {
                known.entry((ip.is_ipv4(), prefix)).or_insert(route);
            }
        }
        let from = ways.iter().map(|(ip, ways)| {
            let is_v4 = ip.is_ipv4();
            (*ip, taken(ways, &of_family(&known, is_v4), link))
        });
        Self {
            from: from.collect(),
            routes: known
                .iter()
                .map(|((_, prefix), route)| told(prefix, route))
                .collect(),
        }
    }
}

fn of_family(known: &HashMap<(bool, Prefix), Route>, is_v4: bool) -> Ways {
    let own = known.iter().filter(|((family, _), _)| *family == is_v4);
    own.map(|((_, prefix), route)| (*prefix, Fate::Goes(*route)))
        .collect()
}

fn told(prefix: &Prefix, route: &Route) -> bypass_tcp::Route {
    bypass_tcp::Route {
        network: route.destination,
        prefix_len: prefix.len,
        gateway: route.gateway,
        mtu: route.mtu.unwrap_or(0),
        mss: route.mss.unwrap_or(0),
        source: route.source,
        hops: route.hops.unwrap_or(0),
    }
}

/// Of where new connections are taken from, what lies in one of some networks.
pub fn within(from: Vec<From>, networks: &[(IpAddr, u8)], is_v4: bool) -> Vec<From> {
    let networks = networks.iter().filter(|(ip, _)| ip.is_ipv4() == is_v4);
    let networks: Vec<Prefix> = networks.map(|(ip, len)| Prefix::new(*ip, *len)).collect();
    let fate = |network: &Prefix| {
        let around = from.iter().filter(|one| one.network.covers(network));
        let nearest = around.max_by_key(|one| one.network.len);
        nearest.is_some_and(|one| one.is_ours)
    };
    let own = networks.iter().map(|network| From {
        network: *network,
        is_ours: fate(network),
    });
    let mut within: Vec<From> = own.collect();
    let is_inside = |one: &&From| networks.iter().any(|network| network.covers(&one.network));
    within.extend(from.iter().filter(is_inside));
    within.sort_by_key(|one| one.network);
    within.dedup();
    within
}

/// A new connection is taken where its answers would leave over the interface, and by the router that the engine knows,
/// which does not look at their source.
fn taken(ways: &Ways, engines: &Ways, link: u32) -> Vec<From> {
    let prefixes = ways.all().chain(engines.all()).map(|(prefix, _)| *prefix);
    let mut from: Vec<From> = prefixes
        .map(|network| {
            let gateway = |ways: &Ways| match ways.to_prefix(&network) {
                Some(Fate::Goes(route)) if route.link == link => Some(route.gateway),
                _ => None,
            };
            let own = gateway(ways);
            let is_ours = own.is_some() && own == gateway(engines);
            From { network, is_ours }
        })
        .collect();
    from.sort_by_key(|one| one.network);
    from.dedup();
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> (IpAddr, u8) {
        let (ip, len) = text.split_once('/').expect("a network");
        (
            ip.parse().expect("an address"),
            len.parse().expect("a length"),
        )
    }

    #[test]
    fn of_the_ways_what_lies_in_the_networks_is_left() {
        let from = |text: &str, is_ours| {
            let (ip, len) = network(text);
            let network = Prefix::new(ip, len);
            From { network, is_ours }
        };
        let all = vec![
            from("0.0.0.0/0", true),
            from("10.1.0.0/16", false),
            from("10.1.2.0/24", true),
            from("192.168.0.0/16", true),
        ];
        let taken = |networks: &[&str]| {
            let networks: Vec<_> = networks.iter().map(|text| network(text)).collect();
            within(all.clone(), &networks, true)
        };
        let expected = [
            from("10.0.0.0/8", true),
            from("10.1.0.0/16", false),
            from("10.1.2.0/24", true),
        ];
        assert_eq!(taken(&["10.0.0.0/8"]), expected);
        assert_eq!(
            taken(&["10.1.3.0/24", "fd00::/8"]),
            [from("10.1.3.0/24", false)]
        );
        assert_eq!(taken(&["fd00::/8"]), []);
        assert_eq!(taken(&["10.1.2.0/24"]), [from("10.1.2.0/24", true)]);
    }
}
