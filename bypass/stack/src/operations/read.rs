//! read and its relatives.

use core::sync::atomic::Ordering;

use bypass_sys::iovec::Pieces;

use super::release::{current, keep, Hold};
use super::{connect, peek, shadow};
use crate::process::deadline::timeout;
use crate::process::{table, Outcome};
use crate::stream::{is_nonblocking, urgent, Attempt, For};
use crate::wait::blocking::block;

const PEEK_ALL: i32 = libc::MSG_PEEK | libc::MSG_WAITALL;

#[cold]
fn peek_all(fd: i32, to: &mut Pieces, flags: i32) -> Outcome {
    let stream = match connect::find_decided(fd, For::Bytes) {
        Ok(stream) => stream,
        Err(outcome) => return outcome,
    };
    let Some(_held) = Hold::take(stream) else {
        return shadow::closed_or_kernel(fd);
    };
    match peek::peek_all(&stream, to, flags, is_nonblocking(&stream, flags)) {
        Err(error) if shadow::is_handed_over(fd, error) => Outcome::Kernel,
        other => other.into(),
    }
}

/// read and its relatives.
#[inline]
pub fn read(fd: i32, to: &mut Pieces, flags: i32) -> Outcome {
    if flags & libc::MSG_ERRQUEUE != 0 && table::is_socket(fd) {
        return Outcome::Error(libc::EAGAIN);
    }
    if flags & libc::MSG_OOB != 0 && !table::is_kernel(fd) {
        return urgent::receive(fd, to, flags);
    }
    let wanted = to.left();
    if flags & PEEK_ALL == PEEK_ALL && wanted > 0 {
        return peek_all(fd, to, flags);
    }
    let mut deadline = None;
    let mut held = None;
    let mut done = 0;
    loop {
        let stream = match current(fd, &held) {
            Ok(stream) => stream,
            Err(outcome) => {
                return if done > 0 {
                    Outcome::Done(done as isize)
                } else {
                    outcome
                }
            }
        };
        // As in the kernel, recv of no bytes may wait for some, and leaves them.
        if wanted == 0 && stream.has_bytes() {
            return Outcome::Done(0);
        }
        let error = match stream.attempt_read(to, flags) {
            Attempt::Done(count) => {
                done += count;
                let is_enough = done == wanted || count == 0 || flags & libc::MSG_PEEK != 0;
                if is_enough || done >= stream.target(flags, wanted) {
                    return Outcome::Done(done as isize);
                }
                match keep(&mut held, &stream) {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
            Attempt::Failed(error) => error,
            Attempt::Blocked | Attempt::Undecided if is_nonblocking(&stream, flags) => libc::EAGAIN,
            Attempt::Blocked | Attempt::Undecided => {
                let timeout_ns = stream.socket.receive_timeout_ns.load(Ordering::Relaxed);
                let deadline = deadline.get_or_insert_with(|| timeout(timeout_ns));
                let blocked = keep(&mut held, &stream)
                    .and_then(|()| block(&stream, For::Bytes, deadline, done > 0));
                match blocked {
                    // As in the kernel, which looks no further once it has waited.
                    _ if wanted == 0 => return Outcome::Done(0),
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
        };
        return match error {
            _ if done > 0 => Outcome::Done(done as isize),
            _ if shadow::is_handed_over(fd, error) => Outcome::Kernel,
            libc::EBADF if held.is_some() => {
                Outcome::Error(shadow::after_dissolving(fd, &stream, For::Bytes))
            }
            _ => Outcome::Error(error),
        };
    }
}
