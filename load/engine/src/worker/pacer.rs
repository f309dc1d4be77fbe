//! The clock of an open loop: when the next request is due, where it goes, and for how long this
//! thread was away while requests fell due. In a closed loop nothing ever is.

use super::dispatch::{Dispatch, Waiting};
use crate::plan::{self, Late, Open, Plan, Target, Wait};
use crate::schedule::Schedule;
use std::sync::Arc;

/// A request that is first looked at so long after its due time shows that the thread was away.
const AWAY_NS: u64 = 50_000;
/// Hybrid waiting polls for so long before a due time; a wake-up takes less.
const POLL_BEFORE_DUE_NS: u64 = 60_000;

/// Due times of a thread.
pub(super) struct Pacer<'p> {
    plan: &'p Plan,
    schedule: Option<Schedule>,
    /// When the next request is due; the end of time if none is.
    pub due_ns: u64,
    /// Which connections due requests go to, and the requests that wait for one.
    pub dispatch: Dispatch,
    /// Due requests were left in the schedule: the lateness of the next one is then no sign that this
    /// thread was away.
    is_lagging: bool,
    /// How long this thread was away while requests fell due, summed up: so late may a request be
    /// by it, whether or not a connection was free.
    away_ns: u64,
    /// When the load began.
    pub base_ns: u64,
    /// Nothing falls due from then on.
    pub over_ns: u64,
}

impl<'p> Pacer<'p> {
    /// Of thread `number`, whose connections go to the targets of these numbers in batches of `depth`.
    pub fn new(
        plan: &'p Plan,
        number: usize,
        targets: &[Target],
        target_of: &[usize],
        depth: usize,
    ) -> Pacer<'p> {
        Pacer {
            plan,
            schedule: schedule(plan, number, depth),
            due_ns: u64::MAX,
            dispatch: dispatch(plan, number, targets, target_of),
            is_lagging: false,
            away_ns: 0,
            base_ns: 0,
            over_ns: u64::MAX,
        }
    }

    /// Whether requests have due times.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open().is_some()
    }

    /// The due times, if there are any.
    pub fn schedule(&self) -> Option<&Schedule> {
        self.schedule.as_ref()
    }

    #[inline]
    fn open(&self) -> Option<&'p Open> {
        self.plan.open()
    }

    /// Finds the next due time; none if no request may fall due any more.
    pub fn set_due(&mut self, is_over: bool) {
        let schedule = self.schedule.as_mut().filter(|_| !is_over);
        let next = schedule.and_then(Schedule::next_ns);
        let due_ns = next.map_or(u64::MAX, |offset_ns| self.base_ns + offset_ns);
        self.due_ns = if due_ns < self.over_ns {
            due_ns
        } else {
            u64::MAX
        };
    }

    /// Goes on to the request after the one that is due.
    pub fn advance(&mut self, is_over: bool) {
        if let Some(schedule) = &mut self.schedule {
            schedule.advance();
        }
        self.set_due(is_over);
    }

    /// Nothing falls due from `now` on, unless that was so before; what fell due is still sent.
    pub fn end(&mut self, now: u64) {
        self.over_ns = self.over_ns.min(now);
        if self.due_ns >= self.over_ns {
            self.due_ns = u64::MAX;
        }
    }

    /// Whether it was ended.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.over_ns < u64::MAX
    }

    /// Nothing falls due any more.
    pub fn stop(&mut self) {
        self.schedule = None;
        self.dispatch.forget_waiting();
    }

    /// Whether nothing is due, now or later, and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.due_ns == u64::MAX && self.dispatch.waiting() == 0
    }

    /// How long a wait may last that must end by the next check.
    #[inline]
    pub fn waiting_time(&mut self, now: u64, until_check_ns: u64) -> u64 {
        if self.due_ns == u64::MAX {
            return until_check_ns;
        }
        if self.dispatch.is_full() || self.dispatch.none_is_free() {
            self.is_lagging = true;
            return until_check_ns;
        }
        let until_due = self.due_ns.saturating_sub(now);
        let sleep = match self.plan.wait {
            Wait::Sleep => until_due,
            Wait::Hybrid => until_due.saturating_sub(POLL_BEFORE_DUE_NS),
            Wait::Spin => 0,
        };
        sleep.min(until_check_ns)
    }

    /// Due requests are left in the schedule.
    pub fn lag(&mut self) {
        self.is_lagging = true;
    }

    /// An event has kept this thread for so long.
    #[inline]
    pub fn note_event(&mut self, took_ns: u64) {
        if took_ns > AWAY_NS && self.is_lagging {
            self.away_ns += took_ns;
        }
    }

    /// Looks at the request that is due at `now`: how long this thread was away before, by this request
    /// and by all before it.
    #[inline]
    pub fn note_away(&mut self, now: u64) -> (u64, u64) {
        let first_seen_ns = now - self.due_ns;
        let was_lagging = std::mem::take(&mut self.is_lagging);
        let gap_ns = if was_lagging || first_seen_ns <= AWAY_NS {
            0
        } else {
            first_seen_ns
        };
        let before_ns = self.away_ns;
        self.away_ns += gap_ns;
        (gap_ns, before_ns)
    }

    /// How long this thread was away since a request began to wait.
    #[inline]
    pub fn away_since(&self, waiting: Waiting) -> u64 {
        self.away_ns - waiting.away_before_ns
    }

    /// Whether requests are dropped that find no free connection.
    pub fn drops_late(&self) -> bool {
        self.open().is_some_and(|open| open.late == Late::Drop)
    }

    /// Whether a request is too late to be sent.
    #[inline]
    pub fn is_stale(&self, due_ns: u64, now: u64) -> bool {
        let deadline_ns = self.open().and_then(|open| open.deadline_ns);
        deadline_ns.is_some_and(|deadline_ns| now.saturating_sub(due_ns) > deadline_ns)
    }
}

fn dispatch(plan: &Plan, number: usize, targets: &[Target], target_of: &[usize]) -> Dispatch {
    let Some(open) = plan.open() else {
        return Dispatch::new(plan::Dispatch::Any, &[], &[], 0);
    };
    let seed = open.seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Dispatch::new(open.dispatch, targets, target_of, seed)
}

fn schedule(plan: &Plan, number: usize, depth: usize) -> Option<Schedule> {
    let (curve, open) = (plan.curve(depth)?, plan.open()?);
    let threads = plan.threads;
    Some(match &open.recorded {
        Some(times_ns) => Schedule::recorded(Arc::clone(times_ns), number, threads),
        None if open.poisson => Schedule::poisson(curve, number, threads, open.seed),
        None => Schedule::even(curve, number, threads),
    })
}
