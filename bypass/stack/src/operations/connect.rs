//! connect(2): decides between shared memory and the kernel, once and for the whole connection.
//!
//! The kernel says which listening sockets an address means (sock_diag); we ask only who holds
//! them, and the holder proves it by a descriptor that names that very socket.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};

use bypass_netlink::{diag, RouteKind};
use bypass_shm::layout::SLOTS_MAX;
use bypass_shm::link::{self, Message, VERSION};
use bypass_shm::segment::Segment;
use bypass_stats::{About, Call, Counter, Reason};
use bypass_sys::clock::now_ns;
use bypass_sys::descriptor::Owned;
use bypass_sys::process::Held;
use bypass_sys::sandbox::is_confined;
use bypass_sys::waker::Name;
use bypass_sys::{address, kernel, numbers};

use super::shutdown::{dissolve, unconnect};
use super::{listen, shadow};
use crate::listener;
use crate::packets;
use crate::peer::admission::Admission;
use crate::peer::{self, Peer};
use crate::process::deadline::AT_ONCE_NS;
use crate::process::table::{self, Entry, Kind};
use crate::process::{self, namespace, uring, Outcome};
use crate::service;
use crate::sockets::{self, Event, Socket};
use crate::stream::{self, attach, is_nonblocking, show_opened, Stream};
use crate::wait::epoll;

mod across;
mod over_packets;
mod undecided;

use over_packets::Connected;
pub use undecided::{
    await_taker, find_decided, give_up, is_undecided, may_wait_for_taker, settle, Undecided,
};

/// How long the finding that no process listens is cached.
const NEGATIVE_NS: u64 = 50_000_000;
/// How long the kernel's choice of listeners is cached.
const POSITIVE_NS: u64 = 1_000_000_000;
/// How long a holder may take to answer its rendezvous socket.
const ANSWER_MS: u64 = 1000;
/// The same for a connect that must not block.
const NONBLOCKING_ANSWER_MS: u64 = 100;
/// How long one that did not answer is not asked again.
const SILENCE_NS: u64 = 5_000_000_000;
/// Addresses remembered; more are asked about each time.
const TARGETS_MAX: usize = 4096;

/// A listening socket as the kernel knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Holder {
    inode: u64,
    uid: u32,
}

/// What is known of an address; empty when it was never asked about.
#[derive(Default)]
struct Target {
    checked_ns: u64,
    holders: Vec<Holder>,
    /// One for each listening socket of the address.
    peers: Vec<Met>,
    turn: usize,
    /// They are other network namespaces', each of which may have this address.
    is_across: bool,
}

/// What is known of who holds a listening socket.
#[derive(Clone)]
enum Met {
    /// Not asked yet: with a socket for each of many workers, few are needed for few connections.
    NotYet,
    Yes(Arc<Peer>),
    /// It is not ours.
    No(Reason),
}

type Targets = HashMap<SocketAddr, Arc<Mutex<Target>>>;

/// Locked for a look only. A thread that waits for the first answer of a listener's process has the lock of
/// that address: connects to others go on.
static TARGETS: OnceLock<Mutex<Targets>> = OnceLock::new();

fn targets() -> &'static Mutex<Targets> {
    TARGETS.get_or_init(Mutex::default)
}

/// Locks the addresses across a fork, which thus finds each listener met or not asked.
pub fn hold() -> impl Sized {
    let targets = targets().lock().ok();
    let each = targets.iter().flat_map(|targets| targets.values());
    let held: Vec<_> = each
        .map(|target| Held::lock(target.clone(), |target| target))
        .collect();
    (held, targets)
}

/// In a forked child: it meets the holders itself.
pub fn forget() {
    if let Ok(mut targets) = targets().lock() {
        targets.clear();
    }
}

/// Whether these are the bytes of AF_UNSPEC, which dissolves a connection.
fn is_dissolving(bytes: &[u8]) -> bool {
    let family = bytes
        .get(..2)
        .map(|two| u16::from_ne_bytes([two[0], two[1]]));
    family == Some(libc::AF_UNSPEC as u16)
}

