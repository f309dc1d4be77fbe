//! Links, addresses, routes and neighbours as the kernel describes them (rtnetlink(7)).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::message::{attributes, u16_at, u32_at};

/// A link-layer address.
pub type Mac = [u8; 6];

// linux/if_link.h, linux/rtnetlink.h, linux/neighbour.h.
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
// IFLA_BOND_MODE, IFLA_IPVLAN_MODE.
const MODE: u16 = 1;
const IFLA_VLAN_FLAGS: u16 = 2;
const VLAN_FLAG_REORDER_HDR: u32 = 1;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_LINK_NETNSID: u16 = 37;
// Of IPv6 and, since Linux 6.3, of IPv4: IFLA_GSO_MAX_SIZE and its like.
const GSO_MAX: [u16; 2] = [41, 63];
const GRO_MAX: [u16; 2] = [58, 64];
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const RTA_ENCAP: u16 = 22;
const RTA_METRICS_LOCK: u16 = 1;
const RTA_METRICS_MTU: u16 = 2;
const RTA_METRICS_ADVMSS: u16 = 8;
const RTA_METRICS_HOPLIMIT: u16 = 10;
const RTA_PREF: u16 = 20;
const RTM_F_CLONED: u32 = 0x200;
const RTNH_F_DEAD: u32 = 1;

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Name, e.g. `eth0`.
    pub name: String,
    /// Kind of a virtual interface, e.g. `veth`; empty for a device.
    pub kind: String,
    /// The mode of a bond or an ipvlan, by the kernel's number.
    pub mode: Option<u32>,
    /// A VLAN whose frames keep their tag (`reorder_hdr off`).
    pub keeps_tag: bool,
    /// Its address; None for links without a 6-byte address.
    pub mac: Option<Mac>,
    /// Largest IP packet.
    pub mtu: u32,
    /// The interface to which it leads, e.g. the peer of a veth, and the kernel's number of the network namespace of that
    /// one, where it is another.
    pub leads_to: Option<(u32, Option<u32>)>,
    /// Largest packet that is sent for the device to cut.
    pub gso_max: u32,
    /// Largest packet that is merged of received ones.
    pub gro_max: u32,
    /// Switched on (IFF_UP).
    pub is_up: bool,
    /// Has a carrier (IFF_LOWER_UP).
    pub has_carrier: bool,
    /// The kernel has taken note of its carrier (IFF_RUNNING), and of what that means for routes.
    pub is_running: bool,
    /// The loopback interface.
    pub is_loopback: bool,
    /// The bridge or bond to which it belongs.
    pub master: Option<u32>,
    /// Receive queues that exist, in use or not.
    pub rx_queues: u32,
    /// Transmit queues that exist.
    pub tx_queues: u32,
    /// Number of the attached XDP program, if any.
    pub xdp_program: Option<u32>,
}

/// An address of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Interface index.
    pub link: u32,
    /// The address.
    pub ip: IpAddr,
    /// Length of its network's prefix.
    pub prefix: u8,
    /// Not usable yet: duplicate address detection is running or has failed.
    pub is_tentative: bool,
}

impl Address {
    /// Whether a message about `other` is about this one.
    pub(crate) fn is(&self, other: &Address) -> bool {
        (self.link, self.ip, self.prefix) == (other.link, other.ip, other.prefix)
    }
}

/// The effect of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteKind {
    /// Forwards packets.
    Unicast,
    /// Delivers them to this host.
    Local,
    /// Broadcast, anycast, multicast; or it does what only the kernel can do: wraps packets up, or lets them be
    /// fragmented.
    Other,
    /// Drops or refuses them.
    Refused,
}

