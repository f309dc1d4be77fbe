//! The ring: bytes arrive once and in order, and forged cursors never lead outside.

use std::sync::atomic::Ordering;

use crate::layout::LOANS;
use crate::record::What;
use std::cell::Cell;

use super::*;

struct Owned {
    producer: ProducerLine,
    writer: Locks,
    consumer: ConsumerLine,
    records: Records,
    bytes: Vec<u8>,
}

impl Owned {
    fn new(size: usize) -> Self {
        // SAFETY: all three are atomics, for which zero is valid.
        let (producer, consumer, records) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
        // SAFETY: likewise.
        let writer = unsafe { std::mem::zeroed() };
        Self {
            producer,
            writer,
            consumer,
            records,
            bytes: vec![0; size],
        }
    }

    fn ring(&self) -> Ring<'_> {
        let bytes = self.bytes.as_ptr().cast_mut();
        // SAFETY: the vector outlives the ring; only the ring touches it.
        unsafe {
            Ring::new(
                &self.producer,
                &self.writer,
                &self.consumer,
                &self.records,
                (bytes, self.bytes.len()),
            )
        }
    }
}

fn push(ring: Ring, bytes: &[u8]) -> Result<usize, Broken> {
    let piece = [libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }];
    // SAFETY: the slice is readable; push only reads.
    ring.push(&mut unsafe { Pieces::new(&piece) }.expect("fits"))
}

fn pop(ring: Ring, limit: usize) -> Result<Vec<u8>, Broken> {
    let mut bytes = vec![0u8; limit];
    let piece = [libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: limit,
    }];
    // SAFETY: the vector is writable.
    let count = ring.pop(&mut unsafe { Pieces::new(&piece) }.expect("fits"))?;
    bytes.truncate(count);
    Ok(bytes)
}

#[test]
fn what_is_shown_lies_in_two_pieces_at_the_end_and_stays_until_it_is_discarded() {
    let owned = Owned::new(8);
    push(owned.ring(), b"abcdef").expect("room");
    pop(owned.ring(), 5).expect("bytes");
    push(owned.ring(), b"ghijk").expect("room");
    let show = |most: usize| {
        let (mut seen, mut left) = (Vec::new(), most);
        let shown = owned.ring().show(99, |at, length| {
            let count = length.min(left);
            left -= count;
            // SAFETY: the ring lives, and no thread writes to it during the copy.
            seen.push(unsafe { std::slice::from_raw_parts(at, count) }.to_vec());
            count
        });
        (seen, shown)
    };
    let whole = vec![b"fgh".to_vec(), b"ijk".to_vec()];
    assert_eq!(show(99), (whole, Ok((6, 6))));
    // The piece behind one that was not taken whole is not shown.
    assert_eq!(show(2), (vec![b"fg".to_vec()], Ok((6, 2))));
    owned.ring().discard(2);
    assert_eq!(pop(owned.ring(), 99).as_deref(), Ok(&b"hijk"[..]));
}

#[test]
fn a_full_ring_takes_no_more_and_wraps() {
    let owned = Owned::new(8);
    assert_eq!(push(owned.ring(), b"abcdef"), Ok(6));
    assert_eq!(pop(owned.ring(), 4).as_deref(), Ok(&b"abcd"[..]));
    assert_eq!(push(owned.ring(), b"ghijklmn"), Ok(6));
    assert_eq!(push(owned.ring(), b"x"), Ok(0));
    assert_eq!(pop(owned.ring(), 99).as_deref(), Ok(&b"efghijkl"[..]));
    assert_eq!(pop(owned.ring(), 99).as_deref(), Ok(&b""[..]));
}

