//! Listening sockets: connections come from segments and from the kernel alike.
//!
//! The shadow is the real kernel listener, so the port is truly taken and everybody else is served
//! as before. Next to it stands a rendezvous socket with the socket's inode in its name, where accelerated
//! clients leave their segments. The processes that hold the socket (nginx's workers) are listed in
//! the holder table, which they share. A segment left at one is passed to the processes that accept: that wait for
//! connections here, or have accepted one.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock};

use bypass_shm::accept_queue;
use bypass_stats::Reason;
use bypass_sys::descriptor::Owned;
use bypass_sys::memory::Mapping;
use bypass_sys::process::Held;
use bypass_sys::sandbox::is_confined;
use bypass_sys::{kernel, numbers};

use crate::peer::{self, Peer};
use crate::process::{self, pool, table, uring};
use crate::service::{self, Role};
use crate::sockets::Socket;

mod accepting;
mod adopting;
mod closing;
mod holders;
mod meetings;
pub mod participants;
pub mod published;
mod ready_lists;
pub mod untold;

pub use accepting::{
    choose_by_program, credits_of_ours_alone, end_left, joins_chosen_by_program, leave_queues,
    publish_all, use_hidden_sockets, withdraw_credits,
};
pub use adopting::{admit, adopt, adopt_from_relay, backlog_of, join, names, proves};
pub use closing::{close, close_left_over, closed_number, follow_numbers, settle, settle_waiting};
pub use holders::HOLDER_TABLE_BYTES;
pub use ready_lists::{Blocked, ReadyLists, Rung};

/// See the module.
#[derive(Debug)]
pub struct Listener {
    /// Of the listening socket.
    pub inode: u64,
    /// A descriptor of it in this process.
    pub fd: AtomicI32,
    /// Where clients ask.
    pub rendezvous: i32,
    /// Owner of the socket, whose clients are served.
    pub uid: u32,
    /// Given to listen().
    pub backlog: AtomicU32,
    holder_table: Mapping,
    /// Names the listening socket and opens nothing (O_PATH): who has it can show that it is the socket's, and neither
    /// accept nor pass connections. None where there is no /proc.
    proof: Option<Owned>,
    /// Whether this process has waited for connections here: clients' segments are for processes that do.
    attends: AtomicBool,
    /// Whether new connections were switched off when the credits were last published.
    is_switched_off: AtomicBool,
    /// Connections come here through an engine of this process.
    is_served: AtomicBool,
    /// Whether the kernel may have connections that came before those over packets.
    kernel_is_first: AtomicBool,
    peers: Mutex<Vec<Arc<Peer>>>,
    generation: AtomicU32,
    turn: AtomicU32,
    /// Looks that have found a connection which waits for the end of a child.
    delays: AtomicU32,
    /// Wakers of threads that are blocked in accept or poll.
    blocked: Mutex<Vec<u32>>,
}

static LISTENERS: Mutex<Vec<Option<Arc<Listener>>>> = Mutex::new(Vec::new());

/// Wakes the sets that wait for connections; they lie above, and say so when there is the first.
static WAKE_SETS: OnceLock<fn()> = OnceLock::new();

/// Counts listeners that came or went, or began to be attended.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Says how sets are woken that wait for connections, before the first of them does.
pub fn set_wake_sets(wake_sets: fn()) {
    let _ = WAKE_SETS.set(wake_sets);
}

/// A number that is another one after a listener has come or gone, or this process has begun to attend one.
#[inline]
pub fn changes() -> u32 {
    CHANGES.load(Ordering::Relaxed)
}

/// A listener was opened or closed here, or is attended from now on.
pub fn changed() {
    CHANGES.fetch_add(1, Ordering::SeqCst);
}

/// Starts the service in a forked child that has listeners or connections; cheap otherwise.
#[inline]
pub fn ensure_service() {
    if service::is_running() || !process::is_started() || is_confined() {
        return;
    }
    if !all().is_empty() || service::has_links() {
        let _ = service::start();
    }
}

/// Listener `number`.
pub fn get(number: usize) -> Option<Arc<Listener>> {
    LISTENERS.lock().ok()?.get(number)?.clone()
}

