//! epoll_wait: look, spin, sleep.

use bypass_shm::clock::{ticks, ticks_in};

use super::*;

/// The kernel's part of a set is looked at this often while user-level events keep coming.
const KERNEL_LOOK_US: u64 = 20;
/// Looks in a row before the clock is read: about a microsecond.
const LOOKS: u32 = 16;
/// Members without doorbells are looked at this often.
const SCAN: Duration = Duration::from_millis(1);
/// After so many spins in a row that found nothing, short spins are left out...
const FRUITLESS_MAX: u32 = 8;
/// ...but for one in so many.
const FRUITLESS_RETRY: u32 = 32;
/// Spins longer than this are the user's wish to burn the core: never left out.
const SHORT_SPIN_NS: u64 = 1_000_000;

/// epoll_pwait2(2) on a set of ours.
pub fn wait(
    epoll: i32,
    out: &mut [libc::epoll_event],
    timeout: Option<Duration>,
    mask: Option<u64>,
) -> Outcome {
    let entry = table::get(epoll);
    match entry.kind() {
        Kind::Epoll => {}
        Kind::Pooled | Kind::Internal => return Outcome::Error(libc::EBADF),
        Kind::Kernel => return Outcome::Kernel,
        _ => return Outcome::Error(libc::EINVAL),
    }
    if out.is_empty() {
        return Outcome::Error(libc::EINVAL);
    }
    service::ensure();
    let set = &SETS[entry.index()];
    if timeout == Some(Duration::ZERO) {
        return once(set, entry.index(), epoll, out).map_or_else(Outcome::Error, done);
    }
    let before = wait::signals();
    if set.members.load(Ordering::SeqCst) > 0 {
        let found = look(set, entry.index(), epoll, out, false);
        if found > 0 {
            return done(found);
        }
    }
    let mut deadline = None;
    loop {
        if let Some(found) = spin(set, entry.index(), epoll, out, &mut deadline, timeout) {
            return done(found);
        }
        let deadline = *deadline.get_or_insert_with(|| Deadline::after(timeout));
        if wait::signals() != before {
            return Outcome::Error(libc::EINTR);
        }
        match sleep(set, entry.index(), epoll, out, deadline, mask) {
            Ok(0) if deadline.left() != Some(Duration::ZERO) => {}
            Ok(found) => return done(found),
            Err(error) => return Outcome::Error(error),
        }
    }
}

fn done(found: usize) -> Outcome {
    Outcome::Done(found as isize)
}

/// User-level events now, and the kernel's when it is time to look there.
fn look(
    set: &Set,
    number: usize,
    epoll: i32,
    out: &mut [libc::epoll_event],
    is_kernel_due: bool,
) -> usize {
    let mut guard = set.lock();
    guard.as_mut().map_or(0, |inner| {
        inner.look(set, number, epoll, out, is_kernel_due)
    })
}

impl Inner {
    fn look(
        &mut self,
        set: &Set,
        number: usize,
        epoll: i32,
        out: &mut [libc::epoll_event],
        is_kernel_due: bool,
    ) -> usize {
        let has_kernel =
            set.kernel_members.load(Ordering::Relaxed) > 0 || !self.listeners.is_empty();
        let share = if has_kernel {
            out.len().div_ceil(4).min(out.len() - 1)
        } else {
            0
        };
        self.drain(number);
        let mut found = self.collect(&mut out[..], share);
        if set.is_watched.load(Ordering::Relaxed) {
            if let Some(waker) = &self.waker {
                waker.drain();
            }
            self.rearm(set);
        }
        if !has_kernel || found == out.len() {
            return found;
        }
        let now = ticks();
        if is_kernel_due || now.wrapping_sub(self.polled) >= ticks_in(KERNEL_LOOK_US) {
            self.polled = now;
            process::count(Counter::KernelPolls, 1);
            let rest = &mut out[found..];
            let count = kernel::epoll_wait(epoll, rest, Some(Duration::ZERO), None).unwrap_or(0);
            found += self.without_waker(&mut rest[..count]);
        }
        found
    }

    /// Whether a [`look`](Self::look) could find something: a few loads of lines that are ours
    /// until somebody rings.
    fn is_worth_a_look(&self, set: &Set) -> bool {
        let has_kernel = || {
            (set.kernel_members.load(Ordering::Relaxed) > 0 || !self.listeners.is_empty())
                && ticks().wrapping_sub(self.polled) >= ticks_in(KERNEL_LOOK_US)
        };
        !self.ready.is_empty()
            || !self.scanned.is_empty()
            || self.is_ringing()
            || self
                .listeners
                .iter()
                .any(|(_, listener, seen)| *seen != listener.generation() || listener.has_waiting())
            || has_kernel()
            || set.is_watched.load(Ordering::Relaxed)
    }
}

