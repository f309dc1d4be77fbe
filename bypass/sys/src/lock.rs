//! A lock in shared memory that survives the death of its holder.
//!
//! The word is the holder's thread number. Threads of one program and of its forked children use
//! it; holding times are below a microsecond. The peer could write the word too, so waiting is
//! bounded, and if the lock is not available the connection is given up. Only time in which the
//! holder could have released the lock counts: not time in which the waiter or the holder was
//! stopped.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use core::time::Duration;

use crate::clock::{self, Waited};
use crate::sandbox::is_confined;
use crate::{kernel, numbers};

/// Longest wait before the connection is taken for broken.
const WAIT_NS_MAX: u64 = 2_000_000_000;
/// How often the wait is extended because the holder is stopped when it ends.
const STOPS_MAX: u32 = 30;
/// Checks before the wait asks whether the holder exists.
const SPINS: u32 = 200;
/// Of the checks from then on, one in so many asks whether the holder's process has ended.
const END_CHECKS: u32 = 32;

/// See [`never_ask`].
static MAY_NOT_ASK: AtomicBool = AtomicBool::new(false);

/// Processes that share locks with this one, and its later children, may be in another PID
/// namespace from now on: a thread number has no known meaning there, so the wait does not ask
/// about the holder.
pub fn never_ask() {
    MAY_NOT_ASK.store(true, Ordering::Relaxed);
}

/// Unlocks when dropped.
pub struct Guard<'a>(&'a AtomicU32);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Takes the lock for `thread`; None if it is not available.
#[inline]
pub fn take(word: &AtomicU32, thread: u32) -> Option<Guard<'_>> {
    match word.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => Some(Guard(word)),
        Err(holder) => wait(word, thread, holder),
    }
}

/// How much of a wait counts.
struct Patience {
    waited: Waited,
    stops: u32,
}

impl Patience {
    fn new(now_ns: u64) -> Self {
        Self {
            waited: Waited::since(now_ns),
            stops: 0,
        }
    }

    /// Whether it is over, at a check; `is_stopped` asks about the holder only then.
    fn is_over(&mut self, now_ns: u64, is_stopped: impl FnOnce() -> bool) -> bool {
        if self.waited.look_at(now_ns) <= WAIT_NS_MAX {
            return false;
        }
        if self.stops == STOPS_MAX || !is_stopped() {
            return true;
        }
        self.stops += 1;
        self.waited = Waited::since(now_ns);
        false
    }
}

/// Frees a lock that `thread` seems to hold, which has just started: the holder was a thread of the program that called
/// execve(2), after which the first thread has the number of the process again.
pub fn free_at_start(word: &AtomicU32, thread: u32) {
    let _ = word.compare_exchange(thread, 0, Ordering::AcqRel, Ordering::Relaxed);
}

/// Whether a process has ended. Its number lives on until its parent has waited for it; a descriptor of it (pidfd) is
/// readable before. False for a thread that is not the first of its process: the number of such a one ends with it.
fn has_ended(process: u32) -> bool {
    let Ok(process) = numbers::high(|| kernel::pidfd_open(process as i32, 0)) else {
        return false;
    };
    let mut end = [libc::pollfd {
        fd: process.0,
        events: libc::POLLIN,
        revents: 0,
    }];
    kernel::poll(&mut end, Some(Duration::ZERO), None) == Ok(1)
}

