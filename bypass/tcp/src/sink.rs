//! The seam to a device: frames in, frames out.

use core::net::SocketAddr;

/// What is known of the checksum of a received TCP segment or datagram. An IPv4 header's own sum is
/// complete in every frame, and always verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sum {
    /// Nothing: the whole sum must be right.
    #[default]
    Unknown,
    /// The sender may be on this host and have left the sum to a device (CHECKSUM_PARTIAL of Linux): the
    /// field may hold the sum over the pseudo header alone. Everything else must be right as a whole.
    MayBePartial,
    /// The device has verified it.
    Verified,
}

/// A received Ethernet frame.
#[derive(Clone, Copy)]
pub struct Rx<'a> {
    /// The frame, without its check sequence.
    pub bytes: &'a [u8],
    /// See [`Sum`].
    pub sum: Sum,
}

impl<'a> Rx<'a> {
    /// A frame of which nothing is known.
    pub fn new(bytes: &'a [u8]) -> Rx<'a> {
        Rx {
            bytes,
            sum: Sum::Unknown,
        }
    }
}

/// What a device must know to finish a frame.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct TxMeta {
    /// Bytes of the IP packet, its header included.
    pub ip_len: usize,
    /// Bytes of the Ethernet, IP and TCP headers together; zero when the frame is not TCP.
    pub header_len: usize,
    /// Where the TCP header begins in the frame.
    pub tcp_at: usize,
    /// Payload of each packet that the device is to cut the frame into; zero for no cutting.
    pub gso_size: usize,
    /// The TCP checksum field holds the sum over the pseudo-header only; the device completes it.
    pub partial_checksum: bool,
    /// It must not overtake what of its connection has left before: neither a single frame a GSO segment nor the other
    /// way round, where a device has a queue for each.
    pub in_order: bool,
}

impl TxMeta {
    /// A frame that is complete as it is.
    pub fn whole(ip_len: usize) -> TxMeta {
        TxMeta {
            ip_len,
            ..TxMeta::default()
        }
    }
}

/// Where the engine puts frames.
pub trait TxSink {
    /// Takes one frame of `len` bytes, which `fill` writes completely; the place may hold old
    /// bytes before. Answers false, without calling `fill`, when the device is full: the engine keeps
    /// the segment and tries again in a later [`crate::Engine::end_batch`].
    fn transmit(&mut self, len: usize, meta: TxMeta, fill: impl FnOnce(&mut [u8])) -> bool;

    /// The same for a GSO segment: `fill` writes the `meta.header_len` bytes of its headers, and
    /// behind them comes `payload`, which a device that gathers need not have copied.
    fn transmit_gso(
        &mut self,
        len: usize,
        meta: TxMeta,
        payload: [&[u8]; 2],
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        self.transmit(len, meta, |frame| {
            let (headers, rest) = frame.split_at_mut(meta.header_len);
            fill(headers);
            put_payload(rest, payload);
        })
    }

    /// A received frame that is not for the engine: another protocol, a fragment, or a port no socket
    /// has opened while the kernel keeps the interface ([`crate::Config::is_sole_host`] is false).
    fn pass(&mut self, frame: &[u8]) {
        let _ = frame;
    }

    /// Whether a segment for an address of ours, and a port that no socket of the engine has, was taken from the kernel, so
    /// that no other host answers it: the engine then resets it. `begins`: it is the first of a new connection.
    fn is_claimed(&self, at: SocketAddr, begins: bool) -> bool {
        let _ = (at, begins);
        false
    }
}

/// Copies both pieces of a payload to their place.
#[inline]
pub(crate) fn put_payload(place: &mut [u8], payload: [&[u8]; 2]) {
    let (first, second) = place.split_at_mut(payload[0].len());
    first.copy_from_slice(payload[0]);
    // Only where a ring ends: a call for no byte costs as much as one for some.
    if !payload[1].is_empty() {
        second.copy_from_slice(payload[1]);
    }
}
