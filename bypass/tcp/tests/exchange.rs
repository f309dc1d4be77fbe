//! Dialogues about data: acknowledgments, windows, retransmission, recovery, urgent bytes.

mod support;

use bypass_tcp::Config;
use support::config;
use support::dialogue::{play, play_with, Dialogue, ACCEPTED};

fn accepted(script: &str) -> support::dialogue::Dialogue {
    play(&format!("{ACCEPTED}{script}"))
}

#[test]
fn full_segments_are_acknowledged_in_pairs_and_single_ones_late() {
    accepted(
        "# quick acknowledgments at the start
        < . 1:1001 ack 1 win 65535
        > . 1:1 ack 1001
        < . 1001:2001 ack 1 win 65535
        > . 1:1 ack 2001
        recv 2000
        # an answer makes it interactive
        send 100
        > P. 1:101 ack 2001
        < . 2001:2101 ack 101 win 65535
        wait 39ms
        +2ms
        > . 101:101 ack 2101",
    );
}

#[test]
fn an_answer_carries_the_acknowledgment() {
    accepted(
        "send 10
        > P. 1:11 ack 1
        < P. 1:101 ack 11 win 65535
        > . 11:11 ack 101
        recv 100
        send 10
        > P. 11:21 ack 101
        < P. 101:201 ack 21 win 65535
        recv 100
        send 10
        > P. 21:31 ack 201",
    );
}

/// For a program that acts between two rounds.
fn answers_follow() -> Config {
    Config {
        answers_follow: true,
        ..config(1)
    }
}

#[test]
fn an_answer_of_the_next_round_carries_the_first_acknowledgments_too() {
    play_with(
        answers_follow(),
        &format!(
            "{ACCEPTED}
        < P. 1:101 ack 1 win 65535
        send 10
        > P. 1:11 ack 101"
        ),
    );
}

#[test]
fn an_acknowledgment_that_has_waited_for_no_answer_leaves_with_the_next_round() {
    play_with(
        answers_follow(),
        &format!(
            "{ACCEPTED}
        < P. 1:101 ack 1 win 65535
        recv 100
        > . 1:1 ack 101"
        ),
    );
}

#[test]
fn an_acknowledgment_waits_while_the_program_is_busy_and_no_longer() {
    let patient = || Config {
        answer_wait_us: 1_000,
        ..answers_follow()
    };
    let asked = format!(
        "{ACCEPTED}
        < P. 1:101 ack 1 win 65535
        recv 100
        wait 900us"
    );
    play_with(
        patient(),
        &format!(
            "{asked}
        send 10
        > P. 1:11 ack 101"
        ),
    );
    play_with(
        patient(),
        &format!(
            "{asked}
        +200us
        > . 1:1 ack 101"
        ),
    );
    let mut dialogue = play_with(patient(), &asked);
    assert!(dialogue.engine.expect_no_answers());
    dialogue.play("+1us\n> . 1:1 ack 101");
    assert!(!dialogue.engine.expect_no_answers());
}

#[test]
fn the_request_carries_the_end_of_the_handshake_and_the_end_that_of_the_peer() {
    play_with(
        answers_follow(),
        "connect
        > S 0:0 <mss 1460,sackOK,TS,nop,wscale 6>
        < S. 0:0 ack 1 win 65535 <mss 1000,sackOK>
        send 10
        > P. 1:11 ack 1
        < PF. 1:101 ack 11 win 65535
        recv 100
        > . 11:11 ack 102
        close
        > F. 11:11 ack 102",
    );
    play_with(
        answers_follow(),
        &format!(
            "{ACCEPTED}
        < F. 1:1 ack 1 win 65535
        close
        > F. 1:1 ack 2"
        ),
    );
}

#[test]
fn segments_that_the_peer_needs_at_once_wait_for_no_answer() {
    play_with(
        answers_follow(),
        &format!(
            "{ACCEPTED}
        < . 1001:2001 ack 1 win 65535
        > . 1:1 ack 1 <nop,nop,sack 1001:2001>
        < . 1:1001 ack 1 win 65535
        > . 1:1 ack 2001
        < . 2001:3001 ack 1 win 65535
        < . 3001:4001 ack 1 win 65535
        > . 1:1 ack 4001
        recv 4000"
        ),
    );
}

