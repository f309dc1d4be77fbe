//! Sockets that several processes hold keep their flags where all of these processes read them.

use core::sync::atomic::Ordering;

use crate::operations::shadow;
use crate::process::sole;
use crate::process::table::{self, Entry, Kind};
use crate::{sockets, stream};

/// Another process will hold the connection too: what it does to it concerns the same file.
pub fn share(index: usize, socket: &sockets::Socket) {
    sole::end_unless_ours();
    // The child holds the kernel socket behind it as well: it must not be reused for another socket.
    socket.set(sockets::DIRTY, true);
    if socket.descriptors.load(Ordering::Relaxed) == 0 || socket.has(sockets::SHARED) {
        return;
    }
    if let Some(stream) = stream::of_socket(index) {
        stream.begin_sharing();
    }
}

/// Before [`share`], of each descriptor: O_NONBLOCK belongs to the file, so from then on it is the shadow's.
pub fn share_flags(fd: i32) {
    let entry = table::get(fd);
    let socket = sockets::get(entry.index());
    let is_first = entry.kind() == Kind::Connected && !socket.has(sockets::SHARED);
    let is_nonblocking = socket.has(sockets::NONBLOCK);
    // A shadow that is not clean may have had the flag before the socket was connected.
    if is_first && (is_nonblocking || socket.has(sockets::DIRTY)) {
        shadow::set_nonblocking(fd, is_nonblocking);
    }
}

/// The kernel also keeps the flags of listeners; accept reads them there before it would block. By the sockets: a number
/// may be about to be closed.
pub fn share_listeners() {
    sockets::each(|_, socket| {
        if socket.has(sockets::LISTENING) {
            socket.set(sockets::SHARED, true);
        }
    });
}

/// Another process will hold the listener behind `entry` too.
pub fn share_listener(entry: Entry) {
    let socket = sockets::get(entry.index());
    if entry.kind() == Kind::Listener {
        socket.set(sockets::SHARED, true);
    }
}
