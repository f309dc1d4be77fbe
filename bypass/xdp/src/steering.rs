//! Attaches the steering program to an interface, and sets which ports and addresses it takes.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use bypass_netlink::xfrm;
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_sys::kernel::Result;

use crate::guarded::{self, Guarded, Transport};
use crate::program::{self, Maps};
use crate::sys::bpf::{self, Kind};
use crate::sys::table::Table;
use crate::ways::{self, From};

const PORTS: usize = 65_536;
const SLOTS: usize = 65_536;
/// Connections at most that are distinguished from what the kernel keeps of earlier ones (some 7 MB).
const REOPENED: usize = 65_536;
/// Somewhat less than the second after which clients send a SYN again (RFC 6298, 2.1).
const RESEND_NS: u64 = 900_000_000;
/// Queues of an interface at most.
const QUEUES: usize = 1024;

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

/// The program, its tables and, while somebody holds it, its place on an interface.
#[derive(Debug)]
struct Attached {
    mode: Mode,
    /// Descriptors that every user has: [`PORTS_MAP`] and its neighbours.
    fds: [Owned; SHARED],
    ports: Table,
    uses: Table,
    ways: Table,
    pending: Table,
    /// Tables of the claims that are believed, until privileges are given up.
    guarded: Mutex<Option<Guarded>>,
}

/// The program with its tables, attached nowhere yet.
struct Loaded {
    shared: [Owned; LINK],
    guarded: [Owned; guarded::COUNT],
    program: Owned,
}

impl Loaded {
    fn new(mtu: u32, takes_fragments: bool) -> Result<Self> {
        let map = |kind, sizes, count: usize| bpf::make_map(kind, sizes, count as u32);
        let words = |count: usize| [4, count as u32 * 8];
        let ports = map(Kind::Mapped, words(program::WORDS), PORTS)?;
        let uses = map(Kind::Mapped, words(program::USE_WORDS), SLOTS)?;
        let ways = map(Kind::Mapped, words(ways::LIST_WORDS), ways::LISTS)?;
        let pending = map(Kind::Mapped, words(1), program::OWNERS_MAX as usize)?;
        let addresses = map(Kind::Array, [4, 16], SLOTS)?;
        let permits = map(Kind::Array, [4, 4], PORTS)?;
        let sockets = map(Kind::Sockets, [4, 4], QUEUES)?;
        // Only the program uses it, which keeps it.
        let reopened = map(Kind::Recent, [program::FLOW_BYTES, 4], REOPENED)?;
        let maps = Maps {
            reopened: reopened.0,
            ports: ports.0,
            permits: permits.0,
            addresses: addresses.0,
            uses: uses.0,
            ways: ways.0,
            pending: pending.0,
            sockets: sockets.0,
        };
        let code = program::steering(maps, mtu);
        let program = bpf::load(&code, takes_fragments)?;
        Ok(Self {
            shared: [ports, uses, ways, pending],
            guarded: [addresses, permits, sockets],
            program,
        })
    }
}

/// The same as one owner uses it: which has all queues, or some of them while others have the rest. What
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

const SHARED: usize = 6;
const PORTS_MAP: usize = 0;
const USES_MAP: usize = 1;
const WAYS_MAP: usize = 2;
const PENDING_MAP: usize = 3;
const LINK: usize = 4;
const POLICIES: usize = 5;

impl Steering {
    /// Attaches the program to interface `link`; nothing is claimed yet. Needs CAP_BPF and
    /// CAP_NET_ADMIN. EBUSY: there is another program. `takes_fragments`: for an MTU above what one
    /// frame holds. Datagrams longer than the MTU go to the kernel.
    pub fn attach(link: u32, mtu: u32, mode: Mode, takes_fragments: bool) -> Result<Self> {
        let loaded = Loaded::new(mtu, takes_fragments)?;
        bpf::set_entries(
            loaded.guarded[guarded::PERMITS_MAP].0,
            &guarded::usual_permits(),
        )?;
        let attached = bpf::attach(loaded.program.0, link, mode.flags())?;
        let all = loaded.shared.into_iter().chain([attached, xfrm::news()?]);
        let steering = Self::of(mode, all.chain(loaded.guarded).collect())?;
        ways::begin(&steering.attached.ways);
        Ok(steering)
    }

    /// Has the kernel make the tables and load the program, as [`attach`](Self::attach) does, and drops both.
    pub fn try_program(mtu: u32, takes_fragments: bool) -> Result<()> {
        Loaded::new(mtu, takes_fragments).map(|_| ())
    }

