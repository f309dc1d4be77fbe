//! Dialogues about the end of a connection: FIN, TIME_WAIT, resets, orphans.

mod support;

use bypass_tcp::{Config, Route};
use support::dialogue::{play, play_with, Dialogue, ACCEPTED};

fn accepted(script: &str) -> Dialogue {
    play(&format!("{ACCEPTED}{script}"))
}

#[test]
fn fin_follows_the_last_byte_and_waits_for_the_peers() {
    let dialogue = accepted(
        "send 10
        > P. 1:11 ack 1
        shutdown
        > F. 11:11 ack 1
        state FinWait1
        < . 1:1 ack 12 win 65535
        state FinWait2
        < F. 1:1 ack 12 win 65535
        > . 12:12 ack 2
        recv eof",
    );
    assert_eq!(dialogue.engine.counts().time_wait, 1);
}

#[test]
fn data_goes_on_after_the_peers_fin() {
    let dialogue = accepted(
        "< F. 1:1 ack 1 win 65535
        > . 1:1 ack 2
        state CloseWait
        recv eof
        send 10
        > P. 1:11 ack 2
        close
        > F. 11:11 ack 2
        < . 2:2 ack 12 win 65535",
    );
    let counts = dialogue.engine.counts();
    assert_eq!((counts.connections, counts.time_wait), (0, 0));
}

#[test]
fn a_fin_ahead_of_a_hole_counts_when_the_hole_is_filled() {
    accepted(
        "< F. 101:201 ack 1 win 65535
        > . 1:1 ack 1 <nop,nop,sack 101:201>
        state Established
        < . 1:101 ack 1 win 65535
        > . 1:1 ack 202
        state CloseWait
        recv 200
        recv eof",
    );
}

/// RFC 9293, 3.10.7.4: nothing follows a FIN. Bytes that a peer sends behind it all the same, before or after, are left out
/// of the stream, whose end is reported.
#[test]
fn bytes_behind_a_fin_are_left_out_of_the_stream() {
    // Ahead of a hole, and right behind where the FIN comes.
    accepted(
        "< . 201:301 ack 1 win 65535
        > . 1:1 ack 1 <nop,nop,sack 201:301>
        < F. 1:201 ack 1 win 65535
        > . 1:1 ack 202
        state CloseWait
        recv 200
        recv eof
        < . 202:302 ack 1 win 65535
        > . 1:1 ack 202",
    );
    // The FIN comes without bytes and ahead of a hole, which a segment fills and goes beyond.
    accepted(
        "< F. 101:101 ack 1 win 65535
        > . 1:1 ack 1
        < . 1:301 ack 1 win 65535
        > . 1:1 ack 102
        state CloseWait
        recv 100
        recv eof",
    );
    accepted(
        "< F. 101:101 ack 1 win 65535
        > . 1:1 ack 1
        < . 51:301 ack 1 win 65535
        > . 1:1 ack 1 <nop,nop,sack 51:301>
        < F. 1:401 ack 1 win 65535
        > . 1:1 ack 102
        recv 100
        recv eof",
    );
    // Of two the first is the end.
    accepted(
        "< F. 201:201 ack 1 win 65535
        > . 1:1 ack 1
        < F. 101:101 ack 1 win 65535
        > . 1:1 ack 1
        < . 1:101 ack 1 win 65535
        > . 1:1 ack 102
        recv 100
        recv eof",
    );
}

#[test]
fn a_lost_fin_is_sent_again() {
    accepted(
        "shutdown
        > F. 1:1 ack 1
        +300ms
        > F. 1:1 ack 1
        < . 1:1 ack 2 win 65535
        state FinWait2",
    );
}

#[test]
fn a_repeated_fin_in_time_wait_is_acknowledged_and_restarts_it() {
    let mut dialogue = accepted(
        "close
        > F. 1:1 ack 1
        < F. 1:1 ack 2 win 65535
        > . 2:2 ack 2
        +50s
        < F. 1:1 ack 2 win 65535
        > . 2:2 ack 2
        +50s",
    );
    assert_eq!(dialogue.engine.counts().time_wait, 1);
    dialogue.play("+11s");
    assert_eq!(dialogue.engine.counts().time_wait, 0);
}