#[test]
fn a_hole_is_reported_at_once_and_closed_at_once() {
    accepted(
        "< . 1001:2001 ack 1 win 65535
        > . 1:1 ack 1 <nop,nop,sack 1001:2001>
        < . 3001:4001 ack 1 win 65535
        > . 1:1 ack 1 <nop,nop,sack 3001:4001 1001:2001>
        < . 1:1001 ack 1 win 65535
        > . 1:1 ack 2001 <nop,nop,sack 3001:4001>
        recv 2000
        < . 2001:3001 ack 1 win 65535
        > . 1:1 ack 4001 <>
        recv 2000",
    );
}

#[test]
fn bytes_received_twice_are_reported_once() {
    accepted(
        "< . 1:1001 ack 1 win 65535
        > . 1:1 ack 1001
        < . 1:1001 ack 1 win 65535
        > . 1:1 ack 1001 <nop,nop,sack 1:1001>
        < . 501:1501 ack 1 win 65535
        > . 1:1 ack 1501 <nop,nop,sack 501:1001>
        recv 1500
        < . 1501:1502 ack 1 win 65535
        > . 1:1 ack 1502 <>
        recv 1",
    );
}

#[test]
fn a_closed_window_is_probed_with_backoff_and_reopens() {
    accepted(
        "< . 1:1 ack 1 win 0
        send 100
        wait 199ms
        +30ms
        > . 0:0 ack 1
        +450ms
        > . 0:0 ack 1
        < . 1:1 ack 1 win 65535
        > P. 1:101 ack 1",
    );
}

/// RFC 9293, 3.8.6.1: as long as probes are answered the connection stays, for hours. Keepalive has no part in it.
#[test]
fn a_window_that_stays_closed_for_hours_ends_nothing_while_probes_are_answered() {
    for option in ["", "set keepalive 10 5 3"] {
        let mut dialogue = accepted(&format!(
            "{option}
            < . 1:1 ack 1 win 0
            send 100"
        ));
        for _ in 0..100 {
            dialogue.play_loosely(
                "+121s
                < . 1:1 ack 1 win 0",
            );
        }
        assert_eq!(dialogue.engine.stats().keepalives, 0);
        dialogue.play(
            "state Established
            < . 1:1 ack 1 win 65535
            > P. 1:101 ack 1",
        );
    }
}

#[test]
fn a_small_window_is_not_filled_with_small_segments() {
    accepted(
        "set nodelay
        < . 1:1 ack 1 win 100
        send 3000
        wait 199ms
        +2ms
        > . 1:101 ack 1
        < . 1:1 ack 101 win 65535
        > . 101:1101 ack 1
        > . 1101:2101 ack 1
        > P. 2101:3001 ack 1",
    );
}

#[test]
fn a_small_segment_waits_for_the_acknowledgment_of_another() {
    accepted(
        "send 10
        > P. 1:11 ack 1
        send 10
        send 10
        < . 1:1 ack 11 win 65535
        > P. 11:31 ack 1
        set nodelay
        send 10
        > P. 31:41 ack 1
        send 10
        > P. 41:51 ack 1",
    );
}

#[test]
fn a_cork_holds_small_segments_until_it_is_pulled_or_200_ms_pass() {
    accepted(
        "set cork 1
        send 10
        send 10
        wait 199ms
        +2ms
        > P. 1:21 ack 1
        < . 1:1 ack 21 win 65535
        send 10
        set cork 0
        > P. 21:31 ack 1",
    );
}

#[test]
fn more_to_come_holds_a_small_segment() {
    accepted(
        "more 10
        send 10
        > P. 1:21 ack 1",
    );
}

#[test]
fn a_timeout_sends_the_first_segment_again_and_doubles() {
    accepted(
        "send 1000
        > P. 1:1001 ack 1
        # one segment: the probe waits for a delayed acknowledgment
        wait 209ms
        +15ms
        > P. 1:1001 ack 1
        +215ms
        > P. 1:1001 ack 1
        wait 400ms
        +30ms
        > P. 1:1001 ack 1",
    );
}

#[test]
fn a_tail_loss_probe_repairs_a_lost_end_without_a_timeout() {
    let dialogue = accepted(
        "send 3000
        > . 1:1001 ack 1
        > . 1001:2001 ack 1
        > P. 2001:3001 ack 1
        +10ms
        < . 1:1 ack 2001 win 65535
        wait 200ms
        +30ms
        > P. 2001:3001 ack 1
        +10ms
        < . 1:1 ack 3001 win 65535",
    );
    assert_eq!(dialogue.engine.stats().timeouts, 0);
    assert_eq!(dialogue.engine.stats().loss_probes, 1);
}

