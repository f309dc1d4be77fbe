//! Waiting of one thread: spin as the options say, then sleep on a waker and on kernel objects.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Mutex;

use bypass_shm::doorbell::Sleeper;
use bypass_stats::Counter;
use bypass_sys::clock::now_ns;
use bypass_sys::kernel;
use bypass_sys::sandbox::is_confined;
use bypass_sys::waker::Waker;

use crate::deferral::asleep;
use crate::peer::Peer;
use crate::{packets, pool, process, table};
use bypass_sys::thread::thread;

/// Wakers that no thread uses now.
static IDLE: Mutex<Vec<Waker>> = Mutex::new(Vec::new());
/// Names that a waker tries.
const NAMES_TRIED: u32 = 8;
/// Longest sleep when another thread sits in the place where we would be woken.
const CROWDED: Duration = Duration::from_millis(1);

/// A waker under a name that is free. Anybody of the network namespace can take names: one that is
/// taken is passed over. When descriptors are short, those that are only kept are given up for it.
pub fn new_waker() -> Result<Waker, i32> {
    if is_confined() {
        return Err(libc::EPERM);
    }
    let mut number = process::next_waker();
    for _ in 0..NAMES_TRIED {
        match Waker::create(process::number(), number) {
            Err(libc::EADDRINUSE) => {}
            Err(libc::EMFILE | libc::ENFILE) if pool::empty() > 0 => {}
            made => {
                if let Ok(waker) = &made {
                    table::hide(waker.fd());
                }
                return made;
            }
        }
        number = kernel::random() as u32 & 0x7fff_ffff;
    }
    Err(libc::EADDRINUSE)
}

/// Before there may be no more descriptors: the next call that waits finds a waker.
pub fn provide_waker() {
    if process::is_started() {
        drop(Borrowed::take());
    }
}

/// A waker for the length of one call.
pub struct Borrowed(Option<Waker>);

impl Borrowed {
    /// Takes one that is not ringing.
    pub fn take() -> Result<Self, i32> {
        let idle = IDLE.lock().ok().and_then(|mut idle| idle.pop());
        let waker = match idle {
            Some(waker) => waker,
            None => new_waker()?,
        };
        waker.drain();
        Ok(Self(Some(waker)))
    }

    /// One that never rings, where none can be had: who sleeps on it must bound the sleep.
    pub fn none() -> Self {
        Self(None)
    }

    /// Whether it is such a one.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Its descriptor.
    pub fn fd(&self) -> i32 {
        self.0.as_ref().map_or(-1, Waker::fd)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.0.as_ref().map_or(0, Waker::number)
    }

    /// How peers find us in a segment.
    pub fn sleeper(&self, peer: &Peer) -> Sleeper {
        Sleeper {
            process: peer.process_index() as u32,
            waker: self.number(),
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let (Some(waker), Ok(mut idle)) = (self.0.take(), IDLE.lock()) {
            idle.push(waker);
        }
    }
}

/// In a forked child: the wakers are the parent's.
pub fn forget() {
    if let Ok(mut idle) = IDLE.lock() {
        for waker in idle.drain(..) {
            table::show(waker.fd());
        }
    }
}

/// Locks the wakers across a fork.
pub fn hold() -> Option<std::sync::MutexGuard<'static, Vec<Waker>>> {
    IDLE.lock().ok()
}

/// When a wait ends at the latest: at an instant, or at a signal after its beginning. A call that waits
/// in several rounds has one, so that a signal which comes as it wakes for nothing is not forgotten.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    at_ns: Option<u64>,
    interrupts: u32,
    signals: u32,
}

impl Deadline {
    /// From now; None: never.
    pub fn after(wait: Option<Duration>) -> Self {
        let wait_ns = wait.map(|wait| u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        Self {
            at_ns: wait_ns.map(|ns| now_ns().saturating_add(ns)),
            interrupts: interrupts(),
            signals: signals(),
        }
    }

    /// Whether a handler has run since the wait began after which the call is not to go on: one without
    /// SA_RESTART, or any where the wait has an end (signal(7) on socket timeouts).
    pub fn is_interrupted(self) -> bool {
        interrupts() != self.interrupts || (self.at_ns.is_some() && signals() != self.signals)
    }

    /// Time left; Some(0) when it is over, None when it never is.
    pub fn left(self) -> Option<Duration> {
        self.at_ns
            .map(|at| Duration::from_nanos(at.saturating_sub(now_ns())))
    }

    /// Whether it has passed at `now`.
    pub fn is_over(self, now: u64) -> bool {
        self.at_ns.is_some_and(|at| now >= at)
    }
}

/// The shorter of a time left and a bound.
pub fn shorter(left: Option<Duration>, bound: Option<Duration>) -> Option<Duration> {
    match (left, bound) {
        (Some(left), Some(bound)) => Some(left.min(bound)),
        (left, bound) => left.or(bound),
    }
}

/// Counts the signals whose handlers have run in this thread.
pub fn signals() -> u32 {
    thread().signals.load(Ordering::Relaxed)
}

/// Counts those without SA_RESTART.
pub fn interrupts() -> u32 {
    thread().interrupts.load(Ordering::Relaxed)
}

/// Spins up to `spin_ns` while nothing is ready; true when something is.
pub fn spin(spin_ns: u64, deadline: Deadline, mut is_ready: impl FnMut() -> bool) -> bool {
    if spin_ns == 0 {
        return false;
    }
    let (start, before) = (now_ns(), signals());
    process::count(Counter::Spins, 1);
    let mut rounds = 0u32;
    let found = loop {
        packets::drive();
        if is_ready() {
            break true;
        }
        core::hint::spin_loop();
        rounds += 1;
        if rounds.is_multiple_of(16) {
            let now = now_ns();
            if now - start > spin_ns || deadline.is_over(now) || signals() != before {
                break false;
            }
        }
    };
    process::count(Counter::SpinNs, now_ns() - start);
    found
}

/// What a blocked call waits for on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// Bytes or their end.
    Bytes,
    /// Space.
    Room,
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
    let Ok(waker) = Borrowed::take() else {
        // No descriptor for a waker: look again soon, as a read knows no such error.
        return nap(deadline);
    };
    let meta = &peer.segment.slot(slot).meta;
    let place = match what {
        For::Bytes => &meta.sleeper_read[peer.side],
        For::Room => &meta.sleeper_write[peer.side],
    };
    let sleeper = waker.sleeper(peer);
    let is_alone = sleeper.register(place) && !peer.segment.has_silent(1 - peer.side);
    let bound = (!is_alone).then_some(CROWDED);
    bypass_sys::barrier::heavy();
    packets::drive();
    let result = if is_ready() {
        Ok(0)
    } else {
        sleep(&waker, shorter(deadline.left(), bound))
    };
    sleeper.withdraw(place);
    result.map(|_| ())
}

fn nap(deadline: Deadline) -> Result<(), i32> {
    asleep(|| packets::poll(&mut [], shorter(deadline.left(), Some(CROWDED)), None).map(|_| ()))
}

fn sleep(waker: &Borrowed, wait: Option<Duration>) -> Result<usize, i32> {
    process::count(Counter::Sleeps, 1);
    let mut fds = [libc::pollfd {
        fd: waker.fd(),
        events: libc::POLLIN,
        revents: 0,
    }];
    asleep(|| packets::poll(&mut fds, wait, None))
}
