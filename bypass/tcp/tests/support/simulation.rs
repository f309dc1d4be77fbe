//! One seed, one run: two hosts, a bad link, several connections, and programs that write, read,
//! pause and close at random. Every byte must arrive once and in order, and nothing may be left.

use super::{config, pattern, Faults, Random, Sent, World, HOSTS, HOSTS_V6};
use std::ops::Range;

use bypass_tcp::{Config, Congestion, Ecn, Error, Handle, Shutdown, SocketOption};

/// Virtual time in which a run must end.
const LIMIT_US: u64 = 3_600_000_000;

/// One end of a connection and what its program does.
struct End {
    host: usize,
    handle: Handle,
    /// First byte of the pattern, so that no two streams are the same.
    base: usize,
    peer_base: usize,
    to_send: usize,
    sent: usize,
    to_receive: usize,
    received: usize,
    is_shut: bool,
    saw_end: bool,
    is_closed: bool,
    /// Nothing is read before this time.
    pause_until_us: u64,
}

/// Runs a seed; panics with what is wrong. Answers bytes carried, for a summary.
pub fn run(seed: u64) -> usize {
    play(seed, None).0
}

/// Runs a seed twice; panics when a run is wrong or the second one sends anything else than the first.
pub fn run_twice(seed: u64) -> usize {
    let [(bytes, first), (_, second)] = [(); 2].map(|()| play(seed, Some(Vec::new())));
    if let Some((number, first, second)) = divergence(&first, &second) {
        panic!("seed {seed}: the runs differ from frame {number} on: {first:?}, then {second:?}");
    }
    bytes
}

/// The first frame in which two runs differ; none where one of them has ended.
pub fn divergence(first: &[Sent], second: &[Sent]) -> Option<(usize, Option<Sent>, Option<Sent>)> {
    let longest = first.len().max(second.len());
    (0..longest)
        .map(|number| {
            (
                number,
                first.get(number).copied(),
                second.get(number).copied(),
            )
        })
        .find(|(_, first, second)| first != second)
}

/// One run. Answers bytes carried and the trace, when one is kept.
fn play(seed: u64, trace: Option<Vec<Sent>>) -> (usize, Vec<Sent>) {
    let mut random = Random(seed);
    let mut world = world(&mut random);
    world.trace = trace;
    world.stall_us = stall(seed, world.now_us);
    let is_v6 = random.happens(300);
    introduce(&mut world);
    let mut ends = open(&mut world, &mut random, is_v6);
    let until_us = world.now_us + LIMIT_US;
    while ends.iter().any(|end| !end.is_closed) {
        for end in &mut ends {
            act(&mut world, end, &mut random);
        }
        world.flush(0);
        world.flush(1);
        let pause_us = ends
            .iter()
            .map(|end| end.pause_until_us)
            .filter(|at| *at > world.now_us)
            .min();
        let next_us = pause_us.unwrap_or(until_us).min(until_us);
        let stepped = world.step(next_us);
        assert!(
            stepped || pause_us.is_some(),
            "seed {seed}: stuck: {}",
            describe(&mut world, &ends)
        );
        assert!(
            world.now_us < until_us,
            "seed {seed}: too slow: {}",
            describe(&mut world, &ends)
        );
    }
    world.faults = Faults::default();
    world.run_us(900_000_000);
    for host in &world.hosts {
        let counts = host.engine.counts();
        let left = (
            counts.connections,
            counts.half_open,
            counts.time_wait,
            counts.segments,
            counts.buffer_bytes,
        );
        assert_eq!(left, (0, 0, 0, 0, 0), "seed {seed}: left over");
    }
    let bytes = ends.iter().map(|end| end.received).sum();
    (bytes, world.trace.unwrap_or_default())
}

/// The hosts know each other's link addresses: three lost solicitations in a row would end a run.
fn introduce(world: &mut World) {
    for host in [0, 1] {
        let mac = [2, 0, 0, 0, 0, 2 - host as u8];
        for peer in [HOSTS[1 - host], HOSTS_V6[1 - host]] {
            let it = &mut world.hosts[host];
            it.engine
                .set_neighbour(world.now_us, peer.parse().unwrap(), mac, &mut it.frames);
        }
    }
}

fn world(random: &mut Random) -> World {
    let shared_mtu = [1_500, 1_500, 1_280, 9_000][random.below(4) as usize];
    let mut host = |number: u8| host_config(number, shared_mtu, random);
    let mut world = World::new([host(1), host(2)]);
    world.random = Random(random.next());
    world.delay_us = [20, 200, 2_000, 20_000, 80_000][random.below(5) as usize];
    world.jitter_us = if random.happens(300) {
        world.delay_us / 4
    } else {
        0
    };
    world.rate = [0, 0, 10_000_000, 100_000_000][random.below(4) as usize];
    let mut share = |most: u64| {
        if random.happens(600) {
            random.below(most) as u32
        } else {
            0
        }
    };
    world.faults = Faults {
        loss: share(80),
        duplication: share(60),
        reordering: share(100),
        corruption: share(30),
    };
    world
}