#[test]
fn selective_acknowledgments_start_fast_recovery_without_a_timeout() {
    let mut dialogue = accepted(
        "send 5000
        > . 1:1001 ack 1
        > . 1001:2001 ack 1
        > . 2001:3001 ack 1
        > . 3001:4001 ack 1
        > P. 4001:5001 ack 1
        +10ms
        < . 1:1 ack 1 win 65535 <nop,nop,sack 1001:2001>
        < . 1:1 ack 1 win 65535 <nop,nop,sack 1001:3001>
        < . 1:1 ack 1 win 65535 <nop,nop,sack 1001:4001>
        > . 1:1001 ack 1
        < . 1:1 ack 1 win 65535 <nop,nop,sack 1001:5001>
        +10ms
        < . 1:1 ack 5001 win 65535",
    );
    let handle = dialogue.handle.unwrap();
    let info = dialogue.engine.info(handle).unwrap();
    assert_eq!((info.cwnd, info.ssthresh, info.unacked), (7, 7, 0));
    assert_eq!(dialogue.engine.stats().sack_recovery, 1);
}

#[test]
fn a_segment_that_was_only_overtaken_is_not_sent_again() {
    let dialogue = accepted(
        "send 3000
        > . 1:1001 ack 1
        > . 1001:2001 ack 1
        > P. 2001:3001 ack 1
        +10ms
        < . 1:1 ack 1 win 65535 <nop,nop,sack 1001:2001>
        +1ms
        < . 1:1 ack 2001 win 65535
        < . 1:1 ack 3001 win 65535",
    );
    assert_eq!(dialogue.engine.stats().retrans_segs, 0);
}

#[test]
fn three_duplicate_acknowledgments_start_fast_retransmit_without_sack() {
    let dialogue = play(
        "listen
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        +10ms
        < . 1:1 ack 1 win 65535
        accept
        send 5000
        > . 1:1001 ack 1
        > . 1001:2001 ack 1
        > . 2001:3001 ack 1
        > . 3001:4001 ack 1
        > P. 4001:5001 ack 1
        +10ms
        < . 1:1 ack 1 win 65535
        < . 1:1 ack 1 win 65535
        < . 1:1 ack 1 win 65535
        > . 1:1001 ack 1
        +10ms
        # a partial acknowledgment: the next hole follows at once
        < . 1:1 ack 2001 win 65535
        > . 2001:3001 ack 1
        +10ms
        < . 1:1 ack 5001 win 65535",
    );
    assert_eq!(dialogue.engine.stats().reno_recovery, 1);
    assert_eq!(dialogue.engine.stats().timeouts, 0);
}

/// As Linux does, so that a receiver need not wait for more to join to it.
#[test]
fn a_gso_segment_ends_with_push_and_a_retransmission_does_not() {
    let config = Config {
        segmentation_max: 65_000,
        ..config(1)
    };
    let script = "send 15000
        > . 1:1001 ack 1
        > P. 1001:2001 ack 1
        > . 2001:3001 ack 1
        > P. 3001:4001 ack 1
        > . 4001:5001 ack 1
        > P. 5001:6001 ack 1
        > . 6001:7001 ack 1
        > P. 7001:8001 ack 1
        > . 8001:9001 ack 1
        > P. 9001:10001 ack 1
        +10ms
        < . 1:1 ack 8001 win 65535 <nop,nop,sack 9001:10001>
        > . 10001:11001 ack 1
        > . 11001:12001 ack 1
        > P. 12001:13001 ack 1
        > . 13001:14001 ack 1
        > P. 14001:15001 ack 1
        +10ms
        > . 8001:9001 ack 1";
    play_with(config, &format!("{ACCEPTED}{script}"));
}

#[test]
fn limited_transmit_sends_new_data_on_the_first_duplicates() {
    accepted(
        "send 20000
        > . 1:1001 ack 1
        > . 1001:2001 ack 1
        > . 2001:3001 ack 1
        > . 3001:4001 ack 1
        > . 4001:5001 ack 1
        > . 5001:6001 ack 1
        > . 6001:7001 ack 1
        > . 7001:8001 ack 1
        > . 8001:9001 ack 1
        > . 9001:10001 ack 1
        +10ms
        < . 1:1 ack 1 win 65535 <nop,nop,sack 1001:2001>
        > . 10001:11001 ack 1
        < . 1:1 ack 1 win 65535 <nop,nop,sack 1001:3001>
        > . 11001:12001 ack 1",
    );
}

