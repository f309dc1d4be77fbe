//! Ports at which programs listen that this process knows nothing of (SO_REUSEPORT, or another address of this
//! host): the kernel gives each of them its connections, so it gets the new ones.

use super::Relay;
use crate::sys::is_part_locked;

/// Between looks: each asks the kernel who listens.
const LOOK_US: u64 = 1_000_000;

impl Relay {
    /// Leaves new connections to the kernel while other programs listen too, and takes them again when none
    /// does any more.
    pub(super) fn look_at_others(&mut self) {
        self.others_us = self.shard.driven_us() + LOOK_US;
        let groups = self.listeners.values();
        let mut ports: Vec<u16> = groups.map(|group| group.at.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        let friends = self.exchange_listeners();
        for port in ports {
            let mut own = self.inodes_at(port);
            own.extend(&friends);
            let has_others = self.shard.others_listen(port, &own);
            let groups = self.listeners.values_mut();
            for group in groups.filter(|group| group.at.port() == port) {
                group.has_others = has_others;
            }
            self.share_port(port);
        }
    }

    /// Shows the programs that share the interface where this one listens, and returns where they listen.
    fn exchange_listeners(&self) -> Vec<u64> {
        let Some(crossing) = self.shard.crossing() else {
            return Vec::new();
        };
        let groups = self.listeners.values();
        let places = groups.flat_map(|group| &group.places);
        let own = places.filter_map(|place| self.places[*place].listener.as_ref());
        let inodes: Vec<u64> = own.map(|listener| listener.inode).collect();
        crossing.tell_listeners(&inodes);
        crossing.others_listeners(|owner| is_part_locked(self.lease.0, owner))
    }

    /// The sockets of this process, and of the processes that it shares them with, that listen at a port.
    fn inodes_at(&self, port: u16) -> Vec<u64> {
        let groups = self.listeners.values();
        let groups = groups.filter(|group| group.at.port() == port);
        let listeners = groups
            .flat_map(|group| &group.places)
            .filter_map(|place| self.places[*place].listener.as_ref());
        listeners.map(|listener| listener.inode).collect()
    }
}
