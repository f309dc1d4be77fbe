//! Dialogues about what goes wrong on the way: probes, timeouts, undone reductions, shut windows.

mod support;

use bypass_tcp::{Config, Route};
use support::config;
use support::dialogue::{play, play_with, Dialogue, ACCEPTED};

fn accepted(script: &str) -> Dialogue {
    play(&format!("{ACCEPTED}{script}"))
}

fn windows(dialogue: &mut Dialogue) -> (u32, u32) {
    let handle = dialogue.handle.expect("a connection");
    let info = dialogue.engine.info(handle).expect("an open handle");
    (info.cwnd, info.ssthresh)
}

/// Two segments, of which the second is sent again as a probe.
const PROBED: &str = "
send 2000
> . 1:1001 ack 1
> P. 1001:2001 ack 1
+50ms
> P. 1001:2001 ack 1
< . 1:1 ack 2001 win 65535
";

/// RFC 8985, 7.4.2: the probe says nothing about a loss before more than it is acknowledged.
#[test]
fn a_loss_probe_that_was_not_needed_costs_nothing() {
    for report in [" <nop,nop,sack 1001:2001>", ""] {
        let mut dialogue = accepted(PROBED);
        assert_eq!(windows(&mut dialogue).1, u32::MAX);
        dialogue.play(&format!(
            "< . 1:1 ack 2001 win 65535{report}
            send 1000
            > P. 2001:3001 ack 1
            +10ms
            < . 1:1 ack 3001 win 65535"
        ));
        let (cwnd, ssthresh) = windows(&mut dialogue);
        assert!(cwnd >= 10 && ssthresh == u32::MAX, "{report:?}: {cwnd}");
        assert_eq!(dialogue.engine.stats().loss_probe_recovery, 0);
    }
}

#[test]
fn a_loss_that_the_probe_repaired_cuts_the_window_once() {
    let mut dialogue = accepted(PROBED);
    for from in [2001, 3001] {
        let to = from + 1000;
        dialogue.play(&format!(
            "send 1000
            > P. {from}:{to} ack 1
            +10ms
            < . 1:1 ack {to} win 65535"
        ));
        assert_eq!(windows(&mut dialogue).1, 7);
    }
    assert_eq!(dialogue.engine.stats().loss_probe_recovery, 1);
}

/// The echo shows that the acknowledged bytes had been sent before the timeout. A probe of long ago does not count.
#[test]
fn a_timeout_that_came_too_early_is_undone_after_an_older_probe_too() {
    let mut dialogue = play(
        "listen
        < S 0:0 win 65535 <mss 1012,sackOK,TS 1 0>
        > S. 0:0 ack 1
        +10ms
        < . 1:1 ack 1 win 65535 <nop,nop,TS 2 last>
        accept
        send 1000
        > P. 1:1001 ack 1
        +225ms
        > P. 1:1001 ack 1
        < . 1:1 ack 1001 win 65535 <nop,nop,TS 3 last>
        +1ms
        < . 1:1 ack 1001 win 65535 <nop,nop,TS 3 last,nop,nop,sack 1:1001>
        set nodelay
        send 1000
        > P. 1001:2001 ack 1",
    );
    // What is sent again meanwhile is not looked at: the last timestamp seen is the first copy's.
    dialogue.play_loosely("+800ms");
    assert_eq!(dialogue.engine.stats().timeouts, 1);
    assert_eq!(windows(&mut dialogue).0, 1);
    dialogue.play_loosely("< . 1:1 ack 2001 win 65535 <nop,nop,TS 4 last>");
    assert!(windows(&mut dialogue).0 >= 10);
}

/// As Linux's tcp_rtx_probe0_timed_out: retransmissions into a shut window are probes.
#[test]
fn a_peer_that_shuts_its_window_before_what_is_in_flight_and_answers_is_not_given_up() {
    let brief = Config {
        rto_max_us: 1_000_000,
        ..config(1)
    };
    let mut dialogue = play_with(
        brief,
        &format!(
            "{ACCEPTED}send 1000
            > P. 1:1001 ack 1
            < . 1:1 ack 1 win 0"
        ),
    );
    for _ in 0..40 {
        dialogue.play_loosely("+1s\n< . 1:1 ack 1 win 0");
    }
    dialogue.play("state Established");
    dialogue.play_loosely("+30s");
    dialogue.play("error timed out");
}

