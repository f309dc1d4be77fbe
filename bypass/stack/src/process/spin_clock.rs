//! The time that a spin takes, and whether its thread shares its core.
//!
//! The kernel takes a spin for work. Where spinning threads share a core, each would keep the others from it for a whole
//! time slice, in which they could answer many requests. So a spin ends when the kernel has given its core to another
//! thread meanwhile, and for a time the next spins of the thread are brief.

use core::sync::atomic::Ordering;

use bypass_sys::clock::now_ns;
use bypass_sys::kernel::{self, Switches};
use bypass_sys::sandbox::is_confined;
use bypass_sys::thread::thread;

/// From one look at the clock to the next is a microsecond or a few. Time slices are longer than this.
const LOST_NS: u64 = 500_000;
/// A spin that lasts so long asks the kernel how often the thread has been preempted, and again after a gap: the machine may
/// only have stood still.
const LONG_NS: u64 = 100_000;
/// How long an answer of the kernel counts: an old preemption is not what a later gap comes from.
const ANSWER_NS: u64 = 5_000_000;
/// The thread spins briefly for so many times as long as it was without its core: what disturbs seldom costs little.
const BRIEF_TIMES: u64 = 100;
const BRIEF_FOR_NS_MAX: u64 = 10_000_000_000;
/// A brief spin, which shares a core well.
const BRIEF_NS: u64 = 20_000;

/// The clock of one spin.
#[derive(Debug)]
pub struct SpinClock {
    begun_ns: u64,
    looked_ns: u64,
    /// The thread's switches when the spin last asked for them.
    switches: Option<Switches>,
    /// When it asks the next time.
    asks_ns: u64,
    has_lost_core: bool,
}

impl SpinClock {
    /// The spin begins.
    pub fn begin() -> Self {
        let now = now_ns();
        Self {
            begun_ns: now,
            looked_ns: now,
            switches: None,
            asks_ns: now + LONG_NS,
            has_lost_core: false,
        }
    }

    /// The time now.
    #[inline]
    pub fn look(&mut self) -> u64 {
        let now = now_ns();
        let gap_ns = now.saturating_sub(self.looked_ns);
        self.looked_ns = now;
        if gap_ns >= LOST_NS {
            self.judge(now, gap_ns, switches());
        } else if now >= self.asks_ns {
            self.switches = Some(switches());
            self.asks_ns = now + ANSWER_NS;
        }
        now
    }

    /// The thread has slept since the last look.
    pub fn skip(&mut self) {
        self.looked_ns = now_ns();
    }

    /// Whether the spin has lasted `spin_ns`, or has lost its core to another thread.
    #[inline]
    pub fn is_over(&self, spin_ns: u64) -> bool {
        self.has_lost_core || self.looked_ns - self.begun_ns >= spin_ns
    }

    /// The nanoseconds that it took. An event may have been found by the first look after the core was lost.
    pub fn end(mut self) -> u64 {
        self.look() - self.begun_ns
    }

    /// Whether another thread had the core in a gap between two looks; the thread then spins briefly for a time.
    #[cold]
    fn judge(&mut self, now: u64, gap_ns: u64, switches: Switches) {
        let was_preempted = |before: Switches| {
            switches.preemptions > before.preemptions && switches.voluntary == before.voluntary
        };
        if self.switches.replace(switches).is_some_and(was_preempted) {
            self.has_lost_core = true;
            let brief_ns = gap_ns.saturating_mul(BRIEF_TIMES).min(BRIEF_FOR_NS_MAX);
            let until = &thread().spins_briefly_until;
            until.store(now + brief_ns, Ordering::Relaxed);
        }
    }
}

/// The calling thread's; none where the kernel cannot be asked.
#[cold]
fn switches() -> Switches {
    if is_confined() {
        return Switches::default();
    }
    kernel::switches().unwrap_or_default()
}

/// How long the calling thread spins that may spin for `spin_ns`.
#[inline]
pub fn bounded(spin_ns: u64) -> u64 {
    match thread().spins_briefly_until.load(Ordering::Relaxed) {
        0 => spin_ns,
        until => bounded_until(until, spin_ns),
    }
}

#[cold]
fn bounded_until(until: u64, spin_ns: u64) -> u64 {
    if now_ns() < until {
        return spin_ns.min(BRIEF_NS);
    }
    thread().spins_briefly_until.store(0, Ordering::Relaxed);
    spin_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_NS: u64 = 100_000_000_000_000;
    const GAP_NS: u64 = 4_000_000;

    fn counted(voluntary: i64, preemptions: i64) -> Switches {
        Switches {
            voluntary,
            preemptions,
        }
    }

    /// What is found is kept in the thread. The gap ends at the time `now`.
    fn judged(before: Option<Switches>, now: u64, after: Switches) -> (bool, u64) {
        let judge = move || {
            let mut clock = SpinClock::begin();
            clock.switches = before;
            clock.judge(now, GAP_NS, after);
            (clock.is_over(LIMIT_NS), bounded(LIMIT_NS))
        };
        std::thread::spawn(judge).join().expect("a thread")
    }

    #[test]
    fn a_spin_that_lost_its_core_ends_and_the_next_ones_are_brief_for_a_time() {
        let (before, after) = (Some(counted(2, 6)), counted(2, 7));
        let much_later = now_ns() + LIMIT_NS;
        assert_eq!(judged(before, much_later, after), (true, BRIEF_NS));
        let long_ago = now_ns() - GAP_NS * BRIEF_TIMES;
        assert_eq!(judged(before, long_ago, after), (true, LIMIT_NS));
    }

    #[test]
    fn a_machine_that_stood_still_and_a_thread_that_was_frozen_lost_no_core() {
        let (before, now) = (Some(counted(2, 6)), now_ns());
        assert_eq!(judged(before, now, counted(2, 6)), (false, LIMIT_NS));
        assert_eq!(judged(before, now, counted(3, 7)), (false, LIMIT_NS));
        assert_eq!(judged(before, now, counted(0, 0)), (false, LIMIT_NS));
        assert_eq!(judged(None, now, counted(2, 7)), (false, LIMIT_NS));
    }

    #[test]
    fn brief_spins_are_no_longer_than_the_options_say() {
        let work = || {
            let until = &thread().spins_briefly_until;
            until.store(now_ns() + LIMIT_NS, Ordering::Relaxed);
            bounded(5_000)
        };
        assert_eq!(std::thread::spawn(work).join().expect("a thread"), 5_000);
    }

    #[test]
    fn a_long_spin_asks_how_often_it_was_preempted() {
        let mut clock = SpinClock::begin();
        assert_eq!(clock.switches, None);
        while clock.switches.is_none() {
            clock.look();
        }
        assert!(clock.is_over(LONG_NS));
    }
}
