//! What Linux does and no RFC asks for, or leaves open: buffers, GSO segments, marks and facts, on which programs and
//! scripts written for it rely.

mod support;

use bypass_tcp::{Config, Handle, Info, OptionName, Shutdown, SocketOption, WRITABLE};
use support::config;
use support::dialogue::{play_with, Dialogue};

/// As the kernel's socket over a device with segmentation offload.
fn offloading() -> Config {
    Config {
        segmentation_max: 65_000,
        slow_start_after_idle: false,
        ..config(1)
    }
}

/// A connection of a peer whose largest window is 32896 bytes, with this many between SYN/ACK and answer.
fn accepted(config: Config, rtt: &str) -> (Dialogue, Handle) {
    let script = format!(
        "listen
        < S 0:0 win 32792 <mss 1000,sackOK,nop,nop,nop,wscale 7>
        > S. 0:0 ack 1
        +{rtt}
        < . 1:1 ack 1 win 257
        accept"
    );
    let dialogue = play_with(config, &script);
    let handle = dialogue.handle.expect("accepted");
    (dialogue, handle)
}

fn info(dialogue: &mut Dialogue, handle: Handle) -> Info {
    dialogue
        .engine
        .end_batch(dialogue.now_us, &mut support::Frames::default());
    dialogue.engine.info(handle).expect("open")
}

fn is_writable(dialogue: &mut Dialogue, handle: Handle) -> bool {
    dialogue.engine.readiness(handle).expect("open") & WRITABLE != 0
}

fn set(dialogue: &mut Dialogue, handle: Handle, option: SocketOption) {
    let now_us = dialogue.now_us;
    dialogue.engine.setopt(now_us, handle, option).expect("set");
}

/// Bytes that a write of many is taken with.
fn taken(dialogue: &mut Dialogue, handle: Handle, count: usize) -> usize {
    let now_us = dialogue.now_us;
    let bytes = vec![b'x'; count];
    dialogue
        .engine
        .send(now_us, handle, &bytes, false)
        .expect("room")
}

#[test]
fn a_write_fills_the_unit_that_it_has_begun_beyond_the_limit_of_the_buffer() {
    let limited = Config {
        send_bytes: 50_000,
        ..offloading()
    };
    let (mut dialogue, handle) = accepted(limited, "20ms");
    // Ten segments leave at once, then three units of half the peer's window.
    assert_eq!(taken(&mut dialogue, handle, 59_000), 58_000);
}

#[test]
fn unsent_bytes_are_limited_where_the_socket_or_the_engine_says_so() {
    for (own, common) in [(4_000, 0), (0, 4_000)] {
        let low = Config {
            unsent_low: common,
            ..offloading()
        };
        let (mut dialogue, handle) = accepted(low, "10ms");
        if own > 0 {
            set(
                &mut dialogue,
                handle,
                SocketOption::UnsentLow { bytes: own },
            );
        }
        let told = dialogue.engine.getopt(handle, OptionName::UnsentLow);
        assert_eq!(told, Ok(SocketOption::UnsentLow { bytes: own }));
        assert_eq!(taken(&mut dialogue, handle, 59_000), 26_000);
        assert!(!is_writable(&mut dialogue, handle));
        dialogue.play(
            "+1ms
            > . 1:1001 ack 1
            > P. 1001:2001 ack 1
            > . 2001:3001 ack 1
            > P. 3001:4001 ack 1
            > . 4001:5001 ack 1
            > P. 5001:6001 ack 1
            > . 6001:7001 ack 1
            > P. 7001:8001 ack 1
            > . 8001:9001 ack 1
            > P. 9001:10001 ack 1",
        );
        assert!(
            !is_writable(&mut dialogue, handle),
            "16000 bytes are not sent"
        );
    }
}

/// The window would otherwise close until the hole is filled. A connection that is yet to be accepted keeps its window.
#[test]
fn bytes_behind_a_hole_widen_the_window_of_an_accepted_connection() {
    for (call, window) in [("accept", 1234), ("", 1023)] {
        play_with(
            config(1),
            &format!(
                "listen
                < S 0:0 win 65535 <mss 1012,sackOK,TS 1 0,nop,wscale 0>
                > S. 0:0 ack 1
                < . 1:1 ack 1 win 65535 <nop,nop,TS 2 last>
                {call}
                < . 1001:60001 ack 1 win 65535 <nop,nop,TS 3 last>
                > . 1:1 ack 1 win {window}"
            ),
        );
    }
}

