//! The objects behind TCP descriptors, in a fixed arena: memory that is never unmapped, so a late
//! look at a closed socket is harmless and finds another generation.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bypass_sys::address::{self, SharedAddress};
use bypass_sys::kernel;

use crate::peer::{self, Peer, Waiting};
use crate::process::{self, table};
use crate::sys::PeerPlace;

mod state;

pub use state::{Event, State};

/// Sockets of a process; more are left to the kernel.
pub const SOCKETS_MAX: usize = 65_536;
/// In the place of a listener's number.
const NO_LISTENER: u32 = u32::MAX;
/// With fewer left, clients are directed to the kernel: the rest is reserved for connections that already wait.
const RESERVE: usize = 4096;

/// O_NONBLOCK is set.
pub const NONBLOCK: u32 = 1;
/// FD_CLOEXEC is set.
pub const CLOEXEC: u32 = 1 << 1;
/// TCP_NODELAY is set.
pub const NODELAY: u32 = 1 << 2;
/// SO_KEEPALIVE is set.
pub const KEEPALIVE: u32 = 1 << 3;
/// SO_LINGER is on.
pub const LINGER: u32 = 1 << 4;
/// The shadow is no longer as socket(2) made it.
pub const DIRTY: u32 = 1 << 5;
/// The shadow is bound: the program chose the local address. Stays when it is connected; see [`State`].
pub const BOUND: u32 = 1 << 6;
/// An option demands the kernel.
pub const KERNEL_ONLY: u32 = 1 << 7;
/// shutdown(SHUT_RD) was called; see [`State`].
pub const SHUT_READ: u32 = 1 << 8;
/// shutdown(SHUT_WR) was called; see [`State`].
pub const SHUT_WRITE: u32 = 1 << 9;
/// Bytes were written to a peer that had closed: what follows is EPIPE.
pub const WROTE_TO_CLOSED: u32 = 1 << 10;
/// Flags of the connection, not of this process alone: they are in the segment, too, once several
/// processes hold it.
pub const SHUT: u32 = SHUT_READ | SHUT_WRITE | WROTE_TO_CLOSED;
/// ECONNRESET was reported once.
pub const RESET_TOLD: u32 = 1 << 11;
/// Flags that are passed along when a connection is handed to another process.
pub const HANDED_ON: u32 = NODELAY
    | KEEPALIVE
    | LINGER
    | SHUT_READ
    | SHUT_WRITE
    | WROTE_TO_CLOSED
    | RESET_TOLD
    | URGENT_IN_LINE;
/// TCP_CORK is set.
pub const CORK: u32 = 1 << 12;
/// connect() has returned before its result was known, and the program has not asked for that.
pub const CONNECTING: u32 = 1 << 13;
/// TCP_QUICKACK, which a new socket has, was switched off.
pub const LATE_ACKS: u32 = 1 << 14;

/// SO_OOBINLINE is set: urgent bytes are read like others.
pub const URGENT_IN_LINE: u32 = 1 << 18;

/// SO_RCVLOWAT is above 1.
pub const LOW_WATER: u32 = 1 << 19;
/// Came from a listener, whose options it has as far as the program has not set them since.
pub const ACCEPTED: u32 = 1 << 20;

/// Other processes hold it too: O_NONBLOCK is what the kernel says of the shadow, which is the same file in all of them.
pub const SHARED: u32 = 1 << 16;

/// The program has dissolved its connection, and ECONNRESET has not been reported to it yet.
pub const DISSOLVED: u32 = 1 << 17;

/// The program has the kernel keep SYNs (TCP_SAVE_SYN).
pub const KEEPS_SYNS: u32 = 1 << 24;

/// connect() to another host or network namespace was called and is not over; see [`State`].
pub const OPENING: u32 = 1 << 21;

/// connect() to another host has failed: there never was a connection; see [`State`].
pub const REFUSED: u32 = 1 << 22;

