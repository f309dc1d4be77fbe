//! System calls around network devices: options, interface requests, namespaces, passed descriptors.

use crate::descriptor::Owned;
use crate::kernel::{self, Result};
use crate::numbers;

/// Most descriptors that one message carries; the kernel allows up to 253.
pub const PASSED_MAX: usize = 64;
const CONTROL_BYTES: usize = 16 + 4 * PASSED_MAX;

/// Enters the kernel with arguments that the callers below have checked.
fn call(number: i64, arguments: [usize; 6]) -> Result<usize> {
    // SAFETY: only the functions of this file call this, with addresses of values that live on
    // their frames or in slices that they borrow.
    kernel::check(unsafe { kernel::raw(number, arguments) })
}

/// ioctl(2) with a structure of bytes, read and written.
pub fn ioctl(fd: i32, request: u64, value: &mut [u8]) -> Result<usize> {
    let at = value.as_mut_ptr() as usize;
    call(
        libc::SYS_ioctl,
        [fd as usize, request as usize, at, 0, 0, 0],
    )
}

/// ioctl(2) with a number.
pub fn ioctl_number(fd: i32, request: u64, value: usize) -> Result<usize> {
    call(
        libc::SYS_ioctl,
        [fd as usize, request as usize, value, 0, 0, 0],
    )
}

/// getsockopt(2) into bytes; returns how many the kernel wrote.
pub fn option(fd: i32, level: i32, name: i32, value: &mut [u8]) -> Result<usize> {
    let mut length = value.len() as u32;
    let (at, len) = (
        value.as_mut_ptr() as usize,
        &mut length as *mut u32 as usize,
    );
    let arguments = [fd as usize, level as usize, name as usize, at, len, 0];
    call(libc::SYS_getsockopt, arguments)?;
    Ok(length as usize)
}

/// unshare(2) of the calling thread.
pub fn unshare(flags: i32) -> Result<usize> {
    call(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0, 0])
}

/// setns(2) of the calling thread.
pub fn set_namespace(fd: i32, kind: i32) -> Result<usize> {
    call(libc::SYS_setns, [fd as usize, kind as usize, 0, 0, 0, 0])
}

/// bpf(2).
///
/// # Safety
/// Every address inside `attributes` must be what `command` demands.
pub unsafe fn bpf(command: u32, attributes: &mut [u8]) -> Result<usize> {
    let at = attributes.as_mut_ptr() as usize;
    call(
        libc::SYS_bpf,
        [command as usize, at, attributes.len(), 0, 0, 0],
    )
}

/// readv(2) into two slices.
pub fn read_two(fd: i32, first: &mut [u8], second: &mut [u8]) -> Result<usize> {
    let pieces = [
        piece(first.as_mut_ptr(), first.len()),
        piece(second.as_mut_ptr(), second.len()),
    ];
    call(
        libc::SYS_readv,
        [fd as usize, pieces.as_ptr() as usize, 2, 0, 0, 0],
    )
}

/// writev(2) of some slices.
pub fn write_gathered<const N: usize>(fd: i32, slices: [&[u8]; N]) -> Result<usize> {
    let pieces = slices.map(|slice| piece(slice.as_ptr().cast_mut(), slice.len()));
    let at = pieces.as_ptr() as usize;
    call(libc::SYS_writev, [fd as usize, at, N, 0, 0, 0])
}

fn piece(at: *mut u8, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: at.cast(),
        iov_len: length,
    }
}

fn message(pieces: &mut libc::iovec, control: &mut [u8]) -> libc::msghdr {
    // SAFETY: all zero is a valid msghdr.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = pieces;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = control.len();
    header
}

/// Two Unix sockets that are joined, close-on-exec (socketpair(2)).
pub fn socket_pair() -> Result<[Owned; 2]> {
    pair_of(libc::SOCK_STREAM)
}

/// The same for datagrams: what is sent at once is received at once.
pub fn datagram_pair() -> Result<[Owned; 2]> {
    pair_of(libc::SOCK_DGRAM)
}

