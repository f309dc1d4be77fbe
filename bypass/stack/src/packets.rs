//! Connections to other hosts: a TCP engine in this process, over the interfaces that were named.
//!
//! A connection over packets lives in a segment as one of the same host does; at its other end stands
//! a [`relay`] in place of another process, which moves bytes between the segment and the engine. So
//! descriptors, readiness, waiting, fork and passing are the same for both transports, and the
//! same-host path knows nothing of packets. The price is one copy in each direction.
//!
//! Interfaces are opened by the process that listens or connects first, which has the privilege
//! ([`interface`]); the engine is made by the process that first waits at a listener or connects, after fork. A thread
//! that waits drives it; the service thread does while no thread waits.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use bypass_shard::tcp::Error;
use bypass_shard::Stray;
use bypass_stats::Reason;
use bypass_sys::clock::{now_ns, ticks, ticks_in};
use bypass_sys::sandbox::is_confined;
use bypass_sys::thread::thread;
use bypass_xdp::{Opened, Xdp};

use crate::listener;
use crate::peer::Peer;
use crate::process;
use crate::service;
use crate::sockets::{self, Socket};

mod captured;
pub mod datagrams;
mod dividing;
mod ending;
mod engine;
mod holders;
pub mod info;
mod interface;
pub mod options;
mod relay;
mod relays;
mod secret;
mod watching;

pub use ending::{finish, linger};
pub use interface::{admit_to_cluster, inherit, leave, meet_cluster};
pub use watching::{poll, watch, Watch};

use interface::Wants;
use options::Wish;
use relay::Relay;

static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

/// The listeners' [count of changes](listener::changes) that the relays know.
static LISTENERS_KNOWN: AtomicU32 = AtomicU32::new(0);
/// The engines are made once, or it is known that there are none.
static IS_STARTED: Mutex<bool> = Mutex::new(false);
/// The process ends: it takes no interface and no queue any more.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// Another process uses an interface that was named; this process takes it when that one ends.
static IS_WAITING: AtomicBool = AtomicBool::new(false);

/// There are queues that other processes use or may use; this process takes them when those processes end.
static IS_LOOKING: AtomicBool = AtomicBool::new(false);
/// This process opens connections or sends datagrams, so it needs an engine also where it accepts nowhere.
static IS_CLIENT: AtomicBool = AtomicBool::new(false);
/// When that was looked at last, by [`bypass_sys::clock`].
static LOOKED_NS: AtomicU64 = AtomicU64::new(0);

/// Engines and listeners that leave new connections to the kernel because there are as many as may be.
static FULL: AtomicU32 = AtomicU32::new(0);
/// Listeners that do so because the program accepts too few.
static UNACCEPTED: AtomicU32 = AtomicU32::new(0);

/// Between looks whether an interface is free.
const TAKE_AGAIN: Duration = Duration::from_millis(20);
/// The same while every queue has somebody whose end is heard: each look wakes a sleeping processor.
const TAKE_AGAIN_QUIET: Duration = Duration::from_millis(200);
/// It is so.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// When the engines had their last round, by the ticks of the processor.
static DRIVEN: AtomicU64 = AtomicU64::new(0);
/// So long after a round connections that wait are accepted before the next.
const ACCEPT_US: u64 = 50;

/// How long no thread must have driven an engine before the service thread does.
const IDLE_US: u64 = 1000;

/// Whether any interface was named.
#[inline]
pub fn is_wanted() -> bool {
    !process::settings().interfaces.is_empty()
}

/// Whether connections over packets can exist in this process.
#[inline]
pub fn is_active() -> bool {
    IS_ACTIVE.load(Ordering::Relaxed)
}

/// Why connections accepted from the kernel may have been left to it.
#[inline]
pub fn why_left() -> Option<Reason> {
    let all = [(&FULL, Reason::Limit), (&UNACCEPTED, Reason::NotAccepting)];
    let found = all
        .into_iter()
        .find(|(left, _)| left.load(Ordering::Relaxed) > 0);
    found.map(|(_, reason)| reason)
}

/// How many engines and listeners leave them for this reason.
fn left_for(reason: Reason) -> Option<&'static AtomicU32> {
    match reason {
        Reason::Limit => Some(&FULL),
        Reason::NotAccepting => Some(&UNACCEPTED),
        _ => None,
    }
}

/// Whether `client` came over an interface that was named and another process uses: had this one used it, it
/// would have been over packets.
#[inline]
pub fn is_of_others(client: impl FnOnce() -> Option<SocketAddr>) -> bool {
    IS_WAITING.load(Ordering::Relaxed)
        && client().is_some_and(|client| interface::leads_over_named(client.ip()))
}

