//! The interface between an engine and a device.

use std::fmt;

/// Bytes of an Ethernet header without tags.
pub const ETHERNET: usize = 14;

/// The state of a received frame's checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// Unknown: the engine verifies them.
    Unknown,
    /// The device has verified them.
    Verified,
    /// The sender may be on this host and have left the sum to the device: the field may have only
    /// the sum of the pseudo header. An IPv4 header's own sum is complete.
    Partial,
}

/// A received frame, borrowed for one call.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// From the Ethernet header on, without check sequence. Of any length and content.
    pub bytes: &'a [u8],
    /// See [`Checksum`].
    pub checksum: Checksum,
    /// Payload bytes of each segment that was merged into this frame; 0 for a single packet.
    pub segment_size: u16,
}

/// A checksum for the device to complete: the field has the sum over the pseudo header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// First byte that is summed, counted from the start of the frame.
    pub start: u16,
    /// Offset of the field after `start`.
    pub offset: u16,
}

/// The protocol of a GSO packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over either.
    Udp,
}

/// A GSO packet for the device to segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    /// Payload bytes of each segment but the last.
    pub size: u16,
    /// Bytes of all headers, which every segment gets.
    pub header: u16,
    /// See [`Protocol`].
    pub protocol: Protocol,
}

/// Offloads for a frame that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// Complete a checksum.
    pub checksum: Option<Partial>,
    /// Segment a GSO packet; needs `checksum` too.
    pub segments: Option<Segments>,
    /// It must not overtake frames before it, nor be overtaken by those with `segments` before it, where these leave by
    /// another queue.
    pub in_order: bool,
}

/// Capabilities of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Largest IP packet.
    pub mtu: u32,
    /// Longest GSO packet, headers included; 0 if the device does not segment.
    pub segments_max: u32,
    /// Completes checksums of TCP and UDP.
    pub checksum: bool,
    /// Largest useful number of frames for one [`Device::receive`].
    pub batch: usize,
}

/// Why a device refuses a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// No space now: a [`Device::flush`], and perhaps some time, frees some.
    Full,
    /// Shorter than an Ethernet header, longer than the device carries, or an offload that it
    /// does not have or that does not fit the frame.
    Refused,
    /// The kernel's error number, e.g. ENETDOWN.
    Kernel(i32),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the device has no room for a frame"),
            Self::Refused => f.write_str("the device does not carry such a frame"),
            Self::Kernel(number) => std::io::Error::from_raw_os_error(*number).fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// Frames that passed, and frames that were lost, by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Frames received.
    pub received: u64,
    /// Frames accepted for sending.
    pub sent: u64,
    /// Received frames that were lost because no call took them in time.
    pub receive_overruns: u64,
    /// Received frames that were malformed or did not fit.
    pub receive_invalid: u64,
    /// Sends that found no space.
    pub send_full: u64,
    /// Frames that the device, or later the kernel, refused to send.
    pub send_errors: u64,
    /// System calls made to move frames.
    pub kernel_calls: u64,
}

/// A source and sink of Ethernet frames, used by one thread at a time.
pub trait Device: Send {
    /// Its capabilities; constant until [`set_mtu`](Self::set_mtu).
    fn capabilities(&self) -> Capabilities;

    /// The interface's MTU has changed: the device follows as far as it can.
    fn set_mtu(&mut self, _mtu: u32) {}

    /// Passes up to `most` received frames to `take`, in order; returns their number.
    fn receive(&mut self, most: usize, take: &mut dyn FnMut(Frame)) -> Result<usize, Error>;

    /// The same with several frames at once if the device has them: work on one can then begin
    /// while the memory of the others is being fetched.
    fn receive_bursts(
        &mut self,
        most: usize,
        take: &mut dyn FnMut(&[Frame]),
    ) -> Result<usize, Error> {
        self.receive(most, &mut |frame| take(&[frame]))
    }

