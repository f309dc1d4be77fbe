//! What a record in a stream says: see [`Record`].

use crate::atomic::Ordering;
use crate::extents::Place;
use crate::layout::Record;

/// Bits of a length or an offset: contents are smaller.
const SIZE_BITS: u32 = 24;
const SIZE_MASK: u64 = (1 << SIZE_BITS) - 1;
/// Contents have smaller numbers.
const CONTENT_BITS: u32 = 15;
const IS_RING: u64 = 1 << 63;

/// See [`Record`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Bytes of a content.
    Lent {
        /// Its number.
        content: u32,
        /// The first byte.
        offset: usize,
        /// How many.
        length: usize,
    },
    /// The stream goes on in this ring.
    Ring(Place),
}

impl What {
    /// Whether a record can say it.
    pub fn fits(self) -> bool {
        match self {
            Self::Ring(_) => true,
            Self::Lent {
                content,
                offset,
                length,
            } => {
                let is_small = |size: usize| size as u64 <= SIZE_MASK;
                content < 1 << CONTENT_BITS && is_small(offset) && is_small(length) && length > 0
            }
        }
    }
}

impl Record {
    /// Says it; the reader looks at the record when it is counted.
    pub fn write(&self, at: u64, what: What) {
        let word = match what {
            What::Ring(place) => IS_RING | u64::from(place.word()),
            What::Lent {
                content,
                offset,
                length,
            } => {
                u64::from(content) << (2 * SIZE_BITS) | (offset as u64) << SIZE_BITS | length as u64
            }
        };
        self.at.store(at, Ordering::Relaxed);
        self.what.store(word, Ordering::Relaxed);
    }

    /// What it says.
    pub fn what(&self) -> What {
        let word = self.what.load(Ordering::Relaxed);
        if word & IS_RING != 0 {
            return What::Ring(Place::from_word(word as u32));
        }
        What::Lent {
            content: (word >> (2 * SIZE_BITS)) as u32,
            offset: (word >> SIZE_BITS & SIZE_MASK) as usize,
            length: (word & SIZE_MASK) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_was_written_and_no_more_fits() {
        // SAFETY: atomics only, for which zero is valid.
        let record: Record = unsafe { std::mem::zeroed() };
        let lent = |content, offset, length| What::Lent {
            content,
            offset,
            length,
        };
        let largest = (1 << SIZE_BITS) - 1;
        for what in [
            lent(511, 0, 1 << 20),
            lent((1 << CONTENT_BITS) - 1, largest, largest),
            What::Ring(Place::from_word(3 << 16 | 7)),
            What::Ring(Place::FIRST),
        ] {
            assert!(what.fits());
            record.write(9, what);
            assert_eq!(record.what(), what);
        }
        let too_much = [
            lent(1 << CONTENT_BITS, 0, 1),
            lent(0, largest + 1, 1),
            lent(0, 0, largest + 1),
            lent(0, 0, 0),
        ];
        assert!(too_much.iter().all(|what| !what.fits()));
    }
}
