//! A segment as this process takes part in it: which of our sockets live in which slot, and what
//! happens to them when the other side's processes end.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use bypass_shm::holders::Holders;
use bypass_shm::layout::{FIN, NO_ROOM, PROCESSES};
use bypass_shm::segment::Segment;
use bypass_sys::clock::now_ns;
use bypass_sys::memory::{self, Mapping};
use bypass_sys::sandbox::is_confined;
use bypass_sys::tasks::Watch;

use crate::process::{self, ports, table};
use bypass_sys::process::Held;

pub mod admission;
mod asleep;
pub mod due;
mod lent;
mod limbo;
pub mod marks;
mod places;
mod releasing;
mod ringing;
pub mod trimming;

pub use asleep::Asleep;
pub use marks::Mark;
pub use releasing::Waiting;
pub use ringing::{ring_listeners, ring_some, Notice, SEEK_SLEEPS};

use lent::Lent;
use limbo::Limbo;

/// See the module.
#[derive(Debug)]
pub struct Peer {
    /// The memory.
    pub segment: Segment,
    /// 0: we connect through it, 1: we accept from it.
    pub side: usize,
    /// Inode of the listening socket.
    pub inode: u64,
    /// Our index among the side's processes.
    process: AtomicUsize,
    /// By slot: number of our socket plus one.
    sockets: Box<[AtomicU32]>,
    /// Clients, by slot: the local port that its connection says, 0 for none that is kept apart.
    ports: Box<[AtomicU16]>,
    /// The process whose ports those are; its forked children have the list too.
    maker: u64,
    /// The client's process has ended, or (for a client) the listener has gone.
    pub is_stale: AtomicBool,
    /// No process of the other side is left: what of it has not ended is being ended.
    is_losing_others: AtomicBool,
    /// All that has: whatever is written into the memory since, its direction has ended.
    pub has_lost_others: AtomicBool,
    /// Clients: a process that holds the listener has answered our first message.
    is_welcome: AtomicBool,
    /// Clients: the last connection to its address, in another network namespace, has reached it.
    pub is_reached: AtomicBool,
    /// Clients: connects that have a slot in which no socket lives yet; see [`Self::begin_entering`].
    entering: AtomicU32,
    /// Listener's side: how many connections may wait here for this process when it has room.
    credits: AtomicU32,
    /// Clients: how long connects have waited for a process that accepts, together.
    has_awaited_ms: AtomicU64,
    /// We stand at the other end of our own program's sockets, for other hosts: no socket lives here.
    pub is_relay: bool,
    slots: Mutex<Slots>,
    /// By place on our side: the number of the process for which one of a family has taken it. From its first child on, in
    /// memory that its children have, too, and no other side.
    relatives: OnceLock<Mapping>,
    /// Since when connections wait for the end of one of them, 0 when none does.
    delayed_ns: AtomicU64,
    /// Clients: how long they have waited for the listener to show whether it makes children.
    has_waited_ms: AtomicU64,
    /// Number of each content that we share without copying; [`crate::stream::lending`] sends these contents.
    pub lent: Lent,
    /// The ready list that this process took last, plus one.
    ready_list: AtomicU32,
    /// Sleeps since there was none left.
    ready_list_misses: AtomicU32,
}

/// A connect waits in the segment.
pub struct Entering(Arc<Peer>);

impl Drop for Entering {
    fn drop(&mut self) {
        self.0.entering.fetch_sub(1, Ordering::SeqCst);
        retire(self.0.clone());
    }
}

/// See [`Peer::note_child`].
type Relatives = [AtomicU64; PROCESSES];

/// Among the side's processes: this one is none of them.
const NO_PLACE: usize = usize::MAX;

#[derive(Debug, Default)]
struct Slots {
    free: Vec<u32>,
    next: usize,
    /// Closed by us, perhaps still open at the other side; oldest first.
    lingering: VecDeque<u32>,
    /// Threads of this process that sleep on one of its connections.
    asleep: Vec<Asleep>,
}

/// This process, or one that it comes from, has forked with connections of its listeners.
static FORKS_WITH_CONNECTIONS: AtomicBool = AtomicBool::new(false);
static PEERS: Mutex<Vec<Arc<Peer>>> = Mutex::new(Vec::new());