/// Each would be another window, so that none were a duplicate that starts fast retransmit (RFC 5681, 2).
#[test]
fn acknowledgments_of_bytes_behind_a_hole_state_the_same_window_without_sack() {
    let jumbo = Config {
        mtu: 9_000,
        ..config(1)
    };
    play_with(
        jumbo,
        "listen
        < S 0:0 win 65535 <mss 8960,nop,wscale 0>
        > S. 0:0 ack 1
        < . 1:1 ack 1 win 65535
        accept
        < . 8961:17921 ack 1 win 65535
        > . 1:1 ack 1 win 1023
        < . 17921:26881 ack 1 win 65535
        > . 1:1 ack 1 win 1023",
    );
}

/// Otherwise a few peers could fill half of the memory of all connections.
#[test]
fn bytes_behind_a_hole_widen_the_window_by_no_more_than_the_first_one_while_nothing_is_read() {
    let jumbo = Config {
        mtu: 9_000,
        ..config(1)
    };
    play_with(
        jumbo,
        "listen
        < S 0:0 win 65535 <mss 8960,sackOK,nop,nop,nop,wscale 0>
        > S. 0:0 ack 1
        < . 1:1 ack 1 win 65535
        accept
        < . 8961:60001 ack 1 win 65535
        > . 1:1 ack 1 win 2845
        < . 60001:120001 ack 1 win 65535
        > . 1:1 ack 1 win 3071
        < . 120001:180001 ack 1 win 65535
        > . 1:1 ack 1 win 3071",
    );
}

#[test]
fn a_segment_ends_with_its_record() {
    let (mut dialogue, handle) = accepted(offloading(), "10ms");
    for count in [1_400, 300, 300] {
        taken(&mut dialogue, handle, count);
        dialogue.engine.end_record(handle).expect("open");
    }
    taken(&mut dialogue, handle, 1_200);
    dialogue.play(
        "+1us
        > . 1:1001 ack 1
        > P. 1001:1401 ack 1
        > P. 1401:1701 ack 1
        > P. 1701:2001 ack 1
        > . 2001:3001 ack 1
        < . 1:1 ack 3001 win 257
        > P. 3001:3201 ack 1",
    );
}

/// So that the peer's program is woken before its buffer is full.
#[test]
fn a_long_write_is_pushed_whenever_half_of_the_peers_window_is_written() {
    let (mut dialogue, handle) = accepted(config(1), "10ms");
    taken(&mut dialogue, handle, 40_000);
    dialogue.play_loosely("+1us");
    let expected = |begin: u32, end: u32| -> String {
        let of_one = |from: u32| {
            let is_pushed = [16_001, 33_001, 39_001].contains(&from);
            let flags = if is_pushed { "P." } else { "." };
            format!("> {flags} {from}:{} ack 1\n", from + 1_000)
        };
        (begin..end).step_by(1_000).map(of_one).collect()
    };
    for (begin, end) in [(10_001, 30_001), (30_001, 40_001)] {
        let segments = expected(begin, end);
        dialogue.play(&format!("+10ms\n< . 1:1 ack {begin} win 257\n{segments}"));
    }
}

/// Also where nothing else says that a write has ended.
#[test]
fn writes_of_which_more_follows_are_pushed_at_half_of_the_peers_window_only() {
    let (mut dialogue, handle) = accepted(config(1), "10ms");
    let write = |dialogue: &mut Dialogue, count: usize| {
        let now_us = dialogue.now_us;
        let bytes = vec![b'x'; count];
        let sent = dialogue.engine.send(now_us, handle, &bytes, true);
        assert_eq!(sent, Ok(count));
    };
    let expected = |begin: u32, end: u32| -> String {
        let flags = |from: u32| if from == 16_001 { "P." } else { "." };
        let of_one = |from: u32| format!("> {} {from}:{} ack 1\n", flags(from), from + 1_000);
        (begin..end).step_by(1_000).map(of_one).collect()
    };
    write(&mut dialogue, 20_000);
    dialogue.play(&format!("+1us\n{}", expected(1, 10_001)));
    let segments = expected(10_001, 20_001);
    dialogue.play(&format!("+10ms\n< . 1:1 ack 10001 win 257\n{segments}"));
    // Its mark has left, and this write does not go as far beyond it.
    write(&mut dialogue, 12_000);
    dialogue.play(&format!("+1us\n{}", expected(20_001, 30_001)));
    let segments = expected(30_001, 32_001);
    dialogue.play(&format!("+10ms\n< . 1:1 ack 20001 win 257\n{segments}"));
}

