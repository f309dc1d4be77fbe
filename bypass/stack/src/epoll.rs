//! Sets: user-level members and kernel members in one `epoll_wait`.
//!
//! Kernel members live in the program's own kernel set. User-level ones live here: a list of
//! members, a queue of those that deserve a look, and one lane (doorbells) in every segment that a
//! member lives in. A listener is in both. Before it sleeps, the waiter says so in its lanes and
//! looks once more; a peer that rings then writes to the waker, which is in the kernel set too.

use core::sync::atomic::{fence, AtomicBool, AtomicI32, AtomicU32, Ordering};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use bypass_shm::barrier;
use bypass_shm::clock::now_ns;
use bypass_shm::layout::{Lane, CLOSED, FIN, RST};
use bypass_shm::stats::Counter;
use bypass_shm::sys as kernel;
use bypass_shm::waker::Waker;

use crate::listener::{self, Listener};
use crate::peer::Peer;
use crate::sockets;
use crate::stream::{self, Stream};
use crate::table::{self, Entry, Kind};
use crate::wait::{self, Deadline};
use crate::{process, service, Outcome};

mod waiting;
pub use waiting::wait;

/// Sets of a process; more are pure kernel sets.
const SETS_MAX: usize = 4096;
/// Names our waker among the events of a kernel set.
const WAKER_DATA: u64 = 0x5753_7761_6b65_7231;

/// Bits of an event that are always reported.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

#[derive(Debug)]
struct Member {
    fd: i32,
    socket: usize,
    life: u32,
    events: u32,
    data: u64,
    is_queued: bool,
    /// Has no lane of its own: looked at in every round.
    is_scanned: bool,
    /// The shadow is in the kernel set as well.
    is_in_kernel: bool,
}

/// A segment where members live, with our doorbells in it.
#[derive(Debug)]
struct Place {
    peer: Arc<Peer>,
    lane: usize,
    members: usize,
    is_listening: bool,
}

impl Place {
    #[inline]
    fn lane(&self) -> &Lane {
        self.peer.segment.lane(self.peer.side, self.lane)
    }
}

#[derive(Debug, Default)]
struct Inner {
    members: Vec<Option<Member>>,
    free: Vec<u32>,
    /// By descriptor: member plus one.
    by_fd: Vec<u32>,
    ready: VecDeque<u32>,
    places: Vec<Place>,
    scanned: Vec<u32>,
    listeners: Vec<(u32, Arc<Listener>, u32)>,
    /// Sets that are members: data, number.
    nested: Vec<(u64, usize, i32)>,
    waker: Option<Waker>,
    /// When the kernel's part was last looked at, in the clock's ticks.
    polled: u64,
    fruitless_spins: u32,
}

struct Set {
    inner: Mutex<Option<Box<Inner>>>,
    members: AtomicU32,
    kernel_members: AtomicI32,
    sleepers: AtomicU32,
    /// Threads that wait for the lock.
    callers: AtomicU32,
    has_listeners: AtomicBool,
    /// Another set or a poll watches this one: every ring must reach the kernel set.
    is_watched: AtomicBool,
    /// Inherited over a fork: the waker and the lanes are the parent's.
    is_orphan: AtomicBool,
    fd: AtomicI32,
}

impl Set {
    const fn new() -> Self {
        Self {
            inner: Mutex::new(None),
            members: AtomicU32::new(0),
            kernel_members: AtomicI32::new(0),
            sleepers: AtomicU32::new(0),
            callers: AtomicU32::new(0),
            has_listeners: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            is_orphan: AtomicBool::new(false),
            fd: AtomicI32::new(0),
        }
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Option<Box<Inner>>> {
        match self.inner.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => self.lock_slowly(),
        }
    }

    /// A thread that spins on the set holds the lock meanwhile; it sees `callers` and steps aside.
    #[cold]
    fn lock_slowly(&self) -> MutexGuard<'_, Option<Box<Inner>>> {
        self.callers.fetch_add(1, Ordering::Relaxed);
        let guard = match self.inner.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        };
        self.callers.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Makes sleepers and watchers look.
    fn kick(&self, inner: &Inner) {
        let sleepers = self.sleepers.load(Ordering::SeqCst);
        if sleepers > 0 || self.is_watched.load(Ordering::Relaxed) {
            if let Some(waker) = &inner.waker {
                process::wake(process::number(), waker.number());
            }
        }
    }
}

