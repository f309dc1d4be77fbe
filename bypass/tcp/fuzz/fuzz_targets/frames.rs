//! Fuzz target: see `frames` in tests/hostile/script.rs.
#![no_main]

#[path = "../../tests/hostile/script.rs"]
#[allow(dead_code)]
mod script;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| script::frames(bytes));
