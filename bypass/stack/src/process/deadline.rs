//! When a wait ends: at an instant, or at a signal.

use core::sync::atomic::Ordering;
use core::time::Duration;

use bypass_sys::clock::now_ns;
use bypass_sys::thread::thread;

/// When a wait ends at the latest: at an instant, or at a signal after its beginning. A call that waits
/// in several rounds has one, so that a signal which comes as it wakes for nothing is not forgotten.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    at_ns: Option<u64>,
    interrupts: u32,
    signals: u32,
}

impl Deadline {
    /// From now; None: never.
    pub fn after(wait: Option<Duration>) -> Self {
        let wait_ns = wait.map(|wait| u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        Self {
            at_ns: wait_ns.map(|ns| now_ns().saturating_add(ns)),
            interrupts: interrupts(),
            signals: signals(),
        }
    }

    /// Whether a handler has run since the wait began after which the call is not to go on: one without
    /// SA_RESTART, or any where the wait has an end (signal(7) on socket timeouts).
    pub fn is_interrupted(self) -> bool {
        interrupts() != self.interrupts || (self.at_ns.is_some() && signals() != self.signals)
    }

    /// The same for a call that may have moved a part already: any handler ends it then, as only a call that has moved
    /// nothing is begun again.
    pub fn is_interrupted_after(self, has_moved: bool) -> bool {
        self.is_interrupted() || (has_moved && signals() != self.signals)
    }

    /// The call is as if it began now: handlers that have run, and want it to go on, count no more. Its time goes on.
    pub fn begin_again(&mut self) {
        if self.at_ns.is_none() {
            self.signals = signals();
        }
    }

    /// Time left; Some(0) when it is over, None when it never is.
    pub fn left(self) -> Option<Duration> {
        self.at_ns
            .map(|at| Duration::from_nanos(at.saturating_sub(now_ns())))
    }

    /// Whether it has passed at `now`.
    pub fn is_over(self, now: u64) -> bool {
        self.at_ns.is_some_and(|at| now >= at)
    }
}

/// A socket timeout that expires at once. It is reported to programs as 0, as the kernel does.
pub const AT_ONCE_NS: u64 = 1;

/// A socket's timeout; 0 is none.
pub fn timeout(timeout_ns: u64) -> Deadline {
    Deadline::after((timeout_ns > 0).then(|| Duration::from_nanos(timeout_ns)))
}

/// The shorter of a time left and a bound.
pub fn shorter(left: Option<Duration>, bound: Option<Duration>) -> Option<Duration> {
    match (left, bound) {
        (Some(left), Some(bound)) => Some(left.min(bound)),
        (left, bound) => left.or(bound),
    }
}

/// Counts the signals whose handlers have run in this thread.
pub fn signals() -> u32 {
    thread().signals.load(Ordering::Relaxed)
}

/// Counts those without SA_RESTART.
pub fn interrupts() -> u32 {
    thread().interrupts.load(Ordering::Relaxed)
}
