//! The only unsafe code of the stack: the pointer from a socket to the segment that it lives in, and
//! values behind locks that are not always taken.

use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;

use bypass_shm::ring::{Broken, Ring};
use bypass_sys::iovec::Pieces;
use bypass_sys::sandbox::is_confined;
use bypass_sys::{kernel, numbers};

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

    /// Looks at it; valid for an operation that does not sleep (see `stream::find`).
    #[inline]
    pub fn get(&self) -> Option<&'static Peer> {
        // SAFETY: a segment stays mapped for seconds after its last socket was closed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// A reference of one's own, for an operation that sleeps.
    pub fn share(&self) -> Option<Arc<Peer>> {
        let peer = self.0.load(Ordering::Acquire);
        if peer.is_null() {
            return None;
        }
        // SAFETY: as above; the count cannot reach 0 before the grace is over.
        unsafe { Arc::increment_strong_count(peer) };
        // SAFETY: the count just taken is given to the result.
        Some(unsafe { Arc::from_raw(peer) })
    }
}

/// The first `count` bytes of a call's buffers, as slices.
pub fn slices<'a>(mut pieces: Pieces<'a>, count: usize) -> impl Iterator<Item = &'a [u8]> {
    let mut left = count;
    core::iter::from_fn(move || {
        let (at, length) = pieces.take(left);
        left -= length;
        // SAFETY: the program vouches for the buffers of its call, which lasts.
        (length > 0).then(|| unsafe { core::slice::from_raw_parts(at, length) })
    })
}

/// Copies bytes into a call's buffers, as far as those have room.
pub fn fill(pieces: &mut Pieces, bytes: &[u8]) {
    let count = bytes.len().min(pieces.left());
    // SAFETY: the slice is readable, and the program vouches for the buffers of its call.
    unsafe { pieces.fill(bytes.as_ptr(), count) };
}

/// Bytes that were just put into a ring's [hole](Ring::hole) and are not published yet.
pub fn filled<'a>(at: *const u8, count: usize) -> &'a [u8] {
    // SAFETY: both come from the hole; whoever filled it holds the writer's lock, and only a reader
    // that breaks the rules would write there.
    unsafe { core::slice::from_raw_parts(at, count) }
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

/// Shows `take` up to `wanted` bytes of a ring where they lie, piece by piece, until it takes less of one
/// than there is; how many there were and how many it has taken. They stay there.
pub fn show(
    ring: &Ring,
    wanted: usize,
    mut take: impl FnMut(&[u8]) -> usize,
) -> Result<(usize, usize), Broken> {
    ring.show(wanted, |at, length| {
        // SAFETY: the ring has checked that the bytes are mapped. They stay until we discard them, unless
        // the writer breaks the rules: then others are read, and bytes have no invalid values.
        take(unsafe { core::slice::from_raw_parts(at, length) })
    })
}

/// Lets `fill` write into the hole of a ring and publishes what it has written, for the only writer.
/// None when the ring is full.
pub fn fill_hole<E>(
    ring: &Ring,
    limit: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
) -> Option<Result<usize, E>> {
    let (at, length) = ring.hole(limit).ok().filter(|(_, length)| *length > 0)?;
    // SAFETY: a hole is mapped, and no thread reads or writes it before it is published; a peer that
    // does so all the same finds or leaves bytes, which have no invalid values.
    let hole = unsafe { core::slice::from_raw_parts_mut(at, length) };
    let filled = fill(hole);
    if let Ok(count) = filled {
        ring.filled(count.min(length));
    }
    Some(filled)
}

/// Takes a lock on a file of ours for this process, until it ends or closes the file. EAGAIN: another
/// process has it, or a part of it.
pub fn lock_file(fd: i32) -> Result<(), i32> {
    let lock = lock_of(libc::F_WRLCK, None);
    kernel::fcntl(fd, libc::F_SETLK, &raw const lock as usize).map(|_| ())
}

/// The same of one part.
pub fn lock_part(fd: i32, part: u32) -> Result<(), i32> {
    let lock = lock_of(libc::F_WRLCK, Some(part));
    kernel::fcntl(fd, libc::F_SETLK, &raw const lock as usize).map(|_| ())
}

/// Gives a part back.
pub fn unlock_part(fd: i32, part: u32) {
    let lock = lock_of(libc::F_UNLCK, Some(part));
    let _ = kernel::fcntl(fd, libc::F_SETLK, &raw const lock as usize);
}

/// Whether another process has it, or a part of it.
pub fn is_file_locked(fd: i32) -> bool {
    holder(fd, None).is_some()
}

/// Whether another process has a part.
pub fn is_part_locked(fd: i32, part: u32) -> bool {
    part_holder(fd, part).is_some()
}

/// The other process that has a part; 0 where it has no number here.
pub fn part_holder(fd: i32, part: u32) -> Option<i32> {
    holder(fd, Some(part))
}

fn holder(fd: i32, part: Option<u32>) -> Option<i32> {
    let mut lock = lock_of(libc::F_WRLCK, part);
    kernel::fcntl(fd, libc::F_GETLK, &raw mut lock as usize).ok()?;
    (lock.l_type != libc::F_UNLCK as i16).then_some(lock.l_pid)
}

fn lock_of(kind: i32, part: Option<u32>) -> libc::flock {
    // SAFETY: a lock is numbers only.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    if let Some(part) = part {
        lock.l_start = i64::from(part);
        lock.l_len = 1;
    }
    lock
}

