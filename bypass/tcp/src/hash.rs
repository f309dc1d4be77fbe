//! SipHash-2-4 (Aumasson and Bernstein, 2012): initial sequence numbers and cookies.

/// A key of 128 bits.
#[derive(Clone, Copy)]
pub struct Key(u64, u64);

impl Key {
    /// A key from the engine's secret; `purpose` makes keys for different uses differ.
    pub fn new(secret: &[u8; 16], purpose: u64) -> Key {
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| secret[at + i]));
        let root = Key(word(0), word(8));
        Key(root.hash(&[purpose, 0]), root.hash(&[purpose, 1]))
    }

    /// The hash of whole words.
    pub fn hash(self, words: &[u64]) -> u64 {
        let mut v = [
            self.0 ^ 0x736f_6d65_7073_6575,
            self.1 ^ 0x646f_7261_6e64_6f6d,
            self.0 ^ 0x6c79_6765_6e65_7261,
            self.1 ^ 0x7465_6462_7974_6573,
        ];
        for &word in words
            .iter()
            .chain(core::iter::once(&((words.len() as u64 * 8) << 56)))
        {
            v[3] ^= word;
            rounds(&mut v, 2);
            v[0] ^= word;
        }
        v[2] ^= 0xff;
        rounds(&mut v, 4);
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

fn rounds(v: &mut [u64; 4], count: usize) {
    for _ in 0..count {
        v[0] = v[0].wrapping_add(v[1]);
        v[2] = v[2].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[1]);
        v[0] = v[0].wrapping_add(v[3]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference vectors of the SipHash paper, key 00..0f, message 00..07 and the empty one.
    #[test]
    fn the_reference_vectors_come_out() {
        let key = Key(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        assert_eq!(key.hash(&[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(key.hash(&[0x0706_0504_0302_0100]), 0x93f5_f579_9a93_2462);
    }
}
