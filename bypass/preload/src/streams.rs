//! The stdio streams that were opened over connections, with their descriptors.

use core::ffi::{c_char, c_void};
use std::sync::Mutex;

use libc::{c_int, FILE};

use crate::locking::lock;

static STREAMS: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

/// What libc's own standard input had read ahead when another stream took its place.
static UNREAD: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Holds both across a fork, so that the child finds them whole and free.
pub fn hold() -> impl Sized {
    (lock(&STREAMS).ok(), lock(&UNREAD).ok())
}

/// The descriptor of a stream, when it is one of these.
pub fn descriptor(stream: *mut FILE) -> Option<c_int> {
    let streams = lock(&STREAMS).ok()?;
    let of_stream = |entry: &&(usize, c_int)| entry.0 == stream as usize;
    streams.iter().find(of_stream).map(|(_, fd)| *fd)
}

/// Notes a stream.
pub fn note(stream: *mut FILE, fd: c_int) {
    if let Ok(mut streams) = lock(&STREAMS) {
        streams.push((stream as usize, fd));
    }
}

/// Forgets the stream over a descriptor.
pub fn forget(fd: c_int) {
    if let Ok(mut streams) = lock(&STREAMS) {
        streams.retain(|(_, of)| *of != fd);
    }
}

/// The start of a FILE, as <bits/types/struct_FILE.h> shows it to programs.
#[repr(C)]
struct Buffer {
    flags: c_int,
    read_at: *const u8,
    read_end: *const u8,
    read_start: *const u8,
    write_start: *const u8,
    write_at: *const u8,
}

/// Flags of a FILE: without a buffer, with one for lines, and in the middle of writing.
const UNBUFFERED: c_int = 2;
const BY_LINES: c_int = 0x200;
const IS_WRITING: c_int = 0x800;

extern "C" {
    fn __fpurge(stream: *mut FILE);
    fn setvbuf(stream: *mut FILE, buffer: *mut c_char, mode: c_int, size: usize) -> c_int;
    fn fwrite(from: *const c_void, size: usize, count: usize, to: *mut FILE) -> usize;
}

/// Gives a new stream what a former one holds, and its way of buffering.
///
/// # Safety
/// Both are streams of libc's that no other thread uses now; the new one has not been used.
pub unsafe fn move_over(former: *mut FILE, new: *mut FILE) {
    // SAFETY: the caller's stream begins so.
    let buffer = unsafe { &*former.cast::<Buffer>() };
    let mode = match buffer.flags {
        flags if flags & UNBUFFERED != 0 => Some(libc::_IONBF),
        flags if flags & BY_LINES != 0 => Some(libc::_IOLBF),
        _ => None,
    };
    if let Some(mode) = mode {
        // SAFETY: the caller's stream, with a buffer that libc makes.
        unsafe { setvbuf(new, core::ptr::null_mut(), mode, libc::BUFSIZ as usize) };
    }
    let is_writing = buffer.flags & IS_WRITING != 0;
    let (from, to) = if is_writing {
        (buffer.write_start, buffer.write_at)
    } else {
        (buffer.read_at, buffer.read_end)
    };
    let length = (to as usize).saturating_sub(from as usize);
    if from.is_null() || length == 0 {
        return;
    }
    if is_writing {
        // SAFETY: libc's own buffer, of that length.
        unsafe { fwrite(from.cast(), 1, length, new) };
    } else if let Ok(mut unread) = lock(&UNREAD) {
        // SAFETY: as above.
        unread.extend_from_slice(unsafe { core::slice::from_raw_parts(from, length) });
    }
    // SAFETY: the caller's stream.
    unsafe { __fpurge(former) };
}

/// Takes what was read ahead; how much.
pub fn take_unread(to: &mut [u8]) -> usize {
    let Ok(mut unread) = lock(&UNREAD) else {
        return 0;
    };
    let count = to.len().min(unread.len());
    to[..count].copy_from_slice(&unread[..count]);
    unread.drain(..count);
    count
}

/// Standard input is closed.
pub fn drop_unread() {
    if let Ok(mut unread) = lock(&UNREAD) {
        unread.clear();
    }
}
