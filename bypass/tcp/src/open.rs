//! Passive opens in the engine: SYN, half-open entry or cookie, connection.

use crate::config::Ecn;
use crate::conn::State;
use crate::demux::Entry;
use crate::engine::Engine;
use crate::input::may_answer_invalid;
use crate::isn::{options_from_clock, options_into_clock, Kept};
use crate::listen::HalfOpen;
use crate::seq::{after, before};
use crate::sink::TxSink;
use crate::wire::tcp::{self, Options, OptionsToSend, Segment, ACK, CWR, ECE, RST, SYN};

/// Time before a SYN/ACK is sent again the first time.
const RESEND_US: u64 = 1_000_000;

impl Engine {
    /// A SYN for a listener.
    pub(crate) fn on_syn<S: TxSink>(
        &mut self,
        listener: u32,
        seg: &Segment,
        iss: Option<u32>,
        sink: &mut S,
    ) {
        if seg.flow.remote_port() == 0 || seg.has(tcp::FIN) {
            return;
        }
        let Some(entry) = self.half_open_from(listener, seg, iss) else {
            return;
        };
        let state = &self.listeners.slab[listener];
        if state.is_full() {
            self.cx.stats.listen_overflows += 1;
            self.cx.stats.listen_drops += 1;
            return;
        }
        let most = state.backlog.min(self.cx.config.half_open_of_listener_max);
        let is_crowded = state.half_open >= most || self.half_opens.slab.is_full();
        // A cookie could lie before the numbers that it has to begin behind.
        if is_crowded && iss.is_none() {
            self.answer_with_cookie(entry, seg, sink);
            return;
        }
        let Some(index) = self.half_opens.slab.take(HalfOpen::default) else {
            self.cx.stats.listen_drops += 1;
            return;
        };
        let resend_at_us = self.cx.now_us + RESEND_US;
        self.half_opens.slab[index] = HalfOpen {
            resend_at_us,
            ..entry
        };
        self.half_opens.wheel.arm(index, resend_at_us);
        self.listeners.slab[listener].half_open += 1;
        let hash = self.demux.hash(&seg.flow);
        self.demux.insert(hash, Entry::HalfOpen(index));
        self.send_syn_ack(&entry, sink);
    }

    fn half_open_from(&self, listener: u32, seg: &Segment, iss: Option<u32>) -> Option<HalfOpen> {
        let config = &self.cx.config;
        let flow = seg.flow;
        let default_mss = if flow.remote.is_v4() { 536 } else { 1_220 };
        let asks_ecn = seg.flags & (ECE | CWR) == ECE | CWR && config.ecn != Ecn::Off;
        let mut kept = Kept::from_syn(&seg.options, default_mss, asks_ecn);
        kept.has_sack &= config.sack;
        kept.window_scale = kept.window_scale.filter(|_| config.window_scaling);
        let timestamps = seg.options.timestamps.filter(|_| config.timestamps);
        Some(HalfOpen {
            flow,
            irs: seg.seq,
            iss: iss.unwrap_or_else(|| self.numbers.initial_sequence(&flow, self.cx.now_us)),
            ts_recent: timestamps.map_or(0, |(value, _)| value),
            ts_offset: self.numbers.timestamp_offset(&flow),
            listener,
            listener_generation: self.listeners.slab[listener].generation,
            kept,
            has_timestamps: timestamps.is_some(),
            retries: 0,
            is_repeated: false,
            losses: 0,
            is_answered: false,
            opened_us: self.cx.now_us,
            resend_at_us: 0,
            challenged_us: 0,
        })
    }

    /// No entry is kept: the number says what must be known when the acknowledgment comes.
    fn answer_with_cookie<S: TxSink>(&mut self, mut entry: HalfOpen, seg: &Segment, sink: &mut S) {
        if !self.cx.config.syn_cookies {
            self.cx.stats.listen_drops += 1;
            return;
        }
        if !entry.has_timestamps {
            // Without timestamps nothing can carry the other options.
            entry.kept = Kept {
                mss: entry.kept.mss,
                ..Kept::default()
            };
        }
        let now_us = self.cx.now_us;
        entry.iss = self
            .numbers
            .cookie(&seg.flow, seg.seq, entry.kept.mss, now_us);
        self.half_opens.cookies_us = Some(now_us);
        self.cx.stats.syncookies_sent += 1;
        let clock_ms = options_into_clock((now_us / 1_000) as u32, &entry.kept);
        self.send_syn_ack_at(&entry, clock_ms, sink);
    }

