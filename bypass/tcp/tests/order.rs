//! Frames that leave by the two queues of a device arrive in the order in which the engine sent them: GSO segments wait in a
//! slow one (AF_PACKET), single frames go past it (AF_XDP).

mod support;

use bypass_tcp::wire::{ip, tcp};
use bypass_tcp::{Config, Handle, Rx, SocketOption, Sum, TxMeta, TxSink};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use support::{config, offload, pattern, Host, Random, HOSTS};

const DELAY_US: u64 = 100;
const SLOW_BITS: u64 = 200_000_000;

/// Frames on their way, each with the number of what the engine sent that it is a part of.
#[derive(Default)]
struct Wire {
    flying: BinaryHeap<Reverse<(u64, u64, u64, Vec<u8>)>>,
    launched: u64,
}

impl Wire {
    fn launch(&mut self, leaves_us: u64, number: u64, frame: Vec<u8>) {
        self.launched += 1;
        let entry = (leaves_us + DELAY_US, self.launched, number, frame);
        self.flying.push(Reverse(entry));
    }

    fn next_us(&self) -> Option<u64> {
        let Reverse((at_us, ..)) = self.flying.peek()?;
        Some(*at_us)
    }

    fn arrival(&mut self, now_us: u64) -> Option<(u64, Vec<u8>)> {
        self.next_us().filter(|at_us| *at_us <= now_us)?;
        let Reverse((_, _, number, frame)) = self.flying.pop()?;
        Some((number, frame))
    }
}

/// A device as that of `bypass/xdp` with a packet socket and rings.
struct TwoQueues {
    now_us: u64,
    /// Frames that the engine has handed over.
    number: u64,
    /// In the fast queue, which leaves with the round.
    unpublished: Vec<(u64, Vec<u8>)>,
    slow_until_us: u64,
    wire: Wire,
    random: Random,
    loss: u32,
    /// Does not look at what the engine says of the order.
    is_careless: bool,
}

impl TwoQueues {
    fn launch(&mut self, leaves_us: u64, number: u64, frame: Vec<u8>) {
        if !self.random.happens(self.loss) {
            self.wire.launch(leaves_us, number, frame);
        }
    }

    fn flush(&mut self) {
        for (number, frame) in std::mem::take(&mut self.unpublished) {
            self.launch(self.now_us, number, frame);
        }
    }
}

impl TxSink for TwoQueues {
    fn transmit(&mut self, len: usize, meta: TxMeta, fill: impl FnOnce(&mut [u8])) -> bool {
        let mut frame = vec![0; len];
        fill(&mut frame);
        self.number += 1;
        let must_keep_order = meta.in_order && !self.is_careless;
        if must_keep_order {
            self.flush();
        }
        let is_slow = meta.gso_size > 0 || meta.partial_checksum || must_keep_order;
        for frame in offload::finish(frame, &meta) {
            if is_slow {
                let took_us = frame.len() as u64 * 8_000_000 / SLOW_BITS;
                self.slow_until_us = self.slow_until_us.max(self.now_us) + took_us;
                self.launch(self.slow_until_us, self.number, frame);
            } else {
                self.unpublished.push((self.number, frame));
            }
        }
        true
    }

    fn pass(&mut self, _: &[u8]) {}
}

/// Whether a frame has bytes or FIN: acknowledgments may overtake them.
fn has_bytes(frame: &[u8]) -> bool {
    let packet = ip::parse_v4(&frame[14..], true).expect("a packet of ours");
    let segment = tcp::parse(&packet, Sum::Verified).expect("a segment of ours");
    !segment.payload.is_empty() || segment.has(tcp::FIN)
}

/// A sender behind two queues, and a receiver whose frames meet nothing.
struct Pair {
    now_us: u64,
    sender: Host,
    receiver: Host,
    queues: TwoQueues,
    back: Wire,
    newest: u64,
    overtaken: u64,
}

impl Pair {
    fn new(seed: u64, loss: u32, is_careless: bool) -> Pair {
        let now_us = 1_000_000_000;
        let sending = Config {
            segmentation_max: 65_000,
            ..config(1)
        };
        let host = |number: usize, config: Config| {
            let mut host = Host::new(number, config, now_us);
            let peer = HOSTS[1 - number].parse().expect("an address");
            let mac = [2, 0, 0, 0, 0, 2 - number as u8];
            host.engine
                .set_neighbour(now_us, peer, mac, &mut host.frames);
            host
        };
        Pair {
            now_us,
            sender: host(0, sending),
            receiver: host(1, config(2)),
            queues: TwoQueues {
                now_us,
                number: 0,
                unpublished: Vec::new(),
                slow_until_us: 0,
                wire: Wire::default(),
                random: Random(seed),
                loss,
                is_careless,
            },
            back: Wire::default(),
            newest: 0,
            overtaken: 0,
        }
    }

