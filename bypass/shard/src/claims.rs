//! Ports that shards of one interface take, counted: several shards may listen on one port.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};

use bypass_xdp::{Steering, Transport};

/// The steering of an interface with the number of claims of each port.
#[derive(Debug)]
pub struct Claims {
    steering: Steering,
    counts: Mutex<HashMap<u16, u32>>,
}

impl Claims {
    /// Nothing is claimed through it yet.
    pub fn new(steering: Steering) -> Self {
        let counts = Mutex::default();
        Self { steering, counts }
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<u16, u32>> {
        self.counts
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// One more claim of a TCP port.
    pub fn claim(&self, port: u16) {
        *self.counts().entry(port).or_insert(0) += 1;
        self.steering.claim(Transport::Tcp, port);
    }

    /// One claim less; with the last one the port is the kernel's again.
    pub fn release(&self, port: u16) {
        let mut counts = self.counts();
        let Some(count) = counts.get_mut(&port) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            counts.remove(&port);
            self.steering.release(Transport::Tcp, port);
        }
    }

    /// An address of the interface; false when it must stay the kernel's.
    pub fn add_address(&self, ip: IpAddr) -> bool {
        self.steering.add_address(ip)
    }

    /// An address that the interface has lost.
    pub fn remove_address(&self, ip: IpAddr) {
        self.steering.remove_address(ip);
    }

    /// The program and its tables.
    pub fn steering(&self) -> &Steering {
        &self.steering
    }
}