/// One next hop of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Routing table: 254 main, 255 local.
    pub table: u32,
    /// See [`RouteKind`].
    pub kind: RouteKind,
    /// Network.
    pub destination: IpAddr,
    /// Length of the network's prefix.
    pub prefix: u8,
    /// Of which type of service its packets must be; 0: of any that has no route of its own.
    pub tos: u8,
    /// Bits of the source that it demands of packets; 0: it is for those of any source.
    pub from: u8,
    /// What a router says of itself in comparison with others (RFC 4191, 2.1): the higher one is preferred.
    pub preference: u8,
    /// Through whom; None for hosts of the link itself.
    pub gateway: Option<IpAddr>,
    /// Interface index, 0 for none.
    pub link: u32,
    /// Source address that connections prefer.
    pub source: Option<IpAddr>,
    /// The lower one wins.
    pub metric: u32,
    /// MTU of the path, when the route has one of its own.
    pub mtu: Option<u32>,
    /// MSS that is stated to peers, when the route has one of its own.
    pub mss: Option<u32>,
    /// Time to live, or hop limit, of its packets, when it has one of its own.
    pub hops: Option<u8>,
}

/// A neighbour: a host on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Interface index.
    pub link: u32,
    /// Its IP address.
    pub ip: IpAddr,
    /// Its link-layer address, unless it is being resolved or was not found.
    pub mac: Option<Mac>,
    /// NUD_… bits.
    pub state: u16,
}

impl Neighbour {
    /// NUD_REACHABLE, STALE, DELAY, PROBE, NOARP, PERMANENT.
    const VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;

    /// NUD_REACHABLE, NOARP, PERMANENT.
    const CONFIRMED: u16 = 0x02 | 0x40 | 0x80;

    /// Whether the kernel trusts that it is reachable without asking again.
    pub fn is_confirmed(&self) -> bool {
        self.is_valid() && self.state & Self::CONFIRMED != 0
    }

    /// Whether packets may be sent to its [`mac`](Self::mac).
    pub fn is_valid(&self) -> bool {
        self.mac.is_some() && self.state & Self::VALID != 0
    }

    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let mut found = Self {
            link: u32_at(body, 4),
            ip: unspecified(*body.first()?)?,
            mac: None,
            state: u16_at(body, 8),
        };
        for (kind, value) in attributes(body.get(12..)?) {
            match kind {
                libc::NDA_DST => found.ip = ip(value)?,
                libc::NDA_LLADDR => found.mac = value.try_into().ok(),
                _ => {}
            }
        }
        Some(found)
    }
}

impl Link {
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let flags = u32_at(body, 8);
        let mut found = Self {
            index: u32_at(body, 4),
            name: String::new(),
            kind: String::new(),
            mode: None,
            keeps_tag: false,
            mac: None,
            mtu: 0,
            leads_to: None,
            gso_max: 0,
            gro_max: 0,
            is_up: flags & libc::IFF_UP as u32 != 0,
            has_carrier: flags & libc::IFF_LOWER_UP as u32 != 0,
            is_running: flags & libc::IFF_RUNNING as u32 != 0,
            is_loopback: flags & libc::IFF_LOOPBACK as u32 != 0,
            master: None,
            rx_queues: 1,
            tx_queues: 1,
            xdp_program: None,
        };
        let (mut other, mut namespace) = (None, None);
        for (kind, value) in attributes(body.get(16..)?) {
            match kind {
                libc::IFLA_IFNAME => found.name = text(value),
                libc::IFLA_ADDRESS => found.mac = value.try_into().ok(),
                IFLA_MTU => found.mtu = u32_at(value, 0),
                IFLA_LINK => other = Some(u32_at(value, 0)),
                IFLA_LINK_NETNSID => namespace = Some(u32_at(value, 0)),
                kind if GSO_MAX.contains(&kind) => {
                    found.gso_max = found.gso_max.max(u32_at(value, 0));
                }
                kind if GRO_MAX.contains(&kind) => {
                    found.gro_max = found.gro_max.max(u32_at(value, 0));
                }
                IFLA_MASTER => found.master = Some(u32_at(value, 0)),
                IFLA_NUM_RX_QUEUES => found.rx_queues = u32_at(value, 0),
                IFLA_NUM_TX_QUEUES => found.tx_queues = u32_at(value, 0),
                IFLA_LINKINFO => {
                    found.kind = inner(value, IFLA_INFO_KIND).map_or_else(String::new, text);
                    let data = inner(value, IFLA_INFO_DATA).unwrap_or_default();
                    found.mode = mode(&found.kind, data);
                    found.keeps_tag = found.kind == "vlan" && keeps_tag(data);
                }
                IFLA_XDP => {
                    let mode = inner(value, IFLA_XDP_ATTACHED).and_then(|mode| mode.first());
                    if mode.is_some_and(|mode| *mode != 0) {
                        found.xdp_program = inner(value, IFLA_XDP_PROG_ID).map(|id| u32_at(id, 0));
                    }
                }
                _ => {}
            }
        }
        found.leads_to = other.map(|other| (other, namespace));
        (!found.name.is_empty()).then_some(found)
    }
}