#[test]
fn many_small_buffers_are_one_stream() {
    let owned = Owned::new(16);
    let parts: Vec<&[u8]> = vec![b"ab", b"", b"c", b"defg"];
    let pieces: Vec<_> = parts
        .iter()
        .map(|p| libc::iovec {
            iov_base: p.as_ptr().cast_mut().cast(),
            iov_len: p.len(),
        })
        .collect();
    // SAFETY: the slices are readable; push only reads.
    let mut pieces = unsafe { Pieces::new(&pieces) }.expect("fits");
    assert_eq!(owned.ring().push(&mut pieces), Ok(7));
    assert_eq!(pop(owned.ring(), 16).as_deref(), Ok(&b"abcdefg"[..]));
}

#[test]
fn buffers_whose_sum_overflows_are_refused() {
    let piece = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: isize::MAX as usize,
    };
    // SAFETY: nothing is copied.
    assert!(unsafe { Pieces::new(&[piece, piece]) }.is_none());
}

#[test]
fn forged_cursors_are_broken_and_never_lead_outside() {
    let mut seed = 88_172_645_463_325_252u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        if seed % 3 == 0 {
            seed
        } else {
            seed % 40
        }
    };
    let owned = Owned::new(16);
    for _ in 0..200_000 {
        owned.producer.tail.store(next(), Ordering::Relaxed);
        owned.writer.head_seen.store(next(), Ordering::Relaxed);
        owned.writer.tail.store(next(), Ordering::Relaxed);
        owned.consumer.head.store(next(), Ordering::Relaxed);
        owned.consumer.tail_seen.store(next(), Ordering::Relaxed);
        if let Ok(count) = push(owned.ring(), &[7; 20]) {
            assert!(count <= 16);
        }
        if let Ok(bytes) = pop(owned.ring(), 20) {
            assert!(bytes.len() <= 16);
        }
        let hole = owned.ring().hole(20);
        assert!(hole.is_err() || hole.is_ok_and(|(_, length)| length <= 16));
    }
}

/// A content, and two larger rings.
struct Known {
    content: &'static [u8],
    extents: [Vec<u8>; 2],
    /// By extent: whether it is taken.
    taken: [Cell<bool>; 2],
}

impl Known {
    fn new() -> Self {
        Self {
            content: b"0123456789",
            extents: [vec![0; 32], vec![0; 128]],
            taken: [const { Cell::new(false) }; 2],
        }
    }

    fn place(number: usize) -> Place {
        Place::from_word((number as u32 + 1) << 16)
    }
}

impl Surroundings for Known {
    fn content(&self, number: u32) -> Option<(*const u8, usize)> {
        (number == 3).then_some((self.content.as_ptr(), self.content.len()))
    }

    fn extent(&self, place: Place) -> Option<(*mut u8, usize)> {
        let number = (0..2).find(|number| Self::place(*number) == place)?;
        let bytes = &self.extents[number];
        Some((bytes.as_ptr().cast_mut(), bytes.len()))
    }

    fn take_extent(&self, _direction: u32, over: usize, wanted: usize) -> Option<Place> {
        let is_fit = |number: &usize, size| self.extents[*number].len() >= size;
        let is_free = |number: &usize| !self.taken[*number].get() && is_fit(number, over + 1);
        let free = || (0..2).filter(is_free);
        let number = free()
            .find(|number| is_fit(number, wanted))
            .or_else(|| free().last())?;
        self.taken[number].set(true);
        Some(Self::place(number))
    }

    fn has_extent(&self, over: usize) -> bool {
        (0..2).any(|number| !self.taken[number].get() && self.extents[number].len() > over)
    }

    fn give_back(&self, _direction: u32, place: Place) {
        for number in 0..2 {
            if Self::place(number) == place {
                assert!(self.taken[number].replace(false), "given back twice");
            }
        }
    }
}

/// The direction of `owned` among what is `known`.
fn among<'a>(owned: &'a Owned, known: &'a Known) -> Ring<'a> {
    // SAFETY: content and rings live as long as `known`.
    unsafe { owned.ring().with(known, 0) }
}

fn counted(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(|at| (at * 7) as u8).collect()
}