static SETS: [Set; SETS_MAX] = [const { Set::new() }; SETS_MAX];
static FREE: Mutex<(Vec<u32>, usize)> = Mutex::new((Vec::new(), 0));

fn used() -> usize {
    FREE.lock().map_or(0, |free| free.1)
}

/// A new set behind the kernel set `fd`.
pub fn register(fd: i32) {
    if process::settings().ul_epoll == 0 {
        return;
    }
    let number = FREE.lock().ok().and_then(|mut free| {
        free.0.pop().map(|number| number as usize).or_else(|| {
            (free.1 < SETS_MAX).then(|| {
                free.1 += 1;
                free.1 - 1
            })
        })
    });
    let Some(number) = number else { return };
    let set = &SETS[number];
    *set.lock() = Some(Box::default());
    set.fd.store(fd, Ordering::Relaxed);
    for flag in [&set.has_listeners, &set.is_watched, &set.is_orphan] {
        flag.store(false, Ordering::Relaxed);
    }
    set.members.store(0, Ordering::Relaxed);
    set.kernel_members.store(0, Ordering::Relaxed);
    table::set(fd, Entry::new(Kind::Epoll, number, 0));
}

/// The last descriptor of a set is closed.
pub fn close(number: usize) {
    let inner = SETS[number % SETS_MAX].lock().take();
    if let Some(inner) = inner {
        for member in inner.members.iter().flatten() {
            detach(number, member);
        }
        for place in &inner.places {
            place.lane().free();
        }
        if let Some(waker) = &inner.waker {
            table::show(waker.fd());
        }
    }
    if let Ok(mut free) = FREE.lock() {
        free.0.push(number as u32);
    }
}

fn watch_word(set: usize, member: usize) -> u64 {
    (set as u64 + 1) << 32 | member as u64
}

fn detach(set: usize, member: &Member) {
    let socket = sockets::get(member.socket);
    if member.is_scanned {
        socket.other_watches.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let word = socket.watch.load(Ordering::Relaxed);
    if word >> 32 == set as u64 + 1 {
        socket.watch.store(0, Ordering::Relaxed);
        if let Some(stream) =
            stream::of_socket(member.socket).filter(|_| socket.life() == member.life)
        {
            let meta = &stream.peer.segment.slot(stream.slot).meta;
            meta.lane[stream.peer.side].store(0, Ordering::SeqCst);
        }
    }
}

const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;

/// Which of the `wanted` events, and of those that are always reported, a connection has now.
#[inline]
pub fn readiness(stream: &Stream, wanted: u32) -> u32 {
    let flags = stream.socket.flags.load(Ordering::Relaxed);
    let has = |flag: u32| flags & flag != 0;
    let mut events = 0;
    let ends = stream.inbound_ends();
    let is_over = ends != 0 || has(sockets::SHUT_READ);
    if wanted & IN != 0 && (is_over || stream.has_bytes()) {
        events |= IN;
    }
    if wanted & libc::EPOLLPRI as u32 != 0 && stream.was_urgent() && stream.has_urgent() {
        events |= libc::EPOLLPRI as u32;
    }
    // What no member asks for is not looked at: the writer's room least of all.
    if wanted & OUT != 0 && stream.is_writable() {
        events |= OUT;
    }
    if ends == 0 && !has(sockets::SHUT_READ | sockets::WROTE_TO_CLOSED) {
        return events & (wanted | ALWAYS);
    }
    let reset = ends & RST != 0 || has(sockets::WROTE_TO_CLOSED);
    if ends & (FIN | CLOSED) != 0 || reset || has(sockets::SHUT_READ) {
        events |= libc::EPOLLRDHUP as u32;
    }
    if reset || (has(sockets::SHUT_WRITE) && is_over) {
        events |= libc::EPOLLHUP as u32;
    }
    if reset && !has(sockets::RESET_TOLD) {
        events |= libc::EPOLLERR as u32;
    }
    events & (wanted | ALWAYS)
}

/// The same of a socket object.
pub fn readiness_of(index: usize, wanted: u32) -> u32 {
    match stream::of_socket(index) {
        Some(stream) => readiness(&stream, wanted),
        None => (libc::EPOLLOUT | libc::EPOLLHUP) as u32 & (wanted | ALWAYS),
    }
}

/// epoll_ctl(2).
pub fn control(epoll: i32, command: i32, fd: i32, event: Option<libc::epoll_event>) -> Outcome {
    let entry = table::get(epoll);
    if entry.kind() != Kind::Epoll {
        return match entry.kind() {
            Kind::Pooled | Kind::Internal => Outcome::Error(libc::EBADF),
            // The shadow gives the right error.
            _ => Outcome::Kernel,
        };
    }
    let set = &SETS[entry.index()];
    let target = table::get(fd);
    match target.kind() {
        Kind::Kernel | Kind::Epoll => {
            return control_kernel(set, epoll, command, fd, target, event)
        }
        Kind::Pooled | Kind::Internal => return Outcome::Error(libc::EBADF),
        _ => {}
    }
    let mut guard = set.lock();
    let Some(inner) = guard.as_mut() else {
        return Outcome::Error(libc::EBADF);
    };
    let known = inner.find(fd, target.index());
    let result = match (command, known, event) {
        (libc::EPOLL_CTL_ADD, Some(_), _) => Err(libc::EEXIST),
        (libc::EPOLL_CTL_ADD, None, Some(event)) => {
            add(set, entry.index(), inner, fd, target, event)
        }
        (libc::EPOLL_CTL_MOD, Some(member), Some(event)) => modify(set, inner, member, event),
        (libc::EPOLL_CTL_DEL, Some(member), _) => {
            remove(set, entry.index(), inner, member);
            Ok(())
        }
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None, _) => Err(libc::ENOENT),
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _, None) => Err(libc::EFAULT),
        _ => Err(libc::EINVAL),
    };
    result.map(|()| 0).into()
}

