//! Which figure a latency belongs to: this second's, that of the step in which it fell due, or none.

use super::recorder::Recorder;
use crate::breakdown::Ended;
use crate::interval::Straggler;
use crate::plan::Phase;
use crate::protocol::RequestMeta;

impl Recorder {
    /// Enters the times of a request whose answer was complete at `ended_ns`.
    #[inline(always)] // every answer comes by here, and a call would be a thirtieth of its instructions
    pub fn record_times(&mut self, target: usize, asked: RequestMeta, status: u16, ended_ns: u64) {
        let row = self.rows.row(target, asked.request);
        let ended = Ended { row, status };
        let service_ns = ended_ns - asked.sent_ns;
        let step_start_ns = self.step_start_ns;
        let interval = &mut *self.now;
        if !self.is_open {
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
            let sent_ns = Some(asked.sent_ns);
            self.record_straggler(asked.due_ns, sent_ns, ended_ns, ended, 1);
        }
    }

    /// Whether a request is one of the measured window's. A request that fell due in the
    /// warm-up of an open loop and could not be sent is sent first, as the ones behind it have to wait
    /// for it, and not counted.
    #[inline]
    pub fn is_counted(&self, due_ns: u64) -> bool {
        !self.is_open || due_ns >= self.window_start_ns
    }

    /// Whether the window answers for the warm-up: a request that fell due before it ends in it.
    #[inline]
    pub fn is_earlier(&self, due_ns: u64) -> bool {
        !self.is_counted(due_ns) && self.now.phase != Phase::Warmup
    }

    /// Counts an answer; messages have no status.
    #[inline]
    pub fn count_answer(&mut self, due_ns: u64, status: Option<u16>) {
        let is_earlier = self.is_earlier(due_ns);
        let counts = &mut self.now.counts;
        counts.completed += 1;
        if is_earlier {
            counts.earlier += 1;
        } else if let Some(status) = status {
            counts.status[usize::from(status.min(999))] += 1;
        }
    }

    /// Enters requests as lost, with the time they were outstanding.
    pub fn lose(&mut self, target: usize, asked: RequestMeta, times: u64, now: u64) {
        let row = self.rows.row(target, asked.request);
        let ended = Ended { row, status: 0 };
        if !self.is_earlier(asked.due_ns) {
            self.now.counts.lost += times;
        }
        let samples = if self.batch_latency { 1 } else { times };
        let service_ns = now.saturating_sub(asked.sent_ns);
        let step_start_ns = self.step_start_ns;
        let interval = &mut *self.now;
        if !self.is_open {
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
            let sent_ns = Some(asked.sent_ns);
            self.record_straggler(asked.due_ns, sent_ns, now, ended, samples);
        }
    }

    /// A request that fell due in the warm-up is left out; one of an earlier step is entered there.
    #[cold]
    fn record_straggler(
        &mut self,
        due_ns: u64,
        sent_ns: Option<u64>,
        ended_ns: u64,
        ended: Ended,
        times: u64,
    ) {
        if due_ns < self.window_start_ns {
            return;
        }
        let response_ns = ended_ns - due_ns;
        let straggler = Straggler {
            step: self.step_at(due_ns),
            service_ns: sent_ns.map(|sent_ns| ended_ns - sent_ns),
            response_ns,
            lost: ended.status == 0,
            ended,
        };
        let stragglers = &mut self.now.stragglers;
        (0..times).for_each(|_| stragglers.push(straggler));
        self.now.peaks.note(ended_ns, response_ns);
    }

    /// Whose fault it is that a request is not sent when it is due: its connection is free since
    /// `idle_ns`, and this thread was away for so long meanwhile.
    #[inline]
    pub fn record_delay(&mut self, idle_ns: u64, due_ns: u64, away_ns: u64, now: u64) {
        let times = &mut self.now.times;
        let late_ns = now - due_ns;
        let own_ns = late_ns.min(away_ns.max(now.saturating_sub(idle_ns.max(due_ns))));
        times.lateness.record(own_ns);
        if own_ns < late_ns {
            times.queue.record(late_ns - own_ns);
        }
    }

    /// Requests that fell due are dropped, as no connection is free.
    pub fn drop_due(&mut self, due_ns: u64, requests: u64) {
        if self.is_counted(due_ns) {
            self.now.counts.due += requests;
            self.now.counts.dropped += requests;
            self.now.times.response.note_dropped(requests);
        }
    }

    /// Requests are not sent any more: they would have taken longer than they have waited.
    pub fn shed(&mut self, target: usize, request: u32, due_ns: u64, times: u64, now: u64) {
        if !self.is_counted(due_ns) {
            return;
        }
        self.now.counts.due += times;
        self.now.counts.shed += times;
        let row = self.rows.row(target, request);
        let ended = Ended { row, status: 0 };
        if due_ns < self.step_start_ns {
            self.record_straggler(due_ns, None, now, ended, times);
            return;
        }
        let waited_ns = now.saturating_sub(due_ns);
        let interval = &mut *self.now;
        interval.times.response.record_lost(waited_ns, times);
        interval.breakdown.record(ended, waited_ns, times);
        interval.peaks.note(now, waited_ns);
    }

    /// Enters when the first byte came of an answer that came in more than one read.
    pub fn record_first_byte(&mut self, asked: RequestMeta, first_ns: u64, ended_ns: u64) {
        let is_straggler = self.is_open && asked.due_ns < self.step_start_ns;
        if first_ns == 0 || is_straggler {
            return;
        }
        let times = &mut self.now.times;
        times
            .first_of_split
            .record(first_ns.saturating_sub(asked.sent_ns));
        times.last_of_split.record(ended_ns - asked.sent_ns);
    }
}
