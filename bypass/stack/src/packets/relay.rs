//! The other end of connections over packets: moves bytes between their segments and an engine.
//!
//! For a listener it is a client with a segment of its own, which offers what the engine has accepted.
//! For connections that the program opens it is the server of a segment that the program's side has
//! made. It is rung as any process is, by a ready list in each segment.

use core::sync::atomic::{fence, Ordering};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bypass_shard::tcp::{self, Handle, SocketOption};
use bypass_shard::{Shard, Stray};
use bypass_shm::doorbell::Seen;
use bypass_shm::layout::{ReadyList, FIN, SLOTS_MAX};
use bypass_shm::segment::Segment;
use bypass_stats::Reason;
use bypass_sys::clock::now_ns;
use bypass_sys::descriptor::Owned;
use bypass_sys::thread::thread;
use bypass_sys::waker::Waker;
use bypass_sys::{kernel, numbers};

use crate::listener::Listener;
use crate::peer::{self, Peer};
use crate::process::{self, wakers};
use crate::service;
use crate::sockets::{self, Socket};

mod asking;
mod closing;
mod counting;
mod datagrams;
mod gone;
mod keeping;
mod listening;
mod moving;
mod opening;
mod room;
mod yielding;

pub use room::LATE_MAX;

use counting::Losses;
use room::Proof;

/// Bytes that are moved at once, and that may lie unread in a segment before the engine keeps them.
const PIECE: usize = 64 << 10;
/// Rounds in a row when a thread looks after an engine that no other thread drives.
const ROUNDS_MAX: u32 = 16;
/// Full rounds of the device in a row before the program has its turn: as much as a device holds.
const TURNS_MAX: u32 = 32;
/// Between looks whether there is room for connections that wait in the engine.
const ROOM_US: u64 = 10_000;
/// After so long without traffic nothing is urgent.
const QUIET_US: u64 = 200_000;

/// One engine and the segments of its connections.
pub struct Relay {
    shard: Shard,
    lease: Arc<Owned>,
    /// The interface's, which no other one has in this process, whatever its index.
    pub number: u64,
    /// The interface.
    pub link: u32,
    /// It is gone, and whether that was asked for.
    is_gone: Option<bool>,
    /// Whether IPsec policies apply, and whether that was asked for.
    policies: (bool, bool),
    /// Other processes may have engines on it.
    is_divided: bool,
    /// When it is looked again who accepts where.
    guests_us: u64,
    waker: Waker,
    places: Vec<Place>,
    /// By the handle's index.
    conns: Vec<Option<(u32, u32)>>,
    listeners: HashMap<Handle, Group>,
    /// Of the connections that the program opens; another one for each that was full.
    outgoing: Vec<(Arc<Peer>, usize)>,
    moved_us: u64,
    rung: Vec<usize>,
    /// Places, slots and engine's names of connections whose close waits (SO_LINGER).
    lingering: Vec<(usize, usize, Handle)>,
    /// There are as many connections as the program may have: new ones are left to the kernel.
    is_full: bool,
    /// One of the listeners is crowded.
    is_crowded: bool,
    /// Connections wait in a segment, as far as is known.
    has_waiting: bool,
    /// When it is looked again whether others listen at the same ports.
    others_us: u64,
    /// The device's losses when they were last counted.
    losses: Losses,
    /// The process ends: what arrives from now on is for who follows it.
    is_over: bool,
    /// The service thread sleeps, and how long at most, by [`bypass_sys::clock`]: unless it looks after the
    /// engine at intervals, a thread that leaves bytes here must wake it.
    service_sleeps_until_us: Option<u64>,
}

/// What a process that ends has left to do.
#[derive(Default)]
pub struct Left {
    /// Others hold connections: they go on through this process.
    pub has_others: bool,
    /// Bytes were written for which the engine has no room yet.
    pub has_unsent: bool,
}

/// The listening sockets of one address (with SO_REUSEPORT each worker has one), which take turns.
struct Group {
    at: SocketAddr,
    places: Vec<usize>,
    turn: usize,
    /// Options that the engine's listener has been given, a bit each.
    obeyed: u32,
    /// Connections that wait in the segments, as the engine knows.
    waiting: u32,
    /// Connections wait in the engine because no segment has a place for them.
    is_crowded: bool,
    /// They wait for a process to show that it makes no child for each connection.
    proof: Option<Proof>,
    /// Why new ones are left to the kernel.
    left: Option<Reason>,
    /// Other programs listen at the port too, so that the kernel has the new ones.
    has_others: bool,
}

