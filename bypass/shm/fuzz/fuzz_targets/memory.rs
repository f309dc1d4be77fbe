//! Whatever a peer writes into the shared memory, and whenever, the victim's calls end in bounds.
#![no_main]

#[path = "../../tests/hostile/script.rs"]
#[allow(dead_code)]
mod script;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| script::play(bytes));