#[test]
fn a_reset_does_not_end_time_wait() {
    let dialogue = accepted(
        "close
        > F. 1:1 ack 1
        < F. 1:1 ack 2 win 65535
        > . 2:2 ack 2
        < R 2:2",
    );
    assert_eq!(dialogue.engine.counts().time_wait, 1);
}

#[test]
fn a_new_syn_reopens_time_wait_when_it_cannot_be_old() {
    let mut dialogue = accepted(
        "close
        > F. 1:1 ack 1
        < F. 1:1 ack 2 win 65535
        > . 2:2 ack 2
        < S 0:0 win 65535 <mss 1000>
        > . 2:2 ack 2",
    );
    dialogue.play(
        "< S 5000:5000 win 65535 <mss 1000>
        > S. 0:0 ack 5001",
    );
    assert_eq!(dialogue.engine.counts().time_wait, 0);
    assert_eq!(dialogue.engine.stats().time_wait_recycled, 1);
}

/// RFC 6191, 2: a SYN with an older timestamp is an old one, however high its number. The same timestamp leaves it to the
/// number.
#[test]
fn a_syn_with_an_older_timestamp_does_not_reopen_time_wait() {
    let mut dialogue = play(
        "listen
        < S 0:0 win 65535 <mss 1000,sackOK,TS 500 0>
        > S. 0:0 ack 1
        < . 1:1 ack 1 win 65535 <nop,nop,TS 600 last>
        accept
        close
        > F. 1:1 ack 1
        < F. 1:1 ack 2 win 65535 <nop,nop,TS 600 last>
        > . 2:2 ack 2
        < S 5000:5000 win 65535 <mss 1000,sackOK,TS 599 0>
        > . 2:2 ack 2
        +1s
        < S 1:1 win 65535 <mss 1000,sackOK,TS 600 0>
        > . 2:2 ack 2",
    );
    assert_eq!(dialogue.engine.stats().time_wait_recycled, 0);
    dialogue.play(
        "< S 5000:5000 win 65535 <mss 1000,sackOK,TS 600 0>
        > S. 0:0 ack 5001",
    );
    assert_eq!(dialogue.engine.stats().time_wait_recycled, 1);
}

#[test]
fn data_for_a_program_that_is_gone_is_reset() {
    let dialogue = accepted(
        "close
        > F. 1:1 ack 1
        < . 1:1 ack 2 win 65535
        < . 1:101 ack 2 win 65535
        > R 2:2",
    );
    assert_eq!(dialogue.engine.counts().connections, 0);
}

/// Only new bytes count as data without a reader.
#[test]
fn old_bytes_sent_again_with_the_fin_behind_them_end_a_closed_connection_in_order() {
    let dialogue = accepted(
        "< P. 1:11 ack 1 win 65535
        > . 1:1 ack 11
        recv 10
        close
        > F. 1:1 ack 11
        < . 11:11 ack 2 win 65535
        < FP. 1:11 ack 2 win 65535
        > . 2:2 ack 12",
    );
    assert_eq!(dialogue.engine.counts().time_wait, 1);
}

/// A connection of ours that has ended, its TIME_WAIT entry still there.
const TIME_WAIT: &str = "close
> F. 1:1 ack 1
< F. 1:1 ack 2 win 65535
> . 2:2 ack 2
";

#[test]
fn a_new_syn_does_not_end_time_wait_without_a_listener() {
    let mut dialogue = accepted(TIME_WAIT);
    dialogue.play(
        "unlisten
        < S 5000:5000 win 65535 <mss 1000>
        > . 2:2 ack 2
        < F. 1:1 ack 2 win 65535
        > . 2:2 ack 2",
    );
    assert_eq!(dialogue.engine.counts().time_wait, 1);
}

