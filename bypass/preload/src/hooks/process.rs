//! vfork and system calls by number.

use core::ffi::{c_int, c_long, c_void};

use bypass_stack::lifecycle::{confinement, passing, serving};
use bypass_stack::operations::descriptors::{is_hidden, visible};
use bypass_stack::packets;
use bypass_stack::process::deferral::inside;
use bypass_stack::process::namespace;
use bypass_sys::lock;
use bypass_sys::network::ioctl_number;
use libc::pid_t;

use super::creating::or_give_back;
use super::{
    clone, closing, data, descriptors, exec, files, memory, offsets, sockets, uring, waiting,
};
use crate::address::is_wild;
use crate::outcome::fail;
use crate::{forking, real};

#[no_mangle]
pub unsafe extern "C-unwind" fn fork() -> pid_t {
    forking::fork()
}

#[no_mangle]
pub unsafe extern "C-unwind" fn vfork() -> pid_t {
    forking::vfork()
}

/// The operation and flags of linux/seccomp.h.
const SECCOMP_SET_MODE_STRICT: usize = 0;
const SECCOMP_SET_MODE_FILTER: usize = 1;
const SECCOMP_FILTER_FLAG_TSYNC: usize = 1;

/// The library prepares for the filter before it is on, and for other calls that leave a process without what it needs to
/// wake others. Programs ask with a null pointer whether there are filters at all.
pub(super) fn confining(
    is_real: bool,
    all_threads: bool,
    confine: impl FnOnce() -> c_long,
) -> c_long {
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
pub unsafe extern "C-unwind" fn prctl(
    option: c_int,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
) -> c_int {
    let is_strict = a == libc::SECCOMP_MODE_STRICT as usize;
    let is_confining = option == libc::PR_SET_SECCOMP && (is_strict || b != 0);
    confining(is_confining, false, || {
        // SAFETY: the caller's arguments.
        unsafe { real::prctl()(option, a, b, c, d).into() }
    }) as c_int
}

/// Says after it has worked that a thread is in another network namespace now, or its children in another of
/// processes.
fn entering(kind: c_int, result: c_int) -> c_int {
    if result == 0 && kind & libc::CLONE_NEWPID != 0 {
        lock::never_ask();
    }
    if result == 0 && kind & libc::CLONE_NEWNET != 0 {
        inside(namespace::leave);
    }
    result
}

#[no_mangle]
pub unsafe extern "C-unwind" fn unshare(flags: c_int) -> c_int {
    // SAFETY: numbers only.
    entering(flags, unsafe { real::unshare()(flags) })
}

#[no_mangle]
pub unsafe extern "C-unwind" fn setns(fd: c_int, kind: c_int) -> c_int {
    /// The request for the kind of namespace that a descriptor refers to: ioctl_ns(2).
    const NS_GET_NSTYPE: u64 = 0xb703;
    let kind = match kind {
        0 => ioctl_number(fd, NS_GET_NSTYPE, 0).map_or(0, |kind| kind as c_int),
        kind => kind,
    };
    // SAFETY: numbers only; without a kind the caller's descriptor has said its own.
    entering(kind, unsafe { real::setns()(fd, kind) })
}

/// Descriptors that were sent to other processes and not received yet would be lost with this process.
#[no_mangle]
pub unsafe extern "C-unwind" fn _exit(status: c_int) -> ! {
    passing::wait_for_receivers();
    serving::leave();
    packets::finish();
    // SAFETY: a number only.
    unsafe { real::exit_at_once()(status) };
    // The call above does not come back.
    std::process::abort()
}

#[no_mangle]
pub unsafe extern "C-unwind" fn _Exit(status: c_int) -> ! {
    // SAFETY: a number only.
    unsafe { _exit(status) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn syscall(
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
            libc::SYS_close => c_long::from(closing::close(fd)),
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
            libc::SYS_recvfrom => {
                let (flags, length) = (d as c_int, f as *mut _);
                data::recvfrom(fd, b as *mut c_void, c, flags, e as *mut _, length) as c_long
            }
            libc::SYS_sendto => {
                let (flags, length) = (d as c_int, f as u32);
                data::sendto(fd, b as *const c_void, c, flags, e as *const _, length) as c_long
            }
            libc::SYS_recvmmsg => {
                let (flags, timeout) = (d as c_int, e as *mut _);
                data::recvmmsg(fd, b as *mut _, c as u32, flags, timeout).into()
            }
            libc::SYS_sendfile => data::sendfile(fd, b as c_int, c as *mut _, d) as c_long,
            libc::SYS_splice => {
                let (to, length, flags) = (c as c_int, e, f as u32);
                data::splice(fd, b as *mut _, to, d as *mut _, length, flags) as c_long
            }
            libc::SYS_pread64 => offsets::pread(fd, b as *mut c_void, c, d as i64) as c_long,
            libc::SYS_preadv2 => {
                let (pieces, count, offset) = (b as *const _, c as c_int, d as i64);
                offsets::preadv2(fd, pieces, count, offset, f as c_int) as c_long
            }
            libc::SYS_pwritev2 => {
                let (pieces, count, offset) = (b as *const _, c as c_int, d as i64);
                offsets::pwritev2(fd, pieces, count, offset, f as c_int) as c_long
            }
            libc::SYS_bind => sockets::bind(fd, b as *const _, c as u32).into(),
            libc::SYS_listen => sockets::listen(fd, b as c_int).into(),
            libc::SYS_accept => sockets::accept(fd, b as *mut _, c as *mut _).into(),
            libc::SYS_shutdown => sockets::shutdown(fd, b as c_int).into(),
            libc::SYS_getsockname => sockets::getsockname(fd, b as *mut _, c as *mut _).into(),
            libc::SYS_getpeername => sockets::getpeername(fd, b as *mut _, c as *mut _).into(),
            libc::SYS_setsockopt => {
                let (level, name) = (b as c_int, c as c_int);
                sockets::setsockopt(fd, level, name, d as *const _, e as u32).into()
            }
            libc::SYS_getsockopt => {
                let (level, name) = (b as c_int, c as c_int);
                sockets::getsockopt(fd, level, name, d as *mut _, e as *mut _).into()
            }
            libc::SYS_dup => descriptors::dup(fd).into(),
            libc::SYS_dup3 => descriptors::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_fcntl => descriptors::fcntl(fd, b as c_int, c).into(),
            libc::SYS_ioctl => descriptors::ioctl(fd, b as u64, c).into(),
            libc::SYS_close_range => {
                descriptors::close_range(fd as u32, b as u32, c as c_int).into()
            }
            libc::SYS_ppoll => {
                let (fds, count) = (a as *mut _, b as libc::nfds_t);
                waiting::ppoll_by_number(fds, count, c as *mut _, (d, e)).into()
            }
            libc::SYS_pselect6 => {
                let sets = [b, c, d].map(|set| set as *mut _);
                waiting::pselect_by_number(fd, sets, e as *mut _, f as *const _).into()
            }
            libc::SYS_epoll_pwait2 => {
                let (events, timeout, mask) = (b as *mut _, d as *const _, e as *const _);
                waiting::epoll_pwait2(fd, events, c as c_int, timeout, mask).into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => waiting::poll(a as *mut _, b as libc::nfds_t, c as c_int).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => {
                let sets = [b, c, d].map(|set| set as *mut _);
                waiting::select_by_number(fd, sets, e as *mut _).into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => {
                waiting::epoll_wait(fd, b as *mut _, c as c_int, d as c_int).into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptors::dup2(fd, b as c_int).into(),
            libc::SYS_io_uring_setup if !is_wild(b as *const u32) => {
                let flags = *(b as *const u32).add(2);
                if uring::is_libuvs(a as u32, flags) {
                    return fail(libc::ENOSYS).into();
                }
                uring::made_unseen(real::syscall()(number, a, b, c, d, e, f))
            }
            libc::SYS_io_submit => {
                uring::before_aio(b as c_long, c as *const *const _);
                real::syscall()(number, a, b, c, d, e, f)
            }
            libc::SYS_clone if clone::is_fork(a, b) => clone::fork(a),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork => clone::fork(libc::SIGCHLD as usize),
            libc::SYS_execve => exec::execve(a as *const _, b as *const _, c as *const _).into(),
            libc::SYS_execveat => {
                let (path, arguments, environment) = (b as *const _, c as *const _, d as *const _);
                exec::execveat(fd, path, arguments, environment, e as c_int).into()
            }
            libc::SYS_mlockall => c_long::from(memory::mlockall(fd)),
            libc::SYS_tee => files::tee(fd, b as c_int, c, d as u32) as c_long,
            libc::SYS_unshare => c_long::from(unshare(fd)),
            libc::SYS_setns => c_long::from(setns(fd, b as c_int)),
            libc::SYS_prctl => c_long::from(prctl(fd, b, c, d, e)),
            libc::SYS_seccomp => {
                let is_strict = a == SECCOMP_SET_MODE_STRICT;
                let is_filter = a == SECCOMP_SET_MODE_FILTER && c != 0;
                let all_threads = is_filter && b & SECCOMP_FILTER_FLAG_TSYNC != 0;
                confining(is_strict || is_filter, all_threads, || {
                    real::syscall()(number, a, b, c, d, e, f)
                })
            }
            libc::SYS_fstat
            | libc::SYS_lseek
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_ftruncate
            | libc::SYS_fchmod
            | libc::SYS_fchown
            | libc::SYS_fstatfs
            | libc::SYS_flock
            | libc::SYS_vmsplice
            | libc::SYS_statx
            | libc::SYS_newfstatat
                if is_hidden(fd) =>
            {
                let closed = visible(fd) as usize;
                real::syscall()(number, closed, b, c, d, e, f)
            }
            _ => or_give_back(|| real::syscall()(number, a, b, c, d, e, f)),
        }
    }
}
