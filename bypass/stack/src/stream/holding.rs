//! Announcements that are held back: a server that writes a header and then sends a file notifies the
//! other side once, with the file.
//!
//! The bytes are published as always, and named in the ready list, where a reader finds them that has
//! nothing else to do or is about to sleep (`bypass_shm::doorbell`). What is held back is the ready flag
//! that interrupts a busy one: until this thread's next call on a socket, whichever it is. Only the
//! one thread that uses sockets does this, so a process has one such announcement at most.

use core::sync::atomic::Ordering;

use bypass_shm::layout::MASKED;

use super::{of_socket, For, Right, Stream};
use crate::sockets;
use bypass_sys::thread::thread;

/// Announces what this thread has held back. For calls after which it may not come back soon.
#[inline]
pub fn announce_held_back() {
    let name = thread().held_back.load(Ordering::Relaxed);
    if name != 0 {
        announce(name);
    }
}

/// The write that was expected to follow has not come.
fn announce(name: u64) {
    thread().held_back.store(0, Ordering::Relaxed);
    let Some(stream) = named(name) else {
        // Closed meanwhile: its end has been announced.
        return;
    };
    stream.socket.sends_files.store(0, Ordering::Relaxed);
    // Fails where it was closed just now.
    if let Ok(_right) = stream.lock(For::Room) {
        stream.hold_no_more();
        stream.announce();
    }
}

/// Number of the socket object in a name.
pub fn index_of(name: u64) -> usize {
    (name as u32).wrapping_sub(1) as usize
}

/// The connection of that name, if it still is one.
pub fn named(name: u64) -> Option<Stream> {
    of_socket(index_of(name)).filter(|stream| stream.name() == name)
}

impl Stream {
    /// Names this life of the socket; never 0.
    pub fn name(&self) -> u64 {
        u64::from(self.life) << 32 | (self.index as u64 + 1)
    }

    /// Before a call that may write here: what is held back elsewhere is announced.
    #[inline]
    pub fn announce_others(&self) {
        let name = thread().held_back.load(Ordering::Relaxed);
        if name != 0 && name != self.name() {
            announce(name);
        }
    }

    /// Whether more is to follow at once what a call with these flags writes.
    #[inline]
    pub(super) fn expects_more(&self, flags: i32) -> bool {
        self.socket.sends_files.load(Ordering::Relaxed) != 0
            || flags & libc::MSG_MORE != 0
            || self.socket.has(sockets::CORK)
    }

    /// Instead of an announcement; false when it must not wait. `right` is the writer's.
    pub(super) fn hold_back(&self, right: &Right) -> bool {
        if !matches!(right, Right::Sole(_)) || thread().held_back.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let (other, segment) = (1 - self.peer.side, &self.peer.segment);
        let meta = &segment.slot(self.slot).meta;
        let ready_list = meta.ready_list[other].load(Ordering::Acquire);
        let Some(index) = (ready_list as usize).checked_sub(1) else {
            return false;
        };
        let process = self.peer.process_index();
        if process >= MASKED {
            return false;
        }
        let fenced = segment.is_fenced(other);
        let is_asleep = segment
            .ready_list(other, index)
            .hold_back(self.slot, process, fenced);
        // Behind the fence: who has moved to another ready list, or waits for this connection alone,
        // either sees the bytes or is seen here.
        let has_moved = meta.ready_list[other].load(Ordering::Acquire) != ready_list;
        let is_awaited = meta.sleeper_read[other].load(Ordering::Relaxed) != 0;
        if is_asleep || has_moved || is_awaited {
            self.hold_no_more();
            return false;
        }
        thread().held_back.store(self.name(), Ordering::Relaxed);
        true
    }

    fn hold_no_more(&self) {
        let other = 1 - self.peer.side;
        let segment = &self.peer.segment;
        let ready_list = segment.slot(self.slot).meta.ready_list[other].load(Ordering::Relaxed);
        // In a former ready list it is left to the reader, for which it rings spuriously.
        if let Some(index) = (ready_list as usize).checked_sub(1) {
            let process = self.peer.process_index();
            segment.ready_list(other, index).hold_no_more(process);
        }
    }

    /// Before this connection's announcement, which then counts for what was held back too.
    #[inline]
    pub(super) fn take_held_back(&self) {
        if thread().held_back.load(Ordering::Relaxed) == self.name() {
            thread().held_back.store(0, Ordering::Relaxed);
            self.hold_no_more();
        }
    }
}