/// A cookie is a number of its own, perhaps before those of the old connection.
#[test]
fn a_syn_that_reopens_time_wait_gets_no_cookie() {
    let crowded = Config {
        half_open_of_listener_max: 0,
        ..support::config(1)
    };
    let mut dialogue = play_with(crowded, &format!("{ACCEPTED}{TIME_WAIT}"));
    assert_eq!(dialogue.engine.stats().syncookies_sent, 1);
    dialogue.play(
        "< S 5000:5000 win 65535 <mss 1000>
        > S. 0:0 ack 5001",
    );
    assert_eq!(dialogue.engine.stats().syncookies_sent, 1);
    assert_eq!(dialogue.engine.counts().half_open, 1);
}

#[test]
fn a_syn_that_finds_no_place_leaves_time_wait_alone() {
    let full = Config {
        half_open_max: 0,
        ..support::config(1)
    };
    let mut dialogue = play_with(full, &format!("{ACCEPTED}{TIME_WAIT}"));
    dialogue.play("< S 5000:5000 win 65535 <mss 1000>");
    assert_eq!(dialogue.engine.counts().time_wait, 1);
}

#[test]
fn a_syn_that_finds_the_accept_queue_full_leaves_time_wait_alone() {
    let mut dialogue = play(
        "listen 1
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < . 1:1 ack 1 win 65535
        accept",
    );
    dialogue.play(TIME_WAIT);
    let flow = dialogue.leave_for_port(40_001);
    dialogue.play(
        "< S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < . 1:1 ack 1 win 65535",
    );
    dialogue.return_to_flow(flow);
    dialogue.play("< S 5000:5000 win 65535 <mss 1000>");
    let stats = dialogue.engine.stats();
    assert_eq!((stats.listen_overflows, stats.time_wait_recycled), (1, 0));
    assert_eq!(dialogue.engine.counts().time_wait, 1);
}

/// It opens nothing, so it must not end anything either.
#[test]
fn a_syn_with_a_fin_does_not_end_time_wait() {
    let mut dialogue = accepted(TIME_WAIT);
    dialogue.play(
        "< SF 5000:5000 win 65535 <mss 1000>
        > . 2:2 ack 2",
    );
    assert_eq!(dialogue.engine.counts().time_wait, 1);
}

/// A host that has restarted, or is behind port translation, answers our acknowledgment by a reset (RFC 9293, 3.5.1):
/// with nothing but the minute to wait out it could not come back before.
#[test]
fn a_reset_that_answers_us_after_a_syn_ends_time_wait() {
    let mut dialogue = accepted(TIME_WAIT);
    dialogue.play(
        "< S 0:0 win 65535 <mss 1000>
        > . 2:2 ack 2
        < R 3:3",
    );
    assert_eq!(dialogue.engine.counts().time_wait, 1);
    dialogue.play(
        "< R 2:2
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1",
    );
    assert_eq!(dialogue.engine.counts().time_wait, 0);
}

/// Linux's tcp_invalid_ratelimit: two confused ends, or an unknown peer, get two answers per second of one entry.
#[test]
fn answers_in_time_wait_are_limited_to_two_per_second() {
    let mut dialogue = accepted(TIME_WAIT);
    dialogue.play(
        "< . 1:1 ack 2 win 65535
        > . 2:2 ack 2
        < . 1:1 ack 2 win 65535
        < S 0:0 win 65535 <mss 1000>
        # what brings bytes, or its FIN again, waits for an answer
        < . 1:1001 ack 2 win 65535
        > . 2:2 ack 2
        < F. 1:1 ack 2 win 65535
        > . 2:2 ack 2
        +499ms
        < . 1:1 ack 2 win 65535
        +2ms
        < . 1:1 ack 2 win 65535
        > . 2:2 ack 2",
    );
    assert_eq!(dialogue.engine.counts().time_wait, 1);
}

/// RFC 9293, 3.10.7.4, fifth.
#[test]
fn a_segment_without_acknowledgment_is_dropped_in_time_wait() {
    accepted(TIME_WAIT).play(
        "< F 2:2 win 65535
        < P 2:12 win 65535
        < F. 1:1 ack 2 win 65535
        > . 2:2 ack 2",
    );
}

