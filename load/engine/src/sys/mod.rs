//! The system calls of the engine; the only unsafe code of this room.
//!
//! Everything the hot path calls (`epoll_wait`, `recv`, `send`, `connect`, `close`,
//! `clock_gettime`) is the libc function of that name, never a direct system call: a user-level
//! TCP stack that is preloaded must be able to stand in front of it.
#![allow(unsafe_code)]

pub mod affinity;
pub mod clock;
pub mod epoll;
pub mod lua;
pub mod signal;
pub mod socket;

use std::io;

/// Whether another stack may stand in front of the calls, and knows only what is common.
pub fn is_preloaded() -> bool {
    std::env::var_os("LD_PRELOAD").is_some_and(|value| !value.is_empty())
}

/// Turns the -1 of a libc call into the error behind it.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
