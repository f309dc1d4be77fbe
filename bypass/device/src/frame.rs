//! The seam between an engine and a device.

use std::fmt;

/// Bytes of an Ethernet header without tags.
pub const ETHERNET: usize = 14;

/// What is known about the checksums of a received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing: they are to be verified.
    Unknown,
    /// The device has verified them.
    Verified,
    /// The sender may be on this host and have left the sum to the device: the field may hold that of the
    /// pseudo header alone. An IPv4 header's own sum is complete.
    Partial,
}

/// A received frame, lent for one call.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// From the Ethernet header on, without check sequence. Of any length and content.
    pub bytes: &'a [u8],
    /// See [`Checksum`].
    pub checksum: Checksum,
    /// Payload bytes of each segment that were joined to this frame; 0 when it is one packet.
    pub segment_size: u16,
}

/// A checksum that the device is to complete: the field holds the sum over the pseudo header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// First byte that is summed, counted from the start of the frame.
    pub start: u16,
    /// Place of the field behind `start`.
    pub offset: u16,
}

/// What a GSO segment carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over either.
    Udp,
}

/// A GSO segment that the device is to cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    /// Payload bytes of each segment but the last.
    pub size: u16,
    /// Bytes of all headers, which every segment gets.
    pub header: u16,
    /// See [`Protocol`].
    pub protocol: Protocol,
}

/// What the device is to do to a frame on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// Complete a checksum.
    pub checksum: Option<Partial>,
    /// Cut a GSO segment; needs `checksum` too.
    pub segments: Option<Segments>,
    /// It must not overtake frames before it, nor be overtaken by those with `segments` before it, where these leave by
    /// another queue.
    pub in_order: bool,
}

/// What a device can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Largest IP packet.
    pub mtu: u32,
    /// Longest GSO segment, headers included; 0 when it cuts none.
    pub segments_max: u32,
    /// Completes checksums of TCP and UDP.
    pub checksum: bool,
    /// Frames of one [`Device::receive`] beyond which nothing is gained.
    pub batch: usize,
}

/// Why a frame was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// No room now: after a [`Device::flush`], and perhaps a while, there is some.
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

/// What has passed, and what was lost where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Frames handed over.
    pub received: u64,
    /// Frames taken for sending.
    pub sent: u64,
    /// Received frames that were lost because nobody took them in time.
    pub receive_overruns: u64,
    /// Received frames that were malformed or did not fit.
    pub receive_invalid: u64,
    /// Times that there was no room for a frame to send.
    pub send_full: u64,
    /// Frames that were to be sent and that the device, or later the kernel, refused.
    pub send_errors: u64,
    /// System calls made to move frames.
    pub kernel_calls: u64,
}

/// A source and sink of Ethernet frames. One thread at a time uses it.
pub trait Device: Send {
    /// What it can do; the same until [`set_mtu`](Self::set_mtu).
    fn capabilities(&self) -> Capabilities;

    /// The interface carries packets of another size from now on: taken over as far as the device does.
    fn set_mtu(&mut self, _mtu: u32) {}

    /// Hands at most `most` frames that have arrived to `take`, in order; how many.
    fn receive(&mut self, most: usize, take: &mut dyn FnMut(Frame)) -> Result<usize, Error>;

    /// The same with several frames at once where the device has them: what is done with one may then
    /// begin while the memory for the others is on its way.
    fn receive_bursts(
        &mut self,
        most: usize,
        take: &mut dyn FnMut(&[Frame]),
    ) -> Result<usize, Error> {
        self.receive(most, &mut |frame| take(&[frame]))
    }

    /// Takes one frame of `length` bytes, which `fill` writes completely: the place may hold old
    /// bytes before. On an error `fill` is not called and nothing is sent. What was taken leaves
    /// with the next [`flush`](Self::flush) at the latest.
    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error>;

    /// The same for a frame of whose bytes `fill` writes the first `headers`; behind them comes `payload`,
    /// which a device that gathers does not copy.
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

    /// Has everything leave that was taken, and takes back the room of what has left.
    fn flush(&mut self) -> Result<(), Error>;

    /// Whether the last [`flush`](Self::flush) has left frames behind that nothing but another one will
    /// send: it is to be asked for again soon.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Before a sleep: true when frames wait already, so that one must look again; else
    /// [`poll_fd`](Self::poll_fd) becomes readable with the next.
    fn arm(&mut self) -> bool;

    /// Takes in another queue of the same interface; refused where a device cannot.
    fn join(&mut self, queue: Box<dyn Device>) -> Result<(), Error> {
        drop(queue);
        Err(Error::Refused)
    }

    /// Lets one go again that has [joined](Self::join), by their order; its frames are not lost.
    fn part(&mut self, joined: usize) -> Result<(), Error> {
        let _ = joined;
        Err(Error::Refused)
    }

    /// Polled for reading; None for a device that lives in memory.
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
    /// Whether a frame of this length may be sent so.
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
