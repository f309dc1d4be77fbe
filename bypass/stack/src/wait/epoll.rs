//! Sets: user-level members and kernel members in one `epoll_wait`.
//!
//! Kernel members live in the program's own kernel set. User-level ones live here: a list of
//! members, a queue of members that deserve a look, and one ready list (doorbells) in every segment that a
//! member lives in. A listener is in both. Before it sleeps, the waiter says so in its ready lists and
//! looks once more; a peer that rings then writes to the waker, which is in the kernel set too. In quiet segments
//! it says so while it is awake, and does not look there (`quiet`).

use core::sync::atomic::{
    fence, AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bypass_shm::doorbell::Seen;
use bypass_shm::layout::{ReadyList, FIN, RST};
use bypass_stats::{Counter, Reason};
use bypass_sys::barrier;
use bypass_sys::kernel;
use bypass_sys::waker::Waker;

use crate::listener::{self, Listener};
use crate::packets;
use crate::peer::Peer;
use crate::process::deadline::Deadline;
use crate::process::table::{self, Entry, Kind};
use crate::process::{self, wakers, Outcome, Polling};
use crate::sockets;
use crate::stream::{self, readiness_of, Stream, ALWAYS};
use crate::sys::{Owned, OwnedGuard};

mod collecting;
mod control;
mod datagrams;
mod members;
mod nested;
mod quiet;
mod waiting;
pub use control::{
    add_to_kernel, connected, control, forget, leave_to_kernel, move_to_kernel, note_found,
    put_back, take, watch,
};
pub use datagrams::forget_datagrams;
use datagrams::Watched;
use nested::Nested;
use quiet::Quiet;
pub use waiting::wait;

/// Sets of a process; more are pure kernel sets.
const SETS_MAX: usize = 4096;
/// Names our waker among the events of a kernel set.
const WAKER_DATA: u64 = 0x5753_7761_6b65_7231;
/// Names a listener with EPOLLONESHOT among them, with its name as a member in the lower half.
const ONESHOT_DATA: u64 = 0x5753_6f73 << 32;

const EDGE: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

/// What a program asks of a member. Not libc's packed structure: its fields stay apart, so that
/// reading one does not wait for the stores of both.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// EPOLLIN and others.
    pub events: u32,
    /// Returned to the program with the events.
    pub data: u64,
}

/// How a connection looks to a set that is not notified of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    head: u64,
    records_done: u64,
    tail: u64,
    records: u64,
    urgent: u64,
    ends: u32,
    events: u32,
}

#[derive(Debug)]
struct Member {
    fd: i32,
    socket: usize,
    life: u32,
    events: u32,
    data: u64,
    is_queued: bool,
    /// Has no ready list of its own: looked at in every round.
    is_scanned: bool,
    /// The shadow is in the kernel set as well.
    is_in_kernel: bool,
    /// The number that it has there.
    kernel_fd: i32,
    /// By chance, as [`Nested::member`]: the kernel set knows a one-shot listener by it.
    name: u32,
}

impl Member {
    /// Whether it may report: a one-shot that has fired may not until it is asked for again.
    fn is_armed(&self) -> bool {
        self.events & ONESHOT == 0 || self.events & !(EDGE | ONESHOT | EXCLUSIVE) != 0
    }

    /// A one-shot has fired.
    fn disarm(&mut self) {
        self.events &= EDGE | ONESHOT;
    }

    /// The member's data in the kernel's set: for a one-shot it names the member, because clients of either
    /// kind disarm it for both.
    fn kernel_data(&self) -> u64 {
        if self.events & ONESHOT != 0 {
            ONESHOT_DATA | u64::from(self.name)
        } else {
            self.data
        }
    }
}

/// A segment where members live, with our doorbells in it.
#[derive(Debug)]
struct Place {
    peer: Arc<Peer>,
    ready_list: usize,
    /// The news of the ready list that were seen.
    seen: Seen,
    is_listening: bool,
    /// Since it was last asked whether somebody rings here.
    has_rung: bool,
}

impl Place {
    /// New connections wake us from now on, as `word` says.
    fn listen(&mut self, word: u32) {
        self.is_listening = true;
        self.ready_list().listening.store(word, Ordering::SeqCst);
    }

