//! A link between two devices in shared memory, as memif has it: rings and frames like those of AF_XDP, with another
//! process or thread at their far end and no kernel in between. For tests and benchmarks.
//!
//! ```text
//! file:  frames 0 → 1 | frames 1 → 0 | ring 0 → 1 | ring 1 → 0
//! ```
//!
//! Entry N of a ring describes frame N of its direction, and who may use the entry may use the frame: the sender until it
//! moves its cursor behind it, then the receiver until that one does. Both ends trust each other.

use std::sync::atomic::{fence, Ordering};
use std::sync::Arc;

use bypass_device::pool::{Chunk, Pool};
use bypass_device::{Capabilities, Checksum, Counters, Device, Error, Frame, Offload};
use bypass_sys::descriptor::Owned;
use bypass_sys::memory::Mapping;
use bypass_sys::region::Region;
use bypass_sys::{kernel, numbers};

use crate::sys::frames::Frames;
use crate::sys::ring::{Offsets, Ring};

/// Frames of one direction: as many as fit into this memory, between these bounds.
const DIRECTION_BYTES: usize = 1 << 20;
const FRAMES_MIN: usize = 32;
const FRAMES_MAX: usize = 256;
/// Bytes of a ring of `FRAMES_MAX` entries, with its cursors.
const RING: usize = PAGE;
const PAGE: usize = 4096;
const CACHE_LINE: usize = 64;
const ETHERNET: usize = 14;
/// Received frames that are passed on at once.
const BURST: usize = 32;
const BATCH: usize = 64;

/// What a link carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Largest IP packet.
    pub mtu: u32,
    /// Longest GSO packet, which arrives as it was sent; 0 for none.
    pub segments_max: u32,
}

impl Shape {
    /// Bytes from one frame to the next.
    fn chunk(self) -> usize {
        let longest = (self.mtu as usize + ETHERNET).max(self.segments_max as usize);
        let chunk = longest.next_multiple_of(CACHE_LINE);
        // Frames a page apart would all compete for the same lines of the cache.
        chunk + CACHE_LINE * usize::from(chunk.is_multiple_of(PAGE))
    }

    /// Frames of one direction, a power of two.
    fn frames(self) -> u32 {
        let fit = (DIRECTION_BYTES / self.chunk()).max(1);
        (1 << fit.ilog2()).clamp(FRAMES_MIN, FRAMES_MAX) as u32
    }

    fn rings_at(self) -> usize {
        (2 * self.frames() as usize * self.chunk()).next_multiple_of(PAGE)
    }

    fn bytes(self) -> usize {
        self.rings_at() + 2 * RING
    }
}

/// What a link is made of. The process of an end gets all three.
#[derive(Debug)]
pub struct Descriptors {
    /// The memory.
    pub file: Owned,
    /// Event counters (eventfd(2)) that wake side 0 and side 1.
    pub wakers: [Owned; 2],
}

impl Descriptors {
    /// Makes a link.
    pub fn create(shape: Shape) -> kernel::Result<Self> {
        let file = Mapping::create(c"wirespeed-link", shape.bytes())?.take_descriptor();
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        let waker = || numbers::high(|| kernel::eventfd(0, flags));
        Ok(Self {
            file: file.ok_or(libc::EBADF)?,
            wakers: [waker()?, waker()?],
        })
    }

    /// The same link once more.
    pub fn duplicate(&self) -> kernel::Result<Self> {
        let [first, second] = &self.wakers;
        Ok(Self {
            file: numbers::duplicate(self.file.0)?,
            wakers: [numbers::duplicate(first.0)?, numbers::duplicate(second.0)?],
        })
    }
}

/// Both ends of a new link.
pub fn pair(shape: Shape) -> kernel::Result<(End, End)> {
    let link = Descriptors::create(shape)?;
    Ok((
        End::of(link.duplicate()?, 0, shape)?,
        End::of(link, 1, shape)?,
    ))
}

/// One end of a link.
#[derive(Debug)]
pub struct End {
    shape: Shape,
    own_waker: Owned,
    other_waker: Owned,
    frames: Frames,
    /// Frames that this end fills, and frames that the other one does, in the order of their rings.
    sent: Vec<Chunk>,
    received: Vec<Chunk>,
    outgoing: Ring<u64>,
    incoming: Ring<u64>,
    has_unpublished: bool,
    is_armed: bool,
    counters: Counters,
}

