//! Models of one direction of a connection: order, wrap, full ring, end, forged cursors.

use std::rc::Rc;

use bypass_sys::iovec::Pieces;
use loom::thread;

use crate::atomic::{AtomicU32, AtomicU64, Memory, Ordering};
use crate::extents::Place;
use crate::layout::{ConsumerLine, Locks, Owners, ProducerLine, Records, CLASSES};
use crate::ring::{Ring, Surroundings};
use crate::Model;

pub const MODELS: &[Model] = &[
    ("bytes_arrive_once_in_order_across_the_wrap", wrap),
    ("what_was_written_before_the_end_is_read", end),
    ("a_writer_that_found_no_room_is_told", room),
    ("a_loan_is_read_in_its_place", loan),
    ("a_loan_under_way_keeps_its_entry", two_loans),
    ("forged_cursors_never_lead_outside", forged),
    ("bytes_arrive_in_order_through_a_larger_ring", larger),
    ("a_ring_that_was_given_back_is_free_for_others", given_back),
    ("idle_memory_is_left_before_it_is_emptied", idle),
];

struct Stream {
    producer: ProducerLine,
    writer: Locks,
    consumer: ConsumerLine,
    records: Records,
    memory: Memory,
    owners: Owners,
    used: [AtomicU32; 1],
    first: usize,
}

impl Stream {
    fn new(size: usize) -> Rc<Self> {
        Rc::new(Self {
            producer: ProducerLine::new(),
            writer: Locks::new(),
            consumer: ConsumerLine::new(),
            records: Records::new(),
            memory: Memory::new(size + CLASSES[0].bytes),
            owners: Owners([AtomicU32::new(0)]),
            used: [AtomicU32::new(0)],
            first: size,
        })
    }

    fn ring(&self) -> Ring<'_> {
        // SAFETY: the memory lives as long as the stream, which the ring borrows.
        unsafe {
            Ring::new(
                &self.producer,
                &self.writer,
                &self.consumer,
                &self.records,
                (self.memory.base(), self.first),
            )
        }
    }

    /// The same, with a larger ring behind the first one.
    fn growing(&self) -> Ring<'_> {
        // SAFETY: as above.
        unsafe { self.ring().with(self, 0) }
    }

    fn pop(&self, limit: usize) -> Vec<u8> {
        Self::pop_from(self.ring(), limit)
    }

    fn pop_lent(&self, limit: usize) -> Vec<u8> {
        // SAFETY: the content is a constant.
        Self::pop_from(unsafe { self.ring().with(&Known, 0) }, limit)
    }

    fn pop_from(ring: Ring<'_>, limit: usize) -> Vec<u8> {
        let mut bytes = vec![0; limit];
        let piece = [libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: limit,
        }];
        // SAFETY: the vector is writable.
        let mut pieces = unsafe { Pieces::new(&piece) }.expect("fits");
        let count = ring.pop(&mut pieces).unwrap_or(0);
        bytes.truncate(count);
        bytes
    }
}

/// A content that both sides know.
struct Known;

const LENT: &[u8] = b"lent";

impl Surroundings for Known {
    fn content(&self, number: u32) -> Option<(*const u8, usize)> {
        (number == 7).then_some((LENT.as_ptr(), LENT.len()))
    }

    fn extent(&self, _place: Place) -> Option<(*mut u8, usize)> {
        None
    }

    fn take_extent(&self, _direction: u32, _over: usize, _wanted: usize) -> Option<Place> {
        None
    }

    fn has_extent(&self, _over: usize) -> bool {
        false
    }

    fn give_back(&self, _direction: u32, _place: Place) {}
}

impl Surroundings for Stream {
    fn content(&self, _number: u32) -> Option<(*const u8, usize)> {
        None
    }

    fn extent(&self, place: Place) -> Option<(*mut u8, usize)> {
        let (_, size) = place.range()?;
        Some((self.memory.base().wrapping_add(self.first), size))
    }

    fn take_extent(&self, direction: u32, over: usize, wanted: usize) -> Option<Place> {
        self.owners.take(&self.used, direction + 1, over, wanted)
    }

    fn has_extent(&self, over: usize) -> bool {
        self.owners.has_larger(over)
    }

    fn give_back(&self, direction: u32, place: Place) {
        self.owners.give_back(place, direction + 1);
    }
}

/// Five bytes through a ring of two and one of four, however the reader's looks fall between them.
fn larger() {
    let stream = Stream::new(2);
    let writer = stream.clone();
    let thread = thread::spawn(move || {
        writer.growing().push_slice(b"ab").expect("honest");
        assert_eq!(writer.growing().push_slice(b"cde"), Ok(3));
    });
    let mut got = Vec::new();
    for _ in 0..2 {
        got.extend(Stream::pop_from(stream.growing(), 9));
    }
    thread.join().expect("no panic");
    got.extend(Stream::pop_from(stream.growing(), 9));
    assert_eq!(got, b"abcde");
}

/// The reader leaves the larger ring; whoever takes it next, for another direction, writes only when the
/// reader is through with it.
fn given_back() {
    let stream = Stream::new(2);
    assert_eq!(stream.growing().push_slice(b"abc"), Ok(3));
    assert_eq!(Stream::pop_from(stream.growing(), 2), b"ab");
    let other = stream.clone();
    let thread = thread::spawn(move || {
        if let Some(place) = other.take_extent(1, 2, 3) {
            let (at, _) = other.extent(place).expect("an extent");
            // SAFETY: the ring is this direction's now.
            unsafe { crate::atomic::copy_in(b"xyzw".as_ptr(), at, 4) };
        }
    });
    assert_eq!(Stream::pop_from(stream.growing(), 9), b"c");
    let passed_by = Place::from_word(stream.consumer.ring.load(Ordering::Relaxed));
    stream.give_back(0, passed_by);
    thread.join().expect("no panic");
}

