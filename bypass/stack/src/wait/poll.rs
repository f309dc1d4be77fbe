//! poll and select over descriptors of both kinds.

use core::time::Duration;
use std::sync::Arc;

use bypass_sys::clock::{ticks, ticks_in};
use bypass_sys::kernel;

use super::{epoll, spin};
use crate::datagrams::{self, Socket};
use crate::listener::{self, Blocked, Listener, ReadyLists, Rung};
use crate::packets;
use crate::peer::{Asleep, Notice, Peer};
use crate::process::choices::{spin_ns, Spin};
use crate::process::deadline::{shorter, signals, Deadline};
use crate::process::deferral::asleep;
use crate::process::table::{self, Kind};
use crate::process::wakers::{self, Borrowed};
use crate::process::{self, Outcome, Polling};
use crate::sockets;
use crate::stream::{self, readiness_of};

/// Between looks when a place to be woken in could not be had.
const CROWDED: Duration = Duration::from_millis(1);

/// Whether the call concerns us at all.
pub fn is_ours(fds: &[libc::pollfd]) -> bool {
    fds.iter()
        .any(|one| one.fd >= 0 && (!table::is_kernel(one.fd) || table::is_datagram(one.fd)))
}

/// ppoll(2).
pub fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>, mask: Option<u64>) -> Outcome {
    listener::ensure_service();
    stream::announce_held_back();
    packets::ensure();
    let deadline = Deadline::after(timeout);
    let before = signals();
    // A signal that only the mask lets in cannot come before the sleep.
    let spin_ns = match mask {
        None => spin_ns(Spin::Poll),
        Some(_) => 0,
    };
    loop {
        packets::drive();
        match look(fds) {
            // What is attended from this look on is listened on over packets before the sleep.
            Ok(0) => packets::ensure(),
            Ok(found) => return Outcome::Done(found as isize),
            Err(error) => return Outcome::Error(error),
        }
        if deadline.left() == Some(Duration::ZERO) {
            return mask.map_or(Outcome::Done(0), let_in);
        }
        let mut kernels = KernelLook::of(fds);
        if spin(spin_ns, deadline, || {
            fds.iter().any(|one| user_events(one) != 0) || kernels.finds_something()
        }) {
            continue;
        }
        if signals() != before {
            return Outcome::Error(libc::EINTR);
        }
        if let Err(error) = sleep(fds, deadline, mask) {
            return Outcome::Error(error);
        }
    }
}

/// What a call says that finds nothing and may not wait: EINTR when `mask` lets a signal in that waits.
fn let_in(mask: u64) -> Outcome {
    match asleep(|| kernel::poll(&mut [], Some(Duration::ZERO), Some(mask))) {
        Ok(_) => Outcome::Done(0),
        Err(error) => Outcome::Error(error),
    }
}

/// Events of a descriptor that the stack knows of.
fn user_events(one: &libc::pollfd) -> i16 {
    if one.fd < 0 {
        return 0;
    }
    let entry = table::get(one.fd);
    let wanted = one.events | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
    let found = match entry.kind() {
        Kind::Kernel => 0,
        Kind::Datagram => {
            if datagrams::get(entry.index()).is_readable() {
                libc::POLLIN | libc::POLLRDNORM
            } else {
                0
            }
        }
        Kind::Pooled | Kind::Internal => libc::POLLNVAL,
        Kind::Unbound | Kind::Connected => {
            let events = readiness_of(entry.index(), u32::from(wanted as u16)) as i16;
            if events != 0 {
                epoll::note_found(entry.index());
            }
            // The kernel may have got it meanwhile.
            if table::get(one.fd) == entry {
                events
            } else {
                0
            }
        }
        Kind::Listener => {
            let listener = listener::of(sockets::get(entry.index()));
            let is_waiting = listener.is_some_and(|listener| {
                listener.attend();
                listener.has_acceptable()
            });
            if is_waiting {
                libc::POLLIN | libc::POLLRDNORM
            } else {
                0
            }
        }
        Kind::Epoll => {
            if epoll::is_ready(entry.index()) {
                libc::POLLIN | libc::POLLRDNORM
            } else {
                0
            }
        }
    };
    found & wanted
}

/// The kernel sees these descriptors too.
fn is_kernels(fd: i32) -> bool {
    fd >= 0
        && matches!(
            table::get(fd).kind(),
            Kind::Kernel | Kind::Listener | Kind::Epoll | Kind::Datagram
        )
}

fn kernel_part(fds: &[libc::pollfd]) -> Vec<libc::pollfd> {
    let mine = |one: &libc::pollfd| {
        let fd = if is_kernels(one.fd) { one.fd } else { -1 };
        libc::pollfd {
            fd,
            events: one.events,
            revents: 0,
        }
    };
    fds.iter().map(mine).collect()
}

