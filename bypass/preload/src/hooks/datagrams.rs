//! Receiving and sending on UDP sockets, of which the kernel has a part.

use core::ffi::c_int;

use std::net::IpAddr;

use bypass_stack::datagrams::{control as wanted, Said, Taken};
use bypass_stack::operations::datagrams::{self, Look, Next};
use bypass_stack::process::deferral::inside;
use bypass_stack::process::table;
use bypass_stack::Outcome;
use bypass_sys::address;
use bypass_sys::iovec::Pieces;
use libc::{msghdr, sockaddr, socklen_t, ssize_t};

use super::control;
use crate::address::is_wild;
use crate::cancel::point;
use crate::outcome::{errno, fail};
use crate::real;

/// recvmsg(2) into `pieces`, which are the header's.
///
/// # Safety
/// The header and what it names are the caller's, as recvmsg(2) wants them.
pub unsafe fn receive(fd: c_int, header: &mut msghdr, pieces: &Pieces, flags: c_int) -> ssize_t {
    // SAFETY: the caller's header.
    let kernel = |header: &mut msghdr, flags| unsafe { real::recvmsg()(fd, header, flags) };
    let given = *header;
    let mut deadline = None;
    let mut look = Look::First;
    loop {
        let mut room = pieces.clone();
        let taken = match inside(|| datagrams::receive(fd, &mut room, flags, look)) {
            Next::Kernel => return kernel(header, flags),
            Next::Taken(taken, copied) => Some((taken, copied)),
            Next::Wait => None,
            Next::AskKernel => {
                let received = kernel(header, flags | libc::MSG_DONTWAIT);
                if received >= 0 || errno() != libc::EAGAIN {
                    return received;
                }
                *header = given;
                let taken = inside(|| datagrams::receive_late(fd, &mut room, flags));
                if taken.is_none() && !inside(|| datagrams::waits(fd, flags)) {
                    return fail(libc::EAGAIN) as ssize_t;
                }
                taken
            }
        };
        if let Some((taken, copied)) = taken {
            // SAFETY: the caller's header.
            return unsafe { tell(&taken, copied, header, flags) };
        }
        let deadline = *deadline.get_or_insert_with(|| inside(|| datagrams::deadline(fd)));
        let wait = || match inside(|| datagrams::wait(fd, deadline)) {
            Ok(has_kernel) => Outcome::Done(has_kernel.into()),
            Err(error) => Outcome::Error(error),
        };
        match point(wait, || 0) {
            -1 => return -1,
            has_kernel => look = Look::Woken(has_kernel != 0),
        }
    }
}

/// Fills a header as the kernel does; the result of the call.
unsafe fn tell(taken: &Taken, copied: usize, header: &mut msghdr, flags: c_int) -> ssize_t {
    let length = taken.received.length;
    header.msg_flags = flags & libc::MSG_CMSG_CLOEXEC;
    if copied < length {
        header.msg_flags |= libc::MSG_TRUNC;
    }
    if !header.msg_name.is_null() {
        let mut name = [0; 28];
        let count = address::to_bytes(taken.received.source, taken.family, &mut name);
        let room = (header.msg_namelen as usize).min(count);
        // SAFETY: the caller's name has so many bytes.
        unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), header.msg_name.cast(), room) };
        header.msg_namelen = count as socklen_t;
    }
    let mut written = Written {
        at: header.msg_control.cast(),
        room: header.msg_controllen,
        used: 0,
        is_short: false,
    };
    // SAFETY: the caller's control part.
    unsafe { tell_more(taken, &mut written) };
    header.msg_controllen = written.used;
    if written.is_short {
        header.msg_flags |= libc::MSG_CTRUNC;
    }
    (match flags & libc::MSG_TRUNC {
        0 => copied,
        _ => length,
    }) as ssize_t
}

/// The control part of a header, written from the front.
struct Written {
    at: *mut u8,
    room: usize,
    used: usize,
    is_short: bool,
}

