//! What several processes hold has its flags where all of them look.

use core::sync::atomic::Ordering;

use crate::listener;
use crate::process::sole;
use crate::process::table::{self, Entry};
use crate::{sockets, stream};

/// O_NONBLOCK belongs to the file, which the child will hold too: from now on it is where both look.
pub fn share_flags(index: usize, socket: &sockets::Socket) {
    sole::end_unless_ours();
    // The kernel's socket behind it is the child's as well: it is nobody's next socket.
    socket.set(sockets::DIRTY, true);
    if socket.descriptors.load(Ordering::Relaxed) == 0 || socket.has(sockets::SHARED) {
        return;
    }
    let is_nonblocking = socket.has(sockets::NONBLOCK);
    if let Some(stream) = stream::of_socket(index) {
        let shut = socket.flags.load(Ordering::Relaxed) & sockets::SHUT;
        let value = if is_nonblocking {
            libc::O_NONBLOCK as u32 | shut
        } else {
            shut
        };
        stream.shared_flags().store(value, Ordering::SeqCst);
        socket.set(sockets::SHARED, true);
    }
}

/// For listeners it is in the kernel, which accept asks before it would block.
pub fn share_listeners() {
    for listener in listener::all() {
        share_listener(table::get(listener.fd.load(Ordering::Relaxed)));
    }
}

/// Another process will hold the listener behind `entry` too.
pub fn share_listener(entry: Entry) {
    let socket = sockets::get(entry.index());
    if entry.kind() == table::Kind::Listener {
        socket.set(sockets::SHARED, true);
    }
}
