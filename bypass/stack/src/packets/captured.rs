//! A device whose frames are shown to whoever captures the process (`bypass_stats::capture`).

use bypass_device::{Capabilities, Checksum, Counters, Device, Error, Frame, Offload};

use crate::process;

/// See the [module](self).
pub struct Shown<D>(pub D);

impl<D: Device> Device for Shown<D> {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn set_mtu(&mut self, mtu: u32) {
        self.0.set_mtu(mtu);
    }

    fn receive(&mut self, most: usize, take: &mut dyn FnMut(Frame)) -> Result<usize, Error> {
        let Some(stats) = process::captured() else {
            return self.0.receive(most, take);
        };
        self.0.receive(most, &mut |frame| {
            stats.capture_frame(frame.bytes, frame.checksum == Checksum::Partial);
            take(frame);
        })
    }

    fn receive_bursts(
        &mut self,
        most: usize,
        take: &mut dyn FnMut(&[Frame]),
    ) -> Result<usize, Error> {
        let Some(stats) = process::captured() else {
            return self.0.receive_bursts(most, take);
        };
        self.0.receive_bursts(most, &mut |burst| {
            for frame in burst {
                stats.capture_frame(frame.bytes, frame.checksum == Checksum::Partial);
            }
            take(burst);
        })
    }

    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        let Some(stats) = process::captured() else {
            return self.0.send(length, offload, fill);
        };
        self.0.send(length, offload, &mut |frame| {
            fill(frame);
            stats.capture_frame(frame, offload.checksum.is_some());
        })
    }

    fn send_gathered(
        &mut self,
        headers: usize,
        payload: [&[u8]; 2],
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        let Some(stats) = process::captured() else {
            return self.0.send_gathered(headers, payload, offload, fill);
        };
        let mut frame = vec![0; headers];
        self.0
            .send_gathered(headers, payload, offload, &mut |place| {
                fill(place);
                frame.copy_from_slice(place);
            })?;
        frame.extend_from_slice(payload[0]);
        frame.extend_from_slice(payload[1]);
        stats.capture_frame(&frame, offload.checksum.is_some());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.0.flush()
    }

    fn has_unsent(&self) -> bool {
        self.0.has_unsent()
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    fn join(&mut self, queue: Box<dyn Device>) -> Result<(), Error> {
        self.0.join(queue)
    }

    fn part(&mut self, joined: usize) -> Result<(), Error> {
        self.0.part(joined)
    }

    fn poll_fd(&self) -> Option<i32> {
        self.0.poll_fd()
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }
}
