//! Listening sockets: connections come from segments and from the kernel alike.
//!
//! The shadow is the real kernel listener, so the port is truly taken and everybody else is served
//! as before. Beside it stands a door with the socket's inode in its name, where accelerated
//! clients leave their segments. All processes that hold the socket (nginx's workers) take part:
//! the hub, a page that they share, lists them, and a segment left at one is passed to all.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bypass_shm::accept_queue;
use bypass_shm::diag;
use bypass_shm::layout::RST;
use bypass_shm::link::{self, Message, Owned};
use bypass_shm::memory::Mapping;
use bypass_shm::segment::Segment;
use bypass_shm::stats::{Counter, Reason};
use bypass_shm::sys as kernel;
use bypass_shm::waker::Name;

use crate::deferral::asleep;
use crate::peer::Peer;
use crate::sockets::{self, Socket};
use crate::sys::Held;
use crate::table::{self, Entry, Kind};
use crate::wait::{self, Borrowed, Deadline};
use crate::{options, pool, process, service, Outcome};

/// Processes that hold one listener.
const HOLDERS_MAX: usize = 256;
/// The kernel's own queue is looked at before ours once in so many accepts.
const KERNEL_TURN: u32 = 16;

#[repr(C)]
struct Hub {
    holders: [AtomicU64; HOLDERS_MAX],
    /// The user of each: when it is gone, anybody could take the name of its door.
    users: [AtomicU32; HOLDERS_MAX],
}

/// Smallest hub.
pub const HUB_BYTES: usize = size_of::<Hub>();

/// See the module.
#[derive(Debug)]
pub struct Listener {
    /// Of the listening socket.
    pub inode: u64,
    /// A descriptor of it in this process.
    pub fd: AtomicI32,
    /// Where clients knock.
    pub door: i32,
    /// Owner of the socket, whose clients are served.
    pub uid: u32,
    /// Given to listen().
    pub backlog: AtomicU32,
    hub: Mapping,
    peers: Mutex<Vec<Arc<Peer>>>,
    generation: AtomicU32,
    turn: AtomicU32,
    /// Wakers of threads that are blocked in accept or poll.
    blocked: Mutex<Vec<u32>>,
}

static LISTENERS: Mutex<Vec<Option<Arc<Listener>>>> = Mutex::new(Vec::new());

/// Listener `number`.
pub fn get(number: usize) -> Option<Arc<Listener>> {
    LISTENERS.lock().ok()?.get(number)?.clone()
}

/// The listener of a socket object.
pub fn of(socket: &Socket) -> Option<Arc<Listener>> {
    get(socket.listener.load(Ordering::Relaxed) as usize)
}

/// All of this process.
pub fn all() -> Vec<Arc<Listener>> {
    LISTENERS
        .lock()
        .map(|all| all.iter().flatten().cloned().collect())
        .unwrap_or_default()
}

/// Locks the list and what each listener locks across a fork.
pub fn hold() -> impl Sized {
    let all = LISTENERS.lock().ok();
    let each: Vec<_> = all
        .iter()
        .flat_map(|all| all.iter().flatten())
        .map(|listener| {
            let peers = Held::lock(listener.clone(), |listener| &listener.peers);
            (peers, Held::lock(listener.clone(), |one| &one.blocked))
        })
        .collect();
    (each, all, CLOSED.lock().ok())
}

