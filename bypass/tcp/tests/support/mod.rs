//! Two hosts on a simulated link in virtual time: what the tests that need a peer share.
#![allow(dead_code)] // each test file uses a part of it

pub mod dialogue;
pub mod simulation;

use bypass_tcp::{Address, Config, Engine, Event, Handle, Rx, Sum, TxMeta, TxSink};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::ops::Range;

/// A device that keeps frames, cutting GSO segments as a real one would.
#[derive(Default)]
pub struct Frames {
    pub sent: Vec<Vec<u8>>,
    pub passed: Vec<Vec<u8>>,
    /// Frames that are still taken; none for no limit.
    pub room: Option<usize>,
    /// Of those of the queue of GSO segments.
    pub gso_room: Option<usize>,
    /// How often that queue was full.
    pub gso_refused: usize,
    /// Ports that were taken from the kernel, at any address.
    pub claimed: Vec<u16>,
    /// Largest IP packet that it carries; zero for any.
    pub mtu: u32,
}

impl Frames {
    /// A device that carries packets up to this size.
    pub fn of_mtu(mtu: u32) -> Frames {
        Frames {
            mtu,
            ..Frames::default()
        }
    }
}

impl TxSink for Frames {
    fn transmit(&mut self, len: usize, meta: TxMeta, fill: impl FnOnce(&mut [u8])) -> bool {
        let is_in_gso_queue = meta.gso_size > 0 || meta.in_order;
        if is_in_gso_queue && self.gso_room == Some(0) {
            self.gso_refused += 1;
            return false;
        }
        if let Some(room) = &mut self.room {
            if *room == 0 {
                return false;
            }
            *room -= 1;
        }
        if let Some(room) = self.gso_room.as_mut().filter(|_| is_in_gso_queue) {
            *room -= 1;
        }
        // Old bytes, so that a frame that is not filled completely shows.
        let mut frame = vec![0xa5; len];
        fill(&mut frame);
        for frame in offload::finish(frame, &meta) {
            let (len, mtu) = (frame.len() - 14, self.mtu as usize);
            assert!(mtu == 0 || len <= mtu, "{len} bytes on a link of {mtu}");
            self.sent.push(frame);
        }
        true
    }

    fn pass(&mut self, frame: &[u8]) {
        self.passed.push(frame.to_vec());
    }

    fn is_claimed(&self, at: SocketAddr, begins: bool) -> bool {
        !begins && self.claimed.contains(&at.port())
    }
}

/// What a device with segmentation and checksum offload does.
pub mod offload {
    use bypass_tcp::wire::{checksum, ip, tcp};
    use bypass_tcp::TxMeta;

    pub fn finish(frame: Vec<u8>, meta: &TxMeta) -> Vec<Vec<u8>> {
        if meta.gso_size == 0 {
            let mut frame = frame;
            if meta.partial_checksum {
                complete(&mut frame, meta);
            }
            return vec![frame];
        }
        let (headers, payload) = frame.split_at(meta.header_len);
        let count = payload.len().div_ceil(meta.gso_size);
        let pieces = payload.chunks(meta.gso_size).enumerate();
        pieces
            .map(|(number, piece)| cut(headers, piece, number, count, meta))
            .collect()
    }

    fn cut(headers: &[u8], piece: &[u8], number: usize, count: usize, meta: &TxMeta) -> Vec<u8> {
        let mut frame = [headers, piece].concat();
        let at = meta.tcp_at;
        let seq = u32::from_be_bytes(frame[at + 4..at + 8].try_into().unwrap());
        let seq = seq.wrapping_add((number * meta.gso_size) as u32);
        frame[at + 4..at + 8].copy_from_slice(&seq.to_be_bytes());
        if number + 1 < count {
            frame[at + 13] &= !(tcp::FIN | tcp::PSH);
        }
        let len = (frame.len() - 14) as u16;
        if frame[14] >> 4 == 4 {
            frame[16..18].copy_from_slice(&len.to_be_bytes());
            frame[24..26].fill(0);
            let sum = checksum::of(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum);
        } else {
            frame[18..20].copy_from_slice(&(len - 40).to_be_bytes());
        }
        complete(&mut frame, meta);
        frame
    }

    fn complete(frame: &mut [u8], meta: &TxMeta) {
        frame[meta.tcp_at + 16..meta.tcp_at + 18].fill(0);
        let packet = match frame[14] >> 4 {
            4 => ip::parse_v4(&frame[14..], true),
            _ => ip::parse_v6(&frame[14..]),
        };
        let packet = packet.expect("a packet of ours");
        let (from, to, len) = (packet.source, packet.destination, packet.payload.len());
        let mut sum = ip::pseudo_header(from, to, ip::TCP, len);
        sum.add(packet.payload);
        let sum = sum.finish();
        frame[meta.tcp_at + 16..meta.tcp_at + 18].copy_from_slice(&sum);
    }
}

