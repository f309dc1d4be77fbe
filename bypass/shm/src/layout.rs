//! Layout of a segment: the memory that one client process shares with the holders of
//! one listener.
//!
//! ```text
//! 0        Header          who, how many slots, how large the rings are
//! QUEUE_AT ConnectQueue    client ──slot numbers──► whoever holds the listener
//!          ReadyList       512 for each side: ready flags of one waiting place (an epoll set)
//!          Contents        of each side: which processes have mapped the contents shared without copying
//!          Owners          which direction has which extent
//!          Slots           1280 bytes each: cursors, ends, names, records of one connection
//!          rings           two of `ring_bytes` for each slot, client→server first
//!          extents         larger rings, for directions that hold more than their first one
//!          Transports      of each slot: options and facts of a TCP engine, over packets only
//! ```
//!
//! Rules. Offsets only, no pointers. Every word may be changed by the other side at any moment:
//! it is loaded once, checked, then used. Sides: 0 is the client, 1 the server; direction d is
//! written by side d. A field's line is written by one side in ordinary traffic.

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicU8};

use bypass_sys::address::SharedAddress;

/// First word of every segment; the digits are the version of this layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"WSshm\0\x0a\0");
/// Slots of a segment: bounded by the two levels of a ready list.
pub const SLOTS_MAX: usize = 16_384;
/// Ready flags under one byte of the summary: a cache line of them.
pub const FLAG_GROUP: usize = 64;
/// Groups that are looked at without a summary: ringing there is one store, not two.
pub const DIRECT_GROUPS: usize = 16;
/// Waiting places of one side of a segment.
pub const READY_LISTS: usize = 512;
/// Records under way in one direction of a connection, see [`Record`].
pub const RECORDS: usize = 8;
/// A content is shared without copying only while fewer records are in flight: the rest are for larger rings, of
/// which a direction has one of each class at most, and one for the way back to the first ring.
pub const LOANS: usize = 4;
/// Contents that one side of a segment may share without copying.
pub const CONTENTS: usize = 512;
/// Processes of one side that may hold ends of a segment; see [`crate::holders`].
pub const PROCESSES: usize = 1000;
/// So many of them, the first, have a bit where a set of processes is a mask: the others do without what needs one.
pub const MASKED: usize = 60;
/// In `holders`: the connection waits to be accepted.
pub const QUEUED: u64 = 1 << 63;
/// In `holders`: the last holder is writing the end.
pub const CLOSING: u64 = 1 << 62;
/// Words of a mask of all processes of a side.
pub const PROCESS_WORDS: usize = PROCESSES.div_ceil(32);
/// In `credits`: any process of the listener could be the one that accepts, and this one has no room.
pub const NO_ROOM: u32 = u32::MAX;
/// Smallest and largest first ring.
pub const RING_BYTES_MIN: usize = 4096;
/// See above.
pub const RING_BYTES_MAX: usize = 262_144;
/// Most unread bytes that a direction holds, not counting contents shared without copying: as many as a loopback
/// connection of the kernel takes before the peer reads.
pub const UNREAD_MAX: usize = 4 << 20;

/// Extents of one size.
#[derive(Debug, Clone, Copy)]
pub struct Class {
    /// A power of two.
    pub bytes: usize,
    /// How many a segment has.
    pub count: usize,
}

/// Extents by size. A factor of four and more between them keeps the way to the largest short; the
/// smallest takes a response of 16 KiB with its header. 960 MiB of addresses, and of memory only what
/// is in use.
pub const CLASSES: [Class; 4] = [
    Class {
        bytes: 32 << 10,
        count: 2048,
    },
    Class {
        bytes: 128 << 10,
        count: 1024,
    },
    Class {
        bytes: 512 << 10,
        count: 512,
    },
    Class {
        bytes: UNREAD_MAX,
        count: 128,
    },
];

/// Extents of the classes before `class`.
pub const fn extents_before(class: usize) -> usize {
    let (mut sum, mut index) = (0, 0);
    while index < class {
        sum += CLASSES[index].count;
        index += 1;
    }
    sum
}

/// Extents of a segment.
pub const EXTENTS: usize = extents_before(CLASSES.len());

