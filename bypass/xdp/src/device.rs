//! An opened AF_XDP socket as a packet device.

use std::sync::Arc;

use bypass_device::packet::Sender;
use bypass_device::pool::{Chunk, Pool};
use bypass_device::{Capabilities, Checksum, Counters, Device, Error, Frame, Offload};
use bypass_sys::descriptor::Owned;
use bypass_sys::{kernel, network};

use crate::opened::{Layout, Opened};
use crate::rings::{RingMemory, UsedRings};
use crate::sys::frames::Frames;
use crate::sys::ring::Ring;

/// XDP_PKT_CONTD: the frame goes on in the next entry.
const CONTINUED: u32 = 1;
/// Longest frame that is put together of several chunks.
const FRAME_MAX: usize = 65_549;
/// Frames of one call beyond which nothing is gained (the kernel sends 32 at a time in copy mode).
const BATCH: usize = 64;
/// Received frames that are handed on together at most.
const BURST: usize = 32;
const NO_ENTRY: libc::xdp_desc = libc::xdp_desc {
    addr: 0,
    len: 0,
    options: 0,
};
/// Times that the kernel is asked to send in one flush.
const KICKS_MAX: usize = 64;
/// How often a successor looks whether the kernel has sent what it had taken, and how long it waits.
const DRAINS_MAX: u32 = 50;
const DRAIN_PAUSE: core::time::Duration = core::time::Duration::from_millis(1);

/// One queue of an interface.
#[derive(Debug)]
pub struct Xdp {
    layout: Layout,
    socket: Owned,
    packet: Option<Sender>,
    memory: UsedRings,
    frames: Frames,
    pool: Pool,
    receive: Ring<libc::xdp_desc>,
    send: Ring<libc::xdp_desc>,
    fill: Ring<u64>,
    completion: Ring<u64>,
    /// A frame of several chunks, put together or about to be taken apart.
    joined: Vec<u8>,
    is_joining: bool,
    has_unpublished: bool,
    /// The kernel was asked to send, and has not taken everything.
    has_refused: bool,
    counters: Counters,
}

/// The memory of a socket and its rings.
struct Rings {
    memory: UsedRings,
    frames: Frames,
    receive: Ring<libc::xdp_desc>,
    send: Ring<libc::xdp_desc>,
    fill: Ring<u64>,
    completion: Ring<u64>,
}

impl Rings {
    fn of(opened: &Opened) -> kernel::Result<Self> {
        let (layout, sizes) = (&opened.layout, opened.layout.sizes());
        let memory = match &opened.rings {
            Some(memory) => memory.clone(),
            None => Arc::new(RingMemory::map(opened.socket.0, sizes)?),
        };
        let memory = UsedRings::of(memory);
        Ok(Self {
            frames: Frames::map(opened.memory.0, layout.frames(), layout.chunk)?,
            receive: memory.0.receive(sizes)?,
            send: memory.0.send(sizes)?,
            fill: memory.0.fill(sizes)?,
            completion: memory.0.completion(sizes)?,
            memory,
        })
    }
}

impl Xdp {
    /// Takes over what stands in the rings of a socket, as it was opened or as a process has left it that used it and has
    /// ended. EBUSY: the kernel does not finish sending for that one.
    pub fn new(opened: Opened) -> kernel::Result<Self> {
        Self::over(opened).map_err(|(error, _)| error)
    }

    /// The same; what cannot be used now is given back, for another try.
    pub fn over(opened: Opened) -> Result<Self, (i32, Opened)> {
        let rings = match Rings::of(&opened) {
            Ok(rings) => rings,
            Err(error) => return Err((error, opened)),
        };
        let mut device = Self {
            memory: rings.memory,
            frames: rings.frames,
            pool: Pool::new(opened.layout.frames()),
            receive: rings.receive,
            send: rings.send,
            fill: rings.fill,
            completion: rings.completion,
            joined: Vec::new(),
            is_joining: false,
            has_unpublished: false,
            has_refused: false,
            counters: Counters::default(),
            packet: opened.packet,
            socket: opened.socket,
            layout: opened.layout,
        };
        let memory = opened.memory;
        match device.take_over() {
            // The memory is mapped: its descriptor is not needed any more.
            Ok(()) => Ok(device),
            Err(error) => Err((error, device.close(memory))),
        }
    }