/// O_ASYNC is set: events are reported by signals.
pub const ASYNC: u32 = 1 << 23;

/// With [`ASYNC`]: a writer found the ring full and is notified by a signal when there is space.
pub const AWAITS_ROOM: u32 = 1 << 28;

/// F_SETOWN has named somebody before there was a connection.
pub const OWNED: u32 = 1 << 29;

/// Has a descriptor; see [`State`].
pub const IN_USE: u32 = 1 << 25;
/// Accepts connections; see [`State`].
pub const LISTENING: u32 = 1 << 26;
/// Is a connection; see [`State`].
pub const CONNECTED: u32 = 1 << 27;

/// Has duplicates: FD_CLOEXEC of each is what the kernel says.
pub const DUPLICATED: u32 = 1 << 15;

/// Has a program that will choose among the listeners of its address (SO_ATTACH_REUSEPORT_CBPF, …_EBPF).
pub const CHOOSES: u32 = 1 << 30;

/// The last look of the program has found that the other side's direction has ended.
pub const END_SEEN: u32 = 1 << 31;

/// Every flag has a bit of its own: one that shared the bit of another would be set with it.
const _: () = {
    let all = [
        NONBLOCK,
        CLOEXEC,
        NODELAY,
        KEEPALIVE,
        LINGER,
        DIRTY,
        BOUND,
        KERNEL_ONLY,
        SHUT_READ,
        SHUT_WRITE,
        WROTE_TO_CLOSED,
        RESET_TOLD,
        CORK,
        CONNECTING,
        LATE_ACKS,
        DUPLICATED,
        SHARED,
        DISSOLVED,
        URGENT_IN_LINE,
        LOW_WATER,
        ACCEPTED,
        OPENING,
        REFUSED,
        ASYNC,
        AWAITS_ROOM,
        OWNED,
        KEEPS_SYNS,
        IN_USE,
        LISTENING,
        CONNECTED,
        CHOOSES,
        END_SEEN,
    ];
    let (mut at, mut seen) = (0, 0);
    while at < all.len() {
        assert!(all[at].is_power_of_two() && seen & all[at] == 0);
        seen |= all[at];
        at += 1;
    }
};

/// One socket.
#[repr(align(128))]
pub struct Socket {
    /// Which life this is; entries of the table carry it too.
    pub generation: AtomicU32,
    /// Descriptors of this process that mean it.
    pub descriptors: AtomicU32,
    /// Its [`State`] and its options; see the constants.
    pub flags: AtomicU32,
    /// AF_INET or AF_INET6.
    pub family: AtomicI32,
    /// Side of the segment: 0 client, 1 server.
    pub side: AtomicU32,
    /// Slot in the segment.
    pub slot: AtomicU32,
    /// Number of the listener, or of the listener that it was accepted from.
    pub listener: AtomicU32,
    /// SO_LINGER's seconds.
    pub linger_s: AtomicU32,
    /// SO_RCVTIMEO, 0 for none.
    pub receive_timeout_ns: AtomicU64,
    /// SO_SNDTIMEO, 0 for none.
    pub send_timeout_ns: AtomicU64,
    /// Set and member that watch it: set number plus one above member number; 0 for none.
    pub watch: AtomicU64,
    /// Mark of the urgent byte that recv with MSG_OOB took last.
    pub urgent_taken: AtomicU64,
    /// 1 once a connection of the program's was dissolved, which some kernels do not let listen any more.
    pub was_connected: AtomicU32,
    /// The number of its mark, where it is to be taken in another network namespace: not in the segment, whose other side
    /// could read it.
    pub mark: AtomicU64,
    /// Sets that watch it besides.
    pub other_watches: AtomicU32,
    /// Number plus one of the ready list that it was notified through last, of this connection's segment; 0 for none.
    pub last_ready_list: AtomicU32,
    /// 1: was written to since the last read.
    pub has_answered: AtomicU32,
    /// 1: the last answer's second part came by sendfile.
    pub sends_files: AtomicU32,
    /// SO_RCVLOWAT, where [`LOW_WATER`] is set.
    pub low_water: AtomicU32,
    /// Options that the shadow has rightly; see `inherited`.
    pub own_options: AtomicU32,
    /// SO_SNDBUF as the program has set it, 0 when it has not.
    pub send_buffer: AtomicU32,
    /// SO_RCVBUF, likewise.
    pub receive_buffer: AtomicU32,
    /// The segment.
    pub peer: PeerPlace,
    /// Our address.
    pub local: SharedAddress,
    /// The other's address.
    pub remote: SharedAddress,
    /// Error with which connect() has failed and which has not been reported yet.
    pub error: AtomicU32,
    /// The thread that reads, 0 for none. Here and not in the segment, whose other side could write it.
    pub reading: AtomicU32,
    /// The thread that writes.
    pub writing: AtomicU32,
}

