//! The engine: what it is made of, and the round in which it is driven.

use crate::buffer::Pool;
use crate::chrono::Limit;
use crate::config::Config;
use crate::conn::{Conn, Context, Full, State};
use crate::demux::{Demux, Entry};
use crate::error::Error;
use crate::hash::Key;
use crate::isn::Numbers;
use crate::listen::{HalfOpens, Listeners};
use crate::neighbour::{Link, Out};
use crate::route::{Address, Hop, Route};
use crate::sent::Nodes;
use crate::sink::TxSink;
use crate::slab::Slab;
use crate::stats::Stats;
use crate::timer::Wheel;
use crate::timewait::TimeWaits;
use crate::wire::ethernet::Mac;
use crate::wire::tcp::Flow;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

/// Marks the number of a listener.
const LISTENER: u32 = 1 << 31;

/// No link carries less (RFC 791, 3.2).
const MTU_MIN: u32 = 68;

/// A socket of the engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle {
    /// Its number; numbers are reused.
    pub index: u32,
    /// How often the number was used before.
    pub generation: u32,
}

impl Handle {
    pub(crate) fn listener(index: u32, generation: u32) -> Handle {
        Handle {
            index: index | LISTENER,
            generation,
        }
    }

    /// Whether it accepts connections.
    pub fn is_listener(self) -> bool {
        self.index & LISTENER != 0
    }

    pub(crate) fn listener_index(self) -> Option<u32> {
        self.is_listener().then_some(self.index & !LISTENER)
    }
}

/// Something changed on a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Which socket.
    pub handle: Handle,
    /// What changed, in the bits of `epoll`.
    pub ready: u32,
}

/// How much an engine holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Connections, orphans included.
    pub connections: usize,
    /// Half-open connections.
    pub half_open: usize,
    /// TIME_WAIT entries.
    pub time_wait: usize,
    /// Segments in flight.
    pub segments: usize,
    /// Bytes of memory in use by buffers.
    pub buffer_bytes: usize,
    /// Bytes of memory that buffers have taken from the allocator.
    pub buffer_bytes_held: usize,
}

/// One TCP/IP host on one link. See the [crate](crate) for how to drive it.
pub struct Engine {
    pub(crate) cx: Context,
    pub(crate) conns: Slab<Conn>,
    pub(crate) demux: Demux,
    pub(crate) link: Link,
    pub(crate) listeners: Listeners,
    pub(crate) half_opens: HalfOpens,
    pub(crate) time_waits: TimeWaits,
    pub(crate) numbers: Numbers,
    pub(crate) ready_listeners: Vec<u32>,
    pub(crate) next_port: u16,
    fired: Vec<u32>,
    /// Connections wait that the present round has not come to.
    is_in_part: bool,
}

impl Engine {
    /// An engine without addresses.
    pub fn new(config: Config, now_us: u64) -> Engine {
        let seeds = [4, 5, 6, 7].map(|purpose| Key::new(&config.secret, purpose).hash(&[]));
        Engine {
            conns: Slab::new(config.connections_max),
            demux: Demux::new(seeds),
            link: Link::new(&config),
            listeners: Listeners::new(),
            half_opens: HalfOpens::new(&config, now_us),
            time_waits: TimeWaits::new(&config),
            numbers: Numbers::new(&config.secret),
            ready_listeners: Vec::new(),
            next_port: (seeds[0] >> 48) as u16,
            fired: Vec::new(),
            is_in_part: false,
            cx: Context {
                former_mac: config.mac,
                now_us,
                pool: Pool::new(config.buffer_bytes_max),
                nodes: Nodes::new(),
                wheel: Wheel::new(now_us),
                stats: Stats::default(),
                ready: Vec::new(),
                output: Vec::new(),
                refused: Vec::new(),
                full: Full::None,
                starved: VecDeque::new(),
                waiting: VecDeque::new(),
                challenges: (0, 0),
                challenge_key: Key::new(&config.secret, 8),
                config,
            },
        }
    }

