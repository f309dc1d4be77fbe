//! The library's own memory.
//!
//! Signal handlers may call poll, select, accept, connect and close (signal-safety(7)), which need
//! memory here, and may have interrupted malloc(3), whose lock their thread then holds. So the
//! library takes no memory from malloc. It also has no lock that a forked child could inherit
//! taken: free blocks of each size are a stack whose top changes by one compare-and-swap, together
//! with a count that distinguishes a top that was removed and put back from one that stayed (ABA).
//! Memory for small blocks stays mapped: a thread may read the first word of a block that another
//! thread has just taken, and then does not use it.

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::kernel;

/// Smallest block, as a power of two: 16 bytes.
const SMALLEST: u32 = 4;
/// Sizes of blocks: the largest has 32 KiB. Larger ones have a mapping each.
const CLASSES: usize = 12;
/// Mapped at once for small blocks, and at least so many blocks of larger ones.
const CHUNK: usize = 32 << 10;
const BLOCKS_MIN: usize = 4;
const PAGE: usize = 4096;
/// An address of a program; the bits above count.
const ADDRESS: u64 = (1 << 48) - 1;
const STEP: u64 = 1 << 48;

/// By size: the free block on top, and the count.
static FREE: [AtomicU64; CLASSES] = [const { AtomicU64::new(0) }; CLASSES];

/// See the module.
#[derive(Debug)]
pub struct Allocator;

/// None for a block with a mapping of its own.
fn class_of(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(1 << SMALLEST);
    let class = (bytes.checked_next_power_of_two()?.trailing_zeros() - SMALLEST) as usize;
    (class < CLASSES && layout.align() <= PAGE).then_some(class)
}

fn bytes_of(class: usize) -> usize {
    1 << (class as u32 + SMALLEST)
}

/// Where a free block names the one below it.
///
/// # Safety
/// `block` belongs to this allocator: its memory stays mapped.
unsafe fn below<'a>(block: u64) -> &'a AtomicU64 {
    // SAFETY: the caller's promise; blocks are aligned to 16 bytes.
    unsafe { &*(block as *const AtomicU64) }
}

fn take(class: usize) -> Option<u64> {
    let mut top = FREE[class].load(Ordering::Acquire);
    loop {
        let block = top & ADDRESS;
        if block == 0 {
            return None;
        }
        // SAFETY: it was a free block. Another thread may have taken it: then the top has changed.
        let next = unsafe { below(block) }.load(Ordering::Relaxed) & ADDRESS;
        let changed = (top & !ADDRESS).wrapping_add(STEP) | next;
        match FREE[class].compare_exchange_weak(top, changed, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(block),
            Err(now) => top = now,
        }
    }
}

/// Puts blocks on top that name each other from `first` to `last`.
fn put(class: usize, first: u64, last: u64) {
    let mut top = FREE[class].load(Ordering::Relaxed);
    loop {
        // SAFETY: a free block of this allocator.
        unsafe { below(last) }.store(top & ADDRESS, Ordering::Relaxed);
        let changed = (top & !ADDRESS).wrapping_add(STEP) | first;
        match FREE[class].compare_exchange_weak(top, changed, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => top = now,
        }
    }
}

/// New blocks, of which one is returned; None without memory.
#[cold]
fn grow(class: usize) -> Option<u64> {
    let bytes = bytes_of(class);
    let length = CHUNK.max(BLOCKS_MIN * bytes);
    let first = map(length)?;
    let last = first + (length - bytes) as u64;
    let mut block = first + bytes as u64;
    while block < last {
        let next = block + bytes as u64;
        // SAFETY: inside the new mapping, not published yet.
        unsafe { below(block) }.store(next, Ordering::Relaxed);
        block = next;
    }
    put(class, first + bytes as u64, last);
    Some(first)
}

fn map(length: usize) -> Option<u64> {
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    let arguments = [0, length, access, flags, usize::MAX, 0];
    // SAFETY: a new mapping at an address of the kernel's choice disturbs no other memory.
    let mapped = kernel::check(unsafe { kernel::raw(libc::SYS_mmap, arguments) });
    mapped.ok().map(|at| at as u64)
}

