//! Second names that libc has for some calls, public since its first version: old programs and libraries use them.
//!
//! libc's own would go around the library.

use core::ffi::{c_int, c_void};

use libc::{
    fd_set, nfds_t, off_t, pid_t, pollfd, sigaction, size_t, sockaddr, socklen_t, ssize_t, timeval,
};

use super::{closing, data, descriptors, offsets, process, sockets, waiting};
use crate::signals;

macro_rules! aliases {
    ($($name:ident = $module:ident::$of:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[no_mangle]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            // SAFETY: the caller's arguments.
            unsafe { $module::$of($($arg),*) }
        }
    )*};
}

aliases! {
    __read = data::read(fd: c_int, at: *mut c_void, length: size_t) -> ssize_t;
    __write = data::write(fd: c_int, at: *const c_void, length: size_t) -> ssize_t;
    __send = data::send(fd: c_int, at: *const c_void, length: size_t, flags: c_int) -> ssize_t;
    __connect = sockets::connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    __close = closing::close(fd: c_int) -> c_int;
    __dup2 = descriptors::dup2(fd: c_int, new: c_int) -> c_int;
    __fcntl = descriptors::fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    __poll = waiting::poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    __select = waiting::select(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval
    ) -> c_int;
    __fork = process::fork() -> pid_t;
    __vfork = process::vfork() -> pid_t;
    __pread64 = offsets::pread(fd: c_int, at: *mut c_void, length: size_t, offset: off_t) -> ssize_t;
    __sigaction = signals::sigaction(number: c_int, new: *const sigaction, old: *mut sigaction) -> c_int;
}