impl Group {
    /// Of those whose processes have no engine of their own, or ours; of all where there is none of these.
    fn next(&mut self, places: &[Place]) -> Option<usize> {
        let count = self.places.len().max(1);
        for _ in 0..count {
            self.turn = self.turn.wrapping_add(1);
            let at = self.places.get(self.turn % count)?;
            if places[*at].is_wanted {
                return Some(*at);
            }
        }
        self.turn = self.turn.wrapping_add(1);
        self.places.get(self.turn % count).copied()
    }
}

/// A segment at whose other end we stand.
struct Place {
    peer: Arc<Peer>,
    ready_list: usize,
    seen: Seen,
    conns: Vec<Option<Conn>>,
    /// Whose connections it carries; None: connections that the program opens.
    listener: Option<Arc<Listener>>,
    /// The listener is open in this process too.
    is_open_here: bool,
    /// Connections here are for this process, or for one without an engine.
    is_wanted: bool,
    /// When the engine last accepted a connection of this listener.
    served_us: u64,
    /// The connection that waits first, by its number, and since when.
    oldest: Option<(u64, u64)>,
}

#[derive(Clone, Copy)]
struct Conn {
    /// None: over, and only the program's end is left.
    handle: Option<Handle>,
    /// The program's socket, as long as the connection is being opened.
    opening: Option<usize>,
    has_read_end: bool,
    has_sent_end: bool,
    /// The program has ended both directions.
    is_shut: bool,
    /// Closed on both sides of the segment, and somebody waits for the other host (SO_LINGER).
    lingers: bool,
}

impl Place {
    fn ready_list(&self) -> &ReadyList {
        self.peer
            .segment
            .ready_list(self.peer.side, self.ready_list)
    }
}

impl Relay {
    /// Over `shard`; `lease` says that this process holds the interface, or as many of its queues as the shard
    /// has: then it `is_divided`.
    pub fn new(
        shard: Shard,
        lease: Arc<Owned>,
        (number, link): (u64, u32),
        is_divided: bool,
    ) -> kernel::Result<Self> {
        Ok(Self {
            // Not what a process before this one has lost.
            losses: Losses::of(&shard),
            shard,
            lease,
            number,
            link,
            is_gone: None,
            policies: (false, true),
            is_divided,
            guests_us: 0,
            waker: wakers::new_waker()?,
            places: Vec::new(),
            conns: Vec::new(),
            listeners: HashMap::new(),
            outgoing: Vec::new(),
            moved_us: 0,
            rung: Vec::new(),
            lingering: Vec::new(),
            is_full: false,
            is_crowded: false,
            has_waiting: false,
            others_us: 0,
            is_over: false,
            service_sleeps_until_us: None,
        })
    }

    /// A round in which the program has nothing to do: acknowledgments of earlier ones wait no longer for its answers.
    pub fn drive_idle(&mut self) {
        self.shard.engine().expect_no_answers();
        self.drive();
    }

    /// A round: frames in, bytes in, bytes out, frames out.
    pub fn drive(&mut self) {
        if self.is_over {
            return;
        }
        if self.service_sleeps_until_us.is_none() {
            for place in &self.places {
                place.ready_list().awake();
            }
        }
        if self.is_gone() {
            return self.drive_without_interface();
        }
        let mut has_moved = self.take_in();
        has_moved |= self.hear();
        if !self.lingering.is_empty() {
            self.look_at_lingering();
        }
        if self.is_divided {
            self.look_at_kept();
        }
        if has_moved || self.is_full || self.is_crowded {
            self.look_at_room();
        }
        self.look_at_interface();
        self.look_at_policies();
        if self.shard.driven_us() >= self.others_us && thread().may_ask() {
            self.look_at_others();
            self.count_losses();
        }
        self.send_out();
        if has_moved {
            self.moved_us = self.shard.driven_us();
        }
        self.hurry_service();
    }

    /// Everything that has arrived, before anything is answered: a device keeps few frames of many connections, and what
    /// it has no room for is lost, where an engine keeps them until the program has time. Whether something came.
    fn take_in(&mut self) -> bool {
        let mut has_moved = false;
        if self.has_waiting {
            self.count_waiting();
        }
        for _ in 0..TURNS_MAX {
            let frames = self.shard.drive();
            has_moved |= frames > 0;
            while let Some(event) = self.shard.next_event() {
                has_moved = true;
                self.handle(event);
            }
            if self.is_at_limit() && !self.is_full {
                // The kernel handles the next connections.
                self.look_at_room();
            }
            if frames < Shard::ROUND {
                break;
            }
        }
        has_moved
    }

    fn look_at_policies(&mut self) {
        let has_policies = self.shard.has_policies();
        if self.policies.0 != has_policies {
            self.policies = (has_policies, false);
            service::wake();
        }
    }

