//! Before the load and at its first moment: the first connections, the wait for the start.

use super::deadlines::CHECK_NS;
use super::{ConnectionState, Worker};
use crate::protocol::Protocol;
use crate::sys::clock::monotonic_ns;
use crate::sys::signal::stop_wanted;
use crate::transport::Transport;
use std::time::Duration;

/// The first connections are waited for so many times as long as for one of them.
const SETUP_TIMEOUTS: u64 = 30;
/// Waits of a closed loop may end a millisecond late; the last wait before the start may not.
const PUNCTUAL_NS: u64 = 2_000_000;
/// So many first requests of a closed loop are written before answers are looked for.
const FIRST_WRITES: usize = 64;

impl<T: Transport, P: Protocol> Worker<'_, T, P> {
    /// Opens the first connections and waits until each is ready or has failed, at each address of its
    /// target.
    pub fn connect(&mut self) {
        let now = monotonic_ns();
        let first = self.plan.steps.first().map_or(0, |step| step.connections);
        self.recorder.now.start_ns = now;
        self.deadlines.next_check_ns = now + CHECK_NS;
        self.want(self.plan.share(first, self.number), now);
        // a server that takes connections slowly is waited for, one that takes none is not
        let targets = 0..self.requests.targets.len();
        let addresses = targets.map(|target| self.connector.addresses(target));
        let tries = addresses.max().unwrap_or(1) as u64;
        let patience_ns = self.plan.connect_timeout_ns.saturating_mul(tries);
        let last_ns = now.saturating_add(SETUP_TIMEOUTS.saturating_mul(patience_ns));
        let mut open = 0;
        let mut progress_ns = now;
        loop {
            let now = monotonic_ns();
            let opened = self.connections.open();
            if opened > open {
                (open, progress_ns) = (opened, now);
            }
            let deadline_ns = last_ns.min(progress_ns.saturating_add(patience_ns));
            let addresses = |target| self.connector.addresses(target);
            let are_settled = self.connections.are_settled(addresses);
            if are_settled || now >= deadline_ns || stop_wanted() {
                break;
            }
            self.turn((deadline_ns - now).min(self.until_check_ns(now)));
        }
    }

    /// Waits for the moment of the start. Connections are looked after meanwhile: one that the server
    /// ends is opened again, and what it asks is answered. Gives the moment, or the present if a
    /// signal ends the run before it has begun.
    pub fn wait_for(&mut self, moment_ns: u64) -> u64 {
        loop {
            let now = monotonic_ns();
            if now >= moment_ns {
                return moment_ns;
            }
            if stop_wanted() {
                return now;
            }
            let left_ns = moment_ns - now;
            if left_ns > PUNCTUAL_NS {
                self.turn((left_ns - PUNCTUAL_NS).min(self.until_check_ns(now)));
            } else {
                std::thread::sleep(Duration::from_nanos(left_ns));
            }
        }
    }

    /// How long a wait may last: timers of protocols run before the start as well.
    fn until_check_ns(&self, now: u64) -> u64 {
        let until_ns = self.deadlines.next_check_ns.saturating_sub(now);
        until_ns.min(CHECK_NS)
    }

    pub(super) fn start(&mut self, base_ns: u64) {
        self.missing_at_start = self.connections.wanted - self.connections.open();
        self.scripting.forget_stop();
        self.pacer.base_ns = base_ns;
        self.recorder.begin(base_ns, self.plan);
        self.waiter.begin_window();
        self.running = true;
        self.pacer.set_due(self.requests.are_all_due());
        self.deadlines.next_check_ns = 0;
        // interrupted before it began: no window begins in which an answer could count
        self.stopped = stop_wanted();
        if self.stopped {
            return;
        }
        let now = monotonic_ns();
        // each was offered when it was opened
        self.pacer.dispatch.forget_free();
        for index in 0..self.connections.wanted {
            if self.connections[index].state == ConnectionState::Idle {
                self.offer(index, now);
            }
            // the first answers come while the last requests are written
            if index % FIRST_WRITES == FIRST_WRITES - 1 {
                self.turn(0);
            }
        }
        self.send_ready();
    }
}