impl Address {
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let mut flags = u32::from(*body.get(2)?);
        let (mut local, mut plain) = (None, None);
        for (kind, value) in attributes(body.get(8..)?) {
            match kind {
                libc::IFA_LOCAL => local = ip(value),
                libc::IFA_ADDRESS => plain = ip(value),
                libc::IFA_FLAGS => flags = u32_at(value, 0),
                _ => {}
            }
        }
        Some(Self {
            link: u32_at(body, 4),
            // On a point-to-point link the plain address is the peer's.
            ip: local.or(plain)?,
            prefix: body[1],
            is_tentative: flags & (libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED) != 0,
        })
    }
}

impl Route {
    /// Whether a message is about what the kernel remembers of one destination (a path's MTU, a redirect). It ends
    /// without a notification, and the route that it is of may end before.
    pub(crate) fn is_remembered(body: &[u8]) -> bool {
        u32_at(body, 8) & RTM_F_CLONED != 0
    }

    /// Reads a route; one with several next hops becomes several. Dead ones, through which the kernel sends nothing, are
    /// left out: the link is down, or has no carrier where net.*.conf.*.ignore_routes_with_linkdown is set.
    pub(crate) fn read(body: &[u8]) -> Vec<Self> {
        let all = Self::read_hops(body).into_iter();
        let alive = all.filter(|(_, is_dead)| !is_dead);
        alive.map(|(route, _)| route).collect()
    }

    /// The same with dead ones.
    pub(crate) fn read_all(body: &[u8]) -> Vec<Self> {
        let all = Self::read_hops(body).into_iter();
        all.map(|(route, _)| route).collect()
    }

    /// The lowest one of the same network.
    pub(crate) fn first_of_network(&self) -> Self {
        Self::bare(self.table, self.kind, self.destination, self.prefix)
    }

    /// A network, with nothing said of the way to it.
    fn bare(table: u32, kind: RouteKind, destination: IpAddr, prefix: u8) -> Self {
        Self {
            table,
            kind,
            destination,
            prefix,
            tos: 0,
            from: 0,
            preference: 0,
            gateway: None,
            link: 0,
            source: None,
            metric: 0,
            mtu: None,
            mss: None,
            hops: None,
        }
    }

    /// Each next hop, and whether it is dead.
    fn read_hops(body: &[u8]) -> Vec<(Self, bool)> {
        let (Some(fixed), Some(rest)) = (body.get(..12), body.get(12..)) else {
            return Vec::new();
        };
        let Some(destination) = unspecified(fixed[0]) else {
            return Vec::new();
        };
        let (table, kind) = (u32::from(fixed[4]), kind_of(fixed[7]));
        let mut route = Self {
            tos: fixed[3],
            from: fixed[2],
            ..Self::bare(table, kind, destination, fixed[1])
        };
        let mut hops = Vec::new();
        for (kind, value) in attributes(rest) {
            match kind {
                libc::RTA_DST => route.destination = ip(value).unwrap_or(destination),
                libc::RTA_OIF => route.link = u32_at(value, 0),
                libc::RTA_GATEWAY => route.gateway = ip(value),
                // A gateway of the other family: family, then address.
                libc::RTA_VIA => route.gateway = value.get(2..).and_then(ip),
                libc::RTA_PREFSRC => route.source = ip(value),
                libc::RTA_PRIORITY => route.metric = u32_at(value, 0),
                libc::RTA_TABLE => route.table = u32_at(value, 0),
                // 3, 0, 1: low, medium, high. 2 is none of them.
                RTA_PREF => route.preference = value.first().map_or(0, |bits| (bits & 3) ^ 2),
                RTA_ENCAP => route.kind = route.kind.only_kernels(),
                libc::RTA_METRICS => {
                    let metric = |kind| inner(value, kind).map(|number| u32_at(number, 0));
                    let locked = metric(RTA_METRICS_LOCK).unwrap_or(0);
                    if locked & 1 << RTA_METRICS_MTU != 0 {
                        route.kind = route.kind.only_kernels();
                    }
                    route.mtu = metric(RTA_METRICS_MTU);
                    route.mss = metric(RTA_METRICS_ADVMSS);
                    route.hops = metric(RTA_METRICS_HOPLIMIT).and_then(|hops| hops.try_into().ok());
                }
                libc::RTA_MULTIPATH => hops = hops_of(value),
                _ => {}
            }
        }
        if hops.is_empty() {
            return vec![(route, u32_at(body, 8) & RTNH_F_DEAD != 0)];
        }
        let with = |hop: Hop| Self {
            link: hop.link,
            gateway: hop.gateway,
            kind: match hop.is_wrapped {
                true => route.kind.only_kernels(),
                false => route.kind,
            },
            ..route
        };
        let each = hops.into_iter();
        each.map(|hop| (with(hop), hop.is_dead)).collect()
    }
}

