//! What lies where in a segment: the memory that one client process shares with the holders of
//! one listener.
//!
//! ```text
//! 0        Header          who, how many slots, how large the rings are
//! 4096     ConnectQueue    client ──slot numbers──► whoever holds the listener
//!          Lanes           64 for each side: doorbells of one waiting place (an epoll set)
//!          Contents        of each side: who has mapped what was lent
//!          Slots           1280 bytes each: cursors, ends, names, loans of one connection
//!          rings           two of `ring_bytes` for each slot, client→server first
//! ```
//!
//! Rules. Offsets only, no pointers. Every word may be changed by the other side at any moment:
//! it is loaded once, checked, then used. Sides: 0 is the client, 1 the server; direction d is
//! written by side d. A field's line is written by one side in ordinary traffic.

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicU8};

use bypass_sys::address::SharedAddress;

/// First word of every segment; the digits are the version of this layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"WSshm\0\x04\0");
/// Slots of a segment: bounded by the doorbell's two levels.
pub const SLOTS_MAX: usize = 16_384;
/// Bells under one byte of the summary: a cache line of them.
pub const BELL_GROUP: usize = 64;
/// Groups that are looked at without a summary: ringing there is one store, not two.
pub const DIRECT_GROUPS: usize = 16;
/// Waiting places of one side of a segment.
pub const LANES: usize = 64;
/// Loans under way in one direction of a connection.
pub const LOANS: usize = 4;
/// Contents that one side of a segment may lend.
pub const CONTENTS: usize = 512;
/// Processes of one side that may hold ends of a segment; the mask's two top bits are these:
pub const PROCESSES: usize = 30;
/// In `holders`: the connection waits to be accepted.
pub const QUEUED: u32 = 1 << 31;
/// In `holders`: the last holder is writing the end.
pub const CLOSING: u32 = 1 << 30;
/// Smallest and largest ring.
pub const RING_BYTES_MIN: usize = 4096;
/// See above.
pub const RING_BYTES_MAX: usize = 262_144;

/// In `ends`: no more bytes after the tail.
pub const FIN: u32 = 1;
/// In `ends`: the connection was reset by this direction's writer.
pub const RST: u32 = 2;
/// In `ends`: this direction's writer has closed its socket, it reads no more either.
pub const CLOSED: u32 = 4;

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
    /// Lanes of each side that were ever taken: the others need not be looked at.
    pub lanes_used: [AtomicU32; 2],
    /// Slots that the client has ever used: bells beyond need no look.
    pub slots_used: AtomicU32,
    /// By side: who waits there wants publishers to fence, see [`bypass_sys::barrier`].
    pub fenced: [AtomicU32; 2],
    /// 1 when the last holder has closed the listener: nobody accepts what is offered from then on.
    pub closed: AtomicU32,
    /// Processes of each side.
    pub processes: [[AtomicU64; PROCESSES]; 2],
    /// Those of them that cannot wake others (a bit each): who waits on the other side must look.
    pub silent: [AtomicU32; 2],
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
pub struct Lane {
    /// Process number of the owner, 0 when free.
    pub owner: AtomicU64,
    /// Waker to ring, by number within the owner.
    pub waker: AtomicU32,
    /// 1 while the owner sleeps.
    pub sleeping: AtomicU32,
    /// Whether new connections are to wake it: 0 no, 1 yes, 2 as one of several.
    pub listening: AtomicU32,
    /// Bit of every process of the other side that has ever held an announcement back here.
    pub holders_back: AtomicU32,
    /// 1 for each group of [`BELL_GROUP`] bells that is worth a look.
    pub summary: Summary,
    /// 1 for each slot that rang.
    pub bells: [AtomicU8; SLOTS_MAX],
    /// For each slot the low byte of its writer's [`Locks::news`]. The owner compares it with
    /// what it has seen and stores nothing here: the lines travel one way only.
    pub news: [AtomicU8; SLOTS_MAX],
    /// By process of the other side.
    pub held_back: [HeldBack; PROCESSES],
}

/// The slot, plus one, whose bytes its writer has published and will announce with more that is to
/// come; 0 for none. Each on a line of its own: one writer's, until a reader has nothing to do.
#[repr(C, align(64))]
pub struct HeldBack(pub AtomicU32);

/// The upper level of the doorbell.
#[repr(C, align(128))]
pub struct Summary(pub [AtomicU8; SLOTS_MAX / BELL_GROUP]);

