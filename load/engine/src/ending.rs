//! Results that a thread reports only when it ends.

use crate::latency::Latency;
use crate::machine::waited_for_core;
use crate::sys::clock::{process_cpu, thread_cpu, CpuTime};
use crate::tcp::TcpSent;
use std::collections::BTreeMap;
use std::time::Duration;

/// CPU time of a thread and of the process at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuMark {
    /// Of the calling thread.
    pub thread: CpuTime,
    /// Of the whole process.
    pub process: CpuTime,
    /// Time that the calling thread has waited for a core although it had work.
    pub waited: Duration,
}

impl CpuMark {
    /// Of now.
    pub(crate) fn now() -> CpuMark {
        CpuMark {
            thread: thread_cpu(),
            process: process_cpu(),
            waited: waited_for_core(),
        }
    }
}

/// Pauses of a thread before its waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// Waits for events.
    pub waits: u64,
    /// Waits after a pause.
    pub paused: u64,
    /// How long the pauses took together.
    pub paused_ns: u64,
}

/// Ages of the requests that were unfinished at the end: lower bounds.
#[derive(Clone, Debug, Default)]
pub struct Aged {
    /// Since they were due.
    pub response: Latency,
    /// Since they were written, if they were.
    pub service: Latency,
}

/// What a thread knows at the end beyond its intervals.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Requests in flight or due and unsent when the run ended.
    pub unfinished: u64,
    /// Among them the requests that were never sent.
    pub unsent: u64,
    /// Age of the oldest request in flight.
    pub oldest_ns: u64,
    /// Ages of the unfinished requests of an open loop, by the step in which they fell due.
    pub aged: BTreeMap<usize, Aged>,
    /// CPU time when the measured window began and ended.
    pub window_cpu: [CpuMark; 2],
    /// CPU time within the window that was spent without work to do: polling for a due time or network
    /// cards.
    pub idle_ns: u64,
    /// Time within the window for which the thread did nothing although it had to.
    pub away_ns: u64,
    /// Pauses before waits within the window.
    pub pauses: Pauses,
    /// When the thread stopped, monotonic.
    pub stopped_ns: u64,
    /// Connections that were not open yet when the load began.
    pub missing_at_start: usize,
    /// Connections that were open at the end.
    pub open: usize,
    /// Connections that should have been.
    pub wanted: usize,
    /// The script ended this thread's load before the window was over.
    pub was_stopped: bool,
    /// Segments sent by the connections that were open.
    pub tcp: TcpSent,
    /// Why the script ended the run.
    pub fault: Option<String>,
}
