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

/// CLOCK_REALTIME, since 1970.
pub fn realtime_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
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