/// Opens the interfaces that were named, now, before privileges are dropped.
pub fn open_interfaces() {
    if is_wanted() && !is_confined() {
        open_all();
    }
}

/// Every interface that was named, and what has been opened before: for workers without privilege, which may accept
/// where the program listens now.
fn open_all() {
    interface::open_all();
    permit_ports();
}

fn permit_ports() {
    let port = |one: &Arc<listener::Listener>| Some(sockets::kernel_name(one.any_fd())?.port());
    let ports: Vec<u16> = listener::all().iter().filter_map(port).collect();
    interface::permit(&ports);
}

/// The program has given up its privileges: neither it nor whoever takes it over can claim what was not permitted before.
pub fn give_up_privileges() {
    if is_wanted() {
        interface::give_up_privileges();
    }
}

/// Begins a connection of the program's to `target`, whose socket object, its number and its options are
/// given: the segment and slot where it lives, and our address. A reason: the kernel is to do it.
pub fn open(
    socket: (usize, &Socket),
    target: SocketAddr,
    wishes: impl FnOnce() -> Vec<Wish>,
) -> Result<(Arc<Peer>, usize, SocketAddr), Reason> {
    if !is_wanted() || !interface::leads_over_named(target.ip()) {
        return Err(Reason::NotLocal);
    }
    if socket.1.has(sockets::BOUND) {
        // The kernel holds the port, and only the kernel may answer there.
        return Err(Reason::BoundAddress);
    }
    let wishes = wishes();
    if wishes.iter().any(|wish| wish.is_unknown_congestion()) {
        return Err(Reason::Option);
    }
    begin_as_client();
    let mut reason = Reason::Interface;
    let opened = relays::find(|relay| match relay.open(socket, target, &wishes) {
        Ok(opened) => Some(opened),
        Err(Error::NetworkUnreachable) => None,
        Err(_) => {
            reason = Reason::Limit;
            None
        }
    });
    opened.ok_or(reason)
}

/// Process `asking` takes part in a listener from now on: it gets the segments of connections that come
/// through here, also where this process has closed that listener.
pub fn share(inode: u64, asking: u64) {
    relays::each(|relay| relay.share(inode, asking));
}

/// Before a wait: what listens here is listened on over packets too.
#[inline]
pub fn ensure() {
    let now = listener::changes();
    if now != LISTENERS_KNOWN.load(Ordering::Relaxed) {
        follow_listeners(now);
    }
}

#[cold]
fn follow_listeners(now: u32) {
    if !is_wanted() {
        LISTENERS_KNOWN.store(now, Ordering::Relaxed);
        return;
    }
    // Engines need a thread, for which libc allocates: not where a handler may have interrupted malloc. The next wait
    // outside of it looks again.
    if !is_active() && thread().is_handling() {
        return;
    }
    LISTENERS_KNOWN.store(now, Ordering::Relaxed);
    // A process that only holds listeners, as a master does for its workers, leaves interfaces and queues to them.
    if !is_active() && !listener::are_attended() {
        return;
    }
    if is_confined() {
        return;
    }
    begin();
    relays::each(|relay| relay.follow(&listener::all()));
}

/// Before this process confines itself: it accepts new clients from the kernel alone, so the engines listen for it no
/// more. Connections that have come already are offered to it first.
pub fn leave_listeners() {
    relays::each(|relay| {
        relay.drive();
        relay.follow(&[]);
    });
}

/// Makes the engines now if they were not and no signal handler runs.
fn begin() {
    if !is_active() && !thread().is_handling() {
        start();
    }
}

/// The same for what is not accepted.
fn begin_as_client() {
    if !IS_CLIENT.load(Ordering::Relaxed) {
        IS_CLIENT.store(true, Ordering::Relaxed);
    }
    begin();
}

#[cold]
fn start() {
    let Ok(mut is_started) = IS_STARTED.lock() else {
        return;
    };
    if *is_started || !is_wanted() || is_confined() {
        return;
    }
    *is_started = true;
    service::with_stack(|| {
        open_all();
        if service::start().is_err() {
            return;
        }
        bypass_sys::process::at_exit(ending::finish);
        take_free();
        service::wake();
    });
}

