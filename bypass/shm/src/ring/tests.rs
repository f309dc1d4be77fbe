//! The ring: bytes arrive once and in order, and forged cursors never lead outside.

use std::sync::atomic::Ordering;

use crate::layout::LOANS;

use super::*;

struct Owned {
    producer: ProducerLine,
    writer: Locks,
    consumer: ConsumerLine,
    loans: Loans,
    bytes: Vec<u8>,
}

impl Owned {
    fn new(size: usize) -> Self {
        // SAFETY: all three are atomics, for which zero is valid.
        let (producer, consumer, loans) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
        // SAFETY: likewise.
        let writer = unsafe { std::mem::zeroed() };
        Self {
            producer,
            writer,
            consumer,
            loans,
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
                &self.loans,
                bytes,
                self.bytes.len(),
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

struct Known(&'static [u8]);

impl Borrowed for Known {
    fn content(&self, number: u32) -> Option<(*const u8, usize)> {
        (number == 3).then_some((self.0.as_ptr(), self.0.len()))
    }
}

#[test]
fn lent_bytes_come_where_they_were_sent() {
    let owned = Owned::new(8);
    let known = Known(b"0123456789");
    let ring = owned.ring().with(&known);
    assert_eq!(push(ring, b"ab"), Ok(2));
    assert!(ring.lend(3, 4, 5));
    assert_eq!(push(ring, b"cdefgh"), Ok(6));
    assert!(ring.lend(3, 0, 1));
    assert_eq!((ring.available(99), ring.lent_bytes()), (Ok(14), 6));
    assert_eq!(pop(ring, 4).as_deref(), Ok(&b"ab45"[..]));
    ring.discard(1);
    assert_eq!(ring.available(99), Ok(9 + 0));
    assert_eq!(pop(ring, 99).as_deref(), Ok(&b"78cdefgh0"[..]));
    assert_eq!(
        (ring.available(1), pop(ring, 9).map(|b| b.len())),
        (Ok(0), Ok(0))
    );
}

#[test]
fn loans_are_few_and_forged_ones_are_broken() {
    let owned = Owned::new(8);
    let known = Known(b"0123456789");
    let ring = owned.ring().with(&known);
    assert!((0..LOANS).all(|_| ring.lend(3, 0, 2)) && !ring.lend(3, 0, 2));
    assert_eq!(pop(ring, 3).as_deref(), Ok(&b"010"[..]));
    assert!(ring.lend(3, 9, 2), "one is through");
    // The last one ends outside its content.
    assert_eq!(pop(ring, 99), Err(Broken));
    for (at, place, length) in [
        (5, 3 << 32, 1),
        (0, 4 << 32, 1),
        (0, 3 << 32, 0),
        (0, 3 << 32 | 7, u64::MAX),
    ] {
        let owned = Owned::new(8);
        let ring = owned.ring().with(&known);
        let loan = &owned.loans.0[0];
        loan.at.store(at, Ordering::Relaxed);
        loan.place.store(place, Ordering::Relaxed);
        loan.length.store(length, Ordering::Relaxed);
        owned.producer.loans.store(1, Ordering::Relaxed);
        owned.writer.loans.store(1, Ordering::Relaxed);
        assert_eq!(pop(ring, 9), Err(Broken), "{at} {place} {length}");
    }
    owned.producer.loans.store(u64::MAX, Ordering::Relaxed);
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
                let bytes: Vec<u8> = (sent..end).map(|n| (n * 31 >> 3) as u8).collect();
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
                assert_eq!(byte, (received * 31 >> 3) as u8, "byte {received}");
                received += 1;
            }
        }
    });
}
