//! Streams of stdio over connections: fdopen, freopen, fclose, fileno, and the standard streams.

use core::ffi::{c_char, c_int, c_void, CStr};
use core::sync::atomic::{AtomicPtr, Ordering};

use bypass_stack::listener;
use bypass_stack::operations::{datagrams, descriptors as stack_descriptors, shadow};
use bypass_stack::process::deferral::inside;
use bypass_stack::process::{pool, table};
use bypass_stats::Reason;
use bypass_sys::process::keeping_errno;
use libc::FILE;

use super::closing::close;
use super::creating::{or_give_back, taking};
use crate::outcome::{errno, fail, set_errno};
use crate::streams::Mode;
use crate::{real, streams};

#[repr(C)]
struct CookieFunctions {
    read: extern "C-unwind" fn(*mut c_void, *mut c_char, usize) -> isize,
    write: extern "C-unwind" fn(*mut c_void, *const c_char, usize) -> isize,
    seek: Option<extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: extern "C-unwind" fn(*mut c_void) -> c_int,
}

extern "C" {
    fn fopencookie(
        cookie: *mut c_void,
        mode: *const c_char,
        functions: CookieFunctions,
    ) -> *mut FILE;
}

/// The number that a stream reads and writes now; −1 where it was closed.
fn number(cookie: *mut c_void) -> c_int {
    streams::number(cookie as usize)
}

extern "C-unwind" fn cookie_read(cookie: *mut c_void, at: *mut c_char, length: usize) -> isize {
    let fd = number(cookie);
    if fd == libc::STDIN_FILENO {
        // SAFETY: stdio gives a writable buffer.
        let kept = streams::take_unread(unsafe {
            core::slice::from_raw_parts_mut(at.cast::<u8>(), length)
        });
        if kept > 0 {
            return kept as isize;
        }
    }
    // SAFETY: stdio gives a writable buffer.
    unsafe { super::data::read(fd, at.cast(), length) }
}

extern "C-unwind" fn cookie_write(cookie: *mut c_void, at: *const c_char, length: usize) -> isize {
    // SAFETY: stdio gives a readable buffer.
    let written = unsafe { super::data::write(number(cookie), at.cast(), length) };
    written.max(0)
}

/// The shadow of a socket has no place to go to, as the kernel says. Without an answer of ours libc takes it for an error
/// that lines are unread when a stream is flushed.
extern "C" fn cookie_seek(cookie: *mut c_void, place: *mut i64, from: c_int) -> c_int {
    // SAFETY: stdio gives a place of its own.
    let place = unsafe { &mut *place };
    // SAFETY: numbers only.
    let found = unsafe { libc::lseek(number(cookie), *place, from) };
    if found < 0 {
        return -1;
    }
    *place = found;
    0
}

