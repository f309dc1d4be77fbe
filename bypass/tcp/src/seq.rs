//! Sequence numbers: comparisons modulo 2^32 (RFC 9293, 3.4).

/// Whether `a` comes before `b`.
#[inline]
pub fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Whether `a` comes after `b`.
#[inline]
pub fn after(a: u32, b: u32) -> bool {
    before(b, a)
}

/// The later of two.
#[inline]
pub fn later(a: u32, b: u32) -> u32 {
    if after(a, b) {
        a
    } else {
        b
    }
}

/// The earlier of two.
#[inline]
pub fn earlier(a: u32, b: u32) -> u32 {
    if before(a, b) {
        a
    } else {
        b
    }
}

/// How far `to` is ahead of `from`; zero when it is behind.
#[inline]
pub fn distance(from: u32, to: u32) -> u32 {
    let gap = to.wrapping_sub(from);
    if gap as i32 > 0 {
        gap
    } else {
        0
    }
}
