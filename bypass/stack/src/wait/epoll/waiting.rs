//! epoll_wait: look, spin, sleep.

use bypass_sys::clock::{ticks, ticks_in};

use super::*;
use crate::process::choices::{spin_ns, Spin};
use crate::process::deadline::{shorter, signals as signals_now};
use crate::process::spin_clock::SpinClock;

/// The kernel's part of a set is looked at this often while user-level events keep coming.
const KERNEL_LOOK_US: u64 = 20;
/// The same when there was something there.
const KERNEL_LOOK_BUSY_US: u64 = 2;
/// Announcements that are held back are looked for in one of so many looks, in every look that does not
/// wait, and once in each microsecond of a spin, by when the rest of an answer has mostly come.
const HELD_BACK_LOOKS: u32 = 16;
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
    listener::ensure_service();
    stream::announce_held_back();
    packets::ensure();
    let set = &SETS[entry.index()];
    if !set.accepts_first() {
        packets::drive();
    }
    if timeout == Some(Duration::ZERO) {
        return once(set, entry.index(), epoll, out).map_or_else(Outcome::Error, done);
    }
    let before = signals_now();
    let ends = set.ends.load(Ordering::Relaxed);
    let mut deadline = None;
    loop {
        if set.ends.load(Ordering::Relaxed) != ends {
            return Outcome::Error(libc::EBADF);
        }
        match begin(set, entry.index(), epoll, out, before) {
            Begun::Found(found) => return done(found),
            // A signal that only the mask lets in cannot come before the sleep.
            Begun::Spinning if mask.is_some() => {}
            Begun::Spinning => {
                let deadline = *deadline.get_or_insert_with(|| Deadline::after(timeout));
                if let Some(found) = spin(set, entry.index(), epoll, out, deadline, before) {
                    return done(found);
                }
            }
            Begun::Sleepy => {}
        }
        let deadline = *deadline.get_or_insert_with(|| Deadline::after(timeout));
        if signals_now() != before {
            return Outcome::Error(libc::EINTR);
        }
        match sleep(set, entry.index(), epoll, out, deadline, mask) {
            Ok(0) if deadline.left() != Some(Duration::ZERO) => {}
            Ok(found) => return done(found),
            Err(error) => return Outcome::Error(error),
        }
    }
}

/// The result of the first looks at a set.
enum Begun {
    Found(usize),
    /// Nothing yet: it is worth spinning on.
    Spinning,
    Sleepy,
}

