//! The latest sockets that a process has left to the kernel, or refused, each with its reason.

use std::net::SocketAddr;
use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

use bypass_sys::address::SharedAddress;
use bypass_sys::clock;

use crate::{Reason, REASONS};

/// How many are kept.
pub const DECISIONS: usize = 256;

/// The call in which a socket was left to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Call {
    /// connect(2).
    Connect,
    /// listen(2).
    Listen,
    /// accept(2): the connection came by the kernel.
    Accept,
    /// Another one, before there was a connection.
    Other,
}

const CALLS: [&str; 4] = ["connect", "listen", "accept", "socket"];

/// One of them, as its writer knows it.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The call has failed, because the kernel is forbidden.
    pub has_failed: bool,
    /// See [`Call`].
    pub call: Call,
    /// The descriptor.
    pub fd: i32,
    /// The address that it is about: the target of a connect, the client of an accept, a listener's own.
    pub address: Option<SocketAddr>,
}

/// One of them, as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// When.
    pub unix_ns: u64,
    /// connect, listen, accept or socket.
    pub call: &'static str,
    /// The call has failed, because the kernel is forbidden.
    pub has_failed: bool,
    /// The descriptor.
    pub fd: i32,
    /// The target of a connect, the client of an accept, a listener's own address; empty where it is not known.
    pub address: String,
    /// One of [`REASONS`].
    pub reason: &'static str,
}

#[repr(C, align(64))]
struct Place {
    /// Twice the number of the decision and 1 while it is written, 2 afterwards.
    turn: AtomicU64,
    unix_ns: AtomicU64,
    call: AtomicU32,
    reason: AtomicU32,
    fd: AtomicU32,
    has_address: AtomicU32,
    has_failed: AtomicU32,
    address: SharedAddress,
}

/// See the module.
#[repr(C, align(128))]
pub(crate) struct Decisions {
    count: AtomicU64,
    places: [Place; DECISIONS],
}

impl Decisions {
    /// Adds one; the oldest goes.
    pub(crate) fn add(&self, reason: Reason, about: About) {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let place = &self.places[number as usize % DECISIONS];
        place.turn.store(2 * number + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        place.unix_ns.store(clock::unix_ns(), Ordering::Relaxed);
        place.call.store(about.call as u32, Ordering::Relaxed);
        place.reason.store(reason as u32, Ordering::Relaxed);
        place.fd.store(about.fd as u32, Ordering::Relaxed);
        let has_address = u32::from(about.address.is_some());
        place.has_address.store(has_address, Ordering::Relaxed);
        let has_failed = u32::from(about.has_failed);
        place.has_failed.store(has_failed, Ordering::Relaxed);
        if let Some(address) = about.address {
            place.address.store(address);
        }
        place.turn.store(2 * number + 2, Ordering::Release);
    }

    /// What is there, oldest first; one that is being written is left out.
    pub(crate) fn all(&self) -> Vec<Decision> {
        let count = self.count.load(Ordering::Acquire);
        let first = count.saturating_sub(DECISIONS as u64);
        (first..count)
            .filter_map(|number| self.read(number))
            .collect()
    }

    fn read(&self, number: u64) -> Option<Decision> {
        let place = &self.places[number as usize % DECISIONS];
        let is_whole =
            || place.turn.load(Ordering::Acquire) == number.wrapping_mul(2).wrapping_add(2);
        if !is_whole() {
            return None;
        }
        let address = match place.has_address.load(Ordering::Relaxed) {
            0 => String::new(),
            _ => place.address.load().to_string(),
        };
        let decision = Decision {
            unix_ns: place.unix_ns.load(Ordering::Relaxed),
            call: CALLS.get(place.call.load(Ordering::Relaxed) as usize)?,
            has_failed: place.has_failed.load(Ordering::Relaxed) != 0,
            fd: place.fd.load(Ordering::Relaxed) as i32,
            address,
            reason: REASONS.get(place.reason.load(Ordering::Relaxed) as usize)?,
        };
        fence(Ordering::Acquire);
        is_whole().then_some(decision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::only::Only;
    use crate::View;

    #[test]
    fn the_latest_are_kept_with_what_they_are_about() {
        let stats = Only::create("");
        let view = View::of(&stats);
        assert_eq!(view.decisions(), []);
        for number in 0..DECISIONS + 10 {
            let about = About {
                has_failed: false,
                call: Call::Connect,
                fd: number as i32,
                address: Some(([10, 0, 0, 1], 80).into()),
            };
            stats.decide(Reason::NotLocal, about);
        }
        let listen = About {
            has_failed: true,
            call: Call::Listen,
            fd: 3,
            address: None,
        };
        stats.decide(Reason::Sandbox, listen);
        let found = view.decisions();
        assert_eq!(found.len(), DECISIONS);
        let first = &found[0];
        assert_eq!(
            (first.fd, first.call, first.reason),
            (11, "connect", "not-local")
        );
        assert_eq!(first.address, "10.0.0.1:80");
        let last = found.last().expect("some");
        assert_eq!(
            (last.fd, last.call, last.address.as_str()),
            (3, "listen", "")
        );
        assert!(last.has_failed && !first.has_failed);
    }

    /// A hostile or damaged page shows nothing, and ends no reader.
    #[test]
    fn a_page_of_any_bytes_is_read() {
        let stats = Only::create("");
        let page = &stats.page().decisions;
        for (at, place) in page.places.iter().enumerate() {
            place.turn.store(2 * at as u64 + 2, Ordering::Relaxed);
            place.reason.store(u32::MAX - at as u32, Ordering::Relaxed);
        }
        for count in [1, 256, u64::MAX] {
            page.count.store(count, Ordering::Relaxed);
            assert_eq!(View::of(&stats).decisions(), []);
        }
    }
}
