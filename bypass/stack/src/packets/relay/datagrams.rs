//! Datagrams of this engine, which need no segment.

use std::net::{IpAddr, SocketAddr};

use bypass_shard::tcp::Way;

use super::Relay;

impl Relay {
    /// Takes the datagrams of a port.
    pub fn claim_datagrams(&mut self, port: u16) {
        self.shard.claim_datagrams(port);
    }

    /// One claim less.
    pub fn release_datagrams(&mut self, port: u16) {
        self.shard.release_datagrams(port);
    }

    /// Whether the interface has an address whose frames are taken.
    pub fn has_address(&self, ip: IpAddr) -> bool {
        !self.is_gone() && self.shard.has_address(ip)
    }

    /// See [`bypass_shard::Shard::way`].
    pub fn way(&self, from: (Option<IpAddr>, u16), to: SocketAddr) -> Option<(Way, usize)> {
        let way = || self.shard.way(from, to);
        (!self.is_gone()).then(way).flatten()
    }

    /// Whether the datagram was sent.
    pub fn send_datagram(&mut self, way: &mut Way, pieces: &[&[u8]]) -> bool {
        let is_sent = self.shard.send_datagram(way, pieces) == Ok(true);
        self.hurry_service();
        is_sent
    }
}
