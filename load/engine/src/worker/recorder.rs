//! Keeps the current interval of a thread and hands over the finished ones. What is entered for a
//! request is in [`timing`](super::timing).

use crate::breakdown::Rows;
use crate::ending::CpuMark;
use crate::interval::Interval;
use crate::plan::{Phase, Plan, Stage};
use crate::sys::clock::SECOND_NS;
use crate::sys::control::Tally;
use std::sync::mpsc::{Receiver, Sender};

/// Notes of one kind are kept so often; the counts say the rest.
const NOTES_MAX: usize = 8;
/// Stretch over which answers per second are sampled, as wrk does it.
const RATE_STRETCH_NS: u64 = 100_000_000;

/// Where the finished intervals of a thread go, and where empty ones come from.
pub struct Handover {
    /// Number of the thread among all, the probe's included.
    pub source: usize,
    /// Takes finished intervals.
    pub finished: Sender<Finished>,
    /// Has empty ones.
    pub spare: Receiver<Box<Interval>>,
}

/// The measuring side of a thread.
pub(super) struct Recorder {
    /// The interval that is being filled.
    pub now: Box<Interval>,
    /// Which requests have a distribution of their own.
    pub(super) rows: Rows,
    /// Requests have due times.
    pub(super) is_open: bool,
    /// Only the last answer of a batch is entered.
    pub(super) batch_latency: bool,
    /// When the measured window began.
    pub window_start_ns: u64,
    stages: Vec<Stage>,
    stage: usize,
    base_ns: u64,
    /// When the step (or warm-up) began whose requests are recorded as they are.
    pub step_start_ns: u64,
    /// CPU time when the measured window began and ended.
    pub window_cpu: [CpuMark; 2],
    /// Start of the stretch over which answers per second are sampled next.
    rate_start_ns: u64,
    /// Answers of this interval that lie before it.
    rate_completed: u64,
    /// Answers of earlier intervals that lie in it.
    rate_carried: u64,
    /// Of the intervals that were handed over.
    before: Tally,
    handover: Handover,
}

/// A finished interval and the number of the thread that it comes from.
pub type Finished = (usize, Box<Interval>);

impl Handover {
    fn send(&self, finished: Box<Interval>) {
        // the receiver only goes away when the process ends
        let _ = self.finished.send((self.source, finished));
    }
}

impl Recorder {
    /// A recorder of requests in these rows.
    pub fn new(handover: Handover, plan: &Plan, rows: Rows) -> Recorder {
        let now = Box::new(Interval {
            end_ns: u64::MAX,
            ..Interval::default()
        });
        Recorder {
            now,
            rows,
            is_open: plan.open().is_some(),
            batch_latency: plan.batch_latency,
            window_start_ns: 0,
            stages: Vec::new(),
            stage: 0,
            base_ns: 0,
            step_start_ns: 0,
            window_cpu: [CpuMark::default(); 2],
            rate_start_ns: u64::MAX,
            rate_completed: 0,
            rate_carried: 0,
            before: Tally::default(),
            handover,
        }
    }

    /// The load begins at `base_ns` and goes through the stages of the plan.
    pub fn begin(&mut self, base_ns: u64, plan: &Plan) {
        self.base_ns = base_ns;
        self.window_start_ns = base_ns + plan.warmup_ns;
        self.stages = plan.stages();
        self.stage = 0;
        self.turn(base_ns);
        self.rate_start_ns = base_ns;
    }

    /// The stage that is running; `None` in the drain.
    pub fn stage(&self) -> Option<Stage> {
        self.stages.get(self.stage).copied()
    }

    /// Number of the step in which something fell due.
    pub fn step_at(&self, due_ns: u64) -> usize {
        let offset_ns = due_ns.saturating_sub(self.base_ns);
        let begun = self.stages.iter().rev();
        begun
            .filter(|stage| stage.start_ns <= offset_ns)
            .map(|stage| stage.step)
            .next()
            .unwrap_or(0)
    }

    /// Whether the measured window is over.
    pub fn draining(&self) -> bool {
        self.now.phase == Phase::Drain
    }

