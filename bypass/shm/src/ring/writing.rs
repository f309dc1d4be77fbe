//! Writing into a direction.

use super::*;

impl Ring<'_> {
    /// Free bytes of the writer's ring by what is known; looks at the consumer only when fewer than
    /// `wanted`. For the writer, who holds its lock.
    #[inline]
    pub(super) fn space(&self, wanted: usize) -> Result<usize, Broken> {
        let seen = self.writer.head_seen.load(Ordering::Relaxed);
        let space = self.free(seen)?;
        if space >= wanted {
            return Ok(space);
        }
        let head = self.consumer.head.load(Ordering::Acquire);
        self.writer.head_seen.store(head, Ordering::Relaxed);
        self.free(head)
    }

    /// Free bytes of the writer's ring when the reader has come to `head`.
    #[inline(always)]
    fn free(&self, head: u64) -> Result<usize, Broken> {
        let word = self.writer.ring.load(Ordering::Relaxed);
        if word != Place::FIRST.word() {
            return self.free_in_extent(word, head);
        }
        let used = Self::between(head, self.writer.tail.load(Ordering::Relaxed))?;
        self.first.size.checked_sub(used).ok_or(Broken)
    }

    /// Copies as much as fits, in a larger ring if need be; returns how much.
    #[inline]
    pub fn push(&self, from: &mut Pieces) -> Result<usize, Broken> {
        let left = from.left();
        if self.writer.ring.load(Ordering::Relaxed) != Place::FIRST.word() {
            self.consider_return(left);
        }
        let mut area = self.area(self.writer.ring.load(Ordering::Relaxed));
        // A third at least is kept known as free, so that `is_roomy` rarely looks itself.
        let mut space = self.space(left.min(area.size).max(area.size / 3))?;
        if space < left {
            space = self.grow(left, space)?;
            area = self.area(self.writer.ring.load(Ordering::Relaxed));
        }
        let count = space.min(left);
        if count > 0 && count < left {
            self.announce_want();
        }
        let tail = self.writer.tail.load(Ordering::Relaxed);
        area.copy(tail, count, from, Copy::In);
        self.publish(tail.wrapping_add(count as u64));
        Ok(count)
    }

    /// The reader may have the bytes in front of `tail`.
    #[inline]
    fn publish(&self, tail: u64) {
        self.writer.tail.store(tail, Ordering::Relaxed);
        self.producer.tail.store(tail, Ordering::Release);
    }

    /// [`push`](Self::push) of memory of ours.
    pub fn push_slice(&self, bytes: &[u8]) -> Result<usize, Broken> {
        let at = bytes.as_ptr().cast_mut().cast();
        let piece = [libc::iovec {
            iov_base: at,
            iov_len: bytes.len(),
        }];
        // SAFETY: the slice is readable; pushing only reads.
        unsafe { Pieces::new(&piece) }.map_or(Ok(0), |mut pieces| self.push(&mut pieces))
    }

    /// Bytes that a [`push`](Self::push) of `wanted` would take.
    pub fn make_room(&self, wanted: usize) -> Result<usize, Broken> {
        let space = self.space(wanted)?;
        if space >= wanted {
            return Ok(space);
        }
        self.grow(wanted, space)
    }

    /// Where the next bytes go, for a producer that fills the ring itself, e.g. from a file: at
    /// most `limit` bytes that lie together.
    pub fn hole(&self, limit: usize) -> Result<(*mut u8, usize), Broken> {
        let space = self.make_room(limit)?;
        let area = self.area(self.writer.ring.load(Ordering::Relaxed));
        let tail = self.writer.tail.load(Ordering::Relaxed);
        let length = space.min(limit).min(area.size - area.offset(tail));
        Ok((area.at(tail), length))
    }

    /// Publishes `count` bytes that were put into the [`hole`](Self::hole).
    pub fn filled(&self, count: usize) {
        let tail = self.writer.tail.load(Ordering::Relaxed);
        self.publish(tail.wrapping_add(count as u64));
    }

    /// Asks the consumer to ring when it has made room; the caller looks at the space once more.
    pub fn want_space(&self) {
        let threshold = self.threshold();
        if self.producer.want_space.load(Ordering::Relaxed) == threshold {
            // Already asked, with a heavy fence or in front of bytes that the consumer has still
            // to read (`announce_want`): it will see that, only our own look must come after.
            fence(Ordering::SeqCst);
        } else {
            self.producer.want_space.store(threshold, Ordering::Relaxed);
            heavy();
        }
    }

    /// Says that more is to come than fits, before the bytes that do are published: the tail's
    /// release takes it along, so a consumer that sees those bytes sees this without a fence.
    pub fn announce_want(&self) {
        let threshold = self.threshold();
        self.producer.want_space.store(threshold, Ordering::Relaxed);
    }

    /// Whether a write finds room that is worth it, by the kernel's measure a third of what a direction
    /// holds; for anybody, as [`available`](Self::available). Cursors that contradict each other look
    /// like room: the write will say what is wrong.
    #[inline]
    pub fn is_roomy(&self) -> bool {
        let tail = self.writer.tail.load(Ordering::Relaxed);
        let most = self.first.size - self.first.size / 3;
        let is_free = |head: u64| Self::between(head, tail).map_or(true, |used| used <= most);
        let is_first = self.writer.ring.load(Ordering::Relaxed) == Place::FIRST.word();
        let seen = self.writer.head_seen.load(Ordering::Relaxed);
        (is_first && is_free(seen) && Self::between(seen, tail).is_ok())
            || (is_first && is_free(self.consumer.head.load(Ordering::Acquire)))
            || self.is_roomy_by_growth()
    }
}
