//! Local ports for connections that we open: reserved with the kernel, so that neither it nor
//! another process uses them, and claimed, so that the answers come here.
//!
//! A port is reserved by a bound socket of the kernel's. There may be thousands, and the program has its own
//! use for its descriptors: full batches of them wait in the queue of a socket that is never read, where they
//! take no number. Unused ports go back to the kernel, batch by batch.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bypass_sys::{address, kernel, network, numbers};
use bypass_xdp::{Steering, Transport};

use crate::held::{Held, Notice};

/// Reserved ports that one address may have: about half as many as the kernel gives out.
const PORTS_MAX: usize = 16_384;
/// Ports that wait together.
const BATCH: usize = 64;
/// Known ports that are tried before another one is reserved: with many connections to one host most of them
/// are in use.
const TRIES: usize = 64;
/// Ports that are reserved before one is used again: a server that ends connections itself keeps each in
/// TIME_WAIT, and lets the next one in at once only when its numbers or its milliseconds are later.
const FEW: usize = 256;
/// Descriptors that are left to the program before ports are reserved that it could do without.
const DESCRIPTORS_LEFT: usize = 128;

/// The ports of a shard.
#[derive(Debug)]
pub struct Ports {
    steering: Arc<Steering>,
    notice: Notice,
    reserved: HashMap<IpAddr, Reserved>,
}

impl Ports {
    /// None yet.
    pub fn new(steering: Arc<Steering>, notice: Notice) -> Self {
        Self {
            steering,
            notice,
            reserved: HashMap::new(),
        }
    }

    /// Finds a port of `ip` that `open` can use: one of those reserved earlier when they are enough, else a new one.
    /// `open` answers None for a port that is taken.
    pub fn find<T>(
        &mut self,
        ip: IpAddr,
        mut open: impl FnMut(u16) -> Option<T>,
    ) -> kernel::Result<T> {
        let known = self.reserved.entry(ip).or_default();
        let has_too_few = known.len() < FEW && kernel::has_descriptors_left(DESCRIPTORS_LEFT);
        if let Some(opened) = known.search(if has_too_few { 0 } else { TRIES }, &mut open) {
            return Ok(opened);
        }
        if known.len() < PORTS_MAX {
            if let Ok((socket, port)) = reserve(ip, self.notice) {
                self.steering.claim(Transport::Tcp, port);
                known.add(port, socket, self.notice);
                return open(port).ok_or(libc::EADDRNOTAVAIL);
            }
        }
        known
            .search(PORTS_MAX, &mut open)
            .ok_or(libc::EADDRNOTAVAIL)
    }

    /// Whether a port is reserved for another address than this one: the kernel may have given it to a program here.
    pub fn are_anothers(&self, at: SocketAddr) -> bool {
        let has = |reserved: &Reserved| {
            let mut batches = reserved.batches.iter();
            batches.any(|batch| batch.ports.contains(&at.port()))
        };
        let mut others = self.reserved.iter().filter(|(ip, _)| **ip != at.ip());
        others.any(|(_, reserved)| has(reserved)) && !self.reserved.get(&at.ip()).is_some_and(has)
    }

    /// Whether any port is reserved.
    pub fn is_empty(&self) -> bool {
        self.reserved.is_empty()
    }

    /// Gives back what is not in use any more.
    pub fn keep_only(&mut self, used: &HashSet<(IpAddr, u16)>) {
        let steering = &self.steering;
        self.reserved.retain(|ip, reserved| {
            reserved.batches.retain(|batch| {
                let is_used = batch.ports.iter().any(|port| used.contains(&(*ip, *port)));
                if !is_used {
                    batch.release(steering);
                }
                is_used
            });
            !reserved.batches.is_empty()
        });
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        let reserved = self.reserved.values();
        for batch in reserved.flat_map(|reserved| &reserved.batches) {
            batch.release(&self.steering);
        }
    }
}

/// The ports of an address. Every batch but the last is full.
#[derive(Debug, Default)]
struct Reserved {
    batches: Vec<Batch>,
    /// Where the search begins, so that a port rests before it is used again.
    next: usize,
}

impl Reserved {
    fn len(&self) -> usize {
        let last = self.batches.last().map_or(0, |batch| batch.ports.len());
        self.batches.len().saturating_sub(1) * BATCH + last
    }

    fn search<T>(&mut self, most: usize, open: &mut impl FnMut(u16) -> Option<T>) -> Option<T> {
        let count = self.len();
        for _ in 0..most.min(count) {
            self.next = (self.next + 1) % count;
            let port = self.batches[self.next / BATCH].ports[self.next % BATCH];
            if let Some(opened) = open(port) {
                return Some(opened);
            }
        }
        None
    }

    fn add(&mut self, port: u16, socket: Held, notice: Notice) {
        if self.len() % BATCH == 0 {
            self.batches.push(Batch::default());
        }
        if let Some(batch) = self.batches.last_mut() {
            batch.ports.push(port);
            batch.sockets.push(socket);
            if batch.ports.len() == BATCH {
                batch.park(notice);
            }
        }
    }
}

/// Ports with what reserves them: their sockets, or one in whose queue these wait.
#[derive(Debug, Default)]
struct Batch {
    ports: Vec<u16>,
    sockets: Vec<Held>,
}

impl Batch {
    /// Where the kernel refuses (of an unprivileged user no more may wait than it may have open), they stay as
    /// they are.
    fn park(&mut self, notice: Notice) {
        let fds: Vec<i32> = self.sockets.iter().map(Held::fd).collect();
        let Ok([queue, sender]) = network::socket_pair() else {
            return;
        };
        if network::send_descriptors(sender.0, b"p", &fds).is_ok() {
            self.sockets = vec![Held::new(queue, notice)];
        }
    }

    fn release(&self, steering: &Steering) {
        for port in &self.ports {
            steering.release(Transport::Tcp, *port);
        }
    }
}

/// A kernel socket bound to an unused port.
fn reserve(ip: IpAddr, notice: Notice) -> kernel::Result<(Held, u16)> {
    let family = if ip.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let socket = numbers::high(|| kernel::socket(family, kind, 0))?;
    let socket = Held::new(socket, notice);
    let mut name = [0; 28];
    let length = address::to_bytes((ip, 0).into(), family, &mut name);
    kernel::bind(socket.fd(), &name[..length])?;
    let name = kernel::socket_name(socket.fd())?;
    let bound = address::from_bytes(&name.bytes[..name.length as usize]).ok_or(libc::EINVAL)?;
    Ok((socket, bound.port()))
}
