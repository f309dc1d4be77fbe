//! The marked parts of the scoreboard: where to look for the segments of a selective acknowledgment.
//!
//! Each acknowledgment repeats blocks of those before (RFC 2018, 4). Looking for their segments from the head of
//! the list would cost as much as the window holds, at each acknowledgment, and a hostile peer could ask for it.

use crate::seq::{after, before};

/// Blocks that are remembered: as many as an acknowledgment carries.
const BLOCKS: usize = 4;

/// A run of segments that are all marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Where the first block of it began.
    pub left: u32,
    /// Its first segment, which exists as long as `left` is not acknowledged.
    pub first: u32,
    /// Behind its last segment.
    pub end: u32,
    /// That segment. It exists as long as `end` is not acknowledged.
    pub last: u32,
}

/// Where the segments of a block begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// All are marked.
    Nowhere,
    /// At this segment, or behind it.
    At(u32),
    /// At the head of the list, or behind it.
    Head,
}

/// The runs that were marked last.
#[derive(Clone, Copy, Default)]
pub struct Marked([Option<Run>; BLOCKS]);

impl Marked {
    /// The runs whose last segments still exist.
    pub fn runs(&self, snd_una: u32) -> impl Iterator<Item = Run> + use<'_> {
        let runs = self.0.iter().flatten().copied();
        runs.filter(move |run| after(run.end, snd_una))
    }

    /// Where to begin with a block.
    pub fn begin(&self, (left, right): (u32, u32), snd_una: u32) -> Begin {
        let (mut begin, mut nearest) = (Begin::Head, snd_una);
        for run in self.runs(snd_una) {
            let begins_in_it = !before(left, run.left) && !after(left, run.end);
            if begins_in_it && !after(right, run.end) {
                return Begin::Nowhere;
            }
            let is_before_it = !after(run.end, left);
            if (begins_in_it || is_before_it) && after(run.end, nearest) {
                (begin, nearest) = (Begin::At(run.last), run.end);
            }
        }
        begin
    }

    /// The first segment of the nearest run that begins behind `left`.
    pub fn next_behind(&self, left: u32, snd_una: u32) -> Option<u32> {
        let behind = self
            .runs(snd_una)
            .filter(|run| after(run.left, left) && !before(run.left, snd_una));
        let nearest = behind.reduce(|one, other| {
            if before(other.left, one.left) {
                other
            } else {
                one
            }
        });
        nearest.map(|run| run.first)
    }

    /// The segments of a block are marked, from `first` up to and with `last`, which ends at `end`.
    pub fn note(&mut self, (left, end): (u32, u32), (first, last): (u32, u32), snd_una: u32) {
        let mut new = Run {
            left,
            end,
            first,
            last,
        };
        let mut place = BLOCKS - 1;
        for (at, known) in self.0.iter_mut().enumerate() {
            // What is over is dropped: half of the number space later it would look alive.
            *known = known.filter(|run| after(run.end, snd_una));
            let Some(run) = *known else {
                place = place.min(at);
                continue;
            };
            let begins_in_it = !before(left, run.left) && !after(left, run.end);
            let is_inside = !before(run.left, left) && !after(run.end, end);
            if begins_in_it || is_inside {
                if !after(run.left, new.left) {
                    (new.left, new.first) = (run.left, run.first);
                }
                place = place.min(at);
            }
        }
        self.0[..=place].rotate_right(1);
        self.0[0] = Some(new);
    }

    /// The segment that ends at `end` is not marked, and begins now where it may seem to be part of a run: a run's first
    /// block may begin within it.
    pub fn exclude(&mut self, end: u32) {
        for run in self.0.iter_mut().flatten() {
            if before(run.left, end) {
                run.left = end;
            }
        }
    }

    /// Nothing is remembered.
    pub fn clear(&mut self) {
        self.0 = [None; BLOCKS];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_grows_begins_where_it_ended() {
        let mut marked = Marked::default();
        assert_eq!(marked.begin((2_000, 3_000), 1_000), Begin::Head);
        marked.note((2_000, 3_000), (7, 7), 1_000);
        assert_eq!(marked.begin((2_000, 3_000), 1_000), Begin::Nowhere);
        assert_eq!(marked.begin((2_500, 2_600), 1_000), Begin::Nowhere);
        assert_eq!(marked.begin((2_000, 4_000), 1_000), Begin::At(7));
        marked.note((2_000, 4_000), (8, 8), 1_000);
        assert_eq!(marked.begin((2_000, 4_000), 1_000), Begin::Nowhere);
        assert_eq!(marked.runs(1_000).count(), 1);
    }

    #[test]
    fn a_block_ahead_begins_behind_the_nearest_run_and_one_in_between_does_too() {
        let mut marked = Marked::default();
        marked.note((2_000, 3_000), (7, 7), 1_000);
        marked.note((5_000, 6_000), (9, 9), 1_000);
        assert_eq!(marked.begin((8_000, 9_000), 1_000), Begin::At(9));
        assert_eq!(marked.begin((4_000, 4_500), 1_000), Begin::At(7));
        // It begins before everything that is known.
        assert_eq!(marked.begin((1_500, 3_000), 1_000), Begin::Head);
        // A hole is filled: the block reaches from one run over the other.
        assert_eq!(marked.begin((2_000, 6_000), 1_000), Begin::At(7));
    }

    #[test]
    fn a_block_before_a_run_is_found_from_there_as_long_as_its_begin_is_in_flight() {
        let mut marked = Marked::default();
        marked.note((5_000, 6_000), (8, 9), 1_000);
        marked.note((8_000, 9_000), (11, 12), 1_000);
        assert_eq!(marked.next_behind(4_000, 1_000), Some(8));
        assert_eq!(marked.next_behind(5_000, 1_000), Some(11));
        assert_eq!(marked.next_behind(9_000, 1_000), None);
        marked.note((4_000, 6_000), (7, 9), 1_000);
        assert_eq!(marked.next_behind(3_000, 1_000), Some(7));
        assert_eq!(marked.next_behind(3_000, 4_500), Some(11));
    }

    #[test]
    fn a_segment_that_is_acknowledged_in_part_is_not_marked_by_a_block_that_began_in_it() {
        let mut marked = Marked::default();
        // Of a segment from 1,000 to 2,000 the block takes the second half, which does not mark it.
        marked.note((1_500, 3_000), (7, 7), 1_000);
        marked.exclude(2_000);
        assert_eq!(marked.begin((1_600, 3_000), 1_600), Begin::Head);
        assert_eq!(marked.begin((2_000, 3_000), 1_600), Begin::Nowhere);
    }

    #[test]
    fn what_is_acknowledged_is_forgotten() {
        let mut marked = Marked::default();
        marked.note((u32::MAX - 10, 5), (7, 7), u32::MAX - 100);
        assert_eq!(marked.begin((u32::MAX - 10, 5), 0), Begin::Nowhere);
        assert_eq!(marked.begin((5, 9), 5), Begin::Head);
        assert_eq!(marked.runs(5).count(), 0);
    }
}
