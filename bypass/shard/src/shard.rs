//! An engine, its device and its host, driven together.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bypass_device::{Capabilities, Checksum, Counters, Device};
use bypass_netlink::Mac;
use bypass_sys::thread::thread;
use bypass_sys::{clock, kernel};
use bypass_tcp::{
    Address, Config, Datagram, Engine, Error, Event, Handle, Route, Rx, Shutdown, Sum, Way,
};
use bypass_xdp::{queues, Opened, Steering};

use crate::crossing::{Counts, Crossing};
use crate::held::Notice;
use crate::host::{Host, Scope};
use crate::sink::{Received, ToDevice, Waiting};

/// How often the kernel is asked for changes of the network while the shard is busy.
const NETWORK_US: u64 = 10_000;
/// Longest GSO segment: an IP packet, with room for its headers.
const GSO_MAX: u32 = 65_000;
/// Between tries of what a device has no room for...
const TRY_AGAIN_US: u64 = 200;
/// ...and of one that takes nothing, such as that of a link without a carrier.
const TRY_SELDOM_US: u64 = 10_000;
/// Frames that may wait for other shards.
const STRAYS_MAX: usize = 1024;
/// Frames that the engine is given at once.
const BURST: usize = 32;

/// The settings of an engine that do not follow from the device.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The engine's settings, of which link address, MTU and offloads are replaced, and a secret of zeros by a random one.
    pub engine: Config,
    /// Notified of the descriptors that are opened for connections to others.
    pub notice: Notice,
    /// Given the datagrams of ports that were [claimed](Shard::claim_datagrams), with the interface, while frames are
    /// read.
    pub receiver: fn(u32, &Datagram),
    /// Other interfaces of this host, whose connections have shards too: frames that belong to them are
    /// [kept](Shard::take_strays) for them.
    pub beside: Vec<u32>,
    /// New connections are taken from these networks alone, others go to the kernel; None: from everywhere.
    pub accept_from: Option<Vec<(IpAddr, u8)>>,
}

impl Settings {
    fn scope(&self) -> Scope {
        Scope {
            notice: self.notice,
            beside: self.beside.clone(),
            accept_from: self.accept_from.clone(),
        }
    }
}

/// A frame that came by one interface and is bound for an address of another one.
#[derive(Debug)]
pub struct Stray {
    /// That address.
    pub to: IpAddr,
    bytes: Vec<u8>,
    sum: Sum,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            engine: Config::default(),
            notice: |_, _| (),
            receiver: |_, _| (),
            beside: Vec::new(),
            accept_from: None,
        }
    }
}

/// One engine with its device. See the [crate](crate).
pub struct Shard {
    /// Not on the stack of the thread that makes the shard, which may be a small one.
    engine: Box<Engine>,
    device: Box<dyn Device>,
    host: Option<Host>,
    /// Other shards have queues of the same interface.
    crossing: Option<Box<Crossing>>,
    /// Queues that were added, in the device's order.
    added: Vec<u32>,
    urgent: Waiting,
    receiver: fn(u32, &Datagram),
    /// Frames for other shards, and from them.
    strays: Vec<Stray>,
    brought: Vec<Stray>,
    /// New connections that wait in the device may be the kernel's already.
    drops_new: bool,
    /// Frames that wait in the device came for another shard, which has ended.
    inherits: bool,
    /// See [`has_lost_interface`](Self::has_lost_interface).
    lost_interface: bool,
    /// Since when the device has had no room for anything, and how many frames it had taken then.
    refused: Option<(u64, u64)>,
    now_us: u64,
    network_us: u64,
}

/// Microseconds of the clock that shards run by.
pub(crate) fn now_us() -> u64 {
    clock::now_ns() / 1000
}

/// A device's statement about a frame's checksum, for the engine.
fn sum_of(checksum: Checksum) -> Sum {
    match checksum {
        Checksum::Unknown => Sum::Unknown,
        Checksum::Partial => Sum::MayBePartial,
        Checksum::Verified => Sum::Verified,
    }
}

