//! sendfile(2) into a connection: the file is read straight into the ring where its pages are in memory, and
//! into a separate buffer, with nothing locked, where a read may have to wait for a disk.

use core::sync::atomic::Ordering;

use bypass_sys::kernel;

use super::connect::find_decided;
use super::release::{keep, Hold};
use super::shadow::is_handed_over;
use super::write::broken_pipe;
use crate::process::deadline::{timeout, Deadline};
use crate::process::deferral::asleep;
use crate::process::Outcome;
use crate::stream::content::{self, Content};
use crate::stream::{self, lend, By, For, Stream};
use crate::sys;
use crate::wait::blocking::block;

/// Most that one call moves, as in the kernel.
const CALL_BYTES_MAX: usize = 0x7fff_f000;
/// Read in one step: the reader of a long file begins while the rest is read.
const STEP: usize = 128 << 10;

/// Where the bytes come from.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// Memory of ours with the whole file.
    Content(&'a Content),
    /// A file whose size the kernel knows.
    File(i32),
    /// Something else: only splice(2) shows whether it can be read, and what.
    Other(i32),
}

impl Source<'_> {
    fn of(file: i32) -> Result<Self, i32> {
        let stat = kernel::fstat(file)?;
        let is_regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        Ok(if is_regular && stat.st_size > 0 {
            Self::File(file)
        } else {
            Self::Other(file)
        })
    }

    /// Reads up to a step's bytes from `offset` on; may wait for them.
    fn read(self, bytes: &mut Vec<u8>, offset: i64, wanted: usize) -> Result<(), i32> {
        bytes.resize(wanted.min(STEP), 0);
        let wait = Deadline::after(None);
        let count = loop {
            let read = match self {
                Self::Content(_) => Ok(0),
                Self::File(file) => asleep(|| kernel::read_at(file, bytes, offset)),
                Self::Other(file) => asleep(|| sys::splice_out(file, bytes, offset)),
            };
            match read {
                // The handler wants the call to go on.
                Err(libc::EINTR) if !wait.is_interrupted() => {}
                read => break read?,
            }
        };
        bytes.truncate(count);
        Ok(())
    }

    fn left_after(self, offset: i64) -> usize {
        let size = match self {
            Self::Content(content) => content.bytes.len() as i64,
            Self::File(file) => kernel::fstat(file).map_or(i64::MAX, |stat| stat.st_size),
            Self::Other(_) => i64::MAX,
        };
        size.saturating_sub(offset).max(0) as usize
    }
}

/// Sends up to `count` bytes of `file` from `offset` on; returns how many were sent.
pub fn send(socket: i32, file: i32, offset: i64, count: usize) -> Outcome {
    let stream = match find_decided(socket, For::Room) {
        Ok(stream) => stream,
        Err(Outcome::Error(libc::ENOTCONN)) if count > 0 && !is_at_end(file, offset) => {
            return broken_pipe(libc::EPIPE, 0);
        }
        Err(Outcome::Error(libc::ENOTCONN)) => return Outcome::Done(0),
        Err(outcome) => return outcome,
    };
    if offset < 0 {
        return Outcome::Error(libc::EINVAL);
    }
    let wanted = count.min(CALL_BYTES_MAX);
    let content = content::take(file);
    let source = match &content {
        Some(content) => Ok(Source::Content(content)),
        None => Source::of(file),
    };
    let outcome = match source {
        Ok(source) => Sending::new(stream, source, offset, wanted).run(socket),
        Err(error) => Outcome::Error(error),
    };
    if let Some(content) = content {
        content::give_back(file, content);
    }
    outcome
}

/// Nothing of a file is left: the socket is not asked then.
fn is_at_end(file: i32, offset: i64) -> bool {
    Source::of(file).is_ok_and(|source| source.left_after(offset) == 0)
}

/// One call under way.
struct Sending<'a> {
    stream: Stream,
    /// From the first wait on: the descriptor may be closed, and mean another connection, meanwhile.
    held: Option<Hold>,
    source: Source<'a>,
    offset: i64,
    wanted: usize,
    done: usize,
    /// Read and not sent yet, from `ahead_from` on.
    ahead: Vec<u8>,
    ahead_from: usize,
    deadline: Option<Deadline>,
}

/// The result of one step.
enum Step {
    Sent(usize),
    Full,
    End,
    /// The next bytes have to be read first, with nothing locked.
    Missing,
}

impl<'a> Sending<'a> {
    fn new(stream: Stream, source: Source<'a>, offset: i64, wanted: usize) -> Self {
        Self {
            stream,
            held: None,
            source,
            offset,
            wanted,
            done: 0,
            ahead: Vec::new(),
            ahead_from: 0,
            deadline: None,
        }
    }

