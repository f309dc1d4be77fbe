//! Copies what a process sends and receives into a ring after its statistics, for `bypass capture`.
//!
//! While no reader captures, the process checks one word. A reader maps the page for writing, takes
//! the ring and sets its filter; threads of the process then append records independently: each
//! reserves space, fills it, and commits it by its first word. A record that does not fit is
//! dropped and counted, so a slow or dead reader delays no thread. All access goes through atomics,
//! and every cursor is checked: whatever the other side writes, a copy stays inside the ring.

use core::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
use std::net::{IpAddr, SocketAddr};

use bypass_sys::address::SharedAddress;
use bypass_sys::clock;

mod filter;
mod reader;
mod stream;

#[cfg(test)]
use reader::STUCK_NS;

pub use filter::Filter;
pub use reader::{Captured, Reader, Record};
pub use stream::{By, Stream};

/// Bytes of a ring; its pages exist only during a capture.
const RING_BYTES: usize = 8 << 20;
const RING_WORDS: usize = RING_BYTES / 8;
/// Longest frame: the longest GSO packet.
pub const FRAME_MAX: usize = 65_549;
/// Largest payload of a segment made from the bytes of a same-host connection.
const SEGMENT_MAX: usize = 32 << 10;
/// A reader that has been silent for so long is gone.
const SILENT_NS: u64 = 3_000_000_000;

const KIND_FRAME: u64 = 1;
const KIND_SEGMENT: u64 = 2;
/// Before a frame: length and kind, time, length on the wire.
const FRAME_WORDS: usize = 3;
/// Before a segment's payload: the same, sequence numbers, addresses of both ends.
const SEGMENT_WORDS: usize = 10;

/// The part of the page that a capture uses.
#[repr(C, align(4096))]
pub(crate) struct Shared {
    /// 1: a reader captures. In a cache line that only a reader writes.
    wanted: AtomicU32,
    /// Process of the reader.
    reader: AtomicU32,
    heard_ns: AtomicU64,
    snap: AtomicU32,
    /// 0: any.
    port: AtomicU32,
    has_host: AtomicU32,
    host: SharedAddress,
    head: Line,
    tail: Line,
    dropped: AtomicU64,
    ring: Words,
}

#[repr(C, align(128))]
struct Line(AtomicU64);

#[repr(C, align(4096))]
struct Words([AtomicU64; RING_WORDS]);

/// One segment of a same-host connection, as TCP would have sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The sender.
    pub from: SocketAddr,
    /// The receiver.
    pub to: SocketAddr,
    /// Sequence number of its first byte.
    pub sequence: u32,
    /// Next byte that its sender expects.
    pub acknowledgment: u32,
    /// The flags byte of a TCP header.
    pub flags: u8,
    /// The recording process is the client of the connection: if both ends record, one is enough.
    pub by_client: bool,
}

impl Shared {
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// Place and size of the ring in a file where this lies at `offset`.
    pub(crate) fn ring_in(offset: usize) -> (usize, usize) {
        (offset + core::mem::offset_of!(Self, ring), RING_BYTES)
    }

    fn filter(&self) -> Filter {
        let has_host = self.has_host.load(Ordering::Relaxed) != 0;
        Filter {
            port: u16::try_from(self.port.load(Ordering::Relaxed))
                .ok()
                .filter(|port| *port != 0),
            host: has_host.then(|| self.host.load().ip()),
        }
    }

    /// Appends a frame; `is_incomplete`: the reader has to complete its checksums.
    pub(crate) fn frame(&self, frame: &[u8], is_incomplete: bool) {
        if !self.filter().admits_frame(frame) {
            return;
        }
        let snap = self.snap.load(Ordering::Relaxed) as usize;
        let kept = &frame[..frame.len().min(snap).min(FRAME_MAX)];
        let flags = u64::from(is_incomplete);
        let head = [flags << 32 | frame.len() as u64];
        self.append::<FRAME_WORDS>(KIND_FRAME, &head, kept);
    }

