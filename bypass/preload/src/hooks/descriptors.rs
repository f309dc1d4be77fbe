//! Descriptors: close, dup, fcntl, ioctl, close_range, fdopen.

use core::ffi::{c_char, c_int, c_uint, c_void, CStr};
use core::sync::atomic::{AtomicPtr, Ordering};

use bypass_stack::listener;
use bypass_stack::operations::{datagrams, descriptors, options, shadow};
use bypass_stack::process::deferral::inside;
use bypass_stack::process::{pool, table};
use bypass_stats::Reason;
use bypass_sys::numbers;
use bypass_sys::process::keeping_errno;
use libc::FILE;

use super::creating::{or_give_back, taking};
use crate::address::is_wild;
use crate::cancel::point;
use crate::outcome::{fail, finish, set_errno};
use crate::{real, streams};

#[no_mangle]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    // SAFETY: numbers only.
    let kernel = || unsafe { real::close()(fd) };
    if table::is_kernel(fd) {
        if table::is_datagram(fd) {
            inside(|| datagrams::close(fd));
        }
        let result = numbers::closing(kernel);
        pool::closed(fd);
        return result;
    }
    let work = || inside(|| descriptors::close(fd));
    point(work, || kernel() as isize) as c_int
}

/// After the kernel has duplicated `fd`.
fn shared(fd: c_int, made: c_int) -> c_int {
    if made >= 0 && (!table::is_kernel(fd) || table::is_datagram(fd)) {
        inside(|| descriptors::duplicated(fd, made));
        if made <= libc::STDERR_FILENO {
            replace_standard_stream(made);
        }
    }
    made
}

#[no_mangle]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    if descriptors::is_hidden(fd) {
        return fail(libc::EBADF);
    }
    // SAFETY: numbers only.
    shared(fd, or_give_back(|| taking(|| unsafe { real::dup()(fd) })))
}

/// dup2 and dup3: `make` is the real call.
fn duplicate_to(fd: c_int, new: c_int, make: impl FnOnce() -> c_int) -> c_int {
    if descriptors::is_hidden(fd) {
        return fail(libc::EBADF);
    }
    let is_plain = |fd| table::is_kernel(fd) && !table::is_datagram(fd);
    if fd == new || (is_plain(fd) && is_plain(new)) {
        return taking(make);
    }
    // A descriptor that is not open must leave `new` as it is.
    if bypass_sys::kernel::fcntl(fd, libc::F_GETFD, 0).is_err() {
        return fail(libc::EBADF);
    }
    if !inside(|| descriptors::clear(new)) {
        return fail(libc::EBUSY);
    }
    let made = shared(fd, taking(make));
    // Clients that waited at a listener whose last number this was.
    inside(listener::settle_waiting);
    made
}

#[no_mangle]
pub unsafe extern "C-unwind" fn dup2(fd: c_int, new: c_int) -> c_int {
    // SAFETY: numbers only.
    duplicate_to(fd, new, || unsafe { real::dup2()(fd, new) })
}

#[no_mangle]
pub unsafe extern "C-unwind" fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int {
    if flags & !libc::O_CLOEXEC != 0 {
        return fail(libc::EINVAL);
    }
    // SAFETY: numbers only.
    duplicate_to(fd, new, || unsafe { real::dup3()(fd, new, flags) })
}

/// A call that may have changed O_NONBLOCK.
fn after_flags(fd: c_int, result: c_int) -> c_int {
    if table::is_datagram(fd) {
        inside(|| datagrams::flags_set(fd));
    }
    result
}

fn control(fd: c_int, command: c_int, argument: usize, kernel: impl Fn() -> c_int) -> c_int {
    let is_duplicating = command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC;
    if table::is_kernel(fd) {
        return if is_duplicating {
            shared(fd, or_give_back(|| taking(&kernel)))
        } else {
            after_flags(fd, kernel())
        };
    }
    if is_duplicating {
        if descriptors::is_hidden(fd) {
            return fail(libc::EBADF);
        }
        return shared(fd, or_give_back(|| taking(&kernel)));
    }
    finish(inside(|| options::fcntl(fd, command, argument)), || {
        kernel() as isize
    }) as c_int
}

#[no_mangle]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's arguments; the third is in the same register whatever its type.
    control(fd, command, argument, || unsafe {
        real::fcntl()(fd, command, argument)
    })
}

#[no_mangle]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: as fcntl.
    control(fd, command, argument, || unsafe {
        real::fcntl64()(fd, command, argument)
    })
}

#[no_mangle]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: u64, argument: usize) -> c_int {
    // SAFETY: the caller's arguments; the third is in the same register whatever its type.
    let kernel = || unsafe { real::ioctl()(fd, request, argument) };
    if table::is_kernel(fd) {
        let place = argument as *mut c_int;
        if table::is_datagram(fd) && request == libc::FIONREAD && !place.is_null() {
            if let Some(length) = inside(|| datagrams::next_length(fd)) {
                // SAFETY: this request takes a pointer to an int.
                unsafe { *place = length as c_int };
                return 0;
            }
        }
        return after_flags(fd, kernel());
    }
    let answers_int = matches!(
        request,
        libc::FIONREAD | libc::TIOCOUTQ | options::SIOCATMARK
    );
    let takes_int = answers_int
        || matches!(
            request,
            libc::FIONBIO | libc::FIOASYNC | options::FIOSETOWN | options::SIOCSPGRP
        );
    let place = argument as *mut c_int;
    if takes_int && is_wild(place) {
        return fail(libc::EFAULT);
    }
    // SAFETY: these requests take a pointer to an int.
    let value = if takes_int { unsafe { *place } } else { 0 };
    match inside(|| options::ioctl(fd, request, value)) {
        Ok(answer) => {
            if answers_int {
                // SAFETY: as above.
                unsafe { *place = answer };
            }
            0
        }
        Err(outcome) => finish(outcome, || kernel() as isize) as c_int,
    }
}

