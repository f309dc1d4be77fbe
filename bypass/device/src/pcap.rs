//! Writes frames to a capture file that Wireshark and tcpdump open (draft-ietf-opsawg-pcap).

use std::io::{self, Write};

use crate::frame::{Capabilities, Counters, Device, Error, Frame, Offload};

/// Nanosecond times.
const MAGIC: u32 = 0xa1b2_3c4d;
const LINK_ETHERNET: u32 = 1;
/// Bytes kept of a frame: the longest GSO packet.
const SNAP: usize = 65_549;

/// A capture file under construction.
#[derive(Debug)]
pub struct Capture<W: Write> {
    out: W,
    error: Option<io::ErrorKind>,
}

impl<W: Write> Capture<W> {
    /// Starts a file.
    pub fn new(mut out: W) -> io::Result<Self> {
        let mut header = Vec::with_capacity(24);
        header.extend(MAGIC.to_le_bytes());
        header.extend([2, 0, 4, 0]);
        header.extend([0; 8]);
        header.extend((SNAP as u32).to_le_bytes());
        header.extend(LINK_ETHERNET.to_le_bytes());
        out.write_all(&header)?;
        Ok(Self { out, error: None })
    }

    /// Appends a frame that passed at `unix_ns`. The first error ends the capture, not the traffic.
    pub fn add(&mut self, unix_ns: u64, frame: &[u8]) {
        self.add_cut(unix_ns, frame, frame.len());
    }

    /// The same for a frame of `length` bytes, of which these were captured.
    pub fn add_cut(&mut self, unix_ns: u64, frame: &[u8], length: usize) {
        if self.error.is_none() {
            let written = self.write(unix_ns, frame, length);
            self.error = written.err().map(|error| error.kind());
        }
    }

    /// Writes buffered frames to the file; returns the first error of the capture.
    pub fn flush(&mut self) -> io::Result<()> {
        match self.error {
            Some(error) => Err(error.into()),
            None => self.out.flush(),
        }
    }

    fn write(&mut self, unix_ns: u64, frame: &[u8], length: usize) -> io::Result<()> {
        let kept = &frame[..frame.len().min(SNAP)];
        let mut header = [0; 16];
        header[..4].copy_from_slice(&((unix_ns / 1_000_000_000) as u32).to_le_bytes());
        header[4..8].copy_from_slice(&((unix_ns % 1_000_000_000) as u32).to_le_bytes());
        header[8..12].copy_from_slice(&(kept.len() as u32).to_le_bytes());
        header[12..].copy_from_slice(&(length as u32).to_le_bytes());
        self.out.write_all(&header)?;
        self.out.write_all(kept)
    }

    /// Completes the file.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.out)
    }
}

/// A device whose traffic is written to a capture.
pub struct Tee<D, W: Write> {
    device: D,
    capture: Capture<W>,
    now_ns: Box<dyn FnMut() -> u64 + Send>,
}

impl<D: Device, W: Write + Send> Tee<D, W> {
    /// Joins them; `now_ns` returns the time since 1970, of the clock or a simulated one.
    pub fn new(
        device: D,
        capture: Capture<W>,
        now_ns: impl FnMut() -> u64 + Send + 'static,
    ) -> Self {
        let now_ns = Box::new(now_ns);
        Self {
            device,
            capture,
            now_ns,
        }
    }

    /// The device.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// Takes them apart.
    pub fn into_parts(self) -> (D, Capture<W>) {
        (self.device, self.capture)
    }
}

impl<D: Device, W: Write + Send> Device for Tee<D, W> {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn set_mtu(&mut self, mtu: u32) {
        self.device.set_mtu(mtu);
    }

    fn receive(&mut self, most: usize, take: &mut dyn FnMut(Frame)) -> Result<usize, Error> {
        let (capture, now_ns) = (&mut self.capture, &mut self.now_ns);
        self.device.receive(most, &mut |frame| {
            capture.add(now_ns(), frame.bytes);
            take(frame);
        })
    }

    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        let (capture, now_ns) = (&mut self.capture, &mut self.now_ns);
        self.device.send(length, offload, &mut |frame| {
            fill(frame);
            capture.add(now_ns(), frame);
        })
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.device.flush()
    }

    fn has_unsent(&self) -> bool {
        self.device.has_unsent()
    }

    fn arm(&mut self) -> bool {
        self.device.arm()
    }

    fn poll_fd(&self) -> Option<i32> {
        self.device.poll_fd()
    }

    fn counters(&self) -> Counters {
        self.device.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_header_and_each_frame_with_its_time() {
        let mut capture = Capture::new(Vec::new()).expect("memory");
        capture.add(5_000_000_007, b"frame");
        let file = capture.finish().expect("memory");
        assert_eq!(file[..4], 0xa1b2_3c4d_u32.to_le_bytes());
        assert_eq!(file[20..24], 1u32.to_le_bytes());
        let words: Vec<u32> = file[24..40]
            .chunks_exact(4)
            .map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
            .collect();
        assert_eq!(words, [5, 7, 5, 5]);
        assert_eq!(&file[40..], b"frame");
    }
}