impl Shard {
    /// Most frames of one round: more only make the others wait.
    pub const ROUND: usize = 256;

    /// Over queues of an interface of the kernel's, whose addresses it shares. In the network
    /// namespace of the interface.
    pub fn over_xdp(
        steering: Arc<Steering>,
        opened: Vec<Opened>,
        settings: Settings,
    ) -> kernel::Result<Self> {
        let link = opened.first().ok_or(libc::EINVAL)?.layout().link;
        let host = Host::new(link, steering, settings.scope())?;
        let mac = host.link().and_then(|link| link.mac).ok_or(libc::ENODEV)?;
        Self::on_interface(host, queues::over(opened)?, mac, settings)
    }

    /// The same over a device that stands in front of the interface's: a capture, faults.
    pub fn over(
        steering: Arc<Steering>,
        link: u32,
        device: Box<dyn Device>,
        settings: Settings,
    ) -> kernel::Result<Self> {
        let host = Host::new(link, steering, settings.scope())?;
        let mac = host.link().and_then(|link| link.mac).ok_or(libc::ENODEV)?;
        Self::on_interface(host, device, mac, settings)
    }

    fn on_interface(
        host: Host,
        device: Box<dyn Device>,
        mac: Mac,
        settings: Settings,
    ) -> kernel::Result<Self> {
        let config = Config {
            is_sole_host: false,
            resolves_neighbours: false,
            ..settings.engine
        };
        let mut shard = Self::new(device, mac, config, settings.receiver);
        let mut host = host;
        host.sync(shard.now_us, &mut shard.engine, &mut shard.urgent);
        shard.host = Some(host);
        Ok(shard)
    }

    /// A host of its own behind a device: a TAP interface, a simulated link.
    pub fn alone(
        device: Box<dyn Device>,
        mac: Mac,
        addresses: &[Address],
        routes: &[Route],
        settings: Settings,
    ) -> Self {
        let config = Config {
            is_sole_host: true,
            resolves_neighbours: true,
            ..settings.engine
        };
        let mut shard = Self::new(device, mac, config, settings.receiver);
        shard.engine.set_addresses(addresses);
        shard.engine.set_routes(routes);
        shard
    }

    fn new(
        device: Box<dyn Device>,
        mac: Mac,
        config: Config,
        receiver: fn(u32, &Datagram),
    ) -> Self {
        let Capabilities {
            mtu, segments_max, ..
        } = device.capabilities();
        let config = Config {
            mac,
            mtu,
            segmentation_max: segments_max.min(GSO_MAX),
            // Summing costs less than a neighbour that could not be waited for.
            checksum_offload: false,
            secret: match config.secret {
                NO_SECRET => random_secret(),
                secret => secret,
            },
            ..config
        };
        let now_us = now_us();
        Self {
            engine: Box::new(Engine::new(config, now_us)),
            device,
            host: None,
            crossing: None,
            added: Vec::new(),
            urgent: Waiting::default(),
            receiver,
            strays: Vec::new(),
            brought: Vec::new(),
            drops_new: false,
            inherits: false,
            lost_interface: false,
            refused: None,
            now_us,
            network_us: now_us,
        }
    }

    /// First half of a round: frames in, timers. How many frames came. Changes
    /// are reported by [`next_event`](Self::next_event); after the application has acted comes
    /// [`finish`](Self::finish).
    pub fn drive(&mut self) -> usize {
        self.drive_at(now_us())
    }

