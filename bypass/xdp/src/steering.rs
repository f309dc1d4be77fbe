//! The program on an interface, and what it takes.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use bypass_sys::descriptor::Owned;
use bypass_sys::kernel::Result;

use crate::program::{self, Maps};
use crate::sys::bpf::{self, Kind};
use crate::sys::table::Table;

const PORTS: usize = 65_536;
const SLOTS: usize = 65_536;
const PORT_BYTES: u32 = program::WORDS as u32 * 8;
/// Connections at most that are told from what the kernel keeps of earlier ones (some 7 MB).
const REOPENED: u32 = 65_536;
/// Queues of an interface at most.
const QUEUES: u32 = 1024;

/// Where the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel makes a packet of the frame.
    Native,
    /// In the kernel's receive path: any interface, slower on most.
    Generic,
}

impl Mode {
    /// XDP_FLAGS_….
    fn flags(self) -> u32 {
        match self {
            Self::Generic => 2,
            Self::Native => 4,
        }
    }
}

/// What a port number belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// The word of a port in which its claims stand.
    fn word(self) -> usize {
        match self {
            Self::Tcp => program::TCP,
            Self::Udp => program::UDP,
        }
    }
}

/// The program, its tables and, while somebody holds it, its place on an interface.
#[derive(Debug)]
struct Attached {
    mode: Mode,
    fds: [Owned; 4],
    ports: Table,
    addresses: Table,
}

/// The same as one owner uses it: who has all queues, or who has some of them beside others that have the rest. What
/// one claims and releases is none of the others' business.
#[derive(Debug)]
pub struct Steering {
    attached: Arc<Attached>,
    /// The owner's bit.
    owner: u64,
    /// Its queues, a bit each.
    queues: AtomicU64,
    /// Its claims of a port.
    claims: Mutex<HashMap<(Transport, u16), u32>>,
}

const PORTS_MAP: usize = 0;
const ADDRESSES_MAP: usize = 1;
const SOCKETS_MAP: usize = 2;
const LINK: usize = 3;

impl Steering {
    /// Attaches the program to interface `link`; nothing is claimed yet. Needs CAP_BPF and
    /// CAP_NET_ADMIN. EBUSY: there is another program. `takes_fragments`: for an MTU above what one
    /// frame holds. Datagrams longer than the MTU are the kernel's.
    pub fn attach(link: u32, mtu: u32, mode: Mode, takes_fragments: bool) -> Result<Self> {
        let ports = bpf::make_map(Kind::Array, [4, PORT_BYTES], PORTS as u32)?;
        let addresses = bpf::make_map(Kind::Array, [4, 16], SLOTS as u32)?;
        let sockets = bpf::make_map(Kind::Sockets, [4, 4], QUEUES)?;
        // Only the program uses it, which keeps it.
        let reopened = bpf::make_map(Kind::Recent, [program::FLOW_BYTES, 4], REOPENED)?;
        let maps = Maps {
            reopened: reopened.0,
            ports: ports.0,
            addresses: addresses.0,
            sockets: sockets.0,
        };
        let code = program::steering(maps, mtu);
        let program = bpf::load(&code, takes_fragments)?;
        let attached = bpf::attach(program.0, link, mode.flags())?;
        Self::of(mode, [ports, addresses, sockets, attached])
    }

    /// One that somebody else has attached and passed on.
    pub fn of(mode: Mode, fds: [Owned; 4]) -> Result<Self> {
        let attached = Attached {
            mode,
            ports: Table::map(fds[PORTS_MAP].0, PORTS * program::WORDS)?,
            addresses: Table::map(fds[ADDRESSES_MAP].0, SLOTS * 2)?,
            fds,
        };
        Ok(Self::owned(Arc::new(attached), 0, u64::MAX))
    }

    fn owned(attached: Arc<Attached>, owner: u32, queues: u64) -> Self {
        Self {
            attached,
            owner: bit(owner),
            queues: AtomicU64::new(queues),
            claims: Mutex::default(),
        }
    }

