//! Loss recovery: RACK (RFC 8985, `rack`) for peers with SACK, NewReno (RFC 6582) for the others,
//! F-RTO after a timeout (RFC 5682), and proportional rate reduction (RFC 6937).

use crate::congestion::Control;
use crate::conn::{Conn, Context};
use crate::loss::{Forward, Phase, Progress};
use crate::marked::Begin;
use crate::sent::{Node, AMBIGUOUS, LOST, NONE, RETRANSMITTED, SACKED};
use crate::seq::{after, before};
use crate::wire::tcp::Segment;

/// Duplicate acknowledgments that mean a loss (RFC 5681, 3.2).
pub const DUPLICATE_THRESHOLD: u32 = 3;
/// Recoveries for which a larger reordering window is kept (RFC 8985, 6.2, step 4).
const REORDERING_PERSIST: u8 = 16;

impl Conn {
    /// Segments in the network: sent, not known to have left it.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        let left = self.recovery.sacked_out + self.recovery.lost_out;
        (self.packets_out + self.recovery.retrans_out).saturating_sub(left)
    }

    /// Takes the blocks of a SACK option in (RFC 2018, 5).
    pub fn take_sack(&mut self, cx: &mut Context, seg: &Segment, p: &mut Progress) {
        if self.recovery.sacked_out == 0 {
            // A mark of long ago would look like a later number, half of their space on.
            self.recovery.fack = self.snd_una;
        }
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
        let Some(mut index) = self.find_block(cx, left, right) else {
            return;
        };
        let (mut first, mut last) = (None, None);
        while index != NONE {
            let node = *cx.nodes.get(index);
            if !before(node.seq, right) {
                break;
            }
            if before(node.seq, left) || after(node.end, right) {
                index = node.next;
                continue;
            }
            first = first.or(Some(index));
            last = Some((node.end, index));
            index = match node.is(SACKED) {
                false => {
                    self.sack(cx, index, &node, p);
                    node.next
                }
                true => {
                    let end = cx.nodes.end_of_run(index, &mut cx.stats.sack_steps);
                    let of_end = *cx.nodes.get(end);
                    if !after(of_end.end, right) {
                        last = Some((of_end.end, end));
                    }
                    of_end.next
                }
            };
        }
        if let (Some(first), Some((end, last))) = (first, last) {
            let marked = &mut self.recovery.marked;
            marked.note((left, end), (first, last), self.snd_una);
        }
        if after(right, self.recovery.fack) {
            self.recovery.fack = right;
        }
    }

    /// The segment that the first unmarked byte of a block lies in, or one shortly before it: looked for from the nearest
    /// known places on both sides alternately, so that blocks in whatever order cost little. None: all of it is marked.
    fn find_block(&self, cx: &mut Context, left: u32, right: u32) -> Option<u32> {
        let marked = &self.recovery.marked;
        let mut ahead = match marked.begin((left, right), self.snd_una) {
            Begin::Nowhere => return None,
            Begin::At(index) => index,
            Begin::Head => self.sent.head,
        };
        let mut behind = marked
            .next_behind(left, self.snd_una)
            .unwrap_or(self.sent.tail);
        if ahead == NONE {
            return None;
        }
        loop {
            cx.stats.sack_steps += 1;
            ahead = match step_forwards(cx, ahead, (left, right)) {
                Step::On(index) => index,
                Step::Found(found) => return found,
            };
            let node = cx.nodes.get(behind);
            if before(node.seq, left) || node.previous == NONE {
                return Some(behind);
            }
            behind = node.previous;
        }
    }

    fn sack(&mut self, cx: &mut Context, index: u32, node: &Node, p: &mut Progress) {
        self.rack_advance(cx.now_us, node, p.echo);
        Conn::note_overtaken(node, p);
        if !node.is(AMBIGUOUS) {
            p.rtt_us = p.rtt_us.or(Some(cx.now_us - node.sent_us));
            p.original_arrived |= node.is(LOST);
        }
        self.forget_loss(node);
        cx.nodes.mark(&mut self.sent, index);
        self.recovery.sacked_out += 1;
        p.newly_sacked += 1;
        p.delivered += 1;
    }

    /// The marks of a segment that is out of the scoreboard, or in flight again, count no longer.
    pub fn forget_loss(&mut self, node: &Node) {
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
        let (mut rtt_us, mut has_resent) = (None, false);
        while self.sent.head != NONE {
            let node = *cx.nodes.get(self.sent.head);
            if after(node.end, ack) {
                if after(ack, node.seq) {
                    cx.nodes.get_mut(self.sent.head).seq = ack;
                    if !node.is(SACKED) {
                        self.recovery.marked.exclude(node.end);
                    }
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
                Conn::note_overtaken(&node, p);
                p.delivered += 1;
                if !node.is(AMBIGUOUS) {
                    rtt_us = rtt_us.or(Some(cx.now_us - node.sent_us));
                    p.original_arrived |= node.is(LOST);
                }
            }
            has_resent |= node.is(AMBIGUOUS);
            cx.nodes.pop(&mut self.sent);
        }
        // Segments behind a hole were acknowledged when it was filled, not when they arrived.
        p.rtt_us = p.rtt_us.or(rtt_us.filter(|_| !has_resent));
        if self
            .recovery
            .duplicate_round
            .is_some_and(|round| !before(ack, round))
        {
            self.recovery.duplicate_round = None;
        }
    }

    /// Adapts phase and window to an acknowledgment.
    pub fn react(&mut self, cx: &mut Context, mut p: Progress) {
        if !self.has_sack {
            self.count_duplicates(&mut p);
        }
        if let Some(low) = p.overtaken.filter(|_| self.has_sack) {
            self.note_reordering(low);
        }
        self.finish_probe(cx, &p);
        if self.has_sack && self.packets_out > 0 {
            p.newly_lost += self.detect_losses(cx);
        }
        let was_reduced = self.is_reducing();
        self.change_phase(cx, &mut p);
        if was_reduced && self.is_reducing() {
            self.reduce_proportionally(p.delivered, p.newly_lost, p.advanced);
        } else if !self.is_reducing() && p.advanced && p.acked > 0 {
            // Segments that duplicate acknowledgments had announced were counted then.
            self.raise_window(cx.now_us, p.delivered);
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
            let path_us = match self.rtt.min_us {
                u32::MAX => 0,
                known => known,
            };
            self.cwnd = self
                .control
                .grow(self.cwnd, self.ssthresh, acked, path_us, now_us);
        }
    }

    /// Without SACK a duplicate acknowledgment says that some segment has arrived, and one that advances
    /// that the hole is filled, and what had arrived behind it.
    fn count_duplicates(&mut self, p: &mut Progress) {
        let recovery = &mut self.recovery;
        if p.advanced {
            p.delivered = p.acked.saturating_sub(recovery.sacked_out);
            p.delivered = p.delivered.max(p.acked.min(1));
            recovery.sacked_out = match recovery.phase {
                Phase::Recovery => recovery
                    .sacked_out
                    .saturating_sub(p.acked.saturating_sub(1)),
                _ => 0,
            };
        } else if p.is_duplicate && self.packets_out > recovery.sacked_out + recovery.lost_out {
            recovery.sacked_out += 1;
            p.delivered += 1;
        }
        recovery.sacked_out = recovery
            .sacked_out
            .min(self.packets_out - recovery.lost_out);
    }

    #[allow(
        clippy::collapsible_match,
        reason = "a guard that ends the recovery would be read over"
    )]
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
                let is_early = self.continue_loss(cx, p, ended);
                if !is_early || !self.has_sack {
                    return;
                }
                // Some of what is in flight again may be lost all the same.
                p.newly_lost += self.detect_losses(cx);
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

    /// Takes the oldest segment for lost.
    pub fn mark_head_lost(&mut self, cx: &mut Context) -> u32 {
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

    /// Fast recovery begins.
    pub fn enter_recovery(&mut self, cx: &mut Context) {
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
    pub fn reduce_proportionally(&mut self, delivered: u32, newly_lost: u32, advanced: bool) {
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
        // A report of what arrived twice may still come, and undo the reduction (RFC 3708).
        self.recovery.phase = Phase::Open;
        self.recovery.first_resent_us = 0;
        false
    }

    /// An acknowledgment after a timeout. Answers whether it shows that the timeout came too early: it is undone.
    fn continue_loss(&mut self, cx: &mut Context, p: &mut Progress, ended: bool) -> bool {
        let was_delayed = p.advanced
            && self.recovery.undo_from.is_some()
            && (self.was_only_delayed(p.echo) || self.may_undo());
        let is_early = was_delayed || self.go_forward(p, ended);
        if is_early {
            self.undo(cx, true);
            cx.stats.full_undo += u64::from(was_delayed);
            cx.stats.spurious_timeouts += u64::from(!was_delayed);
        } else if ended {
            self.recovery.sacked_out *= u32::from(self.has_sack);
        }
        if is_early || ended {
            self.recovery.phase = Phase::Open;
            self.recovery.first_resent_us = 0;
            self.recovery.forward = Forward::Off;
        }
        is_early
    }

    /// F-RTO (RFC 5682, 3.1). Answers whether the timeout came too early: of what it took for lost something arrived
    /// that was not sent again, and not everything, which a segment that fills the only hole acknowledges too.
    fn go_forward(&mut self, p: &Progress, ended: bool) -> bool {
        let has_news = p.advanced || p.newly_sacked > 0 || p.is_duplicate;
        if self.recovery.forward == Forward::Off || !has_news {
            return false;
        }
        let sent_new = after(self.snd_nxt, self.recovery.high_seq);
        // Without selective acknowledgments what arrived before the timeout may be taken for lost.
        if p.original_arrived && !ended && (self.has_sack || sent_new) {
            return true;
        }
        self.recovery.forward = Forward::Off;
        if p.advanced && !ended && !sent_new {
            self.recovery.forward = Forward::Advancing;
            self.recovery.high_seq = self.snd_nxt;
        }
        false
    }

    /// A segment is sent again now.
    pub fn note_resent(&mut self, cx: &mut Context, index: u32) {
        let now_us = cx.now_us;
        cx.nodes.resend(&mut self.sent, index, now_us);
        let is_alone = self.recovery.retrans_out == 0 && self.recovery.phase < Phase::Recovery;
        if is_alone || self.recovery.first_resent_us == 0 {
            self.recovery.first_resent_us = now_us;
        }
        let node = cx.nodes.get_mut(index);
        self.recovery.retrans_out += u32::from(!node.is(RETRANSMITTED));
        node.flags |= RETRANSMITTED | AMBIGUOUS;
        self.recovery.undo_pending = Some(self.recovery.undo_pending.unwrap_or(0) + 1);
        self.totals.retransmitted += 1;
        cx.stats.retrans_segs += 1;
    }

    /// Whether the tail loss probe was answered, and what that says (RFC 8985, 7.4).
    fn finish_probe(&mut self, cx: &mut Context, p: &Progress) {
        let Some((end, is_retransmission)) = self.recovery.probe else {
            return;
        };
        if before(self.snd_una, end) {
            return;
        }
        let both_arrived = p.has_duplicate || p.is_duplicate && p.newly_sacked == 0;
        if !is_retransmission || both_arrived {
            self.recovery.probe = None;
        } else if after(self.snd_una, end) {
            // The probe repaired a loss: reduce as for any loss, at once.
            cx.stats.loss_probe_recovery += 1;
            self.begin_reduction();
            self.cwnd = self.ssthresh;
            self.recovery.undo_from = None;
        }
    }

    /// Nothing is in flight: a report about what arrived twice may still come.
    pub fn take_late_report(&mut self, cx: &mut Context, seg: &Segment, p: &mut Progress) {
        if self.has_sack && !seg.options.sack.is_empty() {
            self.take_sack(cx, seg, p);
        }
        self.finish_probe(cx, p);
        if p.has_duplicate {
            self.undo_by_duplicates(cx);
        }
    }

    /// A fresh congestion state for a new connection.
    pub fn start_congestion(&mut self, cx: &Context, syn_timeouts: u8) {
        // A lost SYN or SYN/ACK is a sign of congestion (RFC 5681, 3.1), but a single timeout may only mean that the path
        // is longer than a second (RFC 6928, 2; Linux's tcp_init_transfer).
        self.cwnd = match syn_timeouts {
            0 | 1 => cx.config.initial_window,
            _ => 1,
        };
        self.ssthresh = u32::MAX;
        let algorithm = self.settings.congestion.unwrap_or(cx.config.congestion);
        self.control = Control::new(algorithm);
        self.recovery.fack = self.snd_una;
    }
}
/// A step on the way to a block.
enum Step {
    On(u32),
    /// See [`Conn::find_block`].
    Found(Option<u32>),
}

/// From a segment that does not begin behind a block, past a whole run where it is marked.
fn step_forwards(cx: &mut Context, mut index: u32, (left, right): (u32, u32)) -> Step {
    let mut node = *cx.nodes.get(index);
    if !after(node.end, left) && node.is(SACKED) {
        index = cx.nodes.end_of_run(index, &mut cx.stats.sack_steps);
        node = *cx.nodes.get(index);
        if !before(node.end, right) {
            return Step::Found(None);
        }
    }
    match after(node.end, left) || node.next == NONE {
        true => Step::Found(Some(index)),
        false => Step::On(node.next),
    }
}