/// A probe of the tail may be new data, beyond the congestion window.
#[test]
fn a_loss_probe_ends_with_its_record() {
    let (mut dialogue, handle) = accepted(config(1), "10ms");
    taken(&mut dialogue, handle, 10_000);
    for count in [300, 400] {
        taken(&mut dialogue, handle, count);
        dialogue.engine.end_record(handle).expect("open");
    }
    dialogue.play_loosely("+1us");
    dialogue.play("+25ms\n> P. 10001:10301 ack 1");
}

#[test]
fn data_that_waits_for_more_leaves_with_the_next_acknowledgment_and_without_push() {
    let (mut dialogue, _) = accepted(offloading(), "10ms");
    dialogue.play(
        "set nodelay
        more 3100
        > . 1:1001 ack 1
        > P. 1001:2001 ack 1
        > . 2001:3001 ack 1
        more 50
        wait 5ms
        < . 1:1 ack 2001 win 257
        > . 3001:3151 ack 1
        < . 1:1 ack 3151 win 257
        more 20
        +250ms
        > P. 3151:3171 ack 1",
    );
}

#[test]
fn a_gso_segment_is_at_most_half_of_the_congestion_window() {
    let few = Config {
        train_segments: 10,
        ..offloading()
    };
    let (mut dialogue, _) = accepted(few, "100ms");
    dialogue.play(
        "send 10000
        > . 1:1001 ack 1
        > . 1001:2001 ack 1
        > . 2001:3001 ack 1
        > . 3001:4001 ack 1
        > P. 4001:5001 ack 1
        > . 5001:6001 ack 1
        > . 6001:7001 ack 1
        > . 7001:8001 ack 1
        > . 8001:9001 ack 1
        > P. 9001:10001 ack 1",
    );
}

#[test]
fn lost_segments_leave_again_in_the_frame_of_the_first_time() {
    let few = Config {
        train_segments: 10,
        ..offloading()
    };
    let (mut dialogue, handle) = accepted(few, "100ms");
    taken(&mut dialogue, handle, 10_000);
    // Two frames of five segments; of the first one the last is lost too, of the second one the first two.
    dialogue.play_loosely("+1ms");
    dialogue.play(
        "+100ms
        < . 1:1 ack 2001 win 257 <sack 3001:4001 7001:10001,nop,nop>
        > . 2001:3001 ack 1
        > . 4001:5001 ack 1
        > . 5001:6001 ack 1
        > P. 6001:7001 ack 1",
    );
}

/// A device would copy the pointer into each, where it led too far from the second on.
#[test]
fn segments_before_an_urgent_byte_leave_alone() {
    let few = Config {
        train_segments: 10,
        ..offloading()
    };
    let (mut dialogue, handle) = accepted(few.clone(), "100ms");
    taken(&mut dialogue, handle, 3_000);
    dialogue.play(
        "urgent 1
        > U. 1:1001 ack 1 urg 3001
        > U. 1001:2001 ack 1 urg 2001
        > U. 2001:3001 ack 1 urg 1001
        > PU. 3001:3002 ack 1 urg 1",
    );
    // Lost ones that left in one frame before there was an urgent byte.
    let (mut dialogue, handle) = accepted(few, "100ms");
    taken(&mut dialogue, handle, 5_000);
    dialogue.play_loosely("+1ms");
    dialogue.play(
        "urgent 1
        > PU. 5001:5002 ack 1 urg 1
        +100ms
        < . 1:1 ack 1 win 257 <sack 3001:5002,nop,nop>
        > U. 1:1001 ack 1 urg 5001
        > U. 1001:2001 ack 1 urg 4001
        > U. 2001:3001 ack 1 urg 3001",
    );
}

/// A program to which everything was just handed over may close too: our FIN acknowledges the peer's, which is answered at
/// once otherwise.
#[test]
fn a_fin_right_behind_bytes_that_were_read_waits_for_ours() {
    let rest = |script: &str| {
        let (mut dialogue, _) = accepted(config(1), "10ms");
        dialogue.play(
            "< P. 1:101 ack 1 win 257
            > . 1:1 ack 101",
        );
        dialogue.play(script);
    };
    rest(
        "recv 100
        < F. 101:101 ack 1 win 257
        recv eof
        wait 39ms
        +1ms
        > . 1:1 ack 102",
    );
    rest(
        "recv 100
        < F. 101:101 ack 1 win 257
        recv eof
        wait 1ms
        close
        > F. 1:1 ack 102",
    );
    rest(
        "< F. 101:101 ack 1 win 257
        > . 1:1 ack 102",
    );
    rest(
        "recv 100
        +40ms
        < F. 101:101 ack 1 win 257
        > . 1:1 ack 102",
    );
}