/// A small generator of numbers (SplitMix64), so that a seed gives the same run everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// True in `per_mille` of a thousand cases.
    pub fn happens(&mut self, per_mille: u32) -> bool {
        self.below(1_000) < u64::from(per_mille)
    }
}

/// Faults of the link, each in thousandths.
#[derive(Clone, Copy, Default, Debug)]
pub struct Faults {
    pub loss: u32,
    pub duplication: u32,
    pub reordering: u32,
    pub corruption: u32,
}

/// The addresses of the two hosts.
pub const HOSTS: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
pub const HOSTS_V6: [&str; 2] = ["fd00::1", "fd00::2"];

/// One end of the link.
pub struct Host {
    pub engine: Engine,
    pub frames: Frames,
    pub ready: BTreeMap<Handle, u32>,
}

impl Host {
    pub fn new(number: usize, config: Config, now_us: u64) -> Host {
        let mac = [2, 0, 0, 0, 0, number as u8 + 1];
        let frames = Frames::of_mtu(config.mtu);
        let mut engine = Engine::new(Config { mac, ..config }, now_us);
        engine.set_addresses(&[
            Address {
                ip: HOSTS[number].parse().unwrap(),
                prefix_len: 24,
            },
            Address {
                ip: HOSTS_V6[number].parse().unwrap(),
                prefix_len: 64,
            },
        ]);
        Host {
            engine,
            frames,
            ready: BTreeMap::new(),
        }
    }

    fn collect_events(&mut self) {
        while let Some(Event { handle, ready }) = self.engine.next_event() {
            *self.ready.entry(handle).or_default() |= ready;
        }
    }
}

/// When a host sent a frame, and a hash of host and frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    pub at_us: u64,
    pub hash: u64,
}

/// Two hosts and the link between them.
pub struct World {
    pub now_us: u64,
    pub hosts: [Host; 2],
    pub delay_us: u64,
    pub jitter_us: u64,
    /// Bits a second; zero for no limit. The queue of a limited link holds `queue_us`.
    pub rate: u64,
    pub queue_us: u64,
    /// Frames that are due in this time arrive at its end.
    pub stall_us: Range<u64>,
    pub faults: Faults,
    pub random: Random,
    /// Frames that came to be put on the link, for tests that count them.
    pub carried: u64,
    pub dropped: u64,
    /// Decides about a frame before the faults do: `(from, frame) -> drop it?`.
    pub filter: Option<Box<dyn FnMut(usize, &[u8]) -> bool>>,
    /// Check the invariants after each event.
    pub is_strict: bool,
    /// Frames that the hosts sent, for tests that compare runs.
    pub trace: Option<Vec<Sent>>,
    flying: BinaryHeap<Reverse<(u64, u64, usize, Vec<u8>)>>,
    busy_until_us: [u64; 2],
    order: u64,
}

impl World {
    pub fn new(configs: [Config; 2]) -> World {
        let now_us = 1_000_000_000;
        let [first, second] = configs;
        World {
            now_us,
            hosts: [Host::new(0, first, now_us), Host::new(1, second, now_us)],
            delay_us: 100,
            jitter_us: 0,
            rate: 0,
            queue_us: 100_000,
            stall_us: 0..0,
            faults: Faults::default(),
            random: Random(1),
            carried: 0,
            dropped: 0,
            filter: None,
            is_strict: true,
            trace: None,
            flying: BinaryHeap::new(),
            busy_until_us: [0; 2],
            order: 0,
        }
    }

    pub fn plain() -> World {
        World::new([config(1), config(2)])
    }

    /// Ends the round of a host: what it has to send goes on the link.
    pub fn flush(&mut self, host: usize) {
        let now_us = self.now_us;
        let it = &mut self.hosts[host];
        it.engine.end_batch(now_us, &mut it.frames);
        it.collect_events();
        for frame in std::mem::take(&mut it.frames.sent) {
            self.carry(host, frame);
        }
        if self.is_strict {
            self.check(host);
        }
    }

    fn check(&self, host: usize) {
        if let Err(what) = self.hosts[host].engine.check_invariants() {
            panic!("host {host} at {} µs: {what}", self.now_us);
        }
    }

