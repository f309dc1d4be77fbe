//! The state of one connection; small, because there may be a hundred thousand.

use crate::protocol::RequestMeta;
use crate::script::Answer;
use crate::sys::socket::Fd;
use load_http1::Parser;
use std::sync::Arc;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// No socket; a timer or a later step opens it.
    Closed,
    /// Waiting for the connect to end.
    Connecting,
    /// Waiting for the TLS handshake.
    Handshaking,
    /// Ready for a request.
    Idle,
    /// Waiting for its delay to pass (scripts).
    Delayed,
    /// Waiting for answers.
    Busy,
}

/// One connection and the requests on it: one cache line, because between two of its answers
/// a thousand others have passed through the caches.
#[repr(align(64))]
pub struct Connection<S> {
    /// Its socket, if it is open.
    pub fd: Fd,
    /// Counts reopenings, so that what was meant for an old connection is known as such.
    pub generation: u32,
    /// The generation with which the socket was registered; a socket that is used again keeps it.
    pub registered: u32,
    /// When the batch in flight was due.
    pub due_ns: u64,
    /// When it was written (in closed loop: when the connection became free for it), or when
    /// connecting began.
    pub sent_ns: u64,
    /// When it became idle.
    pub idle_ns: u64,
    /// The request that was sent last, within its target.
    pub request: u32,
    /// Number of its target.
    pub target: u16,
    /// Place of its address among those of the target.
    pub address: u8,
    /// Answers that are still to come.
    pub in_flight: u32,
    /// Its state.
    pub state: ConnectionState,
    /// It is one of those under way whose number is limited.
    pub holds_place: bool,
    /// It is asked for again since `sent_ns`, as its server's queue was full.
    pub asks_again: bool,
    /// Whether reports of room are wanted.
    pub wants_room: bool,
    /// Failures to connect in a row.
    pub failures: u8,
    /// Answers that it has carried since it was opened.
    pub answered: u16,
    /// The requests in flight are HEAD requests, whose answers have no body.
    pub head_only: bool,
    /// State that most answers and requests do without; made when first needed.
    pub pieces: Option<Box<Pieces>>,
    /// The session of its transport.
    pub session: Option<S>,
}

/// Requests and answers that did not pass in one piece.
#[derive(Default)]
pub struct Pieces {
    /// The answer being read.
    pub parser: Parser,
    /// Bytes of an answer that cannot be parsed yet.
    pub spill: Vec<u8>,
    /// When the first bytes came of an answer that is not complete; 0 if there are none.
    pub first_ns: u64,
    /// Which requests of the batch in flight are HEAD requests, where not all are or are not.
    pub mixed: Option<Arc<[bool]>>,
    /// The end of a request that found no room yet, if there is one.
    pub outbox: Arc<[u8]>,
    /// How many bytes of `outbox` have been sent.
    pub outbox_sent: usize,
    /// What a script shall see of the answer being read.
    pub answer: Option<Box<Answer>>,
    /// What a script shall see of the answers on streams, by their slots.
    pub answers: Vec<Answer>,
}

impl<S> Connection<S> {
    /// A closed connection to a target.
    pub fn new(target: usize) -> Self {
        Connection {
            fd: -1,
            generation: 0,
            registered: 0,
            due_ns: 0,
            sent_ns: 0,
            idle_ns: 0,
            request: 0,
            target: target as u16,
            address: 0,
            in_flight: 0,
            state: ConnectionState::Closed,
            holds_place: false,
            asks_again: false,
            wants_room: false,
            failures: 0,
            answered: 0,
            head_only: false,
            pieces: None,
            session: None,
        }
    }

    /// Forgets the requests on it: the next connection begins.
    pub fn begin_anew(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.in_flight = 0;
        self.answered = 0;
        self.pieces = None;
    }

    /// What is kept of unfinished requests and answers.
    pub fn pieces(&mut self) -> &mut Pieces {
        self.pieces.get_or_insert_default()
    }

    /// What is known of the batch in flight.
    #[inline]
    pub fn meta(&self) -> RequestMeta {
        RequestMeta {
            due_ns: self.due_ns,
            sent_ns: self.sent_ns,
            request: self.request,
        }
    }

    /// The next answer of a batch of `depth` is that to a HEAD request, or is not.
    #[inline]
    pub fn expect_next(&mut self, depth: usize) {
        let mixed = self
            .pieces
            .as_ref()
            .and_then(|pieces| pieces.mixed.as_ref());
        if let Some(mixed) = mixed {
            let number = depth.saturating_sub(self.in_flight as usize);
            self.head_only = mixed.get(number).is_some_and(|head| *head);
        }
    }

    /// Whether the next byte that is read begins an answer.
    #[inline]
    pub fn between_answers(&self) -> bool {
        self.pieces
            .as_ref()
            .is_none_or(|pieces| pieces.parser.at_start() && pieces.spill.is_empty())
    }

    /// Whether no answer has begun; what was kept of one does not count.
    #[inline]
    pub fn is_between_bodies(&self) -> bool {
        self.pieces
            .as_ref()
            .is_none_or(|pieces| pieces.parser.at_start())
    }

    /// Bytes of the body being read that need not be looked at, where it is worth it.
    #[inline]
    pub fn droppable(&self) -> usize {
        /// A call for fewer bytes saves no copy that counts.
        const LEAST: u64 = 16 * 1024;
        let left = self
            .pieces
            .as_ref()
            .map_or(0, |pieces| pieces.parser.body_left());
        if left < LEAST {
            0
        } else {
            usize::try_from(left).unwrap_or(usize::MAX)
        }
    }

    /// The end of a request waits for room.
    pub fn keep_rest(&mut self, request: Arc<[u8]>, sent: usize) {
        let pieces = self.pieces();
        (pieces.outbox, pieces.outbox_sent) = (request, sent);
    }

    /// Whether a part of a request waits for room.
    #[inline]
    pub fn is_writing(&self) -> bool {
        self.pieces
            .as_ref()
            .is_some_and(|pieces| !pieces.outbox.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_connection_is_one_cache_line() {
        assert_eq!(size_of::<Connection<()>>(), 64);
    }
}
