//! HTTP/1 responses: matched with a template where possible, else parsed.

use super::failing::Failure;
use super::Worker;
use crate::protocol::Protocol;
use crate::script::Answer;
use crate::transport::Transport;
use load_http1::{Done, Ignore, Malformed, Parser, Progress, Recognised, HEAD_MAX_BYTES};

/// Bytes of a malformed answer that are shown.
const SHOWN_BYTES: usize = 64;

/// Whether a server says that it has waited long enough for a request, and so closes the connection
/// (RFC 9110, 15.5.9).
fn says_timed_out(bytes: &[u8]) -> bool {
    bytes.starts_with(b"HTTP/1.") && bytes.get(8..12) == Some(b" 408")
}

impl<T: Transport, P: Protocol> Worker<'_, T, P> {
    /// Takes the bytes of one read.
    #[inline]
    pub(super) fn take(&mut self, index: usize, bytes: &[u8], ended: bool, now: u64) {
        self.recorder.now.counts.bytes_in += bytes.len() as u64;
        let mut rest = bytes;
        loop {
            let connection = &mut self.connections[index];
            let Some(known) = self.templates.recognise(connection, rest) else {
                break;
            };
            let Recognised {
                head_bytes, done, ..
            } = known;
            if known.is_chunked {
                self.templates.note_used();
                let generation = connection.generation;
                rest = self.take_chunks(index, known, rest, ended, now);
                if rest.is_empty() || self.connections[index].generation != generation {
                    return;
                }
                continue;
            }
            let total = head_bytes as u64 + done.body_bytes;
            if (rest.len() as u64) < total {
                let here = (rest.len() - head_bytes) as u64;
                let left = done.body_bytes - here;
                connection.pieces().first_ns = now;
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
            self.templates.note_used();
            let generation = connection.generation;
            self.complete(index, done, ended, now);
            if rest.is_empty() || self.connections[index].generation != generation {
                return;
            }
        }
        self.take_carefully(index, rest, ended, now);
    }

    /// A part of a body was dropped without being read.
    pub(super) fn take_dropped(&mut self, index: usize, length: usize, ended: bool, now: u64) {
        self.recorder.now.counts.bytes_in += length as u64;
        let pieces = self.connections[index].pieces();
        if let Some(done) = pieces.parser.skip_body(length as u64) {
            self.complete(index, done, ended, now);
        }
    }

    /// Takes a chunked body behind a head that was recognised; what follows it.
    fn take_chunks<'b>(
        &mut self,
        index: usize,
        known: Recognised,
        bytes: &'b [u8],
        ended: bool,
        now: u64,
    ) -> &'b [u8] {
        let mut parser = Parser::before_chunks(known.done);
        let body = &bytes[known.head_bytes..];
        match parser.feed(body, false, &mut Ignore, &mut |_, _| {}) {
            Ok(Progress::Done(used, done)) => {
                self.complete(index, done, ended, now);
                &body[used..]
            }
            Ok(Progress::More(used)) => {
                let pieces = self.connections[index].pieces();
                (pieces.parser, pieces.first_ns) = (parser, now);
                pieces.spill.extend_from_slice(&body[used..]);
                &[]
            }
            Err(class) => {
                self.show(class, bytes);
                self.fail(index, Failure::Malformed(class), now);
                &[]
            }
        }
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
        let had_kept = !kept.is_empty();
        let input = if had_kept {
            kept.extend_from_slice(bytes);
            &kept
        } else {
            bytes
        };
        let mut used = 0;
        while used < input.len() {
            // servers may end a body with a line end too many (RFC 9112, 2.2 has it of requests)
            let is_blank = matches!(input[used], b'\r' | b'\n');
            if is_blank && self.connections[index].is_between_bodies() {
                self.recorder.now.counts.tolerated += u64::from(input[used] == b'\n');
                used += 1;
                continue;
            }
            let connection = &mut self.connections[index];
            let keeps = self.checks.keeps_answers;
            let rest = &input[used..];
            match self
                .templates
                .parse(connection, rest, keeps, &mut self.recorder)
            {
                Ok(Progress::More(more)) => {
                    used += more;
                    break;
                }
                Ok(Progress::Done(more, done)) => {
                    used += more;
                    self.look_at(index, done);
                    self.complete(index, done, ended, now);
                    if self.connections[index].generation != generation {
                        return;
                    }
                }
                Err(Malformed::Unasked) if says_timed_out(&input[used..]) => {
                    self.ended_idle(index, None, now);
                    return;
                }
                Err(class) => {
                    self.show(class, &input[used..]);
                    self.fail(index, Failure::Malformed(class), now);
                    return;
                }
            }
        }
        let connection = &mut self.connections[index];
        if had_kept && used == 0 {
            // not copied: a head that comes byte by byte would be copied with each of them
            connection.pieces().spill = kept;
        } else if used < input.len() {
            connection.pieces().spill.extend_from_slice(&input[used..]);
        }
        if !connection.between_answers() {
            let pieces = connection.pieces();
            // the bytes at hand may end one answer and begin the next
            if pieces.first_ns == 0 {
                pieces.first_ns = now;
            }
        }
    }

    /// Looks at a complete answer, if it was kept.
    fn look_at(&mut self, index: usize, done: Done) {
        if !self.checks.keeps_answers {
            return;
        }
        let answer = self.connections[index].pieces().answer.take();
        let answer: Answer = answer.map(|boxed| *boxed).unwrap_or_default();
        self.show_answer(done.status, done.body_bytes, answer);
    }

    /// The server has ended a connection on which answers are due: the end of one, perhaps.
    #[cold]
    pub(super) fn end_answer(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        let begun = !connection.between_answers();
        match connection.pieces().parser.end_of_stream() {
            Ok(done) => {
                self.look_at(index, done);
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

    fn show(&mut self, class: Malformed, bytes: &[u8]) {
        let shown = bytes[..bytes.len().min(SHOWN_BYTES)]
            .escape_ascii()
            .to_string();
        let why = match class {
            Malformed::TooLong => format!(" (over {} KiB)", HEAD_MAX_BYTES / 1024),
            _ => String::new(),
        };
        self.recorder
            .note(|| format!("{}{why}: \"{shown}\"", class.name()));
    }
}