/// The first looks, for which the set is locked once and no clock is read: most waits end here.
fn begin(
    set: &Set,
    number: usize,
    epoll: i32,
    out: &mut [libc::epoll_event],
    signals: u32,
) -> Begun {
    // A plain set sleeps at once: the kernel's part is all there is, and it wakes us.
    if set.members.load(Ordering::SeqCst) == 0 {
        return Begun::Sleepy;
    }
    let mut guard = set.lock();
    let Some(inner) = guard.as_mut().filter(|inner| !inner.is_plain()) else {
        return Begun::Sleepy;
    };
    let found = inner.look(set, number, epoll, out, false);
    if found > 0 {
        return Begun::Found(found);
    }
    if !inner.is_worth_spinning() {
        return Begun::Sleepy;
    }
    process::count(Counter::Spins, 1);
    match inner.look_often(set, number, epoll, out, signals) {
        Some(found) => {
            inner.fruitless_spins = 0;
            Begun::Found(found)
        }
        None => Begun::Spinning,
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
        self.looks = self.looks.wrapping_add(1);
        let share = match out.len() {
            _ if !has_kernel => 0,
            // Of a single place each has every other look.
            1 => self.looks as usize % 2,
            places => places.div_ceil(4),
        };
        self.tend_quiet(set);
        self.drain(number);
        if self.looks.is_multiple_of(HELD_BACK_LOOKS) || is_kernel_due {
            self.drain_held_back(number);
        }
        let mut found = self.collect(&mut out[..], share);
        if has_kernel && found < out.len() {
            let is_due = is_kernel_due || found == 0;
            found += self.look_at_kernel(set, epoll, &mut out[found..], is_due);
        }
        found = self.collect_taken_up(set, number, out, found);
        if found == 0 && share > 0 {
            found = self.collect(out, 0);
        }
        // The last thing: a wake that came meanwhile was taken with the kernel's events.
        if set.is_watched.load(Ordering::Relaxed) {
            self.renew_watch(set);
        }
        found
    }

    /// The kernel's events, when it is time to ask for them.
    fn look_at_kernel(
        &mut self,
        set: &Set,
        epoll: i32,
        out: &mut [libc::epoll_event],
        is_due: bool,
    ) -> usize {
        let now = ticks();
        if !is_due && now.wrapping_sub(self.polled) < self.kernel_look() {
            return 0;
        }
        self.polled = now;
        process::count(Counter::KernelPolls, 1);
        let count = kernel::epoll_wait(epoll, out, Some(Duration::ZERO), None).unwrap_or(0);
        let kept = self.without_wakes(set, epoll, &mut out[..count]);
        self.is_kernel_busy = kept > 0;
        kept
    }

    /// [`without_waker`](Self::without_waker) in a look that does not end a sleep. A wake that it takes was another
    /// thread's: the kernel lets that one sleep on, and whoever has sent the wake sends no other. So the next ring is to
    /// wake it, or what is left does at once.
    fn without_wakes(&mut self, set: &Set, epoll: i32, events: &mut [libc::epoll_event]) -> usize {
        let is_wake = |event: &libc::epoll_event| {
            let data = event.u64;
            data == WAKER_DATA || data == quiet::WAKER_DATA
        };
        let has_woken = events.iter().any(is_wake);
        let kept = self.without_waker(epoll, events);
        if has_woken {
            set.arm_for_sleepers(self);
        }
        kept
    }

    /// Ticks between looks at the kernel's part: fewer while it is busy.
    fn kernel_look(&self) -> u64 {
        ticks_in(if self.is_kernel_busy {
            KERNEL_LOOK_BUSY_US
        } else {
            KERNEL_LOOK_US
        })
    }

    /// Whether a [`look`](Self::look) could find something: a few loads of cache lines that stay with this
    /// processor until a peer rings.
    fn is_worth_a_look(&self, set: &Set) -> bool {
        let has_kernel = || {
            (set.kernel_members.load(Ordering::Relaxed) > 0 || !self.listeners.is_empty())
                && ticks().wrapping_sub(self.polled) >= self.kernel_look()
        };
        !self.ready.is_empty()
            || !self.scanned.is_empty()
            || self.is_ringing()
            || self.has_segments_to_enter()
            || self.may_have_datagrams()
            || self.is_quiet_due()
            || (self.misses_connections()
                && self.listeners.iter().any(|(_, l, _)| l.has_acceptable()))
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
        let count = kernel::epoll_wait(epoll, out, Some(Duration::ZERO), None)?;
        let mut guard = set.lock();
        let Some(inner) = guard.as_mut() else {
            return Ok(count);
        };
        let kept = inner.without_wakes(set, epoll, &mut out[..count]);
        let kept = inner.collect_taken_up(set, number, out, kept);
        if set.is_watched.load(Ordering::Relaxed) {
            inner.renew_watch(set);
        }
        return Ok(kept);
    }
    Ok(found)
}

/// Spins as long as the options say, or until another thread gets the core.
fn spin(
    set: &Set,
    number: usize,
    epoll: i32,
    out: &mut [libc::epoll_event],
    deadline: Deadline,
    signals: u32,
) -> Option<usize> {
    let (settings, spin_ns) = (process::settings(), spin_ns(Spin::Epoll));
    let mut clock = SpinClock::begin();
    let result = loop {
        let result = look_often(set, number, epoll, out, signals);
        let now = clock.look();
        let is_over = clock.is_over(spin_ns) || deadline.is_over(now);
        if result.is_some() || is_over || signals_now() != signals {
            break result;
        }
        if settings.sleep_spin_usec > 0 {
            let pause = Duration::from_micros(settings.sleep_spin_usec);
            // A frame ends the pause: it is there to leave the core to others, not to delay answers.
            let _ = packets::poll(&mut [], shorter(deadline.left(), Some(pause)), None);
            clock.skip();
        }
    };
    process::count(Counter::SpinNs, clock.end());
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
    while set.callers.load(Ordering::Relaxed) > 0 && signals_now() == signals {
        core::hint::spin_loop();
    }
    packets::drive_idle();
    let mut guard = set.lock();
    let inner = guard.as_mut()?;
    inner.drain_held_back(number);
    inner.look_often(set, number, epoll, out, signals)
}

