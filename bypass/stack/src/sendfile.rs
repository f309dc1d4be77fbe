//! sendfile(2) into a connection: the file is read straight into the ring.

use core::sync::atomic::Ordering;

use bypass_sys::kernel;

use crate::content::Content;
use crate::stream::{self, broken_pipe, Hold};
use crate::wait::For;
use crate::{content, lending, Outcome};

/// Most that one call moves, as in the kernel.
const CALL_BYTES_MAX: usize = 0x7fff_f000;

/// Sends up to `count` bytes of `file` from `offset` on; returns how many were sent.
pub fn send(socket: i32, file: i32, offset: i64, count: usize) -> Outcome {
    let content = if offset >= 0 {
        content::take(file)
    } else {
        None
    };
    let outcome = send_from(content.as_deref(), socket, file, offset, count);
    if let Some(content) = content {
        content::give_back(file, content);
    }
    outcome
}

fn send_from(
    content: Option<&Content>,
    socket: i32,
    file: i32,
    offset: i64,
    count: usize,
) -> Outcome {
    let wanted = count.min(CALL_BYTES_MAX);
    let mut done = 0usize;
    let mut deadline = None;
    let mut held = None;
    while done < wanted {
        let stream = match stream::current(socket, &held) {
            Ok(stream) => stream,
            Err(outcome) => {
                return if done > 0 {
                    Outcome::Done(done as isize)
                } else {
                    outcome
                }
            }
        };
        let at = offset + done as i64;
        stream.announce_others();
        let attempt = stream.writing(|| match content {
            Some(content) => copy(&stream, content, at, wanted - done),
            None => fill(&stream, file, at, wanted - done),
        });
        let error = match attempt {
            Ok(Filled::Bytes(count)) => {
                stream.socket.sends_files.store(1, Ordering::Relaxed);
                done += count;
                continue;
            }
            Ok(Filled::End) => break,
            Ok(Filled::Full) if stream::is_nonblocking(&stream, 0) => libc::EAGAIN,
            Ok(Filled::Full) => {
                let timeout_ns = stream.socket.send_timeout_ns.load(Ordering::Relaxed);
                let deadline = *deadline.get_or_insert_with(|| stream::timeout(timeout_ns));
                // Closed by another thread meanwhile: the call goes on with what it began.
                held.get_or_insert_with(|| Hold::take(stream));
                match stream.block(For::Room, deadline) {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        return if done > 0 {
            Outcome::Done(done as isize)
        } else {
            broken_pipe(error, 0)
        };
    }
    Outcome::Done(done as isize)
}

enum Filled {
    Bytes(usize),
    Full,
    End,
}

/// How many of `count` bytes go to a peer that has closed, before its reset is known: what a buffer
/// holds, and not the whole of a large file.
fn vanishing(stream: &stream::Stream, count: usize) -> usize {
    count.min(stream.outbound().size())
}

/// Copies from a file's content under the writer's lock.
fn copy(
    stream: &stream::Stream,
    content: &Content,
    offset: i64,
    wanted: usize,
) -> Result<Filled, i32> {
    let rest = content.bytes.get(offset as usize..).unwrap_or_default();
    let rest = &rest[..rest.len().min(wanted)];
    if stream.check_writable()?.is_some() {
        return Ok(Filled::Bytes(vanishing(stream, rest.len())));
    }
    if rest.is_empty() {
        return Ok(Filled::End);
    }
    stream.peer.expect_ringing(stream.slot);
    if lending::send(stream, content, offset as usize, rest.len()) {
        stream.publish(rest.len());
        return Ok(Filled::Bytes(rest.len()));
    }
    let ring = stream.outbound();
    let broken = |_| libc::ECONNRESET;
    let mut pushed = ring.push_slice(rest).map_err(broken)?;
    if pushed < rest.len() {
        ring.want_space();
        pushed += ring.push_slice(&rest[pushed..]).map_err(broken)?;
    }
    if pushed == 0 {
        return Ok(Filled::Full);
    }
    stream.publish(pushed);
    Ok(Filled::Bytes(pushed))
}

/// Reads into free ring space under the writer's lock.
fn fill(stream: &stream::Stream, file: i32, offset: i64, wanted: usize) -> Result<Filled, i32> {
    if stream.check_writable()?.is_some() {
        let size = kernel::fstat(file).map_or(i64::MAX, |stat| stat.st_size);
        let left = size.saturating_sub(offset).max(0) as usize;
        return Ok(match vanishing(stream, wanted.min(left)) {
            0 => Filled::End,
            count => Filled::Bytes(count),
        });
    }
    let ring = stream.outbound();
    let (at, room) = stream.hole(wanted)?;
    if room == 0 {
        return Ok(Filled::Full);
    }
    if room < wanted {
        ring.announce_want();
    }
    let count = crate::sys::read_file(file, at, room, offset)?;
    if count == 0 {
        return Ok(Filled::End);
    }
    ring.filled(count);
    stream.publish(count);
    Ok(Filled::Bytes(count))
}

/// The position of a file, for calls without an offset.
pub fn position(file: i32) -> Result<i64, i32> {
    kernel::seek(file, 0, libc::SEEK_CUR)
}

/// Moves the position of a file.
pub fn set_position(file: i32, offset: i64) -> Result<i64, i32> {
    kernel::seek(file, offset, libc::SEEK_SET)
}
