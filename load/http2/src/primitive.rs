//! Numbers and strings as header compression writes them (RFC 7541, 5): HTTP/2 and HTTP/3 have the
//! same.

use crate::fault::Fault;
use crate::huffman;
use alloc::vec::Vec;

/// The rest of a block.
pub struct Input<'b>(pub &'b [u8]);

impl Input<'_> {
    /// A number of which the first octet has `bits` bits (RFC 7541, 5.1).
    #[inline]
    pub fn number(&mut self, bits: u32) -> Result<usize, Fault> {
        let (&first, rest) = self.0.split_first().ok_or(Fault::Compression)?;
        self.0 = rest;
        let most = u8::MAX >> (8 - bits);
        let start = usize::from(first & most);
        if start < usize::from(most) {
            return Ok(start);
        }
        self.long_number(start)
    }

    #[cold]
    fn long_number(&mut self, mut number: usize) -> Result<usize, Fault> {
        // four octets are more than any number here needs
        for shift in [0, 7, 14, 21] {
            let (&octet, rest) = self.0.split_first().ok_or(Fault::Compression)?;
            self.0 = rest;
            number += usize::from(octet & 0x7f) << shift;
            if octet & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Fault::Compression)
    }

    /// Appends a string (RFC 7541, 5.2). The first octet has `bits` bits of its length, and the bit before
    /// them says whether it is in the Huffman code.
    #[inline]
    pub fn text(&mut self, bits: u32, out: &mut Vec<u8>) -> Result<(), Fault> {
        let is_huffman = self.0.first().is_some_and(|first| first >> bits & 1 != 0);
        let length = self.number(bits)?;
        if length > self.0.len() {
            return Err(Fault::Compression);
        }
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        if is_huffman {
            return huffman::decode(text, out);
        }
        out.extend_from_slice(text);
        Ok(())
    }
}

/// Appends a number after `prefix`, whose octet has `bits` bits of it.
pub fn put_number((prefix, bits): (u8, u32), number: usize, out: &mut Vec<u8>) {
    let most = (1usize << bits) - 1;
    if number < most {
        out.push(prefix | number as u8);
        return;
    }
    out.push(prefix | most as u8);
    let mut rest = number - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends a string in the shorter of its two forms, after `prefix`, whose octet has `bits` bits of the
/// length.
pub fn put_text((prefix, bits): (u8, u32), text: &[u8], out: &mut Vec<u8>) {
    let short = huffman::encoded_len(text);
    if short < text.len() {
        put_number((prefix | 1 << bits, bits), short, out);
        huffman::encode(text, out);
    } else {
        put_number((prefix, bits), text.len(), out);
        out.extend_from_slice(text);
    }
}
