//! The TCP engine behind packetdrill's interface for user-level stacks.
//!
//! packetdrill loads a library (`--so_filename`), calls [`packetdrill_interface_init`] and gets a
//! table of functions: the calls of a script, packets in and out, and the clock. The clock is
//! virtual: it moves when packetdrill sleeps, waits for a packet, or reads it, so a script takes
//! only its computing time and does the same in every run. The engine starts with the settings that
//! scripts for Linux make by `common/defaults.sh`, whose shell commands affect only the kernel.
//!
//! Flags (`--so_flags`, separated by commas): `local=ADDRESS`, which must equal packetdrill's
//! `--local_ip` if a script connects without bind; `mtu=BYTES`; `segmentation_max=BYTES` (default
//! 65000), the largest GSO packet, which leaves unsegmented, as Linux's do, or in segments with
//! `cut=1`; and settings that scripts make by sysctl: `receive_bytes` and `receive_bytes_max`
//! (tcp_rmem; half of its second number), `send_bytes` (tcp_wmem), `unsent_low`
//! (tcp_notsent_lowat), `train_segments` (tcp_min_tso_segs), `invalid_pause_ms`
//! (tcp_invalid_ratelimit), `keep_idle`, `keep_interval` and `keep_count` (tcp_keepalive_time,
//! _intvl, _probes), `slow_start_after_idle`, `sack`, `timestamps`, `window_scaling`, and `ecn`
//! (Linux's numbers: 0 never, 1 asks, 2 accepts). `quick_acks`: number of acknowledgments that are
//! sent without delay, as at the start of a connection.
//!
//! Descriptors are real ones of `/dev/null`: packetdrill closes them itself.

mod calls;
mod device;
mod host;
mod kept;
mod memory;
mod options;
mod script;
mod sets;
mod sockets;

use core::ffi::{c_char, c_int, c_long, c_longlong, c_uint, c_ulong, c_void, CStr};

use host::Host;
use script::Script;

type Data = *mut c_void;
type Name = *const libc::sockaddr;
type NameOut = *mut libc::sockaddr;
type Length = *mut libc::socklen_t;

/// packetdrill's table, in its order.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // each is the call of that name
pub struct Interface {
    pub userdata: Data,
    pub free: unsafe extern "C" fn(Data),
    pub socket: unsafe extern "C" fn(Data, c_int, c_int, c_int) -> c_int,
    pub bind: unsafe extern "C" fn(Data, c_int, Name, libc::socklen_t) -> c_int,
    pub listen: unsafe extern "C" fn(Data, c_int, c_int) -> c_int,
    pub accept: unsafe extern "C" fn(Data, c_int, NameOut, Length) -> c_int,
    pub connect: unsafe extern "C" fn(Data, c_int, Name, libc::socklen_t) -> c_int,
    pub read: unsafe extern "C" fn(Data, c_int, Data, usize) -> isize,
    pub readv: unsafe extern "C" fn(Data, c_int, *const libc::iovec, c_int) -> isize,
    pub recv: unsafe extern "C" fn(Data, c_int, Data, usize, c_int) -> isize,
    pub recvfrom: unsafe extern "C" fn(Data, c_int, Data, usize, c_int, NameOut, Length) -> isize,
    pub recvmsg: unsafe extern "C" fn(Data, c_int, *mut libc::msghdr, c_int) -> isize,
    pub write: unsafe extern "C" fn(Data, c_int, *const c_void, usize) -> isize,
    pub writev: unsafe extern "C" fn(Data, c_int, *const libc::iovec, c_int) -> isize,
    pub send: unsafe extern "C" fn(Data, c_int, *const c_void, usize, c_int) -> isize,
    pub sendto: unsafe extern "C" fn(
        Data,
        c_int,
        *const c_void,
        usize,
        c_int,
        Name,
        libc::socklen_t,
    ) -> isize,
    pub sendmsg: unsafe extern "C" fn(Data, c_int, *const libc::msghdr, c_int) -> isize,
    /// Variable arguments in C: an integer or pointer argument is passed the same way.
    pub fcntl: unsafe extern "C" fn(Data, c_int, c_int, c_long) -> c_int,
    pub ioctl: unsafe extern "C" fn(Data, c_int, c_ulong, *mut c_int) -> c_int,
    pub close: unsafe extern "C" fn(Data, c_int) -> c_int,
    pub shutdown: unsafe extern "C" fn(Data, c_int, c_int) -> c_int,
    pub getsockopt: unsafe extern "C" fn(Data, c_int, c_int, c_int, Data, Length) -> c_int,
    pub setsockopt:
        unsafe extern "C" fn(Data, c_int, c_int, c_int, *const c_void, libc::socklen_t) -> c_int,
    pub poll: unsafe extern "C" fn(Data, *mut libc::pollfd, libc::nfds_t, c_int) -> c_int,
    pub netdev_send: unsafe extern "C" fn(Data, *const c_void, usize) -> c_int,
    pub netdev_receive: unsafe extern "C" fn(Data, Data, *mut usize, *mut c_longlong) -> c_int,
    pub usleep: unsafe extern "C" fn(Data, c_uint) -> c_int,
    pub gettimeofday: unsafe extern "C" fn(Data, *mut libc::timeval, Data) -> c_int,
    pub epoll_create: unsafe extern "C" fn(Data, c_int) -> c_int,
    pub epoll_ctl: unsafe extern "C" fn(Data, c_int, c_int, c_int, *mut libc::epoll_event) -> c_int,
    pub epoll_wait:
        unsafe extern "C" fn(Data, c_int, *mut libc::epoll_event, c_int, c_int) -> c_int,
    pub pipe: unsafe extern "C" fn(Data, *mut c_int) -> c_int,
    pub splice: unsafe extern "C" fn(
        Data,
        c_int,
        *mut libc::loff_t,
        c_int,
        *mut libc::loff_t,
        usize,
        c_uint,
    ) -> isize,
}

/// Fills packetdrill's table. Unknown flags end the process, because the script would run with
/// other settings than requested.
///
/// # Safety
/// `flags` must be null or a C string, `table` must have room for an [`Interface`].
#[no_mangle]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, table: *mut Interface) {
    // SAFETY: by contract.
    let flags = (!flags.is_null()).then(|| unsafe { CStr::from_ptr(flags) });
    let flags = flags.unwrap_or_default().to_string_lossy();
    let Some(host) = Host::new(&flags) else {
        eprintln!("bypass-packetdrill: {flags}: flags are local=ADDRESS and settings, NAME=NUMBER");
        std::process::exit(2);
    };
    let userdata = Box::into_raw(Box::new(Script::new(host))).cast();
    let interface = calls::table(userdata);
    // SAFETY: by contract.
    unsafe { table.write(interface) };
}
