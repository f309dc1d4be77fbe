//! The program on an interface, and what it takes.

use std::net::IpAddr;

use bypass_sys::descriptor::Owned;
use bypass_sys::kernel::Result;

use crate::program::{self, Maps};
use crate::sys::bpf::{self, Kind};
use crate::sys::table::Table;

const PORTS: usize = 65_536;
const SLOTS: usize = 65_536;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// The bits of a word in which claims are counted.
    fn mask(self) -> u64 {
        match self {
            Self::Tcp => program::TCP,
            Self::Udp => program::UDP,
        }
    }

    /// One claim.
    fn unit(self) -> u64 {
        self.mask() & self.mask().wrapping_neg()
    }
}

/// The program, its tables and, while somebody holds it, its place on an interface.
#[derive(Debug)]
pub struct Steering {
    mode: Mode,
    fds: [Owned; 4],
    ports: Table,
    addresses: Table,
}

const PORTS_MAP: usize = 0;
const ADDRESSES_MAP: usize = 1;
const SOCKETS_MAP: usize = 2;
const LINK: usize = 3;

impl Steering {
    /// Attaches the program to interface `link`; nothing is claimed yet. Needs CAP_BPF and
    /// CAP_NET_ADMIN. EBUSY: there is another program. `takes_fragments`: for an MTU above what one
    /// frame holds.
    pub fn attach(link: u32, mode: Mode, takes_fragments: bool) -> Result<Self> {
        let ports = bpf::make_map(Kind::Array, [4, 8], PORTS as u32)?;
        let addresses = bpf::make_map(Kind::Array, [4, 16], SLOTS as u32)?;
        let sockets = bpf::make_map(Kind::Sockets, [4, 4], QUEUES)?;
        // Only the program uses it, which keeps it.
        let reopened = bpf::make_map(Kind::Recent, [program::FLOW_BYTES, 4], REOPENED)?;
        let code = program::steering(Maps {
            reopened: reopened.0,
            ports: ports.0,
            addresses: addresses.0,
            sockets: sockets.0,
        });
        let program = bpf::load(&code, takes_fragments)?;
        let attached = bpf::attach(program.0, link, mode.flags())?;
        Self::of(mode, [ports, addresses, sockets, attached])
    }

    /// One that somebody else has attached and passed on.
    pub fn of(mode: Mode, fds: [Owned; 4]) -> Result<Self> {
        Ok(Self {
            mode,
            ports: Table::map(fds[PORTS_MAP].0, PORTS)?,
            addresses: Table::map(fds[ADDRESSES_MAP].0, SLOTS * 2)?,
            fds,
        })
    }

    /// The descriptors, for passing on: [`of`](Self::of) takes them in this order.
    pub fn descriptors(&self) -> [i32; 4] {
        [
            self.fds[0].0,
            self.fds[1].0,
            self.fds[2].0,
            self.fds[LINK].0,
        ]
    }

    /// Where the program runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Gives what arrives on a queue to a socket. Needs CAP_BPF; the entry goes with the socket.
    pub fn set_socket(&self, queue: u32, socket: i32) -> Result<()> {
        bpf::set_entry(self.fds[SOCKETS_MAP].0, queue, socket as u32)
    }

    /// Adds an address of this host whose claimed ports are taken. False when another one has its
    /// place in the table: that address stays the kernel's.
    pub fn add_address(&self, ip: IpAddr) -> bool {
        let (slot, words) = place(ip);
        let found = [
            self.addresses.get(slot * 2),
            self.addresses.get(slot * 2 + 1),
        ];
        if found != [0, 0] && found != words {
            return false;
        }
        // The first word of an IPv4 address is 0: an entry is complete with its second.
        self.addresses.set(slot * 2, words[0]);
        self.addresses.set(slot * 2 + 1, words[1]);
        true
    }

    /// Removes an address.
    pub fn remove_address(&self, ip: IpAddr) {
        let (slot, words) = place(ip);
        if [
            self.addresses.get(slot * 2),
            self.addresses.get(slot * 2 + 1),
        ] == words
        {
            self.addresses.set(slot * 2 + 1, 0);
            self.addresses.set(slot * 2, 0);
        }
    }

    /// Takes what comes for a port from now on; true for its first claim. Claims are counted over all
    /// processes that hold the tables, up to 65,535 of a port. Without a system call, and without
    /// privilege.
    pub fn claim(&self, transport: Transport, port: u16) -> bool {
        let (mask, unit) = (transport.mask(), transport.unit());
        let add = |word: u64| {
            let begins = transport == Transport::Tcp && word & mask == 0;
            let uses = if begins { program::USE } else { 0 };
            (word & mask != mask).then(|| word.wrapping_add(uses) + unit)
        };
        self.ports.update(usize::from(port), add) & mask == 0
    }

    /// The kernel may have TCP connections of a claimed port from now on, whose frames stay its own;
    /// `leaves_new`: who opens one now opens it there.
    pub fn share(&self, port: u16, leaves_new: bool) {
        let flags = match leaves_new {
            true => program::SHARED | program::LEAVES_NEW,
            false => program::SHARED,
        };
        self.set_flags(port, flags);
    }

    /// The kernel has no TCP connections of a port (any more): its frames are not asked about.
    pub fn own(&self, port: u16) {
        self.set_flags(port, 0);
    }

    fn set_flags(&self, port: u16, flags: u64) {
        let all = program::SHARED | program::LEAVES_NEW;
        self.ports
            .update(usize::from(port), |word| Some(word & !all | flags));
    }

    /// Only these ports are claimed, each once, whatever others have claimed that have ended. For the
    /// only user of the tables.
    pub fn keep_only(&self, transport: Transport, ports: &[u16]) {
        let (mask, unit) = (transport.mask(), transport.unit());
        for port in 0..PORTS {
            let is_kept = u16::try_from(port).is_ok_and(|port| ports.contains(&port));
            let claims = if is_kept { unit } else { 0 };
            let set = |word: u64| (word & mask != claims).then(|| word & !mask | claims);
            if self.ports.get(port) & mask != claims {
                self.ports.update(port, set);
            }
        }
    }

    /// One claim less; with the last one the port is the kernel's again.
    pub fn release(&self, transport: Transport, port: u16) {
        let (mask, unit) = (transport.mask(), transport.unit());
        let subtract = |word: u64| (word & mask != 0).then(|| word - unit);
        self.ports.update(usize::from(port), subtract);
    }
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
