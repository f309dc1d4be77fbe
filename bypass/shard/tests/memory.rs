//! Two shards joined by a link in shared memory, in virtual time.

use bypass_device::impaired::{Faults, Impaired};
use bypass_device::Device;
use bypass_shard::tcp::{Address, Config, Error, Handle};
use bypass_shard::{Settings, Shard};
use bypass_sys::clock;
use bypass_xdp::memory::{pair, Shape};

const PORT: u16 = 80;
const SINGLE: Shape = Shape {
    mtu: 1500,
    segments_max: 0,
};
const SEGMENTS: Shape = Shape {
    segments_max: 65_000,
    ..SINGLE
};
const TURN_US: u64 = 50;
const ANSWER_WAIT_US: u64 = 1000;
const BYTES: usize = 4 << 20;

fn shard(device: impl Device + 'static, host: u8) -> Shard {
    let engine = Config {
        answers_follow: true,
        answer_wait_us: ANSWER_WAIT_US,
        ..Config::default()
    };
    let settings = Settings {
        engine,
        ..Settings::default()
    };
    let addresses = [Address {
        ip: [10, 9, 0, host].into(),
        prefix_len: 24,
    }];
    let mac = [2, 0, 0, 0, 0, host];
    Shard::alone(Box::new(device), mac, &addresses, &[], settings)
}

/// Two hosts with a connection between them.
struct Hosts {
    now_us: u64,
    shards: [Shard; 2],
    handles: [Handle; 2],
}

impl Hosts {
    fn joined(shape: Shape) -> Self {
        let (a, b) = pair(shape).expect("memory");
        Self::connected(shard(a, 1), shard(b, 2))
    }

    fn connected(mut server: Shard, mut client: Shard) -> Self {
        let to = ([10, 9, 0, 1], PORT).into();
        let listener = server.listen(to, 8).expect("a port");
        let connection = client.connect(None, to).expect("a port");
        let mut hosts = Self {
            // Ahead of the clock from which the shards have their start.
            now_us: clock::now_ns() / 1000 + 1_000_000,
            shards: [server, client],
            handles: [listener, connection],
        };
        hosts.until("a connection", |hosts| {
            let accepted = hosts.shards[0].accept(listener);
            accepted.map(|handle| hosts.handles[0] = handle).is_ok()
        });
        hosts
    }

    /// A turn of both, in which the programs do nothing.
    fn turn(&mut self) {
        self.now_us += TURN_US;
        for shard in &mut self.shards {
            shard.drive_at(self.now_us);
            while shard.next_event().is_some() {}
            shard.finish();
        }
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let last_us = self.now_us + 600_000_000;
        while !done(self) {
            assert!(self.now_us < last_us, "{what} within ten minutes");
            self.turn();
        }
    }

    fn send(&mut self, side: usize, bytes: &[u8]) -> usize {
        let sent = self.shards[side].send(self.handles[side], bytes, false);
        sent.or_else(|error| match error {
            Error::WouldBlock => Ok(0),
            other => Err(other),
        })
        .expect("an open connection")
    }

    /// Appends all bytes that have arrived.
    fn receive(&mut self, side: usize, found: &mut Vec<u8>) {
        let mut bytes = [0; 8192];
        while let Ok(count @ 1..) = self.shards[side].receive(self.handles[side], &mut bytes) {
            found.extend(&bytes[..count]);
        }
    }

    /// Bytes that the peer has not acknowledged.
    fn unacknowledged(&mut self, side: usize) -> usize {
        let queued = self.shards[side].engine().queued(self.handles[side]);
        queued.expect("an open connection").1
    }

    fn carry(&mut self, from: usize) {
        let content: Vec<u8> = (0..BYTES).map(|at| (at * 7 + (at >> 9)) as u8).collect();
        let (mut sent, mut found) = (0, Vec::new());
        self.until("all bytes", |hosts| {
            sent += hosts.send(from, &content[sent..]);
            hosts.receive(1 - from, &mut found);
            found.len() >= BYTES
        });
        assert!(found == content, "bytes as they were sent");
    }
}

#[test]
fn bytes_arrive_over_a_ring_that_holds_fewer() {
    let mut hosts = Hosts::joined(SINGLE);
    hosts.carry(0);
    hosts.carry(1);
    let counters = hosts.shards[0].counters();
    assert_eq!((counters.send_errors, counters.receive_invalid), (0, 0));
}

#[test]
fn gso_segments_arrive_whole() {
    let mut hosts = Hosts::joined(SEGMENTS);
    hosts.carry(0);
    let sent = hosts.shards[0].counters().sent as usize;
    assert!(sent < BYTES / 1448, "{sent} frames for {BYTES} bytes");
    hosts.carry(1);
}

#[test]
fn bytes_arrive_over_a_link_with_faults() {
    let faults = Faults {
        loss: 0.01,
        duplication: 0.01,
        reordering: 0.01,
        corruption: 0.01,
    };
    let (a, b) = pair(SINGLE).expect("memory");
    let with = |end, seed| Impaired::new(end, seed, faults);
    let mut hosts = Hosts::connected(shard(with(a, 1), 1), shard(with(b, 2), 2));
    hosts.carry(0);
    let stats = hosts.shards[1].engine().stats();
    assert!(stats.in_errs > 0, "damaged frames are noticed: {stats:?}");
}

/// docs/internals/limits/packets.md: an acknowledgment that a response may carry waits up to about a millisecond.
#[test]
fn an_acknowledgment_waits_for_a_response_and_then_leaves_alone() {
    let mut hosts = Hosts::joined(SINGLE);
    for _ in 0..100 {
        hosts.turn();
    }
    assert_eq!(hosts.send(1, &[1; 100]), 100);
    let begun_us = hosts.now_us;
    hosts.until("an acknowledgment", |hosts| hosts.unacknowledged(1) == 0);
    let waited_us = hosts.now_us - begun_us;
    let expected = ANSWER_WAIT_US..ANSWER_WAIT_US + 5 * TURN_US;
    assert!(expected.contains(&waited_us), "after {waited_us} us");

    let mut found = Vec::new();
    hosts.receive(0, &mut found);
    let before = hosts.shards[0].counters().sent;
    assert_eq!(hosts.send(1, &[2; 100]), 100);
    hosts.until("a request", |hosts| {
        hosts.receive(0, &mut found);
        found.len() == 200
    });
    assert_eq!(hosts.send(0, &[3; 150]), 150);
    hosts.until("an acknowledgment", |hosts| hosts.unacknowledged(1) == 0);
    let frames = hosts.shards[0].counters().sent - before;
    assert_eq!(frames, 1, "the response carries it");
}

/// A process takes over the interface of one that has ended, and does not listen where that one did: the client, whose SYN
/// waits still, is not refused, since the kernel may have a listener.
#[test]
fn a_syn_for_a_former_listener_is_dropped_and_not_refused() {
    let mut hosts = Hosts::joined(SINGLE);
    hosts.turn();
    let to = ([10, 9, 0, 1], PORT + 1).into();
    let opened = hosts.shards[1].connect(None, to).expect("a port");
    hosts.shards[1].finish();
    hosts.shards[0].drop_others_claims();
    let error = |hosts: &mut Hosts| hosts.shards[1].engine().take_error(opened).expect("ours");
    (0..100).for_each(|_| hosts.turn());
    assert_eq!(error(&mut hosts), None);
    // What is sent again comes for this shard.
    hosts.until("a refusal", |hosts| {
        error(hosts) == Some(Error::ConnectionRefused)
    });
}
