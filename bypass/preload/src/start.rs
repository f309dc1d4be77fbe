//! What happens when the library is loaded, and around fork.

use std::cell::RefCell;

use bypass_stack::lifecycle::fork::{self, Prepared};
use bypass_stack::lifecycle::{exec, handover, serving};
use bypass_stack::operations::release;
use bypass_stack::process::{self, deferral};

/// Run by the loader after libc is ready.
#[used]
#[link_section = ".init_array"]
static START: extern "C" fn() = start;

extern "C" fn start() {
    process::read_environment();
    serving::provide();
    release::provide();
    crate::hooks::uring::switch_libuv_off();
    crate::hooks::exec::remember_environment();
    // SAFETY: the three handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    let passed = std::env::var(exec::VARIABLE);
    if let Some(file) = passed.ok().and_then(|text| text.parse().ok()) {
        exec::adopt(file);
        crate::hooks::descriptors::replace_standard_streams();
    }
    handover::adopt_inherited();
}

thread_local! {
    static PREPARED: RefCell<Option<Prepared>> = const { RefCell::new(None) };
}

extern "C" fn before_fork() {
    deferral::enter();
    let prepared = fork::prepare();
    let _ = PREPARED.try_with(|place| place.replace(prepared));
}

extern "C" fn in_parent() {
    let _ = PREPARED.try_with(RefCell::take);
    deferral::leave();
}

extern "C" fn in_child() {
    let prepared = PREPARED.try_with(RefCell::take).ok().flatten();
    fork::child(prepared);
    deferral::leave();
}
