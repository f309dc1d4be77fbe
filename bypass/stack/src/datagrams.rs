//! UDP sockets: the datagrams that have arrived for each over packets, and the threads that wait for them.
//!
//! The kernel socket remains and handles bind, connect and options. The kernel also sends datagrams that leave through
//! interfaces not accelerated, and receives everything else: fragments, multicast, errors, datagrams from other
//! interfaces. So a thread that receives or waits checks both places.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard};

use bypass_sys::clock::now_ns;
use bypass_sys::kernel;

use crate::process::table::{self, Entry, Kind};
use crate::process::{self, wakers};

mod places;
mod queue;

pub use places::{at_port, deliver, enter, ports, withdraw, Place};
pub use queue::{Received, Taken};

use queue::Queue;

/// Accelerated UDP sockets per process; further sockets are handled by the kernel alone.
const SOCKETS_MAX: usize = 16_384;
/// A socket that is used fewer times is not worth the questions that its claim takes: a resolver's for one answer, say.
const USES_MIN: u32 = 8;
/// Datagrams diverted from the kernel have reached an engine after this time.
const LATE_NS: u64 = 1_000_000_000;
/// One receive in so many asks the kernel first, so that what comes there has its turn.
const KERNELS_TURN: u32 = 16;

/// One socket, under all its descriptors.
pub struct Socket {
    descriptors: AtomicU32,
    life: AtomicU32,
    /// Datagrams that wait here.
    waiting: AtomicU32,
    /// Number of datagrams that have arrived.
    arrivals: AtomicU32,
    receives: AtomicU32,
    /// How often it was used before it was claimed.
    uses: AtomicU32,
    /// See [`Patience::word`].
    patience: AtomicU64,
    /// Its names or options may have changed since they were looked at.
    is_stale: AtomicBool,
    /// When the kernel took over the socket, except for datagrams that wait here; 0: it has not.
    left_ns: AtomicU64,
    /// The kernel may have what came before the port was claimed.
    has_older: AtomicBool,
    /// Members of epoll sets that are this socket.
    pub watches: AtomicU32,
    inner: Mutex<Inner>,
}

/// How long a receive waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Not at all: O_NONBLOCK.
    None,
    /// So many nanoseconds, by SO_RCVTIMEO; 0: for ever.
    For(u64),
}

const PATIENCE_UNKNOWN: u64 = 0;

impl Patience {
    fn word(self) -> u64 {
        match self {
            Self::None => 1,
            Self::For(ns) => ns.saturating_add(2),
        }
    }

    fn of(word: u64) -> Self {
        match word {
            1 => Self::None,
            word => Self::For(word.saturating_sub(2)),
        }
    }
}

/// The part of a socket that its lock protects.
pub struct Inner {
    /// AF_INET or AF_INET6.
    pub family: i32,
    /// Of the socket file.
    pub inode: u64,
    /// Whether it has a port, for all that is known.
    pub is_bound: bool,
    /// Whether it speaks IPv4, and IPv6.
    pub families: [bool; 2],
    /// Whom datagrams come from and go to; None: anybody.
    pub peer: Option<SocketAddr>,
    /// Its datagrams are claimed, by this name.
    pub claimed: Option<SocketAddr>,
    /// Of these engines, by their numbers.
    pub engines: Vec<u64>,
    /// The port at which datagrams find it.
    pub place: Option<u16>,
    /// The byte of DSCP and ECN, and time to live, of IPv4 and of IPv6.
    pub class_and_hops: [(u8, u8); 2],
    /// Ancillary data that receivers get, as bits of [`control`].
    pub told: u32,
    /// When the kernel was last asked for a pending error.
    pub asked_ns: u64,
    queue: Queue,
    wakers: Vec<u32>,
}

/// What a sender says of one datagram besides, in place of what the socket says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Said {
    /// Our address.
    pub source: Option<IpAddr>,
    /// The interface by which it leaves.
    pub link: Option<u32>,
    /// The byte of DSCP and ECN.
    pub traffic_class: Option<u8>,
    /// Time to live, or hop limit.
    pub hops: Option<u8>,
}

