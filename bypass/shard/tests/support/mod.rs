//! Links with a shard at one end and Linux at the other, and an echo server on the shard.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bypass_device::packet::Sender;
use bypass_device::tap::Tap;
use bypass_device::Device;
use bypass_netlink::Tables;
use bypass_shard::tcp::{Address, Error, Handle, Stats};
use bypass_shard::Shard;
use bypass_testkit::{skip, veth, Namespace};
use bypass_xdp::{Mode, Opened, Settings, Steering, Xdp};

/// The shard's station.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
/// The echo server's.
pub const PORT: u16 = 7000;
pub const PATIENCE: Duration = Duration::from_secs(120);
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// The link between the two.
enum Kind {
    Veth(Mode, Settings),
    Tap,
}

/// Two ends: Linux's and the shard's.
pub struct Link {
    linux: Namespace,
    own: Namespace,
    kind: Kind,
    settings: bypass_shard::Settings,
}

impl Link {
    /// A veth pair, va and vb; the shard's end has AF_XDP.
    pub fn veth(mtu: u32, mode: Mode) -> Self {
        Self::veth_with(mtu, mode, Settings::default())
    }

    /// The same with settings.
    pub fn veth_with(mtu: u32, mode: Mode, settings: Settings) -> Self {
        let (linux, own) = (Namespace::new(), Namespace::new());
        veth((&linux, "va"), (&own, "vb"), 1);
        own.ip("link set vb address 02:00:00:00:00:77");
        for (side, name, host) in [(&linux, "va", 1), (&own, "vb", 2)] {
            side.ip(&format!("link set {name} mtu {mtu}"));
            side.ip(&format!("addr add 10.77.0.{host}/24 dev {name}"));
        }
        let kind = Kind::Veth(mode, settings);
        Self::of(linux, own, kind)
    }

    fn of(linux: Namespace, own: Namespace, kind: Kind) -> Self {
        let settings = bypass_shard::Settings::default();
        Self {
            linux,
            own,
            kind,
            settings,
        }
    }

    /// The same with other settings of the shard.
    pub fn with(self, settings: bypass_shard::Settings) -> Self {
        Self { settings, ..self }
    }

    /// A TAP interface of Linux's; the shard is a host behind it.
    pub fn tap() -> Self {
        let (linux, own) = (Namespace::new(), Namespace::new());
        Self::of(linux, own, Kind::Tap)
    }

    /// Linux's end.
    pub fn linux(&self) -> &Namespace {
        &self.linux
    }

    /// The shard's.
    pub fn own(&self) -> &Namespace {
        &self.own
    }

    /// An address for a server of Linux's.
    pub fn linux_address(&self) -> SocketAddr {
        ([10, 77, 0, 1], 0).into()
    }

    /// The shard's address.
    pub fn own_address(&self, port: u16) -> SocketAddr {
        ([10, 77, 0, 2], port).into()
    }

    /// A shard whose device `wrap` may put something in front of; in the calling thread's namespace.
    pub fn shard(&self, wrap: impl FnOnce(Box<dyn Device>) -> Box<dyn Device>) -> Shard {
        let shard = self.settings.clone();
        match self.kind {
            Kind::Veth(mode, settings) => over_xdp(mode, settings, shard, wrap),
            Kind::Tap => over_tap(&self.linux, shard, wrap),
        }
    }

