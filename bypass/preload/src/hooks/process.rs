//! vfork, exec and system calls by number.

use core::ffi::{c_char, c_int, c_long, c_void, CStr};
use std::ffi::CString;
use std::sync::OnceLock;

use libc::pid_t;

use super::{data, descriptors, sockets, waiting};
use crate::real;

/// What the environment said about us at the start: a program may forget it later.
static ENVIRONMENT: OnceLock<Vec<CString>> = OnceLock::new();

/// Keeps LD_PRELOAD and the options for the programs that this one starts.
pub fn remember_environment() {
    let is_ours = |name: &str| {
        name == "LD_PRELOAD" || name.starts_with("EF_") || name.starts_with("WIRESPEED_")
    };
    let kept = std::env::vars()
        .filter(|(name, _)| is_ours(name))
        .filter_map(|(name, value)| CString::new(format!("{name}={value}")).ok())
        .collect();
    let _ = ENVIRONMENT.set(kept);
}

/// nginx builds a new environment for its next binary: ours has to be in it.
#[no_mangle]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    let mut all: Vec<*const c_char> = Vec::new();
    let mut at = environment;
    // SAFETY: execve(2) promises a list that ends with null.
    while !at.is_null() && !unsafe { *at }.is_null() {
        // SAFETY: not yet the end.
        all.push(unsafe { *at });
        // SAFETY: the end was not reached.
        at = unsafe { at.add(1) };
    }
    for kept in ENVIRONMENT.get().into_iter().flatten() {
        let name_length = kept
            .to_bytes()
            .iter()
            .position(|byte| *byte == b'=')
            .unwrap_or(0)
            + 1;
        let name = &kept.to_bytes()[..name_length];
        // SAFETY: each entry is a C string.
        let has = all
            .iter()
            .any(|one| unsafe { CStr::from_ptr(*one) }.to_bytes().starts_with(name));
        if !has {
            all.push(kept.as_ptr());
        }
    }
    all.push(core::ptr::null());
    // SAFETY: the caller's path and arguments, and a list that ends with null.
    unsafe { real::execve()(path, arguments, all.as_ptr()) }
}

/// The child of a real vfork would run our hooks in the parent's memory; so it is a fork, and the
/// parent waits until the child has called exec or has ended, as it would have.
#[no_mangle]
pub unsafe extern "C" fn vfork() -> pid_t {
    let mut pipe = [0 as c_int; 2];
    // SAFETY: room for two descriptors.
    let made = unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) };
    // SAFETY: no arguments.
    let child = unsafe { real::fork()() };
    if made != 0 {
        return child;
    }
    let [reader, writer] = pipe;
    if child == 0 {
        let _ = bypass_shm::sys::close(reader);
        // Closed by exec or exit, out of the way until then.
        let _ = bypass_shm::sys::move_high(writer);
        return 0;
    }
    let _ = bypass_shm::sys::close(writer);
    if child > 0 {
        while bypass_shm::sys::read(reader, &mut [0]) == Err(libc::EINTR) {}
    }
    let _ = bypass_shm::sys::close(reader);
    child
}

#[no_mangle]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let fd = a as c_int;
    // SAFETY: each call gets the arguments that its number demands; the caller vouches for them.
    unsafe {
        match number {
            libc::SYS_read => data::read(fd, b as *mut c_void, c) as c_long,
            libc::SYS_write => data::write(fd, b as *const c_void, c) as c_long,
            libc::SYS_readv => data::readv(fd, b as *const _, c as c_int) as c_long,
            libc::SYS_writev => data::writev(fd, b as *const _, c as c_int) as c_long,
            libc::SYS_close => c_long::from(descriptors::close(fd)),
            libc::SYS_socket => c_long::from(sockets::socket(fd, b as c_int, c as c_int)),
            libc::SYS_connect => c_long::from(sockets::connect(fd, b as *const _, c as u32)),
            libc::SYS_accept4 => {
                c_long::from(sockets::accept4(fd, b as *mut _, c as *mut _, d as c_int))
            }
            libc::SYS_sendmsg => data::sendmsg(fd, b as *const _, c as c_int) as c_long,
            libc::SYS_recvmsg => data::recvmsg(fd, b as *mut _, c as c_int) as c_long,
            libc::SYS_sendmmsg => {
                c_long::from(data::sendmmsg(fd, b as *mut _, c as u32, d as c_int))
            }
            libc::SYS_epoll_create1 => c_long::from(waiting::epoll_create1(fd)),
            libc::SYS_epoll_ctl => {
                c_long::from(waiting::epoll_ctl(fd, b as c_int, c as c_int, d as *mut _))
            }
            libc::SYS_epoll_pwait => {
                let (events, mask) = (b as *mut _, e as *const _);
                c_long::from(waiting::epoll_pwait(
                    fd, events, c as c_int, d as c_int, mask,
                ))
            }
            _ => real::syscall()(number, a, b, c, d, e, f),
        }
    }
}
