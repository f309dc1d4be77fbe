//! A segment as its users see it: typed places, indices already checked.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use crate::atomic::fetch;
use crate::extents::Place;
use crate::holders::Holders;
use crate::layout::{
    extents_at, rings_at, segment_bytes, transports_at, ConnectQueue, Contents, Header, Owners,
    ReadyList, Slot, Transport, CONTENTS, CONTENTS_AT, MAGIC, MASKED, NO_ROOM, OWNERS_AT,
    PROCESSES, QUEUE_AT, READY_LISTS, READY_LISTS_AT, RING_BYTES_MAX, RING_BYTES_MIN, SLOTS_AT,
    SLOTS_MAX,
};
use crate::ring::{Ring, Surroundings};
use bypass_sys::barrier;
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel::{self, Result};
use bypass_sys::memory::{self, Mapping};

/// Memory shared by one client process and the holders of one listener.
#[derive(Debug)]
pub struct Segment {
    memory: Mapping,
    id: u64,
    client: u64,
    /// A power of two; the memory was made, or checked to be, long enough for that many.
    slots: usize,
    ring_bytes: usize,
    /// Offset of the first rings.
    rings: usize,
    borrowed: BorrowedContents,
}

/// Contents that the other side shares with this process without copying, by number.
#[derive(Debug)]
struct BorrowedContents(Box<[OnceLock<Mapping>]>);

impl BorrowedContents {
    fn new() -> Self {
        Self((0..CONTENTS).map(|_| OnceLock::new()).collect())
    }

    fn bytes(&self) -> usize {
        self.0
            .iter()
            .filter_map(OnceLock::get)
            .map(Mapping::len)
            .sum()
    }
}

impl Surroundings for Segment {
    fn content(&self, number: u32) -> Option<(*const u8, usize)> {
        let memory = self.borrowed.0.get(number as usize)?.get()?;
        Some((memory.bytes_at(0, memory.len()), memory.len()))
    }

    fn extent(&self, place: Place) -> Option<(*mut u8, usize)> {
        let (offset, size) = place.range()?;
        let at = extents_at(self.slots, self.ring_bytes) + offset;
        Some((self.memory.bytes_at(at, size), size))
    }

    fn take_extent(&self, direction: u32, over: usize, wanted: usize) -> Option<Place> {
        // Before it is taken: whoever ends the connection then gives it back.
        let (slot, side) = (direction as usize / 2, direction as usize % 2);
        self.slot(slot).meta.has_grown[side].store(1, Ordering::Release);
        let used = &self.header().extents_used;
        let place = self.owners().take(used, direction + 1, over, wanted)?;
        if let Some(tell) = GROWTH.get() {
            tell();
        }
        Some(place)
    }

    fn has_extent(&self, over: usize) -> bool {
        self.owners().has_larger(over)
    }

    fn give_back(&self, direction: u32, place: Place) {
        self.owners().give_back(place, direction + 1);
    }
}

/// What is to be called when a direction has grown, by the thread that writes it.
static GROWTH: OnceLock<fn()> = OnceLock::new();

/// Has `tell` called whenever a direction grows that this process writes.
pub fn when_grown(tell: fn()) {
    let _ = GROWTH.set(tell);
}

/// Most that one segment's other side may make this process map.
const BORROWED_BYTES_MAX: usize = 256 << 20;