impl Written {
    /// put_cmsg of the kernel: what has too little room is cut.
    unsafe fn put(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let head = size_of::<libc::cmsghdr>();
        let room = self.room - self.used;
        if self.at.is_null() || room < head {
            self.is_short = true;
            return;
        }
        self.is_short |= room < head + data.len();
        let length = (head + data.len()).min(room);
        // SAFETY: a header is numbers only.
        let mut part: libc::cmsghdr = unsafe { core::mem::zeroed() };
        (part.cmsg_level, part.cmsg_type) = (level, kind);
        part.cmsg_len = length as _;
        // SAFETY: inside the caller's control part, as was just looked at.
        unsafe {
            let at = self.at.add(self.used);
            at.cast::<libc::cmsghdr>().write_unaligned(part);
            core::ptr::copy_nonoverlapping(data.as_ptr(), at.add(head), length - head);
        }
        let space = (head + data.len()).next_multiple_of(size_of::<usize>());
        self.used += space.min(room);
    }
}

/// The further control data that the socket asked for, in the kernel's order (ip(7), ipv6(7)).
unsafe fn tell_more(taken: &Taken, written: &mut Written) {
    let received = &taken.received;
    let wants = |bit| taken.told & bit != 0;
    let mut put = |level, kind, data: &[u8]| {
        // SAFETY: the caller's control part.
        unsafe { written.put(level, kind, data) }
    };
    let (hops, class) = (c_int::from(received.hops), received.traffic_class);
    if wants(wanted::PACKET_INFO_6) {
        let octets = match received.destination {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let mut info = [0; 20];
        info[..16].copy_from_slice(&octets);
        info[16..].copy_from_slice(&received.link.to_ne_bytes());
        put(libc::SOL_IPV6, libc::IPV6_PKTINFO, &info);
    }
    if let IpAddr::V4(ip) = received.destination {
        if wants(wanted::PACKET_INFO) {
            let mut info = [0; 12];
            info[..4].copy_from_slice(&received.link.to_ne_bytes());
            info[4..8].copy_from_slice(&ip.octets());
            info[8..].copy_from_slice(&ip.octets());
            put(libc::SOL_IP, libc::IP_PKTINFO, &info);
        }
        if wants(wanted::TTL) {
            put(libc::SOL_IP, libc::IP_TTL, &hops.to_ne_bytes());
        }
        if wants(wanted::TOS) {
            put(libc::SOL_IP, libc::IP_TOS, &[class]);
        }
        return;
    }
    if wants(wanted::HOP_LIMIT) {
        put(libc::SOL_IPV6, libc::IPV6_HOPLIMIT, &hops.to_ne_bytes());
    }
    if wants(wanted::TRAFFIC_CLASS) {
        let class = c_int::from(class).to_ne_bytes();
        put(libc::SOL_IPV6, libc::IPV6_TCLASS, &class);
    }
}

/// recvfrom(2) and its kin, as a message.
///
/// # Safety
/// The buffers and the name are the caller's.
pub unsafe fn receive_from(
    fd: c_int,
    pieces: &[libc::iovec],
    flags: c_int,
    (name, length): (*mut sockaddr, *mut socklen_t),
) -> ssize_t {
    let mut header = header(pieces);
    // SAFETY: the caller's buffers.
    let Some(pieces) = (unsafe { Pieces::new(pieces) }) else {
        return fail(libc::EINVAL) as ssize_t;
    };
    // SAFETY: null or a length, by recvfrom(2).
    if let Some(length) = unsafe { length.as_ref() }.filter(|_| !name.is_null()) {
        if *length > i32::MAX as socklen_t {
            return fail(libc::EINVAL) as ssize_t;
        }
        (header.msg_name, header.msg_namelen) = (name.cast(), *length);
    }
    // SAFETY: the header just made of the caller's.
    let received = unsafe { receive(fd, &mut header, &pieces, flags) };
    if received >= 0 && !header.msg_name.is_null() {
        // SAFETY: as above.
        unsafe { *length = header.msg_namelen };
    }
    received
}

fn header(pieces: &[libc::iovec]) -> msghdr {
    // SAFETY: a header is numbers and null pointers.
    let mut header: msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = pieces.as_ptr().cast_mut();
    header.msg_iovlen = pieces.len() as _;
    header
}

/// sendmsg(2), where an engine can do it; None: the kernel is to.
///
/// # Safety
/// The header and what it names are the caller's, as sendmsg(2) wants them.
pub unsafe fn send_message(
    fd: c_int,
    header: &msghdr,
    pieces: Option<&Pieces>,
    flags: c_int,
) -> Option<ssize_t> {
    // SAFETY: the caller's control part.
    let said = unsafe { said(fd, header) }?;
    let to = (header.msg_name.cast_const().cast(), header.msg_namelen);
    // SAFETY: the caller's buffers and name.
    unsafe { send_as(fd, pieces, flags, to, &said) }
}

/// The options in the control part of a message; None: one that only the kernel can handle, or an invalid one.
unsafe fn said(fd: c_int, header: &msghdr) -> Option<Said> {
    let mut said = Said::default();
    if header.msg_controllen == 0 {
        return Some(said);
    }
    // Parts of the other level mean nothing, or something else.
    let level = match inside(|| datagrams::family(fd))? {
        libc::AF_INET => libc::SOL_IP,
        _ => libc::SOL_IPV6,
    };
    let (mut is_known, mut length) = (true, 0);
    let of_part = |part: control::Part| {
        length += (part.length + size_of::<libc::cmsghdr>()).next_multiple_of(size_of::<usize>());
        // SAFETY: the part's data, as the walk has looked at it.
        let data = unsafe { core::slice::from_raw_parts(part.data, part.length) };
        is_known &= part.level == level && hear(&mut said, level, part.kind, data).is_some();
    };
    // SAFETY: the caller's header, whose control part has the length that it says.
    unsafe { control::each(header, of_part) };
    (is_known && length >= header.msg_controllen).then_some(said)
}

/// One part of a control part; None: the kernel's.
fn hear(said: &mut Said, level: c_int, kind: c_int, data: &[u8]) -> Option<()> {
    let number = || match *data {
        [byte] => Some(byte),
        [a, b, c, d] => u8::try_from(i32::from_ne_bytes([a, b, c, d])).ok(),
        _ => None,
    };
    let link = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().unwrap_or_default());
    match (level, kind) {
        (libc::SOL_IP, libc::IP_PKTINFO) if data.len() == 12 => {
            let source: [u8; 4] = data[4..8].try_into().ok()?;
            said.source = Some(IpAddr::from(source)).filter(|ip| !ip.is_unspecified());
            said.link = Some(link(&data[..4])).filter(|link| *link != 0);
        }
        (libc::SOL_IPV6, libc::IPV6_PKTINFO) if data.len() == 20 => {
            let source: [u8; 16] = data[..16].try_into().ok()?;
            let source = address::canonical(source.into());
            said.source = Some(source).filter(|ip| !ip.is_unspecified());
            said.link = Some(link(&data[16..])).filter(|link| *link != 0);
        }
        (libc::SOL_IP, libc::IP_TOS) => said.traffic_class = Some(number()?),
        (libc::SOL_IP, libc::IP_TTL) if data.len() == 4 => {
            said.hops = Some(number().filter(|hops| *hops > 0)?);
        }
        (libc::SOL_IPV6, libc::IPV6_TCLASS) if data.len() == 4 => {
            said.traffic_class = Some(number()?);
        }
        (libc::SOL_IPV6, libc::IPV6_HOPLIMIT) if data.len() == 4 => {
            said.hops = Some(number().filter(|hops| *hops > 0)?);
        }
        _ => return None,
    }
    Some(())
}