/// A device without room for the moment must not keep a reset from the peer, who would wait for ever.
#[test]
fn a_reset_that_finds_no_room_leaves_later() {
    accepted(
        "room 0
        abort
        wait 10ms
        room any
        > R. 1:1 ack 1",
    );
}

#[test]
fn a_closed_connection_waits_a_minute_for_the_peers_fin() {
    let dialogue = accepted(
        "close
        > F. 1:1 ack 1
        < . 1:1 ack 2 win 65535
        +59s
        +2s",
    );
    assert_eq!(dialogue.engine.counts().connections, 0);
}

#[test]
fn an_abort_resets_and_a_reset_is_reported() {
    accepted(
        "abort
        > R. 1:1 ack 1",
    );
    accepted(
        "< R. 1:1 ack 1
        recv connection reset by peer
        recv eof",
    );
}

#[test]
fn closing_a_listener_resets_connections_not_yet_accepted() {
    let dialogue = play(
        "listen
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < . 1:1 ack 1 win 65535
        unlisten
        > R. 1:1 ack 1",
    );
    assert_eq!(dialogue.engine.counts().connections, 0);
}

#[test]
fn an_orphan_that_the_peer_does_not_acknowledge_ends() {
    let mut dialogue = Dialogue::new(support::config(1));
    dialogue.play(ACCEPTED);
    dialogue
        .engine
        .send(dialogue.now_us, dialogue.handle.unwrap(), &[1; 100], false)
        .unwrap();
    dialogue
        .engine
        .close(dialogue.now_us, dialogue.handle.unwrap())
        .unwrap();
    let mut frames = support::Frames::default();
    dialogue.engine.end_batch(dialogue.now_us, &mut frames);
    while let Some(next_us) = dialogue.engine.next_timer() {
        dialogue.engine.poll_timers(next_us, &mut frames);
        dialogue.engine.end_batch(next_us, &mut frames);
        while dialogue.engine.next_event().is_some() {}
    }
    let counts = dialogue.engine.counts();
    assert_eq!(
        (counts.connections, counts.segments, counts.buffer_bytes),
        (0, 0, 0)
    );
    assert!(
        (8..=10).contains(&frames.sent.len()),
        "{} segments",
        frames.sent.len()
    );
}

/// Seconds until the engine has forgotten a connection with bytes for a peer that acknowledges every probe
/// and opens its window never.
fn seconds_before_a_shut_window(leave: impl FnOnce(&mut Dialogue)) -> u64 {
    let mut dialogue = Dialogue::new(support::config(1));
    dialogue.play(ACCEPTED);
    dialogue.play_loosely("< . 1:1 ack 1 win 0\nsend 100");
    leave(&mut dialogue);
    let began_us = dialogue.now_us;
    let is_open = |dialogue: &Dialogue| dialogue.engine.counts().connections > 0;
    while is_open(&dialogue) && dialogue.now_us - began_us < 3_600_000_000 {
        dialogue.play_loosely("+1s\n< . 1:1 ack 1 win 0");
        let handle = dialogue.handle.unwrap();
        if let Ok(Some(_)) = dialogue.engine.take_error(handle) {
            dialogue.engine.close(dialogue.now_us, handle).unwrap();
        }
    }
    (dialogue.now_us - began_us) / 1_000_000
}

#[test]
fn a_closed_connection_does_not_wait_for_ever_before_a_shut_window() {
    let closed = seconds_before_a_shut_window(|dialogue| {
        let handle = dialogue.handle.unwrap();
        dialogue.engine.close(dialogue.now_us, handle).unwrap();
    });
    assert!((100..600).contains(&closed), "{closed} s");
    let abandoned = seconds_before_a_shut_window(|dialogue| {
        dialogue.engine.abandon(dialogue.handle.unwrap());
    });
    assert!((100..600).contains(&abandoned), "{abandoned} s");
    let open = seconds_before_a_shut_window(|_| ());
    assert_eq!(open, 3600, "who is still there may wait");
}

