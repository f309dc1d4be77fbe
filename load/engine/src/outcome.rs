//! The result of a run.

use crate::ending::{Ending, Pauses};
use crate::interval::Interval;
use crate::peaks::Peaks;
use crate::plan::{Phase, Plan, Shape};
use crate::sys::clock::{CpuTime, SECOND_NS};
use crate::tcp::TcpSent;

/// One second of the run over all threads.
#[derive(Clone, Debug)]
pub struct Second {
    /// The threads' figures of it.
    pub interval: Interval,
    /// Its start on the clock of the measured window; negative in the warm-up.
    pub offset_ns: i64,
}

/// One thread in the measured window.
#[derive(Clone, Debug, Default)]
pub struct ThreadOutcome {
    /// Its core, if it was bound to one.
    pub core: Option<usize>,
    /// CPU time in the window.
    pub cpu: CpuTime,
    /// Share of the window in which the thread was at work; polling for due times and pauses are not.
    pub busy: f64,
    /// Share of the window in which it had work and waited for its core.
    pub waited: f64,
    /// Answers in the window.
    pub completed: u64,
    /// How it ended.
    pub ending: Ending,
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Start of the measured window, ns since 1970.
    pub window_start_unix_ns: u64,
    /// Its length, shorter than planned after an interrupt.
    pub window_length_ns: u64,
    /// Measured window and drain together; connects and their errors also from before.
    pub total: Interval,
    /// Answers within the window, which rates are made of.
    pub completed_in_window: u64,
    /// Bytes of answers within the window.
    pub bytes_in_window: u64,
    /// One entry for each step.
    pub steps: Vec<Interval>,
    /// One entry for each second, warm-up included; without histograms.
    pub seconds: Vec<SecondSummary>,
    /// One entry for each thread.
    pub threads: Vec<ThreadOutcome>,
    /// CPU time of the process in the window.
    pub cpu: CpuTime,
    /// The probe's own figures.
    pub probe: Option<Interval>,
    /// The longest latencies and when they were.
    pub peaks: Peaks,
    /// Errors in the warm-up, failures to connect among them.
    pub warmup_errors: u64,
    /// What a script has decided.
    pub shape: Option<Shape>,
    /// Share of the time of the threads' cores that a hypervisor took, if the kernel reports it.
    pub stolen: Option<f64>,
    /// The kernel's source of time if it is a slow one.
    pub slow_clock: Option<String>,
}

/// One second in short.
#[derive(Clone, Debug)]
pub struct SecondSummary {
    /// The part of the run.
    pub phase: Phase,
    /// Number of the step.
    pub step: usize,
    /// Start on the clock of the measured window.
    pub offset_ns: i64,
    /// Length.
    pub length_ns: u64,
    /// Answers.
    pub completed: u64,
    /// Errors.
    pub errors: u64,
    /// Bytes of answers.
    pub bytes_in: u64,
    /// Median of the time that counts (response in open loop, else service), if enough times are known.
    pub p50_ns: Option<u64>,
    /// 99th percentile of it.
    pub p99_ns: Option<u64>,
    /// Longest.
    pub max_ns: u64,
}

impl Outcome {
    /// Answers per second of the window.
    pub fn rps(&self) -> f64 {
        self.completed_in_window as f64 * SECOND_NS as f64 / self.window_length_ns.max(1) as f64
    }

    /// Bytes of answers per second of the window.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes_in_window as f64 * SECOND_NS as f64 / self.window_length_ns.max(1) as f64
    }

    /// Requests sent together on a connection: as the script has them, if there is one.
    pub fn depth(&self, plan: &Plan) -> usize {
        let decided = self.shape.map(|shape| shape.depth);
        decided.unwrap_or(plan.protocol.depth())
    }

    /// Waits of all threads, and pauses before them.
    pub fn pauses(&self) -> Pauses {
        let each = self.threads.iter().map(|thread| thread.ending.pauses);
        each.fold(Pauses::default(), |sum, more| Pauses {
            waits: sum.waits + more.waits,
            paused: sum.paused + more.paused,
            paused_ns: sum.paused_ns + more.paused_ns,
        })
    }

    /// Segments sent by the connections that were open at the end, over all threads.
    pub fn tcp(&self) -> TcpSent {
        let mut sum = TcpSent::default();
        self.threads
            .iter()
            .for_each(|thread| sum.add(thread.ending.tcp));
        sum
    }

    /// Requests without an answer at the end.
    pub fn unfinished(&self) -> u64 {
        self.threads
            .iter()
            .map(|thread| thread.ending.unfinished)
            .sum()
    }
}
