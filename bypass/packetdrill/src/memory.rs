//! The caller's memory: addresses, and bytes in pieces.

use core::ffi::c_void;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::kept::TCP_INQ;
use crate::script::Result;
use crate::{Length, Name, NameOut};

/// Reads a socket's name.
///
/// # Safety
/// `name` must be readable for `length` bytes.
pub unsafe fn address(name: Name, length: libc::socklen_t) -> Result<SocketAddr> {
    if name.is_null() || (length as usize) < size_of::<libc::sockaddr_in>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: long enough, whatever the alignment.
    let v4: libc::sockaddr_in = unsafe { name.cast::<libc::sockaddr_in>().read_unaligned() };
    if i32::from(v4.sin_family) == libc::AF_INET {
        let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
        return Ok((ip, u16::from_be(v4.sin_port)).into());
    }
    if (length as usize) < size_of::<libc::sockaddr_in6>() {
        return Err(libc::EAFNOSUPPORT);
    }
    // SAFETY: as above.
    let v6: libc::sockaddr_in6 = unsafe { name.cast::<libc::sockaddr_in6>().read_unaligned() };
    let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
    let ip = ip.to_ipv4_mapped().map_or(ip.into(), Into::into);
    Ok(SocketAddr::new(ip, u16::from_be(v6.sin6_port)))
}

/// Writes a socket's name.
///
/// # Safety
/// `name` must be null, or writable for `*length` bytes.
pub unsafe fn give_address(of: SocketAddr, name: NameOut, length: Length) {
    if name.is_null() || length.is_null() {
        return;
    }
    let port = of.port().to_be_bytes();
    let bytes = match of {
        SocketAddr::V4(v4) => {
            let family = (libc::AF_INET as u16).to_ne_bytes();
            [&family[..], &port, &v4.ip().octets(), &[0; 8]].concat()
        }
        SocketAddr::V6(v6) => {
            let family = (libc::AF_INET6 as u16).to_ne_bytes();
            [&family[..], &port, &[0; 4], &v6.ip().octets(), &[0; 4]].concat()
        }
    };
    // SAFETY: no more than fits.
    unsafe {
        let fits = bytes.len().min(*length as usize);
        name.cast::<u8>().copy_from(bytes.as_ptr(), fits);
        *length = bytes.len() as libc::socklen_t;
    }
}

/// Bytes that a call reads or writes; EFAULT if a piece has no memory.
///
/// # Safety
/// `pieces` must be readable for `count` entries.
pub unsafe fn total(pieces: *const libc::iovec, count: usize) -> Result<usize> {
    let mut total = 0;
    for at in 0..count {
        // SAFETY: by contract.
        let piece = unsafe { *pieces.add(at) };
        if piece.iov_base.is_null() && piece.iov_len > 0 {
            return Err(libc::EFAULT);
        }
        total += piece.iov_len;
    }
    Ok(total)
}

/// The bytes of all pieces.
///
/// # Safety
/// The pieces must be readable.
pub unsafe fn gather(pieces: *const libc::iovec, count: usize) -> Result<Vec<u8>> {
    // SAFETY: by contract.
    let mut bytes = Vec::with_capacity(unsafe { total(pieces, count) }?);
    for at in 0..count {
        // SAFETY: by contract.
        let piece = unsafe { *pieces.add(at) };
        if piece.iov_len > 0 {
            // SAFETY: by contract.
            let from = unsafe { core::slice::from_raw_parts(piece.iov_base.cast(), piece.iov_len) };
            bytes.extend_from_slice(from);
        }
    }
    Ok(bytes)
}

/// Copies bytes into the pieces.
///
/// # Safety
/// The pieces must be writable.
pub unsafe fn scatter(mut bytes: &[u8], pieces: *const libc::iovec, count: usize) {
    for at in 0..count {
        // SAFETY: by contract.
        let piece = unsafe { *pieces.add(at) };
        let (now, rest) = bytes.split_at(piece.iov_len.min(bytes.len()));
        // SAFETY: no more than fits.
        unsafe {
            piece
                .iov_base
                .cast::<u8>()
                .copy_from(now.as_ptr(), now.len())
        };
        bytes = rest;
    }
}

/// One piece.
pub fn piece(base: *const c_void, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: base.cast_mut(),
        iov_len: length,
    }
}

/// Writes control data with the number of bytes left to read (TCP_CM_INQ), if it fits.
///
/// # Safety
/// The message's control buffer must be as long as it says.
pub unsafe fn give_control(message: &mut libc::msghdr, left: i32) {
    // SAFETY: a computation.
    let space = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) } as usize;
    if message.msg_control.is_null() || message.msg_controllen < space {
        message.msg_controllen = 0;
        return;
    }
    // SAFETY: the buffer holds one header and a number.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        (*header).cmsg_level = libc::IPPROTO_TCP;
        (*header).cmsg_type = TCP_INQ;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(left);
    }
    message.msg_controllen = space;
}
