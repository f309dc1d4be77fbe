//! Statistics of a process: one sealed page file that `bypass stat` maps read-only, and
//! `bypass capture` for writing.
//!
//! It is found as `/proc/PID/fd/N -> /memfd:wirespeed-stats (deleted)`: /proc checks access, and
//! nothing is left when the process ends. Each thread counts in a separate stripe, so counting is a
//! load and a store; readers sum the stripes.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bypass_sys::address::SharedAddress;
use bypass_sys::descriptor::{self, Owned};
use bypass_sys::memory::Mapping;
use bypass_sys::{clock, kernel};

pub mod capture;
mod decisions;
mod kept;

pub use decisions::{About, Call, Decision, DECISIONS};
pub use kept::KEPT;

const MAGIC: u64 = u64::from_le_bytes(*b"WSstat\x05\0");
/// Threads that count alone; further ones share the last stripe.
pub const STRIPES: usize = 64;
const ROWS: usize = 16_384;
const TEXT_BYTES: usize = 64;

macro_rules! names {
    ($(#[$meta:meta])* $kind:ident, $list:ident: $($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum $kind { $($(#[$doc])* $variant),* }
        /// Names, in the order of the page.
        pub const $list: &[&str] = &[$($name),*];
    };
}

names! {
    /// A counter.
    Counter, COUNTERS:
    /// Connections made through shared memory.
    ConnectsShm = "connects_shm",
    /// Connections left to the kernel.
    ConnectsKernel = "connects_kernel",
    /// Connections accepted through shared memory.
    AcceptsShm = "accepts_shm",
    /// Connections accepted from the kernel.
    AcceptsKernel = "accepts_kernel",
    /// Accelerated connections closed.
    Closes = "closes",
    /// Bytes read through shared memory.
    BytesIn = "bytes_in_shm",
    /// Bytes written through shared memory.
    BytesOut = "bytes_out_shm",
    /// Calls that read bytes.
    Reads = "reads",
    /// Calls that wrote bytes.
    Writes = "writes",
    /// Waits that spun.
    Spins = "spins",
    /// Nanoseconds spun.
    SpinNs = "spin_ns",
    /// Waits that slept in the kernel.
    Sleeps = "sleeps",
    /// Sleepers that this process woke.
    Wakes = "wakes",
    /// Polls of the kernel's part of a set.
    KernelPolls = "kernel_polls",
    /// Writes that found the ring full.
    RingFull = "ring_full",
    /// Descriptors taken from the pool.
    PoolHits = "pool_hits",
    /// Descriptors that the kernel had to create.
    PoolMisses = "pool_misses",
    /// Connections reset.
    Resets = "resets",
    /// Peer processes that ended with connections open.
    PeerDeaths = "peer_deaths",
    /// Connections opened over packets.
    ConnectsPackets = "connects_packets",
    /// Connections accepted over packets.
    AcceptsPackets = "accepts_packets",
    /// Frames that arrived at an interface and were lost: no thread took them in time, or they did
    /// not fit.
    FramesLostIn = "frames_lost_in",
    /// Frames that the engine gave to an interface and the kernel refused.
    FramesLostOut = "frames_lost_out",
    /// Connections with other hosts that this process's engine accepted, whichever process has
    /// them.
    AcceptsEngine = "accepts_engine",
    /// Frames that arrived at a queue of this process and were handed to the process with the
    /// connection.
    FramesGiven = "frames_given",
    /// Frames of this process's connections that arrived at another process's queue.
    FramesTaken = "frames_taken",
    /// Datagrams received over packets.
    DatagramsIn = "datagrams_in",
    /// Datagrams sent over packets.
    DatagramsOut = "datagrams_out",
    /// Datagrams that arrived over packets and were dropped, because the buffer was full or no
    /// socket matched.
    DatagramsLost = "datagrams_lost",
    /// Sleeps of at most a millisecond, because not every awaited event can wake the sleeper.
    PollingSleeps = "polling_sleeps",
    /// Those for want of a waker: no descriptor or Unix socket could be made for it.
    PollingNoWaker = "polling_no_waker",
    /// Those because a process at the other end is confined (seccomp) and cannot wake this one.
    PollingConfined = "polling_confined",
    /// Those because another thread, set or process waits at the same place.
    PollingShared = "polling_shared",
    /// Those for a connection to accept: no waiting place was left, or a child has to end first.
    PollingListener = "polling_listener",
    /// Calls that failed because EF_NO_FAIL=0 forbids the kernel.
    Refused = "refused",
}

names! {
    /// Why a connection or socket was left to the kernel.
    Reason, REASONS:
    /// No accelerated process holds the listener.
    NoHolder = "no-holder",
    /// The address is not of this host.
    NotLocal = "not-local",
    /// The listener belongs to another user.
    OtherUser = "other-user",
    /// The kernel does not show which processes listen.
    Sandbox = "sandbox",
    /// A socket option that shared memory cannot honour.
    Option = "option",
    /// The listener is bound to an interface.
    BoundToDevice = "bound-to-device",
    /// Too many connections, processes or waiters.
    Limit = "limit",
    /// The accept queue was full.
    BacklogFull = "backlog-full",
    /// Another user has the name of the listener's rendezvous socket.
    NameSquatted = "name-squatted",
    /// The other side speaks another version.
    Version = "version",
    /// Switched off by an option.
    SwitchedOff = "switched-off",
    /// The process uses io_uring.
    IoUring = "io_uring",
    /// stdio wrapped the socket before it was connected.
    Stdio = "stdio",
    /// The listener's process did not respond in time.
    NoAnswer = "no-answer",
    /// The peer broke the rules of the segment.
    PeerProtocol = "peer-protocol",
    /// A named interface cannot be used, or another process uses it.
    Interface = "interface",
    /// The socket is bound: over packets, kernel and engine would both own the port.
    BoundAddress = "bound-address",
    /// The process has entered another network namespace.
    Namespace = "namespace",
    /// No accelerated process has accepted at the listener yet, or waited for a connection.
    NotAccepting = "not-accepting",
    /// The network did not lead to the accelerated server that the shared directory names.
    NotRecognised = "not-recognised",
}

const COUNTER_WORDS: usize = 64;
const REASON_WORDS: usize = 32;

#[repr(C, align(128))]
struct Stripe {
    counters: [AtomicU64; COUNTER_WORDS],
}

/// One socket.
#[repr(C, align(128))]
pub struct Row {
    /// Descriptor plus one, 0 when the row is free.
    pub fd: AtomicU32,
    /// 1 client, 2 server, 3 listener.
    pub role: AtomicU32,
    /// 1 shared memory, 2 kernel, 3 packets.
    pub path: AtomicU32,
    /// 1 open, 2 half closed by this process, 3 by the peer, 4 reset, 5 closed by both, as far as this process knows.
    pub state: AtomicU32,
    /// Bytes received.
    pub bytes_in: AtomicU64,
    /// Bytes sent.
    pub bytes_out: AtomicU64,
    /// First sequence number in a [capture].
    pub first_number: AtomicU32,
    /// The part of the connection's end that a [capture] has shown.
    pub shown: AtomicU32,
    /// Local address.
    pub local: SharedAddress,
    /// The peer's address.
    pub peer: SharedAddress,
}

#[repr(C, align(4096))]
struct Page {
    magic: AtomicU64,
    pid: AtomicU32,
    uid: AtomicU32,
    started_unix_ns: AtomicU64,
    stripes_taken: AtomicU32,
    rows_used: AtomicU32,
    /// 1: new connections use the kernel. Written by an administrator's command.
    is_switched_off: AtomicU32,
    texts: [[AtomicU32; TEXT_BYTES / 4]; 3],
    reasons: [AtomicU64; REASON_WORDS],
    decisions: decisions::Decisions,
    stripes: [Stripe; STRIPES],
    rows: [Row; ROWS],
    capture: capture::Shared,
}

/// The writer's side.
#[derive(Debug)]
pub struct Stats {
    memory: Mapping,
}

impl Stats {
    /// Creates the page of this process.
    pub fn create(profile: &str, cluster: &str, command: &str) -> kernel::Result<Self> {
        let memory = Mapping::create(c"wirespeed-stats", size_of::<Page>())?;
        let stats = Self { memory };
        let page = stats.page();
        page.pid.store(kernel::getpid()? as u32, Ordering::Relaxed);
        page.uid.store(kernel::geteuid()? as u32, Ordering::Relaxed);
        page.started_unix_ns
            .store(clock::unix_ns(), Ordering::Relaxed);
        for (place, text) in page.texts.iter().zip([profile, cluster, command]) {
            store_text(place, text);
        }
        page.magic.store(MAGIC, Ordering::Release);
        Ok(stats)
    }

    /// The page's descriptor.
    pub fn fd(&self) -> i32 {
        self.memory.fd()
    }

    fn page(&self) -> &Page {
        // SAFETY: the page is atomics only.
        unsafe { self.memory.at(0) }
    }

    /// A stripe for the calling thread.
    pub fn take_stripe(&self) -> usize {
        let taken = self.page().stripes_taken.fetch_add(1, Ordering::Relaxed) as usize;
        taken.min(STRIPES - 1)
    }

    /// Adds to the caller's stripe.
    #[inline]
    pub fn add(&self, stripe: usize, counter: Counter, amount: u64) {
        let word = &self.page().stripes[stripe % STRIPES].counters[counter as usize];
        if stripe >= STRIPES - 1 {
            word.fetch_add(amount, Ordering::Relaxed);
        } else {
            word.store(
                word.load(Ordering::Relaxed).wrapping_add(amount),
                Ordering::Relaxed,
            );
        }
    }

    /// Counts a fallback.
    pub fn fall_back(&self, reason: Reason) {
        self.page().reasons[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps what a decision against acceleration was about among the latest.
    pub fn decide(&self, reason: Reason, about: About) {
        self.page().decisions.add(reason, about);
    }

    /// The row of socket object `index`; None beyond the page.
    pub fn row(&self, index: usize) -> Option<&Row> {
        self.page()
            .rows_used
            .fetch_max((index.min(ROWS - 1) + 1) as u32, Ordering::Relaxed);
        self.page().rows.get(index)
    }

    /// Whether an administrator has switched new connections off.
    #[inline]
    pub fn is_switched_off(&self) -> bool {
        self.page().is_switched_off.load(Ordering::Relaxed) != 0
    }

    /// For a forked child: same as its parent.
    pub fn switch_off(&self) {
        self.page().is_switched_off.store(1, Ordering::Relaxed);
    }

    /// Whether a reader captures this process.
    #[inline]
    pub fn is_captured(&self) -> bool {
        self.page().capture.is_wanted()
    }

    /// Shows a frame to the reader of a capture; `is_incomplete`: the checksum of its transport
    /// header is.
    pub fn capture_frame(&self, frame: &[u8], is_incomplete: bool) {
        self.page().capture.frame(frame, is_incomplete);
    }

    /// For showing the events on the same-host connection of socket object `index`.
    pub fn captured_stream(&self, index: usize) -> Option<capture::Stream<'_>> {
        capture::Stream::new(&self.page().capture, self.page().rows.get(index)?)
    }

    /// The row of socket object `index`, for counting only.
    #[inline]
    pub fn row_quick(&self, index: usize) -> Option<&Row> {
        self.page().rows.get(index)
    }
}

fn store_text(place: &[AtomicU32; TEXT_BYTES / 4], text: &str) {
    let mut bytes = [0u8; TEXT_BYTES];
    let cut = (0..=text.len().min(TEXT_BYTES))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    let text = &text.as_bytes()[..cut.unwrap_or(0)];
    bytes[..text.len()].copy_from_slice(text);
    for (word, four) in place.iter().zip(bytes.chunks_exact(4)) {
        let four = [four[0], four[1], four[2], four[3]];
        word.store(u32::from_ne_bytes(four), Ordering::Relaxed);
    }
}

/// A regular file, not opened yet; None for others.
fn regular(path: &std::path::Path) -> io::Result<Option<Owned>> {
    let name = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    let name = std::ffi::CString::new(name)?;
    descriptor::regular(&name).map_err(io::Error::from_raw_os_error)
}

fn load_text(place: &[AtomicU32; TEXT_BYTES / 4]) -> String {
    let bytes: Vec<u8> = place
        .iter()
        .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
        .collect();
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Name, user and start of the process.
#[derive(Debug, Clone)]
pub struct Header {
    /// Process id, in its own namespace.
    pub pid: u32,
    /// Effective user when the page was created.
    pub uid: u32,
    /// When the page was created.
    pub started_unix_ns: u64,
    /// Names given to `--profile`.
    pub profile: String,
    /// EF_CLUSTER_NAME.
    pub cluster: String,
    /// Short command name.
    pub command: String,
}

/// One socket.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Its descriptor.
    pub fd: i32,
    /// client, server or listener.
    pub role: &'static str,
    /// shm, packets or kernel.
    pub path: &'static str,
    /// Local address.
    pub local: String,
    /// The peer's address, empty for a listener.
    pub peer: String,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// open, half-closed, peer-closed, closed or reset.
    pub state: &'static str,
}

/// The reader's side.
#[derive(Debug)]
pub struct View {
    memory: Mapping,
}

impl View {
    /// The page of a process; None without one. A child inherits its parent's page and creates its
    /// own later: the one that names this process counts, else the last, because process ids differ
    /// between PID namespaces.
    pub fn open(pid: u32) -> io::Result<Option<Self>> {
        Self::find(pid, false)
    }

    /// The same, for [capturing](capture::Reader) it.
    pub fn open_for_capture(pid: u32) -> io::Result<Option<Self>> {
        Self::find(pid, true)
    }

    /// The page of this process, which has several in tests.
    #[cfg(test)]
    fn of(stats: &Stats) -> Self {
        let fd = kernel::dup(stats.fd()).expect("a descriptor") as i32;
        let memory = Mapping::view(fd).expect("a page");
        Self { memory }
    }

    fn find(pid: u32, is_writable: bool) -> io::Result<Option<Self>> {
        let mut last = None;
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
            let path = entry?.path();
            let Ok(target) = std::fs::read_link(&path) else {
                continue;
            };
            if !target
                .to_string_lossy()
                .starts_with("/memfd:wirespeed-stats")
            {
                continue;
            }
            let Some(view) = Self::map(&path, is_writable)? else {
                continue;
            };
            if view.page().pid.load(Ordering::Relaxed) == pid {
                return Ok(Some(view));
            }
            last = Some(view);
        }
        Ok(last)
    }

    fn map(path: &std::path::Path, is_writable: bool) -> io::Result<Option<Self>> {
        // A FIFO or a device can have such a name: opening it might block, or have effects.
        let Some(file) = regular(path)? else {
            return Ok(None);
        };
        let mut options = std::fs::OpenOptions::new();
        let file = options
            .read(true)
            .write(is_writable)
            .open(format!("/proc/self/fd/{}", file.0))?;
        let map = if is_writable {
            Mapping::adopt
        } else {
            Mapping::view
        };
        let memory = map(std::os::fd::IntoRawFd::into_raw_fd(file));
        let memory = memory.map_err(io::Error::from_raw_os_error)?;
        let view = Self { memory };
        let is_page = view.memory.len() >= size_of::<Page>()
            && view.page().magic.load(Ordering::Acquire) == MAGIC
            && view.page().pid.load(Ordering::Relaxed) != 0;
        Ok(is_page.then_some(view))
    }

    /// The pages of all processes that the caller may access.
    pub fn list() -> Vec<(u32, Self)> {
        let Ok(entries) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        let mut pids: Vec<u32> = entries
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.parse().ok())
            .collect();
        pids.sort_unstable();
        pids.into_iter()
            .filter_map(|pid| Some((pid, Self::open(pid).ok()??)))
            .collect()
    }

    fn page(&self) -> &Page {
        // SAFETY: the page is atomics only.
        unsafe { self.memory.at(0) }
    }

    pub(crate) fn capture(&self) -> &capture::Shared {
        &self.page().capture
    }

    /// Frees the memory of the capture's ring, which then reads as zero.
    pub(crate) fn release_ring(&self) {
        let (offset, length) = capture::Shared::ring_in(core::mem::offset_of!(Page, capture));
        self.memory.release(offset, length);
    }

    /// Makes new connections of the process use the kernel, or accelerates them again; requires a
    /// page that was [opened](Self::open_for_capture) for writing.
    pub fn switch_off(&self, is_off: bool) {
        let word = &self.page().is_switched_off;
        word.store(u32::from(is_off), Ordering::Relaxed);
    }

    /// Whether new connections of the process are switched off.
    pub fn is_switched_off(&self) -> bool {
        self.page().is_switched_off.load(Ordering::Relaxed) != 0
    }

    /// Whether it is the page that process `pid` has now.
    pub fn is_of(&self, pid: u32) -> bool {
        let own = self.page().started_unix_ns.load(Ordering::Relaxed);
        let now = Self::open(pid).ok().flatten();
        now.is_some_and(|now| now.page().started_unix_ns.load(Ordering::Relaxed) == own)
    }

    /// The identity of the process.
    pub fn header(&self) -> Header {
        let page = self.page();
        Header {
            pid: page.pid.load(Ordering::Relaxed),
            uid: page.uid.load(Ordering::Relaxed),
            started_unix_ns: page.started_unix_ns.load(Ordering::Relaxed),
            profile: load_text(&page.texts[0]),
            cluster: load_text(&page.texts[1]),
            command: load_text(&page.texts[2]),
        }
    }

    /// Sums of all threads, in the order of [`COUNTERS`].
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let sum = |index: usize| {
            let words = self
                .page()
                .stripes
                .iter()
                .map(|stripe| &stripe.counters[index]);
            words.fold(0u64, |sum, word| {
                sum.wrapping_add(word.load(Ordering::Relaxed))
            })
        };
        COUNTERS
            .iter()
            .enumerate()
            .map(|(index, name)| (*name, sum(index)))
            .collect()
    }

    /// Reasons that occurred, with their counts.
    pub fn fallbacks(&self) -> Vec<(&'static str, u64)> {
        let counts = self
            .page()
            .reasons
            .iter()
            .map(|word| word.load(Ordering::Relaxed));
        REASONS
            .iter()
            .copied()
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// The latest sockets that were left to the kernel, oldest first.
    pub fn decisions(&self) -> Vec<Decision> {
        self.page().decisions.all()
    }

    /// Sockets that exist now.
    pub fn connections(&self) -> Vec<Connection> {
        let used = self.page().rows_used.load(Ordering::Relaxed) as usize;
        self.page()
            .rows
            .iter()
            .take(used)
            .filter_map(read_row)
            .collect()
    }
}

