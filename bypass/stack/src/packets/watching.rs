//! Sleeping while an engine has to be looked after: its descriptors and timers are part of the sleep.

use core::time::Duration;

use bypass_sys::kernel;

use super::relays::{self, lock, Place};
use super::{drive, holders, is_active, look, look_at_once, pause};
use crate::process::deadline::{shorter, signals};
use crate::process::deferral::inside;
use crate::process::wakers;

/// Descriptors of one engine: device, news of the network, of its policies, waker.
const OF_ENGINE: usize = 4;
/// Engines that one sleep watches.
pub const ENGINES_MAX: usize = 8;

/// What a sleep watches besides.
pub struct Watch {
    fds: [libc::pollfd; OF_ENGINE * ENGINES_MAX],
    /// Whose they are.
    watched: [Option<&'static Place>; ENGINES_MAX],
    count: usize,
    bound: Option<Duration>,
    is_of_service: bool,
    /// It is looked for queues that this process could have meanwhile.
    looks: bool,
}

/// Before a sleep, after the last look at what is waited for: prepares the engines to wake it. None:
/// there is something to do already, or nothing to watch at all.
pub fn watch() -> Option<Watch> {
    watch_for(false)
}

/// The same for the service thread, which other threads wake when they leave something here.
pub fn watch_for_service() -> Option<Watch> {
    let watch = watch_for(true);
    if watch.is_none() {
        service_is_awake();
    }
    watch
}

fn service_is_awake() {
    relays::each(|relay| relay.service_sleeps(false));
}

fn watch_for(is_of_service: bool) -> Option<Watch> {
    if !is_active() {
        return None;
    }
    let mut watch = Watch {
        fds: [polled(-1); OF_ENGINE * ENGINES_MAX],
        watched: [None; ENGINES_MAX],
        count: 0,
        bound: None,
        is_of_service,
        looks: false,
    };
    for place in relays::places() {
        let mut locked = lock(place);
        let alive = locked.as_deref_mut().filter(|relay| !relay.is_gone());
        let (Some(relay), true) = (alive, watch.count < ENGINES_MAX) else {
            continue;
        };
        if relay.arm() {
            return None;
        }
        let at = watch.count * OF_ENGINE;
        for (polled, fd) in watch.fds[at..].iter_mut().zip(relay.poll_fds()) {
            polled.fd = fd;
        }
        watch.watched[watch.count] = Some(*place);
        watch.count += 1;
        watch.bound = shorter(watch.bound, relay.wait_us().map(Duration::from_micros));
        if is_of_service {
            relay.service_sleeps(true);
        }
    }
    Some(watch)
}

impl Watch {
    /// The descriptors.
    pub fn fds(&self) -> &[libc::pollfd] {
        &self.fds[..self.count * OF_ENGINE]
    }

    /// The same with looks for queues, for which only this thread is woken.
    pub fn looking(self) -> Self {
        Self {
            looks: true,
            ..self
        }
    }

    /// No longer than this.
    pub fn bound(&self) -> Option<Duration> {
        self.bound
    }

    /// After the sleep, with the descriptors as poll(2) has left them.
    pub fn done(&self, fds: &[libc::pollfd]) {
        if self.is_of_service {
            service_is_awake();
        }
        let watched = self.watched.iter().flatten();
        for (place, fds) in watched.zip(fds.chunks(OF_ENGINE)) {
            if fds.iter().skip(1).any(|one| one.revents != 0) {
                if let Some(relay) = lock(place).as_deref_mut() {
                    relay.has_news();
                }
            }
        }
        drive();
    }

    /// ppoll(2) of `own` besides.
    pub fn poll(
        &self,
        own: &mut [libc::pollfd],
        wait: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, i32> {
        let mut all: Vec<libc::pollfd> = own.iter().chain(self.fds()).copied().collect();
        let result = self.sleep(&mut all, shorter(wait, self.bound), mask);
        let (first, rest) = all.split_at(own.len());
        own.copy_from_slice(first);
        inside(|| self.done(rest));
        result
    }

    fn sleep(
        &self,
        fds: &mut Vec<libc::pollfd>,
        wait: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, i32> {
        if !self.looks {
            return kernel::poll(fds, wait, mask);
        }
        let (count, mut left) = (fds.len(), wait);
        loop {
            fds.truncate(count);
            fds.extend(holders::fds().into_iter().map(polled));
            let pause = pause();
            let result = kernel::poll(fds, shorter(left, Some(pause)), mask);
            if holders::have_ended(&fds[count..]) {
                look_at_once();
            }
            left = left.map(|left| left.saturating_sub(pause));
            if result != Ok(0) || look() || left.is_some_and(|left| left.is_zero()) {
                return result;
            }
        }
    }
}

fn polled(fd: i32) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// ppoll(2) that looks after the engines: a sleep of `own` that may end early.
pub fn poll(
    own: &mut [libc::pollfd],
    wait: Option<Duration>,
    mask: Option<u64>,
) -> Result<usize, i32> {
    if !is_active() {
        return kernel::poll(own, wait, mask);
    }
    // A thread that is about to sleep takes signals at once: not with an engine locked that the handler
    // may use. One that was put off has run when this is over, and the sleep ends before it has begun.
    let before = signals();
    let watch = inside(|| {
        // What is found now must ring: no thread looks once more before the sleep.
        wakers::sleeping_on(None, || {
            drive();
            watch()
        })
    });
    if signals() != before {
        return Err(libc::EINTR);
    }
    match watch {
        Some(watch) => watch.poll(own, wait, mask),
        None => {
            let result = kernel::poll(own, Some(Duration::ZERO), mask);
            inside(drive);
            result
        }
    }
}
