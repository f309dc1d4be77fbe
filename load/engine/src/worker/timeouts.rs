//! Requests and connects that have waited too long.

use super::failing::Failure;
use super::{ConnectionState, Worker};
use crate::protocol::Protocol;
use crate::transport::Transport;
use std::io::{self, ErrorKind};
use std::ops::Range;

impl<T: Transport, P: Protocol> Worker<'_, T, P> {
    /// Gives up on requests and connects that have waited too long, where it is time to look.
    pub(super) fn scan_timeouts(&mut self, now: u64) {
        let streams = if P::STREAMS {
            self.plan.protocol.streams()
        } else {
            1
        };
        let count = self.connections.len();
        if let Some(some) = self.deadlines.next_scan(now, count, streams) {
            self.scan_some(some, now);
            let shorter_ns = self.plan.timeout_ns.min(self.plan.connect_timeout_ns);
            self.deadlines.note_scanned(now, shorter_ns);
        }
    }

    fn scan_some(&mut self, some: Range<usize>, now: u64) {
        for index in some {
            let connection = &self.connections[index];
            let age_ns = now.saturating_sub(connection.sent_ns);
            let is_opening = matches!(
                connection.state,
                ConnectionState::Connecting | ConnectionState::Handshaking
            );
            let limit_ns = if is_opening {
                self.plan.connect_timeout_ns
            } else {
                self.plan.timeout_ns
            };
            if age_ns <= limit_ns && !(P::STREAMS && connection.state == ConnectionState::Busy) {
                continue;
            }
            let state = connection.state;
            match state {
                ConnectionState::Busy if P::STREAMS => self.scan_streams(index, now),
                ConnectionState::Busy => self.fail(index, Failure::Timeout, now),
                ConnectionState::Connecting | ConnectionState::Handshaking => {
                    self.connect_failed(index, &ErrorKind::TimedOut.into(), now);
                }
                ConnectionState::Idle if P::STREAMS && self.is_of_no_use(index, now) => {
                    let why = io::Error::other("the server allows no streams");
                    self.connect_failed(index, &why, now);
                }
                ConnectionState::Closed | ConnectionState::Idle | ConnectionState::Delayed => {}
            }
        }
    }
}
