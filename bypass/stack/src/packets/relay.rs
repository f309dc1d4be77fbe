//! The other end of connections over packets: moves bytes between their segments and an engine.
//!
//! For a listener it is a client with a segment of its own, which offers what the engine has accepted.
//! For connections that the program opens it is the server of a segment that the program's side has
//! made. It is rung as any process is, by a ready list in each segment.

use core::sync::atomic::{fence, Ordering};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bypass_shard::tcp::{self, Handle, Shutdown, SocketOption};
use bypass_shard::Shard;
use bypass_shm::doorbell::Seen;
use bypass_shm::layout::{ReadyList, CLOSED, FIN, PROCESSES, QUEUED, RST, SLOTS_MAX};
use bypass_shm::segment::Segment;
use bypass_sys::clock::now_ns;
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_sys::waker::Waker;

use crate::listener::{self, Listener};
use crate::peer::{self, Notice, Peer};
use crate::process::{self, wakers};
use crate::sockets::{self, Event, Socket};
use crate::sys::{fill_hole, peek_into};

/// Bytes that are moved at once, and that may lie unread in a segment before the engine keeps them.
const PIECE: usize = 64 << 10;
/// Nothing came or went for so long: there is no hurry.
const QUIET_US: u64 = 200_000;

/// Between looks at a port where the kernel has connections.
const AGAIN_US: u64 = 20_000;

/// One engine and the segments of its connections.
pub struct Relay {
    shard: Shard,
    _lease: Owned,
    waker: Waker,
    places: Vec<Place>,
    /// By the handle's index.
    conns: Vec<Option<(u32, u32)>>,
    listeners: HashMap<Handle, Group>,
    /// Of the connections that the program opens.
    outgoing: Option<(Arc<Peer>, usize)>,
    bytes: Vec<u8>,
    moved_us: u64,
    rung: Vec<usize>,
    /// When listeners are to be looked at again.
    must_follow_us: Option<u64>,
    /// The process ends: what arrives from now on is for who follows it.
    is_over: bool,
}

/// What a process that ends has left to do.
#[derive(Default)]
pub struct Left {
    /// Others hold connections, or may still accept some: they go on through this process.
    pub has_others: bool,
    /// Bytes were written for which the engine has no room yet.
    pub has_unsent: bool,
}

/// The listening sockets of one address (with SO_REUSEPORT each worker has one), which take turns.
struct Group {
    at: SocketAddr,
    places: Vec<usize>,
    turn: usize,
}

impl Group {
    fn next(&mut self) -> Option<usize> {
        self.turn = self.turn.wrapping_add(1);
        let at = self.turn % self.places.len().max(1);
        self.places.get(at).copied()
    }
}

/// A segment at whose other end we stand.
struct Place {
    peer: Arc<Peer>,
    ready_list: usize,
    seen: Seen,
    conns: Vec<Option<Conn>>,
    /// Whose connections it carries; None: those that the program opens.
    listener: Option<Arc<Listener>>,
}

#[derive(Clone, Copy)]
struct Conn {
    /// None: over, and only the program's end is left.
    handle: Option<Handle>,
    /// The program's socket, as long as the connection is being opened.
    opening: Option<usize>,
    has_read_end: bool,
    has_sent_end: bool,
}

impl Place {
    fn ready_list(&self) -> &ReadyList {
        self.peer
            .segment
            .ready_list(self.peer.side, self.ready_list)
    }
}

impl Relay {
    /// Over `shard`; `lease` says that the interface is ours.
    pub fn new(shard: Shard, lease: Owned) -> kernel::Result<Self> {
        Ok(Self {
            shard,
            _lease: lease,
            waker: wakers::new_waker()?,
            places: Vec::new(),
            conns: Vec::new(),
            listeners: HashMap::new(),
            outgoing: None,
            bytes: vec![0; PIECE],
            moved_us: 0,
            rung: Vec::new(),
            must_follow_us: None,
            is_over: false,
        })
    }

