//! The command bypass: run, stat, options.
fn main() {}
