//! The three system calls of the hot path without libc in between, where nothing stands in front
//! of libc.
//!
//! libc's `recv`, `send` and `epoll_wait` are points of thread cancellation: in a process with
//! threads each marks its beginning and its end by an atomic exchange, which costs more than all
//! else that this engine does in user space for a request. Under a preloaded stack, and on machines
//! other than x86-64, the functions of libc are called.

use super::is_preloaded;
use std::ffi::CStr;
use std::sync::OnceLock;

/// Whether `recv`, `send` and `epoll_wait` may go to the kernel directly: each is libc's own.
///
/// A preloaded library is not the only way to stand in front of libc (`/etc/ld.so.preload`, a
/// library that is linked), so the functions themselves are asked where they come from.
pub fn is_usable() -> bool {
    static USABLE: OnceLock<bool> = OnceLock::new();
    *USABLE.get_or_init(|| {
        let calls = [
            libc::recv as *const libc::c_void,
            libc::send as *const libc::c_void,
            libc::epoll_wait as *const libc::c_void,
        ];
        cfg!(target_arch = "x86_64") && !is_preloaded() && calls.into_iter().all(is_of_libc)
    })
}

/// Whether a function lies in the C library.
fn is_of_libc(function: *const libc::c_void) -> bool {
    let mut place = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the place is writable; any address may be asked for.
    if unsafe { libc::dladdr(function, place.as_mut_ptr()) } == 0 {
        return false;
    }
    // SAFETY: all zeros is a valid value, and the call has filled it in.
    let place = unsafe { place.assume_init() };
    if place.dli_fname.is_null() {
        return false;
    }
    // SAFETY: the name is a string of the loader's that lives as long as the library.
    let path = unsafe { CStr::from_ptr(place.dli_fname) }.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    [&b"libc.so"[..], b"libc-", b"ld-musl"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// A system call; what it returns, or the negative error number.
///
/// # Safety
/// The arguments must be valid for the call of this number.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: the registers are those of the kernel's convention, which changes rcx and r11 besides
    // rax; the caller answers for the arguments.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Never reached: [`is_usable`] says no.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn call(_: libc::c_long, _: [usize; 6]) -> isize {
    -(libc::ENOSYS as isize)
}

/// As libc's `recv` without flags; the negative error number instead of `errno`.
#[inline]
pub fn receive(fd: libc::c_int, buffer: &mut [u8]) -> isize {
    let (start, length) = (buffer.as_mut_ptr() as usize, buffer.len());
    // SAFETY: the buffer is writable for its length; no address of the sender is asked for.
    unsafe { call(libc::SYS_recvfrom, [fd as usize, start, length, 0, 0, 0]) }
}

/// As libc's `send` with MSG_NOSIGNAL; the negative error number instead of `errno`.
#[inline]
pub fn send(fd: libc::c_int, bytes: &[u8]) -> isize {
    let (start, length) = (bytes.as_ptr() as usize, bytes.len());
    let flags = libc::MSG_NOSIGNAL as usize;
    // SAFETY: the bytes are readable for their length; no address is given.
    unsafe { call(libc::SYS_sendto, [fd as usize, start, length, flags, 0, 0]) }
}

/// As libc's `epoll_wait`; the negative error number instead of `errno`.
#[inline]
pub fn wait(fd: libc::c_int, events: &mut [libc::epoll_event], timeout_ms: i32) -> isize {
    let (start, length) = (events.as_mut_ptr() as usize, events.len());
    // a pwait without a signal mask is a wait, and exists on every architecture
    let arguments = [fd as usize, start, length, timeout_ms as usize, 0, 8];
    // SAFETY: the buffer has room for as many events as are asked for; the mask is null.
    unsafe { call(libc::SYS_epoll_pwait, arguments) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_give_what_the_calls_of_libc_give() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        theirs.set_nonblocking(true).expect("non-blocking");
        let mut buffer = [0; 8];
        let nothing = receive(theirs.as_raw_fd(), &mut buffer);
        assert_eq!(nothing, -(libc::EAGAIN as isize));
        assert_eq!(send(ours.as_raw_fd(), b"five!"), 5);
        assert_eq!(receive(theirs.as_raw_fd(), &mut buffer), 5);
        assert_eq!(&buffer[..5], b"five!");
        drop(theirs);
        let broken = send(ours.as_raw_fd(), b"x");
        assert_eq!(broken, -(libc::EPIPE as isize), "and no signal");
        assert_eq!(send(-1, b"x"), -(libc::EBADF as isize));
    }

    #[test]
    fn functions_of_libc_are_recognised() {
        assert!(is_of_libc(libc::getpid as *const libc::c_void));
        assert!(!is_of_libc(is_usable as *const libc::c_void));
        assert!(!is_of_libc(std::ptr::null()));
    }
}
