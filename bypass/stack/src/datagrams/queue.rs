//! Datagrams that wait for their receiver.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// Overhead (sk_buff) that the kernel counts per datagram besides its bytes, so that SO_RCVBUF means the same here.
const OVERHEAD: usize = 768;

/// What is known of a datagram that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Address of the sender.
    pub source: SocketAddr,
    /// The address that it was sent to.
    pub destination: IpAddr,
    /// The interface by which it came.
    pub link: u32,
    /// The byte of DSCP and ECN.
    pub traffic_class: u8,
    /// Time to live, or hop limit.
    pub hops: u8,
    /// Its bytes.
    pub length: usize,
}

/// A datagram that was received, and the ancillary data that the socket requests.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// What is known of it.
    pub received: Received,
    /// [`super::control`].
    pub told: u32,
    /// AF_INET or AF_INET6: the socket's.
    pub family: i32,
}

/// See the module. The bytes of all lie behind each other.
pub struct Queue {
    waiting: VecDeque<Received>,
    bytes: VecDeque<u8>,
    limit: usize,
}

impl Queue {
    /// Without room.
    pub const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: VecDeque::new(),
            limit: 0,
        }
    }

    /// Room for so many bytes.
    pub fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Adds one; false when the queue is full. As in the kernel, a datagram that waits alone may be longer.
    pub fn put(&mut self, received: Received, payload: &[u8]) -> bool {
        let used = self.bytes.len() + (self.waiting.len() + 1) * OVERHEAD;
        if used > self.limit && !self.waiting.is_empty() {
            return false;
        }
        self.bytes.extend(payload);
        self.waiting.push_back(received);
        true
    }

    /// The one that waits first.
    pub fn first(&self) -> Option<Received> {
        self.waiting.front().copied()
    }

    /// Its bytes.
    pub fn bytes_of(&self, first: &Received) -> [&[u8]; 2] {
        let (front, back) = self.bytes.as_slices();
        let in_front = front.len().min(first.length);
        let rest = first.length - in_front;
        [&front[..in_front], &back[..rest.min(back.len())]]
    }

    /// It is taken.
    pub fn drop_first(&mut self) {
        if let Some(first) = self.waiting.pop_front() {
            self.bytes.drain(..first.length);
        }
    }
}