#[test]
fn a_retransmission_that_was_not_needed_is_undone_by_its_report() {
    let mut dialogue = accepted(
        "send 5000
        > . 1:1001 ack 1
        > . 1001:2001 ack 1
        > . 2001:3001 ack 1
        > . 3001:4001 ack 1
        > P. 4001:5001 ack 1
        +10ms
        < . 1:1 ack 1 win 65535 <nop,nop,sack 1001:4001>
        > . 1:1001 ack 1
        < . 1:1 ack 4001 win 65535
        < . 1:1 ack 4001 win 65535 <nop,nop,sack 1:1001>
        < . 1:1 ack 5001 win 65535",
    );
    let handle = dialogue.handle.unwrap();
    assert!(dialogue.engine.info(handle).unwrap().cwnd >= 10);
}

#[test]
fn an_acknowledgment_of_what_was_never_sent_is_challenged_and_ignored() {
    accepted(
        "send 10
        > P. 1:11 ack 1
        < . 1:1 ack 5000 win 65535
        > . 11:11 ack 1
        < . 1:1 ack 11 win 65535",
    );
}

#[test]
fn a_segment_out_of_the_window_is_acknowledged_and_dropped() {
    accepted(
        "< . 100001:100101 ack 1 win 65535
        > . 1:1 ack 1
        recv wouldblock",
    );
}

/// As on Linux: the memory is there, and the peer need not send the rest again.
#[test]
fn a_segment_that_goes_beyond_the_window_is_taken_whole_while_nothing_waits_to_be_read() {
    let small = Config {
        receive_bytes: 8_192,
        ..config(1)
    };
    play_with(
        small,
        &format!(
            "{ACCEPTED}< P. 1:10001 ack 1 win 65535
            wait 39ms
            +1ms
            > . 1:1 ack 10001 win 0
            < P. 10001:10101 ack 1 win 65535
            > . 1:1 ack 10001 win 0
            < F. 10001:10001 ack 1 win 65535
            > . 1:1 ack 10002 win 0
            recv 10000
            recv eof"
        ),
    );
}

/// Also as on Linux: the window is shut until something is read, which is then acknowledged at once.
#[test]
fn a_segment_that_goes_beyond_the_window_is_acknowledged_when_it_is_read() {
    let small = Config {
        receive_bytes: 8_192,
        ..config(1)
    };
    play_with(
        small,
        &format!(
            "{ACCEPTED}< P. 1:10001 ack 1 win 65535
            wait 1ms
            recv 10000
            > . 1:1 ack 10001 win 562"
        ),
    );
}

/// RFC 9293, 3.10.7.4: its first byte must be in the window.
#[test]
fn a_segment_that_begins_where_the_window_ends_is_not_taken() {
    let small = Config {
        receive_bytes: 8_192,
        ..config(1)
    };
    play_with(
        small,
        "listen
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < . 1:1 ack 1 win 65535
        < P. 1001:2001 ack 1 win 65535
        > . 1:1 ack 1 win 8192
        < P. 8193:9193 ack 1 win 65535
        > . 1:1 ack 1 win 8192
        < P. 1:1001 ack 1 win 65535
        > . 1:1 ack 2001
        < P. 2001:8193 ack 1 win 65535
        > . 1:1 ack 8193 win 0
        accept
        recv 8192
        > . 1:1 ack 8193 win 8192",
    );
}

#[test]
fn an_urgent_byte_is_taken_out_of_the_stream_and_marks_its_place() {
    accepted(
        "< PU. 1:11 ack 1 win 65535 urg 5
        > . 1:1 ack 11
        recv urgent
        peek 4
        recv 4
        peek 5
        recv 5
        recv wouldblock",
    );
    accepted(
        "set oobinline
        < PU. 1:11 ack 1 win 65535 urg 5
        > . 1:1 ack 11
        recv 10",
    );
}

