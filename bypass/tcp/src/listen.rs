//! Passive opens: listeners, half-open entries, SYN cookies (RFC 9293, 3.10.7.2; RFC 4987).

use crate::config::Config;
use crate::isn::Kept;
use crate::option::Settings;
use crate::slab::Slab;
use crate::timer::Wheel;
use crate::wire::ip::Addr;
use crate::wire::tcp::Flow;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// A socket that accepts connections.
pub struct Listener {
    /// Its address; unspecified for all of ours.
    pub addr: Addr,
    /// Its port.
    pub port: u16,
    /// `::` without IPv4.
    pub is_v6_only: bool,
    /// Connections that may wait to be accepted; as many half-open ones.
    pub backlog: u32,
    /// Connections that wait.
    pub queue: VecDeque<u32>,
    /// Connections that the caller has taken and keeps waiting itself.
    pub taken: u32,
    /// Half-open entries of this listener.
    pub half_open: u32,
    /// Which use of its place.
    pub generation: u32,
    /// It is open.
    pub is_open: bool,
    /// In the list of sockets with events.
    pub in_ready: bool,
    /// Options that its connections begin with.
    pub settings: Settings,
}

impl Listener {
    /// Whether no more connections may wait.
    pub fn is_full(&self) -> bool {
        (self.queue.len() as u32).saturating_add(self.taken) >= self.backlog
    }
}

/// All listeners of an engine.
pub struct Listeners {
    /// By number.
    pub slab: Slab<Listener>,
    by_port: BTreeMap<u16, Vec<u32>>,
}

impl Listeners {
    /// None.
    pub fn new() -> Listeners {
        Listeners {
            slab: Slab::new(1 << 20),
            by_port: BTreeMap::new(),
        }
    }

    /// Opens one; nothing when another has the address, or there are too many.
    pub fn open(&mut self, addr: Addr, port: u16, backlog: u32, is_v6_only: bool) -> Option<u32> {
        let others = self.by_port.entry(port).or_default();
        if others
            .iter()
            .any(|other| overlaps(&self.slab[*other], addr, is_v6_only))
        {
            return None;
        }
        let fresh = |generation| Listener {
            addr,
            port,
            is_v6_only,
            backlog: backlog.max(1),
            queue: VecDeque::new(),
            taken: 0,
            half_open: 0,
            generation,
            is_open: true,
            in_ready: false,
            settings: Settings::default(),
        };
        let index = self.slab.take(|| fresh(0))?;
        self.slab[index] = fresh(self.slab[index].generation.wrapping_add(1));
        others.push(index);
        Some(index)
    }

    /// Closes one.
    pub fn close(&mut self, index: u32) {
        let port = self.slab[index].port;
        self.slab[index].is_open = false;
        self.slab[index].generation = self.slab[index].generation.wrapping_add(1);
        if let Some(others) = self.by_port.get_mut(&port) {
            others.retain(|other| *other != index);
            if others.is_empty() {
                self.by_port.remove(&port);
            }
        }
        self.slab.give(index);
    }

    /// Whether there is one of this port, at whatever address.
    pub fn has(&self, port: u16) -> bool {
        let known = self.by_port.get(&port);
        known.is_some_and(|others| !others.is_empty())
    }

    /// The listener for a SYN to this address; one with the address itself comes first.
    pub fn find(&self, addr: Addr, port: u16) -> Option<u32> {
        let candidates = self.by_port.get(&port)?;
        let exact = candidates
            .iter()
            .find(|index| self.slab[**index].addr == addr);
        let any = || {
            candidates
                .iter()
                .find(|index| takes_any(&self.slab[**index], addr))
        };
        exact.or_else(any).copied()
    }

    /// Whether the port is taken by any listener.
    pub fn has_port(&self, port: u16) -> bool {
        let known = self.by_port.get(&port);
        known.is_some_and(|others| !others.is_empty())
    }
}