impl Inner {
    /// Whether no peer has a way to ring in this set, and no member waits to be looked at.
    fn is_plain(&self) -> bool {
        let has_places = !self.places.is_empty() || !self.quiet.places.is_empty();
        let has_flags = has_places || self.misses_a_place;
        let has_members = !self.scanned.is_empty() || !self.datagrams.is_empty();
        !has_flags && !has_members && self.ready.is_empty()
    }

    fn look_often(
        &mut self,
        set: &Set,
        number: usize,
        epoll: i32,
        out: &mut [libc::epoll_event],
        signals: u32,
    ) -> Option<usize> {
        for _ in 0..LOOKS {
            if self.is_worth_a_look(set) {
                let found = self.look(set, number, epoll, out, false);
                if found > 0 {
                    return Some(found);
                }
            }
            if set.callers.load(Ordering::Relaxed) > 0 || signals_now() != signals {
                return None;
            }
            core::hint::spin_loop();
        }
        None
    }

    /// Short spins are for peers that run on another core; where they never pay, they only take time
    /// from the peer.
    fn is_worth_spinning(&mut self) -> bool {
        let spin_ns = spin_ns(Spin::Epoll);
        if spin_ns == 0 {
            return false;
        }
        if spin_ns >= SHORT_SPIN_NS || self.fruitless_spins < FRUITLESS_MAX {
            return true;
        }
        self.fruitless_spins = self.fruitless_spins.saturating_add(1);
        self.fruitless_spins.is_multiple_of(FRUITLESS_RETRY)
    }
}

fn sleep(
    set: &Set,
    number: usize,
    epoll: i32,
    out: &mut [libc::epoll_event],
    deadline: Deadline,
    mask: Option<u64>,
) -> Result<usize, i32> {
    let (why, ends) = {
        let mut guard = set.lock();
        let ends = set.ends.load(Ordering::Relaxed);
        let Some(inner) = guard.as_mut() else {
            return Err(libc::EBADF);
        };
        set.sleepers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        inner.seek_places();
        inner.follow_listeners();
        inner.announce_sleep();
        inner.expect_datagrams();
        inner.drain(number);
        inner.drain_held_back(number);
        let found = inner.collect(out, 0);
        if found > 0 {
            set.wake_up(inner);
            set.arm_for_sleepers(inner);
            return Ok(found);
        }
        (inner.why_look_again(set), ends)
    };
    let bound = why.map(|_| SCAN);
    process::count_sleep(why);
    let waker = set.waker.load(Ordering::Acquire).checked_sub(1);
    let own = process::number();
    let result = wakers::sleeping_on(waker.map(|waker| waker as u32), || {
        process::deferral::asleep(|| {
            sleep_in_kernel(epoll, out, shorter(deadline.left(), bound), mask)
        })
    });
    if process::number() != own {
        // The child of a handler, whose copies of sets count no thread that sleeps.
        set.sleepers.fetch_add(1, Ordering::SeqCst);
    }
    let mut guard = set.lock();
    let is_same = set.ends.load(Ordering::Relaxed) == ends;
    let Some(inner) = guard.as_mut().filter(|_| is_same) else {
        set.sleepers.fetch_sub(1, Ordering::SeqCst);
        return match packets::is_active() {
            // Events that were found by the number may be another set's by now.
            true => result.map(|_| 0),
            false => result,
        };
    };
    set.wake_up(inner);
    inner.polled = ticks();
    // Also after a signal: a connection that was reported only to this thread may have come while its handler ran.
    let count = match result {
        Ok(count) => count,
        Err(libc::EINTR) => 0,
        Err(error) => {
            set.arm_for_sleepers(inner);
            return Err(error);
        }
    };
    let mut found = inner.without_waker(epoll, &mut out[..count]);
    inner.is_kernel_busy = found > 0;
    inner.drain(number);
    if found < out.len() {
        found += inner.collect(&mut out[found..], 0);
    }
    set.arm_for_sleepers(inner);
    if set.is_watched.load(Ordering::Relaxed) {
        inner.renew_watch(set);
    }
    if found > 0 {
        return Ok(found);
    }
    result.map(|_| 0)
}