/// What is beyond the window the peer would drop, acknowledgment included (Linux's tcp_acceptable_seq).
#[test]
fn acknowledgments_stay_within_a_window_that_was_shut_before_what_is_in_flight() {
    accepted(
        "send 1000
        > P. 1:1001 ack 1
        < . 1:1 ack 1 win 500
        < P. 1:11 ack 1 win 500
        > . 501:501 ack 11
        < . 11:11 ack 1 win 0
        < P. 11:21 ack 1 win 0
        > . 1:1 ack 21
        < . 21:21 ack 1001 win 500
        < P. 21:31 ack 1001 win 500
        > . 1001:1001 ack 31",
    );
}

/// RFC 9293, 3.8.6, SHLD-16: it would drop them.
#[test]
fn lost_segments_beyond_a_window_that_was_shut_before_them_wait_until_it_opens() {
    accepted(
        "send 6000
        > . 1:1001 ack 1
        > . 1001:2001 ack 1
        > . 2001:3001 ack 1
        > . 3001:4001 ack 1
        > . 4001:5001 ack 1
        > P. 5001:6001 ack 1
        +10ms
        < . 1:1 ack 1 win 1500 <nop,nop,sack 3001:6001>
        > . 1:1001 ack 1
        > . 1001:1501 ack 1
        +10ms
        < . 1:1 ack 1501 win 65535 <nop,nop,sack 3001:6001>
        > . 1501:2001 ack 1
        > . 2001:3001 ack 1
        +10ms
        < . 1:1 ack 6001 win 65535",
    );
}

#[test]
fn a_tail_beyond_a_window_that_was_shut_before_it_is_not_a_loss_probe() {
    accepted(
        "send 3000
        > . 1:1001 ack 1
        > . 1001:2001 ack 1
        > P. 2001:3001 ack 1
        < . 1:1 ack 1 win 1500
        wait 190ms
        +110ms
        > . 1:1001 ack 1
        < . 1:1 ack 3001 win 65535",
    );
}

/// A peer with unread bytes drops what goes beyond its window, as Linux does.
#[test]
fn a_first_segment_that_a_shrunk_window_does_not_hold_is_cut_at_its_edge() {
    accepted(
        "send 1000
        > P. 1:1001 ack 1
        < . 1:1 ack 1 win 400
        wait 190ms
        +110ms
        > . 1:401 ack 1
        < . 1:1 ack 401 win 65535
        > P. 401:1001 ack 1
        < . 1:1 ack 1001 win 65535",
    );
}

/// As Linux's icsk_probes_tstamp: answers that leave the window shut do not count as progress.
/// Segments of a host that knows the ends of the connection but not its numbers show nothing about the peer.
#[test]
fn segments_outside_the_window_do_not_put_keepalive_off() {
    accepted(
        "set keepalive 10 5 1
        wait 5s
        < . 99999999:99999999 ack 1 win 65535
        > . 1:1 ack 1
        wait 4900ms
        +200ms
        > . 0:0 ack 1
        +5s
        > R. 1:1 ack 1
        error timed out",
    );
}

/// RFC 1191, 6.3: a path that has become wider is found again.
#[test]
fn a_path_is_tried_with_larger_packets_after_ten_minutes() {
    let mut dialogue = play(ACCEPTED);
    dialogue.play("send 1000\n> P. 1:1001 ack 1");
    dialogue.play_loosely("icmp toobig 600 seq 1");
    let path_mtu = |dialogue: &mut Dialogue| {
        let handle = dialogue.handle.expect("a connection");
        dialogue
            .engine
            .info(handle)
            .expect("an open handle")
            .path_mtu
    };
    assert_eq!(path_mtu(&mut dialogue), 600);
    dialogue.play_loosely("+100ms");
    dialogue.play("< . 1:1 ack 1001 win 65535");
    dialogue.play_loosely("+599s");
    assert_eq!(path_mtu(&mut dialogue), 600);
    dialogue.play_loosely("+2s");
    dialogue.play_loosely("send 1000");
    assert_eq!(path_mtu(&mut dialogue), 1500);
}

/// As on Linux: not only connections that begin later have the maximum of a route that has changed.
#[test]
fn open_connections_follow_the_maximum_of_their_route() {
    let mut dialogue = play(ACCEPTED);
    let route = |mtu| Route {
        network: "10.0.0.0".parse().unwrap(),
        prefix_len: 24,
        gateway: None,
        mtu,
        mss: 0,
        source: None,
        hops: 0,
    };
    dialogue.engine.set_routes(&[route(600)]);
    dialogue.play(
        "send 1000
        > . 1:561 ack 1
        > P. 561:1001 ack 1
        +10ms
        < . 1:1 ack 1001 win 65535",
    );
    dialogue.engine.set_routes(&[route(0)]);
    dialogue.play("send 1000\n> P. 1001:2001 ack 1");
    // What is on its way is sent again in smaller segments.
    dialogue.engine.set_routes(&[route(600)]);
    dialogue.play("+1us\n> . 1001:1561 ack 1\n> P. 1561:2001 ack 1");
}