/// Makes engines over the interfaces, and the queues of those, that no other process uses, or uses any more. One at a
/// time: whoever calls holds what says that they are started. Whether there were any, or some to give back.
fn take_free() -> bool {
    if IS_ENDING.load(Ordering::Relaxed) {
        return false;
    }
    LOOKED_NS.store(now_ns(), Ordering::Relaxed);
    let listeners = listener::all();
    if interface::returning::open_returned() {
        permit_ports();
    }
    let wants = Wants {
        connections: listener::are_attended(),
        engine: IS_CLIENT.load(Ordering::Relaxed),
    };
    let taken = interface::take(&wants);
    for number in &taken.gone {
        interface::returning::expect(*number);
    }
    IS_WAITING.store(taken.is_waiting, Ordering::Relaxed);
    let is_looking = taken.is_looking || interface::returning::are_expected();
    IS_LOOKING.store(is_looking, Ordering::Relaxed);
    let are_heard = holders::follow(&taken.holders);
    IS_QUIET.store(are_heard && !taken.has_free, Ordering::Relaxed);
    let mut new = taken.engines;
    let has_changed = !(new.is_empty() && taken.queues.is_empty() && taken.surplus.is_empty());
    for relay in &mut new {
        relay.succeed(&listeners);
    }
    if !new.is_empty() {
        new.into_iter().for_each(relays::enter);
        follow_links();
        IS_ACTIVE.store(true, Ordering::Release);
        datagrams::follow_engines();
    }
    for (number, queue, opened) in taken.queues {
        if !add_queue(number, queue, opened) {
            interface::forget_device(number, queue);
            interface::give_back(number, queue);
        }
    }
    for (number, queue) in taken.surplus {
        interface::forget_device(number, queue);
        let removed = relays::with(number, |relay| relay.remove_queue(queue));
        if removed.is_some_and(|removed| removed.is_ok()) {
            interface::give_back(number, queue);
        }
    }
    has_changed
}

/// From now on [`take_free`] takes nothing, and none is at it: an engine that came to be after the process has looked for the
/// last time whether it has one would answer clients, and end without a word.
fn take_no_more() {
    let one_at_a_time = match thread().is_handling() {
        true => try_for(&IS_STARTED, ENDING_TRIES),
        false => IS_STARTED.lock().ok(),
    };
    IS_ENDING.store(true, Ordering::Relaxed);
    drop(one_at_a_time);
}

/// How often a handler that ends the process asks for what decides about engines: the service thread may take one, or the thread
/// that the handler has interrupted, which would wait for ever.
const ENDING_TRIES: u32 = 1000;

/// Locks after so many tries, a millisecond apart; None: whoever has it may be the calling thread.
fn try_for<T>(one: &Mutex<T>, tries: u32) -> Option<MutexGuard<'_, T>> {
    (0..tries).find_map(|_| match one.try_lock() {
        Ok(locked) => Some(locked),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            std::thread::sleep(Duration::from_millis(1));
            None
        }
    })
}

/// Whether it could be used.
fn add_queue(number: u64, queue: u32, opened: Opened) -> bool {
    let memory = opened.memory();
    // With no engine locked: it may wait until the kernel has sent what another process has left.
    let device = match Xdp::over(opened) {
        Ok(device) => device,
        Err((_, _opened)) => {
            interface::forget_used(memory);
            interface::forget_device(number, queue);
            return false;
        }
    };
    interface::forget_used(memory);
    let added = relays::with(number, |relay| relay.add_queue(queue, Box::new(device)));
    added.is_some_and(|added| added.is_ok())
}

/// A round of every engine that no other thread is driving.
#[inline]
pub fn drive() {
    if is_active() {
        drive_all(Relay::drive);
    }
}

/// The same, by a thread that waits and has found nothing to do.
#[inline]
pub fn drive_idle() {
    if is_active() {
        drive_all(Relay::drive_idle);
    }
}

/// [`drive_idle`] of every engine, after whoever is driving it.
pub fn drive_in_turn() {
    if is_active() {
        relays::each(Relay::drive_idle);
    }
}

/// Whether the engines had a round a moment ago.
#[inline]
pub fn were_driven_just_now() -> bool {
    is_active() && ticks().wrapping_sub(DRIVEN.load(Ordering::Relaxed)) < ticks_in(ACCEPT_US)
}

fn drive_all(round: fn(&mut Relay)) {
    DRIVEN.store(ticks(), Ordering::Relaxed);
    let mut strays = Vec::new();
    relays::each_free(|relay| {
        round(relay);
        strays.append(&mut relay.take_strays());
    });
    if !strays.is_empty() {
        bring(strays);
    }
    datagrams::look_at_others();
}

/// Brings frames to the engines that have their addresses.
#[cold]
fn bring(mut strays: Vec<Stray>) {
    relays::each(|relay| {
        let mut has_any = false;
        strays = std::mem::take(&mut strays)
            .into_iter()
            .filter_map(|stray| {
                let left = relay.bring(stray);
                has_any |= left.is_none();
                left
            })
            .collect();
        if has_any {
            relay.drive();
        }
    });
}

