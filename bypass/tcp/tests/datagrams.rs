//! UDP between two engines: what is sent arrives as it was meant, and what is not for this host does not.

mod support;

use std::net::SocketAddr;

use bypass_tcp::{Address, Engine, Error, Rx, Sum, Way};
use support::{config, Frames};

const NOW_US: u64 = 1_000_000;

/// Two hosts that know each other, at 10.0.0.1 and fd00::1, and 10.0.0.2 and fd00::2.
fn hosts() -> [Engine; 2] {
    let own = |number: u8| config(number);
    [1, 2].map(|number: u8| {
        let other = 3 - number;
        let mut engine = Engine::new(own(number), NOW_US);
        let v6 = |host: u8| format!("fd00::{host}").parse().expect("an address");
        engine.set_addresses(&[
            Address {
                ip: [10, 0, 0, number].into(),
                prefix_len: 24,
            },
            Address {
                ip: v6(number),
                prefix_len: 64,
            },
        ]);
        let mut sink = Frames::of_mtu(1500);
        for ip in [[10, 0, 0, other].into(), v6(other)] {
            engine.set_neighbour(NOW_US, ip, own(other).mac, &mut sink);
        }
        engine
    })
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn sent(engine: &mut Engine, way: &mut Way, pieces: &[&[u8]]) -> Vec<u8> {
    let mut sink = Frames::of_mtu(1500);
    assert_eq!(
        engine.send_datagram(NOW_US, way, pieces, &mut sink),
        Ok(true)
    );
    assert_eq!(sink.sent.len(), 1, "one frame");
    sink.sent.remove(0)
}

#[test]
fn what_is_sent_arrives_as_it_was_meant() {
    let [mut a, mut b] = hosts();
    let ends = [
        ("10.0.0.1:5000", "10.0.0.2:53"),
        ("[fd00::1]:5000", "[fd00::2]:53"),
    ];
    for (source, destination) in ends.map(|(source, destination)| (at(source), at(destination))) {
        let overhead = if source.is_ipv4() { 28 } else { 48 };
        for len in [0, 1, 2, 1000, 1500 - overhead] {
            let bytes: Vec<u8> = (0..len).map(support::pattern).collect();
            let mut way = Way::new(source, destination);
            (way.traffic_class, way.hops) = (0xb9, 7);
            let (first, second) = bytes.split_at(len / 3);
            let frame = sent(&mut a, &mut way, &[first, second]);
            let datagram = b.datagram(&Rx::new(&frame)).expect("good");
            assert_eq!(
                (datagram.source, datagram.destination),
                (source, destination)
            );
            assert_eq!((datagram.traffic_class, datagram.hops), (0xb9, 7));
            assert_eq!(datagram.payload, bytes);
            // The same frame is none of TCP's business.
            let mut sink = Frames::of_mtu(1500);
            b.rx_burst(NOW_US, &[Rx::new(&frame)], &mut sink);
            assert!(sink.sent.is_empty());
        }
    }
}

#[test]
fn what_does_not_go_is_refused_and_nothing_leaves() {
    let [mut a, _] = hosts();
    let cases = [
        ("10.0.0.9:1", "10.0.0.2:53", 1, Error::AddressNotAvailable),
        ("10.0.0.1:1", "10.0.0.2:53", 1473, Error::InvalidArgument),
        ("[fd00::1]:1", "[fd00::2]:53", 1453, Error::InvalidArgument),
        ("10.0.0.1:1", "10.0.0.255:53", 1, Error::NetworkUnreachable),
        (
            "10.0.0.1:1",
            "255.255.255.255:53",
            1,
            Error::NetworkUnreachable,
        ),
        ("10.0.0.1:1", "224.0.0.1:53", 1, Error::NetworkUnreachable),
        ("10.0.0.1:1", "127.0.0.1:53", 1, Error::NetworkUnreachable),
        ("10.0.0.1:1", "0.0.0.0:53", 1, Error::NetworkUnreachable),
        ("10.0.0.1:1", "10.0.0.1:53", 1, Error::NetworkUnreachable),
        ("[fd00::1]:1", "[ff02::1]:53", 1, Error::NetworkUnreachable),
        ("10.0.0.1:1", "192.168.7.7:53", 1, Error::NetworkUnreachable),
    ];
    for (source, destination, len, error) in cases {
        let mut sink = Frames::of_mtu(1500);
        let mut way = Way::new(at(source), at(destination));
        let answer = a.send_datagram(NOW_US, &mut way, &[&vec![0; len]], &mut sink);
        assert_eq!(answer, Err(error), "{source} to {destination}, {len} bytes");
        assert!(sink.sent.is_empty());
    }
}

#[test]
fn what_is_not_for_this_host_alone_is_not_taken() {
    let [mut a, mut b] = hosts();
    let mut way = Way::new(at("10.0.0.1:5000"), at("10.0.0.2:53"));
    let good = sent(&mut a, &mut way, &[b"query"]);
    assert!(b.datagram(&Rx::new(&good)).is_some());
    let mut to_all = good.clone();
    to_all[..6].fill(0xff);
    assert!(b.datagram(&Rx::new(&to_all)).is_none(), "a broadcast");
    assert!(a.datagram(&Rx::new(&good)).is_none(), "another's address");
    let mut rx = Rx::new(&good);
    rx.sum = Sum::Verified;
    for len in 0..good.len() {
        rx.bytes = &good[..len];
        assert!(b.datagram(&rx).is_none(), "cut to {len}");
    }
    let mut from_us = good.clone();
    from_us[26..30].copy_from_slice(&[10, 0, 0, 2]);
    rx.bytes = &from_us;
    assert!(b.datagram(&rx).is_none(), "from this host");
    let mut fragment = good.clone();
    fragment[20] = 0x20;
    rx.bytes = &fragment;
    assert!(b.datagram(&rx).is_none(), "a fragment");
}

#[test]
fn a_datagram_waits_for_its_neighbour() {
    let mut a = Engine::new(config(1), NOW_US);
    a.set_addresses(&[Address {
        ip: [10, 0, 0, 1].into(),
        prefix_len: 24,
    }]);
    let mut sink = Frames::of_mtu(1500);
    let mut way = Way::new(at("10.0.0.1:5000"), at("10.0.0.2:53"));
    assert_eq!(
        a.send_datagram(NOW_US, &mut way, &[b"x"], &mut sink),
        Ok(true)
    );
    let before = sink.sent.len();
    a.set_neighbour(NOW_US, [10, 0, 0, 2].into(), config(2).mac, &mut sink);
    assert_eq!(sink.sent.len(), before + 1);
}