impl Segment {
    /// Makes one for process `client`; `slots` and `ring_bytes` are powers of two in bounds.
    pub fn create(client: u64, slots: usize, ring_bytes: usize) -> Result<Self> {
        check_sizes(slots, ring_bytes)?;
        if memory::may_be_refused_when_touched() {
            return Err(libc::ENOMEM);
        }
        let memory = Mapping::create(c"wirespeed-segment", segment_bytes(slots, ring_bytes))?;
        let segment = Self {
            memory,
            id: kernel::random(),
            client,
            slots,
            ring_bytes,
            rings: rings_at(slots),
            borrowed: BorrowedContents::new(),
        };
        let header = segment.header();
        header.id.store(segment.id, Ordering::Relaxed);
        header.client.store(client, Ordering::Relaxed);
        header.slots.store(slots as u32, Ordering::Relaxed);
        header
            .ring_bytes
            .store(ring_bytes as u32, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// Takes what a peer passed; the sizes are read once, checked against the file and kept.
    pub fn adopt(fd: i32) -> Result<Self> {
        let memory = Mapping::adopt(fd)?;
        if memory.len() < SLOTS_AT {
            return Err(libc::EPROTO);
        }
        // SAFETY: a header is atomics only.
        let header: &Header = unsafe { memory.at(0) };
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(libc::EPROTO);
        }
        let slots = header.slots.load(Ordering::Relaxed) as usize;
        let ring_bytes = header.ring_bytes.load(Ordering::Relaxed) as usize;
        check_sizes(slots, ring_bytes)?;
        if memory.len() != segment_bytes(slots, ring_bytes) {
            return Err(libc::EPROTO);
        }
        let id = header.id.load(Ordering::Relaxed);
        let client = header.client.load(Ordering::Relaxed);
        Ok(Self {
            memory,
            id,
            client,
            slots,
            ring_bytes,
            rings: rings_at(slots),
            borrowed: BorrowedContents::new(),
        })
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The process that connects through it.
    pub fn client(&self) -> u64 {
        self.client
    }

    /// The descriptor, for passing on.
    pub fn fd(&self) -> i32 {
        self.memory.fd()
    }

    /// The descriptor of memory that is not passed on any more; None when it was taken before.
    pub fn take_descriptor(&self) -> Option<Owned> {
        self.memory.take_descriptor()
    }

    /// How many connections fit.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// An index from outside, made safe.
    pub fn clamp(&self, slot: usize) -> usize {
        slot & (self.slots - 1)
    }

    /// See [`Header`].
    pub fn header(&self) -> &Header {
        // SAFETY: a header is atomics only.
        unsafe { self.memory.at(0) }
    }

    /// See [`ConnectQueue`].
    #[inline]
    pub fn queue(&self) -> &ConnectQueue {
        // SAFETY: a queue is atomics only.
        unsafe { self.memory.at(QUEUE_AT) }
    }

    /// Informs the client that no process listens any more.
    pub fn close_queue(&self) {
        self.header().closed.store(1, Ordering::SeqCst);
    }

    /// Whether the listener was closed, as far as its last holder has said so.
    #[inline]
    pub fn is_queue_closed(&self) -> bool {
        self.header().closed.load(Ordering::SeqCst) != 0
    }

    /// Ready list `index` of `side`.
    #[inline]
    pub fn ready_list(&self, side: usize, index: usize) -> &ReadyList {
        let number = (side & 1) * READY_LISTS + index % READY_LISTS;
        // SAFETY: a ready list is atomics only.
        unsafe {
            self.memory
                .at(READY_LISTS_AT + number * size_of::<ReadyList>())
        }
    }

    /// Connection `index`.
    #[inline]
    pub fn slot(&self, index: usize) -> &Slot {
        let at = SLOTS_AT + self.clamp(index) * size_of::<Slot>();
        // SAFETY: a slot is atomics only; the memory holds all of them, from an aligned place on.
        unsafe { &*self.memory.address(at).cast() }
    }

    /// Additional state of connection `index` if it leads to another host.
    pub fn transport(&self, index: usize) -> &Transport {
        let first = transports_at(self.slots, self.ring_bytes);
        let at = first + self.clamp(index) * size_of::<Transport>();
        // SAFETY: a transport is atomics only; the memory holds one for each slot.
        unsafe { self.memory.at(at) }
    }

    /// Whether its connections lead to other hosts, over packets.
    pub fn is_over_packets(&self) -> bool {
        self.header().over_packets.load(Ordering::Relaxed) != 0
    }

    /// Records that its connections lead to other hosts, and whether waiting connections are kept for the process of
    /// the relay and for processes without an engine.
    pub fn set_over_packets(&self, is_kept: bool) {
        let word = 1 + u32::from(is_kept);
        self.header().over_packets.store(word, Ordering::SeqCst);
    }

    /// Whether what waits is kept so.
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.header().over_packets.load(Ordering::SeqCst) == 2
    }

    /// Contents that `side` shares without copying.
    #[inline]
    pub fn contents(&self, side: usize) -> &Contents {
        // SAFETY: the list is atomics only.
        unsafe {
            self.memory
                .at(CONTENTS_AT + (side & 1) * size_of::<Contents>())
        }
    }

    /// The bytes that `side` sends on connection `index`.
    #[inline]
    pub fn ring(&self, index: usize, side: usize) -> Ring<'_> {
        let (index, side) = (self.clamp(index), side & 1);
        let slot = self.slot(index);
        let at = self.rings + (index * 2 + side) * self.ring_bytes;
        // SAFETY: all of its memory is mapped as long as `self`, which the result borrows; the memory
        // holds two rings for each slot.
        unsafe {
            Ring::new(
                &slot.producer[side],
                &slot.locks[side],
                &slot.consumer[side],
                &slot.records[side],
                (self.memory.address(at), self.ring_bytes),
            )
            .with(self, (index * 2 + side) as u32)
        }
    }

