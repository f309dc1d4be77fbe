//! Header compression (RFC 9204) without a dynamic table, which this client does not allow: what a server
//! sends refers to the static table or is literal.

use crate::fault::Fault;
use crate::static_table::{index_of, index_of_name, STATIC};
use alloc::vec::Vec;
use core::cell::Cell;
use load_http2::hpack::{FIELDS_MAX, FIELD_OVERHEAD};
use load_http2::primitive::{put_number, put_text, Input};

/// The representation of a field in a block (RFC 9204, 4.5): the bits before its first number, and the
/// size of that number in the octet.
mod form {
    /// A field of the static table.
    pub const INDEXED: (u8, u32) = (0xc0, 6);
    /// A name of the static table.
    pub const NAMED: (u8, u32) = (0x50, 4);
    /// Name and value are literal: the name's length.
    pub const LITERAL: (u8, u32) = (0x20, 3);
    /// A value's length.
    pub const VALUE: (u8, u32) = (0x00, 7);
}

/// A block without references to a dynamic table begins with these (RFC 9204, 4.5.1).
const PREFIX: [u8; 2] = [0, 0];

fn wrong<T>(_: T) -> Fault {
    Fault::Decompression
}

/// Decodes a block; `each` gets every field in order. `scratch` is kept for its memory.
pub fn decode(
    block: &[u8],
    scratch: &mut Vec<u8>,
    mut each: impl FnMut(&[u8], &[u8]),
) -> Result<(), Fault> {
    let mut rest = Input(block);
    // the count of inserts is that of a table without entries, and so the base means nothing
    if rest.number(8).map_err(wrong)? != 0 {
        return Err(Fault::Decompression);
    }
    rest.number(7).map_err(wrong)?;
    let size = Cell::new(0);
    let mut each = |name: &[u8], value: &[u8]| {
        size.set(size.get() + name.len() + value.len() + FIELD_OVERHEAD);
        each(name, value);
    };
    while let Some(&first) = rest.0.first() {
        scratch.clear();
        match first {
            0xc0..=0xff => {
                let (name, value) = entry(rest.number(form::INDEXED.1).map_err(wrong)?)?;
                each(name, value);
            }
            // bit 4 says that the name is one of the static table; bit 5 is for intermediaries
            0x50..=0x5f | 0x70..=0x7f => {
                let (name, _) = entry(rest.number(form::NAMED.1).map_err(wrong)?)?;
                rest.text(form::VALUE.1, scratch).map_err(wrong)?;
                each(name, scratch);
            }
            0x20..=0x3f => {
                rest.text(form::LITERAL.1, scratch).map_err(wrong)?;
                let middle = scratch.len();
                rest.text(form::VALUE.1, scratch).map_err(wrong)?;
                let (name, value) = scratch.split_at(middle);
                each(name, value);
            }
            // references to the dynamic table
            _ => return Err(Fault::Decompression),
        }
        if size.get() > FIELDS_MAX {
            return Err(Fault::ExcessiveLoad);
        }
    }
    Ok(())
}

fn entry(index: usize) -> Result<(&'static [u8], &'static [u8]), Fault> {
    STATIC.get(index).copied().ok_or(Fault::Decompression)
}

/// Appends the beginning of a block.
pub fn put_prefix(out: &mut Vec<u8>) {
    out.extend_from_slice(&PREFIX);
}

/// Appends a field.
pub fn put(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    if let Some(index) = index_of(name, value) {
        put_number(form::INDEXED, index, out);
        return;
    }
    match index_of_name(name) {
        Some(index) => put_number(form::NAMED, index, out),
        None => put_text(form::LITERAL, name, out),
    }
    put_text(form::VALUE, value, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(block: &[u8]) -> Result<Vec<(String, String)>, Fault> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut seen = Vec::new();
        decode(block, &mut Vec::new(), |name, value| {
            seen.push((text(name), text(value)));
        })?;
        Ok(seen)
    }

    fn field(name: &str, value: &str) -> (String, String) {
        (name.to_string(), value.to_string())
    }

    #[test]
    fn fields_of_the_static_table_add_up_too() {
        // each octet names a field of 37 bytes and more
        let block = |times| [&PREFIX[..], &vec![0xc0 | 25; times]].concat();
        let most = FIELDS_MAX / (FIELD_OVERHEAD + ":status".len() + "200".len());
        assert_eq!(fields(&block(most)).map(|all| all.len()), Ok(most));
        assert_eq!(fields(&block(most + 1)), Err(Fault::ExcessiveLoad));
    }

    #[test]
    fn the_example_of_the_rfc_without_a_dynamic_table_is_read() {
        // RFC 9204, B.1
        let block = b"\0\0\x51\x0b/index.html";
        assert_eq!(fields(block), Ok(vec![field(":path", "/index.html")]));
    }

    #[test]
    fn fields_of_each_form_come_back() {
        let long = "v".repeat(300);
        let all = [
            (":method", "GET"),
            (":path", "/some/path"),
            ("x-own", "1"),
            ("a-name-of-more-than-seven", long.as_str()),
            ("x-frame-options", "sameorigin"),
            ("date", ""),
        ];
        let mut block = Vec::new();
        put_prefix(&mut block);
        for (name, value) in all {
            put(name.as_bytes(), value.as_bytes(), &mut block);
        }
        let expected = all.map(|(name, value)| field(name, value)).to_vec();
        assert_eq!(fields(&block), Ok(expected));
        // the field that is in the table is one octet, behind the prefix
        assert_eq!(block[2], 0xc0 | 17);
    }

    #[test]
    fn references_to_a_table_that_is_not_allowed_are_refused() {
        let wrong: [&[u8]; 9] = [
            b"",
            b"\0",
            b"\x02\0\x80",     // an insert count
            b"\0\0\x80",       // indexed, dynamic
            b"\0\0\x40\x01a",  // name reference, dynamic
            b"\0\0\x10",       // indexed behind the base
            b"\0\0\x00\x01a",  // name reference behind the base
            b"\0\0\xff\x40",   // index 127
            b"\0\0\x51\x05ab", // a value that ends early
        ];
        for block in wrong {
            assert_eq!(fields(block), Err(Fault::Decompression), "{block:?}");
        }
    }
}
