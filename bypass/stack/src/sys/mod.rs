//! The only unsafe code of the stack: the thread block, which must be found without a call into
//! the loader, the pointer from a socket to the segment that it lives in, and values behind locks that
//! are not always taken.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bypass_shm::ring::{Broken, Pieces, Ring};

use crate::peer::Peer;

mod owned;
pub use owned::{Owned, OwnedGuard};

/// What each thread knows about itself; zero at the start.
#[repr(C, align(64))]
pub struct Thread {
    tid: AtomicU32,
    stripe: AtomicU32,
    /// Above 0 while our own code runs: handlers of signals wait.
    pub inside: AtomicU32,
    /// Signal handlers that have run in this thread.
    pub signals: AtomicU32,
    /// Those of them without SA_RESTART: they end blocking calls.
    pub interrupts: AtomicU32,
    /// Signals that are blocked until our own code is left, as the kernel's set of bits.
    pub deferred: AtomicU64,
    /// The connection whose bytes are published and not announced yet, see `stream/holding.rs`; 0
    /// for none.
    pub held_back: AtomicU64,
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".section .tbss.wirespeed_thread,\"awT\",@nobits",
    ".globl wirespeed_thread",
    ".hidden wirespeed_thread",
    ".type wirespeed_thread,@object",
    ".size wirespeed_thread,64",
    ".p2align 6",
    "wirespeed_thread: .zero 64",
    ".text",
);

/// The calling thread's block.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn thread() -> &'static Thread {
    let place: *const Thread;
    // SAFETY: initial-exec access to a thread-local of 64 zeroed bytes, as the ABI defines it.
    unsafe {
        core::arch::asm!("mov {0}, qword ptr [rip + wirespeed_thread@gottpoff]",
            "add {0}, qword ptr fs:[0]", out(reg) place, options(pure, readonly, nostack));
    }
    // SAFETY: the block lives as long as the thread and holds atomics, for which zero is valid.
    unsafe { &*place }
}

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".section .tbss.wirespeed_thread,\"awT\",%nobits",
    ".globl wirespeed_thread",
    ".hidden wirespeed_thread",
    ".type wirespeed_thread,%object",
    ".size wirespeed_thread,64",
    ".p2align 6",
    "wirespeed_thread: .zero 64",
    ".text",
);

/// The calling thread's block.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn thread() -> &'static Thread {
    let place: *const Thread;
    // SAFETY: initial-exec access to a thread-local of 64 zeroed bytes, as the ABI defines it.
    unsafe {
        core::arch::asm!("adrp {0}, :gottprel:wirespeed_thread",
            "ldr {0}, [{0}, #:gottprel_lo12:wirespeed_thread]", "mrs {1}, tpidr_el0",
            "add {0}, {0}, {1}", out(reg) place, out(reg) _, options(pure, readonly, nostack));
    }
    // SAFETY: the block lives as long as the thread and holds atomics, for which zero is valid.
    unsafe { &*place }
}

impl Thread {
    /// The thread's number.
    #[inline]
    pub fn tid(&self) -> u32 {
        match self.tid.load(Ordering::Relaxed) {
            0 => {
                let tid = bypass_shm::sys::gettid().unwrap_or(1) as u32;
                self.tid.store(tid, Ordering::Relaxed);
                tid
            }
            tid => tid,
        }
    }

    /// Where the thread counts, after `take` has found a place for it.
    #[inline]
    pub fn stripe(&self, take: impl FnOnce() -> usize) -> usize {
        match self.stripe.load(Ordering::Relaxed) {
            0 => {
                let stripe = take();
                self.stripe.store(stripe as u32 + 1, Ordering::Relaxed);
                stripe
            }
            stripe => stripe as usize - 1,
        }
    }

    /// In a forked child: the numbers are the parent's.
    pub fn forget(&self) {
        self.tid.store(0, Ordering::Relaxed);
        self.stripe.store(0, Ordering::Relaxed);
        self.held_back.store(0, Ordering::Relaxed);
    }
}

/// A socket's hold on its segment.
pub struct PeerPlace(AtomicPtr<Peer>);

impl PeerPlace {
    /// Empty.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Puts a segment in; the place must be empty.
    pub fn put(&self, peer: Arc<Peer>) {
        self.0
            .store(Arc::into_raw(peer).cast_mut(), Ordering::Release);
    }

