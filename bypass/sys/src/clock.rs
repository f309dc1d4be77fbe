//! The one clock of waiting: monotonic nanoseconds, read without entering the kernel.

use core::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds since an arbitrary start.
#[inline]
pub fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: clock_gettime fills one timespec on this frame; it is not among the hooked calls.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds since 1970.
pub fn unix_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: as above.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The processor's own counter: a few nanoseconds per read, good for intervals that need not be
/// exact.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the time stamp counter, which every x86-64 processor has.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    now_ns()
}

static TICKS_PER_MS: AtomicU64 = AtomicU64::new(0);

/// The length of an interval in [`ticks`], about; measured once, by reading both clocks.
#[inline]
pub fn ticks_in(us: u64) -> u64 {
    let per_ms = match TICKS_PER_MS.load(Ordering::Relaxed) {
        0 => compare_clocks(),
        known => known,
    };
    us.saturating_mul(per_ms) / 1000
}

#[cold]
fn compare_clocks() -> u64 {
    const LOOK_NS: u64 = 20_000;
    let (start_ns, start) = (now_ns(), ticks());
    let mut spent_ns = 0;
    while spent_ns < LOOK_NS {
        core::hint::spin_loop();
        spent_ns = now_ns() - start_ns;
    }
    let per_ms = (ticks().wrapping_sub(start).saturating_mul(1_000_000) / spent_ns).max(1);
    TICKS_PER_MS.store(per_ms, Ordering::Relaxed);
    per_ms
}

/// How long something has been waited for, look by look: of the time between two looks at most so much counts. For the
/// rest of it the process did not run, nor did, if the whole machine stood still, whoever is waited for.
#[derive(Debug)]
pub struct Waited {
    looked_ns: u64,
    counted_ns: u64,
}

/// So much counts between two looks at most; they are microseconds to a millisecond apart.
pub(crate) const LOOK_NS_MAX: u64 = 10_000_000;

impl Waited {
    /// The wait begins.
    pub fn begin() -> Self {
        Self::since(now_ns())
    }

    /// It has begun at this time.
    pub(crate) fn since(now_ns: u64) -> Self {
        Self {
            looked_ns: now_ns,
            counted_ns: 0,
        }
    }

    /// How long it has lasted, at a look.
    pub fn look_ns(&mut self) -> u64 {
        self.look_at(now_ns())
    }

    /// How long it has lasted, at a look at this time.
    pub(crate) fn look_at(&mut self, now_ns: u64) -> u64 {
        let passed_ns = now_ns.saturating_sub(self.looked_ns);
        self.looked_ns = now_ns;
        self.counted_ns += passed_ns.min(LOOK_NS_MAX);
        self.counted_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standstill_counts_as_one_look() {
        let mut waited = Waited::begin();
        let begun_ns = waited.looked_ns;
        assert_eq!(waited.look_at(begun_ns + 1000), 1000);
        let hour_ns = 3_600_000_000_000;
        assert_eq!(waited.look_at(begun_ns + hour_ns), 1000 + LOOK_NS_MAX);
        assert_eq!(waited.look_at(begun_ns + hour_ns + 5), 1005 + LOOK_NS_MAX);
    }
}
