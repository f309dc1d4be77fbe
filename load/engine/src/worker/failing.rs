//! Requests that failed: counted, and their connection opened again.

use super::Worker;
use crate::protocol::{Fault, InFlight, Protocol, RequestMeta};
use crate::transport::Transport;
use load_http1::Malformed;
use std::io::{self, ErrorKind};

/// Besides two round trips: the time that machines take to learn that a connection is closed.
const STALE_NS: u64 = 5_000_000;

/// Why a request on a connection failed.
pub(super) enum Failure {
    Read(io::Error),
    /// Closed by the server before an answer began.
    Closed,
    Write(io::Error),
    Timeout,
    Malformed(Malformed),
    /// The server broke the rules of HTTP/2 or HTTP/3, or sent something else than an echo.
    Fault(Fault),
    /// The server broke the rules of WebSocket, or spoke unasked.
    Frame(load_websocket::Fault),
}

/// Whether nothing listens where requests were sent to.
fn is_refused(failure: &Failure) -> bool {
    let (Failure::Read(error) | Failure::Write(error)) = failure else {
        return false;
    };
    error.kind() == ErrorKind::ConnectionRefused
}

impl<T: Transport, P: Protocol> Worker<'_, T, P> {
    /// The requests on a connection are lost: each is counted and entered, and the connection is
    /// closed and opened again a little later.
    #[cold]
    pub(super) fn fail(&mut self, index: usize, failure: Failure, now: u64) {
        if self.running && self.recorder.is_over(now) {
            self.rotate(now);
        }
        let is_stale = self.is_stale(index, &failure, now);
        // a socket of UDP connects whether a server is there or not
        if T::DATAGRAMS && self.connections[index].answered == 0 && is_refused(&failure) {
            self.connector.note_failure(&self.connections[index]);
        }
        let lost = u64::from(self.connections[index].in_flight);
        self.lose_all(index, now);
        let errors = &mut self.recorder.now.counts.errors;
        let text = match failure {
            Failure::Read(_) | Failure::Closed | Failure::Write(_) if is_stale => {
                errors.stale += lost;
                "a connection in use was closed unannounced".to_string()
            }
            Failure::Read(error) => {
                errors.read += lost;
                format!("read: {error}")
            }
            Failure::Closed => {
                errors.read += lost;
                "read: closed by the server before the response".to_string()
            }
            Failure::Write(error) => {
                errors.write += lost;
                format!("write: {error}")
            }
            Failure::Timeout => {
                errors.timeout += lost;
                "no response in time".to_string()
            }
            Failure::Fault(fault @ Fault::Http2(_)) => {
                errors.http2 += 1;
                errors.read += lost.saturating_sub(1);
                format!("HTTP/2: {}", fault.name())
            }
            Failure::Fault(fault @ Fault::Http3(_)) => {
                errors.http3 += 1;
                errors.read += lost.saturating_sub(1);
                format!("HTTP/3: {}", fault.name())
            }
            Failure::Fault(fault @ Fault::Echo) => {
                errors.echo += 1;
                errors.read += lost.saturating_sub(1);
                fault.name().to_string()
            }
            Failure::Frame(fault) => {
                errors.websocket += 1;
                errors.read += lost.saturating_sub(1);
                format!("WebSocket: {}", fault.name())
            }
            Failure::Malformed(class) => {
                errors.malformed[class as usize] += 1;
                // the rest of a batch is lost with its connection
                errors.read += lost.saturating_sub(1);
                format!("malformed response: {}", class.name())
            }
        };
        self.recorder.note(|| text);
        self.connections[index].failures = self.connections[index].failures.saturating_add(1);
        self.close(index);
        self.reopen_later(index, now);
    }

    /// What is in flight on a connection, and how many requests have these times.
    pub(super) fn in_flight(&mut self, index: usize) -> Vec<(RequestMeta, u64)> {
        let connection = &mut self.connections[index];
        if connection.in_flight == 0 {
            return Vec::new();
        }
        let session = connection.session.as_mut();
        match session.and_then(|session| self.wire.client(session)) {
            Some(client) => {
                let each = client.each().into_iter();
                each.map(|(_, asked)| (asked, 1)).collect()
            }
            None => vec![(connection.meta(), u64::from(connection.in_flight))],
        }
    }

    /// Enters the requests in flight on a connection as lost, with the time they were outstanding.
    pub(super) fn lose_all(&mut self, index: usize, now: u64) {
        let target = usize::from(self.connections[index].target);
        for (asked, times) in self.in_flight(index) {
            self.recorder.lose(target, asked, times, now);
        }
    }

    /// Whether the server was closing a connection in use when the next request was on its way: no
    /// byte of an answer has come, and the end came sooner than a server that had read the request
    /// could have answered from far away.
    fn is_stale(&mut self, index: usize, failure: &Failure, now: u64) -> bool {
        let is_between_answers = self.is_between_answers(index);
        let connection = &self.connections[index];
        let ended = match failure {
            Failure::Closed => true,
            Failure::Read(error) | Failure::Write(error) => matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ),
            Failure::Timeout | Failure::Malformed(_) | Failure::Fault(_) | Failure::Frame(_) => {
                false
            }
        };
        let whole = connection.in_flight as usize == self.requests.depth;
        let crossed =
            now.saturating_sub(connection.sent_ns) <= STALE_NS + 2 * self.connector.round_trip_ns;
        !P::STREAMS && ended && whole && crossed && connection.answered > 0 && is_between_answers
    }
}