/// A wait that may not wait.
fn once(set: &Set, number: usize, epoll: i32, out: &mut [libc::epoll_event]) -> Result<usize, i32> {
    let found = look(set, number, epoll, out, true);
    let no_kernel = set.kernel_members.load(Ordering::Relaxed) <= 0;
    if found == 0 && no_kernel && !set.has_listeners.load(Ordering::Relaxed) {
        // Nothing of the kernel's in the set; ask it only whether the set is still there.
        return kernel::epoll_wait(epoll, out, Some(Duration::ZERO), None).map(|count| {
            let guard = set.lock();
            guard
                .as_ref()
                .map_or(count, |inner| inner.without_waker(&mut out[..count]))
        });
    }
    Ok(found)
}

fn spin(
    set: &Set,
    number: usize,
    epoll: i32,
    out: &mut [libc::epoll_event],
    deadline: &mut Option<Deadline>,
    timeout: Option<Duration>,
) -> Option<usize> {
    let settings = process::settings();
    let spin_ns = settings.spin_usec * 1000;
    let is_idle = set.members.load(Ordering::Relaxed) == 0;
    if !settings.epoll_spin || spin_ns == 0 || is_idle {
        return None;
    }
    if spin_ns < SHORT_SPIN_NS && !is_worth_spinning(set) {
        return None;
    }
    process::count(Counter::Spins, 1);
    let before = wait::signals();
    // Most waits end within the first looks: no clock is read for those.
    let mut result = look_often(set, number, epoll, out, before);
    if result.is_none() {
        let start = now_ns();
        let deadline = *deadline.get_or_insert_with(|| Deadline::after(timeout));
        loop {
            result = look_often(set, number, epoll, out, before);
            let now = now_ns();
            let is_over = now - start >= spin_ns || deadline.is_over(now);
            if result.is_some() || is_over || wait::signals() != before {
                break;
            }
            if settings.sleep_spin_usec > 0 {
                let pause = Duration::from_micros(settings.sleep_spin_usec);
                let _ = kernel::poll(&mut [], wait::shorter(deadline.left(), Some(pause)), None);
            }
        }
        process::count(Counter::SpinNs, now_ns() - start);
    }
    if let Some(inner) = set.lock().as_mut() {
        inner.fruitless_spins = if result.is_some() {
            0
        } else {
            inner.fruitless_spins.saturating_add(1)
        };
    }
    result
}

/// Looks some times in a row with the set locked, but lets others have it who wait for it.
fn look_often(
    set: &Set,
    number: usize,
    epoll: i32,
    out: &mut [libc::epoll_event],
    signals: u32,
) -> Option<usize> {
    let mut guard = set.lock();
    let inner = guard.as_mut()?;
    for _ in 0..LOOKS {
        if inner.is_worth_a_look(set) {
            let found = inner.look(set, number, epoll, out, false);
            if found > 0 {
                return Some(found);
            }
        }
        if set.callers.load(Ordering::Relaxed) > 0 || wait::signals() != signals {
            break;
        }
        core::hint::spin_loop();
    }
    drop(guard);
    while set.callers.load(Ordering::Relaxed) > 0 && wait::signals() == signals {
        core::hint::spin_loop();
    }
    None
}

/// Short spins are for peers that run on another core; where they never pay, they only take time
/// from the peer.
fn is_worth_spinning(set: &Set) -> bool {
    let mut guard = set.lock();
    let Some(inner) = guard.as_mut() else {
        return false;
    };
    if inner.fruitless_spins < FRUITLESS_MAX {
        return true;
    }
    inner.fruitless_spins = inner.fruitless_spins.saturating_add(1);
    inner.fruitless_spins.is_multiple_of(FRUITLESS_RETRY)
}

fn sleep(
    set: &Set,
    number: usize,
    epoll: i32,
    out: &mut [libc::epoll_event],
    deadline: Deadline,
    mask: Option<u64>,
) -> Result<usize, i32> {
    let bound = {
        let mut guard = set.lock();
        let Some(inner) = guard.as_mut() else {
            return Err(libc::EBADF);
        };
        set.sleepers.fetch_add(1, Ordering::SeqCst);
        inner.follow_listeners();
        inner.announce_sleep();
        inner.drain(number);
        let found = inner.collect(out, 0);
        if found > 0 {
            set.wake_up(inner);
            return Ok(found);
        }
        let is_blind =
            set.is_orphan.load(Ordering::Relaxed) && set.has_listeners.load(Ordering::Relaxed);
        (!inner.scanned.is_empty() || is_blind).then_some(SCAN)
    };
    process::count(Counter::Sleeps, 1);
    let result = kernel::epoll_wait(epoll, out, wait::shorter(deadline.left(), bound), mask);
    let mut guard = set.lock();
    let Some(inner) = guard.as_mut() else {
        set.sleepers.fetch_sub(1, Ordering::SeqCst);
        return result;
    };
    set.wake_up(inner);
    inner.polled = ticks();
    let count = result?;
    let mut found = inner.without_waker(&mut out[..count]);
    inner.drain(number);
    if found < out.len() {
        found += inner.collect(&mut out[found..], 0);
    }
    if set.is_watched.load(Ordering::Relaxed) {
        inner.rearm(set);
    }
    Ok(found)
}