#[test]
fn a_stream_that_outgrows_its_ring_goes_on_in_larger_ones_and_comes_back() {
    let (owned, known) = (Owned::new(16), Known::new());
    let ring = among(&owned, &known);
    assert_eq!(push(ring, &counted(0, 10)), Ok(10));
    assert!(ring.is_roomy());
    // What does not fit goes on in the next ring, whole.
    assert_eq!(push(ring, &counted(10, 20)), Ok(20));
    assert_eq!(push(ring, &counted(30, 100)), Ok(100));
    assert_eq!((ring.unread(), ring.available(999)), (130, Ok(130)));
    assert!(!among(&owned, &known).is_roomy(), "nothing larger is left");
    assert_eq!(push(ring, &counted(130, 60)), Ok(28));
    assert_eq!(pop(ring, 35).as_deref(), Ok(&counted(0, 35)[..]));
    assert_eq!([known.taken[0].get(), known.taken[1].get()], [false, true]);
    assert_eq!(pop(ring, 999).as_deref(), Ok(&counted(35, 123)[..]));
    // Short writes, each read at once: the first ring is enough again.
    for round in 0..20 {
        assert_eq!(push(ring, &counted(round, 5)), Ok(5));
        assert_eq!(pop(ring, 9).as_deref(), Ok(&counted(round, 5)[..]));
    }
    assert_eq!(owned.writer.ring.load(Ordering::Relaxed), 0);
    assert!(!known.taken[1].get());
}

#[test]
fn an_idle_direction_leaves_its_larger_ring_and_a_busy_one_does_not() {
    let (owned, known) = (Owned::new(16), Known::new());
    let ring = among(&owned, &known);
    assert_eq!(push(ring, &counted(0, 30)), Ok(30));
    let looks = [ring.is_idle(), ring.is_idle()];
    assert_eq!(looks, [Some(false); 2], "the reader has not read");
    assert_eq!(pop(ring, 99).map(|bytes| bytes.len()), Ok(30));
    assert_eq!(push(ring, b"x"), Ok(1));
    assert_eq!(pop(ring, 9).as_deref(), Ok(&b"x"[..]));
    assert_eq!(
        ring.is_idle(),
        Some(false),
        "written to since the last look"
    );
    assert_eq!(ring.is_idle(), Some(true));
    assert_eq!(ring.leave_idle_extent(), Some(Known::place(0)));
    assert_eq!(ring.is_idle(), None);
    // The reader has not come by yet; the ring is its own until then.
    assert!(known.taken[0].get());
    assert_eq!(push(ring, &counted(5, 60)), Ok(60));
    assert_eq!(pop(ring, 99).as_deref(), Ok(&counted(5, 60)[..]));
    assert_eq!([known.taken[0].get(), known.taken[1].get()], [false, true]);
}

#[test]
fn the_buffer_sizes_that_the_program_has_set_are_the_limit() {
    let (owned, known) = (Owned::new(16), Known::new());
    let ring = among(&owned, &known);
    owned.writer.send_buffer.store(10, Ordering::Relaxed);
    owned.consumer.receive_buffer.store(5, Ordering::Relaxed);
    assert_eq!(push(ring, &counted(0, 999)), Ok(25));
    assert!(!ring.is_roomy());
    assert_eq!(push(ring, b"x"), Ok(0));
    ring.want_space();
    assert_eq!(pop(ring, 7).map(|bytes| bytes.len()), Ok(7));
    assert!(!ring.is_space_wanted(7, false), "not a third yet");
    assert_eq!(pop(ring, 8).map(|bytes| bytes.len()), Ok(8));
    assert!(ring.is_space_wanted(8, false) && ring.is_roomy());
}

