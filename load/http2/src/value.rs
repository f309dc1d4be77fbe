//! Values of response fields that decide what a response means, in HTTP/2 and in HTTP/3.

/// No length was declared.
pub const NO_LENGTH: u64 = u64::MAX;

/// UNKNOWN among the status codes of gRPC.
const UNKNOWN: u32 = 2;

/// The number of a `grpc-status`; UNKNOWN if it is invalid.
pub fn call_status(value: &[u8]) -> u32 {
    let text = core::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(UNKNOWN)
}

/// The value of a Content-Length; [`NO_LENGTH`] if it is invalid.
pub fn length(value: &[u8]) -> u64 {
    let is_number = value.iter().all(u8::is_ascii_digit);
    let text = core::str::from_utf8(value).ok().filter(|_| is_number);
    text.and_then(|text| text.parse().ok()).unwrap_or(NO_LENGTH)
}

/// A status code; an invalid one becomes a code that no status has.
pub fn status(value: &[u8]) -> u16 {
    match value {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
        }
        _ => u16::MAX,
    }
}

/// Whether a body's length differs from the declared one (RFC 9113, 8.1.1; RFC 9114, 4.1.2): a response to
/// HEAD, and one with such a status, has none, whatever is declared.
#[inline]
pub fn is_cut(declared: u64, body_bytes: u64, is_head: bool, status: u16) -> bool {
    declared != NO_LENGTH && declared != body_bytes && !is_head && !matches!(status, 204 | 304)
}
