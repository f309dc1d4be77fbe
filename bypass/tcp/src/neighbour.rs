//! Link addresses of neighbours: ARP (RFC 826) and neighbour discovery (RFC 4861, 7).

use crate::config::Config;
use crate::error::Error;
use crate::route::{Hop, Routes};
use crate::sink::{put_payload, TxMeta, TxSink};
use crate::slab::Slab;
use crate::stats::Stats;
use crate::wire::ethernet::{self, Mac};
use crate::wire::ip::{self, Addr};
use crate::wire::{arp, icmp};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Time between solicitations (RFC 4861, 10: RetransTimer).
const SOLICIT_US: u64 = 1_000_000;
/// Solicitations are due together: for neighbours that do not answer all connections are looked through.
const TICK_US: u64 = 100_000;
/// Solicitations before a neighbour counts as unreachable.
const SOLICITATIONS_MAX: u8 = 3;
/// Packets kept for a neighbour that is being asked: as many first segments as Linux keeps (unres_qlen_bytes).
const QUEUED_MAX: usize = 256;
/// Packets kept for all such neighbours.
const QUEUED_TOTAL_MAX: usize = 1_024;

#[derive(Default)]
struct Neighbour {
    addr: Addr,
    mac: Option<Mac>,
    generation: u32,
    /// When the next solicitation is due; zero when none is.
    solicit_at_us: u64,
    confirmed_us: u64,
    /// When a packet last left for it, or was to.
    used_us: u64,
    solicitations: u8,
    is_permanent: bool,
    /// It is to be asked for before the next packet, and used meanwhile.
    is_doubted: bool,
    /// The caller has not found it once.
    is_missed: bool,
    queue: VecDeque<Vec<u8>>,
}

/// The table, together with the routes that lead into it.
pub struct Link {
    /// Addresses, routes, paths.
    pub routes: Routes,
    neighbours: Slab<Neighbour>,
    by_addr: BTreeMap<Addr, u32>,
    queued: usize,
    asking: Vec<u32>,
    wanted: Vec<Addr>,
}

/// The fate of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It is with the device, or waits for its neighbour.
    Done,
    /// The device has no room: try again later.
    Full,
    /// Its destination has no route.
    NoWay(Error),
}

impl Link {
    /// An empty table.
    pub fn new(config: &Config) -> Link {
        Link {
            routes: Routes::new(config.is_sole_host),
            neighbours: Slab::new(config.neighbours_max),
            by_addr: BTreeMap::new(),
            queued: 0,
            asking: Vec::new(),
            wanted: Vec::new(),
        }
    }

    /// Sends an IP packet of `ip_len` bytes, which `fill` writes behind the Ethernet header.
    #[inline]
    pub fn send<S: TxSink>(
        &mut self,
        out: &mut Out<'_, S>,
        hop: &mut Hop,
        to: Addr,
        meta: TxMeta,
        fill: impl FnOnce(&mut [u8]),
    ) -> Sent {
        let len = ethernet::HEADER + meta.ip_len;
        let Some(mac) = self.known(hop, out) else {
            return self.send_slowly(out, hop, to, meta, fill);
        };
        let (own, kind) = (out.config.mac, ethertype(to));
        let sent = out.sink.transmit(len, meta, |frame| {
            ethernet::emit(frame, mac, own, kind);
            fill(frame);
        });
        if sent {
            Sent::Done
        } else {
            Sent::Full
        }
    }

    /// Sends a GSO segment, of which `fill` writes the headers: see [`TxSink::transmit_gso`].
    pub fn send_gso<S: TxSink>(
        &mut self,
        out: &mut Out<'_, S>,
        hop: &mut Hop,
        to: Addr,
        (meta, payload): (TxMeta, [&[u8]; 2]),
        fill: impl FnOnce(&mut [u8]),
    ) -> Sent {
        let Some(mac) = self.known(hop, out) else {
            return self.send_slowly(out, hop, to, meta, |frame| {
                let (headers, rest) = frame.split_at_mut(meta.header_len);
                fill(headers);
                put_payload(rest, payload);
            });
        };
        let (len, own) = (ethernet::HEADER + meta.ip_len, out.config.mac);
        let sent = out.sink.transmit_gso(len, meta, payload, |headers| {
            ethernet::emit(headers, mac, own, ethertype(to));
            fill(headers);
        });
        if sent {
            Sent::Done
        } else {
            Sent::Full
        }
    }