#[test]
fn a_reader_that_is_sent_from_ring_to_ring_comes_back_from_it() {
    let (owned, known) = (Owned::new(16), Known::new());
    let ring = among(&owned, &known);
    for record in &owned.records.0 {
        record.write(0, What::Ring(Known::place(1)));
    }
    owned
        .producer
        .records
        .store(RECORDS_MANY, Ordering::Relaxed);
    assert!(pop(ring, 9).is_err() || pop(ring, 9).as_deref() == Ok(&b""[..]));
    owned.producer.records.store(5, Ordering::Relaxed);
    assert_eq!(pop(ring, 9).as_deref(), Ok(&b""[..]));
}

/// More than there are.
const RECORDS_MANY: u64 = 1 << 40;

#[test]
fn zero_copy_bytes_arrive_in_the_order_they_were_sent() {
    let owned = Owned::new(8);
    let known = Known::new();
    let ring = among(&owned, &known);
    assert_eq!(push(ring, b"ab"), Ok(2));
    assert!(ring.lend(3, 4, 5));
    assert_eq!(push(ring, b"cdefgh"), Ok(6));
    assert!(ring.lend(3, 0, 1));
    assert_eq!((ring.available(99), ring.lent_bytes()), (Ok(14), 6));
    assert_eq!(pop(ring, 4).as_deref(), Ok(&b"ab45"[..]));
    ring.discard(1);
    assert_eq!(ring.available(99), Ok(9));
    assert_eq!(pop(ring, 99).as_deref(), Ok(&b"78cdefgh0"[..]));
    assert_eq!(
        (ring.available(1), pop(ring, 9).map(|b| b.len())),
        (Ok(0), Ok(0))
    );
}

#[test]
fn zero_copy_records_are_limited_and_forged_ones_are_broken() {
    let owned = Owned::new(8);
    let known = Known::new();
    let ring = among(&owned, &known);
    assert!((0..LOANS).all(|_| ring.lend(3, 0, 2)) && !ring.lend(3, 0, 2));
    assert_eq!(pop(ring, 3).as_deref(), Ok(&b"010"[..]));
    assert!(ring.lend(3, 9, 2), "one is through");
    // The last one ends outside its content.
    assert_eq!(pop(ring, 99), Err(Broken));
    let lent = |content, offset, length| What::Lent {
        content,
        offset,
        length,
    };
    for (at, what) in [
        (5, lent(3, 0, 1)),
        (0, lent(4, 0, 1)),
        (0, lent(3, 0, 0)),
        (0, lent(3, 7, 0xff_ffff)),
    ] {
        let owned = Owned::new(8);
        let ring = among(&owned, &known);
        owned.records.0[0].write(at, what);
        owned.producer.records.store(1, Ordering::Relaxed);
        owned.writer.records.store(1, Ordering::Relaxed);
        assert_eq!(pop(ring, 9), Err(Broken), "{at} {what:?}");
    }
    owned.producer.records.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(pop(owned.ring(), 9), Err(Broken));
}

#[test]
fn two_threads_pass_a_stream_unchanged() {
    let owned = Owned::new(64);
    // Rings are shared between processes; the pointer is the only thing that is not Sync here.
    struct Shared<'a>(&'a Owned);
    // SAFETY: the two threads keep the roles of one producer and one consumer.
    unsafe impl Sync for Shared<'_> {}
    let shared = Shared(&owned);
    let shared = &shared;
    const TOTAL: usize = 200_000;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut sent = 0usize;
            while sent < TOTAL {
                let end = (sent + 1 + sent % 29).min(TOTAL);
                let bytes: Vec<u8> = (sent..end).map(|n| ((n * 31) >> 3) as u8).collect();
                let count = push(shared.0.ring(), &bytes).expect("honest");
                sent += count;
                if count == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut received = 0usize;
        while received < TOTAL {
            let bytes = pop(shared.0.ring(), 1 + received % 37).expect("honest");
            if bytes.is_empty() {
                std::thread::yield_now();
            }
            for byte in bytes {
                assert_eq!(byte, ((received * 31) >> 3) as u8, "byte {received}");
                received += 1;
            }
        }
    });
}
