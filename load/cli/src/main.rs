//! The command wirespeed-load.
fn main() {}
