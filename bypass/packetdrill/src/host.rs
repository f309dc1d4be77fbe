//! A host in virtual time: one engine, the packets that leave it, and the sockets of a script.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use bypass_tcp::{
    Address, Config, Ecn, Engine, Error, Handle, QuickAcks, Route, Rx, Settings, SocketOption,
};

use crate::device::Leaving;
use crate::kept::Kept;
use crate::sets::Set;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Start time of the script: not 0, which the engine might treat as invalid.
const START_US: u64 = 1_000_000_000;
/// The default address of packetdrill's interface in this network.
const LOCAL: &str = "192.168.0.1";

/// The object behind a descriptor.
#[derive(Debug)]
pub enum Socket {
    /// Neither listens nor is connected.
    Fresh(Fresh),
    /// Listens or is connected.
    Open {
        /// The engine's handle.
        handle: Handle,
        /// O_NONBLOCK.
        is_nonblocking: bool,
        /// connect(2) has begun, and its result was not reported yet.
        is_connecting: bool,
    },
    /// An epoll set.
    Set(Set),
}

/// Settings of a socket before it exists in the engine.
#[derive(Debug, Default)]
pub struct Fresh {
    /// bind(2).
    pub local: Option<SocketAddr>,
    /// O_NONBLOCK.
    pub is_nonblocking: bool,
    /// Options of setsockopt(2), in order.
    pub options: Vec<SocketOption>,
    /// The same options, merged.
    pub settings: Settings,
    /// IPV6_V6ONLY.
    pub is_v6_only: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Host {
    engine: EngineBox,
    now_us: u64,
    leaving: Leaving,
    addresses: Vec<IpAddr>,
    /// Options without effect.
    pub kept: Kept,
    /// By descriptor.
    pub sockets: HashMap<i32, Socket>,
}

struct EngineBox(Engine);

impl std::fmt::Debug for EngineBox {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("engine")
    }
}

/// The settings of packetdrill's scripts for Linux (`common/defaults.sh`), and GSO packets as Linux
/// sends them.
fn as_scripts_expect() -> Config {
    Config {
        segmentation_max: 65_000,
        // Half of the memory in tcp_rmem.
        receive_bytes: 270_000,
        receive_bytes_max: 15 << 20,
        send_bytes: 256 << 10,
        slow_start_after_idle: false,
        ecn: Ecn::Off,
        syn_retries: 5,
        ..Config::default()
    }
}

/// Applies a setting that scripts for Linux make by sysctl, or on the interface; None for an
/// unknown one.
fn set(config: &mut Config, name: &str, value: &str) -> Option<()> {
    let number: u32 = value.parse().ok()?;
    let is_on = number != 0;
    match name {
        "mtu" => config.mtu = number,
        "segmentation_max" => config.segmentation_max = number,
        "train_segments" => config.train_segments = number,
        "unsent_low" => config.unsent_low = number,
        "receive_bytes" => config.receive_bytes = number,
        "receive_bytes_max" => config.receive_bytes_max = number,
        "send_bytes" => config.send_bytes = number,
        "slow_start_after_idle" => config.slow_start_after_idle = is_on,
        "sack" => config.sack = is_on,
        "timestamps" => config.timestamps = is_on,
        "window_scaling" => config.window_scaling = is_on,
        "quick_acks" => {
            let acks = number.try_into().ok()?;
            config.quick_acks = QuickAcks {
                start: acks,
                idle: acks,
                loss: acks,
            };
        }
        "keep_idle" => config.keepalive_idle_us = 1_000_000 * u64::from(number),
        "keep_interval" => config.keepalive_interval_us = 1_000_000 * u64::from(number),
        "keep_count" => config.keepalive_probes = number.try_into().ok()?,
        "invalid_pause_ms" => config.invalid_pause_us = 1_000 * u64::from(number),
        "ecn" => {
            config.ecn = [Ecn::Off, Ecn::Request, Ecn::Accept]
                .get(number as usize)
                .copied()?
        }
        _ => return None,
    }
    Some(())
}

impl Host {
    /// A host with the settings in `flags`, separated by commas: `local=ADDRESS`, and the settings
    /// of [`set`]. None for an unknown one.
    pub fn new(flags: &str) -> Option<Self> {
        let mut config = Config {
            mac: MAC,
            secret: *b"packetdrill test",
            ..as_scripts_expect()
        };
        let mut local = LOCAL.parse().ok();
        let mut leaving = Leaving::default();
        for flag in flags.split([',', ' ']).filter(|flag| !flag.is_empty()) {
            match flag.split_once('=')? {
                ("local", address) => local = Some(address.parse().ok()?),
                ("cut", number) => leaving.cuts = number.parse::<u32>().ok()? != 0,
                (name, value) => set(&mut config, name, value)?,
            }
        }
        let mut host = Self {
            engine: EngineBox(Engine::new(config, START_US)),
            now_us: START_US,
            leaving,
            addresses: Vec::new(),
            kept: Kept::default(),
            sockets: HashMap::new(),
        };
        host.add_address(local?);
        Some(host)
    }

