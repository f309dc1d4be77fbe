//! A shard's copy of the kernel's addresses, routes and neighbours, kept up to date.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bypass_netlink::xfrm::Policies;
use bypass_netlink::{diag, neighbour, Neighbour, Tables};
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel::{self, Result};
use bypass_sys::numbers;
use bypass_sys::thread::thread;
use bypass_sys::{address, clock};
use bypass_tcp::{Address, Engine, TxSink, Way};
use bypass_xdp::{Steering, Transport};

use crate::held::Notice;
use crate::ports::Ports;
use crate::ways::{within, Routing};

/// The kernel is not asked again for the same neighbour within this time.
const ASK_AGAIN_US: u64 = 500_000;
/// Neighbours whose last question is remembered at most.
const ASKED_MAX: usize = 4096;
/// A port to ask the way to: any.
const DISCARD: u16 = 9;
/// Between looks whether the kernel still has connections of a port that it shares.
const LOOK_AGAIN_US: u64 = 1_000_000;
/// Between looks whether ports that were reserved are in use.
const PORTS_US: u64 = 5_000_000;

/// Routes are rebuilt at most so often that it takes one of so many parts of the time.
const ROUTING_SHARE: u64 = 50;

/// Most bytes of a datagram that goes by a gateway: so that a packet has no more than 1,280 (RFC 8200, 5), which every
/// path carries.
const BEHIND_GATEWAY: usize = 1280 - 40 - 8;

/// The source that the kernel chooses (RFC 6724): connect(2) of a datagram socket sends nothing.
fn kernels_source(to: IpAddr) -> Option<IpAddr> {
    let family = if to.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let mut bytes = [0; 28];
    let length = address::to_bytes(SocketAddr::new(to, DISCARD), family, &mut bytes);
    let ask = || {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let probe = Owned(kernel::socket(family, kind, 0)? as i32);
        kernel::connect(probe.0, &bytes[..length])?;
        kernel::socket_name(probe.0)
    };
    let name = numbers::low(ask).ok()?;
    Some(address::from_bytes(name.bytes.get(..name.length as usize)?)?.ip())
}

/// Such an address means a host only together with an interface, which names of connections do not contain:
/// the kernel handles their connections.
fn is_of_link_alone(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn clock_us() -> u64 {
    clock::now_ns() / 1000
}

/// What a host has to do with, of an interface.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Notified of the descriptors that are opened for connections to others.
    pub notice: Notice,
    /// Other interfaces whose connections have engines here.
    pub beside: Vec<u32>,
    /// New connections are taken from these networks alone; None: from everywhere.
    pub accept_from: Option<Vec<(IpAddr, u8)>>,
}

/// The host of an interface.
#[derive(Debug)]
pub struct Host {
    link: u32,
    /// See [`Tables::link_came`].
    link_came: Option<u64>,
    tables: Tables,
    policies: Policies,
    /// IPsec policies may apply to its connections: the kernel has all new ones, and every datagram.
    has_policies: bool,
    steering: Arc<Steering>,
    ports: Ports,
    /// When it is looked which of them are in use.
    ports_us: u64,
    addresses: Vec<IpAddr>,
    /// Other interfaces whose connections have engines here.
    beside: Vec<u32>,
    /// They are others since their addresses were looked at.
    has_new_beside: bool,
    /// See [`Scope`].
    accept_from: Option<Vec<(IpAddr, u8)>>,
    /// Addresses of those.
    addresses_beside: Vec<IpAddr>,
    /// Generation and addresses of which the engine's routes were made.
    routing_of: Option<(u64, Vec<IpAddr>)>,
    /// When they may be rebuilt.
    routing_us: u64,
    /// They are to be.
    has_stale_routing: bool,
    neighbours: HashMap<IpAddr, Neighbour>,
    asked_us: HashMap<IpAddr, u64>,
    listening: Vec<u16>,
    /// Ports whose datagrams are claimed, as often as they are.
    datagrams: Vec<u16>,
    takes_datagrams: bool,
    /// New connections are left to the kernel.
    leaves_new: bool,
    /// Those of these ports are.
    left: Vec<u16>,
    /// Ports of which the kernel may have connections.
    shared: Vec<u16>,
    /// Those of them that have become so since that was looked at.
    just_shared: Vec<u16>,
    /// When that is looked at again.
    look_us: u64,
    /// No longer listened on, but connections may live: who opens a new one finds another shard that listens, or
    /// the kernel.
    draining: Vec<u16>,
    /// When they are looked at again.
    drain_us: u64,
}

