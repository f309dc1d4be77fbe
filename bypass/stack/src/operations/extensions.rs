//! The answers of Onload's extensions about a descriptor.

use core::sync::atomic::Ordering;

use crate::process::table::{self, Kind};
use crate::sockets::{self, State};

/// The state of an accelerated socket as a number, 0 of a UDP socket; None when the kernel handles the descriptor.
pub fn state(fd: i32) -> Option<i32> {
    let entry = table::get(fd);
    match entry.kind() {
        Kind::Unbound | Kind::Listener | Kind::Connected => {
            let word = sockets::get(entry.index()).flags.load(Ordering::Relaxed);
            Some(State::of(word) as i32)
        }
        Kind::Datagram => Some(0),
        _ => None,
    }
}

/// Whether a socket could be moved from one stack to another: all accelerated ones of a process are in the same.
pub fn is_movable(fd: i32) -> bool {
    matches!(table::get(fd).kind(), Kind::Unbound | Kind::Connected)
}