    /// An echo server on the shard, in a thread of its own.
    pub fn echo(
        &self,
        wrap: impl FnOnce(Box<dyn Device>) -> Box<dyn Device> + Send,
    ) -> Running<'_> {
        let mut shard = match self.kind {
            Kind::Veth(..) => self.own.run(|| self.shard(wrap)),
            Kind::Tap => self.linux.run(|| self.shard(wrap)),
        };
        let listener = shard
            .listen(([0, 0, 0, 0], PORT).into(), 128)
            .expect("a listener");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let refuse = Arc::new(AtomicBool::new(false));
        let refused = refuse.clone();
        let serve = move || {
            let mut echo = Echo::default();
            let mut is_listening = true;
            while !stopped.load(Ordering::Relaxed) {
                shard.drive();
                if is_listening && refused.load(Ordering::Relaxed) {
                    shard.close(listener).expect("it is open");
                    is_listening = false;
                }
                echo.act(&mut shard, Some(listener));
                shard.finish();
                shard.sleep(SLEEP_MAX);
            }
            *shard.engine().stats()
        };
        // Where the kernel is asked about the interface's connections.
        let thread = self.own.run(|| std::thread::spawn(serve));
        Running {
            link: self,
            stop,
            refuse,
            thread,
        }
    }

    /// Connections from the shard to a server that echoes: each sends and reads `bytes`.
    pub fn connect_and_check(&self, remote: SocketAddr, connections: usize, bytes: usize) {
        self.own.run(|| {
            let mut shard = self.shard(|device| device);
            let mut open: HashMap<Handle, (usize, usize)> = HashMap::new();
            for _ in 0..connections {
                open.insert(shard.connect(None, remote).expect("begun"), (0, 0));
            }
            let expected = content(1, bytes);
            let deadline = Instant::now() + PATIENCE;
            while !open.is_empty() {
                assert!(Instant::now() < deadline, "still open: {open:?}");
                shard.drive();
                while shard.next_event().is_some() {}
                open.retain(|handle, (sent, received)| {
                    exchange(&mut shard, *handle, &expected, sent, received)
                });
                shard.finish();
                shard.sleep(Duration::from_millis(1));
            }
        });
    }

    /// Sends frames from Linux's end.
    pub fn packet_sender(&self) -> Sender {
        self.linux.run(|| {
            let tables = Tables::new().expect("tables");
            let link = tables.link("va").expect("the link");
            Sender::open(link.index, link.mtu).expect("allowed")
        })
    }

    /// Makes random bytes look like a segment for the server: its headers are right as far as the
    /// frame reaches; with `is_whole` the lengths fit too.
    pub fn dress(&self, frame: &mut [u8], is_whole: bool) {
        let mut header = vec![0; 34];
        header[..6].copy_from_slice(&MAC);
        header[12..15].copy_from_slice(&[8, 0, 0x45]);
        let length = if is_whole {
            frame.len() - 14
        } else {
            usize::from(frame[13]) * 9
        };
        header[16..18].copy_from_slice(&(length as u16).to_be_bytes());
        (header[22], header[23]) = (64, 6);
        header[26..34].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        let mut sum: u32 = header[14..34]
            .chunks(2)
            .map(|two| u32::from(two[0]) << 8 | u32::from(two[1]))
            .sum();
        sum = (sum & 0xffff) + (sum >> 16);
        header[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        header.extend(frame.iter().skip(34).take(2));
        header.extend(PORT.to_be_bytes());
        if is_whole && frame.len() >= 54 {
            // As a sender on this host leaves it: the sum over the pseudo header.
            header.extend(&frame[38..50]);
            header.extend(pseudo_sum(frame.len() - 34));
        }
        for (place, byte) in frame.iter_mut().zip(header) {
            *place = byte;
        }
    }
}

/// The folded sum over the pseudo header of a segment of Linux's end for the shard.
pub fn pseudo_sum(length: usize) -> [u8; 2] {
    let words = [0x0a4d, 1, 0x0a4d, 2, 6, length as u32];
    let sum: u32 = words.iter().sum();
    (((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}

/// One step of a connection: false when it is done.
fn exchange(
    shard: &mut Shard,
    handle: Handle,
    expected: &[u8],
    sent: &mut usize,
    received: &mut usize,
) -> bool {
    if *sent < expected.len() {
        match shard.send(handle, &expected[*sent..], false) {
            Ok(count) => *sent += count,
            Err(Error::WouldBlock) => {}
            Err(error) => panic!("send: {error}"),
        }
    }
    let mut bytes = [0; 65_536];
    loop {
        match shard.receive(handle, &mut bytes) {
            Ok(0) => panic!("the end after {received} bytes"),
            Ok(count) => {
                assert!(
                    bytes[..count] == expected[*received..*received + count],
                    "at {received}"
                );
                *received += count;
            }
            Err(Error::WouldBlock) => break,
            Err(error) => panic!("receive: {error}"),
        }
    }
    let is_done = *received == expected.len();
    if is_done {
        shard.close(handle).expect("it is open");
    }
    !is_done
}

fn over_xdp(
    mode: Mode,
    settings: Settings,
    shard: bypass_shard::Settings,
    wrap: impl FnOnce(Box<dyn Device>) -> Box<dyn Device>,
) -> Shard {
    let link = Tables::new()
        .expect("tables")
        .link("vb")
        .expect("the link")
        .clone();
    let settings = Settings {
        takes_gso: mode == Mode::Generic,
        ..settings
    };
    let takes_fragments = link.mtu > 3000 || settings.takes_gso;
    let steering = match Steering::attach(link.index, link.mtu, mode, takes_fragments) {
        Ok(steering) => steering,
        Err(libc::EPERM) => skip("bpf(2) is not allowed here (needs CAP_BPF and CAP_NET_ADMIN)"),
        Err(error) => panic!("attach: error {error}"),
    };
    // The kernel may still have frames of the shard that had the queue before.
    let opened = Running::until(|| match Opened::open(&link, 0, settings) {
        Ok(opened) => Some(opened),
        Err(libc::EBUSY) => None,
        Err(libc::EAFNOSUPPORT) => skip("this kernel has no AF_XDP"),
        Err(error) => panic!("open: error {error}"),
    });
    steering
        .set_socket(0, opened.socket())
        .expect("room in the map");
    let device = wrap(Box::new(Xdp::new(opened).expect("rings")));
    let steering = Arc::new(steering);
    Shard::over(steering, link.index, device, shard).expect("a shard")
}

fn over_tap(
    linux: &Namespace,
    shard: bypass_shard::Settings,
    wrap: impl FnOnce(Box<dyn Device>) -> Box<dyn Device>,
) -> Shard {
    let tap = match Tap::open("va") {
        Ok(tap) => tap,
        Err(error) => skip(format!(
            "/dev/net/tun cannot be used: {error} (needs CAP_NET_ADMIN)"
        )),
    };
    linux.ip("addr add 10.77.0.1/24 dev va");
    linux.ip("link set va up");
    let address = Address {
        ip: [10, 77, 0, 2].into(),
        prefix_len: 24,
    };
    Shard::alone(wrap(Box::new(tap)), MAC, &[address], &[], shard)
}

/// An echo server that runs.
pub struct Running<'a> {
    link: &'a Link,
    stop: Arc<AtomicBool>,
    refuse: Arc<AtomicBool>,
    thread: JoinHandle<Stats>,
}

impl Running<'_> {
    /// A connection of Linux's to it.
    pub fn connect(&self) -> TcpStream {
        let at = self.link.own_address(PORT);
        let connect = || TcpStream::connect_timeout(&at, PATIENCE);
        let stream = Self::until(|| match self.link.linux.run(connect) {
            // Where there is one port: the connection before may not be over yet.
            Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => None,
            connected => Some(connected.expect("connected")),
        });
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time");
        stream
    }

    /// Closes the listener and keeps the connections.
    pub fn stop_listening(&self) {
        self.refuse.store(true, Ordering::Relaxed);
    }

    /// Ends it; it must not have failed.
    pub fn end(self) -> Stats {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the server did not fail")
    }

    /// Tries until it works.
    pub fn until<T>(mut work: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(done) = work() {
                return done;
            }
            assert!(Instant::now() < deadline, "it never worked");
        }
    }
}