    fn close(self, memory: Owned) -> Opened {
        Opened {
            layout: self.layout,
            socket: self.socket,
            memory,
            packet: self.packet,
            rings: Some(self.memory.0.clone()),
        }
    }

    /// The rings show where each frame is: the lowest, for receiving, are with the kernel, or wait here with what has arrived
    /// since; of the others, the ones in a ring are with the kernel. One that was killed between two
    /// stores may have lost the frames of that round.
    fn take_over(&mut self) -> kernel::Result<()> {
        for _ in 0..self.layout.receive {
            if let Some(chunk) = self.pool.take(self.layout.send as usize) {
                self.pool.lend_for_receiving(chunk);
            }
        }
        for _ in 0..DRAINS_MAX {
            if self.send.taken() == self.completion.written() {
                break;
            }
            std::thread::sleep(DRAIN_PAUSE);
        }
        if self.send.taken() != self.completion.written() {
            return Err(libc::EBUSY);
        }
        let chunk = u64::from(self.layout.chunk);
        let unsent = self.send.left().into_iter().map(|entry| entry.addr);
        for address in unsent.chain(self.completion.left()) {
            self.pool.is_out_for_sending(address / chunk);
        }
        Ok(())
    }

    /// Interface, queue and sizes.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Frames that are neither with the kernel nor in use here.
    pub fn frames_free(&self) -> usize {
        self.pool.free()
    }

    /// Gives the kernel a frame to receive into; the caller has made sure of room.
    fn lend(&mut self, chunk: Chunk) {
        let index = self.pool.lend_for_receiving(chunk);
        self.fill
            .push(u64::from(index) * u64::from(self.layout.chunk));
    }

    /// The kernel's answers to a received frame's place: its chunk and where the bytes begin in it.
    fn locate(&mut self, address: u64) -> Option<(Chunk, usize)> {
        let size = u64::from(self.layout.chunk);
        let chunk = self.pool.received(address / size)?;
        Some((chunk, (address % size) as usize))
    }

    /// Takes some entries of the receive ring; how many frames were handed on.
    fn receive_some(&mut self, most: usize, take: &mut dyn FnMut(&[Frame])) -> usize {
        let room = self.fill.room(BURST as u32).min(self.receive.waiting()) as usize;
        let mut entries = [NO_ENTRY; BURST];
        let entries = &mut entries[..most.min(room).min(BURST)];
        entries.fill_with(|| self.receive.pop());
        let (mut rest, mut taken) = (&entries[..], 0);
        while let Some((first, behind)) = rest.split_first() {
            let whole = match self.is_joining {
                true => 0,
                false => rest.iter().take_while(|one| !is_continued(one)).count(),
            };
            if whole > 0 {
                taken += self.hand_on(&rest[..whole], take);
                rest = &rest[whole..];
            } else {
                taken += usize::from(self.join(first, take));
                rest = behind;
            }
        }
        taken
    }

    /// Hands frames on that lie in one chunk each.
    fn hand_on(&mut self, entries: &[libc::xdp_desc], take: &mut dyn FnMut(&[Frame])) -> usize {
        let mut places = [const { None }; BURST];
        for (entry, place) in entries.iter().zip(&mut places) {
            *place = self.locate(entry.addr);
        }
        let mut frames = [received(&[], false); BURST];
        let mut count = 0;
        for (entry, place) in entries.iter().zip(&places) {
            let bytes = place
                .as_ref()
                .and_then(|(chunk, offset)| self.frames.read(chunk, *offset, entry.len as usize));
            if let Some(bytes) = bytes {
                frames[count] = received(bytes, self.layout.has_partial_checksums);
                count += 1;
            }
        }
        if count > 0 {
            take(&frames[..count]);
        }
        self.counters.receive_invalid += (entries.len() - count) as u64;
        for (chunk, _) in places.into_iter().flatten() {
            self.lend(chunk);
        }
        count
    }

