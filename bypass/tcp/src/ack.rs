//! Acknowledgments from the peer (RFC 9293, 3.10.7.4, fifth; RFC 5681).

use crate::chrono::Limit;
use crate::conn::{Conn, Context, RetransmitTimer, State, WRITABLE};
use crate::hystart::Round;
use crate::loss::{Phase, Progress};
use crate::sent::NONE;
use crate::seq::{after, before};
use crate::wire::tcp::{Segment, ECE, SYN};

/// The most that a device holds back, as slow start reckons.
const BURST_US: u64 = 1_000;

impl Conn {
    /// Takes the acknowledgment, the window and the SACK blocks of a segment. The number has been
    /// checked: it is not beyond what was sent.
    #[inline]
    pub fn acknowledge(&mut self, cx: &mut Context, seg: &Segment) {
        let is_old = before(seg.ack, self.snd_una);
        // MSG_MORE holds bytes back until a segment of the peer comes, as on Linux.
        self.more_follows = false;
        let mut p = Progress {
            advanced: after(seg.ack, self.snd_una),
            echo: seg
                .options
                .timestamps
                .map(|(_, echo)| echo)
                .filter(|_| self.has_timestamps),
            // In a SYN it is the answer to the offer of ECN (RFC 3168, 6.1.1).
            congestion_echo: self.has_ecn && seg.has(ECE) && !seg.has(SYN),
            fack: (self.recovery.sacked_out > 0).then_some(self.recovery.fack),
            ..Progress::default()
        };
        let window_changed = !is_old && self.take_window(seg, p.advanced);
        p.is_duplicate = !is_old && !p.advanced && !window_changed && seg.len() == 0;
        if !p.advanced && self.packets_out == 0 {
            self.take_late_report(cx, seg, &mut p);
            self.on_idle_acknowledgment(cx, window_changed);
            return;
        }
        if self.has_sack && !seg.options.sack.is_empty() {
            self.take_sack(cx, seg, &mut p);
        }
        if p.advanced {
            self.advance_una(cx, seg.ack, &mut p);
        }
        self.take_rtt(cx, &p);
        if !is_old || p.newly_sacked > 0 {
            self.recover(cx, &p);
        }
        self.totals.delivered += p.delivered;
        let is_unwatched = self.packets_out > 0 && self.retransmit == RetransmitTimer::Off;
        if p.advanced || p.newly_sacked > 0 || is_unwatched {
            self.rearm_after_progress(cx);
        }
        if self.wants_room {
            self.note_limit(cx);
        }
        if self.unsent() > 0
            || self.recovery.lost_out > self.recovery.retrans_out
            || self.fin_waits()
        {
            self.queue_output(cx);
        }
    }

    /// Nothing is in flight: a probe was answered, or the window opened.
    fn on_idle_acknowledgment(&mut self, cx: &mut Context, window_changed: bool) {
        self.probes_out = 0;
        self.slow.keepalive_probes = 0;
        if self.snd_wnd > 0 {
            self.trouble_since_us = 0;
        }
        if self.snd_wnd > 0 && self.retransmit == RetransmitTimer::Persist {
            self.backoff = 0;
            self.retransmit = RetransmitTimer::Off;
        }
        if window_changed || self.unsent() > 0 {
            self.queue_output(cx);
        }
    }

    /// RFC 9293, 3.10.7.4: the window of the latest segment counts. Answers whether it changed.
    #[inline]
    fn take_window(&mut self, seg: &Segment, advanced: bool) -> bool {
        // That of a SYN is not scaled (RFC 7323, 2.2).
        let scale = if seg.has(SYN) { 0 } else { self.snd_scale };
        let window = u32::from(seg.window) << scale;
        let is_newer = advanced || !before(seg.seq, self.snd_wl1);
        if !is_newer {
            return false;
        }
        let changed = window != self.snd_wnd;
        self.snd_wl1 = seg.seq;
        self.snd_wnd = window;
        self.snd_wnd_max = self.snd_wnd_max.max(window);
        changed
    }

    #[inline]
    fn advance_una(&mut self, cx: &mut Context, ack: u32, p: &mut Progress) {
        self.take_acknowledged(cx, ack, p);
        let bytes = ack.wrapping_sub(self.tx_seq).min(self.tx.len() as u32);
        self.snd_una = ack;
        self.tx.consume(bytes as usize);
        self.tx_seq = self.tx_seq.wrapping_add(bytes);
        self.hop.progress_us = cx.now_us;
        self.totals.bytes_acked += u64::from(bytes);
        self.recovery.timeouts = 0;
        self.probes_out = 0;
        self.trouble_since_us = 0;
        self.slow.keepalive_probes = 0;
        self.soft_error = None;
        if self.tx.is_empty() {
            cx.pool.release(&mut self.tx);
            self.chrono.end_busy(cx.now_us);
        }
        if self.snd_up.is_some_and(|up| !after(up, ack)) {
            self.snd_up = None;
        }
        self.offer_room(cx);
    }

    /// Notifies an application that waits for room, once there is enough.
    pub fn offer_room(&mut self, cx: &mut Context) {
        if self.wants_room {
            self.tune_send_buffer(cx);
            if self.has_room() {
                self.wants_room = false;
                self.chrono.end_limit(Limit::Buffer, cx.now_us);
                self.notify(cx, WRITABLE);
            }
        }
    }

