//! State of a connection's loss recovery, and what an acknowledgment brings.

use crate::marked::Marked;

/// Where the connection stands between "all is well" and "all may be lost".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Phase {
    /// Nothing is missing.
    #[default]
    Open,
    /// Something came out of order or twice.
    Disorder,
    /// The window is being reduced without a loss (ECN).
    Reduced,
    /// Fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

/// Whether a retransmission timeout may have come too early (F-RTO: RFC 5682, 3.1, with selective acknowledgments).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Forward {
    /// No timeout, or one that is real as far as anything shows.
    #[default]
    Off,
    /// The first segment in flight was sent again, and nothing else (step 1).
    Resent,
    /// It was acknowledged: new segments leave before anything is sent again (step 2b).
    Advancing,
}

/// The state of loss recovery of a connection.
#[derive(Clone, Copy, Default)]
pub struct Recovery {
    /// See [`Phase`].
    pub phase: Phase,
    /// Segments with a selective acknowledgment; without SACK, duplicate acknowledgments.
    pub sacked_out: u32,
    /// Segments taken for lost, sent again or not.
    pub lost_out: u32,
    /// Segments sent again and not acknowledged.
    pub retrans_out: u32,
    /// Behind the last segment that was in flight when the phase began.
    pub high_seq: u32,
    /// Consecutive timeouts without progress.
    pub timeouts: u8,
    /// Most segments in flight in this window, and where the window ends.
    pub most_out: (u32, u32),
    /// Segments delivered to the peer since the reduction began (RFC 6937).
    pub prr_delivered: u32,
    /// Segments sent since then.
    pub prr_out: u32,
    /// Window before the reduction.
    pub prior_cwnd: u32,
    /// Threshold before the reduction.
    pub prior_ssthresh: u32,
    /// `snd_una` when the window was reduced: the reduction can still be undone.
    pub undo_from: Option<u32>,
    /// Retransmissions since then that were not reported as duplicates.
    pub undo_pending: Option<u32>,
    /// When the first of them was sent; zero when none.
    pub first_resent_us: u64,
    /// RACK.xmit_ts and RACK.end_seq: the latest sent segment that is known to have arrived.
    pub rack_sent_us: u64,
    /// See `rack_sent_us`.
    pub rack_end: u32,
    /// RACK.rtt: its round-trip time.
    pub rack_rtt_us: u64,
    /// See [`Forward`].
    pub forward: Forward,
    /// Highest number selectively acknowledged.
    pub fack: u32,
    /// The marked part of the scoreboard.
    pub marked: Marked,
    /// Number and place of a segment before which none waits to be sent again, as long as it is in flight.
    pub resend_from: Option<(u32, u32)>,
    /// How often segments were overtaken and arrived all the same.
    pub reorderings: u32,
    /// The most segments that overtook one; zero counts as three.
    pub reordering: u32,
    /// Size of the reordering window in quarters of the least round-trip time; zero counts as one.
    pub reordering_factor: u8,
    /// Recoveries until the factor is one again.
    pub reordering_persist: u8,
    /// The round trip in which a duplicate was already counted ends here.
    pub duplicate_round: Option<u32>,
    /// Behind the last byte when the loss probe was sent, and whether it was old data.
    pub probe: Option<(u32, bool)>,
}

impl Recovery {
    /// Nothing is in flight any more.
    pub fn forget_segments(&mut self) {
        self.sacked_out = 0;
        self.lost_out = 0;
        self.retrans_out = 0;
        self.marked.clear();
        self.resend_from = None;
    }
}

/// The news of one acknowledgment.
#[derive(Clone, Copy, Default)]
pub struct Progress {
    /// `snd_una` moved.
    pub advanced: bool,
    /// Segments acknowledged for the first time, in order or selectively.
    pub delivered: u32,
    /// Segments acknowledged in order.
    pub acked: u32,
    /// Selective acknowledgments that were new.
    pub newly_sacked: u32,
    /// Segments newly taken for lost.
    pub newly_lost: u32,
    /// Highest number selectively acknowledged before this acknowledgment, when there was one in flight.
    pub fack: Option<u32>,
    /// Lowest number that arrived after higher ones, though it was sent once.
    pub overtaken: Option<u32>,
    /// A segment arrived that was taken for lost and not sent again.
    pub original_arrived: bool,
    /// A block reported bytes received twice.
    pub has_duplicate: bool,
    /// Neither data, nor window, nor number changed (RFC 5681, 2).
    pub is_duplicate: bool,
    /// The peer echoes congestion.
    pub congestion_echo: bool,
    /// A round-trip time that is not ambiguous.
    pub rtt_us: Option<u64>,
    /// The timestamp echo of the segment.
    pub echo: Option<u32>,
}