impl Peer {
    /// Whether what waits here is another process's, which has the engine that it came through, or of one that
    /// has no connections by an engine of its own.
    #[inline]
    pub fn is_kept_for_another(&self) -> bool {
        self.segment.is_kept() && self.segment.process(0, 0) != process::number()
    }

    /// Takes part in `segment`; None when too many processes do already.
    pub fn join(segment: Segment, side: usize, inode: u64) -> Option<Arc<Self>> {
        let index = segment.enter(side, process::number())?;
        Self::known(Self::new(segment, side, inode, index, false))
    }

    /// Takes part for the relay of [`crate::packets`].
    pub fn join_as_relay(segment: Segment, side: usize) -> Option<Arc<Self>> {
        let index = segment.enter(side, process::number())?;
        Self::known(Self::new(segment, side, 0, index, true))
    }

    /// Takes part where a place was taken for us, in connections that were another process's. New
    /// ones are not made here: the free slots are that process's to give away.
    pub fn at_place(segment: Segment, side: usize, index: usize) -> Option<Arc<Self>> {
        let peer = Self::new(segment, side, 0, index, false);
        peer.is_stale.store(side == 0, Ordering::SeqCst);
        Self::known(peer)
    }

    fn known(peer: Arc<Self>) -> Option<Arc<Self>> {
        let mut peers = PEERS.lock().ok()?;
        if is_confined() {
            peer.segment.set_silent(peer.side, peer.process_index());
        }
        peer.publish_credits(0);
        if peer.side == 1 && FORKS_WITH_CONNECTIONS.load(Ordering::Relaxed) {
            peer.segment.note_forking();
        }
        peers.push(peer.clone());
        Some(peer)
    }

    fn new(segment: Segment, side: usize, inode: u64, index: usize, is_relay: bool) -> Arc<Self> {
        table::hide(segment.fd());
        let sockets = (0..segment.slots()).map(|_| AtomicU32::new(0)).collect();
        let with_ports = if side == 0 { segment.slots() } else { 0 };
        let ports = (0..with_ports).map(|_| AtomicU16::new(0)).collect();
        Arc::new(Self {
            segment,
            side,
            inode,
            process: AtomicUsize::new(index),
            sockets,
            ports,
            maker: process::number(),
            is_stale: AtomicBool::new(false),
            is_losing_others: AtomicBool::new(false),
            has_lost_others: AtomicBool::new(false),
            is_welcome: AtomicBool::new(false),
            is_reached: AtomicBool::new(false),
            entering: AtomicU32::new(0),
            credits: AtomicU32::new(0),
            has_awaited_ms: AtomicU64::new(0),
            is_relay,
            slots: Mutex::default(),
            relatives: OnceLock::new(),
            delayed_ns: AtomicU64::new(0),
            has_waited_ms: AtomicU64::new(0),
            lent: Lent::new(),
            ready_list: AtomicU32::new(0),
            ready_list_misses: AtomicU32::new(0),
        })
    }

    /// A place that was taken for another process is not needed after all. What this one has closed
    /// meanwhile ends with it.
    pub fn take_back(&self, index: usize) {
        for slot in 0..self.segment.slots_used() {
            self.let_go_as(slot, index, FIN);
        }
        self.segment.leave(self.side, index);
    }

    /// Our index among the side's processes.
    #[inline]
    pub fn process_index(&self) -> usize {
        self.process.load(Ordering::Relaxed)
    }

    /// In a forked child: the place that the parent took for it.
    pub fn become_process(&self, index: usize) {
        self.process.store(index, Ordering::Relaxed);
        self.forget_asleep();
        self.publish_credits(0);
        if is_confined() {
            self.segment.set_silent(self.side, index);
        }
    }

    /// Listener's side: publishes how many connections may wait here for this process, as long as it has room; see
    /// [`admission`].
    pub fn publish_credits(&self, credits: u32) {
        self.credits.store(credits, Ordering::SeqCst);
        let index = self.process_index();
        if self.side != 1 || index == NO_PLACE {
            return;
        }
        // Where it changes meanwhile, look once more: whoever has changed it may have published before.
        loop {
            let is_crowded = is_crowded();
            let credits = match is_crowded {
                true => NO_ROOM,
                false => self.credits.load(Ordering::SeqCst),
            };
            self.segment.set_credits(index, credits);
            if self::is_crowded() == is_crowded {
                return;
            }
        }
    }

