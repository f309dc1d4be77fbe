//! Unencrypted bytes, with the kernel's time of their reception: the audit of our own clock.

use super::Transport;
use crate::sys::clock::both_ns;
use crate::sys::socket::{self, Fd};
use std::cell::Cell;
use std::io;

/// Reads with timestamps.
#[derive(Default)]
pub struct Timestamped {
    arrived_ns: Cell<Option<u64>>,
}

impl Transport for Timestamped {
    type Session = ();
    const TIMESTAMPS: bool = true;

    fn arrived_ns(&self) -> Option<u64> {
        self.arrived_ns.get()
    }

    fn prepare(&self, fd: Fd) -> io::Result<()> {
        socket::set_receive_timestamps(fd)
    }

    fn begin(&self, _target: usize) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, _session: &mut (), fd: Fd, buffer: &mut [u8]) -> io::Result<usize> {
        let (length, stamp_ns) = socket::read_stamped(fd, buffer)?;
        // stamps are of the wall clock, which may be stepped: its distance is taken each time
        self.arrived_ns.set(stamp_ns.map(|stamp_ns| {
            let (monotonic_ns, real_ns) = both_ns();
            monotonic_ns.saturating_sub(real_ns.saturating_sub(stamp_ns))
        }));
        Ok(length)
    }

    fn write(&self, _session: &mut (), fd: Fd, bytes: &[u8]) -> io::Result<usize> {
        socket::write(fd, bytes)
    }
}
