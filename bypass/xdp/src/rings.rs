//! The memory of a socket's four rings, and who inherits it.

use std::sync::Arc;

use bypass_sys::kernel::Result;
use bypass_sys::network;
use bypass_sys::region::Region;

use crate::sys::ring::{Entry, Offsets, Ring};

/// Entries of the rings for receiving, and of those for sending.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub receive: u32,
    pub send: u32,
}

// Offsets at which the rings of a socket are mapped.
const PAGE_RX: u64 = 0;
const PAGE_TX: u64 = 0x8000_0000;
const PAGE_FILL: u64 = 0x1_0000_0000;
const PAGE_COMPLETION: u64 = 0x1_8000_0000;

/// The memory of the four rings of a socket. Children inherit it, unless the process uses the socket itself.
#[derive(Debug)]
pub struct RingMemory {
    offsets: [Offsets; 4],
    /// Receive, send, fill, completion.
    memory: [Arc<Region>; 4],
}

impl RingMemory {
    /// Maps it. EBUSY: the socket is bound, which kernels before Linux 6.4 do not allow.
    pub fn map(socket: i32, sizes: Sizes) -> Result<Self> {
        let offsets = ring_offsets(socket)?;
        let map = |ring: usize, page, entries: u32, size: usize| {
            let length = offsets[ring].entries as usize + entries as usize * size;
            Region::map(socket, page, length).map(Arc::new)
        };
        let (frame, address) = (size_of::<libc::xdp_desc>(), size_of::<u64>());
        Ok(Self {
            memory: [
                map(0, PAGE_RX, sizes.receive, frame)?,
                map(1, PAGE_TX, sizes.send, frame)?,
                map(2, PAGE_FILL, sizes.receive, address)?,
                map(3, PAGE_COMPLETION, sizes.send, address)?,
            ],
            offsets,
        })
    }

    fn ring<T: Entry>(&self, number: usize, entries: u32) -> Result<Ring<T>> {
        Ring::over(self.memory[number].clone(), self.offsets[number], entries)
    }

    /// Frames that have arrived.
    pub fn receive(&self, sizes: Sizes) -> Result<Ring<libc::xdp_desc>> {
        Ok(self.ring(0, sizes.receive)?.reading())
    }

    /// Frames to send.
    pub fn send(&self, sizes: Sizes) -> Result<Ring<libc::xdp_desc>> {
        self.ring(1, sizes.send)
    }

    /// Places to receive into.
    pub fn fill(&self, sizes: Sizes) -> Result<Ring<u64>> {
        self.ring(2, sizes.receive)
    }

    /// Frames that have been sent.
    pub fn completion(&self, sizes: Sizes) -> Result<Ring<u64>> {
        Ok(self.ring(3, sizes.send)?.reading())
    }
}

/// The memory of a socket that this process uses. Children do not inherit it meanwhile: they may live longer, and
/// would keep the socket.
#[derive(Debug)]
pub struct UsedRings(pub Arc<RingMemory>);

impl UsedRings {
    /// From now on.
    pub fn of(rings: Arc<RingMemory>) -> Self {
        rings
            .memory
            .iter()
            .for_each(|one| one.keep_from_children(true));
        Self(rings)
    }
}

impl Drop for UsedRings {
    fn drop(&mut self) {
        let all = self.0.memory.iter();
        all.for_each(|one| one.keep_from_children(false));
    }
}

/// Where the parts of the four rings lie: receive, send, fill, completion.
fn ring_offsets(socket: i32) -> Result<[Offsets; 4]> {
    let mut bytes = [0u8; 128];
    let count = network::option(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut bytes)?;
    if count < bytes.len() {
        return Err(libc::ENOSYS);
    }
    let word = |at: usize| {
        let eight = bytes[at * 8..at * 8 + 8].try_into().unwrap_or_default();
        u64::from_ne_bytes(eight)
    };
    Ok([0, 1, 2, 3].map(|ring| Offsets {
        producer: word(ring * 4),
        consumer: word(ring * 4 + 1),
        entries: word(ring * 4 + 2),
        flags: word(ring * 4 + 3),
    }))
}
