//! Sends requests: the other half of the hot path.

use super::burst::Ready;
use super::connecting::token;
use super::failing::Failure;
use super::{ConnectionState, Worker};
use crate::plan::Rendered;
use crate::protocol::{Protocol, Wire};
use crate::sys::clock::monotonic_ns;
use crate::sys::socket;
use crate::transport::Transport;
use load_http1::request::after_blank_lines;
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Whether the connection is not established yet.
fn is_too_early(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::NotConnected
    )
}

impl<T: Transport, P: Protocol> Worker<'_, T, P> {
    /// A connection is ready for a request.
    #[inline]
    pub(super) fn offer(&mut self, index: usize, now: u64) {
        if index >= self.connections.wanted {
            self.close(index);
            return;
        }
        if P::STREAMS {
            self.offer_streams(index, now);
        } else {
            self.offer_one(index, now);
        }
    }

    /// There is room for one request more on a connection.
    #[inline]
    pub(super) fn offer_one(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        connection.idle_ns = now;
        if self.pacer.is_open() {
            let (target, generation) = (usize::from(connection.target), connection.generation);
            if self.pacer.dispatch.has_waiting(target, index) {
                self.burst.add(index, generation, now);
            } else {
                self.pacer.dispatch.note_free(target, index, generation);
            }
        } else if self.running && !self.stopped {
            if self.scripting.delays() {
                self.send_later(index, now);
            } else {
                let generation = self.connections[index].generation;
                self.burst.add(index, generation, now);
            }
        }
    }

    /// Writes the next request on every connection that is ready.
    ///
    /// Its time begins when the answer before it was read, so that what the generator itself takes
    /// until the write is inside the figure, not between two figures.
    #[inline]
    pub(super) fn send_ready(&mut self) {
        if !self.holding {
            let burst = self.burst.take();
            for &Ready {
                index,
                generation,
                since_ns,
            } in &burst
            {
                if !self.is_free(index, generation) || self.stopped {
                    continue;
                }
                if self.pacer.is_open() {
                    self.send_waiting(index as usize);
                } else {
                    self.send(index as usize, since_ns, since_ns);
                }
            }
            self.burst.give_back(burst);
        }
        if P::STREAMS {
            self.flush_streams();
        }
    }

    /// Whether a connection that was offered can still take a request.
    #[inline]
    pub(super) fn is_free(&mut self, index: u32, generation: u32) -> bool {
        let connection = &self.connections[index as usize];
        if connection.generation != generation {
            return false;
        }
        if P::STREAMS {
            return self.may_begin(index as usize);
        }
        connection.state == ConnectionState::Idle
    }

    /// Sends the next request after its delay.
    #[cold]
    fn send_later(&mut self, index: usize, now: u64) {
        match self.end_of_thought_ns(index, now) {
            Ok(at_ns) => {
                let connection = &mut self.connections[index];
                if !P::STREAMS {
                    connection.state = ConnectionState::Delayed;
                }
                let generation = connection.generation;
                self.thinking.begin(index, generation, at_ns);
                self.deadlines.set_timer(at_ns, index, generation);
            }
            Err(fault) => self.give_up(fault),
        }
    }

    /// Until when a user of a connection thinks. One whose connection the server has ended meanwhile
    /// thinks on: beginning again each time, a server that keeps idle connections for a shorter time would
    /// never be asked.
    fn end_of_thought_ns(&mut self, index: usize, now: u64) -> Result<u64, String> {
        let generation = self.connections[index].generation;
        if let Some(before_ns) = self.thinking.resume(index, generation) {
            return Ok(before_ns);
        }
        let delay_ns = self.scripting.delay_ns();
        self.heed_script();
        Ok(now.saturating_add(delay_ns?))
    }

    /// The script has failed: the run is over.
    #[cold]
    pub(super) fn give_up(&mut self, fault: String) {
        self.scripting.note_fault(fault);
        self.stopped = true;
    }

    /// Ends the load if the script has ended it.
    pub(super) fn heed_script(&mut self) {
        self.stopped |= self.scripting.has_stopped() || self.scripting.has_failed();
    }

    pub(super) fn set_not_busy(&mut self, index: usize, state: ConnectionState) {
        self.connections.set_not_busy(index, state, !P::STREAMS);
    }

    /// Writes the next request of a connection.
    #[inline]
    pub(super) fn send(&mut self, index: usize, due_ns: u64, now: u64) {
        if self.requests.are_used_up() {
            return;
        }
        self.requests.begin();
        if P::STREAMS {
            self.send_on_stream(index, due_ns, now);
            return;
        }
        self.enter(index, due_ns, now);
        if self.scripting.is_dynamic() {
            self.send_scripted(index);
            return;
        }
        let connection = &mut self.connections[index];
        let request = self.requests.next(connection);
        let Some(session) = connection.session.as_mut() else {
            return;
        };
        let written = self.wire.write(session, connection.fd, &request.bytes);
        if let Ok(length) = written {
            self.recorder.now.counts.bytes_out += length as u64;
            if length == request.bytes.len() {
                return;
            }
        }
        let rest = Arc::clone(&request.bytes);
        self.not_all_written(index, written, rest);
    }

    /// A request goes out.
    #[inline]
    fn enter(&mut self, index: usize, due_ns: u64, now: u64) {
        self.connections
            .begin_batch(index, self.requests.depth as u32, due_ns, now);
        if self.recorder.is_counted(due_ns) {
            self.recorder.now.counts.sent += self.requests.depth as u64;
        }
    }

    /// Writes the first request on a connection that may or may not be established; true if it was.
    ///
    /// On a loopback interface it is as soon as `connect` returns, and needs no wait. A peer
    /// that is farther away is not tried a second time.
    pub(super) fn send_first(&mut self, index: usize) -> io::Result<bool> {
        let closed_loop = self.running && !self.pacer.is_open() && !self.holding;
        let is_plain = !Wire::<T, P>::HANDSHAKES && !P::STREAMS;
        if !is_plain || !self.connector.sends_first || !closed_loop || self.requests.are_used_up() {
            return Ok(false);
        }
        let now = monotonic_ns();
        let connection = &mut self.connections[index];
        let target = usize::from(connection.target);
        let place = self.requests.place(target);
        let request = self.requests.next(connection);
        let Some(session) = connection.session.as_mut() else {
            return Ok(false);
        };
        match self.wire.write(session, connection.fd, &request.bytes) {
            Ok(length) => {
                if length < request.bytes.len() {
                    connection.keep_rest(Arc::clone(&request.bytes), length);
                    connection.wants_room = true;
                }
                self.recorder.now.counts.bytes_out += length as u64;
                self.requests.begin();
                self.count_connect(index, now);
                self.enter(index, now, now);
                Ok(true)
            }
            Err(error) if is_too_early(&error) => {
                self.requests.go_to(target, place);
                self.connector.sends_first = false;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Lets the script make a request, and writes it.
    fn send_scripted(&mut self, index: usize) {
        let Some(text) = self.scripting.request() else {
            return;
        };
        self.heed_script();
        match text {
            Ok(bytes) if self.requests.depth == 1 => {
                let request = after_blank_lines(&bytes);
                self.connections[index].head_only = request.starts_with(b"HEAD ");
                self.write(index, &bytes);
            }
            Ok(bytes) => {
                let batch = Rendered::of_text(bytes);
                let connection = &mut self.connections[index];
                connection.head_only = batch.head_only;
                connection.pieces().mixed = batch.mixed;
                self.write(index, &batch.bytes);
            }
            Err(fault) => self.give_up(fault),
        }
    }

    /// Writes the bytes of a request; the rest waits for room.
    fn write(&mut self, index: usize, bytes: &[u8]) {
        let connection = &mut self.connections[index];
        let Some(session) = connection.session.as_mut() else {
            return;
        };
        let written = self.wire.write(session, connection.fd, bytes);
        if let Ok(length) = written {
            self.recorder.now.counts.bytes_out += length as u64;
            if length == bytes.len() {
                return;
            }
        }
        self.not_all_written(index, written, bytes.into());
    }

    #[cold]
    fn not_all_written(&mut self, index: usize, written: io::Result<usize>, request: Arc<[u8]>) {
        match written {
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                self.not_written(index, error);
            }
            _ => {
                let sent = written.unwrap_or(0);
                self.connections[index].keep_rest(request, sent);
                self.want_room(index, true);
            }
        }
    }

    /// The server is gone; what it said before that comes first: it may have refused the request, since
    /// the last event or with it.
    #[cold]
    pub(super) fn not_written(&mut self, index: usize, error: io::Error) {
        let connection = &self.connections[index];
        let generation = connection.generation;
        let mut now = monotonic_ns();
        if P::STREAMS || socket::has_unread(connection.fd) {
            now = self.receive(index, true, now);
        }
        if self.connections[index].generation == generation {
            self.fail(index, Failure::Write(error), now);
        }
    }

    /// Begins or ends waiting for room.
    #[inline]
    pub(super) fn want_room(&mut self, index: usize, wanted: bool) {
        let connection = &mut self.connections[index];
        if connection.wants_room != wanted || wanted {
            connection.wants_room = wanted;
            let token = token(index, connection.registered);
            let (epoll, fd) = (&self.waiter.epoll, connection.fd);
            // a failure shows as a timeout of this request
            let _ = if T::DATAGRAMS && !wanted {
                epoll.want_no_room(fd, token)
            } else {
                epoll.want_room(fd, token, wanted)
            };
        }
    }

    /// There is room again.
    #[cold]
    pub(super) fn send_rest(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Some(session) = connection.session.as_mut() else {
            return;
        };
        let mut is_flushed = true;
        if Wire::<T, P>::HANDSHAKES {
            match self.wire.flush(session, connection.fd) {
                Ok(is_all) => is_flushed = is_all,
                Err(error) => {
                    self.not_written(index, error);
                    return;
                }
            }
        }
        if let Some(pieces) = &mut connection.pieces {
            let rest = &pieces.outbox[pieces.outbox_sent..];
            if !rest.is_empty() {
                match self.wire.write(session, connection.fd, rest) {
                    Ok(length) => {
                        self.recorder.now.counts.bytes_out += length as u64;
                        pieces.outbox_sent += length;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => {
                        self.not_written(index, error);
                        return;
                    }
                }
            }
            if pieces.outbox_sent == pieces.outbox.len() {
                (pieces.outbox, pieces.outbox_sent) = (Arc::default(), 0);
            } else {
                is_flushed = false;
                self.want_room(index, true);
            }
        }
        if is_flushed {
            self.want_room(index, false);
        }
    }
}
