//! The processes that hold one listener: a page that they share lists them.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use bypass_shm::layout::PROCESSES;
use bypass_shm::link;
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_sys::lock;
use bypass_sys::thread::thread;
use bypass_sys::waker::Name;

use super::untold::{self, Word};
use super::{participants, published, Listener};
use crate::peer::{marks, Peer};
use crate::process;

/// Processes that hold one listener: as many as take part in one segment.
const HOLDERS_MAX: usize = PROCESSES;

#[repr(C)]
struct HolderTable {
    holders: [AtomicU64; HOLDERS_MAX],
    /// The user of each: when it is gone, anybody could take the name of its rendezvous socket.
    users: [AtomicU32; HOLDERS_MAX],
    /// Processes through which connections of other hosts come, and their users: one that has closed the
    /// listener goes on carrying them.
    carriers: [AtomicU64; HOLDERS_MAX],
    carriers_users: [AtomicU32; HOLDERS_MAX],
    /// Whether each has connections through its own engine lately, and leaves those of others' engines to them.
    served: [AtomicU32; HOLDERS_MAX],
    /// Whether each accepts: an idle holder (a worker that inherited the others' listeners) needs no segments.
    attending: [AtomicU32; HOLDERS_MAX],
    /// 1 when a holder serves without a child for each connection, see [`Listener::prove`]; 2 when one is expected
    /// to show it.
    proven: AtomicU32,
    /// 1 when a holder has had the segment of a client.
    has_clients: AtomicU32,
    /// The thread that takes a connection out of the kernel's queue; see [`Listener::with_kernels_queue`].
    accepting: AtomicU32,
    /// For whom the kernel keeps SYNs, or has kept them last: 0, [`OURS`] or [`PROGRAMS`].
    kept_syns: AtomicU32,
}

/// SYNs are kept for the holders; see [`Listener::keep_syns`].
const OURS: u32 = 1;
/// Whether SYNs are kept is for the program to say.
const PROGRAMS: u32 = 2;

/// Smallest holder table.
pub const HOLDER_TABLE_BYTES: usize = size_of::<HolderTable>();

impl Listener {
    fn holder_table(&self) -> &HolderTable {
        bypass_sys::memory::shared(&self.holder_table)
    }

