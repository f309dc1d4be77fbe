//! WebSocket responses: each message answers the oldest one that was sent.

use super::failing::Failure;
use super::Worker;
use crate::protocol::Protocol;
use crate::transport::Transport;
use load_http1::Done;
use load_websocket::{Event, Fault};

impl<T: Transport, P: Protocol> Worker<'_, T, P> {
    /// Takes the bytes of one read.
    pub(super) fn take_messages(&mut self, index: usize, bytes: &[u8], ended: bool, now: u64) {
        self.recorder.now.counts.bytes_in += bytes.len() as u64;
        let generation = self.connections[index].generation;
        let mut rest = bytes;
        while self.connections[index].generation == generation {
            let session = self.connections[index].session.as_mut();
            let Some(client) = session.and_then(|session| self.wire.frames(session)) else {
                return;
            };
            match client.feed(rest) {
                Ok((used, event)) => {
                    rest = &rest[used..];
                    match event {
                        Some(event) => self.take_message(index, event, ended, now),
                        None => break,
                    }
                }
                Err(fault) => self.fail(index, Failure::Frame(fault), now),
            }
        }
        if self.connections[index].generation == generation {
            self.answer_pings(index, now);
        }
    }

    fn take_message(&mut self, index: usize, event: Event, ended: bool, now: u64) {
        let is_awaited = self.connections[index].in_flight > 0;
        match event {
            Event::Message { bytes } if is_awaited => {
                let done = Done {
                    status: 101,
                    keep_alive: true,
                    body_bytes: bytes,
                    tolerated: false,
                };
                self.complete(index, done, ended, now);
            }
            Event::Message { .. } => self.fail(index, Failure::Frame(Fault::Unasked), now),
            Event::Closed => {
                let generation = self.connections[index].generation;
                self.answer_pings(index, now);
                // a server that is gone takes no answer, and has ended the connection by that
                if self.connections[index].generation == generation {
                    self.end_of_stream(index, now);
                }
            }
        }
    }

    /// Writes what answers pings and closes; what finds no room waits for it.
    fn answer_pings(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        let Some(session) = connection.session.as_mut() else {
            return;
        };
        let frames = self.wire.frames(session);
        if frames.is_none_or(|client| client.pending().is_empty()) {
            return;
        }
        match self.wire.flush(session, connection.fd) {
            Ok(true) => {}
            Ok(false) => self.want_room(index, true),
            Err(error) => self.broken_off(index, error, now),
        }
    }

    /// Whether the next byte that is read begins an answer.
    pub(super) fn is_between_answers(&mut self, index: usize) -> bool {
        let connection = &mut self.connections[index];
        let session = connection.session.as_mut();
        match session.and_then(|session| self.wire.frames(session)) {
            Some(client) => client.at_start(),
            None => connection.between_answers(),
        }
    }
}
