//! Dialogues about opening: SYNs, options, half-open connections, refusals, attempts that fail.

mod support;

use bypass_tcp::{Config, Ecn, Route};
use support::config;
use support::dialogue::{play, play_with, Dialogue};

#[test]
fn a_syn_is_answered_with_linux_options_in_linux_order() {
    play(
        "listen
        < S 0:0 win 65535 <mss 1460,sackOK,TS 100 0,nop,wscale 7>
        > S. 0:0 ack 1 win 65160 <mss 1460,sackOK,TS 100,nop,wscale 6>
        +1ms
        < . 1:1 ack 1 win 500 <nop,nop,TS 101 last>
        accept
        state Established
        send 10
        > P. 1:11 ack 1 win 1023 <nop,nop,TS 101>",
    );
}

#[test]
fn options_that_the_syn_does_not_offer_are_not_used() {
    play(
        "listen
        < S 0:0 win 1000 <mss 500>
        > S. 0:0 ack 1 win 64240 <mss 1460>
        < . 1:1 ack 1 win 1000
        accept
        send 600
        > . 1:501 ack 1 <>
        > P. 501:601 ack 1 <>",
    );
}

/// Zero states none, as on Linux.
#[test]
fn a_peer_that_states_no_mss_gets_536_bytes() {
    for options in ["", " <mss 0>"] {
        play(&format!(
            "listen
            < S 0:0 win 65535{options}
            > S. 0:0 ack 1
            < . 1:1 ack 1 win 65535
            accept
            send 537
            > . 1:537 ack 1
            > P. 537:538 ack 1"
        ));
    }
}

#[test]
fn unknown_and_malformed_options_do_no_harm() {
    play(
        "listen
        < S 0:0 win 65535 <raw 99 4 1 2,mss 700,raw 254 30>
        > S. 0:0 ack 1 <mss 1460>
        < . 1:1 ack 1 win 65535
        accept
        send 701
        > . 1:701 ack 1
        > P. 701:702 ack 1
        < . 1:1 ack 702 win 65535 <raw 5 1>",
    );
}

#[test]
fn a_window_scale_beyond_fourteen_counts_as_fourteen() {
    let mut dialogue = play(
        "listen
        < S 0:0 win 65535 <mss 1000,nop,wscale 15>
        > S. 0:0 ack 1 <mss 1460,nop,wscale 6>
        < . 1:1 ack 1 win 2
        accept",
    );
    let handle = dialogue.handle.unwrap();
    assert_eq!(dialogue.engine.info(handle).unwrap().snd_wnd, 2 << 14);
}

#[test]
fn a_lost_syn_ack_is_sent_again_five_times_with_backoff() {
    let mut dialogue = play(
        "listen
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        wait 999ms
        +2ms
        > S. 0:0 ack 1
        wait 1990ms
        +20ms
        > S. 0:0 ack 1
        +4s
        > S. 0:0 ack 1
        +8s
        > S. 0:0 ack 1
        +16s
        > S. 0:0 ack 1
        wait 100s",
    );
    assert_eq!(dialogue.engine.counts().half_open, 0);
    dialogue.play("< . 1:1 ack 1 win 100\n> R 1:1");
}

#[test]
fn a_repeated_syn_is_answered_again_and_keeps_one_entry() {
    let dialogue = play(
        "listen
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1",
    );
    assert_eq!(dialogue.engine.counts().half_open, 1);
}

#[test]
fn a_reset_with_the_right_number_ends_a_half_open_connection() {
    let dialogue = play(
        "listen
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < R 2:2
        > . 1:1 ack 1
        < R 1:1",
    );
    assert_eq!(dialogue.engine.counts().half_open, 0);
}

#[test]
fn a_wrong_acknowledgment_of_a_half_open_connection_is_reset() {
    play(
        "listen
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < . 1:1 ack 77 win 100
        > R 77:77",
    );
}

#[test]
fn data_may_come_with_the_third_segment() {
    play(
        "listen
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < P. 1:101 ack 1 win 65535
        > . 1:1 ack 101
        accept
        recv 100",
    );
}

/// Nothing is kept for a peer whose address is not proved; it sends them again.
#[test]
fn bytes_with_a_syn_are_not_taken() {
    play(
        "listen
        < S 0:100 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < S 0:100 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < P. 1:101 ack 1 win 65535
        > . 1:1 ack 101
        accept
        recv 100
        recv wouldblock",
    );
}

