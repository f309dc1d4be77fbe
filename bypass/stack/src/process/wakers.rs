//! Wakers: what a thread of this process sleeps on, and others write to.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

use bypass_sys::kernel;
use bypass_sys::sandbox::is_confined;
use bypass_sys::thread::thread;
use bypass_sys::waker::Waker;

use super::number::{is_started, next_waker, number};
use super::{namespace, pool, table};

/// Wakers that no thread uses now.
static IDLE: Mutex<Vec<Waker>> = Mutex::new(Vec::new());
/// The same, for wakers that block: a confined process sleeps on them by read, which every filter allows.
static BLOCKING: Mutex<Vec<Waker>> = Mutex::new(Vec::new());

/// When only this many descriptors are left, they are reserved for the program: the library takes none.
pub const LEFT_TO_PROGRAM: usize = 4;

/// Names that a waker tries.
const NAMES_TRIED: u32 = 8;

/// A waker under a free name. Any process of the network namespace can take names: names that are
/// taken are skipped. When descriptors are short, kept but unused ones are closed to make room.
pub fn new_waker() -> Result<Waker, i32> {
    if is_confined() {
        return Err(libc::EPERM);
    }
    if namespace::has_left() {
        // Nobody would find it by its name: who waits without one looks every millisecond.
        return Err(libc::EMFILE);
    }
    if !kernel::has_descriptors_left(LEFT_TO_PROGRAM) && pool::give_back() == 0 {
        return Err(libc::EMFILE);
    }
    let mut name = next_waker();
    for _ in 0..NAMES_TRIED {
        match Waker::create(number(), name) {
            Err(libc::EADDRINUSE) => {}
            Err(libc::EMFILE | libc::ENFILE) if pool::give_back() > 0 => {}
            made => {
                if let Ok(waker) = &made {
                    table::hide(waker.fd());
                }
                return made;
            }
        }
        name = kernel::random() as u32 & 0x7fff_ffff;
    }
    Err(libc::EADDRINUSE)
}

/// With a limit of no descriptors poll(2) takes none: EINVAL.
static MAY_POLL: AtomicBool = AtomicBool::new(true);

/// Whether a thread may sleep in poll on its waker.
#[inline]
pub fn may_poll() -> bool {
    MAY_POLL.load(Ordering::Relaxed)
}

/// Whether a thread sleeps by read: poll(2) is forbidden, by a filter or by the limit of descriptors.
pub fn are_read() -> bool {
    is_confined() || !may_poll()
}

/// The program may have changed its limit of descriptors.
pub fn limit_changed() {
    MAY_POLL.store(kernel::descriptor_limit() > 0, Ordering::Relaxed);
}

/// Before there may be no more descriptors: the next call that waits finds a waker, one that sleeps by
/// read too.
pub fn provide_wakers() {
    if !is_started() {
        return;
    }
    drop(Borrowed::take());
    if let Ok(mut blocking) = BLOCKING.lock() {
        if blocking.is_empty() {
            let waker = new_waker().ok();
            blocking.extend(waker.filter(|one| one.make_blocking().is_ok()));
        }
    }
}

/// A waker for the length of one call.
pub struct Borrowed {
    waker: Option<Waker>,
    home: &'static Mutex<Vec<Waker>>,
    /// The process whose waker it is: a handler that interrupts the call may make a child.
    owner: u64,
}

impl Borrowed {
    /// Takes one that is not ringing.
    pub fn take() -> Result<Self, i32> {
        let idle = IDLE.lock().ok().and_then(|mut idle| idle.pop());
        let waker = match idle {
            Some(waker) => waker,
            None => new_waker()?,
        };
        waker.drain();
        Ok(Self::of(Some(waker), &IDLE))
    }

    /// One that blocks, for a sleep by [`Self::wait`]; it may have rung for another's sake. None where
    /// there is none: in a process that is not confined, or in the second thread of one.
    pub fn take_blocking() -> Option<Self> {
        let waker = BLOCKING.lock().ok()?.pop()?;
        Some(Self::of(Some(waker), &BLOCKING))
    }

    fn of(waker: Option<Waker>, home: &'static Mutex<Vec<Waker>>) -> Self {
        let owner = number();
        Self { waker, home, owner }
    }

    /// Sleeps on one that blocks until it rings, or for a little while.
    pub fn wait(&self) -> Result<(), i32> {
        self.waker.as_ref().map_or(Ok(true), Waker::wait).map(drop)
    }

    /// One that never rings, where none can be had: who sleeps on it must bound the sleep.
    pub fn none() -> Self {
        Self::of(None, &IDLE)
    }

    /// Whether it is such a one.
    pub fn is_none(&self) -> bool {
        self.waker.is_none()
    }

    /// Its descriptor.
    pub fn fd(&self) -> i32 {
        self.waker.as_ref().map_or(-1, Waker::fd)
    }

    /// Its number, where it is one that rings.
    pub fn ringing(&self) -> Option<u32> {
        self.waker.as_ref().map(Waker::number)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.waker.as_ref().map_or(0, Waker::number)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let Some(waker) = self.waker.take() else {
            return;
        };
        if self.owner != number() {
            // Its name is the parent's: no ring would wake a call here that slept on it.
            table::show(waker.fd());
        } else if let Ok(mut idle) = self.home.lock() {
            idle.push(waker);
        }
    }
}

/// Sleeps on a waker, after which the caller looks at everything that may have rung it: what this thread finds itself
/// as it wakes needs no ring.
pub fn sleeping_on<T>(number: Option<u32>, sleep: impl FnOnce() -> T) -> T {
    let place = &thread().sleeps_on;
    let before = place.swap(number.map_or(0, |number| number + 1), Ordering::Relaxed);
    let result = sleep();
    place.store(before, Ordering::Relaxed);
    result
}

/// Whether the calling thread looks at what rings this waker anyway.
pub fn is_own(number: u32) -> bool {
    thread().sleeps_on.load(Ordering::Relaxed) == number + 1
}

/// In a forked child: the wakers are the parent's.
pub fn forget() {
    for kept in [&IDLE, &BLOCKING] {
        let wakers = kept.lock().map(|mut kept| std::mem::take(&mut *kept));
        for waker in wakers.unwrap_or_default() {
            table::show(waker.fd());
        }
    }
}

/// Locks the wakers across a fork.
pub fn hold() -> impl Sized {
    (IDLE.lock().ok(), BLOCKING.lock().ok())
}