fn whole_pages(layout: Layout) -> Option<usize> {
    let is_aligned = layout.align() <= PAGE;
    layout
        .size()
        .checked_next_multiple_of(PAGE)
        .filter(|_| is_aligned)
}

// SAFETY: a block is given to one caller at a time, is as large and as aligned as asked for, and stays mapped until it is
// given back; null stands for no memory.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = match class_of(layout) {
            Some(class) => take(class).or_else(|| grow(class)),
            None => whole_pages(layout).and_then(map),
        };
        block.unwrap_or(0) as *mut u8
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let block = at as u64;
        match (class_of(layout), whole_pages(layout)) {
            (Some(class), _) => put(class, block, block),
            (None, Some(length)) => {
                // SAFETY: mapped by `alloc` for this caller, which no longer uses it.
                let _ =
                    unsafe { kernel::raw(libc::SYS_munmap, [block as usize, length, 0, 0, 0, 0]) };
            }
            (None, None) => {}
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        let at = unsafe { self.alloc(layout) };
        // A mapping of its own is zero, and not memory yet.
        if !at.is_null() && class_of(layout).is_some() {
            // SAFETY: a block of at least this size.
            unsafe { at.write_bytes(0, layout.size()) };
        }
        at
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return core::ptr::null_mut();
        };
        if class_of(layout).is_some() && class_of(layout) == class_of(wanted) {
            return at;
        }
        // SAFETY: a valid layout.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: both blocks are the caller's, and as large.
            unsafe {
                core::ptr::copy_nonoverlapping(at, moved, layout.size().min(size));
                self.dealloc(at, layout);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(bytes: usize, align: usize) -> Layout {
        Layout::from_size_align(bytes, align).expect("a layout")
    }

    #[test]
    fn blocks_are_aligned_apart_and_used_again() {
        for (bytes, align) in [
            (1, 1),
            (16, 8),
            (17, 16),
            (100, 64),
            (5000, 4096),
            (40_000, 8),
        ] {
            let layout = layout(bytes, align);
            let blocks: Vec<*mut u8> = (0..300)
                // SAFETY: a layout of some bytes.
                .map(|_| unsafe { Allocator.alloc(layout) })
                .collect();
            for (index, block) in blocks.iter().enumerate() {
                assert!(!block.is_null() && block.addr().is_multiple_of(align));
                // SAFETY: the block has so many bytes.
                unsafe { block.write_bytes(index as u8, bytes) };
            }
            for (index, block) in blocks.iter().enumerate() {
                // SAFETY: as above.
                let last = unsafe { *block.add(bytes - 1) };
                assert_eq!(last, index as u8, "{bytes}");
                // SAFETY: allocated above and not used any more.
                unsafe { Allocator.dealloc(*block, layout) };
            }
        }
    }

    #[test]
    fn what_is_zeroed_is_zero_and_what_moves_keeps_its_bytes() {
        for bytes in [24, 3000, 100_000] {
            let small = layout(bytes, 8);
            // SAFETY: blocks of these sizes, each used within its bounds and given back once.
            unsafe {
                let used = Allocator.alloc(small);
                used.write_bytes(7, bytes);
                Allocator.dealloc(used, small);
                let zeroed = Allocator.alloc_zeroed(small);
                assert!((0..bytes).all(|at| *zeroed.add(at) == 0));
                zeroed.write_bytes(9, bytes);
                let moved = Allocator.realloc(zeroed, small, 3 * bytes);
                assert!((0..bytes).all(|at| *moved.add(at) == 9));
                Allocator.dealloc(moved, layout(3 * bytes, 8));
            }
        }
    }

    #[test]
    fn threads_never_have_the_same_block() {
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                scope.spawn(move || {
                    let layout = layout(48, 8);
                    let mut held = std::collections::VecDeque::new();
                    for round in 0..200_000usize {
                        // SAFETY: a block of 48 bytes, given back once.
                        unsafe {
                            let block = Allocator.alloc(layout);
                            block.write_bytes(thread, 48);
                            held.push_back(block);
                            if held.len() > round % 40 {
                                let oldest = held.pop_front().expect("not empty");
                                assert!((0..48).all(|at| *oldest.add(at) == thread));
                                Allocator.dealloc(oldest, layout);
                            }
                        }
                    }
                });
            }
        });
    }
}
