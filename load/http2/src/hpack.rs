//! Header compression (RFC 7541): decodes blocks into fields, and encodes the pieces of blocks.

use crate::fault::Fault;
use crate::primitive::{put_number, put_text, Input};
use crate::static_table::{index_of, index_of_name, STATIC};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::Cell;

/// The size of the server's table: the initial size of both sides.
pub const TABLE_MAX: usize = 4096;
/// Bytes that a field counts in addition to its text (RFC 7541, 4.1).
pub const FIELD_OVERHEAD: usize = 32;
/// Longest fields of a block, with their overheads: as curl has it, and for HTTP/1. A short block may name an
/// entry of the table again and again.
pub const FIELDS_MAX: usize = 300 * 1024;
/// The first index of the dynamic table.
pub const DYNAMIC_FIRST: usize = STATIC.len() + 1;

/// The representation of a field in a block (RFC 7541, 6): the bits before its first number, and
/// the size of that number in the octet.
mod form {
    pub const INDEXED: (u8, u32) = (0x80, 7);
    pub const INCREMENTAL_INDEXING: (u8, u32) = (0x40, 6);
    pub const RESIZE: (u8, u32) = (0x20, 5);
    pub const WITHOUT_INDEXING: (u8, u32) = (0x00, 4);
    /// Of a string, whose first bit says whether it is in the Huffman code.
    pub const STRING: (u8, u32) = (0x00, 7);
}

/// Decodes the blocks of one connection.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// A value or name that does not enter the table.
    scratch: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder {
            table: Table::new(),
            scratch: Vec::new(),
        }
    }
}

impl Decoder {
    /// Decodes a block; `each` gets every field in order.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Fault> {
        let mut rest = Input(block);
        let mut at_start = true;
        let size = Cell::new(0);
        let mut each = |name: &[u8], value: &[u8]| {
            size.set(size.get() + name.len() + value.len() + FIELD_OVERHEAD);
            each(name, value);
        };
        while let Some(&first) = rest.0.first() {
            match first {
                0x80..=0xff => {
                    let index = rest.number(form::INDEXED.1)?;
                    let (name, value) = self.table.get(index)?;
                    each(name, value);
                }
                0x40..=0x7f => self.remember(&mut rest, &mut each)?,
                0x20..=0x3f => {
                    // only before the first field (RFC 7541, 4.2)
                    let size = rest.number(form::RESIZE.1)?;
                    if !at_start || size > TABLE_MAX {
                        return Err(Fault::Compression);
                    }
                    self.table.resize(size);
                    continue;
                }
                _ => self.pass(&mut rest, &mut each)?,
            }
            if size.get() > FIELDS_MAX {
                return Err(Fault::EnhanceYourCalm);
            }
            at_start = false;
        }
        Ok(())
    }

    /// A literal that enters the table.
    fn remember(
        &mut self,
        rest: &mut Input,
        each: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Fault> {
        let index = rest.number(form::INCREMENTAL_INDEXING.1)?;
        let start = self.table.bytes.len();
        if index == 0 {
            rest.text(form::STRING.1, &mut self.table.bytes)?;
        } else {
            self.table.copy_name(index)?;
        }
        let middle = self.table.bytes.len();
        rest.text(form::STRING.1, &mut self.table.bytes)?;
        let (name, value) = self.table.bytes[start..].split_at(middle - start);
        each(name, value);
        self.table.insert(start, middle);
        Ok(())
    }

    /// A literal that does not enter the table.
    fn pass(&mut self, rest: &mut Input, each: &mut impl FnMut(&[u8], &[u8])) -> Result<(), Fault> {
        let index = rest.number(form::WITHOUT_INDEXING.1)?;
        self.scratch.clear();
        if index == 0 {
            rest.text(form::STRING.1, &mut self.scratch)?;
        }
        let middle = self.scratch.len();
        rest.text(form::STRING.1, &mut self.scratch)?;
        let (own, value) = self.scratch.split_at(middle);
        let name = if index == 0 {
            own
        } else {
            self.table.get(index)?.0
        };
        each(name, value);
        Ok(())
    }
}

