//! Same-host connections as TCP would have carried them: segments made from the calls of the
//! process.
//!
//! Sequence numbers follow the byte counts in the socket's row, so they agree from segment to
//! segment without access to the other side. A thread that reads or writes holds the connection's
//! lock for it and counts afterwards; bytes that one direction acknowledges were therefore shown in
//! the other.

use core::sync::atomic::Ordering;
use std::net::SocketAddr;

use super::{Segment, Shared, SEGMENT_MAX};
use crate::Row;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// In a row: what a capture has shown of the end, and which side sent bytes last.
const OWN_END: u32 = 1;
const PEER_END: u32 = 2;
const OVER: u32 = 4;
const OWN_LAST: u32 = 8;
const PEER_LAST: u32 = 16;

/// Of [`Row::path`].
const SHARED_MEMORY: u32 = 1;
/// Of [`Row::role`].
const CLIENT: u32 = 1;

/// The acting side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The process itself.
    Us,
    /// The other end.
    Peer,
}

impl By {
    fn other(self) -> Self {
        match self {
            Self::Us => Self::Peer,
            Self::Peer => Self::Us,
        }
    }

    fn end(self) -> u32 {
        match self {
            Self::Us => OWN_END,
            Self::Peer => PEER_END,
        }
    }
}

/// One connection of the process.
pub struct Stream<'a> {
    shared: &'a Shared,
    row: &'a Row,
}

impl<'a> Stream<'a> {
    /// None unless the connection is on the same host.
    pub(crate) fn new(shared: &'a Shared, row: &'a Row) -> Option<Self> {
        let is_shared = row.path.load(Ordering::Relaxed) == SHARED_MEMORY;
        is_shared.then_some(Self { shared, row })
    }

    /// The connection opens: the handshake.
    pub fn opened(&self) {
        let (client, server) = match self.is_client() {
            true => (By::Us, By::Peer),
            false => (By::Peer, By::Us),
        };
        self.show(client, SYN, &[]);
        self.show(server, SYN | ACK, &[]);
        self.show(client, ACK, &[]);
    }

    /// Bytes pass, which are not counted yet. The pieces of one call follow each other.
    pub fn passed<'b>(&self, by: By, pieces: impl Iterator<Item = &'b [u8]>) {
        if self.is_over() {
            return;
        }
        self.acknowledge_earlier(by);
        let mut done = 0u32;
        for segment in pieces.flat_map(|piece| piece.chunks(SEGMENT_MAX)) {
            self.show_at(by, done, PSH | ACK, segment);
            done = done.wrapping_add(segment.len() as u32);
        }
    }

    /// A side that only receives acknowledges earlier bytes, as TCP does at a second segment.
    fn acknowledge_earlier(&self, by: By) {
        let (own, other) = match by {
            By::Us => (OWN_LAST, PEER_LAST),
            By::Peer => (PEER_LAST, OWN_LAST),
        };
        let shown = self.row.shown.fetch_or(own, Ordering::Relaxed);
        self.row.shown.fetch_and(!other, Ordering::Relaxed);
        if shown & own != 0 {
            self.show(by.other(), ACK, &[]);
        }
    }

    /// A direction ends; once.
    pub fn ended(&self, by: By) {
        if self.is_over() || self.has_ended(by) {
            return;
        }
        self.show(by, FIN | ACK, &[]);
        self.row.shown.fetch_or(by.end(), Ordering::Relaxed);
        self.show(by.other(), ACK, &[]);
    }

    /// The connection is reset; once.
    pub fn reset(&self, by: By) {
        if self.row.shown.fetch_or(OVER, Ordering::Relaxed) & OVER == 0 {
            self.show(by, RST | ACK, &[]);
        }
    }

    fn is_over(&self) -> bool {
        self.row.shown.load(Ordering::Relaxed) & OVER != 0
    }

    fn has_ended(&self, by: By) -> bool {
        self.row.shown.load(Ordering::Relaxed) & by.end() != 0
    }

    fn is_client(&self) -> bool {
        self.row.role.load(Ordering::Relaxed) == CLIENT
    }

    fn name(&self, by: By) -> SocketAddr {
        match by {
            By::Us => self.row.local.load(),
            By::Peer => self.row.peer.load(),
        }
    }

    /// The next sequence number of a direction: each connection has another start, as addresses are
    /// reused.
    fn next(&self, by: By) -> u32 {
        let first = self.row.first_number.load(Ordering::Relaxed);
        let (start, bytes) = match by {
            By::Us => (first, &self.row.bytes_out),
            By::Peer => (first.rotate_left(16), &self.row.bytes_in),
        };
        let ends = u32::from(self.has_ended(by));
        start
            .wrapping_add(1)
            .wrapping_add(bytes.load(Ordering::Relaxed) as u32)
            .wrapping_add(ends)
    }

    fn show(&self, by: By, flags: u8, payload: &[u8]) {
        self.show_at(by, 0, flags, payload);
    }

    fn show_at(&self, by: By, offset: u32, flags: u8, payload: &[u8]) {
        let is_syn = flags & SYN != 0;
        let acknowledgment = match flags & ACK {
            0 => 0,
            _ => self.next(by.other()),
        };
        let segment = Segment {
            from: self.name(by),
            to: self.name(by.other()),
            sequence: self
                .next(by)
                .wrapping_add(offset)
                .wrapping_sub(u32::from(is_syn)),
            acknowledgment,
            flags,
            by_client: self.is_client(),
        };
        self.shared.segment(&segment, payload);
    }
}
