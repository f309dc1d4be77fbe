//! What a hostile peer may do, as bytes: the fuzz targets and the ordinary tests play the same.

use bypass_tcp::wire::tcp::{self, Options};
use bypass_tcp::wire::{checksum, ethernet, ip};
use bypass_tcp::{
    Address, Config, Congestion, Ecn, Engine, Handle, Route, Rx, Shutdown, SocketOption, Sum,
    TxMeta, TxSink,
};

const OURS: u32 = 0x0a00_0001;
const PEER: u32 = 0x0a00_0002;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A device that keeps the last frame, and whether it refuses more.
#[derive(Default)]
struct Last(Vec<u8>, bool);

impl TxSink for Last {
    fn transmit(&mut self, len: usize, _: TxMeta, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.1 {
            return false;
        }
        self.0.clear();
        self.0.resize(len, 0);
        fill(&mut self.0);
        true
    }
}

/// Any bytes as the options of a segment.
pub fn options(bytes: &[u8]) {
    let options = Options::parse(&bytes[..bytes.len().min(40)]);
    assert!(options.sack_blocks().count() <= 4);
}

/// Gives an IPv4 header its sum, which is always verified.
fn complete_header(frame: &mut [u8]) {
    let length = frame.get(14).map_or(0, |first| usize::from(first & 15) * 4);
    if let Some(header) = frame.get_mut(14..14 + length).filter(|_| length >= 20) {
        header[10..12].fill(0);
        let sum = checksum::of(header);
        header[10..12].copy_from_slice(&sum);
    }
}

/// Frames, each behind a byte with its length divided by eight. Their checksums are right.
pub fn frames(bytes: &[u8]) {
    let (mut engine, mut last) = (engine(0), Last::default());
    let mut rest = bytes;
    let mut now_us = 1_000_000_000;
    while let Some((len, more)) = rest.split_first() {
        let (frame, more) = more.split_at(more.len().min(usize::from(*len) * 8));
        let mut frame = frame.to_vec();
        complete_header(&mut frame);
        let rx = Rx {
            bytes: &frame,
            sum: Sum::Verified,
        };
        engine.rx_burst(now_us, &[rx], &mut last);
        now_us += 1_000;
        engine.poll_timers(now_us, &mut last);
        engine.end_batch(now_us, &mut last);
        while engine.next_event().is_some() {}
        rest = more;
    }
    engine.check_invariants().expect("invariants");
}

/// Steps of eight bytes: segments near the window of a connection, calls, time. The second byte chooses the settings, too.
pub fn segments(bytes: &[u8]) {
    let mut play = Play::new(bytes.get(1).copied().unwrap_or(0));
    for step in bytes.chunks_exact(8) {
        play.step(step.try_into().expect("eight bytes"));
        play.engine.check_invariants().expect("invariants");
    }
    play.end();
}

fn engine(kind: u8) -> Engine {
    let has = |bit: u8| kind & bit > 0;
    let config = Config {
        secret: [9; 16],
        time_wait_us: 1_000_000,
        sack: !has(1),
        timestamps: !has(2),
        ecn: if has(4) { Ecn::Request } else { Ecn::Accept },
        congestion: match has(8) {
            true => Congestion::NewReno,
            false => Congestion::Cubic,
        },
        segmentation_max: if has(16) { 65_000 } else { 0 },
        ..Config::default()
    };
    let mut engine = Engine::new(config, 1_000_000_000);
    engine.set_addresses(&[
        Address {
            ip: OURS.to_be_bytes().into(),
            prefix_len: 24,
        },
        Address {
            ip: "fd00::1".parse().expect("an address"),
            prefix_len: 64,
        },
    ]);
    let peer = PEER.to_be_bytes().into();
    engine.set_neighbour(
        1_000_000_000,
        peer,
        [2, 0, 0, 0, 0, 2],
        &mut Last::default(),
    );
    engine
        .listen("[::]:80".parse().expect("an address"), 4)
        .expect("a free port");
    engine
}

struct Play {
    engine: Engine,
    last: Last,
    now_us: u64,
    listener: Handle,
    handles: Vec<Handle>,
    /// The engine's port of the connection that it opened last.
    connected: Option<u16>,
    /// Numbers that the engine expects after its last segment: the middle of what the peer tries.
    seq: u32,
    ack: u32,
}