    fn run(mut self, fd: i32) -> Outcome {
        while self.done < self.wanted {
            match self.step_and_keep() {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) if self.done > 0 => break,
                Err(error) if is_handed_over(fd, error) => return Outcome::Kernel,
                Err(error) => return broken_pipe(error, 0),
            }
        }
        Outcome::Done(self.done as isize)
    }

    /// One step; where another follows, the connection is kept for it.
    fn step_and_keep(&mut self) -> Result<bool, i32> {
        let goes_on = self.step()?;
        if goes_on && self.done < self.wanted {
            keep(&mut self.held, &self.stream)?;
        }
        Ok(goes_on)
    }

    /// False at the file's end.
    fn step(&mut self) -> Result<bool, i32> {
        let stream = self.stream;
        stream.announce_others();
        match stream.writing(|| self.attempt())? {
            Step::Sent(count) => {
                stream.socket.sends_files.store(1, Ordering::Relaxed);
                self.done += count;
                Ok(true)
            }
            Step::End => Ok(false),
            Step::Full if stream::is_nonblocking(&stream, 0) => Err(libc::EAGAIN),
            Step::Full => {
                let timeout_ns = stream.socket.send_timeout_ns.load(Ordering::Relaxed);
                let after = || timeout(timeout_ns);
                let deadline = self.deadline.get_or_insert_with(after);
                keep(&mut self.held, &stream)?;
                block(&stream, For::Room, deadline, self.done > 0).map(|()| true)
            }
            Step::Missing => self.read_ahead(),
        }
    }

    fn read_ahead(&mut self) -> Result<bool, i32> {
        let at = self.offset + self.done as i64;
        self.ahead_from = 0;
        let left = self.wanted - self.done;
        match self.source.read(&mut self.ahead, at, left) {
            Ok(()) => Ok(!self.ahead.is_empty()),
            Err(error) => {
                self.ahead.clear();
                Err(error)
            }
        }
    }

    /// Sends what is at hand. The writer's lock is held.
    fn attempt(&mut self) -> Result<Step, i32> {
        let left = self.wanted - self.done;
        let at = self.offset + self.done as i64;
        if self.done > 0 && self.stream.is_refusing() {
            // That is for the next call to say.
            return Ok(Step::End);
        }
        let vanishes = match self.stream.check_writable() {
            Err(libc::EAGAIN) => return Ok(Step::Full),
            other => other?.is_some(),
        };
        if vanishes {
            let count = left.min(self.source.left_after(at));
            return Ok(match count.min(self.stream.vanishing_max()) {
                0 => Step::End,
                count => Step::Sent(count),
            });
        }
        if self.ahead_from < self.ahead.len() {
            let sent = push(&self.stream, &self.ahead[self.ahead_from..])?;
            self.ahead_from += sent;
            return Ok(sent_or_full(sent));
        }
        match self.source {
            Source::Content(content) => send_content(&self.stream, content, at, left),
            Source::File(file) => fill(&self.stream, file, at, left),
            Source::Other(_) => Ok(Step::Missing),
        }
    }
}

fn sent_or_full(count: usize) -> Step {
    if count > 0 {
        Step::Sent(count)
    } else {
        Step::Full
    }
}

/// Copies what fits. The writer's lock is held.
fn push(stream: &Stream, bytes: &[u8]) -> Result<usize, i32> {
    let ring = stream.outbound();
    let broken = |_| libc::ECONNRESET;
    let mut pushed = ring.push_slice(bytes).map_err(broken)?;
    if pushed < bytes.len() {
        stream.want_room(&ring);
        pushed += ring.push_slice(&bytes[pushed..]).map_err(broken)?;
    }
    if pushed > 0 {
        stream.show_bytes(By::Us, &bytes[..pushed]);
        stream.publish(pushed);
    }
    Ok(pushed)
}

/// Sends from a file's content, as a zero-copy share or as a copy. The writer's lock is held.
fn send_content(
    stream: &Stream,
    content: &Content,
    offset: i64,
    wanted: usize,
) -> Result<Step, i32> {
    let rest = content.bytes.get(offset as usize..).unwrap_or_default();
    let rest = &rest[..rest.len().min(wanted)];
    if rest.is_empty() {
        return Ok(Step::End);
    }
    stream.peer.expect_ringing(stream.slot);
    if lend(stream, content, offset as usize, rest.len()) {
        stream.show_bytes(By::Us, rest);
        stream.publish(rest.len());
        return Ok(Step::Sent(rest.len()));
    }
    let piece = rest.len().min(STEP);
    push(stream, &rest[..piece]).map(sent_or_full)
}

/// Reads pages that are in memory into free ring space. The writer's lock is held.
fn fill(stream: &Stream, file: i32, offset: i64, wanted: usize) -> Result<Step, i32> {
    let (at, room) = stream.hole(wanted.min(STEP))?;
    if room == 0 {
        return Ok(Step::Full);
    }
    let ring = stream.outbound();
    if room < wanted {
        ring.announce_want();
    }
    match sys::read_cached(file, at, room, offset) {
        Ok(0) => Ok(Step::End),
        Ok(count) => {
            stream.show_bytes(By::Us, sys::filled(at, count));
            ring.filled(count);
            stream.publish(count);
            Ok(Step::Sent(count))
        }
        Err(libc::EAGAIN | libc::EOPNOTSUPP | libc::ENOSYS) => Ok(Step::Missing),
        Err(error) => Err(error),
    }
}

/// The position of a file, for calls without an offset.
pub fn position(file: i32) -> Result<i64, i32> {
    kernel::seek(file, 0, libc::SEEK_CUR)
}

/// Moves the position of a file.
pub fn set_position(file: i32, offset: i64) -> Result<i64, i32> {
    kernel::seek(file, offset, libc::SEEK_SET)
}