    /// One that another process has attached and passed on, by its [descriptors](Self::descriptors). A process with
    /// privilege gets the guarded tables from the kernel where that process had none to pass. EINVAL: they are none.
    pub fn of(mode: Mode, mut fds: Vec<Owned>) -> Result<Self> {
        let guarded = fds.split_off(SHARED.min(fds.len()));
        let fds: [Owned; SHARED] = fds.try_into().map_err(|_| libc::EINVAL)?;
        let guarded = match guarded.len() {
            0 => Guarded::of_link(fds[LINK].0).ok(),
            _ => Some(Guarded::of(guarded)?),
        };
        let attached = Attached {
            mode,
            ports: Table::map(fds[PORTS_MAP].0, PORTS * program::WORDS)?,
            uses: Table::map(fds[USES_MAP].0, SLOTS * program::USE_WORDS)?,
            ways: Table::map(fds[WAYS_MAP].0, ways::LISTS * ways::LIST_WORDS)?,
            pending: Table::map(fds[PENDING_MAP].0, program::OWNERS_MAX as usize)?,
            guarded: Mutex::new(guarded),
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

    /// A queue is no longer the owner's. Its next owner states the claims of that queue again.
    pub fn remove_queue(&self, queue: u32) {
        let claims = self.claims();
        self.queues.fetch_and(!bit(queue), Ordering::AcqRel);
        for (_, port) in claims.keys().filter(|(of, _)| *of == Transport::Udp) {
            self.clear(usize::from(*port), program::UDP, bit(queue));
        }
    }

    /// The descriptors, for passing on: [`of`](Self::of) takes them in this order. Without privilege only those with which
    /// nothing more can be claimed than was permitted before.
    pub fn descriptors(&self) -> Vec<i32> {
        let guarded = self.guarded();
        let guarded = guarded.iter().flat_map(|guarded| &guarded.fds);
        let all = self.attached.fds.iter().chain(guarded);
        all.map(|fd| fd.0).collect()
    }

    /// How many of the [descriptors](Self::descriptors) whoever has given up its privileges has.
    pub const UNPRIVILEGED: usize = SHARED;

    /// This process gives up its privileges: what it may not have without them, to be closed. Whatever it does later, it
    /// can claim no port and no address that was not permitted before.
    pub fn give_up_privileges(&self) -> Vec<Owned> {
        let guarded = self.guarded().take();
        guarded.map_or_else(Vec::new, |guarded| guarded.fds.into())
    }

    fn guarded(&self) -> MutexGuard<'_, Option<Guarded>> {
        let guarded = self.attached.guarded.lock();
        guarded.unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Where the program runs.
    pub fn mode(&self) -> Mode {
        self.attached.mode
    }

    /// Gives what arrives on a queue to a socket. Needs CAP_BPF; the entry goes with the socket.
    pub fn set_socket(&self, queue: u32, socket: i32) -> Result<()> {
        let guarded = self.guarded();
        guarded
            .as_ref()
            .ok_or(libc::EPERM)?
            .set_socket(queue, socket)
    }

    /// Permits claims of a port, which processes without privilege may then make. Whether it was; without privilege
    /// TCP ports that anybody may bind are permitted, but the kernel is asked about each of their frames.
    pub fn permit(&self, transport: Transport, port: u16) -> bool {
        let mut guarded = self.guarded();
        let guarded = guarded.as_mut();
        guarded.is_some_and(|guarded| guarded.permit(transport, port))
    }

    /// Adds an address of this host whose claimed ports are taken. False when another one has its
    /// place in the table, and without privilege for one that was never added with it: the kernel keeps that address.
    pub fn add_address(&self, ip: IpAddr) -> bool {
        self.use_address(ip, ways::ALL)
    }

    /// The same, but no new connection is taken until [`set_ways`](Self::set_ways) says from where. Of another
    /// interface's address frames of its connections may come by this one.
    pub fn add_address_without_ways(&self, ip: IpAddr) -> bool {
        self.use_address(ip, ways::NONE)
    }

    fn use_address(&self, ip: IpAddr, list: usize) -> bool {
        if !self.permit_address(ip) {
            return false;
        }
        let at = place(ip).0 * program::USE_WORDS;
        if self.attached.uses.get(at) == 0 {
            self.attached.uses.set(at, list as u64 + 1);
        }
        true
    }

    /// Permits an address of this host to be added, also by processes without privilege. Whether it was. An address
    /// in use keeps its place; one that is not gives way.
    pub fn permit_address(&self, ip: IpAddr) -> bool {
        let (slot, words) = place(ip);
        let at = slot * program::USE_WORDS;
        let uses = &self.attached.uses;
        if [uses.get(at + 1), uses.get(at + 2)] == words {
            return true;
        }
        let guarded = self.guarded();
        let is_free = uses.get(at) == 0;
        let guarded = guarded.as_ref().filter(|_| is_free);
        let is_set = guarded.is_some_and(|one| one.set_address(slot as u32, words).is_ok());
        if is_set {
            uses.set(at + 1, words[0]);
            uses.set(at + 2, words[1]);
        }
        is_set
    }

    /// Removes an address.
    pub fn remove_address(&self, ip: IpAddr) {
        if let Some(at) = self.use_of(ip) {
            self.attached.uses.set(at, 0);
        }
    }

    /// Where an address in use stands.
    fn use_of(&self, ip: IpAddr) -> Option<usize> {
        let (slot, words) = place(ip);
        let at = slot * program::USE_WORDS;
        let uses = &self.attached.uses;
        let found = [uses.get(at + 1), uses.get(at + 2)];
        (found == words && uses.get(at) != 0).then_some(at)
    }

    /// New connections to an address are taken from these networks alone, the longest prefix deciding; all others are the
    /// kernel's. Until this is called they are taken from everywhere.
    pub fn set_ways(&self, ip: IpAddr, from: Vec<From>) {
        let Some(at) = self.use_of(ip) else {
            return;
        };
        let uses = &self.attached.uses;
        let is_used = |list: usize| {
            (0..SLOTS).any(|slot| uses.get(slot * program::USE_WORDS) == list as u64 + 1)
        };
        let list = ways::place(&self.attached.ways, &ways::shortened(from), ip, is_used);
        uses.set(at, list as u64 + 1);
    }

    /// The owner has looked for frames: new connections that came before wait no longer. Who does not for a quarter of a
    /// second while some wait gets no more of them; they go to the kernel.
    #[inline]
    pub fn looked(&self) {
        let mut queues = self.queues.load(Ordering::Relaxed);
        while queues != 0 {
            let queue = queues.trailing_zeros() as usize;
            queues &= queues - 1;
            if self.attached.pending.get(queue) != 0 {
                self.attached.pending.set(queue, 0);
            }
        }
    }

    /// Whether the program may have left a new connection to the kernel that is read here now too: its SYN came before the
    /// owner was found not to look, and then once more. Asked once it is read, and before [`looked`](Self::looked); for the
    /// time only where one waits.
    pub fn is_late(&self, now_ns: impl FnOnce() -> u64) -> bool {
        let mut queues = self.queues.load(Ordering::Relaxed);
        let mut oldest = u64::MAX;
        while queues != 0 {
            let queue = queues.trailing_zeros() as usize;
            queues &= queues - 1;
            oldest = oldest.min(match self.attached.pending.get(queue) {
                0 => u64::MAX,
                since_ns => since_ns,
            });
        }
        oldest < u64::MAX && now_ns().saturating_sub(oldest) > RESEND_NS
    }

    /// Whether IPsec policies have changed since the program was attached, for who may not ask which there are.
    pub fn has_policy_news(&self) -> bool {
        let mut one = [libc::pollfd {
            fd: self.policies_fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        match kernel::poll(&mut one, Some(Duration::ZERO), None) {
            // The kernel had looked, and found nothing, when it saw the signal.
            Err(libc::EINTR) => false,
            result => result != Ok(0),
        }
    }

    /// Readable from then on.
    pub fn policies_fd(&self) -> i32 {
        self.attached.fds[POLICIES].0
    }

    /// Whether the program has left new connections of a port to the kernel, since that was [forgotten](Self::forget_left).
    pub fn has_left(&self, port: u16) -> bool {
        self.get(usize::from(port), program::LEFT) != 0
    }

    /// Forgets that, once the port is [shared](Self::share) with the kernel.
    pub fn forget_left(&self, port: u16) {
        if self.has_left(port) {
            let at = usize::from(port) * program::WORDS + program::LEFT;
            self.attached.ports.set(at, 0);
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
        self.permit(transport, port);
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

    /// The value that stands for the owner in a word of claims: others may take its TCP frames and hand them on.
    fn claimant(&self, transport: Transport) -> u64 {
        match transport {
            Transport::Tcp => self.owner,
            Transport::Udp => self.queues.load(Ordering::Acquire),
        }
    }

    /// Whether any owner has claimed a TCP port, so that its segments come to a queue.
    pub fn is_claimed(&self, port: u16) -> bool {
        self.get(usize::from(port), program::TCP) != 0
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
        let word = |word| self.get(usize::from(port), word);
        word(program::SHARED) | word(program::LEFT) != 0
    }

    /// The owner has connections of a port that is [shared](Self::share), but takes no new ones, or takes them
    /// again. Where none does they go to the kernel.
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

    /// One claim less; with the last one of all owners the port goes back to the kernel.
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