    fn carry(&mut self, from: usize, mut frame: Vec<u8>) {
        self.carried += 1;
        if std::env::var_os("TRACE").is_some() {
            eprintln!("{} {from} {}", self.now_us, summary(&frame));
        }
        if let Some(trace) = &mut self.trace {
            let mut hasher = DefaultHasher::new();
            (from, &frame).hash(&mut hasher);
            trace.push(Sent {
                at_us: self.now_us,
                hash: hasher.finish(),
            });
        }
        if let Some(filter) = &mut self.filter {
            if filter(from, &frame) {
                self.dropped += 1;
                return;
            }
        }
        if self.random.happens(self.faults.loss) {
            self.dropped += 1;
            return;
        }
        // A changed ARP packet has no checksum that would show it.
        let is_ip = frame[12..14] != [8, 6];
        if is_ip && self.random.happens(self.faults.corruption) {
            let at = self.random.below(frame.len() as u64 - 14) as usize + 14;
            frame[at] ^= 1 << self.random.below(8);
        }
        let copies = 1 + usize::from(self.random.happens(self.faults.duplication));
        for _ in 0..copies {
            self.launch(from, frame.clone());
        }
    }

    fn launch(&mut self, from: usize, frame: Vec<u8>) {
        let mut at_us = self.now_us;
        if self.rate > 0 {
            let begin_us = self.busy_until_us[from].max(at_us);
            if begin_us - at_us > self.queue_us {
                self.dropped += 1;
                return;
            }
            at_us = begin_us + frame.len() as u64 * 8_000_000 / self.rate;
            self.busy_until_us[from] = at_us;
        }
        at_us += self.delay_us + self.random.below(self.jitter_us + 1);
        if self.random.happens(self.faults.reordering) {
            at_us += self.random.below(self.delay_us * 3 + 1);
        }
        if self.stall_us.contains(&at_us) {
            at_us = self.stall_us.end;
        }
        self.order += 1;
        self.flying
            .push(Reverse((at_us, self.order, 1 - from, frame)));
    }

    /// Puts a frame on the link as if `from` had sent it.
    pub fn inject(&mut self, from: usize, frame: Vec<u8>) {
        self.launch(from, frame);
    }

    /// One event: a frame arrives or a timer fires. False when nothing is left before `until_us`.
    pub fn step(&mut self, until_us: u64) -> bool {
        let arrival_us = self.flying.peek().map(|Reverse((at_us, ..))| *at_us);
        let timers = [0, 1].map(|host| self.next_round_us(host));
        let next_us = arrival_us
            .into_iter()
            .chain(timers.into_iter().flatten())
            .min();
        let Some(next_us) = next_us.filter(|next_us| *next_us <= until_us) else {
            self.now_us = until_us;
            return false;
        };
        self.now_us = self.now_us.max(next_us);
        while self
            .flying
            .peek()
            .is_some_and(|Reverse((at_us, ..))| *at_us <= self.now_us)
        {
            let Reverse((.., to, frame)) = self.flying.pop().unwrap();
            let it = &mut self.hosts[to];
            it.engine
                .rx_burst(self.now_us, &[Rx::new(&frame)], &mut it.frames);
            if self.is_strict {
                self.check(to);
            }
        }
        for host in [0, 1] {
            let it = &mut self.hosts[host];
            it.engine.poll_timers(self.now_us, &mut it.frames);
            it.collect_events();
            self.flush(host);
        }
        true
    }

    /// When a host must be driven at the latest.
    fn next_round_us(&self, host: usize) -> Option<u64> {
        const ROUND_US: u64 = 200;
        let engine = &self.hosts[host].engine;
        let waits = engine.config().answers_follow && engine.has_output();
        let round_us = waits.then_some(self.now_us + ROUND_US);
        engine.next_timer().into_iter().chain(round_us).min()
    }

    /// Runs for a while.
    pub fn run_us(&mut self, for_us: u64) {
        let until_us = self.now_us + for_us;
        while self.step(until_us) {}
    }

    /// Runs until `done` says so; panics after `limit_us`.
    pub fn run_until(&mut self, limit_us: u64, mut done: impl FnMut(&mut World) -> bool) {
        let until_us = self.now_us + limit_us;
        while !done(self) {
            let stats = [0, 1].map(|host| *self.hosts[host].engine.stats());
            assert!(
                self.step(until_us),
                "not done after {limit_us} µs: {:?} {stats:?}",
                self.faults
            );
        }
    }

    /// Opens a connection from host 0 to port 80 of host 1. Answers both ends.
    pub fn connect(&mut self) -> (Handle, Handle) {
        let listener = self.listen();
        self.connect_to(listener)
    }

    pub fn listen(&mut self) -> Handle {
        self.hosts[1]
            .engine
            .listen("[::]:80".parse().unwrap(), 128)
            .unwrap()
    }

