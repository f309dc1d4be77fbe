//! Unknown peers: blind resets, SYNs and data (RFC 5961), floods, memory (RFC 4987).

mod support;

use bypass_tcp::wire::tcp::{ACK, RST, SYN};
use bypass_tcp::{Config, OptionName, Rx, SocketOption, Sum};
use support::dialogue::{play, play_with, ACCEPTED};
use support::{config, Frames, World};

fn accepted(script: &str) -> support::dialogue::Dialogue {
    play(&format!("{ACCEPTED}{script}"))
}

#[test]
fn a_reset_in_the_window_is_challenged_and_only_the_exact_one_ends_the_connection() {
    accepted(
        "< R 2:2
        > . 1:1 ack 1
        state Established
        < R 70000:70000
        state Established
        < R 1:1
        error connection reset by peer",
    );
}

/// RFC 5961, 3.2: the first number behind the window is outside, for a connection and for one that is half open.
#[test]
fn a_reset_right_behind_the_window_is_dropped_without_an_answer() {
    play(
        "listen
        set rcvbuf 10000
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1 win 8760 <mss 1460>
        < R 8761:8761
        < R 8760:8760
        > . 1:1 ack 1 win 8760
        +501ms
        < . 1:1 ack 1 win 65535
        accept
        < . 1:1001 ack 1 win 65535
        > . 1:1 ack 1001 win 9000
        < R 10001:10001
        < R 10000:10000
        > . 1:1 ack 1001 win 9000
        state Established",
    );
}

/// The exact number ends a connection, one in the window is challenged, and one outside is dropped. A reset that does
/// not count the FIN before it is taken too.
#[test]
fn resets_at_the_edges_of_the_window_in_each_state() {
    const STATES: [(&str, &str, u32); 6] = [
        ("Established", "", 1),
        ("FinWait1", "shutdown\n> F. 1:1 ack 1", 1),
        (
            "FinWait2",
            "shutdown\n> F. 1:1 ack 1\n< . 1:1 ack 2 win 65535",
            1,
        ),
        ("CloseWait", "< F. 1:1 ack 1 win 65535\n> . 1:1 ack 2", 2),
        (
            "LastAck",
            "< F. 1:1 ack 1 win 65535\n> . 1:1 ack 2\nshutdown\n> F. 1:1 ack 2",
            2,
        ),
        (
            "Closing",
            "shutdown\n> F. 1:1 ack 1\n< F. 1:1 ack 1 win 65535\n> . 2:2 ack 2",
            2,
        ),
    ];
    for (state, script, next) in STATES {
        let reset = |offset: i64| {
            let mut dialogue = accepted(script);
            let handle = dialogue.handle.unwrap();
            let window = dialogue.engine.info(handle).unwrap().rcv_wnd;
            assert!(window > 60_000, "{window}");
            let from_edge = if offset < 900 {
                0
            } else {
                i64::from(window) - 1_000
            };
            let seq = i64::from(next) + offset + from_edge;
            dialogue.play_loosely(&format!("< R {seq}:{seq}"));
            let info = dialogue.engine.info(handle).unwrap();
            let now = format!("{:?}", info.state);
            (now, dialogue.engine.stats().challenge_acks)
        };
        let (open, closed) = (state.to_string(), "Closed".to_string());
        let without_fin = if next == 2 { &closed } else { &open };
        assert_eq!(reset(-1), (without_fin.clone(), 0), "{state}");
        assert_eq!(reset(0), (closed.clone(), 0), "{state}");
        // From 999 on they count from a thousand before the end of the window.
        for (offset, challenges) in [(1, 1), (999, 1), (1_000, 0), (1_001, 0)] {
            assert_eq!(
                reset(offset),
                (open.clone(), challenges),
                "{state} {offset}"
            );
        }
    }
}

#[test]
fn a_syn_in_the_window_is_challenged() {
    accepted(
        "< S 5:5 win 100 <mss 1000>
        > . 1:1 ack 1
        state Established",
    );
}

