//! splice(2) between a connection and a pipe: a copy, in pieces that the pipe takes at once.

use core::sync::atomic::Ordering;
use core::time::Duration;

use bypass_sys::kernel;

use crate::deferral::asleep;
use crate::stream::{self, broken_pipe, Hold, Stream};
use crate::table::{self, Kind};
use crate::wait::{Deadline, For};
use crate::Outcome;

/// A pipe that polls writable takes so many bytes without blocking (PIPE_BUF).
const PIECE: usize = 4096;

/// What one step did.
enum Step {
    Bytes(usize),
    End,
    Blocked,
}

fn is_pipe(fd: i32) -> Result<bool, i32> {
    if !table::is_kernel(fd) {
        return Ok(false);
    }
    kernel::fstat(fd).map(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFIFO)
}

/// Either end may be the connection; the other must be a pipe. Neither has an offset.
pub fn splice(from: i32, to: i32, length: usize, flags: u32, has_offset: bool) -> Outcome {
    if length == 0 {
        return Outcome::Done(0);
    }
    match (is_pipe(from), is_pipe(to)) {
        (Err(error), _) | (_, Err(error)) => Outcome::Error(error),
        (Ok(false), Ok(false)) => Outcome::Error(libc::EINVAL),
        _ if has_offset => Outcome::Error(libc::EINVAL),
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
    match poll_pipe(pipe, events, wait)? {
        0 => Err(libc::EAGAIN),
        _ => Ok(()),
    }
}

fn find(fd: i32) -> Result<Stream, Outcome> {
    match table::get(fd).kind() {
        Kind::Listener => Err(Outcome::Error(libc::EINVAL)),
        _ => stream::find(fd),
    }
}

/// The connection that the call has begun with, also when its number was closed meanwhile.
fn begun(fd: i32, held: &Option<Hold>) -> Result<Stream, Outcome> {
    match held {
        Some(_) => stream::current(fd, held),
        None => find(fd),
    }
}

fn out_of_connection(from: i32, to: i32, length: usize, flags: u32) -> Outcome {
    if let Err(error) = wait_for_pipe(to, libc::POLLOUT, flags) {
        return Outcome::Error(error);
    }
    let (mut done, mut held) = (0, None);
    while done < length {
        let stream = match begun(from, &held) {
            Ok(stream) => stream,
            Err(outcome) => return or_done(done, outcome),
        };
        if done > 0
            && !poll_pipe(to, libc::POLLOUT, Some(Duration::ZERO))
                .is_ok_and(|r| r & libc::POLLOUT != 0)
        {
            break;
        }
        match stream.reading(|| move_out(&stream, to, length - done)) {
            Ok(Step::Bytes(count)) => done += count,
            Ok(Step::End) => break,
            Ok(Step::Blocked) if done > 0 => break,
            Ok(Step::Blocked) if flags & libc::SPLICE_F_NONBLOCK != 0 => {
                return Outcome::Error(libc::EAGAIN)
            }
            Ok(Step::Blocked) => {
                let timeout_ns = stream.socket.receive_timeout_ns.load(Ordering::Relaxed);
                held.get_or_insert_with(|| Hold::take(stream));
                if let Err(error) = wait(&stream, For::Bytes, timeout_ns) {
                    return Outcome::Error(error);
                }
            }
            Err(error) => return or_done(done, Outcome::Error(error)),
        }
    }
    Outcome::Done(done as isize)
}

fn or_done(done: usize, outcome: Outcome) -> Outcome {
    if done > 0 {
        Outcome::Done(done as isize)
    } else {
        outcome
    }
}

fn wait(stream: &Stream, what: For, timeout_ns: u64) -> Result<(), i32> {
    if stream::is_nonblocking(stream, 0) {
        return Err(libc::EAGAIN);
    }
    let after = (timeout_ns > 0).then(|| Duration::from_nanos(timeout_ns));
    stream.block(what, Deadline::after(after))
}

/// Writes a piece into the pipe and frees what the pipe took. The reader's lock is held.
fn move_out(stream: &Stream, pipe: i32, wanted: usize) -> Result<Step, i32> {
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
    let count = crate::sys::peek_into(&ring, room)
        .map_err(broken)?
        .min(limit);
    if count == 0 {
        return stream
            .end_of_reading(ends)
            .map(|is_over| if is_over { Step::End } else { Step::Blocked });
    }
    let taken = kernel::write(pipe, &bytes[..count])?;
    ring.discard(taken);
    stream.has_read(taken);
    Ok(Step::Bytes(taken))
}

fn into_connection(from: i32, to: i32, length: usize, flags: u32) -> Outcome {
    let (mut done, mut held) = (0, None);
    while done < length {
        let ready = if done == 0 {
            wait_for_pipe(from, libc::POLLIN, flags)
        } else {
            poll_pipe(from, libc::POLLIN, Some(Duration::ZERO)).and_then(|events| {
                if events & libc::POLLIN != 0 {
                    Ok(())
                } else {
                    Err(libc::EAGAIN)
                }
            })
        };
        if let Err(error) = ready {
            return or_done(done, Outcome::Error(error));
        }
        let stream = match begun(to, &held) {
            Ok(stream) => stream,
            Err(Outcome::Error(libc::ENOTCONN)) => return broken_pipe(libc::EPIPE, 0),
            Err(outcome) => return or_done(done, outcome),
        };
        match stream.writing(|| move_in(&stream, from, length - done)) {
            Ok(Step::Bytes(count)) => done += count,
            Ok(Step::End) => break,
            Ok(Step::Blocked) => {
                let timeout_ns = stream.socket.send_timeout_ns.load(Ordering::Relaxed);
                held.get_or_insert_with(|| Hold::take(stream));
                if let Err(error) = wait(&stream, For::Room, timeout_ns) {
                    return or_done(done, Outcome::Error(error));
                }
            }
            Err(error) if done > 0 && error != libc::EPIPE => return Outcome::Done(done as isize),
            Err(error) => return broken_pipe(error, 0),
        }
    }
    Outcome::Done(done as isize)
}

/// Reads from the pipe into free ring space. The writer's lock is held.
fn move_in(stream: &Stream, pipe: i32, wanted: usize) -> Result<Step, i32> {
    if stream.check_writable()?.is_some() {
        let mut bytes = [0u8; PIECE];
        let lost = kernel::read(pipe, &mut bytes[..wanted.min(PIECE)])?;
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
    let count = crate::sys::read_pipe(pipe, at, room)?;
    if count == 0 {
        return Ok(Step::End);
    }
    ring.filled(count);
    stream.publish(count);
    Ok(Step::Bytes(count))
}
