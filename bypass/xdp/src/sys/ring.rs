//! The four rings of an AF_XDP socket (linux/if_xdp.h): one producer, one consumer, a power of two
//! entries. Cursors that the kernel writes are checked before they are used. Two programs may share a ring, too: each is
//! then the kernel to the other.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use bypass_sys::kernel::Result;
use bypass_sys::region::Region;

/// Where the parts of a ring lie in its mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offsets {
    /// Cursor of the writer.
    pub producer: u64,
    /// Cursor of the reader.
    pub consumer: u64,
    /// First entry.
    pub entries: u64,
    /// Flags.
    pub flags: u64,
}

/// A ring of entries of type `T`, seen from the program's side. `T` is a number or a structure of
/// numbers: every content is valid.
#[derive(Debug)]
pub struct Ring<T> {
    memory: Arc<Region>,
    offsets: Offsets,
    size: u32,
    /// Our own cursor, and the kernel's as last seen.
    own: u32,
    seen: u32,
    kind: core::marker::PhantomData<T>,
}

/// XDP_RING_NEED_WAKEUP.
const NEED_WAKEUP: u32 = 1;

/// An entry of a ring: plain data.
///
/// # Safety
/// Every bit pattern must be a valid value.
pub unsafe trait Entry: Copy {}

// SAFETY: a number.
unsafe impl Entry for u64 {}
// SAFETY: three numbers.
unsafe impl Entry for libc::xdp_desc {}

impl<T: Entry> Ring<T> {
    /// A ring of `size` entries in memory that was mapped from its socket. EPROTO: it does not fit.
    pub fn over(memory: Arc<Region>, offsets: Offsets, size: u32) -> Result<Self> {
        let words = [offsets.producer, offsets.consumer, offsets.flags];
        let are_inside = words
            .iter()
            .all(|at| memory.at::<u32>(*at as usize, 4).is_some())
            && memory
                .at::<T>(offsets.entries as usize, size as usize * size_of::<T>())
                .is_some();
        if !are_inside || !size.is_power_of_two() {
            return Err(libc::EPROTO);
        }
        let mut ring = Self {
            memory,
            offsets,
            size,
            own: 0,
            seen: 0,
            kind: core::marker::PhantomData,
        };
        // Somebody may have used the ring before it was passed to us.
        ring.own = ring.word(offsets.producer).load(Ordering::Acquire);
        ring.seen = ring.word(offsets.consumer).load(Ordering::Acquire);
        Ok(ring)
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        let at = self.memory.at::<AtomicU32>(offset as usize, 4);
        // SAFETY: `map` has checked that the word lies inside; an atomic may be shared.
        unsafe { &*at.unwrap_unchecked() }
    }

    fn entry(&self, cursor: u32) -> *mut T {
        let index = (cursor & (self.size - 1)) as usize;
        let at = self.offsets.entries as usize + index * size_of::<T>();
        // SAFETY: `map` has checked that all `size` entries lie inside.
        unsafe { self.memory.at::<T>(at, size_of::<T>()).unwrap_unchecked() }
    }

    /// Whether the kernel sleeps on this ring.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    /// For a ring that we read and another program writes: whether that one is to wake us after its next entry.
    #[inline]
    pub fn ask_for_wakeup(&self, is_asked: bool) {
        let flags = if is_asked { NEED_WAKEUP } else { 0 };
        self.word(self.offsets.flags)
            .store(flags, Ordering::Relaxed);
    }

    /// Entries that this end has ever written or read, modulo 2^32: the place of the next one.
    #[inline]
    pub fn cursor(&self) -> u32 {
        self.own
    }

    /// For a ring that we write: entries that are free. A reader's cursor that is out of bounds
    /// leaves none.
    #[inline]
    pub fn room(&mut self, wanted: u32) -> u32 {
        let free = |own: u32, seen: u32, size: u32| size.checked_sub(own.wrapping_sub(seen));
        let known = free(self.own, self.seen, self.size).unwrap_or(0);
        if known >= wanted {
            return known;
        }
        self.seen = self.word(self.offsets.consumer).load(Ordering::Acquire);
        free(self.own, self.seen, self.size).unwrap_or(0)
    }

