//! The SYN and its answer, and what they offer.

use crate::conn::{Conn, Context, RetransmitTimer, State};
use crate::neighbour::{Link, Out, Sent};
use crate::segment::send_bare;
use crate::sink::TxSink;
use crate::wire::tcp::{self, OptionsToSend, ACK, CWR, ECE, SYN};

impl Conn {
    /// Sends the SYN, or the SYN/ACK of crossed SYNs, when it is due. False when the device has no room.
    pub fn flush_syn<S: TxSink>(
        &mut self,
        cx: &mut Context,
        link: &mut Link,
        sink: &mut S,
    ) -> bool {
        if !self.syn_due {
            return true;
        }
        let is_answer = self.state == State::SynReceived;
        let mut flags = if is_answer { SYN | ACK } else { SYN };
        if self.has_ecn {
            flags |= if is_answer { ECE } else { ECE | CWR };
        }
        let options = self.syn_options(cx, is_answer);
        let header = tcp::Header {
            flow: self.flow,
            seq: self.iss,
            ack: if is_answer { self.rcv_nxt } else { 0 },
            flags,
            window: self.syn_window().min(0xffff) as u16,
            urgent: 0,
        };
        let (now_us, config) = (cx.now_us, &cx.config);
        let mut out = Out {
            sink,
            now_us,
            config,
            stats: &mut cx.stats,
        };
        let mut hop = self.hop;
        let sent = send_bare(
            &mut out,
            link,
            &mut hop,
            (&header, self.flow_label),
            (&options, &self.settings),
        );
        self.hop = hop;
        match sent {
            Sent::Full => {
                if self.retransmit == RetransmitTimer::Off {
                    let rto_us = self.rto_us(&cx.config);
                    self.arm(cx, RetransmitTimer::Timeout, cx.now_us + rto_us);
                }
                return false;
            }
            Sent::NoWay(error) => self.on_unreachable(cx, error),
            Sent::Done => {
                self.syn_due = false;
                let rto_us = self.rto_us(&cx.config);
                self.arm(cx, RetransmitTimer::Timeout, cx.now_us + rto_us);
                cx.stats.out_segs += 1;
            }
        }
        true
    }

    fn syn_options(&self, cx: &Context, is_answer: bool) -> OptionsToSend {
        let config = &cx.config;
        let offer = |offered: bool, accepted: bool| if is_answer { accepted } else { offered };
        let timestamps = offer(config.timestamps, self.has_timestamps);
        let scales = offer(
            config.window_scaling,
            self.rcv_scale > 0 || self.snd_scale > 0,
        );
        OptionsToSend {
            mss: Some(self.advertised_mss() as u16),
            sack_permitted: offer(config.sack, self.has_sack),
            timestamps: timestamps.then(|| (self.timestamp(cx.now_us), self.ts_recent)),
            window_scale: scales.then_some(self.rcv_scale),
            ..OptionsToSend::default()
        }
    }

    /// The MSS that we state.
    pub fn advertised_mss(&self) -> u32 {
        match self.settings.segment_max {
            0 => self.route_mss,
            own => self.route_mss.min(own),
        }
    }

    /// The first window, as Linux has it.
    pub fn syn_window(&self) -> u32 {
        let options = if self.has_timestamps {
            tcp::TIMESTAMPS_LEN as u32
        } else {
            0
        };
        let mss = self.advertised_mss().saturating_sub(options);
        whole_segments(self.rcv_limit, mss)
    }
}

/// The first window of a buffer: whole segments where it holds one, and no more than can be said unscaled.
pub fn whole_segments(limit: u32, mss: u32) -> u32 {
    let rest = if limit < mss { 0 } else { limit % mss.max(1) };
    (limit - rest).min(0xffff)
}
