//! Datagrams of UDP.

use super::Transport;
use crate::sys::socket::{self, Fd};
use std::io;

/// Each read and each write is one datagram.
pub struct Datagrams;

impl Transport for Datagrams {
    type Session = ();
    const DATAGRAMS: bool = true;

    fn begin(&self, _target: usize) -> io::Result<()> {
        Ok(())
    }

    /// A short read says nothing: it is the size of a datagram.
    fn emptied(&self, _length: usize, _room: usize) -> bool {
        false
    }

    fn read(&self, _session: &mut (), fd: Fd, buffer: &mut [u8]) -> io::Result<usize> {
        // an empty datagram is as stray as one of a byte, and is not the end of a stream
        Ok(socket::read(fd, buffer)?.max(1))
    }

    fn write(&self, _session: &mut (), fd: Fd, bytes: &[u8]) -> io::Result<usize> {
        socket::write(fd, bytes)
    }
}