/// listen(2).
pub fn listen(fd: i32, backlog: i32) -> Outcome {
    let entry = table::get(fd);
    let index = entry.index();
    let backlog = backlog.max(process::settings().acceptq_min_backlog as i32);
    match entry.kind() {
        Kind::Unbound => {}
        Kind::Listener => {
            if let Some(listener) = of(sockets::get(index)) {
                listener
                    .backlog
                    .store(backlog.max(0) as u32, Ordering::Relaxed);
            }
            return kernel::listen(fd, backlog).into();
        }
        Kind::Connected => return Outcome::Error(libc::EINVAL),
        _ => return Outcome::Kernel,
    }
    if let Err(error) = kernel::listen(fd, backlog) {
        return Outcome::Error(error);
    }
    let socket = sockets::get(index);
    options::apply(fd, socket);
    socket.set(sockets::BOUND, true);
    match open(fd, socket, backlog.max(0) as u32) {
        Ok(number) => {
            socket.listener.store(number as u32, Ordering::Relaxed);
            table::set(fd, Entry::new(Kind::Listener, index, socket.life()));
            describe(fd, index, socket);
            crate::epoll::add_to_kernel(index);
        }
        Err(reason) => options::leave_to_kernel(fd, reason),
    }
    Outcome::Done(0)
}

fn describe(fd: i32, index: usize, socket: &Socket) {
    if let Some(local) = options::kernel_name(fd) {
        socket.local.store(local);
    }
    if let Some(row) = process::stats().and_then(|stats| stats.row(index)) {
        row.local.store(socket.local.load());
        for (word, value) in [(&row.role, 3), (&row.path, 1), (&row.state, 1)] {
            word.store(value, Ordering::Relaxed);
        }
        row.fd.store(fd as u32 + 1, Ordering::Release);
    }
}

fn open(fd: i32, socket: &Socket, backlog: u32) -> Result<usize, Reason> {
    if !process::settings().tcp_server_loopback {
        return Err(Reason::SwitchedOff);
    }
    if socket.has(sockets::KERNEL_ONLY) {
        return Err(Reason::Option);
    }
    if service::uses_io_uring() {
        return Err(Reason::IoUring);
    }
    let stat = kernel::fstat(fd).map_err(|_| Reason::Sandbox)?;
    let door = link::open_door(&Name::of_listener(stat.st_ino)).map_err(|error| match error {
        libc::EADDRINUSE => Reason::NameSquatted,
        _ => Reason::Sandbox,
    })?;
    let hub = Mapping::create(c"wirespeed-hub", size_of::<Hub>()).map_err(|_| Reason::Limit)?;
    enter(fd, stat.st_ino, stat.st_uid, backlog, door, hub)
}

/// Takes part in a listener whose door and hub are known.
pub fn enter(
    fd: i32,
    inode: u64,
    uid: u32,
    backlog: u32,
    door: Owned,
    hub: Mapping,
) -> Result<usize, Reason> {
    process::number();
    table::hide(door.0);
    table::hide(hub.fd());
    let listener = Arc::new(Listener {
        inode,
        fd: AtomicI32::new(fd),
        door: door.into_raw(),
        uid,
        backlog: AtomicU32::new(backlog),
        hub,
        peers: Mutex::default(),
        generation: AtomicU32::new(1),
        turn: AtomicU32::new(0),
        blocked: Mutex::default(),
    });
    listener.register();
    let mut all = LISTENERS.lock().map_err(|_| Reason::Limit)?;
    let number = all.iter().position(Option::is_none).unwrap_or(all.len());
    if number == all.len() {
        all.push(None);
    }
    all[number] = Some(listener.clone());
    drop(all);
    service::start().map_err(|_| Reason::Sandbox)?;
    service::add(listener.door, service::Role::Door(number));
    Ok(number)
}

impl Listener {
    fn hub(&self) -> &Hub {
        crate::sys::shared(&self.hub)
    }

    /// The hub's descriptor, for a process that joins.
    pub fn hub_fd(&self) -> i32 {
        self.hub.fd()
    }

    /// Enters this process among the holders.
    pub fn register(&self) {
        let number = process::number();
        let user = kernel::geteuid().unwrap_or(0) as u32;
        let hub = self.hub();
        for (place, of) in hub.holders.iter().zip(&hub.users) {
            let taken = place.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
            if taken.is_ok() || taken == Err(number) {
                of.store(user, Ordering::SeqCst);
                return;
            }
        }
    }