/// A third of the links holds everything back once, often for longer than a retransmission timeout.
fn stall(seed: u64, now_us: u64) -> Range<u64> {
    let mut random = Random(!seed);
    if !random.happens(333) {
        return 0..0;
    }
    let from_us = now_us + random.below(1_000_000);
    from_us..from_us + random.below(2_000_000)
}

fn host_config(number: u8, mtu: u32, random: &mut Random) -> Config {
    Config {
        mtu,
        sack: random.happens(800),
        timestamps: random.happens(800),
        window_scaling: random.happens(800),
        congestion: if random.happens(700) {
            Congestion::Cubic
        } else {
            Congestion::NewReno
        },
        ecn: [Ecn::Off, Ecn::Accept, Ecn::Request][random.below(3) as usize],
        segmentation_max: if random.happens(300) { 65_000 } else { 0 },
        checksum_offload: random.happens(300),
        answers_follow: random.happens(300),
        answer_wait_us: 70 * u64::from(number),
        receive_bytes: [4_096, 65_535, 65_535][random.below(3) as usize],
        ..config(number)
    }
}

fn open(world: &mut World, random: &mut Random, is_v6: bool) -> Vec<End> {
    let listener = world.listen();
    let to = if is_v6 { HOSTS_V6[1] } else { HOSTS[1] };
    let mut ends = Vec::new();
    for number in 0..1 + random.below(3) as usize {
        let (client, server) = world.connect_by(listener, to);
        let lengths = [length(random), length(random)];
        let bases = [number * 2, number * 2 + 1].map(|stream| stream * 77_777);
        for (host, handle) in [(0, client), (1, server)] {
            let engine = &mut world.hosts[host].engine;
            if random.happens(300) {
                engine
                    .setopt(world.now_us, handle, SocketOption::NoDelay(true))
                    .unwrap();
            }
            ends.push(End {
                host,
                handle,
                base: bases[host],
                peer_base: bases[1 - host],
                to_send: lengths[host],
                sent: 0,
                to_receive: lengths[1 - host],
                received: 0,
                is_shut: false,
                saw_end: false,
                is_closed: false,
                pause_until_us: 0,
            });
        }
    }
    ends
}

fn length(random: &mut Random) -> usize {
    let most = [0, 1, 300, 5_000, 60_000, 250_000][random.below(6) as usize];
    random.below(most + 1) as usize
}

fn act(world: &mut World, end: &mut End, random: &mut Random) {
    if end.is_closed {
        return;
    }
    write(world, end, random);
    read(world, end, random);
    let engine = &mut world.hosts[end.host].engine;
    if end.sent == end.to_send && !end.is_shut {
        end.is_shut = true;
        if let Err(error) = engine.shutdown(world.now_us, end.handle, Shutdown::Write) {
            assert_eq!(error, Error::NotConnected);
        }
    }
    if end.is_shut && end.saw_end {
        assert_eq!(end.received, end.to_receive);
        engine.close(world.now_us, end.handle).unwrap();
        end.is_closed = true;
    }
}

fn write(world: &mut World, end: &mut End, random: &mut Random) {
    while end.sent < end.to_send {
        let count = (1 + random.below(3_000) as usize).min(end.to_send - end.sent);
        let bytes: Vec<u8> = (0..count)
            .map(|i| pattern(end.base + end.sent + i))
            .collect();
        let more = random.happens(100) && end.sent + count < end.to_send;
        match world.hosts[end.host]
            .engine
            .send(world.now_us, end.handle, &bytes, more)
        {
            Ok(count) => end.sent += count,
            Err(error) => {
                assert_eq!(error, Error::WouldBlock, "send");
                return;
            }
        }
    }
}

fn read(world: &mut World, end: &mut End, random: &mut Random) {
    if world.now_us < end.pause_until_us {
        return;
    }
    let mut piece = vec![0; 1 + random.below(8_000) as usize];
    while !end.saw_end {
        match world.hosts[end.host]
            .engine
            .recv(world.now_us, end.handle, &mut piece)
        {
            Ok(0) => end.saw_end = true,
            Ok(count) => {
                for byte in &piece[..count] {
                    assert_eq!(
                        *byte,
                        pattern(end.peer_base + end.received),
                        "byte {}",
                        end.received
                    );
                    end.received += 1;
                }
                if random.happens(30) {
                    end.pause_until_us = world.now_us + random.below(3_000_000);
                    return;
                }
            }
            Err(error) => {
                assert_eq!(error, Error::WouldBlock, "recv");
                return;
            }
        }
    }
}

fn describe(world: &mut World, ends: &[End]) -> String {
    let now_us = world.now_us;
    let mut text = format!("at {now_us} µs, faults {:?}\n", world.faults);
    for end in ends.iter().filter(|end| !end.is_closed) {
        let info = world.hosts[end.host].engine.info(end.handle);
        text += &format!(
            "host {} sent {}/{} received {}/{} shut {} end {}: {info:?}\n",
            end.host, end.sent, end.to_send, end.received, end.to_receive, end.is_shut, end.saw_end
        );
    }
    text
}