/// connect(2) with the program's address bytes.
pub fn connect(fd: i32, bytes: &[u8]) -> Outcome {
    let entry = table::get(fd);
    let socket = sockets::get(entry.index());
    match entry.kind() {
        Kind::Unbound => drop(socket.take_dissolved()),
        Kind::Listener if is_dissolving(bytes) => return listen::dissolve(fd, entry),
        Kind::Connected if is_dissolving(bytes) => return dissolve(fd, entry),
        Kind::Connected if socket.has(sockets::CONNECTING) => return result(fd, entry, socket),
        Kind::Connected | Kind::Listener => return Outcome::Error(libc::EISCONN),
        Kind::Pooled | Kind::Internal => return Outcome::Error(libc::EBADF),
        Kind::Epoll | Kind::Kernel | Kind::Datagram => return Outcome::Kernel,
    }
    let made = destination(fd, socket, bytes).and_then(|target| route(fd, entry, socket, target));
    match made {
        Ok(Connected::Failed(error)) => Outcome::Error(error),
        Ok(Connected::Done) if must_not_wait(socket) => {
            socket.set(sockets::CONNECTING, true);
            Outcome::Error(libc::EINPROGRESS)
        }
        Ok(Connected::Done) => Outcome::Done(0),
        Err(reason) => leave_to_kernel(fd, bytes, reason),
    }
}

/// The kernel connects, unless the options forbid that.
#[cold]
fn leave_to_kernel(fd: i32, bytes: &[u8], reason: Reason) -> Outcome {
    let about = About {
        call: Call::Connect,
        fd,
        address: address::from_bytes(bytes),
        has_failed: false,
    };
    if process::must_fail(reason) && !is_refused_anyway(reason, about.address) {
        process::refuse(reason, about);
        return Outcome::Error(libc::EOPNOTSUPP);
    }
    process::count(Counter::ConnectsKernel, 1);
    shadow::leave(reason, about);
    Outcome::Kernel
}

/// Whether no process listens at the address, so that the kernel refuses the connection.
fn is_refused_anyway(reason: Reason, target: Option<SocketAddr>) -> bool {
    let is_free = |target| diag::listeners(target).is_ok_and(|found| found.is_empty());
    reason == Reason::NoHolder && target.is_some_and(is_free)
}

/// Whether connect returns before the connection stands: by O_NONBLOCK, or by SO_SNDTIMEO.
fn must_not_wait(socket: &Socket) -> bool {
    socket.has(sockets::NONBLOCK) || socket.send_timeout_ns.load(Ordering::Relaxed) == AT_ONCE_NS
}

/// connect(2) again, after EINPROGRESS.
fn result(fd: i32, entry: Entry, socket: &Socket) -> Outcome {
    if socket.is_opening() {
        return Outcome::Error(libc::EALREADY);
    }
    socket.set(sockets::CONNECTING, false);
    if !socket.has(sockets::REFUSED) {
        if let Some(error) = socket.take_error() {
            return Outcome::Error(error);
        }
        // A connection that stood, and has ended before the program has asked, is reported as one that failed.
        let ended = stream::of_socket(entry.index()).filter(Stream::is_over);
        let Some(ended) = ended else {
            return Outcome::Done(0);
        };
        let error = ended.take_reset().unwrap_or(libc::ECONNABORTED);
        unconnect(fd, entry);
        return Outcome::Error(error);
    }
    // The program may have asked for the error before. In both cases the socket can be connected again.
    let error = socket.take_error().unwrap_or(libc::ECONNABORTED);
    unconnect(fd, entry);
    Outcome::Error(error)
}

/// What a send with MSG_FASTOPEN fails with on a connection: for the kernel it is a connect(2), too, but one that is
/// under way it goes on with, and waits for if it may.
pub fn open_again(fd: i32, flags: i32) -> Option<i32> {
    let entry = table::get(fd);
    let socket = sockets::get(entry.index());
    if entry.kind() != Kind::Connected {
        return None;
    }
    if !socket.has(sockets::CONNECTING) && !socket.is_in_progress() {
        return Some(libc::EISCONN);
    }
    if socket.is_opening() {
        let may_wait = stream::find(fd).is_ok_and(|stream| !is_nonblocking(&stream, flags));
        return (!may_wait).then_some(libc::EALREADY);
    }
    match result(fd, entry, socket) {
        Outcome::Error(error) => Some(error),
        _ => None,
    }
}

