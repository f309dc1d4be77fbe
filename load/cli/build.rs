//! Lets Lua modules that are written in C find Lua's functions in the program, as under wrk.

fn main() {
    let names = concat!(env!("CARGO_MANIFEST_DIR"), "/lua-functions.list");
    println!("cargo:rerun-if-changed={names}");
    println!("cargo:rustc-link-arg-bins=-Wl,--dynamic-list={names}");
}