    fn send_syn_ack<S: TxSink>(&mut self, entry: &HalfOpen, sink: &mut S) {
        self.send_syn_ack_at(entry, (self.cx.now_us / 1_000) as u32, sink);
    }

    fn send_syn_ack_at<S: TxSink>(&mut self, entry: &HalfOpen, clock_ms: u32, sink: &mut S) {
        let kept = &entry.kept;
        let options = OptionsToSend {
            mss: Some(self.stated_mss(entry) as u16),
            window_scale: kept.window_scale.map(|_| self.receive_scale(entry)),
            sack_permitted: kept.has_sack,
            timestamps: entry
                .has_timestamps
                .then(|| (clock_ms.wrapping_add(entry.ts_offset), entry.ts_recent)),
            ..OptionsToSend::default()
        };
        let header = tcp::Header {
            flow: entry.flow,
            seq: entry.iss,
            ack: entry.irs.wrapping_add(1),
            flags: SYN | ACK | if kept.has_ecn { ECE } else { 0 },
            window: self.first_window(entry) as u16,
            urgent: 0,
        };
        let settings = self.listeners.slab[entry.listener].settings;
        self.cx.stats.out_segs += 1;
        self.send_alone(&header, (&options, &settings), sink);
    }

    fn receive_scale(&self, entry: &HalfOpen) -> u8 {
        let settings = &self.listeners.slab[entry.listener].settings;
        settings.receive_scale(&self.cx.config)
    }

    /// The MSS that we state.
    fn stated_mss(&self, entry: &HalfOpen) -> u32 {
        let mtu = self.cx.config.mtu;
        let mss = self.link.routes.stated_mss(entry.flow.remote, mtu);
        match self.listeners.slab[entry.listener].settings.segment_max {
            0 => mss,
            own => mss.min(own),
        }
    }

    /// The window of the SYN/ACK, which holds until there is a connection.
    fn first_window(&self, entry: &HalfOpen) -> u32 {
        let mss = self.stated_mss(entry);
        let options = if entry.has_timestamps {
            tcp::TIMESTAMPS_LEN as u32
        } else {
            0
        };
        let settings = &self.listeners.slab[entry.listener].settings;
        let limit = match settings.receive_bytes {
            0 => self.cx.config.receive_bytes,
            own => own,
        };
        crate::syn::whole_segments(limit, mss.saturating_sub(options))
    }

    /// A segment for a half-open connection (RFC 9293, 3.10.7.4, SYN-RECEIVED).
    pub(crate) fn on_half_open_segment<S: TxSink>(
        &mut self,
        index: u32,
        seg: &Segment,
        sink: &mut S,
    ) {
        let entry = self.half_opens.slab[index];
        let next = entry.irs.wrapping_add(1);
        if seg.has(SYN) && !seg.has(ACK | RST) && seg.seq == entry.irs {
            // Sent again, or by somebody who would have us send to another host.
            if self.may_answer_half_open(index) {
                self.half_opens.slab[index].is_repeated = true;
                self.send_syn_ack(&entry, sink);
            }
            return;
        }
        let is_old = seg
            .options
            .timestamps
            .is_some_and(|(value, _)| before(value, entry.ts_recent));
        let window = self.first_window(&entry);
        let edge = next.wrapping_add(window);
        // RFC 5961, 3.2: a reset at the edge is outside.
        let is_outside =
            before(seg.end(), next) || after(seg.seq, edge) || seg.has(RST) && seg.seq == edge;
        if is_outside || entry.has_timestamps && is_old {
            let has_bytes = !seg.payload.is_empty() && !seg.has(SYN);
            if !seg.has(RST) && (has_bytes || self.may_answer_half_open(index)) {
                self.send_half_open_ack(&entry, sink);
            }
            return;
        }
        if seg.has(RST) {
            if seg.seq == next {
                self.cx.stats.attempt_fails += 1;
                self.remove_half_open(index);
            } else if self.may_answer_half_open(index) && self.cx.may_challenge() {
                self.cx.stats.challenge_acks += 1;
                self.send_half_open_ack(&entry, sink);
            }
            return;
        }
        if seg.has(SYN) {
            if self.may_answer_half_open(index) && self.cx.may_challenge() {
                self.cx.stats.challenge_acks += 1;
                self.send_half_open_ack(&entry, sink);
            }
        } else if seg.has(ACK) {
            if seg.ack == entry.iss.wrapping_add(1) {
                self.complete(index, entry, seg, sink);
            } else if self.is_cookie(seg) {
                // Sent before there was a place for the entry, which the same SYN, sent again, has found.
                self.remove_half_open(index);
                self.on_cookie(entry.listener, seg, sink);
            } else {
                self.send_reset_for(seg, sink);
            }
        }
    }