#[test]
fn data_with_an_impossible_acknowledgment_is_dropped() {
    accepted(
        "< P. 1:11 ack 4000000000 win 100
        > . 1:1 ack 1
        recv wouldblock",
    );
}

/// Segments with other bytes for numbers that have come before: what is in order stays, and of what lies behind a hole the
/// bytes that fill it count, as on Linux.
#[test]
fn bytes_in_order_are_not_replaced_by_others_of_their_numbers() {
    let mut dialogue = play(ACCEPTED);
    dialogue.play_loosely(
        "< P. 1:11 ack 1 fill 1
        < P. 6:16 ack 1 fill 2
        < P. 1:16 ack 1 fill 3
        < P. 26:36 ack 1 fill 4
        < P. 11:31 ack 1 fill 5",
    );
    let handle = dialogue.handle.expect("a connection");
    let mut buffer = [0; 100];
    let count = dialogue.engine.recv(dialogue.now_us, handle, &mut buffer);
    let runs = [(1, 10), (2, 5), (5, 15), (4, 5)];
    let expected: Vec<u8> = runs
        .iter()
        .flat_map(|(byte, times)| [*byte].repeat(*times))
        .collect();
    assert_eq!(&buffer[..count.expect("bytes")], &expected[..]);
}

#[test]
fn challenges_of_one_connection_are_limited_to_two_a_second() {
    accepted(
        "< R 2:2
        > . 1:1 ack 1
        < R 3:3
        < R 4:4
        +499ms
        < R 5:5
        +2ms
        < R 6:6
        > . 1:1 ack 1",
    );
}

#[test]
fn challenges_of_all_connections_are_limited_too() {
    let few = Config {
        challenge_acks_per_second: 1,
        ..config(1)
    };
    play_with(
        few,
        "listen
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < R 2:2
        > . 1:1 ack 1
        +600ms
        < R 3:3
        +600ms
        > S. 0:0 ack 1
        < R 4:4
        > . 1:1 ack 1",
    );
}

#[test]
fn challenges_of_one_half_open_connection_are_limited_to_two_a_second() {
    play(
        "listen
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < R 2:2
        > . 1:1 ack 1
        < R 3:3
        < S 5:5 win 100 <mss 1000>
        < . 100001:100001 ack 1 win 100
        # bytes are answered always
        < . 100001:100101 ack 1 win 100
        > . 1:1 ack 1
        +501ms
        < R 4:4
        > . 1:1 ack 1",
    );
}

#[test]
fn a_syn_sent_again_is_answered_twice_a_second() {
    play(
        "listen
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1
        < S 0:0 win 65535 <mss 1000>
        < S 0:0 win 65535 <mss 1000>
        +501ms
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1",
    );
}

/// The window field has units of 64 bytes: rounding it up would let a little more in with each round trip.
#[test]
fn a_program_that_does_not_read_gets_no_more_than_its_buffer_holds() {
    let small = Config {
        receive_bytes: 8_192,
        ..config(1)
    };
    let mut dialogue = play_with(
        small,
        "listen
        < S 0:0 win 65535 <mss 1000,nop,wscale 7>
        > S. 0:0 ack 1
        < . 1:1 ack 1 win 100
        accept",
    );
    let handle = dialogue.handle.unwrap();
    let mut held = 0;
    for _ in 0..400 {
        dialogue.play_loosely(&format!("< . {}:{} ack 1 win 100", held + 1, held + 64));
        held = dialogue.engine.queued(handle).unwrap().0;
    }
    assert!(held > 8_000 && held <= 8_192, "{held}");
}