/// One field of the dynamic table: its start and length in the bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    name: usize,
    value: usize,
}

impl Entry {
    fn size(self) -> usize {
        self.name + self.value + FIELD_OVERHEAD
    }
}

/// The dynamic table (RFC 7541, 2.3.2). Its fields follow each other in one buffer.
#[derive(Debug)]
struct Table {
    /// The newest first.
    entries: VecDeque<Entry>,
    bytes: Vec<u8>,
    size: usize,
    max: usize,
}

impl Table {
    fn new() -> Table {
        Table {
            entries: VecDeque::new(),
            bytes: Vec::new(),
            size: 0,
            max: TABLE_MAX,
        }
    }

    #[inline]
    fn get(&self, index: usize) -> Result<(&[u8], &[u8]), Fault> {
        if let Some(field) = STATIC.get(index.wrapping_sub(1)) {
            return Ok(*field);
        }
        let place = index.wrapping_sub(DYNAMIC_FIRST);
        let entry = self.entries.get(place).ok_or(Fault::Compression)?;
        let field = &self.bytes[entry.start..entry.start + entry.name + entry.value];
        Ok(field.split_at(entry.name))
    }

    /// Appends the name of a field to the bytes.
    fn copy_name(&mut self, index: usize) -> Result<(), Fault> {
        if let Some((name, _)) = STATIC.get(index.wrapping_sub(1)) {
            self.bytes.extend_from_slice(name);
            return Ok(());
        }
        let place = index.wrapping_sub(DYNAMIC_FIRST);
        let entry = *self.entries.get(place).ok_or(Fault::Compression)?;
        self.bytes
            .extend_from_within(entry.start..entry.start + entry.name);
        Ok(())
    }

    /// Inserts the field at the end of the bytes, whose value starts at `middle`.
    fn insert(&mut self, start: usize, middle: usize) {
        let entry = Entry {
            start,
            name: middle - start,
            value: self.bytes.len() - middle,
        };
        self.evict(self.max.saturating_sub(entry.size()));
        if entry.size() > self.max {
            // an empty table is allowed (RFC 7541, 4.4)
            self.bytes.clear();
            return;
        }
        self.size += entry.size();
        self.entries.push_front(entry);
        if self.bytes.len() > 4 * TABLE_MAX {
            self.move_down();
        }
    }

    fn resize(&mut self, max: usize) {
        self.max = max;
        self.evict(max);
    }

    /// Evicts the oldest until the size is at most `size`.
    fn evict(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.entries.pop_back() else {
                return;
            };
            self.size -= oldest.size();
        }
    }

    /// Moves the entries to the start of the bytes.
    fn move_down(&mut self) {
        let gone = self
            .entries
            .back()
            .map_or(self.bytes.len(), |oldest| oldest.start);
        self.bytes.drain(..gone);
        self.entries
            .iter_mut()
            .for_each(|entry| entry.start -= gone);
    }
}

/// Appends a reference to a field that both sides know.
pub fn put_indexed(index: usize, out: &mut Vec<u8>) {
    put_number(form::INDEXED, index, out);
}

/// Appends a field; uses the static table if it has the name or field.
pub fn put_plain(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    match index_of(name, value) {
        Some(index) => put_indexed(index, out),
        None => put_literal(form::WITHOUT_INDEXING, name, value, out),
    }
}

/// Appends a field that enters the other side's table.
pub fn put_remembered(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    put_literal(form::INCREMENTAL_INDEXING, name, value, out);
}

/// Resizes the other side's table to 0.
pub fn put_empty_table(out: &mut Vec<u8>) {
    put_number(form::RESIZE, 0, out);
}