fn control_kernel(
    set: &Set,
    epoll: i32,
    command: i32,
    fd: i32,
    target: Entry,
    event: Option<libc::epoll_event>,
) -> Outcome {
    let (events, data) = event.map_or((0, 0), |event| (event.events, event.u64));
    if event.is_none() && command != libc::EPOLL_CTL_DEL {
        return Outcome::Error(libc::EFAULT);
    }
    if target.kind() == Kind::Epoll && command == libc::EPOLL_CTL_ADD {
        watch(target.index());
    }
    let result = kernel::epoll_control(epoll, command, fd, events, data);
    if target.kind() == Kind::Epoll && result.is_ok() {
        if let Some(inner) = set.lock().as_mut() {
            inner
                .nested
                .retain(|(_, number, _)| *number != target.index());
            if command != libc::EPOLL_CTL_DEL {
                inner.nested.push((data, target.index(), fd));
            }
        }
    }
    match command {
        libc::EPOLL_CTL_ADD if result.is_ok() => set.kernel_members.fetch_add(1, Ordering::Relaxed),
        libc::EPOLL_CTL_DEL if result.is_ok() => set.kernel_members.fetch_sub(1, Ordering::Relaxed),
        _ => 0,
    };
    result.into()
}

/// From now on the kernel set behind set `number` shows that something is ready.
pub fn watch(number: usize) {
    let set = &SETS[number % SETS_MAX];
    let mut guard = set.lock();
    if let Some(inner) = guard.as_mut() {
        set.is_watched.store(true, Ordering::SeqCst);
        let _ = inner.need_waker(set);
        inner.rearm(set);
    }
}

fn add(
    set: &Set,
    number: usize,
    inner: &mut Inner,
    fd: i32,
    target: Entry,
    event: libc::epoll_event,
) -> Result<(), i32> {
    let with_exclusive = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLWAKEUP) as u32;
    let allowed = with_exclusive | ALWAYS | EDGE | EXCLUSIVE;
    if event.events & EXCLUSIVE != 0 && event.events & !allowed != 0 {
        return Err(libc::EINVAL);
    }
    inner.need_waker(set)?;
    let socket = sockets::get(target.index());
    let member = Member {
        fd,
        socket: target.index(),
        life: target.generation(),
        events: event.events,
        data: event.u64,
        is_queued: false,
        is_scanned: false,
        is_in_kernel: false,
    };
    let index = inner.insert(member);
    let word = watch_word(number, index);
    let is_first = socket
        .watch
        .compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok();
    if !is_first || set.is_orphan.load(Ordering::Relaxed) {
        if is_first {
            socket.watch.store(0, Ordering::Relaxed);
        }
        inner.scan(index);
    }
    set.members.fetch_add(1, Ordering::SeqCst);
    if target.kind() == Kind::Listener {
        add_listener(set, inner, index)?;
    } else {
        inner.settle(index);
    }
    inner.queue(index);
    set.kick(inner);
    Ok(())
}