/// RFC 2018, 8: bytes ahead of a hole may be dropped again, so they must not take the last memory.
#[test]
fn a_byte_far_ahead_does_not_take_the_memory_that_bytes_in_order_need() {
    let few = Config {
        buffer_bytes_max: 64 << 10,
        ..config(1)
    };
    let script = format!(
        "{ACCEPTED}< . 40001:40002 ack 1 win 65535
        > . 1:1 ack 1 <>
        < . 5001:5002 ack 1 win 65535
        > . 1:1 ack 1 <nop,nop,sack 5001:5002>
        < . 1:1001 ack 1 win 65535
        > . 1:1 ack 1001
        recv 1000"
    );
    let dialogue = play_with(few, &script);
    assert_eq!(dialogue.engine.stats().rcv_pruned, 1);
    assert!(dialogue.engine.counts().buffer_bytes_held <= 32 << 10);
}

#[test]
fn an_old_timestamp_is_refused() {
    play(
        "listen
        < S 0:0 win 65535 <mss 1000,sackOK,TS 500 0>
        > S. 0:0 ack 1
        < . 1:1 ack 1 win 65535 <nop,nop,TS 600 last>
        accept
        < . 1:11 ack 1 win 65535 <nop,nop,TS 599 last>
        > . 1:1 ack 1
        recv wouldblock
        < . 1:11 ack 1 win 65535 <nop,nop,TS 601 last>
        > . 1:1 ack 11
        recv 10",
    );
}

/// RFC 7323, 5.2: the clock of a peer goes round, and old is what is behind by up to half of it.
#[test]
fn a_timestamp_that_goes_round_is_later() {
    play(
        "listen
        < S 0:0 win 65535 <mss 1000,sackOK,TS 4294967290 0>
        > S. 0:0 ack 1
        < . 1:1 ack 1 win 65535 <nop,nop,TS 4294967295 last>
        accept
        < . 1:11 ack 1 win 65535 <nop,nop,TS 5 last>
        > . 1:1 ack 11
        < . 11:21 ack 1 win 65535 <nop,nop,TS 4294967294 last>
        > . 1:1 ack 11
        recv 10
        recv wouldblock",
    );
}

#[test]
fn icmp_errors_about_packets_not_in_flight_are_ignored() {
    accepted(
        "send 10
        > P. 1:11 ack 1
        icmp toobig 600 seq 11
        icmp toobig 600 seq 4000000
        icmp toobig 68 seq 1
        < . 1:1 ack 11 win 65535",
    );
    // Nor does one that would come before our SYN, or behind it, end an attempt.
    play(
        "connect
        > S 0:0
        icmp nohost seq 4294967295
        icmp nohost seq 1
        state SynSent
        icmp nohost seq 0
        error host unreachable",
    );
}

#[test]
fn packets_that_claim_to_come_from_this_host_or_from_none_are_dropped() {
    let mut world = World::plain();
    let engine = &mut world.hosts[1].engine;
    engine.listen("0.0.0.0:80".parse().unwrap(), 10).unwrap();
    let mut answers = |from: [u8; 4]| {
        let mut frames = Frames::default();
        let frame = syn_from(u32::from_be_bytes(from), 7);
        engine.rx_burst(1_000_000_000, &[Rx::new(&frame)], &mut frames);
        engine.end_batch(1_000_000_000, &mut frames);
        frames.sent.len() + frames.passed.len()
    };
    for from in [
        [127, 0, 0, 1],
        [127, 9, 9, 9],
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        [224, 0, 0, 1],
        [255, 255, 255, 255],
        [10, 0, 0, 2],
        [10, 0, 0, 255],
    ] {
        assert_eq!(answers(from), 0, "{from:?}");
    }
    assert!(answers([10, 0, 0, 9]) > 0);
}