    /// Stops taking part, though the memory stays mapped for a while: the other side looks for no process here.
    pub fn give_place_up(&self) {
        let index = self.process.swap(NO_PLACE, Ordering::Relaxed);
        if index != NO_PLACE {
            self.segment.leave(self.side, index);
        }
    }

    /// In a forked child that got no place: the place is the parent's, and stays so.
    pub fn become_nobody(&self) {
        self.process.store(NO_PLACE, Ordering::Relaxed);
    }

    /// The word of an end that this process alone holds.
    #[inline]
    pub fn alone(&self) -> u64 {
        Holders::only(self.process_index()).0
    }

    /// Whether this process is among the holders of its side's end of `slot`.
    pub fn holds(&self, slot: usize) -> bool {
        let holders = &self.segment.slot(slot).meta.holders[self.side];
        Holders(holders.load(Ordering::SeqCst)).has(self.process_index())
    }

    /// In a forked child: ends that no socket of it means, because a thread of the parent was closing
    /// or making them.
    pub fn let_go_unknown(&self) {
        let used = self.segment.slots_used();
        for slot in (0..used).filter(|slot| self.socket(*slot).is_none()) {
            if self.holds(slot) {
                self.let_go(slot, FIN);
            }
        }
    }

    /// The socket that lives in `slot`.
    #[inline]
    pub fn socket(&self, slot: usize) -> Option<usize> {
        let word = self.sockets.get(slot)?.load(Ordering::Acquire);
        (word as usize).checked_sub(1)
    }

    /// Says which socket lives in `slot`.
    pub fn set_socket(&self, slot: usize, socket: Option<usize>) {
        let word = socket.map_or(0, |index| index as u32 + 1);
        self.sockets[self.segment.clamp(slot)].store(word, Ordering::Release);
    }

    /// This process forks, with connections of the listener's side.
    pub fn note_forking(&self) {
        FORKS_WITH_CONNECTIONS.store(true, Ordering::Relaxed);
        self.segment.note_forking();
    }

    /// A place was taken for a child of this process.
    pub fn note_child(&self, index: usize, number: u64) {
        if self.relatives.get().is_none() {
            if let Ok(made) = Mapping::create(c"wirespeed-relatives", size_of::<Relatives>()) {
                let _ = self.relatives.set(made.without_descriptor());
            }
        }
        self.note_relative(self.process_index(), process::number());
        self.note_relative(index, number);
    }

    /// A place was taken for the program that this process becomes by exec, or for a relative: the others know it, if there
    /// are any.
    pub fn note_relative(&self, index: usize, number: u64) {
        let places = self.relatives();
        if let Some(place) = places.and_then(|places| places.get(index)) {
            place.store(number, Ordering::Relaxed);
        }
    }

    fn relatives(&self) -> Option<&Relatives> {
        self.relatives.get().map(memory::shared)
    }

    /// Whether a relative of this process has confined itself that has a place on our side. The other side writes the words
    /// that say so, too: they count where a place is known to be a relative's, which no other side can write.
    fn has_silent_relative(&self) -> bool {
        let Some(places) = self.relatives() else {
            return false;
        };
        let mut all = self.segment.processes(self.side);
        all.any(|(index, number)| {
            let is_relative = places[index].load(Ordering::Relaxed) == number;
            index != self.process_index() && is_relative && self.segment.is_silent(self.side, index)
        })
    }