    /// Takes it out.
    pub fn take(&self) -> Option<Arc<Peer>> {
        let peer = self.0.swap(core::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: the pointer came from `put`, and the swap gives it to one caller only.
        (!peer.is_null()).then(|| unsafe { Arc::from_raw(peer) })
    }

    /// Looks at it.
    ///
    /// # Safety
    /// The caller must keep the socket from being closed: by one of its locks, or because it is a
    /// member of a locked epoll set.
    #[inline]
    pub unsafe fn get<'a>(&self) -> Option<&'a Peer> {
        // SAFETY: the place owns a reference until `take`, which the caller excludes.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// A reference of one's own, under the same condition as [`get`](Self::get).
    ///
    /// # Safety
    /// See [`get`](Self::get).
    pub unsafe fn share(&self) -> Option<Arc<Peer>> {
        let peer = self.0.load(Ordering::Acquire);
        if peer.is_null() {
            return None;
        }
        // SAFETY: the place owns a reference, so the count is above 0.
        unsafe { Arc::increment_strong_count(peer) };
        // SAFETY: the count just taken is given to the result.
        Some(unsafe { Arc::from_raw(peer) })
    }
}

impl crate::sockets::Socket {
    /// The segment; valid for an operation that does not sleep (see `stream::find`).
    #[inline]
    pub fn peer(&self) -> Option<&'static Peer> {
        // SAFETY: a segment stays mapped for seconds after its last socket was closed.
        unsafe { self.peer.get() }
    }

    /// A reference to the segment, for an operation that sleeps.
    pub fn share_peer(&self) -> Option<Arc<Peer>> {
        // SAFETY: as above; the count cannot reach 0 before the grace is over.
        unsafe { self.peer.share() }
    }
}

/// A value that is made once per process and replaced in a forked child; never freed, because
/// threads may be looking.
pub struct Leaked<T: 'static>(AtomicPtr<T>);

impl<T: Sync> Leaked<T> {
    /// Empty.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Replaces the value.
    pub fn put(&self, value: T) {
        self.0
            .store(Box::into_raw(Box::new(value)), Ordering::Release);
    }

    /// The value.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null or came from `put` and is never freed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }
}

/// A lock that is held together with the object that it lies in; for a fork, which is not a scope.
pub struct Held<O: 'static, T: 'static> {
    // Dropped in this order: the guard before what it borrows from.
    _guard: Option<MutexGuard<'static, T>>,
    _owner: Arc<O>,
}

impl<O, T> Held<O, T> {
    /// Takes the lock that `find` points out.
    pub fn lock(owner: Arc<O>, find: impl FnOnce(&O) -> &Mutex<T>) -> Self {
        let mutex: *const Mutex<T> = find(&owner);
        // SAFETY: the mutex is part of the object, which lives at least as long as the guard.
        let mutex: &'static Mutex<T> = unsafe { &*mutex };
        Self {
            _guard: mutex.lock().ok(),
            _owner: owner,
        }
    }
}

/// A page of atomics at the start of a mapping.
pub fn shared<T>(memory: &bypass_shm::memory::Mapping) -> &T {
    // SAFETY: used with structures of atomics only, for which every bit pattern is valid.
    unsafe { memory.at(0) }
}

/// Has `work` done when the process ends by exit(3).
pub fn at_exit(work: extern "C" fn()) {
    // SAFETY: a function of this library, which is never unloaded.
    unsafe { libc::atexit(work) };
}

/// Copies what a ring holds into `bytes` and keeps it there; how much that was.
pub fn peek_into(ring: &Ring, bytes: &mut [u8]) -> Result<usize, Broken> {
    let piece = [libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }];
    // SAFETY: the slice is writable for its length and outlives the copy.
    unsafe { Pieces::new(&piece) }.map_or(Ok(0), |mut pieces| ring.peek(&mut pieces, 0))
}

/// read(2) of a pipe into a hole of a ring.
pub fn read_pipe(pipe: i32, at: *mut u8, length: usize) -> Result<usize, i32> {
    let arguments = [pipe as usize, at as usize, length, 0, 0, 0];
    // SAFETY: as for `read_file`.
    bypass_shm::sys::check(unsafe { bypass_shm::sys::raw(libc::SYS_read, arguments) })
}

/// pread(2) into a hole of a ring.
pub fn read_file(file: i32, at: *mut u8, length: usize, offset: i64) -> Result<usize, i32> {
    // SAFETY: the hole is mapped ring memory of that length, ours until it is published.
    unsafe { bypass_shm::sys::pread(file, at, length, offset) }
}
