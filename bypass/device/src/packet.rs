//! Sends frames by AF_PACKET (packet(7)): through the interface's ordinary queues, with GSO packets
//! that the kernel or the card segments.
//!
//! AF_XDP has no GSO; a GSO packet of ten segments costs one call and one pass through the driver
//! instead of ten.
//! driver instead of ten.

use bypass_sys::descriptor::Owned;
use bypass_sys::numbers;
use bypass_sys::{kernel, network};

use crate::frame::{Capabilities, Error, Offload, ETHERNET};
use crate::virtio;

// linux/if_packet.h.
const PACKET_VNET_HDR: i32 = 15;
const GSO_MAX: usize = 65_535 + ETHERNET;

/// A socket that sends on one interface.
#[derive(Debug)]
pub struct Sender {
    fd: Owned,
    mtu: u32,
    headers: Vec<u8>,
}

impl Sender {
    /// For interface `link`, whose MTU is `mtu`. Needs CAP_NET_RAW.
    pub fn open(link: u32, mtu: u32) -> Result<Self, Error> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // Protocol 0: nothing is received.
        let open = || kernel::socket(libc::AF_PACKET, kind, 0);
        let fd = numbers::high(open).map_err(Error::Kernel)?;
        kernel::set_option_int(fd.0, libc::SOL_PACKET, PACKET_VNET_HDR, 1)
            .map_err(Error::Kernel)?;
        // Not around the interface's queue (PACKET_QDISC_BYPASS): that drops GSO packets that the
        // driver does not segment, and over veth the driver never does for a peer with a native XDP
        // program.
        let mut name = [0u8; 20];
        name[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
        name[4..8].copy_from_slice(&link.to_ne_bytes());
        kernel::bind(fd.0, &name).map_err(Error::Kernel)?;
        receive_nothing(fd.0).map_err(Error::Kernel)?;
        Ok(Self::of(fd, mtu))
    }

    /// A socket that another process has opened and passed on.
    pub fn of(fd: Owned, mtu: u32) -> Self {
        let headers = vec![0; GSO_MAX];
        Self { fd, mtu, headers }
    }

    /// The descriptor, for passing on.
    pub fn fd(&self) -> i32 {
        self.fd.0
    }

    /// The interface's MTU has changed.
    pub fn set_mtu(&mut self, mtu: u32) {
        self.mtu = mtu;
    }

    /// The capabilities of AF_PACKET.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.mtu,
            segments_max: GSO_MAX as u32,
            checksum: true,
            batch: 1,
        }
    }

    /// Sends at once, one call per frame: see [`Device::send_gathered`](crate::Device::send_gathered).
    pub fn send(
        &mut self,
        headers: usize,
        payload: [&[u8]; 2],
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        let length = headers + payload[0].len() + payload[1].len();
        if !self.capabilities().admits(length, offload) {
            return Err(Error::Refused);
        }
        let headers = &mut self.headers[..headers];
        fill(headers);
        let pieces = [&virtio::header(offload), &*headers, payload[0], payload[1]];
        match network::write_gathered(self.fd.0, pieces) {
            Ok(_) => Ok(()),
            Err(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => Err(Error::Full),
            Err(error) => Err(Error::Kernel(error)),
        }
    }
}

/// A process that inherits the socket may bind it to every protocol of any interface, without
/// privilege. A filter that drops everything and cannot be removed (socket(7), SO_LOCK_FILTER)
/// leaves only sending.
fn receive_nothing(fd: i32) -> kernel::Result<()> {
    // struct sock_filter: return 0, keep no byte of the frame.
    let program: [u8; 8] = [libc::BPF_RET as u8, 0, 0, 0, 0, 0, 0, 0];
    let mut filter = [0u8; 16];
    filter[..2].copy_from_slice(&1u16.to_ne_bytes());
    filter[8..].copy_from_slice(&(program.as_ptr() as u64).to_ne_bytes());
    kernel::set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
    kernel::set_option_int(fd, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1)?;
    Ok(())
}
