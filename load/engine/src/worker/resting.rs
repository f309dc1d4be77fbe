//! Short sleeps of a thread with real-time priority that would otherwise never yield its core.
//!
//! The kernel lets real-time threads run for 95 % of each second (`kernel.sched_rt_runtime_us`) and
//! takes the rest in one piece: a thread that polls for its due times would stand still for 50 ms.
//! Rests of its own cost each request 60 µs at most, and let what is bound to the core have its turn.

use std::time::Duration;

/// So often a rest is owed.
const PERIOD_NS: u64 = 1_000_000;
/// A rest: with the time to wake up more than the twentieth that the kernel would take.
const REST_NS: u64 = 60_000;

/// How long the thread has slept in this period.
#[derive(Debug, Default)]
pub struct Resting {
    began_ns: u64,
    slept_ns: u64,
}

impl Resting {
    /// A wait that may have slept lasted so long.
    pub fn note_wait(&mut self, waited_ns: u64) {
        self.slept_ns += waited_ns;
    }

    /// What is still owed at `now`, which begins a new period if this one has ended.
    fn owed_ns(&mut self, now: u64) -> u64 {
        if now.saturating_sub(self.began_ns) < PERIOD_NS {
            return 0;
        }
        let owed_ns = REST_NS.saturating_sub(self.slept_ns);
        *self = Resting {
            began_ns: now,
            slept_ns: 0,
        };
        owed_ns
    }

    /// Sleeps what is owed.
    pub fn rest(&mut self, now: u64) {
        let owed_ns = self.owed_ns(now);
        if owed_ns > 0 {
            std::thread::sleep(Duration::from_nanos(owed_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_never_sleeps_owes_a_rest_each_period() {
        let mut resting = Resting::default();
        assert_eq!(resting.owed_ns(PERIOD_NS), REST_NS);
        assert_eq!(resting.owed_ns(PERIOD_NS + PERIOD_NS / 2), 0);
        assert_eq!(resting.owed_ns(2 * PERIOD_NS), REST_NS);
    }

    #[test]
    fn sleep_in_waits_counts() {
        let mut resting = Resting::default();
        resting.note_wait(REST_NS / 3);
        assert_eq!(resting.owed_ns(PERIOD_NS), REST_NS - REST_NS / 3);
        resting.note_wait(REST_NS);
        resting.note_wait(REST_NS);
        assert_eq!(resting.owed_ns(2 * PERIOD_NS), 0);
        assert_eq!(resting.owed_ns(3 * PERIOD_NS), REST_NS);
    }
}