/// A sender on this host leaves sums to its device; a sender elsewhere behind the same interface does not, and
/// its frames may have been damaged on their way.
#[test]
fn a_sum_that_may_be_partial_is_right_as_a_whole_or_that_of_the_pseudo_header() {
    use bypass_tcp::wire::ip;
    let whole = bare((0x0a00_0009, 1_024), 7, 0, SYN);
    let ends = [0x0a00_0009, 0x0a00_0002].map(ip::Addr::v4);
    let mut partial = whole.clone();
    let pseudo = ip::pseudo_header(ends[0], ends[1], ip::TCP, 20).partial();
    partial[50..52].copy_from_slice(&pseudo);
    let flipped = |frame: &[u8], at: usize| {
        let mut frame = frame.to_vec();
        frame[at] ^= 0x10;
        frame
    };
    for (sum, frame, is_taken) in [
        (Sum::Unknown, whole.clone(), true),
        (Sum::Unknown, partial.clone(), false),
        (Sum::Unknown, flipped(&whole, 41), false),
        (Sum::MayBePartial, whole.clone(), true),
        (Sum::MayBePartial, partial.clone(), true),
        (Sum::MayBePartial, flipped(&whole, 41), false),
        // The addresses are part of the pseudo header, and the header's own sum is complete.
        (Sum::MayBePartial, flipped(&partial, 29), false),
        (Sum::MayBePartial, flipped(&partial, 22), false),
        (Sum::MayBePartial, flipped(&whole, 22), false),
        (Sum::Verified, flipped(&whole, 22), false),
        (Sum::Verified, flipped(&whole, 41), true),
    ] {
        let mut world = World::plain();
        let engine = &mut world.hosts[1].engine;
        engine.listen("0.0.0.0:80".parse().unwrap(), 10).unwrap();
        let rx = Rx { bytes: &frame, sum };
        engine.rx_burst(1_000_000_000, &[rx], &mut Frames::default());
        let half_open = engine.counts().half_open;
        assert_eq!(half_open == 1, is_taken, "{sum:?} {frame:?}");
    }
}

/// Under promiscuous mode frames of other stations come too, with whatever addresses they have.
#[test]
fn frames_for_other_stations_are_not_taken() {
    let mut world = World::plain();
    let engine = &mut world.hosts[1].engine;
    engine.listen("0.0.0.0:80".parse().unwrap(), 10).unwrap();
    let mut frame = bare((0x0a00_0009, 1_024), 7, 0, SYN);
    frame[5] ^= 0x40;
    engine.rx_burst(1_000_000_000, &[Rx::new(&frame)], &mut Frames::default());
    assert_eq!(engine.counts().half_open, 0);
    frame[5] ^= 0x40;
    engine.rx_burst(1_000_000_000, &[Rx::new(&frame)], &mut Frames::default());
    assert_eq!(engine.counts().half_open, 1);
}

#[test]
fn a_listeners_hop_limit_is_that_of_its_connections() {
    for (hops, expected) in [(0, 64), (7, 7)] {
        let mut world = World::plain();
        let now_us = world.now_us;
        let engine = &mut world.hosts[1].engine;
        let listener = engine.listen("0.0.0.0:80".parse().unwrap(), 10).unwrap();
        let option = bypass_tcp::SocketOption::Hops(hops);
        engine.setopt(now_us, listener, option).unwrap();
        let mut sink = Frames::default();
        let peer = std::net::IpAddr::from([10, 0, 0, 9]);
        engine.set_neighbour(now_us, peer, [2, 0, 0, 0, 0, 9], &mut sink);
        let frame = bare((0x0a00_0009, 1_024), 7, 0, SYN);
        engine.rx_burst(now_us, &[Rx::new(&frame)], &mut sink);
        assert_eq!(sink.sent.last().expect("an answer")[22], expected);
    }
}

#[test]
fn ipv6_packets_with_addresses_of_ipv4_or_of_the_loopback_are_dropped() {
    let mut world = World::plain();
    let engine = &mut world.hosts[1].engine;
    engine.listen("[::]:80".parse().unwrap(), 10).unwrap();
    let mut answers = |from: &str| {
        let from: std::net::Ipv6Addr = from.parse().unwrap();
        let mut frames = Frames::default();
        engine.rx_burst(1_000_000_000, &[Rx::new(&syn_v6(from))], &mut frames);
        engine.end_batch(1_000_000_000, &mut frames);
        frames.sent.len() + frames.passed.len()
    };
    for from in ["::1", "::", "::ffff:10.0.0.9", "ff02::1", "fd00::2"] {
        assert_eq!(answers(from), 0, "{from}");
    }
    assert!(answers("fd00::9") > 0);
}