/// sendto(2) and its kin, where an engine can do it; None: the kernel is to.
///
/// # Safety
/// The buffers and the name are the caller's.
pub unsafe fn send(
    fd: c_int,
    pieces: Option<&Pieces>,
    flags: c_int,
    to: (*const sockaddr, socklen_t),
) -> Option<ssize_t> {
    // SAFETY: as above.
    unsafe { send_as(fd, pieces, flags, to, &Said::default()) }
}

unsafe fn send_as(
    fd: c_int,
    pieces: Option<&Pieces>,
    flags: c_int,
    (name, length): (*const sockaddr, socklen_t),
    said: &Said,
) -> Option<ssize_t> {
    let to = match name.is_null() {
        true => None,
        false if is_wild(name) => return None,
        false if length as usize > size_of::<libc::sockaddr_storage>() => return None,
        // SAFETY: sendto(2) promises so many readable bytes.
        false => Some(unsafe { core::slice::from_raw_parts(name.cast::<u8>(), length as usize) }),
    };
    let sent = inside(|| datagrams::send(fd, to, pieces?, flags, said));
    sent.map(|sent| sent as ssize_t)
}

/// A call that the kernel has done on a socket, after which it may be bound or connected elsewhere.
#[inline]
pub fn after_naming(fd: c_int, result: c_int) -> c_int {
    if table::is_datagram(fd) {
        inside(|| datagrams::named(fd));
    }
    result
}