    /// RFC 4861, 7.3.1: progress of a connection confirms the neighbour as an answer of its own does.
    #[inline]
    fn known<S>(&mut self, hop: &Hop, out: &Out<'_, S>) -> Option<Mac> {
        let neighbour = self.neighbours.get_mut(hop.index)?;
        let fits = hop.generation != 0
            && neighbour.generation == hop.generation
            && self.routes.generation == hop.routes;
        let confirmed_us = neighbour.confirmed_us.max(hop.progress_us);
        let is_fresh =
            neighbour.is_permanent || out.now_us - confirmed_us < out.config.neighbour_reachable_us;
        if fits && is_fresh {
            neighbour.used_us = out.now_us;
            neighbour.mac
        } else {
            None
        }
    }

    /// The neighbour is not known, not confirmed lately, or not the one remembered.
    fn send_slowly<S: TxSink>(
        &mut self,
        out: &mut Out<'_, S>,
        hop: &mut Hop,
        to: Addr,
        meta: TxMeta,
        fill: impl FnOnce(&mut [u8]),
    ) -> Sent {
        if hop.is_stranded {
            return Sent::Done;
        }
        let index = match self.routes.next_hop(to) {
            Ok(next) => self.entry(next).ok_or(Error::NoBuffers),
            Err(error) => {
                // Its answers leave elsewhere from now on: what is open goes on by the neighbour that it has.
                hop.routes = self.routes.generation;
                let known = self.known(hop, out);
                known.map(|_| hop.index).ok_or(error)
            }
        };
        let index = match index {
            Ok(index) => index,
            Err(error) => return Sent::NoWay(error),
        };
        // Progress that another neighbour has carried says nothing of this one.
        let is_other = hop.generation != 0 && hop.index != index;
        *hop = Hop {
            index,
            generation: self.neighbours[index].generation,
            routes: self.routes.generation,
            progress_us: if is_other { 0 } else { hop.progress_us },
            ..*hop
        };
        self.neighbours[index].used_us = out.now_us;
        let is_doubted = core::mem::take(&mut self.neighbours[index].is_doubted);
        if is_doubted || self.known(hop, out).is_none() {
            self.begin_asking(out, index);
        }
        let kind = ethertype(to);
        if let Some(mac) = self.neighbours[index].mac {
            // An address that was not confirmed lately is used while it is asked for again.
            let own = out.config.mac;
            let sent = out
                .sink
                .transmit(ethernet::HEADER + meta.ip_len, meta, |frame| {
                    ethernet::emit(frame, mac, own, kind);
                    fill(frame);
                });
            return if sent { Sent::Done } else { Sent::Full };
        }
        self.queue(index, out, meta, kind, fill)
    }

    fn queue<S: TxSink>(
        &mut self,
        index: u32,
        out: &mut Out<'_, S>,
        meta: TxMeta,
        kind: u16,
        fill: impl FnOnce(&mut [u8]),
    ) -> Sent {
        // A GSO segment that the device would cut, or a checksum it would complete, cannot wait here:
        // the connection sends it again.
        if meta.gso_size > 0 || meta.partial_checksum {
            out.stats.neighbour_failures += 1;
            return Sent::Done;
        }
        let mut frame = vec![0; ethernet::HEADER + meta.ip_len];
        ethernet::emit(&mut frame, [0; 6], out.config.mac, kind);
        fill(&mut frame);
        let queue = &mut self.neighbours[index].queue;
        if queue.len() >= QUEUED_MAX {
            queue.pop_front();
        } else if self.queued >= QUEUED_TOTAL_MAX {
            return Sent::Done;
        } else {
            self.queued += 1;
        }
        queue.push_back(frame);
        Sent::Done
    }

    fn entry(&mut self, addr: Addr) -> Option<u32> {
        if let Some(index) = self.by_addr.get(&addr) {
            return Some(*index);
        }
        let index = match self.neighbours.take(Neighbour::default) {
            Some(index) => index,
            None => self.evict()?,
        };
        Some(self.enter(addr, index))
    }

    fn enter(&mut self, addr: Addr, index: u32) -> u32 {
        let generation = self.neighbours[index].generation.wrapping_add(1).max(1);
        self.neighbours[index] = Neighbour {
            addr,
            generation,
            ..Neighbour::default()
        };
        self.by_addr.insert(addr, index);
        index
    }

    /// The place of the neighbour to which nothing has left for longest.
    fn evict(&mut self) -> Option<u32> {
        let may_go = self
            .by_addr
            .values()
            .filter(|index| !self.neighbours[**index].is_permanent);
        let index = *may_go.min_by_key(|index| self.neighbours[**index].used_us)?;
        self.forget(index);
        self.neighbours.take(Neighbour::default)
    }

