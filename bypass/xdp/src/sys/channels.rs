//! How many queues an interface uses (ETHTOOL_GCHANNELS of linux/ethtool.h).

use bypass_sys::kernel::{self, Result};
use bypass_sys::network;
use bypass_sys::numbers;

const SIOCETHTOOL: u64 = 0x8946;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// Queues in use for receiving, and for sending: those of their own and those that do both.
pub fn in_use(name: &str) -> Result<[u32; 2]> {
    if name.len() > 15 {
        return Err(libc::EINVAL);
    }
    let mut channels = [0u32; 9];
    channels[0] = ETHTOOL_GCHANNELS;
    let mut request = [0u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    let place = channels.as_mut_ptr() as usize;
    request[16..24].copy_from_slice(&place.to_ne_bytes());
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    let socket = numbers::high(|| kernel::socket(libc::AF_UNIX, kind, 0))?;
    network::ioctl(socket.0, SIOCETHTOOL, &mut request)?;
    // The kernel wrote through the address in the request.
    // SAFETY: the array lives on this frame.
    let found = unsafe { core::ptr::read_volatile(&channels) };
    // After the command: the most of rx, tx, other, combined; then what is in use of each.
    Ok([found[5] + found[8], found[6] + found[8]])
}
