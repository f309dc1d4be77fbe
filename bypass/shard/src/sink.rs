//! The engine's way out: to the device, or into memory while the device is being read.

use bypass_device::{Device, Error, Offload, Partial, Protocol, Segments};
use bypass_tcp::{TxMeta, TxSink};

/// Place of the checksum in a TCP header.
const CHECKSUM_AT: u16 = 16;
/// Frames that may wait while the device is read; the engine keeps what is beyond.
const WAITING_MAX: usize = 4096;

/// Frames go to a device.
pub struct ToDevice<'a>(pub &'a mut dyn Device);

impl TxSink for ToDevice<'_> {
    #[inline]
    fn transmit(&mut self, len: usize, meta: TxMeta, fill: impl FnOnce(&mut [u8])) -> bool {
        let mut fill = Some(fill);
        let sent = self.0.send(len, offload(meta), &mut |place| {
            if let Some(fill) = fill.take() {
                fill(place);
            }
        });
        match sent {
            Ok(()) => true,
            Err(Error::Full) => {
                // What has left meanwhile makes room, at the price of a system call.
                let _ = self.0.flush();
                let again = self.0.send(len, offload(meta), &mut |place| {
                    if let Some(fill) = fill.take() {
                        fill(place);
                    }
                });
                again != Err(Error::Full)
            }
            // Lost, as on any link: it is sent again if it matters.
            Err(_) => true,
        }
    }
}

/// What the device is to do, in its words.
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
    Offload { checksum, segments }
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
