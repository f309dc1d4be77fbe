//! How sockets are opened: where to, with which options, how many at once.

use super::addresses::Addresses;
use super::connection::Connection;
use crate::plan::{Plan, Target};
use crate::sys::clock::SECOND_NS;
use crate::sys::epoll::Trigger;
use crate::sys::is_preloaded;
use crate::sys::options::{own_ports, SocketOptions};
use crate::sys::socket::{self, Address, Connect, Fd, RawAddress};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};

/// Connects under way at once; more would only fill the server's backlog. Before the load begins
/// handshakes are part of it: all at once they would keep each other waiting until none is in time.
const CONNECTING_MAX: usize = 256;
/// After so many vain tries more than successes, sockets of ended connections are not used again.
const RENEWALS_MAX: u8 = 16;

/// The connects of a thread.
pub(super) struct Connector<'p> {
    plan: &'p Plan,
    /// What is set on each socket of this thread.
    socket: SocketOptions,
    /// Those of each target.
    addresses: Vec<Addresses>,
    /// Connects under way, and connections that wait because these are many.
    under_way: usize,
    queue: VecDeque<u32>,
    /// Place of the next connection's source address: each thread begins at another, as they are
    /// dealt over all threads.
    source: usize,
    /// Requests may be longer than a segment or follow each other without an answer.
    needs_no_delay: bool,
    /// A fresh connection is written to without waiting until it is established.
    pub sends_first: bool,
    /// How often more than not the socket of an ended connection could be used again; at 0 it is
    /// not tried any more.
    renewals: u8,
    /// The shortest connect: about a round trip.
    pub round_trip_ns: u64,
    /// A target has a port that the kernel may choose for this side.
    may_meet_itself: bool,
}

impl<'p> Connector<'p> {
    /// Of thread `number`, to these targets.
    pub fn new(
        plan: &'p Plan,
        number: usize,
        targets: &[Target],
        needs_no_delay: bool,
        sends_first: bool,
    ) -> io::Result<Connector<'p>> {
        let addresses: io::Result<Vec<_>> = targets.iter().map(Addresses::of).collect();
        let ports = plan.socket.ports;
        let socket = SocketOptions {
            ports: ports.map(|ports| ports.of_thread(number, plan.threads)),
            ..plan.socket.clone()
        };
        Ok(Connector {
            plan,
            socket,
            addresses: addresses?,
            under_way: 0,
            queue: VecDeque::new(),
            source: number,
            needs_no_delay,
            sends_first,
            renewals: if may_renew(plan) { RENEWALS_MAX } else { 0 },
            round_trip_ns: SECOND_NS,
            may_meet_itself: targets.iter().any(has_own_port),
        })
    }

    /// From now on connections to `target`, which is the only one, go to another address.
    pub fn move_to(&mut self, target: &Target) -> io::Result<()> {
        self.addresses[0] = Addresses::of(target)?;
        self.may_meet_itself = has_own_port(target);
        Ok(())
    }

    /// How many addresses a connection to a target tries, one after the other.
    pub fn addresses(&self, target: usize) -> usize {
        if self.plan.all_addresses {
            1
        } else {
            self.addresses[target].len()
        }
    }

    /// Where a connection to a target goes, and the place of that among the target's addresses.
    #[inline]
    pub fn address_of(&self, target: usize, index: usize) -> (RawAddress, u8) {
        self.addresses[target].of_connection(index, self.plan.all_addresses)
    }

    /// A connection could not be opened.
    pub fn note_failure<S>(&mut self, connection: &Connection<S>) {
        let addresses = &mut self.addresses[usize::from(connection.target)];
        addresses.note_failure(connection.address, self.plan.all_addresses);
    }

    /// Sets what the plan wants of a socket before it connects.
    #[inline]
    pub fn prepare(&mut self, fd: Fd, address: &RawAddress, is_stream: bool) -> io::Result<()> {
        if self.needs_no_delay && is_stream {
            socket::set_no_delay(fd)?;
        }
        if !self.socket.is_empty() {
            self.socket.set(fd, address.is_ipv6())?;
        }
        if !self.plan.sources.is_empty() {
            let source = self.plan.sources[self.source % self.plan.sources.len()];
            self.source += self.plan.threads;
            socket::bind_source(fd, source)?;
        }
        Ok(())
    }

    /// Connects a socket.
    #[inline]
    pub fn connect(&self, fd: Fd, address: &RawAddress) -> io::Result<Connect> {
        if self.plan.abort {
            socket::set_abort(fd)?;
        }
        let connect = socket::connect(fd, address)?;
        if self.may_meet_itself && socket::meets_itself(fd, address) {
            // a server that is started again shall find its port free
            socket::set_abort(fd)?;
            return Err(ErrorKind::ConnectionRefused.into());
        }
        Ok(connect)
    }

    /// Whether a connection must wait until others are open.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.under_way >= CONNECTING_MAX
    }

    /// A connection waits for its turn.
    pub fn enqueue(&mut self, index: usize) {
        self.queue.push_back(index as u32);
    }

    /// The connection whose turn it is.
    #[inline]
    pub fn next_queued(&mut self) -> Option<usize> {
        if self.is_full() {
            return None;
        }
        self.queue.pop_front().map(|index| index as usize)
    }

    /// A connect is under way.
    #[inline]
    pub fn begin(&mut self) {
        self.under_way += 1;
    }

    /// A connect is over.
    #[inline]
    pub fn end(&mut self) {
        self.under_way -= 1;
    }

    /// Ends a connection and prepares its socket for the next one, where that works often enough.
    #[inline]
    pub fn renew(&mut self, fd: Fd) -> bool {
        let is_new = socket::end_and_renew(fd);
        self.renewals = if is_new {
            (self.renewals + 1).min(RENEWALS_MAX)
        } else {
            self.renewals - 1
        };
        is_new
    }

    /// Whether it is worth trying.
    #[inline]
    pub fn renews(&self) -> bool {
        self.renewals > 0
    }
}

/// Whether sockets of ended connections may be used again: where each request has a connection of
/// its own, nothing is set on sockets that would have to be set again, and the kernel handles them.
fn may_renew(plan: &Plan) -> bool {
    let is_plain = plan.socket.is_empty() && plan.proxy_header.is_none();
    let plain = is_plain && plan.sources.is_empty() && !plan.abort && plan.trigger == Trigger::Edge;
    plan.close && plain && !is_preloaded()
}

/// Whether a target has a port that the kernel may choose for this side.
fn has_own_port(target: &Target) -> bool {
    let own = own_ports();
    let mut all = std::iter::once(&target.address).chain(&target.others);
    all.any(|address| match address {
        Address::Inet(address) => own.contains(&address.port()),
        Address::Unix(_) => false,
    })
}

/// Whether a target is reached over TCP or UDP.
pub(super) fn is_inet(target: &Target) -> bool {
    matches!(target.address, Address::Inet(_))
}