    /// Adds an address of the host: packetdrill may have chosen one at random.
    pub fn add_address(&mut self, ip: IpAddr) {
        if ip.is_unspecified() || ip.is_multicast() || self.addresses.contains(&ip) {
            return;
        }
        self.addresses.push(ip);
        let addresses = self.addresses.iter().map(|ip| Address {
            ip: *ip,
            prefix_len: if ip.is_ipv4() { 16 } else { 48 },
        });
        let addresses: Vec<_> = addresses.collect();
        self.engine.0.set_addresses(&addresses);
        let routes: Vec<Route> = ["0.0.0.0", "::"]
            .iter()
            .filter_map(|network| {
                Some(Route {
                    network: network.parse().ok()?,
                    prefix_len: 0,
                    gateway: None,
                    mtu: 0,
                    mss: 0,
                    source: None,
                    hops: 0,
                })
            })
            .collect();
        self.engine.0.set_routes(&routes);
    }

    /// Makes the remote end reachable, whatever its address.
    fn know(&mut self, ip: IpAddr) {
        let (now_us, leaving) = (self.now_us, &mut self.leaving);
        self.engine.0.set_neighbour(now_us, ip, PEER_MAC, leaving);
    }

    /// The settings of the engine.
    pub fn config(&self) -> &Config {
        self.engine.0.config()
    }

    /// Virtual time, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// A call of the application; packets that it causes leave afterwards.
    pub fn act<T>(&mut self, act: impl FnOnce(&mut Engine, u64) -> T) -> T {
        // Calls without a time use the engine's.
        self.end_round();
        let done = act(&mut self.engine.0, self.now_us);
        self.end_round();
        done
    }

    fn end_round(&mut self) {
        self.leaving.now_us = self.now_us;
        self.engine.0.end_batch(self.now_us, &mut self.leaving);
        while let Some(event) = self.engine.0.next_event() {
            self.wake(event.handle, event.ready);
        }
    }

    /// Marks an event in epoll sets.
    fn wake(&mut self, of: Handle, events: u32) {
        let is_it =
            |socket: &Socket| matches!(socket, Socket::Open { handle, .. } if *handle == of);
        let found = self.sockets.iter().find(|(_, socket)| is_it(socket));
        let Some(fd) = found.map(|(fd, _)| *fd) else {
            return;
        };
        for socket in self.sockets.values_mut() {
            if let Socket::Set(set) = socket {
                set.wake(fd, events);
            }
        }
    }

    /// Lets time pass up to `until_us`, timer by timer.
    pub fn advance(&mut self, until_us: u64) {
        while let Some(at_us) = self.engine.0.next_timer().filter(|at| *at <= until_us) {
            self.fire(at_us);
        }
        self.now_us = self.now_us.max(until_us);
    }

    fn fire(&mut self, at_us: u64) {
        self.now_us = self.now_us.max(at_us);
        self.leaving.now_us = self.now_us;
        self.engine.0.poll_timers(self.now_us, &mut self.leaving);
        self.end_round();
    }

    /// The next time at which a timer acts.
    pub fn next_timer(&self) -> Option<u64> {
        self.engine.0.next_timer()
    }

    /// A packet that left, and when.
    pub fn pop_packet(&mut self) -> Option<(u64, Vec<u8>)> {
        self.leaving.pop()
    }

    /// An IP packet arrives. False if it is malformed.
    pub fn arrive(&mut self, packet: &[u8]) -> bool {
        let Some((kind, source, destination)) = ends(packet) else {
            return false;
        };
        self.add_address(destination);
        self.know(source);
        let mut frame = [&MAC[..], &PEER_MAC, &kind].concat();
        frame.extend_from_slice(packet);
        self.leaving.now_us = self.now_us;
        let rx = Rx {
            bytes: &frame,
            sum: bypass_tcp::Sum::Unknown,
        };
        let leaving = &mut self.leaving;
        self.engine.0.rx_burst(self.now_us, &[rx], leaving);
        self.end_round();
        true
    }

    /// connect(2), begun.
    pub fn connect(&mut self, fresh: &Fresh, to: SocketAddr) -> Result<Handle, Error> {
        self.know(to.ip());
        let (now_us, engine) = (self.now_us, &mut self.engine.0);
        let handle = engine.connect(now_us, fresh.local, to)?;
        for option in &fresh.options {
            engine.setopt(now_us, handle, *option)?;
        }
        self.end_round();
        Ok(handle)
    }

    /// listen(2).
    pub fn listen(&mut self, fresh: &Fresh, backlog: u32) -> Result<Handle, Error> {
        let at = fresh.local.ok_or(Error::InvalidArgument)?;
        let (now_us, engine) = (self.now_us, &mut self.engine.0);
        let handle = engine.listen_with(at, backlog, fresh.is_v6_only)?;
        for option in &fresh.options {
            engine.setopt(now_us, handle, *option)?;
        }
        Ok(handle)
    }

    /// The epoll bits of a descriptor.
    pub fn readiness(&mut self, fd: i32) -> Option<u32> {
        match self.sockets.get(&fd)? {
            Socket::Open { handle, .. } => self.engine.0.readiness(*handle).ok(),
            // As Linux for a socket that neither listens nor is connected.
            Socket::Fresh(_) => Some(bypass_tcp::WRITABLE | bypass_tcp::HANGUP),
            Socket::Set(_) => Some(0),
        }
    }
}

/// EtherType, source and destination of an IP packet.
fn ends(packet: &[u8]) -> Option<([u8; 2], IpAddr, IpAddr)> {
    let v4 = |at: usize| {
        Some(IpAddr::from(
            <[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?,
        ))
    };
    let v6 = |at: usize| {
        Some(IpAddr::from(
            <[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?,
        ))
    };
    match packet.first()? >> 4 {
        4 => Some(([8, 0], v4(12)?, v4(16)?)),
        6 => Some(([0x86, 0xdd], v6(8)?, v6(24)?)),
        _ => None,
    }
}
