//! The only unsafe code of the stack: the pointer from a socket to the segment that it lives in, and
//! values behind locks that are not always taken.

use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;

use bypass_shm::ring::{Broken, Ring};
use bypass_sys::iovec::Pieces;
use bypass_sys::kernel;

use crate::peer::Peer;

mod owned;
pub use owned::{Owned, OwnedGuard};

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
    kernel::check(unsafe { kernel::raw(libc::SYS_read, arguments) })
}

/// pread(2) into a hole of a ring.
pub fn read_file(file: i32, at: *mut u8, length: usize, offset: i64) -> Result<usize, i32> {
    // SAFETY: the hole is mapped ring memory of that length, ours until it is published.
    unsafe { kernel::pread(file, at, length, offset) }
}
