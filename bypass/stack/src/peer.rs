//! A segment as this process takes part in it: which of our sockets live in which slot, and what
//! happens to them when the other side's processes end.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, RwLock};

use bypass_shm::layout::FIN;
use bypass_shm::segment::Segment;
use bypass_sys::clock::now_ns;

use crate::process::{self, table};
use bypass_sys::process::Held;

pub mod due;
mod lent;
mod limbo;
mod releasing;
mod ringing;
pub mod trimming;

pub use ringing::{ring_listeners, Notice};

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
    /// The client's process has ended, or (for a client) the listener has gone.
    pub is_stale: AtomicBool,
    /// Clients: what the listener has told of its backlog.
    pub backlog: AtomicU64,
    /// We stand at the other end of our own program's sockets, for other hosts: no socket lives here.
    pub is_relay: bool,
    slots: Mutex<Slots>,
    /// Numbers of what we lend, by the contents that [`crate::stream::lending`] sends.
    pub lent: Lent,
}

#[derive(Debug, Default)]
struct Slots {
    free: Vec<u32>,
    next: usize,
    /// Closed by us, perhaps still open at the other side; oldest first.
    lingering: VecDeque<u32>,
}

static PEERS: Mutex<Vec<Arc<Peer>>> = Mutex::new(Vec::new());

impl Peer {
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
        PEERS.lock().ok()?.push(peer.clone());
        Some(peer)
    }

    fn new(segment: Segment, side: usize, inode: u64, index: usize, is_relay: bool) -> Arc<Self> {
        table::hide(segment.fd());
        let sockets = (0..segment.slots()).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self {
            segment,
            side,
            inode,
            process: AtomicUsize::new(index),
            sockets,
            is_stale: AtomicBool::new(false),
            backlog: AtomicU64::new(u64::MAX),
            is_relay,
            slots: Mutex::default(),
            lent: Lent::new(),
        })
    }

    /// A place that was taken for another process is not needed after all.
    pub fn take_back(&self, index: usize) {
        for slot in self.occupied() {
            let holders = &self.segment.slot(slot).meta.holders[self.side];
            holders.fetch_and(!(1 << index), Ordering::SeqCst);
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
    }

    /// Our bit among the holders.
    #[inline]
    pub fn bit(&self) -> u32 {
        1 << self.process_index()
    }

    /// In a forked child: ends that no socket of it means, because a thread of the parent was closing
    /// or making them.
    pub fn let_go_unknown(&self) {
        let used = self.segment.slots_used().min(self.segment.slots());
        for slot in (0..used).filter(|slot| self.socket(*slot).is_none()) {
            let holders = &self.segment.slot(slot).meta.holders[self.side];
            if holders.load(Ordering::SeqCst) & self.bit() != 0 {
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

    /// Slots where sockets of ours live.
    pub fn occupied(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.sockets.len()).filter(|slot| self.socket(*slot).is_some())
    }

    /// Whether as many connections of ours wait as the kernel would let wait at the listener.
    pub fn is_backlog_full(&self) -> bool {
        self.segment.queue().waiting() as u64 > self.backlog.load(Ordering::Relaxed)
    }

    /// Offers a prepared slot to the listener; false when its queue is full.
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

/// All segments that are mapped here, those that nobody uses any more too.
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

/// Whether a process that shares a connection with this one has confined itself: it cannot receive the
/// connections that others pass to it.
pub fn has_confined_holder() -> bool {
    if !HAS_FORKED.load(Ordering::Relaxed) {
        return false;
    }
    let is_silent = |peer: &Arc<Peer>| peer.segment.has_silent(peer.side);
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

/// Held by whoever makes a connection, from its slot to its socket; taken for writing by fork, which
/// thus finds each connection made or not begun.
static MAKING: RwLock<()> = RwLock::new(());

/// While a connection is being made.
pub fn making() -> impl Sized {
    MAKING.read().ok()
}

/// While none is.
pub fn hold_making() -> impl Sized {
    MAKING.write().ok()
}

/// Segments whose last user is gone.
static RESTING: Mutex<Limbo<Peer>> = Mutex::new(Limbo::new());

fn begin_rest(peer: Arc<Peer>) {
    if let Ok(mut resting) = RESTING.lock() {
        resting.add(peer);
    }
}

/// Forgets a segment; its memory goes with the last socket in it.
pub fn forget(peer: &Arc<Peer>) {
    if let Ok(mut peers) = PEERS.lock() {
        peers.retain(|one| !Arc::ptr_eq(one, peer));
    }
    begin_rest(peer.clone());
}

/// Lets a reference go; the last one only after a while, for those who look without one.
pub fn retire(peer: Arc<Peer>) {
    // A client whose server has gone kept the segment for the connections that were open.
    let is_stale = peer.side == 0 && peer.is_stale.load(Ordering::SeqCst);
    if is_stale && peer.occupied().next().is_none() {
        forget(&peer);
    }
}

/// Unmaps what has rested long enough; true when something still rests.
pub fn clean_resting() -> bool {
    let now = now_ns();
    RESTING.lock().is_ok_and(|mut resting| resting.clean(now))
}

/// Locks the lists and the slots of every segment across a fork.
pub fn hold() -> impl Sized {
    let peers = PEERS.lock().ok();
    let slots: Vec<_> = peers
        .iter()
        .flat_map(|peers| peers.iter())
        .map(|peer| Held::lock(peer.clone(), |peer| &peer.slots))
        .collect();
    (slots, peers, RESTING.lock().ok())
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.segment.leave(self.side, self.process_index());
        table::show(self.segment.fd());
    }
}
