//! How far away a writer's core is, and what a reader far away does for it.
//!
//! A writer comes round to lines that its reader has read, and has them taken out of the reader's cache. Cores
//! with a cache in common do that fast. Between others, as between the dies of one processor, it bounds a stream
//! at less than half of what memory gives: a reader far away therefore evicts what it has read, and the writer
//! finds the lines in memory. Close by that would cost half of the speed. A reader learns which of the
//! two it is by timing a load of each long piece; figures of both are in docs/performance/bypass.md.

use super::*;
use crate::atomic::AtomicU32;

/// Shorter pieces are not looked at, nor is the first ring, which short messages go through.
const PIECE_MIN: usize = 4096;
const LINE: usize = 64;
/// A load that takes longer did not come from a cache in common: those take 10 to 60 ns.
#[cfg(target_arch = "x86_64")]
const FAR_NS: u64 = 110;
/// A slow load counts one up, a fast one one down, within these bounds: the writer is far from the middle on.
const COUNT_MAX: u32 = 15;

impl Ring<'_> {
    /// Whether `count` bytes from `cursor` on, which are about to be read, were written far away.
    #[inline]
    pub(super) fn comes_from_far(&self, area: Area, cursor: u64, count: usize) -> bool {
        if count < PIECE_MIN || area.bytes == self.first.bytes {
            return false;
        }
        // The last line: a reader in sequence has had the first ones fetched.
        let last = area.at(cursor.wrapping_add(count as u64 - 1));
        is_far(&self.consumer.far, load_is_slow(last))
    }
}

/// Counts one load; whether most were slow.
fn is_far(count: &AtomicU32, is_slow: bool) -> bool {
    let before = count.load(Ordering::Relaxed).min(COUNT_MAX);
    let now = if is_slow {
        (before + 1).min(COUNT_MAX)
    } else {
        before.saturating_sub(1)
    };
    count.store(now, Ordering::Relaxed);
    now > COUNT_MAX / 2
}

impl Area {
    /// Evicts the lines of `count` bytes from `cursor` on. A line that goes on behind them is kept.
    #[cold]
    pub(super) fn evict(self, cursor: u64, count: usize) {
        let end = cursor.wrapping_add(count as u64) / LINE as u64;
        for line in cursor / LINE as u64..end {
            evict_line(self.at(line * LINE as u64));
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn load_is_slow(place: *const u8) -> bool {
    use bypass_sys::clock::{ticks, ticks_in};
    use core::arch::x86_64::_mm_lfence;
    // Nothing is gained by knowing where nothing can be done about it.
    if !can_evict() {
        return false;
    }
    // SAFETY: the byte was published, so it lies in the ring; the fences keep the load between the two looks.
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
fn load_is_slow(_: *const u8) -> bool {
    false
}

/// Whether the processor has CLFLUSHOPT (leaf 7 of CPUID); CLFLUSH, which all have, evicts line after line.
#[cfg(target_arch = "x86_64")]
fn can_evict() -> bool {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    const UNKNOWN: u32 = 0;
    const NO: u32 = 1;
    const YES: u32 = 2;
    static KNOWN: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(UNKNOWN);
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => {
            let has = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & 1 << 23 != 0;
            KNOWN.store(if has { YES } else { NO }, Ordering::Relaxed);
            has
        }
        known => known == YES,
    }
}

#[cfg(target_arch = "x86_64")]
fn evict_line(line: *const u8) {
    // SAFETY: the line lies in the ring, which is mapped; evicting it changes nothing that a program can see.
    unsafe {
        core::arch::asm!("clflushopt byte ptr [{line}]", line = in(reg) line,
            options(nostack, preserves_flags));
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn evict_line(_: *const u8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_slow_loads_among_fast_ones_do_not_make_a_writer_distant() {
        let count = AtomicU32::new(0);
        for turn in 0..1000 {
            assert!(!is_far(&count, turn % 3 == 0));
        }
        assert!((0..COUNT_MAX).any(|_| is_far(&count, true)));
        assert!(!(0..COUNT_MAX).all(|_| is_far(&count, false)));
        // The peer can write it.
        count.store(u32::MAX, Ordering::Relaxed);
        assert!(is_far(&count, true));
        assert!((0..COUNT_MAX).any(|_| !is_far(&count, false)));
    }

    #[test]
    fn evicting_leaves_the_bytes_as_they_were() {
        let mut memory: Vec<u8> = (0..8192u32).map(|at| at as u8).collect();
        let before = memory.clone();
        let area = Area {
            bytes: memory.as_mut_ptr(),
            size: memory.len(),
        };
        for (cursor, count) in [(0, 8192), (8000, 4096), (65, 1), (8192 * 5 + 100, 5000)] {
            area.evict(cursor, count);
        }
        assert_eq!(memory, before);
    }
}