    /// Whether somebody has rung since the last look.
    #[inline]
    fn is_ringing(&self) -> bool {
        let slots = self.peer.segment.slots_used();
        self.ready_list().is_ringing(slots, &self.seen)
    }

    /// Whether connections wait here for a listener of the set.
    #[inline]
    fn has_waiting(&self) -> bool {
        self.is_listening && self.peer.segment.queue().waiting() > 0
    }

    #[inline]
    fn ready_list(&self) -> &ReadyList {
        self.peer
            .segment
            .ready_list(self.peer.side, self.ready_list)
    }
}

#[derive(Debug, Default)]
struct Inner {
    members: Vec<Option<Member>>,
    free: Vec<u32>,
    /// By descriptor: member plus one.
    by_fd: Vec<u32>,
    ready: VecDeque<u32>,
    /// The places that a look goes through.
    places: Vec<Place>,
    /// The others.
    quiet: Quiet,
    scanned: Vec<u32>,
    /// Of those with EPOLLET: how they were at the last look.
    marks: HashMap<u32, Mark>,
    listeners: Vec<(u32, Arc<Listener>, u32)>,
    /// Of listeners with EPOLLET, by member: the arrivals that were reported.
    reported: HashMap<u32, u64>,
    nested: Vec<Nested>,
    datagrams: Vec<Watched>,
    /// Arrivals for all UDP sockets when the ones here were last looked at, and whether they had datagrams then.
    arrivals: u32,
    had_datagrams: bool,
    /// A segment of a listener has no ready list for us: its queue is asked through the listener.
    misses_a_place: bool,
    waker: Option<Waker>,
    /// Descriptors of this process that mean the set.
    numbers: Vec<i32>,
    /// When the kernel's part was last looked at, in the clock's ticks.
    polled: u64,
    /// The kernel's part had something when it was last looked at.
    is_kernel_busy: bool,
    fruitless_spins: u32,
    looks: u32,
    /// Sleeps without a ready list in some segment.
    seeks: u32,
}

struct Set {
    inner: Owned<Option<Box<Inner>>>,
    /// The waker's number plus one, 0 while there is none: for who wakes without the lock.
    waker: AtomicU64,
    members: AtomicU32,
    kernel_members: AtomicI32,
    sleepers: AtomicU32,
    /// Threads that wait for the lock.
    callers: AtomicU32,
    has_listeners: AtomicBool,
    /// Other sets are members.
    has_nested: AtomicBool,
    /// Another set or a poll watches this one: every ring must reach the kernel set.
    is_watched: AtomicBool,
    /// Inherited over a fork: the waker and the ready lists are the parent's.
    is_orphan: AtomicBool,
    /// Another process has the kernel's part of it too, since a fork.
    is_shared: AtomicBool,
    /// One of the descriptors, for what is done in the kernel's set; changes under the lock.
    fd: AtomicI32,
    /// Counts the ends of sets with this number: who has slept in one of them must not look into the next.
    ends: AtomicU32,
}

impl Set {
    const fn new() -> Self {
        Self {
            inner: Owned::new(None),
            waker: AtomicU64::new(0),
            members: AtomicU32::new(0),
            kernel_members: AtomicI32::new(0),
            sleepers: AtomicU32::new(0),
            callers: AtomicU32::new(0),
            has_listeners: AtomicBool::new(false),
            has_nested: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            is_orphan: AtomicBool::new(false),
            is_shared: AtomicBool::new(false),
            fd: AtomicI32::new(0),
            ends: AtomicU32::new(0),
        }
    }

    #[inline]
    fn lock(&self) -> OwnedGuard<'_, Option<Box<Inner>>> {
        self.inner.lock(|mutex| self.lock_slowly(mutex))
    }

    /// A thread that spins on the set holds the lock meanwhile; it sees `callers` and steps aside.
    #[cold]
    fn lock_slowly<'a>(&self, mutex: &'a Mutex<()>) -> MutexGuard<'a, ()> {
        self.callers.fetch_add(1, Ordering::Relaxed);
        let guard = match mutex.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        };
        self.callers.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Whether a thread sleeps on the set, or a wait elsewhere has it in view.
    fn is_awaited(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) > 0 || self.is_watched.load(Ordering::Relaxed)
    }

    /// Makes sleepers and watchers look.
    fn kick(&self) {
        if self.is_awaited() {
            if let Some(waker) = self.waker.load(Ordering::Acquire).checked_sub(1) {
                process::wake(process::number(), waker as u32);
            }
        }
    }
}