impl RouteKind {
    /// Of a route that does what only the kernel can do.
    fn only_kernels(self) -> Self {
        match self {
            Self::Unicast => Self::Other,
            other => other,
        }
    }
}

/// One of several next hops.
#[derive(Clone, Copy)]
struct Hop {
    link: u32,
    gateway: Option<IpAddr>,
    is_wrapped: bool,
    is_dead: bool,
}

/// The next hops of RTA_MULTIPATH: a length, flags, an interface, attributes.
fn hops_of(mut bytes: &[u8]) -> Vec<Hop> {
    let mut found = Vec::new();
    while bytes.len() >= 8 {
        let length = usize::from(u16_at(bytes, 0));
        if length < 8 || length > bytes.len() {
            break;
        }
        let all = || attributes(&bytes[8..length]);
        let gateway = all().find_map(|(kind, value)| match kind {
            libc::RTA_GATEWAY => ip(value),
            libc::RTA_VIA => value.get(2..).and_then(ip),
            _ => None,
        });
        found.push(Hop {
            link: u32_at(bytes, 4),
            gateway,
            is_wrapped: all().any(|(kind, _)| kind == RTA_ENCAP),
            is_dead: u32::from(bytes[2]) & RTNH_F_DEAD != 0,
        });
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    found
}

fn kind_of(number: u8) -> RouteKind {
    match number {
        libc::RTN_UNICAST => RouteKind::Unicast,
        libc::RTN_LOCAL => RouteKind::Local,
        libc::RTN_BLACKHOLE | libc::RTN_UNREACHABLE | libc::RTN_PROHIBIT => RouteKind::Refused,
        _ => RouteKind::Other,
    }
}

/// The attribute `kind` among those nested in `bytes`.
fn inner(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes)
        .find(|(found, _)| *found == kind)
        .map(|(_, value)| value)
}

/// The mode that the data of a link's kind names.
fn mode(kind: &str, data: &[u8]) -> Option<u32> {
    let value = inner(data, MODE)?;
    match kind {
        "bond" => value.first().map(|number| u32::from(*number)),
        "ipvlan" => Some(u32::from(u16_at(value, 0))),
        _ => None,
    }
}

/// The kernel leaves flags out that are all clear.
fn keeps_tag(data: &[u8]) -> bool {
    inner(data, IFLA_VLAN_FLAGS).is_none_or(|flags| u32_at(flags, 0) & VLAN_FLAG_REORDER_HDR == 0)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

pub(crate) fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

pub(crate) fn unspecified(family: u8) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        _ => None,
    }
}

