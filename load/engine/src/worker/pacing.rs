//! Requests of an open loop when they are due: written where their connection is free, else queued.

use super::dispatch::Waiting;
use super::preparing::is_recorded;
use super::{Worker, AWAY_NS};
use crate::plan::{Late, Wait};
use crate::schedule::Schedule;
use crate::sys::clock::monotonic_ns;
use crate::sys::epoll::FOREVER_NS;
use crate::transport::Transport;

/// Hybrid waiting polls for so long before a due time; a wake-up takes less.
const POLL_BEFORE_DUE_NS: u64 = 60_000;
/// So many requests that fell due together get a place in a queue before events are looked at again.
const QUEUED_AT_ONCE: usize = 1024;

impl<T: Transport> Worker<'_, T> {
    /// How long the next wait may last.
    pub(super) fn waiting_time(&mut self) -> u64 {
        if self.waiter.epoll.set_alarm(self.deadlines.next_check_ns) {
            return FOREVER_NS;
        }
        let now = monotonic_ns();
        let until_check = self.deadlines.next_check_ns.saturating_sub(now);
        if self.due_ns == u64::MAX {
            return until_check;
        }
        if self.dispatch.is_full() || self.dispatch.none_is_free() {
            self.lagging = true;
            return until_check;
        }
        let until_due = self.due_ns.saturating_sub(now);
        let sleep = match self.plan.wait {
            Wait::Sleep => until_due,
            Wait::Hybrid => until_due.saturating_sub(POLL_BEFORE_DUE_NS),
            Wait::Spin => 0,
        };
        sleep.min(until_check)
    }

    /// Sends what is due on connections that are free; the rest waits for them.
    pub(super) fn pace(&mut self, mut now: u64) {
        let gap_ns = self.gap_ns(now);
        let away_before_ns = self.away_ns;
        self.away_ns += gap_ns;
        let mut queued = 0;
        while self.due_ns <= now && self.running {
            if self.recorder.is_over(now) {
                self.rotate(now);
                continue;
            }
            if self.dispatch.is_full() || queued >= QUEUED_AT_ONCE {
                self.lagging = true;
                break;
            }
            let due_ns = self.due_ns;
            self.scheduled += self.depth as u64;
            self.advance();
            let target = self.dispatch.next_target();
            let (own, free) = self.find_connection(target);
            if let Some(index) = free {
                self.send_due(index, due_ns, gap_ns, now);
                now = monotonic_ns();
            } else if self.drops_late() {
                self.scheduled = self.scheduled.saturating_sub(self.depth as u64);
                self.left = self.left.saturating_sub(self.depth as u64);
                self.recorder.drop_due(due_ns, self.depth as u64);
            } else {
                queued += 1;
                let waiting = Waiting {
                    due_ns,
                    away_before_ns,
                };
                self.dispatch.wait(target, own, waiting);
            }
        }
        if T::STREAMS {
            self.flush_streams();
        }
    }

    /// How long this thread was away, by the request that has been overdue for longest.
    fn gap_ns(&mut self, now: u64) -> u64 {
        let first_seen_ns = now - self.due_ns;
        if std::mem::take(&mut self.lagging) || first_seen_ns <= AWAY_NS {
            return 0;
        }
        first_seen_ns
    }

    fn drops_late(&self) -> bool {
        let open = self.plan.open();
        open.is_some_and(|open| open.late == Late::Drop)
    }

    /// The connection that the next request to a target belongs to, if it has one of its own, and
    /// the one that can take it now.
    #[inline]
    fn find_connection(&mut self, target: usize) -> (Option<usize>, Option<usize>) {
        if let Some(index) = self.dispatch.own_connection(target) {
            let requests = self.targets[target].order.len();
            if self.dispatch.repeats(target, requests) && !is_recorded(self.plan) {
                let cursor = &mut self.cursors[target];
                *cursor = (*cursor + 1) % requests as u32;
            }
            let generation = self.connections[index].generation;
            let is_next = !self.dispatch.has_waiting(target, index);
            let is_free = is_next && self.is_free(index as u32, generation);
            return (Some(index), is_free.then_some(index));
        }
        while let Some((number, generation)) = self.dispatch.pop_free(target) {
            let index = number as usize;
            // streams of a connection that was opened again are as good as those before
            let generation = if T::STREAMS {
                self.connections[index].generation
            } else {
                generation
            };
            if self.is_free(number, generation) {
                if T::STREAMS {
                    // one request on each connection, then the next on the first
                    self.dispatch.note_free(target, index, generation);
                }
                return (None, Some(index));
            }
        }
        (None, None)
    }

    /// Writes a due request on a free connection; for so long the thread was away meanwhile.
    fn send_due(&mut self, index: usize, due_ns: u64, away_ns: u64, now: u64) {
        self.scheduled = self.scheduled.saturating_sub(self.depth as u64);
        if self.recorder.is_counted(due_ns) {
            self.recorder.now.counts.due += self.depth as u64;
            let idle_ns = self.connections[index].idle_ns;
            self.recorder.record_delay(idle_ns, due_ns, away_ns, now);
        }
        self.send(index, due_ns, now);
    }

    /// Writes the request that has waited for longest for a connection that is free now.
    pub(super) fn send_waiting(&mut self, index: usize) {
        let connection = &self.connections[index];
        let (target, generation) = (usize::from(connection.target), connection.generation);
        let now = monotonic_ns();
        let mut next = self.dispatch.take(target, index);
        while let Some(stale) = next.filter(|waiting| self.is_stale_at(waiting.due_ns, now)) {
            self.shed(target, stale.due_ns, now);
            next = self.dispatch.take(target, index);
        }
        match next {
            Some(waiting) => {
                let away_ns = self.away_ns - waiting.away_before_ns;
                self.send_due(index, waiting.due_ns, away_ns, now);
            }
            None => self.dispatch.note_free(target, index, generation),
        }
    }

    /// Whether a request is too late to be sent.
    fn is_stale_at(&self, due_ns: u64, now: u64) -> bool {
        let deadline_ns = self.plan.open().and_then(|open| open.deadline_ns);
        deadline_ns.is_some_and(|deadline_ns| now.saturating_sub(due_ns) > deadline_ns)
    }

    /// A request is not sent any more: it would have taken longer than it has waited.
    fn shed(&mut self, target: usize, due_ns: u64, now: u64) {
        let times = self.depth as u64;
        self.scheduled = self.scheduled.saturating_sub(times);
        self.left = self.left.saturating_sub(times);
        self.recorder.shed(target, due_ns, times, now);
    }

    pub(super) fn advance(&mut self) {
        if let Some(schedule) = &mut self.schedule {
            schedule.advance();
        }
        self.set_due();
    }

    pub(super) fn set_due(&mut self) {
        let is_over = self.left <= self.scheduled;
        let schedule = self.schedule.as_mut().filter(|_| !is_over);
        let next = schedule.and_then(Schedule::next_ns);
        self.due_ns = next.map_or(u64::MAX, |offset_ns| self.base_ns + offset_ns);
    }
}