static SETS: [Set; SETS_MAX] = [const { Set::new() }; SETS_MAX];
/// Numbers of closed sets.
static FREE: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// Numbers below this were given out; read while a set is locked, so it has no lock.
static USED: AtomicUsize = AtomicUsize::new(0);

fn used() -> usize {
    USED.load(Ordering::SeqCst)
}

/// A new set behind the kernel set `fd`.
pub fn register(fd: i32) {
    if process::settings().ul_epoll == 0 {
        return;
    }
    let number = FREE.lock().ok().and_then(|mut free| {
        free.pop().map(|number| number as usize).or_else(|| {
            let next = used();
            (next < SETS_MAX).then(|| {
                USED.store(next + 1, Ordering::SeqCst);
                next
            })
        })
    });
    let Some(number) = number else {
        process::fall_back(Reason::Limit);
        return;
    };
    let set = &SETS[number];
    *set.lock() = Some(Box::new(Inner {
        numbers: vec![fd],
        ..Inner::default()
    }));
    set.fd.store(fd, Ordering::Relaxed);
    let of_members = [&set.has_listeners, &set.has_nested];
    for flag in of_members
        .into_iter()
        .chain([&set.is_watched, &set.is_orphan, &set.is_shared])
    {
        flag.store(false, Ordering::Relaxed);
    }
    set.members.store(0, Ordering::Relaxed);
    set.kernel_members.store(0, Ordering::Relaxed);
    table::set(fd, Entry::new(Kind::Epoll, number, 0));
}

/// The kernel has duplicated a set's descriptor: `fd` means the same set.
pub fn share(number: usize, fd: i32) {
    if let Some(inner) = SETS[number % SETS_MAX].lock().as_mut() {
        inner.numbers.push(fd);
        table::set(fd, Entry::new(Kind::Epoll, number, 0));
    }
}

/// `fd` no longer means set `number`; the set ends with its last descriptor.
pub fn close(number: usize, fd: i32) {
    let set = &SETS[number % SETS_MAX];
    let mut guard = set.lock();
    if let Some(inner) = guard.as_mut() {
        inner.numbers.retain(|of| *of != fd);
        if let Some(other) = inner.numbers.first() {
            set.fd.store(*other, Ordering::Relaxed);
            return;
        }
    }
    let inner = guard.take();
    set.ends.fetch_add(1, Ordering::Relaxed);
    drop(guard);
    end(number, set, inner);
}

fn end(number: usize, set: &Set, inner: Option<Box<Inner>>) {
    set.waker.store(0, Ordering::Release);
    if let Some(inner) = inner {
        for member in inner.members.iter().flatten() {
            inner.detach(number, member);
        }
        for place in inner.places.iter().chain(&inner.quiet.places) {
            place.ready_list().free();
        }
        inner.leave_datagrams();
        for waker in inner.waker.iter().chain(&inner.quiet.waker) {
            table::show(waker.fd());
        }
        let of_numbers = inner.nested.into_iter();
        of_numbers.for_each(|nested| nested.leave(None));
    }
    if set.is_watched.load(Ordering::Relaxed) {
        leave_outer_sets(number);
    }
    if let Ok(mut free) = FREE.lock() {
        free.push(number as u32);
    }
}

/// A closed set leaves the sets it is in: another descriptor may come to report with its data.
fn leave_outer_sets(number: usize) {
    for set in SETS.iter().take(used()) {
        if let Some(inner) = set.lock().as_mut() {
            let is_shared = set.is_shared.load(Ordering::Relaxed);
            let epoll = set.fd.load(Ordering::Relaxed);
            let ended = inner.nested.extract_if(.., |one| one.number == number);
            ended.for_each(|one| one.leave((!is_shared).then_some(epoll)));
        }
    }
}

fn watch_word(set: usize, member: usize) -> u64 {
    (set as u64 + 1) << 32 | member as u64
}

