//! The memory of frames (UMEM): a chunk is read and written by the holder of its [`Chunk`].

use bypass_device::pool::Chunk;
use bypass_sys::kernel::Result;
use bypass_sys::region::Region;

/// The mapped memory.
#[derive(Debug)]
pub struct Frames {
    memory: Region,
    chunk: usize,
}

impl Frames {
    /// Maps `count` chunks of `chunk` bytes of a file.
    pub fn map(fd: i32, count: u32, chunk: u32) -> Result<Self> {
        let memory = Region::map(fd, 0, count as usize * chunk as usize)?;
        let chunk = chunk as usize;
        Ok(Self { memory, chunk })
    }

    /// Address and length, for the registration.
    pub fn place(&self) -> (usize, usize) {
        (self.memory.base(), self.memory.len())
    }

    /// Bytes of one chunk.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    fn at(&self, chunk: &Chunk, offset: usize, length: usize) -> Option<*mut u8> {
        let is_inside = offset.checked_add(length)? <= self.chunk;
        let start = chunk.index() as usize * self.chunk;
        is_inside.then(|| self.memory.at(start + offset, length))?
    }

    /// Bytes of a chunk; None when they reach beyond it.
    #[inline]
    pub fn read<'a>(&'a self, chunk: &'a Chunk, offset: usize, length: usize) -> Option<&'a [u8]> {
        let at = self.at(chunk, offset, length)?;
        // SAFETY: inside the mapping; the holder of the chunk is the only one to use it, because the
        // pool gives each out once and the kernel, or the other end of a link in memory, uses only what
        // was given to it.
        Some(unsafe { core::slice::from_raw_parts(at, length) })
    }

    /// The first bytes of a chunk, to be written; None when there are not so many.
    #[inline]
    pub fn write<'a>(&'a self, chunk: &'a mut Chunk, length: usize) -> Option<&'a mut [u8]> {
        let at = self.at(chunk, 0, length)?;
        // SAFETY: as above, and the chunk is borrowed for writing.
        Some(unsafe { core::slice::from_raw_parts_mut(at, length) })
    }
}
