//! The Internet checksum (RFC 1071), over slices that need not be contiguous.

/// A running one's complement sum. The sum is kept in the machine's byte order, which the
/// arithmetic allows (RFC 1071, 2B); only [`Checksum::finish`] turns it into bytes.
#[derive(Clone, Copy, Default)]
pub struct Checksum {
    sum: u64,
    odd: bool,
}

impl Checksum {
    /// Adds bytes that follow those added before.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        let folded = fold(sum(bytes));
        self.sum += u64::from(if self.odd {
            folded.swap_bytes()
        } else {
            folded
        });
        self.odd ^= bytes.len() % 2 == 1;
    }

    /// Adds a number as it stands on the wire, at an even place.
    pub fn add16(&mut self, value: u16) {
        self.sum += u64::from(value.to_be());
    }

    /// As [`Checksum::add16`], eight bytes.
    pub fn add64(&mut self, value: u64) {
        let value = value.to_be();
        self.sum += (value & 0xffff_ffff) + (value >> 32);
    }

    /// The two bytes for the header's checksum field; zero when a received sum is right.
    pub fn finish(self) -> [u8; 2] {
        (!fold(self.sum)).to_ne_bytes()
    }

    /// The uncomplemented sum, which a device that completes checksums expects in the field.
    pub fn partial(self) -> [u8; 2] {
        fold(self.sum).to_ne_bytes()
    }
}

/// The checksum of one contiguous piece.
#[inline]
pub fn of(bytes: &[u8]) -> [u8; 2] {
    let mut checksum = Checksum::default();
    checksum.add(bytes);
    checksum.finish()
}

/// Four independent sums of 32-bit words: the compiler turns them into vector additions.
#[inline]
fn sum(bytes: &[u8]) -> u64 {
    let mut lanes = [0u64; 8];
    let mut blocks = bytes.chunks_exact(32);
    for block in &mut blocks {
        for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(4)) {
            *lane += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
    }
    let mut total: u64 = lanes.iter().sum();
    let mut words = blocks.remainder().chunks_exact(4);
    for word in &mut words {
        total += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut last = [0u8; 4];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    total + u64::from(u32::from_ne_bytes(last))
}

fn fold(mut sum: u64) -> u16 {
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, section 3: the words of its example add up to ddf2.
    #[test]
    fn the_example_of_rfc_1071_comes_out() {
        assert_eq!(
            of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            [0x22, 0x0d]
        );
    }

    #[test]
    fn pieces_of_any_length_give_the_sum_of_the_whole() {
        let bytes: alloc::vec::Vec<u8> = (0..517u32).map(|i| (i * 167 % 251) as u8).collect();
        for cut in 0..bytes.len() {
            let mut checksum = Checksum::default();
            checksum.add(&bytes[..cut]);
            checksum.add(&bytes[cut..]);
            assert_eq!(checksum.finish(), of(&bytes), "cut at {cut}");
        }
    }
}
