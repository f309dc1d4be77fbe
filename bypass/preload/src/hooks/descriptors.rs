//! Descriptors: close, dup, fcntl, ioctl, close_range, fdopen.

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Mutex;

use bypass_stack::listener;
use bypass_stack::operations::{descriptors, options, shadow};
use bypass_stack::process::deferral::inside;
use bypass_stack::process::table;
use bypass_stats::Reason;
use libc::FILE;

use super::creating::or_give_back;
use crate::cancel::point;
use crate::outcome::{fail, finish, set_errno};
use crate::real;

#[no_mangle]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    // SAFETY: numbers only.
    let kernel = || unsafe { real::close()(fd) };
    if table::is_kernel(fd) {
        return kernel();
    }
    let work = || inside(|| descriptors::close(fd));
    point(work, || kernel() as isize) as c_int
}

/// After the kernel has duplicated `fd`.
fn shared(fd: c_int, made: c_int) -> c_int {
    if made >= 0 && !table::is_kernel(fd) {
        inside(|| descriptors::duplicated(fd, made));
    }
    made
}

#[no_mangle]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    if descriptors::is_hidden(fd) {
        return fail(libc::EBADF);
    }
    // SAFETY: numbers only.
    shared(fd, or_give_back(|| unsafe { real::dup()(fd) }))
}

/// dup2 and dup3: `make` is the real call.
fn duplicate_to(fd: c_int, new: c_int, make: impl FnOnce() -> c_int) -> c_int {
    if descriptors::is_hidden(fd) {
        return fail(libc::EBADF);
    }
    if fd == new || (table::is_kernel(fd) && table::is_kernel(new)) {
        return make();
    }
    // A descriptor that is not open must leave `new` as it is.
    if bypass_sys::kernel::fcntl(fd, libc::F_GETFD, 0).is_err() {
        return fail(libc::EBADF);
    }
    if !inside(|| descriptors::clear(new)) {
        return fail(libc::EBUSY);
    }
    let made = shared(fd, make());
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
    // SAFETY: numbers only.
    duplicate_to(fd, new, || unsafe { real::dup3()(fd, new, flags) })
}

fn control(fd: c_int, command: c_int, argument: usize, kernel: impl Fn() -> c_int) -> c_int {
    let is_duplicating = command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC;
    if table::is_kernel(fd) {
        return if is_duplicating {
            or_give_back(kernel)
        } else {
            kernel()
        };
    }
    if is_duplicating {
        if descriptors::is_hidden(fd) {
            return fail(libc::EBADF);
        }
        return shared(fd, or_give_back(kernel));
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
        return kernel();
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
    if takes_int && place.is_null() {
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
        if kernel(from, to) != 0 {
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
    // SAFETY: stdio gives a writable buffer.
    unsafe { super::data::read(cookie as usize as c_int, at.cast(), length) }
}

extern "C-unwind" fn cookie_write(cookie: *mut c_void, at: *const c_char, length: usize) -> isize {
    // SAFETY: stdio gives a readable buffer.
    let written = unsafe { super::data::write(cookie as usize as c_int, at.cast(), length) };
    written.max(0)
}

/// Streams over connections: FILE and descriptor.
static STREAMS: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

#[no_mangle]
pub unsafe extern "C-unwind" fn fileno(stream: *mut FILE) -> c_int {
    if let Ok(streams) = STREAMS.lock() {
        if let Some((_, fd)) = streams.iter().find(|(of, _)| *of == stream as usize) {
            return *fd;
        }
    }
    // SAFETY: the caller's stream.
    unsafe { real::fileno()(stream) }
}

extern "C-unwind" fn cookie_close(cookie: *mut c_void) -> c_int {
    if let Ok(mut streams) = STREAMS.lock() {
        streams.retain(|(_, fd)| *fd != cookie as usize as c_int);
    }
    // SAFETY: numbers only.
    unsafe { close(cookie as usize as c_int) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    match table::get(fd).kind() {
        table::Kind::Connected => {
            let functions = CookieFunctions {
                read: cookie_read,
                write: cookie_write,
                seek: None,
                close: cookie_close,
            };
            // SAFETY: the mode is the caller's; the cookie is a number.
            let stream = unsafe { fopencookie(fd as usize as *mut c_void, mode, functions) };
            if let Ok(mut streams) = STREAMS.lock() {
                streams.push((stream as usize, fd));
            }
            return stream;
        }
        table::Kind::Unbound => inside(|| shadow::leave_to_kernel(fd, Reason::Stdio)),
        table::Kind::Pooled | table::Kind::Internal => {
            set_errno(libc::EBADF);
            return core::ptr::null_mut();
        }
        _ => {}
    }
    // SAFETY: the caller's arguments.
    unsafe { real::fdopen()(fd, mode) }
}

extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// A program that was started with connections as its standard streams, as inetd and systemd start servers:
/// its FILEs are made over again, because libc's own read and write around the library.
pub fn replace_standard_streams() {
    let [of_input, of_output, of_errors] = [&raw mut stdin, &raw mut stdout, &raw mut stderr];
    let all = [(of_input, c"r"), (of_output, c"w"), (of_errors, c"w")];
    for (fd, (place, mode)) in (0..).zip(all) {
        if table::get(fd).kind() != table::Kind::Connected {
            continue;
        }
        // SAFETY: the mode is a text; nothing else runs yet that could use the old streams.
        unsafe {
            let stream = fdopen(fd, mode.as_ptr());
            if stream.is_null() {
                continue;
            }
            if fd == libc::STDERR_FILENO {
                libc::setvbuf(stream, core::ptr::null_mut(), libc::_IONBF, 0);
            }
            *place = stream;
        }
    }
}
