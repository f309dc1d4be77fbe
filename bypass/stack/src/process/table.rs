//! The role of each descriptor number: one word, one load.
//!
//! A number in use is always an open kernel descriptor too (the shadow), so limits, `select` and
//! `/proc/self/fd` stay true. Changes are compare-and-swap: of two closers one wins.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Numbers beyond are left to the kernel.
pub const NUMBERS_MAX: usize = 1 << 20;

static TABLE: [AtomicU64; NUMBERS_MAX] = [const { AtomicU64::new(0) }; NUMBERS_MAX];

/// What a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The kernel's.
    Kernel = 0,
    /// A TCP socket without connection.
    Unbound = 1,
    /// A listening TCP socket.
    Listener = 2,
    /// A connection in shared memory.
    Connected = 3,
    /// An epoll set.
    Epoll = 4,
    /// Kept for the next socket; closed for the program.
    Pooled = 5,
    /// Ours; does not exist for the program.
    Internal = 6,
    /// A UDP socket of the kernel's, some of whose datagrams come over packets.
    Datagram = 8,
}

/// The kernel's kinds have none of these bits.
const OURS: u64 = 7;

/// A word of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry(u64);

impl Entry {
    /// The kernel's.
    pub const KERNEL: Self = Self(0);

    /// An entry for object `index`.
    pub fn new(kind: Kind, index: usize, generation: u32) -> Self {
        Self(kind as u64 | (u64::from(generation & 0xff_ffff)) << 8 | (index as u64) << 32)
    }

    /// What it is.
    #[inline]
    pub fn kind(self) -> Kind {
        match self.0 as u8 {
            1 => Kind::Unbound,
            2 => Kind::Listener,
            3 => Kind::Connected,
            4 => Kind::Epoll,
            5 => Kind::Pooled,
            6 => Kind::Internal,
            8 => Kind::Datagram,
            _ => Kind::Kernel,
        }
    }

    /// Which object.
    #[inline]
    pub fn index(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// Which life of the object.
    #[inline]
    pub fn generation(self) -> u32 {
        (self.0 >> 8) as u32 & 0xff_ffff
    }
}

/// Whether the kernel is meant: the question of every hook. True of UDP sockets too, of which the hooks that receive,
/// send and wait ask besides whether it [`is_datagram`].
#[inline(always)]
pub fn is_kernel(fd: i32) -> bool {
    TABLE
        .get(fd as usize)
        .is_none_or(|word| word.load(Ordering::Relaxed) & OURS == 0)
}

/// Whether it is a UDP socket that may have datagrams over packets.
#[inline(always)]
pub fn is_datagram(fd: i32) -> bool {
    let is_it = |word: &AtomicU64| word.load(Ordering::Relaxed) as u8 == Kind::Datagram as u8;
    TABLE.get(fd as usize).is_some_and(is_it)
}

/// Whether it is a TCP socket of ours, in whatever state.
#[inline]
pub fn is_socket(fd: i32) -> bool {
    matches!(
        get(fd).kind(),
        Kind::Unbound | Kind::Listener | Kind::Connected
    )
}

/// What `fd` is.
#[inline]
pub fn get(fd: i32) -> Entry {
    TABLE
        .get(fd as usize)
        .map_or(Entry::KERNEL, |word| Entry(word.load(Ordering::Acquire)))
}

/// One more than the highest number that was ever something else than the kernel's.
static USED: AtomicUsize = AtomicUsize::new(0);

/// All numbers that were ever something else than the kernel's are below this.
pub fn used() -> i32 {
    USED.load(Ordering::SeqCst).min(NUMBERS_MAX) as i32
}

/// Makes `fd` something else, whatever it was; false when the number is too large.
pub fn set(fd: i32, entry: Entry) -> bool {
    if entry != Entry::KERNEL && USED.load(Ordering::Relaxed) <= fd as usize {
        USED.fetch_max((fd as usize).saturating_add(1), Ordering::SeqCst);
    }
    TABLE
        .get(fd as usize)
        .map(|word| word.store(entry.0, Ordering::Release))
        .is_some()
}

/// Makes `fd` something else if it still is `from`.
pub fn replace(fd: i32, from: Entry, to: Entry) -> bool {
    TABLE.get(fd as usize).is_some_and(|word| {
        word.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    })
}

/// The numbers that mean `entry`.
pub fn all(entry: Entry) -> impl Iterator<Item = i32> {
    (0..used()).filter(move |fd| get(*fd) == entry)
}

/// Makes every number that means `from` mean `to`: what a socket is, it is under all its numbers.
pub fn replace_all(from: Entry, to: Entry) {
    for fd in all(from) {
        replace(fd, from, to);
    }
}

/// Marks a descriptor of ours: the program can neither close nor use it.
pub fn hide(fd: i32) {
    set(fd, Entry::new(Kind::Internal, 0, 0));
}

/// The opposite of [`hide`], before our own close.
pub fn show(fd: i32) {
    set(fd, Entry::KERNEL);
}
