//! The distance between caches: how far away the core is that wrote a line, and evicting lines that
//! it will write again.
//!
//! Memory that one core writes round after round and another reads stays in the reader's cache, and
//! the writer must fetch each line from there before it can write it again. Cores with a common
//! cache do that fast. Between others, such as cores on two dies of one processor, it limits a
//! stream to less than half of the memory bandwidth: a distant reader therefore evicts what it has
//! read, and the writer finds the lines in memory. Between close cores that would halve the speed.
//! A reader measures the distance by timing loads of lines that were just written. The reasons,
//! with measurements: docs/decisions/0016-evicting-what-was-read.md.

const LINE: usize = 64;
/// A load that takes longer did not come from a common cache: such loads take 10 to 60 ns.
#[cfg(target_arch = "x86_64")]
const FAR_NS: u64 = 110;
/// A slow load adds one, a fast one subtracts one, within these bounds; from the middle on the
/// writer is far.
const COUNT_MAX: u32 = 15;

/// Where most of a writer's lines came from in the latest loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Distance(u32);

impl Distance {
    /// From [`word`](Self::word); any word is a valid distance.
    pub fn from_word(word: u32) -> Self {
        Self(word.min(COUNT_MAX))
    }

    /// The distance as a word, to be stored.
    pub fn word(self) -> u32 {
        self.0
    }

    /// The writer is on a core that shares no cache with this one.
    pub fn is_far(self) -> bool {
        self.0 > COUNT_MAX / 2
    }

    /// The distance after one more load, which takes some 30 ns more than without reading the
    /// clock.
    ///
    /// # Safety
    /// `place` must be readable.
    #[inline]
    pub unsafe fn and_load(self, place: *const u8) -> Self {
        // SAFETY: the caller vouches for it.
        self.and(unsafe { is_slow_to_load(place) })
    }

    fn and(self, is_slow: bool) -> Self {
        match is_slow {
            true => Self((self.0 + 1).min(COUNT_MAX)),
            false => Self(self.0.saturating_sub(1)),
        }
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn is_slow_to_load(place: *const u8) -> bool {
    use crate::clock::{ticks, ticks_in};
    use core::arch::x86_64::_mm_lfence;
    // Without CLFLUSHOPT nothing can be evicted, so the distance does not matter.
    if !can_evict() {
        return false;
    }
    // SAFETY: the caller vouches for the load; the fences keep it between the two looks.
    let taken = unsafe {
        _mm_lfence();
        let start = ticks();
        _mm_lfence();
        place.read_volatile();
        _mm_lfence();
        ticks().wrapping_sub(start)
    };
    taken > ticks_in(1) * FAR_NS / 1000
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn is_slow_to_load(_: *const u8) -> bool {
    false
}

/// Evicts the lines of `count` bytes at `from` from all caches, if the processor can. A last line
/// that extends beyond them stays.
///
/// # Safety
/// The memory must be mapped.
pub unsafe fn evict(from: *const u8, count: usize) {
    // Checked here too, because a peer may have written the distance.
    if !can_evict() {
        return;
    }
    let into = from as usize % LINE;
    let lines = (into + count) / LINE;
    for line in 0..lines {
        // SAFETY: a part of the line lies in memory that is mapped, and so all of it does.
        unsafe { evict_line(from.wrapping_sub(into).wrapping_add(line * LINE)) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn can_evict() -> bool {
    false
}

/// Whether the processor has CLFLUSHOPT (leaf 7 of CPUID); CLFLUSH, which all have, evicts one line after the other.
#[cfg(target_arch = "x86_64")]
fn can_evict() -> bool {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    use core::sync::atomic::{AtomicU8, Ordering};
    const NO: u8 = 1;
    const YES: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    match KNOWN.load(Ordering::Relaxed) {
        0 => {
            let has = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & 1 << 23 != 0;
            KNOWN.store(if has { YES } else { NO }, Ordering::Relaxed);
            has
        }
        known => known == YES,
    }
}

/// Requires [`can_evict`].
#[cfg(target_arch = "x86_64")]
unsafe fn evict_line(line: *const u8) {
    // SAFETY: the line is mapped; evicting it changes nothing that a program can see.
    unsafe {
        core::arch::asm!("clflushopt byte ptr [{line}]", line = in(reg) line,
            options(nostack, preserves_flags));
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn evict_line(_: *const u8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_slow_loads_among_fast_ones_do_not_make_a_writer_distant() {
        let mut distance = Distance::default();
        for turn in 0..1000 {
            distance = distance.and(turn % 3 == 0);
            assert!(!distance.is_far());
        }
        let far = (0..COUNT_MAX).fold(distance, |one, _| one.and(true));
        assert!(far.is_far());
        let near = (0..COUNT_MAX).fold(far, |one, _| one.and(false));
        assert!(!near.is_far());
    }

    #[test]
    fn any_word_is_a_distance() {
        let distance = Distance::from_word(u32::MAX);
        assert!(distance.is_far());
        let near = (0..COUNT_MAX).fold(distance, |one, _| one.and(false));
        assert_eq!(near, Distance::default());
    }

    #[test]
    fn evicting_leaves_the_bytes_as_they_were() {
        let memory: Vec<u8> = (0..8192u32).map(|at| at as u8).collect();
        let before = memory.clone();
        for (from, count) in [(0, 8192), (100, 4000), (65, 1), (0, 0), (8191, 1)] {
            // SAFETY: within the vector.
            unsafe { evict(memory.as_ptr().wrapping_add(from), count) };
        }
        assert_eq!(memory, before);
    }

    #[test]
    fn a_line_that_this_core_has_is_near() {
        let memory = [1u8; 64];
        // SAFETY: the array is readable.
        let load = |one: Distance, _| unsafe { one.and_load(memory.as_ptr()) };
        assert!(!(0..1000).fold(Distance::default(), load).is_far());
    }
}