#[test]
fn the_user_timeout_ends_a_connection_whose_peer_only_keeps_its_window_shut() {
    let mut dialogue = accepted(
        "set usertimeout 3000
        < . 1:1 ack 1 win 0
        send 100",
    );
    for _ in 0..9 {
        dialogue.play_loosely("+300ms\n< . 1:1 ack 1 win 0");
    }
    dialogue.play("state Established");
    dialogue.play_loosely("+1s");
    dialogue.play("error timed out");
}

#[test]
fn keepalive_probes_an_idle_peer_and_gives_up_with_a_reset() {
    accepted(
        "set keepalive 10 5 2
        wait 9900ms
        +200ms
        > . 0:0 ack 1
        < . 1:1 ack 1 win 65535
        wait 9900ms
        +200ms
        > . 0:0 ack 1
        +5s
        > . 0:0 ack 1
        +5s
        > R. 1:1 ack 1
        error timed out",
    );
}

#[test]
fn the_user_timeout_ends_a_connection_that_makes_no_progress() {
    accepted(
        "set usertimeout 3000
        send 10
        > P. 1:11 ack 1
        +300ms
        > P. 1:11 ack 1
        +300ms
        > P. 1:11 ack 1
        +600ms
        > P. 1:11 ack 1
        +1200ms
        > P. 1:11 ack 1
        +3s
        error timed out",
    );
}

/// RFC 7323, 4.3: the echo is that of the first segment that the acknowledgment is for.
#[test]
fn a_delayed_acknowledgment_echoes_the_timestamp_of_the_first_segment() {
    play(
        "listen
        < S 0:0 win 65535 <mss 1012,sackOK,TS 100 0>
        > S. 0:0 ack 1
        +10ms
        < . 1:1 ack 1 win 65535 <nop,nop,TS 101 last>
        accept
        < P. 1:11 ack 1 win 65535 <nop,nop,TS 102 last>
        > . 1:1 ack 11 <nop,nop,TS 102>
        recv 10
        send 10
        > P. 1:11 ack 11 <nop,nop,TS 102>
        < P. 11:21 ack 11 win 65535 <nop,nop,TS 200 last>
        +5ms
        < P. 21:31 ack 11 win 65535 <nop,nop,TS 205 last>
        +50ms
        > . 11:11 ack 31 <nop,nop,TS 200>
        < P. 31:41 ack 11 win 65535 <nop,nop,TS 300 last>
        +50ms
        > . 11:11 ack 41 <nop,nop,TS 300>",
    );
}

/// RFC 7323, 5.5: an old timestamp is replaced, whatever its successor is.
#[test]
fn a_timestamp_of_a_month_ago_gives_way_to_a_lower_one() {
    play(
        "listen
        < S 0:0 win 65535 <mss 1012,sackOK,TS 500 0>
        > S. 0:0 ack 1
        < . 1:1 ack 1 win 65535 <nop,nop,TS 600 last>
        accept
        +2600000s
        < P. 1:11 ack 1 win 65535 <nop,nop,TS 50 last>
        > . 1:1 ack 11 <nop,nop,TS 50>
        < P. 11:21 ack 1 win 65535 <nop,nop,TS 49 last>
        > . 1:1 ack 11",
    );
}

/// RFC 6298, 5.7: no round trip was measured, and the SYN/ACK seemed lost.
#[test]
fn after_a_repeated_handshake_the_first_timeout_is_three_seconds() {
    play(
        "listen
        < S 0:0 win 65535 <mss 1000,sackOK>
        > S. 0:0 ack 1
        +1010ms
        > S. 0:0 ack 1
        < . 1:1 ack 1 win 65535
        accept
        send 10
        > P. 1:11 ack 1
        wait 2990ms
        +20ms
        > P. 1:11 ack 1",
    );
    play(
        "connect
        > S 0:0
        +1010ms
        > S 0:0
        < S. 0:0 ack 1 win 65535 <mss 1000,sackOK>
        > . 1:1 ack 1
        send 10
        > P. 1:11 ack 1
        wait 2990ms
        +20ms
        > P. 1:11 ack 1",
    );
}

