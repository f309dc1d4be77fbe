//! The system calls of the engine; the only unsafe code of this component.
//!
//! Everything the hot path calls (`epoll_wait`, `recv`, `send`, `connect`, `close`,
//! `clock_gettime`) is the libc function of that name wherever something stands in front of libc: a
//! user-level TCP stack that is preloaded must see every call. Only where nothing does, the first
//! three go to the kernel directly (`direct`).
#![allow(unsafe_code)]

pub mod affinity;
pub mod clock;
pub mod control;
mod direct;
pub mod epoll;
pub mod lua;
pub mod options;
pub mod signal;
pub mod socket;
pub mod tcp_info;

use std::io;

/// Whether another stack may stand in front of the calls, and knows only what is common.
pub fn is_preloaded() -> bool {
    std::env::var_os("LD_PRELOAD").is_some_and(|value| !value.is_empty())
}

/// Turns a result of [`direct`] into a length or the error behind it.
#[inline]
fn length(result: isize) -> io::Result<usize> {
    if result < 0 {
        Err(io::Error::from_raw_os_error(-result as i32))
    } else {
        Ok(result as usize)
    }
}

/// Turns the -1 of a libc call into the error behind it.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