#[test]
fn a_handshake_whose_listener_has_closed_is_reset() {
    let mut dialogue = play(
        "listen
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        unlisten",
    );
    assert_eq!(dialogue.engine.counts().half_open, 0);
    dialogue.play("< . 1:1 ack 1 win 65535\n> R 1:1\nwait 5s");
}

#[test]
fn with_deferred_accept_an_empty_third_segment_opens_nothing() {
    play(
        "listen
        set defer
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < . 1:1 ack 1 win 65535
        < P. 1:101 ack 1 win 65535
        > . 1:1 ack 101
        accept
        recv 100",
    );
}

#[test]
fn a_segment_for_no_connection_is_reset_and_a_reset_is_not() {
    play(
        "< S 0:0 win 100
        > R. 0:0 ack 1
        < F 5:9 win 100
        > R. 0:0 ack 10
        < . 1:1 ack 77 win 100
        > R 0:0
        < R 1:1",
    );
}

#[test]
fn a_listener_resets_an_acknowledgment_and_ignores_a_reset() {
    play(
        "listen
        < R 0:0
        < R. 0:0 ack 9
        < . 1:1 ack 77 win 100
        > R 0:0
        < S. 1:1 ack 77 win 100
        > R 0:0
        < F 1:1 win 100",
    );
}

#[test]
fn an_active_open_sends_linux_options_and_acknowledges_at_once() {
    play(
        "connect
        > S 0:0 win 64240 <mss 1460,sackOK,TS,nop,wscale 6>
        +10ms
        < S. 0:0 ack 1 win 65160 <mss 1460,sackOK,TS 900 last,nop,wscale 7>
        > . 1:1 ack 1 win 1023 <nop,nop,TS 900>
        state Established",
    );
}

/// RFC 9293, 3.10.7.3: they are processed as those of any segment, once, also where they come again.
#[test]
fn bytes_and_a_fin_with_the_answer_to_a_syn_count() {
    play(
        "connect
        > S 0:0
        < SP. 0:3 ack 1 win 65535 <mss 1000>
        > . 1:1 ack 4
        state Established
        recv 3
        < SP. 0:3 ack 1 win 65535 <mss 1000>
        > . 1:1 ack 4
        < P. 1:8 ack 1 win 65535
        > . 1:1 ack 8
        recv 4
        recv wouldblock",
    );
    play(
        "connect
        > S 0:0
        < SFP. 0:3 ack 1 win 65535 <mss 1000>
        > . 1:1 ack 5
        state CloseWait
        recv 3
        recv eof
        send 2
        > P. 1:3 ack 5",
    );
}

/// What does not answer the SYN brings nothing.
#[test]
fn bytes_with_a_wrong_answer_to_a_syn_do_not_count() {
    play(
        "connect
        > S 0:0
        < SP. 0:3 ack 2 win 65535 <mss 1000>
        > R 2:2
        state SynSent
        < S. 0:0 ack 1 win 65535 <mss 1000>
        > . 1:1 ack 1
        recv wouldblock",
    );
}

/// As on Linux: what a route is set to carry, and not what a router has reported of the path.
#[test]
fn the_stated_mss_is_that_of_link_and_route() {
    let route = Route {
        network: "10.0.0.0".parse().unwrap(),
        prefix_len: 24,
        gateway: None,
        mtu: 1_400,
        mss: 0,
        source: None,
        hops: 0,
    };
    let mut dialogue = Dialogue::new(config(1));
    dialogue.engine.set_routes(&[route]);
    dialogue.play("connect\n> S 0:0 <mss 1360,sackOK,TS,nop,wscale 6>");
    let mut dialogue = Dialogue::new(config(1));
    dialogue.engine.set_routes(&[route]);
    dialogue.play(
        "listen
        < S 0:0 win 65535 <mss 1460>
        > S. 0:0 ack 1 <mss 1360>
        < . 1:1 ack 1 win 65535
        accept
        send 1360
        > P. 1:1361 ack 1
        icmp toobig 1200 seq 1
        > . 1:1161 ack 1
        > P. 1161:1361 ack 1
        < . 1:1 ack 1361 win 65535",
    );
    dialogue.leave_for_port(40_001);
    dialogue.play(
        "< S 0:0 win 65535 <mss 1460>
        > S. 0:0 ack 1 <mss 1360>",
    );
}

