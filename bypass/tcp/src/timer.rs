//! A timer wheel: one deadline for each number, armed and moved in constant time.
//!
//! Three levels of 256 slots; the lowest has a slot for each millisecond, so that deadlines up to
//! 4.6 hours away have a place and later ones wait in the last. A deadline that moves to a later
//! time stays where it is: whoever fires early is asked again (lazy re-arming).

use alloc::vec::Vec;

const TICK_US: u64 = 1_000;
const BITS: u32 = 8;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 3;
const NONE: u32 = u32::MAX;
const UNLINKED: u16 = u16::MAX;

#[derive(Clone, Copy)]
struct Node {
    next: u32,
    previous: u32,
    slot: u16,
    tick: u64,
}

const FREE: Node = Node {
    next: NONE,
    previous: NONE,
    slot: UNLINKED,
    tick: 0,
};

/// The wheel.
pub struct Wheel {
    nodes: Vec<Node>,
    heads: [u32; SLOTS * LEVELS],
    occupied: [[u64; SLOTS / 64]; LEVELS],
    tick: u64,
    armed: usize,
}

impl Wheel {
    /// A wheel that starts at this time.
    pub fn new(now_us: u64) -> Wheel {
        Wheel {
            nodes: Vec::new(),
            heads: [NONE; SLOTS * LEVELS],
            occupied: [[0; SLOTS / 64]; LEVELS],
            tick: now_us / TICK_US,
            armed: 0,
        }
    }

    /// Makes sure that `index` fires at `at_us` or before; with an earlier deadline armed already
    /// nothing is done.
    #[inline]
    pub fn arm(&mut self, index: u32, at_us: u64) {
        let tick = at_us.div_ceil(TICK_US).max(self.tick + 1);
        if let Some(node) = self.nodes.get(index as usize) {
            if node.slot != UNLINKED && node.tick <= tick {
                return;
            }
        }
        self.link(index, tick);
    }

    /// Reads the place of a number, so that arming it soon finds it in the cache.
    #[inline]
    pub fn touch(&self, index: u32) -> u32 {
        self.nodes.get(index as usize).map_or(0, |node| node.next)
    }

    fn link(&mut self, index: u32, tick: u64) {
        if self.nodes.len() <= index as usize {
            self.nodes.resize(index as usize + 1, FREE);
        }
        self.disarm(index);
        let slot = self.slot_of(tick);
        let head = self.heads[slot];
        self.nodes[index as usize] = Node {
            next: head,
            previous: NONE,
            slot: slot as u16,
            tick,
        };
        if head != NONE {
            self.nodes[head as usize].previous = index;
        }
        self.heads[slot] = index;
        self.occupied[slot / SLOTS][slot % SLOTS / 64] |= 1 << (slot % 64);
        self.armed += 1;
    }

    fn slot_of(&self, tick: u64) -> usize {
        let ahead = tick - self.tick;
        let level = match ahead {
            _ if ahead < 1 << BITS => 0,
            _ if ahead < 1 << (2 * BITS) => 1,
            _ => 2,
        };
        // The last slot but one of the upper level is as far as the wheel reaches.
        let reach = (1 << (3 * BITS)) - (1 << (2 * BITS));
        let tick = self.tick + ahead.min(reach);
        level * SLOTS + (tick >> (BITS * level as u32)) as usize % SLOTS
    }

    /// Takes the deadline away.
    pub fn disarm(&mut self, index: u32) {
        let Some(&node) = self.nodes.get(index as usize) else {
            return;
        };
        if node.slot == UNLINKED {
            return;
        }
        let slot = usize::from(node.slot);
        match node.previous {
            NONE => self.heads[slot] = node.next,
            previous => self.nodes[previous as usize].next = node.next,
        }
        if node.next != NONE {
            self.nodes[node.next as usize].previous = node.previous;
        }
        if self.heads[slot] == NONE {
            self.occupied[slot / SLOTS][slot % SLOTS / 64] &= !(1 << (slot % 64));
        }
        self.nodes[index as usize] = FREE;
        self.armed -= 1;
    }