    fn finish_round(&mut self) {
        self.sender.engine.end_batch(self.now_us, &mut self.queues);
        self.queues.flush();
        let frames = &mut self.receiver.frames;
        self.receiver.engine.end_batch(self.now_us, frames);
        for frame in frames.sent.drain(..) {
            self.back.launch(self.now_us, 0, frame);
        }
        for engine in [&mut self.sender.engine, &mut self.receiver.engine] {
            while engine.next_event().is_some() {}
        }
    }

    /// The next arrivals or timers, or the end of the writer's pause.
    fn step(&mut self, pause_until_us: Option<u64>) {
        let arrivals = [&self.queues.wire, &self.back].map(Wire::next_us);
        let timers = [&self.sender, &self.receiver].map(|host| host.engine.next_timer());
        let next_us = arrivals
            .into_iter()
            .chain(timers)
            .chain([pause_until_us])
            .flatten()
            .min();
        self.now_us = self.now_us.max(next_us.expect("nothing will happen"));
        self.queues.now_us = self.now_us;
        let receiver = &mut self.receiver;
        while let Some((number, frame)) = self.queues.wire.arrival(self.now_us) {
            if has_bytes(&frame) {
                self.overtaken += u64::from(number < self.newest);
                self.newest = self.newest.max(number);
            }
            let arrived = [Rx::new(&frame)];
            receiver
                .engine
                .rx_burst(self.now_us, &arrived, &mut receiver.frames);
        }
        let sender = &mut self.sender.engine;
        while let Some((_, frame)) = self.back.arrival(self.now_us) {
            sender.rx_burst(self.now_us, &[Rx::new(&frame)], &mut self.queues);
        }
        sender.poll_timers(self.now_us, &mut self.queues);
        receiver
            .engine
            .poll_timers(self.now_us, &mut receiver.frames);
        self.finish_round();
    }

    fn connect(&mut self) -> [Handle; 2] {
        let any = "[::]:80".parse().expect("an address");
        let listener = self.receiver.engine.listen(any, 1).expect("a listener");
        let remote = (HOSTS[1].parse::<IpAddr>().expect("an address"), 80).into();
        let engine = &mut self.sender.engine;
        let client = engine.connect(self.now_us, None, remote).expect("begun");
        engine
            .setopt(self.now_us, client, SocketOption::NoDelay(true))
            .expect("an option");
        self.finish_round();
        loop {
            if let Ok(server) = self.receiver.engine.accept(listener) {
                return [client, server];
            }
            self.step(None);
        }
    }

    /// Writes of odd sizes, each of which ends in a small segment of its own, and a pause after some.
    fn transfer(&mut self, bytes: usize) {
        let [client, server] = self.connect();
        let (mut sent, mut received, mut pause_until_us) = (0, 0, 0);
        let mut piece = vec![0; 65_536];
        while received < bytes {
            while sent < bytes && self.now_us >= pause_until_us {
                let wanted = (1 + self.queues.random.below(40_000) as usize).min(bytes - sent);
                (0..wanted).for_each(|i| piece[i] = pattern(sent + i));
                let engine = &mut self.sender.engine;
                let Ok(count) = engine.send(self.now_us, client, &piece[..wanted], false) else {
                    break;
                };
                sent += count;
                pause_until_us = self.now_us + self.queues.random.below(2_000);
            }
            self.finish_round();
            let pauses = sent < bytes && pause_until_us > self.now_us;
            self.step(pauses.then_some(pause_until_us));
            let engine = &mut self.receiver.engine;
            while let Ok(count) = engine.recv(self.now_us, server, &mut piece) {
                assert!(count > 0, "it ended after {received} bytes");
                let arrived = piece[..count].iter().enumerate();
                arrived.for_each(|(i, byte)| assert_eq!(*byte, pattern(received + i)));
                received += count;
            }
        }
    }
}

/// Frames overtaken by later ones in ten transfers, and segments sent again.
fn overtaken(loss: u32, is_careless: bool) -> (u64, u64) {
    let mut sums = (0, 0);
    for seed in 1..=10 {
        let mut pair = Pair::new(seed, loss, is_careless);
        pair.transfer(1_000_000);
        sums.0 += pair.overtaken;
        sums.1 += pair.sender.engine.stats().retrans_segs;
    }
    sums
}

#[test]
fn nothing_overtakes_segments_in_a_slow_queue_whether_frames_are_lost_or_not() {
    for (loss, least_again) in [(0, 0), (5, 20), (50, 200)] {
        let (overtaken_frames, again) = overtaken(loss, false);
        assert_eq!(overtaken_frames, 0, "{loss} of a thousand lost");
        assert!(again >= least_again, "{again} sent again");
        assert!(overtaken(loss, true).0 > 10, "this would not show it");
    }
}