/// In `ends`: no more bytes after the tail.
pub const FIN: u32 = 1;
/// In `ends`: the connection was reset by this direction's writer.
pub const RST: u32 = 2;
/// In `ends`: this direction's writer has closed its socket, it reads no more either.
pub const CLOSED: u32 = 4;
/// In `ends`, over packets: the program has left something in [`Transport::asked`].
pub const ASKS: u32 = 8;
/// In `ends`, over packets: whoever closed waits for [`Transport::lingering`] to be 0.
pub const LINGERS: u32 = 16;
/// In `ends`, over packets: [`Transport::error`] says why the connection has failed.
pub const REASON: u32 = 32;
/// In `ends`: this direction's writer has shut both directions down and keeps the socket; bytes for it
/// are answered with a reset.
pub const SHUT: u32 = 64;
/// In `ends`: the reset came after [`FIN`], and the other side's reads go on finding the end.
pub const LATE: u32 = 128;

/// The words of the two sides, each on its own pair of cache lines.
#[repr(C, align(128))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// Names the segment among all of a process.
    pub id: AtomicU64,
    /// Process number of the client that made it.
    pub client: AtomicU64,
    /// Slots that exist.
    pub slots: AtomicU32,
    /// Size of one ring.
    pub ring_bytes: AtomicU32,
    /// Ready lists of each side that were ever taken: the others need not be looked at.
    pub ready_lists_used: [AtomicU32; 2],
    /// Slots that the client has ever used: ready flags beyond need no look.
    pub slots_used: AtomicU32,
    /// By side: who waits there wants publishers to fence, see [`bypass_sys::barrier`].
    pub fenced: [AtomicU32; 2],
    /// By class: extents that were ever in use, the others need no look.
    pub extents_used: [AtomicU32; CLASSES.len()],
    /// 1 when the last holder has closed the listener: connections offered from then on are never accepted.
    pub closed: AtomicU32,
    /// Places of each side's processes that were ever taken: the others need not be looked at.
    pub processes_used: [AtomicU32; 2],
    /// Not 0 when the connections lead to other hosts, over packets: a relay is at their other end. 2 when waiting
    /// connections are reserved for the relay's own process and for processes without an engine.
    pub over_packets: AtomicU32,
    /// 1 when a process of the listener's side has forked with connections of this segment: each of its
    /// children takes one of the `processes`.
    pub forks: AtomicU32,
    /// 1 when the listener's processes serve connections without a child for each, by all that is known; 2 when one
    /// waits in an epoll set, so that it will soon have shown the one thing or the other.
    pub proven: AtomicU32,
    /// Processes of each side that cannot wake others (a bit each): who waits on the other side must look.
    pub silent: [[AtomicU32; PROCESS_WORDS]; 2],
    /// Processes of each side.
    pub processes: [[AtomicU64; PROCESSES]; 2],
    /// By process of the listener's side: how many connections may wait here for it to accept them. 0 until it has
    /// accepted or waited for one, and whenever it does not accept from segments: a client then uses the kernel.
    /// [`NO_ROOM`] while it has none for more connections.
    pub credits: [AtomicU32; PROCESSES],
}

/// Where one side's cursor lives.
#[repr(C, align(128))]
pub struct Line(pub AtomicU64);

/// Slot numbers on their way to the listener.
#[repr(C)]
pub struct ConnectQueue {
    /// Written by the client.
    pub tail: Line,
    /// Advanced by whoever accepts.
    pub head: Line,
    /// Slot numbers.
    pub entries: [AtomicU32; SLOTS_MAX],
}

/// Doorbells of one waiting place, with the word that says whether it sleeps.
#[repr(C, align(128))]
pub struct ReadyList {
    /// Process number of the owner, 0 when free.
    pub owner: AtomicU64,
    /// Waker to ring, by number within the owner.
    pub waker: AtomicU32,
    /// 1 while the owner sleeps.
    pub sleeping: AtomicU32,
    /// Whether new connections are to wake it: 0 no, 1 yes, 2 as one of several.
    pub listening: AtomicU32,
    /// Bit of every process of the other side that has ever held an announcement back here.
    pub holders_back: AtomicU64,
    /// 1 for each group of [`FLAG_GROUP`] ready flags that is worth a look.
    pub summary: Summary,
    /// 1 for each slot that rang.
    pub flags: [AtomicU8; SLOTS_MAX],
    /// For each slot the low byte of its writer's [`Locks::news`]. The owner compares it with
    /// what it has seen and stores nothing here: the lines travel one way only.
    pub news: [AtomicU8; SLOTS_MAX],
    /// By process of the other side.
    pub held_back: [HeldBack; MASKED],
}

/// The slot, plus one, whose bytes its writer has published and will announce with more that is to
/// come; 0 for none. Each on a line of its own: one writer's, until a reader has nothing to do.
#[repr(C, align(64))]
pub struct HeldBack(pub AtomicU32);