fn add_listener(set: &Set, inner: &mut Inner, index: usize) -> Result<(), i32> {
    let Some(member) = inner.members[index].as_mut() else {
        return Ok(());
    };
    kernel::epoll_control(
        set.fd.load(Ordering::Relaxed),
        libc::EPOLL_CTL_ADD,
        member.fd,
        member.events,
        member.data,
    )?;
    member.is_in_kernel = true;
    if let Some(listener) = listener::of(sockets::get(member.socket)) {
        inner.listeners.push((index as u32, listener, 0));
        set.has_listeners.store(true, Ordering::SeqCst);
        inner.follow_listeners();
    }
    Ok(())
}

fn modify(set: &Set, inner: &mut Inner, index: usize, event: libc::epoll_event) -> Result<(), i32> {
    let Some(member) = inner.members[index].as_mut() else {
        return Err(libc::ENOENT);
    };
    if (member.events | event.events) & EXCLUSIVE != 0 {
        return Err(libc::EINVAL);
    }
    member.events = event.events;
    member.data = event.u64;
    if member.is_in_kernel {
        let (fd, data) = (member.fd, member.data);
        let epoll = set.fd.load(Ordering::Relaxed);
        kernel::epoll_control(epoll, libc::EPOLL_CTL_MOD, fd, event.events, data)?;
    }
    inner.queue(index);
    if set.sleepers.load(Ordering::SeqCst) > 0 || set.is_watched.load(Ordering::Relaxed) {
        set.kick(inner);
    }
    Ok(())
}

fn remove(set: &Set, number: usize, inner: &mut Inner, index: usize) {
    let Some(member) = inner.members[index].take() else {
        return;
    };
    detach(number, &member);
    if let Some(word) = inner.by_fd.get_mut(member.fd as usize) {
        if *word == index as u32 + 1 {
            *word = 0;
        }
    }
    if member.is_in_kernel {
        let epoll = set.fd.load(Ordering::Relaxed);
        let _ = kernel::epoll_control(epoll, libc::EPOLL_CTL_DEL, member.fd, 0, 0);
        inner.listeners.retain(|(of, ..)| *of != index as u32);
        set.has_listeners
            .store(!inner.listeners.is_empty(), Ordering::SeqCst);
    }
    if member.is_scanned {
        inner.scanned.retain(|of| *of != index as u32);
    }
    // A queued number must leave the queue before somebody else gets it.
    if member.is_queued {
        inner.ready.retain(|of| *of != index as u32);
    }
    inner.free.push(index as u32);
    set.members.fetch_sub(1, Ordering::SeqCst);
}

impl Inner {
    fn find(&self, fd: i32, socket: usize) -> Option<usize> {
        let index = (*self.by_fd.get(fd as usize)? as usize).checked_sub(1)?;
        let member = self.members.get(index)?.as_ref()?;
        (member.fd == fd && member.socket == socket).then_some(index)
    }

    fn insert(&mut self, member: Member) -> usize {
        let fd = member.fd as usize;
        let index = match self.free.pop() {
            Some(index) => index as usize,
            None => {
                self.members.push(None);
                self.members.len() - 1
            }
        };
        self.members[index] = Some(member);
        if self.by_fd.len() <= fd {
            self.by_fd.resize(fd + 64, 0);
        }
        self.by_fd[fd] = index as u32 + 1;
        index
    }

    fn need_waker(&mut self, set: &Set) -> Result<(), i32> {
        if self.waker.is_some() || set.is_orphan.load(Ordering::Relaxed) {
            return Ok(());
        }
        let waker = wait::new_waker()?;
        let epoll = set.fd.load(Ordering::Relaxed);
        let events = libc::EPOLLIN as u32;
        kernel::epoll_control(epoll, libc::EPOLL_CTL_ADD, waker.fd(), events, WAKER_DATA)?;
        self.waker = Some(waker);
        Ok(())
    }

    fn queue(&mut self, index: usize) {
        if let Some(member) = self.members.get_mut(index).and_then(Option::as_mut) {
            if !member.is_queued {
                member.is_queued = true;
                self.ready.push_back(index as u32);
            }
        }
    }