    /// For one of several owners, whose first queue this is: its number is the owner's.
    pub fn of_queue(&self, queue: u32) -> Self {
        Self::owned(self.attached.clone(), queue, bit(queue))
    }

    /// The owner has another queue. Where that `had_owner`, which has ended, what that one had claimed besides is the
    /// kernel's; a port that it shared with the kernel must be [shared](Self::share) by this owner already.
    pub fn add_queue(&self, queue: u32, had_owner: bool) {
        for port in (0..PORTS).filter(|_| had_owner) {
            for word in 0..program::USES {
                self.clear(port, word, bit(queue));
            }
        }
        let claims = self.claims();
        self.queues.fetch_or(bit(queue), Ordering::AcqRel);
        for (_, port) in claims.keys().filter(|(of, _)| *of == Transport::Udp) {
            self.set(usize::from(*port), program::UDP, bit(queue));
        }
    }

    /// A queue is no longer the owner's. What it says of that queue is its next owner's to say anew.
    pub fn remove_queue(&self, queue: u32) {
        let claims = self.claims();
        self.queues.fetch_and(!bit(queue), Ordering::AcqRel);
        for (_, port) in claims.keys().filter(|(of, _)| *of == Transport::Udp) {
            self.clear(usize::from(*port), program::UDP, bit(queue));
        }
    }

    /// The descriptors, for passing on: [`of`](Self::of) takes them in this order.
    pub fn descriptors(&self) -> [i32; 4] {
        let fds = &self.attached.fds;
        [fds[0].0, fds[1].0, fds[2].0, fds[LINK].0]
    }

    /// Where the program runs.
    pub fn mode(&self) -> Mode {
        self.attached.mode
    }

    /// Gives what arrives on a queue to a socket. Needs CAP_BPF; the entry goes with the socket.
    pub fn set_socket(&self, queue: u32, socket: i32) -> Result<()> {
        bpf::set_entry(self.attached.fds[SOCKETS_MAP].0, queue, socket as u32)
    }

    /// Adds an address of this host whose claimed ports are taken. False when another one has its
    /// place in the table: that address stays the kernel's.
    pub fn add_address(&self, ip: IpAddr) -> bool {
        let (slot, words) = place(ip);
        let addresses = &self.attached.addresses;
        let found = [addresses.get(slot * 2), addresses.get(slot * 2 + 1)];
        if found != [0, 0] && found != words {
            return false;
        }
        // The first word of an IPv4 address is 0: an entry is complete with its second.
        addresses.set(slot * 2, words[0]);
        addresses.set(slot * 2 + 1, words[1]);
        true
    }

    /// Removes an address.
    pub fn remove_address(&self, ip: IpAddr) {
        let (slot, words) = place(ip);
        let addresses = &self.attached.addresses;
        if [addresses.get(slot * 2), addresses.get(slot * 2 + 1)] == words {
            addresses.set(slot * 2 + 1, 0);
            addresses.set(slot * 2, 0);
        }
    }

    fn get(&self, port: usize, word: usize) -> u64 {
        self.attached.ports.get(port * program::WORDS + word)
    }

    /// Sets bits of a word of a port; what it was.
    fn set(&self, port: usize, word: usize, bits: u64) -> u64 {
        let at = port * program::WORDS + word;
        self.attached.ports.update(at, |word| Some(word | bits))
    }

    fn clear(&self, port: usize, word: usize, bits: u64) {
        if self.get(port, word) & bits != 0 {
            let at = port * program::WORDS + word;
            self.attached.ports.update(at, |word| Some(word & !bits));
        }
    }

