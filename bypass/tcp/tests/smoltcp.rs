//! The engine and smoltcp, a TCP written by others, over a bad link in virtual time: whoever connects,
//! every byte comes as it was sent, both ways.

mod support;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use bypass_tcp::{Config, Engine, Error, Handle, Rx, Shutdown};
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

use support::{config, pattern, Faults, Host, Random, HOSTS};

const PORT: u16 = 80;
const BYTES: usize = 120_000;
const DELAY_US: u64 = 2_000;
/// Longest that a transfer may take, in virtual time.
const LIMIT_US: u64 = 600_000_000;

/// Frames that the other side's device has received and is to send.
#[derive(Default)]
struct Queues {
    received: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    mtu: usize,
}

struct Arrived(Vec<u8>);
struct Leaving<'a>(&'a mut Vec<Vec<u8>>);

impl phy::RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        work(&self.0)
    }
}

impl phy::TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, work: F) -> R {
        let mut frame = vec![0; length];
        let done = work(&mut frame);
        self.0.push(frame);
        done
    }
}

impl phy::Device for Queues {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Leaving<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Leaving<'_>)> {
        let frame = self.received.pop_front()?;
        Some((Arrived(frame), Leaving(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaving<'_>> {
        Some(Leaving(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + 14;
        capabilities
    }
}

/// The other side.
struct Peer {
    queues: Queues,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl Peer {
    fn new(mtu: usize, now: Instant, seed: u64) -> Self {
        let mut queues = Queues {
            mtu,
            ..Queues::default()
        };
        let mac = EthernetAddress([2, 0, 0, 0, 0, 2]);
        let mut settings = smoltcp::iface::Config::new(mac.into());
        settings.random_seed = seed;
        let mut interface = Interface::new(settings, &mut queues, now);
        interface.update_ip_addrs(|all| {
            all.push(IpCidr::new(IpAddress::v4(10, 0, 0, 2), 24))
                .expect("room");
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; 65_536]);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(tcp::Socket::new(buffer(), buffer()));
        Self {
            queues,
            interface,
            sockets,
            socket,
        }
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    fn connect(&mut self) {
        let socket = self.sockets.get_mut::<tcp::Socket>(self.socket);
        let to = (IpAddress::v4(10, 0, 0, 1), PORT);
        socket
            .connect(self.interface.context(), to, 40_000)
            .expect("connects");
    }
}

/// One direction of a stream on its way.
#[derive(Default)]
struct Progress {
    sent: usize,
    received: usize,
    has_ended: bool,
}

struct Conversation {
    now_us: u64,
    ours: Host,
    theirs: Peer,
    listener: Option<Handle>,
    handle: Option<Handle>,
    /// From us to them, and back.
    ways: [Progress; 2],
    flying: BinaryHeap<Reverse<(u64, u64, usize, Vec<u8>)>>,
    order: u64,
    faults: Faults,
    random: Random,
}

impl Conversation {
    fn new(mtu: u32, faults: Faults, seed: u64) -> Self {
        let now_us = 1_000_000_000;
        let config = Config { mtu, ..config(1) };
        let now = Instant::from_micros(now_us as i64);
        Self {
            now_us,
            ours: Host::new(0, config, now_us),
            theirs: Peer::new(mtu as usize, now, seed),
            listener: None,
            handle: None,
            ways: Default::default(),
            flying: BinaryHeap::new(),
            order: 0,
            faults,
            random: Random(seed),
        }
    }

    fn engine(&mut self) -> &mut Engine {
        &mut self.ours.engine
    }

    fn launch(&mut self, to: usize, mut frame: Vec<u8>) {
        let is_ip = frame[12..14] == [8, 0];
        if self.random.happens(self.faults.loss) {
            return;
        }
        if is_ip && self.random.happens(self.faults.corruption) {
            let at = 14 + self.random.below(frame.len() as u64 - 14) as usize;
            frame[at] ^= 1 << self.random.below(8);
        }
        for _ in 0..1 + u32::from(self.random.happens(self.faults.duplication)) {
            let late = if self.random.happens(self.faults.reordering) {
                self.random.below(3 * DELAY_US)
            } else {
                0
            };
            self.order += 1;
            let at_us = self.now_us + DELAY_US + late;
            self.flying
                .push(Reverse((at_us, self.order, to, frame.clone())));
        }
    }

    /// Everything that can happen without time passing.
    fn settle(&mut self) {
        let now = Instant::from_micros(self.now_us as i64);
        let theirs = &mut self.theirs;
        theirs
            .interface
            .poll(now, &mut theirs.queues, &mut theirs.sockets);
        self.act_for_us();
        self.act_for_them();
        let theirs = &mut self.theirs;
        theirs
            .interface
            .poll(now, &mut theirs.queues, &mut theirs.sockets);
        let now_us = self.now_us;
        self.ours.engine.poll_timers(now_us, &mut self.ours.frames);
        self.ours.engine.end_batch(now_us, &mut self.ours.frames);
        self.ours.engine.check_invariants().expect("invariants");
        for frame in std::mem::take(&mut self.ours.frames.sent) {
            self.launch(1, frame);
        }
        for frame in std::mem::take(&mut self.theirs.queues.sent) {
            self.launch(0, frame);
        }
    }

    fn act_for_us(&mut self) {
        if let (None, Some(listener)) = (self.handle, self.listener) {
            self.handle = self.engine().accept(listener).ok();
        }
        let Some(handle) = self.handle else { return };
        let now_us = self.now_us;
        while self.ways[0].sent < BYTES {
            let piece = piece_at(self.ways[0].sent);
            match self.engine().send(now_us, handle, &piece, false) {
                Ok(count) => self.ways[0].sent += count,
                Err(Error::WouldBlock) => break,
                Err(error) => panic!("send: {error}"),
            }
            if self.ways[0].sent == BYTES {
                let done = self.engine().shutdown(now_us, handle, Shutdown::Write);
                done.expect("open");
            }
        }
        let mut bytes = [0; 4096];
        while !self.ways[1].has_ended {
            match self.engine().recv(now_us, handle, &mut bytes) {
                Ok(0) => self.ways[1].has_ended = true,
                Ok(count) => self.ways[1].check(&bytes[..count]),
                Err(Error::WouldBlock | Error::NotConnected) => break,
                Err(error) => panic!("recv: {error}"),
            }
        }
    }

    fn act_for_them(&mut self) {
        let (mut ways, socket) = (std::mem::take(&mut self.ways), self.theirs.socket());
        while socket.can_send() && ways[1].sent < BYTES {
            let count = socket.send_slice(&piece_at(ways[1].sent)).expect("open");
            ways[1].sent += count;
            if ways[1].sent == BYTES {
                socket.close();
            }
        }
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = socket.recv_slice(&mut bytes) {
            ways[0].check(&bytes[..count]);
        }
        ways[0].has_ended |= ways[0].received == BYTES && !socket.may_recv();
        self.ways = ways;
    }

    fn step(&mut self) {
        let now = Instant::from_micros(self.now_us as i64);
        let theirs = &mut self.theirs;
        let other = theirs.interface.poll_at(now, &theirs.sockets);
        let other = other.map(|at| (at.total_micros() as u64).max(self.now_us));
        let arrival = self.flying.peek().map(|Reverse((at_us, ..))| *at_us);
        let ours = self.ours.engine.next_timer();
        let next = [other, arrival, ours].into_iter().flatten().min();
        // A timer of smoltcp's that is due now, and does nothing now, must not stop the clock.
        self.now_us = next.expect("somebody waits").max(self.now_us + 1);
        while let Some(Reverse((at_us, ..))) = self.flying.peek() {
            if *at_us > self.now_us {
                break;
            }
            let Some(Reverse((.., to, frame))) = self.flying.pop() else {
                break;
            };
            if to == 1 {
                self.theirs.queues.received.push_back(frame);
            } else {
                let rx = [Rx::new(&frame)];
                self.ours
                    .engine
                    .rx_burst(self.now_us, &rx, &mut self.ours.frames);
            }
        }
        self.settle();
    }

    /// Both streams, to their ends.
    fn talk(mut self) {
        self.settle();
        let until_us = self.now_us + LIMIT_US;
        while !self.ways.iter().all(|way| way.has_ended) {
            assert!(
                self.now_us < until_us,
                "{} and {} of {BYTES} bytes, {:?}",
                self.ways[0].received,
                self.ways[1].received,
                self.faults
            );
            self.step();
        }
    }
}

impl Progress {
    fn check(&mut self, bytes: &[u8]) {
        for byte in bytes {
            assert_eq!(*byte, pattern(self.received), "byte {}", self.received);
            self.received += 1;
        }
    }
}

fn piece_at(at: usize) -> Vec<u8> {
    (at..BYTES.min(at + 8192)).map(pattern).collect()
}

/// Each fault alone, and all together.
const LINKS: [Faults; 6] = [
    faults(0, 0, 0, 0),
    faults(20, 0, 0, 0),
    faults(0, 100, 0, 0),
    faults(0, 0, 200, 0),
    faults(0, 0, 0, 20),
    faults(20, 50, 100, 10),
];

const fn faults(loss: u32, duplication: u32, reordering: u32, corruption: u32) -> Faults {
    Faults {
        loss,
        duplication,
        reordering,
        corruption,
    }
}

fn every_link(mtu: u32, begin: impl Fn(&mut Conversation)) {
    for faults in LINKS {
        for seed in 1..=4 {
            let mut conversation = Conversation::new(mtu, faults, seed);
            begin(&mut conversation);
            conversation.talk();
        }
    }
}

fn we_connect(conversation: &mut Conversation) {
    conversation.theirs.socket().listen(PORT).expect("listens");
    let to = (HOSTS[1].parse::<std::net::IpAddr>().expect("one"), PORT).into();
    let now_us = conversation.now_us;
    conversation.handle = conversation.engine().connect(now_us, None, to).ok();
    assert!(conversation.handle.is_some());
}

fn they_connect(conversation: &mut Conversation) {
    let at = "0.0.0.0:80".parse().expect("an address");
    conversation.listener = conversation.engine().listen(at, 16).ok();
    assert!(conversation.listener.is_some());
    conversation.theirs.connect();
}

#[test]
fn a_client_of_ours_and_smoltcp_exchange_every_byte() {
    every_link(1500, we_connect);
}

#[test]
fn a_server_of_ours_and_smoltcp_exchange_every_byte() {
    every_link(1500, they_connect);
}

#[test]
fn large_frames_carry_every_byte() {
    every_link(9000, we_connect);
    every_link(9000, they_connect);
}
