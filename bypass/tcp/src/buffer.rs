//! Byte rings of the connections, and the pool of their memory.
//!
//! A connection without bytes holds no memory. Rings are powers of two; a ring that must grow takes
//! the next size from the pool and copies. Freed memory is reused last in, first out, so that it is
//! likely to be in the cache, and steady traffic allocates nothing.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// log2 of the smallest ring: one full segment of a 1500-byte link fits.
const SMALLEST_LOG2: u32 = 11;
/// Number of sizes: 2 KiB to 16 MiB.
const CLASSES: usize = 14;

/// A queue of bytes with random access from its head.
#[derive(Default)]
pub struct Ring {
    data: Box<[u8]>,
    head: u32,
    len: u32,
}

impl Ring {
    /// Bytes in the queue.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the queue holds no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory behind it.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.data.len()
    }

    /// The bytes from `offset` on, `len` of them, in at most two pieces.
    #[inline]
    pub fn slices(&self, offset: usize, len: usize) -> (&[u8], &[u8]) {
        if len == 0 {
            return (&[], &[]);
        }
        let start = (self.head as usize + offset) & (self.data.len() - 1);
        let first = len.min(self.data.len() - start);
        (&self.data[start..start + first], &self.data[..len - first])
    }

    /// Copies bytes to `offset` behind the head; they may lie behind the end of the queue, where
    /// they stay until [`Ring::extend`] takes them in. The capacity must reach.
    #[inline]
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let start = (self.head as usize + offset) & (self.data.len() - 1);
        let first = bytes.len().min(self.data.len() - start);
        self.data[start..start + first].copy_from_slice(&bytes[..first]);
        if first < bytes.len() {
            self.data[..bytes.len() - first].copy_from_slice(&bytes[first..]);
        }
    }

    /// Takes bytes that were written behind the end into the queue.
    #[inline]
    pub fn extend(&mut self, len: usize) {
        self.len += len as u32;
    }

    /// Appends bytes; the capacity must reach.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.write_at(self.len(), bytes);
        self.extend(bytes.len());
    }

    /// Drops bytes from the head.
    #[inline]
    pub fn consume(&mut self, len: usize) {
        self.len -= len as u32;
        self.head = (self.head + len as u32) & (self.data.len() as u32).wrapping_sub(1);
    }

    /// Copies from `offset` behind the head without dropping; so many bytes must be there.
    #[inline]
    pub fn peek(&self, offset: usize, into: &mut [u8]) -> usize {
        let count = into.len();
        let (first, second) = self.slices(offset, count);
        into[..first.len()].copy_from_slice(first);
        if !second.is_empty() {
            into[first.len()..count].copy_from_slice(second);
        }
        count
    }
}

/// The memory of all rings of an engine.
pub struct Pool {
    free: [Vec<Box<[u8]>>; CLASSES],
    bytes: usize,
    lent: usize,
    bytes_max: usize,
}

impl Pool {
    /// A pool that never holds more than `bytes_max`.
    pub fn new(bytes_max: usize) -> Pool {
        Pool {
            free: Default::default(),
            bytes: 0,
            lent: 0,
            bytes_max,
        }
    }

    /// Bytes taken from the allocator, in use and free together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that rings have.
    pub fn lent(&self) -> usize {
        self.lent
    }

    /// Whether there is memory for a smallest ring.
    pub fn has_room(&self) -> bool {
        self.lent + (1 << SMALLEST_LOG2) <= self.bytes_max
    }

    /// Whether more than half of the memory is in use: limits of buffers are not raised then, as on Linux.
    pub fn is_short(&self) -> bool {
        self.lent > self.bytes_max / 2
    }

    /// Makes room for `capacity` bytes in the ring, `kept` of which are in use from its head (they
    /// may lie behind its end). False when the pool is exhausted: the ring is then unchanged. Larger rings than
    /// the smallest leave a quarter of the memory: what peers that read or answer nothing hold does not stop the
    /// other connections.
    #[inline]
    pub fn reserve(&mut self, ring: &mut Ring, capacity: usize, kept: usize) -> bool {
        ring.capacity() >= capacity || self.grow(ring, capacity, kept)
    }

    /// Whether a ring may have room for `capacity` bytes of which those in between have not come: they may
    /// never come, so that half of the memory is kept for bytes in order.
    pub fn can_spare(&self, ring: &Ring, capacity: usize) -> bool {
        let wanted = capacity.next_power_of_two();
        ring.capacity() >= capacity || self.lent + wanted <= self.bytes_max / 2
    }