/// The kernel's descriptors during a spin, looked at once in so many microseconds.
pub struct KernelLook {
    part: Vec<libc::pollfd>,
    looked: u64,
}

/// Between looks at the kernel's descriptors while a call spins.
const KERNEL_LOOK_US: u64 = 20;

impl KernelLook {
    /// Sets are left out: their part may show no more than that our own waker rang.
    fn of(fds: &[libc::pollfd]) -> Self {
        let is_plain = |one: &&libc::pollfd| {
            let is_it = |kind| matches!(kind, Kind::Kernel | Kind::Listener | Kind::Datagram);
            one.fd >= 0 && is_it(table::get(one.fd).kind())
        };
        Self {
            part: fds.iter().filter(is_plain).copied().collect(),
            looked: ticks(),
        }
    }

    /// Of one descriptor.
    pub fn at(fd: i32, events: i16) -> Self {
        let revents = 0;
        Self {
            part: vec![libc::pollfd {
                fd,
                events,
                revents,
            }],
            looked: ticks(),
        }
    }

    /// Whether any of them has something; not looked at every time.
    pub fn finds_something(&mut self) -> bool {
        let now = ticks();
        if self.part.is_empty() || now.wrapping_sub(self.looked) < ticks_in(KERNEL_LOOK_US) {
            return false;
        }
        self.looked = now;
        kernel::poll(&mut self.part, Some(Duration::ZERO), None).is_ok_and(|found| found > 0)
    }
}