    /// Whether `now_ns` lies behind the current interval.
    #[inline]
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.now.end_ns
    }

    /// Goes on to the interval in which `now_ns` lies.
    pub fn rotate(&mut self, now_ns: u64) {
        while self.now.end_ns <= now_ns {
            let end_ns = self.now.end_ns;
            let over = self
                .stage()
                .is_none_or(|stage| self.base_ns + stage.end_ns <= end_ns);
            if over {
                self.stage += 1;
            }
            self.turn(end_ns);
        }
    }

    /// Ends the current interval here; the next one begins.
    fn turn(&mut self, start_ns: u64) {
        let phase_before = self.now.phase;
        let mut next = self.handover.spare.try_recv().unwrap_or_default();
        match self.stage() {
            Some(stage) => {
                next.phase = stage.phase;
                next.step = stage.step;
                self.step_start_ns = self.base_ns + stage.start_ns;
                next.end_ns = (start_ns + SECOND_NS).min(self.base_ns + stage.end_ns);
            }
            None => {
                next.phase = Phase::Drain;
                next.step = self.now.step;
                next.end_ns = u64::MAX;
            }
        }
        next.start_ns = start_ns;
        if next.phase != phase_before {
            self.mark_cpu(next.phase);
        }
        let mut finished = std::mem::replace(&mut self.now, next);
        finished.end_ns = start_ns;
        self.before = added(self.before, &finished, true);
        let unsampled = finished.counts.completed - self.rate_completed;
        self.handover.send(finished);
        self.rate_completed = 0;
        if self.now.phase == phase_before {
            // like wrk: a stretch does not end with the second
            self.rate_carried += unsampled;
        } else {
            (self.rate_carried, self.rate_start_ns) = (0, start_ns);
        }
    }

    fn mark_cpu(&mut self, phase: Phase) {
        match phase {
            Phase::Measured => self.window_cpu[0] = CpuMark::now(),
            Phase::Drain => self.window_cpu[1] = CpuMark::now(),
            Phase::Setup | Phase::Warmup => {}
        }
    }

    /// The run ends here; everything is handed over.
    pub fn finish(&mut self, now_ns: u64) {
        if matches!(self.now.phase, Phase::Measured) {
            self.window_cpu[1] = CpuMark::now();
        }
        self.sample_rate(now_ns);
        let mut finished = std::mem::take(&mut self.now);
        (finished.end_ns, finished.is_last) = (now_ns, true);
        self.handover.send(finished);
    }

    /// Notes answers per second since the last sample. Answers of the drain are in no rate.
    pub fn sample_rate(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.rate_start_ns);
        if elapsed_ns < RATE_STRETCH_NS || self.draining() {
            return;
        }
        let completed = self.rate_carried + self.now.counts.completed - self.rate_completed;
        // like wrk: a stretch without answers is merged into the next one
        if completed > 0 {
            self.now
                .rates
                .push(completed as f64 * SECOND_NS as f64 / elapsed_ns as f64);
            self.rate_start_ns = now_ns;
            self.rate_completed = self.now.counts.completed;
            self.rate_carried = 0;
        }
    }

    /// Counts so far: errors from the first connect on, the rest since the measured window
    /// began, as in the result file. Adding up statuses takes a microsecond, so only `with_status`.
    #[inline]
    pub fn tally(&self, with_status: bool) -> Tally {
        added(self.before, &self.now, with_status)
    }

    /// Keeps a sentence about something notable, unless there are several already.
    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if self.now.notes.len() < NOTES_MAX {
            let text = text();
            if !self.now.notes.contains(&text) {
                self.now.notes.push(text);
            }
        }
    }
}

/// A tally with an interval more.
#[inline]
fn added(mut tally: Tally, interval: &Interval, with_status: bool) -> Tally {
    let counts = &interval.counts;
    match interval.phase {
        Phase::Setup => tally.errors += counts.errors.total(),
        Phase::Warmup => {}
        Phase::Measured | Phase::Drain => {
            tally.errors += counts.errors.total();
            tally.sent += counts.sent;
            tally.completed += counts.completed;
            tally.bytes_in += counts.bytes_in;
            if with_status {
                tally.non_2xx += counts.status_unless(|code| (200..300).contains(&code));
            }
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_sample_of_the_rate_goes_on_over_the_end_of_a_second() {
        const TENTH_NS: u64 = SECOND_NS / 10;
        let ((finished, intervals), (_spare, spares)) = (channel(), channel());
        let handover = Handover {
            source: 0,
            finished,
            spare: spares,
        };
        let window = Plan::plain(1, 4 * SECOND_NS);
        let mut recorder = Recorder::new(handover, &window, Rows::of(&[]));
        recorder.begin(0, &window);
        for tenth in 1..=50 {
            recorder.rotate(tenth * TENTH_NS);
            // the first and the last answer of a second are next to its ends; some come in the drain
            let has_answer = tenth % 5 == 0;
            recorder.now.counts.completed += u64::from(has_answer);
            recorder.sample_rate(tenth * TENTH_NS);
        }
        recorder.finish(5 * SECOND_NS);
        let rates: Vec<f64> = intervals
            .try_iter()
            .flat_map(|(_, interval)| interval.rates)
            .collect();
        assert_eq!(rates, [2.0; 7]);
    }
}