/// Connects through shared memory or over packets; a reason: the kernel is to do it.
fn route(fd: i32, entry: Entry, socket: &Socket, target: SocketAddr) -> Result<Connected, Reason> {
    match decide(target, patience_ms(socket)) {
        Ok((peer, false)) => establish(fd, entry, &peer, target),
        Ok((peer, true)) => across::connect(fd, entry, &peer, target),
        Err(Reason::NotLocal) if packets::is_wanted() && uring::may_hide_sockets_soon() => {
            Err(Reason::IoUring)
        }
        Err(Reason::NotLocal) => over_packets::connect(fd, entry, socket, target),
        Err(reason) => Err(reason),
    }
}

/// The address, if it is one that shared memory could reach.
fn destination(fd: i32, socket: &Socket, bytes: &[u8]) -> Result<SocketAddr, Reason> {
    if !process::settings().tcp_client_loopback || process::is_switched_off() {
        return Err(Reason::SwitchedOff);
    }
    if is_confined() || peer::has_confined_holder() {
        return Err(Reason::Sandbox);
    }
    if namespace::has_left() {
        return Err(Reason::Namespace);
    }
    if socket.has(sockets::KERNEL_ONLY) {
        return Err(Reason::Option);
    }
    let target = address::from_bytes(bytes).ok_or(Reason::NotLocal)?;
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    if family != socket.family.load(Ordering::Relaxed) || target.port() == 0 {
        return Err(Reason::NotLocal);
    }
    if is_of_other_family(fd, socket, target) {
        return Err(Reason::Option);
    }
    // The kernel takes the wildcard as the loopback address.
    Ok(match target.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, target.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, target.port()).into(),
        _ => target,
    })
}

/// Whether an IPv6 socket cannot reach an IPv4 address, or the other way round: the kernel says how that fails.
fn is_of_other_family(fd: i32, socket: &Socket, target: SocketAddr) -> bool {
    if socket.family.load(Ordering::Relaxed) == libc::AF_INET {
        return false;
    }
    let is_v6_alone = || kernel::option_int(fd, libc::SOL_IPV6, libc::IPV6_V6ONLY) == Ok(1);
    let bound = socket.has(sockets::BOUND).then(|| sockets::kernel_name(fd));
    let bound = bound.flatten().filter(|bound| !bound.ip().is_unspecified());
    bound.is_some_and(|bound| bound.is_ipv4() != target.is_ipv4())
        || (target.is_ipv4() && is_v6_alone())
}

/// How long a holder may take to answer: a call that must not block goes to the kernel soon.
fn patience_ms(socket: &Socket) -> u64 {
    if must_not_wait(socket) {
        NONBLOCKING_ANSWER_MS
    } else {
        ANSWER_MS
    }
}

/// The segment for a connection to `target`, and whether its listener is another network namespace's.
fn decide(target: SocketAddr, patience_ms: u64) -> Result<(Arc<Peer>, bool), Reason> {
    let known = known(target).ok_or(Reason::Limit)?;
    let mut known = known.lock().map_err(|_| Reason::Limit)?;
    let now = now_ns();
    if known.is_fresh(now) {
        return known.pick(patience_ms);
    }
    let (asked, is_across) = match ask_kernel(target) {
        Err(Reason::NotLocal) => (across::holders(target), true),
        asked => (asked, false),
    };
    let holders = match asked {
        Ok(holders) => holders,
        Err(reason) => {
            *known = Target::negative(now, reason);
            return Err(reason);
        }
    };
    if known.holders == holders && known.is_whole() {
        known.checked_ns = now;
    } else {
        *known = Target {
            checked_ns: now,
            peers: vec![Met::NotYet; holders.len()],
            // Clients of few connections each must not all begin with the same worker.
            turn: process::number() as usize ^ known.turn,
            holders,
            is_across,
        };
    }
    let picked = known.pick(patience_ms);
    // Last, as it looks at each descriptor: most addresses are those of other hosts or of servers on the kernel.
    if picked.is_ok() && uring::may_hide_sockets() {
        *known = Target::negative(now, Reason::IoUring);
        return Err(Reason::IoUring);
    }
    picked
}

