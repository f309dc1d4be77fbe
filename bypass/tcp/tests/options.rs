//! Effects of settings and options: when a peer is given up, what is sent without being asked for.

mod support;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bypass_tcp::{Config, Error, SocketOption};
use support::dialogue::{play, play_with};
use support::{config, World};

/// Nothing that host 0 sends arrives any more.
fn cut_off(world: &mut World) {
    world.filter = Some(Box::new(|from, _| from == 0));
}

/// When the connection of host 0 has failed, microseconds from now.
fn fails_after_us(world: &mut World, client: bypass_tcp::Handle, error: Error) -> u64 {
    let begun_us = world.now_us;
    world.run_until(100_000_000, |world| {
        let told = world.hosts[0].engine.take_error(client).expect("open");
        told.is_some_and(|told| told == error)
    });
    world.now_us - begun_us
}

#[test]
fn the_user_timeout_ends_a_connection_when_it_is_over() {
    let mut world = World::plain();
    let (client, _) = world.connect();
    let option = SocketOption::UserTimeout {
        milliseconds: 1_500,
    };
    let now_us = world.now_us;
    world.hosts[0]
        .engine
        .setopt(now_us, client, option)
        .expect("open");
    cut_off(&mut world);
    world.send(0, client, b"unanswered");
    let after_us = fails_after_us(&mut world, client, Error::TimedOut);
    // Counted from the last loss probe, 0.2 s after the bytes. The timer alone is due after 3.2 s.
    assert!((1_500_000..1_800_000).contains(&after_us), "{after_us}");
}

#[test]
fn keepalive_of_the_engine_counts_where_the_socket_says_nothing() {
    let patient = Config {
        keepalive_idle_us: 3_000_000,
        keepalive_interval_us: 1_000_000,
        keepalive_probes: 2,
        ..config(1)
    };
    let mut world = World::new([patient, config(2)]);
    let (client, _) = world.connect();
    let now_us = world.now_us;
    let option = SocketOption::KeepAlive(true);
    world.hosts[0]
        .engine
        .setopt(now_us, client, option)
        .expect("open");
    cut_off(&mut world);
    let after_us = fails_after_us(&mut world, client, Error::TimedOut);
    assert!((4_900_000..5_100_000).contains(&after_us), "{after_us}");
    assert_eq!(world.hosts[0].engine.stats().keepalives, 2);
}

/// Loss probes that host 0 sends for a segment that the peer does not acknowledge.
fn loss_probes(loss_probe: bool) -> u64 {
    let probing = Config {
        loss_probe,
        ..config(1)
    };
    let mut world = World::new([probing, config(2)]);
    let (client, server) = world.connect();
    world.transfer((0, client), (1, server), 10_000, 10_000_000);
    cut_off(&mut world);
    world.send(0, client, b"last");
    world.run_us(3_000_000);
    world.hosts[0].engine.stats().loss_probes
}

#[test]
fn loss_probes_can_be_switched_off() {
    assert!(loss_probes(true) > 0);
    assert_eq!(loss_probes(false), 0);
}

/// Acknowledgments that host 1 sends within a moment after it has received the first segment of a connection.
fn quick_acknowledgments(start: u8) -> u64 {
    let mut receiving = config(2);
    receiving.quick_acks.start = start;
    let mut world = World::new([config(1), receiving]);
    let (client, _) = world.connect();
    world.run_us(1_000);
    let sent = count_frames(&mut world);
    world.send(0, client, b"one");
    world.run_us(5_000);
    sent.get()
}

/// Counts what host 1 sends from now on.
fn count_frames(world: &mut World) -> Rc<Cell<u64>> {
    let sent = Rc::new(Cell::new(0));
    let counted = sent.clone();
    world.filter = Some(Box::new(move |from, _| {
        counted.set(counted.get() + u64::from(from == 1));
        false
    }));
    sent
}

#[test]
fn the_first_acknowledgments_are_delayed_where_that_is_wanted() {
    assert_eq!(
        (quick_acknowledgments(16), quick_acknowledgments(0)),
        (1, 0)
    );
}

/// Segments that host 1 sends while it receives a megabyte.
fn acknowledgments(delayed_ack_segments: u32) -> u64 {
    let receiving = Config {
        delayed_ack_segments,
        ..config(2)
    };
    let mut world = World::new([config(1), receiving]);
    let (client, server) = world.connect();
    // One after the other, or a burst would be acknowledged as one.
    (world.rate, world.queue_us) = (1_000_000_000, 10_000_000);
    let sent = count_frames(&mut world);
    world.transfer((0, client), (1, server), 1 << 20, 60_000_000);
    sent.get()
}

#[test]
fn fewer_acknowledgments_are_sent_where_more_segments_may_wait() {
    let (usual, rare) = (acknowledgments(1), acknowledgments(8));
    assert!(rare < usual, "{rare} {usual}");
}

