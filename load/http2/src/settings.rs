//! SETTINGS (RFC 9113, 6.5): the limits of each side.

use crate::fault::Fault;
use crate::frame::{kind, write, PAYLOAD_MAX};
use alloc::vec::Vec;

mod id {
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
}

/// The largest window (RFC 9113, 6.9.1).
pub const WINDOW_MAX: i64 = (1 << 31) - 1;
/// The initial window of a connection and its streams.
pub const WINDOW_FIRST: i64 = 65_535;

/// The server's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Concurrent streams.
    pub streams: u32,
    /// Bytes of a request's body before a window update.
    pub window: i64,
    /// Bytes of a frame's payload.
    pub frame: usize,
    /// Size of its decoder's table.
    pub table: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            streams: u32::MAX,
            window: WINDOW_FIRST,
            frame: PAYLOAD_MAX,
            table: crate::hpack::TABLE_MAX,
        }
    }
}

impl Settings {
    /// Applies a frame.
    pub fn take(&mut self, payload: &[u8]) -> Result<(), Fault> {
        if !payload.len().is_multiple_of(6) {
            return Err(Fault::FrameSize);
        }
        for setting in payload.chunks_exact(6) {
            let &[a, b, w, x, y, z] = setting else {
                continue;
            };
            self.set(u16::from_be_bytes([a, b]), u32::from_be_bytes([w, x, y, z]))?;
        }
        Ok(())
    }

    fn set(&mut self, id: u16, value: u32) -> Result<(), Fault> {
        match id {
            id::HEADER_TABLE_SIZE => self.table = value as usize,
            id::ENABLE_PUSH if value != 0 => return Err(Fault::Protocol),
            id::MAX_CONCURRENT_STREAMS => self.streams = value,
            id::INITIAL_WINDOW_SIZE if i64::from(value) > WINDOW_MAX => {
                return Err(Fault::FlowControl)
            }
            id::INITIAL_WINDOW_SIZE => self.window = i64::from(value),
            id::MAX_FRAME_SIZE if !(16_384..1 << 24).contains(&value) => {
                return Err(Fault::Protocol)
            }
            id::MAX_FRAME_SIZE => self.frame = value as usize,
            _ => {}
        }
        Ok(())
    }
}

/// Appends the client's settings: no pushes, and bodies of any length, as it keeps none of them.
pub fn put_own(out: &mut Vec<u8>) {
    let mut payload = Vec::new();
    for (id, value) in [
        (id::ENABLE_PUSH, 0),
        (id::INITIAL_WINDOW_SIZE, WINDOW_MAX as u32),
    ] {
        payload.extend_from_slice(&id.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    write(out, kind::SETTINGS, 0, 0, &payload);
}