/// Ancillary data that a receiver can request for each datagram: bits of [`Inner::told`].
pub mod control {
    /// IP_PKTINFO.
    pub const PACKET_INFO: u32 = 1;
    /// IP_RECVTTL.
    pub const TTL: u32 = 1 << 1;
    /// IP_RECVTOS.
    pub const TOS: u32 = 1 << 2;
    /// IPV6_RECVPKTINFO.
    pub const PACKET_INFO_6: u32 = 1 << 3;
    /// IPV6_RECVHOPLIMIT.
    pub const HOP_LIMIT: u32 = 1 << 4;
    /// IPV6_RECVTCLASS.
    pub const TRAFFIC_CLASS: u32 = 1 << 5;
}

impl Inner {
    const fn new() -> Self {
        Self {
            family: 0,
            inode: 0,
            is_bound: false,
            families: [false; 2],
            peer: None,
            claimed: None,
            engines: Vec::new(),
            place: None,
            class_and_hops: [(0, 0); 2],
            told: 0,
            asked_ns: 0,
            queue: Queue::new(),
            wakers: Vec::new(),
        }
    }

    /// No more than so many bytes wait, counted as SO_RCVBUF counts.
    pub fn set_limit(&mut self, bytes: usize) {
        self.queue.set_limit(bytes);
    }
}

static SOCKETS: [Socket; SOCKETS_MAX] = [const { Socket::new() }; SOCKETS_MAX];
/// Numbers that nothing means, and how many were ever given out.
static FREE: Mutex<(Vec<u32>, u32)> = Mutex::new((Vec::new(), 0));

impl Socket {
    const fn new() -> Self {
        Self {
            descriptors: AtomicU32::new(0),
            life: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            arrivals: AtomicU32::new(0),
            receives: AtomicU32::new(0),
            uses: AtomicU32::new(0),
            patience: AtomicU64::new(PATIENCE_UNKNOWN),
            is_stale: AtomicBool::new(false),
            left_ns: AtomicU64::new(0),
            has_older: AtomicBool::new(false),
            watches: AtomicU32::new(0),
            inner: Mutex::new(Inner::new()),
        }
    }

    /// What is behind its lock. No engine is locked while it is held.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether a datagram waits here.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// How many datagrams have come; wraps.
    #[inline]
    pub fn arrivals(&self) -> u32 {
        self.arrivals.load(Ordering::Acquire)
    }

    /// Before its next use the kernel is asked what it is.
    pub fn set_stale(&self) {
        self.is_stale.store(true, Ordering::Release);
    }

    #[inline]
    fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    /// At a use of it, of which the first do not count: as [`take_stale`](Self::take_stale).
    #[inline]
    pub fn take_stale_at_use(&self) -> bool {
        self.is_stale()
            && self.uses.fetch_add(1, Ordering::Relaxed) >= USES_MIN
            && self.take_stale()
    }

    /// Whether its names and options have to be checked now, by the caller that gets true.
    #[inline]
    pub fn take_stale(&self) -> bool {
        self.is_stale() && self.is_stale.swap(false, Ordering::AcqRel)
    }

