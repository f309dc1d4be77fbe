//! The stdio streams that were opened over connections, with their descriptors.

use core::ffi::{c_char, c_void, CStr};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use bypass_stack::process::deferral::inside;
use libc::{c_int, FILE};

use crate::locking::lock;

/// A stream over a number.
struct Open {
    /// The value that libc gives back in each call.
    cookie: usize,
    /// Its address, 0 while it is made.
    stream: usize,
    /// −1 where it could not be opened again.
    fd: c_int,
    /// Where libc's own buffer was given up; empty before.
    buffer: Vec<u8>,
}

static STREAMS: Mutex<Vec<Open>> = Mutex::new(Vec::new());

/// What libc's own standard input had read ahead when another stream took its place.
static UNREAD: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Does something with one of both, if it can be locked. A handler that ran meanwhile and called fork or dup2 would wait
/// for its own thread.
fn with<T, R>(what: &'static Mutex<T>, work: impl FnOnce(&mut T) -> R) -> Option<R> {
    inside(|| lock(what).ok().map(|mut locked| work(&mut locked)))
}

/// Holds both across a fork, so that the child finds them whole and free.
pub fn hold() -> impl Sized {
    (lock(&STREAMS).ok(), lock(&UNREAD).ok())
}

/// A stream over `fd` is about to be made: its cookie.
pub fn begin(fd: c_int) -> usize {
    static COOKIES: AtomicUsize = AtomicUsize::new(1);
    let cookie = COOKIES.fetch_add(1, Ordering::Relaxed);
    let (stream, buffer) = (0, Vec::new());
    with(&STREAMS, |streams| {
        streams.push(Open {
            cookie,
            stream,
            fd,
            buffer,
        });
    });
    cookie
}

/// It is made; null: it is not.
pub fn note(cookie: usize, stream: *mut FILE) {
    if stream.is_null() {
        return forget(cookie);
    }
    change(
        |one| one.cookie == cookie,
        |one| one.stream = stream as usize,
    );
}

fn change(which: impl Fn(&Open) -> bool, change: impl FnOnce(&mut Open)) {
    with(&STREAMS, |streams| {
        streams.iter_mut().find(|one| which(one)).map(change);
    });
}

fn find(which: impl Fn(&Open) -> bool) -> Option<c_int> {
    with(&STREAMS, |streams| {
        let found = streams.iter().find(|one| which(one));
        found.map(|one| one.fd)
    })?
}

/// The number of the stream with this cookie; −1 where it has none.
pub fn number(cookie: usize) -> c_int {
    find(|one| one.cookie == cookie).unwrap_or(-1)
}

/// The descriptor of a stream, when it is one of these; −1 where it has none any more.
pub fn descriptor(stream: *mut FILE) -> Option<c_int> {
    find(|one| one.stream == stream as usize)
}

/// The stream means another number, or none.
pub fn set_descriptor(stream: *mut FILE, fd: c_int) {
    change(|one| one.stream == stream as usize, |one| one.fd = fd);
}

/// Whether this is the stream with that cookie.
pub fn is_of(cookie: usize, stream: *mut FILE) -> bool {
    find(|one| one.cookie == cookie && one.stream == stream as usize).is_some()
}

/// A stream is closed.
pub fn forget(cookie: usize) {
    with(&STREAMS, |streams| {
        streams.retain(|one| one.cookie != cookie);
    });
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
    write_end: *const u8,
}

/// Flags of a FILE: without a buffer, with one for lines, and in the middle of writing.
const UNBUFFERED: c_int = 2;
const BY_LINES: c_int = 0x200;
const IS_WRITING: c_int = 0x800;
/// It cannot be read, or written; it is written at the end; it has ended, or failed.
const NO_READS: c_int = 4;
const NO_WRITES: c_int = 8;
const APPENDS: c_int = 0x1000;
const HAS_ENDED: c_int = 0x10;
const HAS_FAILED: c_int = 0x20;

/// How a stream is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// As open(2) takes them.
    pub flags: c_int,
    of_file: c_int,
}

impl Mode {
    /// As fopen(3) takes it; None where it is none.
    pub fn parse(mode: &CStr) -> Option<Self> {
        let (first, others) = mode.to_bytes().split_first()?;
        let (only, mut flags, of_file) = match first {
            b'r' => (libc::O_RDONLY, 0, NO_WRITES),
            b'w' => (libc::O_WRONLY, libc::O_CREAT | libc::O_TRUNC, NO_READS),
            b'a' => (
                libc::O_WRONLY,
                libc::O_CREAT | libc::O_APPEND,
                NO_READS | APPENDS,
            ),
            _ => return None,
        };
        // A character set follows the comma.
        let others = others.split(|letter| *letter == b',').next()?;
        for letter in others {
            flags |= match letter {
                b'x' => libc::O_EXCL,
                b'e' => libc::O_CLOEXEC,
                _ => 0,
            };
        }
        let is_both = others.contains(&b'+');
        Some(Self {
            flags: flags | if is_both { libc::O_RDWR } else { only },
            of_file: if is_both { of_file & APPENDS } else { of_file },
        })
    }
}