    fn owners(&self) -> &Owners {
        // SAFETY: the list is atomics only.
        unsafe { self.memory.at(OWNERS_AT) }
    }

    /// The program's choice of `side`'s buffers: SO_SNDBUF and SO_RCVBUF, 0 for the default.
    pub fn set_buffers(&self, index: usize, side: usize, send: u32, receive: u32) {
        let (slot, side) = (self.slot(index), side & 1);
        for direction in &slot.meta.has_grown {
            direction.store(1, Ordering::Relaxed);
        }
        slot.locks[side].send_buffer.store(send, Ordering::Relaxed);
        slot.consumer[1 - side]
            .receive_buffer
            .store(receive, Ordering::Relaxed);
    }

    /// Gives back the larger rings of connection `index`, which are not used any more; true when there
    /// may have been some.
    pub fn give_back_extents(&self, index: usize) -> bool {
        let grown = &self.slot(index).meta.has_grown;
        let has_grown = grown.iter().any(|one| one.load(Ordering::Acquire) != 0);
        if has_grown {
            let used = &self.header().extents_used;
            let first = self.clamp(index) as u32 * 2;
            self.owners().give_back_all(used, first + 1);
            self.owners().give_back_all(used, first + 2);
        }
        has_grown
    }

    /// Gives back the memory of extents without an owner.
    pub fn clean_extents(&self) {
        let used = &self.header().extents_used;
        self.owners().clean(used, |place| self.empty_extent(place));
    }

    /// Gives the memory of an extent back, which reads as zero afterwards.
    pub fn empty_extent(&self, place: Place) {
        if let Some((offset, size)) = place.range() {
            let at = extents_at(self.slots, self.ring_bytes) + offset;
            self.memory.release(at, size);
        }
    }

    /// Calls `visit` with every connection of which the direction that `side` writes has an extent; with
    /// some of them more than once.
    pub fn grown(&self, side: usize, mut visit: impl FnMut(usize)) {
        let used = &self.header().extents_used;
        self.owners().owners(used, |owner| {
            let direction = owner as usize - 1;
            if direction % 2 == side & 1 && direction / 2 < self.slots {
                visit(direction / 2);
            }
        });
    }

    /// Before `side` (ours) reads connection `index` and answers: what both look at first.
    #[inline]
    pub fn prefetch(&self, index: usize, side: usize) {
        let slot = self.slot(index);
        fetch(&slot.locks[side & 1]);
        fetch(&slot.meta);
        self.ring(index, 1 - (side & 1)).prefetch();
    }

    /// Maps the content that is shared as `number` with process-index `index` of `side` (ours), and records it. Only
    /// the first processes do: the others get what they read by copying.
    pub fn borrow(&self, side: usize, index: usize, number: u32, content: i32) -> Result<()> {
        let place = self.borrowed.0.get(number as usize);
        let Some(place) = place.filter(|_| index < MASKED) else {
            let _ = kernel::close(content);
            return Err(libc::EPROTO);
        };
        let memory = Mapping::view(content)?.without_descriptor();
        if self.borrowed.bytes() + memory.len() > BORROWED_BYTES_MAX || place.set(memory).is_err() {
            return Err(libc::ENOMEM);
        }
        // After the mapping: a lender that sees the bit may rely on it.
        let mapped_by = &self.contents(1 - (side & 1)).mapped_by[number as usize];
        mapped_by.fetch_or(1 << index, Ordering::SeqCst);
        Ok(())
    }

