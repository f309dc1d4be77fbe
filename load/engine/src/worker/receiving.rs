//! Answers in: one half of the hot path.

use super::connection::Pieces;
use super::failing::Failure;
use super::{Doing, Worker, UNKNOWN};
use crate::script::Answer;
use crate::sys::clock::monotonic_ns;
use crate::sys::epoll::Ready;
use crate::transport::Transport;
use load_http1::{Done, Head, Ignore, Malformed, Parser, Progress};
use std::io::{self, ErrorKind};

/// Of so many answers one takes the full path although the template knows it.
const AUDIT_EVERY: u32 = 1024;
/// Bytes of a malformed answer that are shown.
const SHOWN_BYTES: usize = 64;

impl<T: Transport> Worker<'_, T> {
    /// Handles one event; the time after it.
    #[inline]
    pub(super) fn handle(&mut self, token: u64, ready: Ready, woken_ns: u64) -> u64 {
        let (index, registered) = (token as u32 as usize, (token >> 32) as u32);
        // the alarm is no connection
        let Some(connection) = self.connections.get(index) else {
            return woken_ns;
        };
        if connection.registered != registered {
            return woken_ns;
        }
        let generation = connection.generation;
        match connection.doing {
            Doing::Busy | Doing::Idle if T::STREAMS => self.handle_streams(index, ready, woken_ns),
            Doing::Busy => {
                let mut now = woken_ns;
                let is_writing = T::HANDSHAKES || connection.is_writing();
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
            Doing::Idle | Doing::Delayed if ready.readable() => {
                self.receive(index, ready.ended(), woken_ns)
            }
            Doing::Connecting if ready.writable() => self.connect_ended(index, ready),
            Doing::Handshaking => self.shake_hands(index),
            _ => woken_ns,
        }
    }

    /// Reads what has come on a connection; the time of the last read.
    pub(super) fn receive(&mut self, index: usize, ended: bool, woken_ns: u64) -> u64 {
        let mut buffer = std::mem::take(&mut self.buffer);
        let generation = self.connections[index].generation;
        let mut now = woken_ns;
        loop {
            let connection = &mut self.connections[index];
            let Some(session) = connection.session.as_mut() else {
                break;
            };
            let result = self.transport.read(session, connection.fd, &mut buffer);
            match result {
                Ok(0) => {
                    now = monotonic_ns();
                    self.end_of_stream(index, now);
                    break;
                }
                Ok(length) => {
                    now = monotonic_ns();
                    if T::STREAMS {
                        self.take_frames(index, &buffer[..length], now);
                    } else if T::MESSAGES {
                        self.take_messages(index, &buffer[..length], ended, now);
                    } else {
                        self.take(index, &buffer[..length], ended, now, woken_ns);
                    }
                    let emptied = T::SHORT_READ_EMPTIES && length < buffer.len() && !ended;
                    if emptied || self.connections[index].generation != generation {
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
        self.buffer = buffer;
        now
    }

    /// Takes the bytes of one read.
    #[inline]
    fn take(&mut self, index: usize, bytes: &[u8], ended: bool, now: u64, woken_ns: u64) {
        self.recorder.now.counts.bytes_in += bytes.len() as u64;
        let mut rest = bytes;
        loop {
            let connection = &mut self.connections[index];
            let simple =
                self.template_usable && connection.in_flight > 0 && connection.between_answers();
            if !simple || self.answers_until_audit == 0 {
                break;
            }
            let Some((head_bytes, done)) = self.template.recognise(rest) else {
                break;
            };
            let total = head_bytes as u64 + done.body_bytes;
            if (rest.len() as u64) < total {
                let here = (rest.len() - head_bytes) as u64;
                let left = done.body_bytes - here;
                connection.pieces().parser.resume_body(
                    Done {
                        body_bytes: here,
                        ..done
                    },
                    left,
                );
                return;
            }
            rest = &rest[total as usize..];
            self.answers_until_audit -= 1;
            if !T::STAMPS && self.answers_until_audit.is_multiple_of(16) {
                self.recorder.now.times.client_delay.record(now - woken_ns);
            }
            let generation = connection.generation;
            self.complete(index, done, ended, now);
            if rest.is_empty() || self.connections[index].generation != generation {
                return;
            }
        }
        self.take_carefully(index, rest, ended, now);
    }

    /// The full path: any answer, cut anywhere.
    #[cold]
    fn take_carefully(&mut self, index: usize, bytes: &[u8], ended: bool, now: u64) {
        let connection = &mut self.connections[index];
        let generation = connection.generation;
        let mut kept = connection
            .pieces
            .as_mut()
            .map(|pieces| std::mem::take(&mut pieces.spill))
            .unwrap_or_default();
        let input = if kept.is_empty() {
            bytes
        } else {
            kept.extend_from_slice(bytes);
            &kept
        };
        let mut used = 0;
        while used < input.len() {
            match self.parse(index, &input[used..]) {
                Ok(Progress::More(more)) => {
                    used += more;
                    break;
                }
                Ok(Progress::Done(more, done)) => {
                    used += more;
                    self.show_script(index, done);
                    self.complete(index, done, ended, now);
                    if self.connections[index].generation != generation {
                        return;
                    }
                }
                Err(class) => {
                    self.show(class, &input[used..]);
                    self.fail(index, Failure::Malformed(class), now);
                    return;
                }
            }
        }
        if used < input.len() {
            let pieces = self.connections[index].pieces();
            pieces.spill.extend_from_slice(&input[used..]);
        }
    }

    fn parse(&mut self, index: usize, input: &[u8]) -> Result<Progress, Malformed> {
        let connection = &mut self.connections[index];
        if connection.in_flight == 0 {
            return Err(Malformed::Unasked);
        }
        let audit = self.answers_until_audit == 0;
        let expected = if audit {
            self.template.recognise(input)
        } else {
            None
        };
        self.answers_until_audit = AUDIT_EVERY;
        let template = &mut self.template;
        let mut heads = 0;
        let mut learn = |head: &Head, bytes: &[u8]| {
            heads += 1;
            template.learn(head, bytes);
        };
        let head_only = connection.head_only;
        let wanted = self
            .script
            .as_ref()
            .is_some_and(|script| script.shape.wants_answers);
        let progress = if wanted {
            let Pieces { parser, answer, .. } = connection.pieces();
            let answer = answer.get_or_insert_default();
            parser.feed(input, head_only, &mut **answer, &mut learn)?
        } else if let Some(pieces) = &mut connection.pieces {
            pieces
                .parser
                .feed(input, head_only, &mut Ignore, &mut learn)?
        } else {
            let mut parser = Parser::default();
            let progress = parser.feed(input, head_only, &mut Ignore, &mut learn)?;
            if !parser.at_start() {
                connection.pieces().parser = parser;
            }
            progress
        };
        if let (Some((_, expected)), Progress::Done(_, done)) = (expected, progress) {
            if expected != done && heads > 0 {
                self.template_usable = false;
                self.recorder
                    .note(|| "an answer was misread by the fast path; it is off now".into());
            }
        }
        Ok(progress)
    }

    /// Shows a complete answer to the script that wants to see it.
    fn show_script(&mut self, index: usize, done: Done) {
        let Some(script) = &self.script else {
            return;
        };
        if !script.shape.wants_answers {
            return;
        }
        let answer: Answer = self.connections[index]
            .pieces()
            .answer
            .take()
            .map(|boxed| *boxed)
            .unwrap_or_default();
        self.show_answer(done.status, answer);
    }

    pub(super) fn show_answer(&mut self, status: u16, answer: Answer) {
        let Some(script) = &mut self.script else {
            return;
        };
        if let Err(fault) = script.answer(status, answer) {
            self.fault.get_or_insert(fault);
        }
        self.stopped |= script.stopped() || self.fault.is_some();
    }

    /// An answer is complete.
    #[inline]
    pub(super) fn complete(&mut self, index: usize, done: Done, ended: bool, now: u64) {
        if self.recorder.is_over(now) {
            self.rotate(now);
        }
        let connection = &mut self.connections[index];
        connection.in_flight -= 1;
        connection.has_answered = true;
        let last = connection.in_flight == 0;
        if !last {
            connection.expect_next(self.depth);
        }
        let due_ns = connection.due_ns;
        self.count_answer(due_ns, done.status);
        self.recorder.now.counts.tolerated += u64::from(done.tolerated);
        if last || !self.plan.batch_latency {
            let ended_ns = if T::STAMPS {
                self.arrived_ns(index, now)
            } else {
                now
            };
            let asked = self.connections[index].asked();
            self.record_times(asked, ended_ns);
        }
        let connection = &mut self.connections[index];
        let (target, request) = (usize::from(connection.target), connection.request);
        connection.failures = 0;
        self.compare_length(target, request, done.body_bytes, done.status);
        // an answer may be whole before its request is sent: what is left of that would stand in the
        // middle of the next one
        let is_early = last && self.connections[index].is_writing();
        if !done.keep_alive || is_early {
            if !last {
                self.fail(index, Failure::Closed, now);
            } else {
                self.set_not_busy(index, Doing::Idle);
                self.reopen(index, now);
            }
        } else if last {
            self.set_not_busy(index, Doing::Idle);
            if !ended {
                self.offer(index, now);
            }
        }
    }

    /// Notes a body that is shorter than the first one to the same request.
    #[inline]
    pub(super) fn compare_length(&mut self, target: usize, request: u32, bytes: u64, status: u16) {
        let Some(expected) = self.lengths[target].get_mut(request as usize) else {
            return;
        };
        if *expected != bytes && status < 300 {
            if *expected == UNKNOWN {
                *expected = bytes;
            } else if bytes < *expected && self.template_usable {
                self.recorder.now.counts.errors.short_body += 1;
            }
        }
    }

    /// The server has closed its side.
    #[cold]
    pub(super) fn end_of_stream(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        if connection.in_flight == 0 {
            // an idle connection may be closed at any time
            self.ended_idle(index, now);
            return;
        }
        if T::STREAMS || T::MESSAGES {
            self.fail(index, Failure::Closed, now);
            return;
        }
        let begun = !connection.between_answers();
        match connection.pieces().parser.end_of_stream() {
            Ok(done) => {
                self.show_script(index, done);
                self.complete(
                    index,
                    Done {
                        keep_alive: false,
                        ..done
                    },
                    true,
                    now,
                );
            }
            Err(class) if begun => {
                let start = std::mem::take(&mut connection.pieces().spill);
                self.show(class, &start);
                self.fail(index, Failure::Malformed(class), now);
            }
            Err(_) => self.fail(index, Failure::Closed, now),
        }
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
            self.ended_idle(index, now);
        } else {
            self.fail(index, Failure::Read(error), now);
        }
    }

    fn show(&mut self, class: Malformed, bytes: &[u8]) {
        let shown = bytes[..bytes.len().min(SHOWN_BYTES)]
            .escape_ascii()
            .to_string();
        self.recorder
            .note(|| format!("{}: \"{shown}\"", class.name()));
    }
}