    /// Runs `work` while no other thread of any holder does: what the kernel's queue shows in it is
    /// still there when it is taken, so accept does not block on a listener that may. None where
    /// the others did not come to an end.
    pub fn with_kernels_queue<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let _guard = lock::take(&self.holder_table().accepting, thread().tid())?;
        Some(work())
    }

    /// The lock of that.
    pub fn accepting(&self) -> &AtomicU32 {
        &self.holder_table().accepting
    }

    /// The kernel keeps the SYNs of clients over IPv6, in which the holders look for [marks], each until a process
    /// accepts its connection. False where the program has said whether it keeps them.
    pub fn keep_syns(&self) -> bool {
        let kept = &self.holder_table().kept_syns;
        let _ = kept.compare_exchange(0, OURS, Ordering::SeqCst, Ordering::SeqCst);
        self.keeps_syns() && marks::keep_syns(self.any_fd())
    }

    /// Whether it does.
    pub fn keeps_syns(&self) -> bool {
        self.holder_table().kept_syns.load(Ordering::SeqCst) == OURS
    }

    /// The program has said whether the kernel keeps SYNs, and reads them itself.
    pub fn leave_syns(&self) {
        let kept = &self.holder_table().kept_syns;
        if kept.swap(PROGRAMS, Ordering::SeqCst) == OURS {
            published::withdraw_ipv6(self.inode);
        }
    }

    /// The listener's processes make no child for each connection: by what this one has done, or because it has
    /// threads. Until then clients let no more wait here than there are places for children.
    #[cold]
    pub fn prove(&self) {
        self.holder_table().proven.store(1, Ordering::SeqCst);
        let peers = self.peers();
        peers.iter().for_each(|peer| peer.segment.set_proven());
    }

    /// This process waits in an epoll set. Mostly such a one makes no child for each connection, but inetd does: what
    /// it does with its first connections shows which, and clients wait for that a moment.
    #[cold]
    pub fn expect_proof(&self) {
        let proven = &self.holder_table().proven;
        let _ = proven.compare_exchange(0, 2, Ordering::SeqCst, Ordering::SeqCst);
        let peers = self.peers();
        peers.iter().for_each(|peer| self.tell_proven(peer));
    }

    /// Publishes what is known to the client of a segment that comes.
    pub fn tell_proven(&self, peer: &Peer) {
        match self.holder_table().proven.load(Ordering::SeqCst) {
            0 => {}
            1 => peer.segment.set_proven(),
            _ => peer.segment.expect_proof(),
        }
    }

    /// The holder table's descriptor, for a process that joins.
    pub fn holder_table_fd(&self) -> i32 {
        self.holder_table.fd()
    }

    /// Enters this process among the holders, or says that it attends now.
    pub fn register(&self) {
        let holder_table = self.holder_table();
        if let Some(at) = enter(&holder_table.holders, &holder_table.users) {
            let attends = self.attends.load(Ordering::SeqCst);
            holder_table.attending[at].store(u32::from(attends), Ordering::SeqCst);
        }
    }

    /// Enters this process among those through which connections of other hosts come, until it ends.
    pub fn register_carrier(&self) {
        let holder_table = self.holder_table();
        let at = enter(&holder_table.carriers, &holder_table.carriers_users);
        if let Some(at) = at.filter(|_| !self.is_served()) {
            holder_table.served[at].store(0, Ordering::SeqCst);
        }
    }

    /// Whether connections of other hosts come through process `number`, which runs as `user`. The process that says so
    /// holds the listening socket.
    pub fn is_carrier(&self, number: u64, user: u32) -> bool {
        has(
            &self.holder_table().carriers,
            &self.holder_table().carriers_users,
            number,
            user,
        )
    }

    /// Says whether connections come here through an engine of this process, besides others' engines.
    pub fn set_served(&self, is_served: bool) {
        let (own, holder_table) = (process::number(), self.holder_table());
        let mut carriers = holder_table.carriers.iter();
        if let Some(at) = carriers.position(|place| place.load(Ordering::Relaxed) == own) {
            holder_table.served[at].store(u32::from(is_served), Ordering::SeqCst);
            self.is_served.store(is_served, Ordering::SeqCst);
        }
    }

    /// Whether process `number` has connections through an engine of its own.
    pub fn serves_itself(&self, number: u64) -> bool {
        let holder_table = self.holder_table();
        let mut places = holder_table.carriers.iter().zip(&holder_table.served);
        places.any(|(place, served)| {
            place.load(Ordering::Relaxed) == number && served.load(Ordering::Relaxed) != 0
        })
    }

    /// Whether a process accepts here that has no connections through an engine of its own.
    pub fn is_attended_by_guests(&self) -> bool {
        let mut attending = self.others_attending().into_iter();
        attending.any(|number| !self.serves_itself(number))
    }

    /// Asks the other holders for the segments of its clients, if this process attends.
    pub fn ask_for_clients(self: &Arc<Self>) {
        if !self.attends.load(Ordering::SeqCst) {
            return;
        }
        let has_carriers = || others_in(&self.holder_table().carriers).next().is_some();
        if self.holder_table().has_clients.load(Ordering::SeqCst) == 0 && !has_carriers() {
            // Hundreds of processes that start would each ask all others. The first client's segment is passed to whoever
            // attends by then, as this process does since before it looked.
            return;
        }
        let holders = self.others();
        // A process that has closed the listener may still carry connections of other hosts to it.
        let carriers =
            others_in(&self.holder_table().carriers).filter(|one| !holders.contains(one));
        let asked: Vec<u64> = holders.iter().copied().chain(carriers).collect();
        // As proof that we hold it, whatever user we have become.
        self.tell(&asked, &Word::Share);
    }

    /// This process has the segment of a client; before it is passed to the attending processes.
    pub fn note_client(&self) {
        self.holder_table().has_clients.store(1, Ordering::SeqCst);
    }

    /// Passes a segment of a listener that is closed here to the others that attend; where none does, to
    /// all who might.
    pub fn pass_on(self: &Arc<Self>, peer: &Arc<Peer>) {
        // Without the socket as proof: its number may be another file's by now.
        self.bequeath(peer, false);
    }

    /// The same as this process ends, of what waits here: of the others' questions for segments some may be unread.
    pub fn leave_waiting(self: &Arc<Self>) {
        let peers = self.peers();
        let waiting = peers.iter().filter(|one| one.segment.queue().waiting() > 0);
        waiting.for_each(|peer| self.bequeath(peer, true));
    }

    fn bequeath(self: &Arc<Self>, peer: &Arc<Peer>, proves: bool) {
        loop {
            let heirs = self.heirs();
            if heirs.is_empty() {
                return participants::leave_at_rendezvous(peer);
            }
            self.tell(&heirs, &Word::Forward(peer.clone(), proves));
            // Heirs that were struck meanwhile had ended: then other processes are the heirs.
            let others = self.others();
            if heirs.iter().any(|heir| others.contains(heir)) {
                return;
            }
        }
    }

    fn heirs(&self) -> Vec<u64> {
        let attending = self.others_attending();
        if attending.is_empty() {
            self.others()
        } else {
            attending
        }
    }

    /// As [`Self::pass_on`], by one that keeps the segment itself: who attends later asks for it.
    pub fn pass_to_attending(self: &Arc<Self>, peer: &Arc<Peer>) {
        let word = Word::Forward(peer.clone(), true);
        self.tell(&self.others_attending(), &word);
    }

    /// Gives a segment to a process that has asked for it.
    pub fn pass_to(self: &Arc<Self>, asking: u64, peer: &Arc<Peer>) {
        self.tell(&[asking], &Word::Forward(peer.clone(), true));
    }

    /// The same by one that may not hold the listening socket any more, and so shows no proof of it.
    pub fn pass_without_proof(self: &Arc<Self>, asking: u64, peer: &Arc<Peer>) {
        self.tell(&[asking], &Word::Forward(peer.clone(), false));
    }

    /// A link to holder `number`, if it is that holder who answers there.
    pub fn connect(&self, number: u64) -> Result<Owned, i32> {
        let link = link::connect(&Name::of_process(number))?;
        let found = kernel::peer_credentials(link.0)?.uid;
        let holder_table = self.holder_table();
        let is_holder = has(&holder_table.holders, &holder_table.users, number, found);
        let is_known = is_holder || self.is_carrier(number, found);
        // A rendezvous socket that was opened before its process changed its user is the former user's.
        if is_known || found == 0 || found == self.uid {
            Ok(link)
        } else {
            Err(libc::EPERM)
        }
    }

    pub(super) fn unregister(&self) {
        let number = process::number();
        for place in &self.holder_table().holders {
            // Most places are others' or free, and a load of those costs less.
            if place.load(Ordering::Relaxed) == number {
                let _ = place.compare_exchange(number, 0, Ordering::SeqCst, Ordering::SeqCst);
            }
        }
    }

    /// The other processes that hold it.
    pub fn others(&self) -> Vec<u64> {
        others_in(&self.holder_table().holders).collect()
    }

    /// Strikes a process that does not answer its rendezvous socket.
    pub(super) fn strike(&self, number: u64) {
        strike(&self.holder_table().holders, number);
        self.strike_carrier(number);
    }

    /// Strikes a process that carries no connections any more.
    pub(super) fn strike_carrier(&self, number: u64) {
        strike(&self.holder_table().carriers, number);
    }

    fn others_attending(&self) -> Vec<u64> {
        let own = process::number();
        let holder_table = self.holder_table();
        let places = holder_table.holders.iter().zip(&holder_table.attending);
        places
            .filter(|(_, attends)| attends.load(Ordering::SeqCst) != 0)
            .map(|(place, _)| place.load(Ordering::SeqCst))
            .filter(|number| *number != 0 && *number != own)
            .collect()
    }

    fn tell(self: &Arc<Self>, holders: &[u64], word: &Word) {
        for &number in holders {
            if !self.say(number, word) {
                untold::later(self.clone(), number, word.clone());
            }
        }
    }
}

