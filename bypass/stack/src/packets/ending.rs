//! The end of a process: what it has written is delivered, as the kernel would, but not for ever.

use core::time::Duration;

use bypass_sys::clock::now_ns;

use super::{drive, is_active, lock, poll, relays};
use crate::process::deadline::{shorter, Deadline};
use crate::process::deferral::asleep;
use crate::stream::Lingering;

/// How long a process stays for data that was sent and not acknowledged while no progress is made...
const LINGER_US: u64 = 10_000_000;
/// ...and in total.
const LINGER_NS_MAX: u64 = 120_000_000_000;
const LOOK: Duration = Duration::from_millis(1);

/// SO_LINGER with a time: waits until the other host has everything and the end, the time is over, or a
/// signal comes. The connection then goes on without the program.
pub fn linger(lingering: &Lingering) {
    let deadline = Deadline::after(Some(Duration::from_secs(lingering.seconds.into())));
    drive();
    while lingering.is_waiting() && deadline.left() != Some(Duration::ZERO) {
        let wait = shorter(deadline.left(), Some(LOOK));
        if asleep(|| poll(&mut [], wait, None)).is_err() {
            return;
        }
    }
}

/// How long others' connections may be still before they are given up.
const STILL_US: u64 = 10_000_000;

/// At exit: closes every connection that no other process has, sends what is left, and goes on as long as
/// other processes have connections that come through this one and on which something moves.
pub extern "C" fn finish() {
    if !is_active() {
        return;
    }
    let start = now_ns();
    loop {
        let mut has_others = false;
        let mut is_sending = false;
        for relay in relays() {
            let mut relay = lock(relay);
            relay.follow(&[]);
            relay.drive();
            let left = relay.close_own();
            let is_needed = left.has_others || relay.is_being_reached();
            has_others |= is_needed && relay.still_us() < STILL_US;
            let is_waiting = left.has_unsent || relay.is_sending();
            let still_us = relay.still_us().min((now_ns() - start) / 1000);
            is_sending |= is_waiting && still_us < LINGER_US;
        }
        let is_late = now_ns() - start > LINGER_NS_MAX;
        if !has_others && (!is_sending || is_late) {
            relays().iter().for_each(|relay| lock(relay).reset_all());
            return;
        }
        let _ = poll(&mut [], Some(LOOK), None);
    }
}