    /// The same at a time of the caller's, in microseconds: in a simulation, that of another clock, which is ahead of the
    /// real one from the start.
    pub fn drive_at(&mut self, now_us: u64) -> usize {
        self.now_us = now_us;
        // It is left to a thread that may.
        if self.now_us >= self.network_us && thread().may_ask() {
            let had_policies = self.has_policies();
            self.look_at_network();
            // Clients whose SYN came before send it again, and find the kernel.
            self.drops_new |= self.has_policies() && !had_policies;
        }
        let engine = &mut self.engine;
        let mut answers = Received {
            waiting: &mut self.urgent,
            host: self.host.as_ref(),
        };
        let mut crossing = self.crossing.as_deref_mut();
        let receiver = self.receiver;
        let (host, strays) = (self.host.as_ref(), &mut self.strays);
        let takes_datagrams = host.and_then(Host::takes_datagrams);
        let mut drops_new = self.drops_new;
        // Of the other shards one may listen there.
        let inherits = self.inherits && !crossing.as_ref().is_some_and(|one| one.has_others());
        let mut take = |taken: &[Rx]| {
            // Two answers to one SYN, by the kernel and by the engine, would end in a reset. Whose SYN is dropped sends
            // it again. The thread may have stood still since the round began.
            drops_new |= host.is_some_and(Host::is_late);
            let kept: Vec<Rx>;
            let taken = match drops_new || inherits {
                true => {
                    let is_dropped = |rx: &Rx| {
                        Engine::is_syn(rx) && (drops_new || inherits && !engine.listens_for(rx))
                    };
                    let others = taken.iter().filter(|rx| !is_dropped(rx));
                    kept = others.copied().collect();
                    &kept[..]
                }
                false => taken,
            };
            for rx in taken {
                let mut to = None;
                let is_stray = host.is_some_and(|host| {
                    host.is_beside(|| {
                        to = engine.strays_to(rx);
                        to
                    })
                });
                if let Some(to) = to.filter(|_| is_stray && strays.len() < STRAYS_MAX) {
                    let (bytes, sum) = (rx.bytes.to_vec(), rx.sum);
                    strays.push(Stray { to, bytes, sum });
                }
            }
            if let Some(link) = takes_datagrams {
                let found = taken.iter().filter_map(|rx| engine.datagram(rx));
                found.for_each(|datagram| receiver(link, &datagram));
            }
            match &mut crossing {
                Some(crossing) if crossing.has_others() => {
                    crossing.sort(engine, taken, |engine, own| {
                        engine.rx_burst(now_us, own, &mut answers);
                    });
                }
                _ => engine.rx_burst(now_us, taken, &mut answers),
            }
        };
        for stray in self.brought.drain(..) {
            let mut rx = Rx::new(&stray.bytes);
            rx.sum = stray.sum;
            take(&[rx]);
        }
        let received = self.device.receive_bursts(Self::ROUND, &mut |frames| {
            let mut taken = [Rx::new(&[]); BURST];
            for some in frames.chunks(BURST) {
                for (frame, rx) in some.iter().zip(&mut taken) {
                    rx.bytes = frame.bytes;
                    rx.sum = sum_of(frame.checksum);
                }
                take(&taken[..some.len()]);
            }
        });
        let handed = crossing.map_or(0, |crossing| {
            crossing.take(engine, |engine, frames| {
                engine.rx_burst(now_us, frames, &mut answers);
            })
        });
        if let Some(host) = &self.host {
            host.looked();
        }
        self.urgent.release(&mut *self.device);
        // A look at the clock of the timers costs less than to ask for the next of them.
        let mut sink = ToDevice(&mut *self.device);
        self.engine.poll_timers(now_us, &mut sink);
        // A device that fails is one that receives nothing: it may come back.
        let received = received.unwrap_or(0);
        self.drops_new = drops_new && received >= Self::ROUND;
        self.inherits &= received >= Self::ROUND;
        received + handed
    }

    /// Second half: what the application and the engine have to send leaves.
    pub fn finish(&mut self) {
        self.finish_part(usize::MAX);
    }

    /// The same for `most` connections. Whether others wait: frames may have come meanwhile, of which the device keeps
    /// so many only.
    pub fn finish_part(&mut self, most: usize) -> bool {
        let mut sink = ToDevice(&mut *self.device);
        let has_others = self.engine.end_part(self.now_us, most, &mut sink);
        if let Some(host) = &mut self.host {
            host.find_neighbours(self.now_us, &mut self.engine, &mut sink);
        }
        // An error here is the interface's: frames are lost until it is back.
        let _ = self.device.flush();
        self.note_refusal();
        has_others
    }