/// The listener of a socket object.
pub fn of(socket: &Socket) -> Option<Arc<Listener>> {
    get(socket.listener.load(Ordering::Relaxed) as usize)
}

/// All of this process, with their numbers.
pub fn numbered() -> Vec<(usize, Arc<Listener>)> {
    let each = |all: &Vec<Option<Arc<Listener>>>| {
        let numbered = all.iter().enumerate();
        numbered
            .filter_map(|(number, one)| Some((number, one.clone()?)))
            .collect()
    };
    LISTENERS.lock().map(|all| each(&all)).unwrap_or_default()
}

/// All of this process.
pub fn all() -> Vec<Arc<Listener>> {
    LISTENERS
        .lock()
        .map(|all| all.iter().flatten().cloned().collect())
        .unwrap_or_default()
}

/// Whether this process accepts anywhere.
pub fn are_attended() -> bool {
    all().iter().any(|listener| listener.attends())
}

/// Locks the list and what each listener locks across a fork.
pub fn hold() -> impl Sized {
    let all = LISTENERS.lock().ok();
    let each: Vec<_> = all
        .iter()
        .flat_map(|all| all.iter().flatten())
        .map(|listener| {
            let peers = Held::lock(listener.clone(), |listener| &listener.peers);
            (peers, Held::lock(listener.clone(), |one| &one.blocked))
        })
        .collect();
    (
        each,
        all,
        (closing::hold(), untold::hold(), accepting::hold()),
    )
}

/// Takes part in a listener whose rendezvous socket and holder table are known.
pub fn enter(
    fd: i32,
    inode: u64,
    uid: u32,
    backlog: u32,
    rendezvous: Owned,
    holder_table: Mapping,
) -> Result<usize, Reason> {
    process::number();
    table::hide(rendezvous.0);
    table::hide(holder_table.fd());
    let proof = pool::or_give_back(|| named_only(fd)).ok();
    if let Some(proof) = &proof {
        table::hide(proof.0);
    }
    let listener = Arc::new(Listener {
        inode,
        fd: AtomicI32::new(fd),
        rendezvous: rendezvous.into_raw(),
        uid,
        backlog: AtomicU32::new(backlog),
        holder_table,
        proof,
        attends: AtomicBool::new(false),
        is_switched_off: AtomicBool::new(false),
        kernel_is_first: AtomicBool::new(false),
        is_served: AtomicBool::new(false),
        peers: Mutex::default(),
        generation: AtomicU32::new(1),
        turn: AtomicU32::new(0),
        delays: AtomicU32::new(0),
        blocked: Mutex::default(),
    });
    listener.register();
    let mut all = LISTENERS.lock().map_err(|_| Reason::Limit)?;
    let number = all.iter().position(Option::is_none).unwrap_or(all.len());
    if number == all.len() {
        all.push(None);
    }
    all[number] = Some(listener.clone());
    drop(all);
    pool::or_give_back(service::start).map_err(|_| Reason::Sandbox)?;
    service::add(listener.rendezvous, Role::Rendezvous(number));
    Ok(number)
}

/// A descriptor of what is open as `fd` that can only be asked what it is: see O_PATH in open(2).
fn named_only(fd: i32) -> Result<Owned, i32> {
    let name = CString::new(format!("/proc/self/fd/{fd}")).map_err(|_| libc::EINVAL)?;
    numbers::high(|| kernel::open(&name, libc::O_PATH | libc::O_CLOEXEC))
}

/// Whether the program has threads besides its first: then it makes no child for each connection.
pub fn has_threads() -> bool {
    let Ok(tasks) = numbers::high(|| kernel::open(c"/proc/self/task", libc::O_RDONLY)) else {
        return false;
    };
    // A folder's links: two, and one for each folder in it.
    let count = kernel::fstat(tasks.0).map_or(0, |stat| stat.st_nlink.saturating_sub(2));
    count > 1 + u64::from(service::is_running())
}

/// In a forked child: it attends where it waits itself, and not where its parent has.
pub fn forget_attendance() {
    for listener in all() {
        listener.attends.store(false, Ordering::SeqCst);
        listener.is_served.store(false, Ordering::SeqCst);
    }
}

