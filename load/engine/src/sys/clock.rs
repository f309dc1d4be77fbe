//! Clocks: monotonic and real time, CPU time of thread and process, all in nanoseconds.

/// Nanoseconds of one second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// CPU time in user and kernel mode.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    /// User mode.
    pub user_ns: u64,
    /// Kernel mode.
    pub sys_ns: u64,
}

impl CpuTime {
    /// The CPU time since `earlier`.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            sys_ns: self.sys_ns.saturating_sub(earlier.sys_ns),
        }
    }

    /// Both modes together.
    pub fn total_ns(self) -> u64 {
        self.user_ns + self.sys_ns
    }
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec for the call to write to.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64
}

/// CLOCK_MONOTONIC.
#[inline]
pub fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread, read by a system call.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CLOCK_REALTIME, since 1970.
fn realtime_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// Both of one moment: the monotonic time, and the real one.
pub fn both_ns() -> (u64, u64) {
    closest(monotonic_ns, realtime_ns)
}

/// Reads two clocks one after the other, and again where the thread stood still in between.
fn closest(mut monotonic: impl FnMut() -> u64, mut real: impl FnMut() -> u64) -> (u64, u64) {
    const NEAR_NS: u64 = 10_000;
    const TRIES: usize = 100;
    let (mut nearest_ns, mut found) = (u64::MAX, (0, 0));
    for _ in 0..TRIES {
        let (before_ns, real_ns, after_ns) = (monotonic(), real(), monotonic());
        let apart_ns = after_ns.saturating_sub(before_ns);
        if apart_ns < nearest_ns {
            nearest_ns = apart_ns;
            found = (before_ns + apart_ns / 2, real_ns);
        }
        if nearest_ns <= NEAR_NS {
            break;
        }
    }
    found
}

/// CPU time of the calling thread.
pub fn thread_cpu() -> CpuTime {
    usage(libc::RUSAGE_THREAD)
}

/// CPU time of the whole process.
pub fn process_cpu() -> CpuTime {
    usage(libc::RUSAGE_SELF)
}

fn usage(who: libc::c_int) -> CpuTime {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable and large enough; getrusage with these arguments cannot fail.
    unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
    // SAFETY: zeroed above and written by the call; every bit pattern of the integers is valid.
    let usage = unsafe { usage.assume_init() };
    let ns = |time: libc::timeval| time.tv_sec as u64 * SECOND_NS + time.tv_usec as u64 * 1000;
    CpuTime {
        user_ns: ns(usage.ru_utime),
        sys_ns: ns(usage.ru_stime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_thread_that_stands_still_between_two_clocks_reads_them_again() {
        // the real time is 1000 s ahead; between the first two reads half a second passes
        let (passed_ns, reads) = (Cell::new(0), Cell::new(0));
        let clock = |ahead_ns: u64| {
            let now_ns = passed_ns.get() + ahead_ns;
            reads.set(reads.get() + 1);
            let is_first = reads.get() == 1;
            passed_ns.set(passed_ns.get() + if is_first { SECOND_NS / 2 } else { 100 });
            now_ns
        };
        let (monotonic, real) = closest(|| clock(0), || clock(1000 * SECOND_NS));
        assert_eq!(real - monotonic, 1000 * SECOND_NS);
        assert_eq!(reads.get(), 6);
    }

    #[test]
    fn clocks_that_are_never_read_at_once_give_the_closest_reading() {
        let (passed_ns, gaps_ns) = (Cell::new(0), Cell::new(300_000));
        let clock = || {
            let now_ns = passed_ns.get();
            gaps_ns.set(gaps_ns.get().max(101_000) - 1_000);
            passed_ns.set(now_ns + gaps_ns.get());
            now_ns
        };
        let (monotonic, real) = closest(clock, clock);
        assert_eq!(monotonic, real);
    }
}
