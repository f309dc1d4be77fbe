//! libc's own functions: found when first needed, also before our constructor has run.
//!
//! They may unwind: pthread_cancel ends a thread so, out of a call that waits.

use core::ffi::{c_char, c_int, c_long, c_uint, c_void, CStr};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::CString;

use libc::{
    epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pid_t, pollfd, sigaction, sigset_t, size_t,
    sockaddr, socklen_t, ssize_t, timespec, timeval, FILE,
};

/// Finds the next definition of a symbol after ours.
#[cold]
fn find(name: &CStr, place: &AtomicPtr<c_void>) -> *mut c_void {
    // SAFETY: the name is a C string; RTLD_NEXT needs no handle.
    let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        found = by_number(name);
    }
    if found.is_null() && is_of_other_library(name) {
        found = in_modules(name);
        if found.is_null() {
            // Nothing to keep: such a library may be opened yet.
            return no_such_call as *mut c_void;
        }
    }
    if found.is_null() {
        // A libc without this function cannot have a program that calls it.
        std::process::abort();
    }
    place.store(found, Ordering::Release);
    found
}

/// Whether it is liburing's or libaio's. A program without these can ask the loader for the function, and finds ours.
fn is_of_other_library(name: &CStr) -> bool {
    let name = name.to_bytes();
    name.starts_with(b"io_uring_") || name == b"io_submit"
}

/// The result of these functions where the kernel lacks their system call.
extern "C" fn no_such_call() -> c_int {
    -libc::ENOSYS
}

/// A function of a library that was opened for one module alone (RTLD_LOCAL), or that is part of such a module. It finds
/// ours first, and RTLD_NEXT does not find its own. The library is never unloaded then. Null where there is none.
fn in_modules(name: &CStr) -> *mut c_void {
    // No lock of the loader's is held while it is asked for each.
    let mut files: Vec<CString> = Vec::new();
    // SAFETY: the function gets the address of the list, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note_file), (&raw mut files).cast()) };
    let mut found = files.iter().filter_map(|file| {
        // SAFETY: the name of a file that is loaded.
        let module = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if module.is_null() {
            return None;
        }
        // SAFETY: a module that is open.
        let function = unsafe { libc::dlsym(module, name.as_ptr()) };
        if function.is_null() || is_ours(function) {
            // SAFETY: opened above.
            unsafe { libc::dlclose(module) };
            return None;
        }
        Some(function)
    });
    found.next().unwrap_or(core::ptr::null_mut())
}

unsafe extern "C" fn note_file(
    module: *mut libc::dl_phdr_info,
    _size: size_t,
    files: *mut c_void,
) -> c_int {
    // SAFETY: the loader's, whose name is a C string, and the list of [`in_modules`].
    let (file, files) = unsafe {
        let file = CStr::from_ptr((*module).dlpi_name);
        (file, &mut *files.cast::<Vec<CString>>())
    };
    if !file.is_empty() {
        files.push(file.to_owned());
    }
    0
}

/// Whether a function is this library's.
fn is_ours(function: *const c_void) -> bool {
    let base_of = |function: *const c_void| {
        let mut place = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: dladdr only fills the place, in which zeroes are valid.
        unsafe {
            libc::dladdr(function, place.as_mut_ptr());
            place.assume_init().dli_fbase
        }
    };
    base_of(function) == base_of(no_such_call as *const c_void)
}

/// The substitute of a function that glibc 2.34 to 2.38 may lack. A program that looks for it there, and would do
/// without, finds ours. Null for any other.
fn by_number(name: &CStr) -> *mut c_void {
    match name.to_bytes() {
        b"pidfd_open" => pidfd_open_by_number as *mut c_void,
        b"epoll_pwait2" => epoll_pwait2_by_number as *mut c_void,
        b"pidfd_spawn" | b"pidfd_spawnp" => pidfd_spawn_of_none as *mut c_void,
        _ => core::ptr::null_mut(),
    }
}

unsafe extern "C-unwind" fn pidfd_open_by_number(process: pid_t, flags: c_uint) -> c_int {
    let (process, flags) = (process as usize, flags as usize);
    // SAFETY: numbers only.
    unsafe { syscall()(libc::SYS_pidfd_open, process, flags, 0, 0, 0, 0) as c_int }
}