    /// Appends a segment.
    fn segment(&self, segment: &Segment, payload: &[u8]) {
        if !self.filter().admits(segment.from, segment.to) {
            return;
        }
        let snap = self.snap.load(Ordering::Relaxed) as usize;
        let kept = &payload[..payload.len().min(snap).min(SEGMENT_MAX)];
        let [from, to] = [segment.from, segment.to].map(words_of);
        let flags = u64::from(segment.flags) | u64::from(segment.by_client) << 8;
        let head = [
            flags << 32 | payload.len() as u64,
            u64::from(segment.sequence) << 32 | u64::from(segment.acknowledgment),
            from[0],
            from[1],
            from[2],
            to[0],
            to[1],
            to[2],
        ];
        self.append::<SEGMENT_WORDS>(KIND_SEGMENT, &head, kept);
    }

    /// `WORDS` includes the two before `head`.
    fn append<const WORDS: usize>(&self, kind: u64, head: &[u64], payload: &[u8]) {
        debug_assert_eq!(head.len() + 2, WORDS, "the record's layout");
        let words = WORDS + payload.len().div_ceil(8);
        let Some((start, unix_ns)) = self.reserve(words as u64) else {
            self.drop_one();
            return;
        };
        let put = |index: usize, word| {
            self.word(start + index as u64)
                .store(word, Ordering::Relaxed)
        };
        put(1, unix_ns);
        for (index, word) in head.iter().enumerate() {
            put(2 + index, *word);
        }
        for (index, bytes) in payload.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            put(WORDS + index, u64::from_le_bytes(word));
        }
        // Release: the record before the word that commits it.
        self.word(start)
            .store(kind << 32 | payload.len() as u64, Ordering::Release);
    }

    /// Space for `words`, and the time.
    fn reserve(&self, words: u64) -> Option<(u64, u64)> {
        let mut tail = self.tail.0.load(Ordering::Relaxed);
        loop {
            // Acquire: the reader has zeroed what it consumed.
            let used = tail.wrapping_sub(self.head.0.load(Ordering::Acquire));
            let free = (RING_WORDS as u64).checked_sub(used)?;
            if free < words {
                return None;
            }
            let unix_ns = clock::unix_ns();
            let next = tail.wrapping_add(words);
            match self.tail.0.compare_exchange_weak(
                tail,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some((tail, unix_ns)),
                Err(now) => tail = now,
            }
        }
    }

    /// Counts a record that did not fit, and thereby notices a reader that was killed.
    #[cold]
    fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        if self.is_silent() {
            self.wanted.store(0, Ordering::Relaxed);
        }
    }

    fn is_silent(&self) -> bool {
        let heard_ns = self.heard_ns.load(Ordering::Relaxed);
        clock::now_ns().saturating_sub(heard_ns) > SILENT_NS
    }

    fn word(&self, index: u64) -> &AtomicU64 {
        &self.ring.0[index as usize % RING_WORDS]
    }
}

/// An address as three words.
fn words_of(address: SocketAddr) -> [u64; 3] {
    let (kind, bits) = match address.ip() {
        IpAddr::V4(ip) => (4u64, u128::from(u32::from(ip))),
        IpAddr::V6(ip) => (6, u128::from(ip)),
    };
    [
        kind << 16 | u64::from(address.port()),
        (bits >> 64) as u64,
        bits as u64,
    ]
}

/// An address from any three words.
fn address_of(words: [u64; 3]) -> SocketAddr {
    let bits = u128::from(words[1]) << 64 | u128::from(words[2]);
    let ip: IpAddr = match words[0] >> 16 {
        6 => IpAddr::V6(bits.into()),
        _ => IpAddr::V4((bits as u32).into()),
    };
    SocketAddr::new(ip, words[0] as u16)
}

#[cfg(test)]
mod tests;