impl Socket {
    const fn new() -> Self {
        Self {
            generation: AtomicU32::new(0),
            descriptors: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            family: AtomicI32::new(0),
            side: AtomicU32::new(0),
            slot: AtomicU32::new(0),
            listener: AtomicU32::new(0),
            linger_s: AtomicU32::new(0),
            receive_timeout_ns: AtomicU64::new(0),
            send_timeout_ns: AtomicU64::new(0),
            watch: AtomicU64::new(0),
            urgent_taken: AtomicU64::new(0),
            was_connected: AtomicU32::new(0),
            mark: AtomicU64::new(0),
            other_watches: AtomicU32::new(0),
            last_ready_list: AtomicU32::new(0),
            has_answered: AtomicU32::new(0),
            sends_files: AtomicU32::new(0),
            low_water: AtomicU32::new(0),
            own_options: AtomicU32::new(0),
            send_buffer: AtomicU32::new(0),
            receive_buffer: AtomicU32::new(0),
            peer: PeerPlace::new(),
            local: SharedAddress::new(),
            remote: SharedAddress::new(),
            error: AtomicU32::new(0),
            reading: AtomicU32::new(0),
            writing: AtomicU32::new(0),
        }
    }

    /// Notes ready list `ready_list` (its number plus one). Whether a peer that is at work may still ring a former one.
    pub fn moves_to(&self, ready_list: u32) -> bool {
        let last = self.last_ready_list.swap(ready_list, Ordering::Relaxed);
        self.has(SHARED) || (last != 0 && last != ready_list)
    }

    /// Whether a flag is set.
    #[inline]
    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    /// Whether its close resets the connection: SO_LINGER is on, without a time.
    pub fn is_aborting(&self) -> bool {
        self.has(LINGER) && self.linger_s.load(Ordering::Relaxed) == 0
    }

    /// Sets or clears a flag.
    pub fn set(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }

