//! What happens when a timer of a connection fires.

use crate::conn::{Conn, Context, RetransmitTimer, State};
use crate::error::Error;
use crate::loss::{Forward, Phase};
use crate::sent::{NONE, SACKED};
use crate::seq::after;

/// Later than any deadline.
const NEVER: u64 = u64::MAX;

impl Conn {
    /// The earliest of the connection's deadlines.
    pub fn next_deadline_us(&self) -> u64 {
        let retransmit = match self.retransmit {
            RetransmitTimer::Off => NEVER,
            _ => self.retransmit_at_us,
        };
        let or_never = |at_us: u64| if at_us == 0 { NEVER } else { at_us };
        retransmit
            .min(or_never(self.delayed_ack_at_us))
            .min(or_never(self.slow.keepalive_at_us))
            .min(or_never(self.slow.linger_at_us))
    }

    /// A timer may be due. What is due is done, and the next deadline is armed.
    pub fn on_timer(&mut self, cx: &mut Context) {
        if self.retransmit != RetransmitTimer::Off && self.retransmit_at_us <= cx.now_us {
            self.on_retransmit_timer(cx);
        }
        let now_us = cx.now_us;
        let is_due = |at_us: u64| at_us != 0 && at_us <= now_us;
        if is_due(self.delayed_ack_at_us) {
            self.delayed_ack_at_us = 0;
            self.is_interactive = false;
            self.ack_due = true;
            cx.stats.delayed_acks += 1;
            self.queue_output(cx);
        }
        if is_due(self.slow.linger_at_us) {
            self.slow.linger_at_us = 0;
            self.state = State::Closed;
            self.drop_output(cx);
        }
        if is_due(self.slow.keepalive_at_us) {
            self.on_keepalive_timer(cx);
        }
        let next_us = self.next_deadline_us();
        if next_us != NEVER {
            cx.wheel.arm(self.index, next_us);
        }
    }

    fn on_retransmit_timer(&mut self, cx: &mut Context) {
        match self.retransmit {
            RetransmitTimer::Off => {}
            RetransmitTimer::Timeout if self.is_opening() => self.on_syn_timeout(cx),
            RetransmitTimer::Timeout => self.on_timeout(cx),
            RetransmitTimer::Persist => self.on_persist_timer(cx),
            RetransmitTimer::Reordering => {
                self.on_reordering_timer(cx);
                self.queue_output(cx);
            }
            RetransmitTimer::LossProbe => {
                self.loss_probe_due = true;
                self.retransmit = RetransmitTimer::Off;
                let rto_us = self.rto_us(&cx.config);
                self.arm(cx, RetransmitTimer::Timeout, cx.now_us + rto_us);
                self.queue_output(cx);
            }
        }
    }

    fn on_syn_timeout(&mut self, cx: &mut Context) {
        let own = self.settings.syn_retries;
        let (linear, retries) = match self.state {
            State::SynSent if own > 0 => (cx.config.syn_linear_timeouts, own),
            State::SynSent => (cx.config.syn_linear_timeouts, cx.config.syn_retries),
            _ => (0, cx.config.syn_ack_retries),
        };
        let retries = retries.saturating_add(linear);
        if self.recovery.timeouts >= retries || self.is_past_user_timeout(cx) {
            cx.stats.attempt_fails += 1;
            self.give_up(cx);
            return;
        }
        self.recovery.timeouts += 1;
        self.backoff = self.recovery.timeouts.saturating_sub(linear);
        self.syn_resent = true;
        self.syn_due = true;
        // RFC 3168, 6.1.1.1: a middlebox may drop SYNs that ask for ECN.
        self.has_ecn &= self.recovery.timeouts < 2;
        let rto_us = self.within_user_timeout(cx, self.rto_us(&cx.config));
        self.arm(cx, RetransmitTimer::Timeout, cx.now_us + rto_us);
        self.queue_output(cx);
    }

    fn on_timeout(&mut self, cx: &mut Context) {
        self.retransmit = RetransmitTimer::Off;
        if self.packets_out == 0 {
            return;
        }
        if self.trouble_since_us == 0 {
            self.trouble_since_us = self.sent_us.max(1);
        }
        if self.recovery.timeouts >= self.retries(cx) || self.is_past_user_timeout(cx) {
            self.give_up(cx);
            return;
        }
        cx.stats.timeouts += 1;
        self.enter_loss(cx);
        self.recovery.timeouts += u8::from(!self.is_kept_waiting(cx));
        self.backoff = self.backoff.saturating_add(1);
        let rto_us = self.within_user_timeout(cx, self.rto_us(&cx.config));
        self.arm(cx, RetransmitTimer::Timeout, cx.now_us + rto_us);
        self.queue_output(cx);
    }

