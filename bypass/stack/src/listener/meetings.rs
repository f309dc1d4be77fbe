//! How often processes of the other side are met again whose links end at once: another process than that may bear the number
//! in a segment, where the other side can write it.

use std::sync::{Arc, Mutex, Weak};

use bypass_sys::clock::now_ns;

use crate::peer::Peer;

/// So many meetings in a row follow each other at once. One that lives closes a link when it calls exec, or when too many
/// call it at once.
const AT_ONCE: u32 = 8;
/// Each later one comes so long after the one before.
const PACE_NS: u64 = 40_000_000;
/// After so many in a row a process does not take part.
const MEETINGS: u32 = 32;
/// Nor does it before the row has lasted so long: one that has just taken its place may not have run since.
const ROW_NS: u64 = 1_000_000_000;
/// A link that was open so long begins a new row.
const LASTING_NS: u64 = 1_000_000_000;

/// What to do with a process whose link has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It is met once more.
    Meet,
    /// Not yet.
    Wait,
    /// It takes no part.
    Ended,
}

/// Meetings of one process.
#[derive(Debug)]
struct Row {
    times: u32,
    begun_ns: u64,
    last_ns: u64,
}

impl Row {
    fn begin(now: u64) -> Self {
        Self {
            times: 0,
            begun_ns: now,
            last_ns: now,
        }
    }

    fn goes_on(&self, now: u64) -> bool {
        now.saturating_sub(self.last_ns) < LASTING_NS
    }

    fn next(&mut self, now: u64) -> Next {
        if self.times >= AT_ONCE && now.saturating_sub(self.last_ns) < PACE_NS {
            return Next::Wait;
        }
        if self.times >= MEETINGS && now.saturating_sub(self.begun_ns) >= ROW_NS {
            return Next::Ended;
        }
        self.times += 1;
        self.last_ns = now;
        Next::Meet
    }
}

/// By the segment as this process takes part in it, as its number there is the client's to write, and the number of the process.
static RECENT: Mutex<Vec<(Weak<Peer>, u64, Row)>> = Mutex::new(Vec::new());

/// Locks them across a fork.
pub(super) fn hold() -> impl Sized {
    RECENT.lock().ok()
}

/// In a forked child: they were the parent's.
pub(super) fn forget() {
    if let Ok(mut recent) = RECENT.lock() {
        recent.clear();
    }
}

/// Process `process` of the other side of `peer` could be met once more.
pub(super) fn next(peer: &Arc<Peer>, process: u64) -> Next {
    let now = now_ns();
    let Ok(mut recent) = RECENT.lock() else {
        return Next::Meet;
    };
    recent.retain(|(_, _, row)| row.goes_on(now));
    let mut all = recent.iter_mut();
    let is_it = |of: &Weak<Peer>, number| of.as_ptr() == Arc::as_ptr(peer) && number == process;
    if let Some((_, _, row)) = all.find(|(of, number, _)| is_it(of, *number)) {
        return row.next(now);
    }
    let mut row = Row::begin(now);
    let next = row.next(now);
    recent.push((Arc::downgrade(peer), process, row));
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// How often a process is met that closes each link at once, with a look each `step_ns`, and when it counts as ended.
    fn met_until_ended(step_ns: u64) -> (u32, u64) {
        let begun = 5 * ROW_NS;
        let (mut row, mut now) = (Row::begin(begun), begun);
        while row.next(now) != Next::Ended {
            now += step_ns;
            assert!(row.goes_on(now));
        }
        (row.times, now - begun)
    }

    #[test]
    fn a_process_has_a_second_at_least_to_take_part() {
        for step_ns in [MS / 20, MS, 50 * MS, 500 * MS] {
            let (times, after_ns) = met_until_ended(step_ns);
            assert_eq!(times, MEETINGS);
            assert!(after_ns >= ROW_NS, "{after_ns}");
        }
        // With the service thread's looks at all who could not be reached: soon after it.
        assert!(met_until_ended(50 * MS).1 < 2 * ROW_NS);
    }

    #[test]
    fn the_first_meetings_follow_each_other_at_once() {
        let mut row = Row::begin(0);
        assert!((0..u64::from(AT_ONCE)).all(|now| row.next(now) == Next::Meet));
        assert_eq!(row.next(10), Next::Wait);
        assert_eq!(row.next(50 * MS), Next::Meet);
        assert_eq!(row.next(51 * MS), Next::Wait);
        assert!(row.goes_on(900 * MS) && !row.goes_on(1051 * MS));
    }
}