/// Four gigabytes later another byte has its number.
#[test]
fn an_urgent_byte_is_forgotten_once_it_is_read_past() {
    for inline in ["", "set oobinline"] {
        let mut dialogue = accepted(&format!(
            "{inline}
            < PU. 1:11 ack 1 win 65535 urg 5
            > . 1:1 ack 11"
        ));
        let handle = dialogue.handle.unwrap();
        let now_us = dialogue.now_us;
        let mut read = |len: usize| dialogue.engine.recv(now_us, handle, &mut vec![0; len]);
        assert_eq!((read(4), read(1)), (Ok(4), Ok(1)));
        let predicted = dialogue.engine.stats().hp_hits;
        dialogue.play(
            "< . 11:21 ack 1 win 65535
            > . 1:1 ack 21",
        );
        assert_eq!(dialogue.engine.stats().hp_hits, predicted + 1);
        let urgent = dialogue.engine.recv_urgent(handle);
        assert_eq!(urgent, Err(bypass_tcp::Error::InvalidArgument));
    }
}

/// RFC 9293, 3.10.7.4, sixth: a peer that goes on behind its FIN gives no urgent byte either.
#[test]
fn nothing_behind_a_fin_is_urgent() {
    let mut dialogue = accepted(
        "< F. 1:1 ack 1 win 65535
        > . 1:1 ack 2
        < PU. 2:3 ack 1 win 65535 urg 1
        > . 1:1 ack 2
        recv eof",
    );
    let urgent = dialogue.engine.recv_urgent(dialogue.handle.unwrap());
    assert_eq!(urgent, Err(bypass_tcp::Error::InvalidArgument));
}

/// Of a peer that ends its stream before the byte that it has announced.
#[test]
fn an_urgent_byte_that_does_not_come_holds_neither_bytes_nor_the_end_back() {
    accepted(
        "< PU. 1:11 ack 1 win 65535 urg 100
        > . 1:1 ack 11
        < F. 11:11 ack 1 win 65535
        > . 1:1 ack 12
        recv 10
        recv eof
        close
        > F. 1:1 ack 12",
    );
}

/// Nothing can be read but the urgent byte: a program must not be notified again and again that it can read.
#[test]
fn an_urgent_byte_alone_is_not_readable() {
    use bypass_tcp::{READABLE, URGENT};
    let mut dialogue = accepted(
        "< PU. 1:2 ack 1 win 65535 urg 1
        > . 1:1 ack 2",
    );
    let handle = dialogue.handle.unwrap();
    let ready = dialogue.engine.readiness(handle).unwrap();
    assert_eq!(ready & (READABLE | URGENT), URGENT);
    dialogue.play(
        "recv urgent
        < . 2:12 ack 1 win 65535
        > . 1:1 ack 12
        recv 10",
    );
}

#[test]
fn urgent_bytes_are_announced_with_the_pointer_behind_them() {
    accepted(
        "urgent 3
        > PU. 1:4 ack 1 urg 3",
    );
}

#[test]
fn a_smaller_path_is_believed_when_the_packet_was_ours() {
    accepted(
        "send 2000
        > . 1:1001 ack 1
        > P. 1001:2001 ack 1
        icmp toobig 600 seq 90000
        icmp toobig 600 seq 1
        > . 1:561 ack 1
        > . 561:1001 ack 1
        > . 1001:1561 ack 1
        > P. 1561:2001 ack 1
        < . 1:1 ack 2001 win 65535",
    );
}

#[test]
fn a_link_that_carries_less_has_what_is_on_its_way_sent_again_in_smaller_segments() {
    let mut dialogue = accepted(
        "send 2000
        > . 1:1001 ack 1
        > P. 1001:2001 ack 1",
    );
    let mac = dialogue.engine.config().mac;
    dialogue.engine.set_link(dialogue.now_us, mac, 600);
    dialogue.play(
        "+1ms
        > . 1:561 ack 1
        > . 561:1001 ack 1
        > . 1001:1561 ack 1
        > P. 1561:2001 ack 1
        < . 1:1 ack 2001 win 65535",
    );
    dialogue.engine.set_link(dialogue.now_us, mac, 1500);
    dialogue.play(
        "send 1000
        > P. 2001:3001 ack 1",
    );
}

#[test]
fn congestion_experienced_is_echoed_until_the_sender_has_reduced() {
    play(
        "listen
        < SEW 0:0 win 65535 <mss 1000>
        > S.E 0:0 ack 1
        < . 1:1 ack 1 win 65535
        accept
        < . 1:1001 ack 1 win 65535 ecn 3
        > .E 1:1 ack 1001
        < . 1001:2001 ack 1 win 65535 ecn 2
        > .E 1:1 ack 2001
        < W. 2001:3001 ack 1 win 65535 ecn 2
        > . 1:1 ack 3001
        recv 3000",
    );
}