impl Play {
    fn new(kind: u8) -> Play {
        let mut engine = engine(kind);
        let listener = engine
            .listen("10.0.0.1:81".parse().expect("an address"), 4)
            .expect("a free port");
        let (now_us, last) = (1_000_000_000, Last::default());
        Play {
            engine,
            last,
            now_us,
            listener,
            handles: Vec::new(),
            connected: None,
            seq: 0,
            ack: 0,
        }
    }

    fn step(&mut self, step: [u8; 8]) {
        let [kind, a, b, c, d, e, f, g] = step;
        match kind % 8 {
            0..=3 => self.segment([kind, a, b, c, d, e, f, g]),
            4 => self.now_us += u64::from(a) * [1_000, 10_000, 1_000_000, 30][usize::from(b % 4)],
            5 => self.call(a, usize::from(b) * usize::from(c)),
            6 => {
                self.now_us = self
                    .engine
                    .next_timer()
                    .unwrap_or(self.now_us)
                    .max(self.now_us)
            }
            _ => self.change([a, b, c, d]),
        }
        self.round();
    }

    fn round(&mut self) {
        self.engine.poll_timers(self.now_us, &mut self.last);
        while self.engine.next_event().is_some() {}
        self.engine.end_batch(self.now_us, &mut self.last);
        if self.last.0.len() >= 54 && self.last.0[23] == ip::TCP {
            let word =
                |at: usize| u32::from_be_bytes(self.last.0[at..at + 4].try_into().expect("four"));
            let is_counted = self.last.0[47] & (tcp::SYN | tcp::FIN) != 0;
            self.ack = word(38).wrapping_add(u32::from(is_counted));
            self.seq = word(42);
        }
    }

    /// The program accepts, a router reports an error, or the host changes.
    fn change(&mut self, [kind, a, b, c]: [u8; 4]) {
        let (now_us, size) = (self.now_us, u32::from(a) * 8);
        match kind % 8 {
            0..=2 => self.accept(),
            3 | 4 => self.error([kind, a, b, c]),
            5 => self.engine.set_link(now_us, MAC, size),
            6 => {
                let network = PEER.to_be_bytes().into();
                self.engine.set_routes(&[Route {
                    network,
                    prefix_len: 32,
                    gateway: None,
                    mtu: size,
                    mss: u32::from(c) * 8,
                    source: None,
                    hops: b,
                }]);
            }
            _ if a & 1 == 0 => self.last.1 = b & 1 > 0,
            _ => self.set_option(b, c),
        }
    }

    fn set_option(&mut self, which: u8, value: u8) {
        let (on, number) = (value & 1 > 0, u32::from(value));
        let option = match which % 8 {
            0 => SocketOption::NoDelay(on),
            1 => SocketOption::Cork(on),
            2 => SocketOption::KeepAlive(on),
            3 => SocketOption::KeepIdle { seconds: number },
            4 => SocketOption::UserTimeout {
                milliseconds: number * 100,
            },
            5 => SocketOption::SegmentMax(number * 10),
            6 => SocketOption::ReceiveBuffer { bytes: number * 50 },
            _ => SocketOption::UnsentLow { bytes: number * 50 },
        };
        if let Some(handle) = self.handles.last() {
            let _ = self.engine.setopt(self.now_us, *handle, option);
        }
    }