/// As on Linux, whatever the largest packet: `ip route … advmss`. What is sent is as large as the peer and the path allow.
#[test]
fn a_route_may_have_an_mss_of_its_own_to_state() {
    for stated in [1_300, 8_960] {
        let route = Route {
            network: "10.0.0.0".parse().unwrap(),
            prefix_len: 24,
            gateway: None,
            mtu: 1_400,
            mss: stated,
            source: None,
            hops: 0,
        };
        let mut dialogue = Dialogue::new(config(1));
        dialogue.engine.set_routes(&[route]);
        dialogue.play(&format!(
            "connect\n> S 0:0 <mss {stated},sackOK,TS,nop,wscale 6>"
        ));
        let mut dialogue = Dialogue::new(config(1));
        dialogue.engine.set_routes(&[route]);
        dialogue.play(&format!(
            "listen
            < S 0:0 win 65535 <mss 1460>
            > S. 0:0 ack 1 <mss {stated}>
            < . 1:1 ack 1 win 65535
            accept
            send 1360
            > P. 1:1361 ack 1"
        ));
    }
}

#[test]
fn an_unanswered_syn_is_sent_six_times_again_and_times_out() {
    play(
        "connect
        > S 0:0
        wait 999ms
        +2ms
        > S 0:0
        +2s
        > S 0:0
        +4s
        > S 0:0
        +8s
        > S 0:0
        +16s
        > S 0:0
        +32s
        > S 0:0
        wait 60s
        +10s
        error timed out",
    );
}

/// tcp_syn_linear_timeouts of Linux since 6.5, where it is 4.
#[test]
fn the_first_of_a_syns_timeouts_may_be_as_long_as_one() {
    let config = Config {
        syn_linear_timeouts: 2,
        syn_retries: 2,
        ..config(1)
    };
    play_with(
        config,
        "connect
        > S 0:0
        wait 999ms
        +2ms
        > S 0:0
        wait 998ms
        +2ms
        > S 0:0
        wait 998ms
        +2ms
        > S 0:0
        wait 1900ms
        +200ms
        > S 0:0
        wait 3500ms
        +1s
        error timed out",
    );
}

#[test]
fn a_refusal_counts_only_with_the_right_acknowledgment() {
    play(
        "connect
        > S 0:0
        < R. 0:0 ack 9
        < R 0:0
        state SynSent
        < R. 0:0 ack 1
        error connection refused",
    );
}

#[test]
fn a_syn_ack_with_a_wrong_acknowledgment_is_reset_and_changes_nothing() {
    play(
        "connect
        > S 0:0
        < S. 0:0 ack 7 win 100 <mss 1000>
        > R 7:7
        state SynSent
        < S. 0:0 ack 1 win 100 <mss 1000>
        > . 1:1 ack 1",
    );
}

#[test]
fn both_sides_may_open_at_once() {
    play(
        "connect
        > S 0:0
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < S. 0:0 ack 1 win 65535 <mss 1000>
        state Established",
    );
}

/// A peer may send bytes and a FIN along (RFC 9293, 3.4); they count when they come again. Their numbers begin behind that
/// of the SYN.
#[test]
fn bytes_with_the_answer_to_crossed_syns_come_again() {
    for (early, late) in [
        ("SF. 0:0", "F. 1:1"),
        ("S. 0:10", ". 1:11"),
        ("SF. 0:10", "F. 1:11"),
        ("SFPU. 0:10", "F. 1:11"),
    ] {
        let mut dialogue = play(&format!(
            "connect
            > S 0:0
            < S 0:0 win 65535 <mss 1000>
            > S. 0:0 ack 1
            < {early} ack 1 win 65535 urg 3 <mss 1000>
            state Established
            recv wouldblock"
        ));
        dialogue.play_loosely(&format!("< {late} ack 1 win 65535"));
        dialogue.play_loosely(if late.ends_with(":11") {
            "recv 10"
        } else {
            "recv eof"
        });
        if late.starts_with('F') {
            dialogue.play_loosely("recv eof");
        }
    }
}

/// RFC 9293, 3.10.7.4: an attempt ends when its peer resets it, also where both have opened at once.
#[test]
fn a_reset_ends_an_attempt_of_crossed_syns() {
    play(
        "connect
        > S 0:0
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < R 2:2
        > . 1:1 ack 1
        < R 1:1
        error connection refused",
    );
}

/// RFC 9293, 3.10.4, SYN-RECEIVED: the FIN comes after the handshake, which may yet have to be repeated.
#[test]
fn what_is_ended_while_both_sides_open_ends_once_it_is_open() {
    play(
        "connect
        > S 0:0
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        shutdown
        +1010ms
        > S. 0:0 ack 1
        < S. 0:0 ack 1 win 65535 <mss 1000>
        > F. 1:1 ack 1
        state FinWait1",
    );
}