    /// The segment; valid for an operation that does not sleep (see `stream::find`).
    #[inline]
    pub fn peer(&self) -> Option<&'static Peer> {
        self.peer.get()
    }

    /// A reference to the segment, for an operation that sleeps.
    pub fn share_peer(&self) -> Option<Arc<Peer>> {
        self.peer.share()
    }

    /// Whether connect() was called and its result is not known.
    #[inline]
    pub fn is_opening(&self) -> bool {
        self.has(OPENING) && !self.was_taken()
    }

    /// Whether connect() is under way for the program. Between network namespaces one that may wait ends when the kernel's
    /// connection stands, which no process may have taken yet.
    pub fn is_in_progress(&self) -> bool {
        self.is_opening() && (self.has(CONNECTING) || self.across().is_none())
    }

    /// Whether a process of another network namespace is to take the connection still.
    pub fn is_undecided(&self) -> bool {
        self.is_opening() && self.across().is_some()
    }

    /// Whether it is a connection to another network namespace whose state does not say yet that a process has taken it.
    pub fn is_begun_across(&self) -> bool {
        self.has(OPENING) && self.across().is_some()
    }

    /// Between network namespaces memory says that the connection stands. The state follows with the next write.
    #[cold]
    fn was_taken(&self) -> bool {
        let slot = self.slot.load(Ordering::Relaxed) as usize;
        let number = self.mark.load(Ordering::Relaxed);
        let peer = self.across();
        peer.is_some_and(|peer| peer.is_taken(slot, number))
    }

    /// The segment of a connection that is [being opened](OPENING) to another network namespace: the others of that state are
    /// over packets.
    fn across(&self) -> Option<&'static Peer> {
        self.peer().filter(|peer| !peer.segment.is_over_packets())
    }

    /// What a connection over packets has failed with, once.
    pub fn take_error(&self) -> Option<i32> {
        let error = self.error.swap(0, Ordering::AcqRel) as i32;
        (error != 0).then_some(error)
    }

    /// Whether the reset of a dissolved connection is yet to be reported; it is from now on.
    pub fn take_dissolved(&self) -> bool {
        let is_due = self.has(DISSOLVED);
        if is_due {
            self.set(DISSOLVED, false);
        }
        is_due
    }

    /// The generation as table entries carry it.
    pub fn life(&self) -> u32 {
        self.generation.load(Ordering::Acquire) & 0xff_ffff
    }
}

static SOCKETS: [Socket; SOCKETS_MAX] = [const { Socket::new() }; SOCKETS_MAX];

struct Free {
    numbers: Vec<u32>,
    next: usize,
}

impl Free {
    fn left(&self) -> usize {
        SOCKETS_MAX - self.next + self.numbers.len()
    }
}

static FREE: Mutex<Free> = Mutex::new(Free {
    numbers: Vec::new(),
    next: 0,
});

/// Socket `index`.
#[inline]
pub fn get(index: usize) -> &'static Socket {
    &SOCKETS[index % SOCKETS_MAX]
}

/// How socket `index` waits.
pub fn waiting(index: usize) -> Waiting {
    let socket = get(index);
    let ready_list = match socket.has(SHARED) {
        true => 0,
        false => socket.last_ready_list.load(Ordering::Relaxed),
    };
    Waiting {
        ready_list,
        knows_end: socket.has(END_SEEN),
    }
}

/// A new object; None when there are too many.
pub fn allocate(family: i32, flags: u32) -> Option<usize> {
    let mut free = FREE.lock().ok()?;
    let index = match free.numbers.pop() {
        Some(index) => index as usize,
        None if free.next < SOCKETS_MAX => {
            free.next += 1;
            free.next - 1
        }
        None => return None,
    };
    let left = free.left();
    drop(free);
    if left < RESERVE {
        peer::set_crowded(true);
    }
    let socket = get(index);
    socket.flags.store(flags, Ordering::Relaxed);
    socket.change(Event::Create);
    socket.family.store(family, Ordering::Relaxed);
    socket.descriptors.store(1, Ordering::Relaxed);
    for word in [
        &socket.receive_timeout_ns,
        &socket.send_timeout_ns,
        &socket.watch,
        &socket.urgent_taken,
    ] {
        word.store(0, Ordering::Relaxed);
    }
    socket.linger_s.store(0, Ordering::Relaxed);
    socket.was_connected.store(0, Ordering::Relaxed);
    socket.listener.store(NO_LISTENER, Ordering::Relaxed);
    socket.other_watches.store(0, Ordering::Relaxed);
    socket.last_ready_list.store(0, Ordering::Relaxed);
    socket.sends_files.store(0, Ordering::Relaxed);
    socket.own_options.store(0, Ordering::Relaxed);
    socket.send_buffer.store(0, Ordering::Relaxed);
    socket.receive_buffer.store(0, Ordering::Relaxed);
    socket.error.store(0, Ordering::Relaxed);
    Some(index)
}

/// The page of statistics shows socket `index` no more: it is closed, not connected, or left to the kernel.
pub fn leave_row(index: usize) {
    if let Some(row) = process::stats().and_then(|stats| stats.row_quick(index)) {
        row.fd.store(0, Ordering::Release);
    }
}