impl Host {
    /// Of interface `link`, in the calling thread's network namespace.
    pub fn new(link: u32, steering: Arc<Steering>, scope: Scope) -> Result<Self> {
        let Scope {
            notice,
            beside,
            accept_from,
        } = scope;
        let tables = Tables::new()?;
        let mut host = Self {
            link,
            link_came: tables.link_came(link),
            tables,
            policies: Policies::new(),
            has_policies: false,
            ports: Ports::new(steering.clone(), notice),
            ports_us: 0,
            steering,
            addresses: Vec::new(),
            beside,
            has_new_beside: false,
            accept_from,
            addresses_beside: Vec::new(),
            routing_of: None,
            routing_us: 0,
            has_stale_routing: false,
            neighbours: HashMap::new(),
            asked_us: HashMap::new(),
            listening: Vec::new(),
            datagrams: Vec::new(),
            takes_datagrams: false,
            leaves_new: false,
            left: Vec::new(),
            shared: Vec::new(),
            just_shared: Vec::new(),
            look_us: 0,
            draining: Vec::new(),
            drain_us: 0,
        };
        host.follow_policies();
        Ok(host)
    }

    /// Polled for reading: the network has changed.
    pub fn fd(&self) -> i32 {
        self.tables.fd()
    }

    /// Polled for reading: IPsec policies have changed. Where the process may not read what says so it stays readable, and
    /// is polled until then alone.
    pub fn policies_fd(&self) -> Option<i32> {
        let is_polled = !self.policies.are_known() && !self.has_policies;
        let unread = || is_polled.then(|| self.steering.policies_fd());
        self.policies.fd().or_else(unread)
    }

    /// The interface.
    pub fn link(&self) -> Option<&bypass_netlink::Link> {
        self.tables.link_at(self.link)
    }

    /// Whether the interface is gone, or another one has its index.
    pub fn has_lost_link(&self) -> bool {
        let came = self.tables.link_came(self.link);
        came.is_none() || came != self.link_came
    }

    /// Takes in what has changed in the kernel.
    pub fn update(
        &mut self,
        now_us: u64,
        engine: &mut Engine,
        sink: &mut impl TxSink,
    ) -> Result<()> {
        let has_news = self.tables.update()? | std::mem::take(&mut self.has_new_beside);
        if self.follow_policies() || has_news || self.has_stale_routing {
            self.sync(now_us, engine, sink);
        }
        Ok(())
    }

    /// Whether IPsec policies have begun or ceased to apply. A process that may not ask which there are believes so
    /// once they have changed.
    fn follow_policies(&mut self) -> bool {
        let known = self.policies.apply();
        let apply = known.unwrap_or_else(|| self.steering.has_policy_news());
        if self.has_policies == apply {
            return false;
        }
        self.has_policies = apply;
        self.routing_of = None;
        for port in &self.datagrams {
            match apply {
                true => self.steering.release(Transport::Udp, *port),
                false => drop(self.steering.claim(Transport::Udp, *port)),
            }
        }
        true
    }

    /// Whether IPsec policies may apply to its connections, so that the kernel has all new ones.
    pub fn has_policies(&self) -> bool {
        self.has_policies
    }

