//! How a thread waits for a connection: it is rung from every segment, and by the kernel.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use bypass_stats::Counter;

use super::Listener;
use crate::deferral::asleep;
use crate::peer::Peer;
use crate::wait::{self, Borrowed, Deadline};
use crate::{packets, process, service};

/// Waking places of one thread at all segments of a listener.
pub struct Lanes(Vec<(Arc<Peer>, usize)>);

impl Lanes {
    /// Nowhere.
    pub fn none() -> Self {
        Self(Vec::new())
    }

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

/// Until a connection may wait, EAGAIN at the timeout, EINTR after a signal.
pub(super) fn block(listener: &Listener, fd: i32, deadline: Deadline) -> Result<(), i32> {
    service::ensure();
    packets::ensure();
    packets::drive();
    let settings = process::settings();
    let spin_ns = if settings.tcp_accept_spin {
        settings.spin_usec * 1000
    } else {
        0
    };
    if wait::spin(spin_ns, deadline, || listener.has_waiting()) {
        return Ok(());
    }
    if deadline.is_interrupted() {
        return Err(libc::EINTR);
    }
    if deadline.left() == Some(core::time::Duration::ZERO) {
        return Err(libc::EAGAIN);
    }
    // Without a descriptor for a waker we look again soon: accept has one of its own to ask for.
    let waker = Borrowed::take().unwrap_or_else(|_| Borrowed::none());
    let _blocked = Blocked::register(listener, waker.number());
    let (_lanes, is_complete) = if waker.is_none() {
        (Lanes::none(), false)
    } else {
        Lanes::take(listener, waker.number())
    };
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
    match asleep(|| packets::poll(&mut fds, wait::shorter(deadline.left(), bound), None)) {
        // The handler wants the call to go on.
        Err(libc::EINTR) if !deadline.is_interrupted() => Ok(()),
        other => other.map(|_| ()),
    }
}