/// RFC 5681, 3.1, and RFC 6928, 2, on both sides: a single timeout is not a sign. Where the listener waits for data nothing
/// was lost.
#[test]
fn a_connection_whose_handshake_was_lost_twice_begins_with_one_segment() {
    for (again, expected) in [(1, 10), (2, 1)] {
        let resent = |syn: &str| -> String {
            let of_one = |time: u32| format!("+{}ms\n> {syn}\n", 1_010 << time);
            (0..again).map(of_one).collect()
        };
        let passive = format!(
            "listen
            < S 0:0 win 65535 <mss 1000,sackOK>
            > S. 0:0 ack 1
            {}< . 1:1 ack 1 win 65535
            accept",
            resent("S. 0:0 ack 1")
        );
        let active = format!(
            "connect
            > S 0:0
            {}< S. 0:0 ack 1 win 65535 <mss 1000,sackOK>
            > . 1:1 ack 1",
            resent("S 0:0")
        );
        for script in [passive, active] {
            assert_eq!(windows(&mut play(&script)).0, expected);
        }
    }
    let deferred = "listen
        set defer
        < S 0:0 win 65535 <mss 1000,sackOK>
        > S. 0:0 ack 1
        < . 1:1 ack 1 win 65535
        +1010ms
        > S. 0:0 ack 1
        +2020ms
        > S. 0:0 ack 1
        < P. 1:11 ack 1 win 65535
        > . 1:1 ack 11
        accept";
    assert_eq!(windows(&mut play(deferred)).0, 10);
}

/// RFC 6298, 3: which of two SYN/ACKs was acknowledged is not known, also where a repeated SYN had the second one sent.
#[test]
fn a_syn_ack_that_was_sent_again_gives_no_round_trip_time() {
    let mut dialogue = play(
        "listen
        < S 0:0 win 65535 <mss 1000,sackOK>
        > S. 0:0 ack 1
        +600ms
        < S 0:0 win 65535 <mss 1000,sackOK>
        > S. 0:0 ack 1
        +10ms
        < . 1:1 ack 1 win 65535
        accept",
    );
    let handle = dialogue.handle.expect("a connection");
    let info = dialogue.engine.info(handle).expect("an open handle");
    assert_eq!(info.rtt_us, 0);
}

/// RFC 6298, 3: nor does an acknowledgment that waited for a segment that was sent again, of those behind it.
#[test]
fn segments_behind_a_hole_give_no_round_trip_time_when_it_is_filled() {
    let mut dialogue = play(
        "listen
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        +10ms
        < . 1:1 ack 1 win 65535
        accept",
    );
    dialogue.play_loosely(
        "send 5000
        +10ms
        < . 1:1 ack 1 win 65535
        < . 1:1 ack 1 win 65535
        < . 1:1 ack 1 win 65535
        +100ms
        < . 1:1 ack 5001 win 65535",
    );
    assert_eq!(dialogue.engine.stats().retrans_segs, 1);
    let handle = dialogue.handle.expect("a connection");
    let info = dialogue.engine.info(handle).expect("an open handle");
    assert_eq!(info.rtt_us, 10_000);
}

/// A full segment, sent again or as a probe, leaves no room for them: the device would refuse the frame.
#[test]
fn what_is_sent_again_carries_only_the_selective_acknowledgments_that_fit() {
    for (offer, options, beside, blocks) in [
        ("nop,nop,sackOK", "", "", " 5001:5002 3001:3002"),
        (
            "sackOK,TS 1 0",
            "nop,nop,TS 2 last",
            "nop,nop,TS,",
            " 5001:5002",
        ),
    ] {
        let mss = if options.is_empty() { 1_460 } else { 1_448 };
        let (next, end) = (mss + 1, 2 * mss + 1);
        let mut dialogue = play(&format!(
            "listen
            < S 0:0 win 65535 <mss 1460,{offer}>
            > S. 0:0 ack 1
            +10ms
            < . 1:1 ack 1 win 65535 <{options}>
            accept
            send {}
            > . 1:{next} ack 1
            > P. {next}:{end} ack 1",
            2 * mss
        ));
        for at in [1001, 3001, 5001, 7001, 9001] {
            dialogue.play(&format!(
                "< . {at}:{} ack 1 win 65535 <{options}>
                > . {end}:{end} ack 1",
                at + 1
            ));
        }
        let bare = beside.trim_end_matches(',');
        dialogue.play(&format!(
            "# the loss probe, then the timeout
            +100ms
            > P. {next}:{end} ack 1 <{bare}>
            +250ms
            > . 1:{next} ack 1 <{bare}>
            < . 1:1 ack {end} win 65535 <{options}>
            # where there is room they are reported
            send 10
            > P. {end}:{} ack 1 <{beside}nop,nop,sack 9001:9002 7001:7002{blocks}>",
            end + 10
        ));
    }
}