fn known(target: SocketAddr) -> Option<Arc<Mutex<Target>>> {
    let mut targets = targets().lock().ok()?;
    if targets.len() >= TARGETS_MAX && !targets.contains_key(&target) {
        targets.clear();
    }
    Some(targets.entry(target).or_default().clone())
}

impl Target {
    fn negative(now: u64, reason: Reason) -> Self {
        Self {
            checked_ns: now,
            holders: Vec::new(),
            peers: vec![Met::No(reason)],
            turn: 0,
            is_across: false,
        }
    }

    fn is_whole(&self) -> bool {
        let serves = |met: &Met| match met {
            Met::NotYet => true,
            Met::Yes(peer) => listens(peer),
            Met::No(_) => false,
        };
        !self.peers.is_empty() && self.peers.iter().all(serves)
    }

    fn is_fresh(&self, now: u64) -> bool {
        if self.peers.is_empty() {
            return false;
        }
        let is_silent =
            |met: &Met| matches!(met, Met::No(Reason::NoAnswer | Reason::NotRecognised));
        let is_of_another_host = |met: &Met| matches!(met, Met::No(Reason::NotLocal));
        let life_ns = if self.is_whole() || self.peers.iter().all(is_of_another_host) {
            POSITIVE_NS
        } else if self.peers.iter().any(is_silent) {
            SILENCE_NS
        } else {
            NEGATIVE_NS
        };
        let is_stale = |met: &Met| matches!(met, Met::Yes(peer) if !listens(peer));
        let has_stale = self.peers.iter().any(is_stale);
        now.saturating_sub(self.checked_ns) < life_ns && !has_stale
    }

    fn pick(&mut self, patience_ms: u64) -> Result<(Arc<Peer>, bool), Reason> {
        self.turn = self.turn.wrapping_add(1);
        if self.is_across {
            // One of them is meant; others do not take a share of its connections.
            let rest = (0..self.peers.len()).map(|more| self.turn.wrapping_add(more));
            let mut rest = rest.filter(|at| {
                let met = &self.peers[at % self.peers.len()];
                !matches!(met, Met::No(_))
            });
            self.turn = rest.next().unwrap_or(self.turn);
        }
        let at = self.turn % self.peers.len().max(1);
        let met = self.peers.get_mut(at).ok_or(Reason::NoHolder)?;
        if let (Met::NotYet, Some(holder)) = (&*met, self.holders.get(at)) {
            let made = meet(*holder, self.is_across, patience_ms);
            *met = made.map_or_else(Met::No, Met::Yes);
            if matches!(met, Met::No(_)) {
                self.checked_ns = now_ns();
            }
        }
        match met {
            Met::Yes(peer) => Ok((peer.clone(), self.is_across)),
            Met::No(reason) => Err(*reason),
            Met::NotYet => Err(Reason::NoHolder),
        }
    }
}

fn ask_kernel(target: SocketAddr) -> Result<Vec<Holder>, Reason> {
    if !is_local(target.ip())? {
        return Err(Reason::NotLocal);
    }
    let found = diag::listeners(target).map_err(|_| Reason::Sandbox)?;
    if found.iter().any(|one| one.is_bound_to_device) {
        return Err(Reason::BoundToDevice);
    }
    if !found.iter().all(|one| process::may_share_with(one.uid)) {
        return Err(Reason::OtherUser);
    }
    if found.is_empty() {
        return Err(Reason::NoHolder);
    }
    let holder = |one: &diag::Listener| Holder {
        inode: one.inode,
        uid: one.uid,
    };
    Ok(found.iter().map(holder).collect())
}

/// Whether the kernel delivers to this host what is sent to the address. That a socket can be bound to it says less: so it
/// can to those of broadcast and multicast, and with ip_nonlocal_bind to every one. It is asked first, as other hosts' then
/// need no netlink.
fn is_local(ip: IpAddr) -> Result<bool, Reason> {
    if !can_be_bound(ip) {
        return Ok(false);
    }
    match bypass_netlink::route::ask(ip, None) {
        Ok(route) => Ok(route.kind == RouteKind::Local),
        Err(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EINVAL | libc::EACCES) => Ok(false),
        Err(_) => Err(Reason::Sandbox),
    }
}