    fn may_answer_half_open(&mut self, index: u32) -> bool {
        let entry = &mut self.half_opens.slab[index];
        let pause_us = self.cx.config.invalid_pause_us;
        may_answer_invalid(&mut entry.challenged_us, self.cx.now_us, pause_us)
    }

    fn send_half_open_ack<S: TxSink>(&mut self, entry: &HalfOpen, sink: &mut S) {
        let clock_ms = ((self.cx.now_us / 1_000) as u32).wrapping_add(entry.ts_offset);
        let timestamps = entry.has_timestamps.then_some((clock_ms, entry.ts_recent));
        let header = tcp::Header {
            flow: entry.flow,
            seq: entry.iss.wrapping_add(1),
            ack: entry.irs.wrapping_add(1),
            flags: ACK,
            window: self.first_window(entry) as u16,
            urgent: 0,
        };
        let options = OptionsToSend {
            timestamps,
            ..OptionsToSend::default()
        };
        let settings = self.listeners.slab[entry.listener].settings;
        self.send_alone(&header, (&options, &settings), sink);
    }

    /// The third segment of the handshake: the entry becomes a connection, if the accept queue has
    /// a place. If not, the segment is dropped, and the SYN/ACK will be sent again.
    fn complete<S: TxSink>(&mut self, index: u32, entry: HalfOpen, seg: &Segment, sink: &mut S) {
        self.half_opens.slab[index].is_answered = true;
        let listener = &self.listeners.slab[entry.listener];
        if listener.settings.defer_accept && seg.payload.is_empty() && !seg.has(tcp::FIN) {
            return;
        }
        if listener.is_full() {
            self.cx.stats.listen_overflows += 1;
            return;
        }
        if self.conns.is_full() {
            self.cx.stats.abort_on_memory += 1;
            return;
        }
        self.remove_half_open(index);
        self.establish(&entry, seg, sink);
    }

    fn establish<S: TxSink>(&mut self, entry: &HalfOpen, seg: &Segment, sink: &mut S) {
        let Some(index) = self.new_conn(entry.flow) else {
            return;
        };
        let hash = self.demux.hash(&entry.flow);
        self.demux.insert(hash, Entry::Connection(index));
        let receive_scale = self.receive_scale(entry);
        let settings = self.listeners.slab[entry.listener].settings;
        let window = self.first_window(entry);
        let Engine {
            cx,
            conns,
            listeners,
            ..
        } = self;
        let conn = &mut conns[index];
        conn.settings = settings;
        conn.apply_buffer_settings();
        conn.set_unsent_low(&cx.config);
        let options = Options {
            mss: Some(entry.kept.mss),
            window_scale: entry.kept.window_scale,
            sack_permitted: entry.kept.has_sack,
            timestamps: entry.has_timestamps.then_some((entry.ts_recent, 0)),
            sack: &[],
        };
        let syn = Segment {
            seq: entry.irs,
            flags: SYN,
            options,
            payload: &[],
            ..*seg
        };
        conn.rcv_scale = receive_scale;
        conn.take_syn(cx, &syn);
        conn.rcv_edge = conn.rcv_nxt.wrapping_add(window);
        conn.has_ecn = entry.kept.has_ecn;
        conn.iss = entry.iss;
        conn.snd_una = entry.iss.wrapping_add(1);
        conn.snd_nxt = conn.snd_una;
        conn.tx_seq = conn.snd_una;
        conn.unit_from = conn.snd_una;
        conn.push_seq = conn.snd_una;
        conn.small_seq = conn.snd_una;
        conn.recovery.high_seq = conn.snd_una;
        conn.opened_us = entry.opened_us;
        conn.listener = entry.listener;
        conn.is_unaccepted = true;
        conn.state = State::Established;
        if !entry.is_repeated && entry.opened_us > 0 {
            conn.rtt.sample(cx.now_us - entry.opened_us, cx.now_us);
        }
        conn.recovery.timeouts = entry.losses;
        conn.open(cx, seg);
        cx.stats.passive_opens += 1;
        let listener = &mut listeners.slab[entry.listener];
        listener.queue.push_back(index);
        if !listener.in_ready {
            listener.in_ready = true;
            self.ready_listeners.push(entry.listener);
        }
        self.on_conn_segment(index, seg, sink);
    }