    fn note_refusal(&mut self) {
        if !self.engine.is_refused() && !self.device.has_unsent() {
            self.refused = None;
            return;
        }
        let sent = self.device.counters().sent;
        if self.refused.is_none_or(|(_, before)| before != sent) {
            self.refused = Some((self.now_us, sent));
        }
    }

    /// How long until what the device refuses is tried again: longer while it takes nothing at all.
    fn refusal_us(&self) -> u64 {
        let since_us = self.refused.map_or(self.now_us, |(since_us, _)| since_us);
        let refused_us = self.now_us.saturating_sub(since_us);
        (refused_us / 4).clamp(TRY_AGAIN_US, TRY_SELDOM_US)
    }

    fn look_at_network(&mut self) {
        self.network_us = self.now_us + NETWORK_US;
        if let Some(host) = &mut self.host {
            let mut sink = ToDevice(&mut *self.device);
            // News that cannot be read now are read with the next change.
            let _ = host.update(self.now_us, &mut self.engine, &mut sink);
            host.drain(self.now_us, &self.engine);
            host.look_at_shared(self.now_us);
            host.look_at_ports(self.now_us, &self.engine);
            self.lost_interface |= host.has_lost_link();
        }
        self.follow_link();
    }

    /// Takes over the interface's address and MTU, of which the device may carry less.
    fn follow_link(&mut self) {
        let Some(link) = self.host.as_ref().and_then(Host::link) else {
            return;
        };
        self.device.set_mtu(link.mtu);
        let mac = link.mac.unwrap_or(self.engine.config().mac);
        let mtu = self.device.capabilities().mtu;
        self.engine.set_link(self.now_us, mac, mtu);
    }

    /// Whether the interface is gone, for good: a new one of its name, or of its index, is another one.
    pub fn has_lost_interface(&self) -> bool {
        self.lost_interface
    }

    /// Whether IPsec policies may apply to connections over the interface: the kernel has all new ones.
    pub fn has_policies(&self) -> bool {
        self.host.as_ref().is_some_and(Host::has_policies)
    }

    /// Before a sleep: true when there is something to do at once. Else sleep on
    /// [`poll_fds`](Self::poll_fds) and no longer than [`wait_us`](Self::wait_us).
    pub fn arm(&mut self) -> bool {
        if self.engine.expect_no_answers() {
            self.finish();
        }
        let crossing = self.crossing.as_mut();
        let has_frames = crossing.is_some_and(|crossing| crossing.arm());
        self.engine.has_memory_to_offer() || has_frames || self.device.arm()
    }

    /// Polled for reading: the device, and the news of the network and of its policies.
    pub fn poll_fds(&self) -> [Option<i32>; 3] {
        let host = self.host.as_ref();
        let policies = host.and_then(Host::policies_fd);
        [self.device.poll_fd(), host.map(Host::fd), policies]
    }

    /// Other shards may have the other queues of the interface: frames that belong to them are handed on,
    /// and the other way round. The device [watches](queues::among) its descriptor.
    pub fn crosses(&mut self, crossing: Crossing) {
        self.crossing = Some(Box::new(crossing));
    }

    /// Takes another queue, which has no shard or whose own shard has ended, with what has arrived there since.
    pub fn add_queue(&mut self, queue: u32, device: Box<dyn Device>) -> kernel::Result<()> {
        let mut had_owner = true;
        // First what may fail without the queue in use.
        if let Some(crossing) = &mut self.crossing {
            had_owner = crossing.add(queue)?;
        }
        self.device.join(device).map_err(|_| libc::EINVAL)?;
        self.added.push(queue);
        if let Some(host) = &mut self.host {
            host.add_queue(queue, had_owner);
        }
        Ok(())
    }

