//! Receives responses: one half of the hot path. The bytes of each protocol are understood in [`http1`](super::http1),
//! [`websocket`](super::websocket) and [`streams`](super::streams).

use super::failing::Failure;
use super::{ConnectionState, Worker};
use crate::protocol::{Protocol, Wire};
use crate::script::Answer;
use crate::sys::clock::monotonic_ns;
use crate::sys::epoll::Ready;
use crate::sys::socket;
use crate::transport::Transport;
use load_http1::{Done, Malformed};
use std::io::{self, ErrorKind};

/// A read counts as at least so many bytes: many small ones take time too.
const READ_LEAST_BYTES: usize = 4096;
/// Of so many reads the delay of one is recorded.
const SAMPLE_EVERY: u32 = 16;
/// Bytes that one read takes at most.
const READ_BYTES: usize = 64 * 1024;
/// Bytes that are read of one connection before others, due times and checks have their turn.
const READ_AT_ONCE_BYTES: usize = 4 * READ_BYTES;

/// The reads of a thread.
pub(super) struct Reads {
    buffer: Vec<u8>,
    /// Reads so far; of some the delay is recorded.
    count: u32,
    /// Connections with more to read than was read at once; no event reports them again.
    unfinished: Vec<Unfinished>,
}

/// A connection with more to read: its number, its generation, whether the other side has ended.
type Unfinished = (u32, u32, bool);

impl Reads {
    /// None yet.
    pub fn new() -> Reads {
        Reads {
            buffer: vec![0; READ_BYTES],
            count: 0,
            unfinished: Vec::new(),
        }
    }

    /// Whether no connection has more to read than was read at once.
    #[inline]
    pub fn are_finished(&self) -> bool {
        self.unfinished.is_empty()
    }

    /// A connection has bytes to read that no event will report.
    pub fn note_unfinished(&mut self, index: usize, generation: u32, ended: bool) {
        self.unfinished.push((index as u32, generation, ended));
    }

    /// The one of this number, if it has more to read; it is no longer noted then.
    pub fn take_unfinished(&mut self, index: usize) -> Option<Unfinished> {
        let mut noted = self.unfinished.iter();
        // it is mostly the last one
        let place = noted.rposition(|one| one.0 as usize == index)?;
        Some(self.unfinished.swap_remove(place))
    }

    /// Counts a read; whether its delay is recorded.
    #[inline]
    fn is_sampled(&mut self) -> bool {
        self.count = self.count.wrapping_add(1);
        self.count.is_multiple_of(SAMPLE_EVERY)
    }
}