fn pair_of(kind: i32) -> Result<[Owned; 2]> {
    let kind = kind | libc::SOCK_CLOEXEC;
    numbers::high_pair(|fds| {
        let at = fds.as_mut_ptr() as usize;
        let arguments = [libc::AF_UNIX as usize, kind as usize, 0, at, 0, 0];
        call(libc::SYS_socketpair, arguments)
    })
}

/// Sends bytes and descriptors over a Unix socket (SCM_RIGHTS); the descriptors stay open here.
pub fn send_descriptors(socket: i32, bytes: &[u8], fds: &[i32]) -> Result<usize> {
    if fds.len() > PASSED_MAX {
        return Err(libc::EINVAL);
    }
    let mut control = [0u8; CONTROL_BYTES];
    control[..8].copy_from_slice(&(16 + 4 * fds.len()).to_ne_bytes());
    control[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    control[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
    for (place, fd) in control[16..].chunks_exact_mut(4).zip(fds) {
        place.copy_from_slice(&fd.to_ne_bytes());
    }
    let used = (16 + 4 * fds.len()).next_multiple_of(8).min(CONTROL_BYTES);
    let used = if fds.is_empty() { 0 } else { used };
    let mut pieces = piece(bytes.as_ptr().cast_mut(), bytes.len());
    let header = message(&mut pieces, &mut control[..used]);
    let at = &header as *const libc::msghdr as usize;
    call(
        libc::SYS_sendmsg,
        [socket as usize, at, libc::MSG_NOSIGNAL as usize, 0, 0, 0],
    )
}

/// Receives bytes and the descriptors that came with them, close-on-exec.
pub fn receive_descriptors(socket: i32, bytes: &mut [u8]) -> Result<(usize, Vec<Owned>)> {
    let mut control = [0u8; CONTROL_BYTES];
    let mut pieces = piece(bytes.as_mut_ptr(), bytes.len());
    let mut header = message(&mut pieces, &mut control);
    let at = &mut header as *mut libc::msghdr as usize;
    let flags = libc::MSG_CMSG_CLOEXEC as usize;
    let count = call(libc::SYS_recvmsg, [socket as usize, at, flags, 0, 0, 0])?;
    let (used, is_cut) = (
        header.msg_controllen,
        header.msg_flags & libc::MSG_CTRUNC != 0,
    );
    let fds = passed(&control[..used.min(CONTROL_BYTES)]);
    if is_cut {
        return Err(libc::EMSGSIZE);
    }
    Ok((count, fds))
}

fn passed(mut control: &[u8]) -> Vec<Owned> {
    let mut found = Vec::new();
    while control.len() >= 16 {
        let length = usize::from_ne_bytes(control[..8].try_into().unwrap_or_default());
        if length < 16 || length > control.len() {
            break;
        }
        let kind = i32::from_ne_bytes([control[12], control[13], control[14], control[15]]);
        if kind == libc::SCM_RIGHTS {
            let numbers = control[16..length].chunks_exact(4);
            found.extend(numbers.map(|n| Owned(i32::from_ne_bytes([n[0], n[1], n[2], n[3]]))));
        }
        control = &control[length.next_multiple_of(8).min(control.len())..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn descriptors_arrive_as_duplicates_with_their_bytes() {
        let (here, there) = UnixDatagram::pair().expect("a pair");
        let file = Owned(kernel::memfd_create(c"passed").expect("a file"));
        kernel::write(file.0, b"what it holds").expect("room");
        send_descriptors(here.as_raw_fd(), b"two", &[file.0, file.0]).expect("sent");
        let mut bytes = [0; 8];
        let (count, fds) = receive_descriptors(there.as_raw_fd(), &mut bytes).expect("received");
        assert_eq!((&bytes[..count], fds.len()), (&b"two"[..], 2));
        let mut held = [0; 13];
        kernel::read_at(fds[1].0, &mut held, 0).expect("readable");
        assert_eq!(&held, b"what it holds");
    }

    #[test]
    fn more_descriptors_than_fit_are_refused() {
        let (here, _there) = UnixDatagram::pair().expect("a pair");
        let many = [0; PASSED_MAX + 1];
        assert_eq!(
            send_descriptors(here.as_raw_fd(), b"", &many),
            Err(libc::EINVAL)
        );
    }
}
