//! Any text is some requests, or refused with the place of its fault; any text is a URL or none.
#![no_main]

#[path = "../../tests/property/mod.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    property::requests_are_counted_or_refused(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        property::a_url_says_where_it_goes(text);
    }
});
