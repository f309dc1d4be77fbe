//! Time for which a thread did nothing although it had to look: it was stopped, or its machine was.

use crate::sys::clock::thread_cpu_ns;
use std::ops::Range;

/// Longer than a thread that runs is late without using its core.
const AWAY_NS: u64 = 250_000_000;
/// Between two readings of the thread's CPU time: each is a system call.
const MARK_NS: u64 = 10_000_000;

/// How late a thread's checks came that were not held up by work of its own.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// When the last check had done its work.
    checked_ns: u64,
    /// When the thread's CPU time was read, and what it was.
    mark: (u64, u64),
    total_ns: u64,
}

impl Away {
    /// A check is over.
    pub fn note_checked(&mut self, now: u64) {
        self.checked_ns = now;
        if now.saturating_sub(self.mark.0) >= MARK_NS {
            self.mark = (now, thread_cpu_ns());
        }
    }

    /// A check that was due begins now; so much of its delay as lies in the window counts.
    pub fn note_check(&mut self, due_ns: u64, now: u64, window: &Range<u64>) {
        let late = due_ns.max(self.checked_ns)..now;
        if is_long(&late, 0) {
            let worked_ns = thread_cpu_ns().saturating_sub(self.mark.1);
            self.total_ns += away_ns(&late, worked_ns, window);
        }
    }

    /// All of it, at least: work just before a delay is taken off as well.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }
}

fn length_ns(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

fn is_long(late: &Range<u64>, worked_ns: u64) -> bool {
    length_ns(late).saturating_sub(worked_ns) > AWAY_NS
}

/// How much of a delay, in which the thread worked for so long, it was away within the window.
fn away_ns(late: &Range<u64>, worked_ns: u64, window: &Range<u64>) -> u64 {
    if !is_long(late, worked_ns) {
        return 0;
    }
    let within = late.start.max(window.start)..late.end.min(window.end);
    length_ns(&within).min(length_ns(late) - worked_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn work_of_the_thread_and_what_lies_outside_of_the_window_do_not_count() {
        let away_ms = |late: Range<u64>, worked_ms: u64| {
            let late = late.start * MS..late.end * MS;
            away_ns(&late, worked_ms * MS, &(1000 * MS..5000 * MS)) / MS
        };
        assert_eq!(away_ms(2000..2250, 0), 0, "no longer than a check may take");
        assert_eq!(away_ms(2000..3000, 0), 1000);
        assert_eq!(away_ms(2000..3000, 300), 700);
        assert_eq!(away_ms(2000..3000, 900), 0, "it opened connections");
        assert_eq!(away_ms(500..1600, 0), 600, "from the warm-up on");
        assert_eq!(away_ms(4900..9000, 0), 100, "into the drain");
        assert_eq!(away_ms(0..9000, 100), 4000, "all of the window");
        assert_eq!(away_ms(0..900, 0), 0, "before it");
        assert_eq!(away_ms(6000..9000, 0), 0, "behind it");
    }

    #[test]
    fn a_thread_that_works_is_not_away() {
        let mut away = Away::default();
        away.note_checked(MARK_NS);
        let until_ns = thread_cpu_ns() + 3 * MS;
        while thread_cpu_ns() < until_ns {}
        // as if the work had taken all of the delay
        let worked_ns = thread_cpu_ns() - away.mark.1;
        let window = 0..u64::MAX;
        away.note_check(2 * MARK_NS, 2 * MARK_NS + AWAY_NS + worked_ns, &window);
        assert_eq!(away.total_ns(), 0);
        away.note_check(2 * MARK_NS, 2 * MARK_NS + 10 * AWAY_NS, &window);
        assert!(away.total_ns() > 0);
    }
}
