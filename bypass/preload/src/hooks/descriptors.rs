//! Descriptors: dup, fcntl, ioctl, close_range.

use core::ffi::{c_int, c_uint};

use bypass_stack::listener;
use bypass_stack::operations::{datagrams, descriptors, options};
use bypass_stack::process::deferral::inside;
use bypass_stack::process::table;
use bypass_sys::numbers;

use super::creating::{or_give_back, taking};
use super::stdio::replace_standard_stream;
use crate::address::is_wild;
use crate::outcome::{fail, finish};
use crate::real;

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
    let real = real::dup();
    // SAFETY: numbers only.
    shared(fd, or_give_back(|| taking(|| unsafe { real(fd) })))
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
    let real = real::dup2();
    // SAFETY: numbers only.
    duplicate_to(fd, new, || unsafe { real(fd, new) })
}

#[no_mangle]
pub unsafe extern "C-unwind" fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int {
    if flags & !libc::O_CLOEXEC != 0 {
        return fail(libc::EINVAL);
    }
    let real = real::dup3();
    // SAFETY: numbers only.
    duplicate_to(fd, new, || unsafe { real(fd, new, flags) })
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
    let real = real::fcntl();
    // SAFETY: the caller's arguments; the third is in the same register whatever its type.
    control(fd, command, argument, || unsafe {
        real(fd, command, argument)
    })
}

#[no_mangle]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    let real = real::fcntl64();
    // SAFETY: as fcntl.
    control(fd, command, argument, || unsafe {
        real(fd, command, argument)
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
