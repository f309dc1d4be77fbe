//! Whatever a peer sends to a rendezvous socket, with whatever descriptor, ends in a message or a refusal.
#![no_main]

#[path = "../../tests/hostile/script.rs"]
#[allow(dead_code)]
mod script;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| script::greet(bytes));