    /// A number under which `side` (ours) may share a content without copying; None when all are used.
    pub fn number_for_loan(&self, side: usize) -> Option<u32> {
        let used = &self.contents(side).used;
        let next = |used: u32| (used < CONTENTS as u32).then_some(used + 1);
        used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next)
            .ok()
    }

    /// Whether all processes that hold the other end of connection `index` have mapped what `side`
    /// (ours) shares as `number`.
    #[inline]
    pub fn is_borrowed(&self, index: usize, side: usize, number: u32) -> bool {
        let mapped_by = &self.contents(side).mapped_by[number as usize % CONTENTS];
        // Looked at on both sides of the holders: a process that forks names its child as a holder
        // first and a new process clears its bits first, so neither can be taken for one that has
        // mapped the content.
        let before = mapped_by.load(Ordering::SeqCst);
        let holders = self.slot(index).meta.holders[1 - (side & 1)].load(Ordering::SeqCst);
        let mapped = before & mapped_by.load(Ordering::SeqCst);
        let has_mapped = |process: usize| process < MASKED && mapped & 1 << process != 0;
        let holders = Holders(holders);
        holders != Holders(0) && !holders.is_in_between() && holders.processes().all(has_mapped)
    }

    /// Prepares a free slot for a new connection.
    pub fn reset(&self, index: usize) {
        let meta = &self.slot(index).meta;
        let has_grown = self.give_back_extents(index);
        for side in 0..2 {
            self.ring(index, side).reset();
            let locks = &self.slot(index).locks[side];
            if has_grown {
                locks.send_buffer.store(0, Ordering::Relaxed);
                locks.since.store(0, Ordering::Relaxed);
                meta.has_grown[side].store(0, Ordering::Relaxed);
            }
            let aborts = &self.slot(index).producer[side].aborts;
            aborts.store(0, Ordering::Relaxed);
            locks.read.store(0, Ordering::Relaxed);
            locks.write.store(0, Ordering::Relaxed);
            locks.owner.store(0, Ordering::Relaxed);
            locks.shut.store(0, Ordering::Relaxed);
            meta.holders[side].store(0, Ordering::Relaxed);
            meta.ready_list[side].store(0, Ordering::Relaxed);
            meta.sleeper_read[side].store(0, Ordering::Relaxed);
            meta.sleeper_write[side].store(0, Ordering::Relaxed);
        }
    }

    /// Gives the pages of a slot's rings back.
    pub fn release(&self, index: usize) {
        let at = rings_at(self.slots) + self.clamp(index) * 2 * self.ring_bytes;
        self.memory.release(at, 2 * self.ring_bytes);
    }

    /// Enters process `number` among those of `side`; None when there are too many.
    pub fn enter(&self, side: usize, number: u64) -> Option<usize> {
        let header = self.header();
        if barrier::asks_for_fences() {
            // Before any ready list or sleeper of ours: who sees those sees this.
            header.fenced[side & 1].store(1, Ordering::SeqCst);
        }
        let take = |place: &AtomicU64, index: usize| {
            // Loaded first, because most are somebody's.
            if place.load(Ordering::Relaxed) != 0 {
                return false;
            }
            // Before the place is taken: where the process is killed in between, no place is taken that no process looks at.
            header.processes_used[side & 1].fetch_max(index as u32 + 1, Ordering::SeqCst);
            let taken = place.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
            taken.is_ok()
        };
        let mut places = header.processes[side & 1].iter().enumerate();
        let (index, _) = places.find(|(index, place)| take(place, *index))?;
        if index < MASKED {
            // What a former holder of the place has mapped, this process has not.
            let contents = self.contents(1 - (side & 1));
            let used = contents.used.load(Ordering::SeqCst) as usize;
            for mapped_by in contents.mapped_by.iter().take(used) {
                mapped_by.fetch_and(!(1 << index), Ordering::SeqCst);
            }
        }
        Some(index)
    }

    /// The number of process `index` of `side`, 0 when there is none.
    pub fn process(&self, side: usize, index: usize) -> u64 {
        self.header().processes[side & 1][index % PROCESSES].load(Ordering::SeqCst)
    }

    /// The places of `side` that were ever taken, by index.
    fn places(&self, side: usize) -> &[AtomicU64] {
        let header = self.header();
        let used = header.processes_used[side & 1].load(Ordering::SeqCst) as usize;
        &header.processes[side & 1][..used.min(PROCESSES)]
    }

    /// The processes of `side`: index and number of each.
    pub fn processes(&self, side: usize) -> impl Iterator<Item = (usize, u64)> + use<'_> {
        let places = self.places(side).iter();
        let numbers = places.map(|place| place.load(Ordering::SeqCst));
        numbers.enumerate().filter(|(_, number)| *number != 0)
    }

    /// The index of process `number` of `side`.
    pub fn index_of(&self, side: usize, number: u64) -> Option<usize> {
        let mut processes = self.processes(side);
        let found = processes.find(|(_, one)| *one == number);
        found.map(|(index, _)| index)
    }

    /// Whether who waits on `side` wants publishers to fence.
    #[inline]
    pub fn is_fenced(&self, side: usize) -> bool {
        self.header().fenced[side & 1].load(Ordering::Relaxed) != 0
    }

    /// Slots that may have rung.
    #[inline]
    pub fn slots_used(&self) -> usize {
        let used = self.header().slots_used.load(Ordering::Relaxed) as usize;
        used.min(self.slots)
    }

    /// The ready lists of `side` that were ever taken.
    pub fn ready_lists(&self, side: usize) -> impl ExactSizeIterator<Item = &ReadyList> {
        let used = self.header().ready_lists_used[side & 1].load(Ordering::SeqCst) as usize;
        (0..used.min(READY_LISTS)).map(move |index| self.ready_list(side, index))
    }

    /// Takes a ready list of `side` for process `owner`; `from` is where the search begins.
    pub fn claim_ready_list(
        &self,
        side: usize,
        (owner, from): (u64, usize),
        waker: u32,
    ) -> Option<usize> {
        let used = &self.header().ready_lists_used[side & 1];
        let mut indices = (0..READY_LISTS).map(|step| from.wrapping_add(step) % READY_LISTS);
        indices.find(|index| {
            let ready_list = self.ready_list(side, *index);
            // Before it is taken: where its owner is killed in between, it is found and freed like the others.
            if ready_list.owner.load(Ordering::Relaxed) == 0 {
                used.fetch_max(*index as u32 + 1, Ordering::SeqCst);
            }
            ready_list.claim(owner, waker)
        })
    }

    /// Removes a process of `side` that is gone: its place and its ready lists.
    pub fn leave(&self, side: usize, index: usize) {
        let (number, index) = (self.process(side, index), index % PROCESSES);
        for ready_list in self.ready_lists(side) {
            if number != 0 && ready_list.owner.load(Ordering::SeqCst) == number {
                ready_list.free();
            }
        }
        let silent = &self.header().silent[side & 1][index / 32];
        silent.fetch_and(!(1 << (index % 32)), Ordering::SeqCst);
        if side == 1 {
            self.set_credits(index, 0);
        }
        self.header().processes[side & 1][index].store(0, Ordering::SeqCst);
    }

    /// Process `index` of `side` cannot wake others from now on. The caller has to ring threads that already sleep
    /// here after this; publishers of the other side fence, because its sleepers may no longer do it for them.
    pub fn set_silent(&self, side: usize, index: usize) {
        let header = self.header();
        header.fenced[side & 1].store(1, Ordering::SeqCst);
        let (index, silent) = (index % PROCESSES, &header.silent[side & 1]);
        silent[index / 32].fetch_or(1 << (index % 32), Ordering::SeqCst);
    }

    /// Process `index` of the listener's side lets `credits` connections wait here; 0: it accepts none from here, [`NO_ROOM`]:
    /// nor should another one, as any of them might be the one to accept.
    pub fn set_credits(&self, index: usize, credits: u32) {
        self.header().credits[index % PROCESSES].store(credits, Ordering::SeqCst);
    }

    /// How many connections may wait here, by what the processes of the listener's side have published; None while one of
    /// them has no room.
    pub fn credits(&self) -> Option<u32> {
        let published = self.header().credits[..self.places(1).len()].iter();
        let mut published = published.map(|credits| credits.load(Ordering::SeqCst));
        published.try_fold(0, |most, credits| {
            (credits != NO_ROOM).then_some(credits.max(most))
        })
    }

    /// A process of the listener's side forks with connections of this segment.
    pub fn note_forking(&self) {
        self.header().forks.store(1, Ordering::SeqCst);
    }

    /// Whether one of them has done so.
    #[inline]
    pub fn has_forked(&self) -> bool {
        self.header().forks.load(Ordering::Relaxed) != 0
    }

    /// A process of the listener's side serves without a child for each connection.
    pub fn set_proven(&self) {
        self.header().proven.store(1, Ordering::SeqCst);
    }

    /// One of them will soon have shown whether it does.
    pub fn expect_proof(&self) {
        let proven = &self.header().proven;
        let _ = proven.compare_exchange(0, 2, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Whether that is all that is known.
    pub fn is_proof_expected(&self) -> bool {
        self.header().proven.load(Ordering::Relaxed) == 2
    }

    /// Whether one has said so.
    #[inline]
    pub fn is_proven(&self) -> bool {
        self.header().proven.load(Ordering::Relaxed) == 1
    }

    /// How many more processes of `side` can take part.
    pub fn places_left(&self, side: usize) -> usize {
        PROCESSES - self.processes(side).count()
    }

    /// Whether a process of `side` cannot wake who waits for it.
    #[inline]
    pub fn has_silent(&self, side: usize) -> bool {
        let used = self.places(side).len().div_ceil(32);
        let words = &self.header().silent[side & 1][..used];
        words.iter().any(|word| word.load(Ordering::SeqCst) != 0)
    }

    /// Whether that is so of the process at place `index`.
    pub fn is_silent(&self, side: usize, index: usize) -> bool {
        let (index, silent) = (index % PROCESSES, &self.header().silent[side & 1]);
        silent[index / 32].load(Ordering::SeqCst) & 1 << (index % 32) != 0
    }
}

fn check_sizes(slots: usize, ring_bytes: usize) -> Result<()> {
    let slots_fit = slots.is_power_of_two() && slots <= SLOTS_MAX;
    let rings_fit = (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes);
    if slots_fit && rings_fit && ring_bytes.is_power_of_two() {
        Ok(())
    } else {
        Err(libc::EPROTO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_lies_about_sizes_is_refused() {
        let lies: [(u32, u32); 5] = [(0, 4096), (63, 4096), (128, 4096), (64, 5000), (1 << 30, 8)];
        for (slots, ring_bytes) in lies {
            let segment = Segment::create(1, 64, 4096).expect("memory");
            segment.header().slots.store(slots, Ordering::Relaxed);
            segment
                .header()
                .ring_bytes
                .store(ring_bytes, Ordering::Relaxed);
            let passed = kernel::dup(segment.fd()).expect("dup") as i32;
            assert_eq!(
                Segment::adopt(passed).err(),
                Some(libc::EPROTO),
                "{slots} {ring_bytes}"
            );
        }
    }

    #[test]
    fn the_most_credits_count_unless_a_process_has_no_room() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let first = segment.enter(1, 77).expect("room");
        let second = segment.enter(1, 78).expect("room");
        assert_eq!(segment.credits(), Some(0));
        segment.set_credits(first, 5);
        segment.set_credits(second, 3);
        assert_eq!(segment.credits(), Some(5));
        segment.set_credits(second, NO_ROOM);
        assert_eq!(segment.credits(), None);
        segment.leave(1, second);
        assert_eq!(segment.credits(), Some(5));
    }

    #[test]
    fn a_dead_process_leaves_its_ready_lists() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let index = segment.enter(1, 77).expect("room");
        let ready_list = segment.claim_ready_list(1, (77, 3), 5).expect("room");
        segment.leave(1, index);
        assert_eq!(segment.process(1, index), 0);
        assert_eq!(segment.claim_ready_list(1, (78, 3), 6), Some(ready_list));
    }
}