#[test]
fn the_first_timeout_can_be_chosen() {
    let hasty = Config {
        rto_initial_us: 300_000,
        syn_retries: 1,
        ..config(1)
    };
    let mut world = World::new([hasty, config(2)]);
    let listener = world.listen();
    // Known, so that only the SYN is lost.
    let (client, server) = world.connect_to(listener);
    world.close(0, client);
    world.close(1, server);
    world.run_us(10_000);
    cut_off(&mut world);
    let remote = world.hosts[1].engine.local_addr(listener).expect("open");
    let remote = (
        support::HOSTS[1].parse::<std::net::IpAddr>().expect("one"),
        remote.port(),
    );
    let now_us = world.now_us;
    let opening = world.hosts[0].engine.connect(now_us, None, remote.into());
    let opening = opening.expect("a route");
    world.flush(0);
    let after_us = fails_after_us(&mut world, opening, Error::TimedOut);
    assert!((890_000..910_000).contains(&after_us), "{after_us}");
}

#[test]
fn a_closed_connection_is_closing_until_the_peer_has_its_end() {
    let mut world = World::plain();
    let (client, server) = world.connect();
    world.send(0, client, b"bytes");
    world.close(0, client);
    assert!(world.hosts[0].engine.is_closing(client));
    world.run_us(100_000);
    assert!(!world.hosts[0].engine.is_closing(client));
    assert_eq!(world.read(1, server), b"bytes");
    world.close(1, server);
    world.run_us(100_000);
    assert!(!world.hosts[1].engine.is_closing(server));
}

/// As on Linux: a buffer that does not grow needs no shift for what it could have grown to.
#[test]
fn a_receive_buffer_of_a_fixed_size_has_the_shift_that_it_needs() {
    play(
        "listen
        set rcvbuf 10000
        < S 0:0 win 65535 <mss 1000,nop,wscale 7>
        > S. 0:0 ack 1 win 8760 <mss 1460,nop,wscale 0>",
    );
    // Whole segments are counted before the window is cut to what an unscaled one can say.
    play(
        "connect rcvbuf 100000
        > S 0:0 win 65535 <mss 1460,sackOK,TS,nop,wscale 1>",
    );
}

/// A buffer beyond what windows can say opens nothing with each read.
#[test]
fn a_read_from_a_buffer_beyond_64_kib_sends_nothing_where_windows_are_not_scaled() {
    play(
        "listen
        set rcvbuf 200000
        < S 0:0 win 65535 <mss 1000>
        > S. 0:0 ack 1 win 65535 <mss 1460>
        < . 1:1 ack 1 win 65535
        accept
        < P. 1:1001 ack 1 win 65535
        > . 1:1 ack 1001 win 65535
        recv 1000
        < P. 1001:2001 ack 1 win 65535
        > . 1:1 ack 2001 win 65535",
    );
}

/// Buffers of a fixed size need no shift, but a socket that asks for a larger one before its first segment
/// leaves could else never say so.
#[test]
fn a_receive_buffer_that_is_asked_for_before_the_first_segment_has_its_shift() {
    let fixed = Config {
        receive_bytes_max: 65_535,
        ..config(1)
    };
    play_with(
        fixed.clone(),
        "connect
        > S 0:0 <mss 1460,sackOK,TS,nop,wscale 0>",
    );
    play_with(
        fixed,
        "connect rcvbuf 1000000
        > S 0:0 <mss 1460,sackOK,TS,nop,wscale 4>
        # the second one must not differ
        set rcvbuf 8000000
        +1001ms
        > S 0:0 <mss 1460,sackOK,TS,nop,wscale 4>",
    );
}

/// Routers that sort by it would else treat a connection's first segments as unmarked.
#[test]
fn the_first_segments_have_the_traffic_class_of_their_socket() {
    let mut world = World::plain();
    let listener = world.listen();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let noted = seen.clone();
    world.filter = Some(Box::new(move |from, frame| {
        if frame[12..14] == [8, 0] {
            noted.borrow_mut().push((from, frame[15]));
        }
        false
    }));
    let now_us = world.now_us;
    let [client, server] = &mut world.hosts;
    let option = SocketOption::TrafficClass(0x20);
    server
        .engine
        .setopt(now_us, listener, option)
        .expect("open");
    let port = server.engine.local_addr(listener).expect("open").port();
    let remote = support::HOSTS[1].parse::<std::net::IpAddr>().expect("one");
    let opening = client.engine.connect(now_us, None, (remote, port).into());
    let option = SocketOption::TrafficClass(0x48);
    let opening = opening.expect("a route");
    client.engine.setopt(now_us, opening, option).expect("open");
    world.flush(0);
    world.run_us(10_000);
    assert_eq!(*seen.borrow(), [(0, 0x48), (1, 0x20), (0, 0x48)]);
}