    fn forget(&mut self, index: u32) {
        let neighbour = &mut self.neighbours[index];
        self.by_addr.remove(&neighbour.addr);
        self.queued -= neighbour.queue.len();
        neighbour.queue = VecDeque::new();
        neighbour.mac = None;
        neighbour.generation = neighbour.generation.wrapping_add(1).max(1);
        self.asking.retain(|asked| *asked != index);
        self.neighbours.give(index);
    }

    fn begin_asking<S: TxSink>(&mut self, out: &mut Out<'_, S>, index: u32) {
        if self.neighbours[index].solicit_at_us != 0 {
            return;
        }
        self.neighbours[index].solicitations = 0;
        self.asking.push(index);
        self.ask(out, index);
    }

    fn ask<S: TxSink>(&mut self, out: &mut Out<'_, S>, index: u32) {
        let neighbour = &mut self.neighbours[index];
        neighbour.solicitations += 1;
        neighbour.solicit_at_us = (out.now_us + SOLICIT_US).next_multiple_of(TICK_US);
        let addr = neighbour.addr;
        if !out.config.resolves_neighbours {
            if !self.wanted.contains(&addr) {
                self.wanted.push(addr);
            }
            return;
        }
        let Some(source) = self.routes.source_for(addr) else {
            return;
        };
        if addr.is_v4() {
            send_arp(out, true, (source, addr), ethernet::BROADCAST);
        } else {
            let group = Addr {
                high: 0xff02 << 48,
                low: 0x1_ff00_0000 | addr.low & 0xff_ffff,
            };
            let low = (group.low as u32).to_be_bytes();
            let mac = [0x33, 0x33, low[0], low[1], low[2], low[3]];
            send_discovery(out, mac, (source, group), addr, false);
        }
    }

    /// Sends due solicitations again and gives up on neighbours that do not answer; those are
    /// handed to `lost`. One that the caller has named is there until the caller says otherwise.
    pub fn poll<S: TxSink>(&mut self, out: &mut Out<'_, S>, mut lost: impl FnMut(Addr)) {
        let mut position = 0;
        while position < self.asking.len() {
            let index = self.asking[position];
            let neighbour = &mut self.neighbours[index];
            if neighbour.solicit_at_us > out.now_us {
                position += 1;
            } else if neighbour.solicitations < SOLICITATIONS_MAX {
                self.ask(out, index);
                position += 1;
            } else if neighbour.mac.is_some() && !out.config.resolves_neighbours {
                (neighbour.solicit_at_us, neighbour.confirmed_us) = (0, out.now_us);
                self.asking.swap_remove(position);
            } else {
                out.stats.neighbour_failures += 1;
                lost(neighbour.addr);
                self.forget(index);
            }
        }
    }

    /// When [`Link::poll`] has something to do.
    pub fn next_us(&self) -> Option<u64> {
        self.asking
            .iter()
            .map(|index| self.neighbours[*index].solicit_at_us)
            .min()
    }

    /// A neighbour's address became known; packets that waited for it leave. `is_given`: by the caller, for
    /// ever where only the engine would ask for it again.
    pub fn learn<S: TxSink>(&mut self, out: &mut Out<'_, S>, addr: Addr, mac: Mac, is_given: bool) {
        let index = match self.by_addr.get(&addr) {
            Some(index) => *index,
            // Without packets for it, it takes the place of no other.
            None if is_given => match self.neighbours.take(Neighbour::default) {
                Some(index) => self.enter(addr, index),
                None => return,
            },
            None => return,
        };
        let neighbour = &mut self.neighbours[index];
        neighbour.mac = Some(mac);
        neighbour.confirmed_us = out.now_us;
        neighbour.is_doubted = false;
        neighbour.is_missed = false;
        neighbour.is_permanent = is_given && out.config.resolves_neighbours;
        neighbour.solicit_at_us = 0;
        self.queued -= neighbour.queue.len();
        let waiting = core::mem::take(&mut neighbour.queue);
        self.asking.retain(|asked| *asked != index);
        self.wanted.retain(|wanted| *wanted != addr);
        for mut frame in waiting {
            frame[..6].copy_from_slice(&mac);
            let meta = TxMeta::whole(frame.len() - ethernet::HEADER);
            out.sink
                .transmit(frame.len(), meta, |place| place.copy_from_slice(&frame));
        }
    }

    /// The caller has not found the neighbour, or an administrator has deleted it there, which looks the same: it is
    /// asked for once more.
    pub fn unlearn(&mut self, addr: Addr) {
        let Some(index) = self.by_addr.get(&addr).copied() else {
            return;
        };
        if core::mem::replace(&mut self.neighbours[index].is_missed, true) {
            self.forget(index);
        } else {
            self.doubt(addr);
        }
    }

