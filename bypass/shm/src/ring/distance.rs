//! What a reader does for a writer on a distant core: it evicts what it has read ([`bypass_sys::cache`]).

use bypass_sys::cache::{evict, Distance};

use super::*;

/// Shorter pieces are not looked at, nor is the first ring, which short messages go through.
const PIECE_MIN: usize = 4096;

impl Ring<'_> {
    /// Whether `count` bytes from `cursor` on, which are about to be read, were written far away.
    #[inline]
    pub(super) fn comes_from_far(&self, area: Area, cursor: u64, count: usize) -> bool {
        if count < PIECE_MIN || area.bytes == self.first.bytes {
            return false;
        }
        // The last line: a reader in sequence has had the first ones fetched.
        let last = area.at(cursor.wrapping_add(count as u64 - 1));
        let before = Distance::from_word(self.consumer.far.load(Ordering::Relaxed));
        // SAFETY: the byte lies in the ring, and is the reader's until the cursor has passed it.
        let now = unsafe { before.and_load(last) };
        self.consumer.far.store(now.word(), Ordering::Relaxed);
        now.is_far()
    }
}

impl Area {
    /// Evicts the lines of `count` bytes from `cursor` on, which are not more than the ring has.
    #[cold]
    pub(super) fn evict(self, cursor: u64, count: usize) {
        let first = count.min(self.size - self.offset(cursor));
        // SAFETY: both parts lie in the ring, which is mapped.
        unsafe {
            evict(self.at(cursor), first);
            evict(self.bytes, count - first);
        }
    }
}