impl Listener {
    /// This process accepts here, or waits to: from now on it gets the segments of all clients.
    #[inline]
    pub fn attend(self: &Arc<Self>) {
        if !self.attends.load(Ordering::Relaxed) {
            self.begin_to_attend();
        } else if self.is_switched_off.load(Ordering::Relaxed) != process::is_switched_off() {
            self.publish_credits();
        }
    }

    #[cold]
    fn begin_to_attend(self: &Arc<Self>) {
        if is_confined() {
            // Segments are not asked for any more, nor what has to be known of threads.
            return;
        }
        self.attends.store(true, Ordering::SeqCst);
        uring::note_unseen_rings();
        self.publish_credits();
        // A process that waits here may take an interface, or a queue of one.
        changed();
        if has_threads() {
            self.prove();
        }
        // A service that starts later does the rest.
        if service::is_running() {
            self.register();
            self.ask_for_clients();
        }
    }

    /// Whether this process accepts here.
    pub fn attends(&self) -> bool {
        self.attends.load(Ordering::Relaxed)
    }

    /// Whether connections come here through an engine of this process.
    #[inline]
    pub fn is_served(&self) -> bool {
        self.is_served.load(Ordering::Relaxed)
    }

    /// A client has ended: what it left in its queue goes with it.
    pub fn forget(&self, peer: &Arc<Peer>) {
        if let Ok(mut peers) = self.peers.lock() {
            peers.retain(|one| !Arc::ptr_eq(one, peer));
        }
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// The descriptor that shows a client that this process holds the listening socket.
    pub fn proof(&self) -> Option<i32> {
        self.proof.as_ref().map(|proof| proof.0)
    }

    /// A descriptor of the listening socket, which proves to other holders that we hold it.
    pub fn any_fd(&self) -> i32 {
        self.fd.load(Ordering::Relaxed)
    }

    /// Counts changes of the list of segments.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::SeqCst)
    }

    /// The segment with this number, if connections may come from it.
    pub fn peer(&self, id: u64) -> Option<Arc<Peer>> {
        let peers = self.peers.lock().ok()?;
        peers.iter().find(|peer| peer.segment.id() == id).cloned()
    }

    /// The segments that connections may come from.
    pub fn peers(&self) -> Vec<Arc<Peer>> {
        self.peers
            .lock()
            .map(|peers| peers.clone())
            .unwrap_or_default()
    }

    /// Wakes threads and sets that wait here, because there is another segment to look at.
    pub fn wake_waiters(&self) {
        for number in self
            .blocked
            .lock()
            .map(|list| list.clone())
            .unwrap_or_default()
        {
            process::wake(process::number(), number);
        }
        if let Some(wake_sets) = WAKE_SETS.get() {
            wake_sets();
        }
    }

    /// How many connections wait in segments.
    pub fn waiting(&self) -> usize {
        let peers = self.peers();
        peers
            .iter()
            .map(|peer| peer.segment.queue().waiting())
            .sum()
    }

    /// Whether a connection waits in a segment.
    pub fn has_waiting(&self) -> bool {
        self.any_waits(|_| true)
    }

    /// Whether one waits that can be accepted now.
    pub fn has_acceptable(&self) -> bool {
        self.any_waits(|peer| self.is_open_to_us(peer) && !peer.must_wait_for_children())
    }

    /// Whether one waits for the end of a child, of which no process notifies us.
    pub fn has_delayed(&self) -> bool {
        let is_delayed = self.any_waits(Peer::must_wait_for_children);
        if is_delayed {
            self.delays.fetch_add(1, Ordering::Relaxed);
        }
        is_delayed
    }

    /// Whether connections of a segment may be accepted here: those of another process's engine are that one's as
    /// long as this process has its own.
    #[inline]
    fn is_open_to_us(&self, peer: &Peer) -> bool {
        !self.is_served() || !peer.is_kept_for_another()
    }

    fn any_waits(&self, which: impl Fn(&Peer) -> bool) -> bool {
        let Ok(peers) = self.peers.lock() else {
            return false;
        };
        let mut waiting = peers
            .iter()
            .filter(|peer| peer.segment.queue().waiting() > 0);
        waiting.any(|peer| which(peer))
    }