    pub(crate) fn remove_half_open(&mut self, index: u32) {
        let entry = self.half_opens.slab[index];
        let hash = self.demux.hash(&entry.flow);
        self.demux.remove(hash, Entry::HalfOpen(index));
        self.half_opens.wheel.disarm(index);
        self.half_opens.slab.give(index);
        let listener = &mut self.listeners.slab[entry.listener];
        if listener.generation == entry.listener_generation {
            listener.half_open -= 1;
        }
    }

    /// The SYN/ACK was not acknowledged in time.
    pub(crate) fn on_half_open_timer<S: TxSink>(&mut self, index: u32, sink: &mut S) {
        let entry = &mut self.half_opens.slab[index];
        if entry.resend_at_us > self.cx.now_us {
            let at_us = entry.resend_at_us;
            self.half_opens.wheel.arm(index, at_us);
            return;
        }
        let is_closed = self.listeners.slab[entry.listener].generation != entry.listener_generation;
        if is_closed || entry.retries >= self.cx.config.syn_ack_retries {
            self.cx.stats.attempt_fails += 1;
            self.remove_half_open(index);
            return;
        }
        entry.retries += 1;
        entry.is_repeated = true;
        entry.losses += u8::from(!entry.is_answered);
        entry.resend_at_us = self.cx.now_us + (RESEND_US << entry.retries);
        let entry = *entry;
        self.half_opens.wheel.arm(index, entry.resend_at_us);
        self.cx.stats.retrans_segs += 1;
        self.send_syn_ack(&entry, sink);
    }

    /// Whether a segment that begins a stream acknowledges one of our cookies.
    pub(crate) fn is_cookie(&self, seg: &Segment) -> bool {
        self.half_opens.may_be_cookie(self.cx.now_us) && self.size_in_cookie(seg).is_some()
    }

    /// The MSS that the acknowledged cookie keeps, when it is one.
    fn size_in_cookie(&self, seg: &Segment) -> Option<u16> {
        let (irs, iss) = (seg.seq.wrapping_sub(1), seg.ack.wrapping_sub(1));
        self.numbers
            .check_cookie(&seg.flow, irs, iss, self.cx.now_us)
    }

    /// An acknowledgment for a listener without an entry: one of our cookies comes back? True when
    /// the segment is dealt with.
    pub(crate) fn on_cookie<S: TxSink>(
        &mut self,
        listener: u32,
        seg: &Segment,
        sink: &mut S,
    ) -> bool {
        if !self.half_opens.may_be_cookie(self.cx.now_us) {
            return false;
        }
        let (irs, iss) = (seg.seq.wrapping_sub(1), seg.ack.wrapping_sub(1));
        let Some(mss) = self.size_in_cookie(seg) else {
            self.cx.stats.syncookies_failed += 1;
            return false;
        };
        self.cx.stats.syncookies_recv += 1;
        let state = &self.listeners.slab[listener];
        if state.is_full() || self.conns.is_full() {
            self.cx.stats.listen_overflows += 1;
            return true;
        }
        let Some(mut entry) = self.half_open_from(listener, seg, Some(iss)) else {
            return true;
        };
        let ts_offset = entry.ts_offset;
        entry.kept = match seg.options.timestamps {
            Some((_, echo)) => options_from_clock(echo.wrapping_sub(ts_offset)),
            None => Kept::default(),
        };
        entry.kept.mss = mss;
        entry.irs = irs;
        entry.opened_us = 0;
        self.establish(&entry, seg, sink);
        true
    }
}