    /// Writes an entry, for which there must be [`room`](Self::room); seen with the next
    /// [`publish`](Self::publish).
    #[inline]
    pub fn push(&mut self, entry: T) {
        // SAFETY: inside the ring, and the kernel reads it only once it is published.
        unsafe { self.entry(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
    }

    /// Lets the kernel see what was pushed.
    #[inline]
    pub fn publish(&mut self) {
        self.word(self.offsets.producer)
            .store(self.own, Ordering::Release);
    }

    /// For a ring that we write: entries that the kernel has not taken yet.
    #[inline]
    pub fn pending(&self) -> u32 {
        self.own
            .wrapping_sub(self.word(self.offsets.consumer).load(Ordering::Acquire))
    }

    /// The reader's cursor: entries that were ever taken.
    pub fn taken(&self) -> u32 {
        self.word(self.offsets.consumer).load(Ordering::Acquire)
    }

    /// The writer's cursor: entries that were ever written.
    pub fn written(&self) -> u32 {
        self.word(self.offsets.producer).load(Ordering::Acquire)
    }

    /// Entries in the ring that were not taken.
    pub fn left(&self) -> Vec<T> {
        let count = self.written().wrapping_sub(self.taken()).min(self.size);
        let entry = |number| self.entry(self.taken().wrapping_add(number));
        // SAFETY: inside the ring, and every content is a valid value.
        (0..count)
            .map(|number| unsafe { entry(number).read() })
            .collect()
    }

    /// For a ring that we read: begins at the reader's cursor.
    pub fn reading(mut self) -> Self {
        core::mem::swap(&mut self.own, &mut self.seen);
        self
    }

    /// For a ring that we read: entries that wait; none when the writer's cursor is out of bounds.
    #[inline]
    pub fn waiting(&mut self) -> u32 {
        let count = self.seen.wrapping_sub(self.own);
        if count != 0 && count <= self.size {
            return count;
        }
        self.seen = self.word(self.offsets.producer).load(Ordering::Acquire);
        match self.seen.wrapping_sub(self.own) {
            count if count <= self.size => count,
            _ => 0,
        }
    }

    /// Reads the next entry, which must be [`waiting`](Self::waiting).
    #[inline]
    pub fn pop(&mut self) -> T {
        // SAFETY: inside the ring, and every content is a valid value.
        let entry = unsafe { self.entry(self.own).read() };
        self.own = self.own.wrapping_add(1);
        entry
    }

    /// Gives the entries that were popped back to the kernel.
    #[inline]
    pub fn release(&mut self) {
        self.word(self.offsets.consumer)
            .store(self.own, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypass_sys::descriptor::Owned;
    use bypass_sys::kernel;

    const OFFSETS: Offsets = Offsets {
        producer: 0,
        consumer: 64,
        entries: 192,
        flags: 128,
    };

    fn file() -> Owned {
        let file = Owned(kernel::memfd_create(c"ring").expect("a file"));
        kernel::ftruncate(file.0, 4096).expect("size");
        file
    }

    fn memory(file: &Owned) -> Arc<Region> {
        Arc::new(Region::map(file.0, 0, 4096).expect("memory"))
    }

    fn ring(file: &Owned) -> Ring<u64> {
        Ring::over(memory(file), OFFSETS, 8).expect("fits")
    }

    #[test]
    fn entries_come_out_in_order_round_and_round() {
        let file = file();
        let (mut writer, mut reader) = (ring(&file), ring(&file).reading());
        let (mut written, mut read) = (0, 0);
        for round in 0..100 {
            for _ in 0..(round % 9).min(writer.room(8)) {
                writer.push(written);
                written += 1;
            }
            writer.publish();
            for _ in 0..reader.waiting().min(round % 5) {
                assert_eq!(reader.pop(), read);
                read += 1;
            }
            reader.release();
        }
        assert!(written > 100 && written - read <= 8);
    }

    #[test]
    fn cursors_out_of_bounds_lead_nowhere() {
        let file = file();
        let (mut writer, mut reader) = (ring(&file), ring(&file).reading());
        for forged in [9u32, 1 << 31, u32::MAX] {
            writer
                .word(OFFSETS.producer)
                .store(forged, Ordering::Relaxed);
            assert_eq!(reader.waiting(), 0, "{forged}");
            writer
                .word(OFFSETS.consumer)
                .store(forged, Ordering::Relaxed);
            assert!(writer.room(9) <= 8, "{forged}");
        }
    }

    #[test]
    fn a_ring_outside_its_mapping_is_refused() {
        let file = file();
        let outside = Offsets {
            producer: 1 << 40,
            ..OFFSETS
        };
        assert_eq!(
            Ring::<u64>::over(memory(&file), outside, 8).err(),
            Some(libc::EPROTO)
        );
        assert_eq!(
            Ring::<u64>::over(memory(&file), OFFSETS, 7).err(),
            Some(libc::EPROTO)
        );
    }
}
