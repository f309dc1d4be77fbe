//! Which result a latency counts for: this second's, that of the step in which it fell due, or none.

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
        let samples = self.samples(times);
        let service_ns = now.saturating_sub(asked.sent_ns);
        let step_start_ns = self.step_start_ns;
        let interval = &mut *self.now;
        if !self.is_open {
            interval.times.service.record_lost(service_ns, samples);
            interval.breakdown.record(ended, service_ns, samples);
            interval.peaks.note(now, service_ns);
        } else if asked.due_ns >= step_start_ns {
            // others on its connection may have gone out since this check began
            let response_ns = now.saturating_sub(asked.due_ns);
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
            first_byte_ns: None,
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

    /// How many times are entered for the requests of a batch that end together.
    #[inline]
    pub fn samples(&self, requests: u64) -> u64 {
        if self.batch_latency {
            1
        } else {
            requests
        }
    }

    /// Requests that fell due are dropped, as no connection is free. They belong to the step in which they
    /// fell due, which may be over.
    pub fn drop_due(&mut self, due_ns: u64, requests: u64) {
        if !self.is_counted(due_ns) {
            return;
        }
        self.now.counts.due += requests;
        self.now.counts.dropped += requests;
        let samples = self.samples(requests);
        if due_ns >= self.step_start_ns {
            self.now.times.response.note_dropped(samples);
        } else {
            let step = self.step_at(due_ns);
            *self.now.dropped_earlier.entry(step).or_default() += samples;
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
        let samples = self.samples(times);
        if due_ns < self.step_start_ns {
            self.record_straggler(due_ns, None, now, ended, samples);
            return;
        }
        let waited_ns = now.saturating_sub(due_ns);
        let interval = &mut *self.now;
        interval.times.response.record_lost(waited_ns, samples);
        interval.breakdown.record(ended, waited_ns, samples);
        interval.peaks.note(now, waited_ns);
    }

    /// Enters when the first byte came of an answer that came in more than one read, and whose times were
    /// entered just now.
    pub fn record_first_byte(&mut self, asked: RequestMeta, first_ns: u64, ended_ns: u64) {
        if first_ns == 0 {
            return;
        }
        let first_byte_ns = first_ns.saturating_sub(asked.sent_ns);
        if !self.is_open || asked.due_ns >= self.step_start_ns {
            let service_ns = ended_ns - asked.sent_ns;
            self.now.times.note_split(first_byte_ns, service_ns);
        } else if self.is_counted(asked.due_ns) {
            if let Some(straggler) = self.now.stragglers.last_mut() {
                straggler.first_byte_ns = Some(first_byte_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::breakdown::Rows;
    use crate::interval::Interval;
    use crate::plan::{Dispatch, Late, Open, Pace, Plan, Step};
    use crate::protocol::RequestMeta;
    use crate::worker::recorder::{Handover, Recorder};
    use std::sync::mpsc::channel;

    const STEP_NS: u64 = 1_000_000_000;

    /// The recorder of an open loop at the beginning of its second step, of batches if `batch_latency`.
    fn in_second_step(batch_latency: bool) -> Recorder {
        let step = Step {
            connections: 1,
            length_ns: STEP_NS,
        };
        let plan = Plan {
            steps: vec![step; 2],
            batch_latency,
            pace: Pace::Open(Open {
                stretches: Vec::new(),
                recorded: None,
                poisson: false,
                seed: 1,
                dispatch: Dispatch::Pinned,
                late: Late::Drop,
                deadline_ns: None,
            }),
            ..Plan::plain(1, STEP_NS)
        };
        let (finished, _) = channel();
        let (_, spare) = channel();
        let handover = Handover {
            source: 0,
            finished,
            spare,
        };
        let mut recorder = Recorder::new(handover, &plan, Rows::of(&[]));
        recorder.begin(0, &plan);
        recorder.rotate(STEP_NS);
        recorder
    }

    #[test]
    fn what_is_dropped_behind_the_end_of_its_step_belongs_to_that_step() {
        let mut recorder = in_second_step(false);
        recorder.drop_due(STEP_NS - 1, 2);
        recorder.drop_due(STEP_NS - 2, 2);
        recorder.drop_due(STEP_NS, 1);
        let Interval {
            counts,
            times,
            dropped_earlier,
            ..
        } = &*recorder.now;
        assert_eq!((counts.due, counts.dropped), (5, 5));
        assert_eq!(times.response.dropped(), 1);
        assert_eq!(dropped_earlier.get(&0), Some(&4));
    }

    #[test]
    fn a_request_that_is_lost_in_a_check_from_before_its_due_time_has_waited_for_nothing() {
        let mut recorder = in_second_step(false);
        let asked = RequestMeta {
            due_ns: STEP_NS + 7,
            sent_ns: STEP_NS + 8,
            request: 0,
        };
        recorder.lose(0, asked, 1, STEP_NS + 5);
        let response = &recorder.now.times.response;
        assert_eq!((response.count(), response.max_ns()), (1, 0));
    }

    #[test]
    fn a_batch_that_is_dropped_or_shed_counts_as_its_one_sample() {
        let mut recorder = in_second_step(true);
        recorder.drop_due(STEP_NS, 4);
        recorder.shed(0, 0, STEP_NS, 4, STEP_NS + 5);
        let Interval { counts, times, .. } = &*recorder.now;
        assert_eq!((counts.dropped, counts.shed), (4, 4));
        let response = &times.response;
        assert_eq!((response.dropped(), response.count()), (1, 1));
    }

    #[test]
    fn a_split_answer_of_an_earlier_step_keeps_the_time_of_its_first_byte() {
        let mut recorder = in_second_step(false);
        let asked = RequestMeta {
            due_ns: STEP_NS - 100,
            sent_ns: STEP_NS - 100,
            request: 0,
        };
        recorder.record_times(0, asked, 200, STEP_NS + 900);
        recorder.record_first_byte(asked, STEP_NS + 100, STEP_NS + 900);
        let mut sum = Interval::default();
        for straggler in &recorder.now.stragglers {
            straggler.record(&mut sum.times, &mut sum.breakdown);
        }
        assert_eq!(sum.times.service.max_ns(), 1000);
        assert_eq!(sum.times.first_byte().max_ns(), 200);
    }
}