impl Set {
    /// One waiter leaves; others that still sleep must be found by the next ring.
    fn wake_up(&self, inner: &mut Inner) {
        let others = self.sleepers.fetch_sub(1, Ordering::SeqCst) > 1;
        if others {
            inner.announce_sleep();
        } else {
            inner.places.iter().for_each(|place| place.lane().awake());
        }
        if others && inner.is_ringing() {
            self.kick(inner);
        }
    }
}

impl Inner {
    /// Queues every member that rang, and those that have no bell.
    pub(super) fn drain(&mut self, number: usize) {
        let own = number as u64 + 1;
        for at in 0..self.places.len() {
            let place = &self.places[at];
            let (members, ready) = (&mut self.members, &mut self.ready);
            let segment = &place.peer.segment;
            place.lane().drain(segment.slots_used(), |slot| {
                segment.ring(slot, 1 - place.peer.side).prefetch();
                let Some(socket) = place.peer.socket(slot) else {
                    return;
                };
                let word = sockets::get(socket).watch.load(Ordering::Acquire);
                let index = word as u32;
                if word >> 32 != own {
                    return;
                }
                if let Some(Some(member)) = members.get_mut(index as usize) {
                    if !member.is_queued && member.socket == socket {
                        member.is_queued = true;
                        ready.push_back(index);
                    }
                }
            });
        }
        if !self.scanned.is_empty() {
            for at in 0..self.scanned.len() {
                let index = self.scanned[at] as usize;
                self.queue(index);
            }
        }
        if !self.listeners.is_empty() {
            self.follow_listeners();
            for at in 0..self.listeners.len() {
                let (index, listener, _) = &self.listeners[at];
                if listener.has_waiting() {
                    let index = *index as usize;
                    self.queue(index);
                }
            }
        }
    }

    fn events_of(&self, member: &Member, wanted: u32) -> u32 {
        if member.is_in_kernel {
            let found = self.listeners.iter().any(|(index, listener, _)| {
                self.members[*index as usize]
                    .as_ref()
                    .is_some_and(|m| m.fd == member.fd)
                    && listener.has_waiting()
            });
            return if found {
                (libc::EPOLLIN | libc::EPOLLRDNORM) as u32
            } else {
                0
            };
        }
        readiness_of(member.socket, wanted)
    }

    /// Moves ready events into `out`, leaving `share` places for the kernel's.
    pub(super) fn collect(&mut self, out: &mut [libc::epoll_event], share: usize) -> usize {
        let limit = out.len() - share.min(out.len());
        let mut found = 0;
        for _ in 0..self.ready.len() {
            if found == limit {
                break;
            }
            let Some(index) = self.ready.pop_front() else {
                break;
            };
            let Some(member) = self.members[index as usize].as_ref() else {
                continue;
            };
            let wanted = member.events;
            let is_armed = wanted & !(EDGE | ONESHOT | EXCLUSIVE) != 0 || wanted & ONESHOT == 0;
            let events = if is_armed {
                self.events_of(member, wanted) & (wanted | ALWAYS)
            } else {
                0
            };
            let Some(member) = self.members[index as usize].as_mut() else {
                continue;
            };
            if events == 0 {
                member.is_queued = false;
                continue;
            }
            out[found] = libc::epoll_event {
                events,
                u64: member.data,
            };
            found += 1;
            if wanted & ONESHOT != 0 {
                member.events = wanted & (EDGE | ONESHOT);
            }
            if wanted & (EDGE | ONESHOT) != 0 {
                member.is_queued = false;
            } else {
                self.ready.push_back(index);
            }
        }
        found
    }

    /// Whether a queued member has an event; those without leave the queue.
    pub(super) fn has_ready(&mut self) -> bool {
        while let Some(index) = self.ready.front().copied() {
            let Some(member) = self.members[index as usize].as_ref() else {
                self.ready.pop_front();
                continue;
            };
            let is_armed = member.events & ONESHOT == 0 || member.events & !(EDGE | ONESHOT) != 0;
            if is_armed && self.events_of(member, member.events) & (member.events | ALWAYS) != 0 {
                return true;
            }
            if let Some(member) = self.members[index as usize].as_mut() {
                member.is_queued = false;
            }
            self.ready.pop_front();
        }
        false
    }

    /// Takes our waker's event, and those of inner sets that have nothing any more, out of what
    /// the kernel says; returns how many are left.
    pub(super) fn without_waker(&self, events: &mut [libc::epoll_event]) -> usize {
        let mut kept = 0;
        for at in 0..events.len() {
            let event = events[at];
            let data = { event.u64 };
            if data == WAKER_DATA {
                if let Some(waker) = &self.waker {
                    waker.take();
                }
                continue;
            }
            let inner = self.nested.iter().find(|(of, ..)| *of == data);
            if inner.is_some_and(|(_, number, fd)| !is_ready(*number) && !has_kernel_events(*fd)) {
                continue;
            }
            events[kept] = event;
            kept += 1;
        }
        kept
    }
}