    /// The kernel handles the socket from now on.
    pub fn set_left(&self) {
        self.forget_patience();
        let now = now_ns();
        let is_first = |was: u64| (was == 0).then_some(now);
        let _ = self
            .left_ns
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, is_first);
    }

    /// Whether the kernel handles the socket.
    pub fn is_left(&self) -> bool {
        self.left_ns.load(Ordering::Acquire) > 0
    }

    /// Whether nothing can come here any more, also not what was on its way to an engine then.
    pub fn is_over(&self) -> bool {
        let left_ns = self.left_ns.load(Ordering::Acquire);
        left_ns > 0 && !self.is_readable() && now_ns().saturating_sub(left_ns) > LATE_NS
    }

    /// Its port was just claimed: what came before is older than what comes.
    pub fn expect_older(&self) {
        self.has_older.store(true, Ordering::Release);
    }

    /// The kernel has nothing for it.
    pub fn has_none_older(&self) {
        if self.has_older.load(Ordering::Relaxed) {
            self.has_older.store(false, Ordering::Release);
        }
    }

    /// Before a receive: whether the kernel is to be asked before this queue.
    #[inline]
    pub fn is_kernels_turn(&self) -> bool {
        let receives = self.receives.fetch_add(1, Ordering::Relaxed);
        receives % KERNELS_TURN == KERNELS_TURN - 1 || self.has_older.load(Ordering::Acquire)
    }

    /// How long a receive waits, as far as that is known; `ask`s if it is not.
    #[inline]
    pub fn patience(&self, ask: impl FnOnce() -> Patience) -> Patience {
        match self.patience.load(Ordering::Relaxed) {
            PATIENCE_UNKNOWN => {
                let patience = ask();
                // Another process may change it where it has the socket too.
                if !self.is_left() {
                    self.patience.store(patience.word(), Ordering::Relaxed);
                }
                patience
            }
            word => Patience::of(word),
        }
    }

    /// The program may have changed it.
    pub fn forget_patience(&self) {
        self.patience.store(PATIENCE_UNKNOWN, Ordering::Relaxed);
    }

    /// Lets `take` have the bytes of the datagram that waits first, which stays where it is when `is_peek`.
    pub fn receive(&self, is_peek: bool, take: impl FnOnce([&[u8]; 2])) -> Option<Taken> {
        let mut inner = self.lock();
        let (told, family) = (inner.told, inner.family);
        let received = inner.queue.first()?;
        take(inner.queue.bytes_of(&received));
        if !is_peek {
            inner.queue.drop_first();
            self.note_waiting(&inner);
        }
        Some(Taken {
            received,
            told,
            family,
        })
    }

    fn clear(&self) {
        self.set_left();
        self.is_stale.store(false, Ordering::Relaxed);
        let mut inner = self.lock();
        *inner = Inner::new();
        self.note_waiting(&inner);
    }

    /// Bytes of the datagram that waits first.
    pub fn next_length(&self) -> Option<usize> {
        self.lock().queue.first().map(|first| first.length)
    }

    fn note_waiting(&self, inner: &Inner) {
        self.waiting
            .store(inner.queue.count() as u32, Ordering::Release);
    }

    /// Queues a datagram that has arrived; false when the queue is full.
    fn put(&self, received: Received, payload: &[u8]) -> bool {
        let wakers = {
            let mut inner = self.lock();
            if !inner.queue.put(received, payload) {
                return false;
            }
            self.note_waiting(&inner);
            std::mem::take(&mut inner.wakers)
        };
        self.arrivals.fetch_add(1, Ordering::AcqRel);
        places::note_arrival();
        for waker in wakers.into_iter().filter(|one| !wakers::is_own(*one)) {
            process::wake(process::number(), waker);
        }
        true
    }

    /// The next datagram wakes `waker`, once. A thread that will sleep on it must look again after this call.
    pub fn expect(&self, waker: u32) {
        let mut inner = self.lock();
        if !inner.wakers.contains(&waker) {
            inner.wakers.push(waker);
        }
    }

    /// `waker` is not to be rung any more.
    pub fn unexpect(&self, waker: u32) {
        self.lock().wakers.retain(|one| *one != waker);
    }
}

/// How many datagrams have come for any socket; wraps.
pub use places::arrivals;

/// Whether any socket may have datagrams over packets.
#[inline]
pub fn are_used() -> bool {
    IS_USED.load(Ordering::Relaxed)
}

static IS_USED: AtomicBool = AtomicBool::new(false);

/// Takes part in the kernel's UDP socket `fd` from now on. Not where there are too many.
pub fn register(fd: i32, family: i32) {
    let Ok(stat) = kernel::fstat(fd) else { return };
    if (fd as usize) >= table::NUMBERS_MAX {
        return;
    }
    let Some(index) = take_number() else { return };
    let socket = &SOCKETS[index];
    let life = socket.life.fetch_add(1, Ordering::Relaxed) + 1;
    {
        let mut inner = socket.lock();
        (inner.family, inner.inode) = (family, stat.st_ino);
    }
    socket.has_older.store(false, Ordering::Relaxed);
    socket.uses.store(0, Ordering::Relaxed);
    socket.left_ns.store(0, Ordering::Relaxed);
    socket.descriptors.store(1, Ordering::Release);
    socket.set_stale();
    IS_USED.store(true, Ordering::Relaxed);
    table::set(fd, Entry::new(Kind::Datagram, index, life));
}

fn take_number() -> Option<usize> {
    let mut free = FREE.lock().ok()?;
    if let Some(number) = free.0.pop() {
        return Some(number as usize);
    }
    let next = free.1;
    ((next as usize) < SOCKETS_MAX).then(|| {
        free.1 += 1;
        next as usize
    })
}

/// The object behind a number.
#[inline]
pub fn get(index: usize) -> &'static Socket {
    &SOCKETS[index % SOCKETS_MAX]
}