fn put_literal(form: (u8, u32), name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    match index_of_name(name) {
        Some(index) => put_number(form, index, out),
        None => {
            put_number(form, 0, out);
            put_text(form::STRING, name, out);
        }
    }
    put_text(form::STRING, value, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
        let pairs = digits
            .chunks(2)
            .map(|pair| core::str::from_utf8(pair).expect("text"));
        pairs
            .map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal"))
            .collect()
    }

    fn fields(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<String>, Fault> {
        let mut seen = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        decoder.decode(block, |name, value| {
            seen.push(text(name) + "=" + &text(value))
        })?;
        Ok(seen)
    }

    #[test]
    fn requests_of_the_rfc_are_read_with_and_without_huffman() {
        let plain = [
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ];
        let coded = [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ];
        for blocks in [plain, coded] {
            let mut decoder = Decoder::default();
            let read: Vec<_> = blocks
                .iter()
                .map(|block| fields(&mut decoder, &hex(block)).expect("well formed"))
                .collect();
            assert_eq!(read[0][3], ":authority=www.example.com");
            assert_eq!(
                read[1][3..],
                [":authority=www.example.com", "cache-control=no-cache"]
            );
            assert_eq!(
                read[2][3..],
                [":authority=www.example.com", "custom-key=custom-value"]
            );
            assert_eq!(decoder.table.size, 164);
        }
    }

    #[test]
    fn a_small_table_evicts_as_the_rfc_shows() {
        // RFC 7541, C.5, with the table of 256 octets set in the first block
        let mut decoder = Decoder::default();
        let blocks = [
            "3fe101 4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e1768747470733a2f2f7777772e6578616d706c652e636f6d",
            "4803333037c1c0bf",
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
        ];
        let read: Vec<_> = blocks
            .iter()
            .map(|block| fields(&mut decoder, &hex(block)).expect("well formed"))
            .collect();
        assert_eq!(read[0][0], ":status=302");
        assert_eq!(read[1][..2], [":status=307", "cache-control=private"]);
        assert_eq!(read[2][0], ":status=200");
        assert_eq!(read[2][3], "location=https://www.example.com");
        assert_eq!(decoder.table.entries.len(), 3);
        assert_eq!(decoder.table.size, 215);
    }

    #[test]
    fn what_is_written_is_read() {
        let mut block = Vec::new();
        let long = "x".repeat(5000);
        put_remembered(b"x-name", b"value with \x01 in it", &mut block);
        put_plain(b":method", b"GET", &mut block);
        put_plain(b":path", long.as_bytes(), &mut block);
        put_indexed(DYNAMIC_FIRST, &mut block);
        let mut decoder = Decoder::default();
        let read = fields(&mut decoder, &block).expect("well formed");
        assert_eq!(read[1], ":method=GET");
        assert_eq!(read[2].len(), long.len() + 6);
        assert_eq!(read[3], read[0]);
        let mut block = Vec::new();
        put_empty_table(&mut block);
        put_indexed(DYNAMIC_FIRST, &mut block);
        assert_eq!(fields(&mut decoder, &block), Err(Fault::Compression));
    }

    #[test]
    fn the_table_stays_within_its_size() {
        let mut decoder = Decoder::default();
        for number in 0..10_000 {
            let mut block = Vec::new();
            let value = format!("{number}").repeat(1 + number % 50);
            put_remembered(b"x-changing", value.as_bytes(), &mut block);
            put_indexed(DYNAMIC_FIRST, &mut block);
            let read = fields(&mut decoder, &block).expect("well formed");
            assert_eq!(read[0], read[1]);
            assert!(decoder.table.size <= TABLE_MAX);
            assert!(decoder.table.bytes.len() <= 4 * TABLE_MAX);
        }
        let mut block = Vec::new();
        put_remembered(b"x", &[b'y'; 3 * TABLE_MAX], &mut block);
        assert_eq!(fields(&mut decoder, &block).expect("well formed").len(), 1);
        assert_eq!((decoder.table.size, decoder.table.entries.len()), (0, 0));
    }

    #[test]
    fn nonsense_is_refused() {
        for block in [
            "80",           // index 0
            "be",           // the table is empty
            "ffffffffffff", // a number without end
            "4003",         // a missing name
            "3fe21f",       // a table of 4097
            "8220",         // a resize behind a field
            "40",           // nothing behind it
        ] {
            let refused = fields(&mut Decoder::default(), &hex(block));
            assert_eq!(refused, Err(Fault::Compression), "{block}");
        }
    }
}