extern "C" {
    fn fflush(stream: *mut FILE) -> c_int;
    fn __fpurge(stream: *mut FILE);
    fn setvbuf(stream: *mut FILE, buffer: *mut c_char, mode: c_int, size: usize) -> c_int;
    fn flockfile(stream: *mut FILE);
    fn funlockfile(stream: *mut FILE);
    fn fwrite(from: *const c_void, size: usize, count: usize, to: *mut FILE) -> usize;
}

/// Does something with a stream that no other thread uses meanwhile.
///
/// # Safety
/// A stream of libc's.
pub unsafe fn locked<T>(stream: *mut FILE, work: impl FnOnce() -> T) -> T {
    /// Unlocks also where the thread is cancelled meanwhile.
    struct Held(*mut FILE);
    impl Drop for Held {
        fn drop(&mut self) {
            // SAFETY: locked below.
            unsafe { funlockfile(self.0) };
        }
    }
    // SAFETY: the caller's stream; its lock counts how often this thread has it.
    unsafe { flockfile(stream) };
    let _held = Held(stream);
    work()
}

/// Gives a new stream what a former one holds, and its way of buffering.
///
/// # Safety
/// Both are streams of libc's that no other thread uses now.
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
    } else {
        // SAFETY: as above.
        let bytes = unsafe { core::slice::from_raw_parts(from, length) };
        with(&UNREAD, |unread| unread.extend_from_slice(bytes));
    }
    // SAFETY: the caller's stream.
    unsafe { __fpurge(former) };
}

/// Before a stream is opened again: what it holds is written, if it can be, or dropped.
///
/// # Safety
/// A stream of libc's.
pub unsafe fn finish(stream: *mut FILE) {
    // SAFETY: the caller's stream.
    unsafe {
        fflush(stream);
        __fpurge(stream);
    }
}

/// From now on what is written to a stream goes on at once.
///
/// # Safety
/// A stream of libc's, which holds nothing.
pub unsafe fn keep_nothing_in(stream: *mut FILE) {
    // SAFETY: the caller's stream.
    unsafe { setvbuf(stream, core::ptr::null_mut(), libc::_IONBF, 0) };
}

/// A stream that [kept nothing](keep_nothing_in) has a buffer again, as a new one: ours, since libc makes none twice.
///
/// # Safety
/// A stream of these that holds nothing and that no other thread uses now.
pub unsafe fn keep_much_in(stream: *mut FILE) {
    let mut at = core::ptr::null_mut::<c_char>();
    change(
        |one| one.stream == stream as usize,
        |one| {
            one.buffer.resize(libc::BUFSIZ as usize, 0);
            at = one.buffer.as_mut_ptr().cast();
        },
    );
    if !at.is_null() {
        // SAFETY: the caller's stream; the buffer stays where it is until the stream is closed.
        unsafe { setvbuf(stream, at, libc::_IOFBF, libc::BUFSIZ as usize) };
    }
}

/// A stream was opened again.
///
/// # Safety
/// A stream of libc's that no other thread uses now.
pub unsafe fn set_mode(stream: *mut FILE, mode: Mode) {
    const FORMER: c_int = NO_READS | NO_WRITES | APPENDS | HAS_ENDED | HAS_FAILED | IS_WRITING;
    // SAFETY: the caller's stream begins so.
    let buffer = unsafe { &mut *stream.cast::<Buffer>() };
    buffer.flags = buffer.flags & !FORMER | mode.of_file;
    // Neither read nor written yet: libc looks at the flags before it does one of both.
    let empty = buffer.read_start;
    (buffer.read_at, buffer.read_end) = (empty, empty);
    (buffer.write_start, buffer.write_at, buffer.write_end) = (empty, empty, empty);
}

/// Takes what was read ahead; how much.
pub fn take_unread(to: &mut [u8]) -> usize {
    let taken = with(&UNREAD, |unread| {
        let count = to.len().min(unread.len());
        to[..count].copy_from_slice(&unread[..count]);
        unread.drain(..count);
        count
    });
    taken.unwrap_or(0)
}

/// Standard input is closed.
pub fn drop_unread() {
    with(&UNREAD, Vec::clear);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_what_fopen_takes() {
        let parse = |mode| Mode::parse(mode).map(|mode| (mode.flags, mode.of_file));
        let append = libc::O_CREAT | libc::O_APPEND;
        assert_eq!(parse(c"r"), Some((libc::O_RDONLY, NO_WRITES)));
        assert_eq!(parse(c"rb+"), Some((libc::O_RDWR, 0)));
        assert_eq!(
            parse(c"wxe"),
            Some((
                libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_EXCL | libc::O_CLOEXEC,
                NO_READS
            ))
        );
        assert_eq!(parse(c"a+"), Some((libc::O_RDWR | append, APPENDS)));
        // Of the character set no letter counts.
        assert_eq!(parse(c"r,ccs=exe"), Some((libc::O_RDONLY, NO_WRITES)));
        assert_eq!([c"", c"+", c"x"].map(parse), [None; 3]);
    }
}