/// libc's own asks the kernel itself.
#[no_mangle]
pub unsafe extern "C-unwind" fn sockatmark(fd: c_int) -> c_int {
    let mut is_at_mark = 0;
    // SAFETY: this request takes a pointer to an int, which lives on this frame.
    match unsafe { ioctl(fd, options::SIOCATMARK, &raw mut is_at_mark as usize) } {
        0 => is_at_mark,
        error => error,
    }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: numbers only.
    let kernel = |first, last| unsafe { real::close_range()(first, last, flags) };
    if first > last {
        return fail(libc::EINVAL);
    }
    const UNSHARE: c_int = libc::CLOSE_RANGE_UNSHARE as c_int;
    if flags == UNSHARE && bypass_stack::process::is_started() {
        // First the table of one's own, then what is closed in it, so that ours is closed as ours.
        // SAFETY: numbers only.
        if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
            return -1;
        }
        if listener::has_threads() {
            // The other threads keep their descriptors. This one is about to call exec, whose new image has what is left.
            return kernel(first, last);
        }
        // SAFETY: numbers only.
        return unsafe { close_range(first, last, 0) };
    }
    // With CLOEXEC nothing is closed now, and our shadows are close-on-exec anyway.
    if flags != 0 || !bypass_stack::process::is_started() {
        if flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0 {
            descriptors::mark_cloexec(first, last);
        }
        return kernel(first, last);
    }
    let mut result = 0;
    descriptors::close_range(first, last, |from, to| {
        if numbers::closing(|| kernel(from, to)) != 0 {
            result = -1;
        }
    });
    result
}

#[no_mangle]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: numbers only.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

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

extern "C-unwind" fn cookie_read(cookie: *mut c_void, at: *mut c_char, length: usize) -> isize {
    if cookie as usize as c_int == libc::STDIN_FILENO {
        // SAFETY: stdio gives a writable buffer.
        let kept = streams::take_unread(unsafe {
            core::slice::from_raw_parts_mut(at.cast::<u8>(), length)
        });
        if kept > 0 {
            return kept as isize;
        }
    }
    // SAFETY: stdio gives a writable buffer.
    unsafe { super::data::read(cookie as usize as c_int, at.cast(), length) }
}

extern "C-unwind" fn cookie_write(cookie: *mut c_void, at: *const c_char, length: usize) -> isize {
    // SAFETY: stdio gives a readable buffer.
    let written = unsafe { super::data::write(cookie as usize as c_int, at.cast(), length) };
    written.max(0)
}

/// A socket has no place to go to. Without an answer of ours libc takes it for an error that lines are unread
/// when a stream is flushed.
extern "C" fn cookie_seek(_cookie: *mut c_void, _place: *mut i64, _from: c_int) -> c_int {
    fail(libc::ESPIPE)
}

#[no_mangle]
pub unsafe extern "C-unwind" fn fileno_unlocked(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's stream; both are the same in libc.
    unsafe { fileno(stream) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn fileno(stream: *mut FILE) -> c_int {
    if let Some(fd) = streams::descriptor(stream) {
        return fd;
    }
    // SAFETY: the caller's stream.
    unsafe { real::fileno()(stream) }
}

/// libc closes the number without a call of close that could be seen: the next socket may have to take it.
#[no_mangle]
pub unsafe extern "C-unwind" fn fclose(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's stream, or one that libc itself would not survive.
    let fd = keeping_errno(|| unsafe { real::fileno()(stream) });
    // SAFETY: the caller's stream.
    let result = unsafe { real::fclose()(stream) };
    if fd >= 0 {
        pool::closed(fd);
    }
    result
}

extern "C-unwind" fn cookie_close(cookie: *mut c_void) -> c_int {
    restore_standard_stream(cookie as usize as c_int);
    streams::forget(cookie as usize as c_int);
    // SAFETY: numbers only.
    unsafe { close(cookie as usize as c_int) }
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
    // SAFETY: the mode is the caller's; the cookie is a number.
    let stream = unsafe { fopencookie(fd as usize as *mut c_void, mode, functions) };
    streams::note(stream, fd);
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
fn replace_standard_stream(fd: c_int) {
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
        let stream = open_stream(fd, mode.as_ptr());
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

/// One that has taken a place is closed, and its memory another's from now on.
fn restore_standard_stream(fd: c_int) {
    let Some((place, _)) = standard_stream(fd) else {
        return;
    };
    let former = FORMER[fd as usize].load(Ordering::Acquire);
    // SAFETY: libc's variable.
    if !former.is_null() && streams::descriptor(unsafe { *place }) == Some(fd) {
        // SAFETY: as above.
        unsafe { *place = former };
        if fd == libc::STDIN_FILENO {
            streams::drop_unread();
        }
    }
}

/// A program that was started with connections as its standard streams, as inetd and systemd start servers.
pub fn replace_standard_streams() {
    (libc::STDIN_FILENO..=libc::STDERR_FILENO).for_each(replace_standard_stream);
}