/// RFC 3708: the report that the segment sent again arrived twice may come after the recovery it began.
#[test]
fn a_reduction_is_undone_by_a_report_that_comes_after_the_recovery() {
    let mut dialogue = accepted(
        "send 4000
        > . 1:1001 ack 1
        > . 1001:2001 ack 1
        > . 2001:3001 ack 1
        > P. 3001:4001 ack 1
        +10ms
        < . 1:1 ack 1 win 65535 <nop,nop,sack 1001:4001>
        > . 1:1001 ack 1
        < . 1:1 ack 4001 win 65535",
    );
    assert_eq!(windows(&mut dialogue), (7, 7));
    dialogue.play("+5ms\n< . 1:1 ack 4001 win 65535 <nop,nop,sack 1:1001>");
    assert_eq!(windows(&mut dialogue), (10, u32::MAX));
    assert_eq!(dialogue.engine.stats().dsack_undo, 1);
}

/// RFC 1191, 6.5: a path that carries less does not indicate congestion.
#[test]
fn what_is_sent_again_in_smaller_segments_does_not_reduce_the_window() {
    let mut dialogue = accepted(
        "send 2000
        > . 1:1001 ack 1
        > P. 1001:2001 ack 1
        icmp toobig 600 seq 1
        > . 1:561 ack 1
        > . 561:1001 ack 1
        > . 1001:1561 ack 1
        > P. 1561:2001 ack 1
        +10ms
        < . 1:1 ack 561 win 65535
        < . 1:1 ack 2001 win 65535",
    );
    let (cwnd, ssthresh) = windows(&mut dialogue);
    assert!(cwnd >= 10 && ssthresh == u32::MAX, "{cwnd}, {ssthresh}");
}

/// RFC 2883, 4: also of bytes that had waited behind the hole which the segment fills.
#[test]
fn bytes_that_a_segment_in_order_brings_again_are_reported() {
    accepted(
        "< . 1001:3001 ack 1 win 65535
        > . 1:1 ack 1 <nop,nop,sack 1001:3001>
        < . 4001:5001 ack 1 win 65535
        > . 1:1 ack 1 <nop,nop,sack 4001:5001 1001:3001>
        < . 1:3501 ack 1 win 65535
        > . 1:1 ack 3501 <nop,nop,sack 1001:3001 4001:5001>",
    );
}

/// Blocks for an option that was not agreed on take no space from the data.
#[test]
fn without_selective_acknowledgments_segments_stay_full_next_to_a_hole() {
    play(
        "listen
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        +10ms
        < . 1:1 ack 1 win 65535
        accept
        < . 101:201 ack 1 win 65535
        > . 1:1 ack 1
        < . 101:201 ack 1 win 65535
        > . 1:1 ack 1
        send 1000
        > P. 1:1001 ack 1",
    );
}

/// The device had no room for the probe, and meanwhile the segment has arrived.
#[test]
fn a_probe_that_waited_for_room_is_not_sent_when_its_segment_has_arrived() {
    play(&format!(
        "{ACCEPTED}send 2000
        > . 1:1001 ack 1
        > P. 1001:2001 ack 1
        room 0
        +50ms
        < . 1:1 ack 1 win 65535 <sack 1001:2001>
        +10ms
        room any
        > . 1:1001 ack 1"
    ));
}

/// RFC 8985, 6.3: what left less than a round trip ago may still arrive. Probes are off: one would find out.
#[test]
fn a_timeout_takes_for_lost_what_was_sent_a_round_trip_ago_and_not_what_has_just_left() {
    let no_probes = Config {
        loss_probe: false,
        ..config(1)
    };
    let mut dialogue = play_with(
        no_probes,
        &format!(
            "{ACCEPTED}set nodelay
            send 1000
            > P. 1:1001 ack 1
            +50ms
            < . 1:1 ack 1001 win 65535
            send 1000
            > P. 1001:2001 ack 1
            wait 210ms
            send 1000
            > P. 2001:3001 ack 1
            +35ms
            > P. 1001:2001 ack 1"
        ),
    );
    let handle = dialogue.handle.expect("a connection");
    assert_eq!(dialogue.engine.info(handle).expect("open").lost, 1);
    // The second one was on its way.
    dialogue.play("< . 1:1 ack 3001 win 65535");
    assert_eq!(dialogue.engine.stats().slow_start_retrans, 1);
}