fn read_row(row: &Row) -> Option<Connection> {
    let fd = row.fd.load(Ordering::Acquire).checked_sub(1)?;
    let (role, has_peer) = match row.role.load(Ordering::Relaxed) {
        1 => ("client", true),
        2 => ("server", true),
        _ => ("listener", false),
    };
    Some(Connection {
        fd: fd as i32,
        role,
        path: match row.path.load(Ordering::Relaxed) {
            1 => "shm",
            3 => "packets",
            _ => "kernel",
        },
        local: row.local.load().to_string(),
        peer: if has_peer {
            row.peer.load().to_string()
        } else {
            String::new()
        },
        bytes_in: row.bytes_in.load(Ordering::Relaxed),
        bytes_out: row.bytes_out.load(Ordering::Relaxed),
        state: match row.state.load(Ordering::Relaxed) {
            1 => "open",
            2 => "half-closed",
            3 => "peer-closed",
            5 => "closed",
            _ => "reset",
        },
    })
}

#[cfg(test)]
mod only {
    //! The only page of this process, whose tests run at once: readers find pages by the process.

    use std::ops::Deref;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use crate::Stats;

    static ALONE: Mutex<()> = Mutex::new(());

    /// While it exists, no other test has a page.
    pub(crate) struct Only {
        // Dropped first.
        stats: Stats,
        _alone: MutexGuard<'static, ()>,
    }