    /// Gives a queue that was added to another shard. Connections whose frames come by it stay here.
    pub fn remove_queue(&mut self, queue: u32) -> kernel::Result<()> {
        let at = self.added.iter().position(|one| *one == queue);
        let at = at.ok_or(libc::EINVAL)?;
        self.device.part(at).map_err(|_| libc::EINVAL)?;
        self.added.remove(at);
        if let Some(host) = &self.host {
            host.remove_queue(queue);
        }
        match &mut self.crossing {
            Some(crossing) => crossing.remove(queue),
            None => Ok(()),
        }
    }

    /// Frames that have come here and are other shards', by the address.
    pub fn take_strays(&mut self) -> Vec<Stray> {
        std::mem::take(&mut self.strays)
    }

    /// These are the other interfaces whose connections have shards too, in place of [`Settings::beside`].
    pub fn set_beside(&mut self, beside: Vec<u32>) {
        if let Some(host) = &mut self.host {
            host.set_beside(beside);
        }
        self.expect_news();
    }

    /// Takes a frame that came by another interface; the next round looks at it as at one of this interface.
    pub fn bring(&mut self, mut stray: Stray) {
        stray.bytes[..6].copy_from_slice(&self.engine.config().mac);
        self.brought.push(stray);
    }

    /// The owners of the other queues of the interface.
    pub fn crossing(&self) -> Option<&Crossing> {
        self.crossing.as_deref()
    }

    /// Counts of frames handed to other shards and by them.
    pub fn crossed(&self) -> Counts {
        let crossing = self.crossing.as_ref();
        crossing.map_or(Counts::default(), |crossing| crossing.counts())
    }

    /// The network may have changed: it is looked at with the next round.
    pub fn expect_news(&mut self) {
        self.network_us = 0;
    }

    /// How long until a timer is due, or frames that found no room should be tried again.
    pub fn wait_us(&self) -> Option<u64> {
        let timer = self
            .engine
            .next_timer()
            .map(|at_us| at_us.saturating_sub(now_us()));
        let waiting = self.engine.has_waiting().then_some(TRY_AGAIN_US);
        let is_refused = self.engine.is_refused() || self.device.has_unsent();
        let refused = is_refused.then(|| self.refusal_us());
        timer.into_iter().chain(waiting).chain(refused).min()
    }

    /// Sleeps until frames come, the network changes or a timer is due, and no longer than `most`;
    /// not at all when there is something to do.
    pub fn sleep(&mut self, most: Duration) {
        if self.arm() {
            return;
        }
        let wait = self
            .wait_us()
            .map_or(most, |us| most.min(Duration::from_micros(us)));
        let polled = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // A negative number is passed over by poll(2).
        let mut fds = self.poll_fds().map(|fd| polled(fd.unwrap_or(-1)));
        let _ = kernel::poll(&mut fds, Some(wait), None);
        if fds[1..].iter().any(|news| news.revents != 0) {
            self.expect_news();
        }
    }

    /// When it was last driven, by [`bypass_sys::clock`], in microseconds.
    pub fn driven_us(&self) -> u64 {
        self.now_us
    }

    /// The next change of a socket.
    pub fn next_event(&mut self) -> Option<Event> {
        self.engine.next_event()
    }

    /// Listens, and takes the port from the kernel, which keeps the connections that it has there. `[::]` also
    /// takes IPv4.
    pub fn listen(&mut self, at: SocketAddr, backlog: u32) -> Result<Handle, Error> {
        self.listen_with(at, backlog, false)
    }

    /// The same; with `is_v6_only`, `[::]` takes no IPv4.
    pub fn listen_with(
        &mut self,
        at: SocketAddr,
        backlog: u32,
        is_v6_only: bool,
    ) -> Result<Handle, Error> {
        let listener = self.engine.listen_with(at, backlog, is_v6_only)?;
        if let Some(host) = &mut self.host {
            host.claim(at);
        }
        Ok(listener)
    }

    /// From now on new connections are left to the kernel, which has to listen where this shard does, or
    /// are taken again. Connections that have arrived already are still taken.
    pub fn leave_new(&mut self, leaves_new: bool) {
        if let Some(host) = &mut self.host {
            host.leave_new(leaves_new);
        }
    }

