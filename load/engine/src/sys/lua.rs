//! A Lua state with every library, as wrk's scripts expect it, and the C library's output buffer
//! that their `print` and `io.write` go through.

use mlua::{Lua, LuaOptions, StdLib};

/// A state with all libraries, `debug` and `ffi` among them.
pub fn open() -> Lua {
    // SAFETY: scripts are the user's own programs, run with the user's rights, as under wrk; they
    // can do with `ffi` what any program of the user can. This program does not rely on them not to.
    unsafe { Lua::unsafe_new_with(StdLib::ALL, LuaOptions::default()) }
}

/// Writes out what scripts have printed, so that it keeps its place among our own lines.
pub fn flush_output() {
    // SAFETY: a null stream means all of them.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}
