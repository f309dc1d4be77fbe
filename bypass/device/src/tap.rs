//! TAP: a virtual interface of the kernel whose other end is this process.
//!
//! With a virtio-net header before each frame (IFF_VNET_HDR), GSO packets of TCP and UDP up to 64
//! KiB pass in both directions, and checksums are left to the receiver. One descriptor is one
//! queue; further queues of the same interface are opened by name.

use bypass_sys::descriptor::Owned;
use bypass_sys::numbers;
use bypass_sys::{kernel, network};

use crate::frame::{Capabilities, Counters, Device, Error, Frame, Offload, ETHERNET};
use crate::virtio;

// linux/if_tun.h.
const TUNSETIFF: u64 = 0x4004_54ca;
const TUNSETOFFLOAD: u64 = 0x4004_54d0;
const TUNSETVNETHDRSZ: u64 = 0x4004_54d8;
const IFF_TAP: u16 = 0x0002;
const IFF_MULTI_QUEUE: u16 = 0x0100;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const CHECKSUM: usize = 0x01;
const TCP4: usize = 0x02;
const TCP6: usize = 0x04;
const TCP_ECN: usize = 0x08;
const UDP4: usize = 0x20;
const UDP6: usize = 0x40;
const SIOCGIFMTU: u64 = 0x8921;

/// Longest GSO packet that the kernel passes, with its Ethernet header.
const GSO_MAX: usize = 65_535 + ETHERNET;
/// Bytes of an ifreq.
const IFREQ: usize = 40;
/// Frames per batch: each is a system call anyway.
const BATCH: usize = 64;

/// One queue of a TAP interface.
#[derive(Debug)]
pub struct Tap {
    fd: Owned,
    name: String,
    mtu: u32,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    counters: Counters,
}

impl Tap {
    /// Creates interface `name`, or one more queue of it. The caller configures it in the kernel:
    /// up, address, MTU (as of this call). Needs CAP_NET_ADMIN, or an interface that was created
    /// for this user.
    pub fn open(name: &str) -> Result<Self, Error> {
        let open = || kernel::open(c"/dev/net/tun", libc::O_RDWR | libc::O_NONBLOCK);
        let fd = numbers::high(open).map_err(Error::Kernel)?;
        let mut request = named(name)?;
        let flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE;
        request[16..18].copy_from_slice(&flags.to_ne_bytes());
        network::ioctl(fd.0, TUNSETIFF, &mut request).map_err(Error::Kernel)?;
        let mut size = (virtio::HEADER as i32).to_ne_bytes();
        network::ioctl(fd.0, TUNSETVNETHDRSZ, &mut size).map_err(Error::Kernel)?;
        set_offload(fd.0)?;
        let end = request[..16]
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(16);
        Self::of(fd, String::from_utf8_lossy(&request[..end]).into_owned())
    }

    /// A queue that another process opened, as [`open`](Self::open) does, and passed on.
    pub fn of(fd: Owned, name: String) -> Result<Self, Error> {
        Ok(Self {
            mtu: mtu_of(&name)?,
            fd,
            name,
            incoming: vec![0; GSO_MAX],
            outgoing: vec![0; GSO_MAX],
            counters: Counters::default(),
        })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next frame, which is then in `incoming`: its header and its length.
    fn receive_one(&mut self) -> Result<Option<([u8; virtio::HEADER], usize)>, Error> {
        let mut header = [0; virtio::HEADER];
        self.counters.kernel_calls += 1;
        match network::read_two(self.fd.0, &mut header, &mut self.incoming) {
            Ok(count) => Ok(Some((header, count.saturating_sub(virtio::HEADER)))),
            Err(libc::EAGAIN | libc::EINTR) => Ok(None),
            Err(error) => Err(Error::Kernel(error)),
        }
    }
}

impl Device for Tap {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.mtu,
            segments_max: GSO_MAX as u32,
            checksum: true,
            batch: BATCH,
        }
    }

    fn receive(&mut self, most: usize, take: &mut dyn FnMut(Frame)) -> Result<usize, Error> {
        let mut taken = 0;
        while taken < most {
            let Some((header, length)) = self.receive_one()? else {
                break;
            };
            let (checksum, segment_size) = virtio::read(&header);
            take(Frame {
                bytes: &self.incoming[..length],
                checksum,
                segment_size,
            });
            taken += 1;
        }
        self.counters.received += taken as u64;
        Ok(taken)
    }

    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        self.send_gathered(length, [&[], &[]], offload, fill)
    }

    fn send_gathered(
        &mut self,
        headers: usize,
        payload: [&[u8]; 2],
        offload: Offload,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        let length = headers + payload[0].len() + payload[1].len();
        if !self.capabilities().admits(length, offload) {
            self.counters.send_errors += 1;
            return Err(Error::Refused);
        }
        let headers = &mut self.outgoing[..headers];
        fill(headers);
        let pieces = [&virtio::header(offload), &*headers, payload[0], payload[1]];
        self.counters.kernel_calls += 1;
        match network::write_gathered(self.fd.0, pieces) {
            Ok(_) => self.counters.sent += 1,
            // The device accepted the frame: it can be lost, as on any link.
            Err(_) => self.counters.send_errors += 1,
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn arm(&mut self) -> bool {
        false
    }

    fn poll_fd(&self) -> Option<i32> {
        Some(self.fd.0)
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

/// Enables all offloads of the kernel; UDP segmentation came with Linux 6.2.
fn set_offload(fd: i32) -> Result<(), Error> {
    let tcp = CHECKSUM | TCP4 | TCP6 | TCP_ECN;
    network::ioctl_number(fd, TUNSETOFFLOAD, tcp | UDP4 | UDP6)
        .or_else(|_| network::ioctl_number(fd, TUNSETOFFLOAD, tcp))
        .map(|_| ())
        .map_err(Error::Kernel)
}

fn mtu_of(name: &str) -> Result<u32, Error> {
    let mut request = named(name)?;
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    let open = || kernel::socket(libc::AF_UNIX, kind, 0);
    let socket = numbers::high(open).map_err(Error::Kernel)?;
    network::ioctl(socket.0, SIOCGIFMTU, &mut request).map_err(Error::Kernel)?;
    Ok(u32::from_ne_bytes([
        request[16],
        request[17],
        request[18],
        request[19],
    ]))
}

fn named(name: &str) -> Result<[u8; IFREQ], Error> {
    let mut request = [0; IFREQ];
    // One of the 16 bytes stays 0.
    if name.len() > 15 || name.contains('\0') {
        return Err(Error::Kernel(libc::EINVAL));
    }
    request[..name.len()].copy_from_slice(name.as_bytes());
    Ok(request)
}