/// RFC 6298, 5.1, and Linux's tcp_rearm_rto: later writes put neither the probe nor the timeout off for ever.
#[test]
fn a_sender_that_goes_on_writing_does_not_wait_longer_for_lost_segments() {
    for loss_probe in [true, false] {
        let settings = Config {
            loss_probe,
            ..config(1)
        };
        let mut dialogue = play_with(
            settings,
            &format!(
                "{ACCEPTED}set nodelay
                send 100
                > P. 1:101 ack 1
                +10ms
                < . 1:1 ack 101 win 65535"
            ),
        );
        // As many as the window takes, for half a second.
        for _ in 0..9 {
            dialogue.play_loosely("send 100\n+55ms");
        }
        let stats = dialogue.engine.stats();
        assert!(stats.timeouts > 0, "{loss_probe}: {stats:?}");
    }
}

/// A peer that takes segments of 48 bytes and reports holes from behind: each block ahead of all reported before.
#[test]
fn blocks_in_any_order_cost_little_and_segments_in_flight_are_bounded() {
    const SIZE: u32 = 48;
    let wide = Config {
        initial_window: 60_000,
        send_bytes: 3 << 20,
        send_bytes_max: 3 << 20,
        ..config(1)
    };
    let mut dialogue = play_with(
        wide,
        "listen
        < S 0:0 win 65535 <mss 48,sackOK,nop,nop,nop,wscale 14>
        > S. 0:0 ack 1
        +10ms
        < . 1:1 ack 1 win 200
        accept",
    );
    dialogue.play_loosely("send 3000000");
    let flying = dialogue.engine.counts().segments as u32;
    assert!((4_000..=4_096).contains(&flying), "{flying}");
    let at = |segment: u32| 1 + segment * SIZE;
    let mut tell = |segments: &[u32]| {
        let blocks: Vec<String> = segments
            .iter()
            .map(|one| format!("{}:{}", at(*one), at(*one + 1)))
            .collect();
        dialogue.play_loosely(&format!(
            "< . 1:1 ack 1 win 200 <nop,nop,sack {}>",
            blocks.join(" ")
        ));
        dialogue.engine.stats().sack_steps
    };
    let mut steps = 0;
    // Backwards, every other one; then those between, which join them to one run.
    for parity in [1, 0] {
        for segment in (1..flying).rev().filter(|one| one % 2 == parity) {
            steps = tell(&[segment]);
        }
    }
    let linear = u64::from(flying) * 8;
    assert!(steps < linear, "{steps} steps for {flying} segments");
    // Known blocks are reported again, in pieces that are never the last ones reported.
    for round in 0..1_000 {
        let pieces: Vec<u32> = (0..4)
            .map(|one| 1 + (round * 4 + one) * 37 % (flying - 1))
            .collect();
        steps = tell(&pieces);
    }
    assert!(steps < 4 * linear, "{steps} steps");
}

/// A path that was seen to reorder, so that holes wait for a part of the round trip, and a peer that reports a thousand
/// of them one by one: each acknowledgment looks at few of the segments that wait.
#[test]
fn holes_that_wait_for_reordering_cost_little() {
    const SIZE: u32 = 1_000;
    let wide = Config {
        initial_window: 4_000,
        send_bytes: 4 << 20,
        send_bytes_max: 4 << 20,
        ..config(1)
    };
    let mut dialogue = play_with(
        wide,
        "listen
        < S 0:0 win 65535 <mss 1000,sackOK,nop,nop,nop,wscale 14>
        > S. 0:0 ack 1
        +40ms
        < . 1:1 ack 1 win 200
        accept
        send 2000
        > . 1:1001 ack 1
        > P. 1001:2001 ack 1
        +40ms
        < . 1:1 ack 1 win 200 <nop,nop,sack 1001:2001>
        < . 1:1 ack 2001 win 200",
    );
    dialogue.play_loosely("send 2000000\n+40ms");
    let before = dialogue.engine.stats().sack_steps;
    for segment in (1_000..2_000).rev() {
        let at = 2_001 + segment * SIZE;
        dialogue.play_loosely(&format!(
            "< . 1:1 ack 2001 win 200 <nop,nop,sack {at}:{}>",
            at + SIZE
        ));
    }
    let steps = dialogue.engine.stats().sack_steps - before;
    assert!(steps < 60_000, "{steps}");
    assert_eq!(dialogue.engine.stats().retrans_segs, 0);
    // A quarter of the least round trip later they count as lost.
    dialogue.play_loosely("+12ms");
    let stats = dialogue.engine.stats();
    assert_eq!((stats.sack_recovery, stats.retrans_segs), (1, 1));
}