/// The current position of a file without one, for preadv2 and pwritev2.
const NO_OFFSET: usize = usize::MAX;

/// read(2) of a pipe into our own memory, without blocking if the kernel supports it (RWF_NOWAIT): EAGAIN
/// when the pipe is empty.
pub fn read_now(pipe: i32, at: *mut u8, length: usize) -> Result<usize, i32> {
    match vectored(libc::SYS_preadv2, pipe, at, length) {
        Err(libc::EOPNOTSUPP | libc::ENOSYS) => {
            let arguments = [pipe as usize, at as usize, length, 0, 0, 0];
            // SAFETY: the callers give a hole of a ring, or a buffer, of that length.
            kernel::check(unsafe { kernel::raw(libc::SYS_read, arguments) })
        }
        other => other,
    }
}

/// The same of write(2).
pub fn write_now(pipe: i32, bytes: &[u8]) -> Result<usize, i32> {
    let at = bytes.as_ptr().cast_mut();
    match vectored(libc::SYS_pwritev2, pipe, at, bytes.len()) {
        Err(libc::EOPNOTSUPP | libc::ENOSYS) => kernel::write(pipe, bytes),
        other => other,
    }
}

fn vectored(call: libc::c_long, pipe: i32, at: *mut u8, length: usize) -> Result<usize, i32> {
    if is_confined() {
        return Err(libc::EOPNOTSUPP);
    }
    let piece = [libc::iovec {
        iov_base: at.cast(),
        iov_len: length,
    }];
    let (pieces, nowait) = (piece.as_ptr() as usize, libc::RWF_NOWAIT as usize);
    let arguments = [pipe as usize, pieces, 1, NO_OFFSET, NO_OFFSET, nowait];
    // SAFETY: the callers' memory, readable or writable as the call needs it.
    kernel::check(unsafe { kernel::raw(call, arguments) })
}

/// preadv2(2) into a hole of a ring, of pages that are in memory: EAGAIN if it would wait for a
/// disk, EOPNOTSUPP if the file system does not support the check.
pub fn read_cached(file: i32, at: *mut u8, length: usize, offset: i64) -> Result<usize, i32> {
    if is_confined() {
        return Err(libc::EOPNOTSUPP);
    }
    let piece = [libc::iovec {
        iov_base: at.cast(),
        iov_len: length,
    }];
    let arguments = [
        file as usize,
        piece.as_ptr() as usize,
        1,
        offset as usize,
        0,
        libc::RWF_NOWAIT as usize,
    ];
    // SAFETY: the hole is mapped ring memory of that length, ours until it is published.
    kernel::check(unsafe { kernel::raw(libc::SYS_preadv2, arguments) })
}

/// Reads through a pipe, as the kernel's own sendfile does: what cannot be spliced cannot be sent.
pub fn splice_out(file: i32, bytes: &mut [u8], offset: i64) -> Result<usize, i32> {
    if is_confined() {
        return kernel::read_at(file, bytes, offset);
    }
    let [reader, writer] = numbers::high_pair(kernel::pipe)?;
    let place = offset;
    let length = bytes.len().min(PIPE_BYTES);
    let (from, to) = (&raw const place as usize, writer.0 as usize);
    let arguments = [file as usize, from, to, 0, length, 0];
    // SAFETY: the offset lies on this frame.
    let moved = kernel::check(unsafe { kernel::raw(libc::SYS_splice, arguments) });
    moved.and_then(|count| kernel::read(reader.0, &mut bytes[..count]))
}

/// A pipe takes so many bytes at once.
const PIPE_BYTES: usize = 64 << 10;