/// The writer's side finds a direction idle and leaves its larger ring, which it empties: the reader has
/// taken all, and what is written afterwards it finds in the first ring.
fn idle() {
    let stream = Stream::new(2);
    assert_eq!(stream.growing().push_slice(b"abc"), Ok(3));
    let writer = stream.clone();
    let thread = thread::spawn(move || {
        let ring = writer.growing();
        for _ in 0..2 {
            let is_idle = ring.is_idle() == Some(true);
            let left = is_idle.then(|| ring.leave_idle_extent()).flatten();
            if let Some(place) = left {
                let (at, _) = writer.extent(place).expect("an extent");
                // SAFETY: no thread accesses that memory any more.
                unsafe { crate::atomic::copy_in([0u8; 4].as_ptr(), at, 4) };
            }
        }
        ring.push_slice(b"d").expect("honest");
    });
    let mut got = Vec::new();
    for _ in 0..2 {
        got.extend(Stream::pop_from(stream.growing(), 9));
    }
    thread.join().expect("no panic");
    got.extend(Stream::pop_from(stream.growing(), 9));
    assert_eq!(got, b"abcd");
}

/// Bytes, a zero-copy content, bytes: in this order, regardless of when the reader looks.
fn loan() {
    let stream = Stream::new(2);
    let writer = stream.clone();
    let thread = thread::spawn(move || {
        let ring = writer.ring();
        ring.push_slice(b"a").expect("honest");
        assert!(ring.lend(7, 1, 2));
        ring.push_slice(b"b").expect("honest");
    });
    let mut got = Vec::new();
    for _ in 0..2 {
        got.extend(stream.pop_lent(3));
    }
    thread.join().expect("no panic");
    got.extend(stream.pop_lent(9));
    assert_eq!(got, b"aenb");
}

/// A place is not used again before its reader is through.
fn two_loans() {
    let stream = Stream::new(2);
    let writer = stream.clone();
    let thread = thread::spawn(move || {
        let made = [(0, 1), (1, 1), (2, 2)];
        made.map(|(offset, length)| writer.ring().lend(7, offset, length))
    });
    let mut got = stream.pop_lent(1);
    let made = thread.join().expect("no panic");
    got.extend(stream.pop_lent(9));
    assert!(made[0] && made[1]);
    assert_eq!(got, if made[2] { b"lent".as_slice() } else { b"le" });
}

/// Four bytes through a ring of two, by pieces that fall across its end.
fn wrap() {
    const BYTES: &[u8] = b"abcd";
    let stream = Stream::new(2);
    let writer = stream.clone();
    let thread = thread::spawn(move || {
        let mut sent = 0;
        for _ in 0..3 {
            let piece = &BYTES[sent..(sent + 2).min(4)];
            sent += writer.ring().push_slice(piece).expect("honest");
        }
        sent
    });
    let mut got = Vec::new();
    for _ in 0..3 {
        got.extend(stream.pop(2));
    }
    let sent = thread.join().expect("no panic");
    got.extend(stream.pop(2));
    assert!(got.len() == sent || got.len() + 2 > sent, "bytes were lost");
    assert_eq!(got, &BYTES[..got.len()]);
}

/// As `attempt_read` of the stack: nothing there, an end there, so look once more.
fn end() {
    let stream = Stream::new(4);
    let writer = stream.clone();
    let thread = thread::spawn(move || {
        writer.ring().push_slice(b"xy").expect("honest");
        writer.producer.ends.fetch_or(1, Ordering::SeqCst);
    });
    let mut got = Vec::new();
    for _ in 0..2 {
        let mut now = stream.pop(4);
        if now.is_empty() && stream.producer.ends.load(Ordering::Acquire) != 0 {
            now = stream.pop(4);
            if now.is_empty() {
                assert_eq!(got, b"xy", "the end came before the bytes");
                break;
            }
        }
        got.extend(now);
    }
    thread.join().expect("no panic");
}

/// As `attempt_write` and `attempt_read`: the writer finds the ring full and sleeps, the reader
/// makes room. One of the two must notice.
fn room() {
    let stream = Stream::new(2);
    assert_eq!(stream.ring().push_slice(b"ab"), Ok(2));
    let writer = stream.clone();
    let thread = thread::spawn(move || {
        let ring = writer.ring();
        if ring.push_slice(b"c").expect("honest") > 0 {
            return true;
        }
        ring.want_space();
        ring.push_slice(b"c").expect("honest") > 0
    });
    assert_eq!(stream.pop(2), b"ab");
    let told = stream.ring().is_space_wanted(2, false);
    let has_written = thread.join().expect("no panic");
    assert!(has_written || told, "the writer sleeps for ever");
}

/// The peer writes every cursor at any moment: what is copied stays inside, which the memory of the
/// model would notice, and a count never exceeds the ring.
fn forged() {
    let stream = Stream::new(2);
    let hostile = stream.clone();
    let thread = thread::spawn(move || {
        let lies: [(&AtomicU64, u64); 3] = [
            (&hostile.producer.tail, 7),
            (&hostile.writer.tail, 7),
            (&hostile.consumer.head, u64::MAX),
        ];
        for (cursor, lie) in lies {
            cursor.store(lie, Ordering::Relaxed);
        }
        hostile.producer.ends.store(u32::MAX, Ordering::Relaxed);
    });
    assert!(stream.pop(9).len() <= 2);
    let pushed = stream.ring().hole(9);
    assert!(pushed.is_err() || pushed.is_ok_and(|(_, length)| length <= 2));
    thread.join().expect("no panic");
}