fn syn_v6(from: std::net::Ipv6Addr) -> Vec<u8> {
    use bypass_tcp::wire::ip;
    let to: std::net::Ipv6Addr = "fd00::2".parse().unwrap();
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 9, 0x86, 0xdd];
    frame.extend([0x60, 0, 0, 0, 0, 20, 6, 64]);
    frame.extend(from.octets());
    frame.extend(to.octets());
    frame.extend([4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff]);
    frame.extend([0; 4]);
    let ends = [from, to].map(|end| ip::Addr::from(std::net::IpAddr::V6(end)));
    let mut sum = ip::pseudo_header(ends[0], ends[1], ip::TCP, 20);
    sum.add(&frame[54..]);
    let sum = sum.finish();
    frame[70..72].copy_from_slice(&sum);
    frame
}

/// A SYN from one of many addresses, as a flood has them.
fn syn(number: u32) -> Vec<u8> {
    syn_from(0x0a00_0003 + number % 200, number)
}

fn syn_from(from: u32, number: u32) -> Vec<u8> {
    let port = (1_024 + number / 200) as u16;
    bare((from, port), number, 0, SYN)
}

/// A segment without bytes and options.
fn bare((from, port): (u32, u16), seq: u32, ack: u32, flags: u8) -> Vec<u8> {
    use bypass_tcp::wire::{checksum, ip};
    let to = 0x0a00_0002u32;
    let mut frame = vec![
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 9, 8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0,
    ];
    frame.extend(from.to_be_bytes());
    frame.extend(to.to_be_bytes());
    let sum = checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 80]);
    frame.extend(seq.to_be_bytes());
    frame.extend(ack.to_be_bytes());
    frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    let mut sum = ip::pseudo_header(ip::Addr::v4(from), ip::Addr::v4(to), ip::TCP, 20);
    sum.add(&frame[34..]);
    let sum = sum.finish();
    frame[50..52].copy_from_slice(&sum);
    frame
}

/// A SYN that is sent again when there is a place for it again is answered by another number than the cookie before.
#[test]
fn an_acknowledged_cookie_opens_next_to_a_half_open_entry_of_the_same_syn() {
    let one = Config {
        half_open_of_listener_max: 1,
        ..config(2)
    };
    let mut world = World::new([config(1), one]);
    let listener = world.hosts[1]
        .engine
        .listen("0.0.0.0:80".parse().unwrap(), 10)
        .unwrap();
    let now_us = world.now_us;
    let engine = &mut world.hosts[1].engine;
    let mut sink = Frames::default();
    let peer = std::net::IpAddr::from([10, 0, 0, 3]);
    engine.set_neighbour(now_us, peer, [2, 0, 0, 0, 0, 9], &mut sink);
    let mut answer = |frame: Vec<u8>| {
        engine.rx_burst(now_us, &[Rx::new(&frame)], &mut sink);
        let sent = std::mem::take(&mut sink.sent);
        sent.last().map(|frame| {
            let number = u32::from_be_bytes(frame[38..42].try_into().unwrap());
            (number, frame[47])
        })
    };
    let (first, second) = ((0x0a00_0003, 1_024), (0x0a00_0003, 1_025));
    answer(bare(first, 0, 0, SYN)).expect("an entry");
    let (cookie, flags) = answer(bare(second, 500, 0, SYN)).expect("a cookie");
    assert_eq!(flags, SYN | ACK);
    answer(bare(first, 1, 0, RST));
    let (number, flags) = answer(bare(second, 500, 0, SYN)).expect("an entry");
    assert_eq!((flags, number == cookie), (SYN | ACK, false));
    let forged = bare(second, 501, cookie.wrapping_add(77), ACK);
    assert_eq!(answer(forged).expect("a reset").1 & RST, RST);
    let acknowledged = bare(second, 501, cookie.wrapping_add(1), ACK);
    assert_eq!(answer(acknowledged), None);
    let engine = &mut world.hosts[1].engine;
    assert_eq!(engine.counts().half_open, 0);
    assert_eq!(engine.waiting(listener), Ok(1));
}

