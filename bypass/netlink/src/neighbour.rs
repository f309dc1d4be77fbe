//! Makes the kernel resolve a neighbour, or confirm one whose address is in use.

use std::net::IpAddr;

use bypass_sys::kernel::{self, Result};
use bypass_sys::numbers;

use crate::item::{family, octets};
use crate::message::Request;
use crate::socket::Socket;

/// NTF_USE of linux/neighbour.h: as if a packet had been sent to it.
const NTF_USE: u8 = 1;
/// The discard service (RFC 863).
const DISCARD: u16 = 9;
/// Place of the interface in the name of an IPv6 host (`sin6_scope_id`).
const SCOPE: core::ops::Range<usize> = 24..28;

/// Makes the kernel resolve `ip` on interface `link`; the result arrives as a change of
/// [`Tables`](crate::Tables). Without CAP_NET_ADMIN it sends an empty datagram to the discard port.
pub fn resolve(link: u32, ip: IpAddr) -> Result<()> {
    let mut fixed = [0u8; 12];
    fixed[0] = family(ip);
    fixed[4..8].copy_from_slice(&link.to_ne_bytes());
    fixed[10] = NTF_USE;
    let flags = libc::NLM_F_CREATE | libc::NLM_F_ACK;
    let request =
        Request::new(libc::RTM_NEWNEIGH, flags, &fixed).attribute(libc::NDA_DST, &octets(ip));
    match Socket::open(0)?.ask(request, &mut |_| {}) {
        Err(libc::EPERM) => send_datagram(link, ip),
        other => other,
    }
}

fn send_datagram(link: u32, ip: IpAddr) -> Result<()> {
    let family = i32::from(family(ip));
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let socket = numbers::high(|| kernel::socket(family, kind, 0))?;
    let mut name = [0u8; 28];
    let length = bypass_sys::address::to_bytes((ip, DISCARD).into(), family, &mut name);
    if ip.is_ipv6() {
        // A link-local address means a host only together with its link, and routers often have no other one.
        name[SCOPE].copy_from_slice(&link.to_ne_bytes());
    }
    kernel::send_to(socket.0, &[], libc::MSG_DONTWAIT, &name[..length]).map(|_| ())
}