/// Ten segments, the timeout that sends the first one again, and bytes that wait. Probes are off: one would find out.
fn timed_out(options: &str, waiting: &str) -> Dialogue {
    let no_probes = Config {
        loss_probe: false,
        ..config(1)
    };
    let segments: String = (0..10)
        .map(|number| {
            let push = if number == 9 { "P" } else { "" };
            let from = number * 1000 + 1;
            format!("> {push}. {from}:{} ack 1\n", from + 1000)
        })
        .collect();
    play_with(
        no_probes,
        &format!(
            "listen
            < S 0:0 win 65535 <{options}>
            > S. 0:0 ack 1
            +10ms
            < . 1:1 ack 1 win 65535
            accept
            send 10000
            {segments}
            {waiting}
            +250ms
            > . 1:1001 ack 1"
        ),
    )
}

/// RFC 5682, 3.1, steps 2b and 3b: the segments were delayed, none of them is sent again.
#[test]
fn a_timeout_that_came_too_early_is_undone_when_segments_sent_once_arrive() {
    for options in ["mss 1000,sackOK", "mss 1000"] {
        let mut dialogue = timed_out(options, "send 4000");
        assert_eq!(windows(&mut dialogue), (1, 7));
        dialogue.play(
            "< . 1:1 ack 1001 win 65535
            > . 10001:11001 ack 1
            > . 11001:12001 ack 1
            < . 1:1 ack 2001 win 65535
            > . 12001:13001 ack 1",
        );
        let (cwnd, ssthresh) = windows(&mut dialogue);
        assert!(cwnd >= 10 && ssthresh == u32::MAX, "{options}: {cwnd}");
        let stats = dialogue.engine.stats();
        assert_eq!((stats.spurious_timeouts, stats.retrans_segs), (1, 1));
        // Nor when the others take longer than reordering does.
        dialogue.play(
            "wait 100ms
            < . 1:1 ack 13001 win 65535
            > P. 13001:14001 ack 1
            < . 1:1 ack 14001 win 65535
            wait 5s",
        );
    }
}

/// A selective acknowledgment, or an acknowledgment of two segments, shows it without anything new to send.
#[test]
fn selective_acknowledgments_show_a_timeout_that_came_too_early_at_once() {
    for news in [
        "ack 2001 win 65535",
        "ack 1 win 65535 <nop,nop,sack 1001:2001>",
    ] {
        let mut dialogue = timed_out("mss 1000,sackOK", "");
        dialogue.play(&format!("< . 1:1 {news}\nwait 1ms"));
        let (cwnd, ssthresh) = windows(&mut dialogue);
        assert!(cwnd >= 10 && ssthresh == u32::MAX, "{news}: {cwnd}");
        assert_eq!(dialogue.engine.stats().spurious_timeouts, 1);
    }
}

/// RFC 5682, 3.1, step 3a: the new segments arrive and the old ones do not.
#[test]
fn a_timeout_is_real_when_only_what_was_sent_after_it_arrives() {
    for (options, report) in [
        ("mss 1000,sackOK", " <nop,nop,sack 10001:11001>"),
        ("mss 1000", ""),
    ] {
        let mut dialogue = timed_out(options, "send 4000");
        dialogue.play(&format!(
            "< . 1:1 ack 1001 win 65535
            > . 10001:11001 ack 1
            > . 11001:12001 ack 1
            < . 1:1 ack 1001 win 65535{report}
            > . 1001:2001 ack 1"
        ));
        let (cwnd, ssthresh) = windows(&mut dialogue);
        assert!(cwnd <= 3 && ssthresh == 7, "{options}: {cwnd}, {ssthresh}");
        assert_eq!(dialogue.engine.stats().spurious_timeouts, 0);
    }
}

/// RFC 5682, 3.1, steps 2a and 2b: a duplicate, everything acknowledged, or nothing new to send.
#[test]
fn a_timeout_that_nothing_shows_to_be_early_is_followed_by_slow_start() {
    let mut dialogue = timed_out("mss 1000", "");
    dialogue.play(
        "< . 1:1 ack 1001 win 65535
        > . 1001:2001 ack 1
        > . 2001:3001 ack 1",
    );
    assert_eq!(windows(&mut dialogue), (2, 7));
    let mut dialogue = timed_out("mss 1000,sackOK", "send 4000");
    dialogue.play(
        "< . 1:1 ack 1 win 65535
        < . 1:1 ack 1001 win 65535
        > . 1001:2001 ack 1
        > . 2001:3001 ack 1",
    );
    assert_eq!(windows(&mut dialogue), (2, 7));
    let mut dialogue = timed_out("mss 1000,sackOK", "");
    dialogue.play("< . 1:1 ack 10001 win 65535");
    assert_eq!(windows(&mut dialogue).1, 7);
}

