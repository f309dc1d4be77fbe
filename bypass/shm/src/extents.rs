//! Larger rings, for directions that hold more than their first one.
//!
//! A writer that finds no room takes an extent, says so by a record in the stream and goes on there;
//! the reader that comes to the record goes on there too and gives the ring behind it back. Both ends
//! of a segment take extents and give them back: a word for each says whose it is.
//!
//! The peer can write every word. What it can reach by that is memory of its own segment only: a place
//! is made safe whenever it is loaded ([`Place::from_word`]), and two directions that are made to share
//! an extent are both its own.

use crate::atomic::{AtomicU32, Ordering};
use crate::layout::{extent_offset, extents_before, Owners, CLASSES};

/// In place of an owner: free, with its memory as its last owner left it.
const FREED: u32 = u32::MAX;
/// In place of an owner: its memory is being given back.
const CLEANING: u32 = u32::MAX - 1;

/// A ring of a direction: its first one, or an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(u32);

impl Place {
    /// The ring that every direction has.
    pub const FIRST: Self = Self(0);

    fn extent(class: usize, index: usize) -> Self {
        Self((class as u32 + 1) << 16 | index as u32)
    }

    /// What a word of shared memory means; whatever it is, a place that exists.
    pub fn from_word(word: u32) -> Self {
        match (word >> 16) as usize {
            class @ 1.. if class <= CLASSES.len() => {
                let index = (word & 0xffff) as usize % CLASSES[class - 1].count;
                Self::extent(class - 1, index)
            }
            _ => Self::FIRST,
        }
    }

    /// The word that means it.
    pub fn word(self) -> u32 {
        self.0
    }

    fn class_and_index(self) -> Option<(usize, usize)> {
        let class = (self.0 >> 16) as usize;
        Some((class.checked_sub(1)?, (self.0 & 0xffff) as usize))
    }

    /// Offset from the first extent, and size; None of the first ring.
    pub fn range(self) -> Option<(usize, usize)> {
        let (class, index) = self.class_and_index()?;
        Some((extent_offset(class, index), CLASSES[class].bytes))
    }
}

impl Owners {
    fn word(&self, class: usize, index: usize) -> &AtomicU32 {
        &self.0[extents_before(class) + index]
    }

