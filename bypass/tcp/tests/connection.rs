//! The life of a connection between two engines: open, exchange, close.

mod support;

use std::net::IpAddr;

use bypass_tcp::{
    Address, Config, Error, Shutdown, State, HANGUP, PEER_CLOSED, READABLE, WRITABLE,
};
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
fn a_device_that_cuts_gso_segments_and_completes_checksums_carries_the_same() {
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

/// The field of IPv4 packets that identifies them is the same in all: a count of what the engine sends would show
/// an unknown peer how much that is (RFC 6864, 4.1: packets that no router fragments need none).
#[test]
fn packets_do_not_reveal_how_many_were_sent() {
    use std::{cell::RefCell, collections::BTreeSet, rc::Rc};
    let mut world = World::plain();
    let seen = Rc::new(RefCell::new(BTreeSet::new()));
    let ids = seen.clone();
    world.filter = Some(Box::new(move |_, frame| {
        if frame[12..14] == [8, 0] {
            ids.borrow_mut().insert([frame[18], frame[19]]);
        }
        false
    }));
    let (client, server) = world.connect();
    world.transfer((0, client), (1, server), 50_000, 1_000_000);
    assert_eq!(seen.borrow().len(), 1);
}

/// As Linux's tcp_twsk_unique: a second later, and with numbers behind those of the connection that ended.
#[test]
fn a_flow_that_waits_out_time_wait_can_be_opened_again_behind_its_numbers() {
    use std::{cell::Cell, rc::Rc};
    let mut world = World::plain();
    let listener = world.listen();
    let local = Some("10.0.0.1:5000".parse().unwrap());
    let remote = "10.0.0.2:80".parse().unwrap();
    let (highest, first) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (end, syn) = (highest.clone(), first.clone());
    world.filter = Some(Box::new(move |from, frame| {
        if from == 0 && frame[12..14] == [8, 0] {
            let seq = u32::from_be_bytes(frame[38..42].try_into().unwrap());
            let cell = if frame[47] & 2 > 0 { &syn } else { &end };
            cell.set(seq);
        }
        false
    }));
    let client = world.hosts[0]
        .engine
        .connect(world.now_us, local, remote)
        .unwrap();
    world.flush(0);
    world.run_us(1_000);
    let server = world.hosts[1].engine.accept(listener).unwrap();
    // The clock of the numbers does not keep up with this.
    world.transfer((0, client), (1, server), 2_000_000, 1_000_000);
    world.close(0, client);
    world.run_us(1_000);
    world.close(1, server);
    world.run_us(1_000);
    let engine = &mut world.hosts[0].engine;
    assert_eq!(engine.counts().time_wait, 1);
    let at_once = engine.connect(world.now_us, local, remote);
    assert_eq!(at_once, Err(Error::AddressInUse));
    world.run_us(1_000_000);
    let ended = highest.get();
    let again = world.hosts[0].engine.connect(world.now_us, local, remote);
    assert!(again.is_ok());
    world.flush(0);
    world.run_us(1_000);
    assert_eq!(first.get().wrapping_sub(ended), 65_537);
    assert!(world.hosts[1].engine.accept(listener).is_ok());
}

#[test]
fn ports_that_are_exhausted_come_back_after_time_wait() {
    let few = Config {
        ports: (40_000, 40_003),
        ..config(1)
    };
    let mut world = World::new([few, config(2)]);
    let listener = world.listen();
    let pairs: Vec<_> = (0..4).map(|_| world.connect_to(listener)).collect();
    let connect = |world: &mut World, remote: &str| {
        let remote = remote.parse().unwrap();
        world.hosts[0].engine.connect(world.now_us, None, remote)
    };
    let (same, other) = ("10.0.0.2:80", "10.0.0.2:81");
    assert_eq!(connect(&mut world, same), Err(Error::AddressNotAvailable));
    assert!(connect(&mut world, other).is_ok());
    for (client, server) in pairs {
        world.close(0, client);
        world.run_us(1_000);
        world.close(1, server);
    }
    world.run_us(1_000_000);
    assert_eq!(connect(&mut world, same), Err(Error::AddressNotAvailable));
    world.run_us(60_000_000);
    assert!(connect(&mut world, same).is_ok());
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

#[test]
fn frames_leave_from_the_address_that_the_link_has_now() {
    let mut world = World::plain();
    let (client, server) = world.connect();
    let mac = [2, 0, 0, 0, 9, 9];
    world.hosts[0].engine.set_link(world.now_us, mac, 1_500);
    world.filter = Some(Box::new(move |from, frame| {
        assert_eq!(frame[6..12] == mac, from == 0);
        false
    }));
    world.transfer((0, client), (1, server), 10_000, 10_000_000);
    world.transfer((1, server), (0, client), 10_000, 10_000_000);
}

/// The caller knows the neighbours: it is asked again about one from which nothing comes, and only then.
#[test]
fn a_neighbour_from_which_nothing_comes_is_to_be_confirmed() {
    let outside = Config {
        resolves_neighbours: false,
        ..config(1)
    };
    let mut world = World::new([outside, config(2)]);
    let peer = HOSTS[1].parse().unwrap();
    let name = |world: &mut World| {
        let host = &mut world.hosts[0];
        let mac = [2, 0, 0, 0, 0, 2];
        host.engine
            .set_neighbour(world.now_us, peer, mac, &mut host.frames);
    };
    name(&mut world);
    let (client, server) = world.connect();
    let wanted = |world: &mut World| world.hosts[0].engine.wanted_neighbours();
    for _ in 0..10 {
        world.transfer((0, client), (1, server), 1_000, 10_000_000);
        world.run_us(10_000_000);
        assert!(wanted(&mut world).is_empty());
    }
    world.filter = Some(Box::new(|_, _| true));
    world.send(0, client, b"lost");
    world.run_us(19_000_000);
    assert!(wanted(&mut world).is_empty());
    world.run_us(20_000_000);
    assert_eq!(wanted(&mut world), [peer]);
    // Without an answer it is used where it was.
    world.run_us(10_000_000);
    wanted(&mut world);
    name(&mut world);
    world.filter = None;
    world.run_us(60_000_000);
    assert_eq!(world.read(1, server), b"lost");
    assert!(wanted(&mut world).is_empty());
}

/// As many as a program opens in a row: none waits for a retransmission.
#[test]
fn first_segments_to_a_neighbour_that_is_still_looked_for_all_wait_for_it() {
    const CONNECTS: usize = 100;
    let outside = Config {
        resolves_neighbours: false,
        ..config(1)
    };
    let mut world = World::new([outside, config(2)]);
    let listener = world.listen();
    let peer: IpAddr = HOSTS[1].parse().unwrap();
    for _ in 0..CONNECTS {
        let now_us = world.now_us;
        let begun = world.hosts[0]
            .engine
            .connect(now_us, None, (peer, 80).into());
        begun.unwrap();
    }
    let host = &mut world.hosts[0];
    host.engine.end_batch(world.now_us, &mut host.frames);
    assert_eq!(host.engine.wanted_neighbours(), [peer]);
    let mac = [2, 0, 0, 0, 0, 2];
    host.engine
        .set_neighbour(world.now_us, peer, mac, &mut host.frames);
    world.flush(0);
    world.run_us(500_000);
    assert_eq!(world.hosts[1].engine.waiting(listener), Ok(CONNECTS));
}

/// So that a device with little room can be read between parts.
#[test]
fn a_part_of_a_batch_sends_for_as_many_connections_as_it_may() {
    const CONNECTS: usize = 5;
    let mut world = World::new([config(1), config(2)]);
    world.listen();
    let peer: IpAddr = HOSTS[1].parse().unwrap();
    let connect = |world: &mut World| {
        let now_us = world.now_us;
        let engine = &mut world.hosts[0].engine;
        engine.connect(now_us, None, (peer, 80).into()).unwrap();
    };
    // Asks for the peer's link address.
    connect(&mut world);
    world.flush(0);
    world.run_us(10_000);
    (0..CONNECTS).for_each(|_| connect(&mut world));
    let (now_us, host) = (world.now_us, &mut world.hosts[0]);
    host.frames.sent.clear();
    let parts: Vec<(bool, usize)> = (0..4)
        .map(|_| {
            let has_others = host.engine.end_part(now_us, 2, &mut host.frames);
            (has_others, std::mem::take(&mut host.frames.sent).len())
        })
        .collect();
    assert_eq!(parts, [(true, 2), (true, 2), (false, 1), (false, 0)]);
}

/// The kernel drops what it has not used for a while, which says nothing about the neighbour.
#[test]
fn a_neighbour_that_is_no_longer_kept_outside_is_used_while_it_is_asked_for() {
    let outside = Config {
        resolves_neighbours: false,
        ..config(1)
    };
    let mut world = World::new([outside, config(2)]);
    let peer: IpAddr = HOSTS[1].parse().unwrap();
    let name = |world: &mut World, mac| {
        let host = &mut world.hosts[0];
        host.engine
            .set_neighbour(world.now_us, peer, mac, &mut host.frames);
    };
    name(&mut world, [2, 0, 0, 0, 0, 2]);
    let (client, server) = world.connect();
    for _ in 0..3 {
        world.hosts[0].engine.doubt_neighbour(peer);
        world.transfer((0, client), (1, server), 100_000, 100_000);
        assert_eq!(world.hosts[0].engine.wanted_neighbours(), [peer]);
        name(&mut world, [2, 0, 0, 0, 0, 2]);
        world.transfer((0, client), (1, server), 1_000, 100_000);
        assert!(world.hosts[0].engine.wanted_neighbours().is_empty());
    }
    assert_eq!(world.hosts[0].engine.stats().retrans_segs, 0);
    // It has moved meanwhile.
    world.hosts[0].engine.doubt_neighbour(peer);
    world.hosts[1]
        .engine
        .set_link(world.now_us, [2, 0, 0, 0, 7, 7], 1_500);
    world.hosts[1]
        .engine
        .set_link(world.now_us, [2, 0, 0, 0, 8, 8], 1_500);
    world.send(0, client, b"moved");
    world.run_us(10_000);
    name(&mut world, [2, 0, 0, 0, 8, 8]);
    world.run_us(1_000_000);
    assert_eq!(world.read(1, server), b"moved");
}

/// Another host may have it now.
#[test]
fn nothing_leaves_from_an_address_that_is_gone_until_it_is_back() {
    let mut world = World::plain();
    let (client, server) = world.connect();
    let own = |ip: &str| Address {
        ip: ip.parse().unwrap(),
        prefix_len: 24,
    };
    world.transfer((0, client), (1, server), 10_000, 1_000_000);
    world.send(0, client, b"under way");
    world.send(1, server, b"from there");
    world.hosts[0].engine.set_addresses(&[own("10.0.0.77")]);
    let left = std::rc::Rc::new(std::cell::Cell::new(0));
    let seen = left.clone();
    world.filter = Some(Box::new(move |from, frame| {
        let is_from_there = frame[12..14] == [8, 0] && frame[26..30] == [10, 0, 0, 1];
        seen.set(seen.get() + usize::from(from == 0 && is_from_there));
        false
    }));
    world.run_us(10_000_000);
    assert_eq!(left.get(), 0);
    world.hosts[0].engine.set_addresses(&[own(HOSTS[0])]);
    world.run_us(60_000_000);
    assert_eq!(world.read(1, server), b"under way");
    assert_eq!(world.read(0, client), b"from there");
}

/// The gateway of a route to the other host.
fn by(gateway: &str) -> bypass_tcp::Route {
    bypass_tcp::Route {
        network: HOSTS[1].parse().unwrap(),
        prefix_len: 32,
        gateway: Some(gateway.parse().unwrap()),
        mtu: 0,
        mss: 0,
        source: None,
        hops: 0,
    }
}

/// The former router may be dead, or about to be.
#[test]
fn connections_and_datagrams_follow_a_route_to_another_router_at_once() {
    let mut world = World::plain();
    let (client, server) = world.connect();
    world.transfer((0, client), (1, server), 10_000, 10_000_000);
    // Until all of it is acknowledged.
    world.run_us(100_000);
    let source = std::net::SocketAddr::new(HOSTS[0].parse().unwrap(), 5_000);
    let destination = std::net::SocketAddr::new(HOSTS[1].parse().unwrap(), 53);
    let mut way = bypass_tcp::Way::new(source, destination);
    let mut routers_of = |world: &mut World| {
        let (now_us, host) = (world.now_us, &mut world.hosts[0]);
        host.engine.send(now_us, client, b"x", false).unwrap();
        host.engine.end_batch(now_us, &mut host.frames);
        let of_tcp = std::mem::take(&mut host.frames.sent);
        let frames = &mut host.frames;
        let sent = host.engine.send_datagram(now_us, &mut way, &[b"x"], frames);
        assert_eq!(sent, Ok(true));
        let of_udp = std::mem::take(&mut host.frames.sent);
        [of_tcp, of_udp].map(|sent| sent.first().map(|frame| frame[5]))
    };
    let now_us = world.now_us;
    let host = &mut world.hosts[0];
    let at_once = bypass_tcp::SocketOption::NoDelay(true);
    host.engine.setopt(now_us, client, at_once).unwrap();
    for last in [3, 4] {
        let router = IpAddr::from([10, 0, 0, last]);
        let mac = [2, 0, 0, 0, 0, last];
        host.engine
            .set_neighbour(now_us, router, mac, &mut host.frames);
    }
    assert_eq!(routers_of(&mut world), [Some(2); 2]);
    for (gateway, last) in [("10.0.0.3", 3), ("10.0.0.4", 4), ("10.0.0.3", 3)] {
        world.hosts[0].engine.set_routes(&[by(gateway)]);
        assert_eq!(routers_of(&mut world), [Some(last); 2], "{gateway}");
    }
}

/// Hosts of the link to which nothing was sent, more than the table has room for: each has asked for our address by ARP.
#[test]
fn a_neighbour_in_use_keeps_its_place_in_a_full_table() {
    let few = Config {
        resolves_neighbours: false,
        neighbours_max: 8,
        segmentation_max: 65_000,
        ..config(1)
    };
    let mut world = World::new([few, config(2)]);
    let peer: IpAddr = HOSTS[1].parse().unwrap();
    let name = |world: &mut World, ip: IpAddr| {
        let (now_us, host) = (world.now_us, &mut world.hosts[0]);
        let mac = [2, 0, 0, 0, 0, 2];
        host.engine.set_neighbour(now_us, ip, mac, &mut host.frames);
    };
    name(&mut world, peer);
    let (client, server) = world.connect();
    for other in 10..200 {
        name(&mut world, [10, 0, 0, other].into());
        // Confirmed later than the one in use, which is not named again.
        name(&mut world, [10, 0, 0, other].into());
        world.transfer((0, client), (1, server), 20_000, 10_000_000);
    }
    let to = |other: u8| (IpAddr::from([10, 0, 0, other]), 80).into();
    // Others that are in use take the places of unused ones.
    for other in 10..200 {
        let now_us = world.now_us;
        let host = &mut world.hosts[0];
        let opened = host.engine.connect(now_us, None, to(other)).unwrap();
        host.engine.end_batch(now_us, &mut host.frames);
        host.frames.sent.clear();
        host.engine.abort(now_us, opened).ok();
        host.engine.wanted_neighbours();
        world.transfer((0, client), (1, server), 20_000, 10_000_000);
    }
    let stats = world.hosts[0].engine.stats();
    assert_eq!((stats.retrans_segs, stats.timeouts), (0, 0));
}

/// RFC 6437: routers with several ways choose one by the label.
#[test]
fn packets_of_a_flow_have_one_label_and_the_hop_limit_of_their_route() {
    let mut world = World::plain();
    let route = bypass_tcp::Route {
        network: HOSTS_V6[1].parse().unwrap(),
        prefix_len: 128,
        gateway: None,
        mtu: 0,
        mss: 0,
        source: None,
        hops: 9,
    };
    world.hosts[0].engine.set_routes(&[route]);
    let listener = world.listen();
    let labels = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = labels.clone();
    world.filter = Some(Box::new(move |from, frame| {
        if from == 0 && frame[12..14] == [0x86, 0xdd] && frame[20] == 6 {
            let label = u32::from_be_bytes(frame[14..18].try_into().unwrap()) & 0xf_ffff;
            assert_eq!(frame[21], 9);
            seen.borrow_mut().push(label);
        }
        false
    }));
    let mut of_flows = std::collections::BTreeSet::new();
    for _ in 0..8 {
        let (client, server) = world.connect_by(listener, HOSTS_V6[1]);
        world.transfer((0, client), (1, server), 10_000, 1_000_000);
        world.transfer((1, server), (0, client), 10_000, 1_000_000);
        let mut of_flow = labels.borrow_mut();
        assert!(of_flow.len() > 5);
        of_flow.dedup();
        assert_eq!(of_flow.len(), 1);
        of_flows.extend(of_flow.drain(..));
    }
    assert!(of_flows.len() > 6 && !of_flows.contains(&0), "{of_flows:?}");
}