/// Sends back what comes.
#[derive(Default)]
struct Echo {
    open: HashMap<Handle, Pending>,
}

#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    is_ending: bool,
}

impl Pending {
    /// Goes on until nothing moves; true when the connection is to be closed.
    fn serve(&mut self, shard: &mut Shard, handle: Handle) -> Result<bool, Error> {
        let mut bytes = [0; 65_536];
        loop {
            // Bytes that cannot be sent back yet are not read either.
            let may_read = self.bytes.len() < 200_000;
            let is_dry = may_read && !self.read(shard, handle, &mut bytes)?;
            match shard.send(handle, &self.bytes, false) {
                Ok(count) => drop(self.bytes.drain(..count)),
                Err(Error::WouldBlock) => return Ok(false),
                Err(error) => return Err(error),
            }
            if is_dry {
                return Ok(self.is_ending && self.bytes.is_empty());
            }
        }
    }

    fn read(&mut self, shard: &mut Shard, handle: Handle, into: &mut [u8]) -> Result<bool, Error> {
        match shard.receive(handle, into) {
            _ if self.is_ending => Ok(false),
            Ok(count) => {
                self.is_ending = count == 0;
                self.bytes.extend(&into[..count]);
                Ok(count > 0)
            }
            Err(Error::WouldBlock) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Echo {
    fn act(&mut self, shard: &mut Shard, listener: Option<Handle>) {
        while let Some(event) = shard.next_event() {
            if Some(event.handle) != listener {
                self.serve(shard, event.handle);
                continue;
            }
            while let Ok(handle) = shard.accept(event.handle) {
                self.open.insert(handle, Pending::default());
            }
        }
    }

    fn serve(&mut self, shard: &mut Shard, handle: Handle) {
        let Some(pending) = self.open.get_mut(&handle) else {
            return;
        };
        match pending.serve(shard, handle) {
            Ok(false) => {}
            Ok(true) | Err(_) => self.close(shard, handle),
        }
    }

    fn close(&mut self, shard: &mut Shard, handle: Handle) {
        self.open.remove(&handle);
        shard.close(handle).expect("it is open");
    }
}

/// Bytes that distinguish connections and places.
pub fn content(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 31 + (at >> 9)) as u8 ^ seed)
        .collect()
}

/// Sends bytes through the echo and checks what comes back.
pub fn echo_through(stream: &mut TcpStream, seed: u8, length: usize) {
    let sent = content(seed, length);
    std::thread::scope(|scope| {
        let mut writer = stream.try_clone().expect("a duplicate");
        let sent = &sent;
        scope.spawn(move || writer.write_all(sent).expect("sent"));
        let mut received = vec![0; length];
        stream.read_exact(&mut received).expect("all of it");
        assert!(received == *sent, "other bytes came back");
    });
}
