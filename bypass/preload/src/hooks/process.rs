//! vfork and system calls by number.

use core::ffi::{c_int, c_long, c_void};

use bypass_stack::deferral::inside;
use bypass_stack::{confinement, passing};
use libc::pid_t;

use super::creating::or_give_back;
use super::{data, descriptors, sockets, waiting};
use crate::real;

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
        let _ = bypass_sys::kernel::close(reader);
        // Closed by exec or exit, out of the way until then.
        let _ = bypass_sys::kernel::move_high(writer);
        return 0;
    }
    let _ = bypass_sys::kernel::close(writer);
    if child > 0 {
        while bypass_sys::kernel::read(reader, &mut [0]) == Err(libc::EINTR) {}
    }
    let _ = bypass_sys::kernel::close(reader);
    child
}

/// The operation and flags of linux/seccomp.h.
const SECCOMP_SET_MODE_STRICT: usize = 0;
const SECCOMP_SET_MODE_FILTER: usize = 1;
const SECCOMP_FILTER_FLAG_TSYNC: usize = 1;

/// The library prepares for the filter before it is on. Programs ask with a null pointer whether there
/// are filters at all.
fn confining(is_real: bool, all_threads: bool, confine: impl FnOnce() -> c_long) -> c_long {
    if is_real {
        inside(|| confinement::prepare(all_threads));
    }
    let result = confine();
    if is_real && result != 0 {
        // The kernel's call leaves errno alone.
        inside(confinement::undo);
    }
    result
}

#[no_mangle]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let is_strict = a == libc::SECCOMP_MODE_STRICT as usize;
    let is_confining = option == libc::PR_SET_SECCOMP && (is_strict || b != 0);
    confining(is_confining, false, || {
        // SAFETY: the caller's arguments.
        unsafe { real::prctl()(option, a, b, c, d).into() }
    }) as c_int
}

/// What was sent to others and not received yet would be lost with this process.
#[no_mangle]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    passing::wait_for_receivers();
    // SAFETY: a number only.
    unsafe { real::exit_at_once()(status) };
    // The call above does not come back.
    std::process::abort()
}

#[no_mangle]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: a number only.
    unsafe { _exit(status) }
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
            libc::SYS_prctl => c_long::from(prctl(fd, b, c, d, e)),
            libc::SYS_seccomp => {
                let is_strict = a == SECCOMP_SET_MODE_STRICT;
                let is_filter = a == SECCOMP_SET_MODE_FILTER && c != 0;
                let all_threads = is_filter && b & SECCOMP_FILTER_FLAG_TSYNC != 0;
                confining(is_strict || is_filter, all_threads, || {
                    real::syscall()(number, a, b, c, d, e, f)
                })
            }
            _ => or_give_back(|| real::syscall()(number, a, b, c, d, e, f)),
        }
    }
}
