//! A device has two queues: AF_PACKET takes few GSO segments while the interface's queue holds them, and AF_XDP goes on taking
//! single frames meanwhile.

mod support;

use bypass_tcp::{Config, Error, Handle};
use support::config;
use support::dialogue::Dialogue;

/// Connections accepted from the peer's ports 40000, 40001 and so on; the dialogue goes on at the last one.
fn accepted(count: u16) -> (Dialogue, Vec<Handle>) {
    let mut dialogue = Dialogue::new(Config {
        segmentation_max: 65_000,
        ..config(1)
    });
    dialogue.play("listen");
    let mut handles = Vec::new();
    for number in 0..count {
        dialogue.leave_for_port(40_000 + number);
        dialogue.play(
            "
            < S 0:0 win 65535 <mss 1000,sackOK>
            > S. 0:0 ack 1
            +10ms
            < . 1:1 ack 1 win 65535
            accept
            ",
        );
        handles.extend(dialogue.handle);
    }
    (dialogue, handles)
}

fn write(dialogue: &mut Dialogue, handle: Handle, bytes: usize) {
    let sent = dialogue
        .engine
        .send(dialogue.now_us, handle, &vec![7; bytes], false);
    assert_eq!(sent.ok(), Some(bytes));
}

/// Ends a round; whether others wait that were not looked at.
fn end_part(dialogue: &mut Dialogue, most: usize) -> bool {
    let Dialogue { engine, frames, .. } = dialogue;
    engine.end_part(dialogue.now_us, most, frames)
}

/// Which connections have sent, by the last digit of the peer's port.
fn senders(dialogue: &mut Dialogue) -> Vec<u8> {
    let frames = dialogue.frames.sent.drain(..);
    let mut ports: Vec<u8> = frames.map(|frame| frame[37] - (40_000_u16 as u8)).collect();
    ports.dedup();
    ports
}

#[test]
fn a_gso_segment_without_room_holds_no_other_connection_back() {
    let (mut dialogue, handles) = accepted(2);
    dialogue.play("gso room 0");
    write(&mut dialogue, handles[0], 100_000);
    dialogue.play(
        "
        send 10
        > P. 1:11 ack 1
        < . 1:1 ack 11 win 65535
        close
        > F. 11:11 ack 1
        ",
    );
}

/// As one whose peer does not answer; nothing is in flight that would end it.
#[test]
fn a_connection_whose_gso_segment_never_finds_room_times_out() {
    let (mut dialogue, handles) = accepted(1);
    dialogue.play("gso room 0");
    write(&mut dialogue, handles[0], 100_000);
    end_part(&mut dialogue, usize::MAX);
    let begun_us = dialogue.now_us;
    let mut timers = 0;
    while let Some(next_us) = dialogue.engine.next_timer() {
        assert!(timers < 50);
        timers += 1;
        dialogue.now_us = next_us;
        let Dialogue { engine, frames, .. } = &mut dialogue;
        engine.poll_timers(next_us, frames);
        engine.end_batch(next_us, frames);
    }
    let error = dialogue.engine.take_error(handles[0]);
    assert_eq!(error.ok().flatten(), Some(Error::TimedOut));
    let seconds = (dialogue.now_us - begun_us) / 1_000_000;
    assert!((500..2000).contains(&seconds), "{seconds} s");
    assert!(!dialogue.engine.has_output());
}

#[test]
fn a_gso_segment_that_has_waited_long_is_sent_again_as_soon_as_any() {
    let (mut dialogue, _) = accepted(1);
    dialogue.play(
        "
        gso room 0
        send 2000
        wait 20s
        gso room any
        > . 1:1001 ack 1
        > P. 1001:2001 ack 1
        # Its timers begin again.
        +100ms
        > P. 1001:2001 ack 1
        ",
    );
}

#[test]
fn a_connection_whose_gso_segment_finds_no_room_goes_on_acknowledging() {
    let (mut dialogue, _) = accepted(1);
    dialogue.play(
        "
        gso room 0
        send 100000
        < . 1:1001 ack 1 win 65535
        > . 1:1 ack 1001
        < . 1001:2001 ack 1 win 65535
        > . 1:1 ack 2001
        gso room 1
        > . 1:1001 ack 2001
        > P. 1001:2001 ack 2001
        ",
    );
}

#[test]
fn connections_take_turns_in_the_queue_of_gso_segments() {
    let (mut dialogue, handles) = accepted(3);
    dialogue.play("gso room 0");
    for handle in handles {
        write(&mut dialogue, handle, 20_000);
    }
    let mut turns = Vec::new();
    for _ in 0..15 {
        dialogue.now_us += 1;
        dialogue.frames.gso_room = Some(1);
        end_part(&mut dialogue, usize::MAX);
        turns.extend(senders(&mut dialogue));
    }
    assert_eq!(turns, [0, 1, 2].repeat(5));
    assert!(!dialogue.engine.has_output(), "each has used its window");
}

#[test]
fn the_queue_of_gso_segments_is_asked_once_a_round_when_it_is_full() {
    let (mut dialogue, handles) = accepted(8);
    dialogue.play("gso room 0");
    for handle in handles {
        write(&mut dialogue, handle, 20_000);
    }
    end_part(&mut dialogue, usize::MAX);
    assert_eq!(dialogue.frames.gso_refused, 1);
    end_part(&mut dialogue, usize::MAX);
    assert_eq!(dialogue.frames.gso_refused, 2);
    assert!(dialogue.engine.has_output());
}

#[test]
fn connections_that_wait_for_room_are_none_to_come_back_for_at_once() {
    let (mut dialogue, handles) = accepted(8);
    dialogue.play("gso room 0");
    for handle in &handles {
        write(&mut dialogue, *handle, 20_000);
    }
    let parts = |dialogue: &mut Dialogue| (1..20).find(|_| !end_part(dialogue, 3));
    assert_eq!(parts(&mut dialogue), Some(3));
    assert_eq!(parts(&mut dialogue), Some(3));
    dialogue.frames.gso_room = None;
    while end_part(&mut dialogue, 3) {}
    let mut all = senders(&mut dialogue);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_single_segment_behind_one_that_was_refused_stays_behind_those_before() {
    // The first GSO segment has left, the second has not; an urgent byte makes single segments of the rest.
    let (mut dialogue, _) = accepted(1);
    dialogue.play(
        "
        set nodelay
        gso room 1
        send 8000
        > . 1:1001 ack 1
        > P. 1001:2001 ack 1
        urgent 1
        wait 1ms
        ",
    );
}
