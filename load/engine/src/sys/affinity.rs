//! Cores and limits of the process: pinning, priority, timer slack, number of files.

use super::check;
use std::io;

/// Binds the calling thread to one core.
pub fn pin(core: usize) -> io::Result<()> {
    let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: all zeros is the empty set.
    let set = unsafe { set.assume_init_mut() };
    if core >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: `core` is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(core, set) };
    let size = std::mem::size_of::<libc::cpu_set_t>();
    // SAFETY: `set` is valid for `size` bytes; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size, set) }).map(drop)
}

/// The cores that the calling thread may run on.
pub fn allowed() -> Vec<usize> {
    let mut set = std::mem::MaybeUninit::<libc::cpu_set_t>::zeroed();
    let size = std::mem::size_of::<libc::cpu_set_t>();
    // SAFETY: the set is writable for `size` bytes.
    let result = unsafe { libc::sched_getaffinity(0, size, set.as_mut_ptr()) };
    // SAFETY: zeroed above, possibly written by the call.
    let set = unsafe { set.assume_init() };
    if result < 0 {
        return Vec::new();
    }
    // SAFETY: every index is below CPU_SETSIZE.
    (0..libc::CPU_SETSIZE as usize)
        .filter(|&core| unsafe { libc::CPU_ISSET(core, &set) })
        .collect()
}

/// Above ordinary programs and kernel threads, below the threads that serve interrupts (50).
const REALTIME_PRIORITY: libc::c_int = 10;

/// Gives the calling thread real-time priority: it runs whenever it has work, except for what the
/// kernel keeps for others (by default a twentieth of each second) if it never sleeps. At a fixed rate it
/// does (`worker/resting.rs`).
pub fn become_realtime() -> io::Result<()> {
    let wanted = libc::sched_param {
        sched_priority: REALTIME_PRIORITY,
    };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the parameter is valid for the call; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &wanted) }).map(drop)
}

/// Lets timers of the calling thread end when they are due, not up to 50 us later.
pub fn exact_timers() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer; a failure leaves the default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Raises the soft limit of open files to `wanted`; what is allowed now.
pub fn allow_files(wanted: u64) -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is writable.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } < 0 {
        return wanted;
    }
    if limit.rlim_cur < wanted {
        let raised = libc::rlimit {
            rlim_cur: wanted.min(limit.rlim_max.max(wanted)),
            rlim_max: limit.rlim_max.max(wanted),
        };
        // SAFETY: `raised` is a valid limit; only root may raise the hard one.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0 {
            return wanted;
        }
        let soft = libc::rlimit {
            rlim_cur: limit.rlim_max,
            rlim_max: limit.rlim_max,
        };
        // SAFETY: as above.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &soft) };
        return limit.rlim_max;
    }
    limit.rlim_cur
}