    /// Moves to this time and puts the numbers that are due into `fired`.
    pub fn advance(&mut self, now_us: u64, fired: &mut Vec<u32>) {
        let target = now_us / TICK_US;
        while self.tick < target {
            if self.armed == 0 {
                self.tick = target;
                return;
            }
            self.tick = self.next_stop().min(target);
            self.cascade();
            self.fire(fired);
        }
    }

    /// The next tick at which something fires or moves down a level.
    fn next_stop(&self) -> u64 {
        let mut stop = u64::MAX;
        for level in 0..LEVELS {
            let shift = BITS * level as u32;
            let position = self.tick >> shift;
            if let Some(ahead) = self.next_occupied(level, position as usize % SLOTS) {
                stop = stop.min((position + ahead as u64) << shift);
            }
        }
        stop
    }

    /// How many slots behind `from` the next occupied one is, from 1 to 256.
    fn next_occupied(&self, level: usize, from: usize) -> Option<usize> {
        let words = &self.occupied[level];
        let start = (from + 1) % SLOTS;
        for step in 0..=SLOTS / 64 {
            let word = (start / 64 + step) % (SLOTS / 64);
            let mut bits = words[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == SLOTS / 64 {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                return Some((slot + SLOTS - start) % SLOTS + 1);
            }
        }
        None
    }

    /// Moves the slots of upper levels that begin at this tick down.
    fn cascade(&mut self) {
        for level in (1..LEVELS).rev() {
            let shift = BITS * level as u32;
            if self.tick & ((1 << shift) - 1) == 0 {
                let mut index = self.heads[level * SLOTS + (self.tick >> shift) as usize % SLOTS];
                while index != NONE {
                    let Node { next, tick, .. } = self.nodes[index as usize];
                    self.link(index, tick.max(self.tick));
                    index = next;
                }
            }
        }
    }

    fn fire(&mut self, fired: &mut Vec<u32>) {
        let slot = self.tick as usize % SLOTS;
        while self.heads[slot] != NONE {
            let index = self.heads[slot];
            self.disarm(index);
            fired.push(index);
        }
    }

    /// When [`Wheel::advance`] has something to do at the earliest; nothing when no deadline is
    /// armed. It may be too early, never too late.
    pub fn next_us(&self) -> Option<u64> {
        (self.armed > 0).then(|| self.next_stop().saturating_mul(TICK_US))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deadline_fires_once_not_early_and_at_most_a_tick_late() {
        let mut wheel = Wheel::new(5_000_000);
        let mut state = 7u64;
        let mut due = Vec::new();
        for index in 0..3_000u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let at = 5_000_000
                + (state >> 33) % [300_000, 90_000_000, 9_000_000_000][index as usize % 3];
            wheel.arm(index, at);
            due.push((at, index));
        }
        let (mut fired, mut seen) = (Vec::new(), alloc::vec![false; 3_000]);
        let mut now = 5_000_000;
        while let Some(next) = wheel.next_us() {
            now = next.max(now);
            wheel.advance(now, &mut fired);
            for index in fired.drain(..) {
                let (at, _) = due[index as usize];
                assert!(
                    !seen[index as usize] && now >= at && now <= at + 2 * TICK_US,
                    "{at} at {now}"
                );
                seen[index as usize] = true;
            }
        }
        assert!(seen.iter().all(|seen| *seen));
    }

    #[test]
    fn a_later_deadline_leaves_the_earlier_one_armed_and_an_earlier_one_moves_it() {
        let mut wheel = Wheel::new(0);
        wheel.arm(1, 10_000);
        wheel.arm(1, 20_000);
        assert_eq!(wheel.next_us(), Some(10_000));
        wheel.arm(1, 4_000);
        assert_eq!(wheel.next_us(), Some(4_000));
        wheel.disarm(1);
        assert_eq!(wheel.next_us(), None);
    }

    #[test]
    fn a_jump_over_many_slots_fires_all_that_is_due() {
        let mut wheel = Wheel::new(0);
        for index in 0..100 {
            wheel.arm(index, u64::from(index) * 700_000 + 1_000);
        }
        let mut fired = Vec::new();
        wheel.advance(1_000_000_000, &mut fired);
        fired.sort_unstable();
        assert_eq!(fired, (0..100).collect::<Vec<_>>());
    }
}