/// The address in the kernel's form.
pub(crate) fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// AF_INET or AF_INET6.
pub(crate) fn family(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Request, HEADER};

    fn attributes_of(all: &[(u16, &[u8])]) -> Vec<u8> {
        let begun = Request::new(0, 0, &[]);
        let request = all.iter().fold(begun, |request, (kind, value)| {
            request.attribute(*kind, value)
        });
        request.finish(0).split_off(HEADER)
    }

    fn kinds(attributes: &[(u16, &[u8])]) -> Vec<RouteKind> {
        let mut fixed = [0; 12];
        (fixed[0], fixed[7]) = (libc::AF_INET6 as u8, libc::RTN_UNICAST);
        let body = [&fixed[..], &attributes_of(attributes)].concat();
        let routes = Route::read(&body);
        routes.iter().map(|route| route.kind).collect()
    }

    #[test]
    fn a_route_that_wraps_packets_up_or_has_them_fragmented_is_the_kernels() {
        use RouteKind::{Other, Unicast};
        let gateway: (u16, &[u8]) = (libc::RTA_GATEWAY, &[0xfe; 16]);
        assert_eq!(kinds(&[gateway]), [Unicast]);
        let segments: (u16, &[u8]) = (RTA_ENCAP, &[0; 8]);
        assert_eq!(kinds(&[segments, gateway]), [Other]);
        let metrics = |locked: u32| {
            let mtu = (RTA_METRICS_MTU, &1400u32.to_ne_bytes()[..]);
            attributes_of(&[(RTA_METRICS_LOCK, &locked.to_ne_bytes()), mtu])
        };
        let with = |metrics: &[u8]| kinds(&[gateway, (libc::RTA_METRICS, metrics)]);
        assert_eq!(with(&metrics(1 << RTA_METRICS_MTU)), [Other]);
        assert_eq!(with(&metrics(1 << RTA_METRICS_HOPLIMIT)), [Unicast]);
        let hop = |wraps: bool| {
            let encapsulated = if wraps { &[segments][..] } else { &[] };
            let all = attributes_of(&[&[gateway][..], encapsulated].concat());
            let length = (8 + all.len() as u16).to_ne_bytes();
            [&length[..], &[0, 0, 7, 0, 0, 0], &all].concat()
        };
        let hops = [hop(false), hop(true)].concat();
        assert_eq!(kinds(&[(libc::RTA_MULTIPATH, &hops)]), [Unicast, Other]);
    }

    #[test]
    fn a_router_is_preferred_as_it_says() {
        let preference = |bits: u8| {
            let mut fixed = [0; 12];
            fixed[0] = libc::AF_INET6 as u8;
            let body = [&fixed[..], &attributes_of(&[(RTA_PREF, &[bits])])].concat();
            Route::read(&body)[0].preference
        };
        let [low, medium, high] = [3, 0, 1].map(preference);
        assert!(low < medium && medium < high);
    }

    fn link(kind: &[u8], data: &[(u16, &[u8])]) -> Link {
        let data = attributes_of(data);
        let info = attributes_of(&[(IFLA_INFO_KIND, kind), (IFLA_INFO_DATA, &data)]);
        let named: &[(u16, &[u8])] = &[(libc::IFLA_IFNAME, b"u1\0"), (IFLA_LINKINFO, &info)];
        let body = [vec![0; 16], attributes_of(named)].concat();
        Link::read(&body).expect("a link")
    }

    #[test]
    fn a_link_has_the_mode_of_its_kind() {
        assert_eq!(link(b"bond\0", &[(MODE, &[4])]).mode, Some(4));
        assert_eq!(link(b"ipvlan\0", &[(MODE, &[2, 0])]).mode, Some(2));
        // The same number is a VLAN's own.
        let vlan = link(b"vlan\0", &[(MODE, &[7, 0])]);
        assert_eq!((vlan.kind.as_str(), vlan.mode), ("vlan", None));
    }

    #[test]
    fn a_vlan_keeps_tags_where_no_flag_says_otherwise() {
        let vlan = |flags: &[(u16, &[u8])]| link(b"vlan\0", flags).keeps_tag;
        let flags = |bits: u8| [bits, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        assert!(vlan(&[]) && vlan(&[(IFLA_VLAN_FLAGS, &flags(2))]));
        assert!(!vlan(&[(IFLA_VLAN_FLAGS, &flags(3))]));
        assert!(!link(b"veth\0", &[]).keeps_tag);
    }
}
