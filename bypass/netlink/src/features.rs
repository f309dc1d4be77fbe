//! XDP and AF_XDP features of a driver: generic netlink family `netdev` (linux/netdev.h, Linux 6.3
//! and later).

use bypass_sys::kernel::Result;

use crate::message::{attributes, u16_at, u32_at, Request};
use crate::socket::Socket;

const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GET_DEVICE: u8 = 1;
const LINK: u16 = 1;
const XDP_FEATURES: u16 = 3;
const ZERO_COPY_SEGMENTS: u16 = 4;

/// Features of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// XDP programs run in the driver.
    pub native: bool,
    /// AF_XDP sockets share their frames with the card.
    pub zero_copy: bool,
    /// Programs can process frames that span several buffers.
    pub fragments: bool,
    /// Most buffers of one frame that is sent with zero-copy.
    pub zero_copy_segments: u32,
}

/// Features of interface `link`. ENOENT if the kernel does not report them.
pub fn xdp(link: u32) -> Result<Features> {
    let mut socket = Socket::of(libc::NETLINK_GENERIC, 0)?;
    let mut family = None;
    let request =
        Request::new(CONTROL, 0, &[GET_FAMILY, 1, 0, 0]).attribute(FAMILY_NAME, b"netdev\0");
    socket.ask(request, &mut |message| {
        let rest = message.body.get(4..).unwrap_or_default();
        family = attributes(rest)
            .find(|(kind, _)| *kind == FAMILY_ID)
            .map(|(_, id)| u16_at(id, 0));
    })?;
    let request = Request::new(family.ok_or(libc::ENOENT)?, 0, &[GET_DEVICE, 1, 0, 0])
        .attribute(LINK, &link.to_ne_bytes());
    let mut features = Features::default();
    socket.ask(request, &mut |message| {
        for (kind, value) in attributes(message.body.get(4..).unwrap_or_default()) {
            // Numbers of 8 and of 4 bytes; all bits of interest are in the lower half.
            let number = match value.try_into() {
                Ok(eight) => u64::from_ne_bytes(eight) as u32,
                Err(_) => u32_at(value, 0),
            };
            match kind {
                XDP_FEATURES => {
                    features.native = number & 3 == 3;
                    features.zero_copy = number & 8 != 0;
                    features.fragments = number & 32 != 0;
                }
                ZERO_COPY_SEGMENTS => features.zero_copy_segments = number,
                _ => {}
            }
        }
    })?;
    Ok(features)
}