    /// The peer has shut its window before what is in flight, so that it takes nothing, but answers: what is
    /// sent again are probes (Linux's tcp_rtx_probe0_timed_out).
    fn is_kept_waiting(&self, cx: &Context) -> bool {
        let quiet_us = cx.now_us - self.heard_us;
        self.snd_wnd == 0 && !self.is_left() && quiet_us <= 2 * cx.config.rto_max_us
    }

    /// The retransmission timeout: what was sent at least a round trip ago without an acknowledgment is taken for lost
    /// (RFC 8985, 6.3; RFC 6298, 5.4 to 5.7; RFC 5681, 3.1, equation 4).
    pub fn enter_loss(&mut self, cx: &mut Context) {
        let is_first =
            self.recovery.phase <= Phase::Disorder || !after(self.recovery.high_seq, self.snd_una);
        let has_advanced = self.recovery.phase == Phase::Loss && self.recovery.timeouts == 0;
        let is_new = is_first || has_advanced;
        if is_new {
            self.remember_for_undo();
            self.ssthresh = self.control.threshold_after_loss(self.cwnd);
            self.control.restart_after_timeout();
        } else {
            self.recovery.undo_from = Some(self.snd_una);
        }
        let reneged = self.mark_overdue_lost(cx);
        // During a recovery more than the first segment was sent again (RFC 5682, 3.1, step 1); a timeout that follows
        // one without progress changes nothing (3.2).
        self.recovery.forward = match self.recovery.forward {
            _ if reneged || has_advanced && !is_first => Forward::Off,
            Forward::Off if !is_first => Forward::Off,
            _ => Forward::Resent,
        };
        self.cwnd = self.in_flight() + 1;
        self.recovery.phase = Phase::Loss;
        self.recovery.high_seq = self.snd_nxt;
        self.recovery.probe = None;
        self.cwr_wanted = self.has_ecn;
    }

    /// Answers whether the peer took a selective acknowledgment back.
    fn mark_overdue_lost(&mut self, cx: &mut Context) -> bool {
        // A selective acknowledgment of the head was taken back (RFC 2018, 8).
        let reneged = self.sent.head != NONE && cx.nodes.get(self.sent.head).is(SACKED);
        if reneged || !self.has_sack {
            self.recovery.sacked_out = 0;
            self.recovery.marked.clear();
        }
        let mut index = self.sent.head;
        while index != NONE {
            if reneged {
                cx.nodes.get_mut(index).flags &= !SACKED;
            }
            let node = *cx.nodes.get(index);
            // Without selective acknowledgments nothing else would show that one of the others is lost.
            let is_overdue = node.sent_us + self.recovery.rack_rtt_us <= cx.now_us;
            if is_overdue || reneged || !self.has_sack || index == self.sent.head {
                self.mark_lost(cx, index);
            }
            index = node.next;
        }
        reneged
    }

    /// Nobody waits for what becomes of it.
    fn is_left(&self) -> bool {
        self.is_orphan || self.is_abandoned
    }

    fn retries(&self, cx: &Context) -> u8 {
        if self.is_left() {
            cx.config.orphan_retries
        } else {
            cx.config.retries
        }
    }

    fn is_past_user_timeout(&self, cx: &Context) -> bool {
        self.user_timeout_left_us(cx) == Some(0)
    }

    /// What is left of the user timeout, when there is one and the peer owes an answer.
    fn user_timeout_left_us(&self, cx: &Context) -> Option<u64> {
        let limit_us = self.settings.user_timeout_us;
        let since_us = match self.state {
            State::SynSent | State::SynReceived => self.opened_us,
            _ => self.trouble_since_us,
        };
        let is_counting = limit_us > 0 && since_us > 0;
        is_counting.then(|| (since_us + limit_us).saturating_sub(cx.now_us))
    }

    /// A timer that is due when the user timeout is over rather than after it.
    fn within_user_timeout(&self, cx: &Context, wait_us: u64) -> u64 {
        let left_us = self.user_timeout_left_us(cx);
        left_us.map_or(wait_us, |left_us| wait_us.min(left_us.max(1)))
    }