/// Enters this process and its user into a list of the holder table; where it stands there.
fn enter(places: &[AtomicU64], users: &[AtomicU32]) -> Option<usize> {
    let number = process::number();
    let user = kernel::geteuid().unwrap_or(0) as u32;
    let is_ours = |place: &AtomicU64| {
        // Loaded first, because most are taken.
        if ![0, number].contains(&place.load(Ordering::Relaxed)) {
            return false;
        }
        let taken = place.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
        taken.is_ok() || taken == Err(number)
    };
    let at = places.iter().position(is_ours)?;
    users[at].store(user, Ordering::SeqCst);
    Some(at)
}

/// The other processes of a list of the holder table.
fn others_in(places: &[AtomicU64]) -> impl Iterator<Item = u64> + use<'_> {
    let own = process::number();
    let all = places.iter().map(|place| place.load(Ordering::SeqCst));
    all.filter(move |number| *number != 0 && *number != own)
}

fn strike(places: &[AtomicU64], number: u64) {
    for place in places {
        let _ = place.compare_exchange(number, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

fn has(places: &[AtomicU64], users: &[AtomicU32], number: u64, user: u32) -> bool {
    let is_it = |(place, of): (&AtomicU64, &AtomicU32)| {
        place.load(Ordering::SeqCst) == number && of.load(Ordering::SeqCst) == user
    };
    places.iter().zip(users).any(is_it)
}