    /// Frames that have come here and are other engines'.
    pub fn take_strays(&mut self) -> Vec<Stray> {
        self.shard.take_strays()
    }

    /// Interfaces on which this process has engines.
    pub fn follow_links(&mut self, links: &[u32]) {
        self.shard.set_beside(links.to_vec());
    }

    /// Takes a frame that came by another interface, where the address is this one's; else it is given back.
    pub fn bring(&mut self, stray: Stray) -> Option<Stray> {
        if self.is_gone() || !self.shard.has_address(stray.to) {
            return Some(stray);
        }
        self.shard.bring(stray);
        None
    }

    /// Whether IPsec policies apply to new connections, where that has changed since it was asked last.
    pub fn new_policies(&mut self) -> Option<bool> {
        let (apply, was_asked) = self.policies;
        self.policies.1 = true;
        (!was_asked).then_some(apply)
    }

    /// Sends what is pending, for some connections at a time, so that arriving data finds space.
    fn send_out(&mut self) {
        for _ in 0..TURNS_MAX {
            if !self.shard.finish_part(Shard::ROUND) {
                break;
            }
            self.take_in();
        }
    }

    /// Notifies the service thread of a timer that is due before it would wake.
    fn hurry_service(&mut self) {
        let Some(until_us) = self.service_sleeps_until_us else {
            return;
        };
        let due_us = self.wait_us().map(|wait_us| now_us() + wait_us);
        if due_us.is_some_and(|due_us| due_us < until_us) {
            service::wake();
            self.service_sleeps_until_us = Some(0);
        }
    }

    /// The service thread sleeps, with this relay armed; or no more.
    pub fn service_sleeps(&mut self, sleeps: bool) {
        let until = || {
            self.wait_us()
                .map_or(u64::MAX, |wait_us| now_us() + wait_us)
        };
        self.service_sleeps_until_us = sleeps.then(until);
    }

    /// [`drive`](Self::drive), when no thread has for a while, until nothing comes, but not for ever: frames
    /// that the device has no space for are lost.
    pub fn drive_if_idle(&mut self, idle_us: u64) {
        if (now_ns() / 1000).saturating_sub(self.shard.driven_us()) < idle_us {
            return;
        }
        for _ in 0..ROUNDS_MAX {
            self.drive();
            if self.moved_us != self.shard.driven_us() {
                break;
            }
        }
    }

    /// How long nothing has come or gone.
    pub fn still_us(&self) -> u64 {
        (now_ns() / 1000).saturating_sub(self.moved_us)
    }

    /// Whether something came or went a moment ago.
    pub fn is_busy(&self) -> bool {
        self.still_us() < QUIET_US
    }

    /// Whether the engine has bytes, or an end, that the others have not acknowledged, or have no room for.
    pub fn is_sending(&mut self) -> bool {
        if self.is_gone() {
            return false;
        }
        let engine = self.shard.engine();
        let counts = engine.counts();
        let has_bytes = counts.segments > 0 || counts.buffer_bytes > 0;
        engine.has_output() || has_bytes || engine.has_ends_under_way()
    }

    /// Before a sleep: true when there is something to do at once.
    pub fn arm(&mut self) -> bool {
        self.waker.drain();
        for place in &self.places {
            place.ready_list().sleep();
        }
        bypass_sys::barrier::heavy();
        let rings = |place: &Place| {
            let used = place.peer.segment.slots_used();
            place.ready_list().is_ringing(used, &place.seen) || place.ready_list().is_held_back()
        };
        self.places.iter().any(rings) || self.shard.arm()
    }

    /// Polled for reading: device, network, policies, waker.
    pub fn poll_fds(&self) -> [i32; 4] {
        let [device, network, policies] = self.shard.poll_fds().map(|fd| fd.unwrap_or(-1));
        [device, network, policies, self.waker.fd()]
    }

    /// How long a sleep may last.
    pub fn wait_us(&self) -> Option<u64> {
        let room = self.is_crowded.then_some(ROOM_US);
        self.shard.wait_us().into_iter().chain(room).min()
    }

    /// The network may have changed.
    pub fn has_news(&mut self) {
        self.shard.expect_news();
    }

    /// Joins a segment as the other end of the program's; places stay where they are.
    fn add_place(
        &mut self,
        segment: Segment,
        side: usize,
        listener: Option<Arc<Listener>>,
    ) -> Option<usize> {
        let peer = Peer::join_as_relay(segment, side)?;
        let ready_list = peer.claim_ready_list(self.waker.number())?;
        let slots = peer.segment.slots();
        self.places.push(Place {
            seen: Seen::of(SLOTS_MAX.min(slots)),
            peer,
            ready_list,
            conns: vec![None; slots],
            is_open_here: listener.is_some(),
            listener,
            is_wanted: true,
            served_us: 0,
            oldest: None,
        });
        Some(self.places.len() - 1)
    }

