//! Wakers: what a thread of this process sleeps on, and others write to.

use std::sync::Mutex;

use bypass_sys::kernel;
use bypass_sys::sandbox::is_confined;
use bypass_sys::waker::Waker;

use super::number::{is_started, next_waker, number};
use super::{pool, table};

/// Wakers that no thread uses now.
static IDLE: Mutex<Vec<Waker>> = Mutex::new(Vec::new());

/// Names that a waker tries.
const NAMES_TRIED: u32 = 8;

/// A waker under a name that is free. Anybody of the network namespace can take names: one that is
/// taken is passed over. When descriptors are short, those that are only kept are given up for it.
pub fn new_waker() -> Result<Waker, i32> {
    if is_confined() {
        return Err(libc::EPERM);
    }
    let mut name = next_waker();
    for _ in 0..NAMES_TRIED {
        match Waker::create(number(), name) {
            Err(libc::EADDRINUSE) => {}
            Err(libc::EMFILE | libc::ENFILE) if pool::empty() > 0 => {}
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

/// Before there may be no more descriptors: the next call that waits finds a waker.
pub fn provide_waker() {
    if is_started() {
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