    /// A router reports that it has not delivered a packet, of ours or not.
    fn error(&mut self, [kind, mtu, port, back]: [u8; 4]) {
        let ports = match self.connected.filter(|_| kind & 128 > 0) {
            Some(connected) => (connected, 4_000),
            None => (80 + u16::from(kind & 64 > 0), 4_000 + u16::from(port % 3)),
        };
        let code = [4, 4, 1, 3][usize::from(kind >> 4 & 3)];
        let mut icmp = vec![3, code, 0, 0, 0, 0];
        icmp.extend((u16::from(mtu) * 8).to_be_bytes());
        icmp.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        icmp.extend([OURS.to_be_bytes(), PEER.to_be_bytes()].concat());
        icmp.extend([ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat());
        icmp.extend(self.ack.wrapping_sub(u32::from(back) * 97).to_be_bytes());
        let sum = checksum::of(&icmp);
        icmp[2..4].copy_from_slice(&sum);
        self.receive(0, ip::ICMP, &icmp);
    }

    fn accept(&mut self) {
        if let Ok(handle) = self.engine.accept(self.listener) {
            self.handles.push(handle);
        }
    }

    fn call(&mut self, which: u8, count: usize) {
        let Some(handle) = self.handles.last().copied() else {
            if which % 8 == 7 {
                let to = "10.0.0.2:4000".parse().expect("an address");
                if let Ok(handle) = self.engine.connect(self.now_us, None, to) {
                    let own = self.engine.local_addr(handle);
                    self.connected = own.ok().map(|own| own.port());
                    self.handles.push(handle);
                }
            }
            return;
        };
        let (engine, now_us) = (&mut self.engine, self.now_us);
        match which % 8 {
            0 | 1 => drop(engine.send(now_us, handle, &vec![1; count], which > 127)),
            2 | 3 => drop(engine.recv(now_us, handle, &mut vec![0; count])),
            4 => drop(engine.shutdown(now_us, handle, Shutdown::Write)),
            5 => drop(engine.send_urgent(now_us, handle, &[1; 3])),
            6 => {
                let _ = engine.close(now_us, handle);
                self.handles.pop();
            }
            _ => drop(engine.recv_urgent(handle)),
        }
    }

    fn segment(&mut self, [kind, flags, seq, ack, len, options, window, port]: [u8; 8]) {
        let near = |middle: u32, by: u8| middle.wrapping_add((i32::from(by as i8) * 97) as u32);
        let seq = if seq == 0 {
            self.seq
        } else {
            near(self.seq, seq)
        };
        let ack = if ack == 0 {
            self.ack
        } else {
            near(self.ack, ack)
        };
        let mut options = match options % 4 {
            0 => Vec::new(),
            1 => vec![2, 4, 2, 0, 4, 2, 3, 3, 5, 0, 0, 0],
            2 => [
                &[1, 1, 5, 10][..],
                &near(ack, options).to_be_bytes(),
                &near(ack, window).to_be_bytes(),
            ]
            .concat(),
            _ => [
                &[1, 1, 8, 10][..],
                &(self.now_us as u32 / 1_000).to_be_bytes(),
                &[0; 4],
            ]
            .concat(),
        };
        options.truncate(40);
        let (from_port, to_port) = match self.connected.filter(|_| kind & 128 > 0) {
            Some(connected) => (4_000, connected),
            None if kind & 64 > 0 => (4_000 + u16::from(port % 3), 81),
            None => (4_000 + u16::from(port % 3), 80 + u16::from(port > 250)),
        };
        let mut tcp = [&from_port.to_be_bytes()[..], &to_port.to_be_bytes()].concat();
        tcp.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
        tcp.extend([
            (((20 + options.len()) / 4) << 4) as u8,
            flags,
            window,
            len,
            0,
            0,
            0,
            kind >> 3,
        ]);
        tcp.extend(options);
        tcp.extend(vec![7; usize::from(len) * 5]);
        self.receive(kind >> 6, ip::TCP, &tcp);
    }

    /// A packet comes from the peer.
    fn receive(&mut self, traffic_class: u8, protocol: u8, payload: &[u8]) {
        let header = ip::Header {
            source: ip::Addr::v4(PEER),
            destination: ip::Addr::v4(OURS),
            protocol,
            traffic_class,
            hops: 64,
            flow_label: 0,
            id: 0,
            payload_len: payload.len(),
        };
        let mut frame = vec![0; ethernet::HEADER + header.len()];
        ethernet::emit(&mut frame, MAC, [2, 0, 0, 0, 0, 2], ethernet::IPV4);
        header.emit(&mut frame[ethernet::HEADER..]);
        frame.extend(payload);
        let rx = Rx {
            bytes: &frame,
            sum: Sum::Verified,
        };
        self.engine.rx_burst(self.now_us, &[rx], &mut self.last);
    }

    /// Whatever happened, everything ends and nothing is left.
    fn end(mut self) {
        self.last.1 = false;
        while let Ok(handle) = self.engine.accept(self.listener) {
            self.handles.push(handle);
        }
        for handle in std::mem::take(&mut self.handles) {
            let _ = self.engine.abort(self.now_us, handle);
        }
        let _ = self.engine.close(self.now_us, self.listener);
        for _ in 0..10_000 {
            self.round();
            match self.engine.next_timer() {
                Some(next_us) => self.now_us = next_us,
                None => break,
            }
        }
        self.engine.check_invariants().expect("invariants");
        assert_eq!(self.engine.counts().half_open, 0);
    }
}
