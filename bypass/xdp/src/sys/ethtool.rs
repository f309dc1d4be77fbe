//! Driver, queues in use and merging of received frames of an interface (linux/ethtool.h).

use bypass_sys::kernel::{self, Result};
use bypass_sys::network;
use bypass_sys::numbers;

const SIOCETHTOOL: u64 = 0x8946;
const GET_DRIVER: u32 = 0x03;
const GET_FLAGS: u32 = 0x25;
const GET_GRO: u32 = 0x2b;
const GET_CHANNELS: u32 = 0x3c;
/// ETH_FLAG_LRO.
const LRO: u32 = 1 << 15;

/// Queues in use for receiving, and for sending: dedicated queues and combined ones.
pub fn queues(name: &str) -> Result<[u32; 2]> {
    let mut channels = [0u32; 9];
    channels[0] = GET_CHANNELS;
    let found = ask(name, channels)?;
    // After the command: the most of rx, tx, other, combined; then what is in use of each.
    Ok([found[5] + found[8], found[6] + found[8]])
}

/// The driver's name.
pub fn driver(name: &str) -> Result<String> {
    let mut info = [0u32; 49];
    info[0] = GET_DRIVER;
    let found = ask(name, info)?;
    let bytes = found[1..9].iter().flat_map(|word| word.to_ne_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether the driver or the kernel merges received frames (LRO, GRO) before programs in generic mode see them.
pub fn merges(name: &str) -> bool {
    let value = |command| ask(name, [command, 0]).map_or(0, |found| found[1]);
    value(GET_GRO) != 0 || value(GET_FLAGS) & LRO != 0
}

fn ask<const WORDS: usize>(name: &str, mut words: [u32; WORDS]) -> Result<[u32; WORDS]> {
    if name.len() > 15 {
        return Err(libc::EINVAL);
    }
    let mut request = [0u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    let place = words.as_mut_ptr() as usize;
    request[16..24].copy_from_slice(&place.to_ne_bytes());
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    let socket = numbers::high(|| kernel::socket(libc::AF_UNIX, kind, 0))?;
    network::ioctl(socket.0, SIOCETHTOOL, &mut request)?;
    // The kernel wrote through the address in the request.
    // SAFETY: the array lives on this frame, and has the size of what the command in it fills.
    Ok(unsafe { core::ptr::read_volatile(&words) })
}