    /// Takes a part of a frame; true when it was the last one, and the frame was handed on.
    fn join(&mut self, entry: &libc::xdp_desc, take: &mut dyn FnMut(&[Frame])) -> bool {
        let Some((chunk, offset)) = self.locate(entry.addr) else {
            self.counters.receive_invalid += 1;
            return false;
        };
        let mut is_frame = false;
        match self.frames.read(&chunk, offset, entry.len as usize) {
            Some(bytes) => {
                // One byte too many marks a frame that is too long.
                let room = FRAME_MAX + 1 - self.joined.len();
                let kept = &bytes[..bytes.len().min(room)];
                self.joined.extend_from_slice(kept);
                self.is_joining = is_continued(entry);
                if !self.is_joining {
                    is_frame = self.joined.len() <= FRAME_MAX;
                    match is_frame {
                        true => take(&[received(&self.joined, self.layout.has_partial_checksums)]),
                        false => self.counters.receive_invalid += 1,
                    }
                    self.joined.clear();
                }
            }
            None => self.counters.receive_invalid += 1,
        }
        self.lend(chunk);
        is_frame
    }

    /// Has the kernel look for frames, where it asks for that or has no other trigger.
    fn wake_receiver(&mut self) {
        if self.layout.busy_poll_us > 0 || self.fill.needs_wakeup() {
            self.counters.kernel_calls += 1;
            let _ = kernel::receive(self.socket.0, &mut [], libc::MSG_DONTWAIT);
        }
    }

    /// Takes back frames that have left.
    fn reclaim(&mut self) {
        let size = u64::from(self.layout.chunk);
        let count = self.completion.waiting();
        for _ in 0..count {
            let address = self.completion.pop();
            match self.pool.sent(address / size) {
                Some(chunk) => self.pool.give(chunk),
                None => self.counters.send_errors += 1,
            }
        }
        if count > 0 {
            self.completion.release();
        }
    }

    /// Places for a frame of so many chunks; none unless there are all.
    fn places(&mut self, count: usize) -> bool {
        let has_room = |device: &mut Self| {
            device.pool.free() >= count && device.send.room(count as u32) as usize >= count
        };
        if has_room(self) {
            return true;
        }
        self.reclaim();
        has_room(self)
    }

    fn push(&mut self, chunk: Chunk, length: usize, is_continued: bool) {
        let index = self.pool.lend_for_sending(chunk);
        self.send.push(libc::xdp_desc {
            addr: u64::from(index) * u64::from(self.layout.chunk),
            len: length as u32,
            options: if is_continued { CONTINUED } else { 0 },
        });
        self.has_unpublished = true;
    }

    fn send_joined(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) {
        let mut whole = vec![0; length];
        fill(&mut whole);
        let mut pieces = whole.chunks(self.frames.chunk()).peekable();
        while let Some(piece) = pieces.next() {
            let Some(mut chunk) = self.pool.take(0) else {
                return;
            };
            if let Some(place) = self.frames.write(&mut chunk, piece.len()) {
                place.copy_from_slice(piece);
            }
            self.push(chunk, piece.len(), pieces.peek().is_some());
        }
    }
}

fn is_continued(entry: &libc::xdp_desc) -> bool {
    entry.options & CONTINUED != 0
}

fn received(bytes: &[u8], has_partial_checksums: bool) -> Frame<'_> {
    Frame {
        bytes,
        checksum: if has_partial_checksums {
            Checksum::Partial
        } else {
            Checksum::Unknown
        },
        segment_size: 0,
    }
}

impl Device for Xdp {
    fn capabilities(&self) -> Capabilities {
        let packet = self.packet.as_ref().map(Sender::capabilities);
        Capabilities {
            mtu: self.layout.mtu,
            segments_max: packet.map_or(0, |packet| packet.segments_max),
            checksum: packet.is_some_and(|packet| packet.checksum),
            batch: BATCH,
        }
    }

    fn set_mtu(&mut self, mtu: u32) {
        self.layout.mtu = mtu.min(self.layout.mtu_max());
        if let Some(packet) = &mut self.packet {
            packet.set_mtu(self.layout.mtu);
        }
    }

