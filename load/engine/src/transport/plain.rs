//! Unencrypted bytes.

use super::Transport;
use crate::sys::socket::{self, Fd};
use std::io;

/// Bytes as they are.
pub struct Plain;

impl Transport for Plain {
    type Session = ();
    const DISCARDS: bool = true;

    fn begin(&self, _target: usize) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn read(&self, _session: &mut (), fd: Fd, buffer: &mut [u8]) -> io::Result<usize> {
        socket::read(fd, buffer)
    }

    #[inline]
    fn write(&self, _session: &mut (), fd: Fd, bytes: &[u8]) -> io::Result<usize> {
        socket::write(fd, bytes)
    }
}