fn takes_any(listener: &Listener, addr: Addr) -> bool {
    let same_kind = listener.addr.is_v4() == addr.is_v4();
    let dual = !listener.addr.is_v4() && !listener.is_v6_only;
    listener.addr.is_unspecified() && (same_kind || dual)
}

fn overlaps(listener: &Listener, addr: Addr, is_v6_only: bool) -> bool {
    let other_takes_v4 = addr.is_v4() || !is_v6_only && addr.is_unspecified();
    let takes_v4 = listener.addr.is_v4() || !listener.is_v6_only && listener.addr.is_unspecified();
    listener.addr == addr
        || listener.addr.is_unspecified() && addr.is_unspecified() && takes_v4 && other_takes_v4
}

/// A connection of which only the SYN came.
#[derive(Clone, Copy, Default)]
pub struct HalfOpen {
    /// Addresses and ports.
    pub flow: Flow,
    /// The peer's initial number.
    pub irs: u32,
    /// Ours.
    pub iss: u32,
    /// The peer's timestamp.
    pub ts_recent: u32,
    /// Added to our clock.
    pub ts_offset: u32,
    /// Its listener.
    pub listener: u32,
    /// Which use of the listener's place.
    pub listener_generation: u32,
    /// The options that the SYN offers.
    pub kept: Kept,
    /// The SYN has timestamps.
    pub has_timestamps: bool,
    /// Timeouts of the SYN/ACK.
    pub retries: u8,
    /// The SYN/ACK was sent again, after a timeout or to a repeated SYN.
    pub is_repeated: bool,
    /// How often it was sent again after a timeout before anything had acknowledged it.
    pub losses: u8,
    /// It was acknowledged, and the connection waits: for a place in the accept queue, or for data.
    pub is_answered: bool,
    /// When the SYN came.
    pub opened_us: u64,
    /// When the SYN/ACK is sent again.
    pub resend_at_us: u64,
    /// When a segment out of the window was last answered; zero for never.
    pub challenged_us: u64,
}

/// All half-open connections of an engine.
pub struct HalfOpens {
    /// By number.
    pub slab: Slab<HalfOpen>,
    /// When their SYN/ACKs are sent again.
    pub wheel: Wheel,
    /// Since when cookies have been sent; an acknowledgment is looked at as one for two minutes.
    pub cookies_us: Option<u64>,
}

impl HalfOpens {
    /// None.
    pub fn new(config: &Config, now_us: u64) -> HalfOpens {
        HalfOpens {
            slab: Slab::new(config.half_open_max),
            wheel: Wheel::new(now_us),
            cookies_us: None,
        }
    }

    /// Whether cookies were sent lately.
    pub fn may_be_cookie(&self, now_us: u64) -> bool {
        self.cookies_us
            .is_some_and(|sent_us| now_us - sent_us < 120_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_its_own_comes_before_the_unspecified_one() {
        let mut listeners = Listeners::new();
        let (any, one) = (Addr::v4(0), Addr::v4(0x0a00_0001));
        let first = listeners.open(any, 80, 8, false).expect("free");
        let second = listeners.open(one, 80, 8, false).expect("free");
        assert_eq!(listeners.find(one, 80), Some(second));
        assert_eq!(listeners.find(Addr::v4(0x0a00_0002), 80), Some(first));
        assert_eq!(listeners.find(one, 81), None);
        assert_eq!(listeners.open(one, 80, 8, false), None);
        listeners.close(second);
        assert_eq!(listeners.find(one, 80), Some(first));
    }

    #[test]
    fn an_unspecified_ipv6_address_takes_ipv4_unless_set_otherwise() {
        let mut listeners = Listeners::new();
        let v6_any = Addr::default();
        let only = listeners.open(v6_any, 80, 8, true).expect("free");
        assert_eq!(listeners.find(Addr::v4(9), 80), None);
        listeners.close(only);
        let dual = listeners.open(v6_any, 80, 8, false).expect("free");
        assert_eq!(listeners.find(Addr::v4(9), 80), Some(dual));
        assert_eq!(listeners.open(Addr::v4(0), 80, 8, false), None);
    }
}
