//! Undo of reductions that were not needed (RFC 3522, RFC 3708, RFC 5682).

use crate::conn::{Conn, Context};
use crate::loss::{Phase, Progress};
use crate::sent::{AMBIGUOUS, LOST, NONE, RETRANSMITTED};
use crate::seq::before;

impl Conn {
    /// Keeps the state that an undo will restore.
    pub fn remember_for_undo(&mut self) {
        if self.recovery.retrans_out == 0 {
            // Earlier retransmissions are over: a loss probe, perhaps.
            self.recovery.first_resent_us = 0;
        }
        self.recovery.undo_from = Some(self.snd_una);
        self.recovery.undo_pending =
            (self.recovery.retrans_out > 0).then_some(self.recovery.retrans_out);
        self.recovery.prior_cwnd = self.cwnd;
        self.recovery.prior_ssthresh = match self.recovery.phase {
            Phase::Reduced | Phase::Recovery => self.ssthresh,
            _ => self.ssthresh.max(self.cwnd / 4 * 3),
        };
    }

    /// A partial acknowledgment in recovery: was the reduction needed at all?
    pub fn undo_partial(&mut self, cx: &mut Context, p: &mut Progress) {
        if self.recovery.undo_from.is_some() && self.was_only_delayed(p.echo) {
            self.undo(cx, true);
            cx.stats.full_undo += 1;
            self.recovery.phase = Phase::Open;
        } else if !self.has_sack {
            // A partial acknowledgment: the next segment is lost too (RFC 6582, 3.2, step 3).
            p.newly_lost += self.mark_head_lost(cx);
        }
    }

    /// Every retransmission was reported as a duplicate.
    pub fn undo_by_duplicates(&mut self, cx: &mut Context) {
        if self.recovery.undo_from.is_some() && self.recovery.undo_pending == Some(0) {
            self.undo(cx, false);
            cx.stats.dsack_undo += 1;
        }
    }

    /// Whether no retransmission was needed, as far as the peer says.
    pub fn may_undo(&self) -> bool {
        self.recovery.undo_from.is_some() && self.recovery.undo_pending == Some(0)
    }

    /// The echo is older than the first retransmission: the original has arrived (RFC 3522).
    pub fn was_only_delayed(&self, echo: Option<u32>) -> bool {
        let first = self.recovery.first_resent_us;
        first > 0 && echo.is_some_and(|echo| echo != 0 && before(echo, self.timestamp(first)))
    }

    /// Window and threshold as before the reduction.
    pub fn undo(&mut self, cx: &mut Context, unmark: bool) {
        if unmark {
            self.unmark_losses(cx);
        }
        self.cwnd = self.cwnd.max(self.recovery.prior_cwnd);
        self.ssthresh = self.ssthresh.max(self.recovery.prior_ssthresh);
        self.recovery.undo_from = None;
        self.recovery.undo_pending = None;
        self.cwr_wanted = false;
        self.queue_output(cx);
    }

    /// Segments taken for lost are in flight again.
    fn unmark_losses(&mut self, cx: &mut Context) {
        // The last one put back of those sent once, and of those sent again: each kind is about in order of time.
        let mut nearest = [NONE; 2];
        let mut index = self.sent.head;
        while index != NONE {
            let node = *cx.nodes.get(index);
            if node.is(LOST) {
                self.forget_loss(&node);
                cx.nodes.get_mut(index).flags &= !(LOST | RETRANSMITTED);
                let near = &mut nearest[usize::from(node.is(AMBIGUOUS))];
                cx.nodes.put_back(&mut self.sent, index, *near);
                *near = index;
            }
            index = node.next;
        }
    }
}
