//! System calls by number. They call no libc function, because libc's are the hooked ones, and
//! leave errno, which belongs to the program, unchanged.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::sandbox::is_confined;
use core::arch::asm;

/// A kernel error number, positive.
pub type Errno = i32;
/// The result of a system call.
pub type Result<T> = core::result::Result<T, Errno>;

/// Enters the kernel.
///
/// # Safety
/// The arguments must be what system call `number` demands.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn raw(number: i64, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for the arguments; the instruction clobbers rcx and r11.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2],
            in("r10") arguments[3], in("r8") arguments[4], in("r9") arguments[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Enters the kernel.
///
/// # Safety
/// The arguments must be what system call `number` demands.
#[cfg(target_arch = "aarch64")]
#[inline]
pub unsafe fn raw(number: i64, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for the arguments.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") arguments[0] as isize => result,
            in("x1") arguments[1], in("x2") arguments[2], in("x3") arguments[3],
            in("x4") arguments[4], in("x5") arguments[5], options(nostack));
    }
    result
}

/// Splits the kernel's result into value and error.
pub fn check(result: isize) -> Result<usize> {
    if (-4095..0).contains(&result) {
        return Err(-result as Errno);
    }
    Ok(result as usize)
}

/// # Safety
/// As [`raw`].
#[inline]
unsafe fn call(number: i64, a: [usize; 6]) -> Result<usize> {
    // SAFETY: the caller vouches for the arguments.
    check(unsafe { raw(number, a) })
}