/// The error of libc's own function where the kernel lacks what that needs.
extern "C-unwind" fn pidfd_spawn_of_none() -> c_int {
    libc::ENOSYS
}

unsafe extern "C-unwind" fn epoll_pwait2_by_number(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    /// Of the kernel's set of signals.
    const MASK_BYTES: usize = 8;
    let (set, most) = (set as usize, most as usize);
    let [events, timeout, mask] = [events as usize, timeout as usize, mask as usize];
    // SAFETY: the caller's arguments.
    unsafe {
        let result = syscall()(
            libc::SYS_epoll_pwait2,
            set,
            events,
            most,
            timeout,
            mask,
            MASK_BYTES,
        );
        result as c_int
    }
}

macro_rules! real {
    ($($name:ident = $symbol:literal: fn($($arg:ty),*) -> $result:ty;)*) => {$(
        #[inline(always)]
        pub fn $name() -> unsafe extern "C-unwind" fn($($arg),*) -> $result {
            static PLACE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
            let mut found = PLACE.load(Ordering::Acquire);
            if found.is_null() {
                found = find($symbol, &PLACE);
            }
            // SAFETY: the symbol has this signature, by its man page.
            unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($arg),*) -> $result>(found) }
        }
    )*};
}

real! {
    socket = c"socket": fn(c_int, c_int, c_int) -> c_int;
    bind = c"bind": fn(c_int, *const sockaddr, socklen_t) -> c_int;
    bindresvport = c"bindresvport": fn(c_int, *mut sockaddr) -> c_int;
    listen = c"listen": fn(c_int, c_int) -> c_int;
    accept4 = c"accept4": fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;
    accept = c"accept": fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    connect = c"connect": fn(c_int, *const sockaddr, socklen_t) -> c_int;
    shutdown = c"shutdown": fn(c_int, c_int) -> c_int;
    getsockname = c"getsockname": fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    getpeername = c"getpeername": fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    getsockopt = c"getsockopt": fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
    setsockopt = c"setsockopt": fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
    read = c"read": fn(c_int, *mut c_void, size_t) -> ssize_t;
    write = c"write": fn(c_int, *const c_void, size_t) -> ssize_t;
    readv = c"readv": fn(c_int, *const iovec, c_int) -> ssize_t;
    writev = c"writev": fn(c_int, *const iovec, c_int) -> ssize_t;
    recv = c"recv": fn(c_int, *mut c_void, size_t, c_int) -> ssize_t;
    send = c"send": fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
    recvfrom = c"recvfrom": fn(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
    sendto = c"sendto": fn(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t;
    recvmsg = c"recvmsg": fn(c_int, *mut msghdr, c_int) -> ssize_t;
    sendmsg = c"sendmsg": fn(c_int, *const msghdr, c_int) -> ssize_t;
    recvmmsg = c"recvmmsg": fn(c_int, *mut libc::mmsghdr, c_uint, c_int, *mut timespec) -> c_int;
    sendmmsg = c"sendmmsg": fn(c_int, *mut libc::mmsghdr, c_uint, c_int) -> c_int;
    sendfile = c"sendfile": fn(c_int, c_int, *mut off_t, size_t) -> ssize_t;
    splice = c"splice": fn(c_int, *mut off_t, c_int, *mut off_t, size_t, c_uint) -> ssize_t;
    epoll_create1 = c"epoll_create1": fn(c_int) -> c_int;
    epoll_ctl = c"epoll_ctl": fn(c_int, c_int, c_int, *mut epoll_event) -> c_int;
    epoll_wait = c"epoll_wait": fn(c_int, *mut epoll_event, c_int, c_int) -> c_int;
    epoll_pwait = c"epoll_pwait": fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
    epoll_pwait2 = c"epoll_pwait2": fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int;
    poll = c"poll": fn(*mut pollfd, nfds_t, c_int) -> c_int;
    ppoll = c"ppoll": fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    select = c"select": fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;
    pselect = c"pselect": fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t) -> c_int;
    close = c"close": fn(c_int) -> c_int;
    dup = c"dup": fn(c_int) -> c_int;
    dup2 = c"dup2": fn(c_int, c_int) -> c_int;
    dup3 = c"dup3": fn(c_int, c_int, c_int) -> c_int;
    fcntl = c"fcntl": fn(c_int, c_int, usize) -> c_int;
    fcntl64 = c"fcntl64": fn(c_int, c_int, usize) -> c_int;
    ioctl = c"ioctl": fn(c_int, u64, usize) -> c_int;
    close_range = c"close_range": fn(c_uint, c_uint, c_int) -> c_int;
    fdopen = c"fdopen": fn(c_int, *const c_char) -> *mut FILE;
    fileno = c"fileno": fn(*mut FILE) -> c_int;
    fclose = c"fclose": fn(*mut FILE) -> c_int;
    freopen = c"freopen": fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;
    freopen64 = c"freopen64": fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;
    open = c"open": fn(*const c_char, c_int, usize) -> c_int;
    openat = c"openat": fn(c_int, *const c_char, c_int, usize) -> c_int;
    open64 = c"open64": fn(*const c_char, c_int, usize) -> c_int;
    openat64 = c"openat64": fn(c_int, *const c_char, c_int, usize) -> c_int;
    __open_2 = c"__open_2": fn(*const c_char, c_int) -> c_int;
    __open64_2 = c"__open64_2": fn(*const c_char, c_int) -> c_int;
    __openat_2 = c"__openat_2": fn(c_int, *const c_char, c_int) -> c_int;
    __openat64_2 = c"__openat64_2": fn(c_int, *const c_char, c_int) -> c_int;
    creat = c"creat": fn(*const c_char, c_uint) -> c_int;
    creat64 = c"creat64": fn(*const c_char, c_uint) -> c_int;
    pipe = c"pipe": fn(*mut c_int) -> c_int;
    pipe2 = c"pipe2": fn(*mut c_int, c_int) -> c_int;
    socketpair = c"socketpair": fn(c_int, c_int, c_int, *mut c_int) -> c_int;
    eventfd = c"eventfd": fn(c_uint, c_int) -> c_int;
    timerfd_create = c"timerfd_create": fn(c_int, c_int) -> c_int;
    signalfd = c"signalfd": fn(c_int, *const sigset_t, c_int) -> c_int;
    inotify_init = c"inotify_init": fn() -> c_int;
    inotify_init1 = c"inotify_init1": fn(c_int) -> c_int;
    memfd_create = c"memfd_create": fn(*const c_char, c_uint) -> c_int;
    mkstemp = c"mkstemp": fn(*mut c_char) -> c_int;
    mkostemp = c"mkostemp": fn(*mut c_char, c_int) -> c_int;
    mkstemp64 = c"mkstemp64": fn(*mut c_char) -> c_int;
    mkostemp64 = c"mkostemp64": fn(*mut c_char, c_int) -> c_int;
    mkstemps = c"mkstemps": fn(*mut c_char, c_int) -> c_int;
    mkostemps = c"mkostemps": fn(*mut c_char, c_int, c_int) -> c_int;
    mkstemps64 = c"mkstemps64": fn(*mut c_char, c_int) -> c_int;
    mkostemps64 = c"mkostemps64": fn(*mut c_char, c_int, c_int) -> c_int;
    shm_open = c"shm_open": fn(*const c_char, c_int, c_uint) -> c_int;
    posix_openpt = c"posix_openpt": fn(c_int) -> c_int;
    pidfd_open = c"pidfd_open": fn(pid_t, c_uint) -> c_int;
    fanotify_init = c"fanotify_init": fn(c_uint, c_uint) -> c_int;
    fopen = c"fopen": fn(*const c_char, *const c_char) -> *mut FILE;
    fopen64 = c"fopen64": fn(*const c_char, *const c_char) -> *mut FILE;
    tmpfile = c"tmpfile": fn() -> *mut FILE;
    tmpfile64 = c"tmpfile64": fn() -> *mut FILE;
    popen = c"popen": fn(*const c_char, *const c_char) -> *mut FILE;
    opendir = c"opendir": fn(*const c_char) -> *mut libc::DIR;
    io_uring_queue_init = c"io_uring_queue_init": fn(c_uint, *mut c_void, c_uint) -> c_int;
    io_uring_queue_init_params = c"io_uring_queue_init_params": fn(c_uint, *mut c_void, *mut c_void) -> c_int;
    io_uring_queue_init_mem = c"io_uring_queue_init_mem": fn(c_uint, *mut c_void, *mut c_void, *mut c_void, usize) -> c_int;
    io_uring_setup = c"io_uring_setup": fn(c_uint, *mut c_void) -> c_int;
    io_uring_queue_exit = c"io_uring_queue_exit": fn(*mut c_void) -> ();
    io_uring_submit = c"io_uring_submit": fn(*mut c_void) -> c_int;
    io_uring_submit_and_wait = c"io_uring_submit_and_wait": fn(*mut c_void, c_uint) -> c_int;
    io_uring_submit_and_wait_timeout = c"io_uring_submit_and_wait_timeout": fn(*mut c_void, *mut c_void, c_uint, *mut c_void, *mut c_void) -> c_int;
    io_uring_submit_and_get_events = c"io_uring_submit_and_get_events": fn(*mut c_void) -> c_int;
    io_uring_submit_and_wait_min_timeout = c"io_uring_submit_and_wait_min_timeout": fn(*mut c_void, *mut c_void, c_uint, *mut c_void, c_uint, *mut c_void) -> c_int;
    io_uring_submit_and_wait_reg = c"io_uring_submit_and_wait_reg": fn(*mut c_void, *mut c_void, c_uint, c_int) -> c_int;
    io_submit = c"io_submit": fn(*mut c_void, c_long, *mut *mut c_void) -> c_int;
    pthread_cancel = c"pthread_cancel": fn(libc::pthread_t) -> c_int;
    pthread_testcancel = c"pthread_testcancel": fn() -> ();
    pthread_setcancelstate = c"pthread_setcancelstate": fn(c_int, *mut c_int) -> c_int;
    pthread_setcanceltype = c"pthread_setcanceltype": fn(c_int, *mut c_int) -> c_int;
    unshare = c"unshare": fn(c_int) -> c_int;
    setuid = c"setuid": fn(libc::uid_t) -> c_int;
    seteuid = c"seteuid": fn(libc::uid_t) -> c_int;
    chroot = c"chroot": fn(*const c_char) -> c_int;
    setreuid = c"setreuid": fn(libc::uid_t, libc::uid_t) -> c_int;
    setresuid = c"setresuid": fn(libc::uid_t, libc::uid_t, libc::uid_t) -> c_int;
    setns = c"setns": fn(c_int, c_int) -> c_int;
    prctl = c"prctl": fn(c_int, usize, usize, usize, usize) -> c_int;
    setrlimit = c"setrlimit": fn(c_int, *const libc::rlimit) -> c_int;
    prlimit = c"prlimit": fn(pid_t, c_int, *const libc::rlimit, *mut libc::rlimit) -> c_int;
    mlockall = c"mlockall": fn(c_int) -> c_int;
    munlock = c"munlock": fn(*const c_void, size_t) -> c_int;
    fork = c"fork": fn() -> pid_t;
    exit_at_once = c"_exit": fn(c_int) -> ();
    execvpe = c"execvpe": fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
    fexecve = c"fexecve": fn(c_int, *const *const c_char, *const *const c_char) -> c_int;
    posix_spawn = c"posix_spawn": fn(*mut pid_t, *const c_char, *const c_void, *const c_void, *const *const c_char, *const *const c_char) -> c_int;
    posix_spawnp = c"posix_spawnp": fn(*mut pid_t, *const c_char, *const c_void, *const c_void, *const *const c_char, *const *const c_char) -> c_int;
    pidfd_spawn = c"pidfd_spawn": fn(*mut c_int, *const c_char, *const c_void, *const c_void, *const *const c_char, *const *const c_char) -> c_int;
    pidfd_spawnp = c"pidfd_spawnp": fn(*mut c_int, *const c_char, *const c_void, *const c_void, *const *const c_char, *const *const c_char) -> c_int;
    posix_spawn_file_actions_init = c"posix_spawn_file_actions_init": fn(*mut c_void) -> c_int;
    posix_spawn_file_actions_destroy = c"posix_spawn_file_actions_destroy": fn(*mut c_void) -> c_int;
    posix_spawn_file_actions_addclose = c"posix_spawn_file_actions_addclose": fn(*mut c_void, c_int) -> c_int;
    posix_spawn_file_actions_addclosefrom_np = c"posix_spawn_file_actions_addclosefrom_np": fn(*mut c_void, c_int) -> c_int;
    posix_spawn_file_actions_addopen = c"posix_spawn_file_actions_addopen": fn(*mut c_void, c_int, *const c_char, c_int, libc::mode_t) -> c_int;
    posix_spawn_file_actions_adddup2 = c"posix_spawn_file_actions_adddup2": fn(*mut c_void, c_int, c_int) -> c_int;
    system = c"system": fn(*const c_char) -> c_int;
    vdprintf = c"vdprintf": fn(c_int, *const c_char, *mut c_void) -> c_int;
    vdprintf_chk = c"__vdprintf_chk": fn(c_int, c_int, *const c_char, *mut c_void) -> c_int;
    execve = c"execve": fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
    sigaction_real = c"sigaction": fn(c_int, *const sigaction, *mut sigaction) -> c_int;
    syscall = c"syscall": fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    fstat = c"fstat": fn(c_int, *mut c_void) -> c_int;
    fstat64 = c"fstat64": fn(c_int, *mut c_void) -> c_int;
    __fxstat = c"__fxstat": fn(c_int, c_int, *mut c_void) -> c_int;
    __fxstat64 = c"__fxstat64": fn(c_int, c_int, *mut c_void) -> c_int;
    lseek = c"lseek": fn(c_int, off_t, c_int) -> off_t;
    lseek64 = c"lseek64": fn(c_int, off_t, c_int) -> off_t;
    fsync = c"fsync": fn(c_int) -> c_int;
    fdatasync = c"fdatasync": fn(c_int) -> c_int;
    ftruncate = c"ftruncate": fn(c_int, off_t) -> c_int;
    ftruncate64 = c"ftruncate64": fn(c_int, off_t) -> c_int;
    fchmod = c"fchmod": fn(c_int, libc::mode_t) -> c_int;
    fchown = c"fchown": fn(c_int, libc::uid_t, libc::gid_t) -> c_int;
    fstatfs = c"fstatfs": fn(c_int, *mut c_void) -> c_int;
    fstatfs64 = c"fstatfs64": fn(c_int, *mut c_void) -> c_int;
    tcgetattr = c"tcgetattr": fn(c_int, *mut c_void) -> c_int;
    isatty = c"isatty": fn(c_int) -> c_int;
    flock = c"flock": fn(c_int, c_int) -> c_int;
    vmsplice = c"vmsplice": fn(c_int, *const iovec, size_t, c_uint) -> ssize_t;
    tee = c"tee": fn(c_int, c_int, size_t, c_uint) -> ssize_t;
    statx = c"statx": fn(c_int, *const c_char, c_int, c_uint, *mut c_void) -> c_int;
    fstatat = c"fstatat": fn(c_int, *const c_char, *mut c_void, c_int) -> c_int;
    fstatat64 = c"fstatat64": fn(c_int, *const c_char, *mut c_void, c_int) -> c_int;
    __fxstatat = c"__fxstatat": fn(c_int, c_int, *const c_char, *mut c_void, c_int) -> c_int;
    __fxstatat64 = c"__fxstatat64": fn(c_int, c_int, *const c_char, *mut c_void, c_int) -> c_int;
    pread = c"pread": fn(c_int, *mut c_void, size_t, off_t) -> ssize_t;
    preadv2 = c"preadv2": fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    pwritev2 = c"pwritev2": fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_an_older_libc_lacks_are_called_by_number() {
        let place = AtomicPtr::new(core::ptr::null_mut());
        assert!(by_number(c"fork").is_null());
        assert!(!by_number(c"pidfd_open").is_null() && !by_number(c"epoll_pwait2").is_null());
        assert!(!find(c"fork", &place).is_null());
        let own = std::process::id() as pid_t;
        // SAFETY: numbers, and places of this frame.
        unsafe {
            let process = pidfd_open_by_number(own, 0);
            assert!(process >= 0);
            assert_eq!(libc::close(process), 0);
            assert_eq!(pidfd_open_by_number(own, u32::MAX), -1);
            assert_eq!(crate::outcome::errno(), libc::EINVAL);
            let set = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            let (mut event, soon) = (core::mem::zeroed(), core::mem::zeroed());
            let count = epoll_pwait2_by_number(set, &mut event, 1, &soon, core::ptr::null());
            assert_eq!(count, 0);
            assert_eq!(libc::close(set), 0);
        }
    }
}
