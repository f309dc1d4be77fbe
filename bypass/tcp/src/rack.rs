//! RACK (RFC 8985): what was sent well before a segment that arrived is lost.

use crate::conn::{Conn, Context, RetransmitTimer};
use crate::loss::{Forward, Phase, Progress, Recovery};
use crate::recovery::DUPLICATE_THRESHOLD;
use crate::sent::{Node, AMBIGUOUS, NONE};
use crate::seq::{after, before, distance};

/// The most that is remembered (as Linux's tcp_max_reordering).
const REORDERING_MAX: u32 = 300;
/// Segments that may only be reordered of which the last deadline is looked for: a window may hold thousands, and each
/// acknowledgment looks again.
const WAITING_MAX: u32 = 32;

impl Conn {
    /// A segment arrived: it may be the latest sent of those (RFC 8985, 6.2, step 2).
    #[inline]
    pub fn rack_advance(&mut self, now_us: u64, node: &Node, echo: Option<u32>) {
        let rtt = now_us - node.sent_us;
        if node.is(AMBIGUOUS) {
            let older_copy = echo.is_some_and(|echo| before(echo, self.timestamp(node.sent_us)));
            // After a timeout that may have come too early, the acknowledgment may be for the first copy.
            let is_open = self.recovery.forward != Forward::Off;
            if older_copy || is_open || rtt < u64::from(self.rtt.min_us) {
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
    }

    /// A segment arrived that was sent once: were others faster? (RFC 8985, 6.2, step 3.)
    #[inline]
    pub fn note_overtaken(node: &Node, p: &mut Progress) {
        let is_late = p.fack.is_some_and(|fack| before(node.seq, fack));
        if is_late && !node.is(AMBIGUOUS) && p.overtaken.is_none_or(|low| before(node.seq, low)) {
            p.overtaken = Some(node.seq);
        }
    }

    /// Remembers that the network reorders, and how far.
    pub fn note_reordering(&mut self, low: u32) {
        let recovery = &mut self.recovery;
        let ahead = distance(low, recovery.fack).div_ceil(self.mss.max(1));
        recovery.reorderings += 1;
        recovery.reordering = recovery.reordering.max(ahead.min(REORDERING_MAX));
    }

    /// The time that a segment may be overtaken without being lost (RFC 8985, 6.2, step 4).
    fn reordering_window_us(&mut self) -> u64 {
        let recovery = &self.recovery;
        let in_recovery = recovery.phase >= Phase::Recovery;
        if recovery.reorderings == 0 && (in_recovery || recovery.sacked_out >= DUPLICATE_THRESHOLD)
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
        let (mut lost, mut wait_us, mut waiting) = (0, 0, 0);
        let mut index = self.sent.oldest;
        while index != NONE {
            let node = *cx.nodes.get(index);
            cx.stats.sack_steps += 1;
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
                waiting += 1;
            }
            if waiting == WAITING_MAX {
                // The others were sent later, and before what arrived: none of them is lost yet.
                wait_us = rack_sent_us + rack_rtt_us + window_us - cx.now_us;
                break;
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
        // In recovery the window stays: what was lost leaves room in it, and nothing else may be under way whose
        // acknowledgment would make some (as Linux's tcp_rack_reo_timeout).
        if lost > 0 && self.recovery.phase < Phase::Recovery {
            self.enter_recovery(cx);
            // One counts as delivered, as in Linux: after a reduction for ECN nothing else would let the first leave.
            self.reduce_proportionally(1, lost, false);
        }
        if self.retransmit == RetransmitTimer::Off {
            self.rearm_retransmit(cx);
        }
    }
}

/// RACK_sent_after: later by time, or by number when sent at the same time.
#[inline]
fn sent_after(a_us: u64, a_end: u32, b_us: u64, b_end: u32) -> bool {
    a_us > b_us || a_us == b_us && after(a_end, b_end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tcp::{Flow, Options, Segment, ACK};
    use crate::{Config, Engine};

    /// Nothing else is in flight whose acknowledgment would make room for it.
    #[test]
    fn segments_that_the_timer_finds_lost_during_a_recovery_are_sent_again_at_once() {
        let mut cx = Engine::new(Config::default(), 0).cx;
        cx.now_us = 1_000_000;
        let mut conn = Conn {
            has_sack: true,
            snd_una: 1,
            snd_nxt: 4_001,
            mss: 1_000,
            packets_out: 4,
            cwnd: 4,
            ssthresh: 4,
            ..Conn::default()
        };
        for seq in [1, 1_001, 2_001, 3_001] {
            cx.nodes.push(&mut conn.sent, (seq, seq + 1_000), 0, 0);
        }
        let recovery = &mut conn.recovery;
        (recovery.phase, recovery.high_seq) = (Phase::Recovery, 4_001);
        (
            recovery.prior_cwnd,
            recovery.prr_delivered,
            recovery.prr_out,
        ) = (8, 4, 4);
        // One that was sent later has arrived.
        (
            recovery.rack_sent_us,
            recovery.rack_end,
            recovery.rack_rtt_us,
        ) = (1_000, 4_001, 50_000);
        conn.on_reordering_timer(&mut cx);
        assert_eq!(conn.recovery.lost_out, 4);
        assert!(conn.cwnd > conn.in_flight(), "it waits for a timeout");
    }

    /// The window is being reduced already, because the peer has echoed congestion, and all that left since is lost.
    #[test]
    fn segments_that_the_timer_finds_lost_while_the_window_is_reduced_are_sent_again_at_once() {
        let mut cx = Engine::new(Config::default(), 0).cx;
        cx.now_us = 1_000_000;
        let mut conn = Conn {
            has_sack: true,
            snd_una: 1,
            snd_nxt: 4_001,
            mss: 1_000,
            packets_out: 4,
            cwnd: 4,
            ssthresh: 4,
            ..Conn::default()
        };
        for seq in [1, 1_001, 2_001, 3_001] {
            cx.nodes.push(&mut conn.sent, (seq, seq + 1_000), 0, 0);
        }
        let recovery = &mut conn.recovery;
        (recovery.phase, recovery.high_seq) = (Phase::Reduced, 4_001);
        (
            recovery.prior_cwnd,
            recovery.prr_delivered,
            recovery.prr_out,
        ) = (8, 4, 4);
        (
            recovery.rack_sent_us,
            recovery.rack_end,
            recovery.rack_rtt_us,
        ) = (1_000, 4_001, 50_000);
        conn.on_reordering_timer(&mut cx);
        assert_eq!(conn.recovery.lost_out, 4);
        assert!(conn.cwnd > conn.in_flight(), "it waits for a timeout");
    }

    #[test]
    fn a_mark_of_two_gigabytes_ago_does_not_count_as_reordering() {
        let mut cx = Engine::new(Config::default(), 0).cx;
        let mut conn = Conn {
            has_sack: true,
            snd_una: 1,
            snd_nxt: 2_001,
            mss: 1_000,
            packets_out: 2,
            ..Conn::default()
        };
        for seq in [1, 1_001] {
            cx.nodes.push(&mut conn.sent, (seq, seq + 1_000), 0, 0);
        }
        conn.recovery.fack = 0x7000_0000;
        let mut sack = [0; 8];
        sack[..4].copy_from_slice(&1_001u32.to_be_bytes());
        sack[4..].copy_from_slice(&2_001u32.to_be_bytes());
        let segment = Segment {
            flow: Flow::default(),
            seq: 0,
            ack: 1,
            flags: ACK,
            window: 0,
            urgent: 0,
            ecn: 0,
            options: Options {
                sack: &sack,
                ..Options::default()
            },
            payload: &[],
        };
        conn.take_sack(&mut cx, &segment, &mut Progress::default());
        assert_eq!((conn.recovery.sacked_out, conn.recovery.fack), (1, 2_001));
    }
}