    fn put(&self, port: usize, word: usize, bits: u64, is_set: bool) {
        match is_set {
            true => drop(self.set(port, word, bits)),
            false => self.clear(port, word, bits),
        }
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<(Transport, u16), u32>> {
        self.claims
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes what comes for a port from now on; true for the owner's first claim, which are counted. Without a
    /// system call, and without privilege.
    pub fn claim(&self, transport: Transport, port: u16) -> bool {
        let mut claims = self.claims();
        let count = claims.entry((transport, port)).or_default();
        *count += 1;
        self.set_claim(transport, usize::from(port));
        *count == 1
    }

    fn set_claim(&self, transport: Transport, port: usize) {
        if transport == Transport::Tcp && self.get(port, program::TCP) == 0 {
            // Before the claim is seen; of two at once each may count, which is another use as well.
            let at = port * program::WORDS + program::USES;
            self.attached
                .ports
                .update(at, |uses| Some(uses.wrapping_add(1)));
        }
        self.set(port, transport.word(), self.claimant(transport));
    }

    /// What stands for the owner in a word of claims: others may take its TCP frames and hand them on.
    fn claimant(&self, transport: Transport) -> u64 {
        match transport {
            Transport::Tcp => self.owner,
            Transport::Udp => self.queues.load(Ordering::Acquire),
        }
    }

    /// The kernel may have TCP connections of a claimed port from now on, whose frames stay its own;
    /// `leaves_new`: whose frames come by the owner's queues to open one opens it there.
    pub fn share(&self, port: u16, leaves_new: bool) {
        let (port, queues) = (usize::from(port), self.queues.load(Ordering::Acquire));
        self.set(port, program::SHARED, self.owner);
        self.put(port, program::LEAVES_NEW, queues, leaves_new);
    }

    /// Whether the kernel is asked about the TCP frames of a port.
    pub fn is_shared(&self, port: u16) -> bool {
        self.get(usize::from(port), program::SHARED) != 0
    }

    /// The owner has connections of a port that is [shared](Self::share), but takes no new ones, or takes them
    /// again. Where none does they are the kernel's.
    pub fn drains(&self, port: u16, is_draining: bool) {
        self.put(
            usize::from(port),
            program::DRAINING,
            self.owner,
            is_draining,
        );
    }

    /// The kernel has no TCP connections of a port (any more), for all that this owner knows: its frames are not
    /// asked about.
    pub fn own(&self, port: u16) {
        let port = usize::from(port);
        let queues = self.queues.load(Ordering::Acquire);
        self.clear(port, program::SHARED, self.owner);
        self.clear(port, program::LEAVES_NEW, queues);
        self.clear(port, program::DRAINING, self.owner);
    }

    /// Of this owner only these ports are claimed, whatever another process has claimed that was this owner and
    /// has ended.
    pub fn keep_only(&self, transport: Transport, ports: &[u16]) {
        let mut claims = self.claims();
        claims.retain(|(of, port), _| *of != transport || ports.contains(port));
        for port in ports {
            claims.entry((transport, *port)).or_insert(1);
            self.set_claim(transport, usize::from(*port));
        }
        for port in (0..=u16::MAX).filter(|port| !ports.contains(port)) {
            self.clear(
                usize::from(port),
                transport.word(),
                self.claimant(transport),
            );
            if transport == Transport::Tcp {
                self.own(port);
            }
        }
    }

    /// One claim less; with the last one of all owners the port is the kernel's again.
    pub fn release(&self, transport: Transport, port: u16) {
        let mut claims = self.claims();
        let Some(count) = claims.get_mut(&(transport, port)) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            claims.remove(&(transport, port));
            self.clear(
                usize::from(port),
                transport.word(),
                self.claimant(transport),
            );
        }
    }
}

fn bit(number: u32) -> u64 {
    1 << (number % program::OWNERS_MAX)
}

/// Slot and content of an address.
fn place(ip: IpAddr) -> (usize, [u64; 2]) {
    let octets = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let mut words = [0; 2];
    for (word, eight) in words.iter_mut().zip(octets.chunks_exact(8)) {
        *word = eight.try_into().map_or(0, u64::from_ne_bytes);
    }
    (program::slot(octets), words)
}
