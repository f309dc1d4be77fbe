//! Any bytes are header blocks and Huffman codes, or are rejected.
#![no_main]

#[path = "../../tests/property/mod.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    property::blocks_are_read_or_refused(bytes);
    property::texts_come_back(bytes);
});