/// Whether the socket is bound to an address that is not this host's (IP_FREEBIND): the kernel says what comes of that.
fn is_bound_elsewhere(fd: i32, target: SocketAddr) -> bool {
    let bound = sockets::kernel_name(fd).map(|name| name.ip());
    let unknown =
        bound.filter(|ip| !ip.is_unspecified() && !ip.is_loopback() && *ip != target.ip());
    unknown.is_some_and(|ip| is_local(ip) != Ok(true))
}

fn can_be_bound(ip: IpAddr) -> bool {
    if ip.is_loopback() {
        return true;
    }
    let family = if ip.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let mut bytes = [0u8; 28];
    let length = address::to_bytes(SocketAddr::new(ip, 0), family, &mut bytes);
    let bind = || {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let probe = Owned(kernel::socket(family, kind, 0)? as i32);
        kernel::bind(probe.0, &bytes[..length])
    };
    numbers::low(bind).is_ok()
}

/// Whether somebody still accepts there, for all we know.
fn listens(peer: &Peer) -> bool {
    !peer.is_stale.load(Ordering::Relaxed) && !peer.segment.is_queue_closed()
}

/// A segment shared with the processes that hold a listening socket.
fn meet(holder: Holder, is_across: bool, patience_ms: u64) -> Result<Arc<Peer>, Reason> {
    // Not one that another address of the listener is still being greeted for: that may come to nothing.
    let is_met = |peer: &Peer| peer.has_been_welcomed() && listens(peer);
    let known = peer::all()
        .into_iter()
        .find(|peer| peer.side == 0 && peer.inode == holder.inode && is_met(peer));
    if let Some(peer) = known {
        return Ok(peer);
    }
    let rendezvous =
        link::connect(&Name::of_listener(holder.inode)).map_err(|error| match error {
            libc::ECONNREFUSED => Reason::NoHolder,
            libc::EAGAIN => Reason::NoAnswer,
            _ => Reason::Sandbox,
        })?;
    service::start().map_err(|_| Reason::Sandbox)?;
    let slots = process::settings()
        .max_endpoints
        .next_power_of_two()
        .clamp(1024, SLOTS_MAX);
    let number = process::number();
    let segment =
        Segment::create(number, slots, process::ring_bytes()).map_err(|_| Reason::Limit)?;
    let peer = Peer::join(segment, 0, holder.inode).ok_or(Reason::Limit)?;
    match greet(rendezvous, &peer, (holder, is_across), patience_ms) {
        Ok(link) => {
            service::add_link(link, service::Role::Greeting(peer.clone()));
            Ok(peer)
        }
        Err(reason) => {
            withdraw_greeting(&peer);
            Err(reason)
        }
    }
}

/// The holder has not answered in time. It may still take the segment, and would look for us there without an
/// end: we answer to its number, and do not know its segment.
fn withdraw_greeting(peer: &Arc<Peer>) {
    peer.is_stale.store(true, Ordering::SeqCst);
    peer.give_place_up();
    peer::forget(peer);
    service::remove_participants(peer);
}

/// The link over which a holder has answered: not `rendezvous` where the one that has taken that call has ended before.
fn greet(
    rendezvous: Owned,
    peer: &Peer,
    (holder, is_across): (Holder, bool),
    patience_ms: u64,
) -> Result<Owned, Reason> {
    let hello = Message::Greet {
        version: VERSION,
        client: process::number(),
    };
    let first = Cell::new(Some(rendezvous));
    let call = || {
        let link = match first.take() {
            Some(link) => link,
            None => link::connect(&Name::of_listener(holder.inode))?,
        };
        // Before it gets the segment.
        match !is_across || across::is_of(link.0, holder.uid) {
            true => Ok(link),
            false => Err(libc::EPERM),
        }
    };
    let answer = link::ask_any(call, hello, &[peer.segment.fd()], patience_ms);
    let (link, answer, fds) = answer.map_err(|error| match error {
        libc::EPERM => Reason::NameSquatted,
        _ => Reason::NoAnswer,
    })?;
    match (answer, fds.first()) {
        (Message::Welcome, Some(proof))
            if listener::names(proof.0, holder.inode, link.0)
                && (!is_across || across::is_made_by(proof.0, holder.uid)) => {}
        // Another user's listener shows no socket; that its rendezvous socket is that user's must do.
        (Message::Welcome, None) => match kernel::peer_credentials(link.0) {
            Ok(owner) if owner.uid == holder.uid && !process::is_own(owner.uid) => {}
            _ => return Err(Reason::NameSquatted),
        },
        (Message::Refuse { reason }, _) if reason == Reason::Version as u64 => {
            return Err(Reason::Version);
        }
        (Message::Refuse { .. }, _) => return Err(Reason::OtherUser),
        _ => return Err(Reason::NameSquatted),
    }
    peer.welcome();
    Ok(link)
}