    /// A round: frames in, bytes in, bytes out, frames out.
    pub fn drive(&mut self) {
        if self.is_over {
            return;
        }
        for place in &self.places {
            place.ready_list().awake();
        }
        let mut has_moved = self.shard.drive() > 0;
        while let Some(event) = self.shard.next_event() {
            has_moved = true;
            self.handle(event);
        }
        has_moved |= self.hear();
        self.shard.finish();
        if has_moved {
            self.moved_us = self.shard.driven_us();
        }
        if self.must_follow_us.is_some() {
            self.follow_if_due();
        }
    }

    /// [`drive`](Self::drive), when nobody has for a while.
    pub fn drive_if_idle(&mut self, idle_us: u64) {
        if (now_ns() / 1000).saturating_sub(self.shard.driven_us()) >= idle_us {
            self.drive();
        }
    }

    /// How long nothing has come or gone.
    pub fn still_us(&self) -> u64 {
        (now_ns() / 1000).saturating_sub(self.moved_us)
    }

    /// Whether something came or went a moment ago.
    pub fn is_busy(&self) -> bool {
        let is_moving = self.still_us() < QUIET_US;
        is_moving || self.must_follow_us.is_some()
    }

    /// Whether the engine has bytes, or an end, that the others have not acknowledged, or have no room for.
    pub fn is_sending(&mut self) -> bool {
        let engine = self.shard.engine();
        let counts = engine.counts();
        engine.has_output() || counts.segments > 0 || counts.buffer_bytes > 0
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

    /// Polled for reading: device, network, waker.
    pub fn poll_fds(&self) -> [i32; 3] {
        let [device, network] = self.shard.poll_fds().map(|fd| fd.unwrap_or(-1));
        [device, network, self.waker.fd()]
    }

    /// How long a sleep may last.
    pub fn wait_us(&self) -> Option<u64> {
        let now_us = now_ns() / 1000;
        let until_due = self
            .must_follow_us
            .map(|at_us| at_us.saturating_sub(now_us));
        [self.shard.wait_us(), until_due]
            .into_iter()
            .flatten()
            .min()
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
        let number = process::number();
        let ready_list = peer
            .segment
            .claim_ready_list(side, number, self.waker.number())?;
        let slots = peer.segment.slots();
        self.places.push(Place {
            seen: Seen::of(SLOTS_MAX.min(slots)),
            peer,
            ready_list,
            conns: vec![None; slots],
            listener,
        });
        Some(self.places.len() - 1)
    }

    /// Listens where the program listens now, and where it has closed its listener and other processes
    /// have not: their connections go on coming through this one.
    pub fn follow(&mut self, listeners: &[Arc<Listener>]) {
        self.must_follow_us = None;
        let places = &self.places;
        let is_over = |place: &usize| {
            let own = places[*place].listener.as_ref();
            own.is_none_or(|own| {
                listeners.iter().all(|one| one.inode != own.inode) && own.others().is_empty()
            })
        };
        let mut gone = Vec::new();
        for (handle, group) in &mut self.listeners {
            group.places.retain(|place| !is_over(place));
            if group.places.is_empty() {
                gone.push(*handle);
            }
        }
        for handle in gone {
            self.listeners.remove(&handle);
            let _ = self.shard.close(handle);
        }
        for listener in listeners {
            let is_it = |own: &Arc<Listener>| own.inode == listener.inode;
            let mut served = self.listeners.values().flat_map(|group| &group.places);
            let is_known =
                served.any(|place| self.places[*place].listener.as_ref().is_some_and(is_it));
            if !is_known {
                self.listen(listener);
            }
        }
        self.shard.finish();
    }

    /// The first [`follow`](Self::follow), perhaps after a process that had the interface before: what has
    /// arrived since is for these listeners too.
    pub fn succeed(&mut self, listeners: &[Arc<Listener>]) {
        self.follow(listeners);
        self.shard.drop_others_claims();
        self.drive();
    }

    /// Looks at the listeners again, because the kernel had connections there, if it is time.
    pub fn follow_if_due(&mut self) {
        let now_us = now_ns() / 1000;
        if self.must_follow_us.is_some_and(|at_us| now_us >= at_us) {
            self.follow(&listener::all());
        }
    }

    /// None where the address is not of this interface, or taken: the kernel serves it. Where the kernel
    /// has connections still, it is tried again later.
    fn listen(&mut self, listener: &Arc<Listener>) -> Option<()> {
        let fd = listener.any_fd();
        let at = sockets::kernel_name(fd)?;
        if at.is_ipv6() && kernel::option_int(fd, libc::SOL_IPV6, libc::IPV6_V6ONLY) == Ok(1) {
            return None;
        }
        let joined = self.listeners.iter().find(|(_, group)| group.at == at);
        if let Some(handle) = joined.map(|(handle, _)| *handle) {
            let place = self.segment_at(listener)?;
            self.listeners.get_mut(&handle)?.places.push(place);
            return Some(());
        }
        let backlog = listener.backlog.load(Ordering::Relaxed);
        let Some(handle) = self.shard.take_over(at, backlog).ok()? else {
            self.must_follow_us = Some(now_ns() / 1000 + AGAIN_US);
            return None;
        };
        match self.segment_at(listener) {
            Some(place) => {
                let group = Group {
                    at,
                    places: vec![place],
                    turn: 0,
                };
                self.listeners.insert(handle, group);
            }
            None => drop(self.shard.close(handle)),
        }
        Some(())
    }

    /// A segment of ours at a listener, known to all who hold it.
    fn segment_at(&mut self, listener: &Arc<Listener>) -> Option<usize> {
        let segment = new_segment()?;
        let mapped = mapped_again(&segment)?;
        let place = self.add_place(segment, 0, Some(listener.clone()))?;
        listener.register_carrier();
        listener::adopt_from_relay(listener, mapped)?;
        Some(place)
    }

    fn handle(&mut self, event: tcp::Event) {
        if self.listeners.contains_key(&event.handle) {
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
            self.look_at_error(place, slot, event.handle);
            self.bring_in(place, slot);
            self.bring_out(place, slot);
        }
    }

    fn accept_all(&mut self, listening: Handle) {
        while let Ok(handle) = self.shard.accept(listening) {
            let group = self.listeners.get_mut(&listening);
            let place = group.and_then(Group::next);
            if place.and_then(|place| self.offer(place, handle)).is_none() {
                let _ = self.abort(handle);
            }
        }
    }

    fn abort(&mut self, handle: Handle) -> Result<(), tcp::Error> {
        let now_us = self.shard.driven_us();
        self.shard.engine().abort(now_us, handle)
    }

    /// Puts an accepted connection where the listener's holders find it.
    fn offer(&mut self, at: usize, handle: Handle) -> Option<()> {
        let local = self.shard.engine().local_addr(handle).ok()?;
        let remote = self.shard.engine().remote_addr(handle).ok()?;
        let peer = self.places[at].peer.clone();
        if peer.segment.is_queue_closed() {
            return None;
        }
        let slot = peer.take_slot()?;
        peer.segment.reset(slot);
        let place = peer.segment.slot(slot);
        place.names.of[0].store(remote);
        place.names.of[1].store(local);
        place.meta.holders[1].store(QUEUED, Ordering::SeqCst);
        self.enter(at, slot, handle, None);
        self.bring_in(at, slot);
        if !peer.offer(slot) {
            place.meta.holders[1].store(0, Ordering::SeqCst);
            self.leave(at, slot);
            return None;
        }
        peer::ring_listeners(&peer.segment);
        Some(())
    }

    /// The connection behind `handle` lives in `slot`, whose other end is somebody's already.
    fn enter(&mut self, at: usize, slot: usize, handle: Handle, opening: Option<usize>) {
        let place = &mut self.places[at];
        let peer = &place.peer;
        let meta = &peer.segment.slot(slot).meta;
        meta.holders[peer.side].store(peer.bit(), Ordering::SeqCst);
        meta.ready_list[peer.side].store(place.ready_list as u32 + 1, Ordering::SeqCst);
        peer.set_socket(slot, Some(0));
        place.conns[slot] = Some(Conn {
            handle: Some(handle),
            opening,
            has_read_end: false,
            has_sent_end: false,
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

    /// From the engine into the segment.
    fn bring_in(&mut self, at: usize, slot: usize) {
        let place = &mut self.places[at];
        let Some(conn) = place.conns.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        let (Some(handle), false) = (conn.handle, conn.has_read_end) else {
            return;
        };
        let peer = place.peer.clone();
        let ring = peer.segment.ring(slot, peer.side);
        let (mut count, mut ends) = (0, 0);
        let mut has_asked = false;
        while ends == 0 {
            if ring.unread() >= PIECE {
                if std::mem::replace(&mut has_asked, true) {
                    break;
                }
                ring.want_space();
                continue;
            }
            let shard = &mut self.shard;
            match fill_hole(&ring, PIECE, |into| shard.receive(handle, into)) {
                None if std::mem::replace(&mut has_asked, true) => break,
                None => ring.want_space(),
                Some(Ok(0)) => ends = FIN,
                Some(Ok(more)) => count += more,
                Some(Err(tcp::Error::WouldBlock | tcp::Error::NotConnected)) => break,
                Some(Err(error)) => ends = self.failed_with(error, &peer, slot),
            }
        }
        if count == 0 && ends == 0 {
            return;
        }
        if ends != 0 {
            if let Some(conn) = self.places[at].conns[slot].as_mut() {
                conn.has_read_end = true;
            }
            let producer = &peer.segment.slot(slot).producer[peer.side];
            producer.ends.fetch_or(ends, Ordering::SeqCst);
        }
        peer.ring(slot, Notice::News(ring.count_news()));
        if ends & CLOSED != 0 {
            peer.ring(slot, Notice::Room);
            self.give_up(at, slot);
        }
    }

    /// Behind the end of what could be read: whether the other side has reset the connection since.
    fn look_at_error(&mut self, at: usize, slot: usize, handle: Handle) {
        let has_read_end = |conn: &Conn| conn.has_read_end && conn.handle == Some(handle);
        if !self.places[at].conns[slot]
            .as_ref()
            .is_some_and(has_read_end)
        {
            return;
        }
        let error = self.shard.engine().take_error(handle).ok().flatten();
        if let Some(error) = error {
            let peer = self.places[at].peer.clone();
            let ends = self.failed_with(error, &peer, slot);
            let producer = &peer.segment.slot(slot).producer[peer.side];
            producer.ends.fetch_or(ends, Ordering::SeqCst);
            peer.ring(slot, Notice::Bytes);
            peer.ring(slot, Notice::Room);
            self.give_up(at, slot);
        }
    }

    /// How a connection that has failed ends for the program, which is told the error where it is of
    /// this process. What was written to a peer that had closed is a broken pipe, no reset.
    fn failed_with(&self, error: tcp::Error, peer: &Peer, slot: usize) -> u32 {
        let Some(socket) = program_socket(peer, slot) else {
            return RST | CLOSED;
        };
        if error == tcp::Error::BrokenPipe {
            socket.set(sockets::WROTE_TO_CLOSED, true);
            return CLOSED;
        }
        socket.error.store(error.errno() as u32, Ordering::SeqCst);
        RST | CLOSED
    }

    /// The engine's connection is over; the slot is the program's until it closes.
    fn give_up(&mut self, at: usize, slot: usize) {
        let conn = self.places[at].conns[slot].as_mut();
        if let Some(handle) = conn.and_then(|conn| conn.handle.take()) {
            self.conns[handle.index as usize] = None;
            let _ = self.shard.close(handle);
        }
    }

    /// From the segment into the engine.
    fn bring_out(&mut self, at: usize, slot: usize) {
        let place = &mut self.places[at];
        let Some(conn) = place.conns.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        let peer = place.peer.clone();
        let other = 1 - peer.side;
        // Before the bytes: what is written is there before its end.
        let ends = peer.segment.slot(slot).producer[other]
            .ends
            .load(Ordering::Acquire);
        let Some(handle) = conn.handle else {
            if ends & CLOSED != 0 {
                self.leave(at, slot);
            }
            return;
        };
        if ends & (RST | CLOSED) == RST | CLOSED {
            // What was written before goes out before the reset, as far as it may.
            let _ = self.send_all(&peer, slot, handle);
            self.shard.finish();
            let _ = self.abort(handle);
            return self.leave(at, slot);
        }
        match self.send_all(&peer, slot, handle) {
            Ok(true) => {}
            Ok(false) => return,
            Err(()) => {
                // Reading tells why, and then the program.
                self.bring_in(at, slot);
                if ends & CLOSED != 0 {
                    let _ = self.abort(handle);
                    self.leave(at, slot);
                }
                return;
            }
        }
        if ends & CLOSED != 0 {
            let _ = self.shard.close(handle);
            self.leave(at, slot);
        } else if ends & FIN != 0 {
            let conn = self.places[at].conns[slot].as_mut();
            if let Some(conn) = conn.filter(|conn| !conn.has_sent_end) {
                let done = self.shard.shutdown(handle, Shutdown::Write);
                conn.has_sent_end = done != Err(tcp::Error::NotConnected);
            }
        }
    }

    /// True when everything has gone; Err when nothing can go any more.
    fn send_all(&mut self, peer: &Peer, slot: usize, handle: Handle) -> Result<bool, ()> {
        let ring = peer.segment.ring(slot, 1 - peer.side);
        loop {
            let Ok(count) = peek_into(&ring, &mut self.bytes) else {
                let _ = self.abort(handle);
                return Err(());
            };
            if count == 0 {
                return Ok(true);
            }
            let taken = match self.shard.send(handle, &self.bytes[..count], false) {
                Ok(taken) => taken,
                Err(tcp::Error::WouldBlock | tcp::Error::NoBuffers) => return Ok(false),
                Err(_) => return Err(()),
            };
            ring.discard(taken);
            let fenced = peer.segment.is_fenced(1 - peer.side);
            if ring.is_space_wanted(taken, fenced) {
                peer.ring(slot, Notice::Room);
            }
            if taken < count {
                return Ok(false);
            }
        }
    }

    /// Begins a connection of the program's to `target`: its segment and slot there, and our address.
    pub fn open(
        &mut self,
        socket: (usize, &Socket),
        target: SocketAddr,
    ) -> Result<(Arc<Peer>, usize, SocketAddr), tcp::Error> {
        // The clock may be old: nobody has driven it yet.
        self.drive();
        let handle = self.shard.connect(None, target)?;
        match self.enter_outgoing(socket, handle, target) {
            Some(done) => {
                self.shard.finish();
                self.moved_us = self.shard.driven_us();
                Ok(done)
            }
            None => {
                let _ = self.shard.close(handle);
                Err(tcp::Error::NoBuffers)
            }
        }
    }

    fn enter_outgoing(
        &mut self,
        (index, socket): (usize, &Socket),
        handle: Handle,
        target: SocketAddr,
    ) -> Option<(Arc<Peer>, usize, SocketAddr)> {
        let local = self.shard.engine().local_addr(handle).ok()?;
        let (peer, at) = self.outgoing()?;
        let slot = peer.take_slot()?;
        if !socket.change(Event::Open) {
            peer.return_slot(slot);
            return None;
        }
        peer.segment.reset(slot);
        let place = peer.segment.slot(slot);
        place.names.of[0].store(local);
        place.names.of[1].store(target);
        place.meta.holders[0].store(peer.bit(), Ordering::SeqCst);
        socket.error.store(0, Ordering::Relaxed);
        self.enter(at, slot, handle, Some(index));
        Some((peer, slot, local))
    }

    fn outgoing(&mut self) -> Option<(Arc<Peer>, usize)> {
        if self.outgoing.is_none() {
            let segment = new_segment()?;
            let mapped = mapped_again(&segment)?;
            let peer = Peer::join(segment, 0, 0)?;
            let at = self.add_place(mapped, 1, None)?;
            self.outgoing = Some((peer, at));
        }
        self.outgoing.clone()
    }

    /// Whether a connection that was being opened stands now, or has failed.
    fn look_at_opening(&mut self, at: usize, slot: usize, event: tcp::Event) {
        let conn = self.places[at].conns[slot].as_mut();
        let Some(index) = conn.as_ref().and_then(|conn| conn.opening) else {
            return;
        };
        let error = self.shard.engine().take_error(event.handle).ok().flatten();
        if error.is_none() && event.ready & tcp::WRITABLE == 0 {
            return;
        }
        if let Some(conn) = conn {
            conn.opening = None;
        }
        let socket = sockets::get(index);
        let peer = self.places[at].peer.clone();
        let mut opened = Event::Connect;
        if let Some(error) = error {
            // A reset is of a connection that stood: connect has worked.
            let ends = match error {
                tcp::Error::ConnectionReset => self.failed_with(error, &peer, slot),
                _ => {
                    socket.error.store(error.errno() as u32, Ordering::SeqCst);
                    opened = Event::Refuse;
                    RST | CLOSED
                }
            };
            let producer = &peer.segment.slot(slot).producer[peer.side];
            producer.ends.fetch_or(ends, Ordering::SeqCst);
            if let Some(conn) = self.places[at].conns[slot].as_mut() {
                conn.has_read_end = true;
            }
            self.give_up(at, slot);
        }
        socket.change(opened);
        peer.ring(slot, Notice::Bytes);
        peer.ring(slot, Notice::Room);
    }

    /// As the process ends: closes connections that only it holds, when the engine has what was written.
    pub fn close_own(&mut self) -> Left {
        let mut left = Left::default();
        for at in 0..self.places.len() {
            let peer = self.places[at].peer.clone();
            let other = 1 - peer.side;
            let is_own = |index: &usize| peer.segment.process(other, *index) == process::number();
            let own = (0..PROCESSES).find(is_own).map_or(0, |index| 1u32 << index);
            for slot in 0..peer.segment.slots_used().min(peer.segment.slots()) {
                if self.places[at].conns[slot].is_none() {
                    continue;
                }
                let place = peer.segment.slot(slot);
                let holders = place.meta.holders[other].load(Ordering::SeqCst);
                if holders & !own == 0 {
                    let ends = &place.producer[other].ends;
                    ends.fetch_or(FIN | CLOSED, Ordering::SeqCst);
                    self.bring_out(at, slot);
                    left.has_unsent |= self.places[at].conns[slot].is_some();
                } else if holders & QUEUED != 0 && !self.is_accepted_elsewhere(at) {
                    self.reset(at, slot);
                } else {
                    left.has_others = true;
                }
            }
        }
        self.shard.finish();
        left
    }

    fn is_accepted_elsewhere(&self, at: usize) -> bool {
        let listener = self.places[at].listener.as_ref();
        listener.is_some_and(|listener| !listener.others().is_empty())
    }

    /// Whether somebody is opening a connection.
    pub fn is_being_reached(&mut self) -> bool {
        self.shard.engine().counts().half_open > 0
    }

    /// Nobody carries them any more; who comes now asks again, and finds the kernel or the next process.
    pub fn reset_all(&mut self) {
        self.is_over = true;
        for (handle, _) in std::mem::take(&mut self.listeners) {
            let _ = self.shard.close(handle);
        }
        for at in 0..self.places.len() {
            for slot in 0..self.places[at].conns.len() {
                if self.places[at].conns[slot].is_some() {
                    self.reset(at, slot);
                }
            }
        }
        self.shard.finish();
    }

    /// Resets a connection to both sides.
    fn reset(&mut self, at: usize, slot: usize) {
        let peer = self.places[at].peer.clone();
        let conn = self.places[at].conns[slot];
        if let Some(handle) = conn.and_then(|conn| conn.handle) {
            let _ = self.send_all(&peer, slot, handle);
            self.shard.finish();
            let _ = self.abort(handle);
        }
        let producer = &peer.segment.slot(slot).producer[peer.side];
        producer.ends.fetch_or(RST | CLOSED, Ordering::SeqCst);
        peer.ring(slot, Notice::Bytes);
        peer.ring(slot, Notice::Room);
        self.leave(at, slot);
    }
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
    segment.header().over_packets.store(1, Ordering::SeqCst);
    Some(segment)
}

/// The same memory for the other end, which lets it go by itself.
fn mapped_again(segment: &Segment) -> Option<Segment> {
    let fd = kernel::dup(segment.fd()).ok()? as i32;
    Segment::adopt(kernel::move_high(fd).ok()?).ok()
}
