//! Loss recovery: RACK (RFC 8985) for peers with SACK, NewReno (RFC 6582) for the others,
//! proportional rate reduction (RFC 6937), and undo of reductions that were not needed.

use crate::congestion::Control;
use crate::conn::{Conn, Context, RetransmitTimer};
use crate::loss::{Phase, Progress, Recovery};
use crate::marked::Begin;
use crate::sent::{Node, AMBIGUOUS, LOST, NONE, RETRANSMITTED, SACKED};
use crate::seq::{after, before};

/// Duplicate acknowledgments that mean a loss (RFC 5681, 3.2).
const DUPLICATE_THRESHOLD: u32 = 3;
/// Recoveries for which a larger reordering window is kept (RFC 8985, 6.2, step 4).
const REORDERING_PERSIST: u8 = 16;

impl Conn {
    /// Segments in the network: sent, not known to have left it.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        let left = self.recovery.sacked_out + self.recovery.lost_out;
        (self.packets_out + self.recovery.retrans_out).saturating_sub(left)
    }

    /// A segment arrived: it may be the latest sent of those (RFC 8985, 6.2, step 2).
    #[inline]
    pub fn rack_advance(&mut self, now_us: u64, node: &Node, echo: Option<u32>) {
        let rtt = now_us - node.sent_us;
        if node.is(AMBIGUOUS) {
            let older_copy = echo.is_some_and(|echo| before(echo, self.timestamp(node.sent_us)));
            if older_copy || rtt < u64::from(self.rtt.min_us) {
                return;
            }
        }
        let recovery = &mut self.recovery;
        recovery.rack_rtt_us = rtt;
        if sent_after(
            node.sent_us,
            node.end,
            recovery.rack_sent_us,
            recovery.rack_end,
        ) {
            recovery.rack_sent_us = node.sent_us;
            recovery.rack_end = node.end;
        }
        if before(node.end, recovery.fack) && !node.is(AMBIGUOUS) && recovery.sacked_out > 0 {
            recovery.reordering_seen = true;
        }
    }

    /// Takes the blocks of a SACK option in (RFC 2018, 5).
    pub fn take_sack(
        &mut self,
        cx: &mut Context,
        seg: &crate::wire::tcp::Segment,
        p: &mut Progress,
    ) {
        let mut blocks = seg.options.sack_blocks().peekable();
        let mut is_first = true;
        while let Some((left, right)) = blocks.next() {
            let first = core::mem::take(&mut is_first);
            if !before(left, right) {
                continue;
            }
            let inside = |outer: &(u32, u32)| !before(left, outer.0) && !after(right, outer.1);
            if first && (!after(right, seg.ack) || blocks.peek().is_some_and(inside)) {
                self.take_duplicate(cx, left, right, p);
                continue;
            }
            if after(right, self.snd_una) && !after(right, self.snd_nxt) {
                self.mark_sacked(cx, left, right, p);
            }
        }
    }

    /// A block about bytes that arrived twice (RFC 2883): a retransmission was not needed.
    fn take_duplicate(&mut self, cx: &mut Context, left: u32, right: u32, p: &mut Progress) {
        let recovery = &mut self.recovery;
        cx.stats.dsack_recv += 1;
        p.has_duplicate = true;
        let segments = right.wrapping_sub(left).div_ceil(self.mss.max(1)).max(1);
        if let (Some(from), Some(pending)) = (recovery.undo_from, recovery.undo_pending) {
            if after(right, from) {
                recovery.undo_pending = Some(pending.saturating_sub(segments));
            }
        }
        if recovery.duplicate_round.is_none() {
            recovery.duplicate_round = Some(self.snd_nxt);
            recovery.reordering_factor = recovery.reordering_factor.max(1).saturating_add(1);
            recovery.reordering_persist = REORDERING_PERSIST;
        }
    }

    fn mark_sacked(&mut self, cx: &mut Context, left: u32, right: u32, p: &mut Progress) {
        let begin = self.recovery.marked.begin((left, right), self.snd_una);
        let mut index = match begin {
            Begin::Nowhere => return,
            Begin::At(index) => index,
            Begin::Head => self.sent.head,
        };
        let mut last = None;
        while index != NONE {
            let node = *cx.nodes.get(index);
            if !before(node.seq, right) {
                break;
            }
            if !before(node.seq, left) && !after(node.end, right) {
                if !node.is(SACKED) {
                    self.sack(cx, index, &node, p);
                }
                last = Some((node.end, index));
            }
            index = node.next;
        }
        if let Some((end, last)) = last {
            let marked = &mut self.recovery.marked;
            marked.note(left, end, last, self.snd_una);
        }
        if after(right, self.recovery.fack) {
            self.recovery.fack = right;
        }
    }

    fn sack(&mut self, cx: &mut Context, index: u32, node: &Node, p: &mut Progress) {
        self.rack_advance(cx.now_us, node, p.echo);
        if !node.is(AMBIGUOUS) {
            p.rtt_us = p.rtt_us.or(Some(cx.now_us - node.sent_us));
        }
        self.forget_loss(node);
        cx.nodes.forget_time(&mut self.sent, index);
        let kept = cx.nodes.get(index).flags & !(LOST | RETRANSMITTED);
        cx.nodes.get_mut(index).flags = kept | SACKED;
        self.recovery.sacked_out += 1;
        p.newly_sacked += 1;
        p.delivered += 1;
    }

    fn forget_loss(&mut self, node: &Node) {
        if node.is(LOST) {
            self.recovery.lost_out -= 1;
            if self.recovery.lost_out == 0 {
                self.recovery.resend_from = None;
            }
        }
        self.recovery.retrans_out -= u32::from(node.is(RETRANSMITTED));
    }

    /// Drops what is acknowledged in order from the scoreboard.
    #[inline]
    pub fn take_acknowledged(&mut self, cx: &mut Context, ack: u32, p: &mut Progress) {
        while self.sent.head != NONE {
            let node = *cx.nodes.get(self.sent.head);
            if after(node.end, ack) {
                if after(ack, node.seq) {
                    cx.nodes.get_mut(self.sent.head).seq = ack;
                }
                break;
            }
            self.packets_out -= 1;
            p.acked += 1;
            self.forget_loss(&node);
            if node.is(SACKED) {
                self.recovery.sacked_out -= 1;
                if self.recovery.sacked_out == 0 {
                    self.recovery.marked.clear();
                }
            } else {
                self.rack_advance(cx.now_us, &node, p.echo);
                p.delivered += 1;
                if !node.is(AMBIGUOUS) {
                    p.rtt_us = p.rtt_us.or(Some(cx.now_us - node.sent_us));
                }
            }
            cx.nodes.pop(&mut self.sent);
        }
        if self
            .recovery
            .duplicate_round
            .is_some_and(|round| !before(ack, round))
        {
            self.recovery.duplicate_round = None;
        }
    }

    /// What an acknowledgment means for the phase and the window.
    pub fn react(&mut self, cx: &mut Context, mut p: Progress) {
        if !self.has_sack {
            self.count_duplicates(&p);
        }
        self.finish_probe(&p);
        if self.has_sack && self.packets_out > 0 {
            p.newly_lost += self.detect_losses(cx);
        }
        let was_reduced = self.is_reducing();
        self.change_phase(cx, &mut p);
        if was_reduced && self.is_reducing() {
            self.reduce_proportionally(p.delivered, p.newly_lost, p.advanced);
        } else if !self.is_reducing() && p.advanced && p.acked > 0 {
            self.raise_window(cx.now_us, p.acked);
        }
    }

    fn is_reducing(&self) -> bool {
        matches!(self.recovery.phase, Phase::Reduced | Phase::Recovery)
    }

    /// The window grows when it was the limit (RFC 7661's reason, Linux's rule).
    #[inline]
    pub fn raise_window(&mut self, now_us: u64, acked: u32) {
        let most_out = self.recovery.most_out.0;
        let is_limited = if self.cwnd < self.ssthresh {
            self.cwnd < 2 * most_out
        } else {
            self.is_window_limited
        };
        if is_limited {
            let rtt = self.rtt.srtt_us;
            self.cwnd = self
                .control
                .grow(self.cwnd, self.ssthresh, acked, rtt, now_us);
        }
    }

    /// Without SACK a duplicate acknowledgment says that some segment has arrived.
    fn count_duplicates(&mut self, p: &Progress) {
        let recovery = &mut self.recovery;
        if p.advanced {
            recovery.sacked_out = match recovery.phase {
                Phase::Recovery => recovery
                    .sacked_out
                    .saturating_sub(p.acked.saturating_sub(1)),
                _ => 0,
            };
        } else if p.is_duplicate && self.packets_out > 0 {
            recovery.sacked_out =
                (recovery.sacked_out + 1).min(self.packets_out - recovery.lost_out);
        }
        recovery.sacked_out = recovery
            .sacked_out
            .min(self.packets_out - recovery.lost_out);
    }

    fn change_phase(&mut self, cx: &mut Context, p: &mut Progress) {
        let ended = !before(self.snd_una, self.recovery.high_seq);
        match self.recovery.phase {
            Phase::Reduced if ended && self.snd_una != self.recovery.high_seq => {
                self.end_reduction()
            }
            Phase::Recovery if ended => {
                if self.end_recovery(cx) {
                    return;
                }
            }
            Phase::Recovery if p.advanced => self.undo_partial(cx, p),
            Phase::Loss => {
                self.continue_loss(cx, p, ended);
                return;
            }
            _ => {}
        }
        if self.recovery.phase == Phase::Recovery {
            return;
        }
        self.undo_by_duplicates(cx);
        if self.is_loss_evident(cx, p) {
            self.enter_recovery(cx);
            self.reduce_proportionally(p.delivered, p.newly_lost, p.advanced);
        } else if p.congestion_echo && self.recovery.phase != Phase::Reduced {
            self.enter_reduced();
            self.reduce_proportionally(p.delivered, 0, p.advanced);
        } else if self.recovery.phase != Phase::Reduced {
            let disorder = self.recovery.sacked_out > 0 || self.recovery.lost_out > 0;
            let pending_undo =
                self.recovery.undo_from.is_some() && self.recovery.undo_pending.is_some();
            self.set_calm_phase(disorder || p.has_duplicate && pending_undo);
        }
    }

    fn set_calm_phase(&mut self, disorder: bool) {
        let phase = if disorder {
            Phase::Disorder
        } else {
            Phase::Open
        };
        if phase != self.recovery.phase {
            self.recovery.phase = phase;
            self.recovery.high_seq = self.snd_nxt;
        }
    }

    fn is_loss_evident(&mut self, cx: &mut Context, p: &mut Progress) -> bool {
        if !self.has_sack && self.recovery.sacked_out >= DUPLICATE_THRESHOLD {
            p.newly_lost += self.mark_head_lost(cx);
        }
        self.recovery.lost_out > 0
    }

    fn mark_head_lost(&mut self, cx: &mut Context) -> u32 {
        match self.sent.head {
            NONE => 0,
            head => self.mark_lost(cx, head),
        }
    }

    /// Takes a segment for lost; a retransmission of it too. Answers how many are newly lost.
    pub fn mark_lost(&mut self, cx: &mut Context, index: u32) -> u32 {
        let node = *cx.nodes.get(index);
        if node.is(LOST) && !node.is(RETRANSMITTED) || node.is(SACKED) {
            return 0;
        }
        self.recovery.lost_out += u32::from(!node.is(LOST));
        self.recovery.retrans_out -= u32::from(node.is(RETRANSMITTED));
        if self
            .recovery
            .resend_from
            .is_some_and(|(seq, _)| before(node.seq, seq))
        {
            self.recovery.resend_from = Some((node.seq, index));
        }
        cx.nodes.forget_time(&mut self.sent, index);
        let node = cx.nodes.get_mut(index);
        node.flags = node.flags & !RETRANSMITTED | LOST;
        if !self.has_sack {
            let most = self.packets_out - self.recovery.lost_out;
            self.recovery.sacked_out = self.recovery.sacked_out.min(most);
        }
        1
    }

    /// The time that a segment may be overtaken without being lost (RFC 8985, 6.2, step 4).
    fn reordering_window_us(&mut self) -> u64 {
        let recovery = &self.recovery;
        let in_recovery = recovery.phase >= Phase::Recovery;
        if !recovery.reordering_seen && (in_recovery || recovery.sacked_out >= DUPLICATE_THRESHOLD)
        {
            return 0;
        }
        let min_us = if self.rtt.min_us == u32::MAX {
            0
        } else {
            u64::from(self.rtt.min_us)
        };
        let factor = u64::from(recovery.reordering_factor.max(1));
        (min_us / 4 * factor).min(u64::from(self.rtt.srtt_us))
    }

    /// Takes segments for lost that were sent well before one that arrived (RFC 8985, 6.2, step 5).
    pub fn detect_losses(&mut self, cx: &mut Context) -> u32 {
        let window_us = self.reordering_window_us();
        let (mut lost, mut wait_us) = (0, 0);
        let mut index = self.sent.oldest;
        while index != NONE {
            let node = *cx.nodes.get(index);
            let Recovery {
                rack_sent_us,
                rack_end,
                rack_rtt_us,
                ..
            } = self.recovery;
            if !sent_after(rack_sent_us, rack_end, node.sent_us, node.end) {
                break;
            }
            let deadline = node.sent_us + rack_rtt_us + window_us;
            if deadline <= cx.now_us {
                lost += self.mark_lost(cx, index);
            } else {
                wait_us = wait_us.max(deadline - cx.now_us);
            }
            index = node.newer;
        }
        if wait_us > 0 {
            self.arm(cx, RetransmitTimer::Reordering, cx.now_us + wait_us);
        } else if self.retransmit == RetransmitTimer::Reordering {
            self.retransmit = RetransmitTimer::Off;
        }
        lost
    }

    /// The reordering timer fired: what was waited for is lost.
    pub fn on_reordering_timer(&mut self, cx: &mut Context) {
        self.retransmit = RetransmitTimer::Off;
        let lost = self.detect_losses(cx);
        if lost > 0 && self.recovery.phase < Phase::Recovery {
            self.enter_recovery(cx);
            self.reduce_proportionally(0, lost, false);
        } else if lost > 0 && self.recovery.phase == Phase::Recovery {
            self.reduce_proportionally(0, lost, false);
        }
        if self.retransmit == RetransmitTimer::Off {
            self.rearm_retransmit(cx);
        }
    }

    fn remember_for_undo(&mut self) {
        self.recovery.undo_from = Some(self.snd_una);
        self.recovery.undo_pending =
            (self.recovery.retrans_out > 0).then_some(self.recovery.retrans_out);
        self.recovery.prior_cwnd = self.cwnd;
        self.recovery.prior_ssthresh = match self.recovery.phase {
            Phase::Reduced | Phase::Recovery => self.ssthresh,
            _ => self.ssthresh.max(self.cwnd / 4 * 3),
        };
    }

    fn enter_recovery(&mut self, cx: &mut Context) {
        if self.has_sack {
            cx.stats.sack_recovery += 1;
        } else {
            cx.stats.reno_recovery += 1;
        }
        if self.recovery.phase != Phase::Reduced {
            self.begin_reduction();
        } else {
            self.recovery.undo_from = Some(self.snd_una);
        }
        self.recovery.phase = Phase::Recovery;
        self.recovery.high_seq = self.snd_nxt;
        self.recovery.reordering_persist = self.recovery.reordering_persist.saturating_sub(1);
        if self.recovery.reordering_persist == 0 {
            self.recovery.reordering_factor = 1;
        }
        self.queue_output(cx);
    }

    fn begin_reduction(&mut self) {
        self.remember_for_undo();
        self.recovery.prr_delivered = 0;
        self.recovery.prr_out = 0;
        self.recovery.probe = None;
        self.ssthresh = self.control.threshold_after_loss(self.cwnd);
        self.cwr_wanted = self.has_ecn;
    }

    /// The peer echoes congestion (RFC 3168, 6.1.2): reduce once a window.
    fn enter_reduced(&mut self) {
        self.begin_reduction();
        self.recovery.undo_from = None;
        self.recovery.phase = Phase::Reduced;
        self.recovery.high_seq = self.snd_nxt;
    }

    /// Proportional rate reduction (RFC 6937, 3, with the slow start bound).
    fn reduce_proportionally(&mut self, delivered: u32, newly_lost: u32, advanced: bool) {
        if delivered == 0 && newly_lost == 0 && self.recovery.prr_out > 0 {
            return;
        }
        let in_flight = self.in_flight();
        let recovery = &mut self.recovery;
        recovery.prr_delivered += delivered;
        let allowed = if in_flight > self.ssthresh {
            let share = u64::from(self.ssthresh) * u64::from(recovery.prr_delivered);
            let share = share.div_ceil(u64::from(recovery.prior_cwnd.max(1))) as u32;
            share.saturating_sub(recovery.prr_out)
        } else {
            let bound = recovery
                .prr_delivered
                .saturating_sub(recovery.prr_out)
                .max(delivered);
            let grow = u32::from(advanced && newly_lost == 0);
            (bound + grow).min(self.ssthresh - in_flight)
        };
        // The first retransmission is never held back.
        self.cwnd = in_flight + allowed.max(u32::from(recovery.prr_out == 0));
    }

    /// A segment left while the window is being reduced.
    #[inline]
    pub fn count_sent(&mut self) {
        if self.is_reducing() {
            self.recovery.prr_out += 1;
        }
    }

    fn end_reduction(&mut self) {
        if self.ssthresh < u32::MAX
            && (self.recovery.phase == Phase::Reduced || self.recovery.undo_from.is_some())
        {
            self.cwnd = self.ssthresh;
        }
        self.recovery.phase = Phase::Open;
    }

    /// Everything that was in flight at the begin of fast recovery has arrived. True when the phase
    /// is kept for a while.
    fn end_recovery(&mut self, cx: &mut Context) -> bool {
        if self.may_undo() {
            self.undo(cx, false);
            cx.stats.full_undo += 1;
        } else if !self.has_sack && self.snd_una == self.recovery.high_seq {
            return true; // RFC 6582, 4: old duplicates must not start another recovery
        } else {
            self.end_reduction();
        }
        if !self.has_sack {
            self.recovery.sacked_out = 0;
        }
        self.recovery.phase = Phase::Open;
        self.recovery.undo_from = None;
        self.recovery.first_resent_us = 0;
        false
    }

    fn undo_partial(&mut self, cx: &mut Context, p: &mut Progress) {
        if self.recovery.undo_from.is_some() && self.was_only_delayed(p.echo) {
            self.undo(cx, true);
            cx.stats.full_undo += 1;
            self.recovery.phase = Phase::Open;
        } else if !self.has_sack {
            // A partial acknowledgment: the next segment is lost too (RFC 6582, 3.2, step 3).
            p.newly_lost += self.mark_head_lost(cx);
        }
    }

    fn undo_by_duplicates(&mut self, cx: &mut Context) {
        if self.recovery.undo_from.is_some() && self.recovery.undo_pending == Some(0) {
            self.undo(cx, false);
            cx.stats.dsack_undo += 1;
        }
    }

    fn continue_loss(&mut self, cx: &mut Context, p: &mut Progress, ended: bool) {
        if p.advanced
            && self.recovery.undo_from.is_some()
            && (self.was_only_delayed(p.echo) || self.may_undo())
        {
            self.undo(cx, true);
            cx.stats.full_undo += 1;
            self.recovery.phase = Phase::Open;
            self.recovery.first_resent_us = 0;
        } else if ended {
            self.recovery.phase = Phase::Open;
            self.recovery.first_resent_us = 0;
            self.recovery.sacked_out *= u32::from(self.has_sack);
        }
    }

    fn may_undo(&self) -> bool {
        self.recovery.undo_from.is_some() && self.recovery.undo_pending == Some(0)
    }

    /// The echo is older than the first retransmission: the original has arrived (RFC 3522).
    fn was_only_delayed(&self, echo: Option<u32>) -> bool {
        let first = self.recovery.first_resent_us;
        first > 0 && echo.is_some_and(|echo| echo != 0 && before(echo, self.timestamp(first)))
    }

    fn undo(&mut self, cx: &mut Context, unmark: bool) {
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
        let mut index = self.sent.head;
        while index != NONE {
            let node = *cx.nodes.get(index);
            if node.is(LOST) {
                self.forget_loss(&node);
                cx.nodes.get_mut(index).flags &= !(LOST | RETRANSMITTED);
                let sent_us = node.sent_us;
                cx.nodes.resend(&mut self.sent, index, sent_us);
            }
            index = node.next;
        }
    }

    /// The retransmission timeout: everything without a selective acknowledgment is taken for lost
    /// (RFC 6298, 5.4 to 5.7; RFC 5681, 3.1, equation 4).
    pub fn enter_loss(&mut self, cx: &mut Context) {
        let is_new = self.recovery.phase <= Phase::Disorder
            || !after(self.recovery.high_seq, self.snd_una)
            || self.recovery.phase == Phase::Loss && self.recovery.timeouts == 0;
        if is_new {
            self.remember_for_undo();
            self.ssthresh = self.control.threshold_after_loss(self.cwnd);
            self.control.restart();
        } else {
            self.recovery.undo_from = Some(self.snd_una);
        }
        self.mark_all_lost(cx);
        self.cwnd = self.in_flight() + 1;
        self.recovery.phase = Phase::Loss;
        self.recovery.high_seq = self.snd_nxt;
        self.recovery.probe = None;
        self.cwr_wanted = self.has_ecn;
    }

    fn mark_all_lost(&mut self, cx: &mut Context) {
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
            self.mark_lost(cx, index);
            index = cx.nodes.get(index).next;
        }
    }

    /// A segment is sent again now.
    pub fn note_resent(&mut self, cx: &mut Context, index: u32) {
        let now_us = cx.now_us;
        cx.nodes.resend(&mut self.sent, index, now_us);
        let node = cx.nodes.get_mut(index);
        self.recovery.retrans_out += u32::from(!node.is(RETRANSMITTED));
        node.flags |= RETRANSMITTED | AMBIGUOUS;
        if self.recovery.first_resent_us == 0 {
            self.recovery.first_resent_us = now_us;
        }
        self.recovery.undo_pending = Some(self.recovery.undo_pending.unwrap_or(0) + 1);
        self.totals.retransmitted += 1;
        cx.stats.retrans_segs += 1;
    }

    /// Whether the tail loss probe was answered, and what that says (RFC 8985, 7.4).
    fn finish_probe(&mut self, p: &Progress) {
        let Some((end, is_retransmission)) = self.recovery.probe else {
            return;
        };
        if before(self.snd_una, end) {
            return;
        }
        if !is_retransmission || p.has_duplicate {
            self.recovery.probe = None;
        } else if after(self.snd_una, end) || p.advanced {
            // The probe repaired a loss: reduce as for any loss, at once.
            self.begin_reduction();
            self.cwnd = self.ssthresh;
            self.recovery.undo_from = None;
        } else if p.is_duplicate {
            self.recovery.probe = None;
        }
    }

    /// A fresh congestion state for a new connection.
    pub fn start_congestion(&mut self, cx: &Context) {
        self.cwnd = cx.config.initial_window;
        self.ssthresh = u32::MAX;
        let algorithm = self.settings.congestion.unwrap_or(cx.config.congestion);
        self.control = Control::new(algorithm);
        self.recovery.fack = self.snd_una;
    }
}

/// RACK_sent_after: later by time, or by number when sent at the same time.
#[inline]
fn sent_after(a_us: u64, a_end: u32, b_us: u64, b_end: u32) -> bool {
    a_us > b_us || a_us == b_us && after(a_end, b_end)
}
