//! Calls about files: a number that the program has closed is none, although the pool may keep a socket there.

use core::ffi::{c_int, c_void};

use bypass_stack::operations::descriptors::is_hidden;
use libc::{gid_t, mode_t, off_t, uid_t};

use crate::outcome::{fail, set_errno};
use crate::real;

macro_rules! files {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[no_mangle]
        pub unsafe extern "C-unwind" fn $name(fd: c_int $(, $argument: $type)*) -> $result {
            if is_hidden(fd) {
                set_errno(libc::EBADF);
                return -1;
            }
            // SAFETY: the caller's arguments.
            unsafe { real::$name()(fd $(, $argument)*) }
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
}

/// fstat of programs that were built for glibc before 2.33.
#[no_mangle]
pub unsafe extern "C-unwind" fn __fxstat(version: c_int, fd: c_int, state: *mut c_void) -> c_int {
    if is_hidden(fd) {
        return fail(libc::EBADF);
    }
    // SAFETY: the caller's arguments.
    unsafe { real::__fxstat()(version, fd, state) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn __fxstat64(version: c_int, fd: c_int, state: *mut c_void) -> c_int {
    if is_hidden(fd) {
        return fail(libc::EBADF);
    }
    // SAFETY: the caller's arguments.
    unsafe { real::__fxstat64()(version, fd, state) }
}

/// It says no by 0.
#[no_mangle]
pub unsafe extern "C-unwind" fn isatty(fd: c_int) -> c_int {
    if is_hidden(fd) {
        set_errno(libc::EBADF);
        return 0;
    }
    // SAFETY: a number only.
    unsafe { real::isatty()(fd) }
}
