//! Which ways lead over an interface, from each of its addresses, by all policy rules and tables of the kernel.

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
        source: route.source,
    }
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
