//! Zero-copy shares: a file that is sent again and again over the same segment is mapped by the other side
//! once; afterwards a few words in the ring's place stand for its bytes. As with sendfile in the
//! kernel, the reader's copy is then the only one.
//!
//! Only whole files are shared: a process that gets the memory could read all of it, so it must be what it
//! is being sent anyway. Until the other side says that it has mapped a content, bytes are copied.

use core::sync::atomic::Ordering;

use bypass_shm::link::Message;

use super::content::Content;
use super::Stream;
use crate::service;

/// Instead of a number: sent so often, not shared yet.
const COUNTING: u64 = 1 << 16;
/// Sends before a content is shared.
const SENDS_MIN: u64 = 2;
/// Smaller contents are copied: the words of a zero-copy share cost as much.
const BYTES_MIN: usize = 512;

/// Sends `length` bytes of a content from `offset` on as a zero-copy share; false when they must be copied.
/// The writer's lock is held.
#[inline]
pub fn send(stream: &Stream, content: &Content, offset: usize, length: usize) -> bool {
    // A mark in the stream (MSG_OOB) counts bytes of the ring only.
    if length < BYTES_MIN || stream.peer.side == 0 || stream.has_sent_urgent() {
        return false;
    }
    let known = stream.peer.lent.place(content.id).load(Ordering::Relaxed);
    if known >> 32 != u64::from(content.id) || known & COUNTING != 0 {
        let is_whole = offset == 0 && length == content.bytes.len();
        if is_whole {
            consider(stream, content, known);
        }
        return false;
    }
    let number = known as u32;
    let segment = &stream.peer.segment;
    segment.is_borrowed(stream.slot, stream.peer.side, number)
        && stream.outbound().lend(number, offset as u32, length as u32)
}

/// Counts a whole sending; shares the content when it is sent often.
#[cold]
fn consider(stream: &Stream, content: &Content, known: u64) {
    let place = stream.peer.lent.place(content.id);
    let identity = u64::from(content.id) << 32;
    let sends = if known >> 32 == u64::from(content.id) {
        known & (COUNTING - 1)
    } else {
        0
    };
    if sends < SENDS_MIN {
        place.store(identity | COUNTING | (sends + 1), Ordering::Relaxed);
        return;
    }
    // Counted to the end: not tried again, unless another content takes the place.
    place.store(identity | COUNTING | (COUNTING - 1), Ordering::Relaxed);
    if sends > SENDS_MIN {
        return;
    }
    let Some(number) = stream.peer.segment.number_for_loan(stream.peer.side) else {
        return;
    };
    let Some(memory) = content.share() else {
        return;
    };
    let message = Message::Lend {
        number: u64::from(number),
    };
    service::tell_other_side(stream.peer, message, memory.fd());
    place.store(identity | u64::from(number), Ordering::Relaxed);
}
