//! Tables that only bpf(2) writes: permitted claims of ports, and each queue's socket. Their descriptors are closed
//! when a process gives up its privileges, so that whoever takes it over can claim nothing else.

use std::collections::HashSet;

use bypass_netlink::diag;
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel::Result;

use crate::program;
use crate::sys::bpf::{self, Kind};

pub const COUNT: usize = 3;
/// Their order.
const ADDRESSES_MAP: usize = 0;
pub const PERMITS_MAP: usize = 1;
const SOCKETS_MAP: usize = 2;
/// Ports below this one need a privilege where the kernel does not say otherwise.
const PRIVILEGED_PORTS: usize = 1024;
const PORTS: usize = 65_536;

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
    pub(crate) fn word(self) -> usize {
        match self {
            Self::Tcp => program::TCP,
            Self::Udp => program::UDP,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Guarded {
    /// Addresses, permits, sockets.
    pub fds: [Owned; COUNT],
    permitted: HashSet<(Transport, u16)>,
}

impl Guarded {
    /// Of its descriptors. EINVAL: they are none.
    pub fn of(fds: Vec<Owned>) -> Result<Self> {
        Ok(Self {
            fds: fds.try_into().map_err(|_| libc::EINVAL)?,
            permitted: HashSet::new(),
        })
    }

    /// Of the program that `link` keeps on an interface: for a process with privilege that joins others without. Needs
    /// CAP_SYS_ADMIN.
    pub fn of_link(link: i32) -> Result<Self> {
        let mut maps = bpf::maps_of(link)?;
        let wanted = [(Kind::Array, 16), (Kind::Array, 4), (Kind::Sockets, 4)];
        let fds = wanted.iter().map(|(kind, value)| {
            let is_it = |(_, shape): &(Owned, [u32; 3])| *shape == kind.shape(*value);
            let place = maps.iter().position(is_it).ok_or(libc::ENOENT)?;
            Ok(maps.swap_remove(place).0)
        });
        Self::of(fds.collect::<Result<_>>()?)
    }

    /// Gives what arrives on a queue to a socket.
    pub fn set_socket(&self, queue: u32, socket: i32) -> Result<()> {
        bpf::set_entry(self.fds[SOCKETS_MAP].0, queue, socket.to_ne_bytes())
    }

    /// The address of a place in the table.
    pub fn set_address(&self, slot: u32, words: [u64; 2]) -> Result<()> {
        let mut bytes = [0; 16];
        for (eight, word) in bytes.chunks_exact_mut(8).zip(words) {
            eight.copy_from_slice(&word.to_ne_bytes());
        }
        bpf::set_entry(self.fds[ADDRESSES_MAP].0, slot, bytes)
    }

    /// Has claims of a port believed.
    pub fn permit(&mut self, transport: Transport, port: u16) -> bool {
        if self.permitted.contains(&(transport, port)) {
            return true;
        }
        let (map, key) = (self.fds[PERMITS_MAP].0, u32::from(port));
        let permit = |before: u32| match transport {
            Transport::Tcp => before & program::DATAGRAMS | program::TRUSTED,
            Transport::Udp => before | program::DATAGRAMS,
        };
        let set = bpf::entry(map, key)
            .map(u32::from_ne_bytes)
            .and_then(|before| bpf::set_entry(map, key, permit(before).to_ne_bytes()));
        if set.is_ok() {
            self.permitted.insert((transport, port));
        }
        set.is_ok()
    }
}

/// Claims that need no permission: of TCP, the ports that anybody may bind. Of those the
/// kernel is asked whose a frame is; where another program listens, it goes on.
pub fn usual_permits() -> Vec<u32> {
    let path = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    let first = std::fs::read_to_string(path).ok();
    let first = first.and_then(|text| text.trim().parse().ok());
    let first = first.unwrap_or(PRIVILEGED_PORTS);
    let permit = |port| if port < first { 0 } else { program::ASKED };
    let mut permits: Vec<u32> = (0..PORTS).map(permit).collect();
    for port in diag::listening_ports().unwrap_or_default() {
        let permit = &mut permits[usize::from(port)];
        *permit = if *permit == 0 { 0 } else { program::STRICT };
    }
    permits
}