    fn handle(&mut self, event: tcp::Event) {
        if event.handle.is_listener() {
            return self.accept_all(event.handle);
        }
        let found = self.conns.get(event.handle.index as usize).copied();
        let Some((place, slot)) = found.flatten() else {
            return;
        };
        let (place, slot) = (place as usize, slot as usize);
        let is_it = |conn: &Conn| conn.handle == Some(event.handle);
        if self.places[place].conns[slot].as_ref().is_some_and(is_it) {
            self.look_at_opening(place, slot, event);
            self.look_at_error(place, slot, event);
            self.bring_in(place, slot);
            self.bring_out(place, slot);
        }
    }

    fn abort(&mut self, handle: Handle) -> Result<(), tcp::Error> {
        let now_us = self.shard.driven_us();
        self.shard.engine().abort(now_us, handle)
    }

    /// The connection behind `handle` lives in `slot`, whose other end is somebody's already.
    fn enter(&mut self, at: usize, slot: usize, handle: Handle, opening: Option<usize>) {
        let place = &mut self.places[at];
        let peer = &place.peer;
        let meta = &peer.segment.slot(slot).meta;
        meta.holders[peer.side].store(peer.alone(), Ordering::SeqCst);
        meta.ready_list[peer.side].store(place.ready_list as u32 + 1, Ordering::SeqCst);
        peer.set_socket(slot, Some(0));
        place.conns[slot] = Some(Conn {
            handle: Some(handle),
            opening,
            has_read_end: false,
            has_sent_end: false,
            is_shut: false,
            lingers: false,
        });
        let index = handle.index as usize;
        if self.conns.len() <= index {
            self.conns.resize(index + 1, None);
        }
        self.conns[index] = Some((at as u32, slot as u32));
        let now_us = self.shard.driven_us();
        // Small writes of one round leave together anyway.
        let option = SocketOption::NoDelay(true);
        let _ = self.shard.engine().setopt(now_us, handle, option);
        fence(Ordering::SeqCst);
    }

    /// Our end of a slot is over.
    fn leave(&mut self, at: usize, slot: usize) {
        self.forget_asked(at, slot);
        let place = &mut self.places[at];
        if let Some(handle) = place.conns[slot].take().and_then(|conn| conn.handle) {
            self.conns[handle.index as usize] = None;
        }
        place.peer.set_socket(slot, None);
        place.peer.let_go(slot, FIN);
    }

    /// Looks after every connection that its program has written to, read from, or closed.
    fn hear(&mut self) -> bool {
        let mut has_moved = false;
        for at in 0..self.places.len() {
            let mut rung = std::mem::take(&mut self.rung);
            let place = &mut self.places[at];
            let segment = &place.peer.segment;
            let ready_list = segment.ready_list(place.peer.side, place.ready_list);
            ready_list.drain(segment.slots_used(), &mut place.seen, |slot| {
                rung.push(slot)
            });
            ready_list.drain_held_back(|slot| rung.push(slot));
            has_moved |= !rung.is_empty();
            for slot in rung.drain(..) {
                self.bring_in(at, slot);
                self.bring_out(at, slot);
            }
            self.rung = rung;
        }
        has_moved
    }

    /// The engine's connection is over; the program keeps the slot until it closes.
    fn give_up(&mut self, at: usize, slot: usize) {
        let conn = self.places[at].conns[slot].as_mut();
        if let Some(handle) = conn.and_then(|conn| conn.handle.take()) {
            self.conns[handle.index as usize] = None;
            let _ = self.shard.close(handle);
        }
    }
}

fn now_us() -> u64 {
    now_ns() / 1000
}

/// The socket of this process at the other end.
fn program_socket(peer: &Peer, slot: usize) -> Option<&'static Socket> {
    let other = peer::find(peer.segment.id(), 1 - peer.side)?;
    other.socket(slot).map(sockets::get)
}

fn new_segment() -> Option<Segment> {
    let slots = process::settings()
        .max_endpoints
        .next_power_of_two()
        .clamp(1024, SLOTS_MAX);
    let segment = Segment::create(process::number(), slots, process::ring_bytes()).ok()?;
    segment.set_over_packets(false);
    Some(segment)
}

/// The same memory for the other end, which releases its mapping independently.
fn mapped_again(segment: &Segment) -> Option<Segment> {
    let memory = numbers::duplicate(segment.fd()).ok()?;
    Segment::adopt(memory.into_raw()).ok()
}
