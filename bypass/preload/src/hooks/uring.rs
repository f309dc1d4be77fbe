//! io_uring_setup: what is done through a ring is not seen here, so a process with one is left to the
//! kernel. libuv makes a ring for its epoll_ctl calls alone, and does without where there is none.

use std::path::Path;

/// What libuv asks for: its loop's ring has 256 entries, that for files 64.
const LIBUV_ENTRIES: [u32; 2] = [256, 64];
/// IORING_SETUP_SQPOLL and IORING_SETUP_NO_SQARRAY of linux/io_uring.h.
const LIBUV_FLAGS: u32 = 1 << 1 | 1 << 16;
/// Whether libuv may use io_uring; see `start`.
pub const LIBUV_SWITCH: &str = "UV_USE_IO_URING";

/// Turns libuv's rings off where nobody has said otherwise. Some of its versions look at this for files
/// only, hence [`is_libuvs`].
pub fn switch_libuv_off() {
    if std::env::var_os(LIBUV_SWITCH).is_none() {
        std::env::set_var(LIBUV_SWITCH, "0");
    }
}

/// Whether a ring with these entries and `flags` is asked for by libuv, which nobody has told to.
#[cold]
pub fn is_libuvs(entries: u32, flags: u32) -> bool {
    let is_off = std::env::var_os(LIBUV_SWITCH).is_some_and(|value| value == "0");
    is_off && LIBUV_ENTRIES.contains(&entries) && flags & !LIBUV_FLAGS == 0 && has_libuv()
}

/// Whether libuv is in this process: as a library, in uvloop, or in Node.
fn has_libuv() -> bool {
    let program = std::env::current_exe().unwrap_or_default();
    let name = program.file_name().unwrap_or_default();
    if name == "node" || name == "nodejs" {
        return true;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().any(|line| {
        let path = Path::new(line.rsplit(' ').next().unwrap_or(""));
        let is_library = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("libuv.so"));
        is_library || path.iter().any(|part| part == "uvloop")
    })
}