impl<T: Transport, P: Protocol> Worker<'_, T, P> {
    /// Handles one event; the time after it.
    #[inline]
    pub(super) fn handle(&mut self, token: u64, ready: Ready, woken_ns: u64) -> u64 {
        let (index, registered) = (token as u32 as usize, (token >> 32) as u32);
        // the alarm has no connection
        let Some(connection) = self.connections.get(index) else {
            return woken_ns;
        };
        if connection.registered != registered {
            return woken_ns;
        }
        let generation = connection.generation;
        match connection.state {
            ConnectionState::Busy | ConnectionState::Idle if P::STREAMS => {
                self.handle_streams(index, ready, woken_ns)
            }
            ConnectionState::Busy => {
                let mut now = woken_ns;
                let is_writing = Wire::<T, P>::HANDSHAKES || connection.is_writing();
                // what the server has said comes first: it may have answered and gone
                if ready.readable() {
                    now = self.receive(index, ready.ended(), woken_ns);
                }
                let is_same = || self.connections[index].generation == generation;
                if is_writing && ready.writable() && is_same() {
                    self.send_rest(index);
                }
                now
            }
            ConnectionState::Idle | ConnectionState::Delayed if ready.readable() => {
                self.receive(index, ready.ended(), woken_ns)
            }
            ConnectionState::Connecting if ready.writable() => self.connect_ended(index, ready),
            ConnectionState::Handshaking => self.shake_hands(index),
            _ => woken_ns,
        }
    }

    /// Reads what has come on a connection; the time of the last read.
    pub(super) fn receive(&mut self, index: usize, ended: bool, woken_ns: u64) -> u64 {
        let mut buffer = std::mem::take(&mut self.reads.buffer);
        let generation = self.connections[index].generation;
        let mut now = woken_ns;
        let mut left = READ_AT_ONCE_BYTES;
        loop {
            let connection = &mut self.connections[index];
            let droppable = if T::DISCARDS && self.checks.drops_bodies {
                connection.droppable().min(left)
            } else {
                0
            };
            let Some(session) = connection.session.as_mut() else {
                break;
            };
            let result = if droppable > 0 {
                socket::discard(connection.fd, droppable)
            } else {
                self.wire.read(session, connection.fd, &mut buffer)
            };
            match result {
                Ok(0) => {
                    now = monotonic_ns();
                    self.end_of_stream(index, now);
                    break;
                }
                Ok(length) => {
                    now = monotonic_ns();
                    if self.reads.is_sampled() && !T::TIMESTAMPS {
                        self.recorder.now.times.client_delay.record(now - woken_ns);
                    }
                    if droppable > 0 {
                        self.take_dropped(index, length, ended, now);
                    } else if P::STREAMS {
                        self.take_frames(index, &buffer[..length], now);
                    } else if P::MESSAGES {
                        self.take_messages(index, &buffer[..length], ended, now);
                    } else {
                        self.take(index, &buffer[..length], ended, now);
                    }
                    let emptied = if droppable > 0 {
                        !ended && length < droppable
                    } else {
                        !ended && self.wire.transport.emptied(length, buffer.len())
                    };
                    if emptied || self.connections[index].generation != generation {
                        break;
                    }
                    left = left.saturating_sub(length.max(READ_LEAST_BYTES));
                    if left == 0 {
                        self.reads.note_unfinished(index, generation, ended);
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    now = monotonic_ns();
                    self.cut_off(index, now);
                    break;
                }
                Err(error) => {
                    now = monotonic_ns();
                    self.broken_off(index, error, now);
                    break;
                }
            }
        }
        self.reads.buffer = buffer;
        if Wire::<T, P>::HANDSHAKES {
            let ends = self.wire.transport.take_early_ends();
            self.recorder.now.counts.resumed += ends.resumed;
            self.recorder.now.counts.early += ends.accepted;
        }
        now
    }

    /// Reads on where more had come than is read at once; the time after it.
    #[cold]
    pub(super) fn read_on(&mut self, mut now: u64) -> u64 {
        for unfinished in std::mem::take(&mut self.reads.unfinished) {
            now = self.read_more(unfinished, now);
            if self.pacer.due_ns <= now {
                self.pace(now);
            }
        }
        now
    }

    /// Reads on where more had come than is read at once, unless it is another connection by now; the
    /// time after it.
    #[cold]
    pub(super) fn read_more(&mut self, unfinished: Unfinished, now: u64) -> u64 {
        let (index, generation, ended) = unfinished;
        let index = index as usize;
        let connection = &self.connections[index];
        if connection.generation != generation {
            now
        } else if connection.state == ConnectionState::Handshaking {
            self.shake_hands(index)
        } else {
            self.receive(index, ended, now)
        }
    }

    /// Compares an answer that was kept with what is expected, and shows it to the script that wants
    /// to see it.
    pub(super) fn show_answer(&mut self, status: u16, length: u64, answer: Answer) {
        self.checks
            .compare_kept(status, length, answer.bytes(), &mut self.recorder);
        self.scripting.show(status, answer);
        self.heed_script();
    }

    /// Whether a connection has carried as many answers as it shall.
    #[inline]
    pub(super) fn is_used_up(&self, index: usize) -> bool {
        let most = self.plan.per_connection;
        most.is_some_and(|most| self.connections[index].answered >= most)
    }

    /// An answer is complete.
    #[inline]
    pub(super) fn complete(&mut self, index: usize, done: Done, ended: bool, now: u64) {
        if self.recorder.is_over(now) {
            self.rotate(now);
        }
        let connection = &mut self.connections[index];
        connection.in_flight -= 1;
        connection.answered = connection.answered.saturating_add(1);
        let last = connection.in_flight == 0;
        if !last {
            connection.expect_next(self.requests.depth);
        }
        let due_ns = connection.due_ns;
        let status = (!P::MESSAGES).then_some(done.status);
        self.recorder.count_answer(due_ns, status);
        self.checks
            .compare(done.status, done.body_bytes, &mut self.recorder);
        self.recorder.now.counts.tolerated += u64::from(done.tolerated);
        if last || !self.plan.batch_latency {
            let ended_ns = if T::TIMESTAMPS {
                self.arrived_ns(index, now)
            } else {
                now
            };
            let connection = &self.connections[index];
            let (target, asked) = (usize::from(connection.target), connection.meta());
            self.recorder
                .record_times(target, asked, done.status, ended_ns);
            if let Some(pieces) = &mut self.connections[index].pieces {
                let first_ns = std::mem::take(&mut pieces.first_ns);
                self.recorder.record_first_byte(asked, first_ns, ended_ns);
            }
        }
        let connection = &mut self.connections[index];
        let (target, request) = (usize::from(connection.target), connection.request);
        connection.failures = 0;
        self.compare_length(target, request, done.body_bytes, done.status);
        // an answer may be whole before its request is sent: what is left of that would stand in the
        // middle of the next one
        let is_early = last && self.connections[index].is_writing();
        let is_used_up = last && self.is_used_up(index);
        if !done.keep_alive || is_early || is_used_up {
            if !last {
                self.fail(index, Failure::Closed, now);
            } else {
                self.set_not_busy(index, ConnectionState::Idle);
                self.reopen(index, now);
            }
        } else if last {
            self.set_not_busy(index, ConnectionState::Idle);
            if !ended {
                self.offer(index, now);
            }
        }
    }

    /// When the kernel received what was read at `now`; how long it lay there is our own delay.
    fn arrived_ns(&mut self, index: usize, now: u64) -> u64 {
        let interval = &mut *self.recorder.now;
        let Some(arrived_ns) = self.wire.transport.arrived_ns() else {
            interval.counts.unstamped += 1;
            return now;
        };
        // clocks are read one after the other: an answer is never older than its request
        let arrived_ns = arrived_ns.clamp(self.connections[index].sent_ns, now);
        interval.times.client_delay.record(now - arrived_ns);
        arrived_ns
    }

    /// Notes a body that is shorter than the first one to the same request.
    #[inline]
    pub(super) fn compare_length(&mut self, target: usize, request: u32, bytes: u64, status: u16) {
        let is_short = self.checks.is_short(target, request, bytes, status);
        if is_short && self.templates.are_usable {
            self.recorder.now.counts.errors.short_body += 1;
        }
    }

    /// The server has closed its side.
    #[cold]
    pub(super) fn end_of_stream(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        if connection.in_flight == 0 {
            // an idle connection may be closed at any time
            self.ended_idle(index, None, now);
            return;
        }
        if P::STREAMS || P::MESSAGES {
            self.fail(index, Failure::Closed, now);
            return;
        }
        self.end_answer(index, now);
    }

    /// The connection ended without the end that TLS has: a body that lasts until then may have been
    /// cut (RFC 9112, 9.8); all others know their length.
    #[cold]
    fn cut_off(&mut self, index: usize, now: u64) {
        let pieces = self.connections[index].pieces.as_ref();
        if pieces.is_some_and(|pieces| pieces.parser.lasts_until_close()) {
            self.fail(index, Failure::Malformed(Malformed::EarlyEof), now);
        } else {
            self.end_of_stream(index, now);
        }
    }

    #[cold]
    pub(super) fn broken_off(&mut self, index: usize, error: io::Error, now: u64) {
        if self.connections[index].in_flight == 0 {
            self.ended_idle(index, Some(&error), now);
        } else {
            self.fail(index, Failure::Read(error), now);
        }
    }
}
