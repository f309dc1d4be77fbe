//! The gate: another program may hold a thread back between requests, and reads its counters.
//!
//! A thread that is held sends nothing new; when the last request in flight has its answer, it says
//! so and waits on the controller's word. A hold has an end of its own, so that a controller that
//! dies holds no thread for ever. Without `--control` nothing here runs.

use super::{ConnectionState, Worker};
use crate::protocol::Protocol;
use crate::sys::clock::monotonic_ns;
use crate::sys::control::State;
use crate::transport::Transport;
use std::time::Duration;

/// So often a held thread looks after its connections, and for a controller that cannot wake it.
const LOOK_NS: u64 = 1_000_000;

impl<T: Transport, P: Protocol> Worker<'_, T, P> {
    /// Between two turns: shows what was counted, and does what the controller wants.
    #[inline]
    pub(super) fn mind_gate(&mut self) {
        if self.plan.control().is_some() {
            self.obey();
        }
    }

    /// Out of line, so that a load without a gate has no more of it than one look at a pointer.
    #[inline(never)]
    fn obey(&mut self) {
        let plan = self.plan;
        let Some(control) = plan.control() else {
            return;
        };
        let now = monotonic_ns();
        let left_ns = control
            .hold_until_ns()
            .map_or(0, |until_ns| until_ns.saturating_sub(now));
        let is_drained = left_ns > 0 && self.connections.busy == 0;
        self.show_counters(if is_drained {
            State::Held
        } else {
            State::Sending
        });
        if left_ns == 0 {
            self.release(now);
            return;
        }
        self.holding = true;
        let until_check_ns = self.deadlines.next_check_ns.saturating_sub(now);
        let wait_ns = left_ns.min(LOOK_NS).min(until_check_ns);
        if is_drained && wait_ns > 0 {
            control.wait(Duration::from_nanos(wait_ns));
        }
    }

    /// Lets the connections go on that were held; their time begins now.
    fn release(&mut self, now: u64) {
        if !self.holding {
            return;
        }
        self.holding = false;
        self.burst.restart(now);
        self.send_ready();
    }

    /// Whether the next turn must not wait: a held thread has waited at the gate.
    pub(super) fn is_at_gate(&self) -> bool {
        self.holding && self.connections.busy == 0
    }

    /// Sends a request whose time has come, or keeps it for the end of the hold.
    pub(super) fn send_unless_held(&mut self, index: usize, now: u64) {
        if !self.holding {
            self.send(index, now, now);
            return;
        }
        let connection = &mut self.connections[index];
        if !P::STREAMS {
            connection.state = ConnectionState::Idle;
        }
        let generation = connection.generation;
        self.burst.add(index, generation, now);
    }

    /// Publishes the counters of this thread.
    pub(super) fn show_counters(&self, state: State) {
        if let Some(control) = self.plan.control() {
            let tally = self.recorder.tally(state != State::Sending);
            control.publish(self.number, &tally, self.connections.busy as u64, state);
        }
    }
}