    /// A link to holder `number`, if it is that holder who answers there.
    pub fn knock(&self, number: u64) -> Result<Owned, i32> {
        let link = link::knock(&Name::of_process(number))?;
        let found = kernel::peer_credentials(link.0)?.uid;
        let hub = self.hub();
        let is_holder = hub.holders.iter().zip(&hub.users).any(|(place, user)| {
            let user = user.load(Ordering::SeqCst);
            place.load(Ordering::SeqCst) == number && user == found
        });
        // A door that was opened before its process changed its user is the former user's.
        if is_holder || found == 0 || found == self.uid {
            Ok(link)
        } else {
            Err(libc::EPERM)
        }
    }

    fn unregister(&self) {
        let number = process::number();
        for place in &self.hub().holders {
            let _ = place.compare_exchange(number, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// The other processes that hold it.
    pub fn others(&self) -> Vec<u64> {
        let own = process::number();
        let all = self
            .hub()
            .holders
            .iter()
            .map(|place| place.load(Ordering::SeqCst));
        all.filter(|number| *number != 0 && *number != own)
            .collect()
    }

    /// Strikes a holder that does not answer its door.
    fn strike(&self, number: u64) {
        for place in &self.hub().holders {
            let _ = place.compare_exchange(number, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Says something to every other holder, with a descriptor.
    pub fn tell_others(&self, message: Message, fds: &[i32]) {
        for number in self.others() {
            match self.knock(number) {
                Ok(link) => drop(link::send(link.0, message, fds)),
                Err(libc::ECONNREFUSED) => self.strike(number),
                Err(_) => {}
            }
        }
    }

    /// Takes a client's segment; tells the client who we are and wakes whoever accepts here.
    pub fn adopt(&self, segment: Segment) -> Option<Arc<Peer>> {
        let mut peers = self.peers.lock().ok()?;
        if peers.iter().any(|peer| peer.segment.id() == segment.id()) {
            return None;
        }
        let peer = Peer::join(segment, 1, self.inode)?;
        peers.push(peer.clone());
        drop(peers);
        service::say_adopted(&peer, peer.process_index());
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.wake_waiters();
        Some(peer)
    }

    /// A client has ended: what it left in its queue goes with it.
    pub fn forget(&self, peer: &Arc<Peer>) {
        if let Ok(mut peers) = self.peers.lock() {
            peers.retain(|one| !Arc::ptr_eq(one, peer));
        }
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts changes of the list of segments.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::SeqCst)
    }

    /// The segments that connections may come from.
    pub fn peers(&self) -> Vec<Arc<Peer>> {
        self.peers
            .lock()
            .map(|peers| peers.clone())
            .unwrap_or_default()
    }

    /// Wakes threads and sets that wait here, because there is another segment to look at.
    pub fn wake_waiters(&self) {
        for number in self
            .blocked
            .lock()
            .map(|list| list.clone())
            .unwrap_or_default()
        {
            process::wake(process::number(), number);
        }
        crate::epoll::kick_listening();
    }

    /// Whether a connection waits in a segment.
    pub fn has_waiting(&self) -> bool {
        let Ok(peers) = self.peers.lock() else {
            return false;
        };
        peers.iter().any(|peer| peer.segment.queue().waiting() > 0)
    }

    /// Counts a client that forges its queue and would keep us looking for ever; false: it goes.
    #[cold]
    fn drop_forger(&self) -> bool {
        process::fall_back(Reason::PeerProtocol);
        self.generation.fetch_add(1, Ordering::SeqCst);
        false
    }

    fn take(&self) -> Option<(Arc<Peer>, usize)> {
        let mut peers = self.peers.lock().ok()?;
        let mut found = None;
        peers.retain(|peer| {
            if found.is_some() {
                return true;
            }
            let taken = accept_queue::take(&peer.segment, peer.process_index());
            found = taken.ok().flatten().map(|slot| (peer.clone(), slot));
            taken.is_ok() || self.drop_forger()
        });
        let found = found?;
        let is_over = |peer: &Peer| {
            peer.is_stale.load(Ordering::Relaxed) && peer.segment.queue().waiting() == 0
        };
        if peers.iter().any(|peer| is_over(peer)) {
            peers.retain(|peer| !is_over(peer));
            self.generation.fetch_add(1, Ordering::SeqCst);
        }
        Some(found)
    }
}

/// accept4(2), without the address: the new descriptor's own name calls know it.
pub fn accept(fd: i32, flags: i32) -> Outcome {
    let entry = table::get(fd);
    match entry.kind() {
        Kind::Listener => {}
        Kind::Unbound | Kind::Connected => return Outcome::Error(libc::EINVAL),
        Kind::Pooled | Kind::Internal => return Outcome::Error(libc::EBADF),
        _ => return Outcome::Kernel,
    }
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Outcome::Error(libc::EINVAL);
    }
    let socket = sockets::get(entry.index());
    let Some(listener) = of(socket) else {
        return Outcome::Error(libc::EBADF);
    };
    let timeout_ns = socket.receive_timeout_ns.load(Ordering::Relaxed);
    let deadline = crate::stream::timeout(timeout_ns);
    loop {
        match attempt(&listener, fd, socket, flags) {
            Outcome::Error(libc::EAGAIN) if !is_nonblocking(fd, socket) => {}
            other => return other,
        }
        if table::get(fd) != entry {
            return Outcome::Error(libc::EINVAL);
        }
        if let Err(error) = block(&listener, fd, deadline) {
            return Outcome::Error(error);
        }
    }
}

/// Asked only where accept would block. The file's flag is the kernel's once others hold it too.
fn is_nonblocking(fd: i32, socket: &Socket) -> bool {
    if socket.has(sockets::SHARED) {
        let flags = kernel::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) as i32;
        return flags & libc::O_NONBLOCK != 0;
    }
    socket.has(sockets::NONBLOCK)
}

fn attempt(listener: &Listener, fd: i32, socket: &Socket, flags: i32) -> Outcome {
    let turn = listener.turn.fetch_add(1, Ordering::Relaxed);
    if turn % KERNEL_TURN == KERNEL_TURN - 1 {
        if let done @ Outcome::Done(_) = accept_kernel(fd, socket, flags) {
            return done;
        }
    }
    if listener.has_waiting() {
        match accept_shm(listener, socket, flags) {
            Ok(Some(new)) => return Outcome::Done(new as isize),
            Ok(None) => {}
            Err(error) => return Outcome::Error(error),
        }
    }
    accept_kernel(fd, socket, flags)
}

fn accept_kernel(fd: i32, socket: &Socket, flags: i32) -> Outcome {
    if !socket.has(sockets::NONBLOCK) {
        // The shadow may block and must not: others, who know nothing of us, may hold it too.
        let mut one = [libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        }];
        if kernel::poll(&mut one, Some(core::time::Duration::ZERO), None) == Ok(0) {
            return Outcome::Error(libc::EAGAIN);
        }
    }
    let accepted = kernel::accept(fd, flags);
    if let Ok(new) = accepted {
        table::set(new, Entry::KERNEL);
        process::count(Counter::AcceptsKernel, 1);
    }
    accepted.map(|new| new as usize).into()
}

fn accept_shm(listener: &Listener, from: &Socket, flags: i32) -> Result<Option<i32>, i32> {
    let family = from.family.load(Ordering::Relaxed);
    let fd = pool::take(family)?;
    let inherited = sockets::NODELAY | sockets::KEEPALIVE | sockets::LINGER;
    let mut own = from.flags.load(Ordering::Relaxed) & inherited;
    own |= if flags & libc::SOCK_NONBLOCK != 0 {
        sockets::NONBLOCK
    } else {
        0
    };
    own |= if flags & libc::SOCK_CLOEXEC != 0 {
        sockets::CLOEXEC
    } else {
        0
    };
    let room = (fd as usize) < table::NUMBERS_MAX;
    let Some(index) = room.then(|| sockets::allocate(family, own)).flatten() else {
        pool::give(fd, family, sockets::DIRTY);
        return Err(libc::ENFILE);
    };
    let Some((peer, slot)) = listener.take() else {
        sockets::get(index).descriptors.store(0, Ordering::Release);
        sockets::free(index);
        table::set(fd, Entry::new(Kind::Pooled, 0, 0));
        pool::give(fd, family, 0);
        return Ok(None);
    };
    let socket = sockets::get(index);
    socket
        .linger_s
        .store(from.linger_s.load(Ordering::Relaxed), Ordering::Relaxed);
    let names = &peer.segment.slot(slot).names;
    socket.local.store(names.of[1].load());
    socket.remote.store(names.of[0].load());
    attach(fd, index, &peer, slot);
    if peer.is_stale.load(Ordering::SeqCst) {
        peer.bury_in(slot);
    }
    process::count(Counter::AcceptsShm, 1);
    Ok(Some(fd))
}

/// Makes `fd` a connection: socket object `index` lives in `slot` from now on.
pub fn attach(fd: i32, index: usize, peer: &Arc<Peer>, slot: usize) {
    let socket = sockets::get(index);
    socket.side.store(peer.side as u32, Ordering::Relaxed);
    socket.slot.store(slot as u32, Ordering::Relaxed);
    socket.peer.put(peer.clone());
    peer.set_socket(slot, Some(index));
    if let Some(row) = process::stats().and_then(|stats| stats.row(index)) {
        row.local.store(socket.local.load());
        row.peer.store(socket.remote.load());
        let role = peer.side as u32 + 1;
        for (word, value) in [(&row.role, role), (&row.path, 1), (&row.state, 1)] {
            word.store(value, Ordering::Relaxed);
        }
        row.bytes_in.store(0, Ordering::Relaxed);
        row.bytes_out.store(0, Ordering::Relaxed);
        row.fd.store(fd as u32 + 1, Ordering::Release);
    }
    table::set(fd, Entry::new(Kind::Connected, index, socket.life()));
}

/// [`attach`] for a connection that another process had before: its names are in the slot.
pub fn revive(fd: i32, index: usize, peer: &Arc<Peer>, slot: usize) {
    let slot = peer.segment.clamp(slot);
    let names = &peer.segment.slot(slot).names;
    let socket = sockets::get(index);
    socket.local.store(names.of[peer.side].load());
    socket.remote.store(names.of[1 - peer.side].load());
    attach(fd, index, peer, slot);
}

/// Waking places of one thread at all segments of a listener.
pub struct Lanes(Vec<(Arc<Peer>, usize)>);

impl Lanes {
    /// Takes a lane in each segment; false beside it when one had none left.
    pub fn take(listener: &Listener, waker: u32) -> (Self, bool) {
        let mut lanes = Vec::new();
        let mut is_complete = true;
        for peer in listener.peers() {
            match peer.segment.claim_lane(1, process::number(), waker) {
                Some(index) => {
                    let lane = peer.segment.lane(1, index);
                    lane.listening.store(1, Ordering::SeqCst);
                    lane.sleep();
                    lanes.push((peer, index));
                }
                None => is_complete = false,
            }
        }
        (Self(lanes), is_complete)
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for (peer, index) in &self.0 {
            peer.segment.lane(1, *index).free();
        }
    }
}

/// Registers a blocked thread for as long as it lives.
pub struct Blocked<'a>(&'a Listener, u32);

impl<'a> Blocked<'a> {
    /// From now on the thread is told of new segments.
    pub fn register(listener: &'a Listener, waker: u32) -> Self {
        if let Ok(mut blocked) = listener.blocked.lock() {
            blocked.push(waker);
        }
        Self(listener, waker)
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        if let Ok(mut blocked) = self.0.blocked.lock() {
            blocked.retain(|waker| *waker != self.1);
        }
    }
}

fn block(listener: &Listener, fd: i32, deadline: Deadline) -> Result<(), i32> {
    service::ensure();
    let before = wait::interrupts();
    let settings = process::settings();
    let spin_ns = if settings.tcp_accept_spin {
        settings.spin_usec * 1000
    } else {
        0
    };
    if wait::spin(spin_ns, deadline, || listener.has_waiting()) {
        return Ok(());
    }
    if deadline.left() == Some(core::time::Duration::ZERO) {
        return Err(libc::EAGAIN);
    }
    let waker = Borrowed::take()?;
    let _blocked = Blocked::register(listener, waker.number());
    let (_lanes, is_complete) = Lanes::take(listener, waker.number());
    if listener.has_waiting() {
        return Ok(());
    }
    let bound = (!is_complete).then_some(core::time::Duration::from_millis(1));
    let entry = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    process::count(Counter::Sleeps, 1);
    let mut fds = [entry(fd), entry(waker.fd())];
    match asleep(|| kernel::poll(&mut fds, wait::shorter(deadline.left(), bound), None)) {
        // The handler wants the call to go on.
        Err(libc::EINTR) if wait::interrupts() == before => Ok(()),
        other => other.map(|_| ()),
    }
}

/// The last descriptor of a listener of this process is closed. A program may do this in the middle
/// of its work (nginx before it closes its idle connections, each of which may get a request
/// meanwhile), so whatever takes longer is left to the service.
pub fn close(number: usize) {
    let taken = LISTENERS
        .lock()
        .ok()
        .and_then(|mut all| all.get_mut(number)?.take());
    let Some(listener) = taken else { return };
    listener.unregister();
    if listener.others().is_empty() {
        // Clients must not wait for the service to tell them: a connect after this close is refused.
        let peers = listener.peers();
        peers.iter().for_each(|peer| peer.segment.close_queue());
    }
    service::close_door(listener.door, listener.inode);
    table::show(listener.hub.fd());
    if !listener.has_waiting() {
        return;
    }
    let address = options::kernel_name(listener.fd.load(Ordering::Relaxed));
    if let (Some(address), Ok(mut closed)) = (address, CLOSED.lock()) {
        closed.push((address, listener));
    }
}

/// Listeners that this process has closed while connections waited, with their addresses.
static CLOSED: Mutex<Vec<(SocketAddr, Arc<Listener>)>> = Mutex::new(Vec::new());

/// After the kernel's close: what waited is settled soon.
pub fn settle_waiting() {
    let has_closed = CLOSED.lock().is_ok_and(|closed| !closed.is_empty());
    if has_closed && !service::wake() {
        settle();
    }
}

/// Connections that waited at closed listeners go to the others that hold them; where nobody
/// listens any more, they are reset.
pub fn settle() {
    let closed = CLOSED
        .lock()
        .map(|mut closed| std::mem::take(&mut *closed))
        .unwrap_or_default();
    for (address, listener) in closed {
        let inode = listener.inode;
        for peer in listener.peers() {
            if peer.segment.queue().waiting() > 0 {
                listener.tell_others(Message::Forward { inode }, &[peer.segment.fd()]);
            }
        }
        let found = diag::listening(address.port()).unwrap_or_default();
        if found.iter().any(|one| one.inode == inode) {
            continue;
        }
        while let Some((peer, slot)) = listener.take() {
            peer.let_go(slot, RST);
        }
    }
}

/// shutdown(2) of a listener ends it; what is left of the descriptor is the kernel's.
pub fn shutdown(fd: i32, how: i32) -> Outcome {
    let entry = table::get(fd);
    if let Err(error) = kernel::shutdown(fd, how) {
        return Outcome::Error(error);
    }
    if how != libc::SHUT_WR && table::replace(fd, entry, Entry::KERNEL) {
        crate::descriptors::end_listener(entry);
        settle_waiting();
    }
    Outcome::Done(0)
}