fn establish(
    fd: i32,
    entry: Entry,
    peer: &Arc<Peer>,
    target: SocketAddr,
) -> Result<Connected, Reason> {
    let index = entry.index();
    let socket = sockets::get(index);
    if socket.has(sockets::BOUND) && is_bound_elsewhere(fd, target) {
        return Err(Reason::BoundAddress);
    }
    if peer.stays_short_of_places(patience_ms(socket)) {
        return Err(Reason::Limit);
    }
    let admission = admit(peer, patience_ms(socket))?;
    let making = peer::making();
    let slot = peer.take_slot().ok_or(Reason::Limit)?;
    peer.segment.reset(slot);
    let local = local_address(fd, socket, target, || peer.new_port(slot));
    peer.prepare(slot, local, target);
    socket.local.store(local);
    socket.remote.store(target);
    if !socket.change(Event::Connect) {
        // Another thread was faster.
        withdraw(peer, slot);
        return Ok(Connected::Failed(libc::EISCONN));
    }
    attach(fd, index, peer, slot);
    let connected = table::get(fd);
    let has_duplicates = socket.has(sockets::DUPLICATED);
    if has_duplicates {
        table::replace_all(entry, connected);
    }
    let offered = match listens(peer) {
        true => peer.offer_within(slot, &admission),
        false => Err(Reason::BacklogFull),
    };
    if let Err(reason) = offered {
        table::set(fd, entry);
        if has_duplicates {
            table::replace_all(connected, entry);
        }
        peer.set_socket(slot, None);
        drop(socket.peer.take());
        socket.change(Event::Dissolve);
        sockets::leave_row(index);
        withdraw(peer, slot);
        return Err(reason);
    }
    drop(making);
    show_opened(index);
    peer::ring_listeners(&peer.segment);
    process::count(Counter::ConnectsShm, 1);
    epoll::connected(index);
    Ok(Connected::Done)
}

/// Whether somebody will accept, as far as is published. A process that listens itself, alone, is believed before it
/// has accepted: it cannot while it connects.
fn admit(peer: &Peer, patience_ms: u64) -> Result<Admission, Reason> {
    if peer.is_accepted_by_none() {
        if let Some(credits) = listener::credits_of_ours_alone(peer.inode) {
            return Ok(Admission::ours(credits));
        }
    }
    peer.admit(patience_ms)
}

/// Gives back a slot that was not offered, or whose offer was taken back.
fn withdraw(peer: &Arc<Peer>, slot: usize) {
    let holders = &peer.segment.slot(slot).meta.holders[0];
    holders.store(0, Ordering::SeqCst);
    peer.return_slot(slot);
}

fn local_address(
    fd: i32,
    socket: &Socket,
    target: SocketAddr,
    port: impl FnOnce() -> u16,
) -> SocketAddr {
    let bound = socket.has(sockets::BOUND).then(|| sockets::kernel_name(fd));
    let (ip, own_port) = match bound.flatten() {
        Some(bound) => (bound.ip(), bound.port()),
        None => (Ipv4Addr::UNSPECIFIED.into(), 0),
    };
    let ip = if ip.is_unspecified() {
        source(target.ip())
    } else {
        ip
    };
    // Bound to an address alone (IP_BIND_ADDRESS_NO_PORT), the port is chosen by connect.
    SocketAddr::new(ip, if own_port == 0 { port() } else { own_port })
}

/// The address that the kernel would send from.
fn source(target: IpAddr) -> IpAddr {
    match target {
        IpAddr::V4(ip) if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        other => other,
    }
}
