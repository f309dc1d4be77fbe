//! Requests and connects that have waited too long.

use super::connecting::token;
use super::failing::Failure;
use super::{ConnectionState, Worker};
use crate::protocol::Protocol;
use crate::sys::clock::monotonic_ns;
use crate::sys::epoll::Ready;
use crate::transport::Transport;
use std::io::{self, ErrorKind};
use std::ops::Range;

/// A late connection is read on so many times: as much as a large receive buffer holds, and an endless
/// body ends.
const READS_MAX: usize = 32;

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
            if self.is_late(index, now) {
                self.catch_up(index, now);
                if self.is_late(index, now) {
                    self.give_up_on(index, now);
                }
            }
        }
    }

    /// Whether a request on a connection, or its opening, takes longer than it may.
    fn is_late(&mut self, index: usize, now: u64) -> bool {
        let connection = &self.connections[index];
        let age_ns = now.saturating_sub(connection.sent_ns);
        match connection.state {
            ConnectionState::Busy if P::STREAMS => !self.late_streams(index, now).is_empty(),
            ConnectionState::Busy => age_ns > self.plan.timeout_ns,
            ConnectionState::Connecting | ConnectionState::Handshaking => {
                age_ns > self.plan.connect_timeout_ns
            }
            ConnectionState::Idle if P::STREAMS => {
                age_ns > self.plan.timeout_ns && self.is_of_no_use(index, now)
            }
            ConnectionState::Closed | ConnectionState::Idle | ConnectionState::Delayed => false,
        }
    }

    /// Handles what has come on a late connection and was not seen. Where this thread was away (stopped,
    /// or without a core), something has come on all connections, and each wait reports some of them.
    #[cold]
    fn catch_up(&mut self, index: usize, now: u64) {
        let connection = &self.connections[index];
        let ready = Ready::now(connection.fd);
        if ready.readable() || connection.state == ConnectionState::Connecting {
            let token = token(index, connection.registered);
            self.handle(token, ready, monotonic_ns());
        }
        // one read takes no more than a part of a long body, and what TLS holds makes nothing readable
        for _ in 0..READS_MAX {
            if !self.is_late(index, now) {
                return;
            }
            let Some(unfinished) = self.reads.take_unfinished(index) else {
                return;
            };
            self.read_more(unfinished, monotonic_ns());
        }
    }

    #[cold]
    fn give_up_on(&mut self, index: usize, now: u64) {
        match self.connections[index].state {
            ConnectionState::Busy if P::STREAMS => self.scan_streams(index, now),
            ConnectionState::Busy => self.fail(index, Failure::Timeout, now),
            ConnectionState::Connecting | ConnectionState::Handshaking => {
                self.connect_failed(index, &ErrorKind::TimedOut.into(), now);
            }
            ConnectionState::Idle => {
                let why = io::Error::other("the server allows no streams");
                self.connect_failed(index, &why, now);
            }
            ConnectionState::Closed | ConnectionState::Delayed => {}
        }
    }
}