#[test]
fn a_flood_of_syns_takes_bounded_memory_and_honest_peers_still_get_in() {
    let small = |number| Config {
        half_open_max: 256,
        ..config(number)
    };
    let mut world = World::new([small(1), small(2)]);
    world.is_strict = false;
    let listener = world.hosts[1]
        .engine
        .listen("0.0.0.0:80".parse().unwrap(), 10_000)
        .unwrap();
    let mut sink = Frames::default();
    for number in 0..20_000 {
        let engine = &mut world.hosts[1].engine;
        engine.rx_burst(world.now_us, &[Rx::new(&syn(number))], &mut sink);
        sink.sent.clear();
    }
    let counts = world.hosts[1].engine.counts();
    assert_eq!(
        (counts.half_open, counts.connections, counts.buffer_bytes),
        (256, 0, 0)
    );
    let (client, server) = world.connect_to(listener);
    assert_eq!(world.hosts[1].engine.stats().syncookies_recv, 1);
    let has = world.hosts[1].engine.info(server).unwrap().has;
    assert_eq!(
        has,
        (true, true, false),
        "timestamps and SACK come through the cookie"
    );
    world.transfer((0, client), (1, server), 100_000, 10_000_000);
    world.transfer((1, server), (0, client), 100_000, 10_000_000);
}

#[test]
fn a_listener_may_have_fewer_half_open_connections_than_the_engine() {
    let few = |number| Config {
        half_open_of_listener_max: 64,
        ..config(number)
    };
    let mut world = World::new([few(1), few(2)]);
    let at = "0.0.0.0:80".parse().unwrap();
    world.hosts[1].engine.listen(at, 10_000).unwrap();
    let mut sink = Frames::default();
    for number in 0..1_000 {
        let engine = &mut world.hosts[1].engine;
        engine.rx_burst(world.now_us, &[Rx::new(&syn(number))], &mut sink);
    }
    let engine = &world.hosts[1].engine;
    assert_eq!(engine.counts().half_open, 64);
    assert_eq!(engine.stats().syncookies_sent, 1_000 - 64);
}

#[test]
fn time_wait_entries_are_bounded_and_the_oldest_goes() {
    let few = |number| Config {
        time_wait_max: 8,
        ..config(number)
    };
    let mut world = World::new([few(1), few(2)]);
    let listener = world.listen();
    for _ in 0..20 {
        let (client, server) = world.connect_to(listener);
        world.close(0, client);
        world.run_us(1_000);
        world.close(1, server);
        world.run_us(1_000);
    }
    let engine = &world.hosts[0].engine;
    assert_eq!(
        (engine.counts().time_wait, engine.stats().time_wait_overflow),
        (8, 12)
    );
}

