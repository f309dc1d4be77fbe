//! write and its relatives.

use core::sync::atomic::Ordering;

use bypass_stats::Reason;
use bypass_sys::iovec::Pieces;
use bypass_sys::sandbox::is_confined;
use bypass_sys::signals;

use super::release::{current, keep};
use super::{connect, shadow};
use crate::process::deadline::timeout;
use crate::process::table::{self, Kind};
use crate::process::Outcome;
use crate::stream::{is_nonblocking, Attempt, For, PIECE};
use crate::wait::blocking::block;

/// ONLOAD_MSG_WARM: the send is for the caches only. The kernel's MSG_SYN, which it ignores.
pub(super) const MSG_WARM: i32 = 0x400;

/// write and its relatives.
#[inline]
pub fn write(fd: i32, from: &mut Pieces, flags: i32) -> Outcome {
    let wanted = from.left();
    let mut deadline = None;
    let mut held = None;
    let mut done = 0;
    let opens = flags & libc::MSG_FASTOPEN != 0;
    if let Some(error) = opens.then(|| connect::open_again(fd, flags)).flatten() {
        return Outcome::Error(error);
    }
    loop {
        let stream = match current(fd, &held) {
            Ok(stream) => stream,
            // Connects and writes at once: that is for the kernel.
            Err(Outcome::Error(libc::ENOTCONN)) if is_connecting(fd, flags) => {
                shadow::leave_to_kernel(fd, Reason::Option);
                return Outcome::Kernel;
            }
            Err(Outcome::Error(libc::ENOTCONN)) => return broken_pipe(libc::EPIPE, flags),
            Err(outcome) => {
                return if done > 0 {
                    Outcome::Done(done as isize)
                } else {
                    outcome
                }
            }
        };
        let waits_to_open = opens && stream.socket.is_in_progress();
        if (wanted == 0 && !waits_to_open) || flags & MSG_WARM != 0 {
            let refusal = stream.refusal();
            return refusal.map_or(Outcome::Done(0), |error| broken_pipe(error, flags));
        }
        if done > 0 && stream.is_refusing() {
            // That is for the next call to say.
            return Outcome::Done(done as isize);
        }
        let piece = from.left().min(PIECE);
        let error = match stream.attempt_write(from, flags) {
            Attempt::Done(count) => {
                done += count;
                let is_short = count < piece;
                if done == wanted || (is_short && is_nonblocking(&stream, flags)) {
                    return Outcome::Done(done as isize);
                }
                match keep(&mut held, &stream) {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
            Attempt::Failed(error) => error,
            // It may be decided since: then the write is only tried again.
            Attempt::Undecided if connect::may_wait_for_taker(&stream, For::Room, flags) => {
                connect::await_taker(fd);
                continue;
            }
            Attempt::Undecided => libc::EAGAIN,
            Attempt::Blocked if is_nonblocking(&stream, flags) => libc::EAGAIN,
            Attempt::Blocked => {
                let timeout_ns = stream.socket.send_timeout_ns.load(Ordering::Relaxed);
                let deadline = deadline.get_or_insert_with(|| timeout(timeout_ns));
                let blocked = keep(&mut held, &stream)
                    .and_then(|()| block(&stream, For::Room, deadline, done > 0));
                match blocked {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
        };
        if done > 0 {
            return Outcome::Done(done as isize);
        }
        if opens && error == libc::EAGAIN && stream.socket.is_in_progress() {
            return Outcome::Error(libc::EALREADY);
        }
        if shadow::is_handed_over(fd, error) {
            return Outcome::Kernel;
        }
        let error = match error {
            libc::EBADF if held.is_some() => shadow::after_dissolving(fd, &stream, For::Room),
            error => error,
        };
        return broken_pipe(error, flags);
    }
}

fn is_connecting(fd: i32, flags: i32) -> bool {
    flags & libc::MSG_FASTOPEN != 0 && table::get(fd).kind() == Kind::Unbound
}

/// EPIPE comes with a signal unless the caller does not want it.
pub fn broken_pipe(error: i32, flags: i32) -> Outcome {
    if error == libc::EPIPE && flags & libc::MSG_NOSIGNAL == 0 && !is_confined() {
        signals::raise(libc::SIGPIPE);
    }
    Outcome::Error(error)
}