    /// Replaces the addresses of the interface. Connections of one that is gone send nothing until it is back, as
    /// Linux's.
    pub fn set_addresses(&mut self, addresses: &[Address]) {
        if !self.link.routes.set_addresses(addresses) {
            return;
        }
        for index in 0..self.conns.len() as u32 {
            let conn = &mut self.conns[index];
            let is_stranded = !self.link.routes.is_local(conn.flow.local);
            if conn.hop.is_stranded != is_stranded {
                conn.hop = Hop {
                    is_stranded,
                    ..Hop::default()
                };
            }
        }
    }

    /// Replaces the routes. Networks of the addresses need none.
    pub fn set_routes(&mut self, routes: &[Route]) {
        self.link.routes.set_routes(routes);
        for index in 0..self.conns.len() as u32 {
            let conn = &mut self.conns[index];
            conn.path_hops = self.link.routes.hops(conn.flow.remote, self.cx.config.hops);
        }
        self.follow_paths();
    }

    /// The link address of the interface, and the largest IP packet that it carries from now on. Connections
    /// follow: what was too big is sent again in smaller segments.
    pub fn set_link(&mut self, now_us: u64, mac: Mac, mtu: u32) {
        self.cx.now_us = self.cx.now_us.max(now_us);
        if mac != self.cx.config.mac {
            self.cx.former_mac = core::mem::replace(&mut self.cx.config.mac, mac);
        }
        let mtu = mtu.max(MTU_MIN);
        if mtu != core::mem::replace(&mut self.cx.config.mtu, mtu) {
            self.follow_paths();
        }
    }

    /// Every connection has segments that fit its path as it is known now.
    fn follow_paths(&mut self) {
        let mtu = self.cx.config.mtu;
        let Engine {
            cx, conns, link, ..
        } = self;
        for index in 0..conns.len() as u32 {
            let conn = &mut conns[index];
            let path = link.routes.mtu(conn.flow.remote, mtu, cx.now_us);
            conn.route_mss = link.routes.stated_mss(conn.flow.remote, mtu);
            let before = conn.path_mtu;
            if conn.in_use && conn.is_attached && path != before {
                conn.set_path_mtu(path);
                if path < before {
                    conn.resend_too_big(cx);
                }
            }
        }
    }

    /// A neighbour's link address is known from outside; packets that waited for it leave. Where the engine
    /// resolves neighbours itself this one never has to be.
    pub fn set_neighbour<S: TxSink>(&mut self, now_us: u64, ip: IpAddr, mac: Mac, sink: &mut S) {
        self.cx.now_us = self.cx.now_us.max(now_us);
        let (link, mut out) = self.out(sink);
        link.learn(&mut out, ip.into(), mac, true);
    }

    /// A neighbour was looked for outside, and is not there.
    pub fn forget_neighbour(&mut self, ip: IpAddr) {
        self.link.unlearn(ip.into());
    }

    /// A neighbour is no longer kept outside: it is asked for before the next packet, and used meanwhile.
    pub fn doubt_neighbour(&mut self, ip: IpAddr) {
        self.link.doubt(ip.into());
    }

    /// Neighbours whose link addresses the caller should find or confirm, each named once, when
    /// [`Config::resolves_neighbours`] is false.
    pub fn wanted_neighbours(&mut self) -> Vec<IpAddr> {
        self.link
            .take_wanted()
            .into_iter()
            .map(IpAddr::from)
            .collect()
    }

