//! The end of a thread: open connections, requests without responses, CPU time.

use super::connections::is_established;
use super::Worker;
use crate::ending::Ending;
use crate::protocol::{Protocol, RequestMeta};
use crate::script::ThreadScript;
use crate::sys::clock::monotonic_ns;
use crate::sys::socket::close;
use crate::sys::tcp_info::tcp_info;
use crate::transport::Transport;

/// TCP is asked of so many connections at the end.
const TCP_CONNECTIONS_MAX: usize = 1000;

impl<T: Transport, P: Protocol> Worker<'_, T, P> {
    /// Closes everything and counts what is unfinished since `stopped_ns`: from then on no answer was
    /// read.
    pub(super) fn end(mut self, stopped_ns: u64) -> (Ending, Option<ThreadScript>) {
        let now = monotonic_ns();
        let mut ending = Ending {
            idle_ns: self.waiter.idle_ns(),
            away_ns: self.away.total_ns(),
            pauses: self.waiter.pauses(),
            stopped_ns: now,
            wanted: self.connections.wanted,
            missing_at_start: self.missing_at_start,
            was_stopped: self.scripting.has_stopped(),
            ..Ending::default()
        };
        for index in 0..self.connections.len() {
            let fd = self.connections[index].fd;
            if is_established(&self.connections[index]) {
                ending.open += 1;
                if index < TCP_CONNECTIONS_MAX {
                    tcp_info(fd).iter().for_each(|info| ending.tcp.record(info));
                }
            }
            for (asked, times) in self.in_flight(index) {
                self.age(asked, times, stopped_ns, &mut ending);
            }
        }
        self.censor_unsent(now, &mut ending);
        self.recorder.finish(now);
        ending.window_cpu = self.recorder.window_cpu;
        // behind the last look at the clock of the CPU: a thousand ends of TLS take milliseconds
        self.close_all();
        let (fault, script) = self.scripting.into_parts();
        ending.fault = fault;
        (ending, script)
    }

    /// Closes all connections for good.
    fn close_all(&mut self) {
        for index in 0..self.connections.len() {
            self.send_close(index);
            let fd = self.connections[index].fd;
            if fd >= 0 {
                close(fd);
            }
        }
    }

    /// Enters requests that are in flight at the end.
    fn age(&self, asked: RequestMeta, times: u64, now: u64, ending: &mut Ending) {
        let service_ns = now.saturating_sub(asked.sent_ns);
        ending.oldest_ns = ending.oldest_ns.max(service_ns);
        if !self.recorder.is_counted(asked.due_ns) {
            return;
        }
        ending.unfinished += times;
        if self.pacer.is_open() {
            let samples = self.recorder.samples(times);
            let step = self.recorder.step_at(asked.due_ns);
            let aged = ending.aged.entry(step).or_default();
            aged.response.record_lost(now - asked.due_ns, samples);
            aged.service.record_lost(service_ns, samples);
        }
    }

    /// Enters requests that were due and never sent with their ages, in bulk if they are many.
    fn censor_unsent(&mut self, now: u64, ending: &mut Ending) {
        const POINTS: u64 = 10_000;
        let Some(schedule) = self.pacer.schedule() else {
            return;
        };
        let window_end_ns = self.recorder.window_start_ns + self.plan.duration_ns();
        let end_ns = now.min(window_end_ns).min(self.pacer.over_ns);
        let window_start_ns = self.recorder.window_start_ns;
        let depth = self.requests.depth as u64;
        let samples = self.recorder.samples(depth);
        let waiting = self.pacer.dispatch.due_times();
        for due_ns in waiting.filter(|&due_ns| due_ns >= window_start_ns) {
            let step = self.recorder.step_at(due_ns);
            let aged = ending.aged.entry(step).or_default();
            let age_ns = now.saturating_sub(due_ns);
            aged.response.record_lost(age_ns, samples);
            ending.unsent += depth;
        }
        // the warm-up's come first, and are not the window's
        let before = schedule.left_until(self.plan.warmup_ns as f64);
        let left = schedule.left_until((end_ns - self.pacer.base_ns.min(end_ns)) as f64);
        // behind the last of so many requests none falls due
        let still_wanted = self.requests.not_due();
        let unsent = left.saturating_sub(before).min(still_wanted);
        let points = unsent.min(POINTS);
        // the product may be larger than either
        let until =
            |point: u64| (u128::from(unsent) * u128::from(point) / u128::from(points)) as u64;
        for point in 0..points {
            // the batches [from, to) have about the age of the one in their middle
            let (from, to) = (until(point), until(point + 1));
            let Some(due_ns) = schedule.ahead_ns(before + (from + to) / 2) else {
                break;
            };
            let age_ns = now.saturating_sub(self.pacer.base_ns + due_ns);
            let step = self.recorder.step_at(self.pacer.base_ns + due_ns);
            let aged = ending.aged.entry(step).or_default();
            aged.response.record_lost(age_ns, (to - from) * samples);
        }
        ending.unsent += unsent * depth;
        ending.unfinished += ending.unsent;
    }
}
