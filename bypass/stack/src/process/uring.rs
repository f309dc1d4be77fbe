//! Rings of io_uring: what is submitted there is not seen by the hooks of sockets, so a process with a
//! ring is left to the kernel, unless all its submissions are seen and none is about a socket.
//!
//! Rings made by the shared liburing are such: it is asked to submit, and what it is about to submit
//! is looked at first. A database's ring for its files excludes nothing then.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;

use bypass_sys::process::keeping_errno;
use bypass_sys::{clock, numbers};

use super::table;

/// Rings whose submissions are seen, by descriptor.
static SEEN: Mutex<Vec<i32>> = Mutex::new(Vec::new());
/// A socket went through one of them.
static HAS_SOCKETS: AtomicBool = AtomicBool::new(false);

/// Locks the list across a fork.
pub fn hold() -> impl Sized {
    SEEN.lock().ok()
}

/// The shared liburing has made ring `fd`.
pub fn made(fd: i32) {
    if let Ok(mut seen) = SEEN.lock() {
        if !seen.contains(&fd) {
            seen.push(fd);
        }
    }
}

/// Ring `fd` is gone: its number may be another's next. True when sockets went through the rings that are seen and no
/// such ring is left.
pub fn gone(fd: i32) -> bool {
    SEEN.lock().is_ok_and(|mut seen| {
        seen.retain(|of| *of != fd);
        // Under the lock: whoever submits to a ring has entered it before.
        seen.is_empty() && HAS_SOCKETS.swap(false, Ordering::SeqCst)
    })
}

/// Whether operation `code` on descriptor `fd`, which is about to be submitted, is the first one about a socket.
pub fn begins_with_sockets(code: u8, fd: i32) -> bool {
    (is_about_sockets(code) || !table::is_kernel(fd)) && !HAS_SOCKETS.swap(true, Ordering::SeqCst)
}

/// This process uses sockets where it is not seen, and when that ends is not seen either.
static HIDES_SOCKETS: AtomicBool = AtomicBool::new(false);

/// Whether sockets of this process are used where it is not seen: since [`note_hidden_sockets`], or as long as a ring
/// through which they went.
#[inline]
pub fn hides_sockets() -> bool {
    HIDES_SOCKETS.load(Ordering::SeqCst) || HAS_SOCKETS.load(Ordering::SeqCst)
}

/// From now on sockets of this process may be used where it is not seen: what others offer it goes through the kernel.
pub fn note_hidden_sockets() {
    HIDES_SOCKETS.store(true, Ordering::SeqCst);
}

/// The same, if this process has a ring whose submissions are not seen.
pub fn note_unseen_rings() {
    if !HIDES_SOCKETS.load(Ordering::SeqCst) && keeping_errno(|| has_ring(|is_seen| !is_seen)) {
        note_hidden_sockets();
    }
}

/// By linux/io_uring.h: the operations that make, wait for or use sockets, or give descriptors a
/// meaning that is not seen.
fn is_about_sockets(code: u8) -> bool {
    const POLL_ADD: u8 = 6;
    const POLL_REMOVE: u8 = 7;
    const SENDMSG: u8 = 9;
    const RECVMSG: u8 = 10;
    const ACCEPT: u8 = 13;
    const CONNECT: u8 = 16;
    const SEND: u8 = 26;
    const RECV: u8 = 27;
    const EPOLL_CTL: u8 = 29;
    const SPLICE: u8 = 30;
    const SHUTDOWN: u8 = 34;
    /// MSG_RING is 40, SOCKET 45, SEND_ZC 47; all later ones are unknown.
    const LATER: u8 = 45;
    let known = [
        POLL_ADD,
        POLL_REMOVE,
        SENDMSG,
        RECVMSG,
        ACCEPT,
        CONNECT,
        SEND,
        RECV,
        EPOLL_CTL,
        SPLICE,
        SHUTDOWN,
    ];
    code >= LATER || known.contains(&code)
}

/// Whether this process may submit operations on sockets where they are not seen.
pub fn may_hide_sockets() -> bool {
    let hides = |is_seen: bool| !is_seen || HAS_SOCKETS.load(Ordering::SeqCst);
    HIDES_SOCKETS.load(Ordering::SeqCst) || keeping_errno(|| has_ring(hides))
}

/// The same for a call that is made for each connection: all descriptors are listed once in [`LOOK_NS`] at most. A ring that
/// liburing makes, or through which the first socket goes, is known at once.
pub fn may_hide_sockets_soon() -> bool {
    static LOOKED_NS: AtomicU64 = AtomicU64::new(0);
    let now = clock::now_ns();
    let is_fresh = now.saturating_sub(LOOKED_NS.load(Ordering::Relaxed)) < LOOK_NS;
    if hides_sockets() || !is_fresh && may_hide_sockets() {
        return true;
    }
    if !is_fresh {
        LOOKED_NS.store(now, Ordering::Relaxed);
    }
    false
}

/// How long rings that no hook has seen may go unnoticed by [`may_hide_sockets_soon`].
const LOOK_NS: u64 = 2_000_000;

/// Whether there is a ring that `which` accepts, which is given whether its submissions are seen.
fn has_ring(which: impl Fn(bool) -> bool) -> bool {
    let is_ring = |fd: i32| {
        std::fs::read_link(format!("/proc/self/fd/{fd}"))
            .is_ok_and(|to| to.as_os_str() == "anon_inode:[io_uring]")
    };
    let seen = SEEN.lock().map(|seen| seen.clone()).unwrap_or_default();
    // A link is read of the kernel's descriptors only: there may be very many of ours.
    let all = numbers::all().unwrap_or_default().into_iter();
    all.filter(|fd| table::is_kernel(*fd))
        .any(|fd| is_ring(fd) && which(seen.contains(&fd)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_not_about_sockets() {
        let of_files = [0, 1, 2, 3, 4, 5, 8, 11, 17, 18, 19, 20, 21, 22, 23, 24, 25];
        assert!(of_files.iter().all(|code| !is_about_sockets(*code)));
        let of_sockets = [6, 9, 10, 13, 16, 26, 27, 29, 34, 45, 46, 47, 200];
        assert!(of_sockets.iter().all(|code| is_about_sockets(*code)));
    }
}