    /// Gives the engine the present state of the network.
    pub fn sync(&mut self, now_us: u64, engine: &mut Engine, sink: &mut impl TxSink) {
        self.sync_addresses(engine);
        self.sync_routes(engine);
        self.sync_neighbours(now_us, engine, sink);
    }

    fn sync_addresses(&mut self, engine: &mut Engine) {
        let all = self.tables.addresses().iter();
        let all = all.filter(|one| !one.is_tentative && !is_of_link_alone(one.ip));
        let own = all.clone().filter(|one| one.link == self.link);
        let beside = all.filter(|one| self.beside.contains(&one.link) && one.link != self.link);
        let beside: Vec<IpAddr> = beside.map(|one| one.ip).collect();
        let addresses: Vec<Address> = own
            .map(|one| Address {
                ip: one.ip,
                prefix_len: one.prefix,
            })
            .collect();
        let now: Vec<IpAddr> = addresses.iter().map(|one| one.ip).collect();
        for gone in self.addresses.iter().filter(|ip| !now.contains(ip)) {
            self.steering.remove_address(*gone);
        }
        // An address whose place is taken is left to the kernel: the engine must not use it either.
        let taken: Vec<Address> = addresses
            .into_iter()
            .filter(|one| match self.accept_from {
                None if !self.has_policies => self.steering.add_address(one.ip),
                // From nowhere until it is known from where.
                _ => self.steering.add_address_without_ways(one.ip),
            })
            .collect();
        self.addresses = now;
        engine.set_addresses(&taken);
        self.sync_addresses_beside(beside);
    }

    fn sync_addresses_beside(&mut self, mut now: Vec<IpAddr>) {
        now.retain(|ip| !self.addresses.contains(ip));
        let gone = |ip: &&IpAddr| !now.contains(ip) && !self.addresses.contains(ip);
        for ip in self.addresses_beside.iter().filter(gone) {
            self.steering.remove_address(*ip);
        }
        now.retain(|ip| self.steering.add_address_without_ways(*ip));
        self.addresses_beside = now;
    }

    /// These are the other interfaces whose connections have engines here, from the next [`update`](Self::update) on.
    pub fn set_beside(&mut self, beside: Vec<u32>) {
        self.beside = beside;
        self.has_new_beside = true;
    }

    /// Whether an address is that of another interface whose connections have engines here.
    #[inline]
    pub fn is_beside(&self, ip: impl FnOnce() -> Option<IpAddr>) -> bool {
        !self.addresses_beside.is_empty()
            && ip().is_some_and(|ip| self.addresses_beside.contains(&ip))
    }

    fn sync_routes(&mut self, engine: &mut Engine) {
        // Neighbours change all the time, ways seldom.
        let of = Some((self.tables.ways_generation(), self.addresses.clone()));
        if self.routing_of == of {
            return;
        }
        let begun_us = clock_us();
        let before = self.routing_of.as_ref().map(|(_, addresses)| addresses);
        self.has_stale_routing = before == Some(&self.addresses) && begun_us < self.routing_us;
        if self.has_stale_routing {
            return;
        }
        self.routing_of = of;
        let routing = Routing::of(&self.tables, self.link, &self.addresses);
        engine.set_routes(&routing.routes);
        for (ip, mut from) in routing.from {
            if let Some(networks) = &self.accept_from {
                from = within(from, networks, ip.is_ipv4());
            }
            if self.has_policies {
                from.clear();
            }
            self.steering.set_ways(ip, from);
        }
        // A router of the Internet has a million routes, some of which change all the time.
        self.routing_us = begun_us + (clock_us() - begun_us) * ROUTING_SHARE;
    }

