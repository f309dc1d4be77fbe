//! recv with MSG_PEEK and MSG_WAITALL: waits until all is there, and takes nothing.

use core::time::Duration;

use core::sync::atomic::Ordering;

use bypass_shm::layout::UNREAD_MAX;
use bypass_sys::iovec::Pieces;

use crate::process::deadline::timeout;
use crate::sockets;
use crate::stream::{For, Stream};
use crate::wait::sleep_on;

/// What is there once it is enough, over, or too late. More than the ring holds is not waited for.
pub fn peek_all(
    stream: &Stream,
    to: &mut Pieces,
    flags: i32,
    is_nonblocking: bool,
) -> Result<usize, i32> {
    let wanted = to.left().min(UNREAD_MAX);
    let there = || stream.inbound().available(wanted).unwrap_or(usize::MAX);
    let enough =
        || there() >= wanted || stream.inbound_ends() != 0 || stream.is_shut(sockets::SHUT_READ);
    let timeout_ns = stream.socket.receive_timeout_ns.load(Ordering::Relaxed);
    let mut deadline = timeout(timeout_ns);
    let peer = stream.socket.share_peer().ok_or(libc::EBADF)?;
    while !enough() && !is_nonblocking {
        if there() == 0 {
            deadline.begin_again();
        }
        let is_interrupted = || deadline.is_interrupted_after(there() > 0);
        let result = match sleep_on(&peer, stream.slot, For::Bytes, deadline, enough) {
            // The handler wants the call to go on.
            Err(libc::EINTR) if !is_interrupted() => Ok(()),
            other => other,
        };
        if result.is_err() || deadline.left() == Some(Duration::ZERO) {
            if there() == 0 {
                return Err(result.err().unwrap_or(libc::EAGAIN));
            }
            break;
        }
    }
    let (is_empty, ends) = (to.left() == 0, stream.inbound_ends());
    let peek = || {
        let peeked = stream.peek_bytes(stream.inbound(), to, flags);
        peeked.map_err(|_| libc::ECONNRESET)
    };
    match stream.reading(peek)? {
        0 if !is_empty && !stream.end_of_reading(ends)? => Err(libc::EAGAIN),
        count => Ok(count),
    }
}