/// epoll_pwait2(2), during which engines are looked after.
fn sleep_in_kernel(
    epoll: i32,
    out: &mut [libc::epoll_event],
    wait: Option<Duration>,
    mask: Option<u64>,
) -> Result<usize, i32> {
    if !packets::is_active() {
        return kernel::epoll_wait(epoll, out, wait, mask);
    }
    let mut own = [libc::pollfd {
        fd: epoll,
        events: libc::POLLIN,
        revents: 0,
    }];
    packets::poll(&mut own, wait, mask)?;
    if own[0].revents & libc::POLLIN == 0 {
        return Ok(0);
    }
    kernel::epoll_wait(epoll, out, Some(Duration::ZERO), None)
}

impl Inner {
    /// Why something of the set, or of a set in it, can become ready without a ring; None where nothing can.
    pub(super) fn why_look_again(&self, set: &Set) -> Option<Polling> {
        let is_deaf = set.is_orphan.load(Ordering::Relaxed) || self.waker.is_none();
        let has_listeners = set.has_listeners.load(Ordering::Relaxed);
        let needs_waker = has_listeners || !self.nested.is_empty() || !self.datagrams.is_empty();
        let is_blind = is_deaf && needs_waker;
        // Every one is shown, not only the first that must be looked at.
        let nested = self.nested.iter().filter(|inner| show(inner.number));
        let has_such = nested.count() > 0;
        let is_silent = |place: &Place| place.peer.segment.has_silent(1 - place.peer.side);
        let mut places = self.places.iter().chain(&self.quiet.places);
        let has_silent = places.any(is_silent);
        let mut listeners = self.listeners.iter();
        let has_delayed = listeners.any(|(_, listener, _)| listener.has_delayed());
        if is_blind {
            Some(Polling::NoWaker)
        } else if has_silent {
            Some(Polling::Confined)
        } else if has_delayed || self.misses_connections() {
            Some(Polling::Listener)
        } else {
            let is_shared = has_such || !self.scanned.is_empty();
            is_shared.then_some(Polling::Shared)
        }
    }
}

/// Lets the kernel set behind set `number` show members that have no ready flag; true when there are such.
fn show(number: usize) -> bool {
    let set = &SETS[number % SETS_MAX];
    let mut guard = set.lock();
    let Some(inner) = guard
        .as_mut()
        .filter(|inner| inner.why_look_again(set).is_some())
    else {
        return false;
    };
    inner.drain(number);
    if inner.has_ready() {
        set.kick();
    }
    true
}

impl Set {
    /// Whether connections wait to be accepted and the engines had a round a moment ago. A program that accepts
    /// one connection in each of its rounds then answers several before any answer leaves, all in one go.
    #[inline]
    fn accepts_first(&self) -> bool {
        self.has_listeners.load(Ordering::Relaxed)
            && packets::were_driven_just_now()
            && self.has_acceptable()
    }

    fn has_acceptable(&self) -> bool {
        let guard = self.lock();
        let mut listeners = guard.iter().flat_map(|inner| &inner.listeners);
        listeners.any(|(_, listener, _)| listener.has_acceptable())
    }

    /// One waiter leaves.
    fn wake_up(&self, inner: &Inner) {
        if self.sleepers.fetch_sub(1, Ordering::SeqCst) == 1 {
            let places = inner.places.iter();
            places.for_each(|place| place.ready_list().awake());
            inner.unexpect_datagrams();
        }
    }

    /// After a look by one thread: others that sleep must be found by the next ring, and one is woken at once if
    /// anything is left. Rings that came together have woken only one, whose room for events may have been too small,
    /// and a level is for all of them.
    fn arm_for_sleepers(&self, inner: &mut Inner) {
        // Changes under the lock, which the caller holds.
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            inner.rearm(self);
        }
    }
}
