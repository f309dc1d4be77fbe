//! Any bytes of a server end streams or the connection, with the same meaning however they are cut.
#![no_main]

#[path = "../../tests/property/mod.rs"]
#[allow(dead_code, reason = "each target uses a part of it")]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // the first byte is the position of the cut
    if let [cut, rest @ ..] = bytes {
        property::cut_anywhere_it_means_the_same(rest, usize::from(*cut));
    }
});
