//! The Huffman code of header compression (RFC 7541, 5.2 and Appendix B).
//!
//! The code is canonical, so the lengths of its codes define it: codes of one length follow each
//! other in the order of their symbols.

use crate::fault::Fault;
use alloc::vec::Vec;

/// Symbols: the 256 octets and the end of the string, which no string may hold.
const SYMBOLS: usize = 257;
const END: u16 = 256;
/// The longest code.
const BITS_MAX: usize = 30;
/// Codes up to this length are found by one table lookup.
const QUICK_BITS: usize = 9;

/// The length of each symbol's code.
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// The code in the forms for reading and writing.
struct Code {
    /// Each symbol's code.
    codes: [u32; SYMBOLS],
    /// Symbols by length and then by number.
    sorted: [u16; SYMBOLS],
    /// For each length: the first code, the number of codes, and their position in `sorted`.
    first: [u32; BITS_MAX + 1],
    count: [u16; BITS_MAX + 1],
    start: [u16; BITS_MAX + 1],
    /// By the next bits: symbol and length of the code at their start; length 0 if it is longer.
    quick: [(u8, u8); 1 << QUICK_BITS],
}

static CODE: Code = Code::build();

impl Code {
    const fn build() -> Code {
        let mut code = Code {
            codes: [0; SYMBOLS],
            sorted: [0; SYMBOLS],
            first: [0; BITS_MAX + 1],
            count: [0; BITS_MAX + 1],
            start: [0; BITS_MAX + 1],
            quick: [(0, 0); 1 << QUICK_BITS],
        };
        let (mut bits, mut next, mut place) = (1, 0u32, 0usize);
        while bits <= BITS_MAX {
            next <<= 1;
            code.first[bits] = next;
            code.start[bits] = place as u16;
            let mut symbol = 0;
            while symbol < SYMBOLS {
                if LENGTHS[symbol] as usize == bits {
                    code.codes[symbol] = next;
                    code.sorted[place] = symbol as u16;
                    code.fill_quick(symbol, bits, next);
                    code.count[bits] += 1;
                    next += 1;
                    place += 1;
                }
                symbol += 1;
            }
            bits += 1;
        }
        code
    }

    const fn fill_quick(&mut self, symbol: usize, bits: usize, code: u32) {
        if bits > QUICK_BITS {
            return;
        }
        let spare = QUICK_BITS - bits;
        let mut rest = 0;
        while rest < 1 << spare {
            self.quick[((code as usize) << spare) + rest] = (symbol as u8, bits as u8);
            rest += 1;
        }
    }

    /// The symbol at the start of the upper bits of `window`, and its length in bits.
    fn long(&self, window: u64) -> (u16, u32) {
        let mut bits = QUICK_BITS + 1;
        while bits < BITS_MAX {
            let offset = ((window >> (64 - bits)) as u32).wrapping_sub(self.first[bits]);
            if offset < u32::from(self.count[bits]) {
                break;
            }
            bits += 1;
        }
        let offset = ((window >> (64 - bits)) as u32).wrapping_sub(self.first[bits]);
        let place = u32::from(self.start[bits]) + offset;
        (self.sorted[place as usize], bits as u32)
    }
}

/// Appends the text that `input` encodes.
pub fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    // `window` holds the next `held` bits at its upper end, and ones behind them: padding is ones
    let (mut window, mut held, mut at) = (u64::MAX, 0u32, 0);
    loop {
        while held <= 56 && at < input.len() {
            let shift = 56 - held;
            window ^= u64::from(!input[at]) << shift;
            held += 8;
            at += 1;
        }
        let (symbol, bits) = match CODE.quick[(window >> (64 - QUICK_BITS)) as usize] {
            (_, 0) => CODE.long(window),
            (symbol, bits) => (u16::from(symbol), u32::from(bits)),
        };
        if bits > held {
            // less than an octet of ones may be left (RFC 7541, 5.2)
            let is_padding = held < 8 && window == u64::MAX;
            return if is_padding {
                Ok(())
            } else {
                Err(Fault::Compression)
            };
        }
        if symbol == END {
            return Err(Fault::Compression);
        }
        out.push(symbol as u8);
        window = (window << bits) | ((1 << bits) - 1);
        held -= bits;
    }
}

/// The length of a text in this code, in bytes.
pub fn encoded_len(text: &[u8]) -> usize {
    let bits = text
        .iter()
        .map(|&byte| usize::from(LENGTHS[usize::from(byte)]));
    bits.sum::<usize>().div_ceil(8)
}

/// Appends a text in this code.
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut window, mut held) = (0u64, 0u32);
    for &byte in text {
        let bits = u32::from(LENGTHS[usize::from(byte)]);
        window = window << bits | u64::from(CODE.codes[usize::from(byte)]);
        held += bits;
        while held >= 8 {
            held -= 8;
            out.push((window >> held) as u8);
        }
    }
    if held > 0 {
        let padded = window << (8 - held) | ((1 << (8 - held)) - 1);
        out.push(padded as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(input: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::new();
        decode(input, &mut out).map(|()| out)
    }

    #[test]
    fn the_examples_of_the_rfc_are_read_and_written() {
        // RFC 7541, C.4.1 and C.6.1
        let table: [(&[u8], &[u8]); 4] = [
            (
                b"www.example.com",
                &[
                    0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
                ],
            ),
            (b"no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
            (b"302", &[0x64, 0x02]),
            (b"private", &[0xae, 0xc3, 0x77, 0x1a, 0x4b]),
        ];
        for (text, code) in table {
            assert_eq!(decoded(code).as_deref(), Ok(text));
            let mut out = Vec::new();
            encode(text, &mut out);
            assert_eq!(out, code);
            assert_eq!(encoded_len(text), code.len());
        }
    }

    #[test]
    fn every_octet_comes_back() {
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        for length in 0..all.len() {
            let mut out = Vec::new();
            encode(&all[..length], &mut out);
            assert_eq!(decoded(&out).as_deref(), Ok(&all[..length]), "{length}");
        }
    }

    #[test]
    fn wrong_padding_and_the_end_symbol_are_refused() {
        assert_eq!(decoded(&[]).as_deref(), Ok(&[][..]));
        // 'a' is 00011; zeros after it are invalid padding
        assert_eq!(decoded(&[0b0001_1000]), Err(Fault::Compression));
        assert_eq!(decoded(&[0b0001_1111]).as_deref(), Ok(&b"a"[..]));
        // a whole octet of padding
        assert_eq!(decoded(&[0b0001_1111, 0xff]), Err(Fault::Compression));
        assert_eq!(
            decoded(&[0xff; 4]),
            Err(Fault::Compression),
            "the end symbol"
        );
    }
}
