//! The life of a connection between two engines: open, exchange, close.

mod support;

use bypass_tcp::{Config, Error, Shutdown, State, HANGUP, PEER_CLOSED, READABLE, WRITABLE};
use support::{config, World, HOSTS, HOSTS_V6};

#[test]
fn a_connection_opens_carries_bytes_both_ways_and_closes() {
    let mut world = World::plain();
    let (client, server) = world.connect();
    assert_eq!(world.hosts[0].ready[&client], WRITABLE);
    world.send(0, client, b"request");
    world.run_us(1_000);
    assert_eq!(world.read(1, server), b"request");
    world.send(1, server, b"answer");
    world.run_us(1_000);
    assert_eq!(world.read(0, client), b"answer");
    world.close(0, client);
    world.run_us(1_000);
    assert_eq!(
        world.hosts[1]
            .engine
            .recv(world.now_us, server, &mut [0; 8]),
        Ok(0)
    );
    let ready = world.hosts[1].engine.readiness(server).unwrap();
    assert_eq!(ready & (READABLE | PEER_CLOSED), READABLE | PEER_CLOSED);
    world.close(1, server);
    world.run_us(1_000);
    let counts = [0, 1].map(|host| world.hosts[host].engine.counts());
    assert_eq!(counts.map(|counts| counts.connections), [0, 0]);
    assert_eq!(counts.map(|counts| counts.time_wait), [1, 0]);
    assert_eq!(counts.map(|counts| counts.buffer_bytes), [0, 0]);
    world.run_us(61_000_000);
    assert_eq!(world.hosts[0].engine.counts().time_wait, 0);
}

#[test]
fn ipv6_carries_the_same() {
    let mut world = World::plain();
    let listener = world.listen();
    let (client, server) = world.connect_by(listener, HOSTS_V6[1]);
    let remote = world.hosts[1].engine.remote_addr(server).unwrap();
    assert_eq!(
        remote.ip(),
        HOSTS_V6[0].parse::<std::net::IpAddr>().unwrap()
    );
    world.transfer((0, client), (1, server), 300_000, 10_000_000);
    world.transfer((1, server), (0, client), 300_000, 10_000_000);
}

#[test]
fn a_megabyte_arrives_as_it_was_sent_in_both_directions() {
    let mut world = World::plain();
    let (client, server) = world.connect();
    world.transfer((0, client), (1, server), 1 << 20, 10_000_000);
    world.transfer((1, server), (0, client), 1 << 20, 10_000_000);
    let stats = [0, 1].map(|host| *world.hosts[host].engine.stats());
    assert_eq!(stats.map(|stats| stats.retrans_segs), [0, 0]);
}

#[test]
fn a_device_that_cuts_trains_and_completes_checksums_carries_the_same() {
    let offloading = |number| Config {
        segmentation_max: 65_000,
        checksum_offload: true,
        ..config(number)
    };
    let mut world = World::new([offloading(1), offloading(2)]);
    let (client, server) = world.connect();
    world.transfer((0, client), (1, server), 1 << 20, 10_000_000);
}

#[test]
fn a_device_without_room_delays_and_loses_nothing() {
    let mut world = World::plain();
    let (client, server) = world.connect();
    world.hosts[0].frames.room = Some(2);
    world.send(0, client, &[7; 50_000]);
    assert!(world.hosts[0].engine.has_output());
    let mut received = 0;
    world.run_until(10_000_000, |world| {
        world.hosts[0].frames.room = Some(2);
        world.flush(0);
        received += world.read(1, server).len();
        received == 50_000
    });
}

#[test]
fn nobody_listening_refuses() {
    let mut world = World::plain();
    let remote = (HOSTS[1].parse::<std::net::IpAddr>().unwrap(), 81).into();
    let client = world.hosts[0]
        .engine
        .connect(world.now_us, None, remote)
        .unwrap();
    world.flush(0);
    world.run_us(10_000);
    assert_eq!(
        world.hosts[0].engine.take_error(client),
        Ok(Some(Error::ConnectionRefused))
    );
    world.close(0, client);
    assert_eq!(world.hosts[0].engine.counts().connections, 0);
}

#[test]
fn a_host_that_does_not_answer_is_unreachable() {
    let mut world = World::plain();
    let remote = "10.0.0.77:80".parse().unwrap();
    let client = world.hosts[0]
        .engine
        .connect(world.now_us, None, remote)
        .unwrap();
    world.flush(0);
    world.run_us(4_000_000);
    assert_eq!(
        world.hosts[0].engine.take_error(client),
        Ok(Some(Error::HostUnreachable))
    );
}

#[test]
fn half_a_close_leaves_the_other_half_open() {
    let mut world = World::plain();
    let (client, server) = world.connect();
    world.hosts[0]
        .engine
        .shutdown(world.now_us, client, Shutdown::Write)
        .unwrap();
    world.flush(0);
    world.run_us(1_000);
    assert_eq!(
        world.hosts[0].engine.info(client).unwrap().state,
        State::FinWait2
    );
    world.transfer((1, server), (0, client), 200_000, 10_000_000);
    world.close(1, server);
    world.run_us(1_000);
    assert_eq!(
        world.hosts[0]
            .engine
            .recv(world.now_us, client, &mut [0; 8]),
        Ok(0)
    );
    assert_eq!(
        world.hosts[0].engine.readiness(client).unwrap() & HANGUP,
        HANGUP
    );
    world.close(0, client);
    assert_eq!(world.hosts[0].engine.counts().connections, 0);
}

#[test]
fn both_ends_may_close_at_once() {
    let mut world = World::plain();
    let (client, server) = world.connect();
    world.close(0, client);
    world.close(1, server);
    world.run_us(10_000);
    let counts = [0, 1].map(|host| world.hosts[host].engine.counts());
    assert_eq!(
        counts.map(|counts| (counts.connections, counts.time_wait)),
        [(0, 1), (0, 1)]
    );
}

#[test]
fn closing_with_unread_bytes_resets_the_peer() {
    let mut world = World::plain();
    let (client, server) = world.connect();
    world.send(0, client, b"unread");
    world.run_us(1_000);
    world.close(1, server);
    world.run_us(1_000);
    let answer = world.hosts[0]
        .engine
        .recv(world.now_us, client, &mut [0; 8]);
    assert_eq!(answer, Err(Error::ConnectionReset));
    assert_eq!(world.hosts[1].engine.counts().connections, 0);
}

#[test]
fn an_old_handle_is_refused() {
    let mut world = World::plain();
    let (client, server) = world.connect();
    world.close(0, client);
    world.close(1, server);
    world.run_us(10_000);
    let again = world.hosts[0]
        .engine
        .send(world.now_us, client, b"x", false);
    assert_eq!(again, Err(Error::BadHandle));
}
