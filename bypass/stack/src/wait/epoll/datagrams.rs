//! UDP sockets as members: the kernel's set has them, for what comes there, and we look at what comes over packets.
//!
//! The kernel's set knows each by a name, so that a one-shot is disarmed for both, and one event is reported once.

use super::*;
use crate::datagrams::{self, Socket};

/// Names a UDP socket among the events of the kernel's set, with its name as a member in the lower half.
const DATAGRAM_DATA: u64 = 0x5753_7564 << 32;
const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
/// A send through an engine never waits.
const WRITABLE: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLWRBAND) as u32;

/// See the module.
#[derive(Debug)]
pub(super) struct Watched {
    /// The socket's number.
    pub index: usize,
    pub fd: i32,
    events: u32,
    data: u64,
    /// By chance, as [`Nested::member`].
    name: u32,
    /// Its arrivals when it was last reported; None: it was not reported since it was asked for.
    told: Option<u32>,
    /// The look of the set in which it was.
    look: u32,
}

impl Watched {
    fn kernel_data(&self) -> u64 {
        DATAGRAM_DATA | u64::from(self.name)
    }

    fn socket(&self) -> &'static Socket {
        datagrams::get(self.index)
    }

    /// As [`Member::is_armed`].
    fn is_armed(&self) -> bool {
        self.events & ONESHOT == 0 || self.events & !(EDGE | ONESHOT | EXCLUSIVE) != 0
    }

    /// The events to report for datagrams that wait here: with EPOLLET only when one has come since the last time.
    fn news(&self) -> Option<u32> {
        let (socket, wanted) = (self.socket(), self.events & READABLE);
        if wanted == 0 || !socket.is_readable() || !self.is_armed() {
            return None;
        }
        let is_told = self.events & EDGE != 0 && self.told == Some(socket.arrivals());
        (!is_told).then_some(wanted | self.events & WRITABLE)
    }

    /// It is reported, in this look.
    fn tell(&mut self, look: u32) {
        self.told = Some(self.socket().arrivals());
        self.look = look;
        if self.events & ONESHOT != 0 {
            self.events &= EDGE | ONESHOT;
        }
    }
}

/// epoll_ctl(2) of a UDP socket; None: it is none that is watched, nor one that can be.
pub(super) fn control(
    set: &Set,
    epoll: i32,
    command: i32,
    (fd, target): (i32, Entry),
    event: Option<Event>,
) -> Option<Result<usize, i32>> {
    let is_new = target.kind() == Kind::Datagram && command == libc::EPOLL_CTL_ADD;
    let mut guard = set.lock();
    let inner = guard.as_mut()?;
    // By its number, as the kernel has it: in a forked child only the kernel handles the socket.
    let is_it = |one: &Watched| {
        one.fd == fd && (target.kind() != Kind::Datagram || one.index == target.index())
    };
    let is_known = command != libc::EPOLL_CTL_ADD;
    let known = inner
        .datagrams
        .iter()
        .position(|one| is_known && is_it(one));
    let Event { events, data } = match (command, event) {
        (libc::EPOLL_CTL_DEL, _) => Event { events: 0, data: 0 },
        (_, event) => event?,
    };
    let name = match known {
        Some(at) => inner.datagrams[at].name,
        None if is_new => kernel::random() as u32,
        None => return None,
    };
    let watched = Watched {
        index: target.index(),
        fd,
        events,
        data,
        name,
        told: None,
        look: inner.looks.wrapping_sub(1),
    };
    let done = kernel::epoll_control(epoll, command, fd, events, watched.kernel_data());
    if done.is_err() {
        return Some(done);
    }
    // Datagrams that came before are looked at too.
    inner.had_datagrams = true;
    match (known, command) {
        (Some(at), libc::EPOLL_CTL_DEL) => {
            inner.datagrams.swap_remove(at).let_go(set);
        }
        (Some(at), _) => {
            let index = inner.datagrams[at].index;
            inner.datagrams[at] = Watched { index, ..watched };
        }
        (None, _) => {
            let _ = inner.need_waker(set);
            watched.socket().watches.fetch_add(1, Ordering::Relaxed);
            inner.datagrams.push(watched);
            set.members.fetch_add(1, Ordering::SeqCst);
        }
    }
    set.kick();
    Some(done)
}

