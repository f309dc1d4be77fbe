//! Nanoseconds of one request and its answer in the engine, in one process without a device.
//!
//! A server engine holds N established connections; in each batch some of them, chosen at random,
//! receive a request of 100 bytes and answer with 250. Counted is the engine's side only: frames in,
//! reading, writing, frames out. `request_cost [CONNECTIONS [BATCH]]`, without arguments a table.
//! With "evicted" 4 MiB are read before each batch, which stands for a program with a footprint.
//! `request_cost growth` takes the numbers of connections in turns and prints what a request costs
//! compared with one of 10 connections, with frames handed over in bursts and one by one.

use bypass_tcp::{Address, Config, Engine, Handle, Rx, TxMeta, TxSink};
use std::time::Instant;

const REQUEST: usize = 100;
const ANSWER: usize = 250;
const SERVER: u32 = 0x0a00_0001;

/// A device that writes frames into memory used again and again, as a ring would.
struct Ring {
    frames: Vec<Vec<u8>>,
    lengths: Vec<usize>,
    used: usize,
}

impl Ring {
    fn new() -> Ring {
        Ring {
            frames: vec![vec![0; 2_048]; 256],
            lengths: vec![0; 256],
            used: 0,
        }
    }
}

impl TxSink for Ring {
    fn transmit(&mut self, len: usize, _: TxMeta, fill: impl FnOnce(&mut [u8])) -> bool {
        let place = self.used % self.frames.len();
        fill(&mut self.frames[place][..len]);
        self.lengths[place] = len;
        self.used += 1;
        true
    }
}

/// State of the client side of a connection, needed to write its next segment.
#[derive(Clone, Copy)]
struct Client {
    address: u32,
    port: u16,
    seq: u32,
    ack: u32,
    echo: u32,
}

struct Bench {
    engine: Engine,
    ring: Ring,
    clients: Vec<Client>,
    handles: Vec<Handle>,
    now_us: u64,
    random: u64,
    ballast: Vec<u64>,
    /// Connections of this batch.
    asked: Vec<usize>,
    /// Frames that the engine is given at once.
    burst: usize,
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("growth") {
        return print_growth();
    }
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok())
        .collect();
    if let [connections, rest @ ..] = &numbers[..] {
        let batch = rest.first().copied().unwrap_or(32);
        print_row(*connections, batch);
        return;
    }
    println!("connections  batch   ns/request   ns/request, caches evicted");
    for connections in [1, 10, 100, 1_000, 10_000, 50_000] {
        print_row(connections, 32);
    }
    for batch in [1, 4, 8, 16] {
        print_row(10_000, batch);
    }
}

/// Each number in turn, round by round, so that what else runs on the machine falls on all alike.
fn print_growth() {
    const COUNTS: [usize; 6] = [10, 1, 100, 1_000, 10_000, 50_000];
    const ROUNDS: usize = 7;
    let mut benches: Vec<Bench> = COUNTS.iter().map(|count| Bench::new(*count)).collect();
    println!("frames at once  caches   connections   ns/request   next to 10 connections");
    for (burst, evict) in [(64, false), (64, true), (1, false), (1, true)] {
        let mut found = vec![Vec::new(); COUNTS.len()];
        for _ in 0..=ROUNDS {
            for (bench, found) in benches.iter_mut().zip(&mut found) {
                bench.burst = burst;
                let requests = if evict { 4_000 } else { 100_000 };
                found.push(bench.measure(32, requests, evict));
            }
        }
        // The first round warms up.
        let medians = found.iter().map(|found| median(found[1..].iter().copied()));
        let medians: Vec<f64> = medians.collect();
        for (count, cost) in COUNTS.iter().zip(&medians) {
            let state = if evict { "evicted" } else { "warm" };
            let ratio = cost / medians[0];
            println!("{burst:14}  {state:7} {count:12} {cost:12.0} {ratio:12.2}");
        }
    }
}