macro_rules! plain {
    ($($(#[$meta:meta])* $name:ident = $number:ident ($($arg:ident: $type:ty),*);)*) => {$(
        $(#[$meta])*
        pub fn $name($($arg: $type),*) -> Result<usize> {
            let given = [$($arg as usize),*];
            let mut all = [0usize; 6];
            all[..given.len()].copy_from_slice(&given);
            // SAFETY: this call takes numbers only; it accesses no memory.
            unsafe { call(libc::$number, all) }
        }
    )*};
}

plain! {
    /// close(2).
    close = SYS_close(fd: i32);
    /// dup(2).
    dup = SYS_dup(fd: i32);
    /// dup3(2).
    dup3 = SYS_dup3(fd: i32, to: i32, flags: i32);
    /// socket(2).
    socket = SYS_socket(family: i32, kind: i32, protocol: i32);
    /// fcntl(2) with a number.
    fcntl = SYS_fcntl(fd: i32, command: i32, argument: usize);
    /// listen(2).
    listen = SYS_listen(fd: i32, backlog: i32);
    /// ftruncate(2).
    ftruncate = SYS_ftruncate(fd: i32, length: usize);
    /// getpid(2).
    getpid = SYS_getpid();
    /// getppid(2).
    getppid = SYS_getppid();
    /// gettid(2).
    gettid = SYS_gettid();
    /// geteuid(2).
    geteuid = SYS_geteuid();
    /// getuid(2).
    getuid = SYS_getuid();
    /// setfsuid(2), which the kernel has for the calling thread alone. Gives the user before.
    setfsuid = SYS_setfsuid(user: u32);
    /// tgkill(2).
    tgkill = SYS_tgkill(group: i32, thread: i32, signal: i32);
    /// kill(2).
    kill = SYS_kill(process: i32, signal: i32);
    /// epoll_create1(2).
    epoll_create1 = SYS_epoll_create1(flags: i32);
    /// pidfd_open(2).
    pidfd_open = SYS_pidfd_open(process: i32, flags: u32);
    /// eventfd2(2).
    eventfd = SYS_eventfd2(initial: u32, flags: i32);
    /// sched_yield(2).
    sched_yield = SYS_sched_yield();
    /// shutdown(2).
    shutdown = SYS_shutdown(fd: i32, how: i32);
}

/// Lets another thread run, at check number `looks` of a wait for it. After some checks it really
/// sleeps: under SCHED_FIFO a thread that only yields never lets a thread of lower priority run,
/// which may be the one that it waits for. A confined thread only yields: its filter may forbid the other call.
pub fn let_others_run(looks: u32) {
    const YIELDS: u32 = 100;
    const REST_NS: i64 = 50_000;
    if looks < YIELDS || is_confined() {
        let _ = sched_yield();
        return;
    }
    let time = [0i64, REST_NS];
    // SAFETY: the kernel reads the time, which lives on this frame.
    let _ = unsafe { call(libc::SYS_nanosleep, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

/// How often the calling thread has given its core away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    /// To sleep, or because it was stopped or frozen.
    pub voluntary: i64,
    /// To another thread, while it could have gone on.
    pub preemptions: i64,
}

/// The calling thread's switches so far.
pub fn switches() -> Result<Switches> {
    // SAFETY: numbers only, for which zero is valid.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    let place = core::ptr::from_mut(&mut usage) as usize;
    let arguments = [libc::RUSAGE_THREAD as usize, place, 0, 0, 0, 0];
    // SAFETY: the kernel fills one rusage, which lives on this stack frame.
    unsafe { call(libc::SYS_getrusage, arguments) }?;
    Ok(Switches {
        voluntary: usage.ru_nvcsw,
        preemptions: usage.ru_nivcsw,
    })
}

/// Gives the calling thread the default policy, on all processors that it may use, if it has
/// inherited the policy of a real-time thread: a spinning program must not keep the library from
/// its work, nor the library the program.
pub fn leave_real_time() {
    const REALTIME: [usize; 3] = [
        libc::SCHED_FIFO as usize,
        libc::SCHED_RR as usize,
        6, // SCHED_DEADLINE
    ];
    // SAFETY: a number only.
    let policy = unsafe { call(libc::SYS_sched_getscheduler, [0; 6]) };
    if !policy.is_ok_and(|policy| REALTIME.contains(&(policy & 0xff))) {
        return;
    }
    let priority = 0i32;
    let all = [u64::MAX; 16];
    // SAFETY: the kernel reads both, which live on this frame.
    unsafe {
        let at = core::ptr::from_ref(&priority) as usize;
        let other = libc::SCHED_OTHER as usize;
        let _ = call(libc::SYS_sched_setscheduler, [0, other, at, 0, 0, 0]);
        let length = size_of_val(&all);
        let _ = call(
            libc::SYS_sched_setaffinity,
            [0, length, all.as_ptr() as usize, 0, 0, 0],
        );
    }
}

/// Whether the thread with this number exists in our process-id namespace.
pub fn thread_exists(thread: i32) -> bool {
    // SAFETY: signal 0 is only a question.
    let answer = unsafe { call(libc::SYS_tkill, [thread as usize, 0, 0, 0, 0, 0]) };
    // Not a thread number at all: another process wrote nonsense.
    !matches!(answer, Err(libc::ESRCH | libc::EINVAL))
}

/// Whether a thread of this process, of its parent or of a child is stopped by a signal or a
/// debugger. Other processes can write any number where one of these is expected, and stop any of
/// their own. The thread that waits for a lock checks after at least 2 s: for a moment the file has
/// a low [number](crate::numbers).
pub fn is_stopped_relative(thread: i32) -> bool {
    let mut bytes = [0u8; 1024];
    let name = format!("/proc/{thread}/status\0");
    let count = core::ffi::CStr::from_bytes_with_nul(name.as_bytes())
        .map_err(|_| libc::EINVAL)
        .and_then(|name| open(name, libc::O_RDONLY | libc::O_CLOEXEC))
        .and_then(|file| {
            let count = read(file, &mut bytes);
            let _ = close(file);
            count
        });
    let text = String::from_utf8_lossy(&bytes[..count.unwrap_or(0)]);
    let field = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().map(str::trim)
    };
    let number = |name| field(name).and_then(|text| text.parse::<usize>().ok());
    let is_stopped = field("State:").is_some_and(|state| state.starts_with(['T', 't']));
    let (own, parent) = (getpid().ok(), getppid().ok());
    let (process, its_parent) = (number("Tgid:"), number("PPid:"));
    is_stopped && process.is_some() && (process == own || its_parent == own || process == parent)
}

/// Whether the process may open at least `wanted` more descriptors. Opens none to find out: another
/// thread may need the last one.
pub fn has_descriptors_left(wanted: usize) -> bool {
    let mut end = descriptor_limit();
    let mut free = 0;
    while free < wanted && end > 0 {
        let mut some = [libc::pollfd {
            fd: 0,
            events: 0,
            revents: 0,
        }; 64];
        let start = end.saturating_sub(some.len());
        let some = &mut some[..end - start];
        for (entry, number) in some.iter_mut().zip(start..) {
            entry.fd = number as i32;
        }
        if poll(some, Some(core::time::Duration::ZERO), None).is_err() {
            return true;
        }
        free += some
            .iter()
            .filter(|entry| entry.revents & libc::POLLNVAL != 0)
            .count();
        end = start;
    }
    free >= wanted
}

/// The mode of a seccomp filter in this thread; 0 without one.
pub fn seccomp_mode() -> usize {
    let arguments = [libc::PR_GET_SECCOMP as usize, 0, 0, 0, 0, 0];
    // SAFETY: numbers only.
    unsafe { call(libc::SYS_prctl, arguments) }.unwrap_or(0)
}

/// The soft limit of descriptors.
pub fn descriptor_limit() -> usize {
    soft_limit(libc::RLIMIT_NOFILE as usize).unwrap_or(0)
}

/// The largest file that this process may create: a larger one would end it by SIGXFSZ.
pub fn file_size_limit() -> usize {
    soft_limit(libc::RLIMIT_FSIZE as usize).unwrap_or(usize::MAX)
}

/// The bytes that a process without CAP_IPC_LOCK may lock in memory.
pub fn locked_memory_limit() -> usize {
    soft_limit(libc::RLIMIT_MEMLOCK as usize).unwrap_or(0)
}

fn soft_limit(of: usize) -> Result<usize> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let place = &mut limit as *mut libc::rlimit as usize;
    // SAFETY: the kernel fills one rlimit, which lives on this stack frame.
    unsafe { call(libc::SYS_prlimit64, [0, of, 0, place, 0, 0]) }?;
    Ok(limit.rlim_cur as usize)
}

/// memfd_create(2), close-on-exec, sealable; `name` ends with NUL.
pub fn memfd_create(name: &core::ffi::CStr) -> Result<i32> {
    let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize;
    // SAFETY: the name is a C string that outlives the call.
    unsafe {
        call(
            libc::SYS_memfd_create,
            [name.as_ptr() as usize, flags, 0, 0, 0, 0],
        )
    }
    .map(|fd| fd as i32)
}

/// fstat(2).
#[inline]
pub fn fstat(fd: i32) -> Result<libc::stat> {
    // SAFETY: all zero is a valid stat.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    let place = &mut stat as *mut libc::stat as usize;
    // SAFETY: the kernel fills one stat, which lives on this stack frame.
    unsafe { call(libc::SYS_fstat, [fd as usize, place, 0, 0, 0, 0]) }?;
    Ok(stat)
}

/// The file system type of a descriptor's file, by fstatfs(2).
pub fn file_system(fd: i32) -> Result<i64> {
    // SAFETY: all zero is a valid statfs.
    let mut stat: libc::statfs = unsafe { core::mem::zeroed() };
    let place = &mut stat as *mut libc::statfs as usize;
    // SAFETY: the kernel fills one statfs, which lives on this stack frame.
    unsafe { call(libc::SYS_fstatfs, [fd as usize, place, 0, 0, 0, 0]) }?;
    Ok(stat.f_type)
}

/// The processor on which the calling thread runs.
pub fn processor() -> Result<u32> {
    let mut number = 0u32;
    let at = &raw mut number as usize;
    // SAFETY: the kernel fills the word on this stack frame.
    unsafe { call(libc::SYS_getcpu, [at, 0, 0, 0, 0, 0]) }?;
    Ok(number)
}

/// getrandom(2) of one word that is not 0.
pub fn random() -> u64 {
    loop {
        let mut word = 0u64;
        // SAFETY: the kernel fills the word on this stack frame.
        let _ = unsafe {
            call(
                libc::SYS_getrandom,
                [&mut word as *mut u64 as usize, 8, 0, 0, 0, 0],
            )
        };
        if word != 0 {
            return word;
        }
    }
}

/// write(2) of bytes.
pub fn write(fd: i32, bytes: &[u8]) -> Result<usize> {
    // SAFETY: the slice is readable for its length.
    unsafe {
        call(
            libc::SYS_write,
            [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0],
        )
    }
}

/// read(2) into a slice.
pub fn read(fd: i32, bytes: &mut [u8]) -> Result<usize> {
    // SAFETY: the slice is writable for its length.
    unsafe {
        call(
            libc::SYS_read,
            [
                fd as usize,
                bytes.as_mut_ptr() as usize,
                bytes.len(),
                0,
                0,
                0,
            ],
        )
    }
}

/// Opens a file for reading; `path` ends with NUL.
pub fn open(path: &core::ffi::CStr, flags: i32) -> Result<i32> {
    let flags = (flags | libc::O_CLOEXEC) as usize;
    let arguments = [
        libc::AT_FDCWD as usize,
        path.as_ptr() as usize,
        flags,
        0,
        0,
        0,
    ];
    // SAFETY: the path is a C string that outlives the call.
    unsafe { call(libc::SYS_openat, arguments) }.map(|fd| fd as i32)
}

/// Opens a file, which is made with this mode where it does not exist and `flags` have O_CREAT.
pub fn create(path: &core::ffi::CStr, flags: i32, mode: u32) -> Result<i32> {
    let (at, flags) = (path.as_ptr() as usize, (flags | libc::O_CLOEXEC) as usize);
    let arguments = [libc::AT_FDCWD as usize, at, flags, mode as usize, 0, 0];
    // SAFETY: the path is a C string that outlives the call.
    unsafe { call(libc::SYS_openat, arguments) }.map(|fd| fd as i32)
}

/// Whether the effective user may do this with a file (access(2)). ENOSYS: the kernel is older than 5.8.
pub fn access(path: &core::ffi::CStr, how: i32) -> Result<usize> {
    let (at, flags) = (path.as_ptr() as usize, libc::AT_EACCESS as usize);
    let arguments = [libc::AT_FDCWD as usize, at, how as usize, flags, 0, 0];
    // SAFETY: the path is a C string that outlives the call.
    unsafe { call(libc::SYS_faccessat2, arguments) }
}

/// chmod(2) of the file that is open as `fd`, also with O_PATH. Before Linux 6.6 it needs /proc.
pub fn change_mode(fd: i32, mode: u32) -> Result<usize> {
    /// fchmodat2(2), with this number on every architecture.
    const BY_DESCRIPTOR: i64 = 452;
    let (empty, flags) = (c"".as_ptr() as usize, libc::AT_EMPTY_PATH as usize);
    // SAFETY: the path is a C string that outlives the call.
    let changed = unsafe {
        call(
            BY_DESCRIPTOR,
            [fd as usize, empty, mode as usize, flags, 0, 0],
        )
    };
    if changed != Err(libc::ENOSYS) {
        return changed;
    }
    let path = std::ffi::CString::new(format!("/proc/self/fd/{fd}")).map_err(|_| libc::EINVAL)?;
    let at = path.as_ptr() as usize;
    let arguments = [libc::AT_FDCWD as usize, at, mode as usize, 0, 0, 0];
    // SAFETY: as above.
    unsafe { call(libc::SYS_fchmodat, arguments) }
}

/// unlink(2).
pub fn unlink(path: &core::ffi::CStr) -> Result<usize> {
    let arguments = [libc::AT_FDCWD as usize, path.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the path is a C string that outlives the call.
    unsafe { call(libc::SYS_unlinkat, arguments) }
}

/// link(2).
pub fn link(from: &core::ffi::CStr, to: &core::ffi::CStr) -> Result<usize> {
    // SAFETY: as in `two_paths`.
    unsafe { call(libc::SYS_linkat, two_paths(from, to)) }
}

/// rename(2).
pub fn rename(from: &core::ffi::CStr, to: &core::ffi::CStr) -> Result<usize> {
    // SAFETY: as in `two_paths`.
    unsafe { call(libc::SYS_renameat2, two_paths(from, to)) }
}

/// Arguments of a call that takes two paths, both C strings that outlive it.
fn two_paths(from: &core::ffi::CStr, to: &core::ffi::CStr) -> [usize; 6] {
    let here = libc::AT_FDCWD as usize;
    [
        here,
        from.as_ptr() as usize,
        here,
        to.as_ptr() as usize,
        0,
        0,
    ]
}

/// pipe2(2), close-on-exec: reading end and writing end.
pub fn pipe(ends: &mut [i32; 2]) -> Result<usize> {
    let at = ends.as_mut_ptr() as usize;
    let arguments = [at, libc::O_CLOEXEC as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes two numbers.
    unsafe { call(libc::SYS_pipe2, arguments) }
}

/// getdents64(2): entries of an open folder, and how many bytes they take; 0 at the end.
pub fn read_folder(fd: i32, entries: &mut [u8]) -> Result<usize> {
    let arguments = [
        fd as usize,
        entries.as_mut_ptr() as usize,
        entries.len(),
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes into the slice only.
    unsafe { call(libc::SYS_getdents64, arguments) }
}

/// getsockopt(2) of a structure: the kernel's bytes at the start of `value`, and their number.
pub fn option(fd: i32, level: i32, name: i32, value: &mut [u8]) -> Result<usize> {
    let mut length = value.len() as u32;
    let (at, len) = (
        value.as_mut_ptr() as usize,
        &mut length as *mut u32 as usize,
    );
    let arguments = [fd as usize, level as usize, name as usize, at, len, 0];
    // SAFETY: the kernel writes at most `length` bytes of value, and the length on this frame.
    unsafe { call(libc::SYS_getsockopt, arguments) }?;
    Ok(length as usize)
}

/// getsockopt(2) of one int.
pub fn option_int(fd: i32, level: i32, name: i32) -> Result<i32> {
    let mut value = 0i32;
    let mut length = 4u32;
    let (at, len) = (
        &mut value as *mut i32 as usize,
        &mut length as *mut u32 as usize,
    );
    // SAFETY: the kernel writes at most 4 bytes of value and the length, both on this frame.
    unsafe {
        call(
            libc::SYS_getsockopt,
            [fd as usize, level as usize, name as usize, at, len, 0],
        )
    }?;
    Ok(value)
}

/// setsockopt(2) of one int.
pub fn set_option_int(fd: i32, level: i32, name: i32, value: i32) -> Result<usize> {
    let at = &value as *const i32 as usize;
    // SAFETY: the kernel reads 4 bytes of this frame.
    unsafe {
        call(
            libc::SYS_setsockopt,
            [fd as usize, level as usize, name as usize, at, 4, 0],
        )
    }
}

/// setsockopt(2) of bytes.
pub fn set_option(fd: i32, level: i32, name: i32, value: &[u8]) -> Result<usize> {
    let (at, length) = (value.as_ptr() as usize, value.len());
    // SAFETY: the slice is readable for its length.
    unsafe {
        call(
            libc::SYS_setsockopt,
            [fd as usize, level as usize, name as usize, at, length, 0],
        )
    }
}

/// Credentials of the other end of a Unix socket.
pub fn peer_credentials(fd: i32) -> Result<libc::ucred> {
    let mut found = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = core::mem::size_of::<libc::ucred>() as u32;
    let (at, len) = (
        &mut found as *mut libc::ucred as usize,
        &mut length as *mut u32 as usize,
    );
    let (level, name) = (libc::SOL_SOCKET as usize, libc::SO_PEERCRED as usize);
    // SAFETY: the kernel writes one ucred and the length, both on this frame.
    unsafe { call(libc::SYS_getsockopt, [fd as usize, level, name, at, len, 0]) }?;
    Ok(found)
}

/// A socket address in the kernel's bytes.
#[derive(Clone, Copy)]
pub struct NameBytes {
    /// The bytes, of which the first `length` are valid.
    pub bytes: [u8; 128],
    /// The number of valid bytes.
    pub length: u32,
}

/// getsockname(2) into bytes.
pub fn socket_name(fd: i32) -> Result<NameBytes> {
    name_by(libc::SYS_getsockname, fd)
}

/// getpeername(2) into bytes.
pub fn peer_name(fd: i32) -> Result<NameBytes> {
    name_by(libc::SYS_getpeername, fd)
}

fn name_by(number: i64, fd: i32) -> Result<NameBytes> {
    let mut name = NameBytes {
        bytes: [0; 128],
        length: 128,
    };
    let (at, len) = (
        name.bytes.as_mut_ptr() as usize,
        &mut name.length as *mut u32 as usize,
    );
    // SAFETY: the kernel writes at most 128 bytes and the length, both on this frame.
    unsafe { call(number, [fd as usize, at, len, 0, 0, 0]) }?;
    name.length = name.length.min(128);
    Ok(name)
}

/// bind(2) and connect(2) with address bytes.
pub fn bind(fd: i32, address: &[u8]) -> Result<usize> {
    let (at, length) = (address.as_ptr() as usize, address.len());
    // SAFETY: the slice is readable for its length.
    unsafe { call(libc::SYS_bind, [fd as usize, at, length, 0, 0, 0]) }
}

/// connect(2).
pub fn connect(fd: i32, address: &[u8]) -> Result<usize> {
    let (at, length) = (address.as_ptr() as usize, address.len());
    // SAFETY: the slice is readable for its length.
    unsafe { call(libc::SYS_connect, [fd as usize, at, length, 0, 0, 0]) }
}

/// accept4(2) with the client's address.
pub fn accept_from(fd: i32, flags: i32) -> Result<(i32, NameBytes)> {
    let mut name = NameBytes {
        bytes: [0; 128],
        length: 128,
    };
    let (at, len) = (
        name.bytes.as_mut_ptr() as usize,
        &mut name.length as *mut u32 as usize,
    );
    let arguments = [fd as usize, at, len, flags as usize, 0, 0];
    // SAFETY: the kernel writes at most 128 bytes and the length, both on this frame.
    let made = unsafe { call(libc::SYS_accept4, arguments) }?;
    name.length = name.length.min(128);
    Ok((made as i32, name))
}

/// accept4(2) without the address.
pub fn accept(fd: i32, flags: i32) -> Result<i32> {
    // SAFETY: null address and length mean that nothing is written.
    unsafe { call(libc::SYS_accept4, [fd as usize, 0, 0, flags as usize, 0, 0]) }
        .map(|fd| fd as i32)
}

/// sendto(2) with an address.
pub fn send_to(fd: i32, bytes: &[u8], flags: i32, address: &[u8]) -> Result<usize> {
    let (at, length) = (bytes.as_ptr() as usize, bytes.len());
    let (to, to_length) = (address.as_ptr() as usize, address.len());
    // SAFETY: both slices are readable for their lengths.
    unsafe {
        call(
            libc::SYS_sendto,
            [fd as usize, at, length, flags as usize, to, to_length],
        )
    }
}

/// recv(2).
pub fn receive(fd: i32, bytes: &mut [u8], flags: i32) -> Result<usize> {
    let (at, length) = (bytes.as_mut_ptr() as usize, bytes.len());
    // SAFETY: the slice is writable for its length; no address is asked for.
    unsafe {
        call(
            libc::SYS_recvfrom,
            [fd as usize, at, length, flags as usize, 0, 0],
        )
    }
}

/// epoll_ctl(2).
pub fn epoll_control(set: i32, command: i32, fd: i32, events: u32, data: u64) -> Result<usize> {
    let event = libc::epoll_event { events, u64: data };
    let at = &event as *const libc::epoll_event as usize;
    // SAFETY: the kernel reads one event of this frame.
    unsafe {
        call(
            libc::SYS_epoll_ctl,
            [set as usize, command as usize, fd as usize, at, 0, 0],
        )
    }
}

/// The kernel is older than 5.11, which has no epoll_pwait2.
static IS_OLD: AtomicBool = AtomicBool::new(false);

/// epoll_pwait2(2): waits up to `timeout` (None: forever). On old kernels, and in a confined
/// process, which may have allowed only the older call, rounds up to milliseconds.
pub fn epoll_wait(
    set: i32,
    events: &mut [libc::epoll_event],
    timeout: Option<core::time::Duration>,
    mask: Option<u64>,
) -> Result<usize> {
    let mask_at = mask.as_ref().map_or(0, |m| m as *const u64 as usize);
    let head = [set as usize, events.as_mut_ptr() as usize, events.len()];
    let [set, at, count] = head;
    if !IS_OLD.load(Ordering::Relaxed) && !is_confined() {
        let time = timeout.map(timespec);
        let time_at = time
            .as_ref()
            .map_or(0, |t| t as *const libc::timespec as usize);
        let arguments = [set, at, count, time_at, mask_at, 8];
        // SAFETY: the kernel fills at most events.len() events; time and mask live on this frame.
        match unsafe { call(libc::SYS_epoll_pwait2, arguments) } {
            Err(libc::ENOSYS) => IS_OLD.store(true, Ordering::Relaxed),
            other => return other,
        }
    }
    // Not shorter than asked for.
    let ms = timeout.map_or(-1, |time| {
        i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    });
    let arguments = [set, at, count, ms as usize, mask_at, 8];
    // SAFETY: as above.
    unsafe { call(libc::SYS_epoll_pwait, arguments) }
}

/// ppoll(2): waits up to `timeout` (None: forever) under `mask` (None: the current one).
pub fn poll(
    fds: &mut [libc::pollfd],
    timeout: Option<core::time::Duration>,
    mask: Option<u64>,
) -> Result<usize> {
    let mut time = timeout.map(timespec);
    let at = fds.as_mut_ptr() as usize;
    let time_at = time
        .as_mut()
        .map_or(0, |t| t as *mut libc::timespec as usize);
    let mask_at = mask.as_ref().map_or(0, |m| m as *const u64 as usize);
    // SAFETY: the kernel reads and writes fds.len() entries and the time on this frame.
    unsafe { call(libc::SYS_ppoll, [at, fds.len(), time_at, mask_at, 8, 0]) }
}

fn timespec(time: core::time::Duration) -> libc::timespec {
    let seconds = time.as_secs().min(i64::MAX as u64) as i64;
    libc::timespec {
        tv_sec: seconds,
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

/// Swaps the thread's signal mask and returns the former one.
pub fn swap_signal_mask(mask: u64) -> u64 {
    let mut former = 0u64;
    let (new, old) = (
        &mask as *const u64 as usize,
        &mut former as *mut u64 as usize,
    );
    // SAFETY: both masks are 8 bytes on this frame.
    let _ = unsafe {
        call(
            libc::SYS_rt_sigprocmask,
            [libc::SIG_SETMASK as usize, new, old, 8, 0, 0],
        )
    };
    former
}

/// Unblocks signals in this thread: pending ones are delivered before this returns.
pub fn unblock_signals(mask: u64) {
    let place = &mask as *const u64 as usize;
    // SAFETY: the kernel reads one word, which lives on this stack frame.
    let _ = unsafe {
        call(
            libc::SYS_rt_sigprocmask,
            [libc::SIG_UNBLOCK as usize, place, 0, 8, 0, 0],
        )
    };
}

/// pread(2) of a file into memory given as address and length.
///
/// # Safety
/// `at` must be writable for `length` bytes.
pub unsafe fn pread(fd: i32, at: *mut u8, length: usize, offset: i64) -> Result<usize> {
    // SAFETY: the caller vouches for the memory.
    unsafe {
        call(
            libc::SYS_pread64,
            [fd as usize, at as usize, length, offset as usize, 0, 0],
        )
    }
}

/// lseek(2).
pub fn seek(fd: i32, offset: i64, whence: i32) -> Result<i64> {
    // SAFETY: this call takes numbers only.
    unsafe {
        call(
            libc::SYS_lseek,
            [fd as usize, offset as usize, whence as usize, 0, 0, 0],
        )
    }
    .map(|at| at as i64)
}

/// pread(2) into a slice.
pub fn read_at(fd: i32, bytes: &mut [u8], offset: i64) -> Result<usize> {
    // SAFETY: the slice is writable for its length.
    unsafe { pread(fd, bytes.as_mut_ptr(), bytes.len(), offset) }
}