#[test]
fn exhausted_buffers_refuse_and_recover() {
    let poor = |number| Config {
        buffer_bytes_max: 256 << 10,
        ..config(number)
    };
    let mut world = World::new([poor(1), poor(2)]);
    let listener = world.listen();
    let pairs: Vec<_> = (0..8).map(|_| world.connect_to(listener)).collect();
    for (client, _) in &pairs {
        let _ = world.hosts[0]
            .engine
            .send(world.now_us, *client, &[1; 60_000], false);
    }
    world.flush(0);
    world.run_us(5_000_000);
    assert!(world.hosts[1].engine.counts().buffer_bytes_held <= 256 << 10);
    assert!(world.hosts[0].engine.counts().buffer_bytes_held <= 256 << 10);
    for (_, server) in &pairs {
        world.read(1, *server);
    }
    world.run_us(600_000_000);
    for (client, server) in pairs {
        world.read(1, server);
        world.hosts[0].engine.abort(world.now_us, client).unwrap();
        world.flush(0);
        world.hosts[1].engine.abort(world.now_us, server).unwrap();
        world.flush(1);
    }
    let counts = [0, 1].map(|host| world.hosts[host].engine.counts());
    assert_eq!(
        counts.map(|counts| (counts.connections, counts.buffer_bytes)),
        [(0, 0); 2]
    );
}

/// The first has all the memory until its peer has acknowledged what it wrote; the second has nothing on its
/// way that anything could happen to.
#[test]
fn a_writer_that_found_no_memory_is_notified_when_another_connection_gives_some_back() {
    let poor = Config {
        buffer_bytes_max: 2 << 10,
        ..config(1)
    };
    let mut world = World::new([poor, config(2)]);
    let listener = world.listen();
    let (first, _) = world.connect_to(listener);
    let (second, receiver) = world.connect_to(listener);
    let (third, _) = world.connect_to(listener);
    let now_us = world.now_us;
    let host = &mut world.hosts[0];
    assert!(host.engine.send(now_us, first, &[1; 40_000], false).is_ok());
    for starved in [second, third, second] {
        let refused = host.engine.send(now_us, starved, &[2; 40_000], false);
        assert_eq!(refused, Err(bypass_tcp::Error::NoBuffers));
    }
    assert_eq!(host.engine.next_event(), None);
    // What is over waits no more.
    host.engine.abort(now_us, third).unwrap();
    host.ready.clear();
    world.flush(0);
    world.run_until(5_000_000, |world| {
        let told = world.hosts[0].ready.get(&second);
        told.is_some_and(|ready| ready & bypass_tcp::WRITABLE != 0)
    });
    assert!(!world.hosts[0].ready.contains_key(&third));
    let sent = world.send(0, second, &[2; 40_000]);
    world.run_us(1_000_000);
    assert_eq!(world.read(1, receiver).len(), sent);
    assert!(!world.hosts[0].engine.has_memory_to_offer());
}

/// Peers that let everything be written to them and read nothing, and one that sends what the program does not read:
/// a connection that comes later is served all the same.
#[test]
fn peers_that_hold_all_the_memory_do_not_stop_the_others() {
    let poor = Config {
        buffer_bytes_max: 1 << 20,
        ..config(2)
    };
    let mut world = World::new([config(1), poor]);
    let listener = world.listen();
    let hostile: Vec<_> = (0..24).map(|_| world.connect_to(listener)).collect();
    for (client, server) in &hostile {
        world.send(0, *client, &[1; 60_000]);
        let _ = world.hosts[1]
            .engine
            .send(world.now_us, *server, &[2; 60_000], false);
        world.flush(1);
        world.run_us(1_000_000);
    }
    let held = world.hosts[1].engine.counts().buffer_bytes;
    assert!(held > 640 << 10, "{held}");
    let (client, server) = world.connect_to(listener);
    for _ in 0..10 {
        let begun_us = world.now_us;
        world.send(0, client, &[3; 500]);
        world.run_until(1_000_000, |world| world.read(1, server).len() == 500);
        assert_eq!(world.send(1, server, &[4; 1_000]), 1_000);
        world.run_until(1_000_000, |world| world.read(0, client).len() == 1_000);
        let taken_us = world.now_us - begun_us;
        assert!(taken_us < 1_000, "{taken_us}");
    }
}