    /// The buffer holds two windows, so that the application's pauses do not empty it.
    pub fn tune_send_buffer(&mut self, cx: &Context) {
        if self.settings.has_fixed_send || cx.pool.is_short() {
            return;
        }
        let wanted = self.cwnd.saturating_mul(self.mss).saturating_mul(2);
        self.snd_limit = self.snd_limit.max(wanted.min(cx.config.send_bytes_max));
    }

    /// Karn's rule: an ambiguous segment gives no time, unless its timestamp shows which copy it was.
    #[inline]
    fn take_rtt(&mut self, cx: &Context, p: &Progress) {
        let sample_us = match (p.rtt_us, p.echo) {
            (Some(rtt), _) => rtt,
            (None, Some(echo)) if p.advanced && echo != 0 => {
                let ms = self.timestamp(cx.now_us).wrapping_sub(echo);
                if ms > 120_000 {
                    return;
                }
                u64::from(ms.max(1)) * 1_000
            }
            _ => return,
        };
        self.rtt.sample(sample_us, cx.now_us);
        self.backoff = 0;
        if self.cwnd < self.ssthresh {
            self.watch_slow_start(cx, sample_us);
        }
    }

    /// Slow start ends before it has filled the queues of the path.
    fn watch_slow_start(&mut self, cx: &Context, rtt_us: u64) {
        let window = u64::from(self.cwnd) * u64::from(self.mss);
        let burst = u64::from(cx.config.segmentation_max) * 4;
        let srtt_us = u64::from(self.rtt.srtt_us);
        let round = Round {
            snd_una: self.snd_una,
            snd_nxt: self.snd_nxt,
            rtt_us: rtt_us.min(u64::from(u32::MAX / 2)) as u32,
            burst_us: (burst * srtt_us / (2 * window).max(1)).min(BURST_US) as u32,
            now_us: cx.now_us,
        };
        if self.control.is_filled(self.cwnd, &round) {
            self.ssthresh = self.cwnd;
        }
    }

    #[inline]
    fn recover(&mut self, cx: &mut Context, p: &Progress) {
        let recovery = &self.recovery;
        let is_calm = recovery.phase == Phase::Open
            && recovery.sacked_out == 0
            && recovery.lost_out == 0
            && recovery.probe.is_none()
            && p.newly_sacked == 0
            && !p.has_duplicate
            && !p.congestion_echo;
        if is_calm && p.advanced {
            self.raise_window(cx.now_us, p.acked);
        } else {
            self.react(cx, *p);
        }
    }

    /// Whether our FIN is yet to be sent.
    #[inline]
    pub fn fin_waits(&self) -> bool {
        self.fin_queued && !self.fin_sent
    }

    fn rearm_after_progress(&mut self, cx: &mut Context) {
        if self.packets_out == 0 {
            if self.retransmit != RetransmitTimer::Persist {
                self.retransmit = RetransmitTimer::Off;
            }
            self.backoff = 0;
        } else if self.retransmit != RetransmitTimer::Reordering {
            self.rearm_retransmit(cx);
        }
    }

    /// A loss probe when one makes sense, else the timeout, counted from now.
    #[inline]
    pub fn rearm_retransmit(&mut self, cx: &mut Context) {
        self.arm_retransmit(cx, cx.now_us);
    }

    /// The same after more was sent, which does not put off a timeout of the first segment in flight (RFC 6298, 5.1).
    #[inline]
    pub fn rearm_after_send(&mut self, cx: &mut Context) {
        let first_us = match self.sent.head {
            NONE => cx.now_us,
            head => cx.nodes.get(head).sent_us,
        };
        self.arm_retransmit(cx, first_us);
    }

    #[inline]
    fn arm_retransmit(&mut self, cx: &mut Context, since_us: u64) {
        if self.packets_out == 0 {
            self.retransmit = RetransmitTimer::Off;
            return;
        }
        let rto_us = self.rto_us(&cx.config);
        match self.loss_probe_us(cx) {
            Some(probe_us) => {
                let timeout_us = (since_us + rto_us).max(cx.now_us + 1);
                let at_us = (cx.now_us + probe_us).min(timeout_us);
                self.arm(cx, RetransmitTimer::LossProbe, at_us);
            }
            None => self.arm(cx, RetransmitTimer::Timeout, cx.now_us + rto_us),
        }
    }

    /// RFC 8985, 7.2: two round trips, and time for a delayed acknowledgment of a lone segment.
    #[inline]
    fn loss_probe_us(&self, cx: &Context) -> Option<u64> {
        let recovery = &self.recovery;
        let calm = matches!(recovery.phase, Phase::Open | Phase::Reduced);
        let possible =
            self.has_sack && calm && recovery.sacked_out == 0 && recovery.probe.is_none();
        if !cx.config.loss_probe
            || !possible
            || self.rtt.srtt_us == 0
            || self.state == State::SynReceived
        {
            return None;
        }
        let slack_us = if self.packets_out == 1 {
            cx.config.rto_min_us
        } else {
            2_000
        };
        Some(u64::from(self.rtt.srtt_us) * 2 + slack_us)
    }
}