    /// Calls `visit` with the word of every extent that was ever in use.
    fn each<'a>(&'a self, used: &'a [AtomicU32], mut visit: impl FnMut(Place, &'a AtomicU32)) {
        for (class, used) in used.iter().enumerate().take(CLASSES.len()) {
            let used = used.load(Ordering::Relaxed) as usize;
            for index in 0..used.min(CLASSES[class].count) {
                visit(Place::extent(class, index), self.word(class, index));
            }
        }
    }

    /// An extent larger than `over` for `owner`: the smallest that takes `wanted` bytes, else the
    /// largest that there is.
    pub fn take(
        &self,
        used: &[AtomicU32],
        owner: u32,
        over: usize,
        wanted: usize,
    ) -> Option<Place> {
        let is_larger = |class: &usize| CLASSES[*class].bytes > over;
        let is_enough = |class: &usize| CLASSES[*class].bytes >= wanted;
        let enough = (0..CLASSES.len()).filter(is_enough);
        let short = (0..CLASSES.len()).rev().filter(|class| !is_enough(class));
        enough
            .chain(short)
            .filter(is_larger)
            .find_map(|class| self.take_of(used.get(class)?, owner, class))
    }

    fn take_of(&self, used: &AtomicU32, owner: u32, class: usize) -> Option<Place> {
        let count = CLASSES[class].count;
        let known = (used.load(Ordering::Relaxed) as usize).min(count);
        let claim = |index: usize, from: u32| {
            let word = self.word(class, index);
            // Acquire: its last reader is through. Loaded first, because most are somebody's.
            word.load(Ordering::Relaxed) == from
                && word
                    .compare_exchange(from, owner, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        };
        // Those whose memory is there already come first.
        let index = (0..known)
            .find(|index| claim(*index, FREED))
            .or_else(|| (0..count).find(|index| claim(*index, 0)))?;
        if index >= known {
            used.fetch_max(index as u32 + 1, Ordering::Relaxed);
        }
        Some(Place::extent(class, index))
    }

    /// Whether [`take`](Self::take) would find one larger than `over`.
    pub fn has_larger(&self, over: usize) -> bool {
        let is_free = |class: usize, index: usize| {
            let owner = self.word(class, index).load(Ordering::Relaxed);
            owner == 0 || owner == FREED
        };
        (0..CLASSES.len())
            .filter(|class| CLASSES[*class].bytes > over)
            .any(|class| (0..CLASSES[class].count).any(|index| is_free(class, index)))
    }

    /// Gives an extent of `owner` back, with its memory as it is.
    pub fn give_back(&self, place: Place, owner: u32) {
        if let Some((class, index)) = place.class_and_index() {
            // Release: what was read there was read before.
            let word = self.word(class, index);
            let _ = word.compare_exchange(owner, FREED, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Gives back whatever is still `owner`'s.
    pub fn give_back_all(&self, used: &[AtomicU32], owner: u32) {
        self.each(used, |place, word| {
            if word.load(Ordering::Relaxed) == owner {
                self.give_back(place, owner);
            }
        });
    }

    /// Calls `release` with every extent whose memory is not needed.
    pub fn clean(&self, used: &[AtomicU32], mut release: impl FnMut(Place)) {
        self.each(used, |place, word| {
            let claim =
                || word.compare_exchange(FREED, CLEANING, Ordering::Acquire, Ordering::Relaxed);
            if word.load(Ordering::Relaxed) == FREED && claim().is_ok() {
                release(place);
                word.store(0, Ordering::Release);
            }
        });
    }

    /// Calls `visit` with every owner of an extent.
    pub fn owners(&self, used: &[AtomicU32], mut visit: impl FnMut(u32)) {
        self.each(used, |_, word| match word.load(Ordering::Relaxed) {
            0 | FREED | CLEANING => {}
            owner => visit(owner),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners() -> (Box<Owners>, [AtomicU32; CLASSES.len()]) {
        // SAFETY: atomics only, for which zero is valid.
        let owners = unsafe { Box::new(std::mem::zeroed()) };
        (owners, core::array::from_fn(|_| AtomicU32::new(0)))
    }

    #[test]
    fn every_word_is_a_place_that_exists() {
        let end = extent_offset(CLASSES.len() - 1, CLASSES[CLASSES.len() - 1].count);
        for word in (0..=u32::MAX).step_by(40_503).chain([0, 1, u32::MAX]) {
            let place = Place::from_word(word);
            assert_eq!(Place::from_word(place.word()), place);
            if let Some((offset, bytes)) = place.range() {
                assert!(offset + bytes <= end && offset % bytes == 0 || offset % 4096 == 0);
            }
        }
    }

    #[test]
    fn the_smallest_that_is_enough_is_taken_and_else_the_largest() {
        let (owners, used) = owners();
        let size = |over, wanted| {
            let place = owners.take(&used, 1, over, wanted);
            place.and_then(Place::range).map(|(_, bytes)| bytes)
        };
        assert_eq!(size(16 << 10, 20_000), Some(32 << 10));
        assert_eq!(size(16 << 10, 40_000), Some(128 << 10));
        assert_eq!(size(32 << 10, 10), Some(128 << 10));
        assert_eq!(size(16 << 10, usize::MAX), Some(4 << 20));
        assert_eq!(size(4 << 20, 10), None);
        let rest: Vec<_> = (0..127).map(|_| size(512 << 10, 1 << 20)).collect();
        assert!(rest.iter().all(|bytes| *bytes == Some(4 << 20)));
        assert!(!owners.has_larger(512 << 10) && owners.has_larger(128 << 10));
        assert_eq!(size(16 << 10, 1 << 20), Some(512 << 10));
    }

    #[test]
    fn what_is_given_back_is_cleaned_once_and_only_by_its_owner() {
        let (owners, used) = owners();
        let taken: Vec<_> = (0..3).filter_map(|_| owners.take(&used, 5, 0, 1)).collect();
        owners.give_back(taken[0], 6);
        let mut cleaned = Vec::new();
        owners.clean(&used, |place| cleaned.push(place));
        assert!(cleaned.is_empty());
        owners.give_back(taken[0], 5);
        assert_eq!(owners.take(&used, 9, 0, 1), Some(taken[0]), "still warm");
        owners.give_back_all(&used, 5);
        owners.clean(&used, |place| cleaned.push(place));
        assert_eq!(cleaned, taken[1..]);
        owners.give_back(taken[0], 9);
        let mut count = 0;
        (0..2).for_each(|_| owners.clean(&used, |_| count += 1));
        assert_eq!(count, 1);
    }
}
