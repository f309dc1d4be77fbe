//! splice(2) between a connection and a pipe: a copy, in pieces that the pipe takes at once.

use core::sync::atomic::Ordering;
use core::time::Duration;

use bypass_sys::kernel;

use super::connect::find_decided;
use super::release::Hold;
use super::shadow::{closed_or_kernel, is_handed_over};
use super::write::broken_pipe;
use crate::process::deadline::{timeout, Deadline};
use crate::process::deferral::asleep;
use crate::process::table;
use crate::process::Outcome;
use crate::sockets;
use crate::stream::{self, By, For, Stream};
use crate::sys;
use crate::wait::blocking::block;

/// A pipe that polls writable takes so many bytes without blocking (PIPE_BUF).
const PIECE: usize = 4096;

/// All that there are (SPLICE_F_ALL of linux/splice.h).
const FLAGS: u32 =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

/// The result of one step.
enum Step {
    Bytes(usize),
    End,
    Blocked,
}

/// Whether it is a pipe.
pub fn is_pipe(fd: i32) -> Result<bool, i32> {
    if !table::is_kernel(fd) {
        return Ok(false);
    }
    kernel::fstat(fd).map(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFIFO)
}

/// Either end may be the connection; the other must be a pipe. Neither has an offset: which of them `has_offset` decides
/// what is said.
pub fn splice(from: i32, to: i32, length: usize, flags: u32, has_offset: [bool; 2]) -> Outcome {
    if length == 0 {
        return Outcome::Done(0);
    }
    if flags & !FLAGS != 0 {
        return Outcome::Error(libc::EINVAL);
    }
    match (is_pipe(from), is_pipe(to)) {
        (Err(error), _) | (_, Err(error)) => Outcome::Error(error),
        (Ok(true), _) if has_offset[0] => Outcome::Error(libc::ESPIPE),
        (_, Ok(true)) if has_offset[1] => Outcome::Error(libc::ESPIPE),
        (Ok(false), Ok(false)) => Outcome::Error(libc::EINVAL),
        _ if has_offset != [false; 2] => Outcome::Error(libc::EINVAL),
        (Ok(true), _) => into_connection(from, to, length, flags),
        _ => out_of_connection(from, to, length, flags),
    }
}

fn poll_pipe(pipe: i32, events: i16, wait: Option<Duration>) -> Result<i16, i32> {
    let mut one = [libc::pollfd {
        fd: pipe,
        events,
        revents: 0,
    }];
    asleep(|| kernel::poll(&mut one, wait, None).map(|_| one[0].revents))
}

/// Waits until the pipe can be used; EAGAIN when the call may not wait.
fn wait_for_pipe(pipe: i32, events: i16, flags: u32) -> Result<(), i32> {
    let own = kernel::fcntl(pipe, libc::F_GETFL, 0)? as i32;
    let may_wait = own & libc::O_NONBLOCK == 0 && flags & libc::SPLICE_F_NONBLOCK == 0;
    let wait = if may_wait { None } else { Some(Duration::ZERO) };
    let whole = Deadline::after(None);
    loop {
        match poll_pipe(pipe, events, wait) {
            // The handler wants the call to go on.
            Err(libc::EINTR) if !whole.is_interrupted() => {}
            Ok(0) => return Err(libc::EAGAIN),
            other => return other.map(drop),
        }
    }
}