    /// The link, and a way out to the device.
    pub(crate) fn out<'a, S>(&'a mut self, sink: &'a mut S) -> (&'a mut Link, Out<'a, S>) {
        let Engine { cx, link, .. } = self;
        let out = Out {
            sink,
            now_us: cx.now_us,
            config: &cx.config,
            stats: &mut cx.stats,
        };
        (link, out)
    }

    /// Runs the timers that are due.
    pub fn poll_timers<S: TxSink>(&mut self, now_us: u64, sink: &mut S) {
        self.cx.now_us = self.cx.now_us.max(now_us);
        let mut fired = core::mem::take(&mut self.fired);
        self.cx.wheel.advance(self.cx.now_us, &mut fired);
        for index in fired.drain(..) {
            self.conns[index].on_timer(&mut self.cx);
            self.settle(index);
        }
        self.half_opens.wheel.advance(self.cx.now_us, &mut fired);
        for index in fired.drain(..) {
            self.on_half_open_timer(index, sink);
        }
        self.fired = fired;
        while let Some(index) = self.time_waits.expired(self.cx.now_us) {
            self.remove_time_wait(index);
        }
        self.poll_neighbours(sink);
    }

    fn poll_neighbours<S: TxSink>(&mut self, sink: &mut S) {
        if self
            .link
            .next_us()
            .is_none_or(|next_us| next_us > self.cx.now_us)
        {
            return;
        }
        let mut lost = Vec::new();
        let (link, mut out) = self.out(sink);
        link.poll(&mut out, |addr| lost.push(addr));
        if lost.is_empty() {
            return;
        }
        for index in 0..self.conns.len() as u32 {
            let conn = &mut self.conns[index];
            if conn.state == State::Closed {
                continue;
            }
            let next = self.link.routes.next_hop(conn.flow.remote);
            if next.is_ok_and(|next| lost.contains(&next)) {
                conn.on_unreachable(&mut self.cx, Error::HostUnreachable);
                self.settle(index);
            }
        }
    }

    /// Sends what the round has left to send: data, acknowledgments, retransmissions.
    pub fn end_batch<S: TxSink>(&mut self, now_us: u64, sink: &mut S) {
        self.end_part(now_us, usize::MAX, sink);
    }

    /// The same for `most` connections. Whether it was too few: others wait, and not for room.
    pub fn end_part<S: TxSink>(&mut self, now_us: u64, most: usize, sink: &mut S) -> bool {
        self.cx.now_us = self.cx.now_us.max(now_us);
        if self.link.routes.has_old_paths(self.cx.now_us) {
            self.link.routes.forget_old_paths(self.cx.now_us);
            self.follow_paths();
        }
        self.wait_no_longer();
        if !self.is_in_part && !self.cx.refused.is_empty() {
            let refused = self.cx.refused.drain(..);
            self.cx.output.splice(..0, refused);
        }
        self.cx.full = Full::None;
        let (mut position, mut last) = (0, None);
        while let Some(&index) = self.cx.output.get(position) {
            if position == most {
                break;
            }
            if self.flush(index, sink) {
                self.settle(index);
            } else if self.cx.full == Full::Single {
                break;
            } else {
                self.wait_for_room(index, &mut last);
            }
            position += 1;
        }
        self.cx.refused.extend(last.flatten());
        self.cx.output.drain(..position);
        self.is_in_part = position == most && !self.cx.output.is_empty();
        self.is_in_part
    }

    /// A connection has found no room for a GSO segment. The first one has filled the queue: where it has sent some, it
    /// comes `last` in the next round, so that they take turns.
    fn wait_for_room(&mut self, index: u32, last: &mut Option<Option<u32>>) {
        let is_first = last.is_none();
        let own = last.get_or_insert(None);
        if is_first && self.conns[index].sent_us == self.cx.now_us {
            *own = Some(index);
        } else {
            self.cx.refused.push(index);
        }
    }

    /// Sends what a connection has to send. False when something has found no room.
    #[inline]
    fn flush<S: TxSink>(&mut self, index: u32, sink: &mut S) -> bool {
        let Engine {
            cx, conns, link, ..
        } = self;
        let conn = &mut conns[index];
        if conn.reset_due && !conn.send_reset(cx, link, sink) {
            return false;
        }
        conn.reset_due = false;
        let is_done = conn.flush(cx, link, sink);
        conn.in_output = !is_done;
        is_done
    }

    /// Acknowledgments that have waited long enough for an answer leave with this batch.
    fn wait_no_longer(&mut self) {
        let Config { answer_wait_us, .. } = self.cx.config;
        while let Some((index, since_us)) = self.cx.waiting.front().copied() {
            if self.cx.now_us < since_us + answer_wait_us {
                break;
            }
            self.cx.waiting.pop_front();
            let conn = &mut self.conns[index];
            conn.ack_waits = false;
            if conn.ack_pending {
                conn.ack_has_waited = true;
                conn.queue_output(&mut self.cx);
            }
        }
    }

    /// The application will not act for a while: acknowledgments that wait for its answers leave with the next
    /// [`Engine::end_batch`]. False: there are none.
    pub fn expect_no_answers(&mut self) -> bool {
        for (_, since_us) in &mut self.cx.waiting {
            *since_us = 0;
        }
        !self.cx.waiting.is_empty()
    }

    /// The link is gone: every connection ends with an error.
    pub fn fail_all(&mut self, now_us: u64, error: Error) {
        self.cx.now_us = self.cx.now_us.max(now_us);
        for index in 0..self.conns.len() as u32 {
            let conn = &mut self.conns[index];
            if conn.in_use && conn.is_attached {
                conn.fail(&mut self.cx, error);
                self.settle(index);
            }
        }
    }

    /// Whether the device refused something, or an acknowledgment waits for an answer: call
    /// [`Engine::end_batch`] again when there is room, or after the application has acted.
    pub fn has_output(&self) -> bool {
        self.is_refused() || self.has_waiting()
    }

    /// Whether the device refused something.
    pub fn is_refused(&self) -> bool {
        !self.cx.output.is_empty() || !self.cx.refused.is_empty()
    }

    /// Whether an acknowledgment waits for an answer.
    pub fn has_waiting(&self) -> bool {
        !self.cx.waiting.is_empty()
    }

    /// When [`Engine::poll_timers`] has something to do at the latest; nothing when no timer runs.
    pub fn next_timer(&self) -> Option<u64> {
        let wheels = [self.cx.wheel.next_us(), self.half_opens.wheel.next_us()];
        let queues = [self.time_waits.next_us(), self.link.next_us()];
        wheels.into_iter().chain(queues).flatten().min()
    }

    /// The next change that was not reported yet. Bits of one socket are reported together.
    pub fn next_event(&mut self) -> Option<Event> {
        if let Some(index) = self.ready_listeners.pop() {
            let listener = &mut self.listeners.slab[index];
            listener.in_ready = false;
            let handle = Handle::listener(index, listener.generation);
            return Some(Event {
                handle,
                ready: crate::conn::READABLE,
            });
        }
        while let Some(index) = self.cx.ready.pop() {
            let conn = &mut self.conns[index];
            conn.in_ready = false;
            let ready = core::mem::take(&mut conn.events);
            let handle = Handle {
                index,
                generation: conn.generation,
            };
            if !conn.is_orphan && ready != 0 {
                return Some(Event { handle, ready });
            }
            self.settle(index);
        }
        self.next_fed()
    }

    /// Whether [`Engine::next_event`] has memory to offer to a connection that found none.
    pub fn has_memory_to_offer(&self) -> bool {
        !self.cx.starved.is_empty() && self.cx.pool.has_room()
    }

    /// A connection that found no memory to write to, for which there is some now. It takes its part before the next is reported.
    fn next_fed(&mut self) -> Option<Event> {
        if !self.has_memory_to_offer() {
            return None;
        }
        let index = self.cx.starved.pop_front()?;
        let conn = &mut self.conns[index];
        (conn.is_starved, conn.wants_room) = (false, false);
        conn.chrono.end_limit(Limit::Buffer, self.cx.now_us);
        let handle = Handle {
            index,
            generation: conn.generation,
        };
        Some(Event {
            handle,
            ready: crate::conn::WRITABLE,
        })
    }

    /// After a step of a connection: what is over leaves the tables.
    #[inline]
    pub(crate) fn settle(&mut self, index: u32) {
        match self.conns[index].state {
            State::Closed => self.settle_closed(index),
            State::TimeWait => self.enter_time_wait(index),
            _ => {}
        }
    }

    fn settle_closed(&mut self, index: u32) {
        self.detach(index);
        let conn = &mut self.conns[index];
        let waits = conn.in_output || conn.in_ready || !conn.is_orphan || !conn.in_use;
        if waits {
            return;
        }
        self.cx.pool.release(&mut conn.rx);
        conn.reassembly.clear();
        conn.in_use = false;
        conn.generation = conn.generation.wrapping_add(1);
        self.conns.give(index);
    }

    /// No segment leads to the connection any more.
    fn detach(&mut self, index: u32) {
        let conn = &mut self.conns[index];
        if conn.is_attached {
            conn.is_attached = false;
            self.cx.wheel.disarm(index);
            if core::mem::take(&mut conn.is_starved) {
                self.cx.starved.retain(|one| *one != index);
            }
            let hash = self.demux.hash(&conn.flow);
            self.demux.remove(hash, Entry::Connection(index));
            self.cx.nodes.clear(&mut conn.sent);
        }
    }

    /// The connection becomes a compact entry; what is unread stays with its handle.
    fn enter_time_wait(&mut self, index: u32) {
        let Engine { cx, conns, .. } = self;
        let conn = &mut conns[index];
        if conn.in_output && conn.ack_pending {
            return; // the last acknowledgment leaves first
        }
        let window = conn.advertise_window();
        conn.drop_output(cx);
        self.detach(index);
        if let Some(oldest) = self.time_waits.overflow() {
            self.cx.stats.time_wait_overflow += 1;
            self.remove_time_wait(oldest);
        }
        let conn = &mut self.conns[index];
        if let Some(entry) = self.time_waits.add(conn, window, self.cx.now_us) {
            let hash = self.demux.hash(&conn.flow);
            self.demux.insert(hash, Entry::TimeWait(entry));
            self.cx.stats.time_waited += 1;
        }
        conn.state = State::Closed;
        conn.notify(&mut self.cx, crate::conn::HANGUP | crate::conn::READABLE);
        self.settle_closed(index);
    }

    pub(crate) fn remove_time_wait(&mut self, index: u32) {
        let hash = self.demux.hash(&self.time_waits.get(index).flow);
        self.demux.remove(hash, Entry::TimeWait(index));
        self.time_waits.remove(index);
    }

    /// A place for a connection of this flow, attached and with a generation of its own.
    pub(crate) fn new_conn(&mut self, flow: Flow) -> Option<u32> {
        let index = self.conns.take(Conn::default)?;
        let conn = &mut self.conns[index];
        let generation = conn.generation;
        *conn = Conn {
            flow,
            index,
            generation,
            in_use: true,
            is_attached: true,
            ..Conn::default()
        };
        let (routes, mtu) = (&self.link.routes, self.cx.config.mtu);
        conn.path_mtu = routes.mtu(flow.remote, mtu, self.cx.now_us);
        conn.route_mss = routes.stated_mss(flow.remote, mtu);
        conn.path_hops = self.link.routes.hops(flow.remote, self.cx.config.hops);
        conn.flow_label = self.numbers.flow_label(&flow);
        conn.ts_offset = self.numbers.timestamp_offset(&flow);
        conn.opened_us = self.cx.now_us;
        conn.snd_limit = self.cx.config.send_bytes;
        conn.rcv_limit = self.cx.config.receive_bytes;
        conn.set_unsent_low(&self.cx.config);
        Some(index)
    }

    /// The entry of a flow.
    #[inline]
    pub(crate) fn find(&self, flow: &Flow, hash: u64) -> Option<Entry> {
        let same = |entry: Entry| match entry {
            Entry::Connection(index) => self.conns[index].flow == *flow,
            Entry::HalfOpen(index) => self.half_opens.slab[index].flow == *flow,
            Entry::TimeWait(index) => self.time_waits.get(index).flow == *flow,
        };
        self.demux.find(hash, same)
    }

    /// Our ends of all connections, also in TIME_WAIT: their ports are in use. Some come
    /// more than once.
    pub fn local_ends(&self) -> impl Iterator<Item = (IpAddr, u16)> + '_ {
        let conns = (0..self.conns.len() as u32).map(|index| &self.conns[index]);
        let attached = conns.filter(|conn| conn.in_use && conn.is_attached);
        let flows = attached.map(|conn| &conn.flow);
        let all = flows.chain(self.time_waits.flows());
        all.map(|flow| (flow.local.into(), flow.local_port()))
    }

    /// How much the engine holds.
    pub fn counts(&self) -> Counts {
        Counts {
            connections: self.conns.in_use(),
            half_open: self.half_opens.slab.in_use(),
            time_wait: self.time_waits.len(),
            segments: self.cx.nodes.in_use(),
            buffer_bytes: self.cx.pool.lent(),
            buffer_bytes_held: self.cx.pool.bytes(),
        }
    }

    /// Counters since the engine was made.
    pub fn stats(&self) -> &Stats {
        &self.cx.stats
    }

    /// The settings it was made with.
    pub fn config(&self) -> &Config {
        &self.cx.config
    }
}