    fn grow(&mut self, ring: &mut Ring, capacity: usize, kept: usize) -> bool {
        let Some(mut data) = self.take(capacity) else {
            return false;
        };
        let (first, second) = ring.slices(0, kept);
        data[..first.len()].copy_from_slice(first);
        data[first.len()..kept].copy_from_slice(second);
        let old = core::mem::replace(&mut ring.data, data);
        ring.head = 0;
        self.put(old);
        true
    }

    /// Takes the memory of a ring back; its bytes are gone.
    #[inline]
    pub fn release(&mut self, ring: &mut Ring) {
        let ring = core::mem::take(ring);
        self.put(ring.data);
    }

    fn take(&mut self, capacity: usize) -> Option<Box<[u8]>> {
        let log2 = capacity
            .next_power_of_two()
            .trailing_zeros()
            .max(SMALLEST_LOG2);
        let (class, len) = ((log2 - SMALLEST_LOG2) as usize, 1 << log2);
        if class > 0 && self.lent + len > self.bytes_max / 4 * 3 {
            return None;
        }
        let data = match self.free.get_mut(class)?.pop() {
            Some(data) => data,
            None => self.make(len)?,
        };
        self.lent += data.len();
        Some(data)
    }

    fn make(&mut self, len: usize) -> Option<Box<[u8]>> {
        if self.bytes + len > self.bytes_max && !self.trim(len) {
            return None;
        }
        self.bytes += len;
        Some(vec![0; len].into_boxed_slice())
    }

    fn put(&mut self, data: Box<[u8]>) {
        if !data.is_empty() {
            let class = (data.len().trailing_zeros() - SMALLEST_LOG2) as usize;
            self.lent -= data.len();
            self.free[class].push(data);
        }
    }

    /// Gives free memory of other sizes back to the allocator until `wanted` more bytes are allowed.
    fn trim(&mut self, wanted: usize) -> bool {
        for list in self.free.iter_mut().rev() {
            while self.bytes + wanted > self.bytes_max {
                let Some(data) = list.pop() else { break };
                self.bytes -= data.len();
            }
        }
        self.bytes + wanted <= self.bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_across_the_seam_and_growth() {
        let (mut pool, mut ring) = (Pool::new(1 << 20), Ring::default());
        let (mut written, mut read) = (0u32, 0u32);
        for round in 0..2_000u32 {
            let bytes: Vec<u8> = (0..round % 97).map(|i| (written + i) as u8).collect();
            let used = ring.len();
            assert!(pool.reserve(&mut ring, used + bytes.len(), used));
            ring.push(&bytes);
            written += bytes.len() as u32;
            let mut out = vec![0; (round % 89) as usize];
            let count = out.len().min(ring.len());
            ring.peek(0, &mut out[..count]);
            ring.consume(count);
            for byte in &out[..count] {
                assert_eq!(*byte, read as u8);
                read += 1;
            }
        }
    }

    #[test]
    fn a_byte_behind_the_end_survives_growth() {
        let (mut pool, mut ring) = (Pool::new(1 << 20), Ring::default());
        assert!(pool.reserve(&mut ring, 11, 0));
        ring.write_at(10, b"x");
        assert!(pool.reserve(&mut ring, 5_000, 11));
        ring.write_at(0, b"0123456789");
        ring.extend(11);
        let mut out = [0; 11];
        ring.peek(0, &mut out);
        assert_eq!(&out, b"0123456789x");
    }

    #[test]
    fn an_exhausted_pool_refuses_and_gives_other_sizes_back_first() {
        let mut pool = Pool::new(11 << 10);
        let (mut small, mut large) = (Ring::default(), Ring::default());
        assert!(pool.reserve(&mut small, 4 << 10, 0));
        assert!(!pool.reserve(&mut large, 8 << 10, 0));
        pool.release(&mut small);
        assert_eq!(pool.lent(), 0);
        assert!(pool.reserve(&mut large, 8 << 10, 0));
        assert_eq!((pool.bytes(), pool.lent()), (8 << 10, 8 << 10));
        assert!(pool.has_room());
        assert!(pool.reserve(&mut small, 1, 0));
        assert!(!pool.has_room());
    }

    #[test]
    fn the_last_quarter_is_for_the_smallest_rings() {
        let mut pool = Pool::new(64 << 10);
        let mut rings: [Ring; 9] = Default::default();
        let [large, second, small @ ..] = &mut rings;
        assert!(pool.reserve(large, 32 << 10, 0));
        assert!(pool.reserve(second, 16 << 10, 0));
        assert!(!pool.reserve(&mut small[0], 4 << 10, 0));
        assert!(small.iter_mut().all(|ring| pool.reserve(ring, 2 << 10, 0)));
        assert_eq!(pool.lent(), 62 << 10);
    }
}