#[cold]
fn wait(word: &AtomicU32, thread: u32, mut holder: u32) -> Option<Guard<'_>> {
    let mut patience = Patience::new(clock::now_ns());
    let mut spins = 0;
    loop {
        let is_known = !MAY_NOT_ASK.load(Ordering::Relaxed);
        let may_ask = spins >= SPINS && is_known && !is_confined();
        let is_dead = || {
            !kernel::thread_exists(holder as i32)
                || (spins.is_multiple_of(END_CHECKS) && has_ended(holder))
        };
        let expected = if may_ask && is_dead() { holder } else { 0 };
        match word.compare_exchange(expected, thread, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Some(Guard(word)),
            Err(other) => holder = other,
        }
        spins += 1;
        if spins > SPINS {
            let is_stopped = || may_ask && kernel::is_stopped_relative(holder as i32);
            if patience.is_over(clock::now_ns(), is_stopped) {
                return None;
            }
            if !is_confined() {
                kernel::let_others_run(spins - SPINS);
            }
        }
        core::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::LOOK_NS_MAX;

    #[test]
    fn the_lock_of_a_dead_thread_is_taken_over() {
        let dead = std::thread::spawn(|| kernel::gettid().expect("a number") as u32);
        let word = AtomicU32::new(dead.join().expect("no panic"));
        assert!(take(&word, 1).is_some());
    }

    #[test]
    fn the_lock_of_a_killed_process_that_was_not_waited_for_is_taken_over() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let id = child.id();
        let word = AtomicU32::new(id);
        assert!(!has_ended(id));
        child.kill().expect("own child");
        while !has_ended(id) {
            std::thread::yield_now();
        }
        assert!(kernel::thread_exists(id as i32));
        assert!(take(&word, 1).is_some());
        child.wait().expect("its end");
    }

    #[test]
    fn a_lock_of_the_program_before_exec_is_free() {
        let word = AtomicU32::new(7);
        free_at_start(&word, 8);
        assert_eq!(word.load(Ordering::Relaxed), 7);
        free_at_start(&word, 7);
        assert!(take(&word, 7).is_some());
    }

    #[test]
    fn a_stop_of_the_whole_process_does_not_use_up_the_wait() {
        let mut patience = Patience::new(0);
        let hour_ns = 3_600_000_000_000;
        assert!(!patience.is_over(hour_ns, || false));
        let look =
            |patience: &mut Patience, at| patience.is_over(hour_ns + at * LOOK_NS_MAX, || false);
        let last = WAIT_NS_MAX / LOOK_NS_MAX;
        assert!((1..last).all(|at| !look(&mut patience, at)));
        assert!(look(&mut patience, last));
    }

    #[test]
    fn a_stopped_holder_is_waited_for_but_not_for_ever() {
        let mut patience = Patience::new(0);
        let looks_of_a_wait = WAIT_NS_MAX / LOOK_NS_MAX + 1;
        let look = |patience: &mut Patience, at| patience.is_over(at * LOOK_NS_MAX, || true);
        let whole = looks_of_a_wait * u64::from(STOPS_MAX);
        assert!((1..=whole).all(|at| !look(&mut patience, at)));
        assert!((whole..whole + looks_of_a_wait).any(|at| look(&mut patience, at + 1)));
    }

    #[test]
    fn a_stopped_child_is_known() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let id = child.id() as i32;
        assert!(!kernel::is_stopped_relative(id));
        kernel::kill(id, libc::SIGSTOP).expect("own child");
        while !kernel::is_stopped_relative(id) {
            std::thread::yield_now();
        }
        child.kill().expect("own child");
        child.wait().expect("its end");
    }

    /// A hostile process may write its number into a lock and be stopped for as long as it likes.
    #[test]
    fn a_stopped_unrelated_process_gets_no_extra_time() {
        let shell = std::process::Command::new("sh")
            .args(["-c", "sleep 60 >/dev/null 2>&1 & echo $!"])
            .output()
            .expect("sh");
        let text = String::from_utf8_lossy(&shell.stdout);
        let id: i32 = text.trim().parse().expect("a number");
        kernel::kill(id, libc::SIGSTOP).expect("own process");
        let state = || std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        while !state().contains(") T ") {
            std::thread::yield_now();
        }
        assert!(!kernel::is_stopped_relative(id));
        kernel::kill(id, libc::SIGKILL).expect("own process");
    }

    #[test]
    fn threads_exclude_each_other() {
        let word = AtomicU32::new(0);
        let count = core::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let thread = kernel::gettid().expect("a number") as u32;
                    for _ in 0..20_000 {
                        let _guard = take(&word, thread).expect("a living holder lets go");
                        // Load and store separately: only the lock keeps the sum right.
                        let seen = count.load(Ordering::Relaxed);
                        count.store(seen + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 80_000);
    }
}