/// A process that ended before would take the end along: its peer has all the bytes and waits for ever.
#[test]
fn an_end_is_under_way_until_it_is_acknowledged_also_before_a_shut_window() {
    let is_under_way = |script: &str| accepted(script).engine.has_ends_under_way();
    let waits = "send 10
        > P. 1:11 ack 1
        < . 1:1 ack 11 win 0
        close";
    let is_sent = "< . 1:1 ack 11 win 100
        > F. 11:11 ack 1";
    assert!(!is_under_way("send 10\n> P. 1:11 ack 1"));
    let dialogue = accepted(waits);
    assert!(dialogue.engine.has_ends_under_way());
    let counts = dialogue.engine.counts();
    assert_eq!((counts.segments, counts.buffer_bytes), (0, 0));
    assert!(is_under_way(&format!("{waits}\n{is_sent}")));
    assert!(!is_under_way(&format!(
        "{waits}\n{is_sent}\n< . 1:1 ack 12 win 100"
    )));
}

/// RFC 9293, 3.4: a FIN takes a number, so it needs a place in the window as a byte does.
#[test]
fn a_fin_waits_for_a_window_that_is_shut() {
    accepted(
        "send 10
        > P. 1:11 ack 1
        < . 1:1 ack 11 win 0
        shutdown
        wait 150ms
        +100ms
        > . 10:10 ack 1
        < . 1:1 ack 11 win 0
        wait 150ms
        < . 1:1 ack 11 win 100
        > F. 11:11 ack 1
        < . 1:1 ack 12 win 100
        state FinWait2",
    );
    accepted(
        "< . 1:1 ack 1 win 10
        set cork 1
        send 10
        shutdown
        > P. 1:11 ack 1
        < . 1:1 ack 11 win 1
        > F. 11:11 ack 1",
    );
}

#[test]
fn data_for_a_program_that_has_ended_both_directions_is_reset() {
    accepted(
        "shutdown both
        > F. 1:1 ack 1
        < . 1:1 ack 2 win 65535
        < P. 1:11 ack 2 win 65535
        > R 2:2
        error connection reset by peer",
    );
}

/// As Linux has it (its tcp_reset_check): some stacks forget their FIN in the number of a reset behind it.
#[test]
fn a_reset_that_does_not_count_the_fin_before_it_ends_the_connection() {
    accepted(
        "< F. 1:1 ack 1 win 65535
        > . 1:1 ack 2
        < R 1:1
        error broken pipe",
    );
    accepted(
        "< P. 1:11 ack 1 win 65535
        > . 1:1 ack 11
        < R 10:10
        state Established",
    );
}

#[test]
fn old_bytes_before_a_fin_do_not_count_as_unread() {
    accepted(
        "< P. 1:11 ack 1 win 65535
        > . 1:1 ack 11
        recv 10
        < F. 1:11 ack 1 win 65535
        > . 1:1 ack 12 <>
        close
        > F. 1:1 ack 12",
    );
}

/// RFC 9293, 3.10.7.1: where the kernel keeps the interface it never sees what comes for the ports that were taken from it.
#[test]
fn segments_of_no_connection_are_reset_at_ports_that_the_kernel_does_not_see() {
    let mut dialogue = Dialogue::new(Config {
        is_sole_host: false,
        ..support::config(1)
    });
    // With the kernel's routes those alone say what is on the link.
    dialogue.engine.set_routes(&[Route {
        network: "10.0.0.0".parse().unwrap(),
        prefix_len: 24,
        gateway: None,
        mtu: 0,
        mss: 0,
        source: None,
        hops: 0,
    }]);
    dialogue.play("< . 5:15 ack 9 win 65535");
    assert_eq!(dialogue.frames.passed.len(), 1, "the kernel's");
    dialogue.frames.claimed = vec![80];
    dialogue.play(
        "< . 5:15 ack 9 win 65535
        > R 0:0
        < R 5:5
        < S 5:5 win 65535",
    );
    // An attempt that was given up before its answer came.
    dialogue.play(
        "connect
        > S 0:0
        close",
    );
    dialogue.frames.claimed = (1024..=u16::MAX).collect();
    dialogue.play(
        "+100ms
        < S. 0:0 ack 1 win 65535 <mss 1460>
        > R 1:1",
    );
}