/// Without selective acknowledgments the second segment may have arrived before the timeout, behind a lost one.
#[test]
fn one_acknowledgment_of_two_segments_does_not_undo_a_timeout_without_selective_acknowledgments() {
    let mut dialogue = timed_out("mss 1000", "send 4000");
    dialogue.play(
        "< . 1:1 ack 2001 win 65535
        > . 10001:11001 ack 1
        > . 11001:12001 ack 1
        > . 12001:13001 ack 1",
    );
    assert_eq!(windows(&mut dialogue), (3, 7));
    dialogue.play(
        "< . 1:1 ack 2001 win 65535
        > . 2001:3001 ack 1",
    );
    assert_eq!(windows(&mut dialogue).1, 7);
}

/// RFC 5682, 3.2: timeouts without progress between them are one.
#[test]
fn repeated_timeouts_that_came_too_early_are_undone_together() {
    let mut dialogue = timed_out("mss 1000,sackOK", "send 4000");
    dialogue.play(
        "+500ms
        > . 1:1001 ack 1
        < . 1:1 ack 1001 win 65535
        > . 10001:11001 ack 1
        > . 11001:12001 ack 1
        < . 1:1 ack 2001 win 65535
        > . 12001:13001 ack 1",
    );
    let (cwnd, ssthresh) = windows(&mut dialogue);
    assert!(cwnd >= 10 && ssthresh == u32::MAX, "{cwnd}, {ssthresh}");
}

/// The window is cut once, for the loss, and nothing but the lost segment is sent again.
#[test]
fn a_loss_among_segments_whose_timeout_came_too_early_starts_fast_recovery() {
    let mut dialogue = timed_out("mss 1000,sackOK", "send 4000");
    dialogue.play(
        "< . 1:1 ack 1001 win 65535
        > . 10001:11001 ack 1
        > . 11001:12001 ack 1
        < . 1:1 ack 1001 win 65535 <nop,nop,sack 2001:6001>
        > . 1001:2001 ack 1",
    );
    let stats = dialogue.engine.stats();
    let counts = (
        stats.spurious_timeouts,
        stats.sack_recovery,
        stats.retrans_segs,
    );
    assert_eq!(counts, (1, 1, 2));
    assert_eq!(windows(&mut dialogue).1, 7);
}

/// A second timeout after progress, and one during a fast recovery: the window to return to was cut for a loss.
#[test]
fn a_timeout_during_a_recovery_is_not_taken_for_early() {
    let mut dialogue = accepted("");
    dialogue.play_loosely(
        "send 10000
        < . 1:1 ack 1 win 65535 <nop,nop,sack 1001:4001>
        +1s
        < . 1:1 ack 1 win 65535 <nop,nop,sack 1001:5001>",
    );
    let stats = dialogue.engine.stats();
    assert_eq!((stats.sack_recovery, stats.spurious_timeouts), (1, 0));
    assert!(stats.timeouts > 0 && windows(&mut dialogue).1 <= 7);
    let mut dialogue = timed_out("mss 1000,sackOK", "");
    dialogue.play_loosely("< . 1:1 ack 1 win 65535\n< . 1:1 ack 1001 win 65535\n+3s");
    dialogue.play_loosely("< . 1:1 ack 2001 win 65535\n< . 1:1 ack 4001 win 65535");
    assert_eq!(dialogue.engine.stats().spurious_timeouts, 0);
    assert!(windows(&mut dialogue).1 <= 7);
}

/// RFC 2018, 8: the peer may drop what it has selectively acknowledged. Nothing of that is given up before it is
/// acknowledged in order.
#[test]
fn segments_whose_selective_acknowledgment_is_taken_back_are_sent_again() {
    let mut dialogue = accepted(
        "send 3000
        > . 1:1001 ack 1
        > . 1001:2001 ack 1
        > P. 2001:3001 ack 1",
    );
    // The first is sent again, and then no more is acknowledged than that.
    dialogue.play_loosely(
        "+1ms
        < . 1:1 ack 1 win 65535 <nop,nop,sack 1001:3001>
        +1s
        < . 1:1 ack 1001 win 65535",
    );
    let before = dialogue.engine.stats().retrans_segs;
    dialogue.play_loosely("+3s");
    assert!(dialogue.engine.stats().retrans_segs > before);
    dialogue.play_loosely(
        "< . 1:1 ack 2001 win 65535
        +3s
        < . 1:1 ack 3001 win 65535",
    );
    let counts = dialogue.engine.counts();
    assert_eq!((counts.segments, counts.connections), (0, 1));
    dialogue.play(
        "send 10
        > P. 3001:3011 ack 1
        < . 1:1 ack 3011 win 65535",
    );
}