    fn sync_neighbours(&mut self, now_us: u64, engine: &mut Engine, sink: &mut impl TxSink) {
        let valid = self
            .tables
            .neighbours()
            .filter(|one| one.link == self.link && one.is_valid());
        let now: HashMap<IpAddr, Neighbour> = valid.map(|one| (one.ip, *one)).collect();
        for gone in self.neighbours.keys().filter(|ip| !now.contains_key(ip)) {
            match self.tables.neighbour(self.link, *gone) {
                Some(_) => engine.forget_neighbour(*gone),
                // The kernel, which sees no traffic of ours, drops what it has not used for a while.
                None => engine.doubt_neighbour(*gone),
            }
        }
        for (ip, found) in &now {
            let before = self.neighbours.get(ip).and_then(|one| one.mac);
            if let Some(mac) = found.mac.filter(|mac| before != Some(*mac)) {
                engine.set_neighbour(now_us, *ip, mac, sink);
                self.asked_us.remove(ip);
            }
        }
        self.neighbours = now;
    }

    /// Has the kernel look for neighbours that the engine misses, and confirm neighbours that it uses without
    /// hearing anything from there: the kernel sees no traffic of ours.
    pub fn find_neighbours(&mut self, now_us: u64, engine: &mut Engine, sink: &mut impl TxSink) {
        if !thread().may_ask() {
            return;
        }
        for ip in engine.wanted_neighbours() {
            let known = self.neighbours.get(&ip);
            if let Some(mac) = known.and_then(|known| known.mac) {
                engine.set_neighbour(now_us, ip, mac, sink);
            }
            if known.is_some_and(Neighbour::is_confirmed) {
                continue;
            }
            let is_fresh = |at_us: &u64| now_us.saturating_sub(*at_us) < ASK_AGAIN_US;
            if self.asked_us.get(&ip).is_some_and(is_fresh) {
                continue;
            }
            if self.asked_us.len() >= ASKED_MAX {
                self.asked_us.retain(|_, at_us| is_fresh(at_us));
            }
            // What it finds, or that it finds nothing, comes as a change.
            let _ = neighbour::resolve(self.link, ip);
            self.asked_us.insert(ip, now_us);
        }
    }

    /// The way to `to` leads over this interface: the source address that the kernel prefers.
    pub fn source_for(&self, to: IpAddr) -> Option<IpAddr> {
        if self.has_policies {
            return None;
        }
        let hop = self
            .tables
            .next_hop(to)
            .filter(|hop| hop.link == self.link && !hop.is_local && !is_of_link_alone(to))?;
        let of_family = |ip: &&IpAddr| ip.is_ipv4() == to.is_ipv4();
        let mut own = self.addresses.iter().filter(of_family);
        let (first, second) = (own.next(), own.next());
        let chosen = hop.source.or_else(|| match second {
            None => first.copied(),
            Some(_) => kernels_source(to),
        });
        chosen.filter(|ip| self.addresses.contains(ip))
    }

    /// Whether the program takes a segment for this end from the kernel, which then answers none that no shard knows. A
    /// new connection at a port that is [shared](Self::release) may be another program's, once its SYN comes again.
    pub fn has_claimed(&self, at: SocketAddr, begins: bool) -> bool {
        let port = at.port();
        self.steering.is_claimed(port)
            && !(begins && self.steering.is_shared(port))
            && !self.ports.are_anothers(at)
    }

    /// Finds a local port: see [`Ports::find`].
    pub fn find_port<T>(&mut self, ip: IpAddr, open: impl FnMut(u16) -> Option<T>) -> Result<T> {
        self.ports.find(ip, open)
    }

    /// Gives reserved ports back that no connection uses any more.
    pub fn look_at_ports(&mut self, now_us: u64, engine: &Engine) {
        if self.ports.is_empty() || now_us < self.ports_us {
            return;
        }
        self.ports_us = now_us + PORTS_US;
        self.ports.keep_only(&engine.local_ends().collect());
    }

    /// A port is listened on. The kernel keeps connections that it has there.
    pub fn claim(&mut self, at: SocketAddr) {
        let port = at.port();
        self.left.retain(|one| *one != port);
        self.steering.drains(port, false);
        self.share(port);
        self.steering.claim(Transport::Tcp, port);
        self.listening.push(port);
        self.look_us = 0;
    }