#[test]
fn a_gso_segment_of_a_near_connection_is_long_and_of_a_slow_one_short() {
    // The device of these tests cuts GSO segments: PSH marks their ends.
    for (rtt, first_push) in [("100us", 5), ("50ms", 2)] {
        let (mut dialogue, handle) = accepted(offloading(), rtt);
        taken(&mut dialogue, handle, 10_000);
        let mut frames = support::Frames::default();
        dialogue.engine.end_batch(dialogue.now_us, &mut frames);
        let pushes = |frame: &Vec<u8>| frame[14 + 20 + 13] & 8 != 0;
        let at = frames.sent.iter().position(pushes);
        assert_eq!(at.map(|at| at + 1), Some(first_push), "{rtt}");
    }
}

#[test]
fn a_gso_segment_takes_the_small_segment_behind_it_along() {
    // The device of these tests cuts GSO segments: PSH marks their ends.
    let (mut dialogue, _) = accepted(offloading(), "100us");
    dialogue.play(
        "send 4500
        > . 1:1001 ack 1
        > . 1001:2001 ack 1
        > . 2001:3001 ack 1
        > . 3001:4001 ack 1
        > P. 4001:4501 ack 1
        < . 1:1 ack 4501 win 257",
    );
    // But not while another small one is in flight (RFC 9293, 3.7.4).
    dialogue.play(
        "send 20
        > P. 4501:4521 ack 1
        send 2500
        > . 4521:5521 ack 1
        > P. 5521:6521 ack 1
        < . 1:1 ack 6521 win 257
        > P. 6521:7021 ack 1",
    );
}

#[test]
fn the_window_grows_by_what_was_not_announced_before() {
    for (sack, first, second) in [
        (true, "<nop,nop,sack 1001:2001>", "<nop,nop,sack 1001:3001>"),
        (false, "", ""),
    ] {
        let offer = if sack { "sackOK,nop,nop,nop," } else { "nop," };
        let script = format!(
            "listen
            < S 0:0 win 32792 <mss 1000,{offer}wscale 7>
            > S. 0:0 ack 1
            +100ms
            < . 1:1 ack 1 win 320
            accept
            send 15000
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
            +110ms
            < . 1:1 ack 1 win 320 {first}
            > . 10001:11001 ack 1
            +10ms
            < . 1:1 ack 1 win 320 {second}
            > . 11001:12001 ack 1
            +10ms
            < . 1:1 ack 3001 win 320
            > . 12001:13001 ack 1
            > . 13001:14001 ack 1"
        );
        let mut dialogue = play_with(config(1), &script);
        let handle = dialogue.handle.expect("accepted");
        // Of three segments acknowledged, two were announced.
        assert_eq!(info(&mut dialogue, handle).cwnd, 11, "{sack}");
    }
}

#[test]
fn bytes_that_come_after_the_end_of_reading_are_read_all_the_same() {
    let (mut dialogue, handle) = accepted(config(1), "10ms");
    let now_us = dialogue.now_us;
    dialogue
        .engine
        .shutdown(now_us, handle, Shutdown::Read)
        .expect("open");
    dialogue.play(
        "recv eof
        < . 1:1001 ack 1 win 257
        > . 1:1 ack 1001
        recv 1000
        recv eof",
    );
    // Both directions ended: no process will read, and the peer is notified.
    dialogue
        .engine
        .shutdown(now_us, handle, Shutdown::Both)
        .expect("open");
    dialogue.play(
        "+1us
        > F. 1:1 ack 1001
        < . 1001:2001 ack 2 win 257
        > R 2:2",
    );
}

#[test]
fn a_listener_reports_the_segment_size_that_it_was_given() {
    let mut dialogue = Dialogue::new(config(1));
    let listener = dialogue
        .engine
        .listen("[::]:80".parse().unwrap(), 1)
        .expect("free");
    let size = OptionName::SegmentMax;
    let told = dialogue.engine.getopt(listener, size);
    assert_eq!(told, Ok(SocketOption::SegmentMax(536)));
    set(&mut dialogue, listener, SocketOption::SegmentMax(1_100));
    let told = dialogue.engine.getopt(listener, size);
    assert_eq!(told, Ok(SocketOption::SegmentMax(1_100)));
}