fn print_row(connections: usize, batch: usize) {
    let mut bench = Bench::new(connections);
    bench.measure(batch, 200_000, false);
    let warm = median((0..5).map(|_| bench.measure(batch, 200_000, false)));
    let evicted = median((0..5).map(|_| bench.measure(batch, 4_000, true)));
    println!("{connections:11} {batch:6} {warm:12.0} {evicted:14.0}");
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Bench {
    fn new(connections: usize) -> Bench {
        let now_us = 1_000_000;
        let config = Config {
            secret: [3; 16],
            half_open_max: 65_536,
            ..Config::default()
        };
        let mut engine = Engine::new(config, now_us);
        engine.set_addresses(&[Address {
            ip: SERVER.to_be_bytes().into(),
            prefix_len: 8,
        }]);
        let listener = engine
            .listen("0.0.0.0:80".parse().unwrap(), 100_000)
            .unwrap();
        let mut bench = Bench {
            engine,
            ring: Ring::new(),
            clients: Vec::new(),
            handles: Vec::new(),
            now_us,
            random: 1,
            ballast: vec![1; 4 << 17],
            asked: Vec::new(),
            burst: 64,
        };
        for number in 0..connections {
            bench.open(number, listener);
        }
        bench
    }

    fn open(&mut self, number: usize, listener: Handle) {
        let address = 0x0a01_0000 + (number / 50_000) as u32;
        if number % 50_000 == 0 {
            let mac = [2, 0, 0, 0, 0, 9];
            self.engine.set_neighbour(
                self.now_us,
                address.to_be_bytes().into(),
                mac,
                &mut self.ring,
            );
        }
        let port = 10_000 + (number % 50_000) as u16;
        let mut client = Client {
            address,
            port,
            seq: 1_000,
            ack: 0,
            echo: 0,
        };
        let options = [
            2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
        ];
        let syn = client.frame(2, &options, &[]);
        self.take(&syn);
        let (seq, echo) = self.last_sent();
        client.seq += 1;
        client.ack = seq.wrapping_add(1);
        client.echo = echo;
        let ack = client.frame(16, &client.timestamps(2), &[]);
        self.take(&ack);
        self.handles
            .push(self.engine.accept(listener).expect("the handshake is done"));
        self.clients.push(client);
        while self.engine.next_event().is_some() {}
    }

    fn take(&mut self, frame: &[u8]) {
        self.engine
            .rx_burst(self.now_us, &[Rx::new(frame)], &mut self.ring);
        self.engine.end_batch(self.now_us, &mut self.ring);
    }

    /// Sequence number and timestamp of the frame sent last; both option orders put it here.
    fn last_sent(&self) -> (u32, u32) {
        let frame = &self.ring.frames[(self.ring.used - 1) % self.ring.frames.len()];
        let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
        let timestamp = if frame[47] & 2 != 0 {
            word(62)
        } else {
            word(58)
        };
        (word(38), timestamp)
    }

    fn measure(&mut self, batch: usize, requests: usize, evict: bool) -> f64 {
        let rounds = requests.div_ceil(batch);
        let mut spent_ns = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            self.now_us += 20 * batch as u64;
            let frames: Vec<Vec<u8>> = (0..batch).map(|_| self.request()).collect();
            if evict {
                let sum: u64 = self
                    .ballast
                    .iter_mut()
                    .map(|word| {
                        *word += 1;
                        *word
                    })
                    .sum();
                std::hint::black_box(sum);
            }
            let begin = Instant::now();
            self.round(&frames);
            spent_ns.push(begin.elapsed().as_nanos() as f64);
            // The answers will have come before the next requests.
            for index in self.asked.drain(..) {
                self.clients[index].ack = self.clients[index].ack.wrapping_add(ANSWER as u32);
            }
        }
        // The median round: one that the kernel interrupted says nothing about the engine.
        median(spent_ns.into_iter()) / batch as f64
    }

    fn request(&mut self) -> Vec<u8> {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let index = (self.random >> 33) as usize % self.clients.len();
        let clock = (self.now_us / 1_000) as u32;
        let client = &mut self.clients[index];
        let frame = client.frame(24, &client.timestamps(clock), &[b'x'; REQUEST]);
        client.seq = client.seq.wrapping_add(REQUEST as u32);
        self.asked.push(index);
        frame
    }

    fn round(&mut self, frames: &[Vec<u8>]) {
        let mut received = [Rx::new(&[]); 64];
        for (place, frame) in received.iter_mut().zip(frames) {
            *place = Rx::new(frame);
        }
        for some in received[..frames.len()].chunks(self.burst) {
            self.engine.rx_burst(self.now_us, some, &mut self.ring);
        }
        self.engine.poll_timers(self.now_us, &mut self.ring);
        let mut buffer = [0; 512];
        while let Some(event) = self.engine.next_event() {
            while let Ok(count) = self.engine.recv(self.now_us, event.handle, &mut buffer) {
                for _ in 0..count / REQUEST {
                    self.engine
                        .send(self.now_us, event.handle, &[b'y'; ANSWER], false)
                        .expect("room");
                }
            }
        }
        self.engine.end_batch(self.now_us, &mut self.ring);
    }
}

impl Client {
    fn timestamps(&self, clock: u32) -> [u8; 12] {
        let mut options = [1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0];
        options[4..8].copy_from_slice(&clock.to_be_bytes());
        options[8..12].copy_from_slice(&self.echo.to_be_bytes());
        options
    }

    fn frame(&self, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
        use bypass_tcp::wire::{checksum, ip};
        let tcp_len = 20 + options.len() + payload.len();
        let mut frame = vec![0; 14];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[5] = 1;
        frame[0] = 2;
        frame.extend([0x45, 0]);
        frame.extend(((20 + tcp_len) as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend(self.address.to_be_bytes());
        frame.extend(SERVER.to_be_bytes());
        let sum = checksum::of(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum);
        frame.extend(self.port.to_be_bytes());
        frame.extend(80u16.to_be_bytes());
        frame.extend(self.seq.to_be_bytes());
        frame.extend(self.ack.to_be_bytes());
        frame.extend([
            (((20 + options.len()) / 4) << 4) as u8,
            flags,
            0xff,
            0xff,
            0,
            0,
            0,
            0,
        ]);
        frame.extend(options);
        frame.extend(payload);
        let (from, to) = (ip::Addr::v4(self.address), ip::Addr::v4(SERVER));
        let mut sum = ip::pseudo_header(from, to, ip::TCP, tcp_len);
        sum.add(&frame[34..]);
        let sum = sum.finish();
        frame[50..52].copy_from_slice(&sum);
        frame
    }
}