    impl Only {
        pub(crate) fn create(profile: &str) -> Self {
            let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            Self {
                stats: Stats::create(profile, "", "test").expect("memory"),
                _alone: alone,
            }
        }
    }

    impl Deref for Only {
        type Target = Stats;

        fn deref(&self) -> &Stats {
            &self.stats
        }
    }
}

#[cfg(test)]
mod tests {
    use super::only::Only;
    use super::*;

    #[test]
    fn a_reader_finds_what_was_counted() {
        let stats = Only::create("wrk");
        let (first, second) = (stats.take_stripe(), stats.take_stripe());
        stats.add(first, Counter::BytesIn, 5);
        stats.add(second, Counter::BytesIn, 7);
        stats.add(STRIPES, Counter::BytesIn, 1);
        stats.fall_back(Reason::OtherUser);
        let row = stats.row(3).expect("room");
        row.role.store(1, Ordering::Relaxed);
        row.local.store("127.0.0.1:5".parse().expect("an address"));
        row.fd.store(10, Ordering::Release);
        let view = View::open(std::process::id())
            .expect("readable")
            .expect("a page");
        assert_eq!(view.header().profile, "wrk");
        assert!(view.counters().contains(&("bytes_in_shm", 13)));
        assert_eq!(view.fallbacks(), [("other-user", 1)]);
        let found = view.connections();
        assert_eq!((found[0].fd, found[0].local.as_str()), (9, "127.0.0.1:5"));
    }

    #[test]
    fn names_fit_the_page() {
        assert!(COUNTERS.len() <= COUNTER_WORDS && REASONS.len() <= REASON_WORDS);
    }
}
