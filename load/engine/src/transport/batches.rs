//! Datagrams of UDP, several by one call where the kernel can (UDP_SEGMENT, UDP_GRO).

use super::{one_by_one, Transport};
use crate::sys::is_preloaded;
use crate::sys::socket::{self, Fd};
use std::cell::Cell;
use std::io;

/// Each read and each write is one datagram or several.
pub struct Batches {
    /// Bytes of each datagram of the last read.
    each: Cell<usize>,
    /// Whether one call writes several.
    writes_several: Cell<bool>,
}

impl Default for Batches {
    fn default() -> Batches {
        Batches {
            each: Cell::new(usize::MAX),
            // a stack in front of the kernel may not know how
            writes_several: Cell::new(!is_preloaded()),
        }
    }
}

impl Transport for Batches {
    type Session = ();
    const DATAGRAMS: bool = true;

    fn prepare(&self, fd: Fd) -> io::Result<()> {
        socket::set_batches(fd);
        Ok(())
    }

    fn begin(&self, _target: usize) -> io::Result<()> {
        Ok(())
    }

    /// A short read says nothing: it is the size of what came together.
    fn emptied(&self, _length: usize, _room: usize) -> bool {
        false
    }

    fn datagram_bytes(&self) -> usize {
        self.each.get()
    }

    fn read(&self, _session: &mut (), fd: Fd, buffer: &mut [u8]) -> io::Result<usize> {
        let (length, each) = loop {
            match socket::read_batch(fd, buffer) {
                // a router's word on a datagram sent before (ICMP); what has come is still to be read
                Err(error) if is_too_long(&error) => {}
                result => break result?,
            }
        };
        self.each.set(each.unwrap_or(usize::MAX).max(1));
        // an empty datagram is as stray as one of a byte, and is not the end of a stream
        Ok(length.max(1))
    }

    fn write(&self, _session: &mut (), fd: Fd, bytes: &[u8]) -> io::Result<usize> {
        match socket::write(fd, bytes) {
            // one that is too long for the path is lost, as it would be further on
            Err(error) if is_too_long(&error) => Ok(bytes.len()),
            result => result,
        }
    }

    fn write_datagrams(
        &self,
        session: &mut (),
        fd: Fd,
        bytes: &[u8],
        each: usize,
    ) -> io::Result<usize> {
        let size = u16::try_from(each).ok();
        if let Some(size) = size.filter(|_| self.writes_several.get() && bytes.len() > each) {
            match socket::write_batch(fd, bytes, size) {
                Ok(()) => return Ok(bytes.len()),
                // it may be a router's word on a datagram sent before: none of these has been sent
                Err(error) if is_too_long(&error) => {}
                Err(error) if !is_refusal(&error) => return Err(error),
                // a kernel before 4.18, or a card that cannot
                Err(_) => self.writes_several.set(false),
            }
        }
        one_by_one(self, session, fd, (bytes, each))
    }
}

/// Whether the kernel or a card cannot write several datagrams by one call.
fn is_refusal(error: &io::Error) -> bool {
    let codes = [libc::EIO, libc::EINVAL, libc::EOPNOTSUPP];
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

/// Whether a datagram was too long for the path.
fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_too_long_for_one_call_is_written_one_by_one_and_the_next_together() {
        let peer = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = peer.local_addr().expect("bound");
        socket.connect(address).expect("UDP connects at once");
        let (own, fd) = (Batches::default(), socket.as_raw_fd());
        // no datagram of IP has so many bytes
        let bytes = vec![7; 70_000];
        let written = own.write_datagrams(&mut (), fd, &bytes, 10_000);
        assert_eq!(written.expect("room"), bytes.len());
        assert_eq!(peer.recv(&mut [0; 20_000]).expect("a datagram"), 10_000);
        assert!(own.writes_several.get());
        // one that is too long is lost alone
        let written = own.write_datagrams(&mut (), fd, &bytes, bytes.len());
        assert_eq!(written.expect("as if it were sent"), bytes.len());
    }
}
