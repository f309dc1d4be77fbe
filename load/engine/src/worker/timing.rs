//! Which figure a latency belongs to: this second's, that of the step in which it fell due, or none.

use super::Worker;
use crate::interval::Straggler;
use crate::transport::Transport;

impl<T: Transport> Worker<'_, T> {
    /// Enters the times of a request whose answer was complete at `ended_ns`.
    #[inline]
    pub(super) fn record_times(&mut self, index: usize, ended_ns: u64) {
        let connection = &self.connections[index];
        let service_ns = ended_ns - connection.sent_ns;
        let step_start_ns = self.recorder.step_start_ns;
        let interval = &mut *self.recorder.now;
        if self.schedule.is_none() {
            interval.times.service.record(service_ns);
            interval.peaks.note(ended_ns, service_ns);
        } else if connection.due_ns >= step_start_ns {
            let response_ns = ended_ns - connection.due_ns;
            interval.times.service.record(service_ns);
            interval.times.response.record(response_ns);
            interval.peaks.note(ended_ns, response_ns);
        } else {
            self.record_straggler(index, ended_ns, false, 1);
        }
    }

    /// Enters the requests in flight on a connection as lost, with the time they were outstanding.
    pub(super) fn lose(&mut self, index: usize, now: u64) {
        let connection = &self.connections[index];
        let in_flight = u64::from(connection.in_flight);
        self.recorder.now.counts.lost += in_flight;
        let samples = if self.plan.batch_latency {
            in_flight.min(1)
        } else {
            in_flight
        };
        let service_ns = now - connection.sent_ns;
        let step_start_ns = self.recorder.step_start_ns;
        let interval = &mut *self.recorder.now;
        if self.schedule.is_none() {
            interval.times.service.record_lost(service_ns, samples);
            interval.peaks.note(now, service_ns);
        } else if connection.due_ns >= step_start_ns {
            let response_ns = now - connection.due_ns;
            interval.times.service.record_lost(service_ns, samples);
            interval.times.response.record_lost(response_ns, samples);
            interval.peaks.note(now, response_ns);
        } else {
            self.record_straggler(index, now, true, samples);
        }
    }

    /// Enters what a user of a closed loop waited for a connection that was not to be had.
    pub(super) fn lose_connect(&mut self, index: usize, now: u64) {
        if self.running && self.schedule.is_none() {
            let waited_ns = now.saturating_sub(self.connections[index].sent_ns);
            self.recorder.now.times.service.record_lost(waited_ns, 1);
        }
    }

    /// What fell due in the warm-up is thrown away; what fell due in an earlier step is that step's.
    #[cold]
    fn record_straggler(&mut self, index: usize, ended_ns: u64, lost: bool, times: u64) {
        let connection = &self.connections[index];
        if connection.due_ns < self.window_start_ns {
            return;
        }
        let response_ns = ended_ns - connection.due_ns;
        let straggler = Straggler {
            step: self.recorder.step_at(connection.due_ns),
            service_ns: ended_ns - connection.sent_ns,
            response_ns,
            lost,
        };
        let stragglers = &mut self.recorder.now.stragglers;
        (0..times).for_each(|_| stragglers.push(straggler));
        self.recorder.now.peaks.note(ended_ns, response_ns);
    }

    /// When the kernel received what was read at `now`; how long it lay there is our own delay.
    pub(super) fn arrived_ns(&mut self, index: usize, now: u64) -> u64 {
        let interval = &mut *self.recorder.now;
        let Some(arrived_ns) = self.transport.arrived_ns() else {
            interval.counts.unstamped += 1;
            return now;
        };
        // clocks are read one after the other: an answer is never older than its request
        let arrived_ns = arrived_ns.clamp(self.connections[index].sent_ns, now);
        interval.times.client_delay.record(now - arrived_ns);
        arrived_ns
    }
}