    /// A number that is another one after each connection that has come, was delayed, or is no longer kept for another
    /// process. The clients are in it too: one
    /// that has gone takes its count along, and the next may have come as far.
    pub fn arrivals(&self) -> u64 {
        let peers = self.peers.lock();
        let mark = |peer: &Arc<Peer>| {
            let tail = peer.segment.queue().tail.0.load(Ordering::SeqCst);
            peer.segment.id().wrapping_add(tail)
        };
        let delays = u64::from(self.delays.load(Ordering::Relaxed));
        peers.map_or(0, |peers| {
            let ours = peers.iter().filter(|peer| self.is_open_to_us(peer));
            ours.map(mark).fold(delays, u64::wrapping_add)
        })
    }

    /// The engine begins to listen: what has come to the kernel until now was there before.
    pub fn set_kernel_first(&self, is_first: bool) {
        self.kernel_is_first.store(is_first, Ordering::Relaxed);
    }

    /// Whether the kernel's queue is emptied before ours is looked at, so that connections are accepted in
    /// the order in which they came.
    #[inline]
    pub fn is_kernel_first(&self) -> bool {
        self.kernel_is_first.load(Ordering::Relaxed)
    }

    /// How a thread that is blocked in accept is rung: of hundreds of processes not all are to wake for one connection.
    pub fn rung(&self) -> Rung {
        match self.peers().iter().any(has_several) {
            true => Rung::InTurn,
            false => Rung::Always,
        }
    }

    /// A thread that was rung in turn leaves accept: another one is rung for what it has not taken, also where the other
    /// processes have ended since.
    pub fn pass_turn(&self) {
        let peers = self.peers();
        let waiting = peers
            .iter()
            .filter(|peer| peer.segment.queue().waiting() > 0);
        waiting.for_each(|peer| peer::ring_listeners(&peer.segment));
    }

    /// Counts the looks of accept.
    pub fn next_turn(&self) -> u32 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// How many there were.
    fn turns(&self) -> u32 {
        self.turn.load(Ordering::Relaxed)
    }

    /// Counts a client that forges its queue and would keep us looking for ever; false: it goes.
    #[cold]
    fn drop_forger(&self) -> bool {
        process::fall_back(Reason::PeerProtocol);
        self.generation.fetch_add(1, Ordering::SeqCst);
        false
    }

    /// Takes a connection that can be accepted and for which `enters` finds a place: the segment, and the slot it lives in.
    pub fn take(&self, enters: impl Fn(&Peer, usize) -> bool) -> Option<(Arc<Peer>, usize)> {
        let which = |peer: &Peer| self.is_open_to_us(peer) && !peer.must_wait_for_children();
        self.take_from(which, enters)
    }

    /// Takes a connection that waits, although no process accepts it.
    fn take_any(&self) -> Option<(Arc<Peer>, usize)> {
        self.take_from(|_| true, |_, _| true)
    }

    fn take_from(
        &self,
        which: impl Fn(&Peer) -> bool,
        enters: impl Fn(&Peer, usize) -> bool,
    ) -> Option<(Arc<Peer>, usize)> {
        let mut peers = self.peers.lock().ok()?;
        let mut found = None;
        peers.retain(|peer| {
            if found.is_some() || !which(peer) {
                return true;
            }
            let taken = accept_queue::take(&peer.segment, peer.process_index());
            let slot = taken.ok().flatten().filter(|slot| enters(peer, *slot));
            found = slot.map(|slot| (peer.clone(), slot));
            taken.is_ok() || self.drop_forger()
        });
        let found = found?;
        let is_over = |peer: &Peer| {
            peer.is_stale.load(Ordering::Relaxed) && peer.segment.queue().waiting() == 0
        };
        if peers.iter().any(|peer| is_over(peer)) {
            peers.retain(|peer| !is_over(peer));
            self.generation.fetch_add(1, Ordering::SeqCst);
        }
        Some(found)
    }
}

/// Whether several processes of the listener's side take part.
fn has_several(peer: &Arc<Peer>) -> bool {
    peer.segment.processes(1).nth(1).is_some()
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Until then its number is open, and not the program's.
        table::show(self.holder_table.fd());
        if let Some(proof) = &self.proof {
            table::show(proof.0);
        }
    }
}
