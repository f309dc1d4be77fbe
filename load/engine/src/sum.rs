//! Adds up what the threads of a run send: intervals while they work, endings when they stop.

use crate::ending::{Aged, Ending};
use crate::interval::Interval;
use crate::outcome::{Outcome, Second, SecondSummary, ThreadOutcome};
use crate::plan::{Phase, Plan};
use crate::sys::clock::both_ns;
use crate::worker::Finished;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender};

/// So many notes are kept of a run; a server may say another nonsense each time.
const NOTES_MAX: usize = 100;

/// Adds up what the threads send.
pub(crate) struct Sum<'p> {
    plan: &'p Plan,
    window_start_ns: u64,
    /// What is known so far.
    pub outcome: Outcome,
    completed_by_thread: Vec<u64>,
    /// Seconds that not all threads have reported.
    pending: BTreeMap<u64, (usize, Interval)>,
    /// When threads have ended.
    ends_ns: Vec<u64>,
}

impl<'p> Sum<'p> {
    /// Nothing yet, of a run that starts at `base_ns` (monotonic).
    pub fn new(plan: &'p Plan, base_ns: u64) -> Sum<'p> {
        let window_start_ns = base_ns + plan.warmup_ns;
        let (monotonic_ns, real_ns) = both_ns();
        let window_start_unix_ns = real_ns + window_start_ns - monotonic_ns;
        let outcome = Outcome {
            window_start_unix_ns,
            steps: vec![Interval::default(); plan.steps.len()],
            probe: plan.probe.as_ref().map(|_| Interval::default()),
            ..Outcome::default()
        };
        Sum {
            plan,
            window_start_ns,
            outcome,
            completed_by_thread: vec![0; plan.threads],
            pending: BTreeMap::new(),
            ends_ns: Vec::new(),
        }
    }

    /// Takes intervals until all threads have ended.
    pub fn collect(
        &mut self,
        intervals: &Receiver<Finished>,
        give_back: &[Sender<Box<Interval>>],
        observe: &mut dyn FnMut(&Second),
    ) {
        for (source, mut interval) in intervals {
            self.take(source, &interval, observe);
            interval.clear();
            // a thread that has ended needs no more of them
            let _ = give_back[source].send(interval);
        }
        for (start_ns, (_, interval)) in std::mem::take(&mut self.pending) {
            self.tell(start_ns, interval, observe);
        }
    }

    fn take(&mut self, source: usize, interval: &Interval, observe: &mut dyn FnMut(&Second)) {
        if source >= self.plan.threads {
            if let (Some(probe), Phase::Measured | Phase::Drain) =
                (&mut self.outcome.probe, interval.phase)
            {
                add(probe, interval);
            }
            return;
        }
        match interval.phase {
            Phase::Setup => {
                self.take_connects(interval);
                self.outcome
                    .total
                    .notes
                    .extend(interval.notes.iter().cloned());
            }
            Phase::Warmup => {
                self.take_connects(interval);
                self.outcome.warmup_errors += interval.counts.errors.total();
            }
            Phase::Drain => {
                add(&mut self.outcome.total, interval);
                // in an open loop, what is answered now was due in the last step or is a straggler
                let last = self.outcome.steps.get_mut(interval.step);
                if let Some(step) = last.filter(|_| self.plan.open().is_some()) {
                    step.times.add(&interval.times);
                    step.counts.errors.add(&interval.counts.errors);
                }
            }
            Phase::Measured => {
                add(&mut self.outcome.total, interval);
                if let Some(step) = self.outcome.steps.get_mut(interval.step) {
                    add(step, interval);
                }
                self.outcome.completed_in_window += interval.counts.completed;
                self.outcome.bytes_in_window += interval.counts.bytes_in;
                self.completed_by_thread[source] += interval.counts.completed;
                let length_ns = interval.end_ns.saturating_sub(self.window_start_ns);
                self.outcome.window_length_ns = self.outcome.window_length_ns.max(length_ns);
            }
        }
        if matches!(interval.phase, Phase::Measured | Phase::Drain) {
            self.outcome.peaks.add(&interval.peaks);
            self.take_stragglers(interval);
        }
        if matches!(interval.phase, Phase::Warmup | Phase::Measured) {
            self.take_second(interval, observe);
        }
        if interval.is_last {
            self.take_end(interval.end_ns, observe);
        }
    }

    /// A thread has ended, and reports no second from then on: others go on where these have requests
    /// left.
    fn take_end(&mut self, end_ns: u64, observe: &mut dyn FnMut(&Second)) {
        self.ends_ns.push(end_ns);
        let whole = self.pending.iter();
        let whole = whole.filter(|(start_ns, (reports, _))| *reports >= self.reporters(**start_ns));
        let whole: Vec<u64> = whole.map(|(start_ns, _)| *start_ns).collect();
        for start_ns in whole {
            if let Some((_, complete)) = self.pending.remove(&start_ns) {
                self.tell(start_ns, complete, observe);
            }
        }
    }

    /// How many threads report the second that begins then.
    fn reporters(&self, start_ns: u64) -> usize {
        let gone = self.ends_ns.iter().filter(|end_ns| **end_ns <= start_ns);
        self.plan.threads - gone.count()
    }

    fn take_stragglers(&mut self, interval: &Interval) {
        for straggler in &interval.stragglers {
            let total = &mut self.outcome.total;
            straggler.record(&mut total.times, &mut total.breakdown);
            if let Some(step) = self.outcome.steps.get_mut(straggler.step) {
                straggler.record(&mut step.times, &mut step.breakdown);
            }
        }
        for (&step, &dropped) in &interval.dropped_earlier {
            self.outcome.total.times.response.note_dropped(dropped);
            if let Some(step) = self.outcome.steps.get_mut(step) {
                step.times.response.note_dropped(dropped);
            }
        }
    }

    /// From before the window only connections count.
    fn take_connects(&mut self, interval: &Interval) {
        let total = &mut self.outcome.total;
        total.counts.connects += interval.counts.connects;
        total.counts.resumed += interval.counts.resumed;
        total.counts.early += interval.counts.early;
        total.counts.errors.add(&interval.counts.errors.connects());
        total.times.connect.add(&interval.times.connect);
        total.times.tls.add(&interval.times.tls);
    }

    fn take_second(&mut self, interval: &Interval, observe: &mut dyn FnMut(&Second)) {
        let expected = self.reporters(interval.start_ns);
        let (reports, sum) = self.pending.entry(interval.start_ns).or_default();
        *reports += 1;
        (sum.phase, sum.step) = (interval.phase, interval.step);
        // it lasts until the last thread has ended it
        let end_ns = sum.end_ns.max(interval.end_ns);
        (sum.start_ns, sum.end_ns) = (interval.start_ns, end_ns);
        add(sum, interval);
        for straggler in &interval.stragglers {
            straggler.record(&mut sum.times, &mut sum.breakdown);
        }
        let dropped = interval.dropped_earlier.values().sum();
        sum.times.response.note_dropped(dropped);
        if *reports >= expected {
            if let Some((_, complete)) = self.pending.remove(&interval.start_ns) {
                self.tell(interval.start_ns, complete, observe);
            }
        }
    }

    fn tell(&mut self, start_ns: u64, interval: Interval, observe: &mut dyn FnMut(&Second)) {
        let times = interval.times.counting(self.plan.open().is_some());
        let offset_ns = start_ns as i64 - self.window_start_ns as i64;
        self.outcome.seconds.push(SecondSummary {
            phase: interval.phase,
            step: interval.step,
            offset_ns,
            length_ns: interval.end_ns - interval.start_ns,
            completed: interval.counts.completed,
            errors: interval.counts.errors.total(),
            bytes_in: interval.counts.bytes_in,
            p50_ns: times.known_at_ns(0.5),
            p99_ns: times.known_at_ns(0.99),
            max_ns: times.max_ns(),
        });
        observe(&Second {
            interval,
            offset_ns,
        });
    }

    /// Everything together, once the threads have reported their ends.
    pub fn outcome(mut self, mut endings: Vec<Ending>) -> io::Result<Outcome> {
        if let Some(fault) = endings.iter_mut().find_map(|ending| ending.fault.take()) {
            return Err(io::Error::other(fault));
        }
        if let (Some(probe), true) = (&mut self.outcome.probe, endings.len() > self.plan.threads) {
            if let Some(ending) = endings.pop() {
                ending.aged.values().for_each(|aged| add_aged(probe, aged));
            }
        }
        let length_ns = self.outcome.window_length_ns.max(1) as f64;
        for (number, ending) in endings.into_iter().enumerate() {
            let [start, end] = ending.window_cpu;
            let cpu = end.thread.since(start.thread);
            // of the thread that has ended last
            let process = end.process.since(start.process);
            if process.total_ns() >= self.outcome.cpu.total_ns() {
                self.outcome.cpu = process;
            }
            for (&step, aged) in &ending.aged {
                add_aged(&mut self.outcome.total, aged);
                if let Some(step) = self.outcome.steps.get_mut(step) {
                    add_aged(step, aged);
                }
            }
            let waited_ns = end.waited.saturating_sub(start.waited).as_nanos();
            let working_ns = cpu.total_ns().saturating_sub(ending.idle_ns);
            self.outcome.threads.push(ThreadOutcome {
                core: self.plan.pins.get(number).copied(),
                cpu,
                busy: (working_ns as f64 / length_ns).min(1.0),
                waited: (waited_ns as f64 / length_ns).min(1.0),
                completed: self.completed_by_thread[number],
                ending,
            });
        }
        self.outcome.seconds.sort_by_key(|second| second.offset_ns);
        Ok(self.outcome)
    }
}

/// Enters what requests that were never answered had waited: at least so long their times are.
fn add_aged(interval: &mut Interval, aged: &Aged) {
    interval.times.response.add(&aged.response);
    interval.times.service.add(&aged.service);
}

fn add(sum: &mut Interval, more: &Interval) {
    sum.times.add(&more.times);
    sum.tcp.add(&more.tcp);
    sum.breakdown.add(&more.breakdown);
    sum.counts.add(&more.counts);
    sum.rates.extend_from_slice(&more.rates);
    for note in &more.notes {
        if sum.notes.len() < NOTES_MAX && !sum.notes.contains(note) {
            sum.notes.push(note.clone());
        }
    }
    if sum.end_ns == 0 {
        sum.start_ns = more.start_ns;
    }
    sum.end_ns = sum.end_ns.max(more.end_ns);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Step;

    #[test]
    fn requests_that_were_dropped_later_count_in_the_step_in_which_they_fell_due() {
        const STEP_NS: u64 = 1_000_000_000;
        let step = Step {
            connections: 1,
            length_ns: STEP_NS,
        };
        let plan = Plan {
            steps: vec![step; 2],
            ..Plan::plain(1, STEP_NS)
        };
        let mut sum = Sum::new(&plan, 0);
        let interval = Interval {
            phase: Phase::Measured,
            step: 1,
            start_ns: STEP_NS,
            end_ns: 2 * STEP_NS,
            dropped_earlier: BTreeMap::from([(0, 5)]),
            ..Interval::default()
        };
        let mut shown = 0;
        sum.take(0, &interval, &mut |second| {
            shown = second.interval.times.response.dropped();
        });
        let dropped = |interval: &Interval| interval.times.response.dropped();
        let steps: Vec<u64> = sum.outcome.steps.iter().map(dropped).collect();
        assert_eq!(steps, [5, 0]);
        assert_eq!((dropped(&sum.outcome.total), shown), (5, 5));
    }

    #[test]
    fn seconds_are_reported_though_a_thread_has_ended() {
        const SECOND_NS: u64 = 1_000_000_000;
        let plan = Plan {
            threads: 2,
            ..Plan::plain(2, 9 * SECOND_NS)
        };
        let mut sum = Sum::new(&plan, 0);
        let mut reported = Vec::new();
        let mut take = |source, start_ns, end_ns, is_last| {
            let interval = Interval {
                phase: Phase::Measured,
                start_ns,
                end_ns,
                is_last,
                ..Interval::default()
            };
            sum.take(source, &interval, &mut |second| {
                let interval = &second.interval;
                reported.push((interval.start_ns, interval.end_ns));
            });
        };
        take(1, 0, SECOND_NS, false);
        take(1, SECOND_NS, 2 * SECOND_NS, false);
        take(0, 0, SECOND_NS / 2, true);
        take(1, 2 * SECOND_NS, 5 * SECOND_NS / 2, true);
        let seconds = [(0, 2), (2, 4), (4, 5)];
        let halves = seconds.map(|(from, to)| (from * SECOND_NS / 2, to * SECOND_NS / 2));
        assert_eq!(reported, halves);
    }
}
