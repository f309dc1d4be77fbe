//! Options without effect, kept for getsockopt(2), and options that only the calls use.

use std::collections::HashMap;

/// linux/tcp.h: control data of this number has the bytes left to read.
pub const TCP_INQ: i32 = 36;

/// By descriptor, level and name.
#[derive(Debug, Default)]
pub struct Kept(HashMap<(i32, i32, i32), i32>);

/// linux/tcp.h, linux/in.h, asm-generic/socket.h: options of the host, of other transports, or of
/// the kernel's internals, which scripts also set.
const IP: &[i32] = &[
    libc::IP_FREEBIND,
    libc::IP_MTU_DISCOVER,
    libc::IP_RECVERR,
    libc::IP_TRANSPARENT,
    libc::IP_BIND_ADDRESS_NO_PORT,
];
const SOCKET: &[i32] = &[
    libc::SO_REUSEADDR,
    libc::SO_REUSEPORT,
    libc::SO_PRIORITY,
    libc::SO_MARK,
    libc::SO_ZEROCOPY,
    libc::SO_INCOMING_CPU,
    libc::SO_BUSY_POLL,
    libc::SO_DONTROUTE,
];

/// Whether an option is only kept.
pub fn is_kept(level: i32, name: i32) -> bool {
    match level {
        libc::SOL_SOCKET => SOCKET.contains(&name),
        libc::SOL_IP => IP.contains(&name),
        libc::SOL_IPV6 => [libc::IPV6_RECVERR, libc::IPV6_MTU_DISCOVER].contains(&name),
        libc::IPPROTO_TCP => name == TCP_INQ,
        _ => false,
    }
}

impl Kept {
    /// setsockopt(2).
    pub fn set(&mut self, fd: i32, level: i32, name: i32, value: i32) {
        self.0.insert((fd, level, name), value);
    }

    /// getsockopt(2): 0 if it was not set.
    pub fn get(&self, fd: i32, level: i32, name: i32) -> i32 {
        self.0.get(&(fd, level, name)).copied().unwrap_or(0)
    }

    /// The descriptor is closed.
    pub fn forget(&mut self, fd: i32) {
        self.0.retain(|(of, ..), _| *of != fd);
    }
}
