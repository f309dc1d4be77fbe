//! Seeded faults before any device, in real time: for tests against other stacks.

use std::collections::VecDeque;

use crate::frame::{Capabilities, Checksum, Counters, Device, Error, Frame, Offload};

/// Shares, between 0 and 1, of the frames that pass in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Faults {
    /// Lost.
    pub loss: f64,
    /// Passed twice.
    pub duplication: f64,
    /// Delayed until after the next one.
    pub reordering: f64,
    /// With one wrong bit.
    pub corruption: f64,
}

/// A device with faults. It does not segment or complete checksums: faults apply to each packet,
/// and checksums must be right on arrival (`ethtool -K PEER tx off`).
#[derive(Debug)]
pub struct Impaired<D> {
    device: D,
    faults: Faults,
    random: u64,
    /// Sent frames that the next one overtakes.
    held: VecDeque<Vec<u8>>,
    received: VecDeque<Vec<u8>>,
    kept: Option<Vec<u8>>,
    refused: u64,
}

impl<D: Device> Impaired<D> {
    /// Faults in both directions; the same seed draws the same numbers.
    pub fn new(device: D, seed: u64, faults: Faults) -> Self {
        Self {
            device,
            faults,
            random: (seed ^ 0x9e37_79b9_7f4a_7c15).max(1),
            held: VecDeque::new(),
            received: VecDeque::new(),
            kept: None,
            refused: 0,
        }
    }

    /// The fate of a frame: dropped, passed once or twice, and whether it is delayed.
    fn fate(random: &mut u64, faults: Faults, frame: &mut [u8]) -> (usize, bool) {
        let mut draw = || {
            *random ^= *random >> 12;
            *random ^= *random << 25;
            *random ^= *random >> 27;
            random.wrapping_mul(0x2545_f491_4f6c_dd1d)
        };
        let mut happens = |share: f64| (draw() >> 11) as f64 / ((1u64 << 53) as f64) < share;
        if happens(faults.loss) {
            return (0, false);
        }
        let copies = 1 + usize::from(happens(faults.duplication));
        let is_held = happens(faults.reordering);
        if happens(faults.corruption) {
            let bit = draw() as usize % (frame.len() * 8).max(1);
            if let Some(byte) = frame.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
        (copies, is_held)
    }

    fn pass_on(&mut self, frame: &[u8]) -> Result<(), Error> {
        self.device
            .send(frame.len(), Offload::default(), &mut |place| {
                place.copy_from_slice(frame)
            })
    }
}

impl<D: Device> Device for Impaired<D> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            segments_max: 0,
            checksum: false,
            ..self.device.capabilities()
        }
    }

    fn set_mtu(&mut self, mtu: u32) {
        self.device.set_mtu(mtu);
    }

    fn receive(&mut self, most: usize, take: &mut dyn FnMut(Frame)) -> Result<usize, Error> {
        let Self {
            device,
            faults,
            random,
            received,
            kept,
            ..
        } = self;
        device.receive(most, &mut |frame| {
            let mut bytes = frame.bytes.to_vec();
            let (copies, is_held) = Self::fate(random, *faults, &mut bytes);
            if is_held && kept.is_none() {
                *kept = Some(bytes);
                return;
            }
            received.extend(std::iter::repeat_n(bytes, copies));
            received.extend(kept.take());
        })?;
        let mut taken = 0;
        while let Some(bytes) = self.received.pop_front() {
            take(Frame {
                bytes: &bytes,
                // Unknown, whatever it was before: a bit may be wrong now.
                checksum: Checksum::Unknown,
                segment_size: 0,
            });
            taken += 1;
        }
        Ok(taken)
    }

    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        if !self.capabilities().admits(length, offload) {
            self.refused += 1;
            return Err(Error::Refused);
        }
        let mut frame = vec![0; length];
        fill(&mut frame);
        let (copies, is_held) = Self::fate(&mut self.random, self.faults, &mut frame);
        if is_held && self.held.is_empty() {
            self.held.push_back(frame);
            return Ok(());
        }
        for _ in 0..copies {
            // Without space it is lost, which is the purpose of this device.
            let _ = self.pass_on(&frame);
        }
        while let Some(held) = self.held.pop_front() {
            let _ = self.pass_on(&held);
        }
        Ok(())
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
        let counters = self.device.counters();
        Counters {
            send_errors: counters.send_errors + self.refused,
            ..counters
        }
    }
}
