//! A cursor over the program's buffers, as given to readv(2), writev(2) and similar calls.

/// The program's buffers of one call, consumed from the front.
#[derive(Debug, Clone)]
pub struct Pieces<'a> {
    rest: &'a [libc::iovec],
    offset: usize,
    left: usize,
}

impl<'a> Pieces<'a> {
    /// Takes the buffers of a call; None when their sum does not fit, which is EINVAL.
    ///
    /// # Safety
    /// Each buffer must be readable (to push) or writable (to pop) for its length.
    pub unsafe fn new(pieces: &'a [libc::iovec]) -> Option<Self> {
        let mut left = 0usize;
        for piece in pieces {
            left = left
                .checked_add(piece.iov_len)
                .filter(|sum| *sum <= isize::MAX as usize)?;
        }
        Some(Self {
            rest: pieces,
            offset: 0,
            left,
        })
    }

    /// Bytes left.
    pub fn left(&self) -> usize {
        self.left
    }

    /// For a call that takes at most `most` bytes, however large the buffers are.
    pub fn limit(&mut self, most: usize) {
        self.left = self.left.min(most);
    }

    /// Skips up to `count` bytes.
    pub fn skip(&mut self, mut count: usize) {
        while count > 0 {
            let (_, taken) = self.take(count);
            if taken == 0 {
                return;
            }
            count -= taken;
        }
    }

    /// Takes up to `limit` contiguous bytes.
    #[inline]
    pub fn take(&mut self, limit: usize) -> (*mut u8, usize) {
        while let Some(piece) = self.rest.first() {
            let have = piece.iov_len - self.offset;
            if have == 0 {
                self.rest = &self.rest[1..];
                self.offset = 0;
                continue;
            }
            let length = have.min(limit);
            let at = piece.iov_base.cast::<u8>().wrapping_add(self.offset);
            self.offset += length;
            self.left -= length;
            return (at, length);
        }
        (core::ptr::null_mut(), 0)
    }

    /// Copies `count` bytes from `from` into the buffers.
    ///
    /// # Safety
    /// `from` must be readable for `count` bytes, and the buffers writable.
    pub unsafe fn fill(&mut self, from: *const u8, count: usize) {
        let mut done = 0;
        while done < count {
            let (at, length) = self.take(count - done);
            if length == 0 {
                return;
            }
            // SAFETY: the caller vouches for both; a program has no buffer in the memory that it copies from.
            unsafe { core::ptr::copy_nonoverlapping(from.wrapping_add(done), at, length) };
            done += length;
        }
    }
}