    /// Slots where sockets of ours live.
    pub fn occupied(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.sockets.len()).filter(|slot| self.socket(*slot).is_some())
    }

    /// Whether nothing of this process is in it, nor about to be.
    pub fn is_idle(&self) -> bool {
        self.entering.load(Ordering::SeqCst) == 0 && self.occupied().next().is_none()
    }

    /// Before a slot is taken by a connect that waits: the segment is not forgotten until it is done. The service thread
    /// says that the listener has gone before it looks here, so the caller looks whether it has gone after this.
    pub fn begin_entering(self: &Arc<Self>) -> Entering {
        self.entering.fetch_add(1, Ordering::SeqCst);
        Entering(self.clone())
    }

    /// Clients: whether the listener has answered our first message.
    pub fn has_been_welcomed(&self) -> bool {
        self.is_welcome.load(Ordering::Relaxed)
    }

    /// The listener has answered our first message.
    pub fn welcome(&self) {
        self.is_welcome.store(true, Ordering::Relaxed);
    }

    /// Offers a prepared slot to the listener, whatever it has published (relays only); false when its queue is full.
    pub fn offer(&self, slot: usize) -> bool {
        let Ok(_one_at_a_time) = self.slots.lock() else {
            return false;
        };
        self.segment.queue().push(slot)
    }

    /// A free slot for a new connection (clients only).
    pub fn take_slot(&self) -> Option<usize> {
        let mut slots = self.slots.lock().ok()?;
        for _ in 0..slots.lingering.len().min(4) {
            let slot = slots.lingering.pop_front()?;
            if self.is_over(slot as usize) {
                slots.free.push(slot);
            } else {
                slots.lingering.push_back(slot);
            }
        }
        match slots.free.pop() {
            Some(slot) => Some(slot as usize),
            None if slots.next < self.segment.slots() => {
                slots.next += 1;
                let used = &self.segment.header().slots_used;
                used.store(slots.next as u32, Ordering::SeqCst);
                Some(slots.next - 1)
            }
            None => None,
        }
    }

    /// The local port of a new connection in `slot`, whose former one is over at both ends.
    pub fn new_port(&self, slot: usize) -> u16 {
        let place = &self.ports[self.segment.clamp(slot)];
        self.give_port_back(place);
        let (port, is_kept) = ports::take(self.maker);
        place.store(if is_kept { port } else { 0 }, Ordering::Relaxed);
        port
    }

    fn give_port_back(&self, place: &AtomicU16) {
        let former = place.swap(0, Ordering::Relaxed);
        if former != 0 && self.maker == process::number() {
            ports::give_back(former);
        }
    }

    /// Gives a slot back that we have closed or never used.
    pub fn return_slot(&self, slot: usize) {
        if let Ok(mut slots) = self.slots.lock() {
            if self.is_over(slot) {
                slots.free.push(slot as u32);
            } else {
                slots.lingering.push_back(slot as u32);
            }
        }
    }

    fn is_over(&self, slot: usize) -> bool {
        let meta = &self.segment.slot(slot).meta;
        meta.holders
            .iter()
            .all(|holders| holders.load(Ordering::SeqCst) == 0)
    }
}

/// All segments that are mapped here, including those no longer in use.
pub fn mapped() -> Vec<Arc<Peer>> {
    let mut all = all();
    if let Ok(resting) = RESTING.lock() {
        all.extend(resting.all().cloned());
    }
    all
}

/// All segments that this process takes part in.
pub fn all() -> Vec<Arc<Peer>> {
    PEERS.lock().map(|peers| peers.clone()).unwrap_or_default()
}

/// Other processes may hold our connections too: this one has forked, or is a child of a fork.
static HAS_FORKED: AtomicBool = AtomicBool::new(false);

/// See [`has_confined_holder`].
pub fn note_fork() {
    HAS_FORKED.store(true, Ordering::Relaxed);
}

/// Whether this process has started another one that may hold what it holds, or was started so.
pub fn has_forked() -> bool {
    HAS_FORKED.load(Ordering::Relaxed)
}

/// Whether a process that shares connections with this one, by fork or exec, has confined itself: it cannot receive the
/// connections that others pass to it.
pub fn has_confined_holder() -> bool {
    if !HAS_FORKED.load(Ordering::Relaxed) {
        return false;
    }
    let is_silent =
        |peer: &Arc<Peer>| peer.segment.has_silent(peer.side) && peer.has_silent_relative();
    PEERS.lock().is_ok_and(|peers| peers.iter().any(is_silent))
}

/// The one with number `id` in which we are on `side`.
pub fn find(id: u64, side: usize) -> Option<Arc<Peer>> {
    let peers = PEERS.lock().ok()?;
    peers
        .iter()
        .find(|peer| peer.segment.id() == id && peer.side == side)
        .cloned()
}

/// This process has no room for more connections.
static IS_CROWDED: AtomicBool = AtomicBool::new(false);

/// Whether [`set_crowded`] has said so.
pub fn is_crowded() -> bool {
    IS_CROWDED.load(Ordering::SeqCst)
}

/// Publishes to all clients whether this process has room for more connections.
#[cold]
pub fn set_crowded(is_crowded: bool) {
    if self::is_crowded() == is_crowded {
        return;
    }
    // Under the lock, so that of two threads which say different things all clients hear the same last.
    let Ok(peers) = PEERS.lock() else {
        return;
    };
    IS_CROWDED.store(is_crowded, Ordering::SeqCst);
    for peer in peers.iter() {
        peer.publish_credits(peer.credits.load(Ordering::SeqCst));
    }
}