/// The smallest ring, which is all that there is, has less room than a segment.
#[test]
fn segments_larger_than_what_is_left_of_the_memory_arrive_in_pieces() {
    let large = |number, buffer_bytes_max| Config {
        mtu: 9_000,
        buffer_bytes_max,
        ..config(number)
    };
    let mut world = World::new([large(1, 64 << 20), large(2, 1 << 20)]);
    let listener = world.listen();
    let unread: Vec<_> = (0..24).map(|_| world.connect_to(listener)).collect();
    for (client, _) in &unread {
        world.send(0, *client, &[1; 60_000]);
        world.run_us(1_000_000);
    }
    let (client, server) = world.connect_to(listener);
    let bytes: Vec<u8> = (0..8_000u32).map(|i| (i % 251) as u8).collect();
    assert_eq!(world.send(0, client, &bytes), bytes.len());
    let mut read = Vec::new();
    world.run_until(20_000_000, |world| {
        read.extend(world.read(1, server));
        read.len() == bytes.len()
    });
    assert_eq!(read, bytes);
}

#[test]
fn limits_of_buffers_are_not_raised_while_memory_is_short() {
    const BYTES: u32 = 87_040;
    let poor = Config {
        buffer_bytes_max: 1 << 20,
        send_bytes: BYTES,
        ..config(2)
    };
    let mut world = World::new([config(1), poor]);
    let listener = world.listen();
    let unread: Vec<_> = (0..9).map(|_| world.connect_to(listener)).collect();
    for (client, _) in &unread {
        world.send(0, *client, &[1; 60_000]);
        world.run_us(1_000_000);
    }
    let (client, server) = world.connect_to(listener);
    let limit = |world: &mut World| {
        let engine = &mut world.hosts[1].engine;
        engine.getopt(server, OptionName::SendBuffer).unwrap()
    };
    world.transfer((1, server), (0, client), 1_000_000, 60_000_000);
    assert_eq!(limit(&mut world), SocketOption::SendBuffer { bytes: BYTES });
    for (_, server) in unread {
        world.read(1, server);
    }
    world.transfer((1, server), (0, client), 1_000_000, 60_000_000);
    assert_ne!(limit(&mut world), SocketOption::SendBuffer { bytes: BYTES });
}

/// Less than what is to be written is better than nothing.
#[test]
fn a_write_takes_as_much_as_there_is_memory_for() {
    let poor = Config {
        buffer_bytes_max: 8 << 10,
        ..config(1)
    };
    let mut world = World::new([poor, config(2)]);
    let (client, server) = world.connect();
    let sent = world.send(0, client, &[1; 40_000]);
    assert!(sent >= 2_048, "{sent}");
    world.run_us(1_000_000);
    assert_eq!(world.read(1, server).len(), sent);
}

#[test]
fn connections_beyond_the_limit_are_not_opened() {
    let few = |number| Config {
        connections_max: 2,
        ..config(number)
    };
    let mut world = World::new([few(1), config(2)]);
    let listener = world.listen();
    world.connect_to(listener);
    world.connect_to(listener);
    let remote = "10.0.0.2:80".parse().unwrap();
    let third = world.hosts[0].engine.connect(world.now_us, None, remote);
    assert_eq!(third, Err(bypass_tcp::Error::NoBuffers));
}

#[test]
fn a_full_accept_queue_drops_syns_until_somebody_accepts() {
    let mut world = World::plain();
    let listener = world.hosts[1]
        .engine
        .listen("[::]:80".parse().unwrap(), 1)
        .unwrap();
    for _ in 0..2 {
        let remote = "10.0.0.2:80".parse().unwrap();
        world.hosts[0]
            .engine
            .connect(world.now_us, None, remote)
            .unwrap();
        world.flush(0);
        world.run_us(10_000);
    }
    let engine = &mut world.hosts[1].engine;
    assert_eq!(
        (engine.counts().connections, engine.stats().listen_overflows),
        (1, 1)
    );
    engine.accept(listener).unwrap();
    world.run_us(2_000_000);
    assert!(world.hosts[1].engine.accept(listener).is_ok());
}