    /// The caller's table has dropped the neighbour, which says nothing about it.
    pub fn doubt(&mut self, addr: Addr) {
        if let Some(index) = self.by_addr.get(&addr) {
            let neighbour = &mut self.neighbours[*index];
            neighbour.is_doubted = true;
            // Connections that remember it look here again.
            neighbour.generation = neighbour.generation.wrapping_add(1).max(1);
        }
    }

    /// Neighbours that the caller should resolve; each is named once.
    pub fn take_wanted(&mut self) -> Vec<Addr> {
        core::mem::take(&mut self.wanted)
    }

    /// An ARP packet came in: learn from it, and answer when it asks for us.
    pub fn on_arp<S: TxSink>(&mut self, out: &mut Out<'_, S>, bytes: &[u8]) {
        let Some(packet) = arp::parse(bytes) else {
            return;
        };
        let (sender, target) = (
            Addr::v4(packet.sender.to_bits()),
            Addr::v4(packet.target.to_bits()),
        );
        if packet.sender_mac[0] & 1 == 1 || self.routes.is_local(sender) {
            return;
        }
        if out.config.resolves_neighbours && !sender.is_unspecified() {
            self.learn(out, sender, packet.sender_mac, false);
        }
        if packet.is_request && self.routes.is_local(target) && out.config.is_sole_host {
            send_arp(out, false, (target, sender), packet.sender_mac);
        }
    }

    /// A solicitation or advertisement came in.
    pub fn on_discovery<S: TxSink>(
        &mut self,
        out: &mut Out<'_, S>,
        packet: &ip::Packet<'_>,
        message: icmp::Message<'_>,
    ) {
        match message {
            icmp::Message::Solicitation {
                target,
                source_mac: Some(mac),
            } if self.routes.is_local(target) && out.config.is_sole_host => {
                send_discovery(out, mac, (target, packet.source), target, true);
                if out.config.resolves_neighbours {
                    self.learn(out, packet.source, mac, false);
                }
            }
            icmp::Message::Advertisement {
                target,
                target_mac: Some(mac),
                ..
            } if out.config.resolves_neighbours && mac[0] & 1 == 0 => {
                self.learn(out, target, mac, false);
            }
            _ => {}
        }
    }
}

/// Where packets leave: the device's side of a call, with what every sender needs.
pub struct Out<'a, S> {
    /// The device.
    pub sink: &'a mut S,
    /// The clock of this batch.
    pub now_us: u64,
    /// Settings.
    pub config: &'a Config,
    /// Counters.
    pub stats: &'a mut Stats,
}

fn ethertype(to: Addr) -> u16 {
    if to.is_v4() {
        ethernet::IPV4
    } else {
        ethernet::IPV6
    }
}

fn send_arp<S: TxSink>(out: &mut Out<'_, S>, is_request: bool, (from, to): (Addr, Addr), mac: Mac) {
    let own = out.config.mac;
    let v4 = |addr: Addr| Ipv4Addr::from_bits(addr.v4_bits());
    let target_mac = if is_request { [0; 6] } else { mac };
    let packet = arp::Arp {
        is_request,
        sender_mac: own,
        sender: v4(from),
        target_mac,
        target: v4(to),
    };
    out.sink.transmit(
        ethernet::HEADER + arp::LEN,
        TxMeta::whole(arp::LEN),
        |frame| {
            ethernet::emit(frame, mac, own, ethernet::ARP);
            arp::emit(&mut frame[ethernet::HEADER..], &packet);
        },
    );
}

fn send_discovery<S: TxSink>(
    out: &mut Out<'_, S>,
    mac: Mac,
    (source, destination): (Addr, Addr),
    target: Addr,
    is_answer: bool,
) {
    let own = out.config.mac;
    let header = ip::Header {
        source,
        destination,
        protocol: ip::ICMPV6,
        traffic_class: 0,
        hops: 255,
        flow_label: 0,
        id: 0,
        payload_len: icmp::NEIGHBOUR_LEN,
    };
    let ip_len = ip::V6_HEADER + icmp::NEIGHBOUR_LEN;
    out.sink
        .transmit(ethernet::HEADER + ip_len, TxMeta::whole(ip_len), |frame| {
            ethernet::emit(frame, mac, own, ethernet::IPV6);
            let packet = &mut frame[ethernet::HEADER..];
            header.emit(packet);
            icmp::emit_neighbour(
                &mut packet[ip::V6_HEADER..],
                (source, destination),
                target,
                own,
                is_answer,
            );
        });
}
