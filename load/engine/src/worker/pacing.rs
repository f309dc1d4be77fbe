//! Requests of an open loop when they are due: written where their connection is free, else queued.

use super::dispatch::Waiting;
use super::Worker;
use crate::protocol::Protocol;
use crate::sys::clock::monotonic_ns;
use crate::sys::epoll::FOREVER_NS;
use crate::transport::Transport;

/// So many requests that fell due together are dropped or get a place in a queue before events are
/// looked at again.
const QUEUED_AT_ONCE: usize = 1024;

impl<T: Transport, P: Protocol> Worker<'_, T, P> {
    /// How long the next wait may last.
    pub(super) fn waiting_time(&mut self) -> u64 {
        let is_closed = !self.pacer.is_open();
        if is_closed && self.waiter.epoll.set_alarm(self.deadlines.next_check_ns) {
            return FOREVER_NS;
        }
        let now = monotonic_ns();
        let until_check_ns = self.deadlines.next_check_ns.saturating_sub(now);
        self.pacer.waiting_time(now, until_check_ns)
    }

    /// Sends what is due on connections that are free; the rest waits for them.
    pub(super) fn pace(&mut self, mut now: u64) {
        let (gap_ns, away_before_ns) = self.pacer.note_away(now);
        let mut queued = 0;
        while self.pacer.due_ns <= now && self.running {
            if self.recorder.is_over(now) {
                self.rotate(now);
                continue;
            }
            if self.pacer.dispatch.is_full() || queued >= QUEUED_AT_ONCE {
                self.pacer.lag();
                break;
            }
            let due_ns = self.pacer.due_ns;
            self.requests.note_due();
            self.pacer.advance(self.requests.are_all_due());
            let target = self.pacer.dispatch.next_target();
            let (own, free) = self.find_connection(target);
            if let Some(index) = free.filter(|_| self.pacer.is_stale(due_ns, now)) {
                queued += 1;
                self.shed_late(index, due_ns, gap_ns, now);
            } else if let Some(index) = free {
                self.send_due(index, due_ns, gap_ns, now);
                now = monotonic_ns();
            } else if self.pacer.drops_late() {
                queued += 1;
                self.requests.give_up(target);
                self.recorder.drop_due(due_ns, self.requests.depth as u64);
            } else {
                queued += 1;
                let waiting = Waiting {
                    due_ns,
                    away_before_ns,
                };
                self.pacer.dispatch.wait(target, own, waiting);
            }
        }
        if P::STREAMS {
            self.flush_streams();
        }
    }

    /// The connection that the next request to a target belongs to, if it has one of its own, and
    /// the one that can take it now.
    #[inline]
    fn find_connection(&mut self, target: usize) -> (Option<usize>, Option<usize>) {
        if let Some(index) = self.pacer.dispatch.own_connection(target) {
            let requests = self.requests.targets[target].order.len();
            if self.pacer.dispatch.repeats(target, requests) {
                self.requests.skip(target);
            }
            let generation = self.connections[index].generation;
            let is_next = !self.pacer.dispatch.has_waiting(target, index);
            let is_free = is_next && self.is_free(index as u32, generation);
            return (Some(index), is_free.then_some(index));
        }
        while let Some((number, generation)) = self.pacer.dispatch.pop_free(target) {
            let index = number as usize;
            // streams of a connection that was opened again are as good as those before
            let generation = if P::STREAMS {
                self.connections[index].generation
            } else {
                generation
            };
            if self.is_free(number, generation) {
                if P::STREAMS {
                    // one request on each connection, then the next on the first
                    self.pacer.dispatch.note_free(target, index, generation);
                }
                return (None, Some(index));
            }
        }
        (None, None)
    }

    /// Writes a due request on a free connection; for so long the thread was away meanwhile.
    fn send_due(&mut self, index: usize, due_ns: u64, away_ns: u64, now: u64) {
        self.requests.note_taken();
        if self.recorder.is_counted(due_ns) {
            self.recorder.now.counts.due += self.requests.depth as u64;
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
        let mut next = self.pacer.dispatch.take(target, index);
        while let Some(stale) = next.filter(|waiting| self.pacer.is_stale(waiting.due_ns, now)) {
            self.shed(target, stale.due_ns, now);
            next = self.pacer.dispatch.take(target, index);
        }
        match next {
            Some(waiting) => {
                let away_ns = self.pacer.away_since(waiting);
                self.send_due(index, waiting.due_ns, away_ns, now);
            }
            None => self.pacer.dispatch.note_free(target, index, generation),
        }
    }

    /// A due request for which a connection was free is too late: this thread was away for so long.
    #[cold]
    fn shed_late(&mut self, index: usize, due_ns: u64, away_ns: u64, now: u64) {
        let connection = &self.connections[index];
        let (target, generation) = (usize::from(connection.target), connection.generation);
        if self.recorder.is_counted(due_ns) {
            let idle_ns = connection.idle_ns;
            self.recorder.record_delay(idle_ns, due_ns, away_ns, now);
        }
        self.pacer.dispatch.note_free(target, index, generation);
        self.shed(target, due_ns, now);
    }

    /// A request is not sent any more: it would have taken longer than it has waited.
    fn shed(&mut self, target: usize, due_ns: u64, now: u64) {
        let request = self.requests.upcoming(target);
        self.requests.give_up(target);
        let times = self.requests.depth as u64;
        self.recorder.shed(target, request, due_ns, times, now);
    }

    /// Whether all of a number of requests have fallen due, and what is left of them has waited for a
    /// connection for as long as responses are waited for. The window may last for much longer.
    pub(super) fn waits_in_vain(&self, now: u64) -> bool {
        let all_due = self.plan.requests.is_some() && self.running && self.pacer.due_ns == u64::MAX;
        if !all_due || self.connections.busy > 0 || self.connections.open() > 0 {
            return false;
        }
        let last = self.pacer.dispatch.due_times().max();
        last.is_some_and(|due_ns| now.saturating_sub(due_ns) >= self.plan.drain_ns)
    }
}