/// The upper level of a ready list.
#[repr(C, align(128))]
pub struct Summary(pub [AtomicU8; SLOTS_MAX / FLAG_GROUP]);

/// Written by the side that writes the direction's bytes.
#[repr(C, align(128))]
pub struct ProducerLine {
    /// Bytes ever written.
    pub tail: AtomicU64,
    /// [`FIN`], [`RST`], [`CLOSED`].
    pub ends: AtomicU32,
    /// The writer waits for space: it has to be notified when no more bytes than this less one are
    /// unread; 0 when it does not wait.
    pub want_space: AtomicU32,
    /// Records ever made, see [`Record`].
    pub records: AtomicU64,
    /// Position of the urgent byte plus one, 0 when none was sent.
    pub urgent: AtomicU64,
    /// 1: where no process of the writer's side is left, that has reset the connection (SO_LINGER without a time).
    pub aborts: AtomicU32,
}

/// Written by the side that reads the direction's bytes.
#[repr(C, align(128))]
pub struct ConsumerLine {
    /// Bytes ever read.
    pub head: AtomicU64,
    /// The tail as last seen.
    pub tail_seen: AtomicU64,
    /// Records read to their end.
    pub records_done: AtomicU64,
    /// Bytes read of the next record, a content shared without copying.
    pub loan_bytes: AtomicU64,
    /// The ring where the byte at `head` lies, see [`crate::extents::Place`].
    pub ring: AtomicU32,
    /// SO_RCVBUF of the reader, 0 for the default.
    pub receive_buffer: AtomicU32,
    /// Whether long pieces come from far away, see [`bypass_sys::cache::Distance`].
    pub far: AtomicU32,
}

/// An entry of a stream besides the bytes of the ring: either bytes in a content that the writer shares
/// without copying, memory that the reader has mapped for reading; or a notice that the bytes continue in
/// another ring.
#[repr(C)]
pub struct Record {
    /// It comes when so many bytes of the stream's rings have been read.
    pub at: AtomicU64,
    /// What it is, see [`crate::record`].
    pub what: AtomicU64,
}

/// Records under way in one direction.
#[repr(C, align(128))]
pub struct Records(pub [Record; RECORDS]);

/// Owner of each extent, class by class: see [`crate::extents`].
#[repr(C, align(128))]
pub struct Owners(pub [AtomicU32; EXTENTS]);

/// Contents that one side shares without copying.
#[repr(C, align(128))]
pub struct Contents {
    /// Numbers given away.
    pub used: AtomicU32,
    /// By number: bit of every process of the other side that has mapped it.
    pub mapped_by: [AtomicU64; CONTENTS],
}

/// Locks of one side's end, and its writer's state. On a cache line that the other side never touches:
/// taking a lock causes no wait for the other side, and neither does looking up what was just written, whose
/// line the other side may be reading.
#[repr(C, align(128))]
pub struct Locks {
    /// Holds the thread that reads, once several processes hold the end.
    pub read: AtomicU32,
    /// Holds the thread that writes, likewise.
    pub write: AtomicU32,
    /// Receiver of SIGURG: a process, or a group as a negative number; 0 for none.
    pub owner: AtomicU32,
    /// Once several processes hold the end: what any of them has shut down.
    pub shut: AtomicU32,
    /// [`ProducerLine::tail`].
    pub tail: AtomicU64,
    /// The head as last seen.
    pub head_seen: AtomicU64,
    /// [`ProducerLine::records`].
    pub records: AtomicU64,
    /// 1: an urgent byte was sent.
    pub has_sent_urgent: AtomicU32,
    /// The ring where the next byte goes, see [`crate::extents::Place`].
    pub ring: AtomicU32,
    /// Records that the reader has finished, as last seen.
    pub records_seen: AtomicU64,
    /// Number of the latest announcement of bytes in the ready list where it was, also of earlier lives of the slot.
    pub news: AtomicU32,
    /// The ready list where they were announced last, plus one.
    pub ready_list_rung: AtomicU32,
    /// The byte that `ring` began with. From here on: looked at only where a direction has grown.
    pub since: AtomicU64,
    /// The tail when idle memory was last looked for.
    pub idle_at: AtomicU64,
    /// SO_SNDBUF of the writer, 0 for the default.
    pub send_buffer: AtomicU32,
    /// Short writes in a row, each of which found nothing unread.
    pub short_writes: AtomicU32,
}