/// A new segment at a listener: sets that wait there must learn of it.
pub fn kick_listening() {
    for set in SETS.iter().take(used()) {
        // Without the set's lock, which one thread of the program may have for itself: whoever
        // goes to sleep there says so, passes a fence and then looks for new segments.
        if set.has_listeners.load(Ordering::SeqCst) {
            fence(Ordering::SeqCst);
            set.kick();
        }
    }
}

/// A set has a member now that must be looked at: who sleeps on a set around it must not oversleep.
fn kick_outer_sets() {
    for set in SETS.iter().take(used()) {
        if set.has_nested.load(Ordering::SeqCst) {
            set.kick();
        }
    }
}

/// Whether something is ready in set `number`, without taking it.
pub fn is_ready(number: usize) -> bool {
    let mut guard = SETS[number % SETS_MAX].lock();
    guard.as_mut().is_some_and(|inner| {
        inner.hear_quiet();
        inner.drain(number);
        inner.drain_held_back(number);
        let is_ready = inner.has_ready();
        inner.arm_taken_up(&SETS[number % SETS_MAX]);
        is_ready
    })
}

/// Why something of set `number` can become ready without a ring, so that a thread that waits for the set looks again
/// soon; None where nothing can.
pub fn must_be_looked_at(number: usize) -> Option<Polling> {
    let set = &SETS[number % SETS_MAX];
    let guard = set.lock();
    guard.as_ref()?.why_look_again(set)
}

/// Locks all sets across a fork, after which two processes have them.
pub fn hold() -> impl Sized {
    let free = FREE.lock().ok();
    loop {
        match lock_all() {
            Ok(mut guards) => {
                for (set, guard) in SETS.iter().zip(&mut guards) {
                    if let Some(inner) = guard.as_mut() {
                        inner.take_up_all(set);
                    }
                    set.is_shared.store(true, Ordering::Relaxed);
                }
                return (free, guards);
            }
            // The thread that holds this set may need another: a set looks at the sets in it. So none is held while
            // this one waits.
            Err(taken) => drop(taken.lock()),
        }
    }
}

fn lock_all() -> Result<Vec<OwnedGuard<'static, Option<Box<Inner>>>>, &'static Set> {
    let sets = SETS.iter().take(used());
    sets.map(|set| set.inner.try_lock().ok_or(set)).collect()
}

/// In a forked child: sets are copies without doorbells; they are looked at every millisecond.
pub fn orphan() {
    let mut ended = Vec::new();
    for (number, set) in SETS.iter().enumerate().take(used()) {
        let mut guard = set.lock();
        let Some(inner) = guard.as_mut() else {
            continue;
        };
        // A thread of the parent was closing the others.
        let entry = Entry::new(Kind::Epoll, number, 0);
        inner.numbers.retain(|fd| table::get(*fd) == entry);
        match inner.numbers.first() {
            Some(fd) => set.fd.store(*fd, Ordering::Relaxed),
            None => ended.push(number),
        }
        set.is_orphan.store(true, Ordering::Relaxed);
        set.sleepers.store(0, Ordering::Relaxed);
        set.waker.store(0, Ordering::Release);
        for waker in inner
            .waker
            .take()
            .into_iter()
            .chain(inner.quiet.waker.take())
        {
            // Stays open: the kernel set is the parent's too and names it.
            core::mem::forget(waker);
        }
        inner.places.clear();
        inner.quiet.places.clear();
        inner.misses_a_place = true;
        for (_, listener, _) in &inner.listeners {
            listener.attend();
        }
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
    ended.into_iter().for_each(|number| close(number, -1));
}

/// Whether the set behind `fd` shows an event that is not an old ring of our waker's. A one-shot or
/// edge event must not be taken by looking: the kernel is asked through a poll of the set, after the
/// waker was emptied and rung again for what is there.
pub fn has_kernel_events(fd: i32) -> bool {
    let entry = table::get(fd);
    if entry.kind() == Kind::Epoll {
        let set = &SETS[entry.index() % SETS_MAX];
        if let Some(inner) = set.lock().as_mut() {
            inner.renew_watch(set);
        }
    }
    let mut one = [libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }];
    kernel::poll(&mut one, Some(Duration::ZERO), None).is_ok_and(|count| count > 0)
}