#[test]
fn an_acknowledgment_that_advances_along_with_new_blocks_does_not_count_as_reordering() {
    let (mut dialogue, handle) = accepted(config(1), "10ms");
    dialogue.play(
        "send 10000
        > . 1:1001 ack 1
        > . 1001:2001 ack 1
        > . 2001:3001 ack 1
        > . 3001:4001 ack 1
        > . 4001:5001 ack 1
        > . 5001:6001 ack 1
        > . 6001:7001 ack 1
        > . 7001:8001 ack 1
        > . 8001:9001 ack 1
        > P. 9001:10001 ack 1
        +10ms
        < . 1:1 ack 1001 win 257 <nop,nop,sack 3001:4001 6001:10001>
        > . 1001:2001 ack 1
        > . 2001:3001 ack 1
        > . 4001:5001 ack 1
        > . 5001:6001 ack 1",
    );
    assert_eq!(info(&mut dialogue, handle).reordering, (3, 0));
    dialogue.play("< . 1:1 ack 10001 win 257");
    assert_eq!(
        info(&mut dialogue, handle).reordering,
        (3, 0),
        "those were sent twice"
    );
}

#[test]
fn how_far_segments_were_overtaken_is_reported() {
    let (mut dialogue, handle) = accepted(config(1), "100ms");
    dialogue.play(
        "send 8000
        > . 1:1001 ack 1
        > . 1001:2001 ack 1
        > . 2001:3001 ack 1
        > . 3001:4001 ack 1
        > . 4001:5001 ack 1
        > . 5001:6001 ack 1
        > . 6001:7001 ack 1
        > P. 7001:8001 ack 1
        +100ms
        < . 1:1 ack 1 win 257 <nop,nop,sack 7001:8001>
        < . 1:1 ack 1 win 257 <nop,nop,sack 2001:3001 7001:8001>",
    );
    assert_eq!(info(&mut dialogue, handle).reordering, (6, 1));
}

#[test]
fn times_that_bytes_waited_are_reported() {
    let (mut dialogue, handle) = accepted(config(1), "10ms");
    dialogue.play(
        "+1s
        send 1000
        > P. 1:1001 ack 1
        +20ms
        < . 1:1 ack 1001 win 0",
    );
    assert_eq!(info(&mut dialogue, handle).busy_us, (20_000, 0, 0));
    assert_eq!(info(&mut dialogue, handle).quiet_us, [20_000, 1_020_000, 0]);
    dialogue.play("send 1000\nwait 100ms");
    assert_eq!(info(&mut dialogue, handle).busy_us, (120_000, 100_000, 0));
    dialogue.play(
        "< . 1:1 ack 1001 win 257
        > P. 1001:2001 ack 1
        +30ms
        < . 1:1 ack 2001 win 257
        +1s",
    );
    assert_eq!(info(&mut dialogue, handle).busy_us, (150_000, 100_000, 0));
}

#[test]
fn a_full_congestion_window_comes_before_the_peers_and_the_send_buffer_after_both() {
    let script = "listen
        < S 0:0 win 10000 <mss 1000,sackOK,nop,nop,nop,wscale 0>
        > S. 0:0 ack 1
        +10ms
        < . 1:1 ack 1 win 10000
        accept";
    let mut dialogue = play_with(config(1), script);
    let handle = dialogue.handle.expect("accepted");
    let option = SocketOption::SendBuffer { bytes: 20_000 };
    set(&mut dialogue, handle, option);
    assert_eq!(taken(&mut dialogue, handle, 60_000), 20_000);
    // Ten segments fill both windows, then fifteen the congestion window.
    dialogue.play_loosely("+10ms\n< . 1:1 ack 5001 win 60000");
    // All is sent, more may leave, and the buffer is fuller than two thirds.
    dialogue.play_loosely("+10ms\n< . 1:1 ack 6001 win 60000");
    dialogue.play_loosely("+20ms\n< . 1:1 ack 10001 win 60000");
    assert_eq!(info(&mut dialogue, handle).busy_us, (40_000, 0, 20_000));
}

#[test]
fn slow_start_ends_when_the_delay_grows() {
    let (mut dialogue, handle) = accepted(config(1), "200ms");
    taken(&mut dialogue, handle, 30_000);
    let mut frames = support::Frames::default();
    let mut arrives = |dialogue: &mut Dialogue, step: &str, ack: u32| {
        dialogue.engine.end_batch(dialogue.now_us, &mut frames);
        dialogue.play_loosely(&format!("+{step}\n< . 1:1 ack {ack} win 257"));
    };
    arrives(&mut dialogue, "200ms", 10_001);
    arrives(&mut dialogue, "240ms", 12_001);
    for ack in (14_001..=26_001).step_by(2_000) {
        arrives(&mut dialogue, "1ms", ack);
    }
    assert_eq!(info(&mut dialogue, handle).ssthresh, u32::MAX);
    arrives(&mut dialogue, "1ms", 28_001);
    let told = info(&mut dialogue, handle);
    assert_eq!((told.cwnd, told.ssthresh), (36, 36));
}
