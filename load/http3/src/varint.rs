//! Integers of QUIC, in 1, 2, 4 or 8 bytes (RFC 9000, 16).

use alloc::vec::Vec;

/// Most bytes of an integer.
pub const BYTES_MAX: usize = 8;

/// Reads an integer, if all of it is there; and how many bytes it has.
#[inline]
pub fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let rest = bytes.get(1..length)?.iter();
    let number = rest.fold(u64::from(first & 0x3f), |sum, byte| {
        sum << 8 | u64::from(*byte)
    });
    Some((number, length))
}

/// Appends an integer, which must be below 2^62, in as few bytes as it needs.
pub fn put(number: u64, out: &mut Vec<u8>) {
    let power = match number {
        0..=0x3f => 0,
        0x40..=0x3fff => 1,
        0x4000..=0x3fff_ffff => 2,
        _ => 3,
    };
    let bytes = number.to_be_bytes();
    let start = out.len();
    out.extend_from_slice(&bytes[BYTES_MAX - (1 << power)..]);
    out[start] |= power << 6;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_are_read_and_written() {
        // RFC 9000, A.1
        let table: [(u64, &[u8]); 4] = [
            (
                151_288_809_941_952_652,
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
            ),
            (494_878_333, &[0x9d, 0x7f, 0x3e, 0x7d]),
            (15_293, &[0x7b, 0xbd]),
            (37, &[0x25]),
        ];
        for (number, bytes) in table {
            assert_eq!(read(bytes), Some((number, bytes.len())));
            assert_eq!(read(&bytes[..bytes.len() - 1]), None);
            let mut out = Vec::new();
            put(number, &mut out);
            assert_eq!(out, bytes);
        }
        // longer than it needs to be
        assert_eq!(read(&[0x40, 0x25]), Some((37, 2)));
    }
}