/// RFC 3168, 6.1.1: ECE in a SYN/ACK accepts ECN, and echoes no congestion.
#[test]
fn the_answer_to_crossed_syns_with_ecn_reduces_no_window() {
    let asking = Config {
        ecn: Ecn::Request,
        ..config(1)
    };
    let initial = (asking.initial_window, u32::MAX);
    let mut dialogue = play_with(
        asking,
        "connect
        > SEW 0:0
        < SEW 0:0 win 65535 <mss 1000>
        > S.E 0:0 ack 1
        < S.E 0:0 ack 1 win 65535 <mss 1000>
        state Established
        send 10
        > P. 1:11 ack 1 ecn 2",
    );
    assert_eq!(dialogue.window(), initial);
}

/// RFC 7323, 2.2: the window in a segment with SYN is never scaled.
#[test]
fn the_window_of_the_answer_to_crossed_syns_is_not_scaled() {
    play(
        "connect
        > S 0:0
        < S 0:0 win 65535 <mss 1000,nop,wscale 7>
        > S. 0:0 ack 1
        < S. 0:0 ack 1 win 1000 <mss 1000,nop,wscale 7>
        send 3000
        > . 1:1001 ack 1",
    );
}

#[test]
fn an_unreachable_host_ends_an_attempt_and_not_a_connection() {
    play(
        "connect
        > S 0:0
        icmp nohost seq 0
        error host unreachable",
    );
    play(
        "connect
        > S 0:0
        < S. 0:0 ack 1 win 65535 <mss 1000>
        > . 1:1 ack 1
        send 10
        > P. 1:11 ack 1
        icmp nohost seq 1
        state Established
        error host unreachable
        < . 1:1 ack 11 win 65535",
    );
}

/// As Linux's icmp_err_convert and icmpv6_err_convert.
#[test]
fn an_attempt_ends_with_the_error_of_its_code() {
    let play_code = |is_v6: bool, code: u8, error: &str| {
        let mut dialogue = Dialogue::new(config(1));
        if is_v6 {
            dialogue = dialogue.v6();
        }
        dialogue.play(&format!(
            "connect
            > S 0:0
            icmp code {code} seq 0
            error {error}"
        ));
    };
    for code in [0, 6, 9, 11] {
        play_code(false, code, "network unreachable");
    }
    for code in [1, 10, 12, 13, 15] {
        play_code(false, code, "host unreachable");
    }
    play_code(false, 2, "protocol not available");
    play_code(false, 3, "connection refused");
    play_code(false, 5, "operation not supported");
    play_code(false, 7, "host down");
    play_code(false, 8, "host not on the network");
    play_code(true, 0, "network unreachable");
    for code in [1, 5, 6] {
        play_code(true, code, "permission denied");
    }
    for code in [2, 3] {
        play_code(true, code, "host unreachable");
    }
    play_code(true, 4, "connection refused");
    // Linux has no error for it, and goes on.
    let mut unknown = Dialogue::new(config(1));
    unknown.play("connect\n> S 0:0\nicmp code 16 seq 0\nstate SynSent");
}

/// As on Linux, whose user learns of a loop among the routers at once.
#[test]
fn an_attempt_ends_when_its_packet_has_lived_too_long() {
    for is_v6 in [false, true] {
        let mut dialogue = Dialogue::new(config(1));
        if is_v6 {
            dialogue = dialogue.v6();
        }
        dialogue.play(
            "connect
            > S 0:0
            icmp looped seq 0
            error host unreachable",
        );
    }
}

#[test]
fn ecn_is_agreed_when_both_sides_want_it() {
    play(
        "listen
        < SEW 0:0 win 65535 <mss 1000>
        > S.E 0:0 ack 1
        < . 1:1 ack 1 win 65535
        accept
        send 10
        > P. 1:11 ack 1 ecn 2",
    );
    let asking = Config {
        ecn: Ecn::Request,
        ..config(1)
    };
    play_with(
        asking,
        "connect
        > SEW 0:0
        < S.E 0:0 ack 1 win 65535 <mss 1000>
        > . 1:1 ack 1
        send 10
        > P. 1:11 ack 1 ecn 2",
    );
    let never = Config {
        ecn: Ecn::Off,
        ..config(1)
    };
    play_with(
        never,
        "listen
        < SEW 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1",
    );
}

#[test]
fn ipv6_opens_with_its_own_sizes() {
    let mut dialogue = Dialogue::new(config(1)).v6();
    dialogue.play(
        "listen
        < S 0:0 win 65535
        > S. 0:0 ack 1 <mss 1440>
        < . 1:1 ack 1 win 65535
        accept
        send 1221
        > . 1:1221 ack 1
        > P. 1221:1222 ack 1",
    );
}
