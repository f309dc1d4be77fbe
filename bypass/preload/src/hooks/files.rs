//! Calls about files: a number that the program has closed is none, although the pool may keep a socket there.

use core::ffi::{c_char, c_int, c_uint, c_void};

use bypass_stack::operations::descriptors::visible;
use libc::{gid_t, iovec, mode_t, off_t, size_t, ssize_t, uid_t};

use crate::real;

macro_rules! files {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[no_mangle]
        pub unsafe extern "C-unwind" fn $name(fd: c_int $(, $argument: $type)*) -> $result {
            // SAFETY: the caller's arguments.
            unsafe { real::$name()(visible(fd) $(, $argument)*) }
        }
    )*};
}

files! {
    fstat(state: *mut c_void) -> c_int;
    fstat64(state: *mut c_void) -> c_int;
    lseek(offset: off_t, from: c_int) -> off_t;
    lseek64(offset: off_t, from: c_int) -> off_t;
    fsync() -> c_int;
    fdatasync() -> c_int;
    ftruncate(length: off_t) -> c_int;
    ftruncate64(length: off_t) -> c_int;
    fchmod(mode: mode_t) -> c_int;
    fchown(user: uid_t, group: gid_t) -> c_int;
    fstatfs(state: *mut c_void) -> c_int;
    fstatfs64(state: *mut c_void) -> c_int;
    tcgetattr(state: *mut c_void) -> c_int;
    isatty() -> c_int;
    flock(operation: c_int) -> c_int;
    vmsplice(pieces: *const iovec, count: size_t, flags: c_uint) -> ssize_t;
    statx(path: *const c_char, flags: c_int, mask: c_uint, state: *mut c_void) -> c_int;
    fstatat(path: *const c_char, state: *mut c_void, flags: c_int) -> c_int;
    fstatat64(path: *const c_char, state: *mut c_void, flags: c_int) -> c_int;
}

/// fstat of programs that were built for glibc before 2.33.
#[no_mangle]
pub unsafe extern "C-unwind" fn __fxstat(version: c_int, fd: c_int, state: *mut c_void) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { real::__fxstat()(version, visible(fd), state) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn __fxstat64(version: c_int, fd: c_int, state: *mut c_void) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { real::__fxstat64()(version, visible(fd), state) }
}

/// fstatat of such programs.
#[no_mangle]
pub unsafe extern "C-unwind" fn __fxstatat(
    version: c_int,
    fd: c_int,
    path: *const c_char,
    state: *mut c_void,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { real::__fxstatat()(version, visible(fd), path, state, flags) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn __fxstatat64(
    version: c_int,
    fd: c_int,
    path: *const c_char,
    state: *mut c_void,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { real::__fxstatat64()(version, visible(fd), path, state, flags) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn tee(
    from: c_int,
    to: c_int,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: numbers only.
    unsafe { real::tee()(visible(from), visible(to), length, flags) }
}