extern "C-unwind" fn cookie_close(cookie: *mut c_void) -> c_int {
    let fd = number(cookie);
    restore_standard_stream(cookie as usize);
    streams::forget(cookie as usize);
    // SAFETY: numbers only.
    unsafe { close(fd) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn fileno_unlocked(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's stream; both are the same in libc.
    unsafe { fileno(stream) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn fileno(stream: *mut FILE) -> c_int {
    match streams::descriptor(stream) {
        Some(fd) if fd < 0 => fail(libc::EBADF),
        Some(fd) => fd,
        // SAFETY: the caller's stream.
        None => unsafe { real::fileno()(stream) },
    }
}

/// Runs a call by which libc closes the number of a stream of its own without a call of close that could be seen. What
/// the number means is over. The result, and the number.
unsafe fn giving_up_number<T>(stream: *mut FILE, call: impl FnOnce() -> T) -> (T, c_int) {
    // SAFETY: the caller's stream, or one that libc itself would not survive.
    let fd = keeping_errno(|| unsafe { real::fileno()(stream) });
    let is_ours = fd >= 0 && (!table::is_kernel(fd) || table::is_datagram(fd));
    if is_ours {
        inside(|| stack_descriptors::clear(fd));
    }
    let result = call();
    if is_ours {
        // Clients that waited at a listener whose last number this was.
        inside(listener::settle_waiting);
    }
    (result, fd)
}

/// libc closes the number without a call of close that could be seen: the next socket may have to take it.
#[no_mangle]
pub unsafe extern "C-unwind" fn fclose(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's stream.
    if let Some(result) = unsafe { close_replacement(stream) } {
        return result;
    }
    // SAFETY: as above.
    let (result, fd) = unsafe { giving_up_number(stream, || real::fclose()(stream)) };
    if fd >= 0 {
        pool::closed(fd);
    }
    result
}

type Reopen = unsafe extern "C-unwind" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;

#[no_mangle]
pub unsafe extern "C-unwind" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the caller's arguments.
    unsafe { reopen(real::freopen(), (path, mode), stream) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the caller's arguments.
    unsafe { reopen(real::freopen64(), (path, mode), stream) }
}

/// libc's own crashes on a stream that [reads and writes through the library](open_stream): that one stays what it is, and
/// its number means the file.
unsafe fn reopen(
    real: Reopen,
    (path, mode): (*const c_char, *const c_char),
    stream: *mut FILE,
) -> *mut FILE {
    if streams::descriptor(stream).is_some() {
        // SAFETY: a stream of ours; the caller's arguments.
        return unsafe { streams::locked(stream, || reopen_ours((path, mode), stream)) };
    }
    // SAFETY: the caller's arguments.
    let call = || unsafe {
        let (result, fd) = giving_up_number(stream, || real(path, mode, stream));
        if fd >= 0 && result.is_null() {
            pool::closed(fd);
        }
        result
    };
    match replacement_of(stream) {
        // SAFETY: what was found for the caller's stream.
        Some(replaced) => unsafe { take_place_back(stream, replaced, call) },
        None => call(),
    }
}

/// [`reopen`] of a stream that reads and writes through the library.
unsafe fn reopen_ours(
    (path, mode): (*const c_char, *const c_char),
    stream: *mut FILE,
) -> *mut FILE {
    let fd = streams::descriptor(stream).unwrap_or(-1);
    // SAFETY: the caller's mode.
    let mode = Mode::parse(unsafe { CStr::from_ptr(mode) });
    // SAFETY: a stream of ours; the caller's path.
    let made = unsafe {
        streams::finish(stream);
        mode.map_or_else(|| fail(libc::EINVAL), |mode| open_as(path, fd, mode.flags))
    };
    if fd == libc::STDIN_FILENO {
        streams::drop_unread();
    }
    let error = errno();
    if made < 0 && fd >= 0 {
        // SAFETY: numbers only.
        unsafe { close(fd) };
    }
    streams::set_descriptor(stream, made);
    set_errno(error);
    match mode.filter(|_| made >= 0) {
        // SAFETY: as above.
        Some(mode) => unsafe {
            streams::set_mode(stream, mode);
            stream
        },
        None => core::ptr::null_mut(),
    }
}

/// Opens a file, or what `fd` means once more, as `fd`. The number, or −1.
unsafe fn open_as(path: *const c_char, fd: c_int, flags: c_int) -> c_int {
    const RIGHTS: usize = 0o666;
    let itself = std::ffi::CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    let path = if path.is_null() {
        itself.as_ptr()
    } else {
        path
    };
    // SAFETY: the caller's path, or ours.
    let made = or_give_back(|| unsafe { real::open()(path, flags, RIGHTS) });
    if made < 0 || fd < 0 || made == fd {
        return made;
    }
    let dup3 = real::dup3();
    inside(|| stack_descriptors::clear(fd));
    // SAFETY: numbers only.
    unsafe {
        let moved = taking(|| dup3(made, fd, flags & libc::O_CLOEXEC));
        inside(listener::settle_waiting);
        keeping_errno(|| close(made));
        moved
    }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    match table::get(fd).kind() {
        // SAFETY: the caller's mode.
        table::Kind::Connected => return unsafe { open_stream(fd, mode) },
        table::Kind::Unbound => inside(|| shadow::leave_to_kernel(fd, Reason::Stdio)),
        table::Kind::Datagram => inside(|| datagrams::close(fd)),
        table::Kind::Pooled | table::Kind::Internal => {
            set_errno(libc::EBADF);
            return core::ptr::null_mut();
        }
        _ => {}
    }
    // SAFETY: the caller's arguments.
    unsafe { real::fdopen()(fd, mode) }
}

/// A stream of libc's that reads and writes through the library, whatever `fd` means by then.
unsafe fn open_stream(fd: c_int, mode: *const c_char) -> *mut FILE {
    let functions = CookieFunctions {
        read: cookie_read,
        write: cookie_write,
        seek: Some(cookie_seek),
        close: cookie_close,
    };
    let cookie = streams::begin(fd);
    // SAFETY: the mode is the caller's; the cookie is a number.
    let stream = unsafe { fopencookie(cookie as *mut c_void, mode, functions) };
    streams::note(cookie, stream);
    stream
}

extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// Where libc keeps the stream of a standard number, and its mode.
fn standard_stream(fd: c_int) -> Option<(*mut *mut FILE, &'static CStr)> {
    match fd {
        libc::STDIN_FILENO => Some((&raw mut stdin, c"r")),
        libc::STDOUT_FILENO => Some((&raw mut stdout, c"w")),
        libc::STDERR_FILENO => Some((&raw mut stderr, c"w")),
        _ => None,
    }
}

/// A standard number leads to a connection: libc's own stream reads and writes around the library, so another takes
/// its place, for good, with the bytes that the former has not written and those not yet read from it.
pub fn replace_standard_stream(fd: c_int) {
    let Some((place, mode)) = standard_stream(fd) else {
        return;
    };
    let is_ours = matches!(
        table::get(fd).kind(),
        table::Kind::Connected | table::Kind::Unbound
    );
    // SAFETY: libc's variable, which the program may have set.
    let former = unsafe { *place };
    if !is_ours || former.is_null() || streams::descriptor(former) == Some(fd) {
        return;
    }
    // SAFETY: a stream of libc's or of the program's; the mode is a text.
    unsafe {
        // A stream that the program has put there itself leads elsewhere.
        if real::fileno()(former) != fd {
            return;
        }
        let stream = match earlier_replacement(fd, mode) {
            Some(stream) => stream,
            None => open_stream(fd, mode.as_ptr()),
        };
        if stream.is_null() {
            return;
        }
        streams::move_over(former, stream);
        *place = stream;
    }
    FORMER[fd as usize].store(former, Ordering::Release);
}

/// The streams whose place others have taken.
static FORMER: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 3];

/// Those others, where the former ones have their place again.
static EARLIER: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 3];

/// A stream that had the place of a standard number before takes it once more, empty. None where there is none, or the
/// program has opened it again as something else.
unsafe fn earlier_replacement(fd: c_int, mode: &CStr) -> Option<*mut FILE> {
    let earlier = EARLIER[fd as usize].swap(core::ptr::null_mut(), Ordering::AcqRel);
    let number = streams::descriptor(earlier)?;
    let mode = Mode::parse(mode).filter(|_| number == fd || number < 0)?;
    // SAFETY: a stream of ours, which is open.
    unsafe {
        streams::locked(earlier, || {
            streams::finish(earlier);
            streams::set_descriptor(earlier, fd);
            streams::keep_much_in(earlier);
            streams::set_mode(earlier, mode);
        });
    }
    Some(earlier)
}

/// The number of a stream whose place another has taken, that place, and who has it.
type Replaced = (c_int, *mut *mut FILE, *mut FILE);

fn replacement_of(stream: *mut FILE) -> Option<Replaced> {
    let is_it = |former: &AtomicPtr<FILE>| former.load(Ordering::Acquire) == stream;
    let fd = FORMER.iter().position(is_it)? as c_int;
    let (place, _) = standard_stream(fd).filter(|_| !stream.is_null())?;
    // SAFETY: libc's variable.
    let replacement = unsafe { *place };
    let is_ours = replacement != stream && streams::descriptor(replacement) == Some(fd);
    is_ours.then_some((fd, place, replacement))
}

/// Closes the stream that has taken the place of this one, whose number and bytes it has: what the program closes by the
/// pointer that it has kept. None where no other has its place.
unsafe fn close_replacement(stream: *mut FILE) -> Option<c_int> {
    let (_, _, replacement) = replacement_of(stream)?;
    // SAFETY: streams that are open.
    unsafe {
        // Bytes that were written to it since.
        streams::move_over(stream, replacement);
        Some(real::fclose()(replacement))
    }
}

/// A stream whose place another has taken is opened again: the place is its own again, and the number all the time, which
/// would be another thread's if it were closed before. The other stays, for threads that still write to it: they wait until
/// the number leads elsewhere, and what they write goes there, or nowhere.
unsafe fn take_place_back(
    stream: *mut FILE,
    (fd, place, replacement): Replaced,
    reopen: impl FnOnce() -> *mut FILE,
) -> *mut FILE {
    let work = || {
        // SAFETY: streams that are open, and libc's variable.
        unsafe {
            // Bytes that were written to it since.
            streams::move_over(stream, replacement);
            streams::finish(replacement);
            streams::keep_nothing_in(replacement);
            *place = stream;
        }
        if fd == libc::STDIN_FILENO {
            streams::drop_unread();
        }
        let result = reopen();
        if result.is_null() {
            // Closed, and the next connection's.
            streams::set_descriptor(replacement, -1);
        }
        EARLIER[fd as usize].store(replacement, Ordering::Release);
        result
    };
    // SAFETY: a stream of ours.
    unsafe { streams::locked(replacement, work) }
}

/// A stream is closed, and its memory another's from now on: it leaves a place that it has taken, and takes none again.
fn restore_standard_stream(cookie: usize) {
    for earlier in &EARLIER {
        let stream = earlier.load(Ordering::Acquire);
        if streams::is_of(cookie, stream) {
            earlier.store(core::ptr::null_mut(), Ordering::Release);
        }
    }
    for (fd, former) in FORMER.iter().enumerate() {
        let former = former.load(Ordering::Acquire);
        let Some((place, _)) = standard_stream(fd as c_int).filter(|_| !former.is_null()) else {
            continue;
        };
        // SAFETY: libc's variable.
        if streams::is_of(cookie, unsafe { *place }) {
            // SAFETY: as above.
            unsafe { *place = former };
            if fd as c_int == libc::STDIN_FILENO {
                streams::drop_unread();
            }
        }
    }
}

/// A program that was started with connections as its standard streams, as inetd and systemd start servers.
pub fn replace_standard_streams() {
    (libc::STDIN_FILENO..=libc::STDERR_FILENO).for_each(replace_standard_stream);
}
