//! Tracks the owner of each frame in a shared memory.
//!
//! A frame is a chunk of the memory, identified by its number. The device receives frames by number
//! and returns numbers; a number that it never had, or returns twice, is refused: whatever a ring
//! contains, no frame is ever used twice.

/// A frame with one owner. It comes only from the pool and cannot be copied.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk(u32);

impl Chunk {
    /// Its number.
    pub fn index(&self) -> u32 {
        self.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Pool,
    Program,
    Receiving,
    Sending,
}

/// The frames of one memory.
#[derive(Debug)]
pub struct Pool {
    owners: Vec<Owner>,
    free: Vec<u32>,
}

impl Pool {
    /// A pool of `frames` free frames.
    pub fn new(frames: u32) -> Self {
        Self {
            owners: vec![Owner::Pool; frames as usize],
            // The lowest are taken first: recently used ones are likely to be in the cache.
            free: (0..frames).rev().collect(),
        }
    }

    /// Frames in all.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether there are none at all.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Number of free frames.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a frame, unless at most `reserve` are left.
    #[inline]
    pub fn take(&mut self, reserve: usize) -> Option<Chunk> {
        if self.free.len() <= reserve {
            return None;
        }
        let index = self.free.pop()?;
        self.owners[index as usize] = Owner::Program;
        Some(Chunk(index))
    }

    /// Returns a frame.
    #[inline]
    pub fn give(&mut self, chunk: Chunk) {
        self.owners[chunk.0 as usize] = Owner::Pool;
        self.free.push(chunk.0);
    }

    /// Gives the device a frame to receive into; returns its number.
    #[inline]
    pub fn lend_for_receiving(&mut self, chunk: Chunk) -> u32 {
        self.owners[chunk.0 as usize] = Owner::Receiving;
        chunk.0
    }

    /// Gives the device a frame to send; returns its number.
    #[inline]
    pub fn lend_for_sending(&mut self, chunk: Chunk) -> u32 {
        self.owners[chunk.0 as usize] = Owner::Sending;
        chunk.0
    }

    /// Marks a frame that the device has from an earlier user of the memory.
    pub fn is_out_for_sending(&mut self, index: u64) {
        self.free.retain(|free| u64::from(*free) != index);
        let owner = usize::try_from(index).ok();
        if let Some(owner) = owner.and_then(|index| self.owners.get_mut(index)) {
            *owner = Owner::Sending;
        }
    }

    /// Takes back a frame that the device reports as filled.
    #[inline]
    pub fn received(&mut self, index: u64) -> Option<Chunk> {
        self.take_back(index, Owner::Receiving)
    }

    /// Takes back a frame that the device reports as sent.
    #[inline]
    pub fn sent(&mut self, index: u64) -> Option<Chunk> {
        self.take_back(index, Owner::Sending)
    }

    #[inline]
    fn take_back(&mut self, index: u64, from: Owner) -> Option<Chunk> {
        let owner = self.owners.get_mut(usize::try_from(index).ok()?)?;
        if *owner != from {
            return None;
        }
        *owner = Owner::Program;
        Some(Chunk(index as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_returns_a_frame_only_once() {
        let mut pool = Pool::new(4);
        let chunk = pool.take(0).expect("a frame");
        let (received, sent) = (u64::from(chunk.index()), 1);
        pool.lend_for_receiving(chunk);
        let other = pool.take(0).expect("a frame");
        assert_eq!(u64::from(pool.lend_for_sending(other)), sent);
        assert_eq!(pool.sent(received), None, "it was given for receiving");
        assert_eq!(pool.received(3), None, "it is free");
        assert_eq!(pool.received(u64::MAX), None, "it does not exist");
        let back = pool.received(received).expect("ours again");
        assert_eq!(pool.received(received), None, "it was returned");
        pool.give(back);
        let back = pool.sent(sent).expect("ours again");
        pool.give(back);
        assert_eq!(pool.free(), pool.len());
    }

    #[test]
    fn a_reserve_is_kept() {
        let mut pool = Pool::new(3);
        let first = pool.take(2).expect("above the reserve");
        assert_eq!(pool.take(2), None);
        assert!(pool.take(1).is_some());
        pool.give(first);
    }
}