    fn receive(&mut self, most: usize, take: &mut dyn FnMut(Frame)) -> Result<usize, Error> {
        self.receive_bursts(most, &mut |burst| {
            burst.iter().copied().for_each(&mut *take)
        })
    }

    fn receive_bursts(
        &mut self,
        most: usize,
        take: &mut dyn FnMut(&[Frame]),
    ) -> Result<usize, Error> {
        if self.receive.waiting() == 0 {
            self.wake_receiver();
        }
        let mut taken = 0;
        let mut has_looked = false;
        while taken < most && self.receive.waiting() > 0 && self.fill.room(1) > 0 {
            taken += self.receive_some(most - taken, take);
            has_looked = true;
        }
        if has_looked {
            self.receive.release();
            self.fill.publish();
            self.counters.received += taken as u64;
        }
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
        let is_plain = offload.checksum.is_none() && offload.segments.is_none();
        if !is_plain || offload.in_order && self.packet.is_some() {
            return self.send_gathered(length, [&[], &[]], offload, fill);
        }
        let chunks = length.div_ceil(self.frames.chunk());
        if !self.places(chunks) {
            self.counters.send_full += 1;
            return Err(Error::Full);
        }
        if chunks > 1 {
            self.send_joined(length, fill);
        } else if let Some(mut chunk) = self.pool.take(0) {
            if let Some(place) = self.frames.write(&mut chunk, length) {
                fill(place);
            }
            self.push(chunk, length, false);
        }
        self.counters.sent += 1;
        Ok(())
    }

    fn send_gathered(
        &mut self,
        headers: usize,
        payload: [&[u8]; 2],
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        if offload.in_order && self.has_unpublished {
            // By the other queue, and not there yet.
            let _ = self.flush();
        }
        let sent = match &mut self.packet {
            Some(packet) => packet.send(headers, payload, offload, fill),
            None => Err(Error::Refused),
        };
        self.counters.kernel_calls += u64::from(sent != Err(Error::Refused));
        match sent {
            Ok(()) => self.counters.sent += 1,
            Err(Error::Full) => self.counters.send_full += 1,
            Err(_) => self.counters.send_errors += 1,
        }
        sent
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.has_unpublished {
            self.send.publish();
            self.has_unpublished = false;
        }
        self.has_refused = false;
        let mut pending = self.send.pending();
        for _ in 0..KICKS_MAX {
            if pending == 0 || !self.send.needs_wakeup() {
                break;
            }
            self.counters.kernel_calls += 1;
            let kicked = kernel::send_to(self.socket.0, &[], libc::MSG_DONTWAIT, &[]);
            let left = self.send.pending();
            match kicked {
                // More than one round of the kernel's.
                Ok(_) | Err(libc::EAGAIN) if left < pending => pending = left,
                Ok(_) | Err(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS) => break,
                Err(libc::EINTR) => {}
                Err(error) => return Err(Error::Kernel(error)),
            }
        }
        self.has_refused = self.send.pending() > 0 && self.send.needs_wakeup();
        self.reclaim();
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        self.has_refused
    }

    fn arm(&mut self) -> bool {
        // A sleep on a set of queues does not ask the kernel to look, as poll(2) of this socket would.
        if self.receive.waiting() == 0 && self.fill.needs_wakeup() {
            self.wake_receiver();
        }
        self.receive.waiting() > 0
    }

    fn poll_fd(&self) -> Option<i32> {
        Some(self.socket.0)
    }

    fn counters(&self) -> Counters {
        let mut counters = self.counters;
        // rx_dropped, rx_invalid, tx_invalid, rx_ring_full, fill_ring_empty, tx_ring_empty.
        let mut bytes = [0u8; 48];
        let fd = self.socket.0;
        if network::option(fd, libc::SOL_XDP, libc::XDP_STATISTICS, &mut bytes).is_ok() {
            let word = |at: usize| {
                let eight = bytes[at * 8..at * 8 + 8].try_into().unwrap_or_default();
                u64::from_ne_bytes(eight)
            };
            counters.receive_overruns += word(0) + word(3);
            counters.receive_invalid += word(1);
            counters.send_errors += word(2);
        }
        counters
    }
}
