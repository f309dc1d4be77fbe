//! Where the engine sends frames: to the device, or into memory while the device is being read.

use std::net::SocketAddr;

use bypass_device::{Device, Error, Offload, Partial, Protocol, Segments};
use bypass_tcp::{TxMeta, TxSink};

use crate::host::Host;

/// Place of the checksum in a TCP header.
const CHECKSUM_AT: u16 = 16;
/// Frames that may wait while the device is read; the engine keeps what is beyond.
const WAITING_MAX: usize = 4096;

/// Headers of Ethernet, IPv6 and TCP with all its options.
const HEADERS_MAX: usize = 14 + 40 + 60;

/// Frames go to a device.
pub struct ToDevice<'a>(pub &'a mut dyn Device);

impl TxSink for ToDevice<'_> {
    #[inline]
    fn transmit(&mut self, len: usize, meta: TxMeta, fill: impl FnOnce(&mut [u8])) -> bool {
        let mut fill = Some(fill);
        let mut write = |place: &mut [u8]| {
            // A device that copies has room when it asks.
            if let Some(fill) = fill.take() {
                fill(place);
            }
        };
        self.send(&mut write, |device, fill| {
            device.send(len, offload(meta), fill)
        })
    }

    fn transmit_gso(
        &mut self,
        _: usize,
        meta: TxMeta,
        payload: [&[u8]; 2],
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        // Once: a device without room may have asked for them, and is tried again.
        let mut headers = [0; HEADERS_MAX];
        let headers = &mut headers[..meta.header_len];
        fill(headers);
        let mut write = |place: &mut [u8]| place.copy_from_slice(headers);
        self.send(&mut write, |device, fill| {
            device.send_gathered(meta.header_len, payload, offload(meta), fill)
        })
    }
}

impl ToDevice<'_> {
    #[inline]
    fn send(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]),
        send: impl Fn(&mut dyn Device, &mut dyn FnMut(&mut [u8])) -> Result<(), Error>,
    ) -> bool {
        match send(self.0, fill) {
            Ok(()) => true,
            Err(Error::Full) => {
                // Frames that have left meanwhile make room, at the price of a system call.
                let _ = self.0.flush();
                send(self.0, fill) != Err(Error::Full)
            }
            // Lost, as on any link, and counted by the device: it is sent again if it matters.
            Err(_) => true,
        }
    }
}

/// The offloads in the device's words.
fn offload(meta: TxMeta) -> Offload {
    let start = meta.tcp_at as u16;
    let checksum = meta.partial_checksum.then_some(Partial {
        start,
        offset: CHECKSUM_AT,
    });
    // An IPv4 header is shorter than one of IPv6.
    let protocol = if meta.tcp_at < 14 + 40 {
        Protocol::Tcp4
    } else {
        Protocol::Tcp6
    };
    let segments = (meta.gso_size > 0).then_some(Segments {
        size: meta.gso_size as u16,
        header: meta.header_len as u16,
        protocol,
    });
    Offload {
        checksum,
        segments,
        in_order: meta.in_order,
    }
}

/// Frames wait in memory.
#[derive(Debug, Default)]
pub struct Waiting {
    bytes: Vec<u8>,
    frames: Vec<(usize, TxMeta)>,
}

impl TxSink for Waiting {
    fn transmit(&mut self, len: usize, meta: TxMeta, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.frames.len() >= WAITING_MAX {
            return false;
        }
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        fill(&mut self.bytes[start..]);
        self.frames.push((len, meta));
        true
    }
}

/// The same of frames that came by an interface of the kernel's.
pub struct Received<'a> {
    pub waiting: &'a mut Waiting,
    pub host: Option<&'a Host>,
}

impl TxSink for Received<'_> {
    fn transmit(&mut self, len: usize, meta: TxMeta, fill: impl FnOnce(&mut [u8])) -> bool {
        self.waiting.transmit(len, meta, fill)
    }

    fn is_claimed(&self, at: SocketAddr, begins: bool) -> bool {
        self.host.is_some_and(|host| host.has_claimed(at, begins))
    }
}

impl Waiting {
    /// Has the frames leave.
    pub fn release(&mut self, device: &mut dyn Device) {
        let mut rest = &self.bytes[..];
        for (len, meta) in self.frames.drain(..) {
            let (frame, others) = rest.split_at(len);
            ToDevice(device).transmit(len, meta, |place| place.copy_from_slice(frame));
            rest = others;
        }
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypass_device::{Capabilities, Counters, Frame};

    /// Asks for the headers before it knows whether there is room, which there is at the second try.
    #[derive(Default)]
    struct Hesitant {
        tries: u32,
        headers: Vec<u8>,
    }

    impl Device for Hesitant {
        fn capabilities(&self) -> Capabilities {
            unreachable!("not asked here")
        }

        fn receive(&mut self, _: usize, _: &mut dyn FnMut(Frame)) -> Result<usize, Error> {
            Ok(0)
        }

        fn send(
            &mut self,
            _: usize,
            _: Offload,
            _: &mut dyn FnMut(&mut [u8]),
        ) -> Result<(), Error> {
            Err(Error::Refused)
        }

        fn send_gathered(
            &mut self,
            headers: usize,
            _: [&[u8]; 2],
            _: Offload,
            fill: &mut dyn FnMut(&mut [u8]),
        ) -> Result<(), Error> {
            self.headers = vec![0; headers];
            fill(&mut self.headers);
            self.tries += 1;
            match self.tries {
                1 => Err(Error::Full),
                _ => Ok(()),
            }
        }

        fn flush(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn arm(&mut self) -> bool {
            false
        }

        fn poll_fd(&self) -> Option<i32> {
            None
        }

        fn counters(&self) -> Counters {
            Counters::default()
        }
    }

    #[test]
    fn a_gso_segment_that_is_tried_again_has_its_headers_again() {
        let mut device = Hesitant::default();
        let meta = TxMeta {
            header_len: 54,
            tcp_at: 34,
            gso_size: 1000,
            partial_checksum: true,
            ..TxMeta::whole(2040)
        };
        let is_sent = ToDevice(&mut device).transmit_gso(2054, meta, [&[1; 1000]; 2], |headers| {
            headers.fill(7);
        });
        assert!(is_sent);
        assert_eq!((device.tries, device.headers), (2, vec![7; 54]));
    }
}