    /// Accepts one frame of `length` bytes, which `fill` writes completely: the memory may have old
    /// bytes before. On an error `fill` is not called and nothing is sent. Accepted frames are sent
    /// by the next [`flush`](Self::flush) at the latest.
    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error>;

    /// The same for a frame of which `fill` writes the first `headers` bytes; `payload` follows,
    /// and a device with scatter-gather does not copy it.
    fn send_gathered(
        &mut self,
        headers: usize,
        payload: [&[u8]; 2],
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        let length = headers + payload[0].len() + payload[1].len();
        self.send(length, offload, &mut |frame| {
            let (first, rest) = frame.split_at_mut(headers);
            let (second, third) = rest.split_at_mut(payload[0].len());
            fill(first);
            second.copy_from_slice(payload[0]);
            third.copy_from_slice(payload[1]);
        })
    }

    /// Sends all accepted frames, and reclaims the space of sent ones.
    fn flush(&mut self) -> Result<(), Error>;

    /// Whether the last [`flush`](Self::flush) left frames that only another flush sends: the
    /// engine should flush again soon.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Before a sleep: true if frames already wait, so that the engine must receive again; else
    /// [`poll_fd`](Self::poll_fd) becomes readable with the next frame.
    fn arm(&mut self) -> bool;

    /// Adds another queue of the same interface; refused if the device cannot.
    fn join(&mut self, queue: Box<dyn Device>) -> Result<(), Error> {
        drop(queue);
        Err(Error::Refused)
    }

    /// Removes a [joined](Self::join) queue, by its index; its frames are not lost.
    fn part(&mut self, joined: usize) -> Result<(), Error> {
        let _ = joined;
        Err(Error::Refused)
    }

    /// For polling until readable; None for a device in memory.
    fn poll_fd(&self) -> Option<i32>;

    /// See [`Counters`].
    fn counters(&self) -> Counters;
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn set_mtu(&mut self, mtu: u32) {
        (**self).set_mtu(mtu);
    }

    fn receive(&mut self, most: usize, take: &mut dyn FnMut(Frame)) -> Result<usize, Error> {
        (**self).receive(most, take)
    }

    fn receive_bursts(
        &mut self,
        most: usize,
        take: &mut dyn FnMut(&[Frame]),
    ) -> Result<usize, Error> {
        (**self).receive_bursts(most, take)
    }

    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        (**self).send(length, offload, fill)
    }

    fn send_gathered(
        &mut self,
        headers: usize,
        payload: [&[u8]; 2],
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        (**self).send_gathered(headers, payload, offload, fill)
    }

    fn flush(&mut self) -> Result<(), Error> {
        (**self).flush()
    }

    fn has_unsent(&self) -> bool {
        (**self).has_unsent()
    }

    fn arm(&mut self) -> bool {
        (**self).arm()
    }

    fn join(&mut self, queue: Box<dyn Device>) -> Result<(), Error> {
        (**self).join(queue)
    }

    fn part(&mut self, joined: usize) -> Result<(), Error> {
        (**self).part(joined)
    }

    fn poll_fd(&self) -> Option<i32> {
        (**self).poll_fd()
    }

    fn counters(&self) -> Counters {
        (**self).counters()
    }
}

impl Capabilities {
    /// Whether a frame of this length may be sent with these offloads.
    pub fn admits(&self, length: usize, offload: Offload) -> bool {
        let inside = |part: Partial| {
            let field = usize::from(part.start) + usize::from(part.offset);
            field.checked_add(2).is_some_and(|end| end <= length)
        };
        let most = match offload.segments {
            None => self.mtu as usize + ETHERNET,
            Some(train) => {
                let packet = usize::from(train.header) + usize::from(train.size);
                let fits = train.size > 0 && packet <= self.mtu as usize + ETHERNET;
                let is_known = offload.checksum.is_some() && usize::from(train.header) < length;
                if !fits || !is_known {
                    return false;
                }
                self.segments_max as usize
            }
        };
        (ETHERNET..=most).contains(&length)
            && offload
                .checksum
                .is_none_or(|part| self.checksum && inside(part))
    }
}