/// Held by whoever makes a connection, from its slot to its socket, or takes part in a segment, until
/// all who are to know do; taken for writing by fork, which thus finds each made or not begun.
static MAKING: RwLock<()> = RwLock::new(());

/// While a connection is being made, or a segment taken.
pub fn making() -> impl Sized {
    MAKING.read().ok()
}

/// While none is.
pub fn hold_making() -> impl Sized {
    MAKING.write().ok()
}

/// Segments whose last user is gone.
static RESTING: Mutex<Limbo<Peer>> = Mutex::new(Limbo::new());
/// The threads that may still look at them; the service thread's.
static THREADS: Mutex<Watch> = Mutex::new(Watch::new());

fn begin_rest(peer: Arc<Peer>) {
    if let Ok(mut resting) = RESTING.lock() {
        resting.add(peer);
    }
}

/// Forgets a segment; its memory goes with the last socket in it.
pub fn forget(peer: &Arc<Peer>) {
    // Once: two that rest would be references to each other's segment for ever.
    if strike(peer) {
        begin_rest(peer.clone());
    }
}

/// Whether a segment was forgotten here, since its other side has ended.
pub fn is_forgotten(peer: &Arc<Peer>) -> bool {
    PEERS
        .lock()
        .is_ok_and(|all| !all.iter().any(|one| Arc::ptr_eq(one, peer)))
}

/// Whether we have a place still in the segment with number `id`, in which we are on `side`, although it was forgotten.
pub fn keeps_place(id: u64, side: usize) -> bool {
    let is_it = |peer: &Arc<Peer>| {
        let has_place = peer.process_index() != NO_PLACE;
        has_place && peer.segment.id() == id && peer.side == side
    };
    RESTING.lock().is_ok_and(|resting| resting.all().any(is_it))
}

/// Whether this process takes part in the segment with number `id` on `side`.
pub fn has_place(id: u64, side: usize) -> bool {
    find(id, side).is_some() || keeps_place(id, side)
}

/// Drops a segment that has no connections and no users; its memory is freed with the last reference.
pub fn drop_reference(peer: &Arc<Peer>) {
    strike(peer);
}

/// Takes a segment off the list; false when it was not there.
fn strike(peer: &Arc<Peer>) -> bool {
    PEERS.lock().is_ok_and(|mut peers| {
        let count = peers.len();
        peers.retain(|one| !Arc::ptr_eq(one, peer));
        peers.len() < count
    })
}

/// Lets a reference go; the last one only after a while, for threads that look without one.
pub fn retire(peer: Arc<Peer>) {
    // A client whose server has gone kept the segment for the connections that were open.
    let is_stale = peer.side == 0 && peer.is_stale.load(Ordering::SeqCst);
    if is_stale && peer.is_idle() {
        forget(&peer);
    }
}

/// Closes the descriptors of segments that rest: they are not passed on, and a server has one of each client process of
/// the last seconds. Says how many; it does not wait for a lock.
pub fn close_resting() -> usize {
    let resting = RESTING.try_lock();
    resting.map_or(0, |resting| {
        let taken = |peer: &Peer| {
            let descriptor = peer.segment.take_descriptor()?;
            table::show(descriptor.0);
            Some(())
        };
        resting.alone().filter_map(taken).count()
    })
}

/// Unmaps what has rested long enough; true when something still rests.
pub fn clean_resting() -> bool {
    close_resting();
    let now = now_ns();
    let has_starved = || {
        THREADS
            .lock()
            .is_ok_and(|mut threads| threads.has_starved())
    };
    RESTING
        .lock()
        .is_ok_and(|mut resting| resting.clean(now, has_starved))
}

/// Locks the lists and the slots of every segment across a fork.
pub fn hold() -> impl Sized {
    let peers = PEERS.lock().ok();
    let slots: Vec<_> = peers
        .iter()
        .flat_map(|peers| peers.iter())
        .map(|peer| Held::lock(peer.clone(), |peer| &peer.slots))
        .collect();
    (slots, peers, (RESTING.lock().ok(), THREADS.lock().ok()))
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.give_place_up();
        self.ports
            .iter()
            .for_each(|place| self.give_port_back(place));
        table::show(self.segment.fd());
    }
}