    fn scan(&mut self, index: usize) {
        let Some(member) = self.members[index].as_mut() else {
            return;
        };
        if !member.is_scanned {
            member.is_scanned = true;
            sockets::get(member.socket)
                .other_watches
                .fetch_add(1, Ordering::Relaxed);
            self.scanned.push(index as u32);
        }
    }

    /// Gives a connected member its doorbell.
    fn settle(&mut self, index: usize) {
        let Some(member) = self.members[index].as_ref() else {
            return;
        };
        if member.is_scanned {
            return;
        }
        let socket = member.socket;
        let Some(stream) = stream::of_socket(socket) else {
            return;
        };
        let place = self
            .places
            .iter()
            .position(|place| core::ptr::eq(&*place.peer, stream.peer));
        let place = place.or_else(|| self.enter(sockets::get(socket).share_peer()?));
        let Some(place) = place else {
            sockets::get(socket).watch.store(0, Ordering::Relaxed);
            self.scan(index);
            return;
        };
        self.places[place].members += 1;
        let lane = self.places[place].lane as u32 + 1;
        let meta = &stream.peer.segment.slot(stream.slot).meta;
        let has_moved = sockets::get(socket).has(sockets::HAD_LANE);
        sockets::get(socket).set(sockets::HAD_LANE, true);
        meta.lane[stream.peer.side].store(lane, Ordering::SeqCst);
        // The member is looked at next, and a ringer may just be at work. One that found no lane
        // looks for it once more behind a fence; one that still rings a former lane does not.
        if has_moved {
            barrier::heavy();
        } else {
            fence(Ordering::SeqCst);
        }
    }

    fn enter(&mut self, peer: Arc<Peer>) -> Option<usize> {
        let waker = self.waker.as_ref()?.number();
        let lane = peer
            .segment
            .claim_lane(peer.side, process::number(), waker)?;
        self.places.push(Place {
            peer,
            lane,
            members: 0,
            is_listening: false,
        });
        Some(self.places.len() - 1)
    }

    /// Sees to it that every segment of our listeners wakes us.
    fn follow_listeners(&mut self) {
        for at in 0..self.listeners.len() {
            let (index, listener, seen) = &self.listeners[at];
            let generation = listener.generation();
            if *seen == generation {
                continue;
            }
            let events = self.members[*index as usize]
                .as_ref()
                .map_or(0, |member| member.events);
            let word = if events & EXCLUSIVE != 0 { 2 } else { 1 };
            for peer in listener.peers() {
                let known = self.places.iter().position(|p| Arc::ptr_eq(&p.peer, &peer));
                if let Some(place) = known.or_else(|| self.enter(peer)) {
                    let place = &mut self.places[place];
                    place.is_listening = true;
                    let lane = place.lane();
                    lane.listening.store(word, Ordering::SeqCst);
                }
            }
            self.listeners[at].2 = generation;
            self.leave_stale();
        }
    }

    /// Lets segments of ended clients go, once nothing of ours lives there.
    fn leave_stale(&mut self) {
        self.places.retain(|place| {
            let is_over = place.peer.is_stale.load(Ordering::Relaxed)
                && place.peer.occupied().next().is_none();
            if is_over {
                place.lane().free();
            }
            !is_over
        });
    }

    /// For a set that somebody watches: the next ring must reach the kernel set.
    fn rearm(&mut self, set: &Set) {
        self.announce_sleep();
        if self.has_ready() || self.is_ringing() {
            set.kick(self);
        }
    }

    /// From now on whoever rings must wake us; what rang before is seen by a look after this.
    fn announce_sleep(&self) {
        for place in &self.places {
            place.lane().sleep();
        }
        barrier::heavy();
    }

    fn is_ringing(&self) -> bool {
        self.places.iter().any(|place| {
            place.lane().is_ringing(place.peer.segment.slots_used())
                || (place.is_listening && place.peer.segment.queue().waiting() > 0)
        })
    }
}

/// A new segment at a listener: sets that wait there must learn of it.
pub fn kick_listening() {
    for set in SETS.iter().take(used()) {
        if set.has_listeners.load(Ordering::SeqCst) {
            if let Some(inner) = set.lock().as_ref() {
                set.kick(inner);
            }
        }
    }
}