impl Watched {
    fn let_go(self, set: &Set) {
        let socket = self.socket();
        socket.watches.fetch_sub(1, Ordering::Relaxed);
        if let Some(waker) = set.waker.load(Ordering::Acquire).checked_sub(1) {
            socket.unexpect(waker as u32);
        }
        set.members.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A socket's last descriptor here is closed: it leaves all sets. The kernel's sets let go of it themselves.
pub fn forget_datagrams(index: usize) {
    if datagrams::get(index).watches.load(Ordering::Relaxed) == 0 {
        return;
    }
    for set in SETS.iter().take(used()) {
        let mut guard = set.lock();
        if let Some(inner) = guard.as_mut() {
            let of_it = inner.datagrams.extract_if(.., |one| one.index == index);
            of_it.for_each(|one| one.let_go(set));
        }
    }
}

impl Inner {
    /// Whether a member has an event to report.
    pub(super) fn has_datagrams(&self) -> bool {
        self.datagrams.iter().any(|one| one.news().is_some())
    }

    /// Whether a look at the members could find something.
    pub(super) fn may_have_datagrams(&self) -> bool {
        !self.datagrams.is_empty() && (self.had_datagrams || self.arrivals != datagrams::arrivals())
    }

    /// Moves the events that members report into `out`; returns how many there were.
    pub(super) fn collect_datagrams(&mut self, out: &mut [libc::epoll_event]) -> usize {
        if !self.may_have_datagrams() {
            return 0;
        }
        self.arrivals = datagrams::arrivals();
        let (count, mut found) = (self.datagrams.len(), 0);
        // Each is the first in turn.
        let first = self.looks as usize % count;
        for at in (first..count).chain(0..first) {
            let one = &mut self.datagrams[at];
            let Some(events) = one.news() else { continue };
            let Some(place) = out.get_mut(found) else {
                break;
            };
            *place = libc::epoll_event {
                events,
                u64: one.data,
            };
            one.tell(self.looks);
            found += 1;
        }
        self.had_datagrams = self.has_datagrams();
        found
    }

    /// An event of the kernel's that is of a UDP socket, as the program is to see it. None: it was reported in this
    /// look already, and shows again in the next, or it may not be reported.
    pub(super) fn of_datagrams(
        &mut self,
        mut event: libc::epoll_event,
    ) -> Option<libc::epoll_event> {
        let looks = self.looks;
        let data = { event.u64 };
        let mut members = self.datagrams.iter_mut();
        let Some(one) = members.find(|one| one.kernel_data() == data) else {
            return Some(event);
        };
        let is_level = one.events & (EDGE | ONESHOT) == 0;
        if !one.is_armed() || (is_level && one.look == looks) {
            return None;
        }
        event.events |= one.news().unwrap_or(0);
        event.u64 = one.data;
        one.tell(looks);
        Some(event)
    }

    /// From now on what comes for a member rings the set's waker.
    pub(super) fn expect_datagrams(&self) {
        if let Some(waker) = &self.waker {
            let members = self.datagrams.iter();
            members.for_each(|one| one.socket().expect(waker.number()));
        }
    }

    /// The set has ended.
    pub(super) fn leave_datagrams(&self) {
        self.unexpect_datagrams();
        for one in &self.datagrams {
            one.socket().watches.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// It need not any more.
    pub(super) fn unexpect_datagrams(&self) {
        if let Some(waker) = &self.waker {
            let members = self.datagrams.iter();
            members.for_each(|one| one.socket().unexpect(waker.number()));
        }
    }
}

/// Whether an event of the kernel's is of a UDP socket.
pub(super) fn is_named(data: u64) -> bool {
    data >> 32 == DATAGRAM_DATA >> 32
}
