//! Spinning, and sleeping until the other side of a connection rings.

use core::time::Duration;

use bypass_stats::Counter;

use crate::packets;
use crate::peer::{Asleep, Notice, Peer};
use crate::process::deadline::{shorter, signals, Deadline};
use crate::process::deferral::asleep;
use crate::process::spin_clock::SpinClock;
use crate::process::wakers::{self, Borrowed};
use crate::process::{self, Polling};
use crate::stream::For;

/// Longest sleep when another thread sits in the place where we would be woken.
const CROWDED: Duration = Duration::from_millis(1);

/// Looks from one round of the engines to the next: a round takes lines from the core that fills their rings, and slows it
/// when there is nothing else between two.
const DRIVE_LOOKS: u32 = 4;

/// Spins up to `spin_ns`, or until another thread gets the core, while nothing is ready; true when something is.
pub fn spin(spin_ns: u64, deadline: Deadline, mut is_ready: impl FnMut() -> bool) -> bool {
    if spin_ns == 0 {
        return false;
    }
    let (mut clock, before) = (SpinClock::begin(), signals());
    process::count(Counter::Spins, 1);
    let mut rounds = 0u32;
    let found = loop {
        match rounds {
            0 => packets::drive(),
            rounds if rounds.is_multiple_of(DRIVE_LOOKS) => packets::drive_idle(),
            _ => {}
        }
        if is_ready() {
            break true;
        }
        core::hint::spin_loop();
        rounds += 1;
        if rounds.is_multiple_of(16) {
            let now = clock.look();
            if clock.is_over(spin_ns) || deadline.is_over(now) || signals() != before {
                break false;
            }
        }
    };
    process::count(Counter::SpinNs, clock.end());
    found
}

/// Sleeps until the peer rings or the deadline passes. `is_ready` looks without the sleeper's
/// registration being missed. The socket must not be locked by the caller.
pub fn sleep_on(
    peer: &Peer,
    slot: usize,
    what: For,
    deadline: Deadline,
    mut is_ready: impl FnMut() -> bool,
) -> Result<(), i32> {
    let by_read = wakers::are_read().then(Borrowed::take_blocking).flatten();
    let sleeps_by_read = by_read.is_some();
    let by_poll = || wakers::may_poll().then(Borrowed::take)?.ok();
    let Some(waker) = by_read.or_else(by_poll) else {
        // No waker that could be slept on: look again soon, as a read knows no such error.
        return nap(deadline);
    };
    let awaits = match what {
        For::Bytes => Notice::Bytes,
        For::Room => Notice::Room,
    };
    let own = Asleep {
        slot,
        awaits,
        waker: waker.number(),
    };
    let why = if !peer.fall_asleep(own) {
        Some(Polling::Shared)
    } else {
        let is_confined = peer.segment.has_silent(1 - peer.side);
        is_confined.then_some(Polling::Confined)
    };
    let bound = why.map(|_| CROWDED);
    bypass_sys::barrier::heavy();
    packets::drive();
    let result = if is_ready() {
        Ok(0)
    } else if sleeps_by_read {
        process::count_sleep(Some(Polling::Confined));
        asleep(|| waker.wait().map(|()| 0))
    } else {
        process::count_sleep(why);
        sleep(&waker, shorter(deadline.left(), bound))
    };
    peer.wake_up(own);
    result.map(|_| ())
}

fn nap(deadline: Deadline) -> Result<(), i32> {
    process::count_sleep(Some(Polling::NoWaker));
    asleep(|| packets::poll(&mut [], shorter(deadline.left(), Some(CROWDED)), None).map(|_| ()))
}

fn sleep(waker: &Borrowed, wait: Option<Duration>) -> Result<usize, i32> {
    let mut fds = [libc::pollfd {
        fd: waker.fd(),
        events: libc::POLLIN,
        revents: 0,
    }];
    asleep(|| packets::poll(&mut fds, wait, None))
}
