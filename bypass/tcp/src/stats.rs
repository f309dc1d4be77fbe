//! Counters under the names of `/proc/net/netstat` and `/proc/net/snmp`.

/// Declares the counters once: the struct, and the list that prints it.
macro_rules! counters {
    ($($(#[$text:meta])* $field:ident $name:literal,)*) => {
        /// Events since the engine was made.
        #[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$text])* pub $field: u64,)*
        }

        impl Stats {
            /// Every counter with its MIB name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Connections opened by this side.
    active_opens "ActiveOpens",
    /// Connections opened by the other side.
    passive_opens "PassiveOpens",
    /// Attempts that failed.
    attempt_fails "AttemptFails",
    /// Established connections that ended by a reset.
    estab_resets "EstabResets",
    /// Segments received.
    in_segs "InSegs",
    /// Segments sent, without retransmissions.
    out_segs "OutSegs",
    /// Segments sent again.
    retrans_segs "RetransSegs",
    /// Frames dropped because a header or checksum was wrong.
    in_errs "InErrs",
    /// Resets sent.
    out_rsts "OutRsts",
    /// SYN cookies sent.
    syncookies_sent "SyncookiesSent",
    /// SYN cookies that came back right.
    syncookies_recv "SyncookiesRecv",
    /// SYN cookies that came back wrong.
    syncookies_failed "SyncookiesFailed",
    /// Connections that waited out TIME_WAIT.
    time_waited "TW",
    /// TIME_WAIT entries reused by a new SYN.
    time_wait_recycled "TWRecycled",
    /// TIME_WAIT entries dropped because the table was full.
    time_wait_overflow "TCPTimeWaitOverflow",
    /// Segments refused for an old timestamp.
    paws_estab "PAWSEstab",
    /// Acknowledgments that were delayed.
    delayed_acks "DelayedACKs",
    /// SYNs dropped because the accept queue was full.
    listen_overflows "ListenOverflows",
    /// SYNs dropped for any reason.
    listen_drops "ListenDrops",
    /// Segments handled by header prediction.
    hp_hits "TCPHPHits",
    /// Fast recoveries with selective acknowledgments.
    sack_recovery "TCPSackRecovery",
    /// Fast recoveries without.
    reno_recovery "TCPRenoRecovery",
    /// Retransmissions found unnecessary by duplicate selective acknowledgments.
    dsack_undo "TCPDSACKUndo",
    /// Whole windows found delayed, not lost.
    full_undo "TCPFullUndo",
    /// Retransmission timeouts found to have come too early (RFC 5682).
    spurious_timeouts "TCPSpuriousRTOs",
    /// Retransmission timeouts.
    timeouts "TCPTimeouts",
    /// Tail loss probes sent.
    loss_probes "TCPLossProbes",
    /// Losses that a tail loss probe repaired.
    loss_probe_recovery "TCPLossProbeRecovery",
    /// Segments sent again by fast recovery.
    fast_retrans "TCPFastRetrans",
    /// Segments sent again by a retransmission timeout.
    slow_start_retrans "TCPSlowStartRetrans",
    /// Segments looked at to find those of selective acknowledgments, and which are lost by them.
    sack_steps "TCPSackSteps",
    /// Duplicate selective acknowledgments sent.
    dsack_sent "TCPDSACKOldSent",
    /// Duplicate selective acknowledgments received.
    dsack_recv "TCPDSACKRecv",
    /// Segments kept out of order.
    ofo_queued "TCPOFOQueue",
    /// Segments dropped because no memory was left for them.
    rcv_pruned "RcvPruned",
    /// Challenge acknowledgments sent (RFC 5961).
    challenge_acks "TCPChallengeACK",
    /// SYNs in a window that were answered by a challenge.
    syn_challenges "TCPSYNChallenge",
    /// Keepalive probes sent.
    keepalives "TCPKeepAlive",
    /// Zero-window probes sent.
    window_probes "TCPWinProbe",
    /// Connections given up after too many timeouts.
    abort_on_timeout "TCPAbortOnTimeout",
    /// Connections reset because data came after close.
    abort_on_data "TCPAbortOnData",
    /// Connections reset because they were closed with unread bytes.
    abort_on_close "TCPAbortOnClose",
    /// Connections refused or reset because a limit was reached.
    abort_on_memory "TCPAbortOnMemory",
    /// Path MTU reports that lowered a path.
    mtu_reductions "TCPMTUReduced",
    /// ICMP errors that fit no connection or no sequence number in flight.
    icmp_out_of_window "OutOfWindowIcmps",
    /// Packets for which no neighbour could be found.
    neighbour_failures "NeighbourFailures",
    /// Segments that left with congestion experienced echoed.
    ecn_echoes "TCPECNEchoes",
}