    /// Whether the kernel would give connections to a port that is listened on to sockets other than `own`,
    /// by inode.
    pub fn others_listen(&self, port: u16, own: &[u64]) -> bool {
        let host = self.host.as_ref();
        host.is_some_and(|host| host.others_listen(port, own))
    }

    /// [`leave_new`](Self::leave_new) for one port.
    pub fn leave_port(&mut self, port: u16, leaves_new: bool) {
        if let Some(host) = &mut self.host {
            host.leave_port(port, leaves_new);
        }
    }

    /// After the first listeners of a shard that follows a process which has ended: what that one had
    /// claimed besides goes back to the kernel. No connection must have been opened yet. A SYN that waits in the device for a
    /// listener of that one is dropped: whoever has sent it sends it again, and finds the kernel's listener.
    pub fn drop_others_claims(&mut self) {
        self.inherits = true;
        if let Some(host) = &self.host {
            host.drop_others_claims();
        }
    }

    /// Takes a connection.
    pub fn accept(&mut self, listener: Handle) -> Result<Handle, Error> {
        let accepted = self.engine.accept(listener)?;
        if let Some(crossing) = &self.crossing {
            crossing.expect(&self.engine, accepted);
        }
        Ok(accepted)
    }

    /// Opens a connection; `local` may name address and port.
    pub fn connect(
        &mut self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<Handle, Error> {
        let (now_us, engine) = (self.now_us, &mut self.engine);
        let named = local.filter(|local| local.port() != 0);
        let Some(host) = self.host.as_mut().filter(|_| named.is_none()) else {
            return engine.connect(now_us, local, remote);
        };
        let own = local
            .map(|local| local.ip())
            .filter(|ip| !ip.is_unspecified());
        let own = own
            .or_else(|| host.source_for(remote.ip()))
            .ok_or(Error::NetworkUnreachable)?;
        let opened = host.find_port(own, |port| {
            match engine.connect(now_us, Some((own, port).into()), remote) {
                Err(Error::AddressInUse) => None,
                other => Some(other),
            }
        });
        let opened = opened.map_err(|_| Error::AddressNotAvailable)?;
        if let (Ok(handle), Some(crossing)) = (&opened, &self.crossing) {
            crossing.expect(engine, *handle);
        }
        opened
    }

    /// Takes the datagrams of a port from now on, by this shard's queues and without fragments: the kernel has the
    /// others, and must have the port. They are the settings' receiver's.
    pub fn claim_datagrams(&mut self, port: u16) {
        if let Some(host) = &mut self.host {
            host.claim_datagrams(port);
        }
    }

    /// One claim less of a port's datagrams.
    pub fn release_datagrams(&mut self, port: u16) {
        if let Some(host) = &mut self.host {
            host.release_datagrams(port);
        }
    }

    /// Whether the interface has an address; true of a shard that is a host of its own.
    pub fn has_address(&self, ip: IpAddr) -> bool {
        self.host.as_ref().is_none_or(|host| host.has_address(ip))
    }

    /// The way of datagrams from a port to another host, where it leads over this shard's interface: with the most
    /// bytes of a datagram that need no look at the path's MTU, which only the kernel knows.
    pub fn way(
        &self,
        (source, port): (Option<IpAddr>, u16),
        to: SocketAddr,
    ) -> Option<(Way, usize)> {
        self.host.as_ref()?.way((source, port), to)
    }

    /// Sends a datagram of some pieces, at once. False, or an error: it was not sent.
    pub fn send_datagram(&mut self, way: &mut Way, pieces: &[&[u8]]) -> Result<bool, Error> {
        let mut sink = ToDevice(&mut *self.device);
        let now_us = self.now_us;
        let is_sent = self.engine.send_datagram(now_us, way, pieces, &mut sink);
        if let Some(host) = &mut self.host {
            host.find_neighbours(now_us, &mut self.engine, &mut sink);
        }
        let _ = self.device.flush();
        is_sent
    }

    /// Reads; 0 at the end.
    pub fn receive(&mut self, handle: Handle, into: &mut [u8]) -> Result<usize, Error> {
        self.engine.recv(self.now_us, handle, into)
    }

    /// Writes; `more`: what follows belongs to it.
    pub fn send(&mut self, handle: Handle, bytes: &[u8], more: bool) -> Result<usize, Error> {
        self.engine.send(self.now_us, handle, bytes, more)
    }

    /// Ends a direction.
    pub fn shutdown(&mut self, handle: Handle, how: Shutdown) -> Result<(), Error> {
        self.engine.shutdown(self.now_us, handle, how)
    }

    /// Closes a connection or a listener.
    pub fn close(&mut self, handle: Handle) -> Result<(), Error> {
        if handle.is_listener() {
            let port = self.engine.local_addr(handle)?.port();
            if let Some(host) = &mut self.host {
                host.release(port);
            }
        }
        self.engine.close(self.now_us, handle)
    }

    /// Everything else that can be asked of sockets.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Counts of what the device has moved and lost.
    pub fn counters(&self) -> Counters {
        self.device.counters()
    }
}

/// As the engine's settings are made.
const NO_SECRET: [u8; 16] = [0; 16];

fn random_secret() -> [u8; 16] {
    let mut secret = [0; 16];
    secret[..8].copy_from_slice(&kernel::random().to_ne_bytes());
    secret[8..].copy_from_slice(&kernel::random().to_ne_bytes());
    secret
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypass_device::{Frame, Offload};

    /// Its kernel refuses to send until it is asked so many times.
    struct Refusing(u32);

    impl Device for Refusing {
        fn capabilities(&self) -> Capabilities {
            Capabilities {
                mtu: 1500,
                segments_max: 0,
                checksum: false,
                batch: 1,
            }
        }

        fn receive(
            &mut self,
            _: usize,
            _: &mut dyn FnMut(Frame),
        ) -> Result<usize, bypass_device::Error> {
            Ok(0)
        }

        fn send(
            &mut self,
            _: usize,
            _: Offload,
            _: &mut dyn FnMut(&mut [u8]),
        ) -> Result<(), bypass_device::Error> {
            Ok(())
        }

        fn flush(&mut self) -> Result<(), bypass_device::Error> {
            self.0 = self.0.saturating_sub(1);
            Ok(())
        }

        fn has_unsent(&self) -> bool {
            self.0 > 0
        }

        fn arm(&mut self) -> bool {
            false
        }

        fn poll_fd(&self) -> Option<i32> {
            None
        }

        fn counters(&self) -> Counters {
            Counters::default()
        }
    }

    #[test]
    fn frames_that_the_kernel_did_not_take_are_not_left_until_a_timer_is_due() {
        let device = Box::new(Refusing(3));
        let mut shard = Shard::alone(device, [2; 6], &[], &[], Settings::default());
        let mut rounds = 0;
        while let Some(wait_us) = shard.wait_us() {
            assert!(wait_us <= 1000 && rounds < 3, "{wait_us} us in {rounds}");
            shard.drive();
            shard.finish();
            rounds += 1;
        }
        assert_eq!(rounds, 3);
    }

    #[test]
    fn a_device_that_takes_nothing_is_tried_less_and_less_often() {
        let device = Box::new(Refusing(u32::MAX));
        let mut shard = Shard::alone(device, [2; 6], &[], &[], Settings::default());
        let begun_us = shard.driven_us();
        let (mut at_us, mut longest_us, mut rounds) = (begun_us, 0, 0);
        while at_us < begun_us + 1_000_000 {
            shard.drive_at(at_us);
            shard.finish();
            let wait_us = shard.wait_us().expect("it is tried again");
            longest_us = wait_us.max(longest_us);
            at_us += wait_us;
            rounds += 1;
        }
        assert!(rounds < 300, "{rounds} in a second");
        assert_eq!(longest_us, TRY_SELDOM_US);
    }
}
