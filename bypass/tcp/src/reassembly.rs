//! Which bytes lie behind holes, and what of it is reported to the sender (RFC 2018, RFC 2883).

use crate::seq::{after, before, earlier, later};
use alloc::vec::Vec;

/// Separate pieces at most; a segment that would make one more is dropped.
const PIECES_MAX: usize = 256;

/// The pieces behind the first hole of a connection. Their bytes are in the receive ring.
#[derive(Default)]
pub struct Reassembly {
    pieces: Vec<(u32, u32)>,
    /// The blocks last reported, the latest first.
    reported: [(u32, u32); 4],
    reported_count: u8,
    /// Bytes received twice, reported in the next acknowledgment (RFC 2883).
    duplicate: Option<(u32, u32)>,
}

impl Reassembly {
    /// Whether all bytes are in order.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether there is nothing to report.
    #[inline]
    pub fn has_nothing_to_report(&self) -> bool {
        self.reported_count == 0 && self.duplicate.is_none()
    }

    /// Bytes behind holes.
    pub fn bytes(&self) -> u32 {
        let sizes = self
            .pieces
            .iter()
            .map(|(left, right)| right.wrapping_sub(*left));
        sizes.sum()
    }

    /// Behind the last byte that lies behind a hole.
    pub fn end(&self) -> Option<u32> {
        self.pieces.last().map(|piece| piece.1)
    }

    /// Remembers bytes that came before they were due. False when no space is left. Bytes that were
    /// there already are reported as duplicate.
    pub fn insert(&mut self, mut left: u32, mut right: u32) -> bool {
        let first = self.pieces.partition_point(|piece| before(piece.1, left));
        let mut last = first;
        while last < self.pieces.len() && !after(self.pieces[last].0, right) {
            self.note_overlap((left, right), self.pieces[last]);
            left = earlier(left, self.pieces[last].0);
            right = later(right, self.pieces[last].1);
            last += 1;
        }
        if first == last {
            if self.pieces.len() >= PIECES_MAX {
                return false;
            }
            self.pieces.insert(first, (left, right));
        } else {
            self.pieces[first] = (left, right);
            self.pieces.drain(first + 1..last);
        }
        self.report(left, right);
        true
    }

    fn note_overlap(&mut self, new: (u32, u32), old: (u32, u32)) {
        let overlap = (later(new.0, old.0), earlier(new.1, old.1));
        if before(overlap.0, overlap.1) && self.duplicate.is_none() {
            self.duplicate = Some(overlap);
        }
    }

    /// Puts a block first and drops the blocks that it covers.
    fn report(&mut self, left: u32, right: u32) {
        let old = self.reported;
        self.reported[0] = (left, right);
        let mut count = 1;
        for block in &old[..usize::from(self.reported_count)] {
            let covered = !before(block.0, left) && !after(block.1, right);
            if !covered && count < self.reported.len() {
                self.reported[count] = *block;
                count += 1;
            }
        }
        self.reported_count = count as u8;
    }

    /// Bytes that had been received before: said once, in the next acknowledgment.
    pub fn note_duplicate(&mut self, left: u32, right: u32) {
        self.duplicate = Some((left, right));
    }

    /// The bytes up to `next` are in order: the number behind what follows them without a hole.
    pub fn advance(&mut self, mut next: u32) -> u32 {
        let mut count = 0;
        let arrived = next;
        while let Some(&piece) = self.pieces.get(count) {
            if after(piece.0, next) {
                break;
            }
            self.note_overlap((piece.0, arrived), piece);
            next = later(next, piece.1);
            count += 1;
        }
        self.pieces.drain(..count);
        if self.pieces.is_empty() {
            self.pieces = Vec::new();
        }
        let (old, old_count) = (self.reported, usize::from(self.reported_count));
        let mut kept = 0;
        for block in &old[..old_count] {
            if after(block.1, next) {
                self.reported[kept] = *block;
                kept += 1;
            }
        }
        self.reported_count = kept as u8;
        next
    }

    /// The blocks for an acknowledgment, `room` at most, the duplicate first; it is said only once.
    pub fn blocks(&mut self, room: usize) -> ([(u32, u32); 4], usize) {
        let mut blocks = [(0, 0); 4];
        let mut count = 0;
        let duplicate = self.duplicate.take_if(|_| room > 0).into_iter();
        let reported = self.reported[..usize::from(self.reported_count)]
            .iter()
            .copied();
        for block in duplicate.chain(reported).take(room) {
            blocks[count] = block;
            count += 1;
        }
        (blocks, count)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Reassembly::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_and_the_latest_is_reported_first() {
        let mut reassembly = Reassembly::default();
        assert!(reassembly.insert(100, 200) && reassembly.insert(300, 400));
        assert_eq!(
            reassembly.blocks(4),
            ([(300, 400), (100, 200), (0, 0), (0, 0)], 2)
        );
        assert!(reassembly.insert(200, 300));
        assert_eq!(
            reassembly.blocks(4),
            ([(100, 400), (0, 0), (0, 0), (0, 0)], 1)
        );
        assert_eq!(reassembly.advance(100), 400);
        assert!(reassembly.is_empty() && reassembly.has_nothing_to_report());
    }

    /// RFC 2883, 4.2: the duplicate is the first block, and it is reported once.
    #[test]
    fn a_duplicate_behind_a_hole_is_the_first_block_and_said_once() {
        let mut reassembly = Reassembly::default();
        reassembly.insert(100, 200);
        reassembly.insert(150, 250);
        assert_eq!(reassembly.blocks(0).1, 0, "kept for where there is room");
        assert_eq!(reassembly.blocks(4).0[..2], [(150, 200), (100, 250)]);
        assert_eq!(reassembly.blocks(4).1, 1);
    }

    #[test]
    fn numbers_may_wrap_and_pieces_are_bounded() {
        let mut reassembly = Reassembly::default();
        assert!(reassembly.insert(u32::MAX - 10, 20));
        assert_eq!(reassembly.advance(u32::MAX - 20), u32::MAX - 20);
        assert_eq!(reassembly.advance(u32::MAX - 10), 20);
        for piece in 0..PIECES_MAX as u32 {
            assert!(reassembly.insert(piece * 10, piece * 10 + 5));
        }
        assert!(!reassembly.insert(1_000_000, 1_000_001));
        assert!(reassembly.insert(0, 10_000));
    }
}