/// The window of a sender that has reduced may be a single segment: it would wait for 40 ms.
#[test]
fn a_segment_of_a_sender_that_has_reduced_is_acknowledged_at_once() {
    for next in [
        "< . 1001:1101 ack 101 win 65535 ecn 2
        wait 39ms
        +1ms
        > .E 101:101 ack 1101",
        "< W. 1001:1101 ack 101 win 65535 ecn 2
        > . 101:101 ack 1101",
    ] {
        play(&format!(
            "listen
            < SEW 0:0 win 65535 <mss 1000>
            > S.E 0:0 ack 1
            < . 1:1 ack 1 win 65535
            accept
            < . 1:1001 ack 1 win 65535 ecn 3
            > .E 1:1 ack 1001
            recv 1000
            send 100
            > P.E 1:101 ack 1001 ecn 2
            {next}"
        ));
    }
}

#[test]
fn an_echo_of_congestion_reduces_the_window_once_and_says_so() {
    play(
        "listen
        < SEW 0:0 win 65535 <mss 1000>
        > S.E 0:0 ack 1
        +10ms
        < . 1:1 ack 1 win 65535
        accept
        send 1000
        > P. 1:1001 ack 1 ecn 2
        < E. 1:1 ack 1001 win 65535
        send 1000
        > PW. 1001:2001 ack 1 ecn 2
        < E. 1:1 ack 2001 win 65535",
    );
}

/// A device may copy the flags of a GSO segment's headers into all its packets: the first new segment leaves alone.
#[test]
fn a_reduction_is_reported_once_also_where_all_bytes_leave_in_gso_segments() {
    let gso = Config {
        segmentation_max: 65_000,
        ..config(1)
    };
    let mut dialogue = Dialogue::new(gso);
    dialogue.play(
        "listen
        < SEW 0:0 win 65535 <mss 1000>
        > S.E 0:0 ack 1
        +10ms
        < . 1:1 ack 1 win 65535
        accept",
    );
    dialogue.play_loosely(
        "send 10000
        +10ms
        < . 1:1 ack 10001 win 65535
        send 20000
        +10ms
        < E. 1:1 ack 30001 win 65535",
    );
    let reduced = dialogue.window();
    dialogue.play(
        "send 4000
        > W. 30001:31001 ack 1 ecn 2
        > . 31001:32001 ack 1 ecn 2
        > P. 32001:33001 ack 1 ecn 2
        > P. 33001:34001 ack 1 ecn 2
        +10ms
        < . 1:1 ack 34001 win 65535",
    );
    assert_eq!(dialogue.window().1, reduced.1, "it is reduced once");
}

/// A device without room has sent no report of it.
#[test]
fn a_reduction_is_reported_once_there_is_room() {
    let mut dialogue = play(
        "listen
        < SEW 0:0 win 65535 <mss 1000>
        > S.E 0:0 ack 1
        +10ms
        < . 1:1 ack 1 win 65535
        accept
        send 1000
        > P. 1:1001 ack 1 ecn 2
        < E. 1:1 ack 1001 win 65535
        room 0
        send 1000
        wait 1ms",
    );
    dialogue.play(
        "room any
        > PW. 1001:2001 ack 1 ecn 2",
    );
}

/// RFC 5681, 4.2. Several segments may be merged to one on their way, to more or to less than our own size.
#[test]
fn every_second_full_segment_is_acknowledged_also_of_a_peer_that_takes_small_ones() {
    for merged in [10_720, 1_072] {
        let mut dialogue = play(
            "listen
            < S 0:0 win 65535 <mss 536>
            > S. 0:0 ack 1
            +10ms
            < . 1:1 ack 1 win 65535
            accept",
        );
        let mut seq = 1;
        let mut next = |bytes: u32| {
            seq += bytes;
            format!("< . {}:{seq} ack 1 win 65535", seq - bytes)
        };
        let first = next(merged);
        dialogue.play_loosely(&format!("{first}\nrecv {merged}"));
        // Until acknowledgments are delayed.
        for _ in 0..40 {
            dialogue.play_loosely(&format!("{}\nrecv 536", next(536)));
        }
        dialogue.play_loosely("+50ms");
        let two = [next(536), next(536)];
        dialogue.play(&format!("{}\n{}\n> . 1:1 ack {seq}", two[0], two[1]));
    }
}
