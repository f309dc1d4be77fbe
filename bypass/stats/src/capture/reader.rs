//! The reader of a capture.

use super::*;

/// A captured record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A frame of an interface.
    Frame {
        /// From the Ethernet header on; cut at the reader's snap length.
        bytes: Vec<u8>,
        /// Bytes on the wire.
        length: usize,
        /// The checksum of its transport header is to be completed.
        is_incomplete: bool,
    },
    /// A segment of a same-host connection.
    Segment {
        /// Its header.
        segment: Segment,
        /// Cut at the reader's snap length.
        payload: Vec<u8>,
        /// Bytes of the whole payload.
        length: usize,
    },
}

/// A record and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Nanoseconds since 1970.
    pub unix_ns: u64,
    /// See [`Record`].
    pub record: Record,
}

/// The only reader of a process's ring; releases it when dropped.
#[derive(Debug)]
pub struct Reader {
    view: crate::View,
    dropped_before: u64,
    last_ns: u64,
    /// A record that is not committed yet, and since when.
    pub(super) stuck: Option<(u64, u64)>,
}

/// After this time an uncommitted record is given up, with those behind it.
pub(super) const STUCK_NS: u64 = 1_000_000_000;

impl Reader {
    /// Starts to capture a process; `Err` has the process id of the present reader.
    pub fn begin(view: crate::View, filter: Filter, snap: usize) -> Result<Self, u32> {
        let shared = view.capture();
        let holder = shared.reader.load(Ordering::Relaxed);
        if holder != 0 && !shared.is_silent() {
            return Err(holder);
        }
        let own = std::process::id();
        shared
            .reader
            .compare_exchange(holder, own, Ordering::AcqRel, Ordering::Relaxed)?;
        shared.wanted.store(0, Ordering::SeqCst);
        shared.heard_ns.store(clock::now_ns(), Ordering::Relaxed);
        shared.snap.store(snap as u32, Ordering::Relaxed);
        let port = filter.port.map_or(0, u32::from);
        shared.port.store(port, Ordering::Relaxed);
        let host = filter.host.map(|ip| SocketAddr::new(ip, 0));
        shared
            .has_host
            .store(u32::from(host.is_some()), Ordering::Relaxed);
        if let Some(host) = host {
            shared.host.store(host);
        }
        let dropped_before = shared.dropped.load(Ordering::Relaxed);
        let reader = Self {
            dropped_before,
            last_ns: 0,
            stuck: None,
            view,
        };
        reader.empty();
        reader.shared().wanted.store(1, Ordering::SeqCst);
        Ok(reader)
    }

    fn shared(&self) -> &Shared {
        self.view.capture()
    }

    /// The captured page.
    pub fn view(&self) -> &crate::View {
        &self.view
    }

    /// Records dropped since the start, because they did not fit.
    pub fn dropped(&self) -> u64 {
        let now = self.shared().dropped.load(Ordering::Relaxed);
        now.wrapping_sub(self.dropped_before)
    }

    /// Skips all records, and frees their memory.
    pub(super) fn empty(&self) {
        let shared = self.shared();
        let tail = shared.tail.0.load(Ordering::Acquire);
        self.view.release_ring();
        shared.head.0.store(tail, Ordering::Release);
    }

    /// Hands over new records, in order, and marks this reader as alive.
    pub fn drain(&mut self, mut take: impl FnMut(Captured)) {
        let now_ns = clock::now_ns();
        self.shared().heard_ns.store(now_ns, Ordering::Relaxed);
        // A limit: a process that writes as fast as this reads must not starve the others.
        let end = self.shared().tail.0.load(Ordering::Acquire);
        loop {
            let shared = self.shared();
            let head = shared.head.0.load(Ordering::Relaxed);
            let left = end.wrapping_sub(head);
            if left == 0 || left > RING_WORDS as u64 {
                break;
            }
            let first = shared.word(head).load(Ordering::Acquire);
            if first == 0 {
                self.wait_for(head, now_ns);
                return;
            }
            match self.read(head, first, left) {
                Some((captured, words)) => {
                    self.pass(head, words);
                    take(captured);
                }
                None => self.give_up(),
            }
        }
        self.stuck = None;
    }

    fn wait_for(&mut self, head: u64, now_ns: u64) {
        match self.stuck {
            Some((at, since_ns)) if at == head => {
                if now_ns.saturating_sub(since_ns) > STUCK_NS {
                    self.give_up();
                }
            }
            _ => self.stuck = Some((head, now_ns)),
        }
    }

    /// After a record that is invalid, or that its writer never completes.
    fn give_up(&mut self) {
        self.stuck = None;
        self.shared().dropped.fetch_add(1, Ordering::Relaxed);
        self.empty();
    }

    /// Zeroes the record first: the first word of a record must read 0 until it is committed.
    fn pass(&self, head: u64, words: u64) {
        let shared = self.shared();
        for index in 0..words {
            shared
                .word(head.wrapping_add(index))
                .store(0, Ordering::Relaxed);
        }
        shared
            .head
            .0
            .store(head.wrapping_add(words), Ordering::Release);
    }

    fn read(&mut self, head: u64, first: u64, left: u64) -> Option<(Captured, u64)> {
        let (kind, kept) = (first >> 32, (first & 0xffff_ffff) as usize);
        let before = match kind {
            KIND_FRAME => FRAME_WORDS,
            KIND_SEGMENT => SEGMENT_WORDS,
            _ => return None,
        };
        let words = (before + kept.div_ceil(8)) as u64;
        if kept > FRAME_MAX || words > left {
            return None;
        }
        let word = |index: usize| {
            let at = head.wrapping_add(index as u64);
            self.shared().word(at).load(Ordering::Relaxed)
        };
        let mut bytes: Vec<u8> = (before..words as usize)
            .flat_map(|index| word(index).to_le_bytes())
            .collect();
        bytes.truncate(kept);
        let length = (word(2) & 0xffff_ffff) as usize;
        let flags = word(2) >> 32;
        let record = match kind {
            KIND_FRAME => Record::Frame {
                bytes,
                length: length.max(kept),
                is_incomplete: flags & 1 != 0,
            },
            _ => Record::Segment {
                segment: Segment {
                    from: address_of([word(4), word(5), word(6)]),
                    to: address_of([word(7), word(8), word(9)]),
                    sequence: (word(3) >> 32) as u32,
                    acknowledgment: word(3) as u32,
                    flags: flags as u8,
                    by_client: flags & 0x100 != 0,
                },
                payload: bytes,
                length: length.max(kept),
            },
        };
        // Two threads may have read the clock in another order than they reserved space.
        let unix_ns = word(1).max(self.last_ns);
        self.last_ns = unix_ns;
        Some((Captured { unix_ns, record }, words))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let shared = self.shared();
        let own = std::process::id();
        if shared.reader.load(Ordering::Relaxed) != own {
            return;
        }
        shared.wanted.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.empty();
        shared.reader.store(0, Ordering::Release);
    }
}