fn with_watch(index: usize, work: impl FnOnce(&Set, usize, &mut Inner, usize)) {
    let word = sockets::get(index).watch.load(Ordering::Acquire);
    let Some(number) = ((word >> 32) as usize).checked_sub(1) else {
        return;
    };
    let set = &SETS[number % SETS_MAX];
    let mut guard = set.lock();
    let member = word as u32 as usize;
    if let Some(inner) = guard.as_mut() {
        let is_it = inner.members.get(member).and_then(Option::as_ref);
        if is_it.is_some_and(|member| member.socket == index) {
            work(set, number, inner, member);
        }
    }
}

/// A member has become a connection.
pub fn connected(index: usize) {
    with_watch(index, |set, _, inner, member| {
        inner.settle(member);
        inner.queue(member);
        set.kick(inner);
    });
}

/// A member has become a listener.
pub fn add_to_kernel(index: usize) {
    with_watch(index, |set, _, inner, member| {
        let _ = add_listener(set, inner, member);
        inner.queue(member);
        set.kick(inner);
    });
}

/// A member is left to the kernel: it moves into the kernel set as it is.
pub fn move_to_kernel(index: usize) {
    with_watch(index, |set, number, inner, member| {
        let Some(found) = inner.members[member].as_ref() else {
            return;
        };
        let (fd, events, data) = (found.fd, found.events, found.data);
        remove(set, number, inner, member);
        let epoll = set.fd.load(Ordering::Relaxed);
        if kernel::epoll_control(epoll, libc::EPOLL_CTL_ADD, fd, events, data).is_ok() {
            set.kernel_members.fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// A socket's last descriptor is closed: it leaves all sets.
pub fn forget(index: usize) {
    with_watch(index, |set, number, inner, member| {
        remove(set, number, inner, member)
    });
    if sockets::get(index).other_watches.load(Ordering::Relaxed) == 0 {
        return;
    }
    for (number, set) in SETS.iter().enumerate().take(used()) {
        let mut guard = set.lock();
        let Some(inner) = guard.as_mut() else {
            continue;
        };
        let is_it = |of: &u32| {
            let member = inner.members[*of as usize].as_ref();
            member.is_some_and(|member| member.socket == index)
        };
        let found: Vec<u32> = inner
            .scanned
            .iter()
            .copied()
            .filter(|of| is_it(of))
            .collect();
        for member in found {
            remove(set, number, inner, member as usize);
        }
    }
}

/// Whether something is ready in set `number`, without taking it.
pub fn is_ready(number: usize) -> bool {
    let mut guard = SETS[number % SETS_MAX].lock();
    guard.as_mut().is_some_and(|inner| {
        inner.drain(number);
        inner.has_ready()
    })
}

/// Locks all sets across a fork.
pub fn hold() -> impl Sized {
    let free = FREE.lock().ok();
    let used = free.as_ref().map_or(0, |free| free.1);
    let guards: Vec<_> = SETS.iter().take(used).map(Set::lock).collect();
    (free, guards)
}

/// In a forked child: sets are copies without doorbells; they are looked at every millisecond.
pub fn orphan() {
    for set in SETS.iter().take(used()) {
        let mut guard = set.lock();
        let Some(inner) = guard.as_mut() else {
            continue;
        };
        set.is_orphan.store(true, Ordering::Relaxed);
        set.sleepers.store(0, Ordering::Relaxed);
        if let Some(waker) = inner.waker.take() {
            // Stays open: the kernel set is the parent's too and names it.
            core::mem::forget(waker);
        }
        inner.places.clear();
        for index in 0..inner.members.len() {
            if let Some(member) = &inner.members[index] {
                let socket = sockets::get(member.socket);
                if !member.is_scanned {
                    socket.watch.store(0, Ordering::Relaxed);
                    inner.scan(index);
                }
            }
        }
    }
}

/// Whether the kernel's part of the set behind `fd` has an event that is not our waker's. A
/// one-shot or edge event must not be taken by looking: the kernel is asked through a poll of the
/// set, after the waker was emptied.
pub fn has_kernel_events(fd: i32) -> bool {
    let entry = table::get(fd);
    if entry.kind() == Kind::Epoll {
        if let Some(inner) = SETS[entry.index() % SETS_MAX].lock().as_ref() {
            if let Some(waker) = &inner.waker {
                waker.drain();
            }
            inner.announce_sleep();
        }
    }
    let mut one = [libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }];
    kernel::poll(&mut one, Some(Duration::ZERO), None).is_ok_and(|count| count > 0)
}