/// For the service thread: drives engines that no thread has driven for a while. Returns how it is to sleep: with no
/// regard to packets, for a while, or until an engine has something to do.
pub fn serve() -> Service {
    look();
    let is_looking = IS_LOOKING.load(Ordering::Relaxed);
    if !is_active() {
        return match is_looking {
            true => Service::Tick(TAKE_AGAIN),
            false => Service::None,
        };
    }
    // Of a process that has confined itself only this thread may ask the kernel for an engine.
    let idle_us = if is_confined() { 0 } else { IDLE_US };
    let (mut is_busy, mut strays) = (false, Vec::new());
    let (mut gone, mut is_any_done) = (Vec::new(), false);
    let are_free = relays::each_free(|relay| {
        relay.drive_if_idle(idle_us);
        strays.append(&mut relay.take_strays());
        is_busy |= relay.is_busy();
        if relay.has_gone() {
            gone.push(relay.number);
        }
        is_any_done |= relay.is_done();
        if let Some(apply) = relay.new_policies() {
            interface::say_policies(relay.number, apply);
        }
    });
    is_busy |= !are_free;
    if is_any_done || !gone.is_empty() {
        clear_away(&gone);
    }
    if !strays.is_empty() {
        bring(strays);
    }
    if is_busy {
        return Service::Tick(Duration::from_micros(IDLE_US));
    }
    match watching::watch_for_service() {
        None => Service::Tick(Duration::ZERO),
        Some(watch) if IS_LOOKING.load(Ordering::Relaxed) => Service::Watch(watch.looking()),
        Some(watch) => Service::Watch(watch),
    }
}

/// Interfaces have gone, or programs have let the last connections go of some that had.
#[cold]
fn clear_away(gone: &[u64]) {
    // Not while a child is made.
    let _one_at_a_time = IS_STARTED.lock();
    for number in gone {
        interface::returning::expect(*number);
        IS_LOOKING.store(true, Ordering::Relaxed);
    }
    relays::free(interface::close);
    follow_links();
}

/// Each engine knows the interfaces of the others.
fn follow_links() {
    let links = interface::links();
    relays::each(|relay| relay.follow_links(&links));
}

fn pause() -> Duration {
    match IS_QUIET.load(Ordering::Relaxed) {
        true => TAKE_AGAIN_QUIET,
        false => TAKE_AGAIN,
    }
}

/// Somebody has ended that had queues.
fn look_at_once() {
    LOOKED_NS.store(0, Ordering::Relaxed);
}

/// Looks for engines and queues that this process could have, or should give back, where it is time. Whether there were any.
fn look() -> bool {
    let is_looking = IS_LOOKING.load(Ordering::Relaxed);
    let since_ns = now_ns().saturating_sub(LOOKED_NS.load(Ordering::Relaxed));
    // A process without an engine looks whenever it is woken, such as by the end of a link to one that had an engine.
    let is_due = is_looking && since_ns >= TAKE_AGAIN.as_nanos() as u64
        || IS_WAITING.load(Ordering::Relaxed) && !is_active();
    if !is_due {
        return false;
    }
    let one_at_a_time = IS_STARTED.lock();
    one_at_a_time.is_ok_and(|_locked| take_free())
}

/// See [`serve`].
#[allow(
    clippy::large_enum_variant,
    reason = "one at a time, on the stack of the service thread"
)]
pub enum Service {
    /// Packets are not in use.
    None,
    /// Look again after so long.
    Tick(Duration),
    /// Sleep with these.
    Watch(Watch),
}

/// Locks what decides about interfaces across a fork.
pub fn hold() -> impl Sized {
    let datagrams = datagrams::hold();
    let engines = (IS_STARTED.lock().ok(), interface::hold(), holders::hold());
    (datagrams, engines)
}

/// In a forked child: the engines are the parent's, and so are the queues that they use. What it has
/// inherited goes on through the parent; it makes none of its own.
pub fn forget() {
    IS_WAITING.store(false, Ordering::Relaxed);
    IS_LOOKING.store(false, Ordering::Relaxed);
    IS_CLIENT.store(false, Ordering::Relaxed);
    IS_ENDING.store(false, Ordering::Relaxed);
    FULL.store(0, Ordering::Relaxed);
    UNACCEPTED.store(0, Ordering::Relaxed);
    ending::forget();
    holders::forget();
    datagrams::forget();
    interface::forget_network();
    interface::returning::forget();
    if IS_ACTIVE.swap(false, Ordering::AcqRel) {
        relays::forget();
        interface::close_used();
    }
}
