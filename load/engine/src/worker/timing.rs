//! Which figure a latency belongs to: this second's, that of the step in which it fell due, or none.

use super::{ConnectionState, Worker};
use crate::breakdown::Ended;
use crate::interval::{Phase, Straggler};
use crate::sys::tcp_info::tcp_info;
use crate::transport::{InFlight, RequestMeta, Transport};

impl<T: Transport> Worker<'_, T> {
    /// Enters the times of a request whose answer was complete at `ended_ns`.
    #[inline]
    pub(super) fn record_times(
        &mut self,
        target: usize,
        asked: RequestMeta,
        status: u16,
        ended_ns: u64,
    ) {
        let row = self.rows.row(target, asked.request);
        let ended = Ended { row, status };
        let service_ns = ended_ns - asked.sent_ns;
        let step_start_ns = self.recorder.step_start_ns;
        let interval = &mut *self.recorder.now;
        if self.schedule.is_none() {
            interval.times.service.record(service_ns);
            interval.breakdown.record(ended, service_ns, 1);
            interval.peaks.note(ended_ns, service_ns);
        } else if asked.due_ns >= step_start_ns {
            let response_ns = ended_ns - asked.due_ns;
            interval.times.service.record(service_ns);
            interval.times.response.record(response_ns);
            interval.breakdown.record(ended, response_ns, 1);
            interval.peaks.note(ended_ns, response_ns);
        } else {
            self.record_straggler(asked, ended_ns, ended, 1);
        }
    }

    /// Whether a request is one of the measured window's. A request that fell due in the
    /// warm-up of an open loop and could not be sent is sent first, as the ones behind it have to wait
    /// for it, and not counted.
    #[inline]
    pub(super) fn is_counted(&self, due_ns: u64) -> bool {
        self.schedule.is_none() || due_ns >= self.window_start_ns
    }

    /// Whether the window answers for the warm-up: a request that fell due before it ends in it.
    #[inline]
    pub(super) fn is_earlier(&self, due_ns: u64) -> bool {
        !self.is_counted(due_ns) && self.recorder.now.phase != Phase::Warmup
    }

    /// Counts an answer.
    #[inline]
    pub(super) fn count_answer(&mut self, due_ns: u64, status: u16) {
        let is_earlier = self.is_earlier(due_ns);
        let counts = &mut self.recorder.now.counts;
        counts.completed += 1;
        if is_earlier {
            counts.earlier += 1;
        } else if !T::MESSAGES {
            counts.status[usize::from(status.min(999))] += 1;
        }
    }

    /// What is in flight on a connection, and how many requests have these times.
    pub(super) fn in_flight(&mut self, index: usize) -> Vec<(RequestMeta, u64)> {
        let connection = &mut self.connections[index];
        if connection.in_flight == 0 {
            return Vec::new();
        }
        let session = connection.session.as_mut();
        match session.and_then(|session| self.transport.client(session)) {
            Some(client) => {
                let each = client.each().into_iter();
                each.map(|(_, asked)| (asked, 1)).collect()
            }
            None => vec![(connection.meta(), u64::from(connection.in_flight))],
        }
    }

    /// Enters the requests in flight on a connection as lost, with the time they were outstanding.
    pub(super) fn lose_all(&mut self, index: usize, now: u64) {
        let target = usize::from(self.connections[index].target);
        for (asked, times) in self.in_flight(index) {
            self.lose(target, asked, times, now);
        }
    }

    /// Enters requests as lost.
    pub(super) fn lose(&mut self, target: usize, asked: RequestMeta, times: u64, now: u64) {
        let row = self.rows.row(target, asked.request);
        let ended = Ended { row, status: 0 };
        if !self.is_earlier(asked.due_ns) {
            self.recorder.now.counts.lost += times;
        }
        let samples = if self.plan.batch_latency { 1 } else { times };
        let service_ns = now.saturating_sub(asked.sent_ns);
        let step_start_ns = self.recorder.step_start_ns;
        let interval = &mut *self.recorder.now;
        if self.schedule.is_none() {
            interval.times.service.record_lost(service_ns, samples);
            interval.breakdown.record(ended, service_ns, samples);
            interval.peaks.note(now, service_ns);
        } else if asked.due_ns >= step_start_ns {
            let response_ns = now - asked.due_ns;
            interval.times.service.record_lost(service_ns, samples);
            interval.times.response.record_lost(response_ns, samples);
            interval.breakdown.record(ended, response_ns, samples);
            interval.peaks.note(now, response_ns);
        } else {
            self.record_straggler(asked, now, ended, samples);
        }
    }

    /// Enters what a user of a closed loop waited for a connection that was not to be had: a failed
    /// request, and one of those after which the run ends.
    pub(super) fn lose_connect(&mut self, index: usize, now: u64) {
        if self.running && self.schedule.is_none() && self.left > 0 {
            let waited_ns = now.saturating_sub(self.connections[index].sent_ns);
            self.recorder.now.times.service.record_lost(waited_ns, 1);
            self.left = self.left.saturating_sub(1);
        }
    }

    /// A request that fell due in the warm-up is left out; one of an earlier step is entered there.
    #[cold]
    fn record_straggler(&mut self, asked: RequestMeta, ended_ns: u64, ended: Ended, times: u64) {
        if asked.due_ns < self.window_start_ns {
            return;
        }
        let response_ns = ended_ns - asked.due_ns;
        let straggler = Straggler {
            step: self.recorder.step_at(asked.due_ns),
            service_ns: ended_ns - asked.sent_ns,
            response_ns,
            lost: ended.status == 0,
            ended,
        };
        let stragglers = &mut self.recorder.now.stragglers;
        (0..times).for_each(|_| stragglers.push(straggler));
        self.recorder.now.peaks.note(ended_ns, response_ns);
    }

    /// Looks at the TCP of the next connection that is open.
    pub(super) fn sample_tcp(&mut self) {
        for _ in 0..self.wanted {
            self.tcp_sampled = (self.tcp_sampled + 1) % self.wanted;
            let connection = &self.connections[self.tcp_sampled];
            if !matches!(
                connection.state,
                ConnectionState::Idle | ConnectionState::Busy
            ) {
                continue;
            }
            if let Some(info) = tcp_info(connection.fd) {
                self.recorder.now.tcp.record(&info);
            }
            return;
        }
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