fn out_of_connection(from: i32, to: i32, length: usize, flags: u32) -> Outcome {
    let stream = match find_decided(from, For::Bytes) {
        Ok(stream) => stream,
        Err(outcome) => return outcome,
    };
    // The descriptor may be closed, and mean another connection, while this waits.
    let Some(_held) = Hold::take(stream) else {
        return closed_or_kernel(from);
    };
    if let Err(error) = wait_for_pipe(to, libc::POLLOUT, flags) {
        return Outcome::Error(error);
    }
    let mut done = 0;
    let mut deadline = None;
    while done < length {
        if done > 0 && !is_ready(to, libc::POLLOUT) {
            break;
        }
        let error = match stream.reading(|| move_out(&stream, to, length - done)) {
            Ok(Step::Bytes(count)) => {
                done += count;
                continue;
            }
            Ok(Step::End) => break,
            Ok(Step::Blocked) if done > 0 => break,
            Ok(Step::Blocked) => {
                let timeout_ns = stream.socket.receive_timeout_ns.load(Ordering::Relaxed);
                match wait(&stream, For::Bytes, timeout_ns, (&mut deadline, false)) {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
            // Somebody else has filled the pipe since it was looked at.
            Err(libc::EAGAIN) => match wait_for_pipe(to, libc::POLLOUT, flags) {
                Ok(()) => continue,
                Err(error) => error,
            },
            Err(error) => error,
        };
        return match done {
            0 if is_handed_over(from, error) => Outcome::Kernel,
            _ => or_done(done, Outcome::Error(error)),
        };
    }
    Outcome::Done(done as isize)
}

fn is_ready(pipe: i32, events: i16) -> bool {
    poll_pipe(pipe, events, Some(Duration::ZERO)).is_ok_and(|found| found & events != 0)
}

fn or_done(done: usize, outcome: Outcome) -> Outcome {
    if done > 0 {
        Outcome::Done(done as isize)
    } else {
        outcome
    }
}

/// One wait of a call, which may have moved a part; its first has begun its time.
fn wait(
    stream: &Stream,
    what: For,
    timeout_ns: u64,
    (deadline, has_moved): (&mut Option<Deadline>, bool),
) -> Result<(), i32> {
    if stream::is_nonblocking(stream, 0) {
        return Err(libc::EAGAIN);
    }
    let deadline = deadline.get_or_insert_with(|| timeout(timeout_ns));
    block(stream, what, deadline, has_moved)
}

/// Writes a piece into the pipe and frees what the pipe took. The reader's lock is held.
fn move_out(stream: &Stream, pipe: i32, wanted: usize) -> Result<Step, i32> {
    if stream.socket.is_undecided() {
        return Ok(match stream.is_shut(sockets::SHUT_READ) {
            true => Step::End,
            false => Step::Blocked,
        });
    }
    let ring = stream.inbound();
    let mut bytes = [0u8; PIECE];
    let broken = |_| libc::ECONNRESET;
    let mut limit = usize::MAX;
    if stream.was_urgent() {
        limit = stream.pass_urgent(&ring).map_err(broken)?;
    }
    let room = &mut bytes[..wanted.min(PIECE)];
    // Before the look for bytes, behind which it may come.
    let ends = stream.inbound_ends();
    let count = sys::peek_into(&ring, room).map_err(broken)?.min(limit);
    if count == 0 {
        return stream
            .end_of_reading(ends)
            .map(|is_over| if is_over { Step::End } else { Step::Blocked });
    }
    let taken = sys::write_now(pipe, &bytes[..count])?;
    ring.discard(taken);
    stream.show_bytes(By::Peer, &bytes[..taken]);
    stream.has_read(taken);
    Ok(Step::Bytes(taken))
}

fn into_connection(from: i32, to: i32, length: usize, flags: u32) -> Outcome {
    let stream = match find_decided(to, For::Room) {
        Ok(stream) => stream,
        Err(Outcome::Error(libc::ENOTCONN)) => return broken_pipe(libc::EPIPE, 0),
        Err(outcome) => return outcome,
    };
    let Some(_held) = Hold::take(stream) else {
        return closed_or_kernel(to);
    };
    if let Err(error) = wait_for_pipe(from, libc::POLLIN, flags) {
        return Outcome::Error(error);
    }
    let mut done = 0;
    let mut deadline = None;
    while done < length && (done == 0 || is_ready(from, libc::POLLIN)) {
        let error = match stream.writing(|| move_in(&stream, from, length - done)) {
            Ok(Step::Bytes(count)) => {
                done += count;
                continue;
            }
            Ok(Step::End) => break,
            Ok(Step::Blocked) => {
                let timeout_ns = stream.socket.send_timeout_ns.load(Ordering::Relaxed);
                match wait(&stream, For::Room, timeout_ns, (&mut deadline, done > 0)) {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
            // Somebody else has emptied the pipe since it was looked at.
            Err(libc::EAGAIN) if done == 0 => match wait_for_pipe(from, libc::POLLIN, flags) {
                Ok(()) => continue,
                Err(error) => error,
            },
            Err(error) => error,
        };
        if done > 0 && error != libc::EPIPE {
            break;
        }
        if is_handed_over(to, error) {
            return Outcome::Kernel;
        }
        return broken_pipe(error, 0);
    }
    Outcome::Done(done as isize)
}

/// Reads from the pipe into free ring space. The writer's lock is held.
fn move_in(stream: &Stream, pipe: i32, wanted: usize) -> Result<Step, i32> {
    let vanishes = match stream.check_writable() {
        // The connection, not the pipe: connect is under way.
        Err(libc::EAGAIN) => return Ok(Step::Blocked),
        other => other?.is_some(),
    };
    if vanishes {
        let mut bytes = [0u8; PIECE];
        let room = wanted.min(PIECE);
        let lost = sys::read_now(pipe, bytes.as_mut_ptr(), room)?;
        return Ok(if lost == 0 {
            Step::End
        } else {
            Step::Bytes(lost)
        });
    }
    let ring = stream.outbound();
    let (at, room) = stream.hole(wanted)?;
    if room == 0 {
        return Ok(Step::Blocked);
    }
    let count = sys::read_now(pipe, at, room)?;
    if count == 0 {
        return Ok(Step::End);
    }
    stream.show_bytes(By::Us, sys::filled(at, count));
    ring.filled(count);
    stream.publish(count);
    Ok(Step::Bytes(count))
}
