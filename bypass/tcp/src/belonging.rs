//! Whose a frame is, where several engines share the addresses of a host, each with a part of its queues.
//!
//! A flow comes by one queue as a rule, but not always: its frames change their queue when the sender's or the
//! card's idea of spreading changes, and answers to what an engine opens come by any. So each frame is asked about
//! before it is taken. Nothing here changes the engine, and nothing is sent.

use core::net::IpAddr;

use crate::demux::Entry;
use crate::engine::{Engine, Handle};
use crate::sink::{Rx, Sum};
use crate::wire::tcp::{self, Flow, Segment, ACK, RST, SYN};
use crate::wire::{ethernet, icmp, ip};

/// Range of numbers, behind the ones that an ended connection expects, in which its last segments lie.
const OLD: u32 = 1 << 20;

impl Engine {
    /// None where the frame is for this engine, or for none at all: a malformed one, or one that begins a
    /// connection to a listener here. Else the [mark](Self::mark_of) of the flow that another engine may have.
    #[inline]
    pub fn may_be_anothers(&self, rx: &Rx) -> Option<u64> {
        let packet = packet_of(rx)?;
        if packet.protocol != ip::TCP {
            return self.is_anothers_error(&packet);
        }
        if !self.link.routes.is_local(packet.destination) {
            return None;
        }
        let segment = tcp::parse(&packet, Sum::Verified)?;
        (!self.has_segment(&segment)).then(|| mark(&segment.flow))
    }

    /// Where a frame to this link address is bound for, when that is none of our addresses: another interface's, whose
    /// frames come here too (asymmetric routes, or ARP answered by several interfaces).
    pub fn strays_to(&self, rx: &Rx) -> Option<IpAddr> {
        let station = ethernet::parse(rx.bytes)?.destination;
        let to = packet_of(rx)?.destination;
        let is_stray = self.cx.is_own_station(station) && !self.link.routes.is_local(to);
        is_stray.then(|| to.into())
    }

    /// Whether a frame is the first of a new connection.
    pub fn is_syn(rx: &Rx) -> bool {
        let segment = || {
            let packet = packet_of(rx).filter(|packet| packet.protocol == ip::TCP)?;
            tcp::parse(&packet, Sum::Verified).map(|segment| segment.has(SYN) && !segment.has(ACK))
        };
        segment().unwrap_or(false)
    }

    /// Whether a frame of TCP is for a listener of this engine.
    pub fn listens_for(&self, rx: &Rx) -> bool {
        let packet = packet_of(rx).filter(|packet| packet.protocol == ip::TCP);
        let segment = packet.and_then(|packet| tcp::parse(&packet, Sum::Verified));
        segment.is_some_and(|segment| {
            let flow = &segment.flow;
            let found = self.listeners.find(flow.local, flow.local_port());
            found.is_some()
        })
    }

    /// What a flow is called among the engines of a host.
    pub fn mark_of(&self, handle: Handle) -> Option<u64> {
        let index = self.conn_index(handle).ok()?;
        Some(mark(&self.conns[index].flow))
    }

    /// The same of the flow of a frame of TCP.
    pub fn mark_of_frame(&self, rx: &Rx) -> Option<u64> {
        let packet = packet_of(rx).filter(|packet| packet.protocol == ip::TCP)?;
        Some(mark(&tcp::parse(&packet, Sum::Verified)?.flow))
    }

    fn is_anothers_error(&self, packet: &ip::Packet<'_>) -> Option<u64> {
        let message = match packet.protocol {
            ip::ICMP if packet.destination.is_v4() => icmp::parse_v4(packet.payload),
            ip::ICMPV6 if !packet.destination.is_v4() => icmp::parse_v6(packet),
            _ => None,
        };
        let Some(icmp::Message::Error { flow, .. }) = message else {
            return None;
        };
        let found = self.find(&flow, self.demux.hash(&flow));
        (!matches!(found, Some(Entry::Connection(_)))).then(|| mark(&flow))
    }

    fn has_segment(&self, seg: &Segment) -> bool {
        let begins = seg.has(SYN) && !seg.has(ACK | RST);
        match self.find(&seg.flow, self.demux.hash(&seg.flow)) {
            Some(Entry::Connection(_)) => true,
            // A SYN that was sent again by another queue has opened a half here too, whose other one is there.
            Some(Entry::HalfOpen(index)) => {
                let next = self.half_opens.slab[index].iss.wrapping_add(1);
                begins || !seg.has(ACK) || seg.ack == next || self.is_cookie(seg)
            }
            // The next connection between these ends may be another engine's.
            Some(Entry::TimeWait(index)) => {
                let expected = self.time_waits.get(index).rcv_nxt;
                begins || expected.wrapping_sub(seg.seq) < OLD
            }
            None => self.would_open(seg, begins),
        }
    }

    fn would_open(&self, seg: &Segment, begins: bool) -> bool {
        let flow = &seg.flow;
        if self.listeners.find(flow.local, flow.local_port()).is_none() {
            return false;
        }
        let is_answer = seg.has(ACK) && !seg.has(SYN | RST);
        begins || is_answer && self.is_cookie(seg)
    }
}

fn packet_of<'a>(rx: &Rx<'a>) -> Option<ip::Packet<'a>> {
    let frame = ethernet::parse(rx.bytes)?;
    match frame.ethertype {
        // Sums are checked by who takes it.
        ethernet::IPV4 => ip::parse_v4(frame.payload, true).ok(),
        ethernet::IPV6 => ip::parse_v6(frame.payload).ok(),
        _ => None,
    }
}

/// The same in all engines of a host: no secret is in it, and nothing but a hint may depend on it.
fn mark(flow: &Flow) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let words = [
        flow.local.high,
        flow.local.low,
        flow.remote.high,
        flow.remote.low,
        u64::from(flow.ports),
    ];
    let mixed = words.into_iter().fold(0u64, |hash, word| {
        (hash ^ word).wrapping_mul(FACTOR).rotate_left(29)
    });
    mixed ^ mixed >> 32
}
