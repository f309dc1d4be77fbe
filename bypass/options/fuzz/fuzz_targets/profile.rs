//! Any text read as a profile ends, without a panic, in settings that fit the table or in one line.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    bypass_options::profile::check_reading(&text);
});