/// The socket that `fd` means, with its number.
#[inline]
pub fn of(fd: i32) -> Option<(usize, &'static Socket)> {
    let entry = table::get(fd);
    (entry.kind() == Kind::Datagram).then(|| (entry.index(), get(entry.index())))
}

/// A descriptor that means a socket.
pub fn descriptor(index: usize) -> Option<i32> {
    let life = get(index).life.load(Ordering::Relaxed);
    table::all(Entry::new(Kind::Datagram, index, life)).next()
}

/// All sockets that any descriptor means.
pub fn all() -> impl Iterator<Item = (usize, &'static Socket)> {
    let count = FREE.lock().map_or(0, |free| free.1 as usize);
    let sockets = SOCKETS.iter().enumerate().take(count);
    sockets.filter(|(_, socket)| socket.descriptors.load(Ordering::Acquire) > 0)
}

/// The kernel has duplicated a descriptor: `made` means the same socket.
pub fn share(fd: i32, made: i32) {
    let entry = table::get(fd);
    if entry.kind() == Kind::Datagram {
        get(entry.index())
            .descriptors
            .fetch_add(1, Ordering::AcqRel);
        if !table::set(made, entry) {
            get(entry.index())
                .descriptors
                .fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// `fd` is about to be closed, or to mean something else. The number of its socket where that was its last descriptor,
/// which must then be [ended](end).
pub fn close(fd: i32) -> Option<usize> {
    let entry = table::get(fd);
    let is_closed = entry.kind() == Kind::Datagram && table::replace(fd, entry, Entry::KERNEL);
    let is_last = is_closed
        && get(entry.index())
            .descriptors
            .fetch_sub(1, Ordering::AcqRel)
            == 1;
    is_last.then(|| entry.index())
}

/// Nothing means a socket any more.
pub fn end(index: usize) {
    get(index).clear();
    give_number(index);
}

fn give_number(index: usize) {
    if let Ok(mut free) = FREE.lock() {
        free.0.push(index as u32);
    }
}

/// Locks what there is across a fork.
pub fn hold() -> impl Sized {
    let (free, places) = (FREE.lock().ok(), places::hold());
    let count = free.as_ref().map_or(0, |free| free.1 as usize);
    let sockets: Vec<_> = SOCKETS.iter().take(count).map(Socket::lock).collect();
    (free, places, sockets)
}

/// In a forked child: queued datagrams stay with the parent, and the kernel handles the sockets.
pub fn forget() {
    if !are_used() {
        return;
    }
    for fd in 0..table::used() {
        let entry = table::get(fd);
        if entry.kind() == Kind::Datagram {
            table::set(fd, Entry::KERNEL);
        }
    }
    let left: Vec<_> = all().collect();
    for (index, socket) in left {
        socket.descriptors.store(0, Ordering::Relaxed);
        socket.clear();
        // Where a set has it, its number must stay its own.
        if socket.watches.load(Ordering::Relaxed) == 0 {
            give_number(index);
        }
    }
    places::forget();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(length: usize) -> Received {
        Received {
            source: ([10, 0, 0, 1], 7).into(),
            destination: [10, 0, 0, 2].into(),
            link: 3,
            traffic_class: 0,
            hops: 64,
            length,
        }
    }

    #[test]
    fn a_datagram_that_is_peeked_at_stays_and_a_full_queue_takes_no_more() {
        static SOCKET: Socket = Socket::new();
        SOCKET.lock().set_limit(4096);
        assert!(SOCKET.put(received(3), b"one") && SOCKET.put(received(0), b""));
        let mut count = 2;
        while SOCKET.put(received(500), &[7; 500]) {
            count += 1;
        }
        assert!(count < 6, "{count} in 4096 bytes");
        let peeked = |is_peek| {
            let mut seen = Vec::new();
            let take = |parts: [&[u8]; 2]| seen = parts.concat();
            let taken = SOCKET.receive(is_peek, take);
            taken.map(|taken| (taken.received.length, seen))
        };
        assert_eq!(peeked(true), Some((3, b"one".to_vec())));
        assert_eq!(peeked(false), Some((3, b"one".to_vec())));
        assert_eq!(SOCKET.next_length(), Some(0));
        assert_eq!(peeked(false), Some((0, Vec::new())));
        for _ in 2..count {
            assert_eq!(peeked(false), Some((500, vec![7; 500])));
        }
        assert!(!SOCKET.is_readable() && peeked(false).is_none());
        assert_eq!(SOCKET.arrivals(), count);
    }
}
