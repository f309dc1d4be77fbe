//! The end of a process: what it has written is delivered, as the kernel would, but not for ever.

use core::time::Duration;

use bypass_sys::clock::now_ns;
use bypass_sys::kernel;

use super::{is_active, lock, relays};

/// How long a process stays for what others have not acknowledged.
const LINGER_NS: u64 = 2_000_000_000;
const LOOK: Duration = Duration::from_micros(500);

/// At exit: closes every connection that no other process has, and sends what is left.
pub extern "C" fn finish() {
    if !is_active() {
        return;
    }
    let start = now_ns();
    for relay in relays() {
        lock(relay).close_all();
    }
    loop {
        super::drive();
        let is_over = relays().iter().all(|relay| !lock(relay).is_sending());
        if is_over || now_ns() - start > LINGER_NS {
            return;
        }
        let _ = kernel::poll(&mut [], Some(LOOK), None);
    }
}