/// Holders of the two ends, and where they wait.
#[repr(C, align(128))]
pub struct Meta {
    /// The processes that hold the side's end, see [`crate::holders`].
    pub holders: [AtomicU64; 2],
    /// Ready list of the side's waiting place plus one, 0 for none.
    pub ready_list: [AtomicU32; 2],
    /// Thread that waits for bytes: process index and waker, 0 for none.
    pub sleeper_read: [AtomicU64; 2],
    /// Thread that waits for space.
    pub sleeper_write: [AtomicU64; 2],
    /// By direction: 1 when it has, or has had, an extent in this life of the slot, or a buffer size
    /// of the program's choice.
    pub has_grown: [AtomicU32; 2],
}

/// The two addresses.
#[repr(C, align(128))]
pub struct Names {
    /// The client's, then the server's.
    pub of: [SharedAddress; 2],
}

/// One connection. Not a power of two: the same line of many connections must not fall into a few
/// sets of the cache.
#[repr(C, align(128))]
pub struct Slot {
    /// By direction.
    pub producer: [ProducerLine; 2],
    /// By direction.
    pub consumer: [ConsumerLine; 2],
    /// By side.
    pub locks: [Locks; 2],
    /// See [`Meta`].
    pub meta: Meta,
    /// See [`Names`].
    pub names: Names,
    /// By direction.
    pub records: [Records; 2],
}

/// Options of a connection over packets that may be asked for.
pub const ASKABLE: usize = 16;
/// Words of `struct tcp_info` (tcp(7)) up to `tcpi_snd_wnd`.
pub const INFO_WORDS: usize = 58;

/// What a connection over packets has besides: what the program wants of the TCP engine at its other end,
/// and what that one says of the connection. Both may be of different processes.
#[repr(C, align(128))]
pub struct Transport {
    /// A bit for each option whose value is new, by the program; the bit of [`ASKABLE`]: its facts.
    pub asked: AtomicU32,
    /// The values of options.
    pub values: [AtomicU32; ASKABLE],
    /// Counts answers to the question for facts.
    pub answers: AtomicU32,
    /// The facts, as `struct tcp_info`.
    pub info: [AtomicU32; INFO_WORDS],
    /// errno that the connection has failed with, where `ends` has [`REASON`].
    pub error: AtomicU32,
    /// 1 while the program waits in close for the other host to have everything; the engine's side ends it.
    pub lingering: AtomicU32,
}

/// Offset of the connect queue.
pub const QUEUE_AT: usize = size_of::<Header>().next_multiple_of(4096);
/// Offset of the ready lists, client's first.
pub const READY_LISTS_AT: usize = QUEUE_AT + size_of::<ConnectQueue>();
/// Offset of the contents shared without copying, the client's first.
pub const CONTENTS_AT: usize =
    (READY_LISTS_AT + 2 * READY_LISTS * size_of::<ReadyList>()).next_multiple_of(4096);
/// Offset of the extents' owners.
pub const OWNERS_AT: usize = (CONTENTS_AT + 2 * size_of::<Contents>()).next_multiple_of(4096);
/// Offset of the slots.
pub const SLOTS_AT: usize = (OWNERS_AT + size_of::<Owners>()).next_multiple_of(4096);

/// Offset of the first rings.
pub fn rings_at(slots: usize) -> usize {
    (SLOTS_AT + slots * size_of::<Slot>()).next_multiple_of(4096)
}

/// Offset of the extents.
pub fn extents_at(slots: usize, ring_bytes: usize) -> usize {
    rings_at(slots) + slots * 2 * ring_bytes
}

/// Offset of extent `index` of `class` from the first.
pub fn extent_offset(class: usize, index: usize) -> usize {
    let before: usize = CLASSES[..class].iter().map(|c| c.bytes * c.count).sum();
    before + index * CLASSES[class].bytes
}

/// Offset of the transports.
pub fn transports_at(slots: usize, ring_bytes: usize) -> usize {
    extents_at(slots, ring_bytes) + extent_offset(CLASSES.len() - 1, 0) + {
        let last = CLASSES[CLASSES.len() - 1];
        last.bytes * last.count
    }
}

/// Bytes of a segment.
pub fn segment_bytes(slots: usize, ring_bytes: usize) -> usize {
    let end = transports_at(slots, ring_bytes) + slots * size_of::<Transport>();
    end.next_multiple_of(4096)
}

const _: () = assert!(size_of::<Slot>() == 1280);