    /// The peer no longer answers (RFC 9293, 3.8.3).
    fn give_up(&mut self, cx: &mut Context) {
        cx.stats.abort_on_timeout += 1;
        let error = self.soft_error.take().unwrap_or(Error::TimedOut);
        self.fail(cx, error);
    }

    /// The window is closed, a small segment was held back (RFC 9293, 3.8.6), or the device has no room for the first one.
    fn on_persist_timer(&mut self, cx: &mut Context) {
        self.retransmit = RetransmitTimer::Off;
        if self.unsent() == 0 && !self.fin_waits() || self.packets_out > 0 {
            return;
        }
        if self.snd_wnd > 0 && !self.is_refused {
            self.push_small = true;
            self.push_seq = self.tx_end();
            self.queue_output(cx);
            return;
        }
        if self.trouble_since_us == 0 {
            self.trouble_since_us = cx.now_us.max(1);
        }
        // A peer that acknowledges probes may keep its window closed for ever, except to an orphan (RFC 6429, 4).
        let is_over = self.is_left()
            && self.backoff >= cx.config.orphan_retries
            && self.rto_us(&cx.config) == cx.config.rto_max_us;
        if is_over || self.probes_out >= self.retries(cx) || self.is_past_user_timeout(cx) {
            self.give_up(cx);
            return;
        }
        self.probes_out += 1;
        self.backoff = self.backoff.saturating_add(1);
        // A segment that the device refuses is tried again anyway.
        self.probe_due |= self.snd_wnd == 0;
        cx.stats.window_probes += u64::from(self.snd_wnd == 0);
        let rto_us = self.within_user_timeout(cx, self.rto_us(&cx.config));
        self.arm(cx, RetransmitTimer::Persist, cx.now_us + rto_us);
        self.queue_output(cx);
    }

    fn keepalive_times_us(&self, cx: &Context) -> (u64, u64, u8) {
        let or = |own: u64, common: u64| if own > 0 { own } else { common };
        let settings = &self.settings;
        let probes = match settings.keepalive_probes {
            0 => cx.config.keepalive_probes,
            own => own,
        };
        let idle_us = or(settings.keepalive_idle_us, cx.config.keepalive_idle_us);
        (
            idle_us,
            or(
                settings.keepalive_interval_us,
                cx.config.keepalive_interval_us,
            ),
            probes,
        )
    }

    /// Begins to count idle time, when keepalive is on (RFC 9293, 3.8.4).
    pub fn restart_keepalive(&mut self, cx: &mut Context) {
        let on = self.settings.keepalive && self.is_synchronized();
        self.slow.keepalive_at_us = 0;
        self.slow.keepalive_probes = 0;
        if on {
            self.slow.keepalive_at_us = cx.now_us + self.keepalive_times_us(cx).0;
            cx.wheel.arm(self.index, self.slow.keepalive_at_us);
        }
    }

    fn on_keepalive_timer(&mut self, cx: &mut Context) {
        let (idle_us, interval_us, probes) = self.keepalive_times_us(cx);
        let heard_us = self.received_us.max(self.heard_us).max(self.opened_us);
        let quiet_us = cx.now_us - heard_us;
        if self.packets_out > 0 || self.unsent() > 0 || quiet_us < idle_us {
            self.slow.keepalive_probes = 0;
            let from_us = if quiet_us < idle_us {
                heard_us
            } else {
                cx.now_us
            };
            self.slow.keepalive_at_us = from_us + idle_us;
            return;
        }
        let limit_us = self.settings.user_timeout_us;
        let is_over = match limit_us {
            0 => self.slow.keepalive_probes >= probes,
            _ => self.slow.keepalive_probes > 0 && quiet_us >= limit_us,
        };
        if is_over {
            self.give_up_with_reset(cx);
            return;
        }
        cx.stats.keepalives += 1;
        self.slow.keepalive_probes += 1;
        self.probe_due = true;
        self.slow.keepalive_at_us = cx.now_us + interval_us;
        self.queue_output(cx);
    }

    /// The peer may only have forgotten the connection: a reset reminds it.
    fn give_up_with_reset(&mut self, cx: &mut Context) {
        self.reset_due = true;
        self.queue_output(cx);
        self.give_up(cx);
    }
}