    pub fn connect_to(&mut self, listener: Handle) -> (Handle, Handle) {
        self.connect_by(listener, HOSTS[1])
    }

    /// A link may lose every SYN/ACK, or every answer to one: then the server has given up, a client without
    /// anything to send does not learn of it, and a program connects again.
    pub fn connect_by(&mut self, listener: Handle, to: &str) -> (Handle, Handle) {
        for _ in 0..3 {
            if let Some(ends) = self.try_to_connect(listener, to) {
                return ends;
            }
        }
        panic!("three handshakes failed: {:?}", self.faults);
    }

    fn try_to_connect(&mut self, listener: Handle, to: &str) -> Option<(Handle, Handle)> {
        let remote = (to.parse::<std::net::IpAddr>().unwrap(), 80).into();
        let client = self.hosts[0]
            .engine
            .connect(self.now_us, None, remote)
            .unwrap();
        self.flush(0);
        // Longer than the server tries.
        let until_us = self.now_us + 300_000_000;
        loop {
            if let Ok(server) = self.hosts[1].engine.accept(listener) {
                return Some((client, server));
            }
            if !self.step(until_us) {
                break;
            }
        }
        let retransmitted = self.hosts[1].engine.stats().retrans_segs;
        assert!(
            retransmitted >= 5,
            "the server gave up early: {:?}",
            self.faults
        );
        assert_eq!(self.hosts[1].engine.counts().half_open, 0);
        self.hosts[0].engine.abort(self.now_us, client).unwrap();
        self.flush(0);
        None
    }

    pub fn send(&mut self, host: usize, handle: Handle, bytes: &[u8]) -> usize {
        let sent = self.hosts[host]
            .engine
            .send(self.now_us, handle, bytes, false)
            .unwrap();
        self.flush(host);
        sent
    }

    /// Everything that can be read now.
    pub fn read(&mut self, host: usize, handle: Handle) -> Vec<u8> {
        let mut all = Vec::new();
        let mut piece = [0; 4_096];
        while let Ok(count) = self.hosts[host]
            .engine
            .recv(self.now_us, handle, &mut piece)
        {
            if count == 0 {
                break;
            }
            all.extend_from_slice(&piece[..count]);
        }
        self.flush(host);
        all
    }

    pub fn close(&mut self, host: usize, handle: Handle) {
        self.hosts[host].engine.close(self.now_us, handle).unwrap();
        self.flush(host);
    }

    /// Sends `len` bytes of a pattern from one end to the other and checks that they come as sent.
    pub fn transfer(
        &mut self,
        from: (usize, Handle),
        to: (usize, Handle),
        len: usize,
        limit_us: u64,
    ) {
        let (mut sent, mut received) = (0, 0);
        let mut piece = [0; 16_384];
        self.run_until(limit_us, |world| {
            while sent < len {
                let count = piece.len().min(len - sent);
                (0..count).for_each(|i| piece[i] = pattern(sent + i));
                match world.hosts[from.0]
                    .engine
                    .send(world.now_us, from.1, &piece[..count], false)
                {
                    Ok(count) => sent += count,
                    Err(error) => {
                        assert_eq!(error, bypass_tcp::Error::WouldBlock);
                        break;
                    }
                }
            }
            world.flush(from.0);
            for byte in world.read(to.0, to.1) {
                assert_eq!(byte, pattern(received), "byte {received}");
                received += 1;
            }
            received == len
        });
    }
}

/// A frame in one line, for `TRACE=1`.
pub fn summary(frame: &[u8]) -> String {
    use bypass_tcp::wire::{ip, tcp};
    let packet = match frame[12..14] {
        [8, 0] => ip::parse_v4(&frame[14..], true),
        [0x86, 0xdd] => ip::parse_v6(&frame[14..]),
        _ => return "arp".into(),
    };
    let Some(seg) = packet
        .ok()
        .as_ref()
        .and_then(|packet| tcp::parse(packet, Sum::Verified))
    else {
        return "not tcp".into();
    };
    let sack: Vec<_> = seg.options.sack_blocks().collect();
    format!(
        "{:x} flags {:02x} {}+{} ack {} win {} {:?} sack {sack:?}",
        seg.flow.ports,
        seg.flags,
        seg.seq,
        seg.payload.len(),
        seg.ack,
        seg.window,
        seg.options.timestamps
    )
}

/// The byte at a place of the stream.
pub fn pattern(at: usize) -> u8 {
    (at as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .to_be_bytes()[2]
}

/// The settings of a host with a secret of its own.
pub fn config(number: u8) -> Config {
    Config {
        secret: [number; 16],
        ..Config::default()
    }
}