impl End {
    /// The end of side 0 or 1, of which a link has one each. EPROTO: the link has another shape.
    pub fn of(link: Descriptors, side: usize, shape: Shape) -> kernel::Result<Self> {
        let (file, frames) = (link.file.0, shape.frames());
        if kernel::fstat(file)?.st_size != shape.bytes() as i64 {
            return Err(libc::EPROTO);
        }
        let rings = Arc::new(Region::map(file, shape.rings_at() as u64, 2 * RING)?);
        let ring = |direction: usize| Ring::over(rings.clone(), ring_at(direction * RING), frames);
        let mut pool = Pool::new(2 * frames);
        let mut chunks = || -> Vec<Chunk> { (0..frames).filter_map(|_| pool.take(0)).collect() };
        let mut directions = [(ring(0)?, chunks()), (ring(1)?, chunks())];
        let mut wakers = link.wakers;
        if side == 1 {
            directions.reverse();
            wakers.reverse();
        }
        let [(outgoing, sent), (incoming, received)] = directions;
        let [own_waker, other_waker] = wakers;
        Ok(Self {
            shape,
            own_waker,
            other_waker,
            frames: Frames::map(file, 2 * frames, shape.chunk() as u32)?,
            sent,
            received,
            outgoing,
            incoming: incoming.reading(),
            has_unpublished: false,
            is_armed: false,
            counters: Counters::default(),
        })
    }
}

fn ring_at(offset: usize) -> Offsets {
    let line = |number: usize| (offset + number * CACHE_LINE) as u64;
    Offsets {
        producer: line(0),
        consumer: line(1),
        flags: line(2),
        entries: line(3),
    }
}

/// An entry: the frame's length, the size of its segments, and whether its checksum is partial.
fn entry(length: usize, offload: Offload) -> u64 {
    let segment_size = offload.segments.map_or(0, |segments| segments.size);
    let is_partial = offload.checksum.is_some();
    length as u64 | u64::from(segment_size) << 32 | u64::from(is_partial) << 48
}

/// The frame that an entry describes; None if it is longer than there is memory for one.
fn frame<'a>(entry: u64, chunk: &'a Chunk, frames: &'a Frames) -> Option<Frame<'a>> {
    let bytes = frames.read(chunk, 0, entry as u32 as usize)?;
    let checksum = match entry >> 48 & 1 {
        1 => Checksum::Partial,
        _ => Checksum::Unknown,
    };
    Some(Frame {
        bytes,
        checksum,
        segment_size: (entry >> 32) as u16,
    })
}

impl Device for End {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.shape.mtu,
            segments_max: self.shape.segments_max,
            checksum: true,
            batch: BATCH,
        }
    }

    fn receive(&mut self, most: usize, take: &mut dyn FnMut(Frame)) -> Result<usize, Error> {
        self.receive_bursts(most, &mut |frames| {
            frames.iter().copied().for_each(&mut *take)
        })
    }

    fn receive_bursts(
        &mut self,
        most: usize,
        take: &mut dyn FnMut(&[Frame]),
    ) -> Result<usize, Error> {
        let mut taken = 0;
        while taken < most {
            let waiting = self.incoming.waiting() as usize;
            if waiting == 0 {
                break;
            }
            if self.is_armed {
                self.is_armed = false;
                self.incoming.ask_for_wakeup(false);
            }
            let mut burst = [Frame {
                bytes: &[],
                checksum: Checksum::Unknown,
                segment_size: 0,
            }; BURST];
            let mut found = 0;
            for _ in 0..waiting.min(most - taken).min(BURST) {
                let place = self.incoming.cursor() as usize % self.received.len();
                let entry = self.incoming.pop();
                match frame(entry, &self.received[place], &self.frames) {
                    Some(frame) => {
                        burst[found] = frame;
                        found += 1;
                    }
                    None => self.counters.receive_invalid += 1,
                }
            }
            if found > 0 {
                take(&burst[..found]);
            }
            self.incoming.release();
            taken += found;
        }
        self.counters.received += taken as u64;
        Ok(taken)
    }

    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        if !self.capabilities().admits(length, offload) {
            self.counters.send_errors += 1;
            return Err(Error::Refused);
        }
        if self.outgoing.room(1) == 0 {
            self.counters.send_full += 1;
            return Err(Error::Full);
        }
        let place = self.outgoing.cursor() as usize % self.sent.len();
        let bytes = self.frames.write(&mut self.sent[place], length);
        fill(bytes.ok_or(Error::Refused)?);
        self.outgoing.push(entry(length, offload));
        self.has_unpublished = true;
        self.counters.sent += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        if !self.has_unpublished {
            return Ok(());
        }
        self.has_unpublished = false;
        self.outgoing.publish();
        // Of the reader that asks and then looks, and this end that publishes and then looks, one sees the other.
        fence(Ordering::SeqCst);
        if self.outgoing.needs_wakeup() {
            self.counters.kernel_calls += 1;
            // A counter that is full has woken it already.
            let _ = kernel::write(self.other_waker.0, &1u64.to_ne_bytes());
        }
        Ok(())
    }

    fn arm(&mut self) -> bool {
        // An earlier wake-up says nothing of the next frames.
        let _ = kernel::read(self.own_waker.0, &mut [0; 8]);
        self.counters.kernel_calls += 1;
        self.is_armed = true;
        self.incoming.ask_for_wakeup(true);
        fence(Ordering::SeqCst);
        self.incoming.waiting() > 0
    }

    fn poll_fd(&self) -> Option<i32> {
        Some(self.own_waker.0)
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