fn look(fds: &mut [libc::pollfd]) -> Result<usize, i32> {
    let mut part = Vec::new();
    if fds.iter().any(|one| is_kernels(one.fd)) {
        part = kernel_part(fds);
        match kernel::poll(&mut part, Some(Duration::ZERO), None) {
            Ok(_) | Err(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    let mut found = 0;
    for (at, one) in fds.iter_mut().enumerate() {
        let of_kernel = part.get(at).map_or(0, |part| part.revents);
        // A set's kernel part may show only our own waker: the set itself knows better.
        let is_set = one.fd >= 0 && table::get(one.fd).kind() == Kind::Epoll;
        one.revents = user_events(one) | if is_set { 0 } else { of_kernel };
        if is_set && of_kernel != 0 && one.revents == 0 {
            one.revents = set_events(one.fd) & one.events;
        }
        found += usize::from(one.revents != 0);
    }
    Ok(found)
}

/// Whether the kernel part of a set has more to say than that our waker rang.
fn set_events(fd: i32) -> i16 {
    if epoll::has_kernel_events(fd) {
        libc::POLLIN | libc::POLLRDNORM
    } else {
        0
    }
}

/// The entries that one sleep has put into shared places; taken back when dropped.
#[derive(Default)]
struct Registered {
    sleepers: Vec<(Arc<Peer>, Asleep)>,
    /// With the waker's number.
    datagrams: Vec<(&'static Socket, u32)>,
    listeners: Vec<Arc<Listener>>,
    ready_lists: Vec<ReadyLists>,
    /// Why it has to look again soon, where it has.
    polling: Option<Polling>,
}

impl Registered {
    /// The first reason is the one that counts.
    fn look_again(&mut self, why: Option<Polling>) {
        self.polling = self.polling.or(why);
    }

    fn add(&mut self, one: &libc::pollfd, waker: &Borrowed) {
        let entry = table::get(one.fd);
        match entry.kind() {
            Kind::Connected => self.add_stream(one, waker),
            Kind::Listener => {
                let Some(listener) = listener::of(sockets::get(entry.index())) else {
                    return;
                };
                self.listeners.push(listener);
            }
            Kind::Datagram if !waker.is_none() => {
                let socket = datagrams::get(entry.index());
                socket.expect(waker.number());
                self.datagrams.push((socket, waker.number()));
            }
            Kind::Epoll => {
                epoll::watch(entry.index());
                self.look_again(epoll::must_be_looked_at(entry.index()));
            }
            _ => {}
        }
    }

    fn add_stream(&mut self, one: &libc::pollfd, waker: &Borrowed) {
        let Ok(stream) = stream::find(one.fd) else {
            return;
        };
        let Some(peer) = stream.socket.share_peer() else {
            return;
        };
        let is_confined = peer.segment.has_silent(1 - peer.side);
        self.look_again(is_confined.then_some(Polling::Confined));
        if waker.is_none() {
            if one.events & (libc::POLLOUT | libc::POLLWRNORM) != 0 {
                stream.outbound().want_space();
            }
            return;
        }
        let own = |awaits| Asleep {
            slot: stream.slot,
            awaits,
            waker: waker.number(),
        };
        // Ends are reported to readers, so every thread waits as one.
        self.fall_asleep(&peer, own(Notice::Bytes));
        if one.events & (libc::POLLOUT | libc::POLLWRNORM) != 0
            && self.fall_asleep(&peer, own(Notice::Room))
        {
            stream.outbound().want_space();
        }
    }

    fn fall_asleep(&mut self, peer: &Arc<Peer>, own: Asleep) -> bool {
        let is_registered = peer.fall_asleep(own);
        if is_registered {
            self.sleepers.push((peer.clone(), own));
        } else {
            self.look_again(Some(Polling::Shared));
        }
        is_registered
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        for (socket, waker) in &self.datagrams {
            socket.unexpect(*waker);
        }
        for (peer, own) in self.sleepers.iter().rev() {
            peer.wake_up(*own);
        }
    }
}

fn sleep(fds: &[libc::pollfd], deadline: Deadline, mask: Option<u64>) -> Result<(), i32> {
    // Without a descriptor for a waker we look again soon: poll knows no such error.
    let waker = Borrowed::take().unwrap_or_else(|_| Borrowed::none());
    let mut registered = Registered::default();
    registered.look_again(waker.is_none().then_some(Polling::NoWaker));
    for one in fds.iter().filter(|one| one.fd >= 0) {
        registered.add(one, &waker);
    }
    let listeners = std::mem::take(&mut registered.listeners);
    let _blocked: Vec<Blocked> = listeners
        .iter()
        .map(|one| Blocked::register(one, waker.number()))
        .collect();
    for listener in listeners.iter().filter(|_| !waker.is_none()) {
        let (ready_lists, is_complete) = ReadyLists::take(listener, waker.number(), Rung::Always);
        registered.ready_lists.push(ready_lists);
        registered.look_again((!is_complete).then_some(Polling::Listener));
    }
    bypass_sys::barrier::heavy();
    if fds.iter().any(|one| user_events(one) != 0) {
        return Ok(());
    }
    // Only the kernel's sockets: with the library's there could be more than the limit of descriptors.
    let mut part = kernel_part(fds);
    part.retain(|one| one.fd >= 0);
    part.extend((!waker.is_none()).then_some(libc::pollfd {
        fd: waker.fd(),
        events: libc::POLLIN,
        revents: 0,
    }));
    if !wakers::may_poll() {
        // Of a select: it counts ours alone.
        part.clear();
        registered.look_again(Some(Polling::NoWaker));
    }
    let bound = registered.polling.map(|_| CROWDED);
    process::count_sleep(registered.polling);
    let sleep = || packets::poll(&mut part, shorter(deadline.left(), bound), mask).map(|_| ());
    wakers::sleeping_on(waker.ringing(), || asleep(sleep))
}

/// The sets of a select call, as words of bits.
pub struct Sets<'a> {
    /// Read, write, exceptional; None for a null pointer.
    pub of: [Option<&'a mut [u64]>; 3],
}

const READ: i16 = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND;
const WRITE: i16 = libc::POLLOUT | libc::POLLWRNORM;
const EXCEPT: i16 = libc::POLLPRI;

impl Sets<'_> {
    fn has(&self, which: usize, fd: usize) -> bool {
        self.of[which]
            .as_ref()
            .and_then(|set| set.get(fd / 64))
            .is_some_and(|word| word >> (fd % 64) & 1 != 0)
    }

    /// The poll that means the same.
    pub fn to_poll(&self, count: usize) -> Vec<libc::pollfd> {
        let mut fds = Vec::new();
        for fd in 0..count {
            let mut events = 0;
            for (which, bits) in [READ, WRITE, EXCEPT].into_iter().enumerate() {
                events |= if self.has(which, fd) { bits } else { 0 };
            }
            if events != 0 {
                fds.push(libc::pollfd {
                    fd: fd as i32,
                    events,
                    revents: 0,
                });
            }
        }
        fds
    }

    /// Writes the answer; the number of bits set, or EBADF.
    pub fn from_poll(&mut self, fds: &[libc::pollfd]) -> Result<usize, i32> {
        if fds.iter().any(|one| one.revents & libc::POLLNVAL != 0) {
            return Err(libc::EBADF);
        }
        let asked: Vec<[bool; 3]> = fds
            .iter()
            .map(|one| [0, 1, 2].map(|which| self.has(which, one.fd as usize)))
            .collect();
        for set in self.of.iter_mut().flatten() {
            set.fill(0);
        }
        let meaning = [
            READ | libc::POLLHUP | libc::POLLERR,
            WRITE | libc::POLLERR,
            EXCEPT,
        ];
        let mut found = 0;
        for (one, asked) in fds.iter().zip(asked) {
            for which in 0..3 {
                if asked[which] && one.revents & meaning[which] != 0 {
                    if let Some(set) = &mut self.of[which] {
                        set[one.fd as usize / 64] |= 1 << (one.fd as usize % 64);
                        found += 1;
                    }
                }
            }
        }
        Ok(found)
    }
}
