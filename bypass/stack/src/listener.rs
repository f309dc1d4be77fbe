//! Listening sockets: connections come from segments and from the kernel alike.
//!
//! The shadow is the real kernel listener, so the port is truly taken and everybody else is served
//! as before. Beside it stands a door with the socket's inode in its name, where accelerated
//! clients leave their segments. All processes that hold the socket (nginx's workers) take part:
//! the hub, a page that they share, lists them, and a segment left at one is passed to all.

use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bypass_shm::accept_queue;
use bypass_shm::link;
use bypass_shm::segment::Segment;
use bypass_stats::Reason;
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_sys::memory::Mapping;
use bypass_sys::waker::Name;

use crate::peer::Peer;
use crate::sockets::{self, Socket};
use crate::table::{self, Entry, Kind};
use crate::{options, packets, process, service, uring, Outcome};
use bypass_sys::process::Held;

mod accepting;
mod blocking;
mod closing;
mod holders;

pub use accepting::{accept, attach, revive, Client};
pub use blocking::{Blocked, Lanes};
pub use closing::{close, closed_number, settle, settle_waiting, shutdown};
pub use holders::HUB_BYTES;

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
    (each, all, closing::hold())
}

/// listen(2).
pub fn listen(fd: i32, backlog: i32) -> Outcome {
    let entry = table::get(fd);
    let index = entry.index();
    // A negative one is a very large one, as in the kernel.
    let backlog = if backlog < 0 { i32::MAX } else { backlog };
    let backlog = backlog.max(process::settings().acceptq_min_backlog as i32);
    match entry.kind() {
        Kind::Unbound => {}
        Kind::Listener => {
            let result = kernel::listen(fd, backlog);
            if let Some(listener) = of(sockets::get(index)).filter(|_| result.is_ok()) {
                listener
                    .backlog
                    .store(effective_backlog(fd, backlog), Ordering::Relaxed);
            }
            return result.into();
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
    match open(fd, socket, effective_backlog(fd, backlog)) {
        Ok(number) => {
            socket.listener.store(number as u32, Ordering::Relaxed);
            let listening = Entry::new(Kind::Listener, index, socket.life());
            table::set(fd, listening);
            if socket.has(sockets::DUPLICATED) {
                table::replace_all(entry, listening);
            }
            describe(fd, index, socket);
            crate::epoll::add_to_kernel(index);
            packets::listeners_changed();
        }
        Err(reason) => options::leave_to_kernel(fd, reason),
    }
    Outcome::Done(0)
}

/// The backlog as the kernel has bounded it (net.core.somaxconn).
fn effective_backlog(fd: i32, asked: i32) -> u32 {
    const OF_LISTENER: usize = 28;
    let mut info = [0u8; 32];
    let told = kernel::option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info);
    let bytes = info[OF_LISTENER..].try_into().unwrap_or_default();
    match told {
        Ok(length) if length >= OF_LISTENER + 4 => u32::from_ne_bytes(bytes),
        _ => asked as u32,
    }
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
    if uring::may_hide_sockets() {
        return Err(Reason::IoUring);
    }
    let stat = kernel::fstat(fd).map_err(|_| Reason::Sandbox)?;
    let door = link::open_door(&Name::of_listener(stat.st_ino)).map_err(|error| match error {
        libc::EADDRINUSE => Reason::NameSquatted,
        _ => Reason::Sandbox,
    })?;
    let hub = Mapping::create(c"wirespeed-hub", HUB_BYTES).map_err(|_| Reason::Limit)?;
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

    /// As [`adopt`](Self::adopt), of a segment with connections from other hosts; the other holders
    /// take part too.
    pub fn adopt_from_relay(&self, segment: Segment) -> Option<Arc<Peer>> {
        let peer = self.adopt(segment)?;
        let (inode, fds) = (self.inode, [peer.segment.fd(), self.any_fd()]);
        self.tell_others(link::Message::Forward { inode }, &fds);
        Some(peer)
    }

    /// A client has ended: what it left in its queue goes with it.
    pub fn forget(&self, peer: &Arc<Peer>) {
        if let Ok(mut peers) = self.peers.lock() {
            peers.retain(|one| !Arc::ptr_eq(one, peer));
        }
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// A descriptor of the listening socket, which proves to others that we hold it.
    pub fn any_fd(&self) -> i32 {
        self.fd.load(Ordering::Relaxed)
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

    /// A number that is another one after each connection that has come. The clients are in it too: one
    /// that has gone takes its count along, and the next may have come as far.
    pub fn arrivals(&self) -> u64 {
        let peers = self.peers.lock();
        let mark = |peer: &Arc<Peer>| {
            let tail = peer.segment.queue().tail.0.load(Ordering::SeqCst);
            peer.segment.id().wrapping_add(tail)
        };
        peers.map_or(0, |peers| peers.iter().map(mark).fold(0, u64::wrapping_add))
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