/// Written by the side that writes the direction's bytes.
#[repr(C, align(128))]
pub struct ProducerLine {
    /// Bytes ever written.
    pub tail: AtomicU64,
    /// [`FIN`], [`RST`], [`CLOSED`].
    pub ends: AtomicU32,
    /// The writer waits for space.
    pub want_space: AtomicU32,
    /// Loans ever made, see [`Loan`].
    pub loans: AtomicU64,
    /// Position of the urgent byte plus one, 0 when none was sent.
    pub urgent: AtomicU64,
}

/// Written by the side that reads the direction's bytes.
#[repr(C, align(128))]
pub struct ConsumerLine {
    /// Bytes ever read.
    pub head: AtomicU64,
    /// The tail as last seen.
    pub tail_seen: AtomicU64,
    /// Loans read to their end.
    pub loans_done: AtomicU64,
    /// Bytes read of the next one.
    pub loan_bytes: AtomicU64,
}

/// Bytes of a stream that do not lie in the ring but in a content that the writer has lent: memory
/// that the reader has mapped for reading.
#[repr(C)]
pub struct Loan {
    /// They come when so many bytes of the ring have been read.
    pub at: AtomicU64,
    /// Number of the content, then the first byte's offset in it.
    pub place: AtomicU64,
    /// How many.
    pub length: AtomicU64,
}

/// Loans under way in one direction.
#[repr(C, align(128))]
pub struct Loans(pub [Loan; LOANS]);

/// What one side has lent.
#[repr(C, align(128))]
pub struct Contents {
    /// Numbers given away.
    pub used: AtomicU32,
    /// By number: bit of every process of the other side that has mapped it.
    pub mapped_by: [AtomicU32; CONTENTS],
}

/// Locks of one side's end, and what its writer knows. On a line that the other side never touches:
/// taking a lock waits for nobody, and neither does a look at what was just written, whose line the
/// other side may be reading.
#[repr(C, align(128))]
pub struct Locks {
    /// Holds the thread that reads.
    pub read: AtomicU32,
    /// Holds the thread that writes.
    pub write: AtomicU32,
    /// Who gets SIGURG: a process, or a group as a negative number; 0 for nobody.
    pub owner: AtomicU32,
    /// O_NONBLOCK, once several processes hold the end: they share it, as they share the file.
    pub flags: AtomicU32,
    /// [`ProducerLine::tail`].
    pub tail: AtomicU64,
    /// The head as last seen.
    pub head_seen: AtomicU64,
    /// [`ProducerLine::loans`].
    pub loans: AtomicU64,
    /// 1: an urgent byte was sent.
    pub has_sent_urgent: AtomicU32,
    /// Loans that the reader has finished, as last seen.
    pub loans_seen: AtomicU64,
    /// How often bytes were announced, in every life of the slot.
    pub news: AtomicU32,
    /// The lane where they were announced last, plus one.
    pub lane_rung: AtomicU32,
}

/// Who holds the two ends, and where they wait.
#[repr(C, align(128))]
pub struct Meta {
    /// Bit of every process that holds the side's end.
    pub holders: [AtomicU32; 2],
    /// Lane of the side's waiting place plus one, 0 for none.
    pub lane: [AtomicU32; 2],
    /// Thread that waits for bytes: process index and waker, 0 for none.
    pub sleeper_read: [AtomicU64; 2],
    /// Thread that waits for space.
    pub sleeper_write: [AtomicU64; 2],
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
    pub loans: [Loans; 2],
}

/// Offset of the connect queue.
pub const QUEUE_AT: usize = 4096;
/// Offset of the lanes, client's first.
pub const LANES_AT: usize = QUEUE_AT + size_of::<ConnectQueue>();
/// Offset of what is lent, by the client first.
pub const CONTENTS_AT: usize = (LANES_AT + 2 * LANES * size_of::<Lane>()).next_multiple_of(4096);
/// Offset of the slots.
pub const SLOTS_AT: usize = (CONTENTS_AT + 2 * size_of::<Contents>()).next_multiple_of(4096);

/// Offset of the rings.
pub fn rings_at(slots: usize) -> usize {
    (SLOTS_AT + slots * size_of::<Slot>()).next_multiple_of(4096)
}

/// Bytes of a segment.
pub fn segment_bytes(slots: usize, ring_bytes: usize) -> usize {
    rings_at(slots) + slots * 2 * ring_bytes
}

const _: () = assert!(size_of::<Header>() <= QUEUE_AT && size_of::<Slot>() == 1280);