/// Gives an object back; whoever still has its number finds another generation.
pub fn free(index: usize) {
    leave_row(index);
    get(index).change(Event::Close);
    get(index).generation.fetch_add(1, Ordering::AcqRel);
    let left = FREE.lock().map_or(0, |mut free| {
        free.numbers.push(index as u32);
        free.left()
    });
    if peer::is_crowded() && left > 2 * RESERVE {
        peer::set_crowded(false);
    }
}

/// In a forked child: calls of the parent's other threads neither read and write nor hold anything here. What a socket
/// has are the descriptors that mean it.
pub fn forget_calls() {
    let used = FREE.lock().map_or(0, |free| free.next);
    let mut counts = vec![0; used];
    for fd in (0..table::used()).filter(|fd| table::is_socket(*fd)) {
        if let Some(count) = counts.get_mut(table::get(fd).index()) {
            *count += 1;
        }
    }
    for (socket, count) in SOCKETS.iter().zip(counts) {
        socket.reading.store(0, Ordering::Relaxed);
        socket.writing.store(0, Ordering::Relaxed);
        socket.descriptors.store(count, Ordering::Relaxed);
    }
}

/// Objects that no descriptor means and that are not free: in a forked child, left by a thread of the parent that was making
/// or ending them.
pub fn left_over() -> Vec<usize> {
    let Ok(free) = FREE.lock() else {
        return Vec::new();
    };
    let mut is_free = vec![false; free.next];
    free.numbers
        .iter()
        .for_each(|number| is_free[*number as usize] = true);
    let is_left =
        |index: &usize| !is_free[*index] && get(*index).descriptors.load(Ordering::Relaxed) == 0;
    (0..free.next).filter(is_left).collect()
}

/// Calls `visit` with every object that is in use.
pub fn each(mut visit: impl FnMut(usize, &'static Socket)) {
    let used = FREE.lock().map_or(0, |free| free.next);
    for index in 0..used {
        if get(index).descriptors.load(Ordering::Acquire) > 0 {
            visit(index, get(index));
        }
    }
}

/// The address that the kernel knows a descriptor by.
pub fn kernel_name(fd: i32) -> Option<SocketAddr> {
    address_in(&kernel::socket_name(fd).ok()?)
}

/// The address to which the kernel has connected it.
pub fn kernel_peer(fd: i32) -> Option<SocketAddr> {
    address_in(&kernel::peer_name(fd).ok()?)
}

fn address_in(name: &kernel::NameBytes) -> Option<SocketAddr> {
    address::from_bytes(name.bytes.get(..name.length as usize)?)
}

/// Locks the arena across a fork.
pub fn hold() -> impl Sized {
    FREE.lock().ok()
}

/// Held by a test that allocates sockets until it has freed them: another test counts all that there are.
#[cfg(test)]
pub fn hold_in_test() -> impl Sized {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_notified_before_the_table_is_full_and_when_it_has_space_again() {
        let _one_at_a_time = hold_in_test();
        let mut taken = Vec::new();
        while let Some(index) = allocate(libc::AF_INET, 0) {
            taken.push(index);
            assert_eq!(peer::is_crowded(), taken.len() > SOCKETS_MAX - RESERVE);
        }
        assert_eq!(taken.len(), SOCKETS_MAX);
        for (freed, index) in taken.into_iter().enumerate() {
            assert_eq!(peer::is_crowded(), freed <= 2 * RESERVE);
            free(index);
        }
    }

    #[test]
    fn a_connection_moves_when_its_ready_list_is_another_or_another_process_holds_it() {
        let socket = Socket::new();
        assert!(!socket.moves_to(3), "the first");
        assert!(!socket.moves_to(3), "removed from its set and added again");
        assert!(socket.moves_to(4));
        socket.set(SHARED, true);
        assert!(socket.moves_to(4));
    }
}