    /// From now on new connections are left to the kernel, at every port that is listened on, or no
    /// longer.
    pub fn leave_new(&mut self, leaves_new: bool) {
        self.leaves_new = leaves_new;
        for port in self.listening.clone() {
            self.share(port);
        }
    }

    /// The same for one port.
    pub fn leave_port(&mut self, port: u16, leaves_new: bool) {
        if self.left.contains(&port) != leaves_new {
            match leaves_new {
                true => self.left.push(port),
                false => self.left.retain(|one| *one != port),
            }
            self.share(port);
        }
    }

    /// Whether the kernel would give connections to a port to sockets other than `own`, by inode.
    pub fn others_listen(&self, port: u16, own: &[u64]) -> bool {
        let is_other = |one: &diag::Listener| !one.is_bound_to_device && !own.contains(&one.inode);
        let all = diag::listening(port).unwrap_or_default();
        let mut addresses = self.addresses.iter();
        addresses.any(|ip| diag::sharing(&all, *ip).any(is_other))
    }

    fn share(&mut self, port: u16) {
        let leaves_new = self.leaves_new || self.left.contains(&port);
        self.steering.share(port, leaves_new);
        for ports in [&mut self.just_shared, &mut self.shared] {
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
    }

    /// Takes ports back of which the kernel has no connections any more: asking about each of their
    /// frames takes time. Ports at which the program has left connections to it are shared from now on.
    pub fn look_at_shared(&mut self, now_us: u64) {
        if self.leaves_new || now_us < self.look_us {
            return;
        }
        self.look_us = now_us + LOOK_AGAIN_US;
        let claimed: Vec<u16> = self
            .listening
            .iter()
            .chain(&self.draining)
            .copied()
            .collect();
        for port in claimed {
            if self.steering.has_left(port) {
                self.share(port);
                self.steering.forget_left(port);
            }
        }
        // A connection that the program has left to the kernel may reach its tables later, where the processor that has it
        // stands still between the two: a port that was the kernel's a moment ago is looked at the next time.
        let just_shared = std::mem::take(&mut self.just_shared);
        let (steering, left, draining) = (&self.steering, &self.left, &self.draining);
        self.shared.retain(|port| {
            let is_left = [left, draining, &just_shared]
                .iter()
                .any(|ports| ports.contains(port));
            let is_shared = is_left || diag::has_connections(*port).unwrap_or(true);
            if !is_shared {
                steering.own(*port);
            }
            is_shared
        });
    }

    /// New connections that are read now may be the kernel's already: see [`Steering::is_late`].
    #[inline]
    pub fn is_late(&self) -> bool {
        self.steering.is_late(clock::now_ns)
    }

    /// The queues were looked at: see [`Steering::looked`].
    #[inline]
    pub fn looked(&self) {
        self.steering.looked();
    }

    /// Another queue is this shard's, which may have had another owner that has ended.
    pub fn add_queue(&mut self, queue: u32, had_owner: bool) {
        // Before the former owner's word is cleared that the kernel may have connections: else this shard would
        // reset them.
        self.leave_new(self.leaves_new);
        for port in self.draining.clone() {
            self.share(port);
        }
        self.look_us = 0;
        self.steering.add_queue(queue, had_owner);
        // Also of what comes by that queue.
        for port in self.left.clone() {
            self.share(port);
        }
        self.leave_new(self.leaves_new);
    }

    /// A queue is another shard's from now on.
    pub fn remove_queue(&self, queue: u32) {
        self.steering.remove_queue(queue);
    }

    /// Releases all ports but the listening ones: for the successor of a process that has ended.
    pub fn drop_others_claims(&self) {
        self.steering.keep_only(Transport::Tcp, &self.listening);
        self.steering.keep_only(Transport::Udp, &[]);
    }

    /// The interface, where the datagrams of any port are claimed, or were: some may be on their way.
    #[inline]
    pub fn takes_datagrams(&self) -> Option<u32> {
        self.takes_datagrams.then_some(self.link)
    }

    /// Whether an address is the interface's.
    pub fn has_address(&self, ip: IpAddr) -> bool {
        self.addresses.contains(&ip)
    }

    /// Takes the datagrams of a port.
    pub fn claim_datagrams(&mut self, port: u16) {
        if !self.has_policies {
            self.steering.claim(Transport::Udp, port);
        }
        self.datagrams.push(port);
        self.takes_datagrams = true;
    }

    /// One claim less.
    pub fn release_datagrams(&mut self, port: u16) {
        if let Some(place) = self.datagrams.iter().position(|one| *one == port) {
            self.datagrams.swap_remove(place);
            if !self.has_policies {
                self.steering.release(Transport::Udp, port);
            }
        }
    }

    /// See [`crate::Shard::way`].
    pub fn way(
        &self,
        (source, port): (Option<IpAddr>, u16),
        to: SocketAddr,
    ) -> Option<(Way, usize)> {
        // Of rules [`Tables::next_hop`] obeys those for TCP.
        if self.tables.rules().iter().any(|rule| rule.is_of_datagrams) {
            return None;
        }
        let hop = self.tables.next_hop(to.ip())?;
        let usual = self.source_for(to.ip())?;
        let source = source.unwrap_or(usual);
        if source.is_ipv4() != to.is_ipv4() {
            return None;
        }
        let room = match hop.ip == to.ip() {
            true => usize::MAX,
            false => BEHIND_GATEWAY,
        };
        Some((Way::new((source, port).into(), to), room))
    }

    /// A port is no longer listened on. Its connections live on, so it stays claimed until
    /// [`drain`](Self::drain); who opens a new one finds the kernel, and another program or none.
    pub fn release(&mut self, port: u16) {
        let Some(place) = self.listening.iter().position(|one| *one == port) else {
            return;
        };
        self.listening.swap_remove(place);
        if self.listening.contains(&port) {
            self.steering.release(Transport::Tcp, port);
        } else {
            self.draining.push(port);
            // First, or segments of a connection that the kernel gets meanwhile would come here.
            self.share(port);
            self.steering.drains(port, true);
        }
    }

    /// Gives ports back to the kernel that no connection uses any more.
    pub fn drain(&mut self, now_us: u64, engine: &Engine) {
        if self.draining.is_empty() || now_us < self.drain_us {
            return;
        }
        self.drain_us = now_us + LOOK_AGAIN_US;
        let used: HashSet<u16> = engine.local_ends().map(|(_, port)| port).collect();
        let (kept, over) = self.draining.iter().partition(|port| used.contains(port));
        self.draining = kept;
        let over: Vec<u16> = over;
        for port in over {
            self.steering.release(Transport::Tcp, port);
            if !self.listening.contains(&port) && !self.draining.contains(&port) {
                self.left.retain(|one| *one != port);
                self.shared.retain(|one| *one != port);
                self.steering.own(port);
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for port in self.listening.iter().chain(&self.draining) {
            self.steering.release(Transport::Tcp, *port);
        }
        for port in self.datagrams.iter().filter(|_| !self.has_policies) {
            self.steering.release(Transport::Udp, *port);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use bypass_xdp::Mode;

    use super::*;

    const LOOPBACK: u32 = 1;
    const PORT: u16 = 9;

    /// Tables that no program looks into.
    fn tables() -> Vec<Owned> {
        let table = |bytes| {
            let fd = Owned(kernel::memfd_create(c"table").expect("a file") as i32);
            kernel::ftruncate(fd.0, bytes).expect("its size");
            fd
        };
        [4 << 20, 2 << 20, 1 << 20, 4096, 0, 0].map(table).into()
    }

    fn steering() -> Steering {
        Steering::of(Mode::Generic, tables()).expect("mapped")
    }

    fn host(steering: &Arc<Steering>) -> Host {
        let scope = Scope {
            notice: |_, _| (),
            beside: Vec::new(),
            accept_from: None,
        };
        Host::new(LOOPBACK, steering.clone(), scope).expect("a host")
    }

    /// The program has set its word and is not done with the SYN yet.
    #[test]
    fn a_connection_left_a_moment_ago_is_the_kernels_until_the_next_look() {
        // The last of seven words of a port.
        const LEFT_AT: u64 = (PORT as u64 * 7 + 6) * 8;
        let tables = tables();
        let ports = format!("/proc/self/fd/{}", tables[0].0);
        let ports = std::fs::File::options().write(true).open(ports);
        let ports = ports.expect("ours");
        let steering = Arc::new(Steering::of(Mode::Generic, tables).expect("mapped"));
        let mut host = host(&steering);
        host.claim((IpAddr::from([127, 0, 0, 1]), PORT).into());
        host.look_at_shared(0);
        assert!(steering.is_shared(PORT), "it was the kernel's until now");
        host.look_at_shared(LOOK_AGAIN_US);
        assert!(!steering.is_shared(PORT), "the kernel has no connection");
        ports
            .write_all_at(&1u64.to_ne_bytes(), LEFT_AT)
            .expect("written");
        assert!(steering.has_left(PORT));
        host.look_at_shared(2 * LOOK_AGAIN_US);
        assert!(!steering.has_left(PORT) && steering.is_shared(PORT));
        host.look_at_shared(3 * LOOK_AGAIN_US);
        assert!(!steering.is_shared(PORT));
    }

    /// A SYN that was on its way to a listener when it was closed comes again, and may find another program's.
    #[test]
    fn segments_at_claimed_ports_are_answered_and_first_ones_only_where_no_other_program_can() {
        let steering = Arc::new(steering());
        let mut host = host(&steering);
        let here = IpAddr::from([127, 0, 0, 1]);
        let at = SocketAddr::from((here, PORT));
        assert!(!host.has_claimed(at, false));
        host.claim(at);
        assert!(host.has_claimed(at, false));
        host.release(PORT);
        assert!(host.has_claimed(at, false) && !host.has_claimed(at, true));
        let port = host.find_port(here, Some).expect("a port");
        assert!(host.has_claimed((here, port).into(), true));
        let beside = IpAddr::from([127, 0, 0, 2]);
        assert!(!host.has_claimed((beside, port).into(), false), "another's");
        assert!(host.has_claimed((beside, PORT).into(), false));
    }

    /// The kernel has connections at a port because the former owner was overloaded; the successor does not know it.
    #[test]
    fn a_port_is_shared_with_the_kernel_all_the_time_while_a_queue_is_taken_over() {
        let steering = steering();
        let (dead, own) = (steering.of_queue(1), Arc::new(steering.of_queue(0)));
        let mut host = host(&own);
        host.claim((IpAddr::from([127, 0, 0, 1]), PORT).into());
        let (is_watched, was_unshared) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..100 {
                dead.claim(Transport::Tcp, PORT);
                dead.share(PORT, true);
                own.own(PORT);
                is_watched.store(false, Ordering::SeqCst);
                let watch = scope.spawn(|| {
                    is_watched.store(true, Ordering::SeqCst);
                    while is_watched.load(Ordering::SeqCst) {
                        if !steering.is_shared(PORT) {
                            was_unshared.store(true, Ordering::SeqCst);
                        }
                    }
                });
                while !is_watched.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                host.add_queue(1, true);
                is_watched.store(false, Ordering::SeqCst);
                watch.join().expect("no panic");
            }
        });
        assert!(!was_unshared.load(Ordering::SeqCst));
    }
}
